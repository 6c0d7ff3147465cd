//! Whether a resize may be that the API server and the kubelet never see: by the rules by which they would admit it.
//!
//! `qos` keeps the quality of service, `limits` holds `LimitRange`s, `quota` `ResourceQuota`s, `room` the node. Only what a
//! request changes is judged, and of quotas and room only what it lets grow: what is in force is admitted already.

mod limits;
mod qos;
mod quota;
mod room;
#[cfg(test)]
mod tests;

use std::time::Duration;

use pitstop_api::condition::{MAX_MESSAGE, truncate};
use pitstop_api::logic::cgroup;
use pitstop_api::quantity::{Resource, Resources};
use pitstop_api::resize::Phase;

pub use limits::{Bounded, Limit};
pub use quota::{Counted, Quota, QuotaBound, Scope};

use super::force::{kind, parts};
use crate::pod::{Container, Pod};
use crate::time::Mono;
use room::Room;

/// The Pod's node does not resize so.
pub const UNSUPPORTED: &str = "Unsupported";
/// Such containers cannot be resized.
pub const CONTAINER: &str = "UnsupportedContainer";
/// What bounds the Pod is read.
pub const ADMITTING: &str = "Admitting";
/// The node has no room now.
pub const NODE_BUSY: &str = "NodeBusy";
/// How old what was read may be.
pub const FRESH: Duration = Duration::from_secs(5);

/// What bounds the Pods of a namespace and of a node, as the API server told it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Of all `LimitRange`s of the namespace: those of containers and of Pods.
    pub limits: Vec<Limit>,
    /// The `ResourceQuota`s of the namespace.
    pub quotas: Vec<Quota>,
    /// `status.allocatable` of the node.
    pub allocatable: Amounts,
}

/// An amount of each resource: millicores, bytes. Absent: nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// CPU.
    pub cpu: Option<i64>,
    /// Memory.
    pub memory: Option<i64>,
}

impl Amounts {
    /// That of one resource.
    pub fn of(self, resource: Resource) -> Option<i64> {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
        }
    }
}

/// What came of the last survey for a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// When it began: what was there before that counts in it.
    pub began: Mono,
    /// When it came.
    pub at: Mono,
    /// What was found; or why nothing was, as a sentence.
    pub result: Result<Survey, String>,
}

/// What other Pods take of what a survey bounds.
#[derive(Clone, Debug, Default)]
pub struct Crowd<'a> {
    /// What the other Pods of the node ask for, each container the most of its spec and of what is in force.
    pub asked: Resources,
    /// Other Pods of the namespace that have more than their specs say.
    pub granted: Vec<Granted<'a>>,
}

/// A Pod that has more than its spec says.
#[derive(Clone, Debug)]
pub struct Granted<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// By how much; what is absent by nothing.
    pub beyond: Resources,
}

/// What is to be admitted.
pub struct Question<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// What its containers should have now.
    pub in_force: &'a dyn Fn(&Container) -> Resources,
    /// The containers to resize, with all that each is to have. The others keep what is in force for them.
    pub wanted: &'a [(&'a str, Resources)],
    /// What bounds it.
    pub survey: &'a Survey,
    /// What others take of that.
    pub crowd: &'a Crowd<'a>,
}

/// Whether it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Admitted,
    /// The node has no room now.
    Busy(String),
    /// It may not, and no waiting helps.
    Refused {
        /// How the request ends.
        phase: Phase,
        /// Why, in one word.
        reason: &'static str,
        /// Why, as a sentence.
        text: String,
    },
}

impl Verdict {
    fn failed(reason: &'static str, text: &str) -> Self {
        Self::Refused { phase: Phase::Failed, reason, text: truncate(text, MAX_MESSAGE) }
    }
}

