//! What the daemon reads in cgroups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cgroups of one container instance and of its Pod, read one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupReading {
    /// The container's cgroup.
    pub container: Cgroup,
    /// The Pod's cgroup, which limits all its containers together.
    pub pod: Cgroup,
}

/// Values of a cgroup, with file names of v2, then v1. Absent: no limit, or no such value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cgroup {
    /// Microseconds of CPU time in each period: first number of `cpu.max`, or `cpu.cfs_quota_us`. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cpu_quota: Option<i64>,
    /// Microseconds: second number of `cpu.max`, or `cpu.cfs_period_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cpu_period: Option<i64>,
    /// `cpu.shares`; cgroup v1 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cpu_shares: Option<i64>,
    /// `cpu.weight`; cgroup v2 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cpu_weight: Option<i64>,
    /// Bytes: `memory.max` or `memory.limit_in_bytes`. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub memory_limit: Option<i64>,
    /// Bytes in use, with page cache: `memory.current` or `memory.usage_in_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub memory_usage: Option<i64>,
    /// Processes killed for lack of memory since the cgroup was made: `oom_kill` of `memory.events` (with cgroups
    /// below) or `memory.oom_control`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub oom_kills: Option<i64>,
}
