//! What a rollout needs next.

use std::time::Duration;

use chrono::DateTime;
use pitstop_api::rollout::{Restart, Update, validate};

use super::child::{self, RESIZES, UPDATES};
use super::choose::{Step, choose, waits_for_pods};
use super::history::Rolling;
use super::roll::{Memory, Read};
use super::selected;
use super::status::{Doing, status};
use super::sweep::{delete, forget, sweep, withdraw};
use super::told::Told;
use super::work::{Asks, What, Work, mark_of};
use super::{Plan, Rollout, arm, update};
use crate::before::Before;
use crate::deed::Deed;
use crate::key::ObjectKey;
use crate::kind::{Cx, Sight};
use crate::plan::{StatusWrite, Urgency};
use crate::pod::{Group, label_hashes};
use crate::time::{Mono, earliest, seconds};
use crate::workload::{Parking, Workload, WorkloadQuery};

/// How old what is known of the workload may be when something is begun with one of its Pods.
pub(super) const FRESH: Duration = Duration::from_secs(10);
/// The same while it waits for Pods that it has begun with, or for somebody to see to it.
const FRESH_WAITING: Duration = Duration::from_mins(1);
/// How soon the Pods are listed again where the watch did not show all of them.
pub(super) const LIST_AGAIN: Duration = Duration::from_secs(1);
/// How soon the workload is read again whose controller has just been given something to do: most are done at once.
const SOON: Duration = Duration::from_millis(100);
/// How soon it goes on with the Pods of controllers that it looks after from now on: those that there are come at once.
const TOLD_WITHIN: Duration = Duration::from_millis(1);

/// What is to be done, and what is told of it.
pub(super) struct Next {
    pub(super) told: Told,
    pub(super) doing: Doing,
    pub(super) deed: Option<Deed>,
    pub(super) groups: Vec<Group>,
    pub(super) wake_at: Option<Mono>,
}

impl Next {
    /// Nothing is done.
    pub(super) fn only(rollout: &Rollout, told: Told) -> Self {
        let doing = Doing::of(&rollout.status);
        Self { told, doing, deed: None, groups: Vec::new(), wake_at: None }
    }

    /// No restart is under way, and that of the update is told.
    pub(super) fn of_update(rollout: &Rollout, update: Update, told: Told) -> Self {
        let next = Self::only(rollout, told);
        Self { doing: Doing { restart: None, update: Some(update), ..next.doing }, ..next }
    }
}

/// What the rollout needs.
pub(super) fn plan(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory) -> Plan {
    let rollout = sight.request;
    // Of a workload that may be parked, it waits to be told.
    if rollout.deleting || parking(sight) == Some(Parking::Unknown) {
        return Plan::default();
    }
    memory.see(sight.doing);
    memory.gaps.of(Rolling::of(&rollout.status));
    forget(sight, memory);
    let mut next = next(cx, sight, memory);
    let labels = arm::arm(cx, rollout, memory, &mut next);
    if next.groups.is_empty() {
        memory.forget_pods();
        if rollout.spec.selector.is_some() {
            // Nobody tells which Pods come.
            (memory.read, memory.listed, memory.listing) = (None, None, None);
        }
    }
    let forward = next.doing.update.as_mut().filter(|update| update.ended.is_none() && !update.rolling_back);
    // Before its Pods are sorted, the status knows more.
    if let Some(update) = forward.filter(|update| memory.mark() == Some(&mark_of(rollout, &update.revision)))
    {
        update.images = memory.pins.told();
    }
    let new = status(cx, rollout, memory, sight.around, &next.told, next.doing);
    let old = &rollout.status;
    // Reading takes a moment: it is told only where it takes longer.
    let at_once = next.told != Told::Reading
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

/// The first rule that says something.
fn next(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory) -> Next {
    let rollout = sight.request;
    if let Err(invalid) = validate(&rollout.spec) {
        return Next::only(rollout, Told::Invalid(invalid.to_string()));
    }
    if let Some(ahead) = &sight.ahead {
        let by = match &ahead.by {
            Before::Request(named) => named.key.clone(),
            Before::TooMany(_) => ObjectKey::default(),
        };
        return Next::only(rollout, Told::Conflict(by));
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
            at_work(cx, sight, memory, asked)
        }
        _ if rollout.spec.wants_something() => selected::watch(cx, sight, memory),
        asked => {
            let ended = rollout.status.update.as_ref().and_then(|update| update.ended);
            let told = if asked.is_some() { Told::Restarted } else { Told::Idle };
            over(cx, sight, memory, ended.map_or(told, Told::Ended))
        }
    }
}

