//! The text of the files that the daemon reads, in some states, and what it reads there.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use pitstop_daemon_core::cgroup::Paths;
use pitstop_daemon_core::resize::{Present, Seen};
use serde_json::{Map, Value, json};

use crate::machine::{Machine, ROOT, get, put};
use crate::pod::{ID, Naming, Pod, bounds};

const MIB: i64 = 1 << 20;
/// Page cache in one of the states, in bytes.
const CACHE: u64 = 8 << 20;
/// How often it is tried to read the same twice.
const TRIES: u32 = 100;

const AT_ROOT: [&str; 4] =
    ["cgroup.controllers", "cgroup.subtree_control", "cpuset.cpus.effective", "cpuset.mems.effective"];
const OF_GROUP: [&str; 12] = [
    "cgroup.controllers",
    "cgroup.subtree_control",
    "cpu.max",
    "cpu.weight",
    "cpuset.cpus",
    "cpuset.cpus.effective",
    "cpuset.mems.effective",
    "memory.current",
    "memory.events",
    "memory.max",
    "memory.stat",
    "memory.swap.max",
];

/// All states, each of a Pod of its own.
pub(crate) fn states(machine: &Machine) -> Result<Value> {
    let mut states = Map::new();
    let free = bounds(0, None, None);
    let part = bounds(500, Some(500), Some(32 * MIB));
    let whole = bounds(750, Some(1000), Some(64 * MIB));
    // What is in the page cache already counts elsewhere.
    for (naming, from) in Naming::ALL.into_iter().zip([0, CACHE]) {
        let mut state = |what: &str, pod: &Pod<'_>| -> Result<()> {
            states.insert(format!("{}, {what}", naming.name()), state_of(pod)?);
            Ok(())
        };
        let pod = Pod::start(machine, naming, free)?;
        state("no limits", &pod)?;
        pod.end()?;

        let mut pod = Pod::with(machine, naming, part, whole, false)?;
        pod.load.hold(4 << 20)?;
        pod.load.read(&machine.disk, from, CACHE)?;
        state("limits and page cache", &pod)?;
        put(&pod.in_container("cpuset.cpus"), "1")?;
        put(&pod.in_container("memory.swap.max"), "max")?;
        machine.with_swap(|| state("a CPU of its own, and swap", &pod))?;
        pod.end()?;

        // With a runtime whose weights lie on the curve.
        let mut pod = Pod::with(machine, naming, part, whole, true)?;
        // The process is killed.
        if pod.load.hold(48 << 20).is_ok() {
            bail!("a container with a limit of 32 MiB holds 48 MiB");
        }
        state("killed for want of memory", &pod)?;
        pod.end()?;
    }
    let kernel = get("/proc/sys/kernel/osrelease")?;
    Ok(json!({ "kernel": kernel.trim(), "container": ID, "states": states }))
}

/// The files between two reads that gave the same.
fn state_of(pod: &Pod<'_>) -> Result<Value> {
    for _ in 0..TRIES {
        let before = pod.present()?;
        let files = files(&pod.paths)?;
        let swaps = get("/proc/swaps")?;
        if before == pod.present()? {
            return Ok(json!({
                "podUid": pod.uid,
                "cgroupsPath": pod.cgroups_path,
                "swaps": swaps,
                "files": files,
                "read": read(&before),
            }));
        }
    }
    bail!("{} does not come to rest", pod.paths.container)
}

fn files(paths: &Paths) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for file in AT_ROOT {
        files.insert(file.to_owned(), get(&format!("{ROOT}/{file}"))?);
    }
    for group in [&paths.pod, &paths.container] {
        for file in OF_GROUP {
            let file = format!("{group}/{file}");
            files.insert(file.clone(), get(&format!("{ROOT}/{file}"))?);
        }
    }
    Ok(files)
}

fn read(present: &Present) -> Value {
    let seen = |seen: Option<Seen>| {
        seen.map(|seen| json!({ "cgroup": seen.cgroup, "inactiveFile": seen.inactive_file }))
    };
    json!({
        "cgroup": present.cgroup,
        "container": seen(present.container),
        "pod": seen(present.pod),
        "pinned": present.pinned,
        "swap": present.swap,
    })
}
