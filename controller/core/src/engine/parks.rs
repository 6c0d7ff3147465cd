//! The workloads that are parked.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::rollout::TargetKind;

use super::any::AnyStore;
use super::left::{Left, Next};
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
    of: BTreeMap<TargetKind, OfKind>,
    /// Workloads that no rollout manages.
    left: BTreeMap<ObjectKey, Left>,
    /// Workloads whose rollout is gone after its update failed.
    failed: BTreeSet<ObjectKey>,
}

/// The parked workloads of one kind.
#[derive(Clone, Debug, Default)]
struct OfKind {
    synced: bool,
    objects: BTreeMap<ObjectKey, Parked>,
    /// Workloads that the arriving list has named.
    named: BTreeSet<ObjectKey>,
}

impl Parks {
    pub(super) fn of(&self, kind: TargetKind, place: &ObjectKey) -> Parking<'_> {
        match self.of.get(&kind).filter(|of| of.synced) {
            None => Parking::Unknown,
            Some(of) => of.objects.get(place).map_or(Parking::No, Parking::Yes),
        }
    }

    /// The parked workload with that key.
    fn named(&self, place: &ObjectKey) -> Option<&Parked> {
        self.of.values().filter(|of| of.synced).find_map(|of| of.objects.get(place))
    }

    /// Keys of all parked workloads.
    pub(super) fn places(&self) -> impl Iterator<Item = &ObjectKey> {
        self.of.values().flat_map(|of| of.objects.keys())
    }

    /// The workload's rollout is gone, and its update failed.
    pub(super) fn failed(&mut self, place: &ObjectKey) {
        if self.named(place).is_some() {
            self.failed.insert(place.clone());
        }
    }

    /// The workload needs no release. A deed under way keeps its entry: the watch may be faster than the answer, which
    /// is worth an event.
    fn kept(&mut self, place: &ObjectKey) {
        if self.left.get(place).is_none_or(|left| !left.waits()) {
            self.left.remove(place);
            self.failed.remove(place);
        }
    }

    /// Applies a watch event. Returns the keys that may have changed.
    fn changed(&mut self, kind: TargetKind, watch: Watch<Parked>) -> Vec<ObjectKey> {
        let of = self.of.entry(kind).or_default();
        match watch {
            Watch::Upsert(parked) => vec![of.put(parked)],
            Watch::Gone(parked) => {
                let place = parked.place();
                of.objects.remove(&place);
                vec![place]
            }
            Watch::Listed(Part { objects, first, last }) => {
                if first {
                    of.named.clear();
                }
                let mut changed = Vec::new();
                for parked in objects {
                    let place = of.put(parked);
                    of.named.insert(place.clone());
                    changed.push(place);
                }
                if last {
                    let named = std::mem::take(&mut of.named);
                    changed.extend(of.objects.keys().filter(|place| !named.contains(place)).cloned());
                    of.objects.retain(|place, _| named.contains(place));
                    of.synced = true;
                }
                changed
            }
        }
    }
}

impl OfKind {
    fn put(&mut self, parked: Parked) -> ObjectKey {
        let place = parked.place();
        self.objects.insert(place.clone(), parked);
        place
    }
}

impl Engine {
    /// Parked workloads of that kind changed.
    pub(super) fn parks_changed(&mut self, kind: TargetKind, watch: Watch<Parked>) {
        let complete = matches!(&watch, Watch::Listed(part) if part.last);
        for place in self.parks.changed(kind, watch) {
            self.stores.each_mut().for_each(|store| store.pod_changed(&place));
            self.dirty_pods.insert(place);
        }
        // Rollouts of workloads that are not parked may have waited for the complete list.
        if complete {
            self.stores.each_mut().filter(|store| store.about().many).for_each(AnyStore::all_dirty);
        }
    }
}

impl Engine {
    /// Releases a parked workload that no rollout manages.
    pub(super) fn plan_left(&mut self, now: Mono, place: &ObjectKey, actions: &mut Vec<Action>) {
        if self.parks.of.is_empty() {
            return;
        }
        let parked = self.parks.named(place).cloned();
        let Some(parked) = parked.filter(|_| !self.stores.each().any(|store| store.keeps_park(place))) else {
            return self.parks.kept(place);
        };
        let Parks { left, failed, .. } = &mut self.parks;
        let left = left.entry(place.clone()).or_insert_with(|| Left::new(now));
        // A finalizer may have kept the rollout until now.
        left.failed = failed.contains(place);
        let subject = Subject::Pod(place.clone());
        let pods = |key: &ObjectKey| self.pods.read(key).map(Cow::into_owned);
        let wake_at = match left.next(now, &parked, &pods) {
            Next::Do(deed) if self.room.start(now, &subject, Turn::New(&place.namespace, None)) => {
                left.begins(deed.clone());
                let kind = KindId::new(parked.kind.name());
                actions
                    .push(Action::Do { by: Object { kind, key: place.clone(), uid: String::new() }, deed });
                None
            }
            Next::Do(_) => None,
            Next::Tell(note) => {
                actions.push(Action::Emit(note));
                left.until
            }
            Next::Look(at) => at,
        };
        self.timers.set(subject, wake_at);
    }

    /// A deed for such a workload ended. Returns the event to emit.
    pub(super) fn left_done(&mut self, now: Mono, place: ObjectKey, deed: &Deed, done: Done) -> Option<Note> {
        let note = self.parks.left.get_mut(&place)?.done(now, deed, done);
        self.dirty_pods.insert(place);
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
        assert_eq!(parks.of(kind, &a.place()), Parking::Unknown);
        let part = |objects: Vec<Parked>, first, last| Watch::Listed(Part { objects, first, last });
        parks.changed(kind, part(vec![a.clone()], true, false));
        assert_eq!(parks.of(kind, &a.place()), Parking::Unknown);
        parks.changed(kind, part(vec![b.clone()], false, true));
        assert_eq!(parks.of(kind, &a.place()), Parking::Yes(&a));
        assert_eq!(parks.of(TargetKind::DaemonSet, &a.place()), Parking::Unknown);
        assert_eq!(parks.changed(kind, Watch::list(vec![b.clone()])), [b.place(), a.place()]);
        assert_eq!((parks.of(kind, &a.place()), parks.of(kind, &b.place())), (Parking::No, Parking::Yes(&b)));
        parks.changed(kind, Watch::Upsert(parked("b", 2)));
        parks.changed(kind, Watch::Gone(b.clone()));
        assert_eq!(parks.of(kind, &b.place()), Parking::No);
    }
}