/// Whether the workload is parked, if that counts.
fn parking<'a>(sight: &Sight<'a, Rollout>) -> Option<Parking<'a>> {
    let spec = &sight.request.spec;
    spec.kind().filter(|_| spec.changes_in_place()).map(|kind| sight.around.parking(kind))
}

/// Nothing is under way: what restarts and updates have left is deleted, one after another.
fn over(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, told: Told) -> Next {
    memory.rest();
    let deed = delete(cx, sight, memory, |_| true);
    let wake_at =
        earliest(memory.unshown.deleted_until(cx.now), memory.unshown.overdue_at().filter(|at| *at > cx.now));
    let next = Next::only(sight.request, told);
    let update = next.doing.update.filter(|update| update.ended.is_some());
    Next { doing: Doing { restart: None, update, ..next.doing }, deed, wake_at, ..next }
}

/// A restart is asked for and not finished.
fn at_work(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, asked: &str) -> Next {
    let rollout = sight.request;
    let begun = rollout.status.restart.as_ref().filter(|restart| restart.restarted_at == asked);
    with_workload(
        cx,
        sight,
        memory,
        Wants { of: asked, pods: begun.is_none(), rests: false },
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

/// What the workload is read for.
#[derive(Clone, Copy)]
pub(super) struct Wants<'a> {
    /// A name for it.
    pub(super) of: &'a str,
    /// Its Pods are to be listed, too.
    pub(super) pods: bool,
    /// Nothing is done: how old the reading is does not matter.
    pub(super) rests: bool,
}

/// Goes on with the workload as it was read; reads it where that was long ago, or where the reading is of no use.
pub(super) fn with_workload(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    wants: Wants<'_>,
    useful: impl FnOnce(&Memory, &Workload) -> bool,
    then: impl FnOnce(&mut Memory, &Workload) -> Next,
) -> Next {
    let (rollout, Wants { of, pods, rests }) = (sight.request, wants);
    let selected = rollout.spec.selector.is_some();
    // Of selected Pods that come while they are listed, it is told by the watch.
    let labels = selected.then(|| Group::Labels(label_hashes(rollout.spec.labels())));
    let labels: Vec<Group> = labels.into_iter().collect();
    if selected && sight.around.selects_too_many() {
        let wake_at = Some(cx.now.after(FRESH_WAITING));
        return Next { wake_at, ..Next::only(rollout, Told::TooManySelectors) };
    }
    let Some((read_at, read)) = memory.read.clone() else {
        let deed = ask(sight, memory, of, pods);
        return Next { deed, groups: labels, ..Next::only(rollout, Told::Reading) };
    };
    let useful = match &read {
        Read::Workload(workload) => useful(memory, workload),
        Read::Missing | Read::Refused(_) => true,
    };
    let patient = memory.stopped || memory.open() > 0;
    let fresh = if patient { FRESH_WAITING } else { FRESH };
    let again_at = match (useful, memory.asked_for.as_deref() == Some(of)) {
        (true, _) if rests && matches!(read, Read::Workload(_)) => None,
        (true, _) => Some(read_at.after(fresh)),
        (false, true) => Some(read_at.after(LIST_AGAIN)),
        (false, false) => Some(cx.now),
    };
    let due = again_at.is_some_and(|at| at <= cx.now);
    let again = due.then(|| ask(sight, memory, of, pods)).flatten();
    let wake_at = again_at.filter(|at| *at > cx.now);
    let only = |told, deed| Next { deed, wake_at, groups: labels.clone(), ..Next::only(rollout, told) };
    let workload = match read {
        Read::Workload(workload) if workload.deleting => return only(Told::Missing, again),
        Read::Workload(workload) => workload,
        Read::Missing => return only(Told::Missing, again),
        Read::Refused(text) => return only(Told::Unreadable(text), again),
    };
    // Those that there were have been listed.
    let told = memory.looks_after(&workload.controllers) || selected;
    let next = match (useful, told) {
        (false, _) => Next::only(rollout, Told::Reading),
        // Of none that it has not been told of yet, it can say how far it is.
        (true, false) => {
            Next { wake_at: Some(cx.now.after(TOLD_WITHIN)), ..Next::only(rollout, Told::Reading) }
        }
        (true, true) => then(memory, &workload),
    };
    // What follows asks for more than that.
    let asks = matches!(next.deed, Some(Deed::AskWorkload(_)));
    Next {
        deed: if asks { next.deed } else { again.or(next.deed) },
        groups: workload.groups(),
        wake_at: earliest(wake_at, next.wake_at),
        ..next
    }
}

/// The workload is read, and its Pods are listed if that is wanted for what is named.
pub(super) fn ask(sight: &Sight<'_, Rollout>, memory: &mut Memory, of: &str, pods: bool) -> Option<Deed> {
    // A reading begins only when nothing is under way: what cannot begin is not to be taken for begun.
    if !sight.doing.is_empty() {
        return None;
    }
    memory.asked_for = Some(of.to_owned());
    memory.listing = pods.then(|| of.to_owned());
    let (kind, labels) = (sight.request.spec.kind(), sight.request.spec.labels().clone());
    let name = sight.request.spec.target_ref.as_ref().map_or("", |target| &target.name);
    let key = ObjectKey::new(&sight.request.key.namespace, name);
    let pods = pods || kind.is_none();
    // Only Pods that wait cost any; an API server takes 40 to 70 ms to list what nobody writes.
    let waits = memory.mark().is_none() || !memory.sorted.waits.is_empty();
    let budgets = waits && sight.request.spec.respects_disruption_budgets();
    let template = parking(sight).is_some();
    let restarts = sight.request.spec.restart_annotations.clone();
    let back = update::goes_back(sight.request).and_then(|update| update.from.clone());
    let query = WorkloadQuery { kind, key, labels, pods, budgets, template, restarts, back };
    Some(Deed::AskWorkload(Box::new(query)))
}

/// The restart is for the Pods that there are: a list that was asked for after the wish was known tells the newest of them.
fn begin(sight: &Sight<'_, Rollout>, memory: &mut Memory, asked: &str) -> Next {
    let rollout = sight.request;
    // Kept until the beginning is stored: a write of the status may be under way.
    let Some((_, listed)) = memory.listed.as_ref().filter(|(of, _)| of == asked) else {
        let deed = ask(sight, memory, asked, true);
        return Next { deed, ..Next::only(rollout, Told::Reading) };
    };
    let newest = listed.iter().map(|pod| pod.created).max();
    let newest_pod = newest.and_then(|newest| DateTime::from_timestamp(newest, 0));
    memory.begins();
    let restart = Some(Restart { restarted_at: asked.to_owned(), newest_pod });
    let next = Next::only(rollout, Told::Restarting);
    // What selected Pods are to have, they have still.
    let update = next.doing.update.clone().filter(|_| rollout.spec.wants_something());
    Next { doing: Doing { restart, update, ..next.doing }, ..next }
}

/// The Pods are restarted, or updated; nothing where none is left.
pub(super) fn go_on(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    work: &Work<'_>,
    workload: &Workload,
) -> Option<Next> {
    let rollout = sight.request;
    memory.give_up(cx.now);
    memory.sort(cx.now, rollout, work, workload, sight.around);
    let step =
        sweep(cx, sight, memory, &work.mark).unwrap_or_else(|| choose(cx, rollout, memory, workload, work));
    memory.stopped = matches!(&step, Step::Stop(told) if !waits_for_pods(told));
    let deadline = deadline(cx, rollout, memory, workload);
    let late = deadline <= cx.now;
    memory.late = late;
    let named = |told| match (told, &work.what) {
        (told, _) if late && waits_for_pods(&told) => Told::Late,
        (Told::Restarting, What::Update(_)) if work.back => Told::RollingBack,
        (Told::Restarting, What::Update(_)) => Told::Updating,
        (told, _) => told,
    };
    let wake_at = earliest(memory.unshown.overdue_at(), Some(deadline).filter(|at| *at > cx.now));
    if !matches!(step, Step::Finish) {
        // What was listed before the last Pod was done says nothing of the end.
        (memory.listed, memory.listing) = (None, None);
    }
    let told =
        |told, deed, at| Next { deed, wake_at: earliest(wake_at, at), ..Next::only(rollout, named(told)) };
    Some(match step {
        Step::Finish => return None,
        Step::Mark(pod) => {
            let why = memory.refusal(Some(&pod)).map_or(Told::Restarting, Told::Refused);
            let pod = sight.around.pod(&pod);
            told(why, pod.and_then(|pod| work.tell(rollout, &pod)), None)
        }
        Step::Stop(why) if memory.stopped || late => {
            // What pulls ahead would do so for nobody.
            let idle = withdraw(cx, sight, memory);
            let at = earliest(memory.unshown.deleted_until(cx.now), memory.refused_until());
            let well_at = memory.sorted.well_at().filter(|_| why == Told::UntouchedPodsFail);
            told(why, idle, earliest(at.filter(|at| *at > cx.now), well_at))
        }
        Step::Stop(why) => told(why, None, memory.refused_until().filter(|at| *at > cx.now)),
        Step::Sweep(deed) => told(Told::Restarting, deed, memory.sweep_until.filter(|at| *at > cx.now)),
        Step::Begin(pod, soak) => {
            // Another try for one that was refused tells nothing new.
            let why = memory.refusal(Some(&pod)).map_or(Told::Restarting, Told::Refused);
            told(why, begin_with(cx, sight, memory, work, (&pod, soak)), None)
        }
        Step::Pull(pod, why) => {
            let soak = soak(rollout, workload, false);
            let deed = begin_with(cx, sight, memory, work, (&pod, soak)).and_then(|deed| match deed {
                Deed::Create(child) => Some(Deed::Create(Box::new(child::suspended(*child)?))),
                other => Some(other),
            });
            told(why, deed, None)
        }
    })
}

/// Restarts or updates that Pod, whose new containers must run for so many seconds: by a new request, or by that which is suspended.
/// One that has pulled something else than the first Pod got is deleted, and another one is made. After a wait, what is known of the
/// workload may be old: then it is read first.
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
        return ask(sight, memory, &work.mark, false);
    }
    let pod = sight.around.pod(pod)?;
    let mut step = work.step(rollout, &pod, sight.around).ok()??;
    if let Some(suspended) = step.request.filter(|request| request.suspended) {
        if memory.pins.moved(&suspended).is_some() {
            return delete(cx, sight, memory, |child| child.uid == suspended.uid);
        }
        let (key, uid) = (suspended.key.clone(), suspended.uid.to_owned());
        return Some(Deed::Resume { kind: UPDATES, key, uid, pod: pod.key.clone() });
    }
    // With new resources alone, a Pod runs on: what follows is watched.
    let soak = if step.asks.kind() == RESIZES && !step.last { 0 } else { soak };
    if let Asks::Images(images) = &mut step.asks {
        memory.pins.pin(images);
    }
    let child = child::child(rollout, &work.mark, &pod, step.asks, soak).ok()?;
    Some(Deed::Create(Box::new(child)))
}

