//! What requests have done beside the writes of themselves, their Pods and their orders: one thing at a time each.

use std::time::Duration;

use super::pacing::Pacing;
use super::room::Turn;
use super::stores::Stored;
use super::{Engine, Subject};
use crate::action::{Action, Object};
use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::kind::made_by;
use crate::plan::Urgency;
use crate::time::Mono;

/// How soon what is left of a request that is over is deleted again where that was in vain.
const SWEEP_AGAIN: Duration = Duration::from_mins(1);

impl Engine {
    /// Deletes the Pod that a request has made that is over and through; when to look again.
    pub(super) fn sweep<K: Stored>(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        request_uid: String,
        actions: &mut Vec<Action>,
    ) -> Option<Mono> {
        let left = self.pods.read(&K::made_pod(key, &request_uid)?)?;
        if !made_by::<K>(&request_uid, &left) || left.deleting {
            return None;
        }
        let deed = Deed::DeletePod { key: left.key.clone(), uid: left.uid.clone() };
        let subject = Subject::Object(K::ABOUT.id, key.clone());
        if !self.room.start(now, &subject, Turn::New(&key.namespace, None)) {
            return None;
        }
        let by = Object { kind: K::ABOUT.id, key: key.clone(), uid: request_uid };
        actions.push(Action::Do { by, deed });
        Some(now.after(SWEEP_AGAIN))
    }
}

/// What one request has done.
#[derive(Clone, Debug, Default)]
pub(super) struct Deeds {
    /// Under way.
    doing: Option<Deed>,
    /// Nobody knows how it ended, and it would have an effect of its own.
    unknown: Option<Deed>,
    write: Pacing,
}

impl Deeds {
    /// What is under way, or of which nobody knows yet how it ended.
    pub(super) fn open(&self) -> Option<&Deed> {
        self.doing.as_ref().or(self.unknown.as_ref())
    }

    /// Begins what is wanted, unless something is under way or there is no room: what to do, or when to look again.
    pub(super) fn begin(
        &mut self,
        now: Mono,
        wanted: Option<Deed>,
        room: impl FnOnce() -> bool,
    ) -> Result<Option<Deed>, Mono> {
        let Some(deed) = wanted.filter(|_| self.doing.is_none()) else { return Ok(None) };
        self.write.due(now, Urgency::Now, Duration::ZERO)?;
        self.doing = room().then_some(deed);
        Ok(self.doing.clone())
    }

    /// What was under way came back.
    pub(super) fn ended(&mut self, now: Mono, done: &Done) -> Option<Deed> {
        let deed = self.doing.take()?;
        self.unknown = None;
        match done {
            Done::Effected | Done::Told(_) => self.write.succeeded(),
            Done::Gone | Done::Conflict | Done::Refused(_) => self.write.failed(now),
            Done::Retry(_) => match &deed {
                // An eviction has its own pace, and one more of them does no harm.
                Deed::Evict { .. } => self.write.succeeded(),
                // It has no effect.
                Deed::TryImages { .. }
                | Deed::TryRelease { .. }
                | Deed::AskNode(_)
                | Deed::AskWorkload(_) => {
                    self.write.failed(now);
                }
                // The same again tells.
                Deed::Create(_)
                | Deed::Delete { .. }
                | Deed::MarkPod { .. }
                | Deed::Release(_)
                | Deed::Commit(_)
                | Deed::Pull(_)
                | Deed::DeletePod { .. } => {
                    self.unknown = Some(deed.clone());
                    self.write.failed(now);
                }
            },
        }
        Some(deed)
    }
}
