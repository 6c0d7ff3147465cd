//! From what is known to the next write of each object.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::nodework::{Order, request_uid};

use super::kinds::{Book, Entry, PodEntry};
use super::{Index, Timer, pacing, remove};
use crate::action::{Action, ImageChange, PodChange};
use crate::key::ObjectKey;
use crate::measure::Measure;
use crate::nodework::{self, NodeWork};
use crate::pod::{ContainerState, Pod};
use crate::readiness;
use crate::recreate::{self, Observed, OrderView, Request, StatusWrite, Urgency};
use crate::time::{Mono, earliest};
use crate::tracked::Versioned as _;

impl Index {
    /// The request for the same Pod that goes before this one: one that has started, else the oldest.
    fn ahead(&self, own: &Entry) -> Option<&ObjectKey> {
        let rank = |e: &Entry| {
            let request = e.request.get();
            (!(request.started() || e.chosen), request.created, request.key.clone())
        };
        let own_rank = rank(own);
        self.by_pod
            .get(&own.request.get().pod_key())
            .into_iter()
            .flatten()
            .filter_map(|key| self.requests.objects.get(key))
            .filter(|e| {
                let request = e.request.get();
                request.key != own.request.get().key && !request.completed() && !request.deleting
            })
            .map(|e| (rank(e), e))
            .filter(|(rank, _)| *rank < own_rank)
            .min_by(|(a, _), (b, _)| a.cmp(b))
            .map(|(_, e)| &e.request.get().key)
    }

