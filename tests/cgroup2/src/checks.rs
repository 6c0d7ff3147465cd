//! What must hold of the daemon's code on a real cgroup v2.

mod back;
mod memory;
mod odd;
mod values;

use std::fmt::Debug;

use anyhow::{Result, bail};

use crate::Report;
use crate::machine::Machine;
use crate::pod::Naming;

const MIB: i64 = 1 << 20;

/// Looks at one thing.
type Check = fn(&Machine) -> Result<()>;
/// Looks at one thing with cgroups that are named like that.
type Named = fn(&Machine, Naming) -> Result<()>;

const NAMED: [(&str, Named); 10] = [
    ("what was made is read", values::made),
    ("CPU and memory grow in both levels", values::grows),
    ("CPU and memory shrink in both levels", values::shrinks),
    ("some grow while others shrink", values::mixed),
    ("limits go and come", values::no_limit),
    ("quotas in steps of systemd are there", values::steps),
    ("what was there is given back", back::given_back),
    ("what is in use is not given back", back::in_use),
    ("CPUs and memory nodes of its own are seen", odd::pinned),
    ("swap that may be used is seen", odd::swap),
];

const OTHERS: [(&str, Check); 17] = [
    ("this is v2", values::version),
    ("weights of both conversions are there", values::weights),
    ("every weight is read as it was written", values::every_weight),
    ("memory limits are cut to whole pages", values::pages),
    ("cpu.max has the text and the least quota of the kernel", values::quota_text),
    ("the period stays", values::period),
    ("a container may have more than its Pod", values::above_pod),
    ("a limit below what is in use kills", memory::below_use),
    ("kills count in the Pod too", memory::kills),
    ("page cache that can be dropped does not count", memory::page_cache),
    ("page cache that is not written to disk counts", memory::dirty),
    ("memory of shared files counts", memory::shared),
    ("memory.reclaim drops page cache, and says when there was less", memory::reclaim),
    ("cgroups within the container's count", memory::nested),
    ("a cgroup that is gone is told", odd::gone),
    ("a controller that is off is told", odd::no_controller),
    ("what the kernel refuses does not pass", odd::refused),
];

/// Runs all.
pub(crate) fn run(machine: &Machine, report: &mut Report) {
    for (name, check) in OTHERS {
        report.check(name, check(machine));
    }
    for naming in Naming::ALL {
        for (name, check) in NAMED {
            report.check(&format!("{}: {name}", naming.name()), check(machine, naming));
        }
    }
}

/// Fails unless both are the same.
#[allow(clippy::needless_pass_by_value, reason = "both are made to be compared")]
fn same<T: Debug + PartialEq>(what: &str, found: T, expected: T) -> Result<()> {
    if found != expected {
        bail!("{what}: found {found:?}, expected {expected:?}");
    }
    Ok(())
}

/// Fails unless it holds.
fn holds(what: impl FnOnce() -> String, condition: bool) -> Result<()> {
    if !condition {
        bail!(what());
    }
    Ok(())
}

/// Fails unless it failed like that.
fn failed<T: Debug, E: Debug>(what: &str, found: &Result<T, E>, like: impl FnOnce(&E) -> bool) -> Result<()> {
    holds(|| format!("{what}: found {found:?}"), found.as_ref().err().is_some_and(like))
}
