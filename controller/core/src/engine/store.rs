//! What is kept of the objects of one kind.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::nodework::Order;

use super::any::Touched;
use super::bound::Bound;
use super::deeds::Deeds;
use super::open::Open;
use super::pacing::Pacing;
use super::queue::{Place, Queues, Standing};
use super::remove;
use crate::action::Object;
use crate::backoff::Backoff;
use crate::before::Before;
use crate::change::{ImageChange, Sizing};
use crate::key::ObjectKey;
use crate::kind::{At, Dormant, Kind};
use crate::look::Look;
use crate::nodework::may_run;
use crate::pod::{Group, Pod};
use crate::time::Mono;
use crate::tracked::Tracked;

/// All objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Store<K: Kind> {
    /// A list has come since the lead began.
    pub(super) synced: bool,
    /// The list that came last, or is coming.
    round: u32,
    pub(super) objects: BTreeMap<ObjectKey, Entry<K>>,
    /// Those that are over and through.
    pub(super) resting: BTreeMap<ObjectKey, Rest>,
    /// By the Pod that they name.
    pub(super) queues: Queues,
    /// Those of them that have a place among those of their namespace.
    pub(super) bound: Bound,
    /// Those that have not ended.
    pub(super) open: Open,
    /// By their targets' nodes: those that are open or want orders.
    pub(super) by_node: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// By the UIDs of the requests that made them.
    pub(super) by_owner: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// To be planned.
    pub(super) dirty: BTreeSet<ObjectKey>,
}

impl<K: Kind> Store<K> {
    /// None known yet; `most`: how many of a namespace are carried out at a time.
    pub(super) fn new(most: Option<usize>) -> Self {
        Self {
            synced: false,
            round: 0,
            objects: BTreeMap::new(),
            resting: BTreeMap::new(),
            queues: Queues::default(),
            bound: Bound::new(most.filter(|_| !K::ABOUT.many)),
            open: Open::default(),
            by_node: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Those that are so far with the Pod, the oldest first.
    pub(super) fn of(
        &self,
        pod: &ObjectKey,
        standing: Standing,
    ) -> impl DoubleEndedIterator<Item = &Entry<K>> + use<'_, K> {
        self.queues.of(pod, standing).filter_map(|place| self.objects.get(&place.key))
    }

    /// A part of a list comes; `first`: it begins.
    pub(super) fn list_begins(&mut self, first: bool) {
        self.round = self.round.wrapping_add(u32::from(first));
    }

    /// Those that the last list has not named.
    pub(super) fn unlisted(&self) -> Vec<ObjectKey> {
        let lost = self.objects.iter().filter(|(_, entry)| entry.round != self.round);
        let rest = self.resting.iter().filter(|(_, rest)| rest.round != self.round);
        lost.map(|(key, _)| key).chain(rest.map(|(key, _)| key)).cloned().collect()
    }

    /// The UID of the one of that name, whether it is at work or rests.
    pub(super) fn uid(&self, key: &ObjectKey) -> Option<&str> {
        let rests = || self.resting.get(key).map(|rest| rest.uid.as_str());
        self.objects.get(key).map(|e| e.request.get().uid()).or_else(rests)
    }

    /// Takes what is known of the request in, or its end.
    pub(super) fn insert(&mut self, key: &ObjectKey, mut entry: Entry<K>) {
        let before = (entry.standing, entry.open);
        (entry.standing, entry.open) = (entry.stands(), !entry.request.get().completed());
        self.moved(&entry, before);
        self.objects.insert(key.clone(), entry);
    }

    /// Takes the request out, to be changed or to be forgotten.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Entry<K>> {
        let mut entry = self.objects.remove(key)?;
        let before = (entry.standing.take(), std::mem::take(&mut entry.open));
        self.moved(&entry, before);
        Some(entry)
    }

    /// Of a request that is over and through, all but its name goes.
    pub(super) fn rest(&mut self, key: &ObjectKey, now: Mono) {
        let Some(mut entry) = self.remove(key) else { return };
        let since = K::completed_seen(&mut entry.memory).unwrap_or(now);
        let request = entry.request.get();
        let expiry = request.ttl().map(|ttl| since.after(ttl));
        let (uid, round) = (request.uid().to_owned(), entry.round);
        let rest = Rest { uid, since, round, expiry, deletes: Backoff::default() };
        self.resting.insert(key.clone(), rest);
    }

