//! When admission may park a rollout's workload: once the controller has proved that it can release it.

use std::collections::BTreeMap;
use std::time::Duration;

use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::rollout::{ARMED, InPlaceRolloutStatus, conditions};

use super::Rollout;
use super::plan::Next;
use super::report::Report;
use super::roll::Memory;
use crate::deed::Deed;
use crate::key::ObjectKey;
use crate::kind::Cx;
use crate::time::{Mono, earliest};

/// Delay before the proof is tried again. It doubles each time.
const AGAIN: Duration = Duration::from_mins(1);
/// Maximum of the delay.
const MOST: Duration = Duration::from_hours(1);

/// The controller can release the workload.
const CAN_RELEASE: &str = "CanRelease";
/// The proof is pending.
const PROVING: &str = "Proving";
/// The controller cannot release the workload.
const CANNOT_RELEASE: &str = "CannotRelease";
/// All these reasons.
pub(super) const REASONS: [&str; 3] = [CAN_RELEASE, PROVING, CANNOT_RELEASE];

/// Whether the workload can be released, as far as this process has tried.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// Generation of the rollout that was tried. A new spec is tried at once.
    generation: Option<i64>,
    /// Result of the last try; Err has the API server's message.
    result: Option<Result<(), String>>,
    /// How many tries failed, and until when none follows.
    failures: u32,
    until: Option<Mono>,
}

impl Proof {
    /// Notes the result of a try.
    pub(super) fn tried(&mut self, now: Mono, result: Result<(), String>) {
        let wait = AGAIN.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(MOST);
        self.failures = if result.is_ok() { 0 } else { self.failures.saturating_add(1) };
        self.until = result.is_err().then(|| now.after(wait));
        self.result = Some(result);
    }
}

/// The change of the label that marks the rollout as armed. If a try must come first, `next` gets it.
pub(super) fn arm(cx: Cx<'_>, rollout: &Rollout, memory: &mut Memory, next: &mut Next) -> Labels {
    let armed = rollout.more;
    let label = |value: Option<&str>| BTreeMap::from([(ARMED.to_owned(), value.map(str::to_owned))]);
    if !rollout.spec.changes_in_place() || matches!(next.report, Report::Invalid(_) | Report::Conflict(_)) {
        memory.proof = Proof::default();
        return if armed { label(None) } else { Labels::new() };
    }
    if memory.proof.generation != rollout.generation {
        memory.proof = Proof { generation: rollout.generation, ..Proof::default() };
    }
    if let Report::ReleaseRefused(why) = &next.report
        && !matches!(memory.proof.result, Some(Err(_)))
    {
        memory.proof.tried(cx.now, Err(why.clone()));
    }
    let until = memory.proof.until.filter(|until| *until > cx.now);
    match &memory.proof.result {
        Some(Err(_)) if armed => label(None),
        Some(Ok(())) if !armed => label(Some("true")),
        // A proof by another process holds.
        Some(Ok(())) => Labels::new(),
        None if armed => Labels::new(),
        Some(Err(_)) | None => {
            next.wake_at = earliest(next.wake_at, until);
            if let Some(target) =
                rollout.spec.target_ref.as_ref().filter(|_| next.deed.is_none() && until.is_none())
            {
                let key = ObjectKey::new(&rollout.key.namespace, &target.name);
                next.deed = Some(Deed::TryRelease { kind: target.kind, key });
            }
            Labels::new()
        }
    }
}

/// Labels to set or to remove.
type Labels = BTreeMap<String, Option<String>>;

/// Writes the condition `Armed`.
pub(super) fn set_condition(cx: Cx<'_>, rollout: &Rollout, memory: &Memory, new: &mut InPlaceRolloutStatus) {
    if !rollout.spec.changes_in_place() {
        new.conditions.retain(|condition| condition.type_ != conditions::ARMED);
        return;
    }
    let refused = memory.proof.result.as_ref().and_then(|result| result.as_ref().err());
    let (status, reason, message) = match refused {
        Some(why) => (ConditionStatus::False, CANNOT_RELEASE, why.as_str()),
        None if rollout.more => {
            (ConditionStatus::True, CAN_RELEASE, "the controller can release the workload when it is parked")
        }
        None => (ConditionStatus::False, PROVING, "the controller checks if it can release the workload"),
    };
    let armed = Condition::new(conditions::ARMED, status, reason, message, cx.wall, rollout.generation);
    condition::set(&mut new.conditions, armed);
}
