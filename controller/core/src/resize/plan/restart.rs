//! The restart of the containers, once they have their new resources.

use std::collections::BTreeMap;

use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequestSpec, RecreateContainer};
use pitstop_api::resize::Phase;

use super::{Plan, Planner};
use crate::deed::{Child, Deed};
use crate::pod::Pod;
use crate::resize::judge::{Place, Progress};
use crate::resize::restart::{CHILD, Stage, restart_key, stage, to_restart};
use crate::resize::status::{self, End, Wait};
use crate::time::{Mono, earliest};

/// Least `activeDeadlineSeconds` of a recreate request.
const LEAST_DEADLINE: i64 = 3;

impl Planner<'_> {
    /// Every restart that is asked for is over.
    pub(super) fn restarted(&self) -> bool {
        matches!(stage(self.now, self.observed), Stage::Over)
    }

    /// Restarts the containers; nothing while that has yet to begin, or once it is over.
    pub(super) fn restart(
        &self,
        pod: &Pod,
        place: &Place,
        found: &Progress,
        deadline: Option<Mono>,
    ) -> Option<Plan> {
        let stage = stage(self.now, self.observed);
        if matches!(stage, Stage::Over) {
            return None;
        }
        // Once it has begun, the Pod is not what the resize alone makes of it.
        if self.observed.memory.restarted.is_none() && *found != Progress::Sized {
            return None;
        }
        if let Stage::Failed(text) = stage {
            return Some(self.restart_failed(place, text));
        }
        if let Some(failure) = self.failure(pod) {
            return Some(self.give_up(place, failure));
        }
        let wait = Wait::new(Phase::InProgress, status::RESTARTING, self.restart_wait(&stage));
        // The watch has a while to show what was made.
        let made = match self.observed.memory.deeds.done {
            Some((at, Deed::Create(_))) => Some(at.after(self.config.conflict_patience)),
            _ => None,
        };
        let shown_by = made.filter(|at| *at > self.now);
        let due = matches!(stage, Stage::Due) && shown_by.is_none();
        let deed = due.then(|| self.new_request(pod, deadline)).flatten();
        Some(Plan { deed, ..self.waiting(pod, &wait, earliest(deadline, shown_by)) })
    }

    /// What a request waits for whose restart is not over, for the message of its end.
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

    /// The resources are there, and stay unless the request says otherwise. What the node's daemon gave stays only after a
    /// success.
    fn restart_failed(&self, place: &Place, text: String) -> Plan {
        if self.observed.resize.spec.rollback_on_failure.is_some() {
            return self.give_up(place, End::new(Phase::RolledBack, status::RESTART_FAILED, text));
        }
        if self.observed.resize.held() {
            let text = format!("the containers were not all restarted: {text}");
            return self.give_up(place, End::failed(status::RESTART_FAILED, text));
        }
        let text = format!("the containers have their new resources, and were not all restarted: {text}");
        self.end(&End::failed(status::RESTART_FAILED, text))
    }

    /// Its label says which Pod is meant, and admission and the controller heed that.
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

    /// Deletes the recreate request of a resize that ends, and waits until it is gone; nothing where there is none that
    /// could restart a container yet.
    pub(super) fn withdrawn(&self) -> Option<Plan> {
        let own = self.observed.restart.as_ref().filter(|r| r.is_of(&self.observed.resize.uid));
        let request = own.filter(|r| r.ended.is_none() && !r.deleting)?;
        let deed = Deed::Delete { kind: CHILD, key: request.key.clone(), uid: request.uid.to_owned() };
        // Until the watch shows it, it is gone for nobody.
        let done = self.observed.memory.deeds.done.as_ref().is_some_and(|(_, done)| *done == deed);
        Some(Plan { deed: (!done).then_some(deed), ..self.stands() })
    }
}
