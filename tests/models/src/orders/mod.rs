//! The order protocol between controller and daemon: the production engine, the production daemon, and every sequence
//! in which their messages may arrive, get lost or come late, within bounds.
//!
//! Time advances only when no other step is possible, to the next wake-up of a process. As a fault, it also advances
//! while messages are undelivered. States hold absolute times, so the exploration of an endless repetition would not
//! end: [`promise::IN_TIME`] bounds it. Without cycles in the graph, which [`crate::graph`] shows, every path ends.

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

/// Namespace of all objects.
const NAMESPACE: &str = "shop";
/// Name of the node.
const NODE: &str = "node1";
/// Names of the Pod's containers.
const CONTAINERS: [&str; 2] = ["app", "side"];
/// Latest time of any state, in milliseconds: 900 s after the start. That is far more than the longest wait of either
/// side (a minute) times the number of faults.
const LIMIT: u64 = 1_000_000 + 900_000;
/// Bound of writes of one object: several times the writes of any schedule within the bounds.
const MAX_WRITES: u64 = 40;

/// The promises, which must hold for every sequence of events.
pub mod promise {
    /// I1.
    pub const ONE_INSTANCE: &str = "at most one container instance is stopped for a request's container";
    /// I1, by any mechanism.
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
    pub const TRUE: &str = "what is reported as restarted or killed was";
    /// I16.
    pub const HOOK_ONCE: &str = "a hook that ended is not run again";
    /// If the request asks for a drain, no stop begins before the Pod is out of service.
    pub const DRAINED: &str = "nothing is taken up before the drain is over";
    /// One request of a Pod at a time.
    pub const SERIAL: &str = "one request of a Pod is at work at a time";
    /// One write of an object at a time per process.
    pub const ONE_WRITE: &str = "one write of an object is under way at a time";
    /// Every write has an effect.
    pub const NEEDED: &str = "every write of a request or Pod changes something";
    /// L1, L2, I7: the final state.
    pub const ENDS: &str =
        "when nothing is left to do, requests are over, holds released and the book is empty";
    /// A request also reports a stop that completes after the request's end.
    pub const REPORT: &str = "in the end every stop that ended a container is reported by its request";
    /// No storm and no endless exchange of writes.
    pub const FEW_WRITES: &str = "no object is written more often than there are reasons to";
    /// L1, L3.
    pub const IN_TIME: &str = "everything is over in time";
}

/// A step of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A controller's watch delivers the next change, or its list.
    Watch(usize, usize),
    /// The server carries out a controller's write of an object.
    Apply(usize, String),
    /// The answer arrives at the controller.
    Answer(usize, String),
    /// A controller's timer is due.
    Tick(usize),
    /// A daemon's watch delivers.
    DaemonWatch(usize),
    /// The runtime or server carries out a daemon's call or write.
    DaemonApply(usize, String),
    /// The answer arrives at the daemon.
    DaemonAnswer(usize, String),
    /// A daemon's timer is due.
    DaemonTick(usize),
    /// The kubelet restarts a container.
    Start(usize),
    /// A container passes its readiness probe.
    Ready(usize),
    /// The kubelet ends a container whose image changed.
    EndForImage(usize),
    /// The kubelet writes the Pod's status.
    Publish,
    /// A terminating Pod is removed.
    RemovePod,
    /// A new Pod with the same name is created.
    CreatePod,
    /// Time advances to the next timer.
    Advance,
    /// A late write or call takes effect.
    LateApplied(usize),
    /// A late write or call never takes effect.
    LateLost(usize),
    /// A user creates the next request.
    Create,
    /// A fault.
    Fault(Fault),
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A controller gets no answer.
    Lost(usize, String),
    /// A write of a controller is refused.
    Refused(usize, String),
    /// A controller is killed; whether its writes take effect.
    Controller(usize, bool),
    /// A controller's watch breaks.
    Breaks(usize, usize),
    /// A daemon gets no answer.
    DaemonLost(usize, String),
    /// A daemon is killed.
    Daemon(usize),
    /// A daemon's watch breaks.
    DaemonBreaks(usize),
    /// A container ends by itself.
    Ends(usize),
    /// Time advances although messages are undelivered.
    Late,
    /// Another client writes a request.
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
    /// A model that records its transitions in `graph`.
    pub fn new(bounds: Bounds, graph: Arc<Graph>) -> Self {
        Self { bounds, graph }
    }

    /// Whether only faults or users can cause further steps.
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
        properties.push(Property::<Self>::always(promise::REPORT, |m, s| !m.rests(s) || s.world.reported()));
        properties.push(Property::<Self>::sometimes("a request is complete", |_, s| {
            s.world.store.requests.values().any(|r| r.completed() && r.status.message.is_empty())
        }));
        properties
    }
}
