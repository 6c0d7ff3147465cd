//! The Helm chart installs the same objects as kustomize, changed by its values.

mod same;
mod values;

use std::collections::BTreeMap;
use std::fs;

use pitstop_manifests_test::helm::{self, CHART, Helm};
use pitstop_manifests_test::{Object, root};
use serde_json::Value;

use super::folders::NAMESPACE;

/// Value for the registry of the images in `deploy/`.
const REGISTRY: &str = "image.registry=pitstop.dev";
const POLICY: &str = "gate.mode=policy";
const WEBHOOK: &str = "gate.mode=webhook";

/// Runs a test with Helm, if it is built.
fn with_helm(test: impl FnOnce(&Helm)) {
    if let Some(helm) = Helm::find().unwrap() {
        test(&helm);
    }
}

/// The chart's objects with these values and the images of `deploy/`, without the definitions, which are slow to parse.
fn rendered(helm: &Helm, values: &[&str]) -> Vec<Object> {
    rendered_with_definitions(helm, &[&["crds.install=false"], values].concat())
}

fn rendered_with_definitions(helm: &Helm, values: &[&str]) -> Vec<Object> {
    let values = [&[REGISTRY], values].concat();
    helm::objects(&helm.template(CHART, NAMESPACE, &values).unwrap()).unwrap()
}

/// Helm's error for these values.
fn refused(helm: &Helm, namespace: &str, values: &[&str]) -> String {
    helm.template(CHART, namespace, values).unwrap_err().to_string()
}

/// The objects by kind, namespace and name. Asserts that each is unique.
fn by_name(objects: &[Object]) -> BTreeMap<String, &Value> {
    let name = |o: &Object| format!("{} {}/{}", o.kind(), o.namespace(), o.name());
    let named: BTreeMap<_, _> = objects.iter().map(|object| (name(object), &object.0)).collect();
    assert_eq!(named.len(), objects.len(), "an object is there twice");
    named
}

fn assert_same(rendered: &[Object], applied: &[Object], about: &str) {
    let (rendered, applied) = (by_name(rendered), by_name(applied));
    let names = |objects: &BTreeMap<String, &Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&rendered), names(&applied), "{about}");
    for (name, object) in applied {
        assert!(rendered[&name] == object, "{about}: {name}: {:#} is not {object:#}", rendered[&name]);
    }
}

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(root().join(CHART).join(file)).unwrap()).unwrap()
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let chart = yaml("Chart.yaml");
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn lint_finds_nothing() {
    with_helm(|helm| {
        for values in [&["--set", REGISTRY][..], &[]] {
            let args = [&["lint", "--strict", "--namespace", NAMESPACE, CHART], values].concat();
            let output = helm.run(&args).unwrap();
            assert!(!output.contains("[WARNING]") && !output.contains("[ERROR]"), "{output}");
        }
    });
}
