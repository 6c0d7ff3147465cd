//! What the watches deliver.

use std::collections::BTreeSet;

use pitstop_api::nodework::request_uid;

use super::asked::UserRequest;
use super::kinds::{Book, PodEntry};
use super::{Index, Timer, remove};
use crate::action::Watch;
use crate::key::ObjectKey;
use crate::nodework::{NodeWork, OrderView, views};
use crate::pod::Pod;
use crate::time::Mono;

impl Index {
    pub(super) fn pods_changed(&mut self, watch: Watch<Pod>) {
        match watch {
            Watch::Upsert(pod) => self.upsert_pod(pod, false),
            Watch::Gone(pod) => {
                if self.pods.objects.get(&pod.key).is_some_and(|known| known.pod.get().uid == pod.uid) {
                    self.forget_pod(&pod.key);
                }
                self.pod_changed(&pod.key);
            }
            Watch::Restart(all) => {
                let listed: BTreeSet<&ObjectKey> = all.iter().map(|pod| &pod.key).collect();
                let lost: Vec<ObjectKey> =
                    self.pods.objects.keys().filter(|k| !listed.contains(*k)).cloned().collect();
                for key in &lost {
                    self.forget_pod(key);
                }
                for pod in all {
                    self.upsert_pod(pod, true);
                }
                self.pods.synced = true;
                self.all_dirty();
            }
        }
    }

    fn upsert_pod(&mut self, pod: Pod, listed: bool) {
        let key = pod.key.clone();
        if let Some(entry) = self.pods.objects.get_mut(&key) {
            let before = entry.pod.get().node.clone();
            if listed {
                entry.pod.listed(pod);
            } else {
                entry.pod.observed(pod);
            }
            entry.settle();
            self.neighbours.moved(&key, before.as_deref(), entry.pod.get().node.as_deref());
        } else {
            self.neighbours.moved(&key, None, pod.node.as_deref());
            self.pods.objects.insert(key.clone(), PodEntry::new(pod));
        }
        self.pod_changed(&key);
    }

    fn forget_pod(&mut self, key: &ObjectKey) {
        self.holder_dirty(key);
        if let Some(entry) = self.pods.objects.remove(key) {
            self.neighbours.moved(key, entry.pod.get().node.as_deref(), None);
        }
        self.grants.remove(key);
        self.timers.set(Timer::Pod(key.clone()), None);
    }

    /// The plans of the Pod itself and of the requests for it may be different now.
    pub(super) fn pod_changed(&mut self, pod: &ObjectKey) {
        self.requests.pod_changed(pod);
        self.resizes.pod_changed(pod);
        self.dirty_pods.insert(pod.clone());
        self.holder_dirty(pod);
    }

    pub(super) fn requests_changed<R: UserRequest>(&mut self, now: Mono, watch: Watch<R>) {
        let known = |index: &mut Self, request: &R| {
            let asked = R::asked(index);
            let entry = asked.objects.get(request.key()).map(|e| e.request.get().uid());
            let uid = entry.or_else(|| asked.resting.get(request.key()).map(|rest| rest.uid.as_str()));
            uid == Some(request.uid())
        };
        match watch {
            Watch::Upsert(request) => self.upsert_request(now, request, false),
            Watch::Gone(request) => {
                if known(self, &request) {
                    self.forget_request::<R>(request.key());
                }
            }
            Watch::Restart(all) => {
                let listed: BTreeSet<ObjectKey> = all.iter().map(|r| r.key().clone()).collect();
                let asked = R::asked(self);
                let known = asked.objects.keys().chain(asked.resting.keys());
                let lost: Vec<ObjectKey> = known.filter(|k| !listed.contains(*k)).cloned().collect();
                for key in &lost {
                    self.forget_request::<R>(key);
                }
                for request in all {
                    self.upsert_request(now, request, true);
                }
                R::asked_mut(self).synced = true;
                self.all_dirty();
            }
        }
    }

    fn upsert_request<R: UserRequest>(&mut self, now: Mono, request: R, listed: bool) {
        let key = request.key().clone();
        if R::asked(self).objects.get(&key).is_some_and(|e| e.request.get().uid() != request.uid()) {
            self.forget_request::<R>(&key);
        }
        let asked = R::asked_mut(self);
        let entry = match asked.remove(&key) {
            None => asked.wake(now, request),
            Some(mut entry) => {
                if listed {
                    entry.request.listed(request);
                } else {
                    entry.request.observed(request);
                }
                entry
            }
        };
        asked.insert(&key, entry);
        self.request_changed::<R>(&key);
    }

