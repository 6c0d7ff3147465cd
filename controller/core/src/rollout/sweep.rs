//! Deletes the requests that restarts and updates left, one after another.

use std::borrow::Cow;
use std::time::Duration;

use pitstop_api::rollout::{TargetKind, UpdateEnd};

use super::Rollout;
use super::child::{self, KINDS, RESTARTS, UPDATES};
use super::choose::Choice;
use super::roll::Memory;
use super::work;
use crate::deed::Deed;
use crate::key::KindId;
use crate::kind::{Cx, Relative, Sight};
use crate::pod::Pod;
use crate::workload::{UNKNOWN, revision_hash};

/// How long a restart waits for open requests of an earlier one.
const SWEEP_WAITS: Duration = Duration::from_mins(5);

/// Deletes the next of those requests. The watch may still show one that was deleted. If only the request shows that it
/// may have changed a Pod, the Pod is marked first.
pub(super) fn delete(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &Memory,
    which: impl Fn(&Relative<'_>) -> bool,
) -> Option<Deed> {
    let left = children(sight).filter(|(_, child)| stays(cx, sight, memory, child) && which(child));
    left.into_iter().find_map(|(kind, child)| {
        match changed_pod(sight, kind, &child).filter(|_| !is_idle(sight, memory, &child)) {
            Some(pod) if memory.may_mark(&pod.key, cx.now) => Some(work::mark(sight.request, &pod, UNKNOWN)),
            Some(_) => None,
            None => Some(deletion(kind, &child)),
        }
    })
}

fn deletion(kind: KindId, child: &Relative<'_>) -> Deed {
    Deed::Delete { kind, key: child.key.clone(), uid: child.uid.to_owned() }
}

/// Whether the request has not been deleted yet.
fn stays(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &Memory, child: &Relative<'_>) -> bool {
    let now = |deed: &Deed| matches!(deed, Deed::Delete { uid, .. } if uid == child.uid);
    !child.deleting && !memory.unshown.has_deleted(cx.now, child.uid) && !sight.doing.iter().any(now)
}

/// Forgets deleted requests once no request is left.
pub(super) fn forget_deleted(sight: &Sight<'_, Rollout>, memory: &mut Memory) {
    if children(sight).next().is_none() {
        memory.unshown.forget_deleted();
    }
}

/// The Pod that the request may have changed, if only the request shows it. No revision of a `Deployment` is kept.
fn changed_pod<'a>(sight: &Sight<'a, Rollout>, kind: KindId, child: &Relative<'_>) -> Option<Cow<'a, Pod>> {
    let rollout = sight.request;
    let of = rollout.spec.kind();
    if !matches!(of, None | Some(TargetKind::Deployment)) || kind == RESTARTS {
        return None;
    }
    let pod = sight.lookup.pod(&sight.lookup.pod_of(kind, child.key)?)?;
    let has = work::revision_of(rollout, &pod);
    // The request succeeded, and the Pod is as its update wants, by its mark or by the template of its ReplicaSet.
    let is = rollout.status.update.as_ref().is_some_and(|update| {
        let complete = child.ended.is_some_and(|ended| ended.complete);
        let gave = |revision: &str| complete && child::is_of(&work::update_id(rollout, revision), child.key);
        let is = |revision: &str, of_set: bool| {
            gave(revision) && (has == revision_hash(revision) || has == 0 && of.is_some() && of_set)
        };
        is(&update.revision, update.ended == Some(UpdateEnd::Updated))
            || update.from.as_deref().is_some_and(|from| is(from, true))
    });
    (!is && has != revision_hash(UNKNOWN) && !pod.gone()).then_some(pod)
}

/// Deletes the next request that pulls ahead.
pub(super) fn withdraw(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &Memory) -> Option<Deed> {
    let (lookup, work_id) = (sight.lookup, memory.work_id()?);
    memory.sorted.ahead.iter().find_map(|pod| {
        let request = lookup.relative(UPDATES, &child::key(work_id, &*lookup.pod(pod)?))?;
        let idle = is_idle(sight, memory, &request) && stays(cx, sight, memory, &request);
        idle.then(|| deletion(UPDATES, &request))
    })
}

/// Whether the request is suspended, and no write may have resumed it.
fn is_idle(sight: &Sight<'_, Rollout>, memory: &Memory, child: &Relative<'_>) -> bool {
    let now = |deed: &Deed| matches!(deed, Deed::Resume { key, .. } if key == child.key);
    child.suspended && !memory.unshown.is_resumed(child) && !sight.doing.iter().any(now)
}

/// The rollout's own requests, and their kinds.
fn children<'a>(sight: &Sight<'a, Rollout>) -> impl Iterator<Item = (KindId, Relative<'a>)> {
    let lookup = sight.lookup;
    KINDS.into_iter().flat_map(move |kind| lookup.children(kind).map(move |child| (kind, child)))
}

/// Whether requests of another restart or update may still change Pods.
pub(super) fn has_others(sight: &Sight<'_, Rollout>, memory: &Memory, work_id: &str) -> bool {
    let mut others = children(sight).filter(|(_, child)| !is_idle(sight, memory, child));
    others.any(|(_, other)| !child::is_of(work_id, other.key))
}

/// Deletes what earlier restarts and updates left. Waits for open requests: a Pod whose stop has begun becomes
/// unavailable soon.
pub(super) fn sweep(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    work_id: &str,
) -> Option<Choice> {
    if memory.swept {
        return None;
    }
    let until = *memory.sweep_until.get_or_insert(cx.now.after(SWEEP_WAITS));
    let patient = until > cx.now;
    let old = |child: &Relative<'_>| !child::is_of(work_id, child.key);
    let idle = |child: &Relative<'_>| is_idle(sight, memory, child);
    let over = |child: &Relative<'_>| child.ended.is_some() || idle(child);
    if let Some(deed) = delete(cx, sight, memory, |child| old(child) && (over(child) || !patient)) {
        return Some(Choice::Sweep(Some(deed)));
    }
    let open = |kind, child: &Relative<'_>| {
        let waits = patient && child.ended.is_none() || changed_pod(sight, kind, child).is_some();
        old(child) && !child.deleting && !idle(child) && waits
    };
    let waits = memory.unshown.has_made_others(sight.doing, work_id);
    memory.swept = !waits && !children(sight).any(|(kind, child)| open(kind, &child));
    (!memory.swept).then_some(Choice::Sweep(None))
}
