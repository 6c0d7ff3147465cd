//! Switches on and off whether template changes of a workload are made in its running Pods.

use kube::ResourceExt as _;
use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::rollout::{ARMED, InPlaceRollout, Update, UpdateEnd, conditions};
use serde_json::{Map, Value, json};

use crate::change::{Action, Change};
use crate::rollouts::changed;
use crate::strategy::StrategyOptions;
use crate::workload::Workload;

/// The change that switches a rollout on, with these options; `None` if it is on and `options` is empty.
pub fn enable_change(existing: &InPlaceRollout, options: &StrategyOptions) -> Result<Option<Change>, String> {
    let fields = options.fields();
    if existing.spec.changes_in_place() && fields.is_empty() {
        return Ok(None);
    }
    let mut spec = Map::new();
    spec.insert("templateChanges".to_owned(), "InPlace".into());
    if !fields.is_empty() {
        spec.insert("strategy".to_owned(), fields.into());
    }
    let change = Change::merge(json!({"spec": spec}));
    changed(existing, &change)?;
    Ok(Some(change))
}

/// The change that pauses or resumes a rollout. Fails if it already is paused or resumed.
pub fn pause(existing: &InPlaceRollout, paused: bool) -> Result<Change, String> {
    let name = existing.name_any();
    match (existing.spec.paused, paused) {
        (true, true) => Err(format!("inplacerollout/{name} is already paused")),
        (false, false) => Err(format!("inplacerollout/{name} is not paused")),
        _ => Ok(Change::merge(
            json!({"spec": {"paused": if paused { Value::Bool(true) } else { Value::Null }}}),
        )),
    }
}

/// The options for switching a workload off.
#[derive(Clone, Copy, Debug, Default)]
pub struct DisableOptions {
    /// Its rollouts are deleted.
    pub delete: bool,
    /// It is released even after a failed update.
    pub force: bool,
}

/// The actions on a workload's rollouts, of which the first acts. Those that stay are for restarts. While an armed
/// rollout exists, admission parks the workload again, and only the controller may disarm the rollout. Armed rollouts of
/// a parked workload are deleted, so that the workload can be released without a controller.
pub fn disable_actions(
    workload: &Workload,
    rollouts: Vec<InPlaceRollout>,
    options: DisableOptions,
) -> Result<Vec<(InPlaceRollout, Action)>, String> {
    let parked = workload.is_parked();
    if parked && !options.force {
        check_not_failed(workload, rollouts.first())?;
    }
    let actions: Vec<_> = rollouts
        .into_iter()
        .filter_map(|rollout| {
            let armed = rollout.labels().get(ARMED).is_some_and(|value| value == "true");
            let native = || Change::merge(json!({"spec": {"templateChanges": "Native"}}));
            if options.delete || (parked && armed) {
                return Some((rollout, Action::Delete));
            }
            rollout.spec.changes_in_place().then(|| (rollout, Action::Change(native())))
        })
        .collect();
    if actions.is_empty() && !parked {
        return Err(format!(
            "{} has no InPlaceRollout with templateChanges: InPlace, and is not parked: there is nothing to disable",
            workload.target()
        ));
    }
    Ok(actions)
}

/// The controller's condition about a failure, even if `spec` has changed since: a pause does not repair a template.
fn failed_condition(rollout: &InPlaceRollout) -> Option<&Condition> {
    let status = rollout.status.as_ref()?;
    let rolls_back = |update: &Update| update.rolling_back || update.ended == Some(UpdateEnd::RolledBack);
    let back = status.update.as_ref().is_some_and(rolls_back);
    let failed = condition::find(&status.conditions, conditions::FAILED);
    let failed = failed.filter(|failed| failed.status == ConditionStatus::True);
    failed.or_else(|| condition::find(&status.conditions, conditions::COMPLETE).filter(|_| back))
}

/// Fails if the last update failed: the workload's own controller would give the failed template to every Pod.
fn check_not_failed(workload: &Workload, acting: Option<&InPlaceRollout>) -> Result<(), String> {
    let target = workload.target();
    let Some(failed) = acting.and_then(failed_condition) else { return Ok(()) };
    Err(format!(
        "{target} is parked, and its update has failed ({}: {}). If it is released, its own controller makes new Pods of the \
         failed template. Undo the change first (`kubectl pitstop undo {target}`), or add --force",
        failed.reason, failed.message
    ))
}

#[cfg(test)]
mod tests {
    use pitstop_api::rollout::TargetKind;

    use super::*;
    use crate::rollouts::tests::{for_deployment, rollout};
    use crate::workload::tests::workload;

    fn in_place(armed: bool, status: &Value) -> InPlaceRollout {
        let mut spec = for_deployment("web");
        spec["templateChanges"] = json!("InPlace");
        let mut made = serde_json::to_value(rollout("web", "00", &spec)).unwrap();
        if armed {
            made["metadata"]["labels"] = json!({"pitstop.dev/armed": "true"});
        }
        made["status"] = status.clone();
        serde_json::from_value(made).unwrap()
    }

