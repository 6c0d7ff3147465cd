//! Everything together, one thread, in an order that a seed decides.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use chrono::{DateTime, TimeDelta, Utc};
use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequestSpec, Phase, RecreateContainer, StatusContext};
use pitstop_controller_core::pod::{Container, Pod};
use pitstop_controller_core::readiness::{self, Gate, Hold, RECREATE_AGENT};
use pitstop_controller_core::recreate::{Request, Tense, resolve};
use pitstop_controller_core::{Action, Event, Mono, ObjectKey, Outcome};
use pitstop_daemon_core as daemon;

use crate::controller::{Controller, target_of};
use crate::node::{self, Node, restarted};
use crate::rng::Rng;
use crate::store::Store;

/// What may go wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost_answers: bool,
    pub crashes: bool,
    pub pods: bool,
    pub deletions: bool,
    pub restarts: bool,
    pub leaders: bool,
    pub silence: bool,
}

pub struct World {
    rng: Rng,
    faults: Faults,
    pub now: Mono,
    offset: TimeDelta,
    pub store: Store,
    nodes: Vec<Node>,
    controllers: Vec<Controller>,
    made: u64,
    trace: DefaultHasher,
    pub actions: usize,
}

#[derive(Clone, Debug)]
enum Move {
    Watch(usize, usize),
    Write(usize),
    Answer(usize),
    Node(usize, node::Move),
    RemovePod(ObjectKey),
}

impl World {
    pub fn new(seed: u64, faults: Faults, offset: TimeDelta) -> Self {
        let mut store = Store::default();
        store.many_leaders = faults.leaders;
        store.crashes = faults.crashes || faults.pods;
        let mut controllers = vec![Controller::new(true)];
        if faults.leaders {
            controllers.push(Controller::new(false));
        }
        let mut world = Self {
            rng: Rng::new(seed),
            faults,
            now: Mono(0),
            offset,
            store,
            nodes: vec![Node::new("node0"), Node::new("node1")],
            controllers,
            made: 0,
            trace: DefaultHasher::new(),
            actions: 0,
        };
        for name in ["web", "db"] {
            world.add_pod(name);
        }
        world
    }

