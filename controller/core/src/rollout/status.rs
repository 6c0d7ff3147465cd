//! What is told of a rollout.

use pitstop_api::condition::{self, Progress, Standing};
use pitstop_api::rollout::{
    InPlaceRolloutStatus, MAX_PODS, Phase, PodOfInterest, PodState, Restart, conditions,
};

use super::Rollout;
use super::child;
use super::roll::Memory;
use crate::change::Note;
use crate::key::ObjectKey;
use crate::kind::{Around, Cx, note};
use crate::measure::Measure;

/// Longest message of a Pod, in characters.
const MAX_MESSAGE: usize = 256;

/// Every Pod was restarted.
pub(super) const RESTARTED: &str = "Restarted";
/// Pods could not be restarted.
pub(super) const PODS_FAILED: &str = "PodsFailed";
/// How restarts end, as metrics count it.
pub(super) const REASONS: [&str; 2] = [RESTARTED, PODS_FAILED];

const BEGAN: &str = "RolloutStarted";
const COMPLETED: &str = "RolloutCompleted";
const STALLED: &str = "RolloutStalled";

/// Every reason that a condition of a rollout, or an event on it, can have.
pub fn all_reasons() -> impl Iterator<Item = &'static str> {
    let said = [
        Told::Invalid(String::new()),
        Told::Conflict(ObjectKey::default()),
        Told::Idle,
        Told::Restarted,
        Told::Reading,
        Told::Missing,
        Told::Unreadable(String::new()),
        Told::NeedsUnavailability,
        Told::Restarting,
        Told::Canary,
        Told::Budget { unavailable: 0, most: 0 },
        Told::Disruption(Disrupted::default()),
        Told::Paused,
        Told::Refused(String::new()),
        Told::PodsFailed,
        Told::Late,
    ];
    said.map(|told| told.reason())
        .into_iter()
        .chain([BEGAN, COMPLETED, STALLED])
        .chain(Phase::ALL.map(Phase::name))
}

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The spec makes no sense.
    Invalid(String),
    /// That older rollout is for the same workload.
    Conflict(ObjectKey),
    /// Nothing has been asked for.
    Idle,
    /// Everything that was asked for is done.
    Restarted,
    /// The workload is being read.
    Reading,
    /// There is no such workload.
    Missing,
    /// It cannot be read.
    Unreadable(String),
    /// Its strategy lets no Pod be unavailable.
    NeedsUnavailability,
    /// Pods are being restarted.
    Restarting,
    /// The first ones are being restarted, and the others wait for them.
    Canary,
    /// As many are unavailable as may be.
    Budget {
        /// How many.
        unavailable: u32,
        /// How many may be.
        most: u32,
    },
    /// A disruption budget lets no further one be unavailable.
    Disruption(Disrupted),
    /// By the user's wish, none is begun with.
    Paused,
    /// The API server refuses the request by which the next Pod would be restarted.
    Refused(String),
    /// As many as may have failed.
    PodsFailed,
    /// No Pod was finished for long.
    Late,
}

/// By which disruption budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disrupted {
    pub(super) name: String,
    /// How many of its Pods have to be healthy; absent where its controller has not said so yet.
    pub(super) desired: Option<u32>,
    /// How many of them are, without those that are being restarted.
    pub(super) healthy: u32,
}

