//! The opt-in of a namespace: a label, and a `RoleBinding`. See docs/tasks/update-a-workload.md and
//! deploy/chart/templates/opt-in.yaml.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::change::Change;

/// The label of a namespace in which pitstop may change images.
pub const LABEL: &str = "pitstop.dev/in-place";
/// The label's value.
pub const ENABLED: &str = "enabled";
/// The name of the `ClusterRole` with the right to release workloads, and of its binding.
pub const ROLE: &str = "pitstop-in-place";
/// The controller's service account.
const ACCOUNT: &str = "pitstop-controller";

/// The change of the namespace's label.
pub fn label(on: bool) -> Change {
    let value = if on { Value::from(ENABLED) } else { Value::Null };
    Change::merge(json!({"metadata": {"labels": {LABEL: value}}}))
}

/// The `RoleBinding` in a namespace for the controller, which runs in namespace `system`.
pub fn binding(namespace: &str, system: &str) -> RoleBinding {
    let labels = [("app.kubernetes.io/name", "pitstop"), ("app.kubernetes.io/component", "controller")];
    RoleBinding {
        metadata: ObjectMeta {
            name: Some(ROLE.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: ROLE.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: ACCOUNT.to_owned(),
            namespace: Some(system.to_owned()),
            ..Subject::default()
        }]),
    }
}

/// Fails if the existing binding has another role, or lacks a wanted subject.
pub fn check_binding(existing: &RoleBinding, wanted: &RoleBinding) -> Result<(), String> {
    let subjects = existing.subjects.as_deref().unwrap_or_default();
    let has = |subject: &Subject| {
        subjects
            .iter()
            .any(|it| it.kind == subject.kind && it.name == subject.name && it.namespace == subject.namespace)
    };
    let binds =
        existing.role_ref.kind == wanted.role_ref.kind && existing.role_ref.name == wanted.role_ref.name;
    if binds && wanted.subjects.iter().flatten().all(has) {
        return Ok(());
    }
    let system = wanted.subjects.iter().flatten().find_map(|it| it.namespace.as_deref()).unwrap_or_default();
    Err(format!(
        "rolebinding/{ROLE} exists, but does not bind ClusterRole {ROLE} to the service account {system}/{ACCOUNT}: delete it and \
         try again, or name the controller's namespace with --controller-namespace"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binding_is_that_of_the_documentation() {
        assert_eq!(
            serde_json::to_value(binding("shop", "pitstop-system")).unwrap(),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "pitstop-in-place", "namespace": "shop", "labels":
                    {"app.kubernetes.io/name": "pitstop", "app.kubernetes.io/component": "controller"}},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pitstop-in-place"},
                "subjects": [{"kind": "ServiceAccount", "name": "pitstop-controller", "namespace": "pitstop-system"}]})
        );
        assert_eq!(label(true).patch, json!({"metadata": {"labels": {"pitstop.dev/in-place": "enabled"}}}));
        assert_eq!(label(false).patch, json!({"metadata": {"labels": {"pitstop.dev/in-place": null}}}));
    }

    #[test]
    fn another_binding_of_that_name_is_not_taken_for_it() {
        let wanted = binding("shop", "pitstop-system");
        assert_eq!(check_binding(&wanted, &wanted), Ok(()));
        let elsewhere = binding("shop", "other");
        let error = check_binding(&elsewhere, &wanted).unwrap_err();
        assert!(error.contains("pitstop-system/pitstop-controller"), "{error}");
        let mut role = wanted.clone();
        role.role_ref.name = "view".to_owned();
        assert!(check_binding(&role, &wanted).is_err());
        let nobody = RoleBinding { subjects: None, ..wanted.clone() };
        assert!(check_binding(&nobody, &wanted).is_err());
    }
}
