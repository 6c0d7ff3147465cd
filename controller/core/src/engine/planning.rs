//! Plans the next write of each object.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::nodework::{Order, request_uid};

use super::any::AnyStore;
use super::kept::{Book, PodEntry, PodPart};
use super::pods::Pods;
use super::room::Turn;
use super::store::{Entry, node_of, object};
use super::stores::Stored;
use super::turn::Surroundings;
use super::{Engine, Subject, pacing, remove};
use crate::action::{self, Action, Object};
use crate::change::{ImageChange, PodChange, Sizing};
use crate::key::ObjectKey;
use crate::kind::{BookView, Cx, PodWrites, Sight};
use crate::measure::Measure;
use crate::nodework::{self, BookWrite, views};
use crate::plan::{Plan, Read, StatusWrite, Urgency};
use crate::pod::Pod;
use crate::readiness;
use crate::time::{Mono, earliest};

/// By what factor answered orders stay longer in a book while many requests wait.
const TIDY_LATER: u32 = 10;

impl Engine {
    pub(super) fn plan_request<K: Stored>(
        &mut self,
        now: Mono,
        wall: DateTime<Utc>,
        key: &ObjectKey,
        actions: &mut Vec<Action>,
    ) {
        // The entry leaves the map, but stays in its queue.
        let Some(mut entry) = K::store_mut(&mut self.stores).objects.remove(key) else {
            return self.plan_rest::<K>(now, key, actions);
        };
        self.planned = self.planned.saturating_add(1);
        self.pods.wake(&entry.request.get().pod_key());
        let disturbs = |e: &Entry<K>, pods: &Pods| {
            let pod = pods.get(&e.request.get().pod_key());
            e.disturbs(pod.map(|known| known.pod.get())).is_some()
        };
        let disturbed = disturbs(&entry, &self.pods);
        let mut plan = self.decided(now, wall, &mut entry, actions);
        self.want_orders(&mut entry, plan.orders.clone(), plan.closed.clone());
        self.want_change(&mut entry, plan.images.clone(), plan.sizing.clone());
        let possible = plan.possible;
        let mut idle = plan.read.is_none() && plan.deed.is_none();
        let subject = subject::<K>(key);
        let node = self.pods.get(&entry.request.get().pod_key()).and_then(|e| e.pod.get().node.clone());
        let line @ (_, turn) = (&subject, turn(&entry, key, node.as_deref()));
        let groups = std::mem::take(&mut plan.groups);
        let begun_at = self.begin_reading(now, &mut entry, &plan, line, actions);
        let deeds_at = self.begin_deeds((now, wall), &mut entry, &mut plan, line, actions);
        let begun_at = earliest(begun_at, deeds_at);
        if entry.write.patience_over(now) {
            entry.request.retry();
        }
        let wake_at = earliest(plan.wake_at, begun_at);
        let wait = self.write_object(now, &mut entry, plan, line, actions);
        idle &= wait.is_none() && !entry.request.in_flight() && entry.may_rest();
        idle &= !self.room.waits(&subject, turn);
        self.timers.set(subject, earliest(wake_at, wait));
        let pod = entry.request.get().pod_key();
        if disturbed != disturbs(&entry, &self.pods) {
            let others = self.stores.each_mut().filter(|store| store.about().id != K::ABOUT.id);
            others.for_each(|store| store.pod_changed(&pod));
        }
        let store = K::store_mut(&mut self.stores);
        if possible && entry.possible() {
            store.pod_changed(&pod);
        }
        store.insert(key, entry);
        self.look_after::<K>(key, &groups);
        if idle {
            K::store_mut(&mut self.stores).rest(key, now);
            self.plan_rest::<K>(now, key, actions);
        }
        if !self.stores.each().any(|store| store.has_queue(&pod)) {
            self.pods.pack(&pod);
        }
    }

