//! Reads and writes of cgroup files for a resize. Only existing files are opened: none is ever created.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};

use nix::errno::Errno;
use pitstop_api::logic::cgroup::linear_weight;
use pitstop_api::text::quoted;
use pitstop_daemon_core::CallFailure;
use pitstop_daemon_core::cgroup::{self, Controller, Paths, Version};
use pitstop_daemon_core::resize::{Present, Seen, Setting};
use pitstop_kit::describe;

use super::{Cgroups, MAX_FILE, text};

impl Cgroups {
    /// Values of two cgroups, and what decides whether they may be changed. With `container`, both must
    /// exist; without, the Pod's may be missing.
    pub fn present(&self, paths: &Paths, container: bool) -> Result<Present, String> {
        let version = self.version();
        let there = container || self.has(version, &paths.pod);
        let pod = there.then(|| self.seen(version, &paths.pod)).transpose()?;
        let of_container = container.then(|| self.seen(version, &paths.container)).transpose()?;
        Ok(Present {
            cgroup: paths.pod.clone(),
            of_container: if container { paths.container.clone() } else { String::new() },
            version,
            container: of_container,
            pod,
            pinned: container && self.pinned(version, paths),
            swap: container && self.may_swap(version, &paths.container),
        })
    }

    /// Values of one cgroup.
    pub fn seen(&self, version: Version, group: &str) -> Result<Seen, String> {
        let cgroup = cgroup::read(version, |controller, file| self.file(version, controller, group, file))?;
        let stat = self.file(version, Controller::Memory, group, "memory.stat")?;
        Ok(Seen { cgroup, inactive_file: cgroup::inactive_file(version, &stat)? })
    }

    /// Whether the cgroup exists.
    pub fn has(&self, version: Version, group: &str) -> bool {
        let exists =
            |controller| self.candidates(version, controller, group, ".").iter().any(|path| path.is_dir());
        exists(Controller::Memory) || exists(Controller::Cpu)
    }

    /// Whether the container has CPUs or memory nodes other than its Pod's: the kubelet assigns them to containers
    /// only.
    fn pinned(&self, version: Version, paths: &Paths) -> bool {
        let files = match version {
            Version::V1 => ["cpuset.cpus", "cpuset.mems"],
            Version::V2 => ["cpuset.cpus.effective", "cpuset.mems.effective"],
        };
        files.into_iter().any(|file| {
            let read = |group: &str| self.file(version, Controller::Cpuset, group, file).ok();
            // Without such a file, nothing can be assigned.
            let (container, pod) = (read(&paths.container), read(&paths.pod));
            container.zip(pod).is_some_and(|(container, pod)| container.trim() != pod.trim())
        })
    }

    /// Whether the cgroup's limits allow swap, and the node has swap.
    fn may_swap(&self, version: Version, group: &str) -> bool {
        let read = |file: &str| self.file(version, Controller::Memory, group, file).ok();
        let allowed = match version {
            Version::V1 => {
                let number = |file: &str| read(file).and_then(|text| text.trim().parse::<i64>().ok());
                let (both, memory) = (number("memory.memsw.limit_in_bytes"), number("memory.limit_in_bytes"));
                both.zip(memory).is_some_and(|(both, memory)| both > memory)
            }
            Version::V2 => read("memory.swap.max").is_some_and(|most| most.trim() != "0"),
        };
        // The first line is a heading. An unreadable file counts as swap.
        allowed && text(&self.swaps, MAX_FILE).map_or(true, |text| text.lines().count() > 1)
    }

    /// Whether the runtime can limit memory and swap together.
    pub fn counts_swap(&self, pod: &str) -> bool {
        let version = self.version();
        version == Version::V1
            && self.file(version, Controller::Memory, pod, "memory.memsw.limit_in_bytes").is_ok()
    }

    /// Writes one value into the cgroup of a Pod. May wait while the kernel reclaims memory.
    pub fn write(&self, group: &str, setting: Setting) -> Result<(), CallFailure> {
        let (controller, file, value) = file_of(self.version(), setting);
        self.put(controller, group, file, &value).map_err(|(failure, _)| failure)
    }

    /// Makes the kernel reclaim that many bytes of a cgroup, or what it can. On v1 the kernel always reclaims all that
    /// it can. Waits meanwhile.
    pub fn reclaim(&self, group: &str, bytes: i64) -> Result<(), CallFailure> {
        let (file, value) = match self.version() {
            Version::V1 => ("memory.force_empty", "0".to_owned()),
            // Linux 5.19 and later (Documentation/admin-guide/cgroup-v2.rst).
            Version::V2 => ("memory.reclaim", bytes.to_string()),
        };
        let (failure, errno) = match self.put(Controller::Memory, group, file, &value) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        match errno {
            // The kernel reclaimed less.
            Some(Errno::EAGAIN | Errno::EBUSY) => Ok(()),
            Some(Errno::ENOENT) if self.has(self.version(), group) => {
                let message = format!("{}: this kernel cannot reclaim memory on request", failure.message);
                Err(CallFailure { retry: false, message })
            }
            _ => Err(failure),
        }
    }

    /// Writes a value into a file of a cgroup.
    fn put(
        &self,
        controller: Controller,
        group: &str,
        file: &str,
        value: &str,
    ) -> Result<(), (CallFailure, Option<Errno>)> {
        let version = self.version();
        let mut failure = (CallFailure { retry: false, message: format!("{group} has no {file}") }, None);
        for path in self.candidates(version, controller, group, file) {
            let opened = OpenOptions::new().write(true).open(&path);
            match opened.and_then(|mut file| file.write_all(value.as_bytes())) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let message =
                        format!("cannot write {} to {}: {}", quoted(value), path.display(), describe(&error));
                    // Busy: memory that could not be reclaimed. Not found: the Pod may have ended, which the next look
                    // shows.
                    let passes = [Errno::EBUSY, Errno::EAGAIN, Errno::EINTR, Errno::ENODEV, Errno::ENOMEM];
                    let number = error.raw_os_error().map(Errno::from_raw);
                    let missing = error.kind() == ErrorKind::NotFound;
                    let retry = missing || number.is_some_and(|number| passes.contains(&number));
                    failure = (CallFailure { retry, message }, number);
                    if !missing {
                        break;
                    }
                }
            }
        }
        Err(failure)
    }
}

/// The file of a Pod's setting, and its text.
fn file_of(version: Version, setting: Setting) -> (Controller, &'static str, String) {
    use Controller::{Cpu, Memory};
    let or = |none: &str, amount: Option<i64>| amount.map_or_else(|| none.to_owned(), |n| n.to_string());
    match (version, setting) {
        (Version::V1, Setting::Shares(shares) | Setting::Weight(shares)) => {
            (Cpu, "cpu.shares", shares.to_string())
        }
        (Version::V2, Setting::Shares(shares)) => (Cpu, "cpu.weight", linear_weight(shares).to_string()),
        (Version::V2, Setting::Weight(weight)) => (Cpu, "cpu.weight", weight.to_string()),
        (Version::V1, Setting::Quota { quota, .. }) => (Cpu, "cpu.cfs_quota_us", or("-1", quota)),
        (Version::V2, Setting::Quota { quota, period }) => {
            (Cpu, "cpu.max", format!("{} {period}", or("max", quota)))
        }
        (Version::V1, Setting::Memory(limit)) => (Memory, "memory.limit_in_bytes", or("-1", limit)),
        (Version::V2, Setting::Memory(limit)) => (Memory, "memory.max", or("max", limit)),
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