    /// The watch, or a list that it delivers, tells of one.
    pub(super) fn told(&mut self, now: Mono, request: K, listed: bool) {
        let key = request.meta().key.clone();
        let mut entry = match self.remove(&key) {
            None => self.wake(now, request),
            Some(mut entry) => {
                self.disown(&entry);
                if listed {
                    entry.request.listed(request);
                } else {
                    entry.request.observed(request);
                }
                entry
            }
        };
        entry.round = self.round;
        if let Some(owner) = entry.request.get().meta().owner {
            self.by_owner.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
        self.insert(&key, entry);
    }

    /// It does not stand with its owner any more.
    pub(super) fn disown(&mut self, entry: &Entry<K>) {
        let meta = entry.request.get().meta();
        if let Some(owner) = meta.owner {
            remove(&mut self.by_owner, &owner.uid, meta.key);
        }
    }

    /// Takes one out of those that rest.
    fn wake(&mut self, now: Mono, request: K) -> Entry<K> {
        let rest = self.resting.remove(request.meta().key).filter(|rest| rest.uid == request.uid());
        let mut entry = Entry::new(now, request);
        *K::completed_seen(&mut entry.memory) = rest.map(|rest| rest.since);
        entry
    }

    /// Notes how far a request is that is not where it was.
    pub(super) fn stand(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.objects.remove(key) {
            self.insert(key, entry);
        }
    }

    fn moved(&mut self, entry: &Entry<K>, (standing, open): (Option<Standing>, bool)) {
        let created = entry.request.get().meta().created;
        let created = |standing| Some(created).filter(|_| standing != Some(Standing::Asks));
        if open {
            self.open.leave(created(standing));
        }
        if entry.open {
            self.open.enter(created(entry.standing));
        }
        if entry.standing == standing {
            return;
        }
        let request = entry.request.get();
        let pod = request.pod_key();
        let meta = request.meta();
        let place = |standing| Place { standing, created: meta.created, key: meta.key.clone() };
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

    /// What goes before a request that has not begun: others of its namespace.
    pub(super) fn too_many(&self, request: &K) -> Option<Before> {
        self.bound.before(request.meta().created, request.meta().key).map(Before::TooMany)
    }

    /// Those whose orders belong into the node's book.
    pub(super) fn of_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Entry<K>> {
        let keys = self.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key)).filter(move |e| node_of(e.request.get()) == Some(node))
    }

    /// The lead begins or ends.
    pub(super) fn begin_lead(&mut self, now: Mono, leading: bool) {
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
    /// [`Entry::round`].
    round: u32,
    /// When its time is over; absent for never.
    pub(super) expiry: Option<Mono>,
    /// Deletions that failed.
    pub(super) deletes: Backoff,
}

/// What is known of whether the claim of a request may count.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    /// Since when this process knows of it: what was read before may lack what its user changed just before.
    pub(super) since: Mono,
    /// A later request had its place and is gone: whether what it gave counts again. Absent while nobody has asked.
    pub(super) anew: Option<Result<(), Dormant>>,
    /// Since when that is not known.
    pub(super) doubtful_since: Option<Mono>,
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
}

/// One object.
#[derive(Clone, Debug)]
pub(super) struct Entry<K: Kind> {
    pub(super) request: Tracked<K>,
    pub(super) memory: K::Memory,
    /// The list that named it last, or that was the last one when a change did.
    round: u32,
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
    /// The Pods that it looks after.
    pub(super) groups: Vec<Group>,
    /// What is known of its turn.
    pub(super) turn: Turn,
    /// Whether what it wants from the node's daemon is admitted.
    pub(super) admission: Admission,
    /// How far it is with its Pod, as the queue has it.
    standing: Option<Standing>,
    /// It counts as one that has not ended.
    open: bool,
    /// Orders of its own stood in its node's book when it was planned last.
    pub(super) ordered: bool,
    /// The status that the write under way replaces.
    pub(super) replaces: Option<Box<K::Status>>,
    /// This process has written the request since it leads, and not its end: it knows of every end that was stored.
    pub(super) confirmed: bool,
}

