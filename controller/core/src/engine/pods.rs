//! The Pods of the cluster.
//!
//! Most Pods have no request and need no write. Such a Pod is kept packed, in a few hundred bytes. A change of the Pod
//! or a request for it wakes it, until nothing is pending for it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pitstop_api::labels;

use super::kept::PodEntry;
use crate::key::ObjectKey;
use crate::pod::Pod;

/// All Pods, and whether a list came. A process that does not lead keeps them, too: to list them is most of the work of
/// becoming leader.
#[derive(Clone, Debug, Default)]
pub(super) struct Pods {
    pub(super) synced: bool,
    /// Number of the last list, or of the one that is arriving.
    round: u32,
    slots: BTreeMap<ObjectKey, Slot>,
}

#[derive(Clone, Debug)]
enum Slot {
    Awake(Box<PodEntry>),
    /// The bytes, what [`PodEntry::round`] was, and a hash of the controller's UID.
    Packed(Box<[u8]>, u32, u32),
}

/// Hash of a controller's UID. Two UIDs may have the same hash, so the caller must check the Pods.
fn hash(uid: &str) -> u32 {
    u32::try_from(labels::hash(uid) >> 32).unwrap_or_default()
}

impl Slot {
    /// This process wrote the bytes, so they can always be read.
    fn unpack(bytes: &[u8]) -> Option<Pod> {
        postcard::from_bytes(bytes).ok()
    }
}

