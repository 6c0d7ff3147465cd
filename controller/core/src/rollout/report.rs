//! What a rollout reports.

use pitstop_api::rollout::{InPlaceRolloutStatus, PARKED, Phase, TargetKind, Update, UpdateEnd};
use pitstop_api::text::quoted;

use super::Rollout;
use super::status::{PODS_FAILED, RESTARTED, UNTOUCHED_PODS_FAIL, under_way};
use crate::engine::MAX_SELECTORS;
use crate::key::ObjectKey;

/// What the status reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The spec is invalid.
    Invalid(String),
    /// This older rollout is for the same workload.
    Conflict(ObjectKey),
    /// Nothing is requested.
    Idle,
    /// Everything that was requested is done.
    Restarted,
    /// The workload is being read.
    Reading,
    /// The workload does not exist.
    Missing,
    /// The workload cannot be read.
    Unreadable(String),
    /// Too many other rollouts of the namespace select Pods.
    TooManySelectors,
    /// The strategy lets no Pod be unavailable.
    NeedsUnavailability,
    /// How the last change of the template ended.
    Ended(UpdateEnd),
    /// Pods are being restarted.
    Restarting,
    /// Pods are being updated.
    Updating,
    /// Pods that were updated go back.
    RollingBack,
    /// Pods cannot go back, for this reason.
    CannotRollBack(String),
    /// The workload's controller has not yet seen its template or its Pods.
    Controller,
    /// The park mark has this value, which names nothing to release the workload to.
    UnknownPark(String),
    /// The API server refuses to release the workload.
    ReleaseRefused(String),
    /// The others wait for the canary.
    Canary,
    /// The budget is used up.
    Budget {
        /// Number of unavailable Pods.
        unavailable: u32,
        /// Number of Pods that may be unavailable.
        most: u32,
    },
    /// A disruption budget allows no further unavailable Pod.
    Disruption(ExhaustedBudget),
    /// The user paused the rollout.
    Paused,
    /// The API server refuses the request for the next Pod.
    Refused(String),
    /// As many Pods have failed as may fail.
    PodsFailed,
    /// As `PodsFailed`, and untouched Pods became unavailable.
    UntouchedPodsFail,
    /// No Pod was finished in time; or all were, and the workload's controller does not agree.
    Late,
}

/// A disruption budget that is used up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExhaustedBudget {
    pub(super) name: String,
    /// How many Pods must be healthy. None until its controller says so.
    pub(super) desired: Option<u32>,
    /// How many Pods are healthy, without those that are being restarted.
    pub(super) healthy: u32,
}

