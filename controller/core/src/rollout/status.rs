//! The status of a rollout.

use pitstop_api::condition::{self, Progress, Summary};
use pitstop_api::rollout::{
    InPlaceRolloutStatus, MAX_PODS, Phase, PodOfInterest, PodState, Restart, RollResult, Update, UpdateEnd,
    conditions,
};

use super::report::{ExhaustedBudget, Report};
use super::roll::Memory;
use super::stage::Stage;
use super::{Rollout, arm, child, history};
use crate::change::Note;
use crate::engine::{LEFT_PARKED, RELEASED};
use crate::key::ObjectKey;
use crate::kind::{Cx, Lookup, note};
use crate::measure::Measure;

/// Longest message of a Pod or of an update, in characters.
pub(super) const MAX_MESSAGE: usize = 256;

/// Every Pod was restarted.
pub(super) const RESTARTED: &str = "Restarted";
/// Pods could not be restarted.
pub(super) const PODS_FAILED: &str = "PodsFailed";
/// As before, and untouched Pods did not stay available.
pub(super) const UNTOUCHED_PODS_FAIL: &str = "UntouchedPodsFailToo";
/// Every Pod has the template's images.
pub(super) const UPDATED: &str = UpdateEnd::Updated.name();
/// The workload was released before all Pods were updated.
const NOT_IN_PLACE: &str = UpdateEnd::NotInPlace.name();
const SUPERSEDED: &str = UpdateEnd::Superseded.name();
const ROLLED_BACK: &str = UpdateEnd::RolledBack.name();
/// Results of restarts and updates in metrics.
pub(super) const REASONS: [&str; 7] =
    [RESTARTED, UPDATED, PODS_FAILED, UNTOUCHED_PODS_FAIL, NOT_IN_PLACE, SUPERSEDED, ROLLED_BACK];
/// The successes among them.
pub(super) const SUCCESSES: [&str; 2] = [RESTARTED, UPDATED];

const BEGAN: &str = "RolloutStarted";
const COMPLETED: &str = "RolloutCompleted";
const STALLED: &str = "RolloutStalled";
const ROLLING_BACK: &str = "RolloutRollingBack";

/// Every reason that a condition of a rollout, or an event on it, can have.
pub fn all_reasons() -> impl Iterator<Item = &'static str> {
    let all = [
        Report::Invalid(String::new()),
        Report::Conflict(ObjectKey::default()),
        Report::Idle,
        Report::Restarted,
        Report::Reading,
        Report::Missing,
        Report::Unreadable(String::new()),
        Report::TooManySelectors,
        Report::NeedsUnavailability,
        Report::Restarting,
        Report::Updating,
        Report::RollingBack,
        Report::CannotRollBack(String::new()),
        Report::Controller,
        Report::UnknownPark(String::new()),
        Report::ReleaseRefused(String::new()),
        Report::Canary,
        Report::Budget { unavailable: 0, most: 0 },
        Report::Disruption(ExhaustedBudget::default()),
        Report::Paused,
        Report::Refused(String::new()),
        Report::PodsFailed,
        Report::UntouchedPodsFail,
        Report::Late,
    ];
    all.map(|report| report.reason())
        .into_iter()
        .chain([BEGAN, COMPLETED, RELEASED, LEFT_PARKED, STALLED, ROLLING_BACK])
        .chain(arm::REASONS)
        .chain(UpdateEnd::ALL.map(UpdateEnd::name))
        .chain(Phase::ALL.map(Phase::name))
}

/// The restart and the update in the status.
#[derive(Clone, Debug)]
pub(super) struct RollStatus {
    /// `status.restart`.
    pub(super) restart: Option<Restart>,
    /// `status.restartedAt`.
    pub(super) restarted_at: Option<String>,
    /// `status.update`.
    pub(super) update: Option<Update>,
}

impl RollStatus {
    /// From the status.
    pub(super) fn of(status: &InPlaceRolloutStatus) -> Self {
        let InPlaceRolloutStatus { restart, restarted_at, update, .. } = status;
        Self { restart: restart.clone(), restarted_at: restarted_at.clone(), update: update.clone() }
    }
}

/// The revision that Pods are being updated to.
pub(super) fn under_way(status: &InPlaceRolloutStatus) -> Option<&str> {
    status.update.as_ref().filter(|update| update.ended.is_none()).map(|update| update.revision.as_str())
}

