//! How far a Pod is with a restart or an update.

use pitstop_api::rollout::TargetKind;

use super::work::{Step, Task, Work, revision_of};
use super::{Rollout, child};
use crate::kind::Relative;
use crate::pod::Pod;

/// The order of Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Lower numbers go first: the highest ordinal has the lowest number, or the highest if Pods go back.
    Ordinal(u32),
    /// The Pod is not available, so nothing is lost.
    Broken,
    /// The Pod is available. The first Pod of each node goes first, then the second. If Pods go back, the last Pod of
    /// each node goes first.
    Available(u32),
}

/// How far a Pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not part of the work, but its availability counts.
    Other,
    /// Waits for its turn.
    Waits(Rank),
    /// Its request is open.
    Started,
    /// Updated, but not marked yet.
    Unmarked,
    /// Done.
    Current,
    /// Failed, for this reason if its request does not say why.
    Failed(String),
    /// Cannot get what the template changed, for this reason.
    NotInPlace(String),
}

/// What is known of the requests for a Pod.
pub(super) struct Requests<'a> {
    /// The current or next step. Err: why none is possible.
    pub(super) step: Result<Option<Step<'a>>, String>,
    /// A request was made and is not suspended, which the watch has not shown yet.
    pub(super) made: bool,
    /// Another owner's request has begun.
    pub(super) others: bool,
    /// A request for this work has succeeded.
    pub(super) done: bool,
}

/// How far the Pod is. `number_on_node`: its number among its node's Pods.
pub(super) fn stage(
    rollout: &Rollout,
    work: &Work<'_>,
    pod: &Pod,
    requests: &Requests<'_>,
    number_on_node: Option<u32>,
) -> Stage {
    let step = match &requests.step {
        Ok(step) => step.as_ref(),
        Err(_) if pod.gone() => return Stage::Other,
        // No controller replaces a selected Pod.
        Err(why) if rollout.spec.selector.is_some() => return Stage::Failed(why.clone()),
        Err(why) => return Stage::NotInPlace(why.clone()),
    };
    let request = step.and_then(|step| step.request.as_ref());
    let kept = ordinal(rollout, &pod.key.name).is_some_and(|ordinal| ordinal < work.partition);
    // Begun work goes on, whatever the kubelet says of the containers, and finished work stays finished.
    let restarted = step.is_none() && matches!(work.task, Task::Restart(_));
    let suspended = request.filter(|request| request.suspended && !requests.made);
    let begun = restarted || requests.made || request.is_some() && suspended.is_none();
    if pod.gone() || (kept && !begun) {
        return Stage::Other;
    }
    let rank = || rank(rollout, work, pod, number_on_node);
    match &work.task {
        Task::Restart(restart) => {
            let newest = restart.newest_pod.map(|newest| newest.timestamp());
            let late = newest.is_none_or(|newest| pod.created > newest);
            if late || !(begun || child::containers(rollout, pod).next().is_some()) {
                return Stage::Other;
            }
            step.map_or(Stage::Current, |_| of_request(rollout, rank, request, requests.made))
        }
        // The Pod may have changed when that request ends.
        Task::Update(_) if requests.others && (request.is_none() || suspended.is_some()) => Stage::Started,
        Task::Update(revisions) => match step {
            Some(_) => of_request(rollout, rank, request, requests.made),
            None if revisions.is_target(revision_of(rollout, pod)) => Stage::Current,
            // Until the ReplicaSet has the template, only the request proves the update. When Pods go back, the
            // ReplicaSet gets nothing.
            None if requests.done && !work.back && revisions.becomes_target(revision_of(rollout, pod)) => {
                Stage::Current
            }
            None => Stage::Unmarked,
        },
    }
}

/// The Pod's position in the order. The Pod that was updated last goes back first.
fn rank(rollout: &Rollout, work: &Work<'_>, pod: &Pod, number_on_node: Option<u32>) -> Rank {
    let turn = |first: u32, back: u32| if work.back { back } else { first };
    match (ordinal(rollout, &pod.key.name), number_on_node.unwrap_or_default()) {
        (Some(ordinal), _) => Rank::Ordinal(turn(u32::MAX.saturating_sub(ordinal), ordinal)),
        (None, number) if pod.ready => Rank::Available(turn(number, u32::MAX.saturating_sub(number))),
        (None, _) => Rank::Broken,
    }
}

fn of_request(
    rollout: &Rollout,
    rank: impl Fn() -> Rank,
    request: Option<&Relative<'_>>,
    made: bool,
) -> Stage {
    let waits = || Stage::Waits(rank());
    match request {
        None if made => Stage::Started,
        None => waits(),
        // Another owner's object has the name.
        Some(request) if !request.is_of(&rollout.uid) => Stage::Failed(String::new()),
        Some(request) => match request.ended {
            None if request.suspended && !made => waits(),
            None => Stage::Started,
            Some(ended) if ended.complete => Stage::Current,
            Some(_) => Stage::Failed(String::new()),
        },
    }
}

/// The ordinal of a `StatefulSet`'s Pod, from its name.
pub(super) fn ordinal(rollout: &Rollout, pod: &str) -> Option<u32> {
    let target = rollout.spec.target_ref.as_ref()?;
    let sets = target.kind == TargetKind::StatefulSet;
    let rest = pod.strip_prefix(&target.name).filter(|_| sets)?;
    rest.strip_prefix('-')?.parse().ok()
}
