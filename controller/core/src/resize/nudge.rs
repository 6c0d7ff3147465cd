//! A nudge: the smallest change of a Pod, made and reverted, for which its kubelet writes the Pod's cgroup.
//!
//! A kubelet that left that cgroup unchanged (kubernetes#138760) writes it at the next resize of a running container.
//! It writes CPU if the container's CPU changes, and memory if its memory changes (`doPodResizeAction`, Kubernetes 1.33
//! to 1.36). A nudge adds one millicore or one byte first. The way back needs less, so a node that has filled meanwhile
//! cannot refuse it.

use pitstop_api::quantity::Resources;
use pitstop_api::resize::ContainerStatus;

use super::judge::{desired, original};
use super::observe::Resize;
use super::status::KERNEL_DIFFERS;
use super::verify::Low;
use crate::pod::{ContainerState, Pod};

/// The container to change, and which of its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nudge {
    pub(super) container: String,
    pub(super) cpu: bool,
    pub(super) memory: bool,
}

/// Smallest page in bytes. The kernel cuts limits to whole pages (`page_counter`), so one byte above a multiple changes
/// nothing. Then memory in use cannot block the way back.
const PAGE: i64 = 4096;

/// Request and limit with the nudge. The limit rises only if both are equal, because the Pod's class cannot change.
fn raised(request: Option<i64>, limit: Option<i64>) -> Option<(i64, Option<i64>)> {
    let request = request?;
    let more = request.checked_add(1)?;
    Some((more, limit.map(|limit| if limit == request { more } else { limit })))
}

/// Resources of a container with the nudge; `None` if it is not possible.
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

/// The nudge in the Pod's spec, if any. Only a request that reported a difference has made one.
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

/// The nudge that makes the kubelet write the low values, in a container that it does not restart.
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
    // Kubernetes 1.33 lowers no memory limit of a running container; `observedGeneration` shows 1.34 or later.
    let lowers = pod.observed_generation.is_some()
        && to.memory_limit.is_some_and(|limit| limit.saturating_add(1) % PAGE != 0);
    let step = stepped(container, nudge);
    // The original resources would look like another client's restore.
    runs && !restarts && (!takes_limit || lowers) && step.is_some_and(|step| step != original(container))
}
