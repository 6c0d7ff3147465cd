//! What is kept of each object.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::nodework::{Order, request_uid};

use super::pacing::Pacing;
use super::room::Room;
use crate::action::{Basis, Object};
use crate::change::PodChange;
use crate::key::ObjectKey;
use crate::measure::OrderCounts;
use crate::nodework::{Acting, BookWrite, NodeWork, OrderView, views};
use crate::outcome::Outcome;
use crate::plan::Urgency;
use crate::pod::Pod;
use crate::time::Mono;
use crate::tracked::Tracked;

/// Objects of one kind, and whether a list has come since the lead began.
#[derive(Clone, Debug)]
pub(super) struct Kept<T> {
    pub(super) synced: bool,
    /// The list that came last, or is coming.
    pub(super) round: u32,
    pub(super) objects: BTreeMap<ObjectKey, T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { synced: false, round: 0, objects: BTreeMap::new() }
    }
}

/// A Pod.
#[derive(Clone, Debug)]
pub(super) struct PodEntry {
    pub(super) pod: Tracked<Pod>,
    /// The list that named it last, or that was the last one when a change did.
    pub(super) round: u32,
    pub(super) write: Pacing,
    /// A write of images that is under way, or of which nobody knows how it ended.
    pub(super) pinning: Option<Box<Unsure>>,
    /// The same of resources.
    pub(super) sizing: Option<Box<Unsure>>,
    /// What is being written now.
    pub(super) writes: Option<Box<Wrote>>,
}

/// A write that may take effect yet, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unsure {
    /// The version of the Pod that it rests on.
    version: String,
    /// One like it has ended unknown: a conflict may be its doing.
    unknown: bool,
}

/// What a write of a Pod changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    Gates,
    Images,
    /// For that request.
    Resources(Object),
}

impl PodEntry {
    pub(super) fn new(pod: Pod, round: u32) -> Self {
        Self {
            pod: Tracked::new(pod),
            round,
            write: Pacing::default(),
            pinning: None,
            sizing: None,
            writes: None,
        }
    }

    /// Nothing is remembered of it but the Pod itself.
    pub(super) fn is_idle(&self) -> bool {
        let Self { pod, round: _, write, pinning, sizing, writes } = self;
        pod.settled()
            && *write == Pacing::default()
            && pinning.is_none()
            && sizing.is_none()
            && writes.is_none()
    }

    /// What was timed while another process led is timed anew.
    pub(super) fn restart(&mut self) {
        self.write = Pacing::default();
        (self.pinning, self.sizing) = (None, None);
        self.pod.retry();
    }

    /// A write begins.
    pub(super) fn write_started(&mut self, change: &PodChange, wrote: Wrote) {
        let version = self.pod.get().resource_version.clone();
        let dry_run = matches!(change, PodChange::Resources(sizing) if sizing.dry_run);
        if let Some(unsure) = self.unsure(&wrote).filter(|_| !dry_run) {
            let unknown = unsure.as_ref().is_some_and(|before| before.version == version && before.unknown);
            *unsure = Some(Box::new(Unsure { version, unknown }));
        }
        self.writes = Some(Box::new(wrote));
        self.pod.write_started();
    }

    /// A write came back. What is refused had no effect, though one before it may have ended unknown: what is refused for ever
    /// would else keep its request open for ever.
    pub(super) fn ended<T>(&mut self, wrote: &Wrote, outcome: &Outcome<T>) {
        let Some(unsure) = self.unsure(wrote) else { return };
        match (outcome, unsure) {
            (Outcome::Retry, Some(unsure)) => unsure.unknown = true,
            // Resources that were changed are put back before the end: the watch must have shown whether they were.
            (Outcome::Conflict, Some(unsure)) if unsure.unknown && matches!(wrote, Wrote::Resources(_)) => {}
            (_, unsure) => *unsure = None,
        }
    }

