//! Plans what a rollout does next.

use std::time::Duration;

use chrono::DateTime;
use pitstop_api::rollout::{Restart, Update, validate};

use super::child::{self, RESIZES, UPDATES};
use super::choose::{Choice, choose, waits_for_pods};
use super::history::Rolling;
use super::report::Report;
use super::roll::{Memory, Read};
use super::selected;
use super::status::{RollStatus, status};
use super::sweep::{delete, forget_deleted, sweep, withdraw};
use super::work::{Payload, Task, Work, update_id};
use super::{Plan, Rollout, arm, update};
use crate::blocker::Blocker;
use crate::deed::Deed;
use crate::key::ObjectKey;
use crate::kind::{Cx, Sight};
use crate::plan::{StatusWrite, Urgency};
use crate::pod::{Group, label_hashes};
use crate::time::{Mono, earliest, seconds};
use crate::workload::{Parking, Workload, WorkloadQuery};

/// Maximum age of what is known of the workload when the rollout begins with a Pod.
pub(super) const FRESH: Duration = Duration::from_secs(10);
/// The same while the rollout waits for Pods in progress, or for a user to act.
const FRESH_WAITING: Duration = Duration::from_mins(1);
/// Delay before the Pods are listed again if the watch has not shown all of them.
pub(super) const LIST_AGAIN: Duration = Duration::from_secs(1);
/// Delay before the workload is read again after its controller got new work. Most controllers finish at once.
const SOON: Duration = Duration::from_millis(25);
/// Pause after the rollout begins to watch controllers. The engine reports their existing Pods at once.
const REPORTED_WITHIN: Duration = Duration::from_millis(1);

/// The next action, and what the status reports.
pub(super) struct Next {
    pub(super) report: Report,
    pub(super) roll: RollStatus,
    pub(super) deed: Option<Deed>,
    pub(super) groups: Vec<Group>,
    pub(super) wake_at: Option<Mono>,
}

impl Next {
    /// Only reports.
    pub(super) fn only(rollout: &Rollout, report: Report) -> Self {
        let roll = RollStatus::of(&rollout.status);
        Self { report, roll, deed: None, groups: Vec::new(), wake_at: None }
    }

    /// Reports the update; no restart is under way.
    pub(super) fn of_update(rollout: &Rollout, update: Update, report: Report) -> Self {
        let next = Self::only(rollout, report);
        Self { roll: RollStatus { restart: None, update: Some(update), ..next.roll }, ..next }
    }
}

/// Plans what the rollout needs.
pub(super) fn plan(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory) -> Plan {
    let rollout = sight.request;
    // The watch has not shown yet whether the workload is parked.
    if rollout.deleting || parking(sight) == Some(Parking::Unknown) {
        return Plan::default();
    }
    memory.set_doing(sight.doing);
    memory.gaps.set_rolling(Rolling::of(&rollout.status));
    forget_deleted(sight, memory);
    let mut next = next(cx, sight, memory);
    let labels = arm::arm(cx, rollout, memory, &mut next);
    if next.groups.is_empty() {
        memory.forget_pods();
        if rollout.spec.selector.is_some() {
            // The engine no longer reports new Pods, so these become outdated.
            (memory.read, memory.listed, memory.listing) = (None, None, None);
        }
    }
    let forward = next.roll.update.as_mut().filter(|update| update.ended.is_none() && !update.rolling_back);
    // Until the Pods are sorted, the status knows more than the memory.
    let sorted = |update: &&mut Update| memory.work_id() == Some(&update_id(rollout, &update.revision));
    if let Some(update) = forward.filter(sorted) {
        update.images = memory.pins.to_status();
    }
    let new = status(cx, rollout, memory, sight.lookup, &next.report, next.roll);
    let old = &rollout.status;
    // Most reads are short: the status reports only a longer one.
    let at_once = next.report != Report::Reading
        && (old.phase, &old.restart, &old.restarted_at, &old.update, old.observed_generation)
            != (new.phase, &new.restart, &new.restarted_at, &new.update, new.observed_generation);
    let urgency = if at_once { Urgency::Now } else { Urgency::Later };
    Plan {
        status: (*old != new).then_some(StatusWrite { status: new, urgency }),
        deed: next.deed,
        groups: next.groups,
        wake_at: next.wake_at,
        labels,
        ..Plan::default()
    }
}

