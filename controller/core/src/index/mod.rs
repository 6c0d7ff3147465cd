//! The state of the world as last observed, and what follows from it.
//!
//! One owner calls [`Index::step`] with every event. Each event marks what it may concern; at the end of the
//! step the marked requests, then the marked Pods, then the marked books are planned. Nothing is planned before every
//! watch has delivered a list since the lead began, and nothing is written by a process that does not lead.

mod asked;
mod bound;
mod deeds;
mod holding;
mod kinds;
mod outcome;
mod pacing;
mod planning;
mod queue;
mod recreates;
mod resizes;
mod survey;
#[cfg(test)]
mod tests;
mod turn;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::logic::machine::{Machine, Now};

use crate::action::{Action, Event, RequestKind};
use crate::key::ObjectKey;
use crate::measure::OrderCounts;
use crate::recreate::Request;
use crate::resize::Resize;
use crate::time::Mono;

use asked::Asked;
use holding::Grants;
use kinds::{Book, Kind, PodEntry};
use pacing::Timers;
use survey::Neighbours;

/// Tunable times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bound of requests that name no deadline; absent for none.
    pub default_active_deadline: Option<Duration>,
    /// How many requests of one kind are carried out in a namespace at a time; absent for all of them.
    pub max_open_requests_per_namespace: Option<usize>,
    /// How long an order may stay without the daemon's answer.
    pub daemon_silent_after: Duration,
    /// How long an order may stay unanswered where the kubelet can restart the container instead.
    pub fall_back_after: Duration,
    /// How long a wait lasts before it is written down.
    pub progress_after: Duration,
    /// Mean time between such writes for one node: with many requests at work there, each tells of its waits later.
    pub progress_spacing: Duration,
    /// How long answered orders stay in a book, so that many are dropped in one write.
    pub tidy_after: Duration,
    /// How far the watch of Pods may be behind what admission read.
    pub watch_lag: Duration,
    /// How long the watch may take to show what a conflict was about before the write is tried again.
    pub conflict_patience: Duration,
    /// How long a write may be under way, from its decision until nothing can come of it any more, in whatever process.
    pub write_bound: Duration,
    /// The daemons may give Pods other resources where the kubelet does not.
    pub resize_cri: bool,
    /// How long the end of a resize waits for the original resources to be back.
    pub restore_patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_active_deadline: Some(Duration::from_hours(1)),
            max_open_requests_per_namespace: Some(1_000),
            daemon_silent_after: Duration::from_mins(1),
            fall_back_after: Duration::from_secs(10),
            progress_after: Duration::from_secs(3),
            progress_spacing: Duration::from_millis(500),
            tidy_after: Duration::from_secs(1),
            watch_lag: Duration::from_secs(2),
            conflict_patience: Duration::from_secs(5),
            write_bound: Duration::from_mins(1),
            resize_cri: false,
            restore_patience: Duration::from_mins(1),
        }
    }
}

/// Everything known.
#[derive(Clone, Debug)]
pub struct Index {
    config: Config,
    leading: bool,
    /// No order is placed before the API server has been seen to keep daemons apart.
    guarded: bool,
    pods: Kind<PodEntry>,
    neighbours: Neighbours,
    requests: Asked<Request>,
    resizes: Asked<Resize>,
    books: Kind<Book>,
    /// By Pods: those that daemons hold.
    grants: BTreeMap<ObjectKey, Grants>,
    /// Orders in all books.
    orders: OrderCounts,
    /// Plans of requests so far.
    planned: u64,
    dirty_pods: BTreeSet<ObjectKey>,
    dirty_nodes: BTreeSet<String>,
    timers: Timers<Timer>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Request(ObjectKey),
    Resize(ObjectKey),
    Pod(ObjectKey),
    Node(String),
}

