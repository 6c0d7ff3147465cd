//! From what is known to the next write of each object.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::nodework::{Order, request_uid};

use super::asked::{Asked, Entry, UserRequest};
use super::kinds::{Book, PodEntry, Wrote};
use super::queue::Standing;
use super::turn::LATER;
use super::{Index, Timer, deeds, pacing, remove};
use crate::action::{Action, ImageChange, PodChange, Sizing};
use crate::key::ObjectKey;
use crate::nodework::{self, BookWrite, views};
use crate::plan::{Plan, Read, StatusWrite, Urgency};
use crate::pod::{ContainerState, Pod};
use crate::readiness;
use crate::time::{Mono, earliest};
use crate::tracked::Versioned as _;

impl Index {
    pub(super) fn plan_request<R: UserRequest>(
        &mut self,
        now: Mono,
        wall: DateTime<Utc>,
        key: &ObjectKey,
        actions: &mut Vec<Action>,
    ) {
        // Out of the map, and still where it stands in its queue.
        let Some(mut entry) = R::asked_mut(self).objects.remove(key) else {
            return self.plan_rest::<R>(now, key, actions);
        };
        let was_busy = R::busy(&entry);
        self.planned = self.planned.saturating_add(1);
        let known = self.pods.objects.get(&entry.request.get().pod_key()).map(|e| e.pod.get());
        if known.is_some_and(|pod| entry.request.get().pod_uid().is_none_or(|uid| uid == pod.uid)) {
            entry.look.seen();
        }
        let (mut plan, measures) = R::decide(self, now, wall, &mut entry);
        self.confirm_first(&entry, &mut plan);
        actions.extend(measures.into_iter().map(Action::Count));
        self.want_orders(&mut entry, plan.orders.clone(), plan.closed.clone());
        self.want_change(&mut entry, plan.images.clone(), plan.sizing.clone());
        if plan.read == Some(Read::Pod) {
            entry.look.begin();
            let request = entry.request.get();
            let (key, uid) = (request.key().clone(), request.uid().to_owned());
            actions.push(Action::ReadPod { kind: R::KIND, key, uid, pod: request.pod_key() });
        }
        let possible = plan.possible;
        let mut idle = plan.read.is_none() && plan.deed.is_none();
        let deed_at = deeds::begin(now, &mut entry, plan.deed.take(), actions);
        if entry.write.patience_over(now) {
            entry.request.retry();
        }
        let mut wake_at = plan.wake_at;
        if plan.read == Some(Read::Bounds) {
            match R::survey(self, now, &mut entry) {
                Ok(reading) => actions.extend(reading),
                Err(at) => wake_at = earliest(wake_at, Some(at)),
            }
        }
        let wait = if entry.request.writable() {
            match write_of(plan, entry.request.get()) {
                None => {
                    entry.write.satisfied();
                    None
                }
                Some(write) => match entry.write.due(now, write.urgency, self.progress_hold(&entry)) {
                    Ok(()) => {
                        idle = false;
                        entry.request.write_started();
                        if let Some(status) = &write.status {
                            let before = entry.request.get().status();
                            if !R::accepted(before) && R::accepted(status) {
                                entry.turn.begin(now);
                            }
                            // Nothing begins any more unless a later write shows that the end was not stored.
                            entry.confirmed &= !R::over(status);
                            entry.replaces = Some(Box::new(before.clone()));
                        }
                        actions.push(write.action);
                        None
                    }
                    Err(at) => Some(at),
                },
            }
        } else {
            entry.write.retry_at()
        };
        idle &= wait.is_none() && entry.may_rest();
        self.timers.set(R::timer(key.clone()), earliest(wake_at, earliest(deed_at, wait)));
        let pod = entry.request.get().pod_key();
        if was_busy != R::busy(&entry) {
            self.requests.pod_changed(&pod);
        }
        if possible && entry.turn.possible() {
            R::asked_mut(self).pod_changed(&pod);
        }
        R::asked_mut(self).insert(key, entry);
        if idle {
            R::asked_mut(self).rest(key, now);
            self.plan_rest::<R>(now, key, actions);
        }
    }

    /// Deletes a request that is over and through, in time.
    fn plan_rest<R: UserRequest>(&mut self, now: Mono, key: &ObjectKey, actions: &mut Vec<Action>) {
        let Some(rest) = R::asked(self).resting.get(key) else { return };
        let at = rest.expiry.max(rest.deletes.waits_until(now)).filter(|_| rest.expiry.is_some());
        if at.is_some_and(|at| at <= now) {
            actions.push(R::delete(key, &rest.uid));
        }
        self.timers.set(R::timer(key.clone()), at.filter(|at| *at > now));
    }