impl Told {
    fn phase(&self) -> Phase {
        match self {
            Self::Idle => Phase::Idle,
            Self::Restarted => Phase::Complete,
            Self::Reading => Phase::Pending,
            Self::Restarting | Self::Canary | Self::Budget { .. } | Self::Disruption(_) => Phase::Progressing,
            Self::Paused => Phase::Paused,
            Self::Invalid(_)
            | Self::Conflict(_)
            | Self::Missing
            | Self::Unreadable(_)
            | Self::NeedsUnavailability
            | Self::Refused(_)
            | Self::PodsFailed
            | Self::Late => Phase::Stalled,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "Invalid",
            Self::Conflict(_) => "Conflict",
            Self::Idle => "NothingRequested",
            Self::Restarted => RESTARTED,
            Self::Reading => "ReadingTarget",
            Self::Missing => "TargetNotFound",
            Self::Unreadable(_) => "TargetUnreadable",
            Self::NeedsUnavailability => "NeedsUnavailability",
            Self::Restarting => "Restarting",
            Self::Canary => "WaitingForCanary",
            Self::Budget { .. } => "WaitingForAvailability",
            Self::Disruption(_) => "DisruptionBudget",
            Self::Paused => "Paused",
            Self::Refused(_) => "RequestRefused",
            Self::PodsFailed => PODS_FAILED,
            Self::Late => "ProgressDeadlineExceeded",
        }
    }

    fn message(&self, rollout: &Rollout, counts: &InPlaceRolloutStatus) -> String {
        let target = &rollout.spec.target_ref;
        let target = format!("{} {}", target.kind.name(), target.name);
        let InPlaceRolloutStatus { pods, current, started, failed, .. } = counts;
        let so_far = format!("{current} of {pods} Pods restarted, {started} in progress");
        match self {
            Self::Invalid(why) => why.clone(),
            Self::Conflict(other) => {
                format!("waits: {other} is older, and for {target}, too; delete one of the two")
            }
            Self::Idle => format!(
                "nothing has been asked for: a value of spec.restartedAt restarts the Pods of {target}"
            ),
            Self::Restarted => {
                let at = rollout.spec.restarted_at.as_deref().unwrap_or_default();
                format!("the restart {at} of {target} is finished")
            }
            Self::Reading => format!("reads {target} and its Pods"),
            Self::Missing => format!("there is no {target} in namespace {}", rollout.key.namespace),
            Self::Unreadable(why) => format!("{target} cannot be read: {why}"),
            Self::NeedsUnavailability => format!(
                "the strategy of {target} lets no Pod be unavailable, and a Pod is that while it is restarted in place: set \
                 spec.strategy.maxUnavailable"
            ),
            Self::Restarting => so_far,
            Self::Canary => format!("{so_far}: the others wait for the canary"),
            Self::Budget { unavailable, most } => {
                format!("{so_far}: {unavailable} Pods of {target} are unavailable, and at most {most} may be")
            }
            Self::Disruption(Disrupted { name, desired, healthy }) => match desired {
                Some(desired) => format!(
                    "{so_far}: by PodDisruptionBudget {name}, {desired} Pods have to be healthy, and {healthy} are"
                ),
                None => {
                    format!("{so_far}: PodDisruptionBudget {name} has no status for its present spec yet")
                }
            },
            Self::Paused => format!("{so_far}: no further Pod is begun with while spec.paused is true"),
            Self::Refused(why) => format!("{so_far}: no further ContainerRecreateRequest can be made: {why}"),
            Self::PodsFailed => format!(
                "{so_far}, {failed} failed: no further Pod is begun with; delete the failed \
                 ContainerRecreateRequest to try that Pod again, or raise spec.strategy.failureThreshold"
            ),
            Self::Late => format!(
                "{so_far}: none was finished for {} s beside drain and soak (spec.progressDeadlineSeconds)",
                rollout.spec.progress_deadline()
            ),
        }
    }
}

