//! From the change of the Pod's images until the new containers have been ready for long enough.

use std::time::Duration;

use pitstop_api::image_update::{Phase, PodImageUpdateStatus};

use super::{Plan, Planner};
use crate::deed::Deed;
use crate::image::judge::{Progress, STALE, SpecImages, progress, running};
use crate::image::status::{self, End, Wait, ended};
use crate::plan::Urgency;
use crate::pod::{Container, Pod};
use crate::time::{Mono, earliest, seconds};

/// How far the new containers are, together.
enum PodProgress {
    Ready,
    Waits(Wait),
    /// This container was ready and no longer is by its kubelet's report, which may pass until then.
    Unready(String, Mono),
    Bad(End),
}

/// How long the Pod's status may lag behind a probe.
const PROBE_LAG: Duration = Duration::from_secs(2);
/// The longest wait for probes.
const LONGEST: Duration = Duration::from_mins(1);

impl Planner<'_> {
    /// Plans by the first rule that applies.
    pub(super) fn changes(&self, pod: &Pod, in_spec: &SpecImages) -> Plan {
        let update = self.observed.update;
        let (expired, deadline) = self.deadline();
        let plan = if update.spec.cancel {
            self.fails(pod, &End::new(Phase::Cancelled, status::CANCELLED, "cancelled"))
        } else if expired {
            self.fails(pod, &self.late())
        } else if *in_spec == SpecImages::Written {
            self.follows(pod)
        } else {
            self.writes(pod, in_spec)
        };
        Plan { wake_at: earliest(deadline, plan.wake_at), ..plan }
    }

    /// Gives the Pod its new images.
    fn writes(&self, pod: &Pod, in_spec: &SpecImages) -> Plan {
        if let Some(end) = self.refused() {
            return self.fails(pod, &end);
        }
        // A kubelet may report a gate that was open for a moment only after another request has closed it again.
        if let Err((wait, at)) = self.drained(pod)
            && *in_spec == SpecImages::Before
            && self.observed.writing.is_empty()
        {
            let plan = self.wait_for(&wait, Urgency::Later);
            return Plan { orders: self.orders(pod), wake_at: at, ..plan };
        }
        let wait = Wait::new(Phase::Updating, status::WRITING, "sends the change to the API server");
        // A dry run under way is answered first.
        let deed = self.observed.deed.filter(|deed| matches!(deed, Deed::TryImages { .. })).cloned();
        let images = if deed.is_some() { Vec::new() } else { self.images(pod, |c| &c.written) };
        Plan { images, deed, orders: self.orders(pod), ..self.wait_for(&wait, Urgency::Later) }
    }

    /// The Pod has its new images.
    fn follows(&self, pod: &Pod) -> Plan {
        if self.observed.memory.node.is_unheard() {
            return self.unheard(pod);
        }
        let mut status = self.observed.update.status.clone();
        for container in &mut status.containers {
            let in_pod = pod.container(&container.name);
            let running = in_pod.and_then(|in_pod| running(self.observed, container, in_pod));
            container.running = running.or(container.running.take());
        }
        match self.pod_progress(pod) {
            PodProgress::Bad(end) => self.fails(pod, &end),
            PodProgress::Waits(wait) => self.awaits(pod, status, &wait),
            PodProgress::Unready(name, until) => {
                let text = format!("the new container {name} is no longer ready; waits for its next probe");
                let wait = Wait::new(Phase::Observing, status::OBSERVING, text);
                let plan = self.waiting(status, &wait, Urgency::Later);
                Plan { orders: self.orders(pod), wake_at: Some(until), ..plan }
            }
            PodProgress::Ready => {
                status.gap_milliseconds = status.gap_milliseconds.or(self.observed.memory.gap);
                self.observe(pod, status)
            }
        }
    }

    /// Waits for new containers that are not ready yet, and may be in time.
    fn awaits(&self, pod: &Pod, status: PodImageUpdateStatus, wait: &Wait) -> Plan {
        let limit = self.observed.update.spec.ready_timeout();
        let written = self.observed.memory.written_since;
        let until = self.time_for_ready(written);
        if let Some(over) = until.filter(|until| *until <= self.now) {
            if let Some(plan) = self.asks_node(pod, over, status.clone(), wait) {
                return Plan { orders: self.orders(pod), ..plan };
            }
            let text = format!("not ready within {limit} s (readyTimeoutSeconds): {}", wait.message);
            return self.fails(pod, &End::bad(status::NOT_READY, text));
        }
        let looks = [STALE, self.observed.settle_time(pod)].map(|pause| written.map(|at| at.after(pause)));
        let next = looks.into_iter().flatten().filter(|at| *at > self.now).min();
        let plan = self.waiting(status, wait, Urgency::Later);
        Plan { orders: self.orders(pod), wake_at: earliest(until, next), ..plan }
    }

    /// All new containers are ready: watches them for a while.
    fn observe(&self, pod: &Pod, status: PodImageUpdateStatus) -> Plan {
        let update = self.observed.update;
        let observe = update.spec.observe();
        let until = self.observed.memory.ready_since.map(|since| since.after(seconds(observe)));
        if until.is_some_and(|until| until <= self.now) {
            let text = status::changes(update, &status.containers);
            let ended = ended(self.observed, &End::new(Phase::Succeeded, status::UPDATED, text), self.wall);
            let PodImageUpdateStatus { containers, gap_milliseconds, .. } = status;
            let ended = PodImageUpdateStatus { containers, gap_milliseconds, ..ended };
            return self.with_status(ended, Urgency::Now);
        }
        let text = format!("the new containers are ready, and are watched for {observe} s (observeSeconds)");
        let plan = self.waiting(status, &Wait::new(Phase::Observing, status::OBSERVING, text), Urgency::Now);
        Plan { orders: self.orders(pod), wake_at: until, ..plan }
    }

    /// How far the new containers are, together.
    fn pod_progress(&self, pod: &Pod) -> PodProgress {
        let update = self.observed.update;
        let watched = update.is_watched() && !self.observed.memory.node.settles();
        let (mut waits, mut unready) = (None, None);
        for status in &update.status.containers {
            let Some(container) = pod.container(&status.name) else { continue };
            let name = &status.name;
            let wait = match progress(self.observed, status, container) {
                Progress::Ready => continue,
                Progress::Bad(end) => return PodProgress::Bad(end),
                Progress::Unready if watched => {
                    if let Some(until) = self.unready_until(container) {
                        unready.get_or_insert((name, until));
                        continue;
                    }
                    let text = format!("the new container {name} is no longer ready");
                    return PodProgress::Bad(End::bad(status::NOT_READY, text));
                }
                Progress::Unready => Wait::new(
                    Phase::Updating,
                    status::UNREADY,
                    format!("waits for the new container {name} to be ready"),
                ),
                Progress::Unattested => {
                    let text = format!("waits for the node's daemon to report the image of container {name}");
                    Wait::new(Phase::Updating, status::ATTESTING, text)
                }
                Progress::Waits(text) => Wait::new(Phase::Updating, status::KUBELET, text),
            };
            waits.get_or_insert(wait);
        }
        match (waits, unready) {
            (Some(wait), _) => PodProgress::Waits(wait),
            (None, Some((name, until))) => PodProgress::Unready(name.clone(), until),
            (None, None) => PodProgress::Ready,
        }
    }

    /// Until when a container that was ready may be not ready: a restarted kubelet knows of no probe yet, and sometimes
    /// reports that (seen on 1.36). Counted from the first time, so that a flapping container fails.
    fn unready_until(&self, container: &Container) -> Option<Mono> {
        let probes = Duration::from_secs(container.probe_seconds.into()).min(LONGEST);
        let until = self.observed.memory.unready_since?.after(probes.saturating_add(PROBE_LAG));
        (until > self.now && container.probe_seconds > 0).then_some(until)
    }
}
