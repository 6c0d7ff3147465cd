//! Explores the models within large bounds: `pitstop-models lease --processes 3`.
//!
//! Prints one line per model, `model=NAME states=N unique=M depth=D violations=V`, before it the story of every
//! violation. Ends with 1 when there is one.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use pitstop_models::check::{Options, Report, run};
use pitstop_models::lease;

/// Explores every order of what may happen, within bounds.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    model: Model,
    /// Threads.
    #[arg(long, global = true, default_value_t = 2)]
    threads: usize,
    /// Longest path; without it, all states are visited.
    #[arg(long, global = true)]
    depth: Option<usize>,
}

#[derive(Subcommand)]
enum Model {
    /// The election of the leading controller.
    Lease(LeaseArgs),
}

#[derive(Args)]
struct LeaseArgs {
    /// Processes that take part.
    #[arg(long, default_value_t = 2)]
    processes: usize,
    /// Ticks of time for 5 seconds of the production configuration.
    #[arg(long, default_value_t = 2)]
    scale: u64,
    /// Ticks that pass while messages are on their way.
    #[arg(long, default_value_t = 3)]
    delays: u8,
    /// Crashes, pauses, timeouts, broken watches and ends, all together.
    #[arg(long, default_value_t = 2)]
    faults: u8,
}

fn main() -> ExitCode {
    let Cli { model, threads, depth } = Cli::parse();
    let options = Options { threads, depth };
    let report = match model {
        Model::Lease(LeaseArgs { processes, scale, delays, faults }) => {
            let faults = lease::Faults::any(faults, delays);
            run(lease::Lease(lease::Bounds::new(processes, scale, faults)), options)
        }
    };
    tell(&report)
}

fn tell(report: &Report) -> ExitCode {
    for violation in &report.violations {
        println!("VIOLATION: {}\n{}", violation.property, violation.story);
    }
    println!("{}", report.line());
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