/// Decides.
pub fn admit(question: &Question<'_>) -> Verdict {
    let Question { pod, survey, crowd, .. } = question;
    let spec = |container: &Container| container.resources.effective();
    let before = |container: &Container| (question.in_force)(container).effective();
    let after = |container: &Container| {
        let wanted = question.wanted.iter().find(|(name, _)| *name == container.name);
        wanted.map_or_else(|| before(container), |(_, wanted)| wanted.effective())
    };
    if pod.containers.iter().all(|container| before(container) == after(container)) {
        return Verdict::Admitted;
    }
    if pod.huge_pages {
        let text =
            format!("Pod {} asks for huge pages, which the node's daemon leaves to the kubelet", pod.key);
        return Verdict::failed(UNSUPPORTED, &text);
    }
    if pod.pod_level.is_some() {
        let text = format!(
            "Pod {} has spec.resources, which bound all its containers together: such are not resized",
            pod.key
        );
        return Verdict::failed(CONTAINER, &text);
    }
    if let Some(text) = other_class(pod, after) {
        return Verdict::failed("QoSChange", &text);
    }
    if let Some(text) = limits::broken(pod, before, after, &survey.limits) {
        return Verdict::failed("LimitRange", &text);
    }
    let sizes = Sizes { spec: asks(pod, spec), before: asks(pod, before), after: asks(pod, after) };
    if let Some(text) = quota::exceeded(pod, &sizes, &survey.quotas, &crowd.granted) {
        return Verdict::failed("Quota", &text);
    }
    // The scheduler knows the spec alone, and goes by it.
    let counted = |of: &dyn Fn(&Container) -> Resources| asks(pod, |c| most(&spec(c), &of(c)));
    let sizes = Sizes { before: counted(&before), after: counted(&after), ..sizes };
    match room::room(&sizes, &crowd.asked, survey.allocatable) {
        Room::Enough => Verdict::Admitted,
        Room::Later(text) => Verdict::Busy(truncate(&text, MAX_MESSAGE)),
        Room::Never(text) => {
            let text = truncate(&text, MAX_MESSAGE);
            Verdict::Refused { phase: Phase::Infeasible, reason: "NodeCapacity", text }
        }
    }
}

/// What is said of a Pod that would be of another quality of service, if its containers had what `after` says.
pub(crate) fn other_class(pod: &Pod, after: impl Fn(&Container) -> Resources) -> Option<String> {
    let (class, then) =
        (qos::class(pod, |container| container.resources.effective()), qos::class(pod, after));
    (class != then).then(|| {
        format!(
            "Pod {} is of the QoS class {class} and would become {then}: the class of a running Pod cannot change",
            pod.key
        )
    })
}

/// The Pod is of the class whose whole CPUs the kubelet's static manager gives away.
pub(super) fn guaranteed(pod: &Pod) -> bool {
    qos::class(pod, |container| container.resources.effective()) == qos::Class::Guaranteed
}

/// What a whole Pod asks for and may use, overhead included.
struct Sizes {
    /// By its spec.
    spec: Resources,
    /// By what is in force.
    before: Resources,
    /// By what is wanted.
    after: Resources,
}

/// What the scheduler and quotas count for a Pod whose containers have what `of` says: its own resources where it has
/// any, and its overhead.
pub(crate) fn asks(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Resources {
    let sum = sum(pod, of);
    let level = pod.pod_level.as_deref().map(|own| own.effective()).unwrap_or_default();
    let request = |level: Option<i64>, sum: Option<i64>, overhead: Option<i64>| {
        Some(level.or(sum).unwrap_or_default().saturating_add(overhead.unwrap_or_default()))
    };
    let limit = |level: Option<i64>, sum: Option<i64>, overhead: Option<i64>| {
        level.or(sum).map(|limit| limit.saturating_add(overhead.unwrap_or_default()))
    };
    let Resources { cpu_request: cpu, memory_request: memory, .. } = pod.overhead;
    Resources {
        cpu_request: request(level.cpu_request, sum.cpu_request, cpu),
        cpu_limit: limit(level.cpu_limit, sum.cpu_limit, cpu),
        memory_request: request(level.memory_request, sum.memory_request, memory),
        memory_limit: limit(level.memory_limit, sum.memory_limit, memory),
    }
}

/// What the containers ask for and may use together.
fn sum(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Resources {
    cgroup::sum(&parts(pod, of))
}

/// The most that is asked for of either; limits do not count.
pub(crate) fn most(one: &Resources, other: &Resources) -> Resources {
    let (one, other) = (one.effective(), other.effective());
    Resources {
        cpu_request: one.cpu_request.max(other.cpu_request),
        memory_request: one.memory_request.max(other.memory_request),
        ..Resources::default()
    }
}

/// By how much one is more than the other, each amount for itself and none below zero.
pub(crate) fn beyond(more: &Resources, than: &Resources) -> Resources {
    let beyond = |more: Option<i64>, than: Option<i64>| {
        Some(more.unwrap_or_default().saturating_sub(than.unwrap_or_default()).max(0)).filter(|by| *by > 0)
    };
    Resources {
        cpu_request: beyond(more.cpu_request, than.cpu_request),
        cpu_limit: beyond(more.cpu_limit, than.cpu_limit),
        memory_request: beyond(more.memory_request, than.memory_request),
        memory_limit: beyond(more.memory_limit, than.memory_limit),
    }
}

/// Request and limit of one resource.
fn pair(resources: &Resources, resource: Resource) -> (Option<i64>, Option<i64>) {
    match resource {
        Resource::Cpu => (resources.cpu_request, resources.cpu_limit),
        Resource::Memory => (resources.memory_request, resources.memory_limit),
    }
}
