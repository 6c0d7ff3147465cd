//! What users ask for, whatever its kind: what is kept of each object, and what the index needs to know of a kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::nodework::Order;

use super::bound::Bound;
use super::deeds::Deeds;
use super::pacing::Pacing;
use super::queue::{Place, Queues, Standing};
use super::{Index, Timer};
use crate::action::{Action, ImageChange, Note, RequestKind, Sizing};
use crate::backoff::Backoff;
use crate::before::Before;
use crate::key::ObjectKey;
use crate::look::Look;
use crate::measure::Measure;
use crate::plan::Plan;
use crate::time::Mono;
use crate::tracked::{Tracked, Versioned};

/// A kind of objects by which users ask for something to be done to one Pod.
pub(super) trait UserRequest: Versioned + Clone + Debug {
    /// `status`.
    type Status: Clone + PartialEq + Debug;
    /// What this process remembers of one.
    type Memory: Clone + Debug;
    /// What people call it.
    const KIND: RequestKind;

    /// Where the index keeps them.
    fn asked(index: &Index) -> &Asked<Self>;
    /// Where the index keeps them.
    fn asked_mut(index: &mut Index) -> &mut Asked<Self>;
    /// Its timer.
    fn timer(key: ObjectKey) -> Timer;
    /// First seen now.
    fn remember(now: Mono) -> Self::Memory;

    /// Namespace and name.
    fn key(&self) -> &ObjectKey;
    /// The Pod that it names.
    fn pod_key(&self) -> ObjectKey;
    /// The UID of the Pod that it means, once that is known.
    fn pod_uid(&self) -> Option<&str>;
    /// `metadata.creationTimestamp`.
    fn created(&self) -> i64;
    /// It is about to be deleted.
    fn deleting(&self) -> bool;
    /// It has ended.
    fn completed(&self) -> bool;
    /// It only asks what would be.
    fn asks(&self) -> bool {
        false
    }
    /// It counts beyond its end: what it gave is kept up.
    fn lasts(&self) -> bool {
        false
    }
    /// `status`.
    fn status(&self) -> &Self::Status;
    /// The node of the Pod that it was accepted for.
    fn node(&self) -> Option<&str>;

    /// The status of one that was accepted.
    fn accepted(status: &Self::Status) -> bool;
    /// The status of one that has ended.
    fn over(status: &Self::Status) -> bool;

    /// What it needs, and what is worth a number.
    fn decide(
        index: &Index,
        now: Mono,
        wall: DateTime<Utc>,
        entry: &mut Entry<Self>,
    ) -> (Plan<Self::Status>, Vec<Measure>);

    /// The recreate request that it makes, or has made.
    fn child(&self) -> Option<ObjectKey> {
        None
    }

    /// It keeps others from the Pod for now.
    fn busy(_: &Entry<Self>) -> bool {
        false
    }

    /// The reading that its plan wants, if it may begin; else when it may.
    fn survey(_: &Index, _: Mono, _: &mut Entry<Self>) -> Result<Option<Action>, Mono> {
        Ok(None)
    }

    /// The write of its status.
    fn write_status(&self, status: Self::Status) -> Action;
    /// The write that deletes one.
    fn delete(key: &ObjectKey, uid: &str) -> Action;
    /// How long it stays once it has ended; absent for ever.
    fn ttl(&self) -> Option<Duration>;
    /// Others look at it beyond its end.
    fn is_watched(&self) -> bool;
    /// When this process first saw it completed.
    fn completed_seen(memory: &mut Self::Memory) -> &mut Option<Mono>;
    /// The write of its labels and annotations; absent where nobody wants any.
    fn patch_metadata(&self, plan: &Plan<Self::Status>) -> Option<Action>;

    /// The events that a change of its status is worth.
    fn notes(&self, old: &Self::Status) -> Vec<Note>;
    /// What to count when a change of its status is stored.
    fn measure(&self, old: &Self::Status) -> Option<Measure>;
}

/// All objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Asked<R: UserRequest> {
    /// A list has come since the lead began.
    pub(super) synced: bool,
    pub(super) objects: BTreeMap<ObjectKey, Entry<R>>,
    /// Those that are over and through.
    pub(super) resting: BTreeMap<ObjectKey, Rest>,
    /// By the Pod that they name.
    pub(super) queues: Queues,
    /// Those of them that have a place among those of their namespace.
    bound: Bound,
    /// How many have not ended.
    pub(super) open: usize,
    /// By their target's node: those that are open or want orders.
    pub(super) by_node: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// To be planned.
    pub(super) dirty: BTreeSet<ObjectKey>,
}

