//! The model of the API server: objects with versions, conditional writes, and the log that watches read.
//!
//! The promises that no schedule may break are checked here, at every write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::MAX_ORDERS;
use pitstop_api::nodework::{AnswerState, NodeWorkStatus, request_uid};
use pitstop_api::recreate::{ContainerRecreateRequestStatus, Phase, conditions};
use pitstop_controller_core::action::PodChange;
use pitstop_controller_core::nodework::NodeWork;
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::readiness::{GateCondition, Hold};
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::{Action, Mono, ObjectKey, Outcome, Watch};

/// What was written, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    pub status: usize,
    pub labels: usize,
    pub deletions: usize,
    pub orders: usize,
    pub answers: usize,
    pub pods: usize,
}

impl Writes {
    pub fn total(self) -> usize {
        self.status + self.labels + self.deletions + self.orders + self.answers + self.pods
    }
}

#[derive(Default)]
pub struct Store {
    version: u64,
    pub requests: BTreeMap<ObjectKey, Request>,
    pub pods: BTreeMap<ObjectKey, Pod>,
    pub books: BTreeMap<String, NodeWork>,
    pub request_log: Vec<Watch<Request>>,
    pub pod_log: Vec<Watch<Pod>>,
    pub book_log: Vec<Watch<NodeWork>>,
    pub writes: Writes,
    /// Orders that a daemon acknowledged: ID and container.
    pub acknowledged: BTreeSet<(String, String)>,
    /// Containers that were stopped: request and container name to container ID.
    pub stopped: BTreeMap<(String, String), String>,
    /// All UIDs of requests that ended.
    pub ended: BTreeSet<String>,
    /// How often requests ended how.
    pub outcomes: BTreeMap<String, usize>,
    /// More than one process may believe that it leads.
    pub many_leaders: bool,
    /// Containers also end by themselves.
    pub crashes: bool,
    pub now: Mono,
    /// Requests with a drain, and when it could begin to count: Pod held and not ready, or without a gate accepted.
    drains: BTreeMap<String, Mono>,
}

impl Store {
    fn stamp(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub fn put_pod(&mut self, mut pod: Pod) {
        pod.resource_version = self.stamp();
        self.pods.insert(pod.key.clone(), pod.clone());
        self.pod_log.push(Watch::Upsert(pod));
        self.see_drains();
    }

    fn see_drains(&mut self) {
        for request in self.requests.values() {
            let (Some(hold), Some(pod)) = (request.hold(), self.pods.get(&request.pod_key())) else {
                continue;
            };
            let out = pod.gates.is_empty() || (!pod.ready && pod.gates.iter().all(|g| g.held_by(&hold)));
            if out && request.started_for(pod) {
                self.drains.entry(request.uid.clone()).or_insert(self.now);
            }
        }
    }

    /// A container of a Pod that is to be drained is stopped only after the drain.
    fn check_drained(&self, order_id: &str) {
        let Some(request) = self.requests.values().find(|r| r.uid == request_uid(order_id)) else { return };
        let strategy = request.spec.strategy.clone().unwrap_or_default();
        let Some(grace) = strategy.unready_grace_period_seconds else { return };
        let since = self.drains.get(&request.uid);
        let passed = since.map(|since| self.now.since(*since));
        let grace = Duration::from_secs(u64::try_from(grace).unwrap());
        assert!(
            passed.is_some_and(|passed| passed >= grace),
            "{order_id} is not drained: {passed:?} of {grace:?}"
        );
    }

    /// Another writer of a Pod's conditions takes or gives up its hold, or opens a gate in spite of all holds.
    pub fn meddle(&mut self, key: &ObjectKey, opens: bool) {
        let mut pod = self.pods[key].clone();
        let other = Hold { user_agent: "Other".into(), key: "x".into() };
        for condition in pod.gates.iter_mut().filter_map(|g| g.condition.as_mut()) {
            if opens {
                condition.open = true;
                continue;
            }
            let mut holds: BTreeSet<Hold> = serde_json::from_str(&condition.message).unwrap();
            if !holds.remove(&other) {
                holds.insert(other.clone());
            }
            condition.open = holds.is_empty();
            condition.message = serde_json::to_string(&holds).unwrap();
        }
        self.put_pod(pod);
    }

    pub fn remove_pod(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.pod_log.push(Watch::Gone(pod));
        }
    }

    pub fn put_request(&mut self, mut request: Request) -> Request {
        request.resource_version = self.stamp();
        self.requests.insert(request.key.clone(), request.clone());
        self.request_log.push(Watch::Upsert(request.clone()));
        self.see_drains();
        request
    }

    pub fn remove_request(&mut self, key: &ObjectKey) {
        if let Some(mut request) = self.requests.remove(key) {
            request.resource_version = self.stamp();
            self.request_log.push(Watch::Gone(request));
        }
    }

