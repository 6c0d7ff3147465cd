//! Values that are written and read back.

use anyhow::Result;
use pitstop_api::logic::cgroup::{container_differs, pod_differs};
use pitstop_api::nodework::{Bounds, Cgroup};
use pitstop_api::quantity::Resources;
use pitstop_daemon_core::cgroup::Version;
use pitstop_daemon_core::resize::{Present, Setting, Write};

use super::{MIB, failed, holds, same};
use crate::machine::{Machine, get, put};
use crate::pod::{Naming, Pod, bounds, id};

/// Shares with their weight by the straight line and by the curve (opencontainers/runc#4896).
const WEIGHTS: [(i64, i64, i64); 5] =
    [(2, 1, 1), (102, 4, 17), (512, 20, 59), (1024, 39, 100), (262_144, 10_000, 10_000)];

const SMALL: Bounds = Bounds { cpu_request: 100, cpu_limit: Some(250), memory_limit: Some(24 * MIB) };
const LARGE: Bounds = Bounds { cpu_request: 500, cpu_limit: Some(1500), memory_limit: Some(64 * MIB) };

pub(super) fn version(machine: &Machine) -> Result<()> {
    same("version", machine.cgroups.version(), Version::V2)
}

pub(super) fn made(machine: &Machine, naming: Naming) -> Result<()> {
    let pod = Pod::with(machine, naming, SMALL, LARGE, false)?;
    let Present { cgroup, of_container, version, container, pod: whole, pinned, swap } = pod.present()?;
    same("container's cgroup", &of_container, &pod.paths.container)?;
    let given = |seen: Option<pitstop_daemon_core::resize::Seen>| {
        seen.map(|seen| Cgroup { memory_usage: None, ..seen.cgroup })
    };
    let small = Cgroup {
        cpu_quota: Some(25_000),
        cpu_period: Some(100_000),
        cpu_weight: Some(4),
        memory_limit: Some(24 * MIB),
        oom_kills: Some(0),
        ..Cgroup::default()
    };
    let large =
        Cgroup { cpu_quota: Some(150_000), cpu_weight: Some(20), memory_limit: Some(64 * MIB), ..small };
    let found = (cgroup, version, given(container), given(whole), pinned, swap);
    let expected = (pod.paths.pod.clone(), Version::V2, Some(small), Some(large), false, false);
    same("present", found, expected)?;
    let usage =
        container.zip(whole).map(|(inner, outer)| (inner.cgroup.memory_usage, outer.cgroup.memory_usage));
    holds(
        || format!("a process uses memory: {usage:?}"),
        usage.is_some_and(|(inner, outer)| inner > Some(0) && outer >= inner),
    )?;
    pod.end()
}

pub(super) fn grows(machine: &Machine, naming: Naming) -> Result<()> {
    changes(machine, naming, SMALL, LARGE)
}

pub(super) fn shrinks(machine: &Machine, naming: Naming) -> Result<()> {
    changes(machine, naming, LARGE, SMALL)
}

pub(super) fn mixed(machine: &Machine, naming: Naming) -> Result<()> {
    let other = bounds(2000, Some(100), Some(48 * MIB));
    changes(machine, naming, SMALL, other)?;
    changes(machine, naming, LARGE, other)
}

/// Both levels go from one to the other, with a runtime of either conversion, and the kernel holds what was asked for.
fn changes(machine: &Machine, naming: Naming, from: Bounds, to: Bounds) -> Result<()> {
    for curved in [false, true] {
        // Room for another container.
        let around = |inner: Bounds| Bounds {
            cpu_request: inner.cpu_request + 50,
            cpu_limit: inner.cpu_limit.map(|limit| limit + 100),
            memory_limit: inner.memory_limit.map(|limit| limit + 8 * MIB),
        };
        let pod = Pod::with(machine, naming, from, around(from), curved)?;
        pod.resize(to, around(to))?;
        let (container, whole) = pod.both()?;
        same("the container", container_differs(&resources(to), &container.cgroup), None)?;
        same("the Pod", pod_differs(&resources(around(to)), &whole.cgroup), None)?;
        pod.end()?;
    }
    Ok(())
}

fn resources(bounds: Bounds) -> Resources {
    Resources {
        cpu_request: Some(bounds.cpu_request),
        cpu_limit: bounds.cpu_limit,
        memory_request: None,
        memory_limit: bounds.memory_limit,
    }
}

pub(super) fn no_limit(machine: &Machine, naming: Naming) -> Result<()> {
    let free = bounds(500, None, None);
    let pod = Pod::start(machine, naming, LARGE)?;
    pod.resize(free, free)?;
    for path in [pod.in_container("cpu.max"), pod.in_pod("cpu.max")] {
        same(&path, get(&path)?.as_str(), "max 100000\n")?;
    }
    for path in [pod.in_container("memory.max"), pod.in_pod("memory.max")] {
        same(&path, get(&path)?.as_str(), "max\n")?;
    }
    pod.resize(SMALL, SMALL)?;
    let (container, whole) = pod.both()?;
    let limits = |cgroup: Cgroup| (cgroup.cpu_quota, cgroup.memory_limit);
    same("the container", limits(container.cgroup), (Some(25_000), Some(24 * MIB)))?;
    same("the Pod", limits(whole.cgroup), (Some(25_000), Some(24 * MIB)))?;
    pod.end()
}