    /// What the request needs, and measurements to count.
    fn decide<K: Stored>(
        &self,
        now: Mono,
        wall: DateTime<Utc>,
        entry: &mut Entry<K>,
    ) -> (Plan<K::Status>, Vec<Measure>) {
        let request = entry.request.get();
        let known = self.pods.get(&request.pod_key());
        let pod = known.map(|e| e.pod.get());
        if pod.is_some_and(|pod| request.pod_uid().is_none_or(|uid| uid == pod.uid)) {
            entry.pod_check.seen();
        }
        let book = node_of(request).and_then(|node| self.books.objects.get(&ObjectKey::new("", node)));
        let work = book.and_then(Book::known);
        entry.ordered = views(work).any(|view| request_uid(&view.order.id) == request.uid());
        let survey = self.last_survey(&request.pod_key(), entry.admission.since);
        let lookup =
            Surroundings { engine: self, request, surveyed: survey.is_some_and(|last| last.result.is_ok()) };
        let (images_open, resources_open) =
            known.map_or((false, false), |e| (e.pinning.is_some(), e.sizing.is_some()));
        let child = request.child();
        let made_pod = K::made_pod(request.meta().key, request.uid());
        let made_pod = made_pod.and_then(|key| self.pods.read(&key));
        let sight = Sight {
            request,
            pod,
            book: book.map(|book| BookView {
                work,
                acting: &book.acting,
                missing: book.missing,
                placing: book.placing.contains(request.uid()),
            }),
            wants_orders: !entry.orders.is_empty(),
            guarded: self.guarded,
            ahead: self.ahead(now, entry, pod),
            owner_over: self.owner_over(request),
            child: child.as_ref().and_then(|(kind, key)| self.stores.of(*kind)?.relative(key)),
            made_pod: made_pod.as_deref(),
            writes: PodWrites {
                images: if images_open { &entry.images } else { &[] },
                images_now: images_open && known.is_some_and(|e| e.pod.in_flight()),
                // A dry run has no effect that could be unknown: an open write is another request's.
                resources: entry.sizing.as_ref().filter(|own| !own.dry_run && resources_open),
                resources_open,
            },
            deed: entry.deeds.open(),
            doing: entry.deeds.doing(),
            pod_check: &entry.pod_check,
            survey,
            reinstated: entry.admission.reinstated.as_ref(),
            lookup: &lookup,
        };
        K::decide(Cx { now, wall, config: &self.config }, sight, &mut entry.memory)
    }

    /// The same, without what must wait until this process has written the request once. Counts the measurements.
    pub(super) fn decided<K: Stored>(
        &mut self,
        now: Mono,
        wall: DateTime<Utc>,
        entry: &mut Entry<K>,
        actions: &mut Vec<Action>,
    ) -> Plan<K::Status> {
        let (mut plan, measures) = self.decide(now, wall, entry);
        self.confirm_first(entry, &mut plan);
        actions.extend(measures.into_iter().map(Action::Count));
        plan
    }

