//! Resizes, as the index deals with them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::nodework::request_uid;
use pitstop_api::resize::PodResizeStatus;

use super::asked::{Asked, Entry, UserRequest};
use super::kinds::Book;
use super::{Index, Timer};
use crate::action::{Action, Note, RequestKind};
use crate::before::Before;
use crate::key::ObjectKey;
use crate::measure::Measure;
use crate::nodework::{OrderView, views};
use crate::resize::{self, Ahead, Memory, Observed, Plan, Resize};
use crate::time::{Mono, seconds};

impl UserRequest for Resize {
    type Status = PodResizeStatus;
    type Memory = Memory;
    const KIND: RequestKind = RequestKind::Resize;

    fn asked(index: &Index) -> &Asked<Self> {
        &index.resizes
    }
    fn asked_mut(index: &mut Index) -> &mut Asked<Self> {
        &mut index.resizes
    }
    fn timer(key: ObjectKey) -> Timer {
        Timer::Resize(key)
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
        target.or(self.spec.pod_ref.uid.as_ref()).map(String::as_str)
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
    fn asks(&self) -> bool {
        self.spec.dry_run
    }
    fn child(&self) -> Option<ObjectKey> {
        Some(resize::restart_key(self))
    }
    fn busy(entry: &Entry<Self>) -> bool {
        entry.memory.busy_since.is_some()
    }
    fn lasts(&self) -> bool {
        self.in_force()
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
        let resize = entry.request.get();
        let known_pod = index.pods.objects.get(&resize.pod_key());
        let told = known_pod.map(|e| e.pod.get());
        let force = told.map(|pod| index.force_with(pod, resize)).unwrap_or_default();
        let book = resize.node().and_then(|node| index.books.objects.get(&ObjectKey::new("", node)));
        let book = book.and_then(Book::known);
        let of = |uid: &str| -> Vec<OrderView<'_>> {
            views(book).filter(|o| request_uid(&o.order.id) == uid).collect()
        };
        let (repairs, orders): (Vec<OrderView<'_>>, Vec<OrderView<'_>>) =
            of(&resize.uid).into_iter().partition(|view| resize::is_repair(view.order));
        entry.ordered = !(orders.is_empty() && repairs.is_empty());
        let target = resize.status.target.as_ref().filter(|_| resize.by_daemon());
        let held = target.and_then(|target| book?.held(&target.pod_uid));
        let applied = told.filter(|_| target.is_some()).map(|pod| force.applied(pod, held));
        let pod = applied.as_ref().or(told);
        let held_orders: Vec<OrderView<'_>> = target.map(|target| of(&target.pod_uid)).unwrap_or_default();
        let given: Vec<OrderView<'_>> = held_orders.iter().chain(&repairs).copied().collect();
        entry.memory.see(now, resize, pod, &orders, &given);
        // What only asks what would be is in nobody's way, and nobody in its.
        let ahead = index.before_resize(entry, told).filter(|_| !resize.spec.dry_run);
        if ahead.as_ref().is_some_and(|ahead| index.is_accepted(ahead)) {
            entry.memory.put_off(now);
        }
        let ahead = ahead.map(|by| Ahead { by: Before::Request(by), gives_way: index.overtakes(entry) });
        let too_many = index.resizes.too_many(resize).filter(|_| target.is_none());
        let ahead = too_many.map(|by| Ahead { by, gives_way: false }).or(ahead);
        let restart = index.requests.objects.get(&resize::restart_key(resize)).map(|e| e.request.get());
        entry.memory.see_restart(resize, restart);
        let observed = Observed {
            resize,
            pod,
            told,
            force: &force,
            held: held_orders,
            newer: told.filter(|_| !resize.spec.dry_run).and_then(|pod| index.newer(resize, pod, &force)),
            ahead,
            sizing_now: known_pod.is_some_and(|e| e.sizing.is_some()),
            // A dry run has no effect that could be unknown: what is, is another one's.
            sizing: entry
                .sizing
                .as_ref()
                .filter(|own| !own.dry_run && known_pod.is_some_and(|e| e.sizing.is_some())),
            restart,
            deed: entry.deeds.open(),
            orders,
            repairs,
            recorded: told.is_some_and(|pod| book.is_some_and(|work| work.held(&pod.uid).is_some())),
            last_attempt: book.map_or(0, |work| work.last_attempt(&resize.uid)),
            guarded: index.guarded,
            crowd: entry.memory.admits(now, resize).then(|| index.crowd(resize, &entry.memory)).flatten(),
            look: &entry.look,
            memory: &entry.memory,
        };
        (resize::plan(now, wall, &index.config, &observed), Vec::new())
    }

    fn survey(index: &Index, now: Mono, entry: &mut Entry<Self>) -> Result<Option<Action>, Mono> {
        index.begin_survey(now, entry)
    }

    fn write_status(&self, status: Self::Status) -> Action {
        Action::WriteResizeStatus {
            key: self.key.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            status: Box::new(status),
        }
    }
    fn delete(key: &ObjectKey, uid: &str) -> Action {
        Action::DeleteResize { key: key.clone(), uid: uid.to_owned() }
    }
    fn ttl(&self) -> Option<Duration> {
        self.spec.ttl_seconds_after_finished.map(|ttl| seconds(ttl.into()))
    }
    fn is_watched(&self) -> bool {
        false
    }
    fn completed_seen(memory: &mut Memory) -> &mut Option<Mono> {
        &mut memory.completed_seen
    }
    fn patch_metadata(&self, _: &Plan) -> Option<Action> {
        None
    }

    fn notes(&self, old: &Self::Status) -> Vec<Note> {
        resize::notes(self, old)
    }
    fn measure(&self, old: &Self::Status) -> Option<Measure> {
        resize::measure(&self.status, old)
    }
}
