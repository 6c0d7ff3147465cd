//! The cluster's kubectl.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::sh::Cmd;

/// Longest time of retries for an object that Kubernetes creates by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// kubectl with the administrator's rights, called in the root of the checkout.
pub(super) struct Kubectl {
    root: PathBuf,
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// A kubectl that runs until it is dropped.
pub(super) struct Running {
    child: Child,
}

impl Kubectl {
    pub(super) fn new(root: &Path) -> Self {
        let cluster = Cluster::of(root);
        Self {
            root: root.to_owned(),
            program: cluster.program().with_file_name("kubectl"),
            kubeconfig: cluster.kubeconfig(),
        }
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    fn command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Cmd {
        Cmd::new(&self.program).env("KUBECONFIG", &self.kubeconfig).dir(&self.root).args(args)
    }

    /// Runs kubectl. Shows its output only in an error.
    pub(super) fn quiet<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<()> {
        self.command(args).run_quiet()
    }

    /// Like `quiet`, but retries for up to [`PATIENCE`] while the error contains `awaited`.
    pub(super) fn retry(&self, args: &[&str], awaited: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.quiet(args.iter().copied()) {
                Err(error) if error.to_string().contains(awaited) && start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                result => return result,
            }
        }
    }

    /// Runs kubectl and returns its output.
    pub(super) fn read<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<String> {
        self.command(args).read()
    }

    /// Reads one object.
    pub(super) fn object(&self, namespace: &str, kind: &str, name: &str) -> Result<Value> {
        let text = self.read(["-n", namespace, "get", kind, name, "-o", "json"])?;
        serde_json::from_str(&text).with_context(|| format!("kubectl's {kind} {name} is not understood"))
    }

    /// Starts a kubectl that keeps printing.
    pub(super) fn spawn<'a>(
        &self,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Result<(Running, ChildStdout)> {
        let mut child = Command::new(&self.program)
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let stdout = child.stdout.take().context("kubectl has no output")?;
        Ok((Running { child }, stdout))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