    /// Begins the read that the plan wants. Returns when to look again.
    fn begin_reading<K: Stored>(
        &mut self,
        now: Mono,
        entry: &mut Entry<K>,
        plan: &Plan<K::Status>,
        line @ (subject, turn): (&Subject, Turn<'_>),
        actions: &mut Vec<Action>,
    ) -> Option<Mono> {
        let object = object(entry.request.get());
        match plan.read {
            Some(Read::Pod) if self.room.start(now, subject, turn) => {
                entry.pod_check.begin();
                actions.push(Action::ReadPod { object, pod: entry.request.get().pod_key() });
            }
            Some(Read::Bounds) => {
                let pod = entry.request.get().pod_key();
                match self.survey(now, object, &pod, entry.admission.since, line) {
                    Ok(reading) => actions.extend(reading),
                    Err(later) => return Some(later),
                }
            }
            Some(Read::Pod) | None => {}
        }
        None
    }

    /// Starts the next write of the object, or returns when to look again.
    fn write_object<K: Stored>(
        &mut self,
        now: Mono,
        entry: &mut Entry<K>,
        plan: Plan<K::Status>,
        (subject, turn): (&Subject, Turn<'_>),
        actions: &mut Vec<Action>,
    ) -> Option<Mono> {
        if !entry.request.writable() {
            return entry.write.retry_at();
        }
        let Some(write) = write_of(plan, entry.request.get()) else {
            entry.write.satisfied();
            return None;
        };
        if let Err(at) = entry.write.due(now, write.urgency, self.progress_hold(entry)) {
            return Some(at);
        }
        if !self.room.start(now, subject, turn) {
            return None;
        }
        entry.request.write_started();
        if let Some(status) = &write.status {
            let before = entry.request.get().status().clone();
            let course = K::course(status);
            if K::course(&before).target.is_none() && course.target.is_some() {
                entry.begin(now);
            }
            // Once an end is sent, nothing begins unless a later write shows that it was not stored.
            entry.confirmed &= course.ended.is_none();
            entry.replaces = Some(Box::new(before));
        }
        actions.push(Action::Write { object: object(entry.request.get()), write: write.write });
        None
    }

    /// Lets an ended request rest while lists are still arriving: most listed requests may have ended, and a new leader
    /// need not keep them whole. Of the lists, only the books concern it. Returns whether it rests.
    pub(super) fn rest_early<K: Stored>(&mut self, now: Mono, wall: DateTime<Utc>, key: &ObjectKey) -> bool {
        if self.synced() || !self.books.synced {
            return false;
        }
        let ended = |entry: &Entry<K>| entry.request.get().completed();
        let objects = &mut K::store_mut(&mut self.stores).objects;
        let Some(mut entry) = objects.get(key).is_some_and(ended).then(|| objects.remove(key)).flatten()
        else {
            return false;
        };
        let (plan, measures) = self.decide(now, wall, &mut entry);
        let through = measures.is_empty() && plan.is_nothing() && entry.may_rest();
        if through {
            self.want_orders(&mut entry, plan.orders, plan.closed);
        }
        let store = K::store_mut(&mut self.stores);
        store.insert(key, entry);
        if through {
            store.rest(key, now);
            let expiry = store.resting.get(key).and_then(|rest| rest.expiry);
            self.timers.set(subject::<K>(key), expiry);
        }
        through
    }

    /// Deletes a resting request when its time to live is over.
    fn plan_rest<K: Stored>(&mut self, now: Mono, key: &ObjectKey, actions: &mut Vec<Action>) {
        let Some(rest) = K::store(&self.stores).resting.get(key) else { return };
        let at = rest.expiry.max(rest.deletes.waits_until(now)).filter(|_| rest.expiry.is_some());
        let turn = Turn::New(&key.namespace, None);
        if at.is_some_and(|at| at <= now) && self.room.start(now, &subject::<K>(key), turn) {
            let object = Object { kind: K::ABOUT.id, key: key.clone(), uid: rest.uid.clone() };
            actions.push(Action::Write { object, write: action::Write::Delete });
        }
        let (uid, at) = (rest.uid.clone(), at.filter(|at| *at > now));
        let swept = self.sweep::<K>(now, key, uid, actions);
        self.timers.set(subject::<K>(key), earliest(at, swept));
    }

    /// Holds back what has not begun until this process has written the request once as leader.
    ///
    /// An end that the previous leader sent may be stored after the lists that this one decides on. So this leader
    /// writes the known status at the known version, which fails if a newer version exists.
    fn confirm_first<K: Stored>(&self, entry: &Entry<K>, plan: &mut Plan<K::Status>) {
        let request = entry.request.get();
        let Some(node) = node_of(request).filter(|_| !entry.confirmed) else { return };
        let book = self.books.objects.get(&ObjectKey::new("", node)).and_then(Book::known);
        let in_book = |order: &Order| views(book).any(|view| view.order.id == order.id);
        if plan.images.is_empty()
            && plan.sizing.is_none()
            && plan.deed.is_none()
            && plan.orders.iter().all(in_book)
        {
            return;
        }
        plan.images.clear();
        (plan.sizing, plan.deed) = (None, None);
        if !plan.orders.iter().all(in_book) {
            // An order in the book is removed only together with the write of its replacement.
            let own = views(book).filter(|view| request_uid(&view.order.id) == request.uid());
            plan.orders = own.map(|view| view.order.clone()).collect();
        }
        let status = plan.status.take().map_or_else(|| request.status().clone(), |write| write.status);
        plan.status = Some(StatusWrite { status, urgency: Urgency::Now });
    }

    /// How long a wait of the request lasts before its status reports it.
    fn progress_hold<K: Stored>(&self, entry: &Entry<K>) -> Duration {
        let store = K::store(&self.stores);
        let pod = entry.request.get().pod_key();
        let open = match node_of(entry.request.get()) {
            Some(node) => store.of_node(node).filter(|e| !e.request.get().completed()).count(),
            None => store.queues.len(&pod).max(store.bound.beyond(&pod.namespace)),
        };
        pacing::hold(&self.config, open)
    }

    fn want_orders<K: Stored>(&mut self, entry: &mut Entry<K>, orders: Vec<Order>, closed: Vec<String>) {
        let request = entry.request.get();
        let Some(node) = node_of(request) else {
            entry.orders.clear();
            return;
        };
        let key = request.meta().key;
        let by_node = &mut K::store_mut(&mut self.stores).by_node;
        if request.completed() && orders.is_empty() && !entry.ordered && request.claim().is_none() {
            remove(by_node, &node.to_owned(), key);
        } else {
            by_node.entry(node.to_owned()).or_default().insert(key.clone());
        }
        if entry.orders != orders || entry.closed != closed {
            self.dirty_nodes.insert(node.to_owned());
            (entry.orders, entry.closed) = (orders, closed);
        }
    }

    fn want_change<K: Stored>(
        &mut self,
        entry: &mut Entry<K>,
        images: Vec<ImageChange>,
        sizing: Option<Sizing>,
    ) {
        if entry.images != images || entry.sizing != sizing {
            (entry.images, entry.sizing) = (images, sizing);
            self.dirty_pods.insert(entry.request.get().pod_key());
        }
    }

    pub(super) fn plan_pod(&mut self, now: Mono, key: &ObjectKey, actions: &mut Vec<Action>) {
        let Some(mut entry) = self.pods.remove(key) else { return };
        let wait = self.write_pod(now, &mut entry, actions);
        self.timers.set(Subject::Pod(key.clone()), wait);
        self.pods.insert(key, entry);
        if wait.is_none() && !self.stores.each().any(|store| store.has_queue(key)) {
            self.pods.pack(key);
        }
    }

    /// Starts the next write of the Pod, or returns when to look again.
    fn write_pod(&mut self, now: Mono, entry: &mut PodEntry, actions: &mut Vec<Action>) -> Option<Mono> {
        if entry.write.patience_over(now) {
            entry.pod.retry();
        }
        if !entry.pod.writable() {
            return entry.write.retry_at();
        }
        let pod = entry.pod.get();
        let Some((change, part)) = self.change_of(pod) else {
            entry.write.satisfied();
            return None;
        };
        if let Err(at) = entry.write.due(now, Urgency::Now, Duration::ZERO) {
            return Some(at);
        }
        if !self.room.start(now, &Subject::Pod(pod.key.clone()), Turn::Begun(&pod.key.namespace)) {
            return None;
        }
        let (key, uid, resource_version) = (pod.key.clone(), pod.uid.clone(), pod.resource_version.clone());
        entry.write_started(&change, part);
        actions.push(Action::PatchPod { key, uid, resource_version, change });
        None
    }

    /// The next change that a Pod needs: first its gates, which keep it out of service or bring it back.
    fn change_of(&self, pod: &Pod) -> Option<(PodChange, PodPart)> {
        if pod.gone() {
            return None;
        }
        let all = || self.stores.each();
        if !pod.gates.is_empty() {
            let holds = all().flat_map(|store| store.gates(pod)).collect();
            let gates = readiness::plan(&pod.gates, &holds);
            if !gates.is_empty() {
                return Some((PodChange::Gates(gates), PodPart::Gates));
            }
        }
        // A strategic merge patch brings the containers that it names into its own order, and a Pod's order cannot change.
        let position = |name: &str| pod.containers.iter().position(|c| c.name == *name);
        let mut images: Vec<ImageChange> = all().flat_map(|store| store.images(pod)).collect();
        images.sort_by_key(|image| position(&image.container));
        if !images.is_empty() {
            return Some((PodChange::Images(images), PodPart::Images));
        }
        let (by, mut sizing) = all().find_map(|store| store.sizing(pod))?;
        sizing.containers.sort_by_key(|change| position(&change.container));
        Some((PodChange::Resources(sizing), PodPart::Resources(by)))
    }

    pub(super) fn plan_book(&mut self, now: Mono, node: &str, actions: &mut Vec<Action>) {
        let mut wanting: Vec<_> = self.stores.each().flat_map(|store| store.wanted_at(node)).collect();
        wanting.sort_by_key(|wants| wants.rank);
        let closed: Vec<String> = wanting.iter().flat_map(|wants| wants.closed).cloned().collect();
        let mut wanted: Vec<Order> = wanting.iter().flat_map(|wants| wants.orders).cloned().collect();
        let held = self.holding(now, node, actions);
        wanted.extend(held.orders);
        let book = self.books.objects.entry(ObjectKey::new("", node)).or_default();
        if book.write.patience_over(now)
            && let Some(work) = &mut book.work
        {
            work.retry();
        }
        // While many requests wait, more orders will come for the node; their write also removes the answered ones.
        let tidy_after =
            self.config.tidy_after.saturating_mul(if self.room.crowded() { TIDY_LATER } else { 1 });
        let mut placed = None;
        let wait = if book.writable() {
            match nodework::plan(book.known(), &wanted, &closed).or_else(|| book.probe()) {
                None => {
                    book.write.satisfied();
                    placed = Some(ids(book.known().map_or(&[], |work| &work.orders)));
                    None
                }
                Some(write) => match book.write.due(now, write.urgency, tidy_after) {
                    Ok(()) if let Some(at) = book.gathers(now, &self.room, node, &write) => Some(at),
                    Ok(()) if !self.room.start(now, &Subject::Node(node.to_owned()), Turn::Book) => None,
                    Ok(()) => {
                        placed = Some(ids(&write.orders));
                        let adopt = book.known().is_some_and(|work| work.orphan);
                        let basis =
                            book.write_started(&BookWrite { adds: write.adds && !adopt, ..write.clone() });
                        let (node, BookWrite { orders, closed, .. }) = (node.to_owned(), write);
                        actions.push(Action::WriteOrders { node, basis, orders, closed, adopt });
                        None
                    }
                    Err(at) => Some(at),
                },
            }
        } else {
            book.write.retry_at()
        };
        self.timers.set(Subject::Node(node.to_owned()), earliest(wait, held.wake_at));
        if let Some(placed) = placed {
            self.note_placed(now, node, &placed);
        }
    }

    /// Notes which requests have orders without a place. `placed`: IDs of the orders with one.
    fn note_placed(&mut self, now: Mono, node: &str, placed: &BTreeSet<String>) {
        let timers = &mut self.timers;
        for store in self.stores.each_mut() {
            let kind = store.about().id;
            for key in store.note_placed(now, node, placed) {
                // The request reports it, makes room, or may do without the daemon.
                timers.set(Subject::Object(kind, key), Some(now));
            }
        }
    }
}

/// The request as a subject to plan.
fn subject<K: Stored>(key: &ObjectKey) -> Subject {
    Subject::Object(K::ABOUT.id, key.clone())
}

/// Which turn the request takes: new while it waits, then begun.
fn turn<'a, K: Stored>(entry: &Entry<K>, key: &'a ObjectKey, node: Option<&'a str>) -> Turn<'a> {
    if entry.waits() { Turn::New(&key.namespace, node) } else { Turn::Begun(&key.namespace) }
}

/// IDs of the orders.
fn ids(orders: &[Order]) -> BTreeSet<String> {
    orders.iter().map(|order| order.id.clone()).collect()
}

/// The next write of a request object.
struct NextWrite<S> {
    write: action::Write,
    urgency: Urgency,
    /// The status that it stores.
    status: Option<S>,
}

/// The next write of the request object that its plan needs.
fn write_of<K: Stored>(plan: Plan<K::Status>, request: &K) -> Option<NextWrite<K::Status>> {
    let now = |write| Some(NextWrite { write, urgency: Urgency::Now, status: None });
    if plan.delete {
        return now(action::Write::Delete);
    }
    let resource_version = request.resource_version().to_owned();
    let Plan { labels, annotations, .. } = plan;
    let metadata = !(labels.is_empty() && annotations.is_empty());
    match plan.status {
        Some(StatusWrite { urgency: Urgency::Later, .. }) | None if metadata => {
            now(action::Write::Metadata { resource_version, labels, annotations })
        }
        Some(StatusWrite { status, urgency }) => {
            let write = action::Write::Status { resource_version, status: K::wrap(status.clone()) };
            Some(NextWrite { write, urgency, status: Some(status) })
        }
        None => None,
    }
}
