//! The history of restarts and updates in a rollout's status.

use chrono::{DateTime, Utc};
use pitstop_api::rollout::{InPlaceRolloutStatus, MAX_HISTORY, Restart, Roll, RollResult, Update};

use super::gaps::Gaps;

/// The restart or update that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rolling {
    Restart(Restart),
    /// The revision, and the workload's generation at the beginning. Pods that go back are part of it.
    Update(String, i64),
}

impl Rolling {
    /// The restart or update that is under way by the status.
    pub(super) fn of(status: &InPlaceRolloutStatus) -> Option<Self> {
        let update = status.update.as_ref().filter(|update| update.ended.is_none());
        let restart = status.restart.clone().map(Self::Restart);
        restart.or_else(|| update.map(Self::update))
    }

    fn update(update: &Update) -> Self {
        Self::Update(update.revision.clone(), update.generation)
    }

    /// How the restart or update ended, by a status in which it is no longer under way.
    fn result(&self, new: &InPlaceRolloutStatus) -> RollResult {
        let ended = match self {
            Self::Restart(restart) => {
                let done = new.restarted_at.as_ref() == Some(&restart.restarted_at);
                done.then_some(RollResult::Restarted)
            }
            Self::Update(..) => {
                let update = new.update.as_ref().filter(|update| Self::update(update) == *self);
                update.and_then(|update| update.ended).map(RollResult::from)
            }
        };
        ended.unwrap_or(RollResult::GivenUp)
    }
}

/// How the restart or update ended with this change of the status. None while it goes on.
pub(super) fn ends(old: &InPlaceRolloutStatus, new: &InPlaceRolloutStatus) -> Option<RollResult> {
    let rolling = Rolling::of(old)?;
    (Rolling::of(new).as_ref() != Some(&rolling)).then(|| rolling.result(new))
}

/// Adds what ended to the history, in the write that ends it. So no crash or retry loses or repeats it.
pub(super) fn record(
    wall: DateTime<Utc>,
    gaps: &Gaps,
    old: &InPlaceRolloutStatus,
    new: &mut InPlaceRolloutStatus,
) {
    let ended = ends(old, new).map(|result| {
        // The memory of a given-up update may be gone, so the last reported counts are used.
        let counts = if result == RollResult::GivenUp { old } else { &*new };
        let update = old.update.as_ref().filter(|_| old.restart.is_none());
        Roll {
            restarted_at: old.restart.as_ref().map(|restart| restart.restarted_at.clone()),
            pods: counts.pods,
            current: counts.current,
            service_gap: gaps.to_status(),
            ..of_update(wall, result, update)
        }
    });
    let at_once = at_once(old, new).map(|(result, update)| of_update(wall, result, Some(update)));
    let before = std::mem::take(&mut new.history);
    new.history = at_once.into_iter().chain(ended).chain(before).take(MAX_HISTORY).collect();
}

/// An update that began and ended in this change of the status.
fn at_once<'a>(
    old: &InPlaceRolloutStatus,
    new: &'a InPlaceRolloutStatus,
) -> Option<(RollResult, &'a Update)> {
    let of = Rolling::update;
    let update = new.update.as_ref().filter(|update| old.update.as_ref().map(of) != Some(of(update)))?;
    Some((update.ended?.into(), update))
}

/// An entry for an update that has done nothing.
fn of_update(wall: DateTime<Utc>, result: RollResult, update: Option<&Update>) -> Roll {
    Roll {
        restarted_at: None,
        revision: update.map(|update| update.revision.clone()),
        from: update.and_then(|update| update.from.clone()),
        result,
        pods: 0,
        current: 0,
        completed_at: wall,
        service_gap: None,
    }
}
