//! The controller's production decisions, the models' API server, and daemons and Pods with arbitrary reports.

use chrono::{DateTime, Utc};
use pitstop_api::id::split_reference;
use pitstop_api::nodework::{Order, OrderId, request_uid};
use pitstop_api::recreate::{ContainerRecreateRequestStatus, Phase};
use pitstop_controller_core::change::PodChange;
use pitstop_controller_core::nodework::NodeWork;
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::readiness::SERVED;
use pitstop_controller_core::recreate;
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::{Action, Config, Engine, Event, Mono, Status, Watch, Write};
use pitstop_models::orders::{Store, ends};
use serde_json::json;

use crate::refusals;

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It takes effect if its precondition holds.
    Stored,
    /// It takes effect if its precondition holds, but the controller gets no answer.
    Unknown,
    /// It has no effect, and the controller gets no answer.
    Lost,
    /// It is refused.
    Refused,
}

/// The cluster. It checks every write that the controller requests.
pub(crate) struct Cluster {
    index: Engine,
    now: u64,
    store: Store,
    /// Number of created requests.
    made: usize,
    pub(crate) pending: Vec<Action>,
}

impl Cluster {
    /// A cluster whose controller leads and has listed all objects.
    pub(crate) fn new(pod: Pod, request: Request) -> Self {
        let mut cluster = Self {
            index: Engine::new(Config::default()),
            now: 1_000_000,
            store: Store::default(),
            made: 1,
            pending: Vec::new(),
        };
        cluster.store.put_pod(pod);
        cluster.store.put_request(request);
        cluster.lead();
        cluster
    }

    /// Replaces the controller process.
    pub(crate) fn lead(&mut self) {
        self.index = Engine::new(Config::default());
        self.pending.clear();
        self.store.changes.clear();
        // Without this event, the controller places no orders.
        self.send(Event::Guarded(true));
        self.send(Event::Leader(true));
        for none in Event::none_but(&[recreate::ID]) {
            self.send(none);
        }
        let Store { pods, requests, book, .. } = &self.store;
        let pods = pods.values().map(|pod| (**pod).clone()).collect();
        let requests = requests.values().map(|request| (**request).clone()).collect();
        let books = book.iter().map(|book| (**book).clone()).collect();
        self.send(Event::Pods(Watch::list(pods)));
        self.send(Event::NodeWorks(Watch::list(books)));
        self.send(Event::of::<Request>(Watch::list(requests)));
    }

    /// Delivers all changes to the controller.
    fn watch(&mut self) {
        for change in std::mem::take(&mut self.store.changes) {
            self.send(change.event());
        }
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.store.requests.values().map(|request| &**request)
    }

    pub(crate) fn orders(&self) -> &[Order] {
        self.store.book.as_ref().map_or(&[], |book| &book.orders)
    }

    /// Changes the Pod, and delivers the change.
    pub(crate) fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        let Some(mut pod) = self.store.pods.get(name).map(|pod| (**pod).clone()) else { return };
        change(&mut pod);
        self.store.put_pod(pod);
        self.watch();
    }

    /// Removes the Pod.
    pub(crate) fn remove_pod(&mut self, name: &str) {
        self.store.remove_pod(name);
        self.watch();
    }

    /// Creates a request, unless the name exists.
    pub(crate) fn add_request(&mut self, mut request: Request) {
        if self.store.requests.contains_key(&request.key.name) {
            return;
        }
        self.made += 1;
        request.uid = format!("{}-{}", request.uid, self.made);
        self.store.put_request(request);
        self.watch();
    }

    /// Deletes a request.
    pub(crate) fn remove_request(&mut self, name: &str) {
        self.store.remove_request(name);
        self.watch();
    }

    /// Changes the book, and delivers the change.
    pub(crate) fn change_book(&mut self, change: impl FnOnce(&mut NodeWork)) {
        let Some(mut book) = self.store.book.as_ref().map(|book| (**book).clone()) else { return };
        change(&mut book);
        self.store.put_book(book);
        self.watch();
    }

    /// Advances time.
    pub(crate) fn wait(&mut self, milliseconds: u64) {
        self.now = self.now.saturating_add(milliseconds);
        self.send(Event::Tick);
    }

    /// Lets every write take effect until the controller is idle. Containers and daemons' answers no longer change, so
    /// every request must end by its deadline.
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

    /// Ends a pending write, and delivers the changes.
    pub(crate) fn carry_out(&mut self, index: usize, end: End) {
        let action = self.pending.remove(index);
        let stored = matches!(end, End::Stored | End::Unknown).then(|| {
            if let Action::Write { object, write: Write::Status { status: Status::Recreate(status), .. } } =
                &action
                && let Some(before) =
                    self.store.requests.get(&object.key.name).filter(|_| self.store.may_apply(&action))
            {
                let forced = before.spec.strategy.as_ref().is_some_and(|s| s.force_recreate);
                forward(forced, &before.status, status);
            }
            self.store.carry_out(&action)
        });
        let event = stored.filter(|_| end == End::Stored);
        self.send(event.unwrap_or_else(|| ends(&action, end == End::Refused)));
        self.watch();
    }

    fn check(&self, action: &Action) {
        let refused = match action {
            Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. } => {
                let spec = json!({"podName": "web", "containers": [{"name": "app"}]});
                refusals("ContainerRecreateRequest", &json!({"spec": spec, "status": status}))
            }
            Action::WriteOrders { node, orders, closed, .. } => {
                let before = self.orders();
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
                    let asked = self.requests().filter(|r| r.pod_key() == *key && r.started());
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

    /// Asserts that a new order matches its request's stored target.
    fn known(&self, node: &str, order: &Order) {
        let request = self.requests().find(|r| r.uid == request_uid(&order.id));
        // The request may be deleted already.
        let Some(request) = request else { return };
        let target = request.status.target.as_ref().expect("an order of a request without a target");
        let found = target.containers.iter().find(|container| container.name == order.container.name);
        let attempt = found.map_or(0, |container| u32::try_from(container.restart_count).unwrap_or(0) + 1);
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

/// Asserts that no stored state moves back, and that an end never changes.
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
        // A forced request moves to the next instance until it begins with one.
        let begun =
            before.container_recreate_states.iter().any(|state| state.name == old.name && state.is_killed);
        let moves = forced && !begun && new.restart_count > old.restart_count;
        assert_eq!(old.name, new.name);
        assert!(moves || old.container_id == new.container_id, "{target:?} becomes {becomes:?}");
    }
}
