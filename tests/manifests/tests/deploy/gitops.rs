//! The fields that `docs/tasks/gitops.md` names to Argo CD and Flux exist, for every kind that users create.

use std::collections::BTreeSet;
use std::fs;

use pitstop_api::condition::{COMPLETE, STALLED};
use pitstop_manifests_test::{docs::blocks, root};
use serde_json::Value;

/// The page's object of a kind.
fn shown(kind: &str) -> Value {
    let page = fs::read_to_string(root().join("docs/tasks/gitops.md")).unwrap();
    let shown = blocks(&page).into_iter().filter(|block| block.language == "yaml");
    let mut objects = shown.map(|block| serde_saphyr::from_str::<Value>(&block.text).unwrap());
    objects.find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind} is shown"))
}

/// Group, version and kind of each request.
fn requests() -> Vec<(String, String, String)> {
    let crds = pitstop_api::crds().into_iter().map(|crd| crd.spec).filter(|spec| spec.scope == "Namespaced");
    crds.map(|spec| (spec.group, spec.versions[0].name.clone(), spec.names.kind)).collect()
}

/// The condition types after `type ==` in a script or an expression.
fn types(text: &str) -> BTreeSet<&str> {
    let ends = ['"', '\''];
    text.split("type == ").skip(1).filter_map(|rest| rest.split(ends).nth(1)).collect()
}

#[test]
fn argo_cd_is_given_a_script_for_every_request() {
    let map = shown("ConfigMap");
    let scripts = map["data"].as_object().unwrap();
    let keys: BTreeSet<&str> = scripts.keys().map(String::as_str).collect();
    let wanted = requests().into_iter();
    let wanted: Vec<String> =
        wanted.map(|(group, _, kind)| format!("resource.customizations.health.{group}_{kind}")).collect();
    assert_eq!(keys, wanted.iter().map(String::as_str).collect());
    for script in scripts.values() {
        let script = script.as_str().unwrap();
        assert_eq!(types(script), [COMPLETE, STALLED].into());
        for field in ["status.observedGeneration", "status.conditions", "c.status", "c.reason", "c.message"] {
            assert!(script.contains(field), "{field}");
        }
    }
}

#[test]
fn flux_is_given_expressions_for_every_request() {
    let kustomization = shown("Kustomization");
    let all = kustomization["spec"]["healthCheckExprs"].as_array().unwrap();
    let named: Vec<(String, String)> = all
        .iter()
        .map(|e| ["apiVersion", "kind"].map(|key| e[key].as_str().unwrap().to_owned()).into())
        .collect();
    let wanted = requests().into_iter();
    let wanted: Vec<_> = wanted.map(|(group, version, kind)| (format!("{group}/{version}"), kind)).collect();
    assert_eq!(named, wanted);
    for expressions in all {
        for (field, type_) in [("failed", STALLED), ("current", COMPLETE)] {
            assert_eq!(types(expressions[field].as_str().unwrap()), [type_].into());
        }
    }
}

/// A request from a sync must not be deleted by itself: the next sync would create it again.
#[test]
fn no_request_on_that_page_has_a_time_to_live() {
    let request = shown("ContainerRecreateRequest");
    assert!(request["spec"].get("ttlSecondsAfterFinished").is_none());
    assert!(request["metadata"]["annotations"]["argocd.argoproj.io/hook"].is_string());
}
