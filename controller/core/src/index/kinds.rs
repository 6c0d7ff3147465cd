//! What is kept of each object.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::nodework::{Order, request_uid};
use pitstop_api::recreate::ContainerRecreateRequestStatus;

use super::pacing::Pacing;
use crate::action::ImageChange;
use crate::key::ObjectKey;
use crate::nodework::{BookWrite, NodeWork};
use crate::pod::Pod;
use crate::recreate::{Memory, Request, Stages, Urgency};
use crate::time::Mono;
use crate::tracked::{Tracked, Versioned};

/// Objects of one kind, and whether a list has come since the lead began.
#[derive(Clone, Debug)]
pub(super) struct Kind<T> {
    pub(super) synced: bool,
    pub(super) objects: BTreeMap<ObjectKey, T>,
}

impl<T> Default for Kind<T> {
    fn default() -> Self {
        Self { synced: false, objects: BTreeMap::new() }
    }
}

/// A Pod.
#[derive(Clone, Debug)]
pub(super) struct PodEntry {
    pub(super) pod: Tracked<Pod>,
    pub(super) write: Pacing,
    /// The version that a write of images rests on which is under way, or of which nobody knows how it ended.
    pub(super) pinning: Option<String>,
}

impl PodEntry {
    pub(super) fn new(pod: Pod) -> Self {
        Self { pod: Tracked::new(pod), write: Pacing::default(), pinning: None }
    }

    /// What was timed while another process led is timed anew.
    pub(super) fn restart(&mut self) {
        self.write = Pacing::default();
        self.pinning = None;
        self.pod.retry();
    }

    /// A write of images can no longer take effect once the Pod is another version than it rests on.
    pub(super) fn settle(&mut self) {
        if !self.pod.in_flight() {
            self.pinning.take_if(|version| *version != self.pod.get().resource_version);
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) request: Tracked<Request>,
    pub(super) memory: Memory,
    pub(super) write: Pacing,
    /// What the request wants in its node's book.
    pub(super) orders: Vec<Order>,
    /// The images that it wants in its Pod.
    pub(super) images: Vec<ImageChange>,
    /// Its acceptance was sent once, whatever came of it: no other request for the Pod overtakes it.
    pub(super) chosen: bool,
    /// The status that the write under way replaces.
    pub(super) replaces: Option<Box<ContainerRecreateRequestStatus>>,
    /// This process has written the request since it leads, and not its end: it knows of every end that was stored.
    pub(super) confirmed: bool,
    /// How long its stages take.
    pub(super) stages: Stages,
}

impl Entry {
    pub(super) fn new(now: Mono, request: Request) -> Self {
        Self {
            request: Tracked::new(request),
            memory: Memory::new(now),
            write: Pacing::default(),
            orders: Vec::new(),
            images: Vec::new(),
            chosen: false,
            replaces: None,
            confirmed: false,
            stages: Stages::default(),
        }
    }

    /// What was timed while another process led is timed anew.
    pub(super) fn restart(&mut self, now: Mono) {
        self.memory = Memory::new(now);
        self.stages = Stages::default();
        self.confirmed = false;
        self.write = Pacing::default();
        self.request.retry();
    }
}

/// A node's order book.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// Absent while the object does not exist.
    pub(super) work: Option<Tracked<NodeWork>>,
    /// A create is under way, and the watch has not shown the object yet.
    pub(super) creating: bool,
    pub(super) write: Pacing,
    /// Requests of which a write places orders: one under way, or one that ended unknown.
    pub(super) placing: BTreeSet<String>,
    /// Those of them whose write ended unknown: that a later one was refused says nothing of it.
    unknown: BTreeSet<String>,
}

impl Book {
    pub(super) fn known(&self) -> Option<&NodeWork> {
        self.work.as_ref().map(Tracked::get)
    }

    pub(super) fn writable(&self) -> bool {
        !self.creating && self.work.as_ref().is_none_or(Tracked::writable)
    }

    /// The watch delivered the book.
    pub(super) fn observed(&mut self, work: NodeWork, listed: bool) {
        let before = self.version();
        match &mut self.work {
            Some(known) if listed => known.listed(work),
            Some(known) => known.observed(work),
            None if std::mem::take(&mut self.creating) => self.work = Some(Tracked::appeared(work)),
            None => self.work = Some(Tracked::new(work)),
        }
        if self.version() != before {
            // Whatever was written on the version before has taken effect by now, or never will.
            self.placed();
        }
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
    }

    /// Nobody knows how the write under way ended.
    pub(super) fn write_unknown(&mut self) {
        self.unknown.clone_from(&self.placing);
    }

    /// The write under way had no effect.
    pub(super) fn write_refused(&mut self) {
        self.placing.clone_from(&self.unknown);
    }

    fn version(&self) -> Option<(String, String)> {
        self.known().map(|w| (w.uid().to_owned(), w.resource_version().to_owned()))
    }

    /// A write of these orders starts.
    pub(super) fn write_started(&mut self, orders: &[Order]) {
        let known = self.work.as_ref().map(Tracked::get);
        let new = |o: &&Order| known.is_none_or(|w| w.orders.iter().all(|k| k.id != o.id));
        self.placing.extend(orders.iter().filter(new).map(|o| request_uid(&o.id).to_owned()));
        match &mut self.work {
            Some(work) => work.write_started(),
            None => self.creating = true,
        }
    }

    /// A write that changes nothing but tells, by its precondition, whether the one before took effect.
    pub(super) fn probe(&self) -> Option<BookWrite> {
        let orders = self.known().map_or_else(Vec::new, |w| w.orders.clone());
        (!self.placing.is_empty()).then_some(BookWrite { orders, urgency: Urgency::Now })
    }

    /// What was timed while another process led is timed anew.
    pub(super) fn restart(&mut self) {
        self.write = Pacing::default();
        if let Some(work) = &mut self.work {
            work.retry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_nothing_of_the_write_before_it() {
        let mut book = Book::default();
        book.write_started(&[Order { id: "a/app/1".into(), ..Order::default() }]);
        book.write_unknown();
        assert!(book.probe().is_some());
        book.write_started(&[Order { id: "b/app/1".into(), ..Order::default() }]);
        book.write_refused();
        assert_eq!(book.placing, BTreeSet::from(["a".to_owned()]));
        book.observed(NodeWork { resource_version: "1".into(), ..NodeWork::default() }, false);
        assert!(book.probe().is_none());
    }

    #[test]
    fn a_write_places_what_the_book_does_not_have_yet() {
        let order = |id: &str| Order { id: id.into(), ..Order::default() };
        let mut book = Book::default();
        let orders = vec![order("a/app/1"), order("a/proxy/1")];
        book.observed(NodeWork { orders: orders.clone(), ..NodeWork::default() }, true);
        let [app, proxy] = &orders[..] else { panic!() };
        book.write_started(&[app.clone(), proxy.clone(), order("b/app/1")]);
        assert_eq!(book.placing, BTreeSet::from(["b".to_owned()]));
    }
}
