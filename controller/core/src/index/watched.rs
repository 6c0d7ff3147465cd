//! What the watches deliver.

use std::collections::BTreeSet;

use super::kinds::{Entry, PodEntry};
use super::{Index, Timer, remove};
use crate::action::Watch;
use crate::key::ObjectKey;
use crate::nodework::NodeWork;
use crate::pod::Pod;
use crate::recreate::Request;
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
        match self.pods.objects.get_mut(&key) {
            Some(entry) => {
                if listed {
                    entry.pod.listed(pod);
                } else {
                    entry.pod.observed(pod);
                }
                entry.settle();
            }
            None => {
                self.pods.objects.insert(key.clone(), PodEntry::new(pod));
            }
        }
        self.pod_changed(&key);
    }

    fn forget_pod(&mut self, key: &ObjectKey) {
        self.pods.objects.remove(key);
        self.timers.set(Timer::Pod(key.clone()), None);
    }

    /// The plans of the Pod itself and of the requests for it may be different now.
    pub(super) fn pod_changed(&mut self, pod: &ObjectKey) {
        self.dirty_requests.extend(self.by_pod.get(pod).into_iter().flatten().cloned());
        self.dirty_pods.insert(pod.clone());
    }

    pub(super) fn requests_changed(&mut self, now: Mono, watch: Watch<Request>) {
        match watch {
            Watch::Upsert(request) => self.upsert_request(now, request, false),
            Watch::Gone(request) => {
                if self.requests.objects.get(&request.key).is_some_and(|e| e.request.get().uid == request.uid)
                {
                    self.forget_request(&request.key);
                }
            }
            Watch::Restart(all) => {
                let listed: BTreeSet<ObjectKey> = all.iter().map(|r| r.key.clone()).collect();
                let lost: Vec<ObjectKey> =
                    self.requests.objects.keys().filter(|k| !listed.contains(*k)).cloned().collect();
                for key in &lost {
                    self.forget_request(key);
                }
                for request in all {
                    self.upsert_request(now, request, true);
                }
                self.requests.synced = true;
                self.all_dirty();
            }
        }
    }

    fn upsert_request(&mut self, now: Mono, request: Request, listed: bool) {
        let key = request.key.clone();
        if self.requests.objects.get(&key).is_some_and(|e| e.request.get().uid != request.uid) {
            self.forget_request(&key);
        }
        self.by_pod.entry(request.pod_key()).or_default().insert(key.clone());
        match self.requests.objects.get_mut(&key) {
            Some(entry) if listed => entry.request.listed(request),
            Some(entry) => entry.request.observed(request),
            None => {
                self.requests.objects.insert(key.clone(), Entry::new(now, request));
            }
        }
        self.request_changed(&key);
    }

    /// Its own plan, and those of the other requests for its Pod, may be different now.
    pub(super) fn request_changed(&mut self, key: &ObjectKey) {
        let Some(entry) = self.requests.objects.get(key) else { return };
        let pod = entry.request.get().pod_key();
        self.pod_changed(&pod);
    }

    fn forget_request(&mut self, key: &ObjectKey) {
        let Some(entry) = self.requests.objects.remove(key) else { return };
        self.timers.set(Timer::Request(key.clone()), None);
        let request = entry.request.get();
        let pod = request.pod_key();
        remove(&mut self.by_pod, &pod, key);
        self.pod_changed(&pod);
        if let Some(target) = &request.status.target {
            remove(&mut self.by_node, &target.node_name, key);
            self.dirty_nodes.insert(target.node_name.clone());
        }
    }

    pub(super) fn books_changed(&mut self, watch: Watch<NodeWork>) {
        match watch {
            Watch::Upsert(work) => self.upsert_book(work, false),
            Watch::Gone(work) => {
                let node = work.node.clone();
                if let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", &node))
                    && book.known().is_some_and(|known| known.uid == work.uid)
                {
                    book.gone();
                }
                self.book_changed(&node);
            }
            Watch::Restart(all) => {
                let listed: BTreeSet<&str> = all.iter().map(|w| w.node.as_str()).collect();
                for (key, book) in &mut self.books.objects {
                    if book.work.is_some() && !listed.contains(key.name.as_str()) {
                        book.gone();
                    }
                }
                for work in all {
                    self.upsert_book(work, true);
                }
                self.books.synced = true;
                self.all_dirty();
            }
        }
    }

    fn upsert_book(&mut self, work: NodeWork, listed: bool) {
        let node = work.node.clone();
        self.books.objects.entry(ObjectKey::new("", &node)).or_default().observed(work, listed);
        self.book_changed(&node);
    }

    /// The plans of the node's book and of the requests that look at it may be different now.
    pub(super) fn book_changed(&mut self, node: &str) {
        self.dirty_nodes.insert(node.to_owned());
        self.dirty_requests.extend(self.by_node.get(node).into_iter().flatten().cloned());
    }
}
