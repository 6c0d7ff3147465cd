//! Processes of containers, as seen on this machine.

use std::fs;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

/// Polling period.
const PERIOD: Duration = Duration::from_micros(100);

/// The first process of a container: in the container's cgroup, with process ID 1 in the container.
pub(crate) fn of_container(container_id: &str) -> Result<u32> {
    let entries = fs::read_dir("/proc").context("cannot read /proc")?;
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    for pid in ids {
        // The files are missing if the process has ended meanwhile.
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        if read("cgroup").contains(container_id) && is_first(&read("status")) {
            return Ok(pid);
        }
    }
    bail!("container {container_id} has no process on this machine: does KUBECONFIG mean its own cluster?")
}

/// Whether `/proc/PID/status` is of process 1 of its namespace.
fn is_first(status: &str) -> bool {
    field(status, "NSpid").and_then(|ids| ids.split_whitespace().last()) == Some("1")
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Length of a tick in `/proc/PID/stat`: `USER_HZ` is 100 a second on every architecture that we build for.
const TICK: Duration = Duration::from_millis(10);

/// Processor time that a process and all its threads have used.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = ticks(&stat).with_context(|| format!("{path} is not understood"))?;
    Ok(TICK * ticks)
}

/// Sum of `utime` and `stime` of a `/proc/PID/stat` text. The name in parentheses may contain any character.
fn ticks(stat: &str) -> Option<u32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// Resets the process's peak of resident memory to the current value.
pub(crate) fn forget_peak(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Resident memory now.
    pub(crate) resident: u64,
    /// Peak of resident memory.
    pub(crate) peak: u64,
    /// Resident memory that belongs to no file.
    pub(crate) anonymous: u64,
}

impl Memory {
    /// Memory of a running process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&status).with_context(|| format!("{path} is not understood"))
    }

    fn parse(status: &str) -> Option<Self> {
        let kib = |name| field(status, name)?.trim().strip_suffix(" kB")?.trim().parse().ok();
        Some(Self { resident: kib("VmRSS")?, peak: kib("VmHWM")?, anonymous: kib("RssAnon")? })
    }

    /// The larger value of each field.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            resident: self.resident.max(other.resident),
            peak: self.peak.max(other.peak),
            anonymous: self.anonymous.max(other.anonymous),
        }
    }
}

/// Polls for a process's end in its own thread, so that other work does not delay the polling.
pub(crate) struct End(JoinHandle<Option<Instant>>);

impl End {
    /// Starts polling; gives up after `patience`.
    pub(crate) fn watch(pid: u32, patience: Duration) -> Result<Self> {
        let exe = format!("/proc/{pid}/exe");
        if fs::read_link(&exe).is_err() {
            bail!("process {pid} has ended already");
        }
        let look = move || {
            let start = Instant::now();
            while start.elapsed() < patience {
                // The link is unreadable once the process ends, even before its parent fetches the exit code.
                if fs::read_link(&exe).is_err() {
                    return Some(Instant::now());
                }
                std::thread::sleep(PERIOD);
            }
            None
        };
        Ok(Self(std::thread::spawn(look)))
    }

    /// Time when the process was gone. Fails if it did not end.
    pub(crate) async fn time(self) -> Result<Instant> {
        let joined = tokio::task::spawn_blocking(|| self.0.join()).await.context("cannot wait")?;
        joined.map_err(|_| anyhow!("the look at the process broke off"))?.context("the process did not end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const STATUS: &str =
        "Name:\tx\nNSpid:\t4711\t12\t1\nVmHWM:\t    5120 kB\nVmRSS:\t    4096 kB\nRssAnon:\t     512 kB\n";

    #[test]
    fn a_status_is_read() {
        assert!(is_first(STATUS));
        assert!(!is_first("NSpid:\t4711\t11\n"));
        let memory = Memory { resident: 4096, peak: 5120, anonymous: 512 };
        assert_eq!(Memory::parse(STATUS), Some(memory));
        assert_eq!(Memory::parse("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a) S 1"), None);
        assert!(cpu(std::process::id()).unwrap() < Duration::from_hours(1));
    }

    #[test]
    fn a_peak_can_be_forgotten() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        forget_peak(child.id()).unwrap();
        let memory = Memory::of(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(memory.peak >= memory.resident);
    }

    #[tokio::test]
    async fn the_end_is_seen_before_the_parent_has_fetched_the_exit_code() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let end = End::watch(child.id(), Duration::from_secs(10)).unwrap();
        let killed = Instant::now();
        child.kill().unwrap();
        assert!(end.time().await.unwrap() > killed);
        child.wait().unwrap();
    }
}
