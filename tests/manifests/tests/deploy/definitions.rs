//! The installed definitions of the kinds.

use pitstop_manifests_test::find;
use pitstop_manifests_test::object::{list, text};
use serde_json::{Value, json};

use super::folders::default;

/// Client-side apply keeps a copy of the object in an annotation, and annotations may have 256 KiB in all.
const MAX_APPLIED: usize = 256 * 1024;

#[test]
fn every_kind_is_installed_as_the_types_say() {
    let objects = default();
    let installed = objects.iter().filter(|o| o.kind() == "CustomResourceDefinition").count();
    let crds = pitstop_api::crds();
    assert_eq!(installed, crds.len());
    let mut read = crds.clone();
    for crd in crds {
        let expected = serde_json::to_value(&crd).unwrap();
        let found = find(&objects, "CustomResourceDefinition", text(&expected, "/metadata/name")).unwrap();
        // Compare parsed values: the file has 3 where the type has 3.0.
        read[0] = serde_json::from_value(found.0.clone()).unwrap();
        assert!(read[0] == crd, "{} is not current; run `cargo xtask crds`", found.name());
    }
}

#[test]
fn every_version_has_a_status_of_its_own_and_needs_no_conversion() {
    for crd in default().iter().filter(|o| o.kind() == "CustomResourceDefinition") {
        assert_eq!(crd.0["spec"].get("conversion"), None, "{}", crd.name());
        let versions = list(&crd.0, "/spec/versions");
        assert_eq!(versions.iter().filter(|v| v["storage"] == true).count(), 1, "{}", crd.name());
        for version in versions {
            assert_eq!(version["subresources"], json!({"status": {}}), "{}", crd.name());
            assert_eq!(version["served"], true, "{}", crd.name());
            assert_eq!(version["schema"], versions[0]["schema"], "{}", crd.name());
        }
        let size = serde_json::to_string(&crd.0).unwrap().len();
        assert!(size < MAX_APPLIED, "{} has {size} bytes", crd.name());
    }
}

/// `OpenKruise`'s users see the first four columns. A column reads one field, so the condition's reason is the result.
#[test]
fn a_failed_request_does_not_look_complete() {
    let objects = default();
    let crd = find(&objects, "CustomResourceDefinition", "containerrecreaterequests.apps.kruise.io").unwrap();
    for version in list(&crd.0, "/spec/versions") {
        let columns = list(version, "/additionalPrinterColumns").iter();
        let shown = columns.filter(|column| column["priority"].as_i64().unwrap_or(0) == 0);
        let shown: Vec<(&str, &str)> = shown.map(|c| (text(c, "/name"), text(c, "/jsonPath"))).collect();
        let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["Phase", "Pod", "Node", "Age", "Result"]);
        assert_eq!(shown[4].1, r#".status.conditions[?(@.type=="Complete")].reason"#);
    }
    let reasons: Vec<&str> = pitstop_controller_core::recreate::REASONS.into();
    assert_eq!(reasons[0], pitstop_api::condition::COMPLETE, "what the column shows of a success");
}

#[test]
fn versions_and_scopes_are_what_clients_expect() {
    let objects = default();
    for (name, scope, versions) in [
        ("containerrecreaterequests.apps.kruise.io", "Namespaced", vec!["v1alpha1", "v1beta1"]),
        ("nodeworks.pitstop.dev", "Cluster", vec!["v1alpha1"]),
    ] {
        let crd = find(&objects, "CustomResourceDefinition", name).unwrap();
        assert_eq!(text(&crd.0, "/spec/scope"), scope);
        let found: Vec<&str> = list(&crd.0, "/spec/versions").iter().map(|v| text(v, "/name")).collect();
        assert_eq!(found, versions);
        assert_eq!(crd.0.pointer("/spec/preserveUnknownFields").unwrap_or(&Value::Null), &Value::Null);
    }
}
