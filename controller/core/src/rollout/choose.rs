//! Which Pod is next.

use super::Rollout;
use super::plan::soak;
use super::roll::Memory;
use super::sorted::Tally;
use super::told::{Disrupted, Told};
use super::work::Work;
use crate::deed::Deed;
use crate::key::ObjectKey;
use crate::kind::Cx;
use crate::workload::Workload;

/// Most Pods that are being restarted at a time, whatever the budget says.
const MOST_STARTED: usize = 100;
/// For how many waves of Pods images are pulled ahead.
const WAVES_AHEAD: usize = 2;
/// For how many Pods at most.
const MOST_AHEAD: usize = 50;

/// It waits for Pods, and not for somebody to see to it.
pub(super) fn waits_for_pods(told: &Told) -> bool {
    matches!(
        told,
        Told::Restarting
            | Told::Updating
            | Told::RollingBack
            | Told::Canary
            | Told::Budget { .. }
            | Told::Disruption(_)
            | Told::Refused(_)
    )
}

/// The next step with the Pods.
pub(super) enum Step {
    /// Restart or update that one, whose new containers must run for so many seconds.
    Begin(ObjectKey, i64),
    /// Have the node of that one pull its images ahead; what is told meanwhile.
    Pull(ObjectKey, Told),
    /// Tell its controller of that one, which is updated.
    Mark(ObjectKey),
    /// None is begun with.
    Stop(Told),
    /// Earlier restarts or updates have left something.
    Sweep(Option<Deed>),
    /// None is left.
    Finish,
}

/// Another Pod is begun with before controllers are told of those that are done: that takes longer.
pub(super) fn choose(
    cx: Cx<'_>,
    rollout: &Rollout,
    memory: &Memory,
    workload: &Workload,
    work: &Work<'_>,
) -> Step {
    let step = match (begin_next(cx, rollout, memory, workload, work.back), memory.tried_again()) {
        (Step::Stop(told), Some(text)) if waits_for_pods(&told) => Step::Stop(Told::Refused(text)),
        (step, _) => step,
    };
    let mark = || memory.next_unmarked(cx.now).map(|pod| Step::Mark(pod.clone()));
    match step {
        Step::Stop(told) if waits_for_pods(&told) => {
            // What a Pod had before, its node has.
            let pull = next_to_pull(cx, rollout, memory, workload).filter(|_| !work.back);
            match pull {
                Some(pod) => Step::Pull(pod.clone(), told),
                None => mark().unwrap_or(Step::Stop(told)),
            }
        }
        Step::Begin(..) => step,
        step => mark().unwrap_or(step),
    }
}

/// The next Pod whose node pulls its images before there is room for the Pod: of as many as two waves are. The first Pods are watched
/// longer than others, so that no request for one is made ahead.
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
    // Others of the namespace have places, too.
    let own = cx.config.max_open_requests_per_namespace.map_or(MOST_AHEAD, |most| most / 4);
    let wave = most_unavailable(rollout, workload, desired(memory, workload));
    let wave = usize::try_from(wave).unwrap_or(MOST_AHEAD);
    let most = wave.saturating_mul(WAVES_AHEAD).min(MOST_AHEAD).min(own);
    memory.next_to_pull(cx.now, most).filter(|_| canary && !memory.late)
}

/// How many Pods were begun with.
fn begun(memory: &Memory) -> usize {
    let done = memory.tally().current.saturating_add(memory.sorted.failed.len());
    memory.open().saturating_add(memory.sorted.unmarked.len()).saturating_add(done)
}

/// The first rule that says something.
fn begin_next(cx: Cx<'_>, rollout: &Rollout, memory: &Memory, workload: &Workload, back: bool) -> Step {
    let spec = &rollout.spec;
    let failed = u32::try_from(memory.sorted.failed.len()).unwrap_or(u32::MAX);
    // If others fail, too, it is not what the Pods got.
    let lost = !memory.sorted.lost.is_empty();
    let fails = || Step::Stop(if lost { Told::UntouchedPodsFail } else { Told::PodsFailed });
    if memory.sorted.waits.is_empty() {
        return match failed {
            _ if memory.open() > 0 => Step::Stop(Told::Restarting),
            _ if !memory.sorted.unmarked.is_empty() => {
                Step::Stop(memory.refusal(None).map_or(Told::Restarting, Told::Refused))
            }
            0 => Step::Finish,
            _ => fails(),
        };
    }
    if failed >= spec.failure_threshold() && !back {
        return fails();
    }
    if spec.paused {
        return Step::Stop(Told::Paused);
    }
    let (current, begun) = (memory.tally().current, begun(memory));
    let canary = spec.canary().filter(|_| !back).map(|canary| usize::try_from(canary.pods).unwrap_or(1));
    if canary.is_some_and(|pods| begun >= pods && current < pods) {
        let over = memory.open() == 0 && memory.sorted.unmarked.is_empty();
        return if over { fails() } else { Step::Stop(Told::Canary) };
    }
    let Some(room) = room(rollout, memory, workload) else {
        return Step::Stop(Told::NeedsUnavailability);
    };
    // What is broken anyway costs nothing.
    let next = match room {
        Room::Free => memory.next(&memory.sorted.waits, cx.now),
        Room::Used(_) => memory.next(&memory.sorted.broken, cx.now),
        Room::Full => None,
    };
    match (next, room) {
        (Some(pod), _) => {
            Step::Begin(pod.clone(), soak(rollout, workload, canary.is_some_and(|pods| begun < pods)))
        }
        (None, Room::Free) => Step::Stop(memory.refusal(None).map_or(Told::Restarting, Told::Refused)),
        (None, Room::Used(told)) if memory.open() == 0 => Step::Stop(told),
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

/// How many Pods there are to be. Of selected ones, nobody knows but who makes them.
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

/// How much there is; absent where no Pod may ever be unavailable.
fn room(rollout: &Rollout, memory: &Memory, workload: &Workload) -> Option<Room> {
    let desired = desired(memory, workload);
    let most = most_unavailable(rollout, workload, desired);
    let available = u32::try_from(memory.tally().available).unwrap_or(u32::MAX);
    let unavailable = desired.saturating_sub(available);
    (most > 0).then(|| match disrupted(memory, workload) {
        _ if memory.open() >= MOST_STARTED => Room::Full,
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
    workload.budgets.iter().flatten().find_map(|budget| {
        let healthy = budget.healthy(count(available), count(ready), all);
        let stops = budget.desired_healthy.is_none_or(|desired| healthy <= desired);
        stops.then(|| Disrupted { name: budget.name.clone(), desired: budget.desired_healthy, healthy })
    })
}
