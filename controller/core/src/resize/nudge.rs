//! The smallest change of a Pod, there and back, for which its kubelet writes the cgroup of the Pod.
//!
//! A kubelet that has left that cgroup as it was (kubernetes#138760) writes it at the next resize of a container that
//! runs: CPU when the container's CPU changes, memory when its memory does (`doPodResizeAction`, Kubernetes 1.33 to 1.36).
//! The step is one millicore, or one byte. It goes up first: what is taken back then is less, so a node that has filled
//! meanwhile cannot refuse the way back.

use pitstop_api::quantity::Resources;
use pitstop_api::resize::ContainerStatus;

use super::judge::{desired, original};
use super::observe::Resize;
use super::status::KERNEL_DIFFERS;
use super::verify::Low;
use crate::pod::{ContainerState, Pod};

/// Which container is changed, and which of its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nudge {
    pub(super) container: String,
    pub(super) cpu: bool,
    pub(super) memory: bool,
}

/// The smallest page (`page_counter` of the kernel cuts limits to whole ones): one byte more than a multiple changes
/// nothing in the kernel, so what is in use cannot be in the way of taking it back.
const PAGE: i64 = 4096;

/// One more of it. A request that equals the limit takes the limit along, since the class of the Pod cannot change.
fn raised(request: Option<i64>, limit: Option<i64>) -> Option<(i64, Option<i64>)> {
    let request = request?;
    let more = request.checked_add(1)?;
    Some((more, limit.map(|limit| if limit == request { more } else { limit })))
}

/// What a container has after the step; absent where it cannot be made.
pub(super) fn stepped(container: &ContainerStatus, nudge: &Nudge) -> Option<Resources> {
    let mut to = desired(container);
    if container.name != nudge.container {
        return Some(to);
    }
    if nudge.cpu {
        let (request, limit) = raised(to.cpu_request, to.cpu_limit)?;
        (to.cpu_request, to.cpu_limit) = (Some(request), limit);
    }
    if nudge.memory {
        let (request, limit) = raised(to.memory_request, to.memory_limit)?;
        (to.memory_request, to.memory_limit) = (Some(request), limit);
    }
    Some(to)
}

/// The step that the Pod's spec is at, if it is. Only who has told of a difference has made one.
pub(super) fn nudged(resize: &Resize, pod: &Pod) -> Option<Nudge> {
    if !resize.waits_for(KERNEL_DIFFERS) && resize.status.restoring.is_none() {
        return None;
    }
    let all = &resize.status.containers;
    let found = |c: &ContainerStatus| pod.container(&c.name).map(|found| found.resources);
    let other = all.iter().find(|c| found(c) != Some(desired(c)))?;
    let steps = [(true, false), (false, true), (true, true)];
    let steps = steps.map(|(cpu, memory)| Nudge { container: other.name.clone(), cpu, memory });
    steps.into_iter().find(|nudge| all.iter().all(|c| stepped(c, nudge) == found(c)))
}

/// The step that makes the kubelet write what is low, in a container where it restarts nothing.
pub(super) fn choose(resize: &Resize, pod: &Pod, low: &Low) -> Option<Nudge> {
    let all = &resize.status.containers;
    let first = all.iter().filter(|c| c.name == low.container);
    let others = all.iter().filter(|c| c.name != low.container);
    let nudge = |c: &ContainerStatus| Nudge { container: c.name.clone(), cpu: low.cpu, memory: low.memory };
    first
        .chain(others)
        .map(|c| (c, nudge(c)))
        .find(|(c, nudge)| harmless(c, nudge, pod))
        .map(|(_, nudge)| nudge)
}

fn harmless(container: &ContainerStatus, nudge: &Nudge, pod: &Pod) -> bool {
    let Some(found) = pod.container(&container.name) else { return false };
    let runs = found.status.as_ref().is_some_and(|status| status.state == ContainerState::Running);
    let restarts = (nudge.cpu && found.restart_for.cpu) || (nudge.memory && found.restart_for.memory);
    let to = desired(container);
    let takes_limit = nudge.memory && to.memory_limit.is_some() && to.memory_limit == to.memory_request;
    // Kubernetes 1.33 lowers no memory limit of a container that runs; from 1.34 on the kubelet counts what it has seen.
    let lowers = pod.observed_generation.is_some()
        && to.memory_limit.is_some_and(|limit| limit.saturating_add(1) % PAGE != 0);
    let step = stepped(container, nudge);
    // What was there before would be taken for somebody's way back.
    runs && !restarts && (!takes_limit || lowers) && step.is_some_and(|step| step != original(container))
}