impl Report {
    pub(super) fn phase(&self) -> Phase {
        match self {
            Self::Idle | Self::Ended(UpdateEnd::NotInPlace | UpdateEnd::Superseded) => Phase::Idle,
            Self::Restarted | Self::Ended(UpdateEnd::Updated) => Phase::Complete,
            Self::Reading => Phase::Pending,
            Self::Restarting
            | Self::Updating
            | Self::RollingBack
            | Self::Controller
            | Self::Canary
            | Self::Budget { .. }
            | Self::Disruption(_) => Phase::Progressing,
            Self::Paused => Phase::Paused,
            Self::Invalid(_)
            | Self::Conflict(_)
            | Self::Missing
            | Self::Unreadable(_)
            | Self::TooManySelectors
            | Self::NeedsUnavailability
            | Self::Refused(_)
            | Self::UnknownPark(_)
            | Self::ReleaseRefused(_)
            | Self::PodsFailed
            | Self::UntouchedPodsFail
            | Self::CannotRollBack(_)
            | Self::Ended(UpdateEnd::RolledBack)
            | Self::Late => Phase::Stalled,
        }
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "Invalid",
            Self::Conflict(_) => "Conflict",
            Self::Idle => "NothingRequested",
            Self::Restarted => RESTARTED,
            Self::Reading => "ReadingTarget",
            Self::Missing => "TargetNotFound",
            Self::Unreadable(_) => "TargetUnreadable",
            Self::TooManySelectors => "TooManySelectors",
            Self::NeedsUnavailability => "NeedsUnavailability",
            Self::Ended(end) => end.name(),
            Self::Restarting => "Restarting",
            Self::Updating => "Updating",
            Self::Controller => "WaitingForController",
            Self::UnknownPark(_) => "UnknownPark",
            Self::ReleaseRefused(_) => "ReleaseRefused",
            Self::Canary => "WaitingForCanary",
            Self::Budget { .. } => "WaitingForAvailability",
            Self::Disruption(_) => "DisruptionBudget",
            Self::Paused => "Paused",
            Self::Refused(_) => "RequestRefused",
            Self::PodsFailed => PODS_FAILED,
            Self::UntouchedPodsFail => UNTOUCHED_PODS_FAIL,
            Self::RollingBack => "RollingBack",
            Self::CannotRollBack(_) => "CannotRollBack",
            Self::Late => "ProgressDeadlineExceeded",
        }
    }

    pub(super) fn message(&self, rollout: &Rollout, counts: &InPlaceRolloutStatus) -> String {
        let target = rollout.spec.target();
        match self {
            Self::Invalid(why) => why.clone(),
            Self::Conflict(other) => {
                format!("waits: {other} is older and has the same target, {target}; delete one of the two")
            }
            Self::Idle => {
                format!("no restart is requested: set spec.restartedAt to restart the Pods of {target}")
            }
            Self::Restarted => {
                let at = rollout.spec.restarted_at.as_deref().unwrap_or_default();
                format!("the restart {at} of {target} is finished")
            }
            Self::Reading => format!("reads {target} and its Pods"),
            Self::Missing => format!("there is no {target} in namespace {}", rollout.key.namespace),
            Self::Unreadable(why) => format!("{target} cannot be read: {why}"),
            Self::TooManySelectors => format!(
                "waits: {MAX_SELECTORS} rollouts of namespace {}, the limit, already select Pods by labels; \
                 delete one of them",
                rollout.key.namespace
            ),
            Self::NeedsUnavailability => format!(
                "the strategy of {target} allows no unavailable Pod, but a restart in place makes a Pod unavailable: \
                 set spec.strategy.maxUnavailable"
            ),
            Self::Ended(_) if rollout.spec.selector.is_some() => {
                let InPlaceRolloutStatus { current, pods, .. } = counts;
                format!(
                    "the Pods of {target} have spec.images and spec.resources: {current} of {pods} in the last update"
                )
            }
            Self::Ended(end) => end_message(*end, &target, counts.update.as_ref()),
            Self::UnknownPark(value) => {
                let right = match rollout.spec.kind().unwrap_or_default() {
                    TargetKind::StatefulSet => "the partition to release it to, such as 0",
                    TargetKind::DaemonSet => "RollingUpdate",
                    TargetKind::Deployment => "Unpaused",
                };
                format!("the label {PARKED} of {target} is {}; it must be {right}", quoted(value))
            }
            _ => so_far(&target, counts) + &self.why(rollout, &target, counts),
        }
    }

    /// What the rollout waits for; empty if it goes on.
    fn why(&self, rollout: &Rollout, target: &str, counts: &InPlaceRolloutStatus) -> String {
        let InPlaceRolloutStatus { pods, current, failed, .. } = counts;
        let (_, request) = words(counts);
        match self {
            Self::Controller => format!(": waits for the controller of {target}"),
            Self::ReleaseRefused(why) => format!(": {target} cannot be released: {why}"),
            Self::Canary => ": the others wait for the canary".to_owned(),
            Self::Budget { unavailable, most } => {
                format!(": {unavailable} Pods of {target} are unavailable, and at most {most} may be")
            }
            Self::Disruption(ExhaustedBudget { name, desired, healthy }) => match desired {
                Some(desired) => {
                    format!(": PodDisruptionBudget {name} needs {desired} healthy Pods, and {healthy} are")
                }
                None => format!(": PodDisruptionBudget {name} has no status for its present spec yet"),
            },
            Self::Paused => ": no further Pod begins while spec.paused is true".to_owned(),
            Self::Refused(why) => format!(": no further {request} can be made: {why}"),
            Self::PodsFailed => format!(
                ", {failed} failed: no further Pod begins; delete the failed {request} to try that Pod again, or raise \
                 spec.strategy.failureThreshold"
            ),
            Self::UntouchedPodsFail => format!(
                ", {failed} failed, and untouched Pods became unavailable too, so there may be another cause: \
                 no further Pod begins"
            ),
            Self::RollingBack => format!(": {}", rollback(counts).map_or("", |update| &update.message)),
            Self::CannotRollBack(why) => {
                format!(": the updated Pods cannot go back: {why}; give {target} a good template")
            }
            Self::Late if current == pods && rollout.spec.kind().is_some() => format!(
                ": the controller of {target} has not counted them as updated for {} s (spec.progressDeadlineSeconds); \
                 that of a StatefulSet waits until all Pods are ready",
                rollout.spec.progress_deadline()
            ),
            Self::Late => format!(
                ": no Pod was finished for {} s plus drain and soak (spec.progressDeadlineSeconds)",
                rollout.spec.progress_deadline()
            ),
            _ => String::new(),
        }
    }
}

/// Progress of the restart or update under way.
fn so_far(target: &str, counts: &InPlaceRolloutStatus) -> String {
    let InPlaceRolloutStatus { pods, current, started, .. } = counts;
    match pods {
        0 => format!("no Pod of {target} is counted so far"),
        _ => format!("{current} of {pods} Pods {}, {started} in progress", words(counts).0),
    }
}

/// Words for what happens to Pods, and for the request.
fn words(counts: &InPlaceRolloutStatus) -> (&'static str, &'static str) {
    match (rollback(counts), under_way(counts)) {
        (Some(_), _) => ("back", "request"),
        (None, Some(_)) => ("updated", "request"),
        (None, None) => ("restarted", "ContainerRecreateRequest"),
    }
}

/// The update whose Pods go back.
fn rollback(counts: &InPlaceRolloutStatus) -> Option<&Update> {
    counts.update.as_ref().filter(|update| update.rolling_back)
}

fn end_message(end: UpdateEnd, target: &str, update: Option<&Update>) -> String {
    let (revision, why) = update.map_or(("", ""), |update| (&update.revision, &update.message));
    match end {
        UpdateEnd::Updated => format!("{target} has revision {revision}: all Pods were updated in place"),
        UpdateEnd::NotInPlace => {
            format!("{target} was released, and makes new Pods for revision {revision}: {why}")
        }
        UpdateEnd::RolledBack => {
            let from = update.and_then(|update| update.from.as_deref()).unwrap_or_default();
            format!(
                "the Pods of {target} are at revision {from} again: {why}; {target} stays parked until its template changes: undo the \
                 change, or give it a good one"
            )
        }
        UpdateEnd::Superseded => {
            format!("another client released {target} before all Pods had revision {revision}")
        }
    }
}
