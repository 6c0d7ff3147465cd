//! Processes: how they begin, continue and die.

use super::controller::{Controller, Input};
use super::daemon::DaemonProcess;
use super::effect::{Asked, Effect, Out};
use super::plan::{Position, Schedule};
use super::{Happening, World};
use crate::node::cgroups::Written;
use crate::node::runtime::{self, CallId};

/// A process's number; never used twice.
pub(super) type Pid = u32;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A controller, by its replica.
    Controller(usize),
    /// A daemon, by its node.
    Daemon(usize),
}

/// A process.
pub(super) struct Process {
    pub(super) role: Role,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The process does nothing until this true time.
    pub(super) paused_until: u64,
}

/// The program that runs in a process.
pub(super) enum Kind {
    Controller(Box<Controller>),
    Daemon(Box<DaemonProcess>),
}

impl Process {
    pub(super) fn watchers(&mut self) -> &mut [super::watcher::Watcher] {
        match &mut self.kind {
            Kind::Controller(controller) => &mut controller.watchers,
            Kind::Daemon(daemon) => std::slice::from_mut(&mut daemon.watcher),
        }
    }
}

/// Milliseconds until a killed process begins again, by default.
const RESTART: u64 = 1_000;

impl World {
    /// A process begins, unless one of its role runs.
    pub(super) fn begin(&mut self, role: Role) {
        if self.pids(role).is_empty() {
            self.begin_another(role);
        }
    }

    pub(super) fn begin_another(&mut self, role: Role) {
        self.made += 1;
        let pid = self.made;
        let (skew, second) = (self.schedule.skew, pid.is_multiple_of(2));
        let (name, kind) = match role {
            Role::Controller(at) => {
                let clock = clock_of(&self.schedule, at);
                let name = format!("controller{at}");
                let controller = Controller::new(
                    format!("{name}-{pid}"),
                    self.config(),
                    clock,
                    skew.controllers && second,
                    &self.schedule,
                );
                (name, Kind::Controller(Box::new(controller)))
            }
            Role::Daemon(at) => {
                if self.nodes[at].removed {
                    return;
                }
                let name = format!("daemon{at}");
                let node = self.nodes[at].name.clone();
                let record = self.nodes[at].records.len() - 1;
                let machine = self.nodes[at].machine(record);
                let client = runtime::Client(pid);
                let daemon = DaemonProcess::new(
                    &node,
                    format!("{name}-{pid}"),
                    client,
                    record,
                    &machine,
                    (skew.daemons && second, self.schedule.resizes()),
                );
                self.queue.push(self.now + 30, Happening::RuntimeFound(at));
                (name, Kind::Daemon(Box::new(daemon)))
            }
        };
        self.story.note(self.now, &name, || format!("begins as process {pid}"));
        let mut process = Process { role, name, kind, paused_until: 0 };
        for (at, watcher) in process.watchers().iter_mut().enumerate() {
            watcher.planned = true;
            self.queue.push(self.now + 3 + self.rng.below(10), Happening::Watch(pid, at));
        }
        self.processes.insert(pid, process);
        self.plan_wake(pid);
    }

    pub(super) fn pids(&self, role: Role) -> Vec<Pid> {
        self.processes.iter().filter(|(_, p)| p.role == role).map(|(pid, _)| *pid).collect()
    }

    /// Ends a process at once.
    pub(super) fn kill(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.story.note(self.now, &process.name, || format!("process {pid} is dead"));
        if let Role::Daemon(at) = process.role {
            self.nodes[at].runtime.cancel_all(runtime::Client(pid));
            self.plan_node(at);
        }
    }

    pub(super) fn kill_all(&mut self, role: Role) {
        for pid in self.pids(role) {
            self.kill(pid);
        }
    }

    /// Kills a process because the schedule says so, and plans the next one.
    fn crash(&mut self, pid: Pid, effect: usize, position: Position) {
        let Some(role) = self.processes.get(&pid).map(|p| p.role) else { return };
        let kind = self.kinds[effect].0.clone();
        self.story.note(self.now, "fault", || {
            format!("process {pid} dies at effect {effect}, {kind}: {position:?}")
        });
        *self.crashed.entry((kind, position)).or_default() += 1;
        self.kill(pid);
        self.queue.push(self.now + RESTART, Happening::Begin(role));
    }

