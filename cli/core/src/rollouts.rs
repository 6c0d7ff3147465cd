//! The rollouts of a workload.

use kube::ResourceExt as _;
use pitstop_api::rollout::{
    self, InPlaceRollout, InPlaceRolloutSpec, TargetKind, TargetRef, TemplateChanges,
};

use crate::change::Change;

/// The rollouts of the workload. The first acts: it is the oldest, and of equally old ones the first by name.
pub fn of_workload(kind: TargetKind, name: &str, all: Vec<InPlaceRollout>) -> Vec<InPlaceRollout> {
    let is_for = |rollout: &InPlaceRollout| {
        rollout.spec.target_ref.as_ref().is_some_and(|target| target.kind == kind && target.name == name)
    };
    oldest_first(all.into_iter().filter(is_for).collect())
}

/// Puts the one that acts first, in the controller's order of rollouts for the same Pods.
pub(crate) fn oldest_first(mut rollouts: Vec<InPlaceRollout>) -> Vec<InPlaceRollout> {
    let age = |rollout: &InPlaceRollout| rollout.metadata.creation_timestamp.as_ref().map(|at| at.0);
    rollouts.sort_by(|a, b| age(a).cmp(&age(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name)));
    rollouts
}

/// A rollout for the workload that does nothing yet: its template changes go the native way.
pub fn new(kind: TargetKind, workload: &str, all: &[InPlaceRollout]) -> InPlaceRollout {
    let target = TargetRef { kind, name: workload.to_owned(), ..TargetRef::default() };
    let spec = InPlaceRolloutSpec {
        target_ref: Some(target),
        template_changes: TemplateChanges::Native,
        ..InPlaceRolloutSpec::default()
    };
    InPlaceRollout::new(&free_name(kind, workload, all), spec)
}

/// The workload's own name; its kind is added if another rollout has that name.
fn free_name(kind: TargetKind, workload: &str, all: &[InPlaceRollout]) -> String {
    if all.iter().all(|rollout| rollout.name_any() != workload) {
        return workload.to_owned();
    }
    let kind = kind.name().to_ascii_lowercase();
    // Most characters of a name: 253.
    let most = 252_usize.saturating_sub(kind.len());
    let cut: String = workload.chars().take(most).collect();
    format!("{}-{kind}", cut.trim_end_matches(['-', '.']))
}

/// The rollout after the change. Fails, with the field, if it would be refused.
pub fn changed(existing: &InPlaceRollout, change: &Change) -> Result<InPlaceRollout, String> {
    let mut changed = serde_json::to_value(existing).map_err(|error| error.to_string())?;
    change.apply(&mut changed);
    let changed: InPlaceRollout = serde_json::from_value(changed).map_err(|error| error.to_string())?;
    let name =
        existing.metadata.name.as_deref().map_or_else(String::new, |name| format!("inplacerollout/{name}: "));
    rollout::validate(&changed.spec).map_err(|invalid| format!("{name}{invalid}"))?;
    Ok(changed)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn rollout(name: &str, created: &str, spec: &Value) -> InPlaceRollout {
        serde_json::from_value(json!({
            "apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout", "spec": spec,
            "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
                "creationTimestamp": format!("2026-01-01T00:00:{created}Z")},
        }))
        .unwrap()
    }

    pub(crate) fn for_deployment(name: &str) -> Value {
        json!({"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}})
    }

    #[test]
    fn the_oldest_of_the_workload_acts() {
        let set = json!({"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}});
        let all = vec![
            rollout("young", "09", &for_deployment("web")),
            rollout("b", "03", &for_deployment("web")),
            rollout("a", "03", &for_deployment("web")),
            rollout("set", "01", &set),
            rollout("other", "01", &for_deployment("other")),
            rollout("selects", "01", &json!({"selector": {"matchLabels": {"app": "web"}}})),
        ];
        let found = of_workload(TargetKind::Deployment, "web", all);
        let names: Vec<String> = found.iter().map(kube::ResourceExt::name_any).collect();
        assert_eq!(names, ["a", "b", "young"]);
    }

    #[test]
    fn a_new_one_has_a_name_that_is_free_and_parks_nothing() {
        let others = [rollout("web", "01", &for_deployment("other"))];
        let made = new(TargetKind::StatefulSet, "web", &others);
        assert_eq!(made.name_any(), "web-statefulset");
        assert_eq!(
            serde_json::to_value(&made).unwrap(),
            json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout",
                "metadata": {"name": "web-statefulset"},
                "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"},
                    "templateChanges": "Native"}})
        );
        assert_eq!(new(TargetKind::Deployment, "db", &others).name_any(), "db");
        let long = "w".repeat(253);
        let others = [rollout(&long, "01", &for_deployment("other"))];
        assert_eq!(new(TargetKind::DaemonSet, &long, &others).name_any().len(), 253);
    }
}
