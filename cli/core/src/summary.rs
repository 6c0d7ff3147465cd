//! How far a request is: whether it is open, done or failed, and why.

use chrono::{DateTime, Utc};
use kube::Resource;
pub use pitstop_api::condition::Progress;
use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::{self, ContainerRecreateRequest};
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::{InPlaceRollout, InPlaceRolloutStatus, TargetKind, UpdateEnd, conditions};

use crate::target::RequestKind;

/// The reason of a request that the controller has not seen yet, or whose latest spec it has not seen.
pub const NOT_SEEN: &str = "NotSeen";

/// How far a request is. Texts are raw from the API: show them by [`crate::plain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Whether it is over, and how.
    pub progress: Progress,
    /// The name of its phase; empty: none yet.
    pub phase: &'static str,
    /// What it waits for, or how it ended: a reason of docs/troubleshooting.md, or [`NOT_SEEN`].
    pub reason: String,
    /// The same in a sentence.
    pub message: String,
    /// When it ended; of an open one, since when it has been open, on the clock of the controller or the API server.
    pub since: Option<DateTime<Utc>>,
}

/// The parts of a status that all kinds have.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommonStatus<'a> {
    /// The name of `status.phase`; empty: none.
    pub phase: &'static str,
    /// `status.observedGeneration`.
    pub observed_generation: Option<i64>,
    /// `status.completionTime`; rollouts have none.
    pub completed_at: Option<DateTime<Utc>>,
    /// `status.conditions`.
    pub conditions: &'a [Condition],
}

/// A request or rollout, whose status says how far it is.
pub trait Request: Resource<DynamicType = ()> {
    /// Which kind it is.
    const KIND: RequestKind;

    /// The common parts of its status.
    fn common_status(&self) -> CommonStatus<'_>;

    /// The workload that is parked while the rollout is at work on it; `None` for other requests.
    fn workload(&self) -> Option<(TargetKind, &str)> {
        None
    }

    /// `metadata.generation` of the workload's template change that the status reports; `None` for other requests.
    fn update_generation(&self) -> Option<i64> {
        None
    }

    /// How far it is by rules of its kind; `None`: the common conditions decide.
    fn by_kind(&self, _common: CommonStatus<'_>) -> Option<Summary> {
        None
    }

    /// The last template change was not made in the running Pods.
    fn is_given_up(&self) -> bool {
        false
    }

    /// Its work has begun and not ended, even if it is stalled until a user acts.
    fn is_midway(&self) -> bool {
        false
    }
}

/// How far a request is.
pub fn summary<R: Request>(request: &R) -> Summary {
    let common = request.common_status();
    request.by_kind(common).unwrap_or_else(|| by_conditions(request, common))
}

/// Whether the request has work left.
pub fn is_at_work<R: Request>(request: &R) -> bool {
    request.is_midway() || summary(request).progress == Progress::Open
}

/// Whether the controller is ready to make changes in the workload's running Pods. The controller tries again, so the
/// summary is open until it succeeds.
pub fn armed_summary<R: Request>(request: &R) -> Summary {
    let common = request.common_status();
    let armed = condition::find(common.conditions, conditions::ARMED);
    let Some(armed) = armed.filter(|armed| armed.observed_generation >= request.meta().generation) else {
        return unseen(request, common, "the controller has not set the condition Armed yet".to_owned());
    };
    let progress = if is_true(armed) { Progress::Succeeded } else { Progress::Open };
    of_condition(progress, common, armed)
}

/// By the conditions that all kinds have. The end of a request is final, even if its spec changes afterwards; rollouts
/// differ: see [`InPlaceRollout`]'s own rules.
fn by_conditions<R: Request>(request: &R, common: CommonStatus<'_>) -> Summary {
    let complete = condition::find(common.conditions, condition::COMPLETE);
    let failed = condition::find(common.conditions, condition::FAILED).filter(|c| is_true(c));
    let (progress, condition) = match (failed, complete) {
        (Some(failed), _) => (Progress::Failed, failed),
        (None, Some(complete)) if is_true(complete) => (Progress::Succeeded, complete),
        (None, Some(complete)) => (Progress::Open, complete),
        (None, None) => return unseen(request, common, "the controller has not seen it yet".to_owned()),
    };
    of_condition(progress, common, condition)
}

