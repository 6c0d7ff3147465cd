//! Whose turn it is with a Pod. Requests of one kind go in order of creation, and none overtakes one that has begun.
//! Requests of different kinds do not change a Pod at the same time: each waits for what another has begun.
//!
//! For example, a restart during a resize leaves the Pod's cgroup at other values than its spec says
//! (kubernetes#138760).

use std::borrow::Cow;

use pitstop_api::rollout::TargetKind;

use super::Engine;
use super::any::{AnyStore, LAST_WAITING};
use super::queue::Progress;
use super::store::{Acceptance, Entry};
use super::stores::Stored;
use crate::blocker::Blocker;
use crate::change::Named;
use crate::hold::Force;
use crate::hold::admission::Usage;
use crate::key::{KindId, ObjectKey};
use crate::kind::{Ahead, Lookup, Owner, Relative};
use crate::pod::Pod;
use crate::time::Mono;
use crate::workload::Parking;

/// If more requests than this are in a Pod's queue, or beyond their namespace's limit, those that wait report it later.
const REPORTED_AT_ONCE: usize = 8;

impl Engine {
    /// What goes before a request. Until it is accepted: others of its namespace and its queue, and earlier requests.
    /// Then: only requests that have begun to change the Pod.
    pub(super) fn ahead<K: Stored>(&self, now: Mono, entry: &Entry<K>, pod: Option<&Pod>) -> Option<Ahead> {
        let own = entry.request.get();
        let meta = own.meta();
        let store = K::store(&self.stores);
        let waits = |blocker| Some(Ahead { blocker, until: None, has_pod: false, crowded: false });
        // A wait that was held back is not reported earlier just because many others got through.
        let many = store.queues.len(&own.pod_key()).max(store.bound.beyond(&meta.key.namespace));
        let crowded = many > REPORTED_AT_ONCE || entry.write.holds_back();
        let waits_for = |kind, key: &ObjectKey| waits(Blocker::Request(Named { kind, key: key.clone() }));
        let accepted = own.target().is_some();
        // A request whose owner has begun does not wait for others of its namespace. Requests of a rollout do: a
        // rollout has begun as soon as it exists, so it would bypass the limit.
        let waited_for = || self.owner(meta.owner).is_some_and(|(_, store)| !store.about().many);
        if let Some(blocker) = store.too_many(own).filter(|_| !accepted && !waited_for()) {
            return waits(blocker).map(|ahead| Ahead { crowded, ..ahead });
        }
        // A dry run or a suspended request neither blocks nor is blocked.
        if own.changes_nothing() {
            return None;
        }
        let key = own.pod_key();
        if let Some(first) = store.queues.first(&key).filter(|first| !accepted && first.key != *meta.key) {
            return waits_for(K::ABOUT.id, &first.key).map(|ahead| Ahead { crowded, ..ahead });
        }
        if let Some(ahead) = self.disturbed(now, entry, &key, pod) {
            return Some(ahead);
        }
        // The others wait for this request once its acceptance is sent.
        let yields = !accepted && K::ABOUT.sharing.yields && entry.acceptance.begun().is_none();
        let mut others = self.others(K::ABOUT.id).filter(|_| yields);
        others.find_map(|other| {
            let first = other.first_waiting(&key).filter(|first| first.created < meta.created)?;
            waits_for(other.about().id, &first.key)
        })
    }

    /// The request of another kind that has begun to change the Pod, if neither owns the other.
    fn disturbed<K: Stored>(
        &self,
        now: Mono,
        entry: &Entry<K>,
        key: &ObjectKey,
        pod: Option<&Pod>,
    ) -> Option<Ahead> {
        let own = entry.request.get();
        let owner = own.meta().owner.map(|owner| owner.uid.as_str());
        let related = |uid: &str, of: Option<&str>| owner == Some(uid) || of == Some(own.uid());
        self.others(K::ABOUT.id).find_map(|other| {
            other.disturbing(key, pod, &related).into_iter().find_map(|it| {
                let patience = K::ABOUT.sharing.patience.filter(|_| other.about().sharing.stalls);
                let until = patience.map(|patience| it.since.after(patience));
                let blocker = Blocker::Request(Named { kind: other.about().id, key: it.key.clone() });
                until.is_none_or(|until| until > now).then_some(Ahead {
                    blocker,
                    until,
                    has_pod: it.accepted,
                    crowded: false,
                })
            })
        })
    }

    fn others(&self, kind: KindId) -> impl Iterator<Item = &dyn AnyStore> {
        self.stores.each().filter(move |store| store.about().id != kind)
    }

