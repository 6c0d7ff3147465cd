//! The content of a state: the store, the processes, the node, and the observations that promises need.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};

use pitstop_api::labels;
use pitstop_api::nodework::{AnswerState, NodeWorkStatus, request_uid};
use pitstop_controller_core::pod::{Container, Pod};
use pitstop_controller_core::readiness::{Gate, GateCondition, KRUISE_POD_READY, RECREATE_AGENT};
use pitstop_controller_core::{Action, Event, Mono, ObjectKey};
use pitstop_daemon_core as daemon;

use super::control::Controller;
use super::node::{self, Node, Process};
use super::part::Part;
use super::store::{Change, Store, count, ends};
use super::{Bounds, Bug, Faults, NAMESPACE, NODE, promise};

/// Start time, in milliseconds.
const START: Mono = Mono(1_000_000);

/// A write or a stop without a waiting process that may still take effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Late {
    /// By the controller with that index.
    Write(usize, Part<Action>),
    /// By the daemon process with that name.
    Call(String, Part<daemon::Action>),
}

/// Observations up to this state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Stored acknowledgements: order, container ID, daemon.
    pub acknowledged: BTreeSet<(String, String, String)>,
    /// Containers that stops ended, by request and container name.
    pub stopped: BTreeMap<(String, String), BTreeSet<String>>,
    /// Number of running containers that pitstop ended, by request and container name.
    pub restarts: BTreeMap<(String, String), u8>,
    /// Container IDs of accepted requests' targets, by request and container name.
    pub targets: BTreeMap<(String, String), String>,
}

/// The content of a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: u64,
    pub store: Store,
    pub controllers: Vec<Controller>,
    pub daemons: Vec<Process>,
    pub lives: u8,
    pub node: Node,
    pub late: Vec<Late>,
    pub left: Faults,
    /// Number of created requests.
    pub requested: u8,
    pub seen: Seen,
    /// The first broken promise.
    pub broken: Option<&'static str>,
}

impl World {
    pub fn new(bounds: &Bounds) -> Self {
        let mut world = Self {
            now: START.0,
            store: Store { unguarded: bounds.bug == Some(Bug::NoPrecondition), ..Store::default() },
            controllers: Vec::new(),
            daemons: Vec::new(),
            lives: 0,
            node: Node::new(bounds.hook),
            late: Vec::new(),
            left: bounds.faults,
            requested: 1,
            seen: Seen::default(),
            broken: None,
        };
        world.add_pod(bounds, "pod-1");
        world.add_request(bounds, 0);
        if bounds.book {
            world.store.add_book();
        }
        world.store.changes.clear();
        for _ in 0..bounds.controllers {
            world.controllers.push(Controller::new(START, bounds.config()));
        }
        for slot in 0..bounds.daemons {
            world.lives += 1;
            world.daemons.push(Process::new(slot, world.lives, START, daemon::EndedHooks::new()));
        }
        // All watches start after their first list: crashes cover faults before it.
        for at in 0..bounds.controllers {
            for kind in 0..3 {
                world.take(&super::Action::Watch(at, kind), bounds).unwrap();
            }
        }
        for at in 0..bounds.daemons {
            world.take(&super::Action::DaemonWatch(at), bounds).unwrap();
        }
        world
    }

    pub fn mono(&self) -> Mono {
        Mono(self.now)
    }

    /// A hash that identifies the state.
    pub fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Adds the Pod with running, ready containers.
    pub fn add_pod(&mut self, bounds: &Bounds, uid: &str) {
        let mut pod = Pod {
            key: ObjectKey::new(NAMESPACE, "web"),
            uid: uid.to_owned(),
            node: Some(NODE.to_owned()),
            grace_seconds: Some(30),
            containers: super::CONTAINERS[..bounds.containers]
                .iter()
                .map(|name| Container {
                    name: (*name).to_owned(),
                    image: "registry/app:1".to_owned(),
                    ..Container::default()
                })
                .collect(),
            ..Pod::default()
        };
        if bounds.drain.is_some() {
            let open = GateCondition { open: true, message: "[]".into() };
            pod.gates = vec![Gate { type_: KRUISE_POD_READY.into(), condition: Some(open) }];
        }
        for name in &super::CONTAINERS[..bounds.containers] {
            self.node.start(&pod, name, 0, true);
        }
        pod.containers = self.node.status(&pod, bounds.kubelet);
        pod.ready = self.node.ready(&pod);
        self.store.put_pod(pod);
    }

