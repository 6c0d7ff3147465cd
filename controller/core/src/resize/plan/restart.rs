//! The restart of the containers, once they have their new resources.

use std::collections::BTreeMap;

use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequestSpec, RecreateContainer};
use pitstop_api::resize::Phase;

use super::{Plan, Planner};
use crate::deed::{Child, Deed};
use crate::pod::Pod;
use crate::resize::judge::{Progress, SpecState};
use crate::resize::restart::{CHILD, Stage, restart_key, stage, to_restart};
use crate::resize::status::{self, End, Wait};
use crate::time::{Mono, earliest};

/// Minimum `activeDeadlineSeconds` of a recreate request.
const LEAST_DEADLINE: i64 = 3;

impl Planner<'_> {
    /// Whether every requested restart is over.
    pub(super) fn restarted(&self) -> bool {
        matches!(stage(self.now, self.observed), Stage::Over)
    }

    /// Plan for the requested restart; `None` before it can begin, and once it is over.
    pub(super) fn restart(
        &self,
        pod: &Pod,
        state: &SpecState,
        found: &Progress,
        deadline: Option<Mono>,
    ) -> Option<Plan> {
        let reached = stage(self.now, self.observed);
        if matches!(reached, Stage::Over) {
            return None;
        }
        // A restart that has begun changes the Pod, so only a new one needs `Sized`.
        if self.observed.memory.restarted.is_none() && *found != Progress::Sized {
            return None;
        }
        if let Stage::Failed(text) = reached {
            return Some(self.restart_failed(state, text));
        }
        if let Some(failure) = self.failure(pod) {
            return Some(self.give_up(state, failure));
        }
        let wait = Wait::new(Phase::InProgress, status::RESTARTING, self.restart_wait(&reached));
        // The watch may need a while to show the new request.
        let made = match self.observed.memory.deeds.done {
            Some((at, Deed::Create(_))) => Some(at.after(self.config.conflict_patience)),
            _ => None,
        };
        let shown_by = made.filter(|at| *at > self.now);
        let due = matches!(reached, Stage::Due) && shown_by.is_none();
        let deed = due.then(|| self.new_request(pod, deadline)).flatten();
        Some(Plan { deed, ..self.waiting(pod, &wait, earliest(deadline, shown_by)) })
    }

    /// Wait of an unfinished restart, for the message of the request's end.
    pub(super) fn restart_waits(&self, found: &Progress) -> Option<String> {
        let stage = stage(self.now, self.observed);
        let begun = matches!(stage, Stage::Underway) || *found == Progress::Sized;
        (begun && !matches!(stage, Stage::Over)).then(|| self.restart_wait(&stage))
    }

    fn restart_wait(&self, stage: &Stage) -> String {
        let key = restart_key(self.observed.resize);
        match stage {
            Stage::Underway => {
                format!("waits for ContainerRecreateRequest {key} to restart the containers")
            }
            Stage::Failed(_) if matches!(self.observed.memory.deeds.done, Some((_, Deed::Delete { .. }))) => {
                format!("waited for ContainerRecreateRequest {key} to restart the containers")
            }
            Stage::Blocked(text) | Stage::Failed(text) => text.clone(),
            Stage::Due | Stage::Over => format!("makes ContainerRecreateRequest {key}"),
        }
    }

    /// Ends a request whose restart failed. The new resources stay, unless the request rolls back or the daemon holds
    /// the Pod.
    fn restart_failed(&self, state: &SpecState, text: String) -> Plan {
        if self.observed.resize.spec.rollback_on_failure.is_some() {
            return self.give_up(state, End::new(Phase::RolledBack, status::RESTART_FAILED, text));
        }
        if self.observed.resize.held() {
            let text = format!("the containers were not all restarted: {text}");
            return self.give_up(state, End::failed(status::RESTART_FAILED, text));
        }
        let text = format!("the containers have their new resources, and were not all restarted: {text}");
        self.end(&End::failed(status::RESTART_FAILED, text))
    }

    /// The recreate request to create. Admission and the controller check the Pod's UID in its label.
    fn new_request(&self, pod: &Pod, deadline: Option<Mono>) -> Option<Deed> {
        let resize = self.observed.resize;
        let left = deadline.map(|at| i64::try_from(at.since(self.now).as_secs()).unwrap_or(i64::MAX));
        let container =
            |name: &str| RecreateContainer { name: name.to_owned(), ..RecreateContainer::default() };
        let spec = ContainerRecreateRequestSpec {
            pod_name: pod.key.name.clone(),
            containers: to_restart(resize).map(container).collect(),
            active_deadline_seconds: left.map(|left| left.max(LEAST_DEADLINE)),
            ..ContainerRecreateRequestSpec::default()
        };
        Some(Deed::Create(Box::new(Child {
            kind: CHILD,
            key: restart_key(resize),
            labels: BTreeMap::from([(labels::POD_UID.to_owned(), pod.uid.clone())]),
            spec: serde_json::to_value(spec).ok()?,
        })))
    }

    /// Deletes the open recreate request of a resize that ends, and waits until it is gone; `None` without one.
    pub(super) fn withdraw(&self) -> Option<Plan> {
        let own = self.observed.restart.as_ref().filter(|r| r.is_of(&self.observed.resize.uid));
        let request = own.filter(|r| r.ended.is_none() && !r.deleting)?;
        let deed = Deed::Delete { kind: CHILD, key: request.key.clone(), uid: request.uid.to_owned() };
        // The deletion counts once the watch shows it.
        let done = self.observed.memory.deeds.done.as_ref().is_some_and(|(_, done)| *done == deed);
        Some(Plan { deed: (!done).then_some(deed), ..self.keep_orders() })
    }
}
