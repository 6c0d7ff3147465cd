//! What the watches deliver.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::any::Touched;
use super::kept::{Book, Cache};
use super::pods::Pods;
use super::store::{node_of, object};
use super::stores::Stored;
use super::{Engine, Subject, remove};
use crate::action::{Object, Part, Watch};
use crate::key::ObjectKey;
use crate::nodework::{NodeWork, OrderView, views};
use crate::pod::{Made, Pod};
use crate::readiness;
use crate::time::Mono;

impl Engine {
    pub(super) fn pods_changed(&mut self, watch: Watch<Pod>) {
        match watch {
            Watch::Upsert(pod) => self.upsert_pod(pod, false),
            Watch::Gone(pod) => {
                if self.pods.read(&pod.key).is_some_and(|known| known.uid == pod.uid) {
                    self.forget_pod(&pod.key);
                }
                self.pod_changed(&pod.key);
            }
            Watch::Listed(Part { objects, first, last }) => {
                self.pods.list_begins(first);
                for pod in objects {
                    self.upsert_pod(pod, true);
                }
                if last {
                    for key in self.pods.unlisted() {
                        self.forget_pod(&key);
                    }
                    self.pods.synced = true;
                    self.all_dirty();
                }
            }
        }
    }

    fn upsert_pod(&mut self, pod: Pod, listed: bool) {
        let key = pod.key.clone();
        // The Pod was replaced unseen: nothing of the old one is awaited any more.
        if self.pods.get(&key).is_some_and(|known| known.pod.get().uid != pod.uid) {
            self.forget_pod(&key);
        }
        let node = |pods: &Pods| pods.read(&key).and_then(|pod| pod.node.clone());
        let before = self.neighbours.are_kept().then(|| node(&self.pods));
        let made = pod.made.clone();
        let watchers = self.watchers_of(&pod);
        // Idle: its gates need no change without holds, and no request is in its queue.
        let idle = readiness::plan(&pod.gates, &BTreeSet::new()).is_empty()
            && !self.stores.each().any(|store| store.has_queue(&key));
        if self.pods.get(&key).is_some() {
            self.show_pod(&key, pod, listed);
        } else {
            self.pods.appeared(pod);
        }
        if let Some(before) = before {
            self.neighbours.moved(&key, before.as_deref(), node(&self.pods).as_deref());
        }
        if idle {
            self.holder_dirty(&key);
            self.pods.pack(&key);
        }
        if self.pods.get(&key).is_some() {
            self.pod_changed(&key);
        }
        self.maker_changed(&key, made.as_deref());
        self.member_changed(&key, watchers);
    }

    /// The objects that manage the Pod, or did until now.
    fn watchers_of(&self, pod: &Pod) -> Vec<Object> {
        if self.members.is_empty() {
            return Vec::new();
        }
        let other = |before: &Pod| before.controller != pod.controller || before.labels != pod.labels;
        let before = self.pods.read(&pod.key).filter(|before| other(before));
        let before = before.map(|before| self.members.watchers(&before)).unwrap_or_default();
        before.into_iter().chain(self.members.watchers(pod)).collect()
    }

    /// Marks the objects that manage the Pod, to look at it.
    pub(super) fn member_changed(&mut self, pod: &ObjectKey, watchers: Vec<Object>) {
        for watcher in watchers {
            if let Some(store) = self.stores.named_mut(watcher.kind.name()) {
                store.member_changed(&watcher.key, pod);
            }
        }
    }

    /// Marks the request that made the Pod.
    fn maker_changed(&mut self, pod: &ObjectKey, made: Option<&Made>) {
        let Some(Made { owner, .. }) = made else { return };
        if let Some(store) = self.stores.named_mut(&owner.kind) {
            store.mark(&ObjectKey::new(&pod.namespace, &owner.name));
        }
    }

    /// The watch shows a Pod that is awake.
    fn show_pod(&mut self, key: &ObjectKey, pod: Pod, listed: bool) {
        let Some(entry) = self.pods.named(key) else { return };
        if listed {
            entry.pod.listed(pod);
        } else {
            entry.pod.observed(pod);
        }
        entry.expire_writes();
    }

    fn forget_pod(&mut self, key: &ObjectKey) {
        self.pods.wake(key);
        self.holder_dirty(key);
        if let Some(entry) = self.pods.remove(key) {
            self.neighbours.moved(key, entry.pod.get().node.as_deref(), None);
            self.maker_changed(key, entry.pod.get().made.as_deref());
            self.member_changed(key, self.members.watchers(entry.pod.get()));
        }
        self.grants.remove(key);
        self.timers.set(Subject::Pod(key.clone()), None);
    }

    /// Marks the Pod, the requests that it concerns, and the nodes that hold it.
    pub(super) fn pod_changed(&mut self, pod: &ObjectKey) {
        self.pods.wake(pod);
        self.stores.each_mut().for_each(|store| store.pod_changed(pod));
        self.dirty_pods.insert(pod.clone());
        self.holder_dirty(pod);
    }

