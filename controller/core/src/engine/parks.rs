//! The workloads that are parked.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::rollout::TargetKind;

use super::Engine;
use super::any::AnyStore;
use crate::action::{Part, Watch};
use crate::key::ObjectKey;
use crate::workload::{Parked, Parking};

/// Those that are, by the names under which rollouts for them stand in line.
#[derive(Clone, Debug, Default)]
pub(super) struct Parks {
    of: BTreeMap<TargetKind, OfKind>,
}

/// Those of one kind.
#[derive(Clone, Debug, Default)]
struct OfKind {
    synced: bool,
    objects: BTreeMap<ObjectKey, Parked>,
    /// Those that the list under way has named.
    named: BTreeSet<ObjectKey>,
}

impl Parks {
    pub(super) fn of(&self, kind: TargetKind, place: &ObjectKey) -> Parking<'_> {
        match self.of.get(&kind).filter(|of| of.synced) {
            None => Parking::Unknown,
            Some(of) => of.objects.get(place).map_or(Parking::No, Parking::Yes),
        }
    }

    /// Under which names something may be different now.
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
        }
        // Those for a workload that is not parked may have waited for the list to say so.
        if complete {
            self.stores.each_mut().filter(|store| store.about().many).for_each(AnyStore::all_dirty);
        }
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