    /// Carries out the effects of a step of a process.
    pub(super) fn carry_out(&mut self, pid: Pid, out: Out) {
        let Some(process) = self.processes.get(&pid) else { return };
        let (name, role) = (process.name.clone(), process.role);
        for decision in &out.decisions {
            self.story.decides(self.now, &name, decision);
        }
        for effect in out.effects {
            let mut number = None;
            if !matches!(&effect, Effect::Send(sent) if sent.election) {
                number = Some(self.effects);
                self.effects += 1;
                self.kinds.push((effect.kind(), effect.positions()));
            }
            let crash = self.schedule.crash.filter(|c| Some(c.effect) == number).map(|c| c.position);
            if let (Some(Position::Before), Some(effect)) = (crash, number) {
                return self.crash(pid, effect, Position::Before);
            }
            let idle = matches!(&self.processes[&pid].kind, Kind::Controller(c) if !c.leads());
            if idle && number.is_some() {
                self.oracle.broken("I13", format!("{name} writes though it does not lead"));
            }
            match effect {
                Effect::Send(sent) => self.send(pid, sent, number),
                Effect::Call(asked) => self.call(pid, asked, number),
                Effect::Write(writing) => self.write(pid, &writing, number),
            }
            match (crash, number) {
                (Some(Position::Begun), Some(effect)) => return self.crash(pid, effect, Position::Begun),
                (Some(Position::Known), _) => self.doomed = number,
                _ => {}
            }
        }
        let lost = matches!(&self.processes[&pid].kind, Kind::Controller(c) if c.lost_lead);
        if lost {
            self.kill(pid);
            self.queue.push(self.now + RESTART, Happening::Begin(role));
            return;
        }
        self.plan_wake(pid);
    }

    /// Carries out what follows from an effect's outcome, or kills the process if it is doomed to die now.
    pub(super) fn carry_out_known(&mut self, pid: Pid, out: Out, effect: Option<usize>) {
        match effect.filter(|e| self.doomed == Some(*e)) {
            Some(effect) => {
                self.doomed = None;
                self.crash(pid, effect, Position::Known);
            }
            None => self.carry_out(pid, out),
        }
    }

    fn call(&mut self, pid: Pid, asked: Asked, effect: Option<usize>) {
        let Some(Process { role: Role::Daemon(at), kind: Kind::Daemon(daemon), name, .. }) =
            self.processes.get_mut(&pid)
        else {
            return;
        };
        let node = &mut self.nodes[*at];
        self.oracle.calls(
            self.now,
            &format!("{name}-{pid}"),
            &asked,
            &node.runtime,
            &node.records[daemon.record],
        );
        let id = node.runtime.call(self.now, daemon.client, asked.call.clone());
        daemon.called(self.now, id, asked, effect);
        let at = *at;
        self.after_node(at);
    }

    /// Freezes the lead, unless a controller process begins again.
    pub(super) fn settle(&mut self) {
        for process in self.processes.values_mut() {
            if let Kind::Controller(controller) = &mut process.kind {
                controller.settle();
            }
        }
    }

    pub(super) fn plan_wake(&mut self, pid: Pid) {
        let Some(process) = self.processes.get(&pid) else { return };
        let wake = match (&process.kind, process.role) {
            (Kind::Controller(controller), _) => controller.wake_at(self.now),
            (Kind::Daemon(daemon), Role::Daemon(at)) => daemon.wake_at(&self.nodes[at].clock),
            _ => None,
        };
        let Some(at) = wake else { return };
        let at = at.max(self.now + 1);
        if self.wakes.get(&pid).is_none_or(|planned| at < *planned || *planned <= self.now) {
            self.wakes.insert(pid, at);
            self.queue.push(at, Happening::Wake(pid));
        }
    }

    /// True time until which the process is paused; None if it is not.
    pub(super) fn paused(&self, pid: Pid) -> Option<u64> {
        self.processes.get(&pid).map(|p| p.paused_until).filter(|until| *until > self.now)
    }