/// The status that tells it.
pub(super) fn status(
    cx: Cx<'_>,
    rollout: &Rollout,
    memory: &Memory,
    around: &dyn Around<Rollout>,
    told: &Told,
    restart: Option<Restart>,
    restarted_at: Option<String>,
) -> InPlaceRolloutStatus {
    let mut new = rollout.status.clone();
    let goes_on = restart.is_some() && rollout.status.restart == restart;
    let ends = restarted_at != rollout.status.restarted_at;
    if memory.swept && (goes_on || ends) {
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let tally = memory.tally();
        (new.pods, new.current) = (count(tally.pods), count(tally.current));
        (new.started, new.failed) = (count(memory.started.len()), count(memory.failed.len()));
        new.pods_of_interest = pods_of_interest(rollout, memory, around, restart.as_ref());
    } else if rollout.status.restart != restart {
        // One begins, or is given up.
        (new.pods, new.current, new.started, new.failed) = (0, 0, 0, 0);
        new.pods_of_interest.clear();
    }
    (new.restart, new.restarted_at) = (restart, restarted_at);
    (new.phase, new.observed_generation) = (Some(told.phase()), rollout.generation);
    let progress = match told.phase() {
        Phase::Idle | Phase::Complete => Progress::Succeeded,
        Phase::Stalled => Progress::Failed,
        Phase::Pending | Phase::Progressing | Phase::Paused => Progress::Open,
    };
    if progress != Progress::Failed {
        new.conditions.retain(|c| ![conditions::FAILED, conditions::STALLED].contains(&&*c.type_));
    }
    let message = told.message(rollout, &new);
    let standing =
        Standing { progress, phase: told.phase().name(), reason: told.reason(), message: &message };
    condition::record(&mut new.conditions, standing, cx.wall, rollout.generation);
    new
}

fn pods_of_interest(
    rollout: &Rollout,
    memory: &Memory,
    around: &dyn Around<Rollout>,
    restart: Option<&Restart>,
) -> Vec<PodOfInterest> {
    let Some(restart) = restart else { return Vec::new() };
    let mark = child::mark(rollout, &restart.restarted_at);
    let of = |state| move |key| (state, key);
    let all = memory.failed.iter().map(of(PodState::Failed));
    let all = all.chain(memory.started.iter().map(of(PodState::Started))).take(MAX_PODS);
    let named = all.filter_map(|(state, key)| {
        let request = child::key(&mark, &*around.pod(key)?);
        let message = match around.relative(child::CHILD, &request) {
            Some(found) if !found.is_of(&rollout.uid) => {
                "an object of somebody else has that name".to_owned()
            }
            Some(found) => found.ended.filter(|ended| !ended.complete).map_or("", |e| e.message).to_owned(),
            None => String::new(),
        };
        let message = message.chars().take(MAX_MESSAGE).collect();
        Some(PodOfInterest { name: key.name.clone(), state, request: request.name, message })
    });
    named.collect()
}

/// The events that a change of its status is worth.
pub(super) fn notes(rollout: &Rollout, old: &InPlaceRolloutStatus) -> Vec<Note> {
    let new = &rollout.status;
    let last = condition::find(&new.conditions, conditions::COMPLETE);
    let message = last.map_or("", |last| &last.message);
    let says = || format!("Rollout {}: {message}", rollout.key);
    let mut notes = Vec::new();
    if new.restart.is_some() && old.restart != new.restart {
        notes.push(note(rollout, false, BEGAN, format!("Rollout {} restarts Pods", rollout.key)));
    }
    if new.restarted_at.is_some() && old.restarted_at != new.restarted_at {
        notes.push(note(rollout, false, COMPLETED, says()));
    }
    if new.phase == Some(Phase::Stalled) && old.phase != new.phase {
        notes.push(note(rollout, true, STALLED, says()));
    }
    notes
}

/// What to count when a change of its status is stored.
pub(super) fn measure(rollout: &Rollout, old: &InPlaceRolloutStatus) -> Option<Measure> {
    let new = &rollout.status;
    let ended = |complete, reason| Some(Measure::Ended { kind: super::ID, complete, reason });
    let failed = |status: &InPlaceRolloutStatus| {
        condition::find(&status.conditions, conditions::COMPLETE).is_some_and(|c| c.reason == PODS_FAILED)
    };
    if new.restarted_at.is_some() && old.restarted_at != new.restarted_at {
        return ended(true, RESTARTED);
    }
    if failed(new) && !failed(old) { ended(false, PODS_FAILED) } else { None }
}
