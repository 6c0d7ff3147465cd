//! The node daemon: carries out the orders in its node's `NodeWork` over the CRI socket.
//!
//! It knows only that object and the container runtime, and reads nothing else of the cluster.
//!
//! A library beside its program, so that the fuzz targets in `tests/fuzz` can call the parsers of the runtime's
//! answers. `tests/cgroup2` calls the reads and writes of cgroups.

mod args;
pub mod cgroup;
mod disk;
mod execute;
pub mod hook;
mod image;
mod metrics;
mod record;
pub mod resize;
mod run;
pub mod runtime;
pub mod search;
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
mod systemd;

use clap::Parser as _;

/// The program.
pub fn main() {
    let args = args::Args::parse();
    let common = args.common.clone();
    pitstop_kit::program::run(&common, run::run(args));
}