fn of_condition(progress: Progress, common: CommonStatus<'_>, condition: &Condition) -> Summary {
    Summary {
        progress,
        phase: common.phase,
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: common.completed_at.or(Some(condition.last_transition_time)),
    }
}

fn is_true(condition: &Condition) -> bool {
    condition.status == ConditionStatus::True
}

/// Of a request that the controller has not seen.
fn unseen<R: Request>(request: &R, common: CommonStatus<'_>, message: String) -> Summary {
    let created = request.meta().creation_timestamp.as_ref();
    let since = created.and_then(|at| DateTime::from_timestamp(at.0.as_second(), 0));
    Summary { progress: Progress::Open, phase: common.phase, reason: NOT_SEEN.to_owned(), message, since }
}

impl Request for ContainerRecreateRequest {
    const KIND: RequestKind = RequestKind::Restart;

    fn common_status(&self) -> CommonStatus<'_> {
        self.status.as_ref().map_or_else(CommonStatus::default, |status| CommonStatus {
            phase: status.phase.map_or("", recreate::Phase::name),
            observed_generation: status.observed_generation,
            completed_at: status.completion_time,
            conditions: &status.conditions,
        })
    }

    /// OpenKruise's own controller writes no conditions with the outcome: the container states have it.
    fn by_kind(&self, common: CommonStatus<'_>) -> Option<Summary> {
        let status = self.status.as_ref().filter(|it| it.phase == Some(recreate::Phase::Completed))?;
        if condition::find(common.conditions, condition::COMPLETE).is_some() {
            return None;
        }
        let containers = &status.container_recreate_states;
        let bad = containers.iter().find(|state| state.phase != recreate::Phase::Succeeded);
        let good = bad.is_none() && !containers.is_empty() && status.message.is_empty();
        let message = match bad {
            _ if !status.message.is_empty() => status.message.clone(),
            Some(state) => {
                format!("container {} is {}: {}", state.name, state.phase.name(), state.message)
            }
            None => String::new(),
        };
        Some(Summary {
            progress: if good { Progress::Succeeded } else { Progress::Failed },
            phase: common.phase,
            reason: common.phase.to_owned(),
            message,
            since: common.completed_at,
        })
    }
}

impl Request for PodResize {
    const KIND: RequestKind = RequestKind::Resize;

    fn common_status(&self) -> CommonStatus<'_> {
        self.status.as_ref().map_or_else(CommonStatus::default, |status| CommonStatus {
            phase: status.phase.map_or("", pitstop_api::resize::Phase::name),
            observed_generation: status.observed_generation,
            completed_at: status.completion_time,
            conditions: &status.conditions,
        })
    }
}

impl Request for PodImageUpdate {
    const KIND: RequestKind = RequestKind::ImageUpdate;

    fn common_status(&self) -> CommonStatus<'_> {
        self.status.as_ref().map_or_else(CommonStatus::default, |status| CommonStatus {
            phase: status.phase.map_or("", pitstop_api::image_update::Phase::name),
            observed_generation: status.observed_generation,
            completed_at: status.completion_time,
            conditions: &status.conditions,
        })
    }
}

impl Request for InPlaceRollout {
    const KIND: RequestKind = RequestKind::Rollout;