    pub(super) fn wake(&mut self, pid: Pid) {
        if let Some(until) = self.paused(pid) {
            return self.queue.push(until, Happening::Wake(pid));
        }
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let due = match (&process.kind, process.role) {
            (Kind::Controller(controller), _) => controller.wake_at(self.now),
            (Kind::Daemon(daemon), Role::Daemon(at)) => daemon.wake_at(&self.nodes[at].clock),
            _ => None,
        };
        if due.is_none_or(|due| due > self.now) {
            return self.plan_wake(pid);
        }
        let out = match (&mut process.kind, process.role) {
            (Kind::Controller(controller), _) => controller.step(self.now, Input::Tick),
            (Kind::Daemon(daemon), Role::Daemon(at)) => {
                daemon.tick(self.now, &mut self.nodes[at].machine(daemon.record))
            }
            _ => return,
        };
        self.carry_out(pid, out);
    }

    pub(super) fn runtime_found(&mut self, at: usize) {
        if !self.nodes[at].runtime.answers(self.now) {
            return self.queue.push(self.now + 1000, Happening::RuntimeFound(at));
        }
        for pid in self.pids(Role::Daemon(at)) {
            let Some(Process { kind: Kind::Daemon(daemon), .. }) = self.processes.get_mut(&pid) else {
                continue;
            };
            let out = daemon.runtime_found(self.now, &mut self.nodes[at].machine(daemon.record));
            self.carry_out(pid, out);
        }
    }

    /// A node acts by itself: the runtime replies, the kubelet acts.
    pub(super) fn node(&mut self, at: usize) {
        self.nodes[at].planned = None;
        for (call, reply) in self.nodes[at].runtime.advance(self.now) {
            for pid in self.pids(Role::Daemon(at)) {
                self.reply(pid, at, call, &reply);
            }
        }
        let node = &mut self.nodes[at];
        let wall = node.clock.wall(self.now).timestamp_millis();
        let writes = node.kubelet.advance(self.now, wall, &mut node.runtime, &mut self.rng);
        for write in writes {
            let latency = self.latency();
            self.queue.push(self.now + latency, Happening::Kubelet(at, write));
        }
        self.after_node(at);
    }

    fn reply(&mut self, pid: Pid, at: usize, call: CallId, reply: &runtime::Reply) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Kind::Daemon(daemon) = &mut process.kind else { return };
        let Some(effect) = daemon.effect_of(call) else { return };
        if process.paused_until > self.now {
            let happening = Happening::Reply(pid, at, call, reply.clone());
            return self.queue.push(process.paused_until, happening);
        }
        let out = daemon.replied(self.now, call, reply, &mut self.nodes[at].machine(daemon.record));
        self.carry_out_known(pid, out, effect);
    }

    /// Delivers a reply that waited for a paused process.
    pub(super) fn late_reply(&mut self, pid: Pid, at: usize, call: CallId, reply: &runtime::Reply) {
        self.reply(pid, at, call, reply);
    }

    /// Reports what happened on a node, and plans what comes next.
    pub(super) fn after_node(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        for deed in node.runtime.take_deeds() {
            self.story.note(self.now, &node.name, || format!("{:?} of {}", deed.kind, short(&deed.id)));
            self.oracle.deed(&deed, &node.runtime);
        }
        for written in node.kubelet.cgroups_mut().take_news() {
            self.story.note(self.now, &node.name, || {
                let Written { id, size, from } = &written;
                format!("writes {size:?} into the group of {}, from {from} on", short(id))
            });
            self.oracle.sized(&written);
        }
        for news in node.runtime.take_image_news() {
            self.story.note(self.now, &node.name, || format!("{news:?}"));
            self.oracle.image(self.now, &node.name, &news);
        }
        self.plan_node(at);
    }

    pub(super) fn plan_node(&mut self, at: usize) {
        let Some(wake) = self.nodes[at].wake_at() else { return };
        let wake = wake.max(self.now);
        if self.nodes[at].planned.is_none_or(|planned| wake < planned) {
            self.nodes[at].planned = Some(wake);
            self.queue.push(wake, Happening::Node(at));
        }
    }
}

/// The beginning of a container's ID.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn clock_of(schedule: &Schedule, at: usize) -> super::clock::Clock {
    let clocks = &schedule.clocks.controllers;
    clocks.get(at).or(clocks.last()).cloned().unwrap_or_default()
}
