//! Which objects manage which Pods, by controller or by labels. An event about a Pod plans the objects that manage it,
//! and costs nothing if none does.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::any::AnyStore as _;
use super::store::object;
use super::stores::Stored;
use crate::action::Object;
use crate::key::ObjectKey;
use crate::pod::{Group, Pod};

/// Most objects of one namespace that manage Pods by labels: each may be planned for every Pod there.
pub(crate) const MAX_SELECTORS: usize = 100;

/// A controller: namespace and UID. The namespace is that of its Pods, whatever they name as owner.
type ControllerKey = (Box<str>, Box<str>);
/// Hashes of the labels that select Pods, by the object that manages these.
type Selectors = BTreeMap<Object, Box<[u64]>>;

/// The objects that manage Pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// By the Pods' controller.
    controllers: BTreeMap<ControllerKey, BTreeSet<Object>>,
    /// By namespace, and the first label that a Pod must have.
    labels: BTreeMap<(Box<str>, u64), Selectors>,
    /// Names of the objects that select by labels, by namespace.
    selectors: BTreeMap<Box<str>, BTreeSet<String>>,
}

impl Members {
    /// Whether no object manages Pods.
    pub(super) fn is_empty(&self) -> bool {
        self.controllers.is_empty() && self.labels.is_empty()
    }

    /// The objects that manage the Pod.
    pub(super) fn watchers(&self, pod: &Pod) -> Vec<Object> {
        let own = controller_of(pod).and_then(|key| self.controllers.get(&key)).into_iter().flatten();
        own.chain(self.selecting(pod)).cloned().collect()
    }

    /// The objects that select the Pod by its labels.
    pub(super) fn selecting<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Object> {
        let none = !self.selectors.contains_key(pod.key.namespace.as_str());
        let labels = if none { &[][..] } else { &pod.labels };
        let found = labels.iter().filter_map(|l| self.labels.get(&(pod.key.namespace.as_str().into(), *l)));
        found.flatten().filter(|(_, labels)| pod.has_labels(labels)).map(|(by, _)| by)
    }

    /// Whether the object selects Pods by labels.
    pub(super) fn selects(&self, by: &ObjectKey) -> bool {
        self.selectors.get(by.namespace.as_str()).is_some_and(|names| names.contains(&by.name))
    }

    /// Whether [`MAX_SELECTORS`] objects of the namespace select Pods by labels.
    pub(super) fn is_full(&self, namespace: &str) -> bool {
        self.selectors.get(namespace).is_some_and(|names| names.len() >= MAX_SELECTORS)
    }

    /// The object manages these Pods from now on, or (`looks` false) no longer.
    pub(super) fn watch(&mut self, by: &Object, group: &Group, looks: bool) {
        let namespace: Box<str> = by.key.namespace.as_str().into();
        match group {
            Group::Controller(uid) => {
                let key: ControllerKey = (namespace, uid.as_str().into());
                enter(&mut self.controllers, key, looks, |all| {
                    if looks {
                        all.insert(by.clone())
                    } else {
                        all.remove(by)
                    };
                    all.is_empty()
                });
            }
            Group::Labels(labels) => {
                let Some(first) = labels.first() else { return };
                enter(&mut self.labels, (namespace.clone(), *first), looks, |all| {
                    if looks {
                        all.insert(by.clone(), labels.as_slice().into())
                    } else {
                        all.remove(by)
                    };
                    all.is_empty()
                });
                enter(&mut self.selectors, namespace, looks, |all| {
                    if looks {
                        all.insert(by.key.name.clone())
                    } else {
                        all.remove(&by.key.name)
                    };
                    all.is_empty()
                });
            }
        }
    }
}

