//! What a decision about one update sees.

use std::collections::BTreeSet;
use std::time::Duration;

use pitstop_api::condition;
use pitstop_api::image_update::{
    ContainerStatus, Phase, PodImageUpdateSpec, PodImageUpdateStatus, conditions,
};
use pitstop_api::nodework::Pulled;

use super::judge::{Place, is_unchanged, place};
use super::{node, puller};
use crate::change::{ImageChange, Named};
use crate::deed::{Deed, Done};
use crate::drain::Seen;
use crate::key::ObjectKey;
use crate::kind::Ahead;
use crate::look::Look;
use crate::nodework::OrderView;
use crate::pod::{Container, ContainerState, Pod};
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

    /// It was accepted for that very Pod.
    pub fn is_for(&self, pod: &Pod) -> bool {
        self.status.target.as_ref().is_some_and(|target| target.pod_uid == pod.uid)
    }

    /// The Pod is to be taken out of service for it, or was.
    pub fn drains(&self) -> bool {
        condition::find(&self.status.conditions, conditions::DRAINED).is_some()
    }

    /// What the Pod gets is written down, so that it may have it already.
    pub fn changes(&self) -> bool {
        self.status.containers.iter().any(|container| !container.written.is_empty())
    }

    /// It does something to its Pod, or has.
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

    /// How the request is known among others of its kind for its Pod: the oldest goes first.
    pub(super) fn rank(&self) -> (i64, &ObjectKey) {
        (self.created, &self.key)
    }
}

/// How long what the API server would store is not tried again, unless it was written meanwhile: admission may change.
const TRIED_FOR: Duration = Duration::from_secs(1);
/// For how long an update that has ended tells what the API server stores for another Pod of its rollout.
const ENDED_JUST: Duration = Duration::from_secs(30);
/// A container that is ready for so long is ready: a kubelet tells so for a moment before it knows of a probe.
const STEADY: Duration = Duration::from_secs(2);
/// How often new containers may be ready, then not, then ready for a [while](STEADY) again: once after their start, when the kubelet
/// learns of their probe, and once more, when the kubelet starts anew.
const MOST_LOST: u8 = 2;

/// What this process remembers of an update; lost when it ends, and then counted anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When this process first saw the request.
    pub first_seen: Mono,
    /// When it first saw the request completed.
    pub completed_seen: Option<Mono>,
    /// Since when the deadline runs: from the first sight on, and from the last one suspended.
    pub runs_since: Option<Mono>,
    /// The images that the API server would store, and when it said so last.
    pub(super) tried: Option<(Mono, Vec<ImageChange>)>,
    /// How often in a row it was refused, and what was said last: the dry run, or the change itself.
    pub refused: Option<(u32, String)>,
    /// Since when it does something to its Pod, or is about to.
    pub busy_since: Option<Mono>,
    /// Since when an order waits for the daemon's first word.
    pub unanswered_since: Option<Mono>,
    /// Since when none of its orders finds a place in the node's book.
    pub crowded_since: Option<Mono>,
    /// What is known of its puller Pod.
    pub puller: puller::Memory,
    /// What is known of the Pod's node.
    pub(super) node: node::Sight,
    /// How far the drain is seen to be.
    pub drain: Seen,
    /// Since when the Pod's spec has the new images.
    pub written_since: Option<Mono>,
    /// When the first old container was seen not to run any more.
    pub ended_at: Option<Mono>,
    /// Since when all new containers are ready.
    pub ready_since: Option<Mono>,
    /// Their IDs.
    pub ready: Vec<String>,
    /// How long it took from the end of the first old one, in milliseconds.
    pub gap: Option<i64>,
    /// When a new container was first seen not to be ready any more, while they were watched; what was over for a
    /// [while](STEADY) is not counted together with what follows.
    pub lost_at: Option<Mono>,
    /// How often that was counted from the beginning.
    pub lost: u8,
    /// Since when the Pod's spec has the old images again.
    pub restored_since: Option<Mono>,
    /// Containers that did not run when their kubelet had seen those very images: what runs of them since was started by these
    /// strings, and is not stopped for others.
    pub(super) down: BTreeSet<String>,
}

impl Memory {
    /// First seen now.
    pub fn new(now: Mono) -> Self {
        Self { first_seen: now, ..Self::default() }
    }