    pub(super) fn plan_request(
        &mut self,
        now: Mono,
        wall: DateTime<Utc>,
        key: &ObjectKey,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut entry) = self.requests.objects.remove(key) else { return };
        let (mut plan, measures) = self.decide(now, wall, &mut entry);
        self.confirm_first(&entry, &mut plan);
        actions.extend(measures.into_iter().map(Action::Count));
        self.want_orders(&mut entry, plan.orders.clone());
        self.want_images(&mut entry, plan.images.clone());
        if entry.write.patience_over(now) {
            entry.request.retry();
        }
        let wait = if entry.request.writable() {
            match write_of(&plan, entry.request.get()) {
                None => {
                    entry.write.satisfied();
                    None
                }
                Some((action, urgency)) => match entry.write.due(now, urgency, self.progress_hold(&entry)) {
                    Ok(()) => {
                        entry.request.write_started();
                        if let Action::WriteStatus { status, .. } = &action {
                            let before = &entry.request.get().status;
                            entry.chosen |= before.target.is_none() && status.target.is_some();
                            // Nothing begins any more unless a later write shows that the end was not stored.
                            entry.confirmed &= status.completion_time.is_none();
                            entry.replaces = Some(Box::new(before.clone()));
                        }
                        actions.push(action);
                        None
                    }
                    Err(at) => Some(at),
                },
            }
        } else {
            entry.write.retry_at()
        };
        self.timers.set(Timer::Request(key.clone()), earliest(plan.wake_at, wait));
        self.requests.objects.insert(key.clone(), entry);
    }

    /// Holds back what is not begun yet until this process has written the request once since it leads.
    ///
    /// An end that the leader before it sent may arrive after the lists that this one decides on. The status is written as
    /// it is, at the version that is known: it fails where there is a newer one.
    fn confirm_first(&self, entry: &Entry, plan: &mut recreate::Plan) {
        let request = entry.request.get();
        let target = request.status.target.as_ref().filter(|_| !entry.confirmed);
        let Some(target) = target else { return };
        let book = self.books.objects.get(&ObjectKey::new("", &target.node_name)).and_then(Book::known);
        let stands = |order: &Order| views(book).any(|view| view.order.id == order.id);
        if plan.images.is_empty() && plan.orders.iter().all(stands) {
            return;
        }
        plan.images.clear();
        plan.orders.retain(stands);
        let status = plan.status.take().map_or_else(|| request.status.clone(), |write| write.status);
        plan.status = Some(StatusWrite { status, urgency: Urgency::Now });
    }

    /// How long a wait of the request lasts before it is written down.
    fn progress_hold(&self, entry: &Entry) -> Duration {
        let target = entry.request.get().status.target.as_ref();
        let open = target.and_then(|t| self.by_node.get(&t.node_name)).map_or(0, BTreeSet::len);
        pacing::hold(self.config.progress_after, self.config.progress_spacing, open)
    }

    fn decide(&self, now: Mono, wall: DateTime<Utc>, entry: &mut Entry) -> (recreate::Plan, Vec<Measure>) {
        let request = entry.request.get();
        let target = request.status.target.as_ref();
        let known_pod = self.pods.objects.get(&request.pod_key());
        let pod = known_pod.map(|e| e.pod.get());
        let book = target.and_then(|t| self.books.objects.get(&ObjectKey::new("", &t.node_name)));
        let known = book.and_then(Book::known);
        let orders: Vec<OrderView<'_>> =
            views(known).filter(|o| request_uid(&o.order.id) == request.uid).collect();
        let busy = views(known)
            .filter(|o| target.is_some_and(|t| t.pod_uid == o.order.pod.uid))
            .any(|o| o.acting() && may_run(o.order, pod));
        entry.memory.update(now, request.completed(), busy, &orders);
        entry.memory.see(now, request, pod);
        let observed = Observed {
            request,
            pod,
            ahead: self.ahead(entry),
            orders,
            pinning: if known_pod.is_some_and(|e| e.pinning.is_some()) { &entry.images } else { &[] },
            pinned_now: known_pod.is_some_and(|e| e.pinning.is_some() && e.pod.in_flight()),
            guarded: self.guarded,
            placing: book.is_some_and(|b| b.placing.contains(&request.uid)),
            memory: &entry.memory,
        };
        let plan = recreate::plan(now, wall, &self.config, &observed);
        let places = recreate::places(now, &observed);
        (plan, entry.stages.update(now, places))
    }

    fn want_orders(&mut self, entry: &mut Entry, orders: Vec<Order>) {
        let request = entry.request.get();
        let Some(target) = &request.status.target else {
            entry.orders.clear();
            return;
        };
        if request.completed() && orders.is_empty() {
            remove(&mut self.by_node, &target.node_name, &request.key);
        } else {
            self.by_node.entry(target.node_name.clone()).or_default().insert(request.key.clone());
        }
        if entry.orders != orders {
            entry.orders = orders;
            self.dirty_nodes.insert(target.node_name.clone());
        }
    }

    fn want_images(&mut self, entry: &mut Entry, images: Vec<ImageChange>) {
        if entry.images != images {
            entry.images = images;
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
        let Some(change) = self.change_of(pod) else {
            entry.write.satisfied();
            return None;
        };
        if let Err(at) = entry.write.due(now, Urgency::Now, Duration::ZERO) {
            return Some(at);
        }
        let (key, uid, resource_version) = (pod.key.clone(), pod.uid.clone(), pod.resource_version.clone());
        if matches!(change, PodChange::Images(_)) {
            entry.pinning = Some(resource_version.clone());
        }
        actions.push(Action::PatchPod { key, uid, resource_version, change });
        entry.pod.write_started();
        None
    }

    /// The one change that a Pod needs next: first what keeps it out of service or brings it back.
    fn change_of(&self, pod: &Pod) -> Option<PodChange> {
        if pod.gone() {
            return None;
        }
        let requests = || {
            self.by_pod
                .get(&pod.key)
                .into_iter()
                .flatten()
                .filter_map(|key| self.requests.objects.get(key))
                .filter(|e| e.request.get().started_for(pod))
        };
        if !pod.gates.is_empty() {
            let holds = requests().filter_map(|e| e.request.get().hold()).collect();
            let gates = readiness::plan(&pod.gates, &holds);
            if !gates.is_empty() {
                return Some(PodChange::Gates(gates));
            }
        }
        let mut images: Vec<ImageChange> = requests().flat_map(|e| e.images.iter().cloned()).collect();
        // A strategic merge patch brings the containers that it names into its own order, and a Pod's order cannot change.
        images.sort_by_key(|image| pod.containers.iter().position(|c| c.name == image.container));
        (!images.is_empty()).then_some(PodChange::Images(images))
    }

    pub(super) fn plan_book(&mut self, now: Mono, node: &str, actions: &mut Vec<Action>) {
        let mut wanting: Vec<&Entry> = self
            .by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|key| self.requests.objects.get(key))
            .filter(|e| e.request.get().status.target.as_ref().is_some_and(|t| t.node_name == node))
            .collect();
        wanting.sort_by_key(|e| (e.request.get().created, &e.request.get().key));
        let wanted: Vec<Order> = wanting.iter().flat_map(|e| e.orders.iter().cloned()).collect();
        let book = self.books.objects.entry(ObjectKey::new("", node)).or_default();
        if book.write.patience_over(now)
            && let Some(work) = &mut book.work
        {
            work.retry();
        }
        let wait = if book.writable() {
            match nodework::plan(book.known(), &wanted).or_else(|| book.probe()) {
                None => {
                    book.write.satisfied();
                    None
                }
                Some(write) => match book.write.due(now, write.urgency, self.config.tidy_after) {
                    Ok(()) => {
                        let resource_version = book.known().map(|w| w.resource_version().to_owned());
                        book.write_started(&write.orders);
                        let node = node.to_owned();
                        actions.push(Action::WriteOrders { node, resource_version, orders: write.orders });
                        None
                    }
                    Err(at) => Some(at),
                },
            }
        } else {
            book.write.retry_at()
        };
        self.timers.set(Timer::Node(node.to_owned()), wait);
    }
}

fn views(book: Option<&NodeWork>) -> impl Iterator<Item = OrderView<'_>> {
    book.into_iter()
        .flat_map(|b| b.orders.iter().map(|order| OrderView { order, answer: b.answer(&order.id) }))
}

/// As far as the Pod's status tells, the daemon still has that container to stop.
fn may_run(order: &Order, pod: Option<&Pod>) -> bool {
    let status = pod
        .filter(|p| p.uid == order.pod.uid)
        .and_then(|p| p.container(&order.container.name))
        .and_then(|c| c.status.as_ref());
    status
        .is_some_and(|s| s.state == ContainerState::Running && s.container_id.ends_with(&order.container.id))
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
        _ if !(plan.labels.is_empty() && plan.annotations.is_empty()) => {
            let (labels, annotations) = (plan.labels.clone(), plan.annotations.clone());
            let patch = Action::PatchMetadata { key, uid, resource_version, labels, annotations };
            Some((patch, Urgency::Now))
        }
        Some(StatusWrite { status, urgency }) => {
            let status = Box::new(status.clone());
            Some((Action::WriteStatus { key, uid, resource_version, status }, *urgency))
        }
        None => None,
    }
}
