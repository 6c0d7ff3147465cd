//! The production decisions of the controller, an API server that stores what it is asked to, and daemons and Pods that
//! may say anything.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use pitstop_api::id::split_reference;
use pitstop_api::nodework::{Order, OrderId, request_uid};
use pitstop_api::recreate::{ContainerRecreateRequestStatus, Phase};
use pitstop_controller_core::change::PodChange;
use pitstop_controller_core::nodework::NodeWork;
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::readiness::{GateCondition, SERVED};
use pitstop_controller_core::recreate;
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::{
    Action, Basis, Config, Engine, Event, Mono, Object, ObjectKey, Outcome, Status, Watch, Write,
};
use serde_json::json;

use crate::refusals;

/// How a write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It takes effect, where its precondition holds.
    Stored,
    /// It takes effect, where its precondition holds, and nobody learns of it.
    Unknown,
    /// It fails without effect.
    Lost,
    /// It is refused.
    Refused,
}

/// The cluster. Every write is looked at when it is asked for.
pub(crate) struct Cluster {
    index: Engine,
    now: u64,
    version: u64,
    pub(crate) pods: BTreeMap<ObjectKey, Pod>,
    pub(crate) requests: BTreeMap<ObjectKey, Request>,
    pub(crate) books: BTreeMap<String, NodeWork>,
    pub(crate) pending: Vec<Action>,
}

impl Cluster {
    /// A controller that leads and has listed everything.
    pub(crate) fn new(pods: Vec<Pod>, requests: Vec<Request>) -> Self {
        let mut cluster = Self {
            index: Engine::new(Config::default()),
            now: 1_000_000,
            version: 1,
            pods: pods.into_iter().map(|pod| (pod.key.clone(), pod)).collect(),
            requests: requests.into_iter().map(|request| (request.key.clone(), request)).collect(),
            books: BTreeMap::new(),
            pending: Vec::new(),
        };
        cluster.pods.values_mut().for_each(|pod| "1".clone_into(&mut pod.resource_version));
        cluster.requests.values_mut().for_each(|request| "1".clone_into(&mut request.resource_version));
        cluster.lead();
        cluster
    }

    /// Another process takes the controller's place.
    pub(crate) fn lead(&mut self) {
        self.index = Engine::new(Config::default());
        self.pending.clear();
        // Else it would place no order, and there were none to answer.
        self.send(Event::Guarded(true));
        self.send(Event::Leader(true));
        for none in Event::none_but(&[recreate::ID]) {
            self.send(none);
        }
        self.send(Event::Pods(Watch::list(self.pods.values().cloned().collect())));
        self.send(Event::NodeWorks(Watch::list(self.books.values().cloned().collect())));
        self.send(Event::of::<Request>(Watch::list(self.requests.values().cloned().collect())));
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// A Pod changes, and the watch shows it.
    pub(crate) fn change_pod(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Pod)) {
        let version = self.next_version();
        let Some(pod) = self.pods.get_mut(key) else { return };
        change(pod);
        pod.resource_version = version;
        let pod = pod.clone();
        self.send(Event::Pods(Watch::Upsert(pod)));
    }

