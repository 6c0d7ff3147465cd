//! Plan for an accepted resize.

use pitstop_api::resize::Phase;

use super::{Plan, Planner, foreign, foreign_return, overdue, superseded};
use crate::hold::admission::CONTAINER;
use crate::pod::Pod;
use crate::resize::judge::{Place, Progress, never_again, progress};
use crate::resize::shrink::containers;
use crate::resize::status::{self, End};
use crate::time::{Mono, earliest};

impl Planner<'_> {
    /// Plan if another client, a later resize or the user overrides the request.
    pub(super) fn gives_way(&self, place: &Place) -> Option<Plan> {
        if let Place::Other(container) = place {
            return Some(self.end(&foreign(container)));
        }
        if let Some(newer) = self.observed.newer {
            return Some(self.give_up(place, superseded(&newer.to_string())));
        }
        let cancelled = || End::new(Phase::Cancelled, status::CANCELLED, "cancelled");
        self.observed.resize.spec.cancel.then(|| self.give_up(place, cancelled()))
    }

    /// Plan on the way from the original to the desired resources.
    pub(super) fn proceed(&self, pod: &Pod, place: &Place) -> Plan {
        let resize = self.observed.resize;
        let (expired, deadline) = self.deadline();
        let found = progress(&containers(resize, place), resize.pending_before(), pod);
        let untold_since = self.observed.memory.untold_since;
        let settles_at = found.settles_at(untold_since);
        let found = found.settled(self.now, untold_since);
        if let Place::Nudged(nudge) = place {
            return self.nudged(pod, place, nudge, &found, (expired, deadline));
        }
        // A Pod that was resized in time may be watched beyond the deadline. With a past nudge or `Untold`, the kubelet
        // has reported the resize as done.
        let said = self.observed.memory.nudges > 0 || found == Progress::Untold;
        let sized = found == Progress::Sized || (expired && said);
        let in_time = *place == Place::Desired && sized && self.restarted();
        if expired && !in_time {
            let so_far = self.restart_waits(&found).or_else(|| self.shrink_waits(pod, place));
            let so_far = so_far.unwrap_or_else(|| self.wait(place, pod).message);
            return self.give_up(place, overdue(&so_far));
        }
        if *place == Place::Original {
            return self.begin(pod, place, deadline);
        }
        if *place == Place::Desired
            && let Some(plan) = self.restart(pod, place, &found, deadline)
        {
            return plan;
        }
        if let Some(end) = self.fails(pod) {
            return self.give_up(place, end);
        }
        match found {
            _ if expired && in_time => self.sized(pod, expired, None),
            Progress::Infeasible(text) => self.infeasible(pod, place, text, deadline),
            Progress::Sized if *place != Place::Desired => self.step(pod, place, deadline),
            Progress::Sized => self.sized(pod, expired, deadline),
            Progress::Deferred(text) => self.deferred(pod, place, text, deadline),
            Progress::Restarting(name) => self.stuck(pod, place, &name, deadline),
            Progress::Unseen | Progress::Underway(_) | Progress::Untold => {
                self.waiting(pod, &self.wait(place, pod), earliest(deadline, settles_at))
            }
        }
    }

    /// Plan while the Pod has the original resources.
    fn begin(&self, pod: &Pod, place: &Place, deadline: Option<Mono>) -> Plan {
        // The change was applied, and another client reverted it: pitstop yields.
        if self.observed.memory.applied || self.observed.resize.status.phase != Some(Phase::Proposed) {
            return self.end_untouched(&foreign_return());
        }
        if let Some(end) = self.refused() {
            return self.never_taken(pod, &end, deadline);
        }
        if self.put_off() {
            return self.waiting(pod, &self.queued(), deadline);
        }
        self.step(pod, place, deadline)
    }

    /// Why the Pod can never get the desired resources, or should not keep them.
    fn fails(&self, pod: &Pod) -> Option<End> {
        let resize = self.observed.resize;
        let mut named = resize.status.containers.iter().filter_map(|c| pod.container(&c.name));
        if let Some(ended) = named.find(|c| never_again(pod, c)) {
            let text = format!("container {} has ended, and will not run again", ended.name);
            return Some(End::failed(CONTAINER, text));
        }
        let refused = || self.daemon_refuses().filter(|_| resize.held());
        self.failure(pod).or_else(refused)
    }
}
