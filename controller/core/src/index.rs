//! The state of the world as last observed, and what follows from it.
//!
//! One owner calls [`Index::step`] with every event. Each event marks what it may concern; at the end of the
//! step the marked requests and then the marked books are planned. Nothing is planned before every watch has
//! delivered its first list, and nothing is written by a process that does not lead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::logic::machine::{Machine, Now};
use pitstop_api::nodework::Order;

use crate::action::{Action, Event, Outcome, Watch};
use crate::backoff::Backoff;
use crate::key::ObjectKey;
use crate::nodework::{self, NodeWork};
use crate::pod::Pod;
use crate::recreate::{self, Memory, Observed, OrderView, Request, StatusWrite, Urgency};
use crate::time::{Mono, earliest};
use crate::tracked::{Tracked, Versioned};

/// Tunable times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bound of requests that name no deadline; absent for none.
    pub default_active_deadline: Option<Duration>,
    /// How long an order may stay without the daemon's answer.
    pub daemon_silent_after: Duration,
    /// How long a wait lasts before it is written down.
    pub progress_after: Duration,
    /// How long answered orders stay in a book, so that many are dropped in one write.
    pub tidy_after: Duration,
    /// How far the watch of Pods may be behind what admission read.
    pub watch_lag: Duration,
    /// How long the watch may take to show what a conflict was about before the write is tried again.
    pub conflict_patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_active_deadline: Some(Duration::from_hours(1)),
            daemon_silent_after: Duration::from_mins(1),
            progress_after: Duration::from_secs(3),
            tidy_after: Duration::from_secs(1),
            watch_lag: Duration::from_secs(2),
            conflict_patience: Duration::from_secs(5),
        }
    }
}

/// Everything known.
#[derive(Debug)]
pub struct Index {
    config: Config,
    leading: bool,
    pods: Kind<Pod>,
    requests: Kind<Entry>,
    books: Kind<Book>,
    /// Requests by the Pod that they name.
    by_pod: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Requests by their target's node.
    by_node: BTreeMap<String, BTreeSet<ObjectKey>>,
    dirty_requests: BTreeSet<ObjectKey>,
    dirty_nodes: BTreeSet<String>,
    timers: BTreeSet<(Mono, Timer)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Request(ObjectKey),
    Node(String),
}

/// Objects of one kind, and whether the first list has come.
#[derive(Debug)]
struct Kind<T> {
    synced: bool,
    objects: BTreeMap<ObjectKey, T>,
}

impl<T> Default for Kind<T> {
    fn default() -> Self {
        Self { synced: false, objects: BTreeMap::new() }
    }
}

#[derive(Debug)]
struct Entry {
    request: Tracked<Request>,
    memory: Memory,
    write: Pacing,
    /// What the request wants in its node's book.
    orders: Vec<Order>,
}

#[derive(Debug, Default)]
struct Book {
    /// Absent while the object does not exist.
    work: Option<Tracked<NodeWork>>,
    /// A create is under way.
    creating: bool,
    write: Pacing,
}

/// When the next write of one object may happen.
#[derive(Debug, Default)]
struct Pacing {
    backoff: Backoff,
    /// Since when a write that can wait has been wanted.
    wanted_since: Option<Mono>,
    conflict_at: Option<Mono>,
}

impl Pacing {
    /// Whether to write now; if not, when.
    fn due(&mut self, now: Mono, urgency: Urgency, hold: Duration) -> Result<(), Mono> {
        if let Some(until) = self.backoff.waits_until(now) {
            return Err(until);
        }
        if urgency == Urgency::Now {
            return Ok(());
        }
        let at = self.wanted_since.get_or_insert(now).after(hold);
        if at <= now { Ok(()) } else { Err(at) }
    }

    fn succeeded(&mut self) {
        *self = Self::default();
    }
}