/// `restartedAt` of the restart under way.
fn restarts(status: &InPlaceRolloutStatus) -> Option<&String> {
    status.restart.as_ref().map(|restart| &restart.restarted_at)
}

/// Whether the update that the workload is parked for fails in its Pods.
pub(super) fn has_failed(status: &InPlaceRolloutStatus) -> bool {
    let reason = condition::find(&status.conditions, conditions::COMPLETE).map(|c| c.reason.as_str());
    let failures =
        [Report::PodsFailed, Report::UntouchedPodsFail, Report::CannotRollBack(String::new()), Report::Late];
    let stalled = status.phase == Some(Phase::Stalled) && failures.iter().any(|r| reason == Some(r.reason()));
    status.update.as_ref().is_some_and(|update| match update.ended {
        None => update.rolling_back || stalled,
        Some(end) => end == UpdateEnd::RolledBack,
    })
}

/// How an update ended with this change of the status.
fn ends(old: &InPlaceRolloutStatus, new: &InPlaceRolloutStatus) -> Option<UpdateEnd> {
    let of = |status: &InPlaceRolloutStatus| status.update.as_ref().and_then(|update| update.ended);
    of(new).filter(|_| old.update != new.update)
}

/// The new status.
pub(super) fn status(
    cx: Cx<'_>,
    rollout: &Rollout,
    memory: &Memory,
    lookup: &dyn Lookup<Rollout>,
    report: &Report,
    roll: RollStatus,
) -> InPlaceRolloutStatus {
    let RollStatus { restart, restarted_at, update } = roll;
    let old = &rollout.status;
    let mut new = old.clone();
    (new.restart, new.restarted_at, new.update) = (restart, restarted_at, update);
    let same = (&old.restart, under_way(old)) == (&new.restart, under_way(&new));
    let goes_on = same && (new.restart.is_some() || under_way(&new).is_some());
    let ends = history::ends(old, &new).is_some_and(|result| result != RollResult::GivenUp);
    // `Updated` is only reported after all Pods were looked at.
    let looked = memory.swept || *report == Report::Ended(UpdateEnd::Updated);
    if looked && (goes_on || ends) {
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let tally = memory.tally();
        (new.pods, new.current) = (count(tally.pods), count(tally.current));
        (new.started, new.failed) = (count(memory.sorted.started.len()), count(memory.sorted.failed.len()));
        new.pods_of_interest = if goes_on { pods_of_interest(rollout, memory, lookup) } else { Vec::new() };
    } else if !same {
        // A restart or update begins, or is given up. The counts of one that ended stay.
        if !ends {
            // The Pods of a restart were just listed.
            let listed = memory.listed.as_ref().filter(|(of, _)| restarts(&new) == Some(of));
            let pods = listed.map_or(0, |(_, pods)| i32::try_from(pods.len()).unwrap_or(i32::MAX));
            (new.pods, new.current, new.started, new.failed) = (pods, 0, 0, 0);
        }
        new.pods_of_interest.clear();
    }
    history::record(cx.wall, &memory.gaps, old, &mut new);
    let phase = phase(old.phase, report, new.update.is_some());
    (new.phase, new.observed_generation) = (Some(phase), rollout.generation);
    let progress = match phase {
        Phase::Idle | Phase::Complete => Progress::Succeeded,
        Phase::Stalled => Progress::Failed,
        Phase::Pending | Phase::Progressing | Phase::Paused => Progress::Open,
    };
    if progress != Progress::Failed {
        new.conditions.retain(|c| ![conditions::FAILED, conditions::STALLED].contains(&&*c.type_));
    }
    let message = report.message(rollout, &new);
    let summary = Summary { progress, phase: phase.name(), reason: report.reason(), message: &message };
    condition::record(&mut new.conditions, summary, cx.wall, rollout.generation);
    arm::set_condition(cx, rollout, memory, &mut new);
    new
}

/// The phase of a report. A new rollout that finds its workload parked is `Pending` until it knows the revision; one
/// that stood by is not.
fn phase(old: Option<Phase>, report: &Report, update: bool) -> Phase {
    match (report, old) {
        (Report::Controller, None | Some(Phase::Pending)) if !update => Phase::Pending,
        (Report::Reading, Some(Phase::Idle | Phase::Complete | Phase::Progressing)) => Phase::Progressing,
        _ => report.phase(),
    }
}

