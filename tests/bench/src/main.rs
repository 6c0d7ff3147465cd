//! Measurements on the real cluster: `cargo xtask bench <name>`.
//!
//! Each benchmark is one module: it prints a table, then one line with its result and its bound, and fails when
//! the bound is exceeded. What is measured, and how, is in `docs/design/measurements.md`. What they share is in
//! `harness`.
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

use crate::harness::Verdict;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// What pitstop's admission policies cost the API server for the writes of others.
    Admission {
        /// Writes of each kind, in each of three rounds.
        #[arg(long, default_value_t = 1000)]
        writes: usize,
    },
    /// Many requests at once for as many Pods on one node.
    Burst {
        /// Requests, and as many Pods that are stopped at the runtime afterwards.
        #[arg(long, default_value_t = 60)]
        pods: usize,
    },
    /// Memory of the daemon and of each controller replica when nothing happens.
    Idle,
    /// What pitstop adds to a new image in a running Pod, and what it takes off the Pod's outage.
    Image {
        /// Pods of each of four sets.
        #[arg(long, default_value_t = 12)]
        pods: usize,
    },
    /// What pitstop adds to the restart of a container.
    Latency {
        /// Pods that are restarted by request, and as many that are stopped at the runtime.
        #[arg(long, default_value_t = 20)]
        pods: usize,
    },
    /// What pitstop adds to a change of a Pod's resources through the API server.
    Resize {
        /// Pods that are resized by request, and as many that are by a bare patch.
        #[arg(long, default_value_t = 40)]
        pods: usize,
    },
    /// A new image in all Pods of a Deployment, against its own rolling update and against a script.
    Rollout {
        /// Pods of the Deployment.
        #[arg(long, default_value_t = 100)]
        pods: usize,
        /// Of them, so many at a time.
        #[arg(long, default_value_t = 10)]
        at_a_time: usize,
        /// Seconds after which a container's first probe can succeed. By default there is no probe: it is ready at once.
        #[arg(long, default_value_t = 0)]
        ready_after: u32,
    },
    /// How soon the plugin shows something, beside kubectl.
    Start {
        /// Starts of each.
        #[arg(long, default_value_t = 40)]
        times: usize,
    },
    /// The controller beside a large cluster whose nodes and Pods are played.
    Scale(scale::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = match Args::parse().bench {
        Bench::Admission { writes } => admission::run(writes).await,
        Bench::Burst { pods } => burst::run(pods).await,
        Bench::Idle => idle::run().await,
        Bench::Image { pods } => image::run(pods).await,
        Bench::Latency { pods } => latency::run(pods).await,
        Bench::Resize { pods } => resize::run(pods).await,
        Bench::Rollout { pods, at_a_time, ready_after } => rollout::run(pods, at_a_time, ready_after).await,
        Bench::Start { times } => start::run(times).await,
        Bench::Scale(args) => scale::run(&args).await,
    };
    match result {
        Ok(Verdict::Within) => ExitCode::SUCCESS,
        Ok(Verdict::Exceeded) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
