//! The cluster that `cargo xtask cluster up` started on this machine.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use kube::Client;
use serde::Deserialize;

/// Environment variables: the cluster's program, and the folder of its files.
const PROGRAM: &str = "PITSTOP_CLUSTER_BIN";
const FOLDER: &str = "PITSTOP_CLUSTER_DIR";

/// A running cluster.
pub(crate) struct Cluster {
    /// A client with the administrator's rights.
    pub(crate) client: Client,
    status: Status,
}

/// Output of `pitstop-cluster status --json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    up: bool,
    control_plane: ControlPlane,
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ControlPlane {
    audit_log: PathBuf,
    components: Vec<Component>,
}

#[derive(Debug, Deserialize)]
struct Component {
    name: String,
    #[serde(default)]
    pid: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    name: String,
    containerd_socket: PathBuf,
}

impl Cluster {
    /// Connects to the running cluster. If no cluster runs, the error says how to start it.
    pub(crate) async fn connect() -> Result<Self> {
        let status = status()?;
        if !status.up {
            bail!("no cluster runs; start one with pitstop in it with `make demo`");
        }
        let client = pitstop_kit::client::connect("pitstop-bench", env!("CARGO_PKG_VERSION")).await?;
        Ok(Self { client, status })
    }

    /// Path of the API server's audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.status.control_plane.audit_log.clone()
    }

    /// Process ID of a control plane component.
    pub(crate) fn component(&self, name: &str) -> Result<u32> {
        let found = self.status.control_plane.components.iter().find(|component| component.name == name);
        Ok(found.with_context(|| format!("the cluster has no {name}"))?.pid)
    }

    /// Path on this machine of a node's runtime socket.
    pub(crate) fn containerd_socket(&self, node: &str) -> Result<PathBuf> {
        let node = self.status.nodes.iter().find(|n| n.name == node);
        Ok(node.context("the Pod's node is not one of the cluster's")?.containerd_socket.clone())
    }
}

/// The path that `cargo xtask bench` sets in an environment variable.
pub(crate) fn env_path(name: &str) -> Result<PathBuf> {
    let value = std::env::var_os(name);
    value.map(PathBuf::from).with_context(|| format!("{name} is not set; run this by `cargo xtask bench`"))
}

/// Runs a command of the cluster's program, such as `stop scheduler`.
pub(crate) fn lab(args: &[&str]) -> Result<()> {
    let mut command = Command::new(env_path(PROGRAM)?);
    succeed(command.args(args).arg("--dir").arg(env_path(FOLDER)?))
}

/// Puts entries, a key and a value of one line each, directly into the cluster's etcd. Blocks until all are stored.
pub(crate) fn put(entries: impl IntoIterator<Item = Result<(String, String)>>) -> Result<()> {
    let program = env_path(PROGRAM)?;
    let mut command = Command::new(&program);
    command
        .arg("exec")
        .arg("--dir")
        .arg(env_path(FOLDER)?)
        .args(["control-plane", "--"])
        .arg(&program)
        .arg("put");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let written = write_lines(child.stdin.take(), entries);
    // The program's exit status explains more than the broken pipe.
    successful(&command, &child.wait_with_output()?)?;
    written
}

/// Drops the pipe at the end, so that the reading program ends.
fn write_lines(
    pipe: Option<ChildStdin>,
    entries: impl IntoIterator<Item = Result<(String, String)>>,
) -> Result<()> {
    let mut pipe = BufWriter::new(pipe.context("no pipe")?);
    for entry in entries {
        let (key, value) = entry?;
        writeln!(pipe, "{key}\t{value}")?;
    }
    Ok(pipe.flush()?)
}

/// Runs `kubectl` against the cluster.
pub(crate) fn kubectl(args: &[&str]) -> Result<()> {
    succeed(kubectl_command()?.args(args))
}

/// Command that runs the cluster's `kubectl`.
pub(crate) fn kubectl_command() -> Result<Command> {
    Ok(Command::new(env_path(PROGRAM)?.with_file_name("kubectl")))
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    successful(command, &output)
}

fn successful(command: &Command, output: &Output) -> Result<()> {
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {}", output.status, stderr.trim());
    }
    Ok(())
}

fn status() -> Result<Status> {
    let program = env_path(PROGRAM)?;
    let output = Command::new(&program)
        .args(["status", "--json", "--dir"])
        .arg(env_path(FOLDER)?)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    // The exit code is ignored: if the cluster is down it is an error, but the JSON is the same.
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`{} status` says: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim())
    })
}