impl Index {
    /// Nothing known yet, not leading.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            leading: false,
            pods: Kind::default(),
            requests: Kind::default(),
            books: Kind::default(),
            by_pod: BTreeMap::new(),
            by_node: BTreeMap::new(),
            dirty_requests: BTreeSet::new(),
            dirty_nodes: BTreeSet::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Takes in one event and gives back what to do. `wall` is only written down, never compared.
    pub fn step(&mut self, now: Mono, wall: DateTime<Utc>, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Pods(watch) => self.pods_changed(watch),
            Event::Requests(watch) => self.requests_changed(now, watch),
            Event::NodeWorks(watch) => self.books_changed(watch),
            Event::Leader(leading) => self.lead(now, leading),
            Event::RequestWritten(key, outcome) => self.request_written(now, &key, outcome, &mut actions),
            Event::NodeWorkWritten(node, outcome) => self.book_written(now, &node, outcome),
            Event::Tick => {}
        }
        self.due_timers(now);
        if !self.leading {
            // Whoever begins to lead looks at everything.
            self.dirty_requests.clear();
            self.dirty_nodes.clear();
        } else if self.synced() {
            for key in std::mem::take(&mut self.dirty_requests) {
                self.plan_request(now, wall, &key, &mut actions);
            }
            for node in std::mem::take(&mut self.dirty_nodes) {
                self.plan_book(now, &node, &mut actions);
            }
        }
        actions
    }

    /// When to call [`Index::step`] with a tick though nothing happened.
    pub fn wake_at(&self) -> Option<Mono> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether every watch has delivered its first list.
    pub fn synced(&self) -> bool {
        self.pods.synced && self.requests.synced && self.books.synced
    }

    /// Requests that have not ended.
    pub fn open_requests(&self) -> usize {
        self.requests.objects.values().filter(|e| !e.request.get().completed()).count()
    }

    /// Orders in all books.
    pub fn open_orders(&self) -> usize {
        self.books.objects.values().filter_map(|b| b.work.as_ref()).map(|w| w.get().orders.len()).sum()
    }

    fn lead(&mut self, now: Mono, leading: bool) {
        self.leading = leading;
        // What was timed while another process led is timed anew.
        for entry in self.requests.objects.values_mut() {
            entry.memory = Memory::new(now);
            entry.write = Pacing::default();
        }
        self.all_dirty();
    }

    fn all_dirty(&mut self) {
        self.dirty_requests.extend(self.requests.objects.keys().cloned());
        self.dirty_nodes.extend(self.books.objects.keys().map(|k| k.name.clone()));
    }

    fn pods_changed(&mut self, watch: Watch<Pod>) {
        match watch {
            Watch::Upsert(pod) => {
                self.dirty_pod(&pod.key.clone());
                self.pods.objects.insert(pod.key.clone(), pod);
            }
            Watch::Gone(pod) => {
                self.dirty_pod(&pod.key);
                if self.pods.objects.get(&pod.key).is_some_and(|known| known.uid == pod.uid) {
                    self.pods.objects.remove(&pod.key);
                }
            }
            Watch::Restart(all) => {
                self.pods.objects = all.into_iter().map(|pod| (pod.key.clone(), pod)).collect();
                self.pods.synced = true;
                self.all_dirty();
            }
        }
    }

    fn dirty_pod(&mut self, pod: &ObjectKey) {
        self.dirty_requests.extend(self.by_pod.get(pod).into_iter().flatten().cloned());
    }

    fn requests_changed(&mut self, now: Mono, watch: Watch<Request>) {
        match watch {
            Watch::Upsert(request) => self.upsert_request(now, request, false),
            Watch::Gone(request) => {
                if self.requests.objects.get(&request.key).is_some_and(|e| e.request.get().uid == request.uid)
                {
                    self.forget_request(&request.key);
                }
            }
            Watch::Restart(all) => {
                let listed: BTreeSet<ObjectKey> = all.iter().map(|r| r.key.clone()).collect();
                let lost: Vec<ObjectKey> =
                    self.requests.objects.keys().filter(|k| !listed.contains(*k)).cloned().collect();
                for key in &lost {
                    self.forget_request(key);
                }
                for request in all {
                    self.upsert_request(now, request, true);
                }
                self.requests.synced = true;
                self.all_dirty();
            }
        }
    }

    fn upsert_request(&mut self, now: Mono, request: Request, listed: bool) {
        let key = request.key.clone();
        if self.requests.objects.get(&key).is_some_and(|e| e.request.get().uid != request.uid) {
            self.forget_request(&key);
        }
        self.by_pod.entry(request.pod_key()).or_default().insert(key.clone());
        match self.requests.objects.get_mut(&key) {
            Some(entry) if listed => entry.request.listed(request),
            Some(entry) => entry.request.observed(request),
            None => {
                let entry = Entry {
                    request: Tracked::new(request),
                    memory: Memory::new(now),
                    write: Pacing::default(),
                    orders: Vec::new(),
                };
                self.requests.objects.insert(key.clone(), entry);
            }
        }
        self.request_changed(&key);
    }

    /// Its own plan, and those of the other requests for its Pod, may be different now.
    fn request_changed(&mut self, key: &ObjectKey) {
        let Some(entry) = self.requests.objects.get(key) else { return };
        let request = entry.request.get();
        let pod = request.pod_key();
        if let Some(target) = &request.status.target {
            self.by_node.entry(target.node_name.clone()).or_default().insert(key.clone());
        }
        self.dirty_pod(&pod);
    }

    fn forget_request(&mut self, key: &ObjectKey) {
        let Some(entry) = self.requests.objects.remove(key) else { return };
        let request = entry.request.get();
        let pod = request.pod_key();
        remove(&mut self.by_pod, &pod, key);
        self.dirty_pod(&pod);
        if let Some(target) = &request.status.target {
            remove(&mut self.by_node, &target.node_name, key);
            self.dirty_nodes.insert(target.node_name.clone());
        }
    }

    fn books_changed(&mut self, watch: Watch<NodeWork>) {
        match watch {
            Watch::Upsert(work) => self.upsert_book(work, false),
            Watch::Gone(work) => {
                let node = work.node.clone();
                if let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", &node))
                    && book.work.as_ref().is_some_and(|w| w.get().uid == work.uid)
                {
                    book.work = None;
                }
                self.book_changed(&node);
            }
            Watch::Restart(all) => {
                let listed: BTreeSet<&str> = all.iter().map(|w| w.node.as_str()).collect();
                for (key, book) in &mut self.books.objects {
                    if !listed.contains(key.name.as_str()) {
                        book.work = None;
                    }
                }
                for work in all {
                    self.upsert_book(work, true);
                }
                self.books.synced = true;
                self.all_dirty();
            }
        }
    }

    fn upsert_book(&mut self, work: NodeWork, listed: bool) {
        let node = work.node.clone();
        let book = self.books.objects.entry(ObjectKey::new("", &node)).or_default();
        match &mut book.work {
            Some(known) if listed => known.listed(work),
            Some(known) => known.observed(work),
            None => book.work = Some(Tracked::new(work)),
        }
        self.book_changed(&node);
    }

    fn book_changed(&mut self, node: &str) {
        self.dirty_nodes.insert(node.to_owned());
        self.dirty_requests.extend(self.by_node.get(node).into_iter().flatten().cloned());
    }

    fn request_written(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        outcome: Outcome<Request>,
        actions: &mut Vec<Action>,
    ) {
        let Some(entry) = self.requests.objects.get_mut(key) else { return };
        let mut retry_at = None;
        match outcome {
            Outcome::Written(new) => {
                let old = entry.request.get().status.clone();
                if new.uid == entry.request.get().uid {
                    actions.extend(recreate::notes(&new, &old).into_iter().map(Action::Emit));
                }
                entry.request.written(new);
                entry.write.succeeded();
            }
            Outcome::Conflict => {
                entry.request.conflicted();
                retry_at = Some(now.after(self.config.conflict_patience));
                entry.write.conflict_at = retry_at;
            }
            Outcome::Gone => entry.request.conflicted(),
            Outcome::Retry => {
                entry.request.failed();
                entry.write.backoff.failed(now);
            }
            Outcome::Refused(_) => {
                entry.request.failed();
                entry.write.backoff.refused(now);
            }
        }
        if let Some(at) = retry_at {
            self.timers.insert((at, Timer::Request(key.clone())));
        }
        self.request_changed(key);
    }

    fn book_written(&mut self, now: Mono, node: &str, outcome: Outcome<NodeWork>) {
        let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", node)) else { return };
        let creating = std::mem::take(&mut book.creating);
        let mut retry_at = None;
        match outcome {
            Outcome::Written(work) => {
                match &mut book.work {
                    Some(known) => known.written(work),
                    None => book.work = Some(Tracked::new(work)),
                }
                book.write.succeeded();
            }
            Outcome::Conflict if !creating => {
                if let Some(work) = &mut book.work {
                    work.conflicted();
                }
                retry_at = Some(now.after(self.config.conflict_patience));
                book.write.conflict_at = retry_at;
            }
            Outcome::Gone => {
                if let Some(work) = &mut book.work {
                    work.conflicted();
                }
            }
            // A conflict of a create means that the book exists: the watch will show it.
            Outcome::Conflict | Outcome::Retry => {
                if let Some(work) = &mut book.work {
                    work.failed();
                }
                book.write.backoff.failed(now);
            }
            Outcome::Refused(_) => {
                if let Some(work) = &mut book.work {
                    work.failed();
                }
                book.write.backoff.refused(now);
            }
        }
        if let Some(at) = retry_at {
            self.timers.insert((at, Timer::Node(node.to_owned())));
        }
        self.book_changed(node);
    }

    fn due_timers(&mut self, now: Mono) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            match self.timers.pop_first() {
                Some((_, Timer::Request(key))) => {
                    if let Some(entry) = self.requests.objects.get_mut(&key)
                        && entry.write.conflict_at.is_some_and(|at| at <= now)
                    {
                        entry.request.retry();
                    }
                    self.dirty_requests.insert(key);
                }
                Some((_, Timer::Node(node))) => {
                    if let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", &node))
                        && book.write.conflict_at.is_some_and(|at| at <= now)
                        && let Some(work) = &mut book.work
                    {
                        work.retry();
                    }
                    self.dirty_nodes.insert(node);
                }
                None => {}
            }
        }
    }

    /// The request for the same Pod that goes before this one: one that has started, else the oldest.
    fn ahead(&self, request: &Request) -> Option<&ObjectKey> {
        let rank = |r: &Request| (!r.started(), r.created, r.key.clone());
        let own = rank(request);
        self.by_pod
            .get(&request.pod_key())
            .into_iter()
            .flatten()
            .filter_map(|key| self.requests.objects.get(key))
            .map(|entry| entry.request.get())
            .filter(|r| r.key != request.key && !r.completed() && !r.deleting && rank(r) < own)
            .min_by_key(|r| rank(r))
            .map(|r| &r.key)
    }

    fn plan_request(&mut self, now: Mono, wall: DateTime<Utc>, key: &ObjectKey, actions: &mut Vec<Action>) {
        let Some(mut entry) = self.requests.objects.remove(key) else { return };
        let request = entry.request.get();
        let book = request
            .status
            .target
            .as_ref()
            .and_then(|t| self.books.objects.get(&ObjectKey::new("", &t.node_name)))
            .and_then(|b| b.work.as_ref())
            .map(Tracked::get);
        let orders: Vec<OrderView<'_>> = book
            .iter()
            .flat_map(|b| b.orders.iter().map(|order| OrderView { order, answer: b.answer(&order.id) }))
            .filter(|o| pitstop_api::nodework::request_uid(&o.order.id) == request.uid)
            .collect();
        let pod_busy = book.is_some_and(|b| {
            b.orders
                .iter()
                .filter(|o| request.status.target.as_ref().is_some_and(|t| t.pod_uid == o.pod.uid))
                .any(|order| OrderView { order, answer: b.answer(&order.id) }.acting())
        });
        let unanswered = !pod_busy && orders.iter().any(|o| o.answer.is_none());
        let mut memory = entry.memory;
        memory.update(now, request.completed(), unanswered);
        let pod = self.pods.objects.get(&request.pod_key());
        let observed = Observed { request, pod, ahead: self.ahead(request), orders, memory: &memory };
        let plan = recreate::plan(now, wall, &self.config, &observed);
        entry.memory = memory;
        if entry.orders != plan.orders {
            entry.orders.clone_from(&plan.orders);
            if let Some(target) = &request.status.target {
                self.dirty_nodes.insert(target.node_name.clone());
            }
        }
        let mut wake = plan.wake_at;
        if entry.request.writable() {
            let hold = self.config.progress_after;
            match write_of(&plan, entry.request.get()) {
                None => entry.write.wanted_since = None,
                Some((action, urgency)) => match entry.write.due(now, urgency, hold) {
                    Ok(()) => {
                        entry.request.write_started();
                        actions.push(action);
                    }
                    Err(at) => wake = earliest(wake, Some(at)),
                },
            }
        }
        if let Some(at) = wake {
            self.timers.insert((at, Timer::Request(key.clone())));
        }
        self.requests.objects.insert(key.clone(), entry);
    }

    fn plan_book(&mut self, now: Mono, node: &str, actions: &mut Vec<Action>) {
        let key = ObjectKey::new("", node);
        let mut wanting: Vec<&Entry> = self
            .by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|key| self.requests.objects.get(key))
            .collect();
        wanting.sort_by_key(|e| (e.request.get().created, e.request.get().key.clone()));
        let wanted: Vec<Order> = wanting.iter().flat_map(|e| e.orders.iter().cloned()).collect();
        let book = self.books.objects.entry(key).or_default();
        if book.creating || book.work.as_ref().is_some_and(|w| !w.writable()) {
            return;
        }
        let Some(write) = nodework::plan(book.work.as_ref().map(Tracked::get), &wanted) else {
            book.write.wanted_since = None;
            return;
        };
        match book.write.due(now, write.urgency, self.config.tidy_after) {
            Ok(()) => {
                let resource_version = book.work.as_ref().map(|w| w.get().resource_version().to_owned());
                match &mut book.work {
                    Some(work) => work.write_started(),
                    None => book.creating = true,
                }
                let node = node.to_owned();
                actions.push(Action::WriteOrders { node, resource_version, orders: write.orders });
            }
            Err(at) => {
                self.timers.insert((at, Timer::Node(node.to_owned())));
            }
        }
    }
}

/// The one write of the request object that its plan needs next.
fn write_of(plan: &recreate::Plan, request: &Request) -> Option<(Action, Urgency)> {
    let (key, uid) = (request.key.clone(), request.uid.clone());
    let resource_version = request.resource_version.clone();
    if plan.delete {
        return Some((Action::DeleteRequest { key, uid }, Urgency::Now));
    }
    match &plan.status {
        Some(StatusWrite { status, urgency: Urgency::Now }) => {
            let status = Box::new(status.clone());
            Some((Action::WriteStatus { key, uid, resource_version, status }, Urgency::Now))
        }
        _ if !plan.labels.is_empty() => {
            let labels = plan.labels.clone();
            Some((Action::PatchLabels { key, uid, resource_version, labels }, Urgency::Now))
        }
        Some(StatusWrite { status, urgency }) => {
            let status = Box::new(status.clone());
            Some((Action::WriteStatus { key, uid, resource_version, status }, *urgency))
        }
        None => None,
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