/// Applies the first rule that matches.
fn next(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory) -> Next {
    let rollout = sight.request;
    if let Err(invalid) = validate(&rollout.spec) {
        return Next::only(rollout, Report::Invalid(invalid.to_string()));
    }
    if let Some(ahead) = &sight.ahead {
        let by = match &ahead.blocker {
            Blocker::Request(named) => named.key.clone(),
            Blocker::TooMany(_) => ObjectKey::default(),
        };
        return Next::only(rollout, Report::Conflict(by));
    }
    let updated = match parking(sight) {
        Some(Parking::Yes(parked)) => Some(update::update(cx, sight, memory, parked)),
        Some(Parking::No) => update::settle(cx, sight, memory),
        Some(Parking::Unknown) | None => None,
    };
    if let Some(next) = updated.or_else(|| selected::give(cx, sight, memory)) {
        return next;
    }
    match &rollout.spec.restarted_at {
        Some(asked) if rollout.status.restarted_at.as_ref() != Some(asked) => {
            run_restart(cx, sight, memory, asked)
        }
        _ if rollout.spec.wants_something() => selected::watch(cx, sight, memory),
        asked => {
            let ended = rollout.status.update.as_ref().and_then(|update| update.ended);
            let report = if asked.is_some() { Report::Restarted } else { Report::Idle };
            clean_up(cx, sight, memory, ended.map_or(report, Report::Ended))
        }
    }
}

/// Whether the workload is parked. None if the rollout does not change templates in place.
fn parking<'a>(sight: &Sight<'a, Rollout>) -> Option<Parking<'a>> {
    let spec = &sight.request.spec;
    spec.kind().filter(|_| spec.changes_in_place()).map(|kind| sight.lookup.parking(kind))
}

/// Nothing is under way. Deletes the requests that restarts and updates left, one after another.
fn clean_up(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, report: Report) -> Next {
    memory.forget_work();
    let deed = delete(cx, sight, memory, |_| true);
    let wake_at =
        earliest(memory.unshown.deleted_until(cx.now), memory.unshown.overdue_at().filter(|at| *at > cx.now));
    let next = Next::only(sight.request, report);
    let update = next.roll.update.filter(|update| update.ended.is_some());
    Next { roll: RollStatus { restart: None, update, ..next.roll }, deed, wake_at, ..next }
}

/// Carries out a restart that is requested and not finished.
fn run_restart(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, asked: &str) -> Next {
    let rollout = sight.request;
    let begun = rollout.status.restart.as_ref().filter(|restart| restart.restarted_at == asked);
    with_workload(
        cx,
        sight,
        memory,
        Purpose { name: asked, pods: begun.is_none(), at_rest: false },
        |_, _| true,
        |memory, workload| match begun {
            None => begin(sight, memory, asked),
            Some(restart) => {
                let work = Work::restart(rollout, restart, workload);
                let next = go_on(cx, sight, memory, &work, workload);
                next.unwrap_or_else(|| finish(cx, sight, memory, restart))
            }
        },
    )
}

/// Why the workload is read.
#[derive(Clone, Copy)]
pub(super) struct Purpose<'a> {
    pub(super) name: &'a str,
    /// List its Pods too.
    pub(super) pods: bool,
    /// The rollout is at rest: the age of the read does not matter.
    pub(super) at_rest: bool,
}