    /// Adds a user's request, after admission.
    pub fn add_request(&mut self, bounds: &Bounds, at: usize) {
        let request = bounds.request(at, self.store.pods.get("web"));
        self.store.put_request(request);
    }

    /// Records the first broken promise.
    pub fn check(&mut self, holds: bool, promise: &'static str) {
        if !holds {
            self.broken.get_or_insert(promise);
        }
    }

    /// Hands stored changes to the watches, and forgets late writes and calls that can no longer take effect.
    pub fn settle(&mut self) {
        for change in std::mem::take(&mut self.store.changes) {
            self.controllers.iter_mut().for_each(|c| c.queue(&change));
            if let Change::Book(book) = &change {
                self.daemons
                    .iter_mut()
                    .filter_map(|d| d.watch.as_mut())
                    .for_each(|w| w.push_back(book.clone()));
            }
        }
        let Self { store, node, late, .. } = self;
        late.retain(|late| match late {
            Late::Write(_, action) => store.may_apply(action),
            Late::Call(_, call) => match &**call {
                daemon::Action::WriteStatus { resource_version, .. } => store
                    .book
                    .as_ref()
                    .is_some_and(|b| store.unguarded || b.resource_version == *resource_version),
                daemon::Action::Stop { container_id, .. } => node.running(container_id.as_str()).is_some(),
                daemon::Action::Inspect { .. }
                | daemon::Action::RunHook { .. }
                | daemon::Action::ReadCgroups { .. }
                | daemon::Action::ReadResources { .. }
                | daemon::Action::Resize { .. }
                | daemon::Action::LookAtImage { .. }
                | daemon::Action::Pull { .. }
                | daemon::Action::CancelPull { .. }
                | daemon::Action::WriteBack { .. } => false,
            },
        });
        late.sort_by_key(|late| {
            let mut hasher = DefaultHasher::new();
            late.hash(&mut hasher);
            hasher.finish()
        });
    }

    /// Carries out a controller's write on the server.
    pub fn carry_out(&mut self, action: &Action, bounds: &Bounds) -> Event {
        let concerned = |store: &Store| match action {
            Action::Write { object, .. } => (store.requests.get(&object.key.name).cloned(), None),
            Action::PatchPod { key, .. } => (None, store.pods.get(&key.name).cloned()),
            _ => (None, None),
        };
        let (before, stored) = (concerned(&self.store), self.store.may_apply(action));
        let event = self.store.carry_out(action);
        match (before, concerned(&self.store)) {
            ((Some(before), _), (Some(after), _)) if stored => self.check_request(&before, &after, bounds),
            ((_, Some(before)), (_, Some(after))) if stored => {
                let same = (&before.gates, &before.containers) == (&after.gates, &after.containers);
                self.check(!same, promise::NEEDED);
            }
            _ => {}
        }
        event
    }

    /// A controller's event for a write without an answer.
    pub fn unanswered(action: &Action, bounds: &Bounds) -> Event {
        // Planted bug: a write that may still take effect is reported as refused.
        let refused = bounds.bug == Some(Bug::LostIsRefused);
        ends(action, refused)
    }

    /// A controller's event for a refused write.
    pub fn refused(action: &Action) -> Event {
        ends(action, true)
    }

    /// Delivers an event to a daemon, and checks the actions that it starts.
    pub fn step_daemon(&mut self, at: usize, event: &Part<daemon::Event>, bounds: &Bounds) {
        let now = self.mono();
        let process = &mut self.daemons[at];
        let instance = process.instance.clone();
        let actions = process.step(now, event);
        for action in actions {
            let (daemon::Action::RunHook { order_id, container_id, .. }
            | daemon::Action::Stop { order_id, container_id, .. }) = &*action
            else {
                continue;
            };
            let hooks = matches!(*action, daemon::Action::RunHook { .. });
            let process = &mut self.daemons[at];
            let hooked = process.hooked.contains(order_id);
            let goes_on = hooked && !hooks;
            let in_book = process.newest.1.contains(order_id);
            if hooks {
                process.hooked.insert(order_id.clone());
            }
            self.check(goes_on || in_book, promise::NOT_WITHDRAWN);
            let named = (order_id.clone(), container_id.to_string(), instance.clone());
            self.check(self.seen.acknowledged.contains(&named), promise::ACKNOWLEDGED);
            if hooks {
                self.check(!self.node.ended_hooks.contains_key(order_id), promise::HOOK_ONCE);
            }
        }
        if bounds.bug == Some(Bug::ActsUnacknowledged) {
            self.act_at_once(at);
        }
    }