    /// Notes since when things are as they are. `puller`: the Pod under the name of the request's puller Pod; `orders` are the
    /// request's.
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
        let at = pod.map(|pod| place(update, pod));
        let restores = update.status.restoring.is_some();
        note_since(&mut self.written_since, now, !restores && at == Some(Place::Written));
        self.see_restored(now, update, pod.filter(|_| restores && at == Some(Place::Restored)));
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
        // One that came up with its old image may be ready, too, until the kubelet replaces it.
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
        self.see_lost(now, update.is_watched() && !ready, steady);
        // A kubelet may tell of both in one change, and then nobody knows.
        if let Some((ended, ready)) = self
            .ended_at
            .zip(self.ready_since)
            .filter(|(ended, ready)| ready > ended && self.node.outages() == 0)
        {
            let gap = i64::try_from(ready.since(ended).as_millis()).unwrap_or(i64::MAX);
            self.gap.get_or_insert(gap);
        }
    }

    /// Whether new containers that are watched are not ready; `steady`: until now they were for a [while](STEADY).
    fn see_lost(&mut self, now: Mono, lost: bool, steady: bool) {
        let anew = steady && self.lost < MOST_LOST;
        if lost && !self.node.is_away() && !self.node.settles() && (anew || self.lost_at.is_none()) {
            (self.lost_at, self.lost) = (Some(now), self.lost.saturating_add(1));
        }
    }

    /// Notes since when the Pod has its old images again; and which containers do not run, by the word of a kubelet that has seen
    /// them: it tells at the beginning of a sync of the Pod what the one before has left.
    fn see_restored(&mut self, now: Mono, update: &ImageUpdate, pod: Option<&Pod>) {
        note_since(&mut self.restored_since, now, pod.is_some());
        let Some(pod) = pod else { return self.down.clear() };
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

    /// What the request has had done came back.
    pub fn deed_done(&mut self, now: Mono, deed: &Deed, done: Done) {
        match deed {
            Deed::TryImages { images, .. } => match done {
                Done::Effected => (self.tried, self.refused) = (Some((now, images.clone())), None),
                Done::Refused(text) => self.again(text),
                Done::Told(_) | Done::Gone | Done::Conflict | Done::Retry(_) => {}
            },
            Deed::AskNode(_) => self.node.asked(now, &done),
            _ => self.puller.done(now, deed, done),
        }
    }

    /// The API server has just said that it would store that.
    pub(super) fn has_just_tried(&self, now: Mono, image: &ImageChange) -> bool {
        self.tried.as_ref().is_some_and(|(at, images)| at.after(TRIED_FOR) > now && images.contains(image))
    }

    /// The API server would store these changes, as it has for another Pod.
    pub(super) fn stores(&mut self, now: Mono, images: Vec<ImageChange>) {
        if !images.is_empty() {
            self.tried = Some((now, images));
        }
    }

    /// This process has seen the request end a [short while](ENDED_JUST) ago.
    pub(super) fn ended_just(&self, now: Mono) -> bool {
        let ended = self.completed_seen.filter(|ended| *ended > self.first_seen);
        ended.is_some_and(|ended| ended.after(ENDED_JUST) > now)
    }

    /// A write of the Pod's images came back: refused with that text, or else.
    pub fn images_written(&mut self, refused: Option<String>) {
        // One that has to be repeated is tried first.
        self.tried = None;
        match refused {
            Some(text) => self.again(text),
            None => self.refused = None,
        }
    }

    fn again(&mut self, text: String) {
        let before = self.refused.as_ref().map_or(0, |(times, _)| *times);
        self.refused = Some((before.saturating_add(1), text));
    }
}

/// New containers whose last instances have ended in a way that nobody knows, as with their node, and which instances those were.
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

/// All that a decision about one update sees.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// This process's clock.
    pub now: Mono,
    /// The request.
    pub update: &'a ImageUpdate,
    /// The Pod under the name that the request gives.
    pub pod: Option<&'a Pod>,
    /// What goes first for the same Pod, or in the namespace.
    pub ahead: Option<Ahead>,
    /// An earlier update of the same Pod that has been accepted, too, and is not suspended.
    pub earlier: Option<Named>,
    /// The Pod under the name of its puller Pod.
    pub puller: Option<&'a Pod>,
    /// What the node is known to have without being asked, by the names of containers.
    pub proven: Vec<(String, Pulled)>,
    /// The request's orders in the node's book.
    pub orders: Vec<OrderView<'a>>,
    /// The API server is known to keep each daemon to its own node, so that orders may be placed.
    pub guarded: bool,
    /// Images of the request in a write of the Pod that is under way, or of which nobody knows yet how it ended.
    pub writing: &'a [ImageChange],
    /// A write of images of the Pod is under way, for this request or for another.
    pub written_now: bool,
    /// What the request has done that is under way, or of which nobody knows yet how it ended.
    pub deed: Option<&'a Deed>,
    /// What is known of the Pod while the watch does not show it.
    pub look: &'a Look,
    /// What this process remembers.
    pub memory: &'a Memory,
}

impl Observed<'_> {
    /// The image that the node is known to have for that container.
    pub(super) fn proven(&self, container: &str) -> Option<&Pulled> {
        self.proven.iter().find(|(name, _)| name == container).map(|(_, pulled)| pulled)
    }
}