/// Continues with the last read of the workload. Reads it again if that read is too old or not useful.
pub(super) fn with_workload(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    purpose: Purpose<'_>,
    useful: impl FnOnce(&Memory, &Workload) -> bool,
    then: impl FnOnce(&mut Memory, &Workload) -> Next,
) -> Next {
    let (rollout, Purpose { name, pods, at_rest }) = (sight.request, purpose);
    let selected = rollout.spec.selector.is_some();
    // The watch reports selected Pods that appear during the list.
    let labels = selected.then(|| Group::Labels(label_hashes(rollout.spec.labels())));
    let labels: Vec<Group> = labels.into_iter().collect();
    if selected && sight.lookup.selects_too_many() {
        let wake_at = Some(cx.now.after(FRESH_WAITING));
        return Next { wake_at, ..Next::only(rollout, Report::TooManySelectors) };
    }
    let Some((read_at, read)) = memory.read.clone() else {
        let deed = ask(sight, memory, name, pods);
        return Next { deed, groups: labels, ..Next::only(rollout, Report::Reading) };
    };
    let useful = match &read {
        Read::Workload(workload) => useful(memory, workload),
        Read::Missing | Read::Refused(_) => true,
    };
    let patient = memory.stopped || memory.open() > 0;
    let fresh = if patient { FRESH_WAITING } else { FRESH };
    let again_at = match (useful, memory.asked_for.as_deref() == Some(name)) {
        (true, _) if at_rest && matches!(read, Read::Workload(_)) => None,
        (true, _) => Some(read_at.after(fresh)),
        (false, true) => Some(read_at.after(LIST_AGAIN)),
        (false, false) => Some(cx.now),
    };
    let due = again_at.is_some_and(|at| at <= cx.now);
    let again = due.then(|| ask(sight, memory, name, pods)).flatten();
    let wake_at = again_at.filter(|at| *at > cx.now);
    let only = |report, deed| Next { deed, wake_at, groups: labels.clone(), ..Next::only(rollout, report) };
    let workload = match read {
        Read::Workload(workload) if workload.deleting => return only(Report::Missing, again),
        Read::Workload(workload) => workload,
        Read::Missing => return only(Report::Missing, again),
        Read::Refused(text) => return only(Report::Unreadable(text), again),
    };
    // The list has named the selected Pods that exist.
    let reported = memory.set_controllers(&workload.controllers) || selected;
    let next = match (useful, reported) {
        (false, _) => Next::only(rollout, Report::Reading),
        // The progress is unknown until the engine has reported the Pods.
        (true, false) => {
            Next { wake_at: Some(cx.now.after(REPORTED_WITHIN)), ..Next::only(rollout, Report::Reading) }
        }
        (true, true) => then(memory, &workload),
    };
    // A read for the next step asks for more.
    let asks = matches!(next.deed, Some(Deed::AskWorkload(_)));
    Next {
        deed: if asks { next.deed } else { again.or(next.deed) },
        groups: workload.groups(),
        wake_at: earliest(wake_at, next.wake_at),
        ..next
    }
}

/// Asks for a read of the workload for that purpose. Lists its Pods if `pods`.
fn ask(sight: &Sight<'_, Rollout>, memory: &mut Memory, purpose: &str, pods: bool) -> Option<Deed> {
    // A read that cannot begin must not be recorded as begun.
    if !sight.doing.is_empty() {
        return None;
    }
    memory.asked_for = Some(purpose.to_owned());
    memory.listing = pods.then(|| purpose.to_owned());
    let (kind, labels) = (sight.request.spec.kind(), sight.request.spec.labels().clone());
    let name = sight.request.spec.target_ref.as_ref().map_or("", |target| &target.name);
    let key = ObjectKey::new(&sight.request.key.namespace, name);
    let pods = pods || kind.is_none();
    // Only waiting Pods use a budget. An API server takes 40 to 70 ms to list objects that nobody writes.
    let waits = memory.work_id().is_none() || !memory.sorted.waits.is_empty();
    let budgets = waits && sight.request.spec.respects_disruption_budgets();
    let template = parking(sight).is_some();
    let restarts = sight.request.spec.restart_annotations.clone();
    let back = update::rollback(sight.request).and_then(|update| update.from.clone());
    let query = WorkloadQuery { kind, key, labels, pods, budgets, template, restarts, back };
    Some(Deed::AskWorkload(Box::new(query)))
}

/// Begins the restart of the existing Pods. A list that was requested after the new `restartedAt` was known shows the
/// newest of them.
fn begin(sight: &Sight<'_, Rollout>, memory: &mut Memory, asked: &str) -> Next {
    let rollout = sight.request;
    // The list is kept until the beginning is stored: a write of the status may be under way.
    let Some((_, listed)) = memory.listed.as_ref().filter(|(of, _)| of == asked) else {
        let deed = ask(sight, memory, asked, true);
        return Next { deed, ..Next::only(rollout, Report::Reading) };
    };
    let newest = listed.iter().map(|pod| pod.created).max();
    let newest_pod = newest.and_then(|newest| DateTime::from_timestamp(newest, 0));
    memory.begin_work();
    let restart = Some(Restart { restarted_at: asked.to_owned(), newest_pod });
    let next = Next::only(rollout, Report::Restarting);
    // A restart does not change what selected Pods are to have.
    let update = next.roll.update.clone().filter(|_| rollout.spec.wants_something());
    Next { roll: RollStatus { restart, update, ..next.roll }, ..next }
}

