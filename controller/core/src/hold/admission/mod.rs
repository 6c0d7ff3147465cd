//! Applies the admission rules of the API server and the kubelet to a resize that they never see.
//!
//! `qos` keeps the quality of service, `limits` applies `LimitRange`s, `quota` `ResourceQuota`s, `room` the node's
//! capacity. Only what a request changes is judged; for quotas and room, only what grows. What is in force is admitted
//! already.

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

pub use limits::{Limit, LimitType};
pub use quota::{Quota, QuotaBound, ResourceName, Scope};

use super::force::{kind, parts};
use crate::pod::{Container, Pod};
use crate::time::Mono;
use room::Fit;

/// Reason: the Pod's node cannot resize it this way.
pub const UNSUPPORTED: &str = "Unsupported";
/// Reason: such containers cannot be resized.
pub const CONTAINER: &str = "UnsupportedContainer";
/// Reason: the controller reads what bounds the Pod.
pub const ADMITTING: &str = "Admitting";
/// Reason: the node has no room now.
pub const NODE_BUSY: &str = "NodeBusy";
/// Maximum age of a survey.
pub const FRESH: Duration = Duration::from_secs(5);

/// What bounds the Pods of a namespace and of a node, as the API server reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The items of the namespace's `LimitRange`s for containers and for Pods.
    pub limits: Vec<Limit>,
    /// The `ResourceQuota`s of the namespace.
    pub quotas: Vec<Quota>,
    /// `status.allocatable` of the node.
    pub allocatable: Amounts,
}

/// An amount of each resource: millicores, bytes. None: not specified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// CPU.
    pub cpu: Option<i64>,
    /// Memory.
    pub memory: Option<i64>,
}

impl Amounts {
    /// The amount of one resource.
    pub fn of(self, resource: Resource) -> Option<i64> {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
        }
    }
}

/// Result of the last survey for a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSurvey {
    /// When it began. It includes what existed before.
    pub began: Mono,
    /// When it ended.
    pub ended: Mono,
    /// What it found; or why it found nothing, as a sentence.
    pub result: Result<Survey, String>,
}

/// What other Pods use of the surveyed amounts.
#[derive(Clone, Debug, Default)]
pub struct Usage<'a> {
    /// What the node's other Pods request. Each container counts with the larger of its spec and what is in force.
    pub asked: Resources,
    /// Other Pods of the namespace with more than their specs.
    pub granted: Vec<Granted<'a>>,
}

/// A Pod with more than its spec.
#[derive(Clone, Debug)]
pub struct Granted<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// By how much; None is nothing.
    pub beyond: Resources,
}

/// The resize to admit.
pub struct Question<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// What its containers should have now.
    pub in_force: &'a dyn Fn(&Container) -> Resources,
    /// The containers to resize, with all amounts. The others keep what is in force.
    pub wanted: &'a [(&'a str, Resources)],
    /// What bounds the Pod.
    pub survey: &'a Survey,
    /// What other Pods use of that.
    pub usage: &'a Usage<'a>,
}

/// Whether the resize is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is allowed.
    Admitted,
    /// The node has no room now.
    Busy(String),
    /// It is not allowed, and waiting does not help.
    Refused {
        /// How the request ends.
        phase: Phase,
        /// Why, in one word.
        reason: &'static str,
        /// Why, as a sentence.
        text: String,
    },
}

impl Decision {
    fn failed(reason: &'static str, text: &str) -> Self {
        Self::Refused { phase: Phase::Failed, reason, text: truncate(text, MAX_MESSAGE) }
    }
}