    /// Holds back what is not begun yet until this process has written the request once since it leads.
    ///
    /// An end that the leader before it sent may arrive after the lists that this one decides on. The status is written as
    /// it is, at the version that is known: it fails where there is a newer one.
    fn confirm_first<R: UserRequest>(&self, entry: &Entry<R>, plan: &mut Plan<R::Status>) {
        let request = entry.request.get();
        let Some(node) = request.node().filter(|_| !entry.confirmed) else { return };
        let book = self.books.objects.get(&ObjectKey::new("", node)).and_then(Book::known);
        let stands = |order: &Order| views(book).any(|view| view.order.id == order.id);
        if plan.images.is_empty()
            && plan.sizing.is_none()
            && plan.deed.is_none()
            && plan.orders.iter().all(stands)
        {
            return;
        }
        plan.images.clear();
        (plan.sizing, plan.deed) = (None, None);
        if !plan.orders.iter().all(stands) {
            // What stands goes only together with what takes its place.
            let own = views(book).filter(|view| request_uid(&view.order.id) == request.uid());
            plan.orders = own.map(|view| view.order.clone()).collect();
        }
        let status = plan.status.take().map_or_else(|| request.status().clone(), |write| write.status);
        plan.status = Some(StatusWrite { status, urgency: Urgency::Now });
    }

    /// How long a wait of the request lasts before it is written down.
    fn progress_hold<R: UserRequest>(&self, entry: &Entry<R>) -> Duration {
        let node = entry.request.get().node();
        let open = node
            .map_or(0, |node| R::asked(self).of_node(node).filter(|e| !e.request.get().completed()).count());
        pacing::hold(self.config.progress_after, self.config.progress_spacing, open)
    }

    fn want_orders<R: UserRequest>(&mut self, entry: &mut Entry<R>, orders: Vec<Order>, closed: Vec<String>) {
        let request = entry.request.get();
        let Some(node) = request.node() else {
            entry.orders.clear();
            return;
        };
        let by_node = &mut R::asked_mut(self).by_node;
        if request.completed() && orders.is_empty() && !entry.ordered && !request.lasts() {
            remove(by_node, &node.to_owned(), request.key());
        } else {
            by_node.entry(node.to_owned()).or_default().insert(request.key().clone());
        }
        if entry.orders != orders || entry.closed != closed {
            self.dirty_nodes.insert(node.to_owned());
            (entry.orders, entry.closed) = (orders, closed);
        }
    }

    fn want_change<R: UserRequest>(
        &mut self,
        entry: &mut Entry<R>,
        images: Vec<ImageChange>,
        sizing: Option<Sizing>,
    ) {
        if entry.images != images || entry.sizing != sizing {
            (entry.images, entry.sizing) = (images, sizing);
            self.dirty_pods.insert(entry.request.get().pod_key());
        }
    }

    pub(super) fn plan_pod(&mut self, now: Mono, key: &ObjectKey, actions: &mut Vec<Action>) {
        let Some(mut entry) = self.pods.objects.remove(key) else { return };
        let wait = self.write_pod(now, &mut entry, actions);
        self.timers.set(Timer::Pod(key.clone()), wait);
        self.pods.objects.insert(key.clone(), entry);
    }

    /// Starts the one write that the Pod needs next; else gives back when to look again.
    fn write_pod(&self, now: Mono, entry: &mut PodEntry, actions: &mut Vec<Action>) -> Option<Mono> {
        if entry.write.patience_over(now) {
            entry.pod.retry();
        }
        if !entry.pod.writable() {
            return entry.write.retry_at();
        }
        let pod = entry.pod.get();
        let Some((change, wrote)) = self.change_of(pod) else {
            entry.write.satisfied();
            return None;
        };
        if let Err(at) = entry.write.due(now, Urgency::Now, Duration::ZERO) {
            return Some(at);
        }
        let (key, uid, resource_version) = (pod.key.clone(), pod.uid.clone(), pod.resource_version.clone());
        entry.write_started(&change, wrote);
        actions.push(Action::PatchPod { key, uid, resource_version, change });
        None
    }

    /// The one change that a Pod needs next: first what keeps it out of service or brings it back.
    fn change_of(&self, pod: &Pod) -> Option<(PodChange, Wrote)> {
        if pod.gone() {
            return None;
        }
        let requests =
            || self.requests.of(&pod.key, Standing::Begun).filter(|e| e.request.get().started_for(pod));
        if !pod.gates.is_empty() {
            let holds = requests().filter_map(|e| e.request.get().hold()).collect();
            let gates = readiness::plan(&pod.gates, &holds);
            if !gates.is_empty() {
                return Some((PodChange::Gates(gates), Wrote::Gates));
            }
        }
        let mut images: Vec<ImageChange> = requests().flat_map(|e| e.images.iter().cloned()).collect();
        // A strategic merge patch brings the containers that it names into its own order, and a Pod's order cannot change.
        images.sort_by_key(|image| pod.containers.iter().position(|c| c.name == image.container));
        if !images.is_empty() {
            return Some((PodChange::Images(images), Wrote::Images));
        }
        let of = |standing| self.resizes.of(&pod.key, standing);
        let asked =
            of(Standing::Begun).chain(of(Standing::Asks)).filter(|e| e.request.get().started_for(pod));
        // Of those that wait some try whether they would be possible.
        let mut resizes = asked.chain(of(Standing::Waits).rev().take(LATER));
        let wanted = |sizing: &Sizing| !sizing.containers.is_empty();
        let (resize, mut sizing) =
            resizes.find_map(|e| Some((e.request.get().key.clone(), e.sizing.clone().filter(wanted)?)))?;
        sizing
            .containers
            .sort_by_key(|change| pod.containers.iter().position(|c| c.name == change.container));
        Some((PodChange::Resources(sizing), Wrote::Resources(resize)))
    }