/// Restarts or updates the next Pods. None if no Pod is left.
pub(super) fn go_on(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    work: &Work<'_>,
    workload: &Workload,
) -> Option<Next> {
    let rollout = sight.request;
    memory.give_up(cx.now);
    memory.sort(cx.now, rollout, work, workload, sight.lookup);
    let choice =
        sweep(cx, sight, memory, &work.id).unwrap_or_else(|| choose(cx, rollout, memory, workload, work));
    memory.stopped = matches!(&choice, Choice::Stop(report) if !waits_for_pods(report));
    let deadline = deadline(cx, rollout, memory, workload);
    let late = deadline <= cx.now;
    memory.late = late;
    let name = |report| match (report, &work.task) {
        (report, _) if late && waits_for_pods(&report) => Report::Late,
        (Report::Restarting, Task::Update(_)) if work.back => Report::RollingBack,
        (Report::Restarting, Task::Update(_)) => Report::Updating,
        (report, _) => report,
    };
    let wake_at = earliest(memory.unshown.overdue_at(), Some(deadline).filter(|at| *at > cx.now));
    if !matches!(choice, Choice::Finish) {
        // A list from before the last Pod was done does not prove the end.
        (memory.listed, memory.listing) = (None, None);
    }
    let next =
        |report, deed, at| Next { deed, wake_at: earliest(wake_at, at), ..Next::only(rollout, name(report)) };
    Some(match choice {
        Choice::Finish => return None,
        Choice::Mark(pod) => {
            let why = memory.refusal(Some(&pod)).map_or(Report::Restarting, Report::Refused);
            let pod = sight.lookup.pod(&pod);
            next(why, pod.and_then(|pod| work.mark(rollout, &pod)), None)
        }
        Choice::Stop(why) if memory.stopped || late => {
            // No Pod will use what these requests pull ahead.
            let idle = withdraw(cx, sight, memory);
            let at = earliest(memory.unshown.deleted_until(cx.now), memory.refused_until());
            let recovers_at = memory.sorted.recovers_at().filter(|_| why == Report::UntouchedPodsFail);
            next(why, idle, earliest(at.filter(|at| *at > cx.now), recovers_at))
        }
        Choice::Stop(why) => next(why, None, memory.refused_until().filter(|at| *at > cx.now)),
        Choice::Sweep(deed) => next(Report::Restarting, deed, memory.sweep_until.filter(|at| *at > cx.now)),
        Choice::Begin(pod, soak) => {
            // A retry of a refused request is no news for the status.
            let why = memory.refusal(Some(&pod)).map_or(Report::Restarting, Report::Refused);
            next(why, begin_with(cx, sight, memory, work, (&pod, soak)), None)
        }
        Choice::Pull(pod, why) => {
            let soak = soak(rollout, workload, false);
            let deed = begin_with(cx, sight, memory, work, (&pod, soak)).and_then(|deed| match deed {
                Deed::Create(child) => Some(Deed::Create(Box::new(child::suspended(*child)?))),
                other => Some(other),
            });
            next(why, deed, None)
        }
    })
}

/// Restarts or updates the Pod, whose new containers must run for `soak` seconds. Makes a request, or resumes the
/// suspended one. A suspended request that pulled another digest than the first Pod got is deleted, and made again
/// later. If the last read of the workload is too old, reads it first.
fn begin_with(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    work: &Work<'_>,
    (pod, soak): (&ObjectKey, i64),
) -> Option<Deed> {
    let rollout = sight.request;
    let asks = rollout.spec.respects_disruption_budgets();
    let known = |workload: &Workload| workload.budgets.is_some() || !asks;
    let read = memory.read.as_ref().filter(|(at, _)| at.after(FRESH) > cx.now);
    if !matches!(read, Some((_, Read::Workload(workload))) if known(workload)) {
        return ask(sight, memory, &work.id, false);
    }
    let pod = sight.lookup.pod(pod)?;
    let mut step = work.step(rollout, &pod, sight.lookup).ok()??;
    if let Some(suspended) = step.request.filter(|request| request.suspended) {
        if memory.pins.moved(&suspended).is_some() {
            return delete(cx, sight, memory, |child| child.uid == suspended.uid);
        }
        let (key, uid) = (suspended.key.clone(), suspended.uid.to_owned());
        return Some(Deed::Resume { kind: UPDATES, key, uid, pod: pod.key.clone() });
    }
    // Containers run on during a resize: the next request observes the Pod.
    let soak = if step.payload.kind() == RESIZES && !step.last { 0 } else { soak };
    if let Payload::Images(images) = &mut step.payload {
        memory.pins.pin(images);
    }
    let child = child::child(rollout, &work.id, &pod, step.payload, soak).ok()?;
    Some(Deed::Create(Box::new(child)))
}