    /// A Pod vanishes.
    pub(crate) fn remove_pod(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.send(Event::Pods(Watch::Gone(pod)));
        }
    }

    /// A request is made.
    pub(crate) fn add_request(&mut self, mut request: Request) {
        request.resource_version = self.next_version();
        self.requests.insert(request.key.clone(), request.clone());
        self.send(Event::of::<Request>(Watch::Upsert(request)));
    }

    /// A request is deleted.
    pub(crate) fn remove_request(&mut self, key: &ObjectKey) {
        if let Some(request) = self.requests.remove(key) {
            self.send(Event::of::<Request>(Watch::Gone(request)));
        }
    }

    /// A book changes, and the watch shows it.
    pub(crate) fn change_book(&mut self, node: &str, change: impl FnOnce(&mut NodeWork)) {
        let version = self.next_version();
        let Some(book) = self.books.get_mut(node) else { return };
        change(book);
        book.resource_version = version;
        let book = book.clone();
        self.send(Event::NodeWorks(Watch::Upsert(book)));
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, milliseconds: u64) {
        self.now = self.now.saturating_add(milliseconds);
        self.send(Event::Tick);
    }

    /// Lets every write take effect until nothing is left to do. Containers do not change any more, and no daemon says
    /// a word, so every request must come to its end by its deadline.
    pub(crate) fn settle(&mut self) {
        for _ in 0..5_000 {
            if !self.pending.is_empty() {
                self.carry_out(0, End::Stored);
            } else if let Some(Mono(at)) = self.index.wake_at() {
                self.wait(at.saturating_sub(self.now));
            } else {
                return;
            }
        }
        panic!("the controller does not come to rest: {:?}", self.pending);
    }

    fn wall(&self) -> DateTime<Utc> {
        let seconds = i64::try_from(self.now / 1000 % 1_000_000_000).unwrap();
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn send(&mut self, event: Event) {
        let actions = self.index.step(Mono(self.now), self.wall(), event);
        for action in &actions {
            self.check(action);
        }
        let writes = actions.into_iter().filter(|a| !matches!(a, Action::Emit(_) | Action::Count(_)));
        self.pending.extend(writes);
    }

    /// Lets a pending write end, and the watch show it.
    pub(crate) fn carry_out(&mut self, index: usize, end: End) {
        let action = self.pending.remove(index);
        let version = self.next_version();
        match action {
            Action::Write {
                object: Object { key, uid, .. },
                write: Write::Status { resource_version, status: Status::Recreate(status) },
            } => {
                let change = |request: &mut Request| request.status = *status;
                self.request_written(key, uid, Some(&resource_version), version, end, change);
            }
            Action::Write {
                object: Object { key, uid, .. },
                write: Write::Metadata { resource_version, labels, annotations },
            } => {
                let change = |request: &mut Request| {
                    merge(&mut request.more.labels, labels);
                    merge(&mut request.more.annotations, annotations);
                };
                self.request_written(key, uid, Some(&resource_version), version, end, change);
            }
            Action::Write { object: Object { key, uid, .. }, write: Write::Delete } => {
                let there = self.requests.get(&key).is_some_and(|request| request.uid == uid);
                let applies = matches!(end, End::Stored | End::Unknown);
                let outcome = answer(end, || if there { Outcome::Gone } else { Outcome::Conflict });
                self.send(Event::written::<Request>(key.clone(), uid, outcome));
                if there && applies {
                    self.remove_request(&key);
                }
            }
            Action::WriteOrders { node, basis, orders, closed, .. } => {
                let stands = match (self.books.get(&node), &basis) {
                    (None, Basis::Absent) => true,
                    (Some(book), Basis::Version(version)) => book.resource_version == *version,
                    (Some(book), Basis::Orders { uid, generation }) => {
                        (&book.uid, book.generation) == (uid, *generation)
                    }
                    (None | Some(_), _) => false,
                };
                let applies = matches!(end, End::Stored | End::Unknown) && stands;
                if applies {
                    let book = self.books.entry(node.clone()).or_insert_with(|| NodeWork {
                        node: node.clone(),
                        uid: format!("book-{node}"),
                        ..NodeWork::default()
                    });
                    book.orders = orders;
                    book.closed = closed;
                    book.generation += 1;
                    book.resource_version = version;
                }
                let stored = self.books.get(&node).cloned().filter(|_| applies);
                let outcome = answer(end, || stored.clone().map_or(Outcome::Conflict, Outcome::Written));
                self.send(Event::NodeWorkWritten(node, outcome));
                if let Some(book) = stored {
                    self.send(Event::NodeWorks(Watch::Upsert(book)));
                }
            }
            Action::PatchPod { key, uid, resource_version, change } => {
                let known = self.pods.get_mut(&key);
                let pod = known.filter(|pod| pod.uid == uid && pod.resource_version == resource_version);
                let stored = pod.filter(|_| matches!(end, End::Stored | End::Unknown)).map(|pod| {
                    patch(pod, change);
                    pod.resource_version = version;
                    pod.clone()
                });
                let outcome = answer(end, || stored.clone().map_or(Outcome::Conflict, Outcome::Written));
                self.send(Event::PodWritten { key, uid, outcome });
                if let Some(pod) = stored {
                    self.send(Event::Pods(Watch::Upsert(pod)));
                }
            }
            Action::ReadPod { by, pod } => {
                let found = self.pods.get(&pod).map(|pod| pod.uid.clone());
                let outcome = answer(end, || found.map_or(Outcome::Gone, Outcome::Written));
                self.send(Event::PodRead { by, outcome });
            }
            Action::Write { write: Write::Status { .. }, .. } | Action::Survey { .. } | Action::Do { .. } => {
                panic!("there are no resizes here")
            }
            Action::Emit(_) | Action::Count(_) => {}
        }
    }

    fn request_written(
        &mut self,
        key: ObjectKey,
        uid: String,
        rests_on: Option<&String>,
        version: String,
        end: End,
        change: impl FnOnce(&mut Request),
    ) {
        let known = self.requests.get_mut(&key);
        let request = known.filter(|r| r.uid == uid && rests_on.is_none_or(|v| *v == r.resource_version));
        let stored = request.filter(|_| matches!(end, End::Stored | End::Unknown)).map(|request| {
            let before = request.status.clone();
            change(request);
            let forced = request.spec.strategy.as_ref().is_some_and(|s| s.force_recreate);
            forward(forced, &before, &request.status);
            request.resource_version = version;
            request.clone()
        });
        let outcome = answer(end, || stored.clone().map_or(Outcome::Conflict, Outcome::Written));
        self.send(Event::written::<Request>(key, uid, outcome));
        if let Some(request) = stored {
            self.send(Event::of::<Request>(Watch::Upsert(request)));
        }
    }

    fn check(&self, action: &Action) {
        let refused = match action {
            Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. } => {
                let spec = json!({"podName": "web", "containers": [{"name": "app"}]});
                refusals("ContainerRecreateRequest", &json!({"spec": spec, "status": status}))
            }
            Action::WriteOrders { node, orders, closed, .. } => {
                let before = self.books.get(node).map_or(&[][..], |book| &book.orders);
                orders
                    .iter()
                    .filter(|order| !before.contains(order))
                    .for_each(|order| self.known(node, order));
                refusals("NodeWork", &json!({"spec": {"orders": orders, "closed": closed}}))
            }
            Action::PatchPod { key, change: PodChange::Images(images), .. } => {
                for image in images {
                    let (_, digest) = image.image.split_once("@sha256:").expect("an image without a digest");
                    assert_eq!(digest.len(), 64, "{image:?}");
                    let asked = self.requests.values().filter(|r| r.pod_key() == *key && r.started());
                    let mut targets = asked.flat_map(|r| &r.status.target).flat_map(|t| &t.containers);
                    let wanted = |pin: &pitstop_api::recreate::Pin| pin.image == image.image;
                    assert!(
                        targets.any(|t| t.name == image.container && t.pin.as_ref().is_some_and(wanted)),
                        "an image that no request asks for: {image:?}"
                    );
                }
                Vec::new()
            }
            Action::PatchPod { change: PodChange::Resources(_), .. }
            | Action::Write { write: Write::Status { .. }, .. }
            | Action::Do { .. }
            | Action::Survey { .. } => panic!("there are no resizes here: {action:?}"),
            Action::PatchPod { change: PodChange::Gates(gates), .. } => {
                assert!(gates.iter().all(|gate| SERVED.contains(&gate.type_.as_str())), "{gates:?}");
                Vec::new()
            }
            Action::Write { write: Write::Metadata { .. }, .. }
            | Action::Write { write: Write::Delete, .. }
            | Action::ReadPod { .. }
            | Action::Emit(_)
            | Action::Count(_) => Vec::new(),
        };
        assert!(refused.is_empty(), "the API server would refuse it: {refused:?}: {action:?}");
    }

    /// A new order is the one that a request's stored target means.
    fn known(&self, node: &str, order: &Order) {
        let request = self.requests.values().find(|r| r.uid == request_uid(&order.id));
        // One that was deleted since is not known here any more.
        let Some(request) = request else { return };
        let target = request.status.target.as_ref().expect("an order of a request without a target");
        let meant = target.containers.iter().find(|container| container.name == order.container.name);
        let attempt = meant.map_or(0, |container| u32::try_from(container.restart_count).unwrap_or(0) + 1);
        let id = OrderId { owner: &request.uid, container: &order.container.name, attempt };
        assert_eq!(order.id, id.to_string());
        assert_eq!((node, &order.pod.uid), (target.node_name.as_str(), &target.pod_uid));
        assert_eq!((&order.pod.namespace, &order.pod.name), (&request.key.namespace, &request.spec.pod_name));
        let named = target.containers.iter().any(|container| {
            container.name == order.container.name
                && split_reference(&container.container_id).is_ok_and(|(_, id)| order.container.id == id)
        });
        assert!(named, "an order for what no request named: {order:?}");
    }
}

