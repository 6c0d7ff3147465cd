//! What a node's daemon should give a Pod whose kubelet does not resize. It depends only on the existing requests.

use std::collections::BTreeMap;

use pitstop_api::id::{ContainerId, split_reference};
use pitstop_api::logic::cgroup::{self, Kind, Overhead, Part};
use pitstop_api::nodework::{Bounds, Held, HeldContainer};
use pitstop_api::quantity::Resources;

use super::claim::{Claim, Claims, CountedClaim};
use crate::pod::{Container, ContainerKind, ContainerState, Pod};

/// What a container should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The four amounts.
    pub resources: Resources,
    /// Bytes that a lower memory limit must leave free.
    pub margin: i64,
    /// The kernel must reclaim memory first.
    pub reclaims: bool,
}

/// What requests want a Pod to have beyond its spec, by container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Force {
    /// The containers that a request names.
    pub containers: BTreeMap<String, Wish>,
    /// The last position in the order of the Pod's requests.
    pub turn: i64,
}

impl Force {
    /// Combines what counts and is granted.
    pub fn of(claims: &Claims<'_>, granted: impl Fn(&CountedClaim<'_>) -> bool) -> Self {
        let wish = |counted: CountedClaim<'_>| {
            let Claim { margin, reclaims, .. } = *counted.claim;
            (counted.container.to_owned(), Wish { resources: counted.resources, margin, reclaims })
        };
        let granted = claims.counted().filter(granted);
        Self { containers: granted.map(wish).collect(), turn: claims.turn() }
    }

    /// What the container should have.
    pub fn wants(&self, container: &Container) -> Resources {
        self.containers.get(&container.name).map_or(container.resources, |wish| wish.resources)
    }

    /// The Pod as its requests and the daemon make it. Its containers have the resources in force, and run with what
    /// the daemon gave them.
    pub fn applied(&self, pod: &Pod, held: Option<&Held>) -> Pod {
        let mut applied = pod.clone();
        for container in &mut applied.containers {
            let wanted = self.wants(container);
            let has = has(container, held).map(|has| Resources {
                // The kernel holds no memory request.
                memory_request: wanted.memory_request,
                ..has
            });
            container.resources = wanted;
            if let Some(status) = &mut container.status {
                status.actual = has;
                status.exact = true;
                status.allocated = None;
            }
        }
        applied
    }
}

/// What a container has. None while it is being changed. A container that does not run starts with its spec.
pub(super) fn has(container: &Container, held: Option<&Held>) -> Option<Resources> {
    let record = running(container).and_then(|id| record(held, &container.name).filter(|r| r.id == id));
    let Some(record) = record else { return Some(container.resources) };
    record.given.map(|given| {
        let spec = bounds(&container.resources);
        // Shares do not distinguish a request of 0 from an absent one.
        if given == spec { container.resources } else { resources(&given) }
    })
}

/// The daemon's record of a container.
pub(super) fn record<'a>(held: Option<&'a Held>, container: &str) -> Option<&'a HeldContainer> {
    held?.containers.iter().find(|c| c.name == container)
}

/// Full ID of the running instance.
pub(super) fn running(container: &Container) -> Option<ContainerId> {
    let status = container.status.as_ref().filter(|s| s.state == ContainerState::Running)?;
    split_reference(&status.container_id).ok().map(|(_, id)| id)
}

/// The amounts that bound a cgroup.
pub fn bounds(resources: &Resources) -> Bounds {
    Bounds {
        cpu_request: resources.cpu_request.or(resources.cpu_limit).unwrap_or_default().max(0),
        cpu_limit: resources.cpu_limit.filter(|limit| *limit > 0),
        memory_limit: resources.memory_limit.filter(|limit| *limit > 0),
    }
}

pub(super) fn resources(bounds: &Bounds) -> Resources {
    Resources {
        cpu_request: Some(bounds.cpu_request),
        cpu_limit: bounds.cpu_limit,
        memory_request: None,
        memory_limit: bounds.memory_limit,
    }
}

/// What the cgroup of a held Pod should contain, if its containers have what `of` returns.
///
/// On cgroup v1, no container starts with a larger CPU quota than its Pod's, and each starts with its spec.
pub(super) fn held_pod(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Resources {
    let start =
        pod.containers.iter().filter(|c| kind(c).is_some()).filter_map(|c| c.resources.cpu_limit).max();
    let all = of_pod(pod, of);
    Resources { cpu_limit: all.cpu_limit.map(|limit| limit.max(start.unwrap_or_default())), ..all }
}

/// What the kubelet writes into a Pod's cgroup, if its containers have what `of` returns.
pub fn of_pod(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Resources {
    let overhead = Overhead {
        cpu: pod.overhead.cpu_request.unwrap_or_default(),
        memory: pod.overhead.memory_request.unwrap_or_default(),
    };
    cgroup::of_pod(&parts(pod, of), overhead)
}

/// The containers that count in a Pod's sums, each with what `of` returns.
pub(super) fn parts(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Vec<Part> {
    let part = |container: &Container| Some(Part { kind: kind(container)?, resources: of(container) });
    pod.containers.iter().filter_map(part).collect()
}

/// How a container counts in its Pod's sums. None if it has no resources.
pub(super) fn kind(container: &Container) -> Option<Kind> {
    match container.kind {
        ContainerKind::Main => Some(Kind::Main),
        ContainerKind::Sidecar => Some(Kind::Sidecar),
        ContainerKind::Init => Some(Kind::Init),
        ContainerKind::Ephemeral => None,
    }
}
