//! Progress of a Pod towards other resources, from its spec and its kubelet's reports.

use std::time::Duration;

use pitstop_api::quantity::Resources;
use pitstop_api::resize::ContainerStatus;

use super::nudge::Nudge;
use crate::pod::{self, AfterEnd, ContainerState, Pod};
use crate::time::Mono;

/// State of the Pod's spec: whose resources it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SpecState {
    /// The original resources.
    Original,
    /// The desired resources.
    Desired,
    /// This many steps from the original to the desired resources.
    Between(i64),
    /// A nudge: for a moment, the smallest step above the desired resources.
    Nudged(Nudge),
    /// Others, for this container: another client changed it.
    Other(String),
}

/// State of the Pod's spec; `Desired` if the request changes nothing.
pub(super) fn spec_state(containers: &[ContainerStatus], pod: &Pod) -> SpecState {
    if mismatch(containers, pod, desired).is_none() {
        return SpecState::Desired;
    }
    // One patch changes all containers, so no state lies between.
    mismatch(containers, pod, original)
        .map_or(SpecState::Original, |other| SpecState::Other(other.name.clone()))
}

/// A container whose resources in the Pod's spec are not the wanted ones.
fn mismatch<'a>(
    containers: &'a [ContainerStatus],
    pod: &Pod,
    wanted: impl Fn(&ContainerStatus) -> Resources,
) -> Option<&'a ContainerStatus> {
    containers.iter().find(|c| pod.container(&c.name).map(|found| found.resources) != Some(wanted(c)))
}

/// Whether the Pod's spec has all resources that can be restored.
pub(super) fn is_restored(containers: &[ContainerStatus], pod: &Pod) -> bool {
    mismatch(containers, pod, restored).is_none()
}

/// Resources of the container before the request.
pub(super) fn original(container: &ContainerStatus) -> Resources {
    Resources::from(&container.original)
}

/// Resources that the request wants for a container.
pub(super) fn desired(container: &ContainerStatus) -> Resources {
    Resources::from(&container.desired)
}

/// Resources to restore. An added amount stays, because it cannot be removed in place (`ValidatePodResize` of
/// Kubernetes).
pub(super) fn restored(container: &ContainerStatus) -> Resources {
    let (from, to) = (original(container), desired(container));
    Resources {
        cpu_request: from.cpu_request.or(to.cpu_request),
        cpu_limit: from.cpu_limit.or(stays(to.cpu_limit, from.cpu_request, to.cpu_request)),
        memory_request: from.memory_request.or(to.memory_request),
        memory_limit: from.memory_limit.or(stays(to.memory_limit, from.memory_request, to.memory_request)),
    }
}

/// The added limit that stays. It exceeds a restored request: a lower limit would be refused, and an equal one may
/// change the quality of service class.
fn stays(limit: Option<i64>, from: Option<i64>, to: Option<i64>) -> Option<i64> {
    let least = from.filter(|_| from != to).map(|request| request.saturating_add(1));
    limit.map(|limit| least.map_or(limit, |least| limit.max(least)))
}

/// Whether the container has ended and the kubelet does not start it again.
pub(super) fn ended_for_good(pod: &Pod, container: &pod::Container) -> bool {
    let Some(ContainerState::Terminated { exit_code }) = container.status.as_ref().map(|s| &s.state) else {
        return false;
    };
    pod.after_end(container, *exit_code) == AfterEnd::Stays
}

/// Whether the container has ended or waits to start.
pub(super) fn stopped(pod: &Pod, container: &str) -> bool {
    let status = pod.container(container).and_then(|found| found.status.as_ref());
    status.is_some_and(|s| {
        matches!(s.state, ContainerState::Waiting { .. } | ContainerState::Terminated { .. })
    })
}

/// Progress of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has not seen the Pod's spec, or reported nothing yet.
    Unseen,
    /// It waits for room on the node: its message.
    Deferred(String),
    /// It will never resize: its message.
    Infeasible(String),
    /// It changes the containers; its error, if any.
    Underway(Option<String>),
    /// It restarts this container for the resize, or has yet to start it.
    Restarting(String),
    /// It is done, but reports another CPU limit. A kubelet that sets no CPU quota keeps reporting the old limit
    /// (`convertToAPIContainerStatuses`, Kubernetes 1.33 to 1.36).
    Unreported,
    /// Every container has the resources of the Pod's spec.
    Sized,
}

/// How long a kubelet with `observedGeneration` may take to report a CPU limit after it is done.
const REPORT_PATIENCE: Duration = Duration::from_secs(10);

impl Progress {
    /// Takes `Unreported` for `Sized` after [`REPORT_PATIENCE`]; the kernel is asked next.
    pub(super) fn settled(self, now: Mono, unreported_since: Option<Mono>) -> Self {
        let long = unreported_since.is_some_and(|since| since.after(REPORT_PATIENCE) <= now);
        if self == Self::Unreported && long { Self::Sized } else { self }
    }

    /// Whether the kubelet changes the containers, or is about to.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Unseen | Self::Underway(_) | Self::Restarting(_) => true,
            Self::Deferred(_) | Self::Infeasible(_) | Self::Unreported | Self::Sized => false,
        }
    }

    /// When `Unreported` counts as `Sized`.
    pub(super) fn settles_at(&self, unreported_since: Option<Mono>) -> Option<Mono> {
        unreported_since.filter(|_| *self == Self::Unreported).map(|since| since.after(REPORT_PATIENCE))
    }

    /// Why the kubelet is not done.
    pub(super) fn hindrance(&self) -> String {
        match self {
            Self::Unseen => "the kubelet has not taken them up".to_owned(),
            Self::Deferred(text) | Self::Infeasible(text) | Self::Underway(Some(text)) => text.clone(),
            Self::Underway(None) | Self::Unreported | Self::Sized => {
                "the kubelet changes the containers".to_owned()
            }
            Self::Restarting(name) => format!("container {name} does not run"),
        }
    }
}