impl Pods {
    /// The entry of a Pod that is awake. The planner [wakes](Pods::wake) a Pod first.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&PodEntry> {
        match self.slots.get(key)? {
            Slot::Awake(entry) => Some(entry),
            Slot::Packed(..) => None,
        }
    }

    /// A part of a list arrives. `first`: the first one.
    pub(super) fn list_begins(&mut self, first: bool) {
        self.round = self.round.wrapping_add(u32::from(first));
    }

    /// Pods that the last list has not named.
    pub(super) fn unlisted(&self) -> Vec<ObjectKey> {
        let round = |slot: &Slot| match slot {
            Slot::Awake(entry) => entry.round,
            Slot::Packed(_, round, _) => *round,
        };
        let lost = self.slots.iter().filter(|(_, slot)| round(slot) != self.round);
        lost.map(|(key, _)| key.clone()).collect()
    }

    /// The Pod, awake or packed.
    pub(super) fn read(&self, key: &ObjectKey) -> Option<Cow<'_, Pod>> {
        match self.slots.get(key)? {
            Slot::Awake(entry) => Some(Cow::Borrowed(entry.pod.get())),
            Slot::Packed(bytes, ..) => Slot::unpack(bytes).map(Cow::Owned),
        }
    }

    /// Wakes the Pod and returns its entry.
    pub(super) fn wake(&mut self, key: &ObjectKey) -> Option<&mut PodEntry> {
        let slot = self.slots.get_mut(key)?;
        if let Slot::Packed(bytes, round, _) = slot {
            *slot = Slot::Awake(Box::new(PodEntry::new(Slot::unpack(bytes)?, *round)));
        }
        match slot {
            Slot::Awake(entry) => Some(entry),
            Slot::Packed(..) => None,
        }
    }

    /// The watch names a known Pod: wakes it.
    pub(super) fn named(&mut self, key: &ObjectKey) -> Option<&mut PodEntry> {
        let round = self.round;
        let entry = self.wake(key)?;
        entry.round = round;
        Some(entry)
    }

    /// The watch names a new Pod.
    pub(super) fn appeared(&mut self, pod: Pod) {
        let key = pod.key.clone();
        self.insert(&key, Box::new(PodEntry::new(pod, self.round)));
    }

    /// Puts a removed Pod back.
    pub(super) fn insert(&mut self, key: &ObjectKey, entry: Box<PodEntry>) {
        self.slots.insert(key.clone(), Slot::Awake(entry));
    }

    /// Removes a Pod and returns its entry, awake.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Box<PodEntry>> {
        match self.slots.remove(key)? {
            Slot::Awake(entry) => Some(entry),
            Slot::Packed(bytes, round, _) => {
                Slot::unpack(&bytes).map(|pod| Box::new(PodEntry::new(pod, round)))
            }
        }
    }

    /// Packs the Pod if nothing is pending for it.
    pub(super) fn pack(&mut self, key: &ObjectKey) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if let Slot::Awake(entry) = slot
            && entry.is_idle()
            && let Ok(bytes) = postcard::to_allocvec(entry.pod.get())
        {
            let of = entry.pod.get().controller.as_ref().map_or(0, |controller| hash(&controller.uid));
            *slot = Slot::Packed(bytes.into_boxed_slice(), entry.round, of);
        }
    }

    /// Pods of the namespace that belong to the controller with that UID, and perhaps a few others.
    pub(super) fn of_controller(&self, namespace: &str, uid: &str) -> Vec<ObjectKey> {
        let expected = hash(uid);
        let own = self.slots.range(ObjectKey::new(namespace, "")..);
        let own = own.take_while(|(key, _)| key.namespace == namespace).filter(|(_, slot)| match slot {
            Slot::Awake(entry) => entry.pod.get().controller.as_ref().is_some_and(|of| *of.uid == *uid),
            Slot::Packed(_, _, of) => *of == expected,
        });
        own.map(|(key, _)| key.clone()).collect()
    }

    /// Keys of all known Pods.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.slots.keys()
    }

    /// Keys of all Pods that are awake.
    pub(super) fn awake(&self) -> impl Iterator<Item = &ObjectKey> {
        self.slots.iter().filter(|(_, slot)| matches!(slot, Slot::Awake(_))).map(|(key, _)| key)
    }

    /// Forgets times that were measured while another process led.
    pub(super) fn restart(&mut self) {
        for slot in self.slots.values_mut() {
            if let Slot::Awake(entry) = slot {
                entry.restart();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod;
    use crate::pod::{Controller, label_hashes};
    use crate::readiness::{Gate, GateCondition};

    fn typical() -> Pod {
        let mut pod = pod();
        pod.key = ObjectKey::new("team-checkout-prod", "checkout-7d9c5b6f4-x2x7q");
        pod.uid = "0b0c6a0e-8a0e-4b8b-9d55-2f6e3b8f5c1d".into();
        pod.resource_version = "123456789".into();
        pod.created = 1_767_225_601;
        let labels = ["app", "pod-template-hash", "app.kubernetes.io/instance", "team", "version"];
        pod.labels = label_hashes(&labels.map(|name| (name.to_owned(), "checkout".to_owned())).into()).into();
        let uid = "5b8f3c1e-0c6a-4b8b-9d55-8a0e2f6e3b8f".into();
        pod.controller = Some(Box::new(Controller { kind: "ReplicaSet".into(), uid }));
        pod.node = Some("ip-10-0-123-45.eu-central-1.compute.internal".into());
        pod.containers.truncate(1);
        pod.containers[0].image = "registry.example.com/team/checkout:v1.42.3".into();
        let status = pod.containers[0].status.as_mut().unwrap();
        status.container_id = format!("containerd://{}", "a".repeat(64));
        status.image_id = format!("registry.example.com/team/checkout@sha256:{}", "b".repeat(64));
        pod
    }

    #[test]
    fn a_pod_comes_back_as_it_was() {
        let mut gated = typical();
        let condition = Some(GateCondition { open: true, message: "[]".into() });
        gated.gates.push(Gate { type_: "KruisePodReady".into(), condition });
        for pod in [typical(), gated, crate::fixtures::pod(), Pod::default()] {
            let mut pods = Pods::default();
            pods.appeared(pod.clone());
            pods.pack(&pod.key);
            assert!(pods.get(&pod.key).is_none() && pods.awake().next().is_none());
            assert_eq!(*pods.read(&pod.key).unwrap(), pod);
            assert_eq!(*pods.wake(&pod.key).unwrap().pod.get(), pod);
            assert!(pods.get(&pod.key).is_some());
            pods.pack(&pod.key);
            assert_eq!(*pods.remove(&pod.key).unwrap().pod.get(), pod);
        }
    }

    /// Every Pod of the cluster is kept. With its entry in the map, it may cost at most 0.8 KiB.
    #[test]
    fn a_pod_without_a_request_takes_little() {
        let pod = typical();
        let mut pods = Pods::default();
        pods.appeared(pod.clone());
        pods.pack(&pod.key);
        let Some(Slot::Packed(bytes, ..)) = pods.slots.get(&pod.key) else { panic!() };
        let texts = pod.key.namespace.len() + pod.key.name.len();
        let entry = size_of::<ObjectKey>() + size_of::<Slot>() + texts;
        assert!(bytes.len() <= 560 && entry <= 130, "{} bytes, {entry} in the map", bytes.len());
    }

    /// Any user can write the UID of another namespace's controller into a Pod.
    #[test]
    fn pods_are_found_by_their_controllers() {
        let named = |namespace: &str, name: &str, uid: &str| {
            let controller = Controller { kind: "ReplicaSet".into(), uid: uid.into() };
            Pod { key: ObjectKey::new(namespace, name), controller: Some(Box::new(controller)), ..typical() }
        };
        let mut pods = Pods::default();
        for pod in
            [named("a", "x", "1"), named("shop", "a", "1"), named("shop", "b", "1"), named("shop", "c", "2")]
        {
            pods.appeared(pod);
        }
        pods.appeared(Pod { key: ObjectKey::new("shop", "bare"), controller: None, ..typical() });
        let found = |pods: &Pods, uid: &str| -> Vec<String> {
            pods.of_controller("shop", uid).into_iter().map(|pod| pod.name).collect()
        };
        assert_eq!(
            (found(&pods, "1"), found(&pods, "3")),
            (vec!["a".to_owned(), "b".to_owned()], Vec::new())
        );
        let keys: Vec<ObjectKey> = pods.keys().cloned().collect();
        for key in &keys {
            pods.pack(key);
        }
        assert_eq!(
            (found(&pods, "1"), found(&pods, "2")),
            (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()])
        );
    }

    #[test]
    fn what_is_under_way_keeps_a_pod_awake() {
        let pod = typical();
        let mut pods = Pods::default();
        pods.appeared(pod.clone());
        pods.wake(&pod.key).unwrap().pod.write_started();
        pods.pack(&pod.key);
        assert!(pods.get(&pod.key).is_some());
    }

    #[test]
    fn what_no_part_of_a_list_names_is_told_at_its_end() {
        let named = |name: &str| Pod { key: ObjectKey::new("ns", name), ..typical() };
        let mut pods = Pods::default();
        for name in ["awake", "lost", "lost-packed", "packed"] {
            pods.appeared(named(name));
        }
        for name in ["packed", "lost-packed"] {
            pods.pack(&ObjectKey::new("ns", name));
        }
        // One list breaks off after the first part, and another follows.
        pods.list_begins(true);
        pods.named(&ObjectKey::new("ns", "lost"));
        pods.list_begins(true);
        pods.named(&ObjectKey::new("ns", "packed"));
        pods.pack(&ObjectKey::new("ns", "packed"));
        pods.list_begins(false);
        pods.named(&ObjectKey::new("ns", "awake"));
        pods.appeared(named("new"));
        let taken = pods.remove(&ObjectKey::new("ns", "lost")).unwrap();
        pods.insert(&ObjectKey::new("ns", "lost"), taken);
        assert_eq!(pods.unlisted(), [ObjectKey::new("ns", "lost"), ObjectKey::new("ns", "lost-packed")]);
    }
}
