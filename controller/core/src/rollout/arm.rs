//! When admission may park the workload of a rollout: once the controller has been seen to be able to release it.

use std::collections::BTreeMap;
use std::time::Duration;

use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::rollout::{ARMED, InPlaceRolloutStatus, TemplateChanges, conditions};

use super::Rollout;
use super::plan::Next;
use super::roll::Memory;
use super::told::Told;
use crate::deed::{Deed, Release, Strategy};
use crate::key::ObjectKey;
use crate::kind::Cx;
use crate::time::{Mono, earliest};

/// How soon it is tried again whether the workload can be released.
const AGAIN: Duration = Duration::from_mins(1);

/// It can release its workload.
const CAN_RELEASE: &str = "CanRelease";
/// It is not known yet whether it can.
const PROVING: &str = "Proving";
/// It cannot.
const CANNOT_RELEASE: &str = "CannotRelease";
/// All of them.
pub(super) const REASONS: [&str; 3] = [CAN_RELEASE, PROVING, CANNOT_RELEASE];

/// Whether the workload can be released, as it was tried last.
#[derive(Clone, Debug)]
pub struct Proof {
    pub(super) at: Mono,
    /// Why it cannot, in the API server's words.
    pub(super) result: Result<(), String>,
}

/// The change of the label by which admission takes the rollout for armed, and what is to be tried for that first.
pub(super) fn arm(cx: Cx<'_>, rollout: &Rollout, memory: &mut Memory, next: &mut Next) -> Labels {
    let armed = rollout.more;
    let label = |value: Option<&str>| BTreeMap::from([(ARMED.to_owned(), value.map(str::to_owned))]);
    if let Told::ReleaseRefused(why) = &next.told {
        memory.proof = Some(Proof { at: cx.now, result: Err(why.clone()) });
    }
    if !counts(rollout) || matches!(next.told, Told::Invalid(_) | Told::Conflict(_)) {
        memory.proof = None;
        return if armed { label(None) } else { Labels::new() };
    }
    match &memory.proof {
        Some(Proof { result: Err(_), .. }) if armed => return label(None),
        Some(Proof { result: Ok(()), .. }) => {
            return if armed { Labels::new() } else { label(Some("true")) };
        }
        Some(Proof { at, .. }) if at.after(AGAIN) > cx.now => {
            next.wake_at = earliest(next.wake_at, Some(at.after(AGAIN)));
            return Labels::new();
        }
        // What has been proven to another process holds.
        None if armed => return Labels::new(),
        Some(_) | None => {}
    }
    if next.deed.is_none() {
        let target = &rollout.spec.target_ref;
        next.deed = Some(Deed::TryRelease(Box::new(Release {
            kind: target.kind,
            key: ObjectKey::new(&rollout.key.namespace, &target.name),
            uid: String::new(),
            resource_version: String::new(),
            to: Strategy::AsIs,
        })));
    }
    Labels::new()
}

/// Labels to set or to remove.
type Labels = BTreeMap<String, Option<String>>;

fn counts(rollout: &Rollout) -> bool {
    let spec = &rollout.spec;
    spec.template_changes == TemplateChanges::InPlace && spec.target_ref.kind.parks()
}

/// Writes down whether the rollout is armed.
pub(super) fn tell(cx: Cx<'_>, rollout: &Rollout, memory: &Memory, new: &mut InPlaceRolloutStatus) {
    if !counts(rollout) {
        new.conditions.retain(|condition| condition.type_ != conditions::ARMED);
        return;
    }
    let refused = memory.proof.as_ref().and_then(|proof| proof.result.as_ref().err());
    let (status, reason, message) = match refused {
        Some(why) => (ConditionStatus::False, CANNOT_RELEASE, why.as_str()),
        None if rollout.more => {
            (ConditionStatus::True, CAN_RELEASE, "the controller can release the workload when it is parked")
        }
        None => {
            (ConditionStatus::False, PROVING, "it is tried whether the controller can release the workload")
        }
    };
    let told = Condition::new(conditions::ARMED, status, reason, message, cx.wall, rollout.generation);
    condition::set(&mut new.conditions, told);
}
