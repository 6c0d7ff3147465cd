//! A controller process: the production engine, its watches and its writes in flight.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use chrono::DateTime;
use pitstop_controller_core::kinds::{Watched, Written};
use pitstop_controller_core::recreate;
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::{Action, Config, Engine, Event, Mono, Object, Status, Watch, Write};

use super::part::{Memo, Part};
use super::store::{Change, Store};

/// A write in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// The server has not received it.
    Sent(Part<Action>),
    /// The controller has not received the answer.
    Answered(Part<Event>),
}

/// A controller process that leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    pub index: Part<Engine>,
    /// Undelivered changes of Pods, requests and books; `None` until listed.
    pub watches: [Option<VecDeque<Change>>; 3],
    /// Writes in flight, by object.
    pub calls: BTreeMap<String, Call>,
}

/// Names of the three watches.
pub const KINDS: [&str; 3] = ["Pods", "requests", "the order book"];

impl Controller {
    /// A process that has just begun to lead.
    pub fn new(now: Mono, config: Config) -> Self {
        let mut index = Engine::new(config);
        let none = Event::none_but(&[recreate::ID]);
        for event in [Event::Guarded(true), Event::Leader(true)].into_iter().chain(none) {
            assert!(index.step(now, DateTime::UNIX_EPOCH, event).is_empty());
        }
        Self { index: Part::new(index), watches: [None, None, None], calls: BTreeMap::new() }
    }

    /// Queues a change in its watch.
    pub fn queue(&mut self, change: &Change) {
        let kind = match change {
            Change::Pod(_) | Change::PodGone(_) => 0,
            Change::Request(_) | Change::RequestGone(_) => 1,
            Change::Book(_) => 2,
        };
        if let Some(watch) = &mut self.watches[kind] {
            watch.push_back(change.clone());
        }
    }

    /// The next event of a watch: its first list, or a change.
    pub fn next(&mut self, kind: usize, store: &Store) -> Option<Part<Event>> {
        let Some(watch) = &mut self.watches[kind] else {
            self.watches[kind] = Some(VecDeque::new());
            return Some(match kind {
                0 => {
                    let all: Vec<_> = store.pods.values().cloned().collect();
                    let list = all.iter().map(|p| (**p).clone()).collect();
                    Part::of(Event::Pods(Watch::list(list)), (kind, all))
                }
                1 => {
                    let all: Vec<_> = store.requests.values().cloned().collect();
                    let list = all.iter().map(|r| (**r).clone()).collect();
                    Part::of(Event::of::<Request>(Watch::list(list)), (kind, all))
                }
                _ => {
                    let list = store.book.iter().map(|b| (**b).clone()).collect();
                    Part::of(Event::NodeWorks(Watch::list(list)), (kind, &store.book))
                }
            });
        };
        let change = watch.pop_front()?;
        Some(Part::of(change.event(), ("change", change)))
    }

    /// Handles an event; returns false if a new write's object already had a write in flight.
    pub fn step(&mut self, now: Mono, event: &Part<Event>) -> bool {
        thread_local! {
            static MEMO: RefCell<Memo<Engine, Action>> = RefCell::default();
        }
        let step = || {
            let mut index = (*self.index).clone();
            // Decisions do not depend on the wall clock, so a constant suffices.
            let actions = index.step(now, DateTime::UNIX_EPOCH, (**event).clone());
            let writes = actions.into_iter().filter(|a| !matches!(a, Action::Emit(_) | Action::Count(_)));
            (Part::new(index), writes.map(Part::new).collect())
        };
        let (index, actions) =
            MEMO.with_borrow_mut(|memo| memo.step(&self.index, now.0, event.digest(), step));
        self.index = index;
        let mut single = true;
        for action in actions {
            single &= self.calls.insert(target_of(&action), Call::Sent(action)).is_none();
        }
        single
    }
}

/// The object that an action writes.
fn target_of(action: &Action) -> String {
    match action {
        Action::Write { object: Object { uid, .. }, .. }
        | Action::Do { object: Object { uid, .. }, .. }
        | Action::PatchPod { uid, .. } => uid.clone(),
        Action::WriteOrders { node, .. } => node.clone(),
        Action::ReadPod { object: Object { uid, .. }, .. } => format!("Pod of {uid}"),
        Action::Survey { key } => format!("bounds of {key}"),
        Action::Emit(_) | Action::Count(_) => String::new(),
    }
}