    /// Its own plan, and those of the other requests for its Pod that are at work or next, may be different now.
    pub(super) fn request_changed<R: UserRequest>(&mut self, key: &ObjectKey) {
        let asked = R::asked_mut(self);
        asked.stand(key);
        let Some(entry) = asked.objects.get(key) else { return };
        let (pod, child) = (entry.request.get().pod_key(), entry.request.get().child());
        asked.dirty.insert(key.clone());
        // It may wait for others, and is in vain without what it is for.
        self.requests.dirty.extend(child);
        self.pod_changed(&pod);
    }

    fn forget_request<R: UserRequest>(&mut self, key: &ObjectKey) {
        self.timers.set(R::timer(key.clone()), None);
        let asked = R::asked_mut(self);
        asked.resting.remove(key);
        let Some(entry) = asked.remove(key) else { return };
        let request = entry.request.get();
        let (pod, child) = (request.pod_key(), request.child());
        if let Some(node) = request.node() {
            remove(&mut asked.by_node, &node.to_owned(), key);
            self.dirty_nodes.insert(node.to_owned());
        }
        self.requests.dirty.extend(child);
        self.pod_changed(&pod);
    }

    pub(super) fn books_changed(&mut self, now: Mono, watch: Watch<NodeWork>) {
        match watch {
            Watch::Upsert(work) => self.upsert_book(now, work, false),
            Watch::Gone(work) => {
                let node = work.node.clone();
                if let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", &node))
                    && book.known().is_some_and(|known| known.uid == work.uid)
                {
                    book.gone();
                    // What was deleted is the newest there was.
                    self.book_lost(&work, true);
                }
                self.book_changed(now, &node);
            }
            Watch::Restart(all) => {
                let listed: BTreeSet<&str> = all.iter().map(|w| w.node.as_str()).collect();
                let mut lost = Vec::new();
                for (key, book) in &mut self.books.objects {
                    if book.work.is_some() && !listed.contains(key.name.as_str()) {
                        lost.extend(book.known().cloned());
                        book.gone();
                    }
                }
                for work in &lost {
                    self.book_lost(work, false);
                    self.book_changed(now, &work.node);
                }
                for work in all {
                    self.upsert_book(now, work, true);
                }
                self.books.synced = true;
                self.all_dirty();
            }
        }
    }

    fn upsert_book(&mut self, now: Mono, work: NodeWork, listed: bool) {
        let node = work.node.clone();
        let key = ObjectKey::new("", &node);
        let known = self.books.objects.get(&key).and_then(Book::known);
        if let Some(lost) = known.filter(|known| known.uid != work.uid).cloned() {
            self.book_lost(&lost, false);
        }
        self.books.objects.entry(key).or_default().observed(now, work, listed);
        self.book_changed(now, &node);
    }

    /// A book is gone, and the daemon's answers with it: what was begun of it is remembered, as nothing else tells
    /// that the next instance of a container may be the one that was asked for.
    /// `newest`: nothing came after that state of it.
    fn book_lost(&mut self, work: &NodeWork, newest: bool) {
        let begun = |o: &OrderView<'_>| o.begun() || (!newest && o.answer.is_none());
        for order in views(Some(work)).filter(begun).map(|view| view.order) {
            for key in self.requests.by_node.get(&work.node).into_iter().flatten() {
                let entry = self.requests.objects.get_mut(key);
                if let Some(entry) = entry.filter(|e| e.request.get().uid == request_uid(&order.id)) {
                    entry.memory.begun.insert(order.container.name.clone());
                }
            }
        }
    }

    /// The plans of the node's book and of the requests that look at it may be different now.
    pub(super) fn book_changed(&mut self, now: Mono, node: &str) {
        if let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", node)) {
            let before = book.counts;
            book.see(now);
            self.orders.replace(&before, &book.counts);
        }
        self.dirty_nodes.insert(node.to_owned());
        self.requests.book_changed(node);
        self.resizes.book_changed(node);
    }
}
