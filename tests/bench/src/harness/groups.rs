//! Limits in a container's control group, as seen on this machine.

use std::fs;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, anyhow};

/// Polling period.
const PERIOD: Duration = Duration::from_micros(100);
/// Mount point of the hierarchies.
const MOUNT: &str = "/sys/fs/cgroup";

/// Limits of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Microseconds of CPU in each period of 100 ms.
    pub(crate) cpu_quota: i64,
    /// Bytes of memory.
    pub(crate) memory: i64,
}

/// The limit files of a container's control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    cpu: PathBuf,
    memory: PathBuf,
}

impl Group {
    /// The control group of a process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/cgroup");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&text).with_context(|| format!("{path} names no control group of CPU and memory"))
    }

    /// From a `/proc/PID/cgroup` text. A controller without a version 1 hierarchy is in the version 2 hierarchy.
    fn parse(text: &str) -> Option<Self> {
        let path = |controller: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            Some(lines.find(|(controllers, _)| controllers.split(',').any(|c| c == controller))?.1)
        };
        let [cpu, memory] = if let (Some(cpu), Some(memory)) = (path("cpu"), path("memory")) {
            [
                format!("{MOUNT}/cpu{cpu}/cpu.cfs_quota_us"),
                format!("{MOUNT}/memory{memory}/memory.limit_in_bytes"),
            ]
        } else {
            let both = path("")?;
            ["cpu.max", "memory.max"].map(|file| format!("{MOUNT}{both}/{file}"))
        };
        Some(Self { cpu: cpu.into(), memory: memory.into() })
    }

    /// The current limits; `None` if the container lacks a limit or is gone.
    pub(crate) fn limits(&self) -> Option<Limits> {
        let first = |path: &PathBuf| -> Option<i64> {
            fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
        };
        Some(Limits { cpu_quota: first(&self.cpu)?, memory: first(&self.memory)? })
    }
}

/// Polls a group in its own thread, so that other work does not delay the polling.
pub(crate) struct Change(JoinHandle<Option<SystemTime>>);

impl Change {
    /// Starts polling; gives up after `patience`.
    pub(crate) fn watch(group: Group, wanted: Limits, patience: Duration) -> Self {
        Self(std::thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < patience {
                if group.limits() == Some(wanted) {
                    return Some(SystemTime::now());
                }
                std::thread::sleep(PERIOD);
            }
            None
        }))
    }

    /// Time when the group had all wanted limits. Fails if it never had.
    pub(crate) async fn time(self) -> Result<SystemTime> {
        let joined = tokio::task::spawn_blocking(|| self.0.join()).await.context("cannot wait")?;
        let looked = joined.map_err(|_| anyhow!("the look at the control group broke off"))?;
        looked.context("the control group did not change as wanted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_in_both_versions() {
        let group = |cpu: &str, memory: &str| {
            Some(Group { cpu: format!("{MOUNT}/{cpu}").into(), memory: format!("{MOUNT}/{memory}").into() })
        };
        assert_eq!(
            Group::parse("9:memory:/pod1/c1\n4:cpu,cpuacct:/pod1/c1\n1:cpuset:/x\n0::/y\n"),
            group("cpu/pod1/c1/cpu.cfs_quota_us", "memory/pod1/c1/memory.limit_in_bytes")
        );
        assert_eq!(Group::parse("0::/pod1/c1\n"), group("pod1/c1/cpu.max", "pod1/c1/memory.max"));
        assert_eq!(Group::parse("1:name=systemd:/x\n"), None);
    }

    #[tokio::test]
    async fn all_that_is_wanted_must_be_there() {
        let dir = std::env::temp_dir().join(format!("pitstop-bench-groups-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let group = Group { cpu: dir.join("cpu.max"), memory: dir.join("memory.max") };
        fs::write(&group.cpu, "20000 100000\n").unwrap();
        fs::write(&group.memory, "max\n").unwrap();
        assert_eq!(group.limits(), None);
        let wanted = Limits { cpu_quota: 20_000, memory: 4096 };
        let change = Change::watch(group.clone(), wanted, Duration::from_secs(10));
        let before = SystemTime::now();
        fs::write(&group.memory, "4096\n").unwrap();
        assert!(change.time().await.unwrap() >= before);
        let never = Limits { memory: 1, ..wanted };
        assert!(Change::watch(group, never, Duration::ZERO).time().await.is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
