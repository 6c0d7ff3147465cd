//! The workloads that are parked.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::rollout::TargetKind;

use super::any::AnyStore;
use super::left::{Next, Orphan};
use super::room::Turn;
use super::{Engine, Subject};
use crate::action::{Action, Object, Part, Watch};
use crate::change::Note;
use crate::deed::{Deed, Done};
use crate::key::{KindId, ObjectKey};
use crate::time::Mono;
use crate::workload::{Parked, Parking};

/// The parked workloads, by the keys under which their rollouts queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Parks {
    by_kind: BTreeMap<TargetKind, KindParks>,
    /// Workloads that no rollout manages.
    orphans: BTreeMap<ObjectKey, Orphan>,
    /// Workloads whose rollout is gone after its update failed.
    failed: BTreeSet<ObjectKey>,
}

/// The parked workloads of one kind.
#[derive(Clone, Debug, Default)]
struct KindParks {
    synced: bool,
    objects: BTreeMap<ObjectKey, Parked>,
    /// Workloads that the arriving list has named.
    named: BTreeSet<ObjectKey>,
}

impl Parks {
    pub(super) fn of(&self, kind: TargetKind, key: &ObjectKey) -> Parking<'_> {
        match self.by_kind.get(&kind).filter(|parks| parks.synced) {
            None => Parking::Unknown,
            Some(parks) => parks.objects.get(key).map_or(Parking::No, Parking::Yes),
        }
    }

    /// The parked workload with that key.
    fn get(&self, key: &ObjectKey) -> Option<&Parked> {
        self.by_kind.values().filter(|parks| parks.synced).find_map(|parks| parks.objects.get(key))
    }

    /// Keys of all parked workloads.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_kind.values().flat_map(|parks| parks.objects.keys())
    }

    /// The workload's rollout is gone, and its update failed.
    pub(super) fn update_failed(&mut self, key: &ObjectKey) {
        if self.get(key).is_some() {
            self.failed.insert(key.clone());
        }
    }

    /// The workload needs no release. A deed under way keeps its entry: the watch may be faster than the answer, which
    /// is worth an event.
    fn forget(&mut self, key: &ObjectKey) {
        if self.orphans.get(key).is_none_or(|orphan| !orphan.waits()) {
            self.orphans.remove(key);
            self.failed.remove(key);
        }
    }

    /// Applies a watch event. Returns the keys that may have changed.
    fn changed(&mut self, kind: TargetKind, watch: Watch<Parked>) -> Vec<ObjectKey> {
        let parks = self.by_kind.entry(kind).or_default();
        match watch {
            Watch::Upsert(parked) => vec![parks.put(parked)],
            Watch::Gone(parked) => {
                let key = parked.queue_key();
                parks.objects.remove(&key);
                vec![key]
            }
            Watch::Listed(Part { objects, first, last }) => {
                if first {
                    parks.named.clear();
                }
                let mut changed = Vec::new();
                for parked in objects {
                    let key = parks.put(parked);
                    parks.named.insert(key.clone());
                    changed.push(key);
                }
                if last {
                    let named = std::mem::take(&mut parks.named);
                    changed.extend(parks.objects.keys().filter(|key| !named.contains(key)).cloned());
                    parks.objects.retain(|key, _| named.contains(key));
                    parks.synced = true;
                }
                changed
            }
        }
    }
}

impl KindParks {
    fn put(&mut self, parked: Parked) -> ObjectKey {
        let key = parked.queue_key();
        self.objects.insert(key.clone(), parked);
        key
    }
}

impl Engine {
    /// Parked workloads of that kind changed.
    pub(super) fn parks_changed(&mut self, kind: TargetKind, watch: Watch<Parked>) {
        let complete = matches!(&watch, Watch::Listed(part) if part.last);
        for key in self.parks.changed(kind, watch) {
            self.stores.each_mut().for_each(|store| store.pod_changed(&key));
            self.dirty_pods.insert(key);
        }
        // Rollouts of workloads that are not parked may have waited for the complete list.
        if complete {
            self.stores.each_mut().filter(|store| store.about().many).for_each(AnyStore::all_dirty);
        }
    }
}

impl Engine {
    /// Releases a parked workload that no rollout manages.
    pub(super) fn plan_orphan(&mut self, now: Mono, key: &ObjectKey, actions: &mut Vec<Action>) {
        if self.parks.by_kind.is_empty() {
            return;
        }
        let parked = self.parks.get(key).cloned();
        let Some(parked) = parked.filter(|_| !self.stores.each().any(|store| store.keeps_park(key))) else {
            return self.parks.forget(key);
        };
        let Parks { orphans, failed, .. } = &mut self.parks;
        let orphan = orphans.entry(key.clone()).or_insert_with(|| Orphan::new(now));
        // A finalizer may have kept the rollout until now.
        orphan.failed = failed.contains(key);
        let subject = Subject::Pod(key.clone());
        let pods = |key: &ObjectKey| self.pods.read(key).map(Cow::into_owned);
        let wake_at = match orphan.next(now, &parked, &pods) {
            Next::Do(deed) if self.room.start(now, &subject, Turn::New(&key.namespace, None)) => {
                orphan.begins(deed.clone());
                let kind = KindId::new(parked.kind.name());
                actions
                    .push(Action::Do { object: Object { kind, key: key.clone(), uid: String::new() }, deed });
                None
            }
            Next::Do(_) => None,
            Next::Emit(note) => {
                actions.push(Action::Emit(note));
                orphan.retry_at
            }
            Next::Look(at) => at,
        };
        self.timers.set(subject, wake_at);
    }

    /// A deed for such a workload ended. Returns the event to emit.
    pub(super) fn orphan_done(&mut self, now: Mono, key: ObjectKey, deed: &Deed, done: Done) -> Option<Note> {
        let note = self.parks.orphans.get_mut(&key)?.done(now, deed, done);
        self.dirty_pods.insert(key);
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(name: &str, generation: i64) -> Parked {
        Parked {
            kind: TargetKind::StatefulSet,
            key: ObjectKey::new("shop", name),
            generation,
            mark: "0".into(),
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_list_and_what_none_of_its_parts_names_is_gone() {
        let (kind, mut parks) = (TargetKind::StatefulSet, Parks::default());
        let [a, b] = ["a", "b"].map(|name| parked(name, 1));
        assert_eq!(parks.of(kind, &a.queue_key()), Parking::Unknown);
        let part = |objects: Vec<Parked>, first, last| Watch::Listed(Part { objects, first, last });
        parks.changed(kind, part(vec![a.clone()], true, false));
        assert_eq!(parks.of(kind, &a.queue_key()), Parking::Unknown);
        parks.changed(kind, part(vec![b.clone()], false, true));
        assert_eq!(parks.of(kind, &a.queue_key()), Parking::Yes(&a));
        assert_eq!(parks.of(TargetKind::DaemonSet, &a.queue_key()), Parking::Unknown);
        assert_eq!(parks.changed(kind, Watch::list(vec![b.clone()])), [b.queue_key(), a.queue_key()]);
        assert_eq!(
            (parks.of(kind, &a.queue_key()), parks.of(kind, &b.queue_key())),
            (Parking::No, Parking::Yes(&b))
        );
        parks.changed(kind, Watch::Upsert(parked("b", 2)));
        parks.changed(kind, Watch::Gone(b.clone()));
        assert_eq!(parks.of(kind, &b.queue_key()), Parking::No);
    }
}