/// Changes the value at `key`. `looks`: creates it if absent. Removes it if `change` returns true (empty).
fn enter<K: Ord, V: Default>(
    map: &mut BTreeMap<K, V>,
    key: K,
    looks: bool,
    change: impl FnOnce(&mut V) -> bool,
) {
    let mut entry = match map.entry(key) {
        Entry::Occupied(entry) => entry,
        Entry::Vacant(entry) if looks => entry.insert_entry(V::default()),
        Entry::Vacant(_) => return,
    };
    if change(entry.get_mut()) {
        entry.remove();
    }
}

impl Engine {
    /// The object manages these Pods from now on. It has to look at each Pod of a controller that is new to it. Pods
    /// with some labels it must list itself.
    pub(super) fn look_after<K: Stored>(&mut self, key: &ObjectKey, now: &[Group]) {
        let store = K::store_mut(&mut self.stores);
        // Most requests manage no Pods.
        let Some(entry) = store.objects.get_mut(key).filter(|entry| entry.groups != now) else { return };
        let by = object(entry.request.get());
        let before = std::mem::replace(&mut entry.groups, now.to_vec());
        before.iter().filter(|of| !now.contains(of)).for_each(|of| self.members.watch(&by, of, false));
        for group in now.iter().filter(|of| !before.contains(of)) {
            self.members.watch(&by, group, true);
            let Group::Controller(uid) = group else { continue };
            for pod in self.pods.of_controller(&key.namespace, uid) {
                store.member_changed(key, &pod);
            }
        }
    }
}

fn controller_of(pod: &Pod) -> Option<ControllerKey> {
    let controller = pod.controller.as_ref()?;
    Some((pod.key.namespace.as_str().into(), controller.uid.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{controller, pod};
    use crate::key::KindId;

    fn named(name: &str) -> Pod {
        Pod {
            key: ObjectKey::new("shop", name),
            controller: Some(Box::new(controller("ReplicaSet"))),
            ..pod()
        }
    }

    #[test]
    fn who_looks_after_a_controller_is_told_of_its_pods() {
        let by = Object::new(KindId::new("Many"), ObjectKey::new("shop", "web"), "u");
        let mut members = Members::default();
        assert!(members.watchers(&named("a")).is_empty());
        let group = Group::Controller("owner-1".into());
        members.watch(&by, &group, true);
        assert_eq!(members.watchers(&named("a")), std::slice::from_ref(&by));
        assert!(members.watchers(&Pod { key: ObjectKey::new("evil", "a"), ..named("a") }).is_empty());
        members.watch(&by, &group, false);
        assert!(members.is_empty());
    }

    #[test]
    fn who_selects_labels_is_told_of_the_pods_that_have_all_of_them() {
        let by = |name: &str| Object::new(KindId::new("Many"), ObjectKey::new("shop", name), "u");
        let labelled = |labels: &[u64]| Pod { labels: labels.into(), ..named("a") };
        let mut members = Members::default();
        let both = Group::Labels(vec![1, 5]);
        members.watch(&by("both"), &both, true);
        members.watch(&by("one"), &Group::Labels(vec![5]), true);
        let watchers = |members: &Members, pod: &Pod| -> Vec<String> {
            members.watchers(pod).into_iter().map(|by| by.key.name).collect()
        };
        assert_eq!(watchers(&members, &labelled(&[1, 3, 5])), ["both", "one"]);
        assert_eq!(watchers(&members, &labelled(&[3, 5])), ["one"]);
        assert!(watchers(&members, &labelled(&[1])).is_empty());
        let elsewhere = Pod { key: ObjectKey::new("evil", "a"), ..labelled(&[1, 5]) };
        assert!(watchers(&members, &elsewhere).is_empty());
        members.watch(&by("both"), &both, false);
        assert_eq!(watchers(&members, &labelled(&[1, 5])), ["one"]);
        for n in 1..MAX_SELECTORS {
            assert!(!members.is_full("shop"), "{n}");
            members.watch(&by(&n.to_string()), &both, true);
        }
        assert!(members.is_full("shop") && !members.is_full("evil"));
    }
}