    /// Planted bug: the daemon does not wait until its acknowledgement is stored.
    fn act_at_once(&mut self, at: usize) {
        let process = &mut self.daemons[at];
        let Some(node::Call::Sent(action)) = process.calls.get("").cloned() else { return };
        let daemon::Action::WriteStatus { resource_version, status } = &*action else { return };
        let Some(known) = self.store.book.as_ref().filter(|b| b.resource_version == *resource_version) else {
            return;
        };
        let mut stored = node::book(known);
        stored.status = (**status).clone();
        stored.resource_version = format!("{resource_version}?");
        process.calls.remove("");
        self.late.push(Late::Call(process.instance.clone(), action));
        let written = daemon::Event::StatusWritten(daemon::Outcome::Written(stored));
        process.calls.insert(String::new(), node::Call::Answered(Part::new(written)));
    }

    /// Carries out a daemon process's action.
    pub fn carry_out_call(
        &mut self,
        instance: &str,
        action: &daemon::Action,
        bounds: &Bounds,
    ) -> daemon::Event {
        match action {
            daemon::Action::Inspect { order_id, container_id } => {
                daemon::Event::Inspected(order_id.clone(), Ok(self.node.inspect(container_id.as_str())))
            }
            daemon::Action::RunHook { order_id, .. } => {
                self.node.ended_hooks.insert(order_id.clone(), None);
                daemon::Event::HookDone(order_id.clone(), Ok(()))
            }
            daemon::Action::Stop { order_id, container_id, .. } => {
                match bounds.bug {
                    Some(Bug::StopsByName) => self.stop_by_name(order_id, container_id.as_str()),
                    _ => self.stop(order_id, container_id.as_str()),
                }
                daemon::Event::Stopped(order_id.clone(), Ok(()))
            }
            daemon::Action::ReadCgroups { .. }
            | daemon::Action::ReadResources { .. }
            | daemon::Action::Resize { .. }
            | daemon::Action::LookAtImage { .. }
            | daemon::Action::Pull { .. }
            | daemon::Action::CancelPull { .. }
            | daemon::Action::WriteBack { .. } => unreachable!("no controller of the model orders that"),
            daemon::Action::WriteStatus { resource_version, status } => {
                let outcome = match self.write_answers(instance, resource_version, status, bounds) {
                    Some(stored) => daemon::Outcome::Written(stored),
                    None => daemon::Outcome::Conflict,
                };
                daemon::Event::StatusWritten(outcome)
            }
        }
    }

    /// Planted bug: stops the newest container with the name.
    fn stop_by_name(&mut self, order_id: &str, container_id: &str) {
        let Some(named) = self.node.instances.iter().find(|i| i.id == container_id).cloned() else { return };
        let newest = self.node.newest().find(|(_, i)| (&i.pod_uid, &i.name) == (&named.pod_uid, &named.name));
        if let Some(id) = newest.map(|(_, i)| i.id.clone()) {
            self.stop(order_id, &id);
        }
    }

    fn stop(&mut self, order_id: &str, container_id: &str) {
        let Some(instance) = self.node.running(container_id) else { return };
        instance.running = false;
        instance.ready = false;
        let key = (request_uid(order_id).to_owned(), instance.name.clone());
        let targeted = self.seen.targets.get(&key).is_some_and(|id| id.ends_with(container_id));
        self.check(targeted, promise::TARGET);
        let stopped = self.seen.stopped.entry(key.clone()).or_default();
        stopped.insert(container_id.to_owned());
        let one = stopped.len() == 1;
        self.check(one, promise::ONE_INSTANCE);
        self.restarted(key);
    }

