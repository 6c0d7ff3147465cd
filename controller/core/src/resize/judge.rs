//! How far the Pod is on its way to other resources, going by its spec and its kubelet's words.

use std::time::Duration;

use pitstop_api::quantity::Resources;
use pitstop_api::resize::ContainerStatus;

use super::nudge::Nudge;
use crate::pod::{self, AfterEnd, ContainerState, Pod};
use crate::time::Mono;

/// What the Pod's spec says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// What it said before the request.
    Original,
    /// What the request means.
    Desired,
    /// So many steps on the way from the one to the other.
    Between(i64),
    /// The smallest step beyond what the request means, for a moment.
    Nudged(Nudge),
    /// Neither, for this container: somebody else has changed it.
    Other(String),
}

/// Where the Pod's spec is. Where the request changes nothing, it is where it should be.
pub(super) fn place(containers: &[ContainerStatus], pod: &Pod) -> Place {
    if says_otherwise(containers, pod, desired).is_none() {
        return Place::Desired;
    }
    // One patch changes all of them, so there is nothing between.
    says_otherwise(containers, pod, original)
        .map_or(Place::Original, |other| Place::Other(other.name.clone()))
}

/// A container of which the Pod's spec says something else.
fn says_otherwise<'a>(
    containers: &'a [ContainerStatus],
    pod: &Pod,
    wanted: impl Fn(&ContainerStatus) -> Resources,
) -> Option<&'a ContainerStatus> {
    containers.iter().find(|c| pod.container(&c.name).map(|found| found.resources) != Some(wanted(c)))
}

/// The Pod's spec says what can be put back.
pub(super) fn is_back(containers: &[ContainerStatus], pod: &Pod) -> bool {
    says_otherwise(containers, pod, returned).is_none()
}

/// What was there before the request.
pub(super) fn original(container: &ContainerStatus) -> Resources {
    Resources::from(&container.original)
}

/// What the request means for a container.
pub(super) fn desired(container: &ContainerStatus) -> Resources {
    Resources::from(&container.desired)
}

/// What can be put back: an amount that was not there cannot be removed in place (`ValidatePodResize` of Kubernetes).
pub(super) fn returned(container: &ContainerStatus) -> Resources {
    let (from, to) = (original(container), desired(container));
    Resources {
        cpu_request: from.cpu_request.or(to.cpu_request),
        cpu_limit: from.cpu_limit.or(stays(to.cpu_limit, from.cpu_request, to.cpu_request)),
        memory_request: from.memory_request.or(to.memory_request),
        memory_limit: from.memory_limit.or(stays(to.memory_limit, from.memory_request, to.memory_request)),
    }
}

/// A limit that stays is more than another request that is put back: less would be refused, and as much may change the
/// quality of service class.
fn stays(limit: Option<i64>, from: Option<i64>, to: Option<i64>) -> Option<i64> {
    let least = from.filter(|_| from != to).map(|request| request.saturating_add(1));
    limit.map(|limit| least.map_or(limit, |least| limit.max(least)))
}

/// The container has ended, and the kubelet does not start it again.
pub(super) fn never_again(pod: &Pod, container: &pod::Container) -> bool {
    let Some(ContainerState::Terminated { exit_code }) = container.status.as_ref().map(|s| &s.state) else {
        return false;
    };
    pod.after_end(container, *exit_code) == AfterEnd::Stays
}

/// The container has ended, or cannot start.
pub(super) fn stopped(pod: &Pod, container: &str) -> bool {
    let status = pod.container(container).and_then(|found| found.status.as_ref());
    status.is_some_and(|s| {
        matches!(s.state, ContainerState::Waiting { .. } | ContainerState::Terminated { .. })
    })
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
    /// The kubelet says that it is done, and tells another CPU limit. One that sets no CPU quota goes on telling the limit
    /// of before (`convertToAPIContainerStatuses`, Kubernetes 1.33 to 1.36).
    Untold,
    /// Every container has what the Pod's spec says.
    Sized,
}

/// How long a kubelet that counts what it has seen may take to tell a CPU limit after it was done.
const UNTOLD: Duration = Duration::from_secs(10);

