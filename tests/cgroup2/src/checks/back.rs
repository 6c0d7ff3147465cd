//! Giving back what was there.

use anyhow::{Result, anyhow, bail};
use pitstop_api::nodework::{Bounds, Cgroup, Held, HeldContainer};
use pitstop_daemon_core::resize::{RunningContainer, Write, give_back};

use super::{MIB, failed, holds, same};
use crate::machine::{Machine, get, put};
use crate::pod::{ID, Naming, Pod, bounds, id};

const LESS: Bounds = Bounds { cpu_request: 100, cpu_limit: Some(250), memory_limit: Some(24 * MIB) };
const MORE: Bounds = Bounds { cpu_request: 900, cpu_limit: Some(1500), memory_limit: Some(64 * MIB) };

/// What the record keeps: no counters.
fn limits(cgroup: &Cgroup) -> Cgroup {
    Cgroup { memory_usage: None, oom_kills: None, ..*cgroup }
}

/// What the record says of a Pod before anything is changed.
fn record(pod: &Pod<'_>) -> Result<Held> {
    let (container, whole) = pod.both()?;
    let container = HeldContainer {
        name: "app".to_owned(),
        id: ID.to_owned(),
        original: limits(&container.cgroup),
        ..HeldContainer::default()
    };
    let original = limits(&whole.cgroup);
    Ok(Held { cgroup: pod.paths.pod.clone(), original, containers: vec![container], ..Held::default() })
}

/// What is yet to be given back.
fn missing(pod: &Pod<'_>, held: &Held) -> Result<Vec<Write>> {
    let (container, whole) = pod.both()?;
    let id = id()?;
    let parts: Vec<RunningContainer<'_>> = held
        .containers
        .iter()
        .map(|of| RunningContainer { id: &id, original: &of.original, present: &container })
        .collect();
    give_back(held, Some(&whole), &parts).map_err(|why| anyhow!(why))
}

pub(super) fn given_back(machine: &Machine, naming: Naming) -> Result<()> {
    // A weight that the kubelet's formula for Pods never gives is kept as well.
    let free = bounds(0, None, None);
    for (before, held_at, weight) in [(LESS, MORE, None), (MORE, LESS, Some(57)), (free, LESS, None)] {
        for curved in [false, true] {
            let pod = Pod::with(machine, naming, before, before, curved)?;
            if let Some(weight) = weight {
                put(&pod.in_pod("cpu.weight"), &weight.to_string())?;
            }
            let files = || -> Result<Vec<String>> {
                let names = ["cpu.max", "cpu.weight", "memory.max"];
                names
                    .iter()
                    .flat_map(|name| [pod.in_container(name), pod.in_pod(name)])
                    .map(|path| get(&path))
                    .collect()
            };
            let (held, texts) = (record(&pod)?, files()?);
            same("nothing was changed", missing(&pod, &held)?, vec![])?;
            pod.resize(held_at, held_at)?;
            holds(|| "nothing changed".to_owned(), files()? != texts)?;
            let back = missing(&pod, &held)?;
            back.iter().try_for_each(|write| pod.apply(write))?;
            let left = missing(&pod, &held)?;
            // The daemon asks for the shares of the one conversion first, and looks.
            if !left.is_empty() {
                bail!("after {back:?} there is still to give back: {left:?}");
            }
            same("the files", files()?, texts)?;
            pod.end()?;
        }
    }
    Ok(())
}

pub(super) fn in_use(machine: &Machine, naming: Naming) -> Result<()> {
    let mut pod = Pod::start(machine, naming, LESS)?;
    let held = record(&pod)?;
    pod.resize(MORE, MORE)?;
    pod.load.hold(40 << 20)?;
    let refused = missing(&pod, &held);
    failed("what is in use", &refused, |why| why.to_string().contains("are in use"))?;
    pod.load.hold(1 << 20)?;
    missing(&pod, &held)?.iter().try_for_each(|write| pod.apply(write))?;
    same("given back", missing(&pod, &held)?, vec![])?;
    same("kills", pod.both()?.0.cgroup.oom_kills, Some(0))?;
    pod.end()
}
