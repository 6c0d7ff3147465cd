//! Which Pods belong to which controller, and who looks after those: an event about a Pod plans what looks after it, and costs
//! nothing where nobody does.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::labels;

use super::Engine;
use crate::action::Object;
use crate::key::ObjectKey;
use crate::pod::Pod;

/// A controller: its namespace, which is that of its Pods whatever they say of their owner, and its UID.
type Of = (Box<str>, Box<str>);

/// By controller.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// A hash of the controller, and the Pod's name. Every Pod of the cluster is here, most of them with a controller that has few:
    /// a set for each would take five times as much memory. Of two controllers with one hash, who looks reads the Pods.
    pods: BTreeSet<(u64, Box<str>)>,
    /// Those that look after them.
    watchers: BTreeMap<Of, BTreeSet<Object>>,
}

impl Members {
    /// The Pod is there.
    pub(super) fn enter(&mut self, pod: &Pod) {
        if let Some(of) = of(pod) {
            self.pods.insert((hash(&of.0, &of.1), pod.key.name.as_str().into()));
        }
    }

    /// It is not there any more.
    pub(super) fn leave(&mut self, pod: &Pod) {
        if let Some(of) = of(pod) {
            self.pods.remove(&(hash(&of.0, &of.1), pod.key.name.as_str().into()));
        }
    }

    /// Those that belong to the controller of that UID, and perhaps others.
    pub(super) fn of<'a>(&'a self, namespace: &'a str, uid: &str) -> impl Iterator<Item = ObjectKey> + 'a {
        let hash = hash(namespace, uid);
        let own = self.pods.range((hash, Box::default())..).take_while(move |(of, _)| *of == hash);
        own.map(move |(_, name)| ObjectKey::new(namespace, &**name))
    }

    /// Those that look after the Pod.
    pub(super) fn watchers(&self, pod: &Pod) -> Vec<Object> {
        if self.watchers.is_empty() {
            return Vec::new();
        }
        of(pod).and_then(|of| self.watchers.get(&of)).into_iter().flatten().cloned().collect()
    }

    /// It looks after the Pods of the controller of that UID, or does not any more.
    pub(super) fn watch(&mut self, by: &Object, uid: &str, looks: bool) {
        let of: Of = (by.key.namespace.as_str().into(), uid.into());
        if looks {
            self.watchers.entry(of).or_default().insert(by.clone());
        } else if let Some(watchers) = self.watchers.get_mut(&of) {
            watchers.remove(by);
            if watchers.is_empty() {
                self.watchers.remove(&of);
            }
        }
    }

    /// Nobody looks after any.
    pub(super) fn clear_watchers(&mut self) {
        self.watchers.clear();
    }
}

impl Engine {
    /// It looks after the Pods of these controllers from now on: at each of those that it has not looked after before.
    pub(super) fn look_after(&mut self, by: &Object, before: &[String], now: &[String]) {
        if before == now {
            return;
        }
        let namespace = &by.key.namespace;
        before.iter().filter(|uid| !now.contains(uid)).for_each(|uid| self.members.watch(by, uid, false));
        for uid in now.iter().filter(|uid| !before.contains(uid)) {
            self.members.watch(by, uid, true);
            let Some(store) = self.stores.named_mut(by.kind.name()) else { return };
            self.members.of(namespace, uid).for_each(|pod| store.member_changed(&by.key, &pod));
        }
    }
}

fn of(pod: &Pod) -> Option<Of> {
    let controller = pod.controller.as_ref()?;
    Some((pod.key.namespace.as_str().into(), controller.uid.clone()))
}

fn hash(namespace: &str, uid: &str) -> u64 {
    labels::hash(&format!("{namespace}/{uid}"))
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

    fn names(members: &Members, namespace: &str) -> Vec<String> {
        members.of(namespace, "owner-1").map(|pod| pod.name).collect()
    }

    #[test]
    fn pods_are_found_by_their_controller() {
        let mut members = Members::default();
        members.enter(&named("b"));
        members.enter(&named("a"));
        members.enter(&named("a"));
        members.enter(&Pod { controller: None, ..named("c") });
        // Anybody can write the UID of another namespace's controller into a Pod.
        members.enter(&Pod { key: ObjectKey::new("evil", "x"), ..named("x") });
        assert_eq!(
            (names(&members, "shop"), names(&members, "evil")),
            (vec!["a".into(), "b".into()], vec!["x".into()])
        );
        members.leave(&named("a"));
        members.leave(&named("b"));
        members.leave(&Pod { key: ObjectKey::new("evil", "x"), ..named("x") });
        assert!(members.pods.is_empty(), "nothing is kept of Pods that are gone");
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
        assert!(members.watchers.is_empty());
    }
}
