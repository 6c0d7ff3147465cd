//! Recreate requests, as the index deals with them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::labels;
use pitstop_api::nodework::request_uid;
use pitstop_api::recreate::ContainerRecreateRequestStatus;

use super::asked::{Asked, Entry, UserRequest};
use super::kinds::Book;
use super::planning::may_run;
use super::{Index, Timer};
use crate::action::{Action, Note, RequestKind};
use crate::key::ObjectKey;
use crate::measure::Measure;
use crate::nodework::{Acting, OrderView, views};
use crate::recreate::{self, Memory, Observed, Plan, Request};
use crate::resize;
use crate::time::{Mono, earliest, seconds};

impl UserRequest for Request {
    type Status = ContainerRecreateRequestStatus;
    type Memory = Memory;
    const KIND: RequestKind = RequestKind::Recreate;

    fn asked(index: &Index) -> &Asked<Self> {
        &index.requests
    }
    fn asked_mut(index: &mut Index) -> &mut Asked<Self> {
        &mut index.requests
    }
    fn timer(key: ObjectKey) -> Timer {
        Timer::Request(key)
    }
    fn remember(now: Mono) -> Memory {
        Memory::new(now)
    }

    fn key(&self) -> &ObjectKey {
        &self.key
    }
    fn pod_key(&self) -> ObjectKey {
        Self::pod_key(self)
    }
    fn pod_uid(&self) -> Option<&str> {
        let target = self.status.target.as_ref().map(|target| &target.pod_uid);
        target.or_else(|| self.labels.get(labels::POD_UID)).map(String::as_str)
    }
    fn created(&self) -> i64 {
        self.created
    }
    fn deleting(&self) -> bool {
        self.deleting
    }
    fn completed(&self) -> bool {
        Self::completed(self)
    }
    fn status(&self) -> &Self::Status {
        &self.status
    }
    fn node(&self) -> Option<&str> {
        self.status.target.as_ref().map(|target| target.node_name.as_str())
    }

    fn accepted(status: &Self::Status) -> bool {
        status.target.is_some()
    }
    fn over(status: &Self::Status) -> bool {
        status.completion_time.is_some()
    }

    fn decide(
        index: &Index,
        now: Mono,
        wall: DateTime<Utc>,
        entry: &mut Entry<Self>,
    ) -> (Plan, Vec<Measure>) {
        let request = entry.request.get();
        let target = request.status.target.as_ref();
        let known_pod = index.pods.objects.get(&request.pod_key());
        let pod = known_pod.map(|e| e.pod.get());
        let book = target.and_then(|t| index.books.objects.get(&ObjectKey::new("", &t.node_name)));
        let known = book.and_then(Book::known);
        let orders: Vec<OrderView<'_>> =
            views(known).filter(|o| request_uid(&o.order.id) == request.uid).collect();
        // What takes longer than it may keeps nobody waiting.
        let overdue_at = |o: &OrderView<'_>| {
            book.and_then(|book| book.acting.overdue_at(o.order, index.config.daemon_silent_after))
        };
        let busy_until = views(known)
            .filter(|o| target.is_some_and(|t| t.pod_uid == o.order.pod.uid))
            .filter(|o| o.acting() && may_run(o.order, pod))
            .filter_map(|o| overdue_at(&o).filter(|at| *at > now))
            .max();
        entry.ordered = !orders.is_empty();
        let unread = book.is_some_and(|book| book.missing) && !entry.orders.is_empty();
        entry.memory.update(now, request.completed(), busy_until.is_some(), unread, &orders);
        entry.memory.see(now, request, pod);
        let idle = Acting::default();
        let observed = Observed {
            request,
            pod,
            ahead: index.before_recreate(now, request),
            resize_over: index.resize_over(request),
            orders,
            pinning: if known_pod.is_some_and(|e| e.pinning.is_some()) { &entry.images } else { &[] },
            pinned_now: known_pod.is_some_and(|e| e.pinning.is_some() && e.pod.in_flight()),
            guarded: index.guarded,
            placing: book.is_some_and(|b| b.placing.contains(&request.uid)),
            acting: book.map_or(&idle, |book| &book.acting),
            look: &entry.look,
            memory: &entry.memory,
        };
        let mut plan = recreate::plan(now, wall, &index.config, &observed);
        plan.wake_at = earliest(plan.wake_at, busy_until.filter(|_| !request.completed()));
        let places = recreate::places(now, &observed);
        (plan, entry.memory.stages.update(now, places))
    }

    fn write_status(&self, status: Self::Status) -> Action {
        Action::WriteStatus {
            key: self.key.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            status: Box::new(status),
        }
    }
    fn delete(key: &ObjectKey, uid: &str) -> Action {
        Action::DeleteRequest { key: key.clone(), uid: uid.to_owned() }
    }
    fn ttl(&self) -> Option<Duration> {
        self.spec.ttl_seconds_after_finished.map(|ttl| seconds(ttl.into()))
    }
    fn is_watched(&self) -> bool {
        // By the resize that it belongs to, or that finds its name taken.
        self.resize_uid.is_some() || resize::may_be_restart(&self.key)
    }
    fn completed_seen(memory: &mut Memory) -> &mut Option<Mono> {
        &mut memory.completed_seen
    }
    fn patch_metadata(&self, plan: &Plan) -> Option<Action> {
        let (labels, annotations) = (plan.labels.clone(), plan.annotations.clone());
        let (key, uid) = (self.key.clone(), self.uid.clone());
        let resource_version = self.resource_version.clone();
        let wanted = !(labels.is_empty() && annotations.is_empty());
        wanted.then_some(Action::PatchMetadata { key, uid, resource_version, labels, annotations })
    }

    fn notes(&self, old: &Self::Status) -> Vec<Note> {
        recreate::notes(self, old)
    }
    fn measure(&self, old: &Self::Status) -> Option<Measure> {
        recreate::measure(&self.status, old)
    }
}
