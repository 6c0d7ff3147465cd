//! `kill -9` at random during streams of requests and image updates, on the real cluster of two nodes: `cargo xtask chaos`.
//!
//! [`plan`] draws a run from its seed, [`judge`] says from [`facts`] what was wrong about it; both are pure. The other
//! modules carry it out: [`setup`] makes the Pods, whose containers write a [`trace`]; [`stream`] makes the requests;
//! [`kills`] kills, and takes images from nodes; [`watch`] keeps what is seen; [`calm`] waits for the rest and gathers the facts; [`report`] prints.
//! What is judged, and how to run one again, is in `docs/design/testing.md`.

mod calm;
mod facts;
mod judge;
mod kills;
mod kind;
mod logs;
mod plan;
mod report;
mod rolls;
mod run;
mod setup;
mod stream;
mod trace;
mod watch;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask chaos", bin_name = "cargo xtask chaos")]
struct Args {
    /// Length of the stream of requests.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Decides what happens.
    #[arg(long)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Args { minutes, seed } = Args::parse();
    match run::run(minutes, seed).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}
