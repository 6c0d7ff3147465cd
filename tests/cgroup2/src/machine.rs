//! The machine: what is mounted, which controllers there are, and what it has of disks and swap.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use pitstop_daemon::cgroup::Cgroups;

/// The one hierarchy.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";
/// An empty folder in memory.
pub(crate) const VOLUME: &str = "/volume";
/// As many of the kubelet's controllers as the checks look at.
pub(crate) const CONTROLLERS: &str = "+cpuset +cpu +memory +pids";

/// A machine that has started.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The daemon's view of it.
    pub(crate) cgroups: Cgroups,
    /// A disk that reads as zeroes: page cache of it can be dropped.
    pub(crate) disk: PathBuf,
    /// Its page cache is gone when nobody has it open.
    _open: File,
    /// A disk for swap.
    swap: PathBuf,
}

/// Mounts what a node has.
pub(crate) fn start() -> Result<Machine> {
    let none: Option<&str> = None;
    let mounts =
        [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("cgroup2", ROOT), ("tmpfs", VOLUME)];
    for (kind, target) in mounts {
        fs::create_dir_all(target).with_context(|| format!("cannot make {target}"))?;
        mount(Some(kind), target, Some(kind), MsFlags::empty(), none)
            .with_context(|| format!("cannot mount {kind} on {target}"))?;
    }
    put(&format!("{ROOT}/cgroup.subtree_control"), CONTROLLERS)?;
    // What is dirty stays so until somebody asks for it to be written.
    put("/proc/sys/vm/dirty_writeback_centisecs", "0")?;
    let (disk, swap) = (disk("cache")?, disk("swap")?);
    let open = File::open(&disk).with_context(|| format!("cannot open {}", disk.display()))?;
    Ok(Machine { cgroups: Cgroups::new(Path::new("/")), disk, _open: open, swap })
}

/// The disk with that serial number.
fn disk(serial: &str) -> Result<PathBuf> {
    let blocks = fs::read_dir("/sys/block").context("cannot list disks")?;
    for block in blocks {
        let block = block.context("cannot list disks")?;
        let found = fs::read_to_string(block.path().join("device/serial")).unwrap_or_default();
        if found.trim() == serial {
            return Ok(Path::new("/dev").join(block.file_name()));
        }
    }
    bail!("there is no disk {serial:?}")
}

impl Machine {
    /// Runs something while the node has swap.
    pub(crate) fn with_swap<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let swap = |command: &str| -> Result<()> {
            let output = Command::new("/busybox").arg(command).arg(&self.swap).output();
            let output = output.with_context(|| format!("cannot run {command}"))?;
            if !output.status.success() {
                bail!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            Ok(())
        };
        swap("mkswap")?;
        swap("swapon")?;
        let result = run();
        swap("swapoff")?;
        result
    }
}

/// The text of a file.
pub(crate) fn get(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Writes a file that is there.
pub(crate) fn put(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text:?} to {path}"))
}

/// Does not come back.
pub(crate) fn turn_off() -> ExitCode {
    let Err(error) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("cannot turn off the machine: {error}");
    ExitCode::FAILURE
}
