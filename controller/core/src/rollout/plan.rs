//! What a rollout needs next.

use std::time::Duration;

use chrono::DateTime;
use pitstop_api::rollout::{InPlaceRolloutStatus, Restart, validate};

use super::child::{self, CHILD};
use super::roll::{Memory, Read, Tally};
use super::status::{Disrupted, Told, status};
use super::{Plan, Rollout};
use crate::before::Before;
use crate::deed::Deed;
use crate::key::ObjectKey;
use crate::kind::{Cx, Relative, Sight};
use crate::plan::{StatusWrite, Urgency};
use crate::time::{Mono, earliest, seconds};
use crate::workload::{Workload, WorkloadQuery};

/// How old what is known of the workload may be while its Pods are restarted.
const FRESH: Duration = Duration::from_secs(10);
/// The same while it waits for somebody to see to it.
const FRESH_STOPPED: Duration = Duration::from_mins(1);
/// How long a restart waits for what one before it has begun.
const SWEEP_WAITS: Duration = Duration::from_mins(5);
/// How soon the Pods are listed again where the watch did not show all of them.
const LIST_AGAIN: Duration = Duration::from_secs(1);
/// How soon it goes on with the Pods of controllers that it looks after from now on: those that there are come at once.
const TOLD_WITHIN: Duration = Duration::from_millis(1);
/// Most Pods that are being restarted at a time, whatever the budget says.
const MOST_STARTED: usize = 100;

/// What is to be done, and what is told of it.
struct Next {
    told: Told,
    /// `status.restart` and `status.restartedAt`.
    restart: Option<Restart>,
    restarted_at: Option<String>,
    deed: Option<Deed>,
    controllers: Vec<String>,
    wake_at: Option<Mono>,
}

impl Next {
    /// Nothing is done.
    fn only(rollout: &Rollout, told: Told) -> Self {
        let InPlaceRolloutStatus { restart, restarted_at, .. } = &rollout.status;
        let (restart, restarted_at) = (restart.clone(), restarted_at.clone());
        Self { told, restart, restarted_at, deed: None, controllers: Vec::new(), wake_at: None }
    }
}

