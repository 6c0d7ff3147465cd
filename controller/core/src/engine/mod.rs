//! The state of the world as last observed, and what follows from it.
//!
//! One owner calls [`Engine::step`] with every event. Each event marks what it may concern. At the end of the step, the
//! engine plans the marked requests, then the marked Pods, then the marked books. It plans nothing until the watch of
//! Pods has delivered a list, and every other watch one since this process became leader. Only the leader writes.

mod any;
mod bound;
mod deeds;
mod hold;
mod kept;
mod left;
mod load;
mod members;
mod open;
mod outcome;
mod pacing;
mod parks;
mod planning;
mod pods;
mod queue;
mod room;
mod store;
mod stores;
mod survey;
#[cfg(test)]
mod tests;
mod turn;
mod watched;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pitstop_api::logic::machine::{Machine, Now};

use crate::action::{Action, Event};
use crate::config::Config;
use crate::key::{KindId, ObjectKey};
use crate::measure::OrderCounts;
use crate::time::{Mono, earliest};

use any::AnyStore;
use hold::Grants;
use kept::{Book, Cache};
pub use left::{LEFT_PARKED, RELEASED};
pub(crate) use members::MAX_SELECTORS;
use members::Members;
use open::Open;
use pacing::Timers;
use parks::Parks;
use pods::Pods;
use room::{LaneId, Room};
use stores::Stores;
use survey::{Neighbours, Surveys};

/// All that the engine knows.
#[derive(Clone, Debug)]
pub struct Engine {
    config: Config,
    leading: bool,
    /// The API server keeps each daemon to its own node, so orders may be placed.
    guarded: bool,
    pods: Pods,
    neighbours: Neighbours,
    members: Members,
    parks: Parks,
    surveys: Surveys,
    stores: Stores,
    books: Cache<Book>,
    /// For each held Pod, the requests that gave its containers their resources.
    grants: BTreeMap<ObjectKey, Grants>,
    /// Orders in all books.
    orders: OrderCounts,
    /// How often a request was planned.
    planned: u64,
    dirty_pods: BTreeSet<ObjectKey>,
    dirty_nodes: BTreeSet<String>,
    timers: Timers<Subject>,
    room: Room,
}

/// What the engine plans as one unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Object(KindId, ObjectKey),
    Pod(ObjectKey),
    /// The book of the named node.
    Node(String),
}

