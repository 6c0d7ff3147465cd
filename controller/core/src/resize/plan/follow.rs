//! Plan for an accepted resize.

use pitstop_api::resize::Phase;

use super::{Plan, Planner, foreign, foreign_restore, overdue, superseded};
use crate::hold::admission::CONTAINER;
use crate::pod::Pod;
use crate::resize::judge::{Progress, SpecState, ended_for_good, progress};
use crate::resize::shrink::containers;
use crate::resize::status::{self, End};
use crate::time::{Mono, earliest};

impl Planner<'_> {
    /// Plan if another client, a later resize or the user overrides the request.
    pub(super) fn overridden(&self, state: &SpecState) -> Option<Plan> {
        if let SpecState::Other(container) = state {
            return Some(self.end(&foreign(container)));
        }
        if let Some(newer) = self.observed.newer {
            return Some(self.give_up(state, superseded(&newer.to_string())));
        }
        let cancelled = || End::new(Phase::Cancelled, status::CANCELLED, "cancelled");
        self.observed.resize.spec.cancel.then(|| self.give_up(state, cancelled()))
    }

    /// Plan on the way from the original to the desired resources.
    pub(super) fn proceed(&self, pod: &Pod, state: &SpecState) -> Plan {
        let resize = self.observed.resize;
        let (expired, deadline) = self.deadline();
        let found = progress(&containers(resize, state), resize.pending_before(), pod);
        let unreported_since = self.observed.memory.unreported_since;
        let settles_at = found.settles_at(unreported_since);
        let found = found.settled(self.now, unreported_since);
        if let SpecState::Nudged(nudge) = state {
            return self.nudged(pod, state, nudge, &found, (expired, deadline));
        }
        // A Pod that was resized in time may be watched beyond the deadline. With a past nudge or `Unreported`, the
        // kubelet has reported the resize as done.
        let reported = self.observed.memory.nudges > 0 || found == Progress::Unreported;
        let sized = found == Progress::Sized || (expired && reported);
        let in_time = *state == SpecState::Desired && sized && self.restarted();
        if expired && !in_time {
            let so_far = self.restart_waits(&found).or_else(|| self.shrink_waits(pod, state));
            let so_far = so_far.unwrap_or_else(|| self.wait(state, pod).message);
            return self.give_up(state, overdue(&so_far));
        }
        if *state == SpecState::Original {
            return self.begin(pod, state, deadline);
        }
        if *state == SpecState::Desired
            && let Some(plan) = self.restart(pod, state, &found, deadline)
        {
            return plan;
        }
        if let Some(end) = self.any_failure(pod) {
            return self.give_up(state, end);
        }
        match found {
            _ if expired && in_time => self.sized(pod, expired, None),
            Progress::Infeasible(text) => self.infeasible(pod, state, text, deadline),
            Progress::Sized if *state != SpecState::Desired => self.step(pod, state, deadline),
            Progress::Sized => self.sized(pod, expired, deadline),
            Progress::Deferred(text) => self.deferred(pod, state, text, deadline),
            Progress::Restarting(name) => self.stuck(pod, state, &name, deadline),
            Progress::Unseen | Progress::Underway(_) | Progress::Unreported => {
                self.waiting(pod, &self.wait(state, pod), earliest(deadline, settles_at))
            }
        }
    }

    /// Plan while the Pod has the original resources.
    fn begin(&self, pod: &Pod, state: &SpecState, deadline: Option<Mono>) -> Plan {
        // The change was applied, and another client reverted it: pitstop yields.
        if self.observed.memory.applied || self.observed.resize.status.phase != Some(Phase::Proposed) {
            return self.end_untouched(&foreign_restore());
        }
        if let Some(end) = self.refusal_end() {
            return self.never_accepted(pod, &end, deadline);
        }
        if self.waits_for_restart() {
            return self.waiting(pod, &self.queued(), deadline);
        }
        self.step(pod, state, deadline)
    }

    /// Why the Pod can never get the desired resources, or should not keep them.
    fn any_failure(&self, pod: &Pod) -> Option<End> {
        let resize = self.observed.resize;
        let mut named = resize.status.containers.iter().filter_map(|c| pod.container(&c.name));
        if let Some(ended) = named.find(|c| ended_for_good(pod, c)) {
            let text = format!("container {} has ended, and will not run again", ended.name);
            return Some(End::failed(CONTAINER, text));
        }
        let refused = || self.daemon_refuses().filter(|_| resize.held());
        self.failure(pod).or_else(refused)
    }
}
