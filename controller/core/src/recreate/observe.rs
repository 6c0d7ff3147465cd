//! What a decision about one request sees.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::id::split_reference;
use pitstop_api::recreate::{ContainerRecreateRequestSpec, ContainerRecreateRequestStatus, Mechanism};

use super::judge::is_pinned;
use super::stages::Stages;
use crate::change::ImageChange;
use crate::drain::Seen;
use crate::key::ObjectKey;
use crate::kind::Ahead;
use crate::look::Look;
use crate::nodework::{Acting, OrderView};
use crate::pod::{ContainerState, ContainerStatus, Pod};
use crate::readiness::{Hold, RECREATE_AGENT};
use crate::reduced::Reduced;
use crate::time::{Mono, note_since};

/// A `ContainerRecreateRequest`, reduced to what decisions need.
pub type Request = Reduced<ContainerRecreateRequestSpec, ContainerRecreateRequestStatus, Marks>;

/// What is read of its metadata beside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `metadata.labels`: those that [`pitstop_api::labels`] names, and for admission all.
    pub labels: BTreeMap<String, String>,
    /// Those of `metadata.annotations` that [`pitstop_api::annotations`] names.
    pub annotations: BTreeMap<String, String>,
    /// It was written through `v1beta1`, not `v1alpha1`.
    pub in_v1beta1: bool,
}

impl Request {
    /// The Pod that it names.
    pub fn pod_key(&self) -> ObjectKey {
        ObjectKey::new(&self.key.namespace, &self.spec.pod_name)
    }

    /// It has ended.
    pub fn completed(&self) -> bool {
        self.status.completion_time.is_some()
    }

    /// It was accepted and has not ended.
    pub fn started(&self) -> bool {
        !self.completed() && self.status.target.is_some()
    }

    /// It is at work on that very Pod.
    pub fn started_for(&self, pod: &Pod) -> bool {
        !self.deleting
            && !self.completed()
            && self.status.target.as_ref().is_some_and(|target| target.pod_uid == pod.uid)
    }

    /// `spec.strategy.mechanism`.
    pub fn mechanism(&self) -> Mechanism {
        self.spec.strategy.as_ref().and_then(|s| s.mechanism).unwrap_or_default()
    }

    /// The hold by which the request keeps its Pod not ready while it is at work; absent when it asks for no drain.
    pub fn hold(&self) -> Option<Hold> {
        let drains = self.spec.strategy.as_ref().is_some_and(|s| s.unready_grace_period_seconds.is_some());
        drains.then(|| Hold { user_agent: RECREATE_AGENT.to_owned(), key: self.key.to_string() })
    }
}

/// What this process remembers of a request; lost when it ends, and then counted anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When this process first saw the request.
    pub first_seen: Mono,
    /// When it first saw the request completed.
    pub completed_seen: Option<Mono>,
    /// Since when an order waits for the daemon's answer while the daemon has nothing else to do for the Pod.
    pub unanswered_since: Option<Mono>,
    /// Since when none of its orders finds a place in the node's book.
    pub crowded_since: Option<Mono>,
    /// One of them has found none.
    pub short: bool,
    /// How many of its orders the daemon has answered.
    pub answered: usize,
    /// Containers of which the daemon has taken an order up, though the book may be gone since; or may have, where
    /// the book went without a last word.
    pub begun: BTreeSet<String>,
    /// How far the drain is seen to be.
    pub drain: Seen,
    /// Containers that were seen running: name, ID, and since when.
    pub running: BTreeMap<String, (String, Mono)>,
    /// Containers that were seen ended: name, ID, and since when.
    pub ended: BTreeMap<String, (String, Mono)>,
    /// Containers whose target was seen running with the image pinned: it is the pin that ends them.
    pub pinned: BTreeSet<String>,
    /// How often in a row the pinning was refused, and what was said last.
    pub pin_refused: Option<(u32, String)>,
    /// How long its stages take.
    pub stages: Stages,
}

impl Memory {
    /// First seen now.
    pub fn new(now: Mono) -> Self {
        Self { first_seen: now, ..Self::default() }
    }

