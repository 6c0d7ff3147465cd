//! With equal options, the chart and kustomize install the same objects.

use std::fs;

use pitstop_manifests_test::helm::{self, CHART};
use pitstop_manifests_test::{Object, object};
use serde_json::{Value, json};

use super::super::folders::{NAMESPACE, RUNTIMES, combined, default, gate_webhook, resize_cri};
use super::{POLICY, REGISTRY, WEBHOOK, assert_same, rendered, rendered_with_definitions, with_helm};

/// Value that creates the Namespace, which `deploy/base` also has.
const CREATE: &str = "namespace.create=true";
const NO_DEFINITIONS: &str = "crds.install=false";

/// `deploy/default` with components and without the definitions.
fn with(components: &[&str]) -> Vec<Object> {
    combined("base, gate-policy", components)
}

fn without_definitions(objects: Vec<Object>) -> Vec<Object> {
    objects.into_iter().filter(|object| object.kind() != "CustomResourceDefinition").collect()
}

#[test]
fn the_folders() {
    with_helm(|helm| {
        for (values, applied) in [
            (&[POLICY, CREATE][..], default()),
            (&[WEBHOOK, CREATE], gate_webhook()),
            (&[WEBHOOK, CREATE, "features.resizeCri=true"], resize_cri()),
            (&[POLICY, CREATE, NO_DEFINITIONS], without_definitions(default())),
        ] {
            assert_same(&rendered_with_definitions(helm, values), &applied, &values.join(" "));
        }
    });
}

#[test]
fn the_runtimes() {
    with_helm(|helm| {
        for (runtime, _) in RUNTIMES {
            let preset = format!("runtime.preset={runtime}");
            assert_same(&rendered(helm, &[POLICY, CREATE, &preset]), &with(&[runtime]), runtime);
        }
    });
}

#[test]
fn the_other_components() {
    let update = "features.imageUpdate=true";
    with_helm(|helm| {
        for (values, components) in [
            (&["lockedNamespace=true"][..], &["locked-namespace"][..]),
            (&["seccomp.localhost=true"], &["seccomp"]),
            (&["features.evict=true"], &["resize-evict"]),
            (&["monitoring.enabled=true"], &["monitoring"]),
            (&[update, "features.imagePuller=true"], &["image-update", "image-puller"]),
            (&[update, "features.inPlace=true"], &["image-update", "in-place", "park"]),
        ] {
            let values = [&[POLICY, CREATE], values].concat();
            assert_same(&rendered(helm, &values), &with(components), &values.join(" "));
        }
    });
}

#[test]
fn nothing_parks_where_no_mutating_policies_are_served() {
    with_helm(|helm| {
        let values = [WEBHOOK, CREATE, "features.imageUpdate=true", "features.inPlace=true"];
        let applied = without_definitions(combined("overlays/gate-webhook", &["image-update", "in-place"]));
        assert_same(&rendered(helm, &values), &applied, "in-place without park");
    });
}

/// Values of every component, with a runtime.
fn all() -> Vec<&'static str> {
    [&["runtime.preset=crio", "monitoring.enabled=true"], &helm::COMPONENTS[..]].concat()
}

/// The objects of [`all`] by kustomize.
fn all_components() -> Vec<Object> {
    let components = [
        "crio",
        "locked-namespace",
        "monitoring",
        "seccomp",
        "resize-cri",
        "resize-evict",
        "image-update",
        "image-puller",
        "in-place",
        "park",
    ];
    with(&components)
}

#[test]
fn all_components_together_also_from_a_package() {
    with_helm(|helm| {
        let values = [&[REGISTRY, POLICY, CREATE, NO_DEFINITIONS][..], &all()].concat();
        let of = |chart: &str| helm::objects(&helm.template(chart, NAMESPACE, &values).unwrap()).unwrap();
        assert_same(&of(CHART), &all_components(), "all");
        let folder = helm.folder().unwrap().join("package");
        fs::create_dir_all(&folder).unwrap();
        helm.run(&["package", CHART, "--destination", &folder.to_string_lossy()]).unwrap();
        let package = folder.join(format!("pitstop-{}.tgz", env!("CARGO_PKG_VERSION")));
        assert_same(&of(&package.to_string_lossy()), &all_components(), "the package");
    });
}

/// `auto` asks the API server. `helm template` has none, so `--api-versions` replaces it.
#[test]
fn the_gate_is_a_policy_where_the_api_server_serves_one() {
    let kind = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";
    with_helm(|helm| {
        let values = ["--set", REGISTRY, "--set", CREATE, "--set", NO_DEFINITIONS, "--api-versions", kind];
        let args = ["template", "pitstop", CHART, "--namespace", NAMESPACE];
        let served = helm.run(&[&args[..], &values].concat()).unwrap();
        assert_same(&helm::objects(&served).unwrap(), &with(&[]), "served");
        assert_same(&rendered(helm, &[CREATE]), &without_definitions(gate_webhook()), "not served");
    });
}

#[test]
fn the_namespace_is_the_releases_everywhere() {
    with_helm(|helm| {
        let values = [&[REGISTRY, POLICY, CREATE, NO_DEFINITIONS][..], &all()].concat();
        let printed = helm.template(CHART, "elsewhere", &values).unwrap();
        assert!(!printed.contains(NAMESPACE));
        let applied = all_components().into_iter();
        let moved = |object: Object| object.0.to_string().replace(NAMESPACE, "elsewhere");
        let applied: Vec<Object> =
            applied.map(|object| Object(serde_json::from_str(&moved(object)).unwrap())).collect();
        assert_same(&helm::objects(&printed).unwrap(), &applied, "elsewhere");
    });
}

/// By default, Helm or its user creates the Namespace.
#[test]
fn the_namespace_itself_is_left_out() {
    with_helm(|helm| {
        let applied = with(&[]).into_iter().filter(|o| o.kind() != "Namespace").collect::<Vec<_>>();
        assert_same(&rendered(helm, &[POLICY]), &applied, "without the Namespace");
    });
}

#[test]
fn only_definitions_stay_after_an_uninstall() {
    with_helm(|helm| {
        for (keep, expected) in [(true, json!({"helm.sh/resource-policy": "keep"})), (false, Value::Null)] {
            let values = [REGISTRY, &format!("crds.keep={keep}")];
            let printed = helm.template(CHART, NAMESPACE, &values).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&printed).unwrap();
            for document in documents.iter().filter(|document| !document.is_null()) {
                let kind = object::text(document, "/kind");
                let annotations = &document["metadata"]["annotations"];
                let expected = if kind == "CustomResourceDefinition" { &expected } else { &Value::Null };
                assert_eq!(annotations, expected, "{kind}");
            }
        }
    });
}
