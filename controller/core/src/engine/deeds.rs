//! Deeds: what requests have done beside writes of themselves, their Pods and their orders.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::pacing::Pacing;
use super::room::Turn;
use super::store::{Entry, object};
use super::stores::Stored;
use super::{Engine, Subject};
use crate::action::{Action, Object};
use crate::change::Note;
use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::lifecycle::made_by;
use crate::plan::{Plan, Urgency};
use crate::time::Mono;

/// How soon the Pod of a resting request is deleted again after a deletion without effect.
const SWEEP_AGAIN: Duration = Duration::from_mins(1);

impl Engine {
    /// Begins the deeds that the plan wants. Returns when to look again. After each begun deed the request is planned
    /// again, so that the next one takes the begun ones into account.
    pub(super) fn begin_deeds<K: Stored>(
        &mut self,
        (now, wall): (Mono, DateTime<Utc>),
        entry: &mut Entry<K>,
        plan: &mut Plan<K::Status>,
        (subject, turn): (&Subject, Turn<'_>),
        actions: &mut Vec<Action>,
    ) -> Option<Mono> {
        let mut more = false;
        loop {
            let room = || {
                if more {
                    self.room.start_more(now, subject, turn)
                } else {
                    self.room.start(now, subject, turn)
                }
            };
            let deed = match entry.deeds.begin(now, plan.deed.take(), K::ABOUT.deeds, room) {
                Ok(deed) => deed?,
                Err(later) => return Some(later),
            };
            actions.push(Action::Do { object: object(entry.request.get()), deed });
            if entry.deeds.doing().len() >= K::ABOUT.deeds {
                return None;
            }
            more = true;
            *plan = self.decided(now, wall, entry, actions);
        }
    }

    /// A deed for a request, or for a parked workload without a rollout, ended. Returns the event to emit.
    pub(super) fn deed_done(&mut self, now: Mono, by: Object, deed: Deed, done: Done) -> Option<Note> {
        let kind = by.kind.name();
        let Some(store) = self.stores.named_mut(kind) else {
            return self.orphan_done(now, by.key, &deed, done);
        };
        if store.deed_done(now, &by, deed, done) {
            self.request_changed(kind, &by.key);
        }
        None
    }

    /// Deletes the Pod that a resting request made. Returns when to look again.
    pub(super) fn sweep<K: Stored>(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        request_uid: String,
        actions: &mut Vec<Action>,
    ) -> Option<Mono> {
        let pod = self.pods.read(&K::made_pod(key, &request_uid)?)?;
        if !made_by::<K>(&request_uid, &pod) || pod.deleting {
            return None;
        }
        let deed = Deed::DeletePod { key: pod.key.clone(), uid: pod.uid.clone() };
        let subject = Subject::Object(K::ABOUT.id, key.clone());
        if !self.room.start(now, &subject, Turn::New(&key.namespace, None)) {
            return None;
        }
        let object = Object { kind: K::ABOUT.id, key: key.clone(), uid: request_uid };
        actions.push(Action::Do { object, deed });
        Some(now.after(SWEEP_AGAIN))
    }
}

/// The deeds of one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Deeds {
    /// Deeds under way.
    doing: Vec<Deed>,
    /// The end of this deed is unknown, and it may have taken effect.
    unknown: Option<Deed>,
    write: Pacing,
    /// The last write of the workload met a conflict.
    conflicted: bool,
}

impl Deeds {
    /// A deed that is under way, or whose end is unknown.
    pub(super) fn open(&self) -> Option<&Deed> {
        self.doing.first().or(self.unknown.as_ref())
    }

    /// The deeds under way.
    pub(super) fn doing(&self) -> &[Deed] {
        &self.doing
    }

    /// Begins the wanted deed, unless those under way exclude it or the room is full. Returns the begun deed. The error
    /// is when to look again. `most`: how many deeds may be under way.
    pub(super) fn begin(
        &mut self,
        now: Mono,
        wanted: Option<Deed>,
        most: usize,
        room: impl FnOnce() -> bool,
    ) -> Result<Option<Deed>, Mono> {
        let beside = |deed: &Deed| {
            deed.is_one_of_many()
                && self.doing.len() < most
                && self.doing.iter().all(|other| other.is_one_of_many() && other != deed)
        };
        let Some(deed) = wanted.filter(|deed| self.doing.is_empty() || beside(deed)) else { return Ok(None) };
        self.write.due(now, Urgency::Now, Duration::ZERO)?;
        Ok(room().then(|| self.doing.push_mut(deed).clone()))
    }

