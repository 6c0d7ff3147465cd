//! Everything together: processes, network, machines and users in virtual time.

pub mod clock;
pub mod controller;
pub mod daemon;
pub mod effect;
pub mod imaging;
mod machine;
mod native;
mod network;
mod objects;
mod others;
mod parking;
pub mod plan;
mod processes;
pub mod queue;
pub mod rolling;
pub mod sizing;
pub mod skew;
pub mod story;
mod trouble;
mod users;
pub mod watcher;
pub mod webhook;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;

use pitstop_api::logic::answer::Answer;
use pitstop_controller_core::Config;
use pitstop_controller_core::wire::HttpRequest;
use pitstop_daemon_core::CallFailure;
use serde_json::Value;

use self::clock::Clock;
use self::machine::Node;
pub(crate) use self::objects::NAMESPACE;
use self::plan::{Position, Schedule};
use self::processes::{Pid, Process};
use self::queue::Queue;
use self::story::Story;
use self::trouble::{Heal, Trouble};
pub(crate) use self::trouble::{NOTICED, lasts};
use crate::node::kubelet;
use crate::node::runtime::{self, CallId};
use crate::oracle::holds::Present;
use crate::oracle::{Oracle, Violation};
use crate::rng::Rng;
use crate::server::{Server, Snapshot};

/// Maximum happenings in one run: more mean that the world never rests.
const MOST: u64 = 600_000;

/// An event in the world.
#[derive(Debug)]
enum Happening {
    /// A process begins.
    Begin(processes::Role),
    /// A watch of a process has events, or needs a connection.
    Watch(Pid, usize),
    /// The watch of a node's kubelet has events, or needs a connection.
    Pods(usize),
    /// A request arrives at the API server.
    Arrive { from: Pid, token: u64, request: Box<HttpRequest>, effect: Option<usize> },
    /// An answer arrives at the process.
    Answer { to: Pid, token: u64, answer: Answer, effect: Option<usize> },
    /// A tick of a process is due.
    Wake(Pid),
    /// A reply of a node's runtime reaches a process late, because the process was paused.
    Reply(Pid, usize, CallId, runtime::Reply),
    /// The outcome of a write into a control group reaches the process.
    Wrote { to: Pid, token: u64, result: Result<(), CallFailure>, effect: Option<usize> },
    /// A node's runtime or kubelet acts by itself.
    Node(usize),
    /// The daemon finds its node's runtime.
    RuntimeFound(usize),
    /// A write of a kubelet arrives at the API server.
    Kubelet(usize, kubelet::Write),
    /// The kubelet learns whether its write of a Pod's status was stored.
    Published(usize, String, bool),
    /// A step of the schedule.
    Step(usize),
    /// A fault of the schedule.
    Fault(usize),
    /// A later part of a fault, mostly its end.
    Heal(Heal),
    /// A Pod is recreated.
    Replace(usize),
    /// The garbage collector looks for objects whose owner is gone.
    Orphans,
    /// The disruption controller counts Pods.
    Count,
    /// A native controller sees an object or its removal. Actor, kind, name and object.
    Seen(native::Actor, String, String, Option<Arc<Value>>),
}