/// Decides whether the resize is allowed.
pub fn admit(question: &Question<'_>) -> Decision {
    let Question { pod, survey, usage, .. } = question;
    let spec = |container: &Container| container.resources.effective();
    let before = |container: &Container| (question.in_force)(container).effective();
    let after = |container: &Container| {
        let wanted = question.wanted.iter().find(|(name, _)| *name == container.name);
        wanted.map_or_else(|| before(container), |(_, wanted)| wanted.effective())
    };
    if pod.containers.iter().all(|container| before(container) == after(container)) {
        return Decision::Admitted;
    }
    if pod.huge_pages {
        let text =
            format!("Pod {} asks for huge pages, which the node's daemon leaves to the kubelet", pod.key);
        return Decision::failed(UNSUPPORTED, &text);
    }
    if pod.pod_level.is_some() {
        let text = format!(
            "Pod {} has spec.resources, which bound all its containers together: pitstop does not resize such Pods",
            pod.key
        );
        return Decision::failed(CONTAINER, &text);
    }
    if let Some(text) = qos_change(pod, after) {
        return Decision::failed("QoSChange", &text);
    }
    if let Some(text) = limits::violations(pod, before, after, &survey.limits) {
        return Decision::failed("LimitRange", &text);
    }
    let sizes = Sizes { spec: totals(pod, spec), before: totals(pod, before), after: totals(pod, after) };
    if let Some(text) = quota::exceeded(pod, &sizes, &survey.quotas, &usage.granted) {
        return Decision::failed("Quota", &text);
    }
    // The scheduler only knows the spec.
    let counted = |of: &dyn Fn(&Container) -> Resources| totals(pod, |c| most(&spec(c), &of(c)));
    let sizes = Sizes { before: counted(&before), after: counted(&after), ..sizes };
    match room::fit(&sizes, &usage.asked, survey.allocatable) {
        Fit::Enough => Decision::Admitted,
        Fit::Later(text) => Decision::Busy(truncate(&text, MAX_MESSAGE)),
        Fit::Never(text) => {
            let text = truncate(&text, MAX_MESSAGE);
            Decision::Refused { phase: Phase::Infeasible, reason: "NodeCapacity", text }
        }
    }
}

/// Message if the `QoS` class of the Pod would change when its containers have what `after` returns.
pub(crate) fn qos_change(pod: &Pod, after: impl Fn(&Container) -> Resources) -> Option<String> {
    let (class, then) =
        (qos::class(pod, |container| container.resources.effective()), qos::class(pod, after));
    (class != then).then(|| {
        format!(
            "Pod {} is of the QoS class {class} and would become {then}: the class of a running Pod cannot change",
            pod.key
        )
    })
}

/// Whether the Pod is Guaranteed: the kubelet's static CPU manager gives such Pods whole CPUs.
pub(super) fn guaranteed(pod: &Pod) -> bool {
    qos::class(pod, |container| container.resources.effective()) == qos::Class::Guaranteed
}

/// Requests and limits of a whole Pod, overhead included.
struct Sizes {
    /// By its spec.
    spec: Resources,
    /// By what is in force.
    before: Resources,
    /// By what is wanted.
    after: Resources,
}

/// What the scheduler and quotas count for a Pod whose containers have what `of` returns: Pod-level resources if set,
/// and overhead.
pub(crate) fn totals(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Resources {
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

/// Requests and limits of the containers together.
fn sum(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Resources {
    cgroup::sum(&parts(pod, of))
}

/// The larger of each request. Limits do not count.
pub(crate) fn most(one: &Resources, other: &Resources) -> Resources {
    let (one, other) = (one.effective(), other.effective());
    Resources {
        cpu_request: one.cpu_request.max(other.cpu_request),
        memory_request: one.memory_request.max(other.memory_request),
        ..Resources::default()
    }
}

/// By how much `more` exceeds `than`, for each amount, and never below zero.
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

/// Request and limit for one resource.
fn pair(resources: &Resources, resource: Resource) -> (Option<i64>, Option<i64>) {
    match resource {
        Resource::Cpu => (resources.cpu_request, resources.cpu_limit),
        Resource::Memory => (resources.memory_request, resources.memory_limit),
    }
}
