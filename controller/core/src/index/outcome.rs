//! How writes end.

use super::{Index, Timer};
use crate::action::{Action, Outcome};
use crate::key::ObjectKey;
use crate::nodework::NodeWork;
use crate::pod::Pod;
use crate::recreate::{self, Request};
use crate::time::Mono;
use crate::tracked::Tracked;

impl Index {
    pub(super) fn request_written(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        uid: &str,
        outcome: Outcome<Request>,
        actions: &mut Vec<Action>,
    ) {
        // An answer about a request that was deleted says nothing about another one of that name.
        let entry = self.requests.objects.get_mut(key).filter(|e| e.request.get().uid == uid);
        let Some(entry) = entry else { return };
        let replaced = entry.replaces.take();
        match outcome {
            Outcome::Written(new) => {
                let measure = replaced.as_ref().and_then(|old| recreate::measure(&new.status, old));
                let notes = replaced.map(|old| recreate::notes(&new, &old)).unwrap_or_default();
                actions.extend(notes.into_iter().map(Action::Emit));
                actions.extend(measure.map(Action::Count));
                entry.request.written(new);
                entry.write.succeeded();
                entry.confirmed = self.leading;
            }
            Outcome::Conflict | Outcome::Gone => {
                entry.request.conflicted();
                entry.write.conflicted(now.after(self.config.conflict_patience));
            }
            Outcome::Retry | Outcome::Refused(_) => {
                entry.request.failed();
                entry.write.failed(now);
            }
        }
        self.request_changed(key);
    }

    pub(super) fn pod_written(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: Outcome<Pod>) {
        // An answer about a Pod that is gone says nothing about another one of that name.
        let Some(entry) = self.pods.objects.get_mut(key).filter(|e| e.pod.get().uid == uid) else { return };
        let pinning = entry.pinning.is_some();
        let refused = match &outcome {
            Outcome::Refused(text) => Some(text.clone()),
            _ => None,
        };
        // A refusal clears too, though a write before it may have ended unknown: an image that is refused for ever would
        // else keep its request open for ever.
        if !matches!(outcome, Outcome::Retry) {
            entry.pinning = None;
        }
        match outcome {
            Outcome::Written(new) => {
                entry.pod.written(new);
                entry.write.succeeded();
            }
            Outcome::Conflict | Outcome::Gone => {
                entry.pod.conflicted();
                entry.write.conflicted(now.after(self.config.conflict_patience));
            }
            Outcome::Retry | Outcome::Refused(_) => {
                entry.pod.failed();
                entry.write.failed(now);
            }
        }
        entry.settle();
        for request in self.by_pod.get(key).into_iter().flatten().filter(|_| pinning) {
            if let Some(entry) = self.requests.objects.get_mut(request).filter(|e| !e.images.is_empty()) {
                entry.memory.pin_written(refused.clone());
            }
        }
        self.pod_changed(key);
    }

    pub(super) fn book_written(&mut self, now: Mono, node: &str, outcome: Outcome<NodeWork>) {
        let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", node)) else { return };
        let creating = std::mem::take(&mut book.creating);
        match (outcome, &mut book.work) {
            (Outcome::Written(work), known) => {
                match known {
                    Some(known) => known.written(work),
                    None if creating => *known = Some(Tracked::new(work)),
                    // Deleted meanwhile, as the watch has shown.
                    None => {}
                }
                book.placed();
                book.write.succeeded();
            }
            (Outcome::Conflict | Outcome::Gone, Some(known)) => {
                known.conflicted();
                book.write.conflicted(now.after(self.config.conflict_patience));
            }
            // A conflict of a create means that the book exists: the watch will show it.
            (Outcome::Conflict | Outcome::Gone, None) => book.write.failed(now),
            (Outcome::Retry, known) => {
                known.iter_mut().for_each(Tracked::failed);
                book.write_unknown();
                book.write.failed(now);
            }
            (Outcome::Refused(_), known) => {
                known.iter_mut().for_each(Tracked::failed);
                book.write_refused();
                book.write.failed(now);
            }
        }
        self.book_changed(node);
    }

    pub(super) fn due_timers(&mut self, now: Mono) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Request(key) => self.dirty_requests.insert(key),
                Timer::Pod(key) => self.dirty_pods.insert(key),
                Timer::Node(node) => self.dirty_nodes.insert(node),
            };
        }
    }
}