/// When another Pod should be done. Drain and soak of a Pod are added to the progress deadline.
fn deadline(cx: Cx<'_>, rollout: &Rollout, memory: &mut Memory, workload: &Workload) -> Mono {
    let done = memory.tally().current.saturating_add(memory.sorted.failed.len());
    let same = memory.progress.filter(|(before, _)| *before == done && !memory.stopped);
    let (_, since) = *memory.progress.insert(same.unwrap_or((done, cx.now)));
    let own = soak(rollout, workload, true).saturating_add(child::drain(rollout).unwrap_or_default());
    since.after(seconds(rollout.spec.progress_deadline().saturating_add(own)))
}

/// Seconds that the new containers of a Pod must run.
pub(super) fn soak(rollout: &Rollout, workload: &Workload, canary: bool) -> i64 {
    let longer = rollout.spec.canary().filter(|_| canary).and_then(|canary| canary.soak_seconds);
    rollout.spec.soak().max(workload.min_ready_seconds.into()).max(longer.unwrap_or_default())
}

/// Waits for what the next read shows. Lists the Pods if `pods`. The longer it takes, the rarer the reads.
pub(super) fn wait(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    purpose: &str,
    pods: bool,
) -> Next {
    let (rollout, now) = (sight.request, cx.now);
    let first = pods && memory.listing.is_none() && memory.listed.is_none();
    let since = memory.progress.map(|(_, since)| since);
    // A StatefulSet's controller waits until all Pods are ready, which may never happen.
    let late = since.is_some_and(|since| since.after(seconds(rollout.spec.progress_deadline())) <= now);
    memory.stopped = late;
    let most = if late { FRESH_WAITING } else { FRESH };
    let again_at = memory.read.as_ref().map(|(at, _)| {
        let begins = || memory.reads_since().map_or(SOON, |first| at.since(first).clamp(SOON, LIST_AGAIN));
        let pause = since.map_or_else(begins, |since| (now.since(since) / 4).clamp(SOON, most));
        at.after(pause)
    });
    let due = first || again_at.is_none_or(|at| at <= now);
    let deed = due.then(|| ask(sight, memory, purpose, pods)).flatten();
    let wake_at = again_at.filter(|at| *at > now);
    let report = match rollout.spec.kind() {
        _ if late => Report::Late,
        Some(_) => Report::Controller,
        None => Report::Updating,
    };
    Next { deed, wake_at, ..Next::only(rollout, report) }
}

/// Every Pod that the watch has shown is done. Lists the Pods to find others, and then ends the restart.
fn finish(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, restart: &Restart) -> Next {
    let rollout = sight.request;
    let asked = &restart.restarted_at;
    let Some((read_at, _)) = &memory.read else { return Next::only(rollout, Report::Reading) };
    let newest = restart.newest_pod.map(|newest| newest.timestamp());
    let listed = memory.listed.as_ref().filter(|(of, _)| of == asked);
    let first = listed.is_none() && memory.listing.is_none();
    if listed.is_some_and(|(_, listed)| memory.covers(listed, &rollout.key.namespace, newest)) {
        // The list is kept: a write of the status may be under way or queued.
        let next = Next::only(rollout, Report::Restarted);
        let roll = RollStatus { restart: None, restarted_at: Some(asked.clone()), ..next.roll };
        return Next { roll, ..next };
    }
    memory.listed = None;
    let again_at = read_at.after(LIST_AGAIN);
    let deed = (first || again_at <= cx.now).then(|| ask(sight, memory, asked, true)).flatten();
    let wake_at = Some(again_at).filter(|at| *at > cx.now);
    Next { deed, wake_at, ..Next::only(rollout, Report::Restarting) }
}
