//! The order protocol between controller and daemon: the production index, the production daemon, and every order in
//! which their messages may arrive, get lost or come late, within bounds.
//!
//! Time goes on only when nothing else can happen, to the next moment that a process wants to be woken at; as a
//! fault, also while something is still to be delivered. States hold absolute times, so what would repeat itself for
//! ever would never end being explored: [`promise::IN_TIME`] bounds it. What a state can do without faults leads to an
//! end from everywhere when the graph has no cycle, which [`crate::graph`] shows.

mod bounds;
mod control;
mod faults;
mod node;
mod part;
mod status;
mod steps;
mod store;
mod story;
mod world;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stateright::{Model, Property};

use crate::graph::Graph;
pub use bounds::{Bounds, Bug, Faults};
pub use store::{Store, ends};
use world::World;

/// Where everything is.
const NAMESPACE: &str = "shop";
/// The node.
const NODE: &str = "node1";
/// The Pod's containers.
const CONTAINERS: [&str; 2] = ["app", "side"];
/// How long everything may take, in milliseconds from the beginning: far more than the longest wait of either side
/// (a minute) as often as there may be faults.
const LIMIT: u64 = 1_000_000 + 900_000;
/// How often one object may be written: several times what any schedule within the bounds takes.
const MAX_WRITES: u64 = 40;

/// What no order of events may break.
pub mod promise {
    /// I1.
    pub const ONE_INSTANCE: &str = "at most one container instance is stopped for a request's container";
    /// I1: by whatever means.
    pub const ONCE: &str = "a container is restarted once for a request";
    /// I2.
    pub const ACKNOWLEDGED: &str =
        "nothing is stopped without a stored acknowledgement, by that process, that names it";
    /// I3.
    pub const TARGET: &str = "only the instance that the request was accepted for is stopped";
    /// I4.
    pub const NOT_WITHDRAWN: &str = "nothing begins that was seen withdrawn";
    /// I4.
    pub const NOT_AFTER_END: &str = "nothing is taken up after its request ended";
    /// I5.
    pub const FINAL: &str = "an outcome and a target never change";
    /// I5.
    pub const FORWARD: &str = "containers only move forward";
    /// I6.
    pub const TRUE: &str = "what is told to be restarted or killed was";
    /// I16.
    pub const HOOK_ONCE: &str = "a hook that ended is not run again";
    /// Nothing is stopped before the Pod is out of service, where that was asked for.
    pub const DRAINED: &str = "nothing is taken up before the drain is over";
    /// One request of a Pod at a time.
    pub const SERIAL: &str = "one request of a Pod is at work at a time";
    /// One write of an object at a time, for each process.
    pub const ONE_WRITE: &str = "one write of an object is under way at a time";
    /// No write is for nothing.
    pub const NEEDED: &str = "every write of a request or Pod changes something";
    /// L1, L2, I7: the end of everything.
    pub const ENDS: &str =
        "when nothing is left to do, requests are over, holds released and the book is empty";
    /// A stop that outlived its request is told all the same.
    pub const TOLD: &str = "in the end every stop that ended a container is told by its request";
    /// No storm of writes, and no endless exchange of them.
    pub const FEW_WRITES: &str = "no object is written more often than there are reasons to";
    /// L1, L3.
    pub const IN_TIME: &str = "everything is over in time";
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A watch of a controller delivers: the next change, or its list.
    Watch(usize, usize),
    /// The server carries out the write of an object.
    Apply(usize, String),
    /// Its answer arrives.
    Answer(usize, String),
    /// The timer of a controller is due.
    Tick(usize),
    /// A daemon's watch delivers.
    DaemonWatch(usize),
    /// A daemon's call, or its write, is carried out.
    DaemonApply(usize, String),
    /// Its answer arrives.
    DaemonAnswer(usize, String),
    /// The timer of a daemon is due.
    DaemonTick(usize),
    /// The kubelet starts a container anew.
    Start(usize),
    /// A container passes its readiness probe.
    Ready(usize),
    /// The kubelet ends a container whose image is another one now.
    EndForImage(usize),
    /// The kubelet writes the Pod's status.
    Publish,
    /// A Pod that is being deleted is gone.
    RemovePod,
    /// Another Pod comes under its name.
    CreatePod,
    /// Time goes on to when the next timer is due.
    Advance,
    /// What nobody waits for takes effect.
    LateApplied(usize),
    /// It never does.
    LateLost(usize),
    /// A user makes the next request.
    Create,
    /// A fault.
    Fault(Fault),
}