impl<R: UserRequest> Asked<R> {
    /// None known yet; `most`: how many of a namespace are carried out at a time.
    pub(super) fn new(most: Option<usize>) -> Self {
        Self {
            synced: false,
            objects: BTreeMap::new(),
            resting: BTreeMap::new(),
            queues: Queues::default(),
            bound: Bound::new(most),
            open: 0,
            by_node: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Those that are so far with the Pod, the oldest first.
    pub(super) fn of(
        &self,
        pod: &ObjectKey,
        standing: Standing,
    ) -> impl DoubleEndedIterator<Item = &Entry<R>> + use<'_, R> {
        self.queues.of(pod, standing).filter_map(|place| self.objects.get(&place.key))
    }

    /// Takes what is known of the request in, or its end.
    pub(super) fn insert(&mut self, key: &ObjectKey, mut entry: Entry<R>) {
        let before = (entry.standing, entry.open);
        (entry.standing, entry.open) = (entry.stands(), !entry.request.get().completed());
        self.moved(&entry, before);
        self.objects.insert(key.clone(), entry);
    }

    /// Takes the request out, to be changed or to be forgotten.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Entry<R>> {
        let mut entry = self.objects.remove(key)?;
        let before = (entry.standing.take(), std::mem::take(&mut entry.open));
        self.moved(&entry, before);
        Some(entry)
    }

    /// Of a request that is over and through, all but its name goes.
    pub(super) fn rest(&mut self, key: &ObjectKey, now: Mono) {
        let Some(mut entry) = self.remove(key) else { return };
        let since = R::completed_seen(&mut entry.memory).unwrap_or(now);
        let request = entry.request.get();
        let expiry = request.ttl().map(|ttl| since.after(ttl));
        let rest = Rest { uid: request.uid().to_owned(), since, expiry, deletes: Backoff::default() };
        self.resting.insert(key.clone(), rest);
    }

    /// Takes one that the watch tells of anew out of those that rest.
    pub(super) fn wake(&mut self, now: Mono, request: R) -> Entry<R> {
        let rest = self.resting.remove(request.key()).filter(|rest| rest.uid == request.uid());
        let mut entry = Entry::new(now, request);
        *R::completed_seen(&mut entry.memory) = rest.map(|rest| rest.since);
        entry
    }

    /// Notes how far a request is that is not where it was.
    pub(super) fn stand(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.objects.remove(key) {
            self.insert(key, entry);
        }
    }

    fn moved(&mut self, entry: &Entry<R>, (standing, open): (Option<Standing>, bool)) {
        self.open = self.open.saturating_sub(usize::from(open)).saturating_add(usize::from(entry.open));
        if entry.standing == standing {
            return;
        }
        let request = entry.request.get();
        let pod = request.pod_key();
        let place = |standing| Place { standing, created: request.created(), key: request.key().clone() };
        if let Some(before) = standing {
            let place = place(before);
            self.queues.leave(&pod, &place);
            self.bound.leave(&place);
        }
        if let Some(now) = entry.standing {
            let place = place(now);
            self.bound.enter(&place);
            self.queues.enter(&pod, place);
        }
    }

    /// Those whose waits are others since places became free, or others took them, are to be planned.
    pub(super) fn give_places(&mut self) {
        self.dirty.extend(self.bound.give());
    }

    /// What goes before a request that has not begun: others of its namespace.
    pub(super) fn too_many(&self, request: &R) -> Option<Before> {
        self.bound.before(request.created(), request.key()).map(Before::TooMany)
    }

    /// Those whose orders belong into the node's book.
    pub(super) fn of_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Entry<R>> {
        let keys = self.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key)).filter(move |e| e.request.get().node() == Some(node))
    }

    /// Everything is to be planned.
    pub(super) fn all_dirty(&mut self) {
        self.dirty.extend(self.objects.keys().cloned());
    }

    /// Those that a change of the Pod concerns are to be planned.
    pub(super) fn pod_changed(&mut self, pod: &ObjectKey) {
        self.dirty.extend(self.queues.concerned(pod).cloned());
    }

    /// Those that look at the node's book are to be planned.
    pub(super) fn book_changed(&mut self, node: &str) {
        let keys = self.by_node.get(node).into_iter().flatten();
        let looks = |e: &Entry<R>| e.open || e.has_orders();
        self.dirty.extend(keys.filter(|key| self.objects.get(key).is_some_and(looks)).cloned());
    }

    /// The lead begins or ends.
    pub(super) fn lead(&mut self, now: Mono, leading: bool) {
        self.synced &= !leading;
        self.objects.values_mut().for_each(|entry| entry.restart(now));
        self.resting.values_mut().for_each(|rest| rest.since = now);
    }
}

