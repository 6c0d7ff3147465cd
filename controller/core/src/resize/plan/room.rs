//! A node without room: how long the request waits, and what follows.

use std::time::Duration;

use pitstop_api::resize::{AfterWait, LastResort, Phase};

use super::{Plan, Planner};
use crate::pod::Pod;
use crate::resize::judge::SpecState;
use crate::resize::refusal;
use crate::resize::status::{self, End, Wait};
use crate::time::{Mono, earliest, seconds};

/// Wait after the API server called the node too small, before the next try.
const RETRY: Duration = Duration::from_secs(10);

impl Planner<'_> {
    /// Plan while the kubelet waits for room.
    pub(super) fn deferred(
        &self,
        pod: &Pod,
        state: &SpecState,
        text: String,
        deadline: Option<Mono>,
    ) -> Plan {
        let asked = self.observed.resize.spec.on_deferred.as_ref();
        let limit = asked.map(|d| seconds(d.wait_seconds));
        let since = self.observed.memory.deferred_since;
        let until = limit.and_then(|limit| Some(since?.after(limit)));
        if until.is_none_or(|at| at > self.now) {
            let wait = Wait::new(Phase::Deferred, status::NODE_BUSY, text);
            return self.waiting(pod, &wait, earliest(deadline, until));
        }
        match asked.and_then(|d| d.then).unwrap_or_default() {
            AfterWait::Fail => self.give_up(state, End::failed(status::NODE_BUSY, text)),
            AfterWait::Evict => self.evict(pod, state, &End::failed(status::EVICTED, text)),
            AfterWait::Keep => {
                let text = format!("{text}; the kubelet will still apply the change once there is room");
                self.end(&End::failed(status::NODE_BUSY, text))
            }
        }
    }

    /// Plan if the kubelet will never resize the Pod.
    pub(super) fn infeasible(
        &self,
        pod: &Pod,
        state: &SpecState,
        text: String,
        deadline: Option<Mono>,
    ) -> Plan {
        let end = End::new(Phase::Infeasible, refusal::infeasible(&text), text);
        let too_small = self.too_small(pod, state, &end, Phase::Deferred, deadline);
        too_small.unwrap_or_else(|| self.give_up(state, end))
    }

    /// Plan if the API server will never accept the change.
    pub(super) fn never_accepted(&self, pod: &Pod, end: &End, deadline: Option<Mono>) -> Plan {
        let Some(plan) = self.too_small(pod, &SpecState::Original, end, Phase::Proposed, deadline) else {
            return self.end(end);
        };
        let last = self.observed.memory.refused.as_ref().map(|refused| refused.last.after(RETRY));
        let again = last.is_some_and(|at| at <= self.now)
            && plan.status.as_ref().is_none_or(|w| w.status.restoring.is_none());
        let wake_at = earliest(plan.wake_at, last.filter(|at| *at > self.now));
        let sizing = again.then(|| self.next_sizing(pod, &SpecState::Original)).or(plan.sizing);
        Plan { sizing, wake_at, ..plan }
    }

    /// Plan for a node that is too small; `None` if the request just fails.
    fn too_small(
        &self,
        pod: &Pod,
        state: &SpecState,
        end: &End,
        phase: Phase,
        deadline: Option<Mono>,
    ) -> Option<Plan> {
        let asked = self.observed.resize.spec.on_infeasible.as_ref()?;
        if end.reason != status::NODE_CAPACITY {
            return None;
        }
        let since = self.observed.memory.infeasible_since.unwrap_or(self.now);
        let until = since.after(seconds(asked.wait_seconds.unwrap_or_default()));
        if until > self.now {
            let wait = Wait::new(phase, status::NODE_CAPACITY, end.message.clone());
            return Some(self.waiting(pod, &wait, earliest(deadline, Some(until))));
        }
        match asked.then.unwrap_or_default() {
            LastResort::Fail => None,
            LastResort::Evict => {
                let end = End::new(Phase::Infeasible, status::EVICTED, end.message.clone());
                Some(self.evict(pod, state, &end))
            }
        }
    }
}
