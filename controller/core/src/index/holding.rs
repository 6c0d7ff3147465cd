//! The Pods that the daemons of their nodes hold at other resources than those of their spec.

use std::collections::BTreeMap;

use pitstop_api::nodework::{Held, request_uid};

use super::Index;
use super::kinds::Book;
use super::queue::Standing;
use crate::key::ObjectKey;
use crate::nodework::{NodeWork, OrderView, views};
use crate::pod::Pod;
use crate::resize::{Force, Holding, Resize, Settled, settle};
use crate::time::{Mono, earliest};

impl NodeWork {
    /// The daemon's record of a Pod.
    pub(crate) fn held(&self, pod_uid: &str) -> Option<&Held> {
        self.status.held.iter().find(|held| held.pod.uid == pod_uid)
    }
}

impl Index {
    /// The orders for the Pods that the daemon of the node holds, or should, and when to look at them again.
    pub(super) fn holding(&mut self, now: Mono, node: &str) -> Settled {
        let key = ObjectKey::new("", node);
        let book = self.books.objects.get(&key);
        let unknown = BTreeMap::new();
        let mut pods: BTreeMap<String, ObjectKey> = BTreeMap::new();
        for held in book.and_then(Book::known).into_iter().flat_map(|work| &work.status.held) {
            pods.insert(held.pod.uid.clone(), ObjectKey::new(&held.pod.namespace, &held.pod.name));
        }
        for request in self.resizes.of_node(node).map(|e| e.request.get()).filter(|r| r.held()) {
            let uid = request.status.target.as_ref().map(|target| target.pod_uid.clone());
            pods.extend(uid.map(|uid| (uid, request.pod_key())));
        }
        let mut settled = Settled::default();
        for (uid, key) in pods {
            let known = self.pods.objects.get(&key).map(|e| e.pod.get()).filter(|pod| pod.uid == uid);
            let pod = known.filter(|pod| !pod.finished && pod.node.as_deref() == Some(node));
            let orders: Vec<OrderView<'_>> =
                views(book.and_then(Book::known)).filter(|v| request_uid(&v.order.id) == uid).collect();
            if pod.is_some_and(|pod| pod.deleting) {
                // Its containers end, and its cgroup goes with them.
                continue;
            }
            let force = pod.map(|pod| self.force(pod)).unwrap_or_default();
            let of_pod = settle(
                now,
                &Holding {
                    pod,
                    force: &force,
                    held: book.and_then(Book::known).and_then(|work| work.held(&uid)),
                    orders: &orders,
                    answered: book.map_or(&unknown, |book| &book.answered),
                    last_attempt: book.and_then(Book::known).map_or(0, |work| work.last_attempt(&uid)),
                    guarded: self.guarded,
                    awaited: self.resizes.of(&key, Standing::Begun).any(|e| e.request.get().held()),
                },
            );
            settled.orders.extend(of_pod.orders);
            settled.wake_at = earliest(settled.wake_at, of_pod.wake_at);
        }
        settled
    }

    /// What the requests want that are for that Pod.
    pub(super) fn force(&self, pod: &Pod) -> Force {
        Force::of(pod, self.given(&pod.key))
    }

    /// The same while one of them is being planned.
    pub(super) fn force_with(&self, pod: &Pod, own: &Resize) -> Force {
        Force::of(pod, self.given(&pod.key).filter(|r| r.key != own.key).chain([own]))
    }

    /// The requests by which the daemon may hold the Pod.
    fn given(&self, pod: &ObjectKey) -> impl Iterator<Item = &Resize> + use<'_> {
        let of = |standing| self.resizes.of(pod, standing);
        let all = of(Standing::Begun).chain(of(Standing::Lingers)).chain(of(Standing::Lasts));
        all.map(|e| e.request.get())
    }

    /// The node whose daemon holds the Pod, or should, has to be looked at.
    pub(super) fn holder_dirty(&mut self, pod: &ObjectKey) {
        let requests = self.given(pod).filter(|r| r.held());
        let targets = requests.filter_map(|r| r.status.target.as_ref()).map(|target| &target.node_name);
        let node = self.pods.objects.get(pod).and_then(|e| e.pod.get().node.as_ref());
        let holds = |node: &&String| {
            let book = self.books.objects.get(&ObjectKey::new("", node.as_str())).and_then(Book::known);
            book.is_some_and(|work| !work.status.held.is_empty())
        };
        let nodes: Vec<String> = targets.chain(node.filter(holds)).cloned().collect();
        self.dirty_nodes.extend(nodes);
    }
}
