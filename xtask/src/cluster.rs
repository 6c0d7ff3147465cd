//! `cargo xtask cluster`: builds `tests/cluster`, a real Kubernetes in one program, and hands commands on to
//! it. Its files lie in `target/cluster/default`; one cluster runs on a machine at a time.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::debian;
use crate::kubernetes::{self, Kubernetes};
use crate::progress::Step;
use crate::sh::{Cmd, exit_code, is_installed};

/// What a cluster takes from Debian; the list of tests/cluster/README.md.
const PACKAGES: [&str; 10] = [
    "busybox-static",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "iptables",
    "mount",
    "nftables",
    "runc",
    "socat",
    "util-linux",
];

/// The exit code that says that the cluster is down; the same as its own program's.
const DOWN: u8 = 3;

/// The Go module of the cluster.
pub(crate) fn module(root: &Path) -> PathBuf {
    root.join("tests/cluster")
}

/// The program that started the cluster: only that acts on all parts of it. Where none runs, one that is built.
pub(crate) fn program(root: &Path) -> PathBuf {
    // Any of them takes a cluster down whose record is lost.
    let mut programs = recorded(root).into_iter().chain(kubernetes::ALL.iter().map(|one| one.program(root)));
    programs.find(|program| program.is_file()).unwrap_or_else(|| Kubernetes::default().program(root))
}

/// What the cluster's own record says of its program.
fn recorded(root: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Record {
        program: PathBuf,
    }
    let text = fs::read_to_string(dir(root).join("state.json")).ok()?;
    serde_json::from_str::<Record>(&text).ok().map(|record| record.program)
}

/// The cluster's own files.
pub(crate) fn dir(root: &Path) -> PathBuf {
    root.join("target/cluster/default")
}

/// The administrator's access to the cluster.
pub(crate) fn kubeconfig(root: &Path) -> PathBuf {
    dir(root).join("kubeconfig")
}

/// The command.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let Some((command, rest)) = args.split_first() else { bail!("no command; try `cargo xtask cluster up`") };
    if command == "up" {
        // It prints the path of the KUBECONFIG as its last line.
        return Ok(exit_code(up(root, rest)?));
    }
    // Only `up` builds: what acts on a running cluster is the program that started it.
    if !program(root).is_file() {
        if command == "down" {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("the cluster is down; start one with `cargo xtask cluster up`");
        return Ok(ExitCode::from(DOWN));
    }
    Ok(exit_code(call(root, &program(root), command, rest)?))
}

/// Starts the cluster, or makes a running one what the arguments ask for: `--kubernetes` and the program's own.
pub(crate) fn up(root: &Path, args: &[String]) -> Result<ExitStatus> {
    let (kubernetes, rest) = Kubernetes::chosen(args)?;
    install_packages()?;
    build(root, kubernetes)?;
    call(root, &kubernetes.program(root), "up", &rest)
}

/// Makes sure of the Debian packages that a cluster needs.
pub(crate) fn install_packages() -> Result<()> {
    debian::ensure(&PACKAGES, "a cluster")
}

/// Takes the cluster down, if there is one.
pub(crate) fn down(root: &Path, keep_logs: bool) -> Result<()> {
    if !program(root).is_file() {
        return Ok(());
    }
    let args: &[&str] = if keep_logs { &["--keep-logs"] } else { &[] };
    require_success("down", call(root, &program(root), "down", args)?)
}

/// Puts an image archive into the cluster's registry under a name.
pub(crate) fn push(root: &Path, archive: &Path, reference: &str) -> Result<()> {
    // It prints the digest.
    Cmd::new(program(root)).arg("push").arg("--dir").arg(dir(root)).arg(archive).arg(reference).run_quiet()
}

/// Builds the cluster's program; one at a time, so that who comes second has it for nothing.
pub(crate) fn build(root: &Path, kubernetes: &Kubernetes) -> Result<()> {
    static BUILDING: Mutex<()> = Mutex::new(());
    require_go()?;
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let step = Step::begin(format!(
        "building Kubernetes {} for the cluster (about 10 minutes when nothing is built yet)",
        kubernetes.release()
    ));
    kubernetes.build(root)?;
    step.done();
    Ok(())
}

/// Go in a module, without C.
pub(crate) fn go(module: &Path) -> Cmd {
    Cmd::new("go").dir(module).env("CGO_ENABLED", "0")
}

/// Fails with the cure when Go is not installed.
pub(crate) fn require_go() -> Result<()> {
    if !is_installed("go") {
        bail!("go is not installed; the cluster needs Go 1.26 or later (https://go.dev/doc/install)");
    }
    Ok(())
}

/// Calls the cluster's program. Its own flags stand before the rest, which may end in a command to run.
fn call(root: &Path, program: &Path, command: &str, rest: &[impl AsRef<OsStr>]) -> Result<ExitStatus> {
    Cmd::new(program).arg(command).arg("--dir").arg(dir(root)).args(rest).status()
}

fn require_success(command: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`cargo xtask cluster {command}` failed: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_names_the_program_while_that_is_there() {
        let root = tempfile::tempdir().unwrap();
        let [newest, older] = kubernetes::ALL.each_ref().map(|one| one.program(root.path()));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let record = dir(root.path()).join("state.json");
        assert_eq!(program(root.path()), newest, "nothing is built");
        write(&older, "");
        assert_eq!(program(root.path()), older, "what is built takes a cluster without a record down");
        write(&newest, "");
        assert_eq!(program(root.path()), newest, "no cluster");
        write(&record, &serde_json::json!({"nodes": 1, "program": &older}).to_string());
        assert_eq!(program(root.path()), older, "a cluster of the older release");
        fs::remove_file(&older).unwrap();
        assert_eq!(program(root.path()), newest, "a program that is gone");
        write(&record, "{");
        assert_eq!(program(root.path()), newest, "a broken record");
    }
}
