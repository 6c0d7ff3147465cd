//! `cargo xtask arm64`: runs the programs for arm64. Debian's emulator runs them on this machine's own kernel, so no
//! arm64 machine is needed.
//!
//! This module checks how each program starts. The other checks are the tests of the programs as processes,
//! `daemon/tests/program` and `controller/tests/program.rs`. These tests themselves stay native, and start the
//! programs for arm64 instead of this machine's. The emulated daemon carries out an order between a real containerd
//! of this machine, with real containers, and an API server with TLS. Only the API server is the tests' own: a whole
//! cluster would show no more of the processor. The emulator does not show how fast the programs are, nor the kernel
//! of an arm64 node.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::cgroup2::Count;
use crate::debian;
use crate::image::{self, ARM64};
use crate::plugin;
use crate::progress::Step;
use crate::sh::{Cmd, is_installed};
use crate::test;
use crate::workspace::VERSION;

/// Emulator of programs for arm64.
const QEMU: &str = "qemu-aarch64-static";
/// Debian packages of the emulator and of the tests' container runtime.
const DEBIAN: [&str; 5] = ["busybox-static", "containerd", "qemu-user-static", "runc", "util-linux"];
/// Programs to run. Each package has the name of its program.
const PROGRAMS: [&str; 3] = [image::PACKAGES[0], image::PACKAGES[1], plugin::NAME];
/// Test target of programs as processes, with the same name in each crate.
const TESTS: &str = "program";
/// Time limit of a program that only prints.
const LIMIT: Duration = Duration::from_mins(1);

/// The command. Fails if the programs cannot run.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let count = check(root)?;
    println!("{count}");
    Ok(if count.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the programs. A check that fails is counted.
pub(crate) fn check(root: &Path) -> Result<Count> {
    require()?;
    let folder = build(root)?;
    let mut count = Count::default();
    for name in PROGRAMS {
        let version = output(&folder.join(name), &["--version"]).and_then(|s| names_itself(name, &s));
        note(&mut count, &format!("{name} says its version"), version);
    }
    let script = output(&folder.join(plugin::NAME), &["completion", "bash"]).and_then(|s| completes(&s));
    note(&mut count, &format!("{} prints a completion script", plugin::NAME), script);

    let step = Step::begin("the tests of the programs (minutes when nothing is built yet)");
    // With CI set, tests fail instead of being skipped if a requirement is missing.
    let env = [
        ("CI", OsStr::new("true")),
        ("PITSTOP_TEST_PROGRAMS", folder.as_os_str()),
        ("PITSTOP_TEST_RUNNER", QEMU.as_ref()),
    ];
    let tests = test::some_of_crates(root, &["--test", TESTS], &env)?;
    step.done();
    count.passed += tests.passed;
    count.failed += tests.failed;
    Ok(count)
}

/// Makes sure that programs for arm64 and a container runtime can run.
fn require() -> Result<()> {
    debian::ensure(&DEBIAN, "running programs for arm64")?;
    if !is_installed(QEMU) {
        bail!("{QEMU} is not installed: it is part of QEMU, and of Debian's package qemu-user-static");
    }
    if !debian::is_root() {
        bail!("a container runtime needs root: `sudo -E env PATH=\"$PATH\" cargo xtask arm64`");
    }
    Ok(())
}

/// Builds the programs and returns their folder. Fails unless each is a static program for arm64.
fn build(root: &Path) -> Result<PathBuf> {
    let step = Step::begin("building the programs for arm64 (about 6 minutes when nothing is built yet)");
    let programs = image::programs(root, &ARM64, &PROGRAMS, &[], true)?;
    for name in PROGRAMS {
        image::static_program(&programs, &ARM64, name)?;
    }
    let program = programs.values().next().context("cargo built no program")?;
    let folder = program.parent().context("a program without a folder")?.to_path_buf();
    step.done();
    Ok(folder)
}

/// Output of a program. Fails if the program fails or exceeds [`LIMIT`].
fn output(program: &Path, args: &[&str]) -> Result<String> {
    let mut text = String::new();
    let command = Cmd::new(QEMU).arg(program).args(args).within(LIMIT);
    let status =
        command.each_line(|line| text.push_str(&String::from_utf8_lossy(line.unwrap_or_default())))?;
    if !status.success() {
        bail!("{status}: {}", text.trim_end());
    }
    Ok(text)
}

fn names_itself(name: &str, output: &str) -> Result<()> {
    if output != format!("{name} {VERSION}\n") {
        bail!("it says `{}`", output.trim_end());
    }
    Ok(())
}

/// Fails unless a script tells bash how to complete the plugin.
fn completes(script: &str) -> Result<()> {
    let is_complete = |line: &str| line.trim_start().starts_with("complete ") && line.ends_with(plugin::NAME);
    if !script.lines().any(is_complete) {
        bail!("no line of it is a `complete` for {}", plugin::NAME);
    }
    Ok(())
}

/// Counts a check and prints its result.
fn note(count: &mut Count, name: &str, result: Result<()>) {
    match result {
        Ok(()) => {
            count.passed += 1;
            println!("ok {name}");
        }
        Err(error) => {
            count.failed += 1;
            println!("FAILED {name}: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_its_name_and_the_version_of_the_workspace() {
        names_itself("pitstop-daemon", &format!("pitstop-daemon {VERSION}\n")).unwrap();
        let error = names_itself("pitstop-daemon", "pitstop-daemon 9\n").unwrap_err().to_string();
        assert_eq!(error, "it says `pitstop-daemon 9`");
    }

    #[test]
    fn a_script_must_complete_the_plugin() {
        completes("_x() {\n}\nif a; then\n    complete -F _x -o default kubectl-pitstop\nfi\n").unwrap();
        completes("echo complete kubectl-pitstop\n").unwrap_err();
        completes("").unwrap_err();
    }

    #[test]
    fn checks_are_counted() {
        let mut count = Count::default();
        note(&mut count, "one", Ok(()));
        note(&mut count, "two", Err(anyhow::anyhow!("no")));
        assert_eq!(count.to_string(), "checks=2 failed=1");
    }

    /// Without these files, cargo would find no test, and only the command would show it.
    #[test]
    fn both_programs_have_such_tests() {
        let root = crate::workspace::root().unwrap();
        for file in ["controller/tests/program.rs", "daemon/tests/program/main.rs"] {
            assert!(root.join(file).is_file(), "{file}");
            assert!(file.contains(TESTS));
        }
    }
}
