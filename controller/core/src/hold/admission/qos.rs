//! The quality of service of a Pod (`ComputePodQOS` of Kubernetes).

use std::fmt;

use pitstop_api::quantity::{Resource, Resources};

use super::{kind, pair};
use crate::pod::{Container, Pod};

/// The class of a Pod. The kubelet places its cgroup by it, and the kernel picks what to kill by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        })
    }
}

/// The class of a Pod whose containers have what `of` returns. Pod-level resources come before theirs.
pub(super) fn class(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Class {
    let own = pod.pod_level.as_deref().map(|own| own.effective());
    let all: Vec<Resources> = match own {
        Some(own) => vec![own],
        None => pod.containers.iter().filter(|c| kind(c).is_some()).map(of).collect(),
    };
    let amounts = || all.iter().flat_map(|r| Resource::ALL.map(|resource| pair(r, resource)));
    let is_set = |amount: Option<i64>| amount.is_some_and(|amount| amount > 0);
    if !amounts().any(|(request, limit)| is_set(request) || is_set(limit)) {
        Class::BestEffort
    } else if amounts().all(|(request, limit)| is_set(limit) && request == limit) {
        Class::Guaranteed
    } else {
        Class::Burstable
    }
}
