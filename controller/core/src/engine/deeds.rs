//! What requests have done beside the writes of themselves, their Pods and their orders: one thing at a time each.

use std::time::Duration;

use super::pacing::Pacing;
use crate::deed::{Deed, Done};
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
            Done::Effected => self.write.succeeded(),
            Done::Gone | Done::Conflict | Done::Refused(_) => self.write.failed(now),
            Done::Retry(_) => match &deed {
                // An eviction has its own pace, and one more of them does no harm.
                Deed::Evict { .. } => self.write.succeeded(),
                // It has no effect.
                Deed::TryImages { .. } => self.write.failed(now),
                // The same again tells.
                Deed::Create(_) | Deed::Delete { .. } => {
                    self.unknown = Some(deed.clone());
                    self.write.failed(now);
                }
            },
        }
        Some(deed)
    }
}
