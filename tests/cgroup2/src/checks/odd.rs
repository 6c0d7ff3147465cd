//! What decides whether something is changed at all, and what is missing or refused.

use anyhow::Result;
use pitstop_daemon_core::resize::Setting;

use super::{MIB, failed, same};
use crate::machine::{Machine, get, put};
use crate::pod::{Naming, Pod, bounds, remove_one};

pub(super) fn pinned(machine: &Machine, naming: Naming) -> Result<()> {
    let pod = Pod::start(machine, naming, bounds(1000, Some(1000), Some(32 * MIB)))?;
    for (file, own, all) in [("cpuset.cpus", "1", "0-1"), ("cpuset.mems", "1", "0-1")] {
        same("nothing of its own", pod.present()?.pinned, false)?;
        let path = pod.in_container(file);
        put(&path, own)?;
        let effective = get(&pod.in_container(&format!("{file}.effective")))?;
        same(file, effective.trim(), own)?;
        same(file, pod.present()?.pinned, true)?;
        // All of them, named: as the kubelet's static policy leaves containers that share.
        put(&path, all)?;
        same(file, pod.present()?.pinned, false)?;
    }
    pod.end()
}

pub(super) fn swap(machine: &Machine, naming: Naming) -> Result<()> {
    let pod = Pod::start(machine, naming, bounds(100, None, Some(32 * MIB)))?;
    let most = pod.in_container("memory.swap.max");
    let seen = |text: &str| -> Result<(bool, bool)> {
        put(&most, text)?;
        let without = pod.present()?.swap;
        Ok((without, machine.with_swap(|| Ok(pod.present()?.swap))?))
    };
    same("none", seen("0")?, (false, false))?;
    same("any", seen("max")?, (false, true))?;
    same("some", seen("1048576")?, (false, true))?;
    same("counted together", machine.cgroups.counts_swap(&pod.paths.pod), false)?;
    pod.end()
}

pub(super) fn gone(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, bounds(100, None, Some(32 * MIB)))?;
    let (paths, cgroups) = (pod.paths.clone(), &machine.cgroups);
    pod.load.end()?;
    remove_one(&paths.container)?;
    let result = cgroups.present(&paths, true);
    let missing = format!("{}/cpu.max: No such file", paths.container);
    failed("what is missing", &result, |why| why.contains(&missing))?;
    let left = cgroups.present(&paths, false).map(|present| (present.container, present.pod.is_some()));
    same("without its container", left, Ok((None, true)))?;
    remove_one(&paths.pod)?;
    let left = cgroups.present(&paths, false).map(|present| (present.container, present.pod));
    same("without the Pod", left, Ok((None, None)))?;
    let result = cgroups.write(&paths.pod, Setting::Memory(Some(64 * MIB)));
    failed("the write", &result, |failure| failure.retry && failure.message.contains("No such file"))
}

pub(super) fn no_controller(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, bounds(100, None, Some(32 * MIB)))?;
    for (controller, file) in [("cpu", "cpu.max"), ("memory", "memory.max")] {
        let switch = pod.in_pod("cgroup.subtree_control");
        put(&switch, &format!("-{controller}"))?;
        let result = machine.cgroups.present(&pod.paths, true);
        let missing = format!("{}/{file}: No such file", pod.paths.container);
        failed("what is missing", &result, |why| why.contains(&missing))?;
        put(&switch, &format!("+{controller}"))?;
    }
    // Nobody pins to what is off.
    put(&pod.in_pod("cgroup.subtree_control"), "-cpuset")?;
    same("pinned", pod.present()?.pinned, false)?;
    pod.end()
}

pub(super) fn refused(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, bounds(100, Some(500), Some(32 * MIB)))?;
    let before = pod.both()?.1;
    let quota = |quota, period| Setting::Quota { quota: Some(quota), period };
    for setting in [
        Setting::Weight(0),
        Setting::Weight(10_001),
        Setting::Memory(Some(-5)),
        quota(-1, 100_000),
        quota(100_000, 999),
        quota(100_000, 1_000_001),
    ] {
        let result = machine.cgroups.write(&pod.paths.pod, setting);
        failed(&format!("{setting:?}"), &result, |failure| !failure.retry)?;
    }
    let after = pod.both()?.1;
    let settings =
        |cgroup: pitstop_api::nodework::Cgroup| (cgroup.cpu_quota, cgroup.cpu_weight, cgroup.memory_limit);
    same("the Pod", settings(after.cgroup), settings(before.cgroup))?;
    pod.end()
}
