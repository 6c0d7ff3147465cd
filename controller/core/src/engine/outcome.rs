//! How writes end.

use super::Engine;
use super::kept::PodPart;
use super::stores::Stored;
use crate::action::{Action, Object};
use crate::change::Note;
use crate::key::ObjectKey;
use crate::kind::PodWritten;
use crate::nodework::NodeWork;
use crate::outcome::Outcome;
use crate::pod::Pod;
use crate::time::Mono;
use crate::tracked::Tracked;

impl Engine {
    pub(super) fn request_written<K: Stored>(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        uid: &str,
        outcome: Outcome<K>,
        actions: &mut Vec<Action>,
    ) {
        // An answer about a deleted request does not concern a new one with the same name.
        let (leading, patience) = (self.leading, self.config.conflict_patience);
        let owned = matches!(&outcome, Outcome::Written(new) if self.is_one_of_many(new));
        let entry =
            K::store_mut(&mut self.stores).objects.get_mut(key).filter(|e| e.request.get().uid() == uid);
        let Some(entry) = entry else { return self.rest_written(now, key, uid, &outcome) };
        let replaced = entry.replaces.take();
        match outcome {
            Outcome::Written(new) => {
                let measure = replaced.as_ref().and_then(|old| new.measure(old));
                let notes = replaced.map(|old| new.notes(&old)).unwrap_or_default();
                actions.extend(notes.into_iter().map(|note| Action::Emit(Note { owned, ..note })));
                actions.extend(measure.map(Action::Count));
                entry.request.written(new);
                entry.write.succeeded();
                entry.confirmed = leading;
            }
            Outcome::Conflict | Outcome::Gone => {
                entry.request.conflicted();
                entry.write.conflicted(now.after(patience));
            }
            Outcome::Retry | Outcome::Refused(_) => {
                entry.request.failed();
                entry.write.failed(now);
            }
        }
        self.request_changed(K::ABOUT.id.name(), key);
    }

    /// The deletion of a resting request ended.
    fn rest_written<K: Stored>(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: &Outcome<K>) {
        let store = K::store_mut(&mut self.stores);
        let Some(rest) = store.resting.get_mut(key).filter(|rest| rest.uid == uid) else { return };
        // The watch will show that it is gone.
        if !matches!(outcome, Outcome::Written(_) | Outcome::Gone) {
            rest.deletes.failed(now);
            store.dirty.insert(key.clone());
        }
    }

    pub(super) fn pod_written(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: Outcome<Pod>) {
        // An answer about a Pod that is gone does not concern a new one with the same name.
        let Some(entry) = self.pods.wake(key).filter(|e| e.pod.get().uid == uid) else { return };
        let part = entry.writes.take();
        let refused = refusal(&outcome);
        if let Some(part) = &part {
            entry.ended(part, &outcome);
        }
        let before = entry.pod.get().node.clone();
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
        entry.expire_writes();
        let after = entry.pod.get().node.clone();
        self.neighbours.moved(key, before.as_deref(), after.as_deref());
        match part.as_deref() {
            Some(PodPart::Images) => {
                let all = self.stores.each_mut();
                all.for_each(|store| store.images_written(now, key, refused.as_ref()));
            }
            Some(PodPart::Resources(by)) => self.resources_written(now, by, PodWritten::Resources(refused)),
            Some(PodPart::Gates) | None => {}
        }
        self.pod_changed(key);
    }

    /// A dry run ended. It shows only whether the Pod would take the change.
    pub(super) fn pod_tried(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: &Outcome<()>) {
        let Some(entry) = self.pods.wake(key).filter(|e| e.pod.get().uid == uid) else { return };
        let part = entry.writes.take();
        let Some(PodPart::Resources(by)) = part.as_deref() else { return };
        let asks = self.stores.of(by.kind).is_some_and(|store| store.changes_nothing(&by.key, &by.uid));
        match outcome {
            Outcome::Conflict | Outcome::Gone => {
                entry.pod.conflicted();
                entry.write.conflicted(now.after(self.config.conflict_patience));
            }
            Outcome::Written(()) | Outcome::Retry | Outcome::Refused(_) => {
                entry.pod.failed();
                // A waiting request repeats its dry run in its own time, so its refusal delays no other write of the
                // Pod.
                let known = matches!(outcome, Outcome::Written(())) || (!asks && refusal(outcome).is_some());
                if known {
                    entry.write.succeeded();
                } else {
                    entry.write.failed(now);
                }
            }
        }
        let stored = matches!(outcome, Outcome::Written(()));
        self.resources_written(now, by, PodWritten::Trial { stored, refused: refusal(outcome) });
        self.pod_changed(key);
    }

    fn resources_written(&mut self, now: Mono, by: &Object, written: PodWritten) {
        if let Some(store) = self.stores.named_mut(by.kind.name()) {
            store.pod_written(now, &by.key, &by.uid, written);
        }
    }

    pub(super) fn book_written(&mut self, now: Mono, node: &str, outcome: Outcome<NodeWork>) {
        let Some(book) = self.books.objects.get_mut(&ObjectKey::new("", node)) else { return };
        let creating = std::mem::take(&mut book.creating);
        match (outcome, &mut book.work) {
            (Outcome::Written(work), known) => {
                match known {
                    Some(known) => known.written(work),
                    None if creating => *known = Some(Tracked::new(work)),
                    // The watch has shown that the book was deleted meanwhile.
                    None => {}
                }
                book.writes_ended();
                book.write.succeeded();
            }
            (Outcome::Conflict | Outcome::Gone, Some(known)) => {
                known.conflicted();
                book.write.conflicted(now.after(self.config.conflict_patience));
            }
            // A conflict of a create means that the book exists: the watch will show it.
            (Outcome::Conflict, None) => book.write.failed(now),
            // The node does not exist, so it has no daemon.
            (Outcome::Gone, None) => {
                book.missing = true;
                book.write_refused(now);
                book.write.failed(now);
            }
            (Outcome::Retry, known) => {
                known.iter_mut().for_each(Tracked::failed);
                book.write_unknown(now.after(self.config.write_bound));
                book.write.failed(now);
            }
            (Outcome::Refused(_), known) => {
                known.iter_mut().for_each(Tracked::failed);
                book.write_refused(now);
                book.write.failed(now);
            }
        }
        self.book_changed(now, node);
    }

    pub(super) fn due_timers(&mut self, now: Mono) {
        while let Some(subject) = self.timers.pop_due(now) {
            self.mark(subject);
        }
    }
}

fn refusal<T>(outcome: &Outcome<T>) -> Option<String> {
    match outcome {
        Outcome::Refused(text) => Some(text.clone()),
        Outcome::Written(_) | Outcome::Gone | Outcome::Conflict | Outcome::Retry => None,
    }
}
