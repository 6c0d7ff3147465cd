//! The controller: reads Pods and requests, places orders in the nodes' books, writes outcomes.

mod admission;
mod args;
mod certs;
mod election;
mod events;
mod executor;
mod metrics;
mod observe;
mod run;

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
