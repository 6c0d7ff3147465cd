//! Processes of containers, seen from the machine that all nodes of the cluster run on.

use std::fs;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The machine's process ID of a container's process 1; `id` is as in the Pod's status.
pub fn of_container(id: &str) -> Result<i32> {
    let id = id.rsplit('/').next().unwrap_or(id);
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes come and go while the list is walked.
        let in_group = fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(id));
        if in_group && field(pid, "NSpid").is_ok_and(|text| text.split_whitespace().last() == Some("1")) {
            return Ok(pid);
        }
    }
    anyhow::bail!("no process of container {id}")
}

/// A line of `/proc/PID/status`.
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