pub(super) fn pods_of_interest(
    rollout: &Rollout,
    memory: &Memory,
    lookup: &dyn Lookup<Rollout>,
) -> Vec<PodOfInterest> {
    let Some(work_id) = memory.work_id() else { return Vec::new() };
    let of = |state| move |key| (state, key);
    let all = memory.sorted.failed.iter().map(of(PodState::Failed));
    let all = all.chain(memory.sorted.started.iter().map(of(PodState::Started))).take(MAX_PODS);
    let named = all.filter_map(|(state, key)| {
        let request = child::key(work_id, &*lookup.pod(key)?);
        // A restart is the last step, so it is looked up first.
        let found = child::KINDS.into_iter().find_map(|kind| lookup.relative(kind, &request));
        let own = memory.sorted.pods.get(key).map_or("", |seen| match &seen.stage {
            Stage::Failed(why) => why,
            _ => "",
        });
        let message = match found {
            _ if !own.is_empty() => own.to_owned(),
            Some(found) if !found.is_of(&rollout.uid) => {
                "another client's object has the name of the request".to_owned()
            }
            Some(found) => found.ended.filter(|ended| !ended.complete).map_or("", |e| e.message).to_owned(),
            None if child::others_begun(lookup, key) => "waits for a request of another client".to_owned(),
            None => String::new(),
        };
        let message = condition::truncate(&message, MAX_MESSAGE);
        Some(PodOfInterest { name: key.name.clone(), state, request: request.name, message })
    });
    named.collect()
}

/// Events for a change of the status.
pub(super) fn notes(rollout: &Rollout, old: &InPlaceRolloutStatus) -> Vec<Note> {
    let new = &rollout.status;
    let last = condition::find(&new.conditions, conditions::COMPLETE);
    let message = last.map_or("", |last| &last.message);
    let text = || format!("Rollout {}: {message}", rollout.key);
    let mut notes = Vec::new();
    if new.restart.is_some() && old.restart != new.restart {
        notes.push(note(rollout, false, BEGAN, format!("Rollout {} restarts Pods", rollout.key)));
    }
    if under_way(new).is_some() && under_way(old) != under_way(new) {
        notes.push(note(rollout, false, BEGAN, format!("Rollout {} updates Pods", rollout.key)));
    }
    match ends(old, new) {
        Some(UpdateEnd::Updated) => notes.push(note(rollout, false, COMPLETED, text())),
        Some(UpdateEnd::NotInPlace | UpdateEnd::Superseded) => {
            notes.push(note(rollout, false, RELEASED, text()));
        }
        // `Stalled` is reported below.
        Some(UpdateEnd::RolledBack) | None => {}
    }
    let rolls_back =
        |status: &InPlaceRolloutStatus| status.update.as_ref().is_some_and(|update| update.rolling_back);
    if rolls_back(new) && !rolls_back(old) {
        notes.push(note(rollout, true, ROLLING_BACK, text()));
    }
    if new.restarted_at.is_some() && old.restarted_at != new.restarted_at {
        notes.push(note(rollout, false, COMPLETED, text()));
    }
    if new.phase == Some(Phase::Stalled) && old.phase != new.phase {
        notes.push(note(rollout, true, STALLED, text()));
    }
    notes
}

/// The metric for a stored change of the status.
pub(super) fn measure(rollout: &Rollout, old: &InPlaceRolloutStatus) -> Option<Measure> {
    let new = &rollout.status;
    let ended = |complete, reason| Some(Measure::Ended { kind: super::ID, complete, reason });
    let failed = |status: &InPlaceRolloutStatus| {
        let complete = condition::find(&status.conditions, conditions::COMPLETE)?;
        [PODS_FAILED, UNTOUCHED_PODS_FAIL].into_iter().find(|reason| complete.reason == *reason)
    };
    if new.restarted_at.is_some() && old.restarted_at != new.restarted_at {
        return ended(true, RESTARTED);
    }
    match ends(old, new) {
        Some(UpdateEnd::Updated) => return ended(true, UPDATED),
        Some(end @ (UpdateEnd::NotInPlace | UpdateEnd::Superseded | UpdateEnd::RolledBack)) => {
            return ended(false, end.name());
        }
        None => {}
    }
    failed(new).filter(|_| failed(old).is_none()).and_then(|reason| ended(false, reason))
}