    /// A deed ended. Returns whether it was under way.
    pub(super) fn ended(&mut self, now: Mono, deed: &Deed, done: &Done) -> bool {
        let Some(at) = self.doing.iter().position(|doing| doing == deed) else { return false };
        let deed = self.doing.swap_remove(at);
        self.unknown = None;
        // The workload is read again at once. Only a second conflict is a reason to wait.
        let first = matches!(deed, Deed::Commit(_) | Deed::Release(_))
            && !std::mem::replace(&mut self.conflicted, matches!(done, Done::Conflict));
        match done {
            Done::Effected | Done::Read(_) => self.write.succeeded(),
            Done::Conflict if first => {}
            Done::Gone | Done::Conflict | Done::Refused(_) => self.write.failed(now),
            Done::Retry(_) => match deed {
                // An eviction has its own pace, and a second one does no harm.
                Deed::Evict { .. } => self.write.succeeded(),
                // These deeds change nothing.
                Deed::TryImages { .. }
                | Deed::TryRelease { .. }
                | Deed::AskNode(_)
                | Deed::AskWorkload(_) => {
                    self.write.failed(now);
                }
                // Repeating the deed shows whether it took effect.
                Deed::Create(_)
                | Deed::Delete { .. }
                | Deed::Resume { .. }
                | Deed::MarkPod { .. }
                | Deed::Release(_)
                | Deed::Commit(_)
                | Deed::Pull(_)
                | Deed::DeletePod { .. } => {
                    self.unknown = Some(deed);
                    self.write.failed(now);
                }
            },
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deed::{Commit, CommitStep};
    use crate::key::KindId;
    use crate::workload::{Set, Version};

    fn delete(name: &str) -> Deed {
        let key = ObjectKey::new("shop", name);
        Deed::Delete { kind: KindId::new("PodResize"), key, uid: name.into() }
    }

    fn ask(node: &str) -> Deed {
        Deed::AskNode(node.into())
    }

    fn begin(deeds: &mut Deeds, deed: Deed, most: usize) -> bool {
        deeds.begin(Mono(0), Some(deed), most, || true).unwrap().is_some()
    }

    #[test]
    fn only_what_is_one_of_many_is_done_beside_others_of_them() {
        let mut deeds = Deeds::default();
        let begun = [delete("a"), delete("a"), ask("n"), delete("b"), delete("c")];
        assert_eq!(begun.map(|deed| begin(&mut deeds, deed, 2)), [true, false, false, true, false]);
        assert!(!deeds.ended(Mono(0), &delete("c"), &Done::Effected), "nobody knows of it");
        for name in ["a", "b"] {
            assert!(deeds.ended(Mono(0), &delete(name), &Done::Effected));
        }
        let begun = [ask("n"), ask("m"), delete("a")];
        assert_eq!(begun.map(|deed| begin(&mut deeds, deed, 2)), [true, false, false]);
    }

    #[test]
    fn only_a_second_conflict_in_a_row_is_waited_for() {
        let mut deeds = Deeds::default();
        let mut end = |deed: Deed, done: Done| {
            assert!(begin(&mut deeds, deed.clone(), 1));
            deeds.ended(Mono(0), &deed, &done);
            deeds.begin(Mono(0), Some(ask("m")), 1, || false).map(|_| ())
        };
        let version = Version { name: "web".into(), uid: "w".into(), resource_version: "1".into() };
        let (active, step) = (Set::default(), CommitStep::Swap);
        let write =
            Deed::Commit(Box::new(Commit { namespace: "shop".into(), deployment: version, active, step }));
        let read = || Done::Read(Box::default());
        for done in [Done::Conflict, Done::Effected, Done::Conflict] {
            assert_eq!(end(write.clone(), done), Ok(()));
            assert_eq!(end(ask("n"), read()), Ok(()));
        }
        assert_eq!(end(write, Done::Conflict), Err(Mono(500)));
    }

    #[test]
    fn most_objects_have_one_thing_done_at_a_time() {
        let mut deeds = Deeds::default();
        assert_eq!(["a", "b"].map(|name| begin(&mut deeds, delete(name), 1)), [true, false]);
    }
}
