//! `cargo xtask cluster`: builds `tests/cluster`, a real Kubernetes in one program, and passes commands to it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::containerd::Containerd;
use crate::debian;
use crate::kubernetes::{self, Kubernetes};
use crate::progress::Step;
use crate::sh::{Cmd, exit_code, is_installed};

/// Debian packages that a cluster needs; the list of tests/cluster/README.md.
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

/// Exit code if the cluster is down; its own program uses the same.
const DOWN: u8 = 3;

/// The Go module of the cluster.
pub(crate) fn module(root: &Path) -> PathBuf {
    root.join("tests/cluster")
}

/// A cluster of this checkout. Clusters with different names may run at the same time.
#[derive(Clone, Copy)]
pub(crate) struct Cluster<'a> {
    pub(crate) root: &'a Path,
    name: &'static str,
    /// `GOGC` for its components and `kubectl`, in percent. None: Go's default.
    gogc: Option<&'static str>,
}

impl<'a> Cluster<'a> {
    /// The cluster of `cargo xtask cluster`, and of everything that needs one cluster.
    pub(crate) fn of(root: &'a Path) -> Self {
        Self { root, name: "default", gogc: None }
    }

    /// The clusters of the tests that run side by side. They have enough memory and too few processors, so they
    /// collect garbage less often: it takes a tenth of the API server's time.
    pub(crate) fn side_by_side(root: &'a Path) -> [Self; 3] {
        ["default", "second", "third"].map(|name| Self { root, name, gogc: Some("400") })
    }