    pub(super) fn requests_changed<K: Stored>(&mut self, now: Mono, wall: DateTime<Utc>, watch: Watch<K>) {
        match watch {
            Watch::Upsert(request) => {
                let key = self.upsert_request(now, request, false);
                self.request_changed(K::ABOUT.id.name(), &key);
            }
            Watch::Gone(request) => {
                let key = request.meta().key;
                if K::store(&self.stores).uid(key) == Some(request.uid()) {
                    self.forget_request::<K>(key);
                }
            }
            Watch::Listed(Part { objects, first, last }) => {
                K::store_mut(&mut self.stores).list_begins(first);
                for request in objects {
                    let key = self.upsert_request(now, request, true);
                    if !self.rest_early::<K>(now, wall, &key) {
                        self.request_changed(K::ABOUT.id.name(), &key);
                    }
                }
                if last {
                    for key in K::store(&self.stores).unlisted() {
                        self.forget_request::<K>(&key);
                    }
                    K::store_mut(&mut self.stores).synced = true;
                    self.all_dirty();
                }
            }
        }
    }

    fn upsert_request<K: Stored>(&mut self, now: Mono, request: K, listed: bool) -> ObjectKey {
        let key = request.meta().key.clone();
        let known = K::store(&self.stores).objects.get(&key);
        if known.is_some_and(|e| e.request.get().uid() != request.uid()) {
            self.forget_request::<K>(&key);
        }
        K::store_mut(&mut self.stores).upsert(now, request, listed);
        key
    }

    /// Marks the request, and the other requests for its Pod that are at work or next.
    pub(super) fn request_changed(&mut self, kind: &str, key: &ObjectKey) {
        let touched = self.stores.named_mut(kind).and_then(|store| store.changed(key));
        if let Some(touched) = touched {
            self.touched(touched);
        }
    }

    fn touched(&mut self, Touched { pod, owner, child }: Touched) {
        // A child may wait for other requests, and is useless without its owner.
        if let Some((kind, key)) = child {
            self.stores.named_mut(kind.name()).into_iter().for_each(|store| store.mark(&key));
        }
        if let Some((kind, key)) = owner {
            self.stores.named_mut(&kind).into_iter().for_each(|store| store.member_changed(&key, &pod));
        }
        if !self.members.is_empty() {
            let watchers = self.pods.read(&pod).map(|pod| self.members.watchers(&pod));
            self.member_changed(&pod, watchers.unwrap_or_default());
        }
        self.pod_changed(&pod);
    }

    fn forget_request<K: Stored>(&mut self, key: &ObjectKey) {
        self.timers.set(Subject::Object(K::ABOUT.id, key.clone()), None);
        let store = K::store_mut(&mut self.stores);
        store.resting.remove(key);
        let Some(entry) = store.remove(key) else { return };
        store.disown(&entry);
        for group in &entry.groups {
            self.members.watch(&object(entry.request.get()), group, false);
        }
        if let Some(node) = node_of(entry.request.get()) {
            remove(&mut store.by_node, &node.to_owned(), key);
            self.dirty_nodes.insert(node.to_owned());
        }
        if K::ABOUT.many && entry.request.get().fails_park() {
            self.parks.update_failed(&entry.request.get().pod_key());
        }
        self.touched(entry.touches());
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
                    // A deletion shows the last state of the book.
                    self.book_lost(&work, true);
                }
                self.book_changed(now, &node);
            }
            Watch::Listed(Part { objects, first, last }) => {
                self.books.round = self.books.round.wrapping_add(u32::from(first));
                for work in objects {
                    self.upsert_book(now, work, true);
                }
                if last {
                    self.forget_books(now);
                    self.books.synced = true;
                    self.all_dirty();
                }
            }
        }
    }

    /// Forgets books that the list has not named.
    fn forget_books(&mut self, now: Mono) {
        let mut lost = Vec::new();
        let Cache { round, objects, .. } = &mut self.books;
        for book in objects.values_mut().filter(|book| book.round != *round) {
            // A list says nothing about a book that is being created.
            let Some(work) = book.known().cloned() else { continue };
            lost.push(work);
            book.gone();
        }
        for work in &lost {
            self.book_lost(work, false);
            self.book_changed(now, &work.node);
        }
    }

    fn upsert_book(&mut self, now: Mono, work: NodeWork, listed: bool) {
        let node = work.node.clone();
        let key = ObjectKey::new("", &node);
        let known = self.books.objects.get(&key).and_then(Book::known);
        if let Some(lost) = known.filter(|known| known.uid != work.uid).cloned() {
            self.book_lost(&lost, false);
        }
        let book = self.books.objects.entry(key).or_default();
        book.round = self.books.round;
        book.observed(now, work, listed);
        self.book_changed(now, &node);
    }

    /// A book is gone, and the daemon's answers with it. Requests remember orders that were begun: nothing else shows
    /// that the next instance of a container may be the requested one. `newest`: `work` is the last state of the book.
    fn book_lost(&mut self, work: &NodeWork, newest: bool) {
        let begun = |o: &OrderView<'_>| o.begun() || (!newest && o.answer.is_none());
        for order in views(Some(work)).filter(begun).map(|view| view.order) {
            self.stores.each_mut().for_each(|store| store.lost(&work.node, order));
        }
    }

    /// Marks the node's book and the requests that look at it.
    pub(super) fn book_changed(&mut self, now: Mono, node: &str) {
        if let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", node)) {
            let before = book.counts;
            book.see(now);
            self.orders.replace(&before, &book.counts);
        }
        self.dirty_nodes.insert(node.to_owned());
        self.stores.each_mut().for_each(|store| store.book_changed(node));
    }
}
