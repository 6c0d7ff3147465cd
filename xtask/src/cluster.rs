//! `cargo xtask cluster`: builds `tests/cluster`, a real Kubernetes in one program, and hands commands on to
//! it. Its files lie in `target/cluster/default`; one cluster runs on a machine at a time.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use anyhow::{Context as _, Result, bail};

use crate::debian;
use crate::progress::Step;
use crate::sh::{Cmd, exit_code, is_installed};
use crate::workspace::shown;

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

/// The cluster's program.
pub(crate) fn program(root: &Path) -> PathBuf {
    root.join("target/cluster/bin/pitstop-cluster")
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
    Ok(exit_code(call(root, command, rest)?))
}

/// Starts the cluster, or makes a running one what the arguments ask for.
pub(crate) fn up(root: &Path, args: &[String]) -> Result<ExitStatus> {
    install_packages()?;
    build(root)?;
    call(root, "up", args)
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
    let args = if keep_logs { vec!["--keep-logs".to_owned()] } else { Vec::new() };
    require_success("down", call(root, "down", &args)?)
}

/// Puts an image archive into the cluster's registry under a name.
pub(crate) fn push(root: &Path, archive: &Path, reference: &str) -> Result<()> {
    let args = [archive.display().to_string(), reference.to_owned()];
    require_success("push", call(root, "push", &args)?)
}

/// Builds the cluster's program; a matter of seconds when nothing changed.
pub(crate) fn build(root: &Path) -> Result<()> {
    require_go()?;
    let step = Step::begin("building the cluster's program (about 10 minutes when nothing is built yet)");
    let module = module(root);
    let manifest = module.join("go.mod");
    let text =
        fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let version = kubernetes_version(&text)
        .with_context(|| format!("{} names no k8s.io/kubernetes", manifest.display()))?;
    go(&module)
        .args(["build", "-v", "-ldflags", &link_flags(version)])
        // Two programs: the cluster's, and the one that becomes its pause image.
        .args([OsString::from("-o"), program(root).with_file_name("").into(), ".".into(), "./pause".into()])
        .run_quiet()
        .with_context(|| format!("cannot build {}", shown(root, &module)))?;
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
fn call(root: &Path, command: &str, rest: &[String]) -> Result<ExitStatus> {
    Cmd::new(program(root)).arg(command).arg("--dir").arg(dir(root)).args(rest).status()
}

fn require_success(command: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`cargo xtask cluster {command}` failed: {status}");
    }
    Ok(())
}

/// The version of Kubernetes that a go.mod requires, with its `v`.
fn kubernetes_version(manifest: &str) -> Option<&str> {
    let required =
        |line: &'_ str| line.trim_start_matches("require ").trim().starts_with("k8s.io/kubernetes v");
    let line = manifest.lines().find(|line| required(line))?;
    line.split_whitespace().find(|word| word.starts_with('v') && word.contains('.'))
}

/// What the linker is told: no symbols, and which Kubernetes this is, or its parts would not say.
fn link_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let values =
        [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor), ("gitTreeState", "clean")];
    values.iter().fold("-s -w".to_owned(), |flags, (name, value)| {
        format!("{flags} -X k8s.io/component-base/version.{name}={value}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_says_which_version_it_is() {
        let manifest = "require (\n\tk8s.io/kubectl v0.36.3\n\tk8s.io/kubernetes v1.36.3\n)\n";
        let version = kubernetes_version(manifest).unwrap();
        assert_eq!(
            link_flags(version),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 \
             -X k8s.io/component-base/version.gitTreeState=clean"
        );
        assert_eq!(kubernetes_version("require k8s.io/kubernetes v1.34.4\n"), Some("v1.34.4"));
        assert_eq!(kubernetes_version("require k8s.io/api v0.36.3\n"), None);
    }
}
