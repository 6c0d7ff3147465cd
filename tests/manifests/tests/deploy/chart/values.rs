//! Each value changes only the documented fields, or is refused.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_manifests_test::helm::CHART;
use pitstop_manifests_test::{Object, docs, find};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::folders::NAMESPACE;
use super::{POLICY, REGISTRY, assert_same, refused, rendered, with_helm, yaml};

/// Values that are set together, and the resulting fields.
#[derive(Deserialize)]
struct Change {
    set: Vec<String>,
    /// New field values, by object, then by JSON pointer.
    puts: BTreeMap<String, BTreeMap<String, Value>>,
}

fn changes() -> Vec<Change> {
    serde_saphyr::from_str(include_str!("changes.yaml")).unwrap()
}

/// Values that add or remove whole objects.
const OBJECTS: [&str; 3] =
    ["networkPolicy.enabled=false", "optIn.namespaces={shop}", "monitoring.labels.release=prometheus"];
/// Values that `same.rs` compares with kustomize.
const COMPARED: [&str; 12] = [
    "crds.install",
    "crds.keep",
    "features.evict",
    "features.resizeCri",
    "features.imagePuller",
    "features.imageUpdate",
    "features.inPlace",
    "gate.mode",
    "lockedNamespace",
    "monitoring.enabled",
    "namespace.create",
    "seccomp.localhost",
];

#[test]
fn a_value_changes_what_it_says_and_nothing_else() {
    with_helm(|helm| {
        let before = rendered(helm, &[POLICY]);
        for Change { set, puts } in changes() {
            let values: Vec<&str> = [POLICY].into_iter().chain(set.iter().map(String::as_str)).collect();
            let mut after = rendered(helm, &values);
            let mut expected = before.clone();
            for (name, put) in &puts {
                for (pointer, value) in put {
                    let found = take(&mut after, name, pointer);
                    assert_eq!(found, *value, "{set:?}: {name} {pointer}");
                    assert_ne!(take(&mut expected, name, pointer), *value, "{set:?}: {name} {pointer}");
                }
            }
            // No other field may differ.
            assert_same(&after, &expected, &set.join(" "));
        }
    });
}

/// Removes and returns the value at a pointer in an object; null without one.
fn take(objects: &mut [Object], name: &str, pointer: &str) -> Value {
    let is_it = |o: &&mut Object| format!("{} {}/{}", o.kind(), o.namespace(), o.name()) == name;
    let object = objects.iter_mut().find(is_it).unwrap();
    let (above, key) = pointer.rsplit_once('/').unwrap();
    let above = object.0.pointer_mut(above).unwrap().as_object_mut().unwrap();
    above.remove(key).unwrap_or(Value::Null)
}

/// Components' flags precede those of values.
#[test]
fn flags_are_added_to_those_of_components() {
    with_helm(|helm| {
        let values = ["features.resizeCri=true", "kruiseCrrOff=true", "daemon.extraArgs={--image-room=0}"];
        let objects = rendered(helm, &values);
        for (kind, name, args) in [
            ("Deployment", "pitstop-controller", ["--resize-cri", "--kruise-crr-off"]),
            ("DaemonSet", "pitstop-daemon", ["--resize", "--image-room=0"]),
        ] {
            let object = &find(&objects, kind, name).unwrap().0;
            assert_eq!(object.pointer("/spec/template/spec/containers/0/args"), Some(&json!(args)));
        }
    });
}

#[test]
fn a_value_adds_or_takes_whole_objects() {
    with_helm(|helm| {
        let [network, opt_in, labels] = OBJECTS;
        let before = rendered(helm, &[POLICY]);
        let rest: Vec<Object> = before.iter().filter(|o| o.kind() != "NetworkPolicy").cloned().collect();
        assert_same(&rendered(helm, &[POLICY, network]), &rest, network);
        let rollouts = [POLICY, "features.imageUpdate=true", "features.inPlace=true", opt_in];
        let opted_in = rendered(helm, &rollouts);
        assert_eq!(find(&opted_in, "RoleBinding", "pitstop-in-place").unwrap().0, documented_binding());
        let watched = rendered(helm, &["monitoring.enabled=true", labels]);
        for kind in ["PodMonitor", "PrometheusRule"] {
            let labels = &find(&watched, kind, "pitstop").unwrap().0["metadata"]["labels"];
            assert_eq!(*labels, json!({"app.kubernetes.io/name": "pitstop", "release": "prometheus"}));
        }
    });
}

/// The object that the command in `docs/tasks/update-a-workload.md` creates, with pitstop's labels.
fn documented_binding() -> Value {
    let block = docs::marked("let-in-place").unwrap().remove(0);
    let command = block.text.replace("\\\n", "");
    let command = command.split("kubectl create rolebinding ").nth(1).unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    let flag = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)).unwrap();
    let (namespace, account) = flag("--serviceaccount=").split_once(':').unwrap();
    let group = "rbac.authorization.k8s.io";
    let labels = json!({"app.kubernetes.io/name": "pitstop", "app.kubernetes.io/component": "controller"});
    json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "RoleBinding",
        "metadata": {"name": words[0], "namespace": flag("--namespace="), "labels": labels},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": flag("--clusterrole=")},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    })
}