/// The world.
pub struct World {
    schedule: Schedule,
    rng: Rng,
    now: u64,
    queue: Queue<Happening>,
    happened: u64,
    server: Server,
    /// Another program's webhook.
    rewriter: imaging::Rewriter,
    nodes: Vec<Node>,
    processes: BTreeMap<Pid, Process>,
    /// True time of the next planned tick of each process.
    wakes: BTreeMap<Pid, u64>,
    made: u32,
    /// Number of Pods that were recreated under other names.
    anew: u32,
    natives: native::Natives,
    trouble: Trouble,
    /// The schedule restores an older etcd.
    restores: bool,
    /// Snapshots of etcd every ten seconds, with their times, for the restore.
    snapshots: Vec<(u64, Snapshot)>,
    /// Number of effects of production processes so far.
    effects: usize,
    /// The effect whose outcome ends its process.
    doomed: Option<usize>,
    /// Number of kills by kind of effect and position.
    crashed: BTreeMap<(String, Position), usize>,
    /// Kind and kill positions of each effect, in order.
    kinds: Vec<(String, &'static [Position])>,
    oracle: Oracle,
    story: Story,
}

/// Result of a run.
#[derive(Debug)]
pub struct Report {
    /// The first violation, if any.
    pub violation: Option<Violation>,
    /// Hash of all decisions.
    pub hash: u64,
    /// Outcomes of requests, with their counts.
    pub ends: BTreeMap<String, usize>,
    /// Kill positions of each effect, in order.
    pub effects: Vec<&'static [Position]>,
    /// Number of writes of pitstop that took effect, without those of the election.
    pub writes: usize,
    /// Number of kills by kind of effect and position.
    pub crashed: BTreeMap<(String, Position), usize>,
    /// Readable lines.
    pub story: Vec<String>,
}

/// Runs a schedule to its end.
pub fn run(schedule: &Schedule, verbose: bool) -> Report {
    let mut world = World::new(schedule.clone(), verbose);
    world.play();
    let World { oracle, story, kinds, crashed, .. } = world;
    let writes = oracle.writes;
    let (violation, ends) = oracle.finish();
    let effects = kinds.into_iter().map(|(_, positions)| positions).collect();
    Report { violation, hash: story.hash(), ends, effects, writes, crashed, story: story.lines }
}

impl World {
    fn new(schedule: Schedule, verbose: bool) -> Self {
        let mut rng = Rng::new(schedule.seed);
        let clock = |clocks: &[Clock], at: usize| -> Clock {
            clocks.get(at).or(clocks.last()).cloned().unwrap_or_default()
        };
        let nodes = (0..schedule.nodes)
            .map(|at| Node::new(at, clock(&schedule.clocks.nodes, at), &schedule.room, &mut rng));
        let nodes = nodes.map(|node| node.with_images(&schedule)).collect();
        let mut server = Server::for_worlds();
        server.admit(Arc::new(webhook::Webhook));
        server.admit(Arc::new(sizing::Limits(schedule.room.clone())));
        let releases = schedule.workload.as_ref().is_none_or(|workload| !workload.no_unpark);
        server.admit(Arc::new(parking::Policy { releases }));
        let rewriter = imaging::Rewriter::new(schedule.images.webhook);
        if schedule.images.webhook.is_some() {
            server.admit(Arc::new(rewriter.clone()));
        }
        let mut world = Self {
            rng,
            now: 0,
            queue: Queue::default(),
            happened: 0,
            server,
            rewriter,
            nodes,
            processes: BTreeMap::new(),
            wakes: BTreeMap::new(),
            made: 0,
            anew: 0,
            natives: native::Natives::default(),
            trouble: Trouble::default(),
            restores: schedule.faults.iter().any(|fault| matches!(fault.what, plan::Fault::Restore(_))),
            snapshots: Vec::new(),
            effects: 0,
            doomed: None,
            crashed: BTreeMap::new(),
            kinds: Vec::new(),
            oracle: Oracle::new(&schedule),
            story: Story::new(verbose),
            schedule,
        };
        world.furnish();
        world
    }

    /// Creates objects, and plans processes, steps and faults.
    fn furnish(&mut self) {
        let wall = self.server_wall();
        for namespace in ["pitstop-system", objects::NAMESPACE] {
            self.server.insert_namespace(wall, namespace);
        }
        for at in 0..self.nodes.len() {
            let object = self.nodes[at].object();
            self.server.insert(wall, "Node", object);
            if self.schedule.room.fixed.contains(&at) {
                self.oracle.keeps(&self.nodes[at].name, self.nodes[at].keeping);
            }
            self.queue.push(5, Happening::Pods(at));
            self.queue.push(20, Happening::Begin(processes::Role::Daemon(at)));
        }
        for at in 0..self.schedule.replicas {
            self.queue.push(10 + 40 * at as u64, Happening::Begin(processes::Role::Controller(at)));
        }
        self.make_workload();
        // Native controllers create their own Pods.
        let first = if self.schedule.parks() { self.schedule.pods.len() } else { 0 };
        for at in first..self.schedule.pods.len() {
            self.make_pod(at, &self.schedule.pods[at].name.clone());
        }
        for (at, step) in self.schedule.steps.iter().enumerate() {
            self.queue.push(step.at, Happening::Step(at));
        }
        for (at, fault) in self.schedule.faults.iter().enumerate() {
            self.queue.push(fault.at, Happening::Fault(at));
        }
    }

    fn server_wall(&self) -> chrono::DateTime<chrono::Utc> {
        self.schedule.clocks.server.wall(self.now)
    }

    fn config(&self) -> Config {
        let usual = Config::default();
        let most_open = self.schedule.most_open.or(usual.max_open_requests_per_namespace);
        Config {
            max_open_requests_per_namespace: most_open,
            default_active_deadline: Some(std::time::Duration::from_secs(self.schedule.default_deadline)),
            resize_cri: true,
            ..usual
        }
    }

