//! Orders to give a container and its Pod other resources.
//!
//! Each step of an order can be repeated. The daemon reads the cgroups; acknowledges, and records the original values
//! in the same write; writes what differs; reads again. If nothing differs, the order is done. So a new process needs
//! to know nothing about an earlier one.

mod back;
mod held;
mod plan;
mod words;

use pitstop_api::id::ContainerId;
use pitstop_api::nodework::Cgroup;

use crate::cgroup::Version;

pub use back::{RunningContainer, give_back, shares_of};
pub use held::MAX_HELD_CONTAINERS;
pub(crate) use held::{begin, finish, forgets, recorded};
pub use plan::{Change, Driver, Goal, in_use, writes};
pub(crate) use words::describe_write;
pub use words::describe_writes;

/// One value of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `cpu.shares`. For a Pod on v2: [`linear_weight`](pitstop_api::logic::cgroup::linear_weight) of it.
    Shares(i64),
    /// `cpu.weight`, as it was read. For a container, whose runtime takes only shares: [`shares_of`] it.
    Weight(i64),
    /// The CPU limit.
    Quota {
        /// Microseconds in each period; absent for no limit.
        quota: Option<i64>,
        /// The cgroup's own period, in microseconds.
        period: i64,
    },
    /// Bytes; absent for no limit.
    Memory(Option<i64>),
}

/// One change of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// To the Pod's.
    Pod(Setting),
    /// To a container's, by one runtime call; never empty.
    Container {
        /// The container.
        id: ContainerId,
        /// What is written.
        settings: Vec<Setting>,
    },
    /// Makes the kernel reclaim memory, as far as it can.
    Reclaim {
        /// Path of the container's cgroup below the root of a hierarchy.
        cgroup: String,
        /// How many bytes.
        bytes: i64,
    },
}

/// Values of the cgroups of a container and its Pod, and what decides whether they may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Path of the Pod's cgroup below the root of a hierarchy.
    pub cgroup: String,
    /// Path of the container's cgroup; empty if unknown.
    pub of_container: String,
    /// Cgroup version.
    pub version: Version,
    /// The container's; absent when it has ended.
    pub container: Option<Seen>,
    /// The Pod's; absent when it is gone.
    pub pod: Option<Seen>,
    /// Whether the container has CPUs or memory nodes other than its Pod's, from the kubelet's static managers.
    pub pinned: bool,
    /// Whether the container may use swap and the node has some.
    pub swap: bool,
}

/// One cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its values.
    pub cgroup: Cgroup,
    /// Bytes of `memory_usage` that are page cache which the kernel can drop: `inactive_file`.
    pub inactive_file: i64,
}
