//! Memory in use, page cache and kills.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use pitstop_api::nodework::Bounds;
use pitstop_daemon_core::resize::{Goal, Seen, in_use};

use super::{MIB, holds, same};
use crate::load::Load;
use crate::machine::{CONTROLLERS, Machine, ROOT, VOLUME, get, put};
use crate::pod::{Naming, Pod, bounds, remove, remove_one};

/// What a process needs beside what it is told to hold, at most, and what counters lag behind: bytes.
const ROOM: i64 = 4 * MIB;

/// A container and its Pod with that limit.
fn limited(limit: i64) -> Bounds {
    bounds(100, None, Some(limit))
}

/// Why the daemon would not write that limit now.
fn refusal(seen: &Seen, limit: i64) -> Option<String> {
    in_use("container", seen, &Goal::of(&limited(limit), &seen.cgroup), 0)
}

fn killed(machine: &Machine) -> Result<Pod<'_>> {
    let mut pod = Pod::start(machine, Naming::Cgroupfs, limited(64 * MIB))?;
    pod.load.hold(32 << 20)?;
    let (container, whole) = pod.both()?;
    for seen in [&container, &whole] {
        holds(|| format!("{seen:?} lets it shrink"), refusal(seen, 24 * MIB).is_some())?;
        same("with room", refusal(seen, 32 * MIB + ROOM), None)?;
    }
    // Nobody asked whether it is in use.
    let small = limited(24 * MIB);
    pod.resize(small, small)?;
    Ok(pod)
}

pub(super) fn below_use(machine: &Machine) -> Result<()> {
    let pod = killed(machine)?;
    let paths = pod.paths.clone();
    let ended = pod.load.ended()?;
    same("signal", ended.signal(), Some(9))?;
    remove(&paths)
}

pub(super) fn kills(machine: &Machine) -> Result<()> {
    let pod = killed(machine)?;
    let (container, whole) = pod.both()?;
    same("kills", (container.cgroup.oom_kills, whole.cgroup.oom_kills), (Some(1), Some(1)))?;
    pod.end()
}

pub(super) fn page_cache(machine: &Machine) -> Result<()> {
    let mut pod = Pod::start(machine, Naming::Cgroupfs, limited(64 * MIB))?;
    pod.load.hold(8 << 20)?;
    pod.load.read(&machine.disk, 16 << 20, 32 << 20)?;
    let (container, _) = pod.both()?;
    let usage = container.cgroup.memory_usage.unwrap_or_default();
    holds(|| format!("{container:?} is without page cache"), usage > 40 * MIB)?;
    let dropped = container.inactive_file;
    holds(
        || format!("{dropped} bytes can be dropped"),
        (32 * MIB - MIB..=32 * MIB + MIB).contains(&dropped),
    )?;
    same("with page cache", refusal(&container, 8 * MIB + ROOM), None)?;
    let small = limited(8 * MIB + ROOM);
    pod.resize(small, small)?;
    let (container, whole) = pod.both()?;
    let usage = container.cgroup.memory_usage.unwrap_or_default();
    holds(|| format!("{usage} bytes after it"), usage <= 8 * MIB + ROOM)?;
    same("kills", (container.cgroup.oom_kills, whole.cgroup.oom_kills), (Some(0), Some(0)))?;
    // It is alive.
    pod.load.hold(1 << 20)?;
    pod.end()
}

/// How often pages are written again that the kernel has written to the disk meanwhile.
const TRIES: usize = 4;

/// Bytes of page cache, as `memory.stat` tells.
struct Cached {
    inactive: i64,
    dirty: i64,
    writeback: i64,
}

/// Writes 8 MiB into page cache, and looks at the container.
fn written(machine: &Machine, pod: &mut Pod<'_>) -> Result<(Seen, Cached)> {
    pod.load.write(&machine.disk, 64 << 20, 8 << 20)?;
    let (container, _) = pod.both()?;
    let stat = get(&pod.in_container("memory.stat"))?;
    let count = |name: &str| -> Result<i64> {
        let lines = stat.lines().filter_map(|line| line.split_once(' '));
        let count = lines.filter(|(key, _)| *key == name).map(|(_, count)| count.parse::<i64>()).next();
        Ok(count.with_context(|| format!("memory.stat has no {name}"))??)
    };
    let cached = Cached {
        inactive: count("inactive_file")?,
        dirty: count("file_dirty")?,
        writeback: count("file_writeback")?,
    };
    Ok((container, cached))
}

