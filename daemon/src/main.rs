//! The node daemon: carries out the orders in its node's `NodeWork` over the CRI socket.
//!
//! It knows two things, that one object and the container runtime, and reads nothing else of the cluster.

mod args;
mod execute;
mod hook;
mod metrics;
mod record;
mod run;
mod runtime;

use clap::Parser as _;

fn main() {
    let args = args::Args::parse();
    let common = args.common.clone();
    pitstop_kit::program::run(&common, run::run(args));
}
