//! The node daemon: carries out the orders in its node's `NodeWork` over the CRI socket.
//!
//! It knows two things, that one object and the container runtime, and reads nothing else of the cluster.

mod args;
mod execute;
mod metrics;
mod run;
mod runtime;

use clap::Parser as _;

fn main() {
    let args = args::Args::parse();
    pitstop_kit::log::init(&args.common.log_level, args.common.log_format);
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run::run(args)));
    if let Err(error) = result {
        pitstop_kit::termination::fatal(&format!("{error:#}"));
    }
}
