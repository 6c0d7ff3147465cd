//! `cargo xtask attacks`: `tests/attacks` on a fresh cluster of two nodes. Its last line is the count.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::image::{self, Built};
use crate::kubernetes::Kubernetes;
use crate::lab::{self, with_cluster};
use crate::sh::Cmd;

/// Program of `tests/` that the command runs.
pub(crate) const PROGRAM: &str = "pitstop-attacks";

/// The node with the stolen tokens, and another node.
const NODES: usize = 2;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run images that are built faster and are larger.
    #[arg(long)]
    dev: bool,
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    lab::require()?;
    let images = image::build(root, args.dev)?;
    let good = on_cluster(Cluster::of(root), &images)?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the probes on a cluster of its own. Returns whether each answer is as expected.
pub(crate) fn on_cluster(cluster: Cluster<'_>, images: &[Built]) -> Result<bool> {
    let program = Cmd::new(lab::program(cluster.root, PROGRAM)?).dir(cluster.root);
    let run = || Ok(cluster.with_env(program).status()?.success());
    let outcome = with_cluster(cluster, Kubernetes::default(), NODES, images, run, |good| *good)?;
    outcome.down?;
    Ok(outcome.value)
}
