//! `cargo xtask chaos`: `tests/chaos` on a fresh cluster of two nodes. Its last line is the verdict.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::image::{self, Built};
use crate::kubernetes::Kubernetes;
use crate::lab::{self, with_cluster};
use crate::sh::Cmd;

/// Program of `tests/` that the command runs.
pub(crate) const PROGRAM: &str = "pitstop-chaos";

const NODES: usize = 2;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Length of the stream of requests.
    #[arg(long, default_value_t = 3)]
    minutes: u64,
    /// Decides what happens: the same seed, the same Pods, requests and kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run images that are built faster and are larger.
    #[arg(long)]
    dev: bool,
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    lab::require()?;
    let images = image::build(root, args.dev)?;
    let good = on_cluster(Cluster::of(root), &images, args.minutes, args.seed)?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs on a cluster of its own. Returns whether nothing was lost, doubled or stuck.
pub(crate) fn on_cluster(cluster: Cluster<'_>, images: &[Built], minutes: u64, seed: u64) -> Result<bool> {
    let (minutes, seed) = (minutes.to_string(), seed.to_string());
    let program = Cmd::new(lab::program(cluster.root, PROGRAM)?)
        .args(["--minutes", &minutes, "--seed", &seed])
        .dir(cluster.root);
    let run = || Ok(cluster.with_env(program).status()?.success());
    let outcome = with_cluster(cluster, Kubernetes::default(), NODES, images, run, |good| *good)?;
    outcome.down?;
    Ok(outcome.value)
}