    /// Runs until the world is at rest or an invariant is violated.
    fn play(&mut self) {
        let calm = self.calm_at();
        // The run must end within the last deadline, the longest back-offs, and a margin.
        let longest = self.schedule.steps.iter().filter_map(|s| match &s.what {
            plan::Step::Create(r) => Some(r.deadline.unwrap_or(0).unsigned_abs()),
            plan::Step::Resize(r) => {
                // Observation goes on beyond the deadline.
                Some(r.deadline.unwrap_or(0).unsigned_abs() + r.observe.unwrap_or(0).unsigned_abs())
            }
            plan::Step::Update(r) => {
                // A rollback goes on beyond the deadline.
                let ready = r.ready_timeout.unwrap_or(300).unsigned_abs();
                Some(r.deadline.unwrap_or(0).unsigned_abs().max(self.schedule.default_deadline) + ready)
            }
            // Each of its Pods may take an hour; then nothing continues.
            plan::Step::Rollout(r) => {
                let own =
                    r.soak.unwrap_or(10) + r.unready_grace.unwrap_or(0) + r.progress_deadline.unwrap_or(600);
                Some((3_700 + own.unsigned_abs()) * self.schedule.pods.len() as u64)
            }
            _ => None,
        });
        let longest = longest.max().unwrap_or(0).max(self.schedule.default_deadline);
        let bound = calm + (longest * 1000 + 120_000) * 2;
        while !self.run_until(bound, true) && self.oracle.intact() && self.now < bound {}
        self.oracle.converged(self.now, calm, &self.server);
        let nodes = self.nodes.iter().map(|n| Present {
            name: &n.name,
            runtime: &n.runtime,
            cgroups: n.kubelet.cgroups(),
        });
        self.oracle.holds_at_rest(self.now, nodes, &self.server);
        self.oracle.at_the_end(self.now, self.nodes.iter().map(|n| &n.runtime));
        // Silence: a world at rest writes nothing.
        if self.oracle.intact() {
            let so_far = self.oracle.so_far();
            self.story.note(self.now, "world", || "all is over; listens for ten minutes".to_owned());
            let until = self.now + 600_000;
            // The election runs in the first minute only: every minute of it is the same.
            self.run_until(self.now + 60_000, false);
            self.settle();
            self.run_until(until, false);
            self.oracle.silent(self.now, so_far);
        }
    }

    /// Time of the last step or end of a fault.
    fn calm_at(&self) -> u64 {
        let faults = self.schedule.faults.iter().map(|f| f.at + trouble::lasts(&f.what));
        let steps = self.schedule.steps.iter().map(|s| s.at);
        faults.chain(steps).max().unwrap_or(0)
    }

    /// Runs until a time. Returns true if it stops before: after a violation or, with `over`, when the world is at
    /// rest.
    fn run_until(&mut self, until: u64, over: bool) -> bool {
        let calm = self.calm_at();
        while let Some(at) = self.queue.next_at().filter(|at| *at <= until) {
            let (_, happening) = self.queue.pop().unwrap();
            self.now = self.now.max(at);
            self.happened += 1;
            if self.happened > MOST {
                self.oracle.broken("L3", format!("never rests: {happening:?}"));
                return true;
            }
            self.happens(happening);
            self.oracle.led(self.now, self.leaders());
            if !self.oracle.intact() {
                return true;
            }
            if over && self.now > calm + 40_000 && self.oracle.at_rest(self.now) {
                return true;
            }
        }
        self.now = until;
        false
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Begin(role) => self.begin(role),
            Happening::Watch(pid, kind) => self.watch(pid, kind),
            Happening::Pods(at) => self.watch_pods(at),
            Happening::Arrive { from, token, request, effect } => self.arrive(from, token, &request, effect),
            Happening::Answer { to, token, answer, effect } => self.answer(to, token, answer, effect),
            Happening::Wake(pid) => self.wake(pid),
            Happening::Reply(pid, at, call, reply) => self.late_reply(pid, at, call, &reply),
            Happening::Wrote { to, token, result, effect } => self.wrote(to, token, result, effect),
            Happening::Node(at) => self.node(at),
            Happening::RuntimeFound(at) => self.runtime_found(at),
            Happening::Kubelet(at, write) => self.kubelet_writes(at, write),
            Happening::Published(at, uid, stored) => {
                self.nodes[at].kubelet.written(self.now, &uid, stored);
                self.plan_node(at);
            }
            Happening::Step(at) => self.step(at),
            Happening::Fault(at) => self.fault(at),
            Happening::Heal(heal) => self.heal(heal),
            Happening::Replace(at) => self.replace(at),
            Happening::Orphans => self.collect_orphans(),
            Happening::Count => self.count_pods(),
            Happening::Seen(actor, kind, name, object) => self.native_sees(actor, kind, name, object),
        }
        if self.restores && self.snapshots.last().is_none_or(|(at, _)| self.now >= at + 10_000) {
            self.snapshots.push((self.now, self.server.snapshot()));
        }
        self.plan_watches();
    }
}
