//! The competing processes, the stored `Lease`, and the messages between them.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use pitstop_controller_core::Mono;
use pitstop_controller_core::lease::{Elector, Event, Record, Write};

use super::{Bounds, Bug};
use crate::canon::{Canon, identity, version};

/// Undelivered changes of the record after which a watch breaks and lists anew.
const WINDOW: usize = 2;

/// A write in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The server has not received it.
    Sent(Write),
    /// The process has not received the server's answer.
    Answered(Outcome),
}

/// The server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Stored.
    Written(Record),
    /// Refused, or unknown.
    NotWritten,
}

/// One replica, and its undelivered messages.
#[derive(Clone, Debug)]
pub struct Process {
    pub elector: Elector,
    identity: String,
    /// Undelivered changes of its watch; `None` until it has listed.
    pub watch: Option<VecDeque<Record>>,
    pub call: Option<Call>,
    /// Whether the program around the elector last learned that it leads.
    pub leading: bool,
    /// Next wake-up of the program around the elector.
    pub wake: Option<Mono>,
    /// Whether it was asked to end.
    pub ending: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// When its last write failed; `None` after success or a request to end.
    failed: Option<Mono>,
}

/// The content of a state.
#[derive(Clone, Debug)]
pub struct World {
    /// True time, in ticks.
    pub now: u64,
    pub stored: Option<Record>,
    /// The previous version, which a stale server still lists.
    pub before: Option<Record>,
    /// Writes without a waiting process that may still take effect.
    pub late: Vec<Write>,
    pub processes: Vec<Process>,
    pub left: super::Faults,
    /// Ticks without a leader and without faults.
    pub vacant: u64,
    /// Whether a process did not wait after a failed write.
    pub storm: bool,
    versions: u64,
    identities: u64,
}

impl World {
    pub fn new(bounds: &Bounds) -> Self {
        let mut world = Self {
            now: 0,
            stored: None,
            before: None,
            late: Vec::new(),
            processes: Vec::new(),
            left: bounds.faults,
            vacant: 0,
            storm: false,
            versions: 0,
            identities: 0,
        };
        for at in 0..bounds.processes {
            let process = world.process(at, bounds);
            world.processes.push(process);
        }
        for at in 0..bounds.processes {
            world.step(at, bounds, Event::Tick);
        }
        world
    }

    fn process(&mut self, at: usize, bounds: &Bounds) -> Process {
        self.identities += 1;
        let own = if bounds.bug == Some(Bug::SharedIdentity) { 0 } else { self.identities };
        let identity = identity(own);
        let mut config = bounds.config;
        if bounds.bug == Some(Bug::ShortTerm) && at == 0 {
            config.term = config.renew_deadline / 2;
        }
        if bounds.bug == Some(Bug::NoWait) && at == 0 {
            config.retry_after = Duration::ZERO;
        }
        Process {
            elector: Elector::new(identity.clone(), config),
            identity,
            watch: None,
            call: None,
            leading: false,
            wake: None,
            ending: false,
            paused: false,
            failed: None,
        }
    }

    /// Time on the clock of a process.
    pub fn clock(&self, at: usize, bounds: &Bounds) -> Mono {
        let clock = bounds.clocks[at];
        Mono(clock.offset + self.now * clock.ticks / clock.per)
    }

    /// Whether a process leads by its clock.
    pub fn leads(&self, at: usize, bounds: &Bounds) -> bool {
        self.processes[at].elector.leads(self.clock(at, bounds))
    }

    /// Whether a process's timer is due.
    pub fn due(&self, at: usize, bounds: &Bounds) -> bool {
        let sleeps = bounds.bug == Some(Bug::StandbySleeps) && !self.processes[at].leading;
        !sleeps && self.processes[at].wake.is_some_and(|wake| wake <= self.clock(at, bounds))
    }