pub(super) fn dirty(machine: &Machine) -> Result<()> {
    // With a limit, the kernel would soon begin to write it.
    let mut pod = Pod::start(machine, Naming::Cgroupfs, bounds(100, None, None))?;
    let mut found = written(machine, &mut pod)?;
    // A slow machine may have written some of it before it is looked at.
    for _ in 0..TRIES {
        let (_, Cached { inactive, dirty, .. }) = &found;
        if *dirty > 7 * MIB && *inactive > 7 * MIB {
            break;
        }
        found = written(machine, &mut pod)?;
    }
    let (container, Cached { inactive, dirty, writeback }) = found;
    holds(|| format!("file_dirty {dirty}, inactive_file {inactive}"), dirty > 7 * MIB && inactive > 7 * MIB)?;
    same("what can be dropped", container.inactive_file, (inactive - dirty - writeback).max(0))?;
    holds(|| format!("{container:?} is without dirty pages"), refusal(&container, 6 * MIB).is_some())?;
    pod.end()
}

/// Memory of a `tmpfs` volume: page cache that cannot be dropped.
pub(super) fn shared(machine: &Machine) -> Result<()> {
    let mut pod = Pod::start(machine, Naming::Cgroupfs, limited(64 * MIB))?;
    let (before, _) = pod.both()?;
    let file = &Path::new(VOLUME).join("file");
    std::fs::write(file, "").context("cannot make a file of a tmpfs")?;
    pod.load.write(file, 0, 16 << 20)?;
    let (after, _) = pod.both()?;
    let dropped = after.inactive_file - before.inactive_file;
    holds(|| format!("{dropped} bytes of it can be dropped"), dropped.abs() < MIB)?;
    holds(|| format!("{after:?} lets it shrink"), refusal(&after, 12 * MIB).is_some())?;
    pod.end()?;
    std::fs::remove_file(file).context("cannot remove a file of a tmpfs")
}

pub(super) fn reclaim(machine: &Machine) -> Result<()> {
    let mut pod = Pod::start(machine, Naming::Cgroupfs, limited(64 * MIB))?;
    pod.load.read(&machine.disk, 96 << 20, 16 << 20)?;
    let group = pod.paths.container.clone();
    let (before, _) = pod.both()?;
    same("8 MiB of page cache", machine.cgroups.reclaim(&group, 8 * MIB), Ok(()))?;
    let (after, _) = pod.both()?;
    let usage = |seen: &Seen| seen.cgroup.memory_usage.unwrap_or_default();
    let less = usage(&before) - usage(&after);
    holds(|| format!("{less} bytes less"), less > 6 * MIB)?;
    // The kernel says that there was less: no failure.
    same("1 TiB", machine.cgroups.reclaim(&group, 1 << 40), Ok(()))?;
    same("kills", pod.both()?.0.cgroup.oom_kills, Some(0))?;
    pod.end()?;
    let gone = machine.cgroups.reclaim(&group, MIB).map_err(|failure| failure.retry);
    same("an ended container's", gone, Err(true))
}

/// As of a container that runs an init system of its own.
pub(super) fn nested(machine: &Machine) -> Result<()> {
    let pod = Pod::start(machine, Naming::Cgroupfs, limited(64 * MIB))?;
    let inner = pod.in_container("inner");
    std::fs::create_dir(&inner).with_context(|| format!("cannot make {inner}"))?;
    let mut load = Load::start(&format!("{inner}/cgroup.procs"))?;
    // The process before it leaves room for controllers.
    put(&format!("{inner}/cgroup.procs"), &get(&pod.in_container("cgroup.procs"))?)?;
    put(&pod.in_container("cgroup.subtree_control"), CONTROLLERS)?;
    let group = format!("{}/inner", pod.paths.container);
    load.hold(24 << 20)?;
    load.read(&machine.disk, 128 << 20, 8 << 20)?;
    let seen = |group: &str| machine.cgroups.seen(machine.cgroups.version(), group);
    let (container, own) = (seen(&pod.paths.container), seen(&group));
    let counts = |seen: &Seen| seen.cgroup.memory_usage > Some(30 * MIB) && seen.inactive_file > 6 * MIB;
    holds(|| format!("{container:?} with {own:?} in {ROOT}/{group}"), container.as_ref().is_ok_and(counts))?;
    let small = limited(40 * MIB);
    pod.resize(small, small)?;
    load.end()?;
    let paths = pod.paths.clone();
    pod.load.end()?;
    remove_one(&group)?;
    remove(&paths)
}