    /// Records that pitstop ended a running container.
    fn restarted(&mut self, key: (String, String)) {
        let times = self.seen.restarts.entry(key).or_default();
        *times += 1;
        let once = *times == 1;
        self.check(once, promise::ONCE);
    }

    /// Ends a container whose image changed, as the kubelet does.
    pub fn end_for_image(&mut self, at: usize) {
        let instance = &mut self.node.instances[at];
        instance.running = false;
        instance.ready = false;
        let (name, pod_uid) = (instance.name.clone(), instance.pod_uid.clone());
        let image = self.store.pods["web"].container(&name).map(|c| c.image.clone());
        let pinned = |r: &&Part<pitstop_controller_core::recreate::Request>| {
            let target = r.status.target.as_ref().filter(|t| t.pod_uid == pod_uid);
            target.is_some_and(|t| {
                t.containers
                    .iter()
                    .any(|c| c.name == name && c.pin.as_ref().map(|p| &p.image) == image.as_ref())
            })
        };
        if let Some(uid) = self.store.requests.values().find(pinned).map(|r| r.uid.clone()) {
            self.restarted((uid, name));
        }
    }

    fn write_answers(
        &mut self,
        instance: &str,
        version: &str,
        status: &NodeWorkStatus,
        bounds: &Bounds,
    ) -> Option<daemon::Book> {
        let stored = self.store.write_answers(version, status.clone())?;
        for answer in status.answers.iter().filter(|a| a.state == AnswerState::Acknowledged) {
            let Some(order) = stored.orders.iter().find(|o| o.id == answer.order_id) else { continue };
            let fresh = !self.seen.acknowledged.iter().any(|(id, ..)| *id == order.id);
            if answer.acknowledged_by == instance {
                let named = (order.id.clone(), order.container.id.clone(), instance.to_owned());
                self.seen.acknowledged.insert(named);
            }
            let request = self.store.request(request_uid(&order.id)).cloned();
            if let Some(request) = request.filter(|_| fresh && bounds.controllers == 1) {
                self.check(!request.completed(), promise::NOT_AFTER_END);
                let out = self.store.pods.get("web").is_none_or(|pod| {
                    let held =
                        request.hold().is_none_or(|h| pod.gates.iter().all(|g| g.held_by(&h)) && !pod.ready);
                    pod.uid != order.pod.uid || held
                });
                self.check(out, promise::DRAINED);
            }
        }
        Some(node::book(&stored))
    }

    /// Whether requests report every stop that ended a container of an existing Pod.
    pub fn reported(&self) -> bool {
        self.seen.stopped.keys().all(|(uid, name)| {
            let Some(request) = self.store.request(uid) else { return true };
            let target = request.status.target.as_ref();
            let there = self.store.pods.values().any(|p| target.is_some_and(|t| t.pod_uid == p.uid));
            !there || request.status.container_recreate_states.iter().any(|s| s.name == *name && s.is_killed)
        })
    }

    /// Most writes of any object.
    pub fn writes(&self) -> u64 {
        let Store { pods, requests, book, .. } = &self.store;
        let versions = pods.values().map(|p| &p.resource_version);
        let versions = versions.chain(requests.values().map(|r| &r.resource_version));
        versions.chain(book.iter().map(|b| &b.resource_version)).map(|v| count(v)).max().unwrap_or_default()
    }

    /// Whether all requests have ended, all holds are released, and the book is empty.
    pub fn over(&self) -> bool {
        let requests = self.store.requests.values();
        let ended = |r: &Part<pitstop_controller_core::recreate::Request>| {
            r.completed() && !r.more.labels.contains_key(labels::ACTIVE) && r.more.annotations.is_empty()
        };
        let released = |pod: &Part<Pod>| {
            let ours = |c: &GateCondition| !c.open || c.message.contains(RECREATE_AGENT);
            !pod.gates.iter().filter_map(|g| g.condition.as_ref()).any(ours) && pod.ready
        };
        requests.into_iter().all(ended)
            && self.store.book.as_ref().is_none_or(|b| b.orders.is_empty())
            && self.store.pods.values().all(released)
    }
}