    fn put_book(&mut self, mut book: NodeWork) -> NodeWork {
        book.resource_version = self.stamp();
        self.books.insert(book.node.clone(), book.clone());
        self.book_log.push(Watch::Upsert(book.clone()));
        book
    }

    pub fn remove_book(&mut self, node: &str) {
        if let Some(book) = self.books.remove(node) {
            self.book_log.push(Watch::Gone(book));
        }
    }

    /// Carries out a write of the controller.
    pub fn request_write(&mut self, action: &Action) -> Outcome<Request> {
        let (Action::WriteStatus { key, uid, .. }
        | Action::PatchMetadata { key, uid, .. }
        | Action::DeleteRequest { key, uid }) = action
        else {
            panic!("{action:?} is no write of a request")
        };
        let Some(stored) = self.requests.get(key).cloned() else { return Outcome::Gone };
        match action {
            Action::WriteStatus { resource_version, status, .. } => {
                if stored.resource_version != *resource_version || stored.uid != *uid {
                    return Outcome::Conflict;
                }
                // A write that changes nothing makes no new version.
                if stored.status == **status {
                    return Outcome::Written(stored);
                }
                self.check_status(&stored, status);
                self.writes.status += 1;
                Outcome::Written(self.put_request(Request { status: (**status).clone(), ..stored }))
            }
            Action::PatchMetadata { resource_version, labels, annotations, .. } => {
                if stored.resource_version != *resource_version {
                    return Outcome::Conflict;
                }
                let mut new = stored.clone();
                for (kept, changes) in [(&mut new.labels, labels), (&mut new.annotations, annotations)] {
                    for (key, value) in changes {
                        match value {
                            Some(value) => kept.insert(key.clone(), value.clone()),
                            None => kept.remove(key),
                        };
                    }
                }
                assert_ne!(
                    (&new.labels, &new.annotations),
                    (&stored.labels, &stored.annotations),
                    "changes nothing"
                );
                assert_eq!(
                    new.labels.contains_key(pitstop_api::labels::ACTIVE),
                    !new.completed(),
                    "label `active`"
                );
                self.writes.labels += 1;
                Outcome::Written(self.put_request(new))
            }
            _ => {
                if stored.uid != *uid {
                    return Outcome::Conflict;
                }
                assert!(stored.completed(), "only what is over is deleted");
                self.writes.deletions += 1;
                self.remove_request(key);
                Outcome::Gone
            }
        }
    }

    fn check_status(&mut self, old: &Request, new: &ContainerRecreateRequestStatus) {
        let before = &old.status;
        assert!(*before != *new, "a write that changes nothing");
        if let Some(target) = &before.target {
            assert_eq!(Some(target), new.target.as_ref(), "a target never changes");
        } else if new.target.is_some() && !self.many_leaders {
            let other = self.requests.values().find(|r| r.pod_key() == old.pod_key() && r.started());
            assert!(other.is_none(), "{} and {} at once", old.key, other.unwrap().key);
        }
        if before.completion_time.is_some() {
            let mut rest = new.clone();
            assert_ne!(
                before.container_recreate_states, new.container_recreate_states,
                "but by a late record"
            );
            rest.container_recreate_states.clone_from(&before.container_recreate_states);
            // A hook that failed after the end is told with the record of its stop.
            rest.conditions.retain(|c| c.type_ != conditions::PRE_STOP_HOOK);
            rest.conditions
                .extend(before.conditions.iter().filter(|c| c.type_ == conditions::PRE_STOP_HOOK).cloned());
            let sorted = |status: &ContainerRecreateRequestStatus| {
                let mut status = status.clone();
                status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
                status
            };
            assert_eq!(sorted(before), sorted(&rest), "an outcome never changes");
            *self.outcomes.entry("late record".into()).or_default() += 1;
            let states = before.container_recreate_states.iter().zip(&new.container_recreate_states);
            for (a, b) in states.filter(|(a, b)| a != b) {
                assert_eq!(a.phase, Phase::Pending, "recorded twice");
                assert!(matches!((b.phase, b.is_killed), (Phase::Recreating, true) | (Phase::Failed, false)));
            }
        } else {
            let phases = |s: &ContainerRecreateRequestStatus| -> Vec<Phase> {
                s.container_recreate_states.iter().map(|s| s.phase).collect()
            };
            let moves = phases(before).into_iter().zip(phases(new));
            assert!(moves.into_iter().all(|(a, b)| a <= b), "{before:?}\n{new:?}");
        }
        if before.completion_time.is_none() && new.completion_time.is_some() {
            let complete = new.conditions.iter().find(|c| c.type_ == conditions::COMPLETE).unwrap();
            *self.outcomes.entry(complete.reason.clone()).or_default() += 1;
            self.ended.insert(old.uid.clone());
        }
        for state in &new.container_recreate_states {
            let key = (old.uid.clone(), state.name.clone());
            let order = format!("{}/{}/1", old.uid, state.name);
            if state.is_killed {
                assert!(self.acknowledged.iter().any(|(id, _)| *id == order), "killed without an order");
                assert!(self.crashes || self.stopped.contains_key(&key), "killed without a stop");
            }
            if state.phase == Phase::Succeeded {
                let target = new.target.as_ref().unwrap().containers.iter().find(|c| c.name == state.name);
                let snapshot = new.container_status_snapshot.iter().find(|s| s.name == state.name);
                if let (Some(target), Some(snapshot)) = (target, snapshot) {
                    assert_ne!(target.container_id, snapshot.container_id);
                }
            }
        }
    }

