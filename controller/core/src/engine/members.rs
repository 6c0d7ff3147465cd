//! Who looks after which Pods, by their controllers or their labels: an event about a Pod plans what looks after it, and costs
//! nothing where nobody does.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::any::AnyStore as _;
use super::store::object;
use super::stores::Stored;
use crate::action::Object;
use crate::key::ObjectKey;
use crate::pod::{Group, Pod};

/// Most that look after Pods by their labels in one namespace: each of them may be told of every Pod there.
pub(crate) const MAX_SELECTORS: usize = 100;

/// A controller: its namespace, which is that of its Pods whatever they say of their owner, and its UID.
type Of = (Box<str>, Box<str>);
/// Labels by which Pods are found, by who looks after those.
type Selectors = BTreeMap<Object, Box<[u64]>>;

/// Those that look after Pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// By the Pods' controllers.
    controllers: BTreeMap<Of, BTreeSet<Object>>,
    /// By the first of the labels that a Pod must have, in its namespace.
    labels: BTreeMap<(Box<str>, u64), Selectors>,
    /// Their names, by namespace.
    selectors: BTreeMap<Box<str>, BTreeSet<String>>,
}

impl Members {
    /// Nobody looks after any.
    pub(super) fn is_empty(&self) -> bool {
        self.controllers.is_empty() && self.labels.is_empty()
    }

    /// Those that look after the Pod.
    pub(super) fn watchers(&self, pod: &Pod) -> Vec<Object> {
        let of = of(pod).and_then(|of| self.controllers.get(&of)).into_iter().flatten();
        of.chain(self.selecting(pod)).cloned().collect()
    }

    /// Those that do so by its labels.
    pub(super) fn selecting<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Object> {
        let none = !self.selectors.contains_key(pod.key.namespace.as_str());
        let labels = if none { &[][..] } else { &pod.labels };
        let found = labels.iter().filter_map(|l| self.labels.get(&(pod.key.namespace.as_str().into(), *l)));
        found.flatten().filter(|(_, labels)| pod.has_labels(labels)).map(|(by, _)| by)
    }

    /// It looks after Pods by their labels.
    pub(super) fn selects(&self, by: &ObjectKey) -> bool {
        self.selectors.get(by.namespace.as_str()).is_some_and(|names| names.contains(&by.name))
    }

    /// As many select Pods of the namespace by labels as may.
    pub(super) fn is_full(&self, namespace: &str) -> bool {
        self.selectors.get(namespace).is_some_and(|names| names.len() >= MAX_SELECTORS)
    }

    /// It looks after those Pods, or does not any more.
    pub(super) fn watch(&mut self, by: &Object, group: &Group, looks: bool) {
        let namespace: Box<str> = by.key.namespace.as_str().into();
        match group {
            Group::Controller(uid) => {
                let of: Of = (namespace, uid.as_str().into());
                enter(&mut self.controllers, of, looks, |all| {
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

/// Changes what is there; `looks`: it is made if need be. What is said to be empty goes.
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
    /// It looks after these Pods from now on. It looks at each of those of a controller that it has not looked after before; which
    /// Pods have some labels, it has to ask.
    pub(super) fn look_after<K: Stored>(&mut self, key: &ObjectKey, now: &[Group]) {
        let store = K::store_mut(&mut self.stores);
        // Most requests look after none.
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

fn of(pod: &Pod) -> Option<Of> {
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
        let told = |members: &Members, pod: &Pod| -> Vec<String> {
            members.watchers(pod).into_iter().map(|by| by.key.name).collect()
        };
        assert_eq!(told(&members, &labelled(&[1, 3, 5])), ["both", "one"]);
        assert_eq!(told(&members, &labelled(&[3, 5])), ["one"]);
        assert!(told(&members, &labelled(&[1])).is_empty());
        let elsewhere = Pod { key: ObjectKey::new("evil", "a"), ..labelled(&[1, 5]) };
        assert!(told(&members, &elsewhere).is_empty());
        members.watch(&by("both"), &both, false);
        assert_eq!(told(&members, &labelled(&[1, 5])), ["one"]);
        for n in 1..MAX_SELECTORS {
            assert!(!members.is_full("shop"), "{n}");
            members.watch(&by(&n.to_string()), &both, true);
        }
        assert!(members.is_full("shop") && !members.is_full("evil"));
    }
}
