//! What the engine keeps of each Pod and order book.

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

/// Objects of one kind, and whether a list came since this process became leader.
#[derive(Clone, Debug)]
pub(super) struct Cache<T> {
    pub(super) synced: bool,
    /// Number of the last list, or of the one that is arriving.
    pub(super) round: u32,
    pub(super) objects: BTreeMap<ObjectKey, T>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { synced: false, round: 0, objects: BTreeMap::new() }
    }
}

/// A Pod.
#[derive(Clone, Debug)]
pub(super) struct PodEntry {
    pub(super) pod: Tracked<Pod>,
    /// Number of the newest list when a list or a change last named the Pod.
    pub(super) round: u32,
    pub(super) write: Pacing,
    /// A write of images that is under way or has an unknown end.
    pub(super) pinning: Option<Box<OpenWrite>>,
    /// The same for resources.
    pub(super) sizing: Option<Box<OpenWrite>>,
    /// What the write under way changes.
    pub(super) writes: Option<Box<PodPart>>,
}

/// A write that may still take effect, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenWrite {
    /// The Pod's resourceVersion that the write requires.
    version: String,
    /// An earlier write like it has an unknown end, so it may be the cause of a conflict.
    unknown: bool,
}

/// What a write of a Pod changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodPart {
    Gates,
    Images,
    /// Resources, for that request.
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

    /// Whether nothing is kept but the Pod itself.
    pub(super) fn is_idle(&self) -> bool {
        let Self { pod, round: _, write, pinning, sizing, writes } = self;
        pod.settled()
            && *write == Pacing::default()
            && pinning.is_none()
            && sizing.is_none()
            && writes.is_none()
    }

    /// Forgets times that were measured while another process led.
    pub(super) fn restart(&mut self) {
        self.write = Pacing::default();
        (self.pinning, self.sizing) = (None, None);
        self.pod.retry();
    }

    /// A write begins.
    pub(super) fn write_started(&mut self, change: &PodChange, part: PodPart) {
        let version = self.pod.get().resource_version.clone();
        let dry_run = matches!(change, PodChange::Resources(sizing) if sizing.dry_run);
        if let Some(open) = self.open_write(&part).filter(|_| !dry_run) {
            let unknown = open.as_ref().is_some_and(|before| before.version == version && before.unknown);
            *open = Some(Box::new(OpenWrite { version, unknown }));
        }
        self.writes = Some(Box::new(part));
        self.pod.write_started();
    }

    /// A write ended. A refusal settles it, even if an earlier write has an unknown end: otherwise endless refusals
    /// would keep the request open for ever.
    pub(super) fn ended<T>(&mut self, part: &PodPart, outcome: &Outcome<T>) {
        let Some(open) = self.open_write(part) else { return };
        match (outcome, open) {
            (Outcome::Retry, Some(open)) => open.unknown = true,
            // Changed resources are restored before the end, so the watch must first show whether they changed.
            (Outcome::Conflict, Some(open)) if open.unknown && matches!(part, PodPart::Resources(_)) => {}
            (_, open) => *open = None,
        }
    }

    fn open_write(&mut self, part: &PodPart) -> Option<&mut Option<Box<OpenWrite>>> {
        match part {
            PodPart::Images => Some(&mut self.pinning),
            PodPart::Resources(_) => Some(&mut self.sizing),
            PodPart::Gates => None,
        }
    }

    /// A write can no longer take effect once the Pod has another version than the write requires.
    pub(super) fn expire_writes(&mut self) {
        if !self.pod.in_flight() {
            for open in [&mut self.pinning, &mut self.sizing] {
                open.take_if(|open| open.version != self.pod.get().resource_version);
            }
        }
    }
}

/// A node's order book.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// Number of the newest list when a list or a change last named the book.
    pub(super) round: u32,
    /// None while the object does not exist.
    pub(super) work: Option<Tracked<NodeWork>>,
    /// A create is under way, and the watch has not shown the object yet.
    pub(super) creating: bool,
    /// The API server has no such node, so no daemon would read the book.
    pub(super) missing: bool,
    pub(super) write: Pacing,
    /// UIDs of requests whose orders are in a write that is under way or has an unknown end.
    pub(super) placing: BTreeSet<String>,
    /// Since when the answers to orders for held Pods are known, by order ID.
    pub(super) answered: BTreeMap<String, Mono>,
    /// Those of `placing` whose write has an unknown end. The refusal of a later write does not settle it.
    unknown: BTreeSet<String>,
    /// One of those writes requires only the orders to be unchanged: the daemon's answers do not end it.
    rests_on_orders: bool,
    /// When that write can no longer take effect.
    unknown_until: Mono,
    /// How long the daemon has been carrying out the orders.
    pub(super) acting: Acting,
    /// Number of orders by the state of their answers.
    pub(super) counts: OrderCounts,
}