impl Index {
    /// Nothing known yet, not leading.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            leading: false,
            guarded: false,
            pods: Kind::default(),
            neighbours: Neighbours::default(),
            requests: Asked::new(config.max_open_requests_per_namespace),
            resizes: Asked::new(config.max_open_requests_per_namespace),
            books: Kind::default(),
            grants: BTreeMap::new(),
            orders: OrderCounts::default(),
            planned: 0,
            dirty_pods: BTreeSet::new(),
            dirty_nodes: BTreeSet::new(),
            timers: Timers::default(),
        }
    }

    /// Takes in one event and gives back what to do. `wall` is only written down, never compared.
    pub fn step(&mut self, now: Mono, wall: DateTime<Utc>, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            // Each watch begins anew with the lead: what a process does not carry out, it need not keep.
            Event::Pods(_) | Event::Requests(_) | Event::Resizes(_) | Event::NodeWorks(_)
                if !self.leading => {}
            Event::Pods(watch) => self.pods_changed(watch),
            Event::Requests(watch) => self.requests_changed(now, watch),
            Event::Resizes(watch) => self.requests_changed(now, watch),
            Event::NodeWorks(watch) => self.books_changed(now, watch),
            Event::Leader(leading) => self.lead(now, leading),
            Event::Guarded(guarded) => {
                if std::mem::replace(&mut self.guarded, guarded) != guarded {
                    self.all_dirty();
                }
            }
            Event::RequestWritten { key, uid, outcome } => {
                self.request_written(now, &key, &uid, outcome, &mut actions);
            }
            Event::ResizeWritten { key, uid, outcome } => {
                self.request_written(now, &key, &uid, outcome, &mut actions);
            }
            Event::Surveyed { key, uid, outcome } => self.surveyed(now, &key, &uid, outcome),
            Event::PodRead { kind: RequestKind::Recreate, key, uid, outcome } => {
                self.pod_read::<Request>(now, &key, &uid, &outcome);
            }
            Event::PodRead { kind: RequestKind::Resize, key, uid, outcome } => {
                self.pod_read::<Resize>(now, &key, &uid, &outcome);
            }
            Event::PodTried { key, uid, outcome } => self.pod_tried(now, &key, &uid, &outcome),
            Event::PodWritten { key, uid, outcome } => self.pod_written(now, &key, &uid, outcome),
            Event::DeedDone { key, uid, done } => self.deed_done(now, &key, &uid, done),
            Event::NodeWorkWritten(node, outcome) => self.book_written(now, &node, outcome),
            Event::Tick => {}
        }
        self.due_timers(now);
        if !self.leading {
            // Whoever begins to lead looks at everything.
            self.requests.dirty.clear();
            self.resizes.dirty.clear();
            self.dirty_pods.clear();
            self.dirty_nodes.clear();
            self.timers.clear();
        } else if self.synced() {
            let mut requests = Vec::new();
            self.resizes.give_places();
            self.requests.give_places();
            // Before the restarts, which wait for what they have begun.
            while let Some(key) = self.resizes.dirty.pop_first() {
                self.plan_request::<Resize>(now, wall, &key, &mut requests);
            }
            while let Some(key) = self.requests.dirty.pop_first() {
                self.plan_request::<Request>(now, wall, &key, &mut requests);
            }
            // Before the tidying up of requests: what takes a Pod out of service or brings it back.
            for key in std::mem::take(&mut self.dirty_pods) {
                self.plan_pod(now, &key, &mut actions);
            }
            actions.append(&mut requests);
            for node in std::mem::take(&mut self.dirty_nodes) {
                self.plan_book(now, &node, &mut actions);
            }
        }
        actions
    }

    /// When to call [`Index::step`] with a tick though nothing happened.
    pub fn wake_at(&self) -> Option<Mono> {
        self.timers.first()
    }

    /// Whether every watch has delivered a list since the lead began.
    pub fn synced(&self) -> bool {
        self.pods.synced && self.requests.synced && self.resizes.synced && self.books.synced
    }

    /// Recreate requests that have not ended.
    pub fn open_requests(&self) -> usize {
        self.requests.open
    }

    /// Resizes that have not ended.
    pub fn open_resizes(&self) -> usize {
        self.resizes.open
    }

    /// How often a request has been planned: what events cost.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Orders in all books.
    pub fn open_orders(&self) -> OrderCounts {
        self.orders
    }

    fn lead(&mut self, now: Mono, leading: bool) {
        if self.leading == leading {
            return;
        }
        self.leading = leading;
        if leading {
            // What was listed before may lack what the leader before this one wrote, such as the request that a hold
            // belongs to: each watch begins anew with the lead.
            (self.pods.synced, self.books.synced) = (false, false);
        }
        self.grants.clear();
        self.requests.lead(now, leading);
        self.resizes.lead(now, leading);
        self.pods.objects.values_mut().for_each(PodEntry::restart);
        self.books.objects.values_mut().for_each(Book::restart);
    }

    fn all_dirty(&mut self) {
        self.requests.all_dirty();
        self.resizes.all_dirty();
        self.dirty_pods.extend(self.pods.objects.keys().cloned());
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

impl Machine for Index {
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