/// Progress of the kubelet with the desired resources, which the Pod's spec has.
///
/// The absence of both conditions proves nothing: they are also absent before the kubelet has seen the change
/// (KEP-1287). If the kubelet reports `observedGeneration` (1.34 and later), it must be current. Each container must
/// also run with the wanted resources.
///
/// `before`: the kubelet's message about a resize that was pending at acceptance. Without `observedGeneration` (1.33),
/// the same message is not about this request.
pub(super) fn progress(containers: &[ContainerStatus], before: &str, pod: &Pod) -> Progress {
    let stale = |pending: &pod::Explanation| pod.observed_generation.is_none() && pending.message == before;
    if !before.is_empty() && pod.resize.pending.as_ref().is_some_and(stale) {
        return Progress::Unseen;
    }
    progress_towards(containers, pod, desired, true)
}

/// Progress of the kubelet with restoring the original resources.
pub(super) fn restore_progress(containers: &[ContainerStatus], pod: &Pod) -> Progress {
    progress_towards(containers, pod, restored, false)
}

/// Progress of the containers towards the resources of the Pod's spec, or those in force.
pub(super) fn spec_progress(containers: &[ContainerStatus], pod: &Pod) -> Progress {
    let of = |container: &ContainerStatus| pod.container(&container.name).map(|found| found.resources);
    progress_towards(containers, pod, |container| of(container).unwrap_or_default(), false)
}

fn progress_towards(
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
    if let Some(condition) = &pod.resize.in_progress {
        return Progress::Underway((condition.reason == "Error").then(|| condition.message.clone()));
    }
    let mut unreported = false;
    for container in containers {
        let Some(status) = pod.container(&container.name).and_then(|c| c.status.as_ref()) else {
            return Progress::Unseen;
        };
        let changed = Changed { exact: status.exact, ..Changed::of(container).or_all() };
        let admitted = |allocated: &Resources| {
            let wanted = wanted(container);
            (!changed.cpu_request || allocated.cpu_request == wanted.cpu_request)
                && (!changed.memory_request || allocated.memory_request == wanted.memory_request)
        };
        if !status.allocated.as_ref().is_none_or(admitted) {
            return Progress::Unseen;
        }
        if status.state != ContainerState::Running
            || (restarts && container.restarts && !replaced(container, status))
        {
            return Progress::Restarting(container.name.clone());
        }
        if !status.actual.as_ref().is_some_and(|actual| changed.matches(&wanted(container), actual)) {
            // With `observedGeneration`, the absence of both conditions means that the kubelet is done.
            let but_quota = Changed { cpu_limit: false, ..changed };
            let counts = pod.observed_generation.is_some() && status.allocated.is_some();
            let matches = |actual: &Resources| but_quota.matches(&wanted(container), actual);
            if !(counts && status.actual.as_ref().is_some_and(matches)) {
                return Progress::Underway(None);
            }
            unreported = true;
        }
    }
    if unreported { Progress::Unreported } else { Progress::Sized }
}

/// Whether a new instance has replaced the one before the request, and is ready.
fn replaced(container: &ContainerStatus, status: &pod::ContainerStatus) -> bool {
    status.container_id != container.container_id && status.ready
}

/// Amounts of a container that the request changes.
#[allow(clippy::struct_excessive_bools, reason = "one for each amount")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    cpu_request: bool,
    cpu_limit: bool,
    memory_request: bool,
    memory_limit: bool,
    /// The reported resources are exact.
    exact: bool,
}

impl Changed {
    pub(super) fn of(container: &ContainerStatus) -> Self {
        let (from, to) = (original(container), desired(container));
        Self {
            cpu_request: from.cpu_request != to.cpu_request,
            cpu_limit: from.cpu_limit != to.cpu_limit,
            memory_request: from.memory_request != to.memory_request,
            memory_limit: from.memory_limit != to.memory_limit,
            exact: false,
        }
    }

    /// Amounts to compare: all if none changes, because an earlier change may still be under way.
    fn or_all(self) -> Self {
        if self.cpu() || self.memory() {
            return self;
        }
        Self { cpu_request: true, cpu_limit: true, memory_request: true, memory_limit: true, ..self }
    }

    /// Whether a CPU amount changes.
    pub(super) fn cpu(self) -> bool {
        self.cpu_request || self.cpu_limit
    }

    /// Whether a memory amount changes.
    pub(super) fn memory(self) -> bool {
        self.memory_request || self.memory_limit
    }

    /// Whether a container runs with the wanted values of the changed amounts.
    ///
    /// The kubelet computes a CPU request from the runtime's shares, which are inexact by up to a millicore. It reports
    /// requests up to 2m and limits up to 10m as in the spec (Kubernetes 1.33 and later).
    fn matches(self, wanted: &Resources, actual: &Resources) -> bool {
        let near = |wanted: Option<i64>, actual: Option<i64>, least: i64, apart: i64| {
            let wanted = wanted.unwrap_or_default().max(least);
            let found = actual.unwrap_or_default().max(least);
            wanted.abs_diff(found) <= apart.unsigned_abs()
        };
        (!self.cpu_request || near(wanted.cpu_request, actual.cpu_request, 2, i64::from(!self.exact)))
            && (!self.cpu_limit || near(wanted.cpu_limit, actual.cpu_limit, 10, 0))
            && (!self.memory_request || wanted.memory_request == actual.memory_request)
            && (!self.memory_limit || wanted.memory_limit == actual.memory_limit)
    }
}