    pub(super) fn plan_book(&mut self, now: Mono, node: &str, actions: &mut Vec<Action>) {
        let mut wanting = Vec::new();
        wanted_at(&self.requests, node, &mut wanting);
        wanted_at(&self.resizes, node, &mut wanting);
        wanting.sort_by_key(|(rank, _)| *rank);
        let closed: Vec<String> = wanting.iter().flat_map(|(_, wants)| wants.closed).cloned().collect();
        let mut wanted: Vec<Order> = wanting.iter().flat_map(|(_, wants)| wants.orders).cloned().collect();
        let held = self.holding(now, node, actions);
        wanted.extend(held.orders);
        let book = self.books.objects.entry(ObjectKey::new("", node)).or_default();
        if book.write.patience_over(now)
            && let Some(work) = &mut book.work
        {
            work.retry();
        }
        let mut placed = None;
        let wait = if book.writable() {
            match nodework::plan(book.known(), &wanted, &closed).or_else(|| book.probe()) {
                None => {
                    book.write.satisfied();
                    placed = Some(ids(book.known().map_or(&[], |work| &work.orders)));
                    None
                }
                Some(write) => match book.write.due(now, write.urgency, self.config.tidy_after) {
                    Ok(()) => {
                        placed = Some(ids(&write.orders));
                        let resource_version = book.known().map(|w| w.resource_version().to_owned());
                        book.write_started(&write.orders);
                        let (node, BookWrite { orders, closed, .. }) = (node.to_owned(), write);
                        let adopt = book.known().is_some_and(|work| work.orphan);
                        actions.push(Action::WriteOrders { node, resource_version, orders, closed, adopt });
                        None
                    }
                    Err(at) => Some(at),
                },
            }
        } else {
            book.write.retry_at()
        };
        self.timers.set(Timer::Node(node.to_owned()), earliest(wait, held.wake_at));
        if let Some(placed) = placed {
            self.places(now, node, &placed);
        }
    }

    /// Notes which requests have orders without a place; `placed`: the IDs of those that have one.
    fn places(&mut self, now: Mono, node: &str, placed: &BTreeSet<String>) {
        for key in self.requests.by_node.get(node).into_iter().flatten() {
            // One that goes through the kubelet instead wants no order before that is stored.
            let entry = self.requests.objects.get_mut(key).filter(|e| !e.orders.is_empty());
            let Some(entry) = entry else { continue };
            let of = entry.orders.iter().filter(|order| placed.contains(&order.id)).count();
            if entry.memory.placed(now, of == entry.orders.len(), of == 0) {
                // It tells so, makes room, or may do without.
                self.timers.set(Timer::Request(key.clone()), Some(now));
            }
        }
    }
}

/// Their IDs.
fn ids(orders: &[Order]) -> BTreeSet<String> {
    orders.iter().map(|order| order.id.clone()).collect()
}

/// As far as the Pod's status tells, the daemon still has that container to stop.
pub(super) fn may_run(order: &Order, pod: Option<&Pod>) -> bool {
    let status = pod
        .filter(|p| p.uid == order.pod.uid)
        .and_then(|p| p.container(&order.container.name))
        .and_then(|c| c.status.as_ref());
    status
        .is_some_and(|s| s.state == ContainerState::Running && s.container_id.ends_with(&order.container.id))
}

/// A write of a request object.
struct Write<S> {
    action: Action,
    urgency: Urgency,
    /// The status that it stores.
    status: Option<S>,
}

/// The one write of the request object that its plan needs next.
fn write_of<R: UserRequest>(plan: Plan<R::Status>, request: &R) -> Option<Write<R::Status>> {
    if plan.delete {
        let action = R::delete(request.key(), request.uid());
        return Some(Write { action, urgency: Urgency::Now, status: None });
    }
    let metadata = request.patch_metadata(&plan);
    match (plan.status, metadata) {
        (Some(StatusWrite { urgency: Urgency::Later, .. }) | None, Some(action)) => {
            Some(Write { action, urgency: Urgency::Now, status: None })
        }
        (Some(StatusWrite { status, urgency }), _) => {
            let action = request.write_status(status.clone());
            Some(Write { action, urgency, status: Some(status) })
        }
        (None, None) => None,
    }
}

/// By what requests go one after another: the oldest first.
type Rank<'a> = (i64, &'a ObjectKey);

/// What one request wants in its node's book.
struct Wants<'a> {
    orders: &'a [Order],
    closed: &'a [String],
}

/// What the requests of a kind want in a node's book.
fn wanted_at<'a, R: UserRequest>(
    asked: &'a Asked<R>,
    node: &'a str,
    wanting: &mut Vec<(Rank<'a>, Wants<'a>)>,
) {
    wanting.extend(asked.of_node(node).map(|e| {
        let request = e.request.get();
        ((request.created(), request.key()), Wants { orders: &e.orders, closed: &e.closed })
    }));
}
