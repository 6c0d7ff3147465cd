//! The election of the leading controller: production electors around one stored `Lease`.
//!
//! Time is discrete. Every process reads its own clock, with its own offset and rate. A process that is not paused runs
//! when its timer is due, before time advances. Messages also arrive before time advances, except for a bounded number
//! of ticks. A write may take effect after its timeout or its process's end. The promise is that of the module `lease`:
//! two processes never lead at once by their own clocks, and a running process knows in time that its lead is over. A
//! paused process believes in its lead until it runs again: the lease does not fence.

mod world;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use pitstop_controller_core::lease::{Config, Event};
use stateright::{Model, Property};

use crate::check::Story;
use world::{Call, Outcome, World};

/// A process's clock. At true time `t` it shows `offset + t * ticks / per`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Its value at the start.
    pub offset: u64,
    /// Number of its ticks ...
    pub ticks: u64,
    /// ... in this many true ticks.
    pub per: u64,
}

/// How often each fault may happen; in total at most [`Faults::total`] times, without delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Bound of the sum, without delays.
    pub total: u8,
    /// Ticks that pass while messages are in flight.
    pub delays: u8,
    /// Kills of processes.
    pub crashes: u8,
    /// Pauses of processes, of any length.
    pub pauses: u8,
    /// Calls that time out, whether they took effect or may still do.
    pub lost: u8,
    /// Watches that break and list anew, also from a server one version behind.
    pub breaks: u8,
    /// Processes asked to end.
    pub releases: u8,
}

impl Faults {
    /// At most `total` faults of any kind, and `delays` ticks of delay.
    pub fn any(total: u8, delays: u8) -> Self {
        Self { total, delays, crashes: total, pauses: total, lost: total, breaks: total, releases: total }
    }
}

/// A planted bug of the model's glue. The model must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The server ignores the resource version of a write.
    NoPrecondition,
    /// One process takes over after half of the renew deadline.
    ShortTerm,
    /// All processes have one identity.
    SharedIdentity,
    /// A process learns of success when its write is sent.
    AnsweredEarly,
    /// The program around the elector never looks at its clock while it leads.
    NeverLooks,
    /// One process does not wait after a failed write.
    NoWait,
    /// Timers of processes that do not lead never fire.
    StandbySleeps,
}

/// Bounds of the exploration.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Processes.
    pub processes: usize,
    /// Times of the election. One tick is one of its milliseconds.
    pub config: Config,
    /// One clock for each process.
    pub clocks: Vec<Clock>,
    /// Faults.
    pub faults: Faults,
    /// A planted bug; `None` for the correct glue.
    pub bug: Option<Bug>,
}

impl Bounds {
    /// `processes` with clocks of equal rate, and the production times with `scale` ticks per 5 seconds.
    pub fn new(processes: usize, scale: u64, faults: Faults) -> Self {
        let config = Config::default();
        let ticks = |time: Duration| {
            Duration::from_millis((u64::try_from(time.as_millis()).unwrap() * scale / 5000).max(1))
        };
        let config = Config {
            term: ticks(config.term),
            renew_deadline: ticks(config.renew_deadline),
            renew_every: ticks(config.renew_every),
            retry_after: ticks(config.retry_after),
        };
        let clock = |at| Clock { offset: 1_000 + 777_777 * at, ticks: 1, per: 1 };
        Self { processes, config, clocks: (0..processes as u64).map(clock).collect(), faults, bug: None }
    }

    /// How long the lead may be vacant without faults, in ticks: the term of a record without renewals, and the waits
    /// after a write.
    pub fn vacancy(&self) -> u64 {
        let Config { term, renew_every, retry_after, .. } = self.config;
        u64::try_from((term + renew_every + retry_after).as_millis()).unwrap()
    }
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time advances by one tick.
    Advance,
    /// A process's timer is due.
    Wake(usize),
    /// A process's watch delivers the next change, or its list.
    Deliver(usize),
    /// The server carries out a process's write.
    Apply(usize),
    /// The answer arrives at the process.
    Answer(usize),
    /// A late write takes effect.
    LateApplied(usize),
    /// A late write never takes effect.
    LateLost(usize),
    /// A process's call times out.
    TimeOut(usize),
    /// A process is killed and restarts.
    Crash(usize),
    /// A process is paused.
    Pause(usize),
    /// A paused process runs again.
    Resume(usize),
    /// A process's watch breaks.
    Break(usize),
    /// A process's watch breaks, and lists from a server one version behind.
    BreakStale(usize),
    /// A process is asked to end.
    Release(usize),
}

/// One state.
#[derive(Clone, Debug)]
pub struct State {
    world: Arc<World>,
    key: u64,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// The model.
#[derive(Clone, Debug)]
pub struct Lease(pub Bounds);

impl Lease {
    fn state(&self, world: World) -> State {
        let key = world.key(&self.0);
        State { world: Arc::new(world), key }
    }

