//! Chooses the next Pod.

use super::Rollout;
use super::plan::soak;
use super::report::{ExhaustedBudget, Report};
use super::roll::Memory;
use super::sorted::Tally;
use super::work::Work;
use crate::deed::Deed;
use crate::key::ObjectKey;
use crate::kind::Cx;
use crate::workload::Workload;

/// Most Pods that are restarted at a time, whatever the budget allows.
const MOST_STARTED: usize = 100;
/// Number of waves of Pods for which nodes pull ahead.
const WAVES_AHEAD: usize = 2;
/// Most Pods for which nodes pull ahead.
const MOST_AHEAD: usize = 50;

/// Whether the rollout waits for Pods, not for a user.
pub(super) fn waits_for_pods(report: &Report) -> bool {
    matches!(
        report,
        Report::Restarting
            | Report::Updating
            | Report::RollingBack
            | Report::Canary
            | Report::Budget { .. }
            | Report::Disruption(_)
            | Report::Refused(_)
    )
}

/// The next step.
pub(super) enum Choice {
    /// Restart or update this Pod. The number: seconds that its new containers must run.
    Begin(ObjectKey, i64),
    /// Make this Pod's node pull ahead; report this meanwhile.
    Pull(ObjectKey, Report),
    /// Mark this Pod, which is updated.
    Mark(ObjectKey),
    /// Begin with no Pod, for this reason.
    Stop(Report),
    /// Earlier restarts or updates left requests. None: wait for them.
    Sweep(Option<Deed>),
    /// No Pod is left.
    Finish,
}

/// Chooses the next step. Another Pod begins before finished Pods are marked, since it takes longer.
pub(super) fn choose(
    cx: Cx<'_>,
    rollout: &Rollout,
    memory: &Memory,
    workload: &Workload,
    work: &Work<'_>,
) -> Choice {
    let choice = match (begin_next(cx, rollout, memory, workload, work.back), memory.tried_again()) {
        (Choice::Stop(report), Some(text)) if waits_for_pods(&report) => Choice::Stop(Report::Refused(text)),
        (choice, _) => choice,
    };
    let mark = || memory.next_unmarked(cx.now).map(|pod| Choice::Mark(pod.clone()));
    match choice {
        Choice::Stop(report) if waits_for_pods(&report) => {
            // Nodes still have the images that Pods go back to.
            let pull = next_to_pull(cx, rollout, memory, workload).filter(|_| !work.back);
            match pull {
                Some(pod) => Choice::Pull(pod.clone(), report),
                None => mark().unwrap_or(Choice::Stop(report)),
            }
        }
        Choice::Begin(..) => choice,
        choice => mark().unwrap_or(choice),
    }
}

/// The next Pod whose node pulls ahead, for as many Pods as two waves have. The canary is watched longer, so no request
/// for it is made ahead.
fn next_to_pull<'a>(
    cx: Cx<'_>,
    rollout: &Rollout,
    memory: &'a Memory,
    workload: &Workload,
) -> Option<&'a ObjectKey> {
    let begun = begun(memory);
    let canary = rollout
        .spec
        .canary()
        .is_none_or(|canary| usize::try_from(canary.pods).is_ok_and(|pods| begun >= pods));
    // Other requests of the namespace count too.
    let own = cx.config.max_open_requests_per_namespace.map_or(MOST_AHEAD, |most| most / 4);
    let wave = most_unavailable(rollout, workload, desired(memory, workload));
    let wave = usize::try_from(wave).unwrap_or(MOST_AHEAD);
    let most = wave.saturating_mul(WAVES_AHEAD).min(MOST_AHEAD).min(own);
    memory.next_to_pull(cx.now, most).filter(|_| canary && !memory.late)
}

/// How many Pods have begun.
fn begun(memory: &Memory) -> usize {
    let done = memory.tally().current.saturating_add(memory.sorted.failed.len());
    memory.open().saturating_add(memory.sorted.unmarked.len()).saturating_add(done)
}

