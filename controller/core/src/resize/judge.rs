//! How far the Pod is on its way to other resources, going by its spec and its kubelet's words.

use pitstop_api::quantity::Resources;
use pitstop_api::resize::ContainerStatus;

use crate::pod::{self, ContainerState, Pod};

/// What the Pod's spec says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// What it said before the request.
    Original,
    /// What the request means.
    Desired,
    /// Neither, for this container: somebody else has changed it.
    Other(String),
}

/// Where the Pod's spec is. Where the request changes nothing, it is where it should be.
pub(super) fn place(containers: &[ContainerStatus], pod: &Pod) -> Place {
    let said = |c: &ContainerStatus| pod.container(&c.name).map(|c| c.resources);
    if containers.iter().all(|c| said(c) == Some(Resources::from(&c.desired))) {
        return Place::Desired;
    }
    // One patch changes all of them, so there is nothing between.
    match containers.iter().find(|c| said(c) != Some(Resources::from(&c.original))) {
        None => Place::Original,
        Some(other) => Place::Other(other.name.clone()),
    }
}

/// How far the kubelet is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has not seen the Pod's spec yet, or not said a word.
    Unseen,
    /// It waits for room on the node: its words.
    Deferred(String),
    /// It will never do it: its words.
    Infeasible(String),
    /// It changes the containers; what hinders it.
    Underway(Option<String>),
    /// It restarts this container for it, or has yet to.
    Restarting(String),
    /// Every container has what the Pod's spec says.
    Sized,
}

/// How far the kubelet is with what the request means, which the Pod's spec says.
///
/// That neither condition is there means nothing by itself: it is so before the kubelet has seen the change (KEP-1287).
/// Where the kubelet counts what it has seen (1.34 and later), that count must have come; and what each container runs
/// with must be what is wanted.
pub(super) fn progress(containers: &[ContainerStatus], pod: &Pod) -> Progress {
    let desired = |c: &ContainerStatus| Resources::from(&c.desired);
    towards(containers, pod, desired, true)
}

/// How far the kubelet is with putting the original resources back.
pub(super) fn return_progress(containers: &[ContainerStatus], pod: &Pod) -> Progress {
    let original = |c: &ContainerStatus| Resources::from(&c.original);
    towards(containers, pod, original, false)
}

fn towards(
    containers: &[ContainerStatus],
    pod: &Pod,
    wanted: impl Fn(&ContainerStatus) -> Resources,
    restarts: bool,
) -> Progress {
    if pod.observed_generation.is_some_and(|seen| pod.generation.is_some_and(|made| seen < made)) {
        return Progress::Unseen;
    }
    if let Some(pending) = &pod.resize.pending {
        let message = pending.message.clone();
        return if pending.reason == "Infeasible" {
            Progress::Infeasible(message)
        } else {
            Progress::Deferred(message)
        };
    }
    if let Some(told) = &pod.resize.in_progress {
        return Progress::Underway((told.reason == "Error").then(|| told.message.clone()));
    }
    for container in containers {
        let Some(status) = pod.container(&container.name).and_then(|c| c.status.as_ref()) else {
            return Progress::Unseen;
        };
        let changed = Changed::of(container).or_all();
        let admitted = |allocated: &Resources| {
            let wanted = wanted(container);
            (!changed.cpu_request || allocated.cpu_request == wanted.cpu_request)
                && (!changed.memory_request || allocated.memory_request == wanted.memory_request)
        };
        if !status.allocated.as_ref().is_none_or(admitted) {
            return Progress::Unseen;
        }
        if status.state != ContainerState::Running
            || (restarts && container.restarts && !anew(container, status))
        {
            return Progress::Restarting(container.name.clone());
        }
        if !status.actual.as_ref().is_some_and(|actual| changed.matches(&wanted(container), actual)) {
            return Progress::Underway(None);
        }
    }
    Progress::Sized
}

/// It is another instance than the one before the request, and ready.
fn anew(container: &ContainerStatus, status: &pod::ContainerStatus) -> bool {
    status.container_id != container.container_id && status.ready
}

/// What the request changes of a container.
#[allow(clippy::struct_excessive_bools, reason = "one for each amount")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    cpu_request: bool,
    cpu_limit: bool,
    memory_request: bool,
    memory_limit: bool,
}

impl Changed {
    pub(super) fn of(container: &ContainerStatus) -> Self {
        let (from, to) = (Resources::from(&container.original), Resources::from(&container.desired));
        Self {
            cpu_request: from.cpu_request != to.cpu_request,
            cpu_limit: from.cpu_limit != to.cpu_limit,
            memory_request: from.memory_request != to.memory_request,
            memory_limit: from.memory_limit != to.memory_limit,
        }
    }

    /// What to look at: where nothing changes, somebody's earlier change may still be under way.
    fn or_all(self) -> Self {
        if self.cpu() || self.memory() {
            return self;
        }
        Self { cpu_request: true, cpu_limit: true, memory_request: true, memory_limit: true }
    }

    /// CPU changes in any way.
    pub(super) fn cpu(self) -> bool {
        self.cpu_request || self.cpu_limit
    }

    /// Memory changes in any way.
    pub(super) fn memory(self) -> bool {
        self.memory_request || self.memory_limit
    }

    /// Whether a container runs with what is wanted, as far as it changes.
    ///
    /// The kubelet works a CPU request out of the runtime's shares, which are coarser by up to a millicore, and tells
    /// requests up to 2m and limits up to 10m as the spec says them (Kubernetes 1.33 and later).
    fn matches(self, wanted: &Resources, actual: &Resources) -> bool {
        let near = |wanted: Option<i64>, actual: Option<i64>, least: i64, apart: i64| {
            let told = wanted.unwrap_or_default().max(least);
            let found = actual.unwrap_or_default().max(least);
            told.abs_diff(found) <= apart.unsigned_abs()
        };
        (!self.cpu_request || near(wanted.cpu_request, actual.cpu_request, 2, 1))
            && (!self.cpu_limit || near(wanted.cpu_limit, actual.cpu_limit, 10, 0))
            && (!self.memory_request || wanted.memory_request == actual.memory_request)
            && (!self.memory_limit || wanted.memory_limit == actual.memory_limit)
    }
}