impl<K: Kind> Entry<K> {
    pub(super) fn new(now: Mono, request: K) -> Self {
        Self {
            request: Tracked::new(request),
            memory: K::remember(now),
            round: 0,
            write: Pacing::default(),
            orders: Vec::new(),
            closed: Vec::new(),
            images: Vec::new(),
            sizing: None,
            deeds: Deeds::default(),
            look: Look::default(),
            groups: Vec::new(),
            turn: Turn::Open,
            admission: Admission { since: now, ..Admission::default() },
            standing: None,
            open: false,
            ordered: false,
            replaces: None,
            confirmed: false,
        }
    }

    /// Its acceptance is sent.
    pub(super) fn begin(&mut self, now: Mono) {
        self.turn = Turn::Begun(self.turn.begun().unwrap_or(now));
    }

    /// It was seen to be possible. Whether that is new.
    pub(super) fn possible(&mut self) -> bool {
        let new = self.turn == Turn::Open;
        if new {
            self.turn = Turn::Possible;
        }
        new
    }

    /// Nothing has begun for it.
    pub(super) fn waits(&self) -> bool {
        matches!(self.stands(), Some(Standing::Waits | Standing::Asks))
    }

    /// It has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// What a change of it touches.
    pub(super) fn touches(&self) -> Touched {
        let request = self.request.get();
        let meta = request.meta();
        let owner =
            meta.owner.map(|owner| (owner.kind.clone(), ObjectKey::new(&meta.key.namespace, &owner.name)));
        Touched { pod: request.pod_key(), owner, child: request.child() }
    }

    /// Orders of its own are wanted, or have yet to go from its node's book.
    pub(super) fn has_orders(&self) -> bool {
        self.ordered || !self.orders.is_empty()
    }

    /// How far it is with its Pod; absent once it is over and through.
    fn stands(&self) -> Option<Standing> {
        let request = self.request.get();
        if request.completed() {
            let lasts = request.claim().map(|_| Standing::Lasts);
            return if self.has_orders() { Some(Standing::Lingers) } else { lasts };
        }
        Some(if request.meta().deleting {
            Standing::Lingers
        } else if request.asks() {
            Standing::Asks
        } else if self.turn.begun().is_some() || request.target().is_some() {
            Standing::Begun
        } else {
            Standing::Waits
        })
    }

    /// Since when it is in the way of requests of other kinds.
    pub(super) fn disturbs(&self, pod: Option<&Pod>) -> Option<Mono> {
        let lingers = match self.stands()? {
            Standing::Begun => false,
            Standing::Lingers => true,
            Standing::Waits | Standing::Asks | Standing::Lasts => return None,
        };
        let stops = self.orders.iter().any(|order| may_run(order, pod));
        let at = At { begun: self.turn.begun(), lingers, stops };
        self.request.get().disturbs(&self.memory, at, pod)
    }

    /// It is over and through: nothing is wanted or under way, and nobody looks at it.
    pub(super) fn may_rest(&self) -> bool {
        let request = self.request.get();
        let through = request.completed() && !request.meta().deleting && self.stands().is_none();
        // What belongs to another request is looked at by that one.
        let watched = request.meta().owner.is_some();
        through && self.request.settled() && self.deeds.open().is_none() && !watched
    }

    /// What was timed while another process led is timed anew.
    fn restart(&mut self, now: Mono) {
        self.memory = K::remember(now);
        self.confirmed = false;
        if self.turn == Turn::Possible {
            self.turn = Turn::Open;
        }
        self.write = Pacing::default();
        self.deeds = Deeds::default();
        self.look = Look::default();
        self.groups = Vec::new();
        self.admission = Admission { since: now, ..Admission::default() };
        self.request.retry();
    }
}

/// It, as actions name it.
pub(super) fn object<K: Kind>(request: &K) -> Object {
    Object { kind: K::ABOUT.id, key: request.meta().key.clone(), uid: request.uid().to_owned() }
}

/// The node of the Pod that it was accepted for.
pub(super) fn node_of<K: Kind>(request: &K) -> Option<&str> {
    request.target().map(|target| target.node)
}
