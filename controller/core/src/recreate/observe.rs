//! Inputs of a decision about one request.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::id::split_reference;
use pitstop_api::recreate::{ContainerRecreateRequestSpec, ContainerRecreateRequestStatus, Mechanism};

use super::judge::is_pinned;
use super::stages::Stages;
use crate::change::ImageChange;
use crate::drain::DrainTimer;
use crate::key::ObjectKey;
use crate::kind::Ahead;
use crate::nodework::{Acting, OrderView};
use crate::pod::{ContainerState, ContainerStatus, Pod};
use crate::pod_check::PodCheck;
use crate::readiness::{Hold, RECREATE_AGENT};
use crate::reduced::Reduced;
use crate::time::{Mono, note_since};

/// A `ContainerRecreateRequest`, reduced to what decisions need.
pub type Request = Reduced<ContainerRecreateRequestSpec, ContainerRecreateRequestStatus, Metadata>;

/// Further metadata of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// `metadata.labels`: those that [`pitstop_api::labels`] names; for admission, all.
    pub labels: BTreeMap<String, String>,
    /// Those of `metadata.annotations` that [`pitstop_api::annotations`] names.
    pub annotations: BTreeMap<String, String>,
    /// The spec was written through `v1beta1`, not `v1alpha1`.
    pub in_v1beta1: bool,
}

impl Request {
    /// Key of the Pod that the request names.
    pub fn pod_key(&self) -> ObjectKey {
        ObjectKey::new(&self.key.namespace, &self.spec.pod_name)
    }

    /// Whether the request has ended.
    pub fn completed(&self) -> bool {
        self.status.completion_time.is_some()
    }

    /// Whether the request was accepted and has not ended.
    pub fn started(&self) -> bool {
        !self.completed() && self.status.target.is_some()
    }

    /// Whether the request is at work on this exact Pod.
    pub fn started_for(&self, pod: &Pod) -> bool {
        !self.deleting
            && !self.completed()
            && self.status.target.as_ref().is_some_and(|target| target.pod_uid == pod.uid)
    }

    /// `spec.strategy.mechanism`.
    pub fn mechanism(&self) -> Mechanism {
        self.spec.strategy.as_ref().and_then(|s| s.mechanism).unwrap_or_default()
    }

    /// The hold by which the request keeps its Pod not ready while it is at work; `None` without a drain.
    pub fn hold(&self) -> Option<Hold> {
        let drains = self.spec.strategy.as_ref().is_some_and(|s| s.unready_grace_period_seconds.is_some());
        drains.then(|| Hold { user_agent: RECREATE_AGENT.to_owned(), key: self.key.to_string() })
    }
}

/// What this process remembers of a request. A new process counts anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When this process first saw the request.
    pub first_seen: Mono,
    /// When it first saw the request completed.
    pub completed_seen: Option<Mono>,
    /// Since when an order is unanswered while the daemon is not busy with the Pod.
    pub unanswered_since: Option<Mono>,
    /// Since when none of the request's orders has a place in the node's book.
    pub crowded_since: Option<Mono>,
    /// An order of the request has no place.
    pub unplaced: bool,
    /// Number of the request's orders that the daemon has answered.
    pub answered: usize,
    /// Containers whose order the daemon has taken up, or may have taken up before the book was lost.
    pub begun: BTreeSet<String>,
    /// Observed state of the drain.
    pub drain: DrainTimer,
    /// Containers that were seen running: name, ID, and since when.
    pub running: BTreeMap<String, (String, Mono)>,
    /// Containers that were seen ended: name, ID, and since when.
    pub ended: BTreeMap<String, (String, Mono)>,
    /// Containers whose target was seen running with its image pinned: the pin ends them.
    pub pinned: BTreeSet<String>,
    /// Number of refused pins in a row, and the text of the last refusal.
    pub pin_refused: Option<(u32, String)>,
    /// Stages of the request, to measure durations.
    pub stages: Stages,
}

impl Memory {
    /// Memory of a request that is first seen now.
    pub fn new(now: Mono) -> Self {
        Self { first_seen: now, ..Self::default() }
    }

    /// Notes when waits begin and end. `orders`: those of the request. `busy`: the daemon carries out an order for the
    /// Pod, and is not overdue. `unread`: the node does not exist, so the request's orders get no book.
    ///
    /// A silence lasts until the daemon answers an order. It outlasts the withdrawal of an unanswered order, so that
    /// the outcome can follow.
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

    /// Notes whether all or none of the request's orders have a place in the node's book. Returns whether that changed.
    pub fn placed(&mut self, now: Mono, all: bool, none: bool) -> bool {
        let before = (self.unplaced, self.crowded_since.is_some());
        self.unplaced = !all;
        note_since(&mut self.crowded_since, now, none);
        before != (self.unplaced, self.crowded_since.is_some())
    }

    /// Notes since when the request's containers run or have ended, and the drain of its Pod.
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

    /// Notes the result of a write of the Pod's images; `refused`: text of a refusal.
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

/// All inputs of a decision about one request.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The request.
    pub request: &'a Request,
    /// The Pod that the request names.
    pub pod: Option<&'a Pod>,
    /// Why the request waits for its turn; `None` if it does not.
    pub ahead: Option<Ahead>,
    /// The request belongs to another one that is no longer at work.
    pub owner_over: bool,
    /// The request's orders in the node's book.
    pub orders: Vec<OrderView<'a>>,
    /// A write of the Pod's images is under way, for this request or an earlier one.
    pub pinned_now: bool,
    /// The API server is known to restrict each daemon to its own node, so orders may be placed.
    pub guarded: bool,
    /// A write that places orders of the request is under way, or its result is unknown.
    pub placing: bool,
    /// Images of the request in a write that is under way, or whose result is unknown.
    pub pinning: &'a [ImageChange],
    /// For how long the daemon has been carrying the orders out.
    pub acting: &'a Acting,
    /// Answers of the API server about a Pod that the watch does not show.
    pub pod_check: &'a PodCheck,
    /// Memory of this process.
    pub memory: &'a Memory,
}

impl<'a> Observed<'a> {
    /// The order for the container's target. An order for another instance does not count.
    pub fn order(&self, container: &str) -> Option<OrderView<'a>> {
        let mut targets = self.request.status.target.iter().flat_map(|t| &t.containers);
        let target = targets.find(|t| t.name == container)?;
        let (_, id) = split_reference(&target.container_id).ok()?;
        let names = |o: &OrderView<'_>| o.order.container.name == container && o.order.container.id == id;
        self.orders.iter().copied().find(names)
    }

    /// Whether the daemon has stopped the container for the request, or may do so, or a pin has ended it.
    pub fn begun(&self, container: &str) -> bool {
        self.stop_recorded(container)
            || self.orders.iter().any(|o| o.order.container.name == container && o.begun())
            || self.memory.begun.contains(container)
            || self.memory.pinned.contains(container)
    }

    /// Whether the daemon has answered the order for a container.
    pub fn taken_up(&self, container: &str) -> bool {
        self.order(container).is_some_and(|o| o.answer.is_some()) || self.stop_recorded(container)
    }

    /// Whether the status says that the container was stopped.
    pub fn stop_recorded(&self, container: &str) -> bool {
        let states = &self.request.status.container_recreate_states;
        states.iter().any(|state| state.name == container && state.is_killed)
    }

    /// The Pod, if it is still the one of the target, and neither deleted nor finished.
    pub fn live_pod(&self) -> Option<&'a Pod> {
        let target = self.request.status.target.as_ref()?;
        self.pod.filter(|pod| pod.uid == target.pod_uid && !pod.gone())
    }
}
