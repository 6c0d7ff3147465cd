//! Orders to give a container and its Pod other resources.
//!
//! An order is carried out in steps that may all be repeated: look at what the cgroups hold, acknowledge it, and write
//! down in the same write what was there before; write what differs; look again. Nothing differs any more: it is done.
//! So a process that starts anew needs to know nothing of what the one before it did.

mod back;
mod held;
mod plan;
mod words;

use pitstop_api::id::ContainerId;
use pitstop_api::nodework::Cgroup;

use crate::cgroup::Version;

pub use back::{Part, give_back, shares_of};
pub use held::MAX_HELD_CONTAINERS;
pub(crate) use held::{begin, finish, forgets, recorded};
pub use plan::{Change, Driver, Goal, in_use, writes};
pub use words::listed;
pub(crate) use words::told;

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
        /// Microseconds; what the cgroup has.
        period: i64,
    },
    /// Bytes; absent for no limit.
    Memory(Option<i64>),
}

/// One thing that is done to a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Into the Pod's.
    Pod(Setting),
    /// Into a container's: one call of the runtime, which never gets an empty one.
    Container {
        /// The container.
        id: ContainerId,
        /// What is written.
        settings: Vec<Setting>,
    },
    /// The kernel is to reclaim memory, as far as it can.
    Reclaim {
        /// Where the container's cgroup is, below the root of a hierarchy.
        cgroup: String,
        /// How many bytes.
        bytes: i64,
    },
}

/// What the cgroups of a container and of its Pod hold, and what decides whether that may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Where the Pod's cgroup is, below the root of a hierarchy.
    pub cgroup: String,
    /// Where the container's is; empty where that is not known.
    pub of_container: String,
    /// Which files they have.
    pub version: Version,
    /// The container's; absent when it has ended.
    pub container: Option<Seen>,
    /// The Pod's; absent when it is gone.
    pub pod: Option<Seen>,
    /// The container has CPUs or memory nodes other than its Pod's: the kubelet's static managers have given it those.
    pub pinned: bool,
    /// The container may use swap, and the node has some.
    pub swap: bool,
}

/// One cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What it holds.
    pub cgroup: Cgroup,
    /// Bytes of `memory_usage` that are page cache which the kernel can drop: `inactive_file`.
    pub inactive_file: i64,
}
