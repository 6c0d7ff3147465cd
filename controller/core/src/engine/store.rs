//! What the engine keeps of the objects of one kind.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::nodework::Order;

use super::any::Touched;
use super::bound::Bound;
use super::deeds::Deeds;
use super::open::Open;
use super::pacing::Pacing;
use super::queue::{Position, Progress, Queues};
use super::remove;
use crate::action::Object;
use crate::backoff::Backoff;
use crate::blocker::Blocker;
use crate::change::{ImageChange, Sizing};
use crate::key::ObjectKey;
use crate::kind::{Dormant, Kind, WorkState};
use crate::nodework::may_run;
use crate::pod::{Group, Pod};
use crate::pod_check::PodCheck;
use crate::time::Mono;
use crate::tracked::Tracked;

/// All objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Store<K: Kind> {
    /// A list came since this process became leader.
    pub(super) synced: bool,
    /// Number of the last list, or of the one that is arriving.
    round: u32,
    pub(super) objects: BTreeMap<ObjectKey, Entry<K>>,
    /// Requests that rest: they have ended, and only their deletion is left.
    pub(super) resting: BTreeMap<ObjectKey, RestingRequest>,
    /// Requests by the Pod that they name.
    pub(super) queues: Queues,
    /// Which of them are within their namespace's limit.
    pub(super) bound: Bound,
    /// Objects that have not ended.
    pub(super) open: Open,
    /// Requests that are open, want orders or have a claim, by their target's node.
    pub(super) by_node: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Objects by the UID of the request that made them.
    pub(super) by_owner: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Objects to plan.
    pub(super) dirty: BTreeSet<ObjectKey>,
}

impl<K: Kind> Store<K> {
    /// An empty store. `most`: how many requests of a namespace are carried out at a time; None: no limit.
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

    /// Requests of the Pod with that progress, the oldest first.
    pub(super) fn of(
        &self,
        pod: &ObjectKey,
        progress: Progress,
    ) -> impl DoubleEndedIterator<Item = &Entry<K>> + use<'_, K> {
        self.queues.of(pod, progress).filter_map(|position| self.objects.get(&position.key))
    }

    /// A part of a list arrives. `first`: the first one.
    pub(super) fn list_begins(&mut self, first: bool) {
        self.round = self.round.wrapping_add(u32::from(first));
    }

    /// Objects that the last list has not named.
    pub(super) fn unlisted(&self) -> Vec<ObjectKey> {
        let lost = self.objects.iter().filter(|(_, entry)| entry.round != self.round);
        let rest = self.resting.iter().filter(|(_, rest)| rest.round != self.round);
        lost.map(|(key, _)| key).chain(rest.map(|(key, _)| key)).cloned().collect()
    }

    /// UID of the object with that key, resting or not.
    pub(super) fn uid(&self, key: &ObjectKey) -> Option<&str> {
        let rests = || self.resting.get(key).map(|rest| rest.uid.as_str());
        self.objects.get(key).map(|e| e.request.get().uid()).or_else(rests)
    }

    /// Stores the entry, and updates the queue and the counts.
    pub(super) fn insert(&mut self, key: &ObjectKey, mut entry: Entry<K>) {
        let before = (entry.progress, entry.open);
        (entry.progress, entry.open) = (entry.progress(), !entry.request.get().completed());
        self.moved(&entry, before);
        self.objects.insert(key.clone(), entry);
    }

    /// Removes the entry, to change or to forget it.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Entry<K>> {
        let mut entry = self.objects.remove(key)?;
        let before = (entry.progress.take(), std::mem::take(&mut entry.open));
        self.moved(&entry, before);
        Some(entry)
    }

    /// Lets a request rest: keeps only what its deletion needs.
    pub(super) fn rest(&mut self, key: &ObjectKey, now: Mono) {
        let Some(mut entry) = self.remove(key) else { return };
        let since = K::completed_seen(&mut entry.memory).unwrap_or(now);
        let request = entry.request.get();
        let expiry = request.ttl().map(|ttl| since.after(ttl));
        let (uid, round) = (request.uid().to_owned(), entry.round);
        let rest = RestingRequest { uid, since, round, expiry, deletes: Backoff::default() };
        self.resting.insert(key.clone(), rest);
    }

    /// The watch delivered the object. `listed`: in a list.
    pub(super) fn upsert(&mut self, now: Mono, request: K, listed: bool) {
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

    /// Removes the entry from the index by owner.
    pub(super) fn disown(&mut self, entry: &Entry<K>) {
        let meta = entry.request.get().meta();
        if let Some(owner) = meta.owner {
            remove(&mut self.by_owner, &owner.uid, meta.key);
        }
    }

    /// A new entry, for a resting request or a new one.
    fn wake(&mut self, now: Mono, request: K) -> Entry<K> {
        let rest = self.resting.remove(request.meta().key).filter(|rest| rest.uid == request.uid());
        let mut entry = Entry::new(now, request);
        *K::completed_seen(&mut entry.memory) = rest.map(|rest| rest.since);
        entry
    }

    /// Updates the progress of a changed request.
    pub(super) fn requeue(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.objects.remove(key) {
            self.insert(key, entry);
        }
    }

    fn moved(&mut self, entry: &Entry<K>, (progress, open): (Option<Progress>, bool)) {
        let created = entry.request.get().meta().created;
        let created = |progress| Some(created).filter(|_| progress != Some(Progress::Asks));
        if open {
            self.open.leave(created(progress));
        }
        if entry.open {
            self.open.enter(created(entry.progress));
        }
        if entry.progress == progress {
            return;
        }
        let request = entry.request.get();
        let pod = request.pod_key();
        let meta = request.meta();
        let position = |progress| Position { progress, created: meta.created, key: meta.key.clone() };
        if let Some(before) = progress {
            let position = position(before);
            self.queues.leave(&pod, &position);
            self.bound.leave(&position);
        }
        if let Some(now) = entry.progress {
            let position = position(now);
            self.bound.enter(&position);
            self.queues.enter(&pod, position);
        }
    }

    /// The wait of a request beyond its namespace's limit; None if it is within.
    pub(super) fn too_many(&self, request: &K) -> Option<Blocker> {
        self.bound.exceeded(request.meta().created, request.meta().key).map(Blocker::TooMany)
    }

    /// Requests whose orders belong into the node's book.
    pub(super) fn of_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Entry<K>> {
        let keys = self.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key)).filter(move |e| node_of(e.request.get()) == Some(node))
    }

    /// This process starts or stops leading.
    pub(super) fn begin_lead(&mut self, now: Mono, leading: bool) {
        self.synced &= !leading;
        self.objects.values_mut().for_each(|entry| entry.restart(now));
        self.resting.values_mut().for_each(|rest| rest.since = now);
    }
}