impl Book {
    pub(super) fn known(&self) -> Option<&NodeWork> {
        self.work.as_ref().map(Tracked::get)
    }

    /// Until when the next write waits for more new orders, to write them together.
    pub(super) fn gathers(&self, now: Mono, room: &Room, node: &str, write: &BookWrite) -> Option<Mono> {
        let current: &[Order] = self.known().map_or(&[], |work| &work.orders);
        let new = write.orders.iter().filter(|order| !current.iter().any(|known| known.id == order.id));
        room.gathers(now, node, new.map(|order| order.pod.namespace.as_str())).filter(|_| write.adds)
    }

    pub(super) fn writable(&self) -> bool {
        !self.creating && self.work.as_ref().is_none_or(Tracked::writable)
    }

    /// The watch delivered the book. Only the leader writes orders. If the book has unexpected orders, another process
    /// also believes that it leads. This process then backs off. Otherwise the two would overwrite each other as fast
    /// as the API server answers.
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
            // Writes that require the earlier state have taken effect by now, or never will.
            self.writes_ended();
        }
        if orders.is_some_and(|before| self.known().is_some_and(|known| known.orders != before)) {
            self.write.failed(now);
        }
    }

    /// Notes since when this process knows what the book shows.
    pub(super) fn see(&mut self, now: Mono) {
        let known = self.work.as_ref().map(Tracked::get);
        self.acting.see(now, known);
        let answered = |view: &OrderView<'_>| view.answer.is_some() && view.order.action.resize.is_some();
        let since = |view: OrderView<'_>| {
            let id = &view.order.id;
            (id.clone(), self.answered.get(id).copied().unwrap_or(now))
        };
        self.answered = views(known).filter(answered).map(since).collect();
        self.counts = OrderCounts::default();
        views(known).for_each(|view| self.counts.add(view.answer.map(|answer| answer.state)));
    }

    /// The book does not exist any more.
    pub(super) fn gone(&mut self) {
        self.work = None;
        self.writes_ended();
    }

    /// The end of every write is known.
    pub(super) fn writes_ended(&mut self) {
        self.placing.clear();
        self.unknown.clear();
        self.rests_on_orders = false;
    }

    /// The end of the write under way is unknown; it may take effect until `until`.
    pub(super) fn write_unknown(&mut self, until: Mono) {
        self.unknown.clone_from(&self.placing);
        self.unknown_until = until;
    }

    /// The write under way had no effect.
    pub(super) fn write_refused(&mut self, now: Mono) {
        // If the node is gone, only time settles an earlier write: the watch has not shown the book.
        if self.work.is_none() && self.unknown_until <= now {
            self.unknown.clear();
        }
        self.placing.clone_from(&self.unknown);
    }

    /// What the writes that may still take effect require of the book.
    fn basis(&self) -> Basis {
        self.basis_for(self.rests_on_orders)
    }

    /// What a write requires of the book. `adds`: it only adds orders.
    fn basis_for(&self, adds: bool) -> Basis {
        match self.known() {
            None => Basis::Absent,
            Some(work) if adds => Basis::Orders { uid: work.uid.clone(), generation: work.generation },
            Some(work) => Basis::Version(work.resource_version.clone()),
        }
    }

    /// A write starts. Returns what it requires of the book. While an earlier write may still take effect, this is all
    /// of the book, so that the result shows how the earlier one ended.
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

    /// A write that keeps the orders, and after which earlier writes can no longer take effect. The API server gives a
    /// write that changes nothing no new version and no new generation. So this one changes `spec.closed`, by the UID
    /// of a request, which is no order's ID.
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

    /// Forgets times that were measured while another process led.
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

    /// A write that adds an order takes effect even if the daemon answers meanwhile, so an answer does not settle it.
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

    /// The API server stores no write that changes nothing; the write before could then still be stored.
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