    /// The owner, if its kind is served.
    fn owner<'a>(&self, owner: Option<&'a Owner>) -> Option<(&'a Owner, &dyn AnyStore)> {
        let owner = owner?;
        Some((owner, self.stores.named(&owner.kind)?))
    }

    /// Whether the request's owner is for many Pods.
    pub(super) fn is_one_of_many<K: Stored>(&self, request: &K) -> bool {
        self.owner(request.meta().owner).is_some_and(|(_, store)| store.about().many)
    }

    /// Whether the request's owner is no longer at work.
    pub(super) fn owner_over<K: Stored>(&self, request: &K) -> bool {
        let meta = request.meta();
        self.owner(meta.owner).is_some_and(|(owner, store)| {
            let key = ObjectKey::new(&meta.key.namespace, &owner.name);
            !store.at_work(&key, &owner.uid, &request.pod_key())
        })
    }
}

/// Surroundings of a request that is being planned, and so is not in its store.
pub(super) struct Surroundings<'a, K: Stored> {
    pub(super) engine: &'a Engine,
    pub(super) request: &'a K,
    /// A survey succeeded.
    pub(super) surveyed: bool,
}

impl<'a, K: Stored> Surroundings<'a, K> {
    fn of(&self, progress: Progress) -> impl DoubleEndedIterator<Item = &'a Entry<K>> + use<'a, K> {
        K::store(&self.engine.stores).of(&self.request.pod_key(), progress)
    }
}

impl<K: Stored> Lookup<K> for Surroundings<'_, K> {
    fn force(&self) -> Force {
        let pod = self.engine.pods.get(&self.request.pod_key());
        pod.map(|known| self.engine.force_with(known.pod.get(), self.request)).unwrap_or_default()
    }
    fn usage(&self) -> Option<Usage<'_>> {
        self.surveyed.then(|| self.engine.usage(&self.request.pod_key())).flatten()
    }
    fn begun(&self) -> Vec<&K> {
        self.of(Progress::Begun).map(|e| e.request.get()).collect()
    }
    fn first_waiting(&self) -> Option<&K> {
        self.of(Progress::Waits).map(|e| e.request.get()).next()
    }
    fn last_waiting(&self) -> Vec<&K> {
        let last = self.of(Progress::Waits).rev().take(LAST_WAITING);
        last.filter(|e| e.acceptance == Acceptance::Possible).map(|e| e.request.get()).collect()
    }
    fn pod(&self, key: &ObjectKey) -> Option<Cow<'_, Pod>> {
        self.engine.pods.read(key)
    }
    fn parking(&self, kind: TargetKind) -> Parking<'_> {
        self.engine.parks.of(kind, &self.request.pod_key())
    }
    fn relative(&self, kind: KindId, key: &ObjectKey) -> Option<Relative<'_>> {
        self.engine.stores.of(kind)?.relative(key)
    }
    fn pod_of(&self, kind: KindId, key: &ObjectKey) -> Option<ObjectKey> {
        self.engine.stores.of(kind)?.pod_of(key)
    }
    fn selects_too_many(&self) -> bool {
        let (members, own) = (&self.engine.members, self.request.meta().key);
        members.is_full(&own.namespace) && !members.selects(own)
    }
    fn older_rival(&self, pod: &Pod) -> Option<ObjectKey> {
        let objects = &K::store(&self.engine.stores).objects;
        let rank = |request: &K| (request.meta().created, request.meta().key.name.clone());
        let own = rank(self.request);
        let others = self.engine.members.selecting(pod).filter(|other| other.kind == K::ABOUT.id);
        let others = others.filter_map(|other| objects.get(&other.key)).map(|entry| entry.request.get());
        let older = others.filter(|other| rank(other) < own && other.changes_selected());
        older.min_by_key(|other| rank(other)).map(|other| other.meta().key.clone())
    }
    fn sibling_on(&self, node: &str) -> Option<(&K, &K::Memory)> {
        let meta = self.request.meta();
        let (owner, store) = self.engine.owner(meta.owner)?;
        let owner_key = ObjectKey::new(&meta.key.namespace, &owner.name);
        let key = store.succeeded_on(&owner_key, &owner.uid, node)?;
        K::store(&self.engine.stores).objects.get(&key).map(|entry| (entry.request.get(), &entry.memory))
    }
    fn children(&self, kind: KindId) -> Box<dyn Iterator<Item = Relative<'_>> + '_> {
        let meta = self.request.meta();
        let children = self.engine.stores.of(kind).map(|store| store.children(self.request.uid()));
        // A user who knows its UID can write that into an object of another namespace.
        Box::new(children.into_iter().flatten().filter(|child| child.key.namespace == meta.key.namespace))
    }
    fn others_begun(&self, kind: KindId, pod: &ObjectKey) -> bool {
        self.engine.stores.of(kind).is_some_and(|store| store.others_begun(pod, self.request.uid()))
    }
    fn is_last(&self) -> bool {
        let queues = &K::store(&self.engine.stores).queues;
        let last = queues.of(&self.request.pod_key(), Progress::Waits).rev().take(LAST_WAITING);
        last.into_iter().any(|position| position.key == *self.request.meta().key)
    }
}
