//! An accepted resize on its way.

use pitstop_api::resize::Phase;

use super::{Plan, Planner, foreign, foreign_return, overdue, superseded};
use crate::hold::admission::CONTAINER;
use crate::pod::Pod;
use crate::resize::judge::{Place, Progress, never_again, progress};
use crate::resize::shrink::containers;
use crate::resize::status::{self, End};
use crate::time::{Mono, earliest};

impl Planner<'_> {
    /// Somebody else, or the user, wants something else of the Pod.
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

    /// On the way from the original resources to the ones that are meant.
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
        // What the Pod has in time may be watched for longer. After a step there and back the kubelet has said so before, and
        // where it only goes on telling another CPU limit, it says so now.
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

    /// The Pod has what it had before.
    fn begin(&self, pod: &Pod, place: &Place, deadline: Option<Mono>) -> Plan {
        // It was there, and somebody has put the original back: there is nothing to fight for.
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

    /// What keeps the Pod from ever having what is meant, or speaks against it.
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