    /// Carries out a write of a node's orders.
    pub fn orders_write(&mut self, action: &Action) -> Outcome<NodeWork> {
        let Action::WriteOrders { node, resource_version, orders } = action else {
            panic!("{action:?} is no write of orders")
        };
        assert!(orders.len() <= MAX_ORDERS);
        let new = match (self.books.get(node).cloned(), resource_version) {
            (None, Some(_)) => return Outcome::Gone,
            (Some(_), None) => return Outcome::Conflict,
            (None, None) => {
                let uid = format!("book-{}", self.version);
                NodeWork { node: node.clone(), uid, orders: orders.clone(), ..NodeWork::default() }
            }
            (Some(stored), Some(version)) if stored.resource_version != *version => return Outcome::Conflict,
            (Some(stored), Some(_)) => {
                for order in orders {
                    let before = stored.orders.iter().find(|o| o.id == order.id);
                    assert!(before.is_none_or(|b| b == order), "an order never changes");
                }
                if stored.orders == *orders {
                    return Outcome::Written(stored);
                }
                NodeWork { orders: orders.clone(), ..stored }
            }
        };
        self.writes.orders += 1;
        Outcome::Written(self.put_book(new))
    }

    /// Carries out a change of a Pod.
    pub fn pod_write(&mut self, action: &Action) -> Outcome<Pod> {
        let Action::PatchPod { key, uid, resource_version, change } = action else {
            panic!("{action:?} is no write of a Pod")
        };
        let Some(mut pod) = self.pods.get(key).cloned() else { return Outcome::Gone };
        if pod.uid != *uid || pod.resource_version != *resource_version {
            return Outcome::Conflict;
        }
        match change {
            PodChange::Gates(changes) => {
                for change in changes {
                    let gate = pod.gates.iter_mut().find(|g| g.type_ == change.type_).unwrap();
                    let new = GateCondition { open: change.open, message: change.message.clone() };
                    assert_ne!(gate.condition.as_ref(), Some(&new), "a write that changes nothing");
                    gate.condition = Some(new);
                }
            }
            PodChange::Images(changes) => {
                for change in changes {
                    let container = pod.containers.iter_mut().find(|c| c.name == change.container).unwrap();
                    assert_ne!(container.image, change.image, "a write that changes nothing");
                    container.image.clone_from(&change.image);
                }
            }
        }
        self.writes.pods += 1;
        self.put_pod(pod.clone());
        Outcome::Written(self.pods[key].clone())
    }

    /// Carries out a daemon's write.
    pub fn answers_write(&mut self, node: &str, version: &str, status: NodeWorkStatus) -> Option<NodeWork> {
        let stored = self.books.get(node).filter(|b| b.resource_version == version)?.clone();
        for answer in status.answers.iter().filter(|a| a.state == AnswerState::Acknowledged) {
            let Some(order) = stored.orders.iter().find(|o| o.id == answer.order_id) else { continue };
            let fresh = self.acknowledged.insert((order.id.clone(), order.container.id.clone()));
            let over = self.ended.contains(request_uid(&order.id));
            assert!(
                !(fresh && over) || self.many_leaders,
                "{} begins after the end of its request",
                order.id
            );
            if fresh {
                self.check_drained(&order.id);
            }
        }
        self.writes.answers += 1;
        Some(self.put_book(NodeWork { status, ..stored }))
    }

    /// A daemon stops a container for an order.
    pub fn stops(&mut self, order_id: &str, container_id: &str) {
        let named = (order_id.to_owned(), container_id.to_owned());
        assert!(
            self.acknowledged.contains(&named),
            "{order_id} stops {container_id} without an acknowledgement"
        );
        let mut parts = order_id.split('/').map(str::to_owned);
        let key = (parts.next().unwrap(), parts.next().unwrap());
        let before = self.stopped.insert(key, container_id.to_owned());
        assert!(before.is_none_or(|b| b == container_id), "{order_id} stops a second container");
    }
}
