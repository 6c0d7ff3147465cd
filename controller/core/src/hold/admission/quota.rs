//! `ResourceQuota`s, with the messages of the Kubernetes admission plugin of that name.

use pitstop_api::quantity::{Resource, Resources};

use super::{Granted, Sizes, beyond, qos};
use crate::pod::Pod;

/// A `ResourceQuota`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// `metadata.name`.
    pub name: String,
    /// A Pod counts if it matches all scopes. An unknown scope is left out, so it matches.
    pub scopes: Vec<Scope>,
    /// What it bounds: CPU and memory.
    pub bounds: Vec<QuotaBound>,
}

/// Which Pods a quota counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those with `spec.activeDeadlineSeconds`, or those without.
    Terminating(bool),
    /// Those of the class `BestEffort`, or all others.
    BestEffort(bool),
    /// Those with a priority class, or those without.
    Prioritized(bool),
    /// Those with one of these priority classes.
    PriorityIn(Vec<String>),
    /// Those with none of them.
    PriorityNotIn(Vec<String>),
}

/// One bound of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaBound {
    /// What it counts.
    pub counted: ResourceName,
    /// `status.hard`: millicores or bytes.
    pub hard: i64,
    /// `status.used`, in the same unit. None until Kubernetes has counted.
    pub used: Option<i64>,
}

/// What a quota counts of Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceName {
    /// `cpu`, which is `requests.cpu`.
    Cpu,
    /// `limits.cpu`.
    LimitsCpu,
    /// `limits.memory`.
    LimitsMemory,
    /// `memory`, which is `requests.memory`.
    Memory,
    /// `requests.cpu`.
    RequestsCpu,
    /// `requests.memory`.
    RequestsMemory,
}

impl ResourceName {
    /// All, in the order of their names.
    pub const ALL: [Self; 6] = [
        Self::Cpu,
        Self::LimitsCpu,
        Self::LimitsMemory,
        Self::Memory,
        Self::RequestsCpu,
        Self::RequestsMemory,
    ];

    /// Its name in Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::LimitsCpu => "limits.cpu",
            Self::LimitsMemory => "limits.memory",
            Self::Memory => "memory",
            Self::RequestsCpu => "requests.cpu",
            Self::RequestsMemory => "requests.memory",
        }
    }

    /// The resource that it counts.
    pub fn resource(self) -> Resource {
        match self {
            Self::Cpu | Self::LimitsCpu | Self::RequestsCpu => Resource::Cpu,
            Self::LimitsMemory | Self::Memory | Self::RequestsMemory => Resource::Memory,
        }
    }

    fn of(self, resources: &Resources) -> i64 {
        let amount = match self {
            Self::Cpu | Self::RequestsCpu => resources.cpu_request,
            Self::Memory | Self::RequestsMemory => resources.memory_request,
            Self::LimitsCpu => resources.cpu_limit,
            Self::LimitsMemory => resources.memory_limit,
        };
        amount.unwrap_or_default()
    }
}

/// The first quota that a change exceeds, as a sentence. None if it exceeds none.
///
/// Kubernetes counts the specs of Pods. What is granted beyond them, to this Pod and others, is added.
pub(super) fn exceeded(
    pod: &Pod,
    sizes: &Sizes,
    quotas: &[Quota],
    granted: &[Granted<'_>],
) -> Option<String> {
    quotas.iter().filter(|quota| quota.counts(pod)).find_map(|quota| quota.exceeded(sizes, granted))
}

impl Quota {
    fn counts(&self, pod: &Pod) -> bool {
        self.scopes.iter().all(|scope| scope.holds(pod))
    }

    fn exceeded(&self, sizes: &Sizes, granted: &[Granted<'_>]) -> Option<String> {
        let before = beyond(&sizes.before, &sizes.spec);
        let after = beyond(&sizes.after, &sizes.spec);
        let grows = |bound: &&QuotaBound| bound.counted.of(&after) > bound.counted.of(&before);
        let growing: Vec<&QuotaBound> = self.bounds.iter().filter(grows).collect();
        let unknown: Vec<&str> =
            growing.iter().filter(|bound| bound.used.is_none()).map(|bound| bound.counted.as_str()).collect();
        if !unknown.is_empty() {
            return Some(format!(
                "status unknown for quota: {}, resources: {}",
                self.name,
                unknown.join(",")
            ));
        }
        let others = |counted: ResourceName| {
            let counts = granted.iter().filter(|other| self.counts(other.pod));
            counts.fold(0_i64, |sum, other| sum.saturating_add(counted.of(&other.beyond)))
        };
        let (mut requested, mut used, mut limited, mut unseen) = (Vec::new(), Vec::new(), Vec::new(), false);
        for bound in growing {
            let counted = bound.counted;
            let more = counted.of(&after).saturating_sub(counted.of(&before));
            let on_top = counted.of(&before).saturating_add(others(counted));
            let now = bound.used.unwrap_or_default().saturating_add(on_top);
            if now.saturating_add(more) > bound.hard {
                let show = |amount| format!("{}={}", counted.as_str(), counted.resource().show(amount));
                requested.push(show(more));
                used.push(show(now));
                limited.push(show(bound.hard));
                unseen |= on_top > 0;
            }
        }
        if requested.is_empty() {
            return None;
        }
        let (requested, used, limited) = (requested.join(","), used.join(","), limited.join(","));
        let note = if unseen {
            " (used includes what PodResizes have given to Pods beyond their specs)"
        } else {
            ""
        };
        Some(format!(
            "exceeded quota: {}, requested: {requested}, used: {used}, limited: {limited}{note}",
            self.name
        ))
    }
}

impl Scope {
    fn holds(&self, pod: &Pod) -> bool {
        let class = pod.priority_class.as_deref();
        let among = |names: &[String]| class.is_some_and(|class| names.iter().any(|name| name == class));
        match self {
            Self::Terminating(with) => pod.active_deadline == *with,
            Self::BestEffort(with) => {
                (qos::class(pod, |c| c.resources.effective()) == qos::Class::BestEffort) == *with
            }
            Self::Prioritized(with) => class.is_some() == *with,
            Self::PriorityIn(names) => among(names),
            Self::PriorityNotIn(names) => !among(names),
        }
    }
}
