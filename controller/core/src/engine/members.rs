//! Who looks after the Pods of which controllers: an event about a Pod plans what looks after it, and costs nothing where nobody
//! does.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::any::AnyStore as _;
use super::store::object;
use super::stores::Stored;
use crate::action::Object;
use crate::key::ObjectKey;
use crate::pod::Pod;

/// A controller: its namespace, which is that of its Pods whatever they say of their owner, and its UID.
type Of = (Box<str>, Box<str>);

/// Those that look after Pods, by the Pods' controllers.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(BTreeMap<Of, BTreeSet<Object>>);

impl Members {
    /// Nobody looks after any.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that look after the Pod.
    pub(super) fn watchers(&self, pod: &Pod) -> Vec<Object> {
        of(pod).and_then(|of| self.0.get(&of)).into_iter().flatten().cloned().collect()
    }

    /// It looks after the Pods of the controller of that UID, or does not any more.
    pub(super) fn watch(&mut self, by: &Object, uid: &str, looks: bool) {
        let of: Of = (by.key.namespace.as_str().into(), uid.into());
        if looks {
            self.0.entry(of).or_default().insert(by.clone());
        } else if let Some(watchers) = self.0.get_mut(&of) {
            watchers.remove(by);
            if watchers.is_empty() {
                self.0.remove(&of);
            }
        }
    }
}

impl Engine {
    /// It looks after the Pods of these controllers from now on: at each of those that it has not looked after before.
    pub(super) fn look_after<K: Stored>(&mut self, key: &ObjectKey, now: &[String]) {
        let store = K::store_mut(&mut self.stores);
        // Most requests look after none.
        let Some(entry) = store.objects.get_mut(key).filter(|entry| entry.controllers != now) else { return };
        let by = object(entry.request.get());
        let before = std::mem::replace(&mut entry.controllers, now.to_vec());
        before.iter().filter(|uid| !now.contains(uid)).for_each(|uid| self.members.watch(&by, uid, false));
        for uid in now.iter().filter(|uid| !before.contains(uid)) {
            self.members.watch(&by, uid, true);
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
        members.watch(&by, "owner-1", true);
        assert_eq!(members.watchers(&named("a")), std::slice::from_ref(&by));
        assert!(members.watchers(&Pod { key: ObjectKey::new("evil", "a"), ..named("a") }).is_empty());
        members.watch(&by, "owner-1", false);
        assert!(members.is_empty());
    }
}