    /// Delivers an event to the production elector, and handles the result as the program around it does.
    pub fn step(&mut self, at: usize, bounds: &Bounds, event: Event) {
        let now = self.clock(at, bounds);
        let process = &mut self.processes[at];
        match event {
            Event::Release => (process.ending, process.failed) = (true, None),
            Event::NotWritten => process.failed = Some(now),
            Event::Written(_) => process.failed = None,
            Event::Observed(_) | Event::Tick => {}
        }
        if let Some(write) = process.elector.step(now, event) {
            assert!(process.call.is_none(), "two writes at once");
            self.storm |= process.failed.is_some_and(|at| now.since(at) < bounds.config.retry_after);
            process.call = Some(match bounds.bug {
                Some(Bug::AnsweredEarly) => {
                    let record = Record {
                        holder: write.holder.clone(),
                        transitions: write.transitions,
                        resource_version: write.resource_version.clone().unwrap_or_default(),
                    };
                    self.late.push(write);
                    Call::Answered(Outcome::Written(record))
                }
                _ => Call::Sent(write),
            });
        }
        let led = process.leading;
        process.leading = process.elector.leads(now);
        process.wake = process.elector.wake_at(now);
        if bounds.bug == Some(Bug::NeverLooks) {
            process.leading |= led && process.elector.holds();
        }
        let lost = led && !process.leading && !process.ending;
        if lost || (process.ending && !process.elector.holds()) {
            self.restart(at, bounds);
        }
    }

    /// Replaces a process by a new one.
    pub fn restart(&mut self, at: usize, bounds: &Bounds) {
        if let Some(Call::Sent(write)) = self.processes[at].call.take() {
            self.late.push(write);
        }
        self.processes[at] = self.process(at, bounds);
        self.prune(bounds);
        self.step(at, bounds, Event::Tick);
    }

    /// Carries out a write on the server.
    pub fn apply(&mut self, write: &Write, bounds: &Bounds) -> Outcome {
        let current = self.stored.as_ref().map(|r| &r.resource_version);
        if current != write.resource_version.as_ref() && bounds.bug != Some(Bug::NoPrecondition) {
            return Outcome::NotWritten;
        }
        self.versions += 1;
        let record = Record {
            holder: write.holder.clone(),
            transitions: write.transitions,
            resource_version: version(self.versions),
        };
        self.before = self.stored.replace(record.clone());
        for process in &mut self.processes {
            if let Some(watch) = &mut process.watch {
                watch.push_back(record.clone());
                if watch.len() > WINDOW {
                    process.watch = None;
                }
            }
        }
        self.prune(bounds);
        Outcome::Written(record)
    }

    /// Forgets late writes that can never take effect.
    fn prune(&mut self, bounds: &Bounds) {
        let current = self.stored.as_ref().map(|r| &r.resource_version);
        if !matches!(bounds.bug, Some(Bug::NoPrecondition)) {
            self.late.retain(|write| write.resource_version.as_ref() == current);
        }
    }

    /// Whether no message is in flight to or from a running process.
    pub fn quiet(&self) -> bool {
        self.processes.iter().all(|p| match &p.call {
            Some(Call::Sent(_)) => false,
            Some(Call::Answered(_)) => p.paused,
            None => p.paused || p.watch.as_ref().is_some_and(VecDeque::is_empty),
        })
    }

    /// A hash that identifies the state.
    pub fn key(&self, bounds: &Bounds) -> u64 {
        let oldest = u64::try_from(bounds.config.term.as_millis()).unwrap() + 1;
        let mut canon = Canon::new(oldest);
        let phase = self.now % bounds.clocks.iter().map(|c| c.per).product::<u64>();
        canon.add(0, &(&self.stored, &self.before, self.left, self.vacant, self.storm, phase));
        for (at, process) in self.processes.iter().enumerate() {
            canon.add(self.clock(at, bounds).0, process);
        }
        canon.add(0, &self.late);
        let mut hasher = DefaultHasher::new();
        hasher.write(canon.finish().as_bytes());
        hasher.finish()
    }

    /// Name of a process in stories.
    pub fn name(&self, at: usize) -> String {
        format!("{} ({})", ['A', 'B', 'C', 'D'][at], self.processes[at].identity)
    }
}