    fn leaders(&self, state: &State) -> usize {
        (0..self.0.processes).filter(|at| state.world.leads(*at, &self.0)).count()
    }

    fn faulty(world: &World, actions: &mut Vec<Action>) {
        let left = world.left;
        for (at, process) in world.processes.iter().enumerate() {
            if process.paused {
                continue;
            }
            if left.lost > 0 && process.call.is_some() {
                actions.push(Action::TimeOut(at));
            }
            if left.crashes > 0 {
                actions.push(Action::Crash(at));
            }
            if left.pauses > 0 {
                actions.push(Action::Pause(at));
            }
            if left.breaks > 0 && process.watch.is_some() {
                actions.push(Action::Break(at));
                if world.before.is_some() {
                    actions.push(Action::BreakStale(at));
                }
            }
            if left.releases > 0 && !process.ending {
                actions.push(Action::Release(at));
            }
        }
    }
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.state(World::new(&self.0))]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let world = &*state.world;
        let mut due = false;
        for (at, process) in world.processes.iter().enumerate() {
            if matches!(process.call, Some(Call::Sent(_))) {
                actions.push(Action::Apply(at));
            }
            if process.paused {
                actions.push(Action::Resume(at));
                continue;
            }
            if world.due(at, &self.0) {
                due = true;
                actions.push(Action::Wake(at));
            }
            if process.watch.as_ref().is_none_or(|w| !w.is_empty()) {
                actions.push(Action::Deliver(at));
            }
            if matches!(process.call, Some(Call::Answered(_))) {
                actions.push(Action::Answer(at));
            }
        }
        for at in 0..world.late.len() {
            actions.extend([Action::LateApplied(at), Action::LateLost(at)]);
        }
        if !due && (world.left.delays > 0 || world.quiet()) {
            actions.push(Action::Advance);
        }
        if world.left.total > 0 {
            Self::faulty(world, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let bounds = &self.0;
        let mut world = (*last.world).clone();
        match action {
            Action::Advance => {
                let calm = world.quiet() && world.processes.iter().all(|p| !p.paused);
                if !world.quiet() {
                    world.left.delays -= 1;
                }
                world.now += 1;
                let led = (0..bounds.processes).any(|at| world.leads(at, bounds));
                world.vacant = if led || !calm { 0 } else { world.vacant + 1 };
            }
            Action::Wake(at) => world.step(at, bounds, Event::Tick),
            Action::Deliver(at) => {
                let listed = world.stored.clone();
                let process = &mut world.processes[at];
                let record = if let Some(watch) = &mut process.watch {
                    watch.pop_front()
                } else {
                    process.watch = Some([].into());
                    listed
                };
                world.step(at, bounds, Event::Observed(record));
            }
            Action::Apply(at) => {
                let Some(Call::Sent(write)) = world.processes[at].call.take() else { return None };
                let outcome = world.apply(&write, bounds);
                world.processes[at].call = Some(Call::Answered(outcome));
            }
            Action::Answer(at) => {
                let Some(Call::Answered(outcome)) = world.processes[at].call.take() else { return None };
                let event = match outcome {
                    Outcome::Written(record) => Event::Written(record),
                    Outcome::NotWritten => Event::NotWritten,
                };
                world.step(at, bounds, event);
            }
            Action::LateApplied(at) => {
                let write = world.late.remove(at);
                world.apply(&write, bounds);
                world.vacant = 0;
            }
            Action::LateLost(at) => {
                world.late.remove(at);
            }
            Action::TimeOut(at) => {
                world.left.lost -= 1;
                if let Some(Call::Sent(write)) = world.processes[at].call.take() {
                    world.late.push(write);
                }
                world.step(at, bounds, Event::NotWritten);
            }
            Action::Crash(at) => {
                world.left.crashes -= 1;
                world.restart(at, bounds);
            }
            Action::Pause(at) => {
                world.left.pauses -= 1;
                world.processes[at].paused = true;
            }
            Action::Resume(at) => world.processes[at].paused = false,
            Action::Break(at) => {
                world.left.breaks -= 1;
                world.processes[at].watch = None;
            }
            Action::BreakStale(at) => {
                world.left.breaks -= 1;
                let next = world.stored.clone();
                world.processes[at].watch = Some(next.into_iter().collect());
                let stale = world.before.clone();
                world.step(at, bounds, Event::Observed(stale));
            }
            Action::Release(at) => {
                world.left.releases -= 1;
                world.step(at, bounds, Event::Release);
            }
        }
        if world.left != last.world.left {
            world.vacant = 0;
            let before = last.world.left;
            let used = |f: &Faults| {
                [f.crashes, f.pauses, f.lost, f.breaks, f.releases].map(u16::from).iter().sum::<u16>()
            };
            world.left.total -= u8::from(used(&world.left) < used(&before));
            if world.left.total == 0 {
                // Unused budgets must not distinguish states.
                world.left = Faults { delays: world.left.delays, ..Faults::default() };
            }
        }
        Some(self.state(world))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_LEADER, |m, s| m.leaders(s) <= 1),
            Property::<Self>::always(IN_TIME, |m, s| {
                let world = &s.world;
                let believes = |at: &usize| {
                    let p = &world.processes[*at];
                    p.leading && !p.paused && !world.due(*at, &m.0)
                };
                (0..m.0.processes).filter(believes).all(|at| world.leads(at, &m.0))
            }),
            Property::<Self>::always(NO_STORM, |_, s| !s.world.storm),
            Property::<Self>::always(FILLED, |m, s| s.world.vacant <= m.0.vacancy()),
            Property::<Self>::sometimes("somebody leads", |m, s| m.leaders(s) == 1),
            Property::<Self>::sometimes("the lead of another is taken over", |_, s| {
                let stored = s.world.stored.as_ref();
                s.world.processes.iter().any(|p| match &p.call {
                    Some(Call::Sent(write)) => {
                        let taken = stored.filter(|r| !r.holder.is_empty() && r.holder != write.holder);
                        taken.is_some_and(|r| Some(&r.resource_version) == write.resource_version.as_ref())
                    }
                    _ => false,
                })
            }),
        ];
        if self.0.faults.pauses > 0 {
            properties.push(Property::<Self>::sometimes(
                "a paused process believes in a lead that another has",
                |m, s| {
                    let paused = s.world.processes.iter().any(|p| p.paused && p.leading);
                    let leads = |at: usize| s.world.leads(at, &m.0) && !s.world.processes[at].paused;
                    paused && (0..m.0.processes).any(leads)
                },
            ));
        }
        properties
    }
}