    fn web(parked: bool) -> Workload {
        let labels = if parked { json!({"pitstop.dev/parked": "Unpaused"}) } else { json!({}) };
        workload(TargetKind::Deployment, &labels, &json!({"paused": parked}))
    }

    fn actions(parked: bool, armed: bool, options: DisableOptions) -> Vec<Action> {
        let all = vec![in_place(armed, &json!(null)), rollout("plain", "01", &for_deployment("web"))];
        disable_actions(&web(parked), all, options).unwrap().into_iter().map(|(_, action)| action).collect()
    }

    #[test]
    fn it_is_switched_on_with_the_steps_that_were_named() {
        let native = rollout("web", "00", &for_deployment("web"));
        let canary = |pods| StrategyOptions { canary: Some(pods), ..StrategyOptions::default() };
        let change = enable_change(&native, &canary(1)).unwrap().unwrap();
        assert_eq!(
            change.patch,
            json!({"spec": {"templateChanges": "InPlace", "strategy": {"canary": {"pods": 1}}}})
        );
        assert_eq!(enable_change(&in_place(true, &json!(null)), &StrategyOptions::default()), Ok(None));
        let error = enable_change(&native, &canary(0)).unwrap_err();
        assert_eq!(error, "inplacerollout/web: spec.strategy.canary.pods: must be between 1 and 1000, not 0");
    }

    #[test]
    fn a_pause_is_asked_for_once() {
        let mut existing = rollout("web", "00", &for_deployment("web"));
        assert_eq!(pause(&existing, true).unwrap().patch, json!({"spec": {"paused": true}}));
        assert_eq!(pause(&existing, false).unwrap_err(), "inplacerollout/web is not paused");
        existing.spec.paused = true;
        assert_eq!(pause(&existing, true).unwrap_err(), "inplacerollout/web is already paused");
        assert_eq!(pause(&existing, false).unwrap().patch, json!({"spec": {"paused": null}}));
    }

    #[test]
    fn only_what_would_park_the_workload_again_is_deleted() {
        let native = || Action::Change(Change::merge(json!({"spec": {"templateChanges": "Native"}})));
        assert_eq!(actions(false, true, DisableOptions::default()), [native()]);
        assert_eq!(actions(true, false, DisableOptions::default()), [native()]);
        assert_eq!(actions(true, true, DisableOptions::default()), [Action::Delete]);
        let delete = DisableOptions { delete: true, force: false };
        assert_eq!(actions(false, false, delete), [Action::Delete, Action::Delete]);
        assert!(
            disable_actions(&web(true), vec![], DisableOptions::default()).unwrap().is_empty(),
            "a parked one is released without"
        );
        let none = disable_actions(&web(false), vec![], DisableOptions::default()).unwrap_err();
        assert!(none.contains("there is nothing to disable"), "{none}");
    }

    #[test]
    fn a_failed_template_is_not_let_loose_unawares() {
        let status = json!({"phase": "Stalled", "observedGeneration": 0, "conditions": [
            {"type": "Failed", "status": "True", "reason": "PodsFailed", "message": "1 of 3 Pods",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let failed = || vec![in_place(true, &status)];
        let error = disable_actions(&web(true), failed(), DisableOptions::default()).unwrap_err();
        assert!(
            error.contains("has failed (PodsFailed: 1 of 3 Pods)") && error.contains("add --force"),
            "{error}"
        );
        let forced = DisableOptions { delete: false, force: true };
        assert_eq!(disable_actions(&web(true), failed(), forced).unwrap().len(), 1);
        assert!(disable_actions(&web(false), failed(), DisableOptions::default()).is_ok(), "it is released");
    }

    #[test]
    fn a_failed_template_is_released_only_by_force_whatever_was_asked_since() {
        let failed = json!([{"type": "Failed", "status": "True", "reason": "PodsFailed", "message": "m",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let back = json!([{"type": "Complete", "status": "False", "reason": "RollingBack", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let update = |end: &Value| json!({"revision": "r", "rollingBack": end.is_null(), "ended": end});
        for status in [
            json!({"observedGeneration": 1, "conditions": failed}),
            json!({"conditions": back, "update": update(&json!(null))}),
            json!({"conditions": back, "update": update(&json!("RolledBack"))}),
        ] {
            let mut rollout = in_place(true, &status);
            rollout.metadata.generation = Some(2);
            let plain = DisableOptions { delete: false, force: false };
            let error = disable_actions(&web(true), vec![rollout.clone()], plain).unwrap_err();
            assert!(error.contains("its update has failed") && error.contains("--force"), "{error}");
            let forced = DisableOptions { force: true, ..plain };
            assert!(disable_actions(&web(true), vec![rollout], forced).is_ok());
        }
    }
}
