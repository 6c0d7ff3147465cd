//! How writes end.

use super::asked::UserRequest;
use super::kinds::Wrote;
use super::{Index, Timer};
use crate::action::{Action, Outcome};
use crate::key::ObjectKey;
use crate::look::Found;
use crate::nodework::NodeWork;
use crate::pod::Pod;
use crate::resize::Memory;
use crate::time::Mono;
use crate::tracked::Tracked;

impl Index {
    pub(super) fn request_written<R: UserRequest>(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        uid: &str,
        outcome: Outcome<R>,
        actions: &mut Vec<Action>,
    ) {
        // An answer about a request that was deleted says nothing about another one of that name.
        let (leading, patience) = (self.leading, self.config.conflict_patience);
        let entry = R::asked_mut(self).objects.get_mut(key).filter(|e| e.request.get().uid() == uid);
        let Some(entry) = entry else { return self.rest_written(now, key, uid, &outcome) };
        let replaced = entry.replaces.take();
        match outcome {
            Outcome::Written(new) => {
                let measure = replaced.as_ref().and_then(|old| new.measure(old));
                let notes = replaced.map(|old| new.notes(&old)).unwrap_or_default();
                actions.extend(notes.into_iter().map(Action::Emit));
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
        self.request_changed::<R>(key);
    }

    /// The deletion of a request that is over and through came back.
    fn rest_written<R: UserRequest>(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: &Outcome<R>) {
        let asked = R::asked_mut(self);
        let Some(rest) = asked.resting.get_mut(key).filter(|rest| rest.uid == uid) else { return };
        // The watch will show that it is gone.
        if !matches!(outcome, Outcome::Written(_) | Outcome::Gone) {
            rest.deletes.failed(now);
            asked.dirty.insert(key.clone());
        }
    }

    pub(super) fn pod_read<R: UserRequest>(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        uid: &str,
        outcome: &Outcome<String>,
    ) {
        let asked = R::asked_mut(self);
        let Some(entry) = asked.objects.get_mut(key).filter(|e| e.request.get().uid() == uid) else { return };
        let meant = entry.request.get().pod_uid();
        let found = match outcome {
            Outcome::Written(pod) if meant.is_none_or(|meant| meant == pod) => Found::There,
            Outcome::Written(_) | Outcome::Gone => Found::Gone,
            Outcome::Conflict | Outcome::Retry | Outcome::Refused(_) => Found::Unknown,
        };
        entry.look.answered(now, found);
        asked.dirty.insert(key.clone());
    }

    pub(super) fn pod_written(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: Outcome<Pod>) {
        // An answer about a Pod that is gone says nothing about another one of that name.
        let Some(entry) = self.pods.objects.get_mut(key).filter(|e| e.pod.get().uid == uid) else { return };
        let wrote = entry.writes.take();
        let refused = refusal(&outcome);
        if let Some(wrote) = &wrote {
            entry.ended(wrote, &outcome);
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
        entry.settle();
        let after = entry.pod.get().node.clone();
        self.neighbours.moved(key, before.as_deref(), after.as_deref());
        match wrote {
            Some(Wrote::Images) => self.pin_written(key, refused.as_ref()),
            Some(Wrote::Resources(resize)) => {
                self.sizing_ended(&resize, |memory| memory.sizing_written(now, refused));
            }
            Some(Wrote::Gates) | None => {}
        }
        self.pod_changed(key);
    }

    /// A dry run tells nothing of the Pod but whether it would take the change.
    pub(super) fn pod_tried(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: &Outcome<()>) {
        let Some(entry) = self.pods.objects.get_mut(key).filter(|e| e.pod.get().uid == uid) else { return };
        let wrote = entry.writes.take();
        let Some(Wrote::Resources(resize)) = wrote else { return };
        let asks = self.resizes.objects.get(&resize).is_some_and(|e| e.request.get().spec.dry_run);
        match outcome {
            Outcome::Conflict | Outcome::Gone => {
                entry.pod.conflicted();
                entry.write.conflicted(now.after(self.config.conflict_patience));
            }
            Outcome::Written(()) | Outcome::Retry | Outcome::Refused(_) => {
                entry.pod.failed();
                // Who waits for its turn asks again in its own time: other writes of the Pod wait for no refusal of that.
                let told = matches!(outcome, Outcome::Written(())) || (!asks && refusal(outcome).is_some());
                if told {
                    entry.write.succeeded();
                } else {
                    entry.write.failed(now);
                }
            }
        }
        let stored = matches!(outcome, Outcome::Written(()));
        self.sizing_ended(&resize, |memory| memory.sizing_tried(now, asks, stored, refusal(outcome)));
        self.pod_changed(key);
    }

    fn pin_written(&mut self, pod: &ObjectKey, refused: Option<&String>) {
        let requests = &mut self.requests;
        for request in requests.queues.concerned(pod) {
            if let Some(entry) = requests.objects.get_mut(request).filter(|e| !e.images.is_empty()) {
                entry.memory.pin_written(refused.cloned());
            }
        }
    }

    fn sizing_ended(&mut self, resize: &ObjectKey, note: impl FnOnce(&mut Memory)) {
        if let Some(entry) = self.resizes.objects.get_mut(resize) {
            note(&mut entry.memory);
            self.resizes.dirty.insert(resize.clone());
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
            (Outcome::Conflict, None) => book.write.failed(now),
            // There is no such node, so no daemon either.
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
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Request(key) => self.requests.dirty.insert(key),
                Timer::Resize(key) => self.resizes.dirty.insert(key),
                Timer::Pod(key) => self.dirty_pods.insert(key),
                Timer::Node(node) => self.dirty_nodes.insert(node),
            };
        }
    }
}

fn refusal<T>(outcome: &Outcome<T>) -> Option<String> {
    match outcome {
        Outcome::Refused(text) => Some(text.clone()),
        Outcome::Written(_) | Outcome::Gone | Outcome::Conflict | Outcome::Retry => None,
    }
}