    fn unsure(&mut self, wrote: &Wrote) -> Option<&mut Option<Box<Unsure>>> {
        match wrote {
            Wrote::Images => Some(&mut self.pinning),
            Wrote::Resources(_) => Some(&mut self.sizing),
            Wrote::Gates => None,
        }
    }

    /// A write can no longer take effect once the Pod is another version than it rests on.
    pub(super) fn settle(&mut self) {
        if !self.pod.in_flight() {
            for unsure in [&mut self.pinning, &mut self.sizing] {
                unsure.take_if(|unsure| unsure.version != self.pod.get().resource_version);
            }
        }
    }
}

/// A node's order book.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// The list that named it last, or that was the last one when a change did.
    pub(super) round: u32,
    /// Absent while the object does not exist.
    pub(super) work: Option<Tracked<NodeWork>>,
    /// A create is under way, and the watch has not shown the object yet.
    pub(super) creating: bool,
    /// The API server has no such node, so nobody reads what would be in the book.
    pub(super) missing: bool,
    pub(super) write: Pacing,
    /// Requests of which a write places orders: one under way, or one that ended unknown.
    pub(super) placing: BTreeSet<String>,
    /// Since when the answers are known to the orders for Pods that the daemon holds, by their IDs.
    pub(super) answered: BTreeMap<String, Mono>,
    /// Those of them whose write ended unknown: that a later one was refused says nothing of it.
    unknown: BTreeSet<String>,
    /// One of those writes rests on the orders alone: the daemon's answers do not end it.
    rests_on_orders: bool,
    /// Nothing can come of that write from then on.
    unknown_until: Mono,
    /// For how long the daemon has been carrying the orders out.
    pub(super) acting: Acting,
    /// The orders by their answers.
    pub(super) counts: OrderCounts,
}

impl Book {
    pub(super) fn known(&self) -> Option<&NodeWork> {
        self.work.as_ref().map(Tracked::get)
    }

    /// Until when its next write waits for more orders that come with those that it adds.
    pub(super) fn gathers(&self, now: Mono, room: &Room, node: &str, write: &BookWrite) -> Option<Mono> {
        let current: &[Order] = self.known().map_or(&[], |work| &work.orders);
        let new = write.orders.iter().filter(|order| !current.iter().any(|known| known.id == order.id));
        room.gathers(now, node, new.map(|order| order.pod.namespace.as_str())).filter(|_| write.adds)
    }

    pub(super) fn writable(&self) -> bool {
        !self.creating && self.work.as_ref().is_none_or(Tracked::writable)
    }

    /// The watch delivered the book. Only who leads writes orders: where others stand than this process knows of, another
    /// process takes itself for the leader, and if each put its own back at once, they would go on as fast as the API
    /// server answers.
    pub(super) fn observed(&mut self, now: Mono, work: NodeWork, listed: bool) {
        let before = self.basis();
        let alone = listed || self.work.as_ref().is_none_or(Tracked::in_flight);
        let known = self.known().filter(|known| !alone && known.uid == work.uid);
        let orders = known.map(|known| known.orders.clone());
        self.missing = false;
        match &mut self.work {
            Some(known) if listed => known.listed(work),
            Some(known) => known.observed(work),
            None if std::mem::take(&mut self.creating) => self.work = Some(Tracked::appeared(work)),
            None => self.work = Some(Tracked::new(work)),
        }
        if self.basis() != before {
            // Whatever was written on what was before has taken effect by now, or never will.
            self.placed();
        }
        if orders.is_some_and(|before| self.known().is_some_and(|known| known.orders != before)) {
            self.write.failed(now);
        }
    }

