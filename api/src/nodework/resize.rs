//! Orders to give a container and its Pod other resources in their cgroups, and the daemon's record of what it gave.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cgroup, OrderAction, OrderPod, Unknown};
use crate::{id, is_false};

/// Most held Pods of one node.
pub const MAX_HELD: usize = 128;

/// Gives container and Pod these resources. After every single write, the Pod may use at least what its containers may.
///
/// Without `hold`, they get back what the spec says: the container may have ended, and `Done` drops its record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResizeOrder {
    /// Resources for the container. Absent: no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Bounds>,
    /// Resources for the Pod's cgroup. Absent: no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Bounds>,
    /// The resources differ from the spec: the daemon first records the original values, and restores them if the order
    /// book is deleted. Needs `container` or `pod`. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hold: bool,
    /// Refuse if the kubelet's static managers gave the container CPUs or memory nodes of its own. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unless_pinned: bool,
    /// Bytes that a lower memory limit must leave free. Page cache that the kernel can drop counts as free. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub memory_margin: i64,
    /// Only raise values of the Pod's cgroup. What has no limit gets none. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_raise: bool,
    /// Bytes. If the container uses more, and `container` is absent or lowers its limit, the daemon first makes the
    /// kernel reclaim what it can of that, page cache first. Absent: nothing is reclaimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub reclaim_to: Option<i64>,
    /// Members of a newer version. Daemons may ignore them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

impl ResizeOrder {
    /// It gives neither container nor Pod anything: it takes back memory, or the daemon forgets the Pod.
    pub fn gives_nothing(&self) -> bool {
        !self.hold && self.container.is_none() && self.pod.is_none()
    }
}

impl From<ResizeOrder> for OrderAction {
    fn from(resize: ResizeOrder) -> Self {
        Self { resize: Some(resize), ..Self::default() }
    }
}

/// Resources of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// CPU request in millicores: the weight against others.
    #[schemars(range(min = 0))]
    pub cpu_request: i64,
    /// CPU limit in millicores. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub cpu_limit: Option<i64>,
    /// Memory limit in bytes. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub memory_limit: Option<i64>,
}

/// A Pod held at other resources than its spec says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The Pod.
    pub pod: OrderPod,
    /// Path of its cgroup below the root of a hierarchy.
    #[schemars(length(max = 4096))]
    pub cgroup: String,
    /// The original values of its cgroup.
    pub original: Cgroup,
    /// What its cgroup was given last. Absent until the acknowledged order is `Done`, or if that order left it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Bounds>,
    /// Its containers with other resources.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<HeldContainer>,
}

/// A container held at other resources than its spec says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldContainer {
    /// Name of the container in the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The instance's full ID. A later instance has what its spec says until an order changes it.
    #[schemars(regex(pattern = id::PATTERN))]
    pub id: String,
    /// The original values of its cgroup.
    pub original: Cgroup,
    /// ID of the order that gave or gives it these resources.
    #[schemars(length(min = 1, max = 256))]
    pub order: String,
    /// What it was given. Absent, because unknown, until the acknowledged order is `Done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Bounds>,
    /// While `given` is absent: what it was given before, and may still have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Bounds>,
}
