//! How memory limits are lowered (`memoryShrink`): step by step, as far as the memory in use allows.

use std::borrow::Cow;

use pitstop_api::quantity::{Resource, Resources};
use pitstop_api::resize::{ContainerStatus, PodResizeSpec, Values};

use super::judge::{self, SpecState, desired, original};
use super::nudge::{nudged, stepped};
use super::observe::Resize;
use crate::pod::Pod;

/// Maximum number of steps to lower a limit. Each step is a patch of the Pod.
const MAX_STEPS: i64 = 100;

/// Bytes that a lower limit leaves free above the memory in use; `None` without `memoryShrink`.
pub(super) fn margin(spec: &PodResizeSpec) -> Option<i64> {
    let shrink = spec.memory_shrink.as_ref()?;
    Some(shrink.margin.as_deref().and_then(|text| Resource::Memory.parse(text)).unwrap_or_default())
}

/// Whether the kernel should reclaim memory if a lower limit has no room.
pub(super) fn reclaims(spec: &PodResizeSpec) -> bool {
    spec.memory_shrink.as_ref().is_some_and(|shrink| shrink.reclaim)
}

/// Bytes by which a step lowers a limit; `None` if one step does all.
fn step(spec: &PodResizeSpec) -> Option<i64> {
    let text = spec.memory_shrink.as_ref()?.step.as_deref()?;
    Resource::Memory.parse(text).filter(|step| *step > 0)
}

/// Old and new memory limit, if it is lowered. A container that restarts for it frees its memory anyway.
fn limit_drop(container: &ContainerStatus) -> Option<(i64, i64)> {
    let limits = original(container).memory_limit.zip(desired(container).memory_limit);
    limits.filter(|(from, to)| from > to && !container.restarts)
}

/// Number of steps of that size between the two limits.
fn step_count(from: i64, to: i64, step: i64) -> i64 {
    let bytes = from.saturating_sub(to).max(0);
    bytes.saturating_add(step).saturating_sub(1).checked_div(step).unwrap_or(1)
}

/// Text of the refusal if a limit needs more than [`MAX_STEPS`].
pub(super) fn too_many(spec: &PodResizeSpec, containers: &[ContainerStatus]) -> Option<String> {
    let step = step(spec)?;
    let of =
        |c: &ContainerStatus| limit_drop(c).map(|(from, to)| (c.name.clone(), step_count(from, to, step)));
    let (name, steps) = containers.iter().filter_map(of).find(|(_, steps)| *steps > MAX_STEPS)?;
    Some(format!(
        "spec.memoryShrink.step: the memory limit of container {name} would be lowered in {steps} steps; at most {MAX_STEPS} are made"
    ))
}

/// Resources of a container after this many steps. The first step makes all other changes too.
fn after(spec: &PodResizeSpec, container: &ContainerStatus, steps: i64) -> Resources {
    let (from, mut to) = (original(container), desired(container));
    if steps == 0 {
        return from;
    }
    if let Some(((first, last), step)) = limit_drop(container).zip(step(spec)) {
        let limit = first.saturating_sub(step.saturating_mul(steps)).max(last);
        // Request and limit that are equal before and afterwards stay equal: the Pod's QoS class cannot change.
        let equal = from.memory_request == from.memory_limit && to.memory_request == to.memory_limit;
        if equal {
            to.memory_request = Some(limit);
        }
        to.memory_limit = Some(limit);
    }
    to
}

/// State of the Pod's spec.
pub(super) fn spec_state(resize: &Resize, pod: &Pod) -> SpecState {
    let containers = &resize.status.containers;
    let known = judge::spec_state(containers, pod);
    let SpecState::Other(_) = &known else { return known };
    if let Some(nudge) = nudged(resize, pod) {
        return SpecState::Nudged(nudge);
    }
    let Some(step) = step(&resize.spec) else { return known };
    let taken = |c: &ContainerStatus| {
        let (from, _) = limit_drop(c)?;
        Some(step_count(from, pod.container(&c.name)?.resources.memory_limit?, step))
    };
    let steps = containers.iter().filter_map(taken).max().unwrap_or_default();
    let applied = |c: &ContainerStatus| {
        pod.container(&c.name).is_some_and(|found| found.resources == after(&resize.spec, c, steps))
    };
    if containers.iter().all(applied) { SpecState::Between(steps) } else { known }
}

/// The containers, with the resources of this state as `desired`.
pub(super) fn containers<'a>(resize: &'a Resize, state: &SpecState) -> Cow<'a, [ContainerStatus]> {
    let resources = |c: &ContainerStatus| match state {
        SpecState::Between(steps) => after(&resize.spec, c, *steps),
        SpecState::Nudged(nudge) => stepped(c, nudge).unwrap_or_else(|| desired(c)),
        SpecState::Original | SpecState::Desired | SpecState::Other(_) => desired(c),
    };
    if !matches!(state, SpecState::Between(_) | SpecState::Nudged(_)) {
        return Cow::Borrowed(&resize.status.containers);
    }
    let of = |c: &ContainerStatus| ContainerStatus { desired: Values::from(&resources(c)), ..c.clone() };
    Cow::Owned(resize.status.containers.iter().map(of).collect())
}

/// Resources of a container in this state, and after the next step.
pub(super) fn next_step(
    resize: &Resize,
    container: &ContainerStatus,
    state: &SpecState,
) -> (Resources, Resources) {
    let steps = if let SpecState::Between(steps) = state { *steps } else { 0 };
    (after(&resize.spec, container, steps), after(&resize.spec, container, steps.saturating_add(1)))
}

/// Containers whose memory limit the next step lowers, and the new limit in bytes.
pub(super) fn lowered<'a>(
    resize: &'a Resize,
    state: &SpecState,
) -> impl Iterator<Item = (&'a ContainerStatus, i64)> {
    resize.status.containers.iter().filter_map(move |c| {
        limit_drop(c)?;
        let (from, to) = next_step(resize, c, state);
        let limit = to.memory_limit.filter(|to| from.memory_limit.is_some_and(|from| from > *to))?;
        Some((c, limit))
    })
}