/// Short description of a write.
pub fn brief(action: &Action) -> String {
    match action {
        Action::Write {
            object: Object { key, .. },
            write: Write::Status { resource_version, status: Status::Recreate(status) },
        } => {
            let last = status.conditions.iter().rfind(|c| c.type_ == "Complete");
            let containers: Vec<String> = status
                .container_recreate_states
                .iter()
                .map(|s| format!("{} {:?}", s.name, s.phase))
                .collect();
            format!(
                "status of {} at {resource_version}: {:?}, {}, {containers:?}",
                key.name,
                status.phase,
                last.map_or("", |c| c.reason.as_str())
            )
        }
        Action::Write {
            object: Object { key, .. },
            write: Write::Metadata { resource_version, labels, annotations },
        } => {
            format!("metadata of {} at {resource_version}: {labels:?} {annotations:?}", key.name)
        }
        Action::Write { object: Object { key, .. }, write: Write::Delete } => {
            format!("deletion of {}", key.name)
        }
        Action::Write { object: Object { key, .. }, write: Write::Status { .. } } => {
            format!("status of {}", key.name)
        }
        Action::Survey { key } => format!("bounds of {key}"),
        Action::Do { object: Object { key, .. }, .. } => format!("for {}", key.name),
        Action::ReadPod { object: Object { key, .. }, .. } => format!("is the Pod of {} there?", key.name),
        Action::WriteOrders { basis, orders, .. } => {
            let orders: Vec<&str> = orders.iter().map(|o| o.id.as_str()).collect();
            format!("orders at {basis:?}: {orders:?}")
        }
        Action::PatchPod { key, change, resource_version, .. } => {
            format!("Pod {} at {resource_version}: {change:?}", key.name)
        }
        Action::Emit(_) | Action::Count(_) => String::new(),
    }
}

/// Short description of an answer.
pub fn answer(event: &Event) -> String {
    fn of<T>(outcome: &pitstop_controller_core::Outcome<T>, version: impl Fn(&T) -> String) -> String {
        use pitstop_controller_core::Outcome::{Conflict, Gone, Refused, Retry, Written};
        match outcome {
            Written(object) => format!("stored as {}", version(object)),
            Gone => "gone".to_owned(),
            Conflict => "conflict".to_owned(),
            Retry => "no answer".to_owned(),
            Refused(text) => format!("refused: {text}"),
        }
    }
    match event {
        Event::Written { key, outcome: Written::Recreate(outcome), .. } => {
            format!("{}: {}", key.name, of(outcome, |r| r.resource_version.clone()))
        }
        Event::PodWritten { key, outcome, .. } => {
            format!("Pod {}: {}", key.name, of(outcome, |p| p.resource_version.clone()))
        }
        Event::NodeWorkWritten(_, outcome) => {
            format!("orders: {}", of(outcome, |b| b.resource_version.clone()))
        }
        other => format!("{other:?}"),
    }
}

/// Short description of a watch event.
pub fn event(event: &Event) -> String {
    fn of<T>(watch: &Watch<T>, brief: impl Fn(&T) -> String) -> String {
        match watch {
            Watch::Upsert(object) => brief(object),
            Watch::Gone(object) => format!("gone: {}", brief(object)),
            Watch::Listed(list) => format!("list: {:?}", list.objects.iter().map(brief).collect::<Vec<_>>()),
        }
    }
    match event {
        Event::Pods(watch) => of(watch, |pod| {
            let ids = pod.containers.iter().filter_map(|c| c.status.as_ref());
            let ids: Vec<String> = ids
                .map(|s| {
                    format!("..{} {:?}", &s.container_id[s.container_id.len().saturating_sub(4)..], s.state)
                })
                .collect();
            format!("{} {ids:?} ready {}", pod.resource_version, pod.ready)
        }),
        Event::Objects(Watched::Recreate(watch)) => {
            of(watch, |r| format!("{} {:?}", r.resource_version, r.status.phase))
        }
        Event::NodeWorks(watch) => of(watch, |b| {
            let orders: Vec<&str> = b.orders.iter().map(|o| o.id.as_str()).collect();
            let answers: Vec<String> =
                b.status.answers.iter().map(|a| format!("{} {:?}", a.order_id, a.state)).collect();
            format!("{} orders {orders:?} answers {answers:?}", b.resource_version)
        }),
        other => format!("{other:?}"),
    }
}
