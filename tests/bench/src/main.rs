//! Measurements on the real cluster: `cargo xtask bench <name>`.
//!
//! Each benchmark is one module. It prints a table, then one line with its result and its bound. It fails if it exceeds
//! the bound. `docs/design/measurements.md` describes the measurements. `harness` has the shared code.
#![allow(clippy::too_many_lines, reason = "a benchmark tells one story")]

mod admission;
mod burst;
mod harness;
mod idle;
mod image;
mod latency;
mod resize;
mod rollout;
mod scale;
mod start;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::harness::BoundCheck;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// API server time that pitstop's admission policies add to other clients' writes.
    Admission {
        /// Writes of each kind, in each of three rounds.
        #[arg(long, default_value_t = 1000)]
        writes: usize,
    },
    /// Many requests at once for as many Pods on one node.
    Burst {
        /// Number of requests, and of Pods stopped at the runtime afterwards.
        #[arg(long, default_value_t = 60)]
        pods: usize,
    },
    /// Memory of the daemon and of each controller replica when nothing happens.
    Idle,
    /// Time that pitstop adds to an image update of a running Pod, and outage that it avoids.
    Image {
        /// Pods in each of six sets.
        #[arg(long, default_value_t = 12)]
        pods: usize,
    },
    /// Time that pitstop adds to the restart of a container.
    Latency {
        /// Pods restarted by request, and Pods stopped at the runtime.
        #[arg(long, default_value_t = 20)]
        pods: usize,
    },
    /// Time that pitstop adds to a Pod's resize through the API server.
    Resize {
        /// Pods resized by request, and Pods resized by a bare patch.
        #[arg(long, default_value_t = 40)]
        pods: usize,
    },
    /// A new image in all Pods of a Deployment, compared with its own rolling update and with a script.
    Rollout(rollout::Args),
    /// Time until the plugin's first output, compared with kubectl.
    Start {
        /// Starts of each program.
        #[arg(long, default_value_t = 40)]
        times: usize,
    },
    /// The controller with a large cluster of simulated nodes and Pods.
    Scale(scale::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Admission { writes } => admission::run(writes).await,
        Command::Burst { pods } => burst::run(pods).await,
        Command::Idle => idle::run().await,
        Command::Image { pods } => image::run(pods).await,
        Command::Latency { pods } => latency::run(pods).await,
        Command::Resize { pods } => resize::run(pods).await,
        Command::Rollout(args) => rollout::run(&args).await,
        Command::Start { times } => start::run(times).await,
        Command::Scale(args) => scale::run(&args).await,
    };
    match result {
        Ok(BoundCheck::Within) => ExitCode::SUCCESS,
        Ok(BoundCheck::Exceeded) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