/// Applies the first rule that matches.
fn begin_next(cx: Cx<'_>, rollout: &Rollout, memory: &Memory, workload: &Workload, back: bool) -> Choice {
    let spec = &rollout.spec;
    let failed = u32::try_from(memory.sorted.failed.len()).unwrap_or(u32::MAX);
    // If untouched Pods fail too, the change is not the cause.
    let lost = !memory.sorted.lost.is_empty();
    let fails = || Choice::Stop(if lost { Report::UntouchedPodsFail } else { Report::PodsFailed });
    if memory.sorted.waits.is_empty() {
        return match failed {
            _ if memory.open() > 0 => Choice::Stop(Report::Restarting),
            _ if !memory.sorted.unmarked.is_empty() => {
                Choice::Stop(memory.refusal(None).map_or(Report::Restarting, Report::Refused))
            }
            0 => Choice::Finish,
            _ => fails(),
        };
    }
    if failed >= spec.failure_threshold() && !back {
        return fails();
    }
    if spec.paused {
        return Choice::Stop(Report::Paused);
    }
    let (current, begun) = (memory.tally().current, begun(memory));
    let canary = spec.canary().filter(|_| !back).map(|canary| usize::try_from(canary.pods).unwrap_or(1));
    if canary.is_some_and(|pods| begun >= pods && current < pods) {
        let over = memory.open() == 0 && memory.sorted.unmarked.is_empty();
        return if over { fails() } else { Choice::Stop(Report::Canary) };
    }
    let Some(room) = room(rollout, memory, workload) else {
        return Choice::Stop(Report::NeedsUnavailability);
    };
    // A Pod that is already unavailable costs nothing.
    let next = match room {
        Room::Free => memory.next(&memory.sorted.waits, cx.now),
        Room::Used(_) => memory.next(&memory.sorted.broken, cx.now),
        Room::Full => None,
    };
    match (next, room) {
        (Some(pod), _) => {
            Choice::Begin(pod.clone(), soak(rollout, workload, canary.is_some_and(|pods| begun < pods)))
        }
        (None, Room::Free) => Choice::Stop(memory.refusal(None).map_or(Report::Restarting, Report::Refused)),
        (None, Room::Used(report)) if memory.open() == 0 => Choice::Stop(report),
        (None, Room::Used(_) | Room::Full) => Choice::Stop(Report::Restarting),
    }
}

/// Room for another unavailable Pod.
enum Room {
    /// Another Pod may begin.
    Free,
    /// The budget is used up, for this reason.
    Used(Report),
    /// [`MOST_STARTED`] Pods are being restarted.
    Full,
}

/// How many Pods are to exist. Only the maker of selected Pods knows that, so the existing ones count.
fn desired(memory: &Memory, workload: &Workload) -> u32 {
    if workload.labels.is_empty() {
        return workload.desired;
    }
    u32::try_from(memory.tally().all).unwrap_or(u32::MAX)
}

/// How many Pods of the workload may be unavailable.
fn most_unavailable(rollout: &Rollout, workload: &Workload, desired: u32) -> u32 {
    let own = rollout.spec.strategy.as_ref().and_then(|strategy| strategy.max_unavailable.as_ref());
    own.map_or(workload.max_unavailable, |own| own.of(desired))
}

/// The room for another Pod. None if no Pod may ever be unavailable.
fn room(rollout: &Rollout, memory: &Memory, workload: &Workload) -> Option<Room> {
    let desired = desired(memory, workload);
    let most = most_unavailable(rollout, workload, desired);
    let available = u32::try_from(memory.tally().available).unwrap_or(u32::MAX);
    let unavailable = desired.saturating_sub(available);
    (most > 0).then(|| match exhausted_budget(memory, workload) {
        _ if memory.open() >= MOST_STARTED => Room::Full,
        _ if unavailable >= most => Room::Used(Report::Budget { unavailable, most }),
        Some(budget) => Room::Used(Report::Disruption(budget)),
        None => Room::Free,
    })
}

/// The first disruption budget that allows no further unavailable Pod.
fn exhausted_budget(memory: &Memory, workload: &Workload) -> Option<ExhaustedBudget> {
    let count = |pods: usize| u32::try_from(pods).unwrap_or(u32::MAX);
    let Tally { available, ready, all, .. } = memory.tally();
    // The budget's controller may still count a Pod of this workload that is gone.
    let all = count(all).max(workload.desired);
    workload.budgets.iter().flatten().find_map(|budget| {
        let healthy = budget.healthy(count(available), count(ready), all);
        let stops = budget.desired_healthy.is_none_or(|desired| healthy <= desired);
        stops.then(|| ExhaustedBudget { name: budget.name.clone(), desired: budget.desired_healthy, healthy })
    })
}
