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
mod search;
#[cfg(test)]
#[path = "../../cri-proto/tests/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what the tests share with those of the CRI client"
)]
mod support;

use clap::Parser as _;

fn main() {
    let args = args::Args::parse();
    let common = args.common.clone();
    pitstop_kit::program::run(&common, run::run(args));
}
