//! The input of a decision about one update.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::condition;
use pitstop_api::image_update::{
    ContainerStatus, Phase, PodImageUpdateSpec, PodImageUpdateStatus, conditions,
};
use pitstop_api::nodework::Pulled;

use super::judge::{SpecImages, is_unchanged, spec_images};
use super::{node, puller};
use crate::change::{ImageChange, Named};
use crate::deed::{Deed, Done};
use crate::drain::DrainTimer;
use crate::key::ObjectKey;
use crate::kind::Ahead;
use crate::nodework::OrderView;
use crate::pod::{Container, ContainerState, Pod};
use crate::pod_check::PodCheck;
use crate::readiness::{Hold, UPDATE_AGENT};
use crate::reduced::Reduced;
use crate::time::{Mono, note_since};

/// A `PodImageUpdate`, reduced to what decisions need.
pub type ImageUpdate = Reduced<PodImageUpdateSpec, PodImageUpdateStatus>;

impl ImageUpdate {
    /// The Pod that it names.
    pub fn pod_key(&self) -> ObjectKey {
        ObjectKey::new(&self.key.namespace, &self.spec.pod_ref.name)
    }

    /// It has ended.
    pub fn completed(&self) -> bool {
        self.status.completion_time.is_some()
    }

    /// It was accepted for exactly this Pod.
    pub fn is_for(&self, pod: &Pod) -> bool {
        self.status.target.as_ref().is_some_and(|target| target.pod_uid == pod.uid)
    }

    /// The drain of its Pod has begun.
    pub fn drains(&self) -> bool {
        condition::find(&self.status.conditions, conditions::DRAINED).is_some()
    }

    /// The new image strings are in its status, so the Pod may have them already.
    pub fn changes(&self) -> bool {
        self.status.containers.iter().any(|container| !container.written.is_empty())
    }

    /// It has begun to drain or change its Pod.
    pub fn has_begun(&self) -> bool {
        self.drains() || self.changes()
    }

    /// It waits to be released, and has done nothing to its Pod.
    pub fn suspended(&self) -> bool {
        self.spec.suspend && !self.has_begun()
    }

    /// Its new containers have been ready, and are watched.
    pub(super) fn is_watched(&self) -> bool {
        self.status.phase == Some(Phase::Observing)
    }

    /// The hold by which it keeps its Pod not ready: from its drain on, until the new containers are ready.
    pub fn hold(&self) -> Option<Hold> {
        self.spec.unready_grace_period_seconds?;
        let held = self.drains() && !self.is_watched();
        held.then(|| Hold { user_agent: UPDATE_AGENT.to_owned(), key: self.key.to_string() })
    }

    /// Its order among the updates of its Pod: the oldest goes first.
    pub(super) fn rank(&self) -> (i64, &ObjectKey) {
        (self.created, &self.key)
    }
}

/// How long a dry run counts, unless the change was written meanwhile: admission may change.
const TRIED_FOR: Duration = Duration::from_secs(1);
/// How long after its end an update shows what the API server stores for another Pod of its rollout.
const ENDED_JUST: Duration = Duration::from_secs(30);
/// A container counts as ready after this time: a kubelet reports it ready for a moment before it knows the probe.
const STEADY: Duration = Duration::from_secs(2);
/// How often new containers may become not ready and then ready for a [while](STEADY) again: once after their start,
/// when the kubelet learns their probe, and once when the kubelet restarts.
const MAX_UNREADY: u8 = 2;

/// What this process remembers of an update; lost when it ends, and then counted anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When this process first saw the request.
    pub first_seen: Mono,
    /// When it first saw the request completed.
    pub completed_seen: Option<Mono>,
    /// Since when the deadline runs: since the request was first seen, or last seen suspended.
    pub runs_since: Option<Mono>,
    /// The images that the API server would store, and when it said so last.
    pub(super) tried: Option<(Mono, Vec<ImageChange>)>,
    /// How often in a row the dry run or the change was refused, and the last message.
    pub refused: Option<(u32, String)>,
    /// Since when it drains or changes its Pod, or is about to.
    pub busy_since: Option<Mono>,
    /// Since when an order waits for the daemon's first answer.
    pub unanswered_since: Option<Mono>,
    /// Since when none of its orders finds a place in the node's book.
    pub crowded_since: Option<Mono>,
    /// What is known of its puller Pod.
    pub puller: puller::Memory,
    /// What is known of the Pod's node.
    pub(super) node: node::Memory,
    /// What was seen of the drain.
    pub drain: DrainTimer,
    /// Since when the Pod's spec has the new images.
    pub written_since: Option<Mono>,
    /// When the first old container was seen not running.
    pub ended_at: Option<Mono>,
    /// Since when all new containers are ready.
    pub ready_since: Option<Mono>,
    /// Their IDs.
    pub ready: Vec<String>,
    /// Milliseconds from the end of the first old container until then.
    pub gap: Option<i64>,
    /// When a watched new container was first seen not ready; counted anew after a [while](STEADY) of readiness.
    pub unready_since: Option<Mono>,
    /// How often that was counted anew.
    pub unready_times: u8,
    /// Since when the Pod's spec has the old images again.
    pub restored_since: Option<Mono>,
    /// IDs of the instances that ran then, by container name.
    pub(super) ran: BTreeMap<String, String>,
    /// Containers that did not run when their kubelet had seen these very strings: it started them with these strings,
    /// and does not stop them for others.
    pub(super) down: BTreeSet<String>,
}

