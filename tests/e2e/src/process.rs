//! Processes of containers, seen from the machine that all nodes of the cluster run on.

use std::fs;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::Cluster;

/// Process ID on the machine of a container's process 1; `id` is as in the Pod's status.
pub fn of_container(id: &str) -> Result<i32> {
    let id = id.rsplit('/').next().unwrap_or(id);
    let found = first_in(|pid, group| group.contains(id).then_some(pid))?;
    found.first().copied().with_context(|| format!("no process of container {id}"))
}

/// Process IDs on the machine of a node's containers whose process 1 is that program.
pub fn of_program(cluster: &Cluster, node: &str, program: &str) -> Result<Vec<i32>> {
    // The cgroup of a node's Pods, as tests/cluster names it.
    let pods = format!("/pitstop-lab/{}/{node}/", cluster.name()?);
    first_in(|pid, group| {
        let runs = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        (group.contains(&pods) && runs.file_name()? == program).then_some(pid)
    })
}

/// The processes 1 of containers for which `wanted`, called with process ID and cgroups, returns an ID.
fn first_in(wanted: impl Fn(i32, &str) -> Option<i32>) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes begin and end during the loop.
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let is_first =
            |pid| field(pid, "NSpid").is_ok_and(|text| text.split_whitespace().last() == Some("1"));
        found.extend(wanted(pid, &groups).filter(|pid| is_first(*pid)));
    }
    Ok(found)
}

/// A field of `/proc/PID/status`.
pub fn field(pid: i32, name: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).with_context(|| format!("process {pid} has no {name}"))
}

/// `kill -9`.
pub fn kill_9(pid: i32) -> Result<()> {
    signal(pid, Signal::SIGKILL)
}

/// Sends a signal.
pub fn signal(pid: i32, signal: Signal) -> Result<()> {
    kill(Pid::from_raw(pid), signal).with_context(|| format!("kill -{signal} {pid}"))
}