pub(super) fn steps(machine: &Machine, naming: Naming) -> Result<()> {
    let odd = bounds(100, Some(123), Some(24 * MIB));
    let pod = Pod::start(machine, naming, SMALL)?;
    pod.resize(odd, odd)?;
    let (container, whole) = pod.both()?;
    let kept = if naming == Naming::Systemd { 13_000 } else { 12_300 };
    same("the container", container.cgroup.cpu_quota, Some(kept))?;
    // This one the daemon writes itself, after systemd.
    same("the Pod", whole.cgroup.cpu_quota, Some(12_300))?;
    pod.end()
}

pub(super) fn weights(machine: &Machine) -> Result<()> {
    for (shares, linear, curve) in WEIGHTS {
        for curved in [false, true] {
            let pod = Pod::with(machine, Naming::Cgroupfs, SMALL, SMALL, curved)?;
            let settings = vec![Setting::Shares(shares)];
            pod.apply(&Write::Container { id: id()?, settings })?;
            pod.write(Setting::Shares(shares))?;
            let (container, whole) = pod.both()?;
            let expected = (Some(if curved { curve } else { linear }), Some(linear));
            same(
                &format!("{shares} shares"),
                (container.cgroup.cpu_weight, whole.cgroup.cpu_weight),
                expected,
            )?;
            // The millicores of those shares, up to what a request may ask for.
            let request = (shares * 1000 + 1023) / 1024;
            let asked = Bounds { cpu_request: request, ..SMALL };
            same(&format!("{request}m"), pod.plan(asked, asked, true)?, vec![])?;
            pod.end()?;
        }
    }
    Ok(())
}

pub(super) fn every_weight(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, SMALL)?;
    for weight in (1..=10_000).step_by(37).chain([2, 3, 99, 100, 101, 9999, 10_000]) {
        pod.write(Setting::Weight(weight))?;
        same("weight", get(&pod.in_pod("cpu.weight"))?.trim(), &weight.to_string())?;
    }
    pod.end()
}

pub(super) fn pages(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, SMALL)?;
    for (limit, kept) in [(30_000_001, 29_999_104), (25_001_983, 24_997_888), (28 * MIB, 28 * MIB)] {
        let odd = Bounds { memory_limit: Some(limit), ..SMALL };
        pod.resize(odd, odd)?;
        let (container, whole) = pod.both()?;
        let limits = (container.cgroup.memory_limit, whole.cgroup.memory_limit);
        same(&format!("{limit} bytes"), limits, (Some(kept), Some(kept)))?;
    }
    pod.end()
}

pub(super) fn quota_text(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, SMALL)?;
    let least = bounds(0, Some(1), Some(24 * MIB));
    pod.resize(least, least)?;
    for path in [pod.in_container("cpu.max"), pod.in_pod("cpu.max")] {
        same(&path, get(&path)?.as_str(), "1000 100000\n")?;
    }
    let quota = |quota| Setting::Quota { quota, period: 100_000 };
    let refused = machine.cgroups.write(&pod.paths.pod, quota(Some(999)));
    failed("999 µs", &refused, |failure| !failure.retry)?;
    for (setting, text) in [(quota(Some(1_234_567)), "1234567 100000\n"), (quota(None), "max 100000\n")] {
        pod.write(setting)?;
        same("cpu.max", get(&pod.in_pod("cpu.max"))?.as_str(), text)?;
    }
    pod.end()
}

pub(super) fn period(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, SMALL)?;
    for path in [pod.in_container("cpu.max"), pod.in_pod("cpu.max")] {
        put(&path, "5000 20000")?;
    }
    pod.resize(LARGE, LARGE)?;
    for path in [pod.in_container("cpu.max"), pod.in_pod("cpu.max")] {
        same(&path, get(&path)?.as_str(), "30000 20000\n")?;
    }
    pod.write(Setting::Quota { quota: None, period: 20_000 })?;
    same("cpu.max", get(&pod.in_pod("cpu.max"))?.as_str(), "max 20000\n")?;
    pod.end()
}

/// Unlike v1, v2 refuses no quota and no limit above that of the level above.
pub(super) fn above_pod(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, SMALL)?;
    let settings = vec![
        Setting::Quota { quota: Some(150_000), period: 100_000 },
        Setting::Memory(Some(64 * MIB)),
        Setting::Weight(100),
    ];
    pod.apply(&Write::Container { id: id()?, settings })?;
    let (container, whole) = pod.both()?;
    let limits = |cgroup: Cgroup| (cgroup.cpu_quota, cgroup.memory_limit);
    same("the container", limits(container.cgroup), (Some(150_000), Some(64 * MIB)))?;
    same("the Pod", limits(whole.cgroup), (Some(25_000), Some(24 * MIB)))?;
    pod.end()
}