/// What may go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A controller hears no answer.
    Lost(usize, String),
    /// A write of a controller is refused.
    Refused(usize, String),
    /// A controller is killed; its writes took effect, or not.
    Controller(usize, bool),
    /// A controller's watch breaks.
    Breaks(usize, usize),
    /// A daemon hears no answer.
    DaemonLost(usize, String),
    /// A daemon is killed.
    Daemon(usize),
    /// A daemon's watch breaks.
    DaemonBreaks(usize),
    /// A container ends by itself.
    Ends(usize),
    /// Time goes on.
    Late,
    /// Somebody writes a request.
    Meddling(String),
    /// A user deletes a request.
    Deleted(String),
    /// The Pod is deleted.
    Replaced,
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
        state.write_u64(self.key);
    }
}

/// The model.
pub struct Orders {
    bounds: Bounds,
    graph: Arc<Graph>,
}

impl Orders {
    /// Its transitions are written down in `graph`.
    pub fn new(bounds: Bounds, graph: Arc<Graph>) -> Self {
        Self { bounds, graph }
    }

    /// Nothing is left to do, unless something goes wrong or a user wants something.
    fn rests(&self, state: &State) -> bool {
        let world = &state.world;
        let mut actions = Vec::new();
        world.fair(&self.bounds, &mut actions);
        actions.is_empty() && world.late.is_empty() && world.wake().is_none()
    }
}

fn state(world: World) -> State {
    let key = world.key();
    State { world: Arc::new(world), key }
}

impl Model for Orders {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let state = state(World::new(&self.bounds));
        self.graph.begin(state.key);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let world = &*state.world;
        world.fair(&self.bounds, actions);
        let pending = !actions.is_empty();
        for at in 0..world.late.len() {
            actions.extend([Action::LateApplied(at), Action::LateLost(at)]);
        }
        let due = world.wake().is_some_and(|at| at.0 <= world.now);
        if !pending && world.wake().is_some() {
            actions.push(Action::Advance);
        }
        if usize::from(world.requested) < self.bounds.requests {
            actions.push(Action::Create);
        }
        if world.left.total > 0 {
            world.faults(pending && !due, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut world = (*last.world).clone();
        world.take(&action, &self.bounds)?;
        world.settle();
        let next = state(world);
        self.graph.edge(last.key, next.key);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! steps {
            ($($name:ident),*) => {
                vec![$(Property::<Self>::always(promise::$name, |_, s| s.world.broken != Some(promise::$name))),*]
            };
        }
        let mut properties = steps!(
            ONE_INSTANCE,
            ONCE,
            ACKNOWLEDGED,
            TARGET,
            NOT_WITHDRAWN,
            NOT_AFTER_END,
            FINAL,
            FORWARD,
            TRUE,
            HOOK_ONCE,
            DRAINED,
            SERIAL,
            ONE_WRITE,
            NEEDED
        );
        properties.push(Property::<Self>::always(promise::IN_TIME, |_, s| s.world.now <= LIMIT));
        properties.push(Property::<Self>::always(promise::FEW_WRITES, |_, s| s.world.writes() <= MAX_WRITES));
        properties.push(Property::<Self>::always(promise::ENDS, |m, s| !m.rests(s) || s.world.over()));
        properties.push(Property::<Self>::always(promise::TOLD, |m, s| !m.rests(s) || s.world.told()));
        properties.push(Property::<Self>::sometimes("a request is complete", |_, s| {
            s.world.store.requests.values().any(|r| r.completed() && r.status.message.is_empty())
        }));
        properties
    }
}
