//! What requests have done beside the writes of themselves, their Pods and their orders: one thing at a time each.

use super::Index;
use super::asked::{Entry, UserRequest};
use super::pacing::Pacing;
use crate::action::Action;
use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::plan::Urgency;
use crate::time::Mono;

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
}

/// Begins what is wanted, unless something is under way; else gives back when to look again.
pub(super) fn begin<R: UserRequest>(
    now: Mono,
    entry: &mut Entry<R>,
    wanted: Option<Deed>,
    actions: &mut Vec<Action>,
) -> Option<Mono> {
    let deed = wanted.filter(|_| entry.deeds.doing.is_none())?;
    if let Err(at) = entry.deeds.write.due(now, Urgency::Now, std::time::Duration::ZERO) {
        return Some(at);
    }
    entry.deeds.doing = Some(deed.clone());
    let request = entry.request.get();
    actions.push(Action::Do { key: request.key().clone(), uid: request.uid().to_owned(), deed });
    None
}

impl Index {
    pub(super) fn deed_done(&mut self, now: Mono, key: &ObjectKey, uid: &str, done: Done) {
        let entry = self.resizes.objects.get_mut(key).filter(|e| e.request.get().uid == uid);
        let Some(entry) = entry else { return };
        let deeds = &mut entry.deeds;
        let Some(deed) = deeds.doing.take() else { return };
        deeds.unknown = None;
        match &done {
            Done::Effected => deeds.write.succeeded(),
            Done::Gone | Done::Conflict | Done::Refused(_) => deeds.write.failed(now),
            // The same again tells; an eviction has its own pace, and one more of them does no harm.
            Done::Retry(_) if matches!(deed, Deed::Evict { .. }) => deeds.write.succeeded(),
            Done::Retry(_) => {
                deeds.unknown = Some(deed.clone());
                deeds.write.failed(now);
            }
        }
        entry.memory.deed_done(now, deed, done);
        self.request_changed::<crate::resize::Resize>(key);
    }
}