impl Engine {
    /// An engine that knows nothing and does not lead.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            leading: false,
            guarded: false,
            pods: Pods::default(),
            neighbours: Neighbours::default(),
            members: Members::default(),
            parks: Parks::default(),
            surveys: Surveys::default(),
            stores: Stores::new(config.max_open_requests_per_namespace),
            books: Cache::default(),
            grants: BTreeMap::new(),
            orders: OrderCounts::default(),
            planned: 0,
            dirty_pods: BTreeSet::new(),
            dirty_nodes: BTreeSet::new(),
            timers: Timers::default(),
            room: Room::default(),
        }
    }

    /// Handles one event and returns the actions to take. `wall` is only written down, never compared.
    pub fn step(&mut self, now: Mono, wall: DateTime<Utc>, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(lane) = LaneId::ended(&event) {
            self.room.ended(now, lane);
        }
        match event {
            // These watches start again when this process becomes leader, so it keeps nothing from them before.
            Event::Objects(_) | Event::NodeWorks(_) | Event::Parked(..) if !self.leading => {}
            Event::Pods(watch) => self.pods_changed(watch),
            Event::Objects(watched) => self.objects_changed(now, wall, watched),
            Event::NodeWorks(watch) => self.books_changed(now, watch),
            Event::Parked(kind, watch) => self.parks_changed(kind, watch),
            Event::Leader(leading) => self.lead(now, leading),
            Event::Guarded(guarded) => {
                if std::mem::replace(&mut self.guarded, guarded) != guarded {
                    self.all_dirty();
                }
            }
            Event::Written { key, uid, outcome } => self.written(now, &key, &uid, outcome, &mut actions),
            Event::Surveyed { key, outcome } => self.surveyed(now, &key, outcome),
            Event::PodRead { object, outcome } => {
                if let Some(store) = self.stores.named_mut(object.kind.name()) {
                    store.pod_read(now, &object.key, &object.uid, &outcome);
                }
            }
            Event::PodTried { key, uid, outcome } => self.pod_tried(now, &key, &uid, &outcome),
            Event::PodWritten { key, uid, outcome } => self.pod_written(now, &key, &uid, outcome),
            Event::DeedDone { object, deed, done } => {
                actions.extend(self.deed_done(now, object, *deed, done).map(Action::Emit));
            }
            Event::NodeWorkWritten(node, outcome) => self.book_written(now, &node, outcome),
            Event::Tick => {}
        }
        self.due_timers(now);
        if !self.leading {
            // A new leader plans everything, so earlier marks and timers are not needed.
            self.stores.each_mut().for_each(AnyStore::clear_dirty);
            self.dirty_pods.clear();
            self.dirty_nodes.clear();
            self.timers.clear();
            self.room.clear(now);
        } else if self.synced() {
            self.plan_marked(now, wall, &mut actions);
            while let Some(subject) = self.room.call(now) {
                self.mark(subject);
                self.plan_marked(now, wall, &mut actions);
            }
        }
        actions
    }

    fn plan_marked(&mut self, now: Mono, wall: DateTime<Utc>, actions: &mut Vec<Action>) {
        let mut requests = self.plan_requests(now, wall);
        // Actions that take a Pod out of service or bring it back go before the tidy-up of requests.
        for key in std::mem::take(&mut self.dirty_pods) {
            self.plan_pod(now, &key, actions);
            self.plan_orphan(now, &key, actions);
        }
        actions.append(&mut requests);
        for node in std::mem::take(&mut self.dirty_nodes) {
            self.plan_book(now, &node, actions);
        }
    }

    /// Marks the subject to be planned.
    fn mark(&mut self, subject: Subject) {
        match subject {
            Subject::Object(kind, key) => {
                self.stores.named_mut(kind.name()).into_iter().for_each(|store| store.mark(&key));
            }
            Subject::Pod(key) => drop(self.dirty_pods.insert(key)),
            Subject::Node(node) => drop(self.dirty_nodes.insert(node)),
        }
    }

    /// When to call [`Engine::step`] with a tick if no event comes.
    pub fn wake_at(&self) -> Option<Mono> {
        earliest(self.timers.first(), self.room.wake_at())
    }

    /// Whether the watch of Pods has delivered a list, and every other watch one since this process became leader.
    pub fn synced(&self) -> bool {
        self.pods.synced && self.books.synced && self.stores.each().all(AnyStore::synced)
    }

    /// For each kind: the number of open requests, and the creation time (seconds since 1970) of the oldest one to
    /// carry out. 0 and None if this process does not lead.
    pub fn open(&self) -> impl Iterator<Item = (KindId, usize, Option<i64>)> {
        self.stores.each().map(|store| {
            let open = Some(store.open()).filter(|_| self.leading);
            (store.about().id, open.map_or(0, Open::count), open.and_then(Open::oldest))
        })
    }

    /// Number of open requests of that kind.
    #[cfg(test)]
    pub(crate) fn open_of(&self, kind: KindId) -> usize {
        self.stores.of(kind).map_or(0, |store| store.open().count())
    }

    /// How often a request was planned: the cost of events.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Number of objects, Pods and books that wait for their turn to be written.
    pub fn waiting(&self) -> usize {
        self.room.waiting()
    }

    /// Orders in all books; none if this process does not lead.
    pub fn open_orders(&self) -> OrderCounts {
        if self.leading { self.orders } else { OrderCounts::default() }
    }

    fn lead(&mut self, now: Mono, leading: bool) {
        if self.leading == leading {
            return;
        }
        self.leading = leading;
        if leading {
            // A list from before may lack writes of the previous leader, such as the request that a hold belongs to. So
            // these watches start again. The watch of Pods may be late for any leader; a write to an older version gets
            // a conflict.
            self.books.synced = false;
        }
        self.grants.clear();
        self.surveys = Surveys::default();
        // Each object that manages Pods registers again when it is planned.
        self.members = Members::default();
        self.parks = Parks::default();
        self.stores.each_mut().for_each(|store| store.lead(now, leading));
        self.pods.restart();
        self.books.objects.values_mut().for_each(Book::restart);
    }

    fn all_dirty(&mut self) {
        self.stores.each_mut().for_each(AnyStore::all_dirty);
        self.dirty_pods.extend(self.pods.awake().chain(self.parks.keys()).cloned());
        self.dirty_nodes.extend(self.books.objects.keys().map(|k| k.name.clone()));
    }
}

fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectKey>>, at: &K, key: &ObjectKey) {
    if let Some(set) = index.get_mut(at) {
        set.remove(key);
        if set.is_empty() {
            index.remove(at);
        }
    }
}

impl Machine for Engine {
    type Event = Event;
    type Action = Action;

    fn tick() -> Event {
        Event::Tick
    }

    fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        self.step(now.mono, now.wall, event)
    }

    fn next_wake(&self, _: Mono) -> Option<Mono> {
        self.wake_at()
    }
}
