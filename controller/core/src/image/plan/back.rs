//! Rollback: an end without success first restores the old images, if requested.

use std::time::Duration;

use pitstop_api::condition;
use pitstop_api::image_update::{ContainerStatus, Phase, Restoring};

use super::{Plan, Planner};
use crate::image::judge::{SpecImages, in_back_off, is_unchanged, runs_new, spec_images};
use crate::image::resolve::ways_back;
use crate::image::status::{self, End, Wait};
use crate::plan::Urgency;
use crate::pod::Pod;
use crate::time::earliest;

/// How long the kubelet may take to report a container with its old image, not the one before.
const LAG: Duration = Duration::from_secs(2);

impl Planner<'_> {
    /// An end without success: first restores the old images, if requested.
    pub(super) fn fails(&self, pod: &Pod, end: &End) -> Plan {
        let update = self.observed.update;
        let unchanged = update.status.containers.iter().all(is_unchanged);
        let untouched = unchanged || spec_images(update, pod) == SpecImages::Before;
        if !update.spec.rolls_back() || untouched {
            let phase = if end.phase == Phase::RolledBack { Phase::Failed } else { end.phase };
            return self.end(&End { phase, ..end.clone() });
        }
        let mut status = update.status.clone();
        for container in &mut status.containers {
            container.restored.clone_from(&container.before.image);
        }
        status.restoring = Some(Restoring {
            phase: end.phase,
            reason: end.reason.to_owned(),
            message: condition::truncate(&end.message, condition::MAX_MESSAGE),
        });
        let text = format!("puts the old images back: {}", end.message);
        self.waiting(status, &Wait::new(Phase::RollingBack, status::ROLLING_BACK, text), Urgency::Now)
    }

    /// Restores the old images, and ends once the old containers run again.
    pub(super) fn restore(&self, pod: &Pod, in_spec: &SpecImages, restoring: &Restoring) -> Plan {
        let update = self.observed.update;
        let end = End::from(restoring);
        if *in_spec != SpecImages::Restored {
            if let Some(refused) = self.refused() {
                let text = format!("{}; the old images cannot be put back: {}", end.message, refused.message);
                return self.end(&End::failed(status::ROLLBACK_FAILED, text));
            }
            let images = self.images(pod, |c| &c.restored);
            return Plan { images, ..self.wait_for(&Self::rolls_back(&end), Urgency::Later) };
        }
        let back = |c: &ContainerStatus| self.observed.is_back(c, pod);
        if update.status.containers.iter().all(back) {
            let text = format!("{}; the old images are back", end.message);
            return self.end(&End { message: text, ..end });
        }
        if let Some(plan) = self.other_ways(pod, &end) {
            return plan;
        }
        let limit = update.spec.ready_timeout();
        let until = self.time_for_ready(self.observed.memory.restored_since);
        if let Some(over) = until.filter(|until| *until <= self.now) {
            let wait = Self::rolls_back(&end);
            let (late, deadline) = self.deadline();
            let asks = self.asks_node(pod, over, update.status.clone(), &wait).filter(|_| !late);
            if let Some(plan) = asks {
                return Plan { wake_at: earliest(deadline, plan.wake_at), ..plan };
            }
            let text = format!(
                "{}; the old images are put back, and their containers are not ready within {limit} s",
                end.message
            );
            return self.end(&End::failed(status::ROLLBACK_FAILED, text));
        }
        let restored = self.observed.memory.restored_since;
        let looks = [LAG, self.observed.settle_time(pod)].map(|pause| restored.map(|at| at.after(pause)));
        let next = looks.into_iter().flatten().find(|at| *at > self.now);
        let at = earliest(until, next);
        Plan { wake_at: at, ..self.wait_for(&Self::rolls_back(&end), Urgency::Later) }
    }

    /// If the kubelet keeps old containers in back-off, chooses other strings for the same images, while any are left.
    fn other_ways(&self, pod: &Pod, end: &End) -> Option<Plan> {
        let reported = self.observed.memory.restored_since.is_some_and(|since| since.after(LAG) <= self.now);
        // A kubelet stops all containers that it must stop before it starts any. Until then it reports waiting
        // containers as they were with their new images.
        let limit = self.observed.settle_time(pod);
        let soon = self.observed.memory.restored_since.is_some_and(|since| since.after(limit) > self.now);
        let mut containers = self.observed.update.status.containers.iter();
        let stops = containers.any(|c| runs_new(c, pod) || (soon && self.observed.runs_yet(c, pod)));
        if !reported || pod.unseen() || stops {
            return None;
        }
        let mut status = self.observed.update.status.clone();
        for container in &mut status.containers {
            // A kubelet holds back strings with which it has restarted a container. With the first string of a
            // container without restarts it has not: the report is still about the new image.
            let fresh = container.before.restart_count == 0 && container.restored == container.before.image;
            if !fresh && pod.container(&container.name).is_some_and(in_back_off) {
                let ways = ways_back(&container.before);
                let tried = ways.iter().position(|way| *way == container.restored);
                let next = tried.and_then(|at| ways.get(at.saturating_add(1)));
                container.restored = next.unwrap_or(&container.restored).clone();
            }
        }
        let changed = status.containers != self.observed.update.status.containers;
        changed.then(|| self.waiting(status, &Self::rolls_back(end), Urgency::Now))
    }

    fn rolls_back(end: &End) -> Wait {
        let text = format!("puts the old images back: {}", end.message);
        Wait::new(Phase::RollingBack, status::ROLLING_BACK, text)
    }
}