fn answer<T>(end: End, stored: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    match end {
        End::Stored => stored(),
        End::Unknown | End::Lost => Outcome::Retry,
        End::Refused => Outcome::Refused("no".to_owned()),
    }
}

fn merge(map: &mut BTreeMap<String, String>, changes: BTreeMap<String, Option<String>>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key, value)),
            None => drop(map.remove(&key)),
        }
    }
}

fn patch(pod: &mut Pod, change: PodChange) {
    match change {
        PodChange::Gates(changes) => {
            for change in changes {
                let gate = pod.gates.iter_mut().find(|gate| gate.type_ == change.type_).expect("a gate");
                gate.condition = Some(GateCondition { open: change.open, message: change.message });
            }
        }
        PodChange::Images(images) => {
            for image in images {
                let container = pod.containers.iter_mut().find(|c| c.name == image.container);
                container.expect("a container").image = image.image;
            }
        }
        PodChange::Resources(_) => panic!("there are no resizes here"),
    }
}

/// No stored state goes back, and an end stays as it is.
fn forward(forced: bool, before: &ContainerRecreateRequestStatus, after: &ContainerRecreateRequestStatus) {
    let rank = |phase: Option<Phase>| match phase {
        None => 0,
        Some(Phase::Pending) => 1,
        Some(Phase::Recreating) => 2,
        Some(Phase::Succeeded | Phase::Failed | Phase::Completed) => 3,
    };
    assert!(rank(before.phase) <= rank(after.phase), "{before:?} becomes {after:?}");
    for old in &before.container_recreate_states {
        let new = after.container_recreate_states.iter().find(|new| new.name == old.name);
        let new = new.unwrap_or_else(|| panic!("{} is forgotten: {after:?}", old.name));
        let is_over = rank(Some(old.phase)) == 3;
        assert!(rank(Some(old.phase)) <= rank(Some(new.phase)), "{before:?} becomes {after:?}");
        assert!(!is_over || old == new, "{before:?} becomes {after:?}");
    }
    if before.completion_time.is_some() {
        assert_eq!(
            (before.completion_time, before.phase, &before.message, &before.target),
            (after.completion_time, after.phase, &after.message, &after.target)
        );
    }
    let Some(target) = &before.target else { return };
    let becomes = after.target.as_ref().unwrap_or_else(|| panic!("{target:?} is forgotten"));
    assert_eq!((&target.pod_uid, &target.node_name), (&becomes.pod_uid, &becomes.node_name));
    assert_eq!(target.containers.len(), becomes.containers.len(), "{target:?} becomes {becomes:?}");
    for (old, new) in target.containers.iter().zip(&becomes.containers) {
        // A forced request goes on to the next instance as long as it has not begun with the one before.
        let begun =
            before.container_recreate_states.iter().any(|state| state.name == old.name && state.is_killed);
        let moves = forced && !begun && new.restart_count > old.restart_count;
        assert_eq!(old.name, new.name);
        assert!(moves || old.container_id == new.container_id, "{target:?} becomes {becomes:?}");
    }
}