    fn common_status(&self) -> CommonStatus<'_> {
        self.status.as_ref().map_or_else(CommonStatus::default, |status| CommonStatus {
            phase: status.phase.map_or("", pitstop_api::rollout::Phase::name),
            observed_generation: status.observed_generation,
            completed_at: None,
            conditions: &status.conditions,
        })
    }

    fn workload(&self) -> Option<(TargetKind, &str)> {
        let target = self.spec.target_ref.as_ref().filter(|_| self.spec.changes_in_place())?;
        Some((target.kind, &target.name))
    }

    fn is_given_up(&self) -> bool {
        let ended = self.status.as_ref().and_then(|status| status.update.as_ref()?.ended);
        matches!(ended, Some(UpdateEnd::NotInPlace | UpdateEnd::Superseded))
    }

    fn is_midway(&self) -> bool {
        let updates =
            |status: &InPlaceRolloutStatus| status.update.as_ref().is_some_and(|it| it.ended.is_none());
        self.status.as_ref().is_some_and(|status| status.restart.is_some() || updates(status))
    }

    fn update_generation(&self) -> Option<i64> {
        self.status.as_ref()?.update.as_ref().map(|update| update.generation)
    }

    /// A rollout serves many changes: a status of an older spec says nothing about the present one. A restart is done
    /// only when the status has the spec's `restartedAt`.
    fn by_kind(&self, common: CommonStatus<'_>) -> Option<Summary> {
        let generation = self.meta().generation.unwrap_or_default();
        let observed = common.observed_generation.unwrap_or(-1);
        if observed < generation {
            let message = match observed {
                ..0 => "the controller has not seen it yet".to_owned(),
                _ => "the controller has not seen the latest change of spec yet".to_owned(),
            };
            return Some(unseen(self, common, message));
        }
        let finished = self.status.as_ref().and_then(|status| status.restarted_at.as_deref());
        let wanted = self.spec.restarted_at.as_deref();
        let summary = by_conditions(self, common);
        if summary.progress == Progress::Succeeded && wanted.is_some() && wanted != finished {
            let message = format!("the restart {} has not begun yet", wanted.unwrap_or_default());
            return Some(unseen(self, common, message));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use pitstop_api::condition::record;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::Progress::{Failed, Open, Succeeded};
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn read<R: DeserializeOwned>(kind: RequestKind, spec: &Value, status: &Value) -> R {
        let meta = json!({"name": "r", "generation": 2, "creationTimestamp": "1970-01-01T00:00:05Z"});
        let group = if kind == RequestKind::Restart { "apps.kruise.io" } else { "pitstop.dev" };
        serde_json::from_value(json!({
            "apiVersion": format!("{group}/v1alpha1"),
            "kind": kind.kind(), "metadata": meta, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    /// The status that the controller writes.
    fn status(progress: Progress, phase: &'static str, reason: &'static str, generation: i64) -> Value {
        let mut conditions = Vec::new();
        let summary = condition::Summary { progress, phase, reason, message: "so it is" };
        record(&mut conditions, summary, at(10), Some(generation));
        json!({"phase": phase, "observedGeneration": generation, "conditions": conditions})
    }

    fn is(progress: Progress, phase: &'static str, reason: &str) -> Summary {
        let (reason, message) = (reason.to_owned(), "so it is".to_owned());
        Summary { progress, phase, reason, message, since: Some(at(10)) }
    }

    const RESIZE: fn() -> Value = || json!({"podRef": {"name": "web"}, "containers": []});
    const ROLLOUT: fn() -> Value =
        || json!({"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});

    #[test]
    fn what_the_controller_writes_is_read_back_for_every_kind() {
        let restart = |status| {
            let spec = json!({"podName": "web", "containers": [{"name": "app"}]});
            summary(&read::<ContainerRecreateRequest>(RequestKind::Restart, &spec, &status))
        };
        let resize = |status| summary(&read::<PodResize>(RequestKind::Resize, &RESIZE(), &status));
        let update = |status| summary(&read::<PodImageUpdate>(RequestKind::ImageUpdate, &RESIZE(), &status));
        let rollout = |status| summary(&read::<InPlaceRollout>(RequestKind::Rollout, &ROLLOUT(), &status));
        for (summary, expected) in [
            (restart(status(Open, "Pending", "Queued", 2)), is(Open, "Pending", "Queued")),
            (restart(status(Succeeded, "Completed", "Complete", 2)), is(Succeeded, "Completed", "Complete")),
            (restart(status(Failed, "Completed", "PodGone", 2)), is(Failed, "Completed", "PodGone")),
            (resize(status(Open, "Deferred", "NodeBusy", 2)), is(Open, "Deferred", "NodeBusy")),
            (
                resize(status(Failed, "Infeasible", "NodeCapacity", 2)),
                is(Failed, "Infeasible", "NodeCapacity"),
            ),
            (update(status(Succeeded, "Succeeded", "Updated", 2)), is(Succeeded, "Succeeded", "Updated")),
            (
                rollout(status(Succeeded, "Idle", "NothingRequested", 2)),
                is(Succeeded, "Idle", "NothingRequested"),
            ),
            (rollout(status(Failed, "Stalled", "PodsFailed", 2)), is(Failed, "Stalled", "PodsFailed")),
            (rollout(status(Open, "Paused", "Paused", 2)), is(Open, "Paused", "Paused")),
        ] {
            assert_eq!(summary, expected);
        }
    }

    #[test]
    fn one_that_the_controller_has_not_seen_is_open_since_it_was_made() {
        for status in [json!(null), json!({"observedGeneration": -1})] {
            let summary = summary(&read::<PodResize>(RequestKind::Resize, &RESIZE(), &status));
            assert_eq!((summary.progress, summary.phase), (Progress::Open, ""));
            assert_eq!((summary.reason.as_str(), summary.since), (NOT_SEEN, Some(at(5))));
        }
    }

    #[test]
    fn the_end_of_a_request_stays_when_its_spec_changes_afterwards() {
        let status = status(Progress::Succeeded, "Succeeded", "Resized", 1);
        let cancelled_too_late = read::<PodResize>(RequestKind::Resize, &RESIZE(), &status);
        assert_eq!(summary(&cancelled_too_late).progress, Progress::Succeeded);
    }

    #[test]
    fn a_rollout_is_done_with_what_is_asked_for_now() {
        let of = |at: Option<&str>, finished: Option<&str>, generation| {
            let mut spec = ROLLOUT();
            spec["restartedAt"] = json!(at);
            let mut status = status(Progress::Succeeded, "Complete", "Restarted", generation);
            status["restartedAt"] = json!(finished);
            let Summary { progress, reason, message, .. } =
                summary(&read::<InPlaceRollout>(RequestKind::Rollout, &spec, &status));
            (progress, reason, message)
        };
        assert_eq!(of(Some("b"), Some("b"), 2).0, Progress::Succeeded);
        assert_eq!(of(None, Some("a"), 2).0, Progress::Succeeded, "nothing is asked for");
        let stale = of(Some("b"), Some("a"), 1);
        assert_eq!((stale.0, stale.1.as_str()), (Progress::Open, NOT_SEEN));
        assert!(stale.2.contains("latest change of spec"), "{}", stale.2);
        let other = of(Some("b"), Some("a"), 2);
        assert_eq!(other.0, Progress::Open);
        assert_eq!(other.2, "the restart b has not begun yet");
        let failed = status(Progress::Failed, "Stalled", "PodsFailed", 1);
        let before = summary(&read::<InPlaceRollout>(RequestKind::Rollout, &ROLLOUT(), &failed));
        assert_eq!(before.progress, Progress::Open, "a failure of an older spec is none of this one");
    }

    #[test]
    fn a_stalled_rollout_is_at_work_while_it_has_begun_with_something() {
        let of = |begun: Value| {
            let mut status = status(Failed, "Stalled", "PodsFailed", 2);
            let Value::Object(begun) = begun else { panic!("no object") };
            status.as_object_mut().unwrap().extend(begun);
            is_at_work(&read::<InPlaceRollout>(RequestKind::Rollout, &ROLLOUT(), &status))
        };
        assert!(of(json!({"update": {"revision": "b"}})));
        assert!(of(json!({"restart": {"restartedAt": "now"}})));
        assert!(!of(json!({"update": {"revision": "b", "ended": "RolledBack"}})));
        assert!(!of(json!({})));
        let idle = status(Succeeded, "Idle", "NothingRequested", 2);
        assert!(!is_at_work(&read::<InPlaceRollout>(RequestKind::Rollout, &ROLLOUT(), &idle)));
        assert!(is_at_work(&read::<PodResize>(RequestKind::Resize, &RESIZE(), &json!(null))));
    }

    #[test]
    fn what_open_kruise_itself_has_ended_is_over() {
        let of = |states: Value, message: &str| {
            let spec = json!({"podName": "web", "containers": [{"name": "app"}]});
            let status = json!({"phase": "Completed", "completionTime": "1970-01-01T00:00:10Z",
                "containerRecreateStates": states, "message": message});
            let summary = summary(&read::<ContainerRecreateRequest>(RequestKind::Restart, &spec, &status));
            assert_eq!(summary.since, Some(at(10)));
            (summary.progress, summary.message)
        };
        let app = |phase: &str| json!([{"name": "app", "phase": phase, "message": "why"}]);
        assert_eq!(of(app("Succeeded"), ""), (Progress::Succeeded, String::new()));
        assert_eq!(of(app("Failed"), ""), (Progress::Failed, "container app is Failed: why".into()));
        assert_eq!(of(app("Succeeded"), "pod has gone"), (Progress::Failed, "pod has gone".into()));
        assert_eq!(of(json!([]), "").0, Progress::Failed);
    }
}
