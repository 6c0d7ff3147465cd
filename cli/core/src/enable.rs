//! Switches on and off whether template changes of a workload are made in its running Pods.

use kube::ResourceExt as _;
use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::rollout::{ARMED, InPlaceRollout, Update, UpdateEnd, conditions};
use serde_json::{Map, Value, json};

use crate::change::Change;
use crate::rollouts::changed;
use crate::strategy::Steps;
use crate::workload::Workload;

/// The change that switches a rollout on, with these steps; `None` if it is on and `steps` is empty.
pub fn on(existing: &InPlaceRollout, steps: &Steps) -> Result<Option<Change>, String> {
    let fields = steps.fields();
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

/// How one rollout of a workload is switched off.
#[derive(Clone, Debug, PartialEq)]
pub enum Off {
    /// The rollout stays, for restarts.
    Change(Change),
    /// The rollout is deleted.
    Delete,
}

/// How a workload is to be switched off.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Its rollouts are deleted.
    pub delete: bool,
    /// It is released even after a failed update.
    pub force: bool,
}

/// The steps for a workload's rollouts, of which the first acts. While an armed rollout exists, admission parks the
/// workload again, and only the controller may disarm the rollout. Armed rollouts of a parked workload are deleted, so
/// that the workload can be released without a controller.
pub fn off(
    workload: &Workload,
    rollouts: Vec<InPlaceRollout>,
    manner: Manner,
) -> Result<Vec<(InPlaceRollout, Off)>, String> {
    let parked = workload.is_parked();
    if parked && !manner.force {
        whole(workload, rollouts.first())?;
    }
    let steps: Vec<_> = rollouts
        .into_iter()
        .filter_map(|rollout| {
            let armed = rollout.labels().get(ARMED).is_some_and(|value| value == "true");
            let native = || Change::merge(json!({"spec": {"templateChanges": "Native"}}));
            if manner.delete || (parked && armed) {
                return Some((rollout, Off::Delete));
            }
            rollout.spec.changes_in_place().then(|| (rollout, Off::Change(native())))
        })
        .collect();
    if steps.is_empty() && !parked {
        return Err(format!(
            "no InPlaceRollout makes changes of {} in its running Pods, and it is not parked: there is nothing to disable",
            workload.target()
        ));
    }
    Ok(steps)
}

/// The controller's condition about a failure, even if `spec` has changed since: a pause does not repair a template.
fn failure(rollout: &InPlaceRollout) -> Option<&Condition> {
    let status = rollout.status.as_ref()?;
    let goes_back = |update: &Update| update.rolling_back || update.ended == Some(UpdateEnd::RolledBack);
    let back = status.update.as_ref().is_some_and(goes_back);
    let failed = condition::find(&status.conditions, conditions::FAILED);
    let failed = failed.filter(|failed| failed.status == ConditionStatus::True);
    failed.or_else(|| condition::find(&status.conditions, conditions::COMPLETE).filter(|_| back))
}

/// Fails if the last update failed: the workload's own controller would give the failed template to every Pod.
fn whole(workload: &Workload, acting: Option<&InPlaceRollout>) -> Result<(), String> {
    let target = workload.target();
    let Some(failed) = acting.and_then(failure) else { return Ok(()) };
    Err(format!(
        "{target} is parked, and its update has failed ({}: {}). If it is released, its own controller makes new Pods of that \
         template. Undo the change first (`kubectl pitstop undo {target}`), or add --force",
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

    fn steps(parked: bool, armed: bool, manner: Manner) -> Vec<Off> {
        let all = vec![in_place(armed, &json!(null)), rollout("plain", "01", &for_deployment("web"))];
        off(&web(parked), all, manner).unwrap().into_iter().map(|(_, step)| step).collect()
    }

    #[test]
    fn it_is_switched_on_with_the_steps_that_were_named() {
        let native = rollout("web", "00", &for_deployment("web"));
        let change = on(&native, &Steps { canary: Some(1), ..Steps::default() }).unwrap().unwrap();
        assert_eq!(
            change.patch,
            json!({"spec": {"templateChanges": "InPlace", "strategy": {"canary": {"pods": 1}}}})
        );
        assert_eq!(on(&in_place(true, &json!(null)), &Steps::default()), Ok(None));
        let error = on(&native, &Steps { canary: Some(0), ..Steps::default() }).unwrap_err();
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
        let native = || Off::Change(Change::merge(json!({"spec": {"templateChanges": "Native"}})));
        assert_eq!(steps(false, true, Manner::default()), [native()]);
        assert_eq!(steps(true, false, Manner::default()), [native()]);
        assert_eq!(steps(true, true, Manner::default()), [Off::Delete]);
        assert_eq!(steps(false, false, Manner { delete: true, force: false }), [Off::Delete, Off::Delete]);
        assert!(
            off(&web(true), vec![], Manner::default()).unwrap().is_empty(),
            "a parked one is released without"
        );
        let none = off(&web(false), vec![], Manner::default()).unwrap_err();
        assert!(none.contains("there is nothing to disable"), "{none}");
    }

    #[test]
    fn a_failed_template_is_not_let_loose_unawares() {
        let status = json!({"phase": "Stalled", "observedGeneration": 0, "conditions": [
            {"type": "Failed", "status": "True", "reason": "PodsFailed", "message": "1 of 3 Pods",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let failed = || vec![in_place(true, &status)];
        let error = off(&web(true), failed(), Manner::default()).unwrap_err();
        assert!(
            error.contains("has failed (PodsFailed: 1 of 3 Pods)") && error.contains("add --force"),
            "{error}"
        );
        let forced = Manner { delete: false, force: true };
        assert_eq!(off(&web(true), failed(), forced).unwrap().len(), 1);
        assert!(off(&web(false), failed(), Manner::default()).is_ok(), "it is released already");
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
            let plain = Manner { delete: false, force: false };
            let told = off(&web(true), vec![rollout.clone()], plain).unwrap_err();
            assert!(told.contains("its update has failed") && told.contains("--force"), "{told}");
            assert!(off(&web(true), vec![rollout], Manner { force: true, ..plain }).is_ok());
        }
    }
}
