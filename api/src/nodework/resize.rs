//! Orders to give a container and its Pod other resources in their cgroups, and the daemon's record of what it gave.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cgroup, OrderAction, OrderPod, Unknown};
use crate::{id, is_false};

/// Most Pods of one node that can be held at other resources than those of their spec.
pub const MAX_HELD: usize = 128;

/// Give a container, and the Pod that it is in, these resources in their cgroups, in the order that never leaves the Pod
/// with less than its containers may use.
///
/// What a Pod's spec says comes back with `hold: false`: then the container may be gone, and the record of it goes with
/// the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resize {
    /// What the container is to have. Absent: it is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Bounds>,
    /// What the cgroup of the Pod is to have. Absent: it is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Bounds>,
    /// It is not what the kubelet gave: the daemon records what was there before it acts, and writes that back when the
    /// order book is deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hold: bool,
    /// Refuse when the kubelet's static managers have given the container CPUs or memory nodes of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unless_pinned: bool,
    /// Bytes that a lower memory limit must leave free beyond what is in use; the page cache that the kernel can drop
    /// does not count as in use.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub memory_margin: i64,
    /// Write only what gives the Pod more than its cgroup has; what has no limit gets none.
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_raise: bool,
    /// Bytes: where the container uses more memory, the kernel is made to reclaim what it can of that, page cache first,
    /// before anything is written. Absent: nothing is reclaimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub reclaim_to: Option<i64>,
    /// What a newer version adds; no daemon has to heed it.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

impl Resize {
    /// It gives neither container nor Pod anything: it takes back memory, or the daemon forgets the Pod.
    pub fn gives_nothing(&self) -> bool {
        !self.hold && self.container.is_none() && self.pod.is_none()
    }
}

impl From<Resize> for OrderAction {
    fn from(resize: Resize) -> Self {
        Self { resize: Some(resize), ..Self::default() }
    }
}

/// Resources as they bound a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// Millicores that are asked for: the weight against others.
    #[schemars(range(min = 0))]
    pub cpu_request: i64,
    /// Millicores that may be used. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub cpu_limit: Option<i64>,
    /// Bytes that may be used. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub memory_limit: Option<i64>,
}

/// A Pod that the daemon holds at other resources than those of its spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The Pod.
    pub pod: OrderPod,
    /// Where its cgroup is, below the root of a hierarchy.
    #[schemars(length(max = 4096))]
    pub cgroup: String,
    /// What its cgroup held before.
    pub original: Cgroup,
    /// What its cgroup was given last. Absent while that is under way, or where it was left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Bounds>,
    /// Its containers that were given something.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<HeldContainer>,
}

/// A container that the daemon holds at other resources than those of its spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldContainer {
    /// Name of the container in the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The instance: the runtime's full ID. A later instance has what its spec says until it is given more.
    #[schemars(regex(pattern = id::PATTERN))]
    pub id: String,
    /// What its cgroup held before.
    pub original: Cgroup,
    /// The order that gave, or gives, it what it has.
    #[schemars(length(min = 1, max = 256))]
    pub order: String,
    /// What it was given. Absent while that is under way: nobody knows what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Bounds>,
    /// While that is under way: what it was given before, and may have still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Bounds>,
}