    fn wall(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_800_000_000_000 + i64::try_from(self.now.0).unwrap()).unwrap()
            + self.offset
    }

    fn add_pod(&mut self, name: &str) {
        self.made += 1;
        let at = usize::from(self.rng.one_in(2));
        let node = &mut self.nodes[at];
        let container = |name: &str| Container { name: name.into(), ..Container::default() };
        let mut pod = Pod {
            key: ObjectKey::new("shop", name),
            uid: format!("pod-{}", self.made),
            node: Some(node.name.clone()),
            grace_seconds: Some(30),
            containers: vec![container("app"), container("sidecar")],
            ..Pod::default()
        };
        let gates = [0, 0, 1, 1, 1, 2][usize::try_from(self.rng.below(6)).unwrap()];
        let gate = |type_: &&str| Gate { type_: (*type_).to_owned(), condition: None };
        pod.gates = readiness::SERVED.iter().take(gates).map(gate).collect();
        node.add_pod(&pod);
        pod.containers = node.status(&pod, false);
        pod.ready = node.ready(&pod, &pod.containers);
        self.store.put_pod(pod);
    }

    /// A user makes a request; gives back whether admission let it in.
    pub fn add_request(
        &mut self,
        pod: &str,
        containers: &[&str],
        change: impl FnOnce(&mut ContainerRecreateRequestSpec),
    ) -> bool {
        self.made += 1;
        let webhook = !self.rng.one_in(6) && containers != ["nope"];
        // Names come again.
        let key = ObjectKey::new("shop", format!("crr-{}", self.made % 4));
        if self.store.requests.contains_key(&key) {
            return false;
        }
        let mut spec = ContainerRecreateRequestSpec {
            pod_name: pod.into(),
            containers: containers
                .iter()
                .map(|name| RecreateContainer { name: (*name).into(), ..Default::default() })
                .collect(),
            ..Default::default()
        };
        change(&mut spec);
        let mut request = Request {
            key,
            uid: format!("crr-uid-{}", self.made),
            created: i64::try_from(self.now.0 / 1000).unwrap(),
            spec,
            ..Request::default()
        };
        if webhook {
            let pod = self.store.pods.get(&request.pod_key());
            let Some(Ok(target)) = pod.map(|p| resolve(&request.spec, p, Tense::Admission)) else {
                return false;
            };
            for (wanted, found) in request.spec.containers.iter_mut().zip(&target.containers) {
                wanted.status_context = Some(StatusContext {
                    container_id: found.container_id.clone(),
                    restart_count: found.restart_count,
                });
            }
            request.labels = [
                (labels::ACTIVE, labels::ACTIVE_TRUE),
                (labels::POD_UID, &target.pod_uid),
                (labels::NODE_NAME, &target.node_name),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        }
        self.store.put_request(request);
        true
    }

    fn step(&mut self, at: usize, event: Event) {
        let wall = self.wall();
        let controller = &mut self.controllers[at];
        let actions = controller.index.step(self.now, wall, event);
        for action in actions {
            if matches!(action, Action::Emit(_) | Action::Count(_)) {
                continue;
            }
            assert!(controller.leading, "{action:?} without the lead");
            self.actions += 1;
            let mut told = action.clone();
            if let Action::WriteStatus { status, .. } = &mut told {
                status.completion_time = status.completion_time.map(|_| DateTime::UNIX_EPOCH);
                status.conditions.iter_mut().for_each(|c| c.last_transition_time = DateTime::UNIX_EPOCH);
            }
            if let Action::PatchMetadata { annotations, .. } = &mut told {
                annotations.values_mut().flatten().for_each(String::clear);
            }
            format!("{} {told:?}", self.now.0).hash(&mut self.trace);
            controller.writes.push(action);
            let targets: Vec<String> = controller.writes.iter().map(target_of).collect();
            assert_eq!(
                targets.iter().collect::<BTreeSet<_>>().len(),
                targets.len(),
                "two writes at once: {targets:?}"
            );
        }
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (at, controller) in self.controllers.iter().enumerate() {
            moves.extend(controller.behind(&self.store).into_iter().map(|kind| Move::Watch(at, kind)));
            if !controller.writes.is_empty() {
                moves.push(Move::Write(at));
            }
            if !controller.answers.is_empty() {
                moves.push(Move::Answer(at));
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            moves.extend(node.moves(&self.store).into_iter().map(|m| Move::Node(at, m)));
        }
        let leaving = self.store.pods.values().filter(|p| p.deleting);
        moves.extend(leaving.map(|p| Move::RemovePod(p.key.clone())));
        moves
    }

    fn make(&mut self, action: Move, faults: bool) {
        match action {
            Move::Watch(at, kind) => {
                let event = self.controllers[at].next(kind, &self.store);
                if faults && self.rng.one_in(10) {
                    self.step(at, event.clone());
                }
                self.step(at, event);
            }
            Move::Write(at) => {
                let write = self.rng.take(&mut self.controllers[at].writes);
                let answer = self.carry_out(&write, faults);
                self.controllers[at].answers.push(answer);
            }
            Move::Answer(at) => {
                let answer = self.rng.take(&mut self.controllers[at].answers);
                self.step(at, answer);
            }
            Move::Node(at, action) => {
                let faults = faults && self.faults.lost_answers;
                self.nodes[at].make(action, self.now, &mut self.store, &mut self.rng, faults);
            }
            Move::RemovePod(key) => {
                let uid = self.store.pods[&key].uid.clone();
                self.nodes.iter_mut().for_each(|n| n.drop_pod(&uid));
                self.store.remove_pod(&key);
                if self.rng.one_in(2) {
                    self.add_pod(&key.name);
                }
            }
        }
    }

    /// Carries out a write, and perhaps loses it or its answer.
    fn carry_out(&mut self, write: &Action, faults: bool) -> Event {
        let lost = faults && self.faults.lost_answers && self.rng.one_in(6);
        let applied = !lost || self.rng.one_in(2);
        match write {
            Action::WriteOrders { node, .. } => {
                let outcome = if applied { self.store.orders_write(write) } else { Outcome::Retry };
                Event::NodeWorkWritten(node.clone(), if lost { Outcome::Retry } else { outcome })
            }
            Action::WriteStatus { key, uid, .. }
            | Action::PatchMetadata { key, uid, .. }
            | Action::DeleteRequest { key, uid } => {
                let outcome = if applied { self.store.request_write(write) } else { Outcome::Retry };
                self.check_truth(key);
                let outcome = if lost { Outcome::Retry } else { outcome };
                Event::RequestWritten { key: key.clone(), uid: uid.clone(), outcome }
            }
            Action::PatchPod { key, uid, .. } => {
                let outcome = if applied { self.store.pod_write(write) } else { Outcome::Retry };
                let outcome = if lost { Outcome::Retry } else { outcome };
                Event::PodWritten { key: key.clone(), uid: uid.clone(), outcome }
            }
            Action::Emit(_) | Action::Count(_) => panic!("not kept"),
        }
    }

    /// What a request says was restarted has been.
    fn check_truth(&self, key: &ObjectKey) {
        let Some(request) = self.store.requests.get(key) else { return };
        let Some(target) = &request.status.target else { return };
        let alive = self.store.pods.values().any(|p| p.uid == target.pod_uid);
        for state in request.status.container_recreate_states.iter().filter(|_| alive) {
            let claimed = state.phase == Phase::Succeeded;
            assert!(!claimed || restarted(&self.nodes, target, &state.name), "{key} {state:?}");
        }
    }

    fn tick(&mut self) {
        for at in 0..self.controllers.len() {
            if self.controllers[at].index.wake_at().is_some_and(|w| w <= self.now) {
                self.step(at, Event::Tick);
            }
        }
        for node in &mut self.nodes {
            if node.wake_at().is_some_and(|w| w <= self.now) {
                node.step(self.now, daemon::Event::Tick);
            }
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now = Mono(self.now.0 + millis);
        self.store.now = self.now;
        self.tick();
    }

    fn next_wake(&self) -> Option<Mono> {
        let controllers = self.controllers.iter().filter_map(|c| c.index.wake_at());
        controllers.chain(self.nodes.iter().filter_map(Node::wake_at)).min()
    }

    /// Something goes wrong, or a user does something.
    fn disturb(&mut self) {
        let faults = self.faults;
        let node = usize::from(self.rng.one_in(2));
        let keys: Vec<ObjectKey> = self.store.requests.keys().cloned().collect();
        let request = self.rng.pick(&keys);
        match self.rng.below(12) {
            0..=3 => {
                let pod = if self.rng.one_in(3) { "db" } else { "web" };
                let containers: &[&str] = match self.rng.below(12) {
                    0 => &["nope"],
                    1..=3 => &["app"],
                    4..=6 => &["sidecar"],
                    _ => &["sidecar", "app"],
                };
                let (deadline, ttl) = (self.rng.below(20), self.rng.below(12));
                let drain = Some(i64::try_from(self.rng.below(5)).unwrap()).filter(|_| self.rng.one_in(2));
                self.add_request(pod, containers, |spec| {
                    spec.active_deadline_seconds = (deadline >= 3).then(|| i64::try_from(deadline).unwrap());
                    spec.ttl_seconds_after_finished = (ttl < 4).then(|| i32::try_from(ttl).unwrap());
                    spec.strategy.get_or_insert_default().unready_grace_period_seconds = drain;
                });
            }
            4 if faults.crashes => self.nodes[node].crash(&mut self.rng),
            5 if faults.pods => {
                let keys: Vec<ObjectKey> = self.store.pods.keys().cloned().collect();
                match self.rng.pick(&keys) {
                    Some(key) => {
                        let pod = self.store.pods[&key].clone();
                        self.store.put_pod(Pod { deleting: true, ..pod });
                    }
                    None => self.add_pod("web"),
                }
            }
            6 if faults.deletions => {
                if let Some(key) = request {
                    self.store.remove_request(&key);
                }
            }
            7 if faults.deletions && self.rng.one_in(4) => self.store.remove_book(&format!("node{node}")),
            8 if faults.restarts => self.nodes[node].restart_daemon(&mut self.store, &mut self.rng),
            9 if faults.restarts => {
                let leading = self.controllers[0].leading;
                for write in std::mem::take(&mut self.controllers[0].writes) {
                    if self.rng.one_in(2) {
                        self.carry_out(&write, false);
                    }
                }
                self.controllers[0] = Controller::new(leading);
            }
            10 if faults.leaders => {
                let at = usize::from(self.rng.one_in(2));
                let leading = !self.controllers[at].leading;
                self.controllers[at].leading = leading;
                self.step(at, Event::Leader(leading));
            }
            11 if faults.silence => self.nodes[node].down = !self.nodes[node].down,
            // Others write too: a conflict for whoever is about to; and a watch breaks.
            _ => {
                if let Some(key) = request {
                    let stored = self.store.requests[&key].clone();
                    self.store.put_request(stored);
                }
                let keys: Vec<ObjectKey> = self.store.pods.keys().cloned().collect();
                if let Some(key) = self.rng.pick(&keys).filter(|_| self.rng.one_in(2)) {
                    let opens = self.rng.one_in(4);
                    self.store.meddle(&key, opens);
                }
                let kind = usize::try_from(self.rng.below(3)).unwrap();
                self.controllers[0].cursors[kind] =
                    self.controllers[0].cursors[kind].filter(|_| self.rng.one_in(2));
            }
        }
    }

    /// `steps` steps, with whatever goes wrong.
    pub fn chaos(&mut self, steps: usize) {
        for _ in 0..steps {
            let moves = self.moves();
            match self.rng.below(16) {
                0 => self.disturb(),
                1 | 2 => {
                    let rare = if self.nodes.iter().any(|n| n.down) { 4 } else { 30 };
                    let millis = if self.rng.one_in(rare) { 61_000 } else { self.rng.below(1500) };
                    self.wait(millis);
                }
                _ => match self.rng.pick(&moves) {
                    Some(action) => self.make(action, true),
                    None => self.wait(100),
                },
            }
        }
    }

    /// Faults have ceased: runs until nothing is left to do, then checks that all is over.
    pub fn calm(&mut self) {
        for node in &mut self.nodes {
            node.down = false;
        }
        for at in 0..self.controllers.len() {
            let leads = at == 0;
            if self.controllers[at].leading != leads {
                self.controllers[at].leading = leads;
                self.step(at, Event::Leader(leads));
            }
        }
        let start = self.now;
        for _ in 0..20_000 {
            let moves = self.moves();
            if let Some(action) = self.rng.pick(&moves) {
                self.make(action, false);
                if self.rng.one_in(8) {
                    self.wait(10);
                }
            } else if let Some(at) = self.next_wake() {
                self.wait(at.since(self.now).as_millis().try_into().unwrap());
            } else {
                self.check_end(start);
                return;
            }
        }
        panic!("never rests");
    }

    fn check_end(&mut self, start: Mono) {
        assert!(self.now.since(start).as_secs() < 200, "took {:?}", self.now.since(start));
        for request in self.store.requests.values() {
            assert!(request.completed(), "{request:?}\n{:?}", self.store.books);
            assert!(!request.labels.contains_key(labels::ACTIVE), "{request:?}");
            assert!(request.annotations.is_empty(), "{request:?}");
            assert_eq!(request.spec.ttl_seconds_after_finished, None, "kept beyond its time to live");
        }
        for book in self.store.books.values() {
            assert!(book.orders.is_empty(), "{book:?}");
        }
        // Nobody is held out of service by a request that is over or gone, and by others still.
        for gate in self.store.pods.values().filter(|p| !p.gone()).flat_map(|p| &p.gates) {
            let condition = gate.condition.as_ref().unwrap();
            let holds: Vec<Hold> = serde_json::from_str(&condition.message).unwrap();
            assert!(holds.iter().all(|h| h.user_agent != RECREATE_AGENT), "{gate:?}");
            assert_eq!(condition.open, holds.is_empty(), "{gate:?}");
        }
        // Silence, also of a process that begins to lead or whose watches break.
        let actions = self.actions;
        self.wait(600_000);
        for at in 0..self.controllers.len() {
            self.step(at, Event::Tick);
        }
        self.controllers.push(Controller::new(true));
        self.controllers[0].cursors = [None; 3];
        self.drain();
        self.wait(600_000);
        assert_eq!(self.actions, actions, "not silent");
    }

    /// Makes every move that is possible, in a fixed order.
    fn drain(&mut self) {
        for _ in 0..5000 {
            let Some(action) = self.moves().first().cloned() else { return };
            self.make(action, false);
        }
        panic!("never rests");
    }

    /// No faults and one order of events, until nothing is left to do.
    pub fn run_quietly(&mut self) {
        self.drain();
        for _ in 0..1000 {
            let Some(at) = self.next_wake() else { return };
            self.wait(at.since(self.now).as_millis().try_into().unwrap());
            self.drain();
        }
        panic!("never sleeps");
    }

    pub fn trace(&self) -> u64 {
        self.trace.finish()
    }
}