    /// Notes since when what the book shows is known.
    pub(super) fn see(&mut self, now: Mono) {
        let known = self.work.as_ref().map(Tracked::get);
        self.acting.see(now, known);
        let told = |view: &OrderView<'_>| view.answer.is_some() && view.order.action.resize.is_some();
        let since = |view: OrderView<'_>| {
            let id = &view.order.id;
            (id.clone(), self.answered.get(id).copied().unwrap_or(now))
        };
        self.answered = views(known).filter(told).map(since).collect();
        self.counts = OrderCounts::default();
        views(known).for_each(|view| self.counts.add(view.answer.map(|answer| answer.state)));
    }

    /// The book does not exist any more.
    pub(super) fn gone(&mut self) {
        self.work = None;
        self.placed();
    }

    /// It is known how every write ended.
    pub(super) fn placed(&mut self) {
        self.placing.clear();
        self.unknown.clear();
        self.rests_on_orders = false;
    }

    /// Nobody knows how the write under way ended; it may take effect until then.
    pub(super) fn write_unknown(&mut self, until: Mono) {
        self.unknown.clone_from(&self.placing);
        self.unknown_until = until;
    }

    /// The write under way had no effect.
    pub(super) fn write_refused(&mut self, now: Mono) {
        // A node that is gone leaves no other way to learn how a write before it ended: the watch has not shown the book.
        if self.work.is_none() && self.unknown_until <= now {
            self.unknown.clear();
        }
        self.placing.clone_from(&self.unknown);
    }

    /// What writes that may take effect yet rest on.
    fn basis(&self) -> Basis {
        self.basis_for(self.rests_on_orders)
    }

    /// What a write rests on that only adds orders, or does not.
    fn basis_for(&self, adds: bool) -> Basis {
        match self.known() {
            None => Basis::Absent,
            Some(work) if adds => Basis::Orders { uid: work.uid.clone(), generation: work.generation },
            Some(work) => Basis::Version(work.resource_version.clone()),
        }
    }

    /// A write starts; gives back what it rests on. As long as another may take effect yet, that is all of the book, so that
    /// the next write shows what came of it.
    pub(super) fn write_started(&mut self, BookWrite { orders, adds, .. }: &BookWrite) -> Basis {
        let adds = *adds && self.placing.is_empty() && self.known().is_some_and(|work| work.generation > 0);
        self.rests_on_orders |= adds;
        let basis = self.basis_for(adds);
        let known = self.work.as_ref().map(Tracked::get);
        let new = |o: &&Order| known.is_none_or(|w| w.orders.iter().all(|k| k.id != o.id));
        self.placing.extend(orders.iter().filter(new).map(|o| request_uid(&o.id).to_owned()));
        match &mut self.work {
            Some(work) => work.write_started(),
            None => self.creating = true,
        }
        basis
    }

    /// A write that leaves the orders as they are, and after which those before it cannot take effect any more. The API
    /// server makes neither a version nor a generation of a write that changes nothing, so this one changes what is closed:
    /// the UID of a request is no ID of an order.
    pub(super) fn probe(&self) -> Option<BookWrite> {
        let uid = self.placing.first()?;
        let (orders, mut closed) =
            self.known().map(|w| (w.orders.clone(), w.closed.clone())).unwrap_or_default();
        let known = closed.len();
        closed.retain(|id| orders.iter().any(|order| order.id == *id));
        if closed.len() == known {
            closed.push(uid.clone());
        }
        Some(BookWrite { orders, closed, urgency: Urgency::Now, adds: false })
    }

    /// What was timed while another process led is timed anew.
    pub(super) fn restart(&mut self) {
        self.write = Pacing::default();
        self.answered.clear();
        self.acting = Acting::default();
        if let Some(work) = &mut self.work {
            work.retry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: &str) -> Order {
        Order { id: id.into(), ..Order::default() }
    }

    fn shown(version: &str, generation: i64) -> NodeWork {
        NodeWork { uid: "u".into(), resource_version: version.into(), generation, ..NodeWork::default() }
    }

    fn adds(id: &str) -> BookWrite {
        BookWrite { orders: vec![order(id)], closed: Vec::new(), urgency: Urgency::Now, adds: true }
    }

    /// What adds an order takes effect though the daemon answers meanwhile, so an answer says nothing of it.
    #[test]
    fn a_write_that_rests_on_the_orders_is_open_until_those_are_others() {
        let mut book = Book::default();
        book.observed(Mono(0), shown("1", 4), true);
        let basis = Basis::Orders { uid: "u".into(), generation: 4 };
        assert_eq!(book.write_started(&adds("a/app/1")), basis);
        book.write_unknown(Mono(100));
        book.work.iter_mut().for_each(Tracked::failed);
        book.observed(Mono(0), shown("2", 4), false);
        assert_eq!(book.placing, BTreeSet::from(["a".to_owned()]));
        assert_eq!(
            book.write_started(&adds("a/app/1")),
            Basis::Version("2".into()),
            "it shows what came of that"
        );
        book.work.iter_mut().for_each(Tracked::failed);
        book.observed(Mono(0), shown("3", 5), false);
        assert!(book.placing.is_empty());
        assert_eq!(book.write_started(&adds("b/app/1")), Basis::Orders { uid: "u".into(), generation: 5 });
    }

    #[test]
    fn what_withdraws_rests_on_all_of_the_book() {
        let mut book = Book::default();
        book.observed(Mono(0), shown("1", 4), true);
        let withdraws = BookWrite { adds: false, ..adds("a/app/1") };
        assert_eq!(book.write_started(&withdraws), Basis::Version("1".into()));
        book.work.iter_mut().for_each(Tracked::failed);
        book.observed(Mono(0), shown("2", 4), false);
        assert!(book.placing.is_empty());
    }

    /// The API server stores no write that changes nothing, and then the write before could still be stored.
    #[test]
    fn a_probe_changes_the_book_each_time() {
        let mut book = Book::default();
        let mut work =
            NodeWork { orders: vec![order("x/app/1")], closed: vec!["x/app/1".into()], ..shown("1", 4) };
        book.observed(Mono(0), work.clone(), true);
        let _ = book.write_started(&adds("a/app/1"));
        for (generation, closed) in [(5, vec!["x/app/1", "a"]), (6, vec!["x/app/1"])] {
            let probe = book.probe().unwrap();
            assert_eq!(
                (&probe.orders, probe.closed.iter().map(String::as_str).collect()),
                (&work.orders, closed)
            );
            assert!(!probe.adds);
            work = NodeWork { closed: probe.closed, generation, ..work };
            book.work = Some(Tracked::new(work.clone()));
        }
    }

    #[test]
    fn a_refusal_says_nothing_of_the_write_before_it() {
        let mut book = Book::default();
        let _ = book.write_started(&adds("a/app/1"));
        book.write_unknown(Mono(100));
        assert!(book.probe().is_some());
        let _ = book.write_started(&adds("b/app/1"));
        book.write_refused(Mono(99));
        assert_eq!(book.placing, BTreeSet::from(["a".to_owned()]));
        let mut late = book.clone();
        late.write_refused(Mono(100));
        assert!(late.placing.is_empty(), "nothing can come of it any more");
        book.observed(Mono(0), NodeWork { resource_version: "1".into(), ..NodeWork::default() }, false);
        assert!(book.probe().is_none());
    }

    #[test]
    fn a_write_places_what_the_book_does_not_have_yet() {
        let mut book = Book::default();
        let orders = vec![order("a/app/1"), order("a/proxy/1")];
        book.observed(Mono(0), NodeWork { orders: orders.clone(), ..NodeWork::default() }, true);
        let [app, proxy] = &orders[..] else { panic!() };
        let orders = vec![app.clone(), proxy.clone(), order("b/app/1")];
        let write = BookWrite { orders, closed: Vec::new(), urgency: Urgency::Now, adds: true };
        assert_eq!(book.write_started(&write), Basis::Version(String::new()), "its generation is not known");
        assert_eq!(book.placing, BTreeSet::from(["b".to_owned()]));
    }
}
