//! `cargo xtask cgroup2`: runs `tests/cgroup2` in a virtual machine. Its Debian kernel has only cgroup v2.
//!
//! A run takes about 15 seconds.

mod fixture;

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::image;
use crate::machine::{self, BUSYBOX, KERNEL_ARGUMENTS, cpio};
use crate::progress::{Step, note};
use crate::sh::Cmd;
use crate::workspace::shown;

/// First process of the machine.
const PROGRAM: &str = "pitstop-cgroup2";
/// How long the machine may run.
const LIMIT: Duration = Duration::from_mins(5);
/// Size of the disk for swap, in bytes.
const SWAP: u64 = 64 << 20;
/// Number of last output lines that are printed if the machine ends too early.
const TAIL: usize = 20;

/// Arguments of qemu: two processors and two memory nodes, so that a container can have one of its own.
const MACHINE: [&str; 26] = [
    "-accel",
    "tcg",
    "-cpu",
    "max",
    "-smp",
    "2",
    "-m",
    "512M",
    "-object",
    "memory-backend-ram,id=memory0,size=256M",
    "-object",
    "memory-backend-ram,id=memory1,size=256M",
    "-numa",
    "node,nodeid=0,cpus=0,memdev=memory0",
    "-numa",
    "node,nodeid=1,cpus=1,memdev=memory1",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-nic",
    "none",
    "-display",
    "none",
    "-serial",
    "stdio",
    "-append",
];

/// Disks: one that reads as zeroes, and one for swap.
const DISKS: [&str; 8] = [
    "-blockdev",
    "driver=null-co,node-name=cache,size=268435456,read-zeroes=on",
    "-device",
    "nvme,serial=cache,drive=cache",
    "-blockdev",
    "driver=file,node-name=swap,filename=swap.raw",
    "-device",
    "nvme,serial=swap,drive=swap",
];

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write what the files held as the fixture of the daemon's tests, instead of comparing it.
    #[arg(long)]
    record: bool,
}

/// Number of checks that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checks={} failed={}", self.passed + self.failed, self.failed)
    }
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    machine::require(root)?;
    let seen = boot(root)?;
    let mut count = seen.count;
    if args.record {
        if count.failed > 0 {
            bail!("{count}: nothing is recorded");
        }
        note(format!("recorded: {}", shown(root, &fixture::write(root, &seen.record)?)));
    } else {
        compare(root, &seen, &mut count);
    }
    println!("{count}");
    Ok(if count.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the machine and compares its files with the fixture.
pub(crate) fn check(root: &Path) -> Result<Count> {
    let seen = boot(root)?;
    let mut count = seen.count;
    compare(root, &seen, &mut count);
    Ok(count)
}

/// Adds the check that the files match the fixture.
fn compare(root: &Path, seen: &Seen, count: &mut Count) {
    match fixture::compare(root, &seen.record) {
        Ok(()) => {
            count.passed += 1;
            println!("ok the files are as they were recorded");
        }
        Err(error) => {
            count.failed += 1;
            println!("FAILED the files are as they were recorded: {error:#}");
        }
    }
}

/// Runs the machine until it ends.
fn boot(root: &Path) -> Result<Seen> {
    let step = Step::begin("building the first process of a machine (minutes when nothing is built yet)");
    let programs = image::programs(root, &image::AMD64, &[PROGRAM], &image::PACKAGES, true)?;
    let program = programs.get(PROGRAM).with_context(|| format!("{PROGRAM} was not built"))?;
    let (kernel, folder) = (machine::kernel(root)?.image, machine::folder(root));
    let bytes = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let start = cpio::archive(&[("init", &bytes(program)?), ("busybox", &bytes(Path::new(BUSYBOX))?)])?;
    let start_path = folder.join("initramfs");
    fs::write(&start_path, start).with_context(|| format!("cannot write {}", start_path.display()))?;
    let swap = folder.join("swap.raw");
    let sized = File::create(&swap).and_then(|file| file.set_len(SWAP));
    sized.with_context(|| format!("cannot write {}", swap.display()))?;
    step.done();

    let step = Step::begin("a machine with cgroup v2");
    let command = Cmd::new("qemu-system-x86_64")
        .args(MACHINE)
        .arg(KERNEL_ARGUMENTS)
        .args(DISKS)
        .arg("-kernel")
        .arg(kernel)
        .args(["-initrd", "initramfs"])
        .dir(&folder)
        .within(LIMIT);
    let mut seen = Seen::default();
    let status = command.each_line(|line| {
        if let Some(line) = seen.line(String::from_utf8_lossy(line.unwrap_or_default()).trim_end()) {
            println!("{line}");
        }
    })?;
    if !status.success() || !seen.done {
        seen.tail.iter().for_each(note);
        bail!("the machine ended before all checks were made: {status}");
    }
    step.done();
    Ok(seen)
}

/// Contents of the machine's output.
#[derive(Debug, Default)]
struct Seen {
    count: Count,
    record: Value,
    /// Whether the machine reported its end, with the same counts.
    done: bool,
    tail: VecDeque<String>,
}

impl Seen {
    /// Reads a line, and returns it if users should see it.
    fn line<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        if line.starts_with("ok ") {
            self.count.passed += 1;
        } else if line.starts_with("FAILED ") {
            self.count.failed += 1;
        } else if let Some(record) = line.strip_prefix("record ") {
            self.record = serde_json::from_str(record).unwrap_or_default();
            return None;
        } else if line.starts_with("done ") {
            let Count { passed, failed } = self.count;
            self.done = line == format!("done {passed} ok, {failed} failed") && passed > 0;
        } else {
            self.tail.push_back(line.to_owned());
            if self.tail.len() > TAIL {
                self.tail.pop_front();
            }
            return None;
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_and_the_end_is_that_of_all() {
        let mut seen = Seen::default();
        for line in
            ["[ 0.1] Linux", "ok a", "FAILED b: no", "record {\"states\":{}}", "ok c", "done 2 ok, 1 failed"]
        {
            seen.line(line);
        }
        assert_eq!(seen.count.to_string(), "checks=3 failed=1");
        assert!(seen.done && seen.record.get("states").is_some());
        assert_eq!(seen.tail, ["[ 0.1] Linux"]);

        // One line is lost.
        let mut seen = Seen::default();
        for line in ["ok a", "done 2 ok, 0 failed"] {
            seen.line(line);
        }
        assert!(!seen.done);
        let mut seen = Seen::default();
        seen.line("done 0 ok, 0 failed");
        assert!(!seen.done);
    }
}