    /// Notes when waits begin and end. `orders` are the request's; `busy`: the daemon carries an order for the Pod out,
    /// and may take as long as it has so far;
    /// `unread`: there is no node, so no book can be made for what the request wants.
    ///
    /// A silence lasts until the daemon answers something: it outlasts the withdrawal of the order that nobody
    /// took up, so that the outcome can follow.
    pub fn update(&mut self, now: Mono, completed: bool, busy: bool, unread: bool, orders: &[OrderView<'_>]) {
        note_since(&mut self.completed_seen, now, completed);
        let answered = orders.iter().filter(|o| o.answer.is_some()).count();
        if busy || answered > self.answered {
            self.unanswered_since = None;
        }
        self.answered = answered;
        let begun = orders.iter().filter(|o| o.begun()).map(|o| o.order.container.name.clone());
        self.begun.extend(begun);
        if !busy && (unread || answered < orders.len()) {
            self.unanswered_since.get_or_insert(now);
        }
    }

    /// Notes whether all or none of its orders have a place in the node's book. Whether that is news.
    pub fn placed(&mut self, now: Mono, all: bool, none: bool) -> bool {
        let before = (self.short, self.crowded_since.is_some());
        self.short = !all;
        note_since(&mut self.crowded_since, now, none);
        before != (self.short, self.crowded_since.is_some())
    }

    /// Notes since when the request's containers run, and how far its Pod is out of service.
    pub fn see(&mut self, now: Mono, request: &Request, pod: Option<&Pod>) {
        self.drain.update(now, pod.filter(|pod| request.started_for(pod)), request.hold().as_ref());
        if request.completed() {
            self.running.clear();
            self.ended.clear();
            return;
        }
        for wanted in &request.spec.containers {
            let status = pod.and_then(|pod| pod.container(&wanted.name)).and_then(|c| c.status.as_ref());
            let over = |s: &&ContainerStatus| matches!(s.state, ContainerState::Terminated { .. });
            match status.filter(over) {
                Some(status) => {
                    let seen = self.ended.entry(wanted.name.clone()).or_default();
                    if seen.0 != status.container_id {
                        *seen = (status.container_id.clone(), now);
                    }
                }
                None => {
                    self.ended.remove(&wanted.name);
                }
            }
            match status.filter(|s| s.state == ContainerState::Running) {
                Some(status) => {
                    let seen = self.running.entry(wanted.name.clone()).or_default();
                    if seen.0 != status.container_id {
                        *seen = (status.container_id.clone(), now);
                    }
                    let mut targets = request.status.target.iter().flat_map(|t| &t.containers);
                    if targets.any(|t| {
                        t.container_id == status.container_id && pod.is_some_and(|p| is_pinned(t, p))
                    }) {
                        self.pinned.insert(wanted.name.clone());
                    }
                }
                None => {
                    self.running.remove(&wanted.name);
                }
            }
        }
    }

    /// A write of the Pod's images came back: refused with that text, or else.
    pub fn pin_written(&mut self, refused: Option<String>) {
        self.pin_refused = refused.map(|text| {
            let before = self.pin_refused.as_ref().map_or(0, |(times, _)| *times);
            (before.saturating_add(1), text)
        });
    }

    /// Since when the container of that name has ended and was not started again, as far as this process has seen.
    pub fn ended_since(&self, container: &str) -> Option<Mono> {
        self.ended.get(container).map(|(_, since)| *since)
    }

    /// Since when the container of that name runs, as far as this process has seen.
    pub fn running_since(&self, container: &str) -> Option<Mono> {
        self.running.get(container).map(|(_, since)| *since)
    }
}

/// All that a decision about one request sees.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The request.
    pub request: &'a Request,
    /// The Pod under the name that the request gives.
    pub pod: Option<&'a Pod>,
    /// What goes first for the same Pod.
    pub ahead: Option<Ahead>,
    /// It belongs to another request that is not at work any more.
    pub owner_over: bool,
    /// The request's orders in the node's book.
    pub orders: Vec<OrderView<'a>>,
    /// A write of images of the Pod is under way, for this request or for one before it.
    pub pinned_now: bool,
    /// The API server is known to keep each daemon to its own node, so that orders may be placed.
    pub guarded: bool,
    /// A write that places orders of the request is under way, or nobody knows yet how it ended.
    pub placing: bool,
    /// Images of the request in a write of the Pod that is under way, or of which nobody knows yet how it ended.
    pub pinning: &'a [ImageChange],
    /// For how long the daemon has been carrying the orders out.
    pub acting: &'a Acting,
    /// What is known of the Pod while the watch does not show it.
    pub look: &'a Look,
    /// What this process remembers.
    pub memory: &'a Memory,
}

impl<'a> Observed<'a> {
    /// The order for the container's target. One that names another instance is older than the target.
    pub fn order(&self, container: &str) -> Option<OrderView<'a>> {
        let mut targets = self.request.status.target.iter().flat_map(|t| &t.containers);
        let target = targets.find(|t| t.name == container)?;
        let (_, id) = split_reference(&target.container_id).ok()?;
        let names = |o: &OrderView<'_>| o.order.container.name == container && o.order.container.id == id;
        self.orders.iter().copied().find(names)
    }

    /// The daemon has stopped the container for the request, or may yet; or a pin has ended it.
    pub fn begun(&self, container: &str) -> bool {
        self.is_told_killed(container)
            || self.orders.iter().any(|o| o.order.container.name == container && o.begun())
            || self.memory.begun.contains(container)
            || self.memory.pinned.contains(container)
    }

    /// Whether the daemon has answered the order for a container.
    pub fn taken_up(&self, container: &str) -> bool {
        self.order(container).is_some_and(|o| o.answer.is_some()) || self.is_told_killed(container)
    }

    /// The status says that the container was stopped.
    pub fn is_told_killed(&self, container: &str) -> bool {
        let states = &self.request.status.container_recreate_states;
        states.iter().any(|state| state.name == container && state.is_killed)
    }

    /// The Pod, if it is still the one that the request was resolved for and has a future.
    pub fn live_pod(&self) -> Option<&'a Pod> {
        let target = self.request.status.target.as_ref()?;
        self.pod.filter(|pod| pod.uid == target.pod_uid && !pod.gone())
    }
}