/// A resting request: it has ended, and only its timely deletion is left.
#[derive(Clone, Debug)]
pub(super) struct RestingRequest {
    pub(super) uid: String,
    /// When this process first saw it completed.
    since: Mono,
    /// [`Entry::round`].
    round: u32,
    /// When to delete it; None: never.
    pub(super) expiry: Option<Mono>,
    /// Back-off after failed deletions.
    pub(super) deletes: Backoff,
}

/// Whether the claim of a request may count, as far as known.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    /// Since when this process knows the request. A survey from before may lack what its user changed just before.
    pub(super) since: Mono,
    /// Whether the claim counts again, after a later request that replaced it is gone. None: not checked.
    pub(super) reinstated: Option<Result<(), Dormant>>,
    /// Since when this is unknown and must be checked.
    pub(super) doubtful_since: Option<Mono>,
}

/// Whether a request may be accepted for its Pod, and when that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Acceptance {
    /// Nothing is known.
    #[default]
    Open,
    /// It waits, and was seen to be possible.
    Possible,
    /// When its acceptance was first sent, with whatever result. No other request for the Pod overtakes it.
    Begun(Mono),
}

impl Acceptance {
    /// When its acceptance was first sent.
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
    /// Number of the newest list when a list or a change last named the object.
    round: u32,
    pub(super) write: Pacing,
    /// Orders that the request wants in its node's book.
    pub(super) orders: Vec<Order>,
    /// IDs of those orders that outlive the request.
    pub(super) closed: Vec<String>,
    /// The images that it wants in its Pod.
    pub(super) images: Vec<ImageChange>,
    /// The resources that it wants in its Pod.
    pub(super) sizing: Option<Sizing>,
    /// Its deeds.
    pub(super) deeds: Deeds,
    /// What is known of its Pod while the watch does not show it.
    pub(super) pod_check: PodCheck,
    /// The Pods that it manages.
    pub(super) groups: Vec<Group>,
    /// State of its acceptance.
    pub(super) acceptance: Acceptance,
    /// Whether its claim is admitted.
    pub(super) admission: Admission,
    /// Its progress in the queue of its Pod.
    progress: Option<Progress>,
    /// It is counted as open.
    open: bool,
    /// Its node's book had orders of it when it was planned last.
    pub(super) ordered: bool,
    /// The status that the write under way replaces.
    pub(super) replaces: Option<Box<K::Status>>,
    /// This process has written the request as leader, but not its end. So it knows of every end that was stored.
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
            pod_check: PodCheck::default(),
            groups: Vec::new(),
            acceptance: Acceptance::Open,
            admission: Admission { since: now, ..Admission::default() },
            progress: None,
            open: false,
            ordered: false,
            replaces: None,
            confirmed: false,
        }
    }

    /// Its acceptance is sent.
    pub(super) fn begin(&mut self, now: Mono) {
        self.acceptance = Acceptance::Begun(self.acceptance.begun().unwrap_or(now));
    }

    /// Notes that it is possible. Returns whether this is new.
    pub(super) fn possible(&mut self) -> bool {
        let new = self.acceptance == Acceptance::Open;
        if new {
            self.acceptance = Acceptance::Possible;
        }
        new
    }

    /// Whether nothing has begun for it.
    pub(super) fn waits(&self) -> bool {
        matches!(self.progress(), Some(Progress::Waits | Progress::Asks))
    }

    /// Whether it has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// What a change of it affects.
    pub(super) fn touches(&self) -> Touched {
        let request = self.request.get();
        let meta = request.meta();
        let owner =
            meta.owner.map(|owner| (owner.kind.clone(), ObjectKey::new(&meta.key.namespace, &owner.name)));
        Touched { pod: request.pod_key(), owner, child: request.child() }
    }

    /// Whether it wants orders, or its node's book still has some.
    pub(super) fn has_orders(&self) -> bool {
        self.ordered || !self.orders.is_empty()
    }

    /// Its progress with its Pod; None once it has ended without orders or a claim.
    fn progress(&self) -> Option<Progress> {
        let request = self.request.get();
        if request.completed() {
            let lasts = request.claim().map(|_| Progress::Lasts);
            return if self.has_orders() { Some(Progress::Lingers) } else { lasts };
        }
        Some(if request.meta().deleting {
            Progress::Lingers
        } else if request.changes_nothing() {
            Progress::Asks
        } else if self.acceptance.begun().is_some() || request.target().is_some() {
            Progress::Begun
        } else {
            Progress::Waits
        })
    }

    /// Since when it is in the way of requests of other kinds.
    pub(super) fn disturbs(&self, pod: Option<&Pod>) -> Option<Mono> {
        let lingers = match self.progress()? {
            Progress::Begun => false,
            Progress::Lingers => true,
            Progress::Waits | Progress::Asks | Progress::Lasts => return None,
        };
        let stops = self.orders.iter().any(|order| may_run(order, pod));
        let work = WorkState { begun: self.acceptance.begun(), lingers, stops };
        self.request.get().disturbs(&self.memory, work, pod)
    }

    /// Whether it may rest: it has ended, nothing is wanted or under way, and it has no owner.
    pub(super) fn may_rest(&self) -> bool {
        let request = self.request.get();
        let through = request.completed() && !request.meta().deleting && self.progress().is_none();
        // An owner still looks at the requests that it made.
        let watched = request.meta().owner.is_some();
        through && self.request.settled() && self.deeds.open().is_none() && !watched
    }

    /// Forgets times that were measured while another process led.
    fn restart(&mut self, now: Mono) {
        self.memory = K::remember(now);
        self.confirmed = false;
        if self.acceptance == Acceptance::Possible {
            self.acceptance = Acceptance::Open;
        }
        self.write = Pacing::default();
        self.deeds = Deeds::default();
        self.pod_check = PodCheck::default();
        self.groups = Vec::new();
        self.admission = Admission { since: now, ..Admission::default() };
        self.request.retry();
    }
}

/// The request as actions name it.
pub(super) fn object<K: Kind>(request: &K) -> Object {
    Object { kind: K::ABOUT.id, key: request.meta().key.clone(), uid: request.uid().to_owned() }
}

/// Node of the Pod that the request was accepted for.
pub(super) fn node_of<K: Kind>(request: &K) -> Option<&str> {
    request.target().map(|target| target.node)
}