impl Progress {
    /// What has stayed untold since then counts as done, the kernel is asked next.
    pub(super) fn settled(self, now: Mono, untold_since: Option<Mono>) -> Self {
        let long = untold_since.is_some_and(|since| since.after(UNTOLD) <= now);
        if self == Self::Untold && long { Self::Sized } else { self }
    }

    /// The kubelet is at it, or about to be.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Unseen | Self::Underway(_) | Self::Restarting(_) => true,
            Self::Deferred(_) | Self::Infeasible(_) | Self::Untold | Self::Sized => false,
        }
    }

    /// When that is.
    pub(super) fn settles_at(&self, untold_since: Option<Mono>) -> Option<Mono> {
        untold_since.filter(|_| *self == Self::Untold).map(|since| since.after(UNTOLD))
    }

    /// Why the kubelet has not got there.
    pub(super) fn hindrance(&self) -> String {
        match self {
            Self::Unseen => "the kubelet has not taken them up".to_owned(),
            Self::Deferred(text) | Self::Infeasible(text) | Self::Underway(Some(text)) => text.clone(),
            Self::Underway(None) | Self::Untold | Self::Sized => {
                "the kubelet changes the containers".to_owned()
            }
            Self::Restarting(name) => format!("container {name} does not run"),
        }
    }
}

/// How far the kubelet is with what the request means, which the Pod's spec says.
///
/// That neither condition is there means nothing by itself: it is so before the kubelet has seen the change (KEP-1287).
/// Where the kubelet counts what it has seen (1.34 and later), that count must have come; and what each container runs
/// with must be what is wanted.
///
/// `before`: the kubelet's words on a resize that waited when the request was accepted. Where it counts nothing (1.33),
/// they are not about this one.
pub(super) fn progress(containers: &[ContainerStatus], before: &str, pod: &Pod) -> Progress {
    let stale = |told: &pod::Told| pod.observed_generation.is_none() && told.message == before;
    if !before.is_empty() && pod.resize.pending.as_ref().is_some_and(stale) {
        return Progress::Unseen;
    }
    towards(containers, pod, desired, true)
}

/// How far the kubelet is with putting the original resources back.
pub(super) fn return_progress(containers: &[ContainerStatus], pod: &Pod) -> Progress {
    towards(containers, pod, returned, false)
}

/// How far the containers are with what the Pod's spec, and whatever is in force for it, says.
pub(super) fn as_it_should(containers: &[ContainerStatus], pod: &Pod) -> Progress {
    let of = |container: &ContainerStatus| pod.container(&container.name).map(|found| found.resources);
    towards(containers, pod, |container| of(container).unwrap_or_default(), false)
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
    let mut untold = false;
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
            || (restarts && container.restarts && !anew(container, status))
        {
            return Progress::Restarting(container.name.clone());
        }
        if !status.actual.as_ref().is_some_and(|actual| changed.matches(&wanted(container), actual)) {
            // Where the kubelet counts what it has seen, that neither condition is there is its word.
            let but_quota = Changed { cpu_limit: false, ..changed };
            let counts = pod.observed_generation.is_some() && status.allocated.is_some();
            let matches = |actual: &Resources| but_quota.matches(&wanted(container), actual);
            if !(counts && status.actual.as_ref().is_some_and(matches)) {
                return Progress::Underway(None);
            }
            untold = true;
        }
    }
    if untold { Progress::Untold } else { Progress::Sized }
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
    /// What it runs with is told exactly.
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

    /// What to look at: where nothing changes, somebody's earlier change may still be under way.
    fn or_all(self) -> Self {
        if self.cpu() || self.memory() {
            return self;
        }
        Self { cpu_request: true, cpu_limit: true, memory_request: true, memory_limit: true, ..self }
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
        (!self.cpu_request || near(wanted.cpu_request, actual.cpu_request, 2, i64::from(!self.exact)))
            && (!self.cpu_limit || near(wanted.cpu_limit, actual.cpu_limit, 10, 0))
            && (!self.memory_request || wanted.memory_request == actual.memory_request)
            && (!self.memory_limit || wanted.memory_limit == actual.memory_limit)
    }
}