/// What the rollout needs.
pub(super) fn plan(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory) -> Plan {
    let rollout = sight.request;
    if rollout.deleting {
        return Plan::default();
    }
    let next = next(cx, sight, memory);
    if next.controllers.is_empty() {
        memory.forget_pods();
    }
    let new = status(cx, rollout, memory, sight.around, &next.told, next.restart, next.restarted_at);
    let old = &rollout.status;
    // Reading takes a moment: it is told only where it takes longer.
    let at_once = next.told != Told::Reading
        && (old.phase, &old.restart, &old.restarted_at, old.observed_generation)
            != (new.phase, &new.restart, &new.restarted_at, new.observed_generation);
    let urgency = if at_once { Urgency::Now } else { Urgency::Later };
    Plan {
        status: (*old != new).then_some(StatusWrite { status: new, urgency }),
        deed: next.deed,
        controllers: next.controllers,
        wake_at: next.wake_at,
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
    let Some(asked) = &rollout.spec.restarted_at else {
        return over(cx, sight, memory, Told::Idle);
    };
    if rollout.status.restarted_at.as_ref() == Some(asked) {
        return over(cx, sight, memory, Told::Restarted);
    }
    at_work(cx, sight, memory, asked)
}

/// Nothing is under way: what restarts have left is deleted, one after another.
fn over(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, told: Told) -> Next {
    memory.rest();
    let deed = delete(cx, sight, memory, |_| true);
    let wake_at = memory.deleted_until(cx.now);
    Next { restart: None, deed, wake_at, ..Next::only(sight.request, told) }
}

/// Deletes the next of those requests. Of one that was deleted, the watch may not have told yet.
fn delete(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    which: impl Fn(&Relative<'_>) -> bool,
) -> Option<Deed> {
    let mut left = sight.around.children(CHILD).peekable();
    if left.peek().is_none() {
        memory.deleted.clear();
    }
    let next = left.find(|child| !child.deleting && !memory.goes(cx.now, child.uid) && which(child))?;
    Some(Deed::Delete { kind: CHILD, key: next.key.clone(), uid: next.uid.to_owned() })
}

/// A restart is asked for and not finished.
fn at_work(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, asked: &str) -> Next {
    let rollout = sight.request;
    let begun = rollout.status.restart.as_ref().filter(|restart| restart.restarted_at == asked);
    let Some((read_at, read)) = memory.read.clone() else {
        let deed = ask(sight, memory, asked, begun.is_none());
        return Next { deed, ..Next::only(rollout, Told::Reading) };
    };
    let again_at = read_at.after(if memory.stopped { FRESH_STOPPED } else { FRESH });
    let again = (again_at <= cx.now).then(|| ask(sight, memory, asked, begun.is_none())).flatten();
    let wake_at = Some(again_at).filter(|at| *at > cx.now);
    let workload = match read {
        Read::Workload(workload) if !workload.deleting => workload,
        Read::Workload(_) | Read::Missing => {
            return Next { deed: again, wake_at, ..Next::only(rollout, Told::Missing) };
        }
        Read::Refused(text) => {
            return Next { deed: again, wake_at, ..Next::only(rollout, Told::Unreadable(text)) };
        }
    };
    let told = memory.looks_after(&workload.controllers);
    let next = match begun {
        None => begin(sight, memory, asked),
        // Of none that it has not been told of yet, it can say how far it is.
        Some(_) if !told => {
            Next { wake_at: Some(cx.now.after(TOLD_WITHIN)), ..Next::only(rollout, Told::Reading) }
        }
        Some(restart) => go_on(cx, sight, memory, restart, &workload),
    };
    Next {
        deed: again.or(next.deed),
        controllers: workload.controllers,
        wake_at: earliest(wake_at, next.wake_at),
        ..next
    }
}

/// The workload is read, and its Pods are listed if that is wanted.
fn ask(sight: &Sight<'_, Rollout>, memory: &mut Memory, asked: &str, pods: bool) -> Option<Deed> {
    // One that is under way tells. A deed of which nobody knows how it ended is no reason to wait: it may be that it is never
    // tried again.
    if matches!(sight.deed, Some(Deed::AskWorkload(_))) {
        return None;
    }
    memory.listing = pods.then(|| asked.to_owned());
    let target = &sight.request.spec.target_ref;
    let key = ObjectKey::new(&sight.request.key.namespace, &target.name);
    let budgets = sight.request.spec.respects_disruption_budgets();
    Some(Deed::AskWorkload(Box::new(WorkloadQuery { kind: target.kind, key, pods, budgets })))
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
    (memory.swept, memory.sweep_until) = (false, None);
    (memory.progress, memory.stopped) = (None, false);
    let restart = Some(Restart { restarted_at: asked.to_owned(), newest_pod });
    Next { restart, ..Next::only(rollout, Told::Restarting) }
}

/// The Pods are restarted.
fn go_on(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    restart: &Restart,
    workload: &Workload,
) -> Next {
    let rollout = sight.request;
    let mark = child::mark(rollout, &restart.restarted_at);
    memory.give_up(cx.now);
    memory.sort(rollout, restart, &mark, workload, sight.around);
    let step = sweep(cx, sight, memory, &mark).unwrap_or_else(|| choose(cx, rollout, memory, workload));
    memory.stopped = matches!(&step, Step::Stop(told) if !waits_for_pods(told));
    let deadline = deadline(cx, rollout, memory, workload);
    let late = |told| if deadline <= cx.now && waits_for_pods(&told) { Told::Late } else { told };
    let wake_at = earliest(memory.overdue_at(), Some(deadline).filter(|at| *at > cx.now));
    if !matches!(step, Step::Finish) {
        // What was listed before the last Pod was done says nothing of the end.
        (memory.listed, memory.listing) = (None, None);
    }
    let told =
        |told, deed, at| Next { deed, wake_at: earliest(wake_at, at), ..Next::only(rollout, late(told)) };
    match step {
        Step::Finish => {
            let next = finish(cx, sight, memory, restart);
            Next { wake_at: earliest(wake_at, next.wake_at), ..next }
        }
        Step::Stop(why) => told(why, None, memory.refused_until().filter(|at| *at > cx.now)),
        Step::Sweep(deed) => told(Told::Restarting, deed, memory.sweep_until.filter(|at| *at > cx.now)),
        Step::Begin(pod, soak) => {
            // Another try for one that was refused tells nothing new.
            let why = memory.refusal(Some(&pod)).map_or(Told::Restarting, Told::Refused);
            // After a stop, what is known of the workload may be older.
            let old = memory.read.as_ref().is_none_or(|(at, _)| at.after(FRESH) <= cx.now);
            let deed = if old {
                ask(sight, memory, &restart.restarted_at, false)
            } else {
                let pod = sight.around.pod(&pod);
                let child = pod.and_then(|pod| child::child(rollout, &mark, &pod, soak).ok());
                child.map(|child| Deed::Create(Box::new(child)))
            };
            told(why, deed, None)
        }
    }
}

/// Until when another Pod should be done: each takes its own time to drain and to soak beside.
fn deadline(cx: Cx<'_>, rollout: &Rollout, memory: &mut Memory, workload: &Workload) -> Mono {
    let done = memory.tally().current.saturating_add(memory.failed.len());
    let stands = memory.progress.filter(|(before, _)| *before == done && !memory.stopped);
    let (_, since) = *memory.progress.insert(stands.unwrap_or((done, cx.now)));
    let own = soak(rollout, workload, true).saturating_add(child::drain(rollout).unwrap_or_default());
    since.after(seconds(rollout.spec.progress_deadline().saturating_add(own)))
}

/// Seconds for which the new containers of a Pod must have run.
fn soak(rollout: &Rollout, workload: &Workload, canary: bool) -> i64 {
    let longer = rollout.spec.canary().filter(|_| canary).and_then(|canary| canary.soak_seconds);
    rollout.spec.soak().max(workload.min_ready_seconds.into()).max(longer.unwrap_or_default())
}

/// Deletes what restarts before this one have left. What is open of them is waited for: a Pod whose stop has begun is about to
/// be unavailable.
fn sweep(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, mark: &str) -> Option<Step> {
    if memory.swept {
        return None;
    }
    let until = *memory.sweep_until.get_or_insert(cx.now.after(SWEEP_WAITS));
    let patient = until > cx.now;
    let old = |child: &Relative<'_>| !child::is_of(mark, child.key);
    if let Some(deed) = delete(cx, sight, memory, |child| old(child) && (child.ended.is_some() || !patient)) {
        return Some(Step::Sweep(Some(deed)));
    }
    let open = |child: &Relative<'_>| old(child) && child.ended.is_none() && !child.deleting;
    memory.swept = !(patient && sight.around.children(CHILD).any(|child| open(&child)));
    (!memory.swept).then_some(Step::Sweep(None))
}

/// It waits for Pods, and not for somebody to see to it.
fn waits_for_pods(told: &Told) -> bool {
    matches!(
        told,
        Told::Restarting | Told::Canary | Told::Budget { .. } | Told::Disruption(_) | Told::Refused(_)
    )
}

/// The next step with the Pods.
enum Step {
    /// Restart that one, whose new containers must run for so many seconds.
    Begin(ObjectKey, i64),
    /// None is begun with.
    Stop(Told),
    /// Earlier restarts have left something.
    Sweep(Option<Deed>),
    /// None is left.
    Finish,
}

/// The first rule that says something.
fn choose(cx: Cx<'_>, rollout: &Rollout, memory: &Memory, workload: &Workload) -> Step {
    let spec = &rollout.spec;
    let failed = u32::try_from(memory.failed.len()).unwrap_or(u32::MAX);
    if memory.waits.is_empty() {
        return match failed {
            _ if !memory.started.is_empty() => Step::Stop(Told::Restarting),
            0 => Step::Finish,
            _ => Step::Stop(Told::PodsFailed),
        };
    }
    if failed >= spec.failure_threshold() {
        return Step::Stop(Told::PodsFailed);
    }
    if spec.paused {
        return Step::Stop(Told::Paused);
    }
    let current = memory.tally().current;
    let begun = memory.started.len().saturating_add(current).saturating_add(memory.failed.len());
    let canary = spec.canary().map(|canary| usize::try_from(canary.pods).unwrap_or(1));
    if canary.is_some_and(|pods| begun >= pods && current < pods) {
        let fails = memory.started.is_empty();
        return Step::Stop(if fails { Told::PodsFailed } else { Told::Canary });
    }
    let Some(room) = room(rollout, memory, workload) else {
        return Step::Stop(Told::NeedsUnavailability);
    };
    // What is broken anyway costs nothing.
    let next = match room {
        Room::Free => memory.next(&memory.waits, cx.now),
        Room::Used(_) => memory.next(&memory.broken, cx.now),
        Room::Full => None,
    };
    match (next, room) {
        (Some(pod), _) => {
            Step::Begin(pod.clone(), soak(rollout, workload, canary.is_some_and(|pods| begun < pods)))
        }
        (None, Room::Free) => Step::Stop(memory.refusal(None).map_or(Told::Restarting, Told::Refused)),
        (None, Room::Used(told)) if memory.started.is_empty() => Step::Stop(told),
        (None, Room::Used(_) | Room::Full) => Step::Stop(Told::Restarting),
    }
}

/// How much room there is for another Pod to be unavailable.
enum Room {
    /// Some.
    Free,
    /// As many Pods of the workload are unavailable as may be, for this reason.
    Used(Told),
    /// As many are being restarted as may be at all.
    Full,
}

/// How much there is; absent where no Pod may ever be unavailable.
fn room(rollout: &Rollout, memory: &Memory, workload: &Workload) -> Option<Room> {
    let own = rollout.spec.strategy.as_ref().and_then(|strategy| strategy.max_unavailable.as_ref());
    let most = own.map_or(workload.max_unavailable, |own| own.of(workload.desired));
    let available = u32::try_from(memory.tally().available).unwrap_or(u32::MAX);
    let unavailable = workload.desired.saturating_sub(available);
    (most > 0).then(|| match disrupted(memory, workload) {
        _ if memory.started.len() >= MOST_STARTED => Room::Full,
        _ if unavailable >= most => Room::Used(Told::Budget { unavailable, most }),
        Some(disrupted) => Room::Used(Told::Disruption(disrupted)),
        None => Room::Free,
    })
}

/// The first disruption budget by which no further Pod may be unavailable.
fn disrupted(memory: &Memory, workload: &Workload) -> Option<Disrupted> {
    let count = |pods: usize| u32::try_from(pods).unwrap_or(u32::MAX);
    let Tally { available, ready, all, .. } = memory.tally();
    // Of the Pods that the budget's controller has counted, one that is gone since is the workload's still.
    let all = count(all).max(workload.desired);
    workload.budgets.iter().find_map(|budget| {
        let healthy = budget.healthy(count(available), count(ready), all);
        let stops = budget.desired_healthy.is_none_or(|desired| healthy <= desired);
        stops.then(|| Disrupted { name: budget.name.clone(), desired: budget.desired_healthy, healthy })
    })
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
        let restarted_at = Some(asked.clone());
        return Next { restart: None, restarted_at, ..Next::only(rollout, Told::Restarted) };
    }
    memory.listed = None;
    let again_at = read_at.after(LIST_AGAIN);
    let deed = (first || again_at <= cx.now).then(|| ask(sight, memory, asked, true)).flatten();
    let wake_at = Some(again_at).filter(|at| *at > cx.now);
    Next { deed, wake_at, ..Next::only(rollout, Told::Restarting) }
}