/// A request that is over and through: what is left of it is its deletion in time.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) uid: String,
    /// When this process first saw it completed.
    since: Mono,
    /// When its time is over; absent for never.
    pub(super) expiry: Option<Mono>,
    /// Deletions that failed.
    pub(super) deletes: Backoff,
}

/// What is known of a request's turn with its Pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing.
    #[default]
    Open,
    /// It waits, and was seen to be possible.
    Possible,
    /// Since then its acceptance has been sent once, whatever came of it: no other request for the Pod overtakes it.
    Begun(Mono),
}

impl Turn {
    /// Since when its acceptance has been sent.
    pub(super) fn begun(self) -> Option<Mono> {
        match self {
            Self::Begun(since) => Some(since),
            Self::Open | Self::Possible => None,
        }
    }

    /// Its acceptance is sent.
    pub(super) fn begin(&mut self, now: Mono) {
        *self = Self::Begun(self.begun().unwrap_or(now));
    }

    /// It was seen to be possible. Whether that is new.
    pub(super) fn possible(&mut self) -> bool {
        let new = *self == Self::Open;
        if new {
            *self = Self::Possible;
        }
        new
    }

    /// What was seen while another process led may be otherwise by now.
    fn restart(&mut self) {
        if *self == Self::Possible {
            *self = Self::Open;
        }
    }
}

/// One object.
#[derive(Clone, Debug)]
pub(super) struct Entry<R: UserRequest> {
    pub(super) request: Tracked<R>,
    pub(super) memory: R::Memory,
    pub(super) write: Pacing,
    /// What the request wants in its node's book.
    pub(super) orders: Vec<Order>,
    /// IDs of those of them that outlive the request.
    pub(super) closed: Vec<String>,
    /// The images that it wants in its Pod.
    pub(super) images: Vec<ImageChange>,
    /// The resources that it wants in its Pod.
    pub(super) sizing: Option<Sizing>,
    /// What it has done beside.
    pub(super) deeds: Deeds,
    /// What is known of its Pod while the watch does not show it.
    pub(super) look: Look,
    /// What is known of its turn.
    pub(super) turn: Turn,
    /// How far it is with its Pod, as the queue has it.
    standing: Option<Standing>,
    /// It counts as one that has not ended.
    open: bool,
    /// Orders of its own stood in its node's book when it was planned last.
    pub(super) ordered: bool,
    /// The status that the write under way replaces.
    pub(super) replaces: Option<Box<R::Status>>,
    /// This process has written the request since it leads, and not its end: it knows of every end that was stored.
    pub(super) confirmed: bool,
}

impl<R: UserRequest> Entry<R> {
    pub(super) fn new(now: Mono, request: R) -> Self {
        Self {
            request: Tracked::new(request),
            memory: R::remember(now),
            write: Pacing::default(),
            orders: Vec::new(),
            closed: Vec::new(),
            images: Vec::new(),
            sizing: None,
            deeds: Deeds::default(),
            look: Look::default(),
            turn: Turn::Open,
            standing: None,
            open: false,
            ordered: false,
            replaces: None,
            confirmed: false,
        }
    }

    /// Orders of its own are wanted, or have yet to go from its node's book.
    pub(super) fn has_orders(&self) -> bool {
        self.ordered || !self.orders.is_empty()
    }

    /// How far it is with its Pod; absent once it is over and through.
    fn stands(&self) -> Option<Standing> {
        let request = self.request.get();
        if request.completed() {
            let lasts = request.lasts().then_some(Standing::Lasts);
            return if self.has_orders() { Some(Standing::Lingers) } else { lasts };
        }
        Some(if request.deleting() {
            Standing::Lingers
        } else if request.asks() {
            Standing::Asks
        } else if self.turn.begun().is_some() || R::accepted(request.status()) {
            Standing::Begun
        } else {
            Standing::Waits
        })
    }

    /// It is over and through: nothing is wanted or under way, and nobody looks at it.
    pub(super) fn may_rest(&self) -> bool {
        let request = self.request.get();
        let through = request.completed() && !request.deleting() && self.stands().is_none();
        through && self.request.settled() && self.deeds.open().is_none() && !request.is_watched()
    }

    /// What was timed while another process led is timed anew.
    fn restart(&mut self, now: Mono) {
        self.memory = R::remember(now);
        self.confirmed = false;
        self.turn.restart();
        self.write = Pacing::default();
        self.deeds = Deeds::default();
        self.look = Look::default();
        self.request.retry();
    }
}