/// Collects the paths of all values. Empty maps are values.
fn leaves(values: &Value, path: &str, found: &mut BTreeSet<String>) {
    match values.as_object() {
        Some(map) if !map.is_empty() => {
            for (key, value) in map {
                leaves(value, format!("{path}.{key}").trim_start_matches('.'), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_value_is_tested() {
    let mut all = BTreeSet::new();
    leaves(&yaml("values.yaml"), "", &mut all);
    let changes: Vec<String> = changes().into_iter().flat_map(|change| change.set).collect();
    let set: Vec<&str> = changes.iter().map(String::as_str).chain(OBJECTS).chain(COMPARED).collect();
    // A change may set a part of a map or list.
    let is_set = |leaf: &str| {
        let sets =
            |one: &&&str| one.strip_prefix(leaf).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        set.iter().find(sets).is_some()
    };
    let missing: Vec<&String> = all.iter().filter(|leaf| !is_set(leaf)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_value_is_explained_and_no_other_is_known() {
    let text =
        std::fs::read_to_string(pitstop_manifests_test::root().join(CHART).join("values.yaml")).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for pair in lines.windows(2) {
        let is_value = pair[1].contains(": ") && !pair[1].starts_with('#');
        assert!(!is_value || pair[0].starts_with('#'), "{} needs a comment", pair[1]);
    }
    let schema = yaml("values.schema.json");
    let mut open = Vec::new();
    closed(&schema, "", &mut open);
    assert_eq!(open, ["/properties/global"], "these take any value");
}

/// Finds object schemas that allow additional properties.
fn closed(schema: &Value, path: &str, open: &mut Vec<String>) {
    if schema["type"] == "object" && schema.get("additionalProperties").is_none() {
        open.push(path.to_owned());
    }
    for (key, value) in schema.as_object().into_iter().flatten() {
        closed(value, &format!("{path}/{key}"), open);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let custom = "runtime.preset=custom";
    let cases: [(&str, &[&str], &str); 12] = [
        (NAMESPACE, &[], "must not pull a stranger's image"),
        ("default", &[REGISTRY], "needs a namespace of its own"),
        ("kube-system", &[REGISTRY], "needs a namespace of its own"),
        ("1e3", &[REGISTRY], "the namespace 1e3 would be no text in YAML"),
        (NAMESPACE, &[REGISTRY, "monitoring.labels.a=b"], "monitoring.labels needs monitoring.enabled"),
        (NAMESPACE, &[REGISTRY, "features.imagePuller=true"], "imagePuller needs features.imageUpdate"),
        (NAMESPACE, &[REGISTRY, "features.inPlace=true"], "inPlace needs features.imageUpdate"),
        (NAMESPACE, &[REGISTRY, "optIn.namespaces={shop}"], "optIn.namespaces needs features.inPlace"),
        (NAMESPACE, &[REGISTRY, custom], "needs runtime.socket"),
        (NAMESPACE, &[REGISTRY, "runtime.socket=/run/a/b"], "needs runtime.preset=custom"),
        (NAMESPACE, &[REGISTRY, custom, "runtime.socket=/var/run/b"], "/var/run has"),
        (
            NAMESPACE,
            &[REGISTRY, "networkPolicy.enabled=false", "networkPolicy.apiServerPorts={1}"],
            "needs networkPolicy.enabled",
        ),
    ];
    with_helm(|helm| {
        for (namespace, values, why) in cases {
            let refusal = refused(helm, namespace, values);
            assert!(refusal.contains(why), "{values:?}: {refusal}");
        }
    });
}

#[test]
fn the_schema_refuses_what_it_does_not_know() {
    let values = [
        ("image.registry=a b", "at '/image/registry': 'a b' does not match"),
        (
            "image.architectures={riscv64}",
            "at '/image/architectures/0': value must be one of 'amd64', 'arm64'",
        ),
        ("image.daemon.digest=sha256:1", "at '/image/daemon/digest'"),
        ("runtime.preset=docker", "at '/runtime/preset': value must be one of"),
        ("runtime.socket=/run/b", "at '/runtime/socket'"),
        ("gate.mode=none", "at '/gate/mode'"),
        ("features.resizeCri=yes", "at '/features/resizeCri': got string, want boolean"),
        ("optIn.namespaces={Shop}", "at '/optIn/namespaces/0'"),
        ("networkPolicy.apiServerPorts={0}", "at '/networkPolicy/apiServerPorts/0'"),
        ("controller.extraArgs={-x}", "at '/controller/extraArgs/0'"),
        ("daemon.replicas=2", "at '/daemon': additional properties 'replicas' not allowed"),
        ("nameOverride=x", "additional properties 'nameOverride' not allowed"),
    ];
    with_helm(|helm| {
        let refusal = refused(helm, NAMESPACE, &values.map(|(value, _)| value));
        for (value, why) in values {
            assert!(refusal.contains(why), "{value}: {refusal}");
        }
    });
}

/// With `Never`, nodes pull no images.
#[test]
fn images_on_the_nodes_need_no_registry() {
    with_helm(|helm| {
        let printed = helm.template(CHART, NAMESPACE, &["image.pullPolicy=Never"]).unwrap();
        assert!(printed.contains("image: pitstop.dev/controller:"), "{printed}");
    });
}