/// At no moment do two processes lead.
pub const ONE_LEADER: &str = "one leader at a time";
/// A running process knows when its lead is over.
pub const IN_TIME: &str = "a process that runs stops leading in time";
/// After a failed write a process waits.
pub const NO_STORM: &str = "no write within the wait after a failed one";
/// The lead is not vacant for long.
pub const FILLED: &str = "somebody leads within a bound while nothing goes wrong";

impl Story for Lease {
    fn title(&self) -> String {
        let Bounds { processes, config, faults, .. } = &self.0;
        let Faults { total, delays, crashes, pauses, lost, breaks, releases } = faults;
        let times = [config.term, config.renew_deadline, config.renew_every, config.retry_after];
        let times = times.map(|t| t.as_millis().to_string()).join("/");
        format!(
            "lease({processes} processes; times {times} ticks; delays {delays}; faults {total}: crashes {crashes}, pauses {pauses}, lost {lost}, breaks {breaks}, releases {releases})"
        )
    }

    fn describe(&self, state: &State, action: &Action) -> String {
        let world = &state.world;
        let name = |at: &usize| world.name(*at);
        let what = match action {
            Action::Advance => "time goes on".to_owned(),
            Action::Wake(at) => format!("the timer of {} is due", name(at)),
            Action::Deliver(at) => match &world.processes[*at].watch {
                Some(watch) => format!("{} sees {:?}", name(at), watch.front()),
                None => format!("{} lists {:?}", name(at), world.stored),
            },
            Action::Apply(at) => format!("the server gets of {}: {:?}", name(at), world.processes[*at].call),
            Action::Answer(at) => format!("{} gets {:?}", name(at), world.processes[*at].call),
            Action::LateApplied(at) => format!("takes effect late: {:?}", world.late[*at]),
            Action::LateLost(at) => format!("is lost: {:?}", world.late[*at]),
            Action::TimeOut(at) => format!("{} waits in vain for {:?}", name(at), world.processes[*at].call),
            Action::Crash(at) => format!("{} is killed and starts anew", name(at)),
            Action::Pause(at) => format!("{} gets no time to run", name(at)),
            Action::Resume(at) => format!("{} runs again", name(at)),
            Action::Break(at) => format!("the watch of {} breaks", name(at)),
            Action::BreakStale(at) => {
                format!("the watch of {} breaks, and a stale server lists {:?}", name(at), world.before)
            }
            Action::Release(at) => format!("{} is asked to end", name(at)),
        };
        format!("[{}] {what}", world.now)
    }

    fn show(&self, state: &State) -> String {
        let leads: Vec<String> = (0..self.0.processes)
            .filter(|at| state.world.leads(*at, &self.0))
            .map(|at| state.world.name(at))
            .collect();
        format!("leading: {leads:?}\n{:#?}", state.world)
    }
}