    /// Folder of its files.
    pub(crate) fn dir(self) -> PathBuf {
        self.root.join("target/cluster").join(self.name)
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// The program that started it: only that program acts on all its parts. If none is recorded, a built program.
    pub(crate) fn program(self) -> PathBuf {
        // Any of them can take down a cluster without a record.
        let built = kubernetes::ALL.iter().map(|one| one.program(self.root));
        let mut programs = self.recorded().into_iter().chain(built);
        programs.find(|program| program.is_file()).unwrap_or_else(|| Kubernetes::default().program(self.root))
    }

    /// Its program, from its own record.
    fn recorded(self) -> Option<PathBuf> {
        #[derive(Deserialize)]
        struct Record {
            program: PathBuf,
        }
        let text = fs::read_to_string(self.dir().join("state.json")).ok()?;
        serde_json::from_str::<Record>(&text).ok().map(|record| record.program)
    }

    /// Starts it, or changes a running one as the arguments ask: `--kubernetes`, `--runtime` and the program's own.
    pub(crate) fn up(self, args: &[String]) -> Result<ExitStatus> {
        let (kubernetes, rest) = Kubernetes::chosen(args)?;
        let (runtime, rest) = Containerd::chosen(&rest, kubernetes.runtime())?;
        install_packages()?;
        build(self.root, kubernetes, runtime)?;
        let args = [&["--runtime", runtime.name()], rest.as_slice()].concat();
        self.call(&kubernetes.program(self.root), "up", &args)
    }

    /// Takes it down, if it is there.
    pub(crate) fn down(self, keep_logs: bool) -> Result<()> {
        if !self.program().is_file() {
            return Ok(());
        }
        let args: &[&str] = if keep_logs { &["--keep-logs"] } else { &[] };
        require_success("down", self.call(&self.program(), "down", args)?)
    }

    /// Puts an image archive into its registry under a name.
    pub(crate) fn push(self, archive: &Path, reference: &str) -> Result<()> {
        // Quiet, because the program prints the digest.
        let program = Cmd::new(self.program()).arg("push").arg("--dir").arg(self.dir());
        program.arg(archive).arg(reference).run_quiet()
    }

    /// Sets the variables by which a program finds the cluster.
    pub(crate) fn with_env(self, command: Cmd) -> Cmd {
        self.with_gogc(command)
            .env("KUBECONFIG", self.kubeconfig())
            .env("PITSTOP_CLUSTER_DIR", self.dir())
            .env("PITSTOP_CLUSTER_BIN", self.program())
    }

    /// Calls its program. The program's own flags come first, because `rest` may end in a command to run.
    fn call(self, program: &Path, command: &str, rest: &[impl AsRef<OsStr>]) -> Result<ExitStatus> {
        self.with_gogc(Cmd::new(program)).arg(command).arg("--dir").arg(self.dir()).args(rest).status()
    }

    /// Sets `GOGC` for a Go program.
    fn with_gogc(self, program: Cmd) -> Cmd {
        self.gogc.into_iter().fold(program, |program, percent| program.env("GOGC", percent))
    }
}

/// The command.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let Some((command, rest)) = args.split_first() else { bail!("no command; try `cargo xtask cluster up`") };
    let cluster = Cluster::of(root);
    if command == "up" {
        // The program prints the path of the KUBECONFIG as its last line.
        return Ok(exit_code(cluster.up(rest)?));
    }
    // Only `up` builds. All other commands use the program that started the cluster.
    if !cluster.program().is_file() {
        if command == "down" {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("the cluster is down; start one with `cargo xtask cluster up`");
        return Ok(ExitCode::from(DOWN));
    }
    Ok(exit_code(cluster.call(&cluster.program(), command, rest)?))
}

/// Makes sure that the Debian packages of a cluster are installed.
pub(crate) fn install_packages() -> Result<()> {
    debian::ensure(&PACKAGES, "a cluster")
}

/// Builds a cluster's programs; one build at a time, so that a second one finds them built.
pub(crate) fn build(root: &Path, kubernetes: &Kubernetes, runtime: &Containerd) -> Result<()> {
    static BUILDING: Mutex<()> = Mutex::new(());
    require_go()?;
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let step = Step::begin(format!(
        "building Kubernetes {} and {} for the cluster (about 10 minutes when nothing is built yet)",
        kubernetes.release(),
        runtime.name()
    ));
    kubernetes.build(root)?;
    runtime.build(root)?;
    step.done();
    Ok(())
}

/// Go in a module, without cgo.
pub(crate) fn go(module: &Path) -> Cmd {
    Cmd::new("go").dir(module).env("CGO_ENABLED", "0")
}

/// A subcommand of Go that compiles. All use the same settings, because Go shares compiled packages only between
/// equal settings.
///
/// The settings save nearly a third of the processors' time. The compiler collects garbage only above 2 GiB, which
/// machines that run a cluster have and few packages need. It compiles packages in parallel, not the functions of one
/// package. It writes no debug information, which the linker leaves out anyway.
pub(crate) fn go_compiling(module: &Path, subcommand: &str) -> Cmd {
    let side_by_side = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let own = [("GOGC", "off"), ("GOMEMLIMIT", "2GiB"), ("GOMAXPROCS", "1")];
    let go = own.into_iter().fold(go(module), |go, (name, value)| go.env(name, value));
    go.args([subcommand, "-gcflags=all=-dwarf=false", "-p", &side_by_side])
}

/// Fails with the remedy if Go is not installed.
pub(crate) fn require_go() -> Result<()> {
    if !is_installed("go") {
        bail!("go is not installed; the cluster needs Go 1.26 or later (https://go.dev/doc/install)");
    }
    Ok(())
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
        let [newest, .., older] = kubernetes::ALL.each_ref().map(|one| one.program(root.path()));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let cluster = Cluster::of(root.path());
        let record = cluster.dir().join("state.json");
        assert_eq!(cluster.program(), newest, "nothing is built");
        write(&older, "");
        assert_eq!(cluster.program(), older, "what is built takes a cluster without a record down");
        write(&newest, "");
        assert_eq!(cluster.program(), newest, "no cluster");
        write(&record, &serde_json::json!({"nodes": 1, "program": &older}).to_string());
        assert_eq!(cluster.program(), older, "a cluster of the older release");
        fs::remove_file(&older).unwrap();
        assert_eq!(cluster.program(), newest, "a program that is gone");
        write(&record, "{");
        assert_eq!(cluster.program(), newest, "a broken record");
    }
}