/// Until when another Pod should be done: each takes its own time to drain and to soak beside.
fn deadline(cx: Cx<'_>, rollout: &Rollout, memory: &mut Memory, workload: &Workload) -> Mono {
    let done = memory.tally().current.saturating_add(memory.sorted.failed.len());
    let stands = memory.progress.filter(|(before, _)| *before == done && !memory.stopped);
    let (_, since) = *memory.progress.insert(stands.unwrap_or((done, cx.now)));
    let own = soak(rollout, workload, true).saturating_add(child::drain(rollout).unwrap_or_default());
    since.after(seconds(rollout.spec.progress_deadline().saturating_add(own)))
}

/// Seconds for which the new containers of a Pod must have run.
pub(super) fn soak(rollout: &Rollout, workload: &Workload, canary: bool) -> i64 {
    let longer = rollout.spec.canary().filter(|_| canary).and_then(|canary| canary.soak_seconds);
    rollout.spec.soak().max(workload.min_ready_seconds.into()).max(longer.unwrap_or_default())
}

/// What is read next decides: the Pods are listed if that is wanted, the more seldom the longer it takes.
pub(super) fn wait(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    of: &str,
    pods: bool,
) -> Next {
    let (rollout, now) = (sight.request, cx.now);
    let first = pods && memory.listing.is_none() && memory.listed.is_none();
    let since = memory.progress.map(|(_, since)| since);
    // A StatefulSet's controller waits until all Pods are ready, which they may never be.
    let late = since.is_some_and(|since| since.after(seconds(rollout.spec.progress_deadline())) <= now);
    memory.stopped = late;
    let most = if late { FRESH_WAITING } else { FRESH };
    let again_at = memory.read.as_ref().map(|(at, _)| {
        let begins = || memory.reads_since().map_or(SOON, |first| at.since(first).clamp(SOON, LIST_AGAIN));
        let pause = since.map_or_else(begins, |since| (now.since(since) / 4).clamp(SOON, most));
        at.after(pause)
    });
    let due = first || again_at.is_none_or(|at| at <= now);
    let deed = due.then(|| ask(sight, memory, of, pods)).flatten();
    let wake_at = again_at.filter(|at| *at > now);
    let told = match rollout.spec.kind() {
        _ if late => Told::Late,
        Some(_) => Told::Controller,
        None => Told::Updating,
    };
    Next { deed, wake_at, ..Next::only(rollout, told) }
}

/// Every Pod that the watch has shown is done: the API server is asked whether there are others.
fn finish(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, restart: &Restart) -> Next {
    let rollout = sight.request;
    let asked = &restart.restarted_at;
    let Some((read_at, _)) = &memory.read else { return Next::only(rollout, Told::Reading) };
    let newest = restart.newest_pod.map(|newest| newest.timestamp());
    let listed = memory.listed.as_ref().filter(|(of, _)| of == asked);
    let first = listed.is_none() && memory.listing.is_none();
    if listed.is_some_and(|(_, listed)| memory.covers(listed, &rollout.key.namespace, newest)) {
        // The list is kept: a write of the status may be under way, or stand in line.
        let next = Next::only(rollout, Told::Restarted);
        let doing = Doing { restart: None, restarted_at: Some(asked.clone()), ..next.doing };
        return Next { doing, ..next };
    }
    memory.listed = None;
    let again_at = read_at.after(LIST_AGAIN);
    let deed = (first || again_at <= cx.now).then(|| ask(sight, memory, asked, true)).flatten();
    let wake_at = Some(again_at).filter(|at| *at > cx.now);
    Next { deed, wake_at, ..Next::only(rollout, Told::Restarting) }
}
