//! The Pod Security level `restricted`, as far as a Linux Pod can breach it.

use serde_json::Value;

use crate::object::{list, text};

/// Volume kinds that the level allows.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Every breach of `restricted` by a Pod template, each as `what: where`.
pub fn breaches(template: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let spec = template.get("spec").unwrap_or(&Value::Null);
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec.get(field).is_some_and(|value| *value != Value::Bool(false)) {
            found.push(format!("{field}: Pod"));
        }
    }
    for volume in list(spec, "/volumes") {
        let kinds = volume.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        for kind in kinds.filter(|key| *key != "name" && !VOLUMES.contains(key)) {
            found.push(format!("{kind}: volume {}", text(volume, "/name")));
        }
    }
    let common = spec.get("securityContext").unwrap_or(&Value::Null);
    if !list(common, "/sysctls").is_empty() {
        found.push("sysctls: Pod".to_owned());
    }
    for kind in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list(spec, &format!("/{kind}")) {
            found.extend(container_breaches(container, common));
        }
    }
    found
}

fn container_breaches(container: &Value, pod: &Value) -> Vec<String> {
    let own = container.get("securityContext").unwrap_or(&Value::Null);
    // The container's field takes precedence over the Pod's.
    let effective = |field: &str| own.get(field).or_else(|| pod.get(field)).unwrap_or(&Value::Null);
    let capabilities = |which: &str| list(own, &format!("/capabilities/{which}"));
    let profile = |field: &str| effective(field).get("type").and_then(Value::as_str).map(str::to_owned);
    let is = |field: &str, value: bool| own.get(field) == Some(&Value::Bool(value));
    let checks = [
        ("privileged", own.get("privileged").is_some() && !is("privileged", false)),
        ("allowPrivilegeEscalation", !is("allowPrivilegeEscalation", false)),
        ("capabilities", capabilities("drop") != [Value::from("ALL")] || !capabilities("add").is_empty()),
        ("runAsNonRoot", *effective("runAsNonRoot") != Value::Bool(true)),
        ("runAsUser", *effective("runAsUser") == 0),
        (
            "seccompProfile",
            !matches!(profile("seccompProfile").as_deref(), Some("RuntimeDefault" | "Localhost")),
        ),
        ("appArmorProfile", profile("appArmorProfile").is_some_and(|kind| kind == "Unconfined")),
        ("seLinuxOptions", !effective("seLinuxOptions").is_null()),
        ("procMount", own.get("procMount").is_some_and(|mount| *mount != "Default")),
        ("hostPort", list(container, "/ports").iter().any(|port| port.get("hostPort").is_some())),
    ];
    let name = text(container, "/name");
    checks.iter().filter(|(_, bad)| *bad).map(|(what, _)| format!("{what}: container {name}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn good() -> Value {
        json!({"spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 7, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "t", "projected": {}}],
            "containers": [{"name": "c", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]
        }})
    }

    #[test]
    fn a_confined_pod_has_no_breach() {
        assert_eq!(breaches(&good()), [""; 0]);
    }

    #[test]
    fn each_loosening_is_named() {
        let container = "/spec/containers/0/securityContext";
        let cases = [
            ("/spec", "hostNetwork", json!(true), "hostNetwork: Pod"),
            ("/spec", "hostPID", json!(true), "hostPID: Pod"),
            ("/spec/securityContext", "runAsNonRoot", json!(false), "runAsNonRoot: container c"),
            ("/spec/securityContext", "runAsUser", json!(0), "runAsUser: container c"),
            ("/spec/securityContext", "sysctls", json!([{"name": "x"}]), "sysctls: Pod"),
            (container, "runAsUser", json!(0), "runAsUser: container c"),
            (container, "privileged", json!(true), "privileged: container c"),
            (container, "allowPrivilegeEscalation", json!(true), "allowPrivilegeEscalation: container c"),
            (container, "capabilities", json!({"drop": ["ALL"], "add": ["X"]}), "capabilities: container c"),
            (container, "capabilities", json!({"drop": ["X"]}), "capabilities: container c"),
            (container, "seccompProfile", json!({"type": "Unconfined"}), "seccompProfile: container c"),
            ("/spec/volumes/0", "hostPath", json!({"path": "/"}), "hostPath: volume t"),
            ("/spec/containers/0", "ports", json!([{"hostPort": 1}]), "hostPort: container c"),
        ];
        for (parent, field, value, expected) in cases {
            let mut pod = good();
            pod.pointer_mut(parent).unwrap()[field] = value;
            assert_eq!(breaches(&pod), [expected]);
        }
    }

    #[test]
    fn other_containers_are_judged_too() {
        let mut pod = good();
        pod["spec"]["initContainers"] = json!([{"name": "i"}]);
        assert!(breaches(&pod).contains(&"capabilities: container i".to_owned()));
    }
}