impl Memory {
    /// The memory of an update that is first seen now.
    pub fn new(now: Mono) -> Self {
        Self { first_seen: now, ..Self::default() }
    }

    /// Notes since when the current state lasts. `puller`: the Pod with the name of the request's puller Pod; `orders`:
    /// the request's orders.
    pub fn see(
        &mut self,
        now: Mono,
        update: &ImageUpdate,
        pod: Option<&Pod>,
        puller: Option<&Pod>,
        orders: &[OrderView<'_>],
    ) {
        self.puller.see(now, update, puller);
        note_since(&mut self.completed_seen, now, update.completed());
        note_since(&mut self.runs_since, now, !update.suspended());
        note_since(&mut self.unanswered_since, now, orders.iter().any(|o| o.answer.is_none()));
        if update.has_begun() && !update.completed() {
            self.busy_since.get_or_insert(now);
        }
        let pod = pod.filter(|pod| update.is_for(pod) && !update.completed() && !pod.gone());
        let drained = pod.filter(|_| update.drains());
        self.drain.update(now, drained, update.hold().as_ref());
        let in_spec = pod.map(|pod| spec_images(update, pod));
        let restores = update.status.restoring.is_some();
        note_since(&mut self.written_since, now, !restores && in_spec == Some(SpecImages::Written));
        self.see_restored(now, update, pod.filter(|_| restores && in_spec == Some(SpecImages::Restored)));
        let all = |test: fn(&ContainerStatus, &Container) -> bool| {
            self.written_since.is_some()
                && update.status.containers.iter().all(|status| {
                    pod.and_then(|pod| pod.container(&status.name)).is_some_and(|c| test(status, c))
                })
        };
        if self.written_since.is_some() && !all(runs_old) {
            self.ended_at.get_or_insert(now);
        }
        let ready = all(|status, container| {
            (is_unchanged(status) || !runs_old(status, container)) && is_ready(container)
        });
        let unheard = update.changes() && pod.is_some_and(|pod| pod.unheard);
        self.node.see(now, unheard, ready && !unheard);
        self.node.see_lost(now, ended_with_node(update, pod));
        let early = pod.is_some_and(Pod::unseen) && update.status.containers.iter().any(is_unchanged);
        let ready = ready && !early && !self.node.is_away();
        // A container that started with its old image may also be ready, until the kubelet replaces it.
        let instances =
            update.status.containers.iter().filter_map(|status| {
                Some(pod?.container(&status.name)?.status.as_ref()?.container_id.clone())
            });
        let instances: Vec<String> = if ready { instances.collect() } else { Vec::new() };
        let steady = self.ready_since.is_some_and(|since| since.after(STEADY) <= now);
        if self.ready != instances {
            (self.ready_since, self.ready) = (None, instances);
        }
        note_since(&mut self.ready_since, now, ready);
        self.see_unready(now, update.is_watched() && !ready, steady);
        // A kubelet may report both in one change; then the gap is unknown.
        if let Some((ended, ready)) = self
            .ended_at
            .zip(self.ready_since)
            .filter(|(ended, ready)| ready > ended && self.node.outages() == 0)
        {
            let gap = i64::try_from(ready.since(ended).as_millis()).unwrap_or(i64::MAX);
            self.gap.get_or_insert(gap);
        }
    }

    /// Notes whether watched new containers are not ready; `steady`: before, they were ready for a [while](STEADY).
    fn see_unready(&mut self, now: Mono, unready: bool, steady: bool) {
        let anew = steady && self.unready_times < MAX_UNREADY;
        if unready && !self.node.is_away() && !self.node.settles() && (anew || self.unready_since.is_none()) {
            (self.unready_since, self.unready_times) = (Some(now), self.unready_times.saturating_add(1));
        }
    }

    /// Notes since when the Pod has its old images again, and which containers do not run, by the report of a kubelet
    /// that has seen the images. At the start of a sync of the Pod, it reports what the previous sync has left.
    fn see_restored(&mut self, now: Mono, update: &ImageUpdate, pod: Option<&Pod>) {
        let first = self.restored_since.is_none();
        note_since(&mut self.restored_since, now, pod.is_some());
        let Some(pod) = pod else {
            self.ran.clear();
            return self.down.clear();
        };
        if first {
            let running = pod.containers.iter().filter_map(|container| {
                let now = container.status.as_ref().filter(|now| now.state == ContainerState::Running)?;
                Some((container.name.clone(), now.container_id.clone()))
            });
            self.ran = running.collect();
        }
        if !pod.seen() {
            return;
        }
        let down = update.status.containers.iter().filter(|status| {
            let now = pod.container(&status.name).and_then(|container| container.status.as_ref());
            now.is_some_and(|now| {
                matches!(now.state, ContainerState::Waiting { .. } | ContainerState::Terminated { .. })
            })
        });
        self.down.extend(down.map(|status| status.name.clone()));
    }

    /// Takes in the result of a deed.
    pub fn deed_done(&mut self, now: Mono, deed: &Deed, done: Done) {
        match deed {
            Deed::TryImages { images, .. } => match done {
                Done::Effected => (self.tried, self.refused) = (Some((now, images.clone())), None),
                Done::Refused(text) => self.count_refusal(text),
                Done::Read(_) | Done::Gone | Done::Conflict | Done::Retry(_) => {}
            },
            Deed::AskNode(_) => self.node.answered(now, &done),
            _ => self.puller.done(now, deed, done),
        }
    }

    /// The API server has just said that it would store this change.
    pub(super) fn has_just_tried(&self, now: Mono, image: &ImageChange) -> bool {
        self.tried.as_ref().is_some_and(|(at, images)| at.after(TRIED_FOR) > now && images.contains(image))
    }

    /// Notes that the API server would store these changes, as it did for another Pod.
    pub(super) fn stores(&mut self, now: Mono, images: Vec<ImageChange>) {
        if !images.is_empty() {
            self.tried = Some((now, images));
        }
    }

    /// This process saw the request end a [short while](ENDED_JUST) ago.
    pub(super) fn ended_just(&self, now: Mono) -> bool {
        let ended = self.completed_seen.filter(|ended| *ended > self.first_seen);
        ended.is_some_and(|ended| ended.after(ENDED_JUST) > now)
    }

    /// Takes in the result of a write of the Pod's images: the refusal, or `None` for any other result.
    pub fn images_written(&mut self, refused: Option<String>) {
        // A write that must be repeated is tried as a dry run first.
        self.tried = None;
        match refused {
            Some(text) => self.count_refusal(text),
            None => self.refused = None,
        }
    }

    fn count_refusal(&mut self, text: String) {
        let before = self.refused.as_ref().map_or(0, |(times, _)| *times);
        self.refused = Some((before.saturating_add(1), text));
    }
}

/// New containers whose last instance ended in an unknown way, such as with its node, and which instance that was.
fn ended_with_node(update: &ImageUpdate, pod: Option<&Pod>) -> Vec<(String, i32)> {
    let ended = update.status.containers.iter().filter_map(|status| {
        let now = pod?.container(&status.name)?.status.as_ref()?;
        Some((status.name.clone(), now.lost.filter(|number| *number > status.before.restart_count)?))
    });
    ended.collect()
}

/// The instance that was there when the request was accepted still runs.
fn runs_old(status: &ContainerStatus, container: &Container) -> bool {
    container.status.as_ref().is_some_and(|now| {
        now.state == ContainerState::Running && now.container_id == status.before.container_id
    })
}

/// It runs, and passes its probe.
pub(super) fn is_ready(container: &Container) -> bool {
    container.status.as_ref().is_some_and(|now| now.state == ContainerState::Running && now.ready)
}

/// All inputs of a decision about one update.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// This process's clock.
    pub now: Mono,
    /// The request.
    pub update: &'a ImageUpdate,
    /// The Pod with the name in the request.
    pub pod: Option<&'a Pod>,
    /// What the request must wait for.
    pub ahead: Option<Ahead>,
    /// An earlier update of the same Pod that is also accepted, and not suspended.
    pub earlier: Option<Named>,
    /// The Pod with the name of its puller Pod.
    pub puller: Option<&'a Pod>,
    /// Images that the node is known to have without a question to its daemon, by container name.
    pub proven: Vec<(String, Pulled)>,
    /// The request's orders in the node's book.
    pub orders: Vec<OrderView<'a>>,
    /// The API server is known to restrict each daemon to its own node, so orders may be placed.
    pub guarded: bool,
    /// Images of the request in a write of the Pod that is under way or whose result is unknown.
    pub writing: &'a [ImageChange],
    /// A write of images of the Pod is under way, for this request or for another.
    pub written_now: bool,
    /// The request's deed that is under way or whose result is unknown.
    pub deed: Option<&'a Deed>,
    /// What is known of the Pod while the watch does not show it.
    pub pod_check: &'a PodCheck,
    /// What this process remembers.
    pub memory: &'a Memory,
}

impl Observed<'_> {
    /// The image that the node is known to have for that container.
    pub(super) fn proven(&self, container: &str) -> Option<&Pulled> {
        self.proven.iter().find(|(name, _)| name == container).map(|(_, pulled)| pulled)
    }
}
