//! The controller: reads Pods and requests, places orders in the nodes' books, writes outcomes.
//!
//! A library, so that the fuzz targets in `tests/fuzz` can call the code that answers admission reviews.

pub mod admission;
mod args;
mod certs;
mod coexist;
mod election;
mod events;
mod executor;
mod guard;
mod lead;
pub mod metrics;
mod own_pod;
mod run;

use clap::Parser as _;

/// Runs the program.
pub fn main() {
    let args = args::Args::parse();
    let common = args.common.clone();
    pitstop_kit::program::run(&common, run::run(args));
}
