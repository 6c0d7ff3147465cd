//! Explores the models within large bounds: `pitstop-models lease --processes 3`, `pitstop-models orders --faults 2`.
//!
//! Prints the story of every violation, then one line, `model=NAME states=N unique=M depth=D violations=V`. Exits with
//! 1 if there are violations.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use pitstop_models::check::{Options, Report, run};
use pitstop_models::graph::{Graph, Shape};
use pitstop_models::{lease, orders};

/// Explores every order of events, within bounds.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    model: Model,
    /// Threads.
    #[arg(long, global = true, default_value_t = 2)]
    threads: usize,
    /// Longest path. By default, all states are visited.
    #[arg(long, global = true)]
    depth: Option<usize>,
}

#[derive(Subcommand)]
enum Model {
    /// The election of the leading controller.
    Lease(LeaseArgs),
    /// The order protocol between controller and daemon.
    Orders(OrdersArgs),
}

#[derive(Args)]
struct LeaseArgs {
    /// Competing processes.
    #[arg(long, default_value_t = 2)]
    processes: usize,
    /// Ticks of time for 5 seconds of the production configuration.
    #[arg(long, default_value_t = 2)]
    scale: u64,
    /// Ticks that pass while messages are in flight.
    #[arg(long, default_value_t = 3)]
    delays: u8,
    /// Crashes, pauses, timeouts, broken watches and requested ends, in total.
    #[arg(long, default_value_t = 2)]
    faults: u8,
}

#[derive(Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the command")]
struct OrdersArgs {
    /// Requests.
    #[arg(long, default_value_t = 1)]
    requests: usize,
    /// Containers of the Pod; every request names all of them.
    #[arg(long, default_value_t = 1)]
    containers: usize,
    /// Controllers that all believe to lead.
    #[arg(long, default_value_t = 1)]
    controllers: usize,
    /// Daemons on the node.
    #[arg(long, default_value_t = 1)]
    daemons: usize,
    /// Containers have a preStop hook.
    #[arg(long)]
    hook: bool,
    /// The kubelet can restart the containers instead.
    #[arg(long)]
    kubelet: bool,
    /// Drain time, in seconds.
    #[arg(long)]
    drain: Option<i64>,
    /// Deadline, in seconds.
    #[arg(long)]
    deadline: Option<i64>,
    /// Restart one container after the other.
    #[arg(long)]
    ordered: bool,
    /// New containers become ready in a separate step.
    #[arg(long)]
    slow: bool,
    /// Answers arrive in the step that carries out the call, unless they are lost.
    #[arg(long)]
    coarse: bool,
    /// Faults of any kind, in total.
    #[arg(long, default_value_t = 2)]
    faults: u8,
    /// Of these, how often time may advance while messages are in flight. By default, as often as there are faults.
    #[arg(long)]
    late: Option<u8>,
}

fn main() -> ExitCode {
    let Cli { model, threads, depth } = Cli::parse();
    let options = Options { threads, depth };
    let report = match model {
        Model::Lease(LeaseArgs { processes, scale, delays, faults }) => {
            let faults = lease::Faults::any(faults, delays);
            run(lease::Lease(lease::Bounds::new(processes, scale, faults)), options)
        }
        Model::Orders(args) => return explore_orders(&args, options),
    };
    print(&report)
}

fn explore_orders(args: &OrdersArgs, options: Options) -> ExitCode {
    let mut faults = orders::Faults::any(args.faults);
    faults.late = args.late.unwrap_or(faults.late);
    let bounds = orders::Bounds {
        requests: args.requests,
        containers: args.containers,
        controllers: args.controllers,
        daemons: args.daemons,
        hook: args.hook,
        kubelet: args.kubelet,
        drain: args.drain,
        deadline: args.deadline,
        ordered: args.ordered,
        slow: args.slow,
        coarse: args.coarse,
        faults,
        ..orders::Bounds::new("large")
    };
    let graph = Arc::new(Graph::default());
    let report = run(orders::Orders::new(bounds, Arc::clone(&graph)), options);
    let code = print(&report);
    match graph.shape() {
        Shape::Ends(longest) => {
            println!("every path ends; the longest has {longest} steps");
            code
        }
        Shape::Cycles(states) => {
            println!("VIOLATION: {states} states are on a cycle or behind one");
            ExitCode::FAILURE
        }
    }
}

fn print(report: &Report) -> ExitCode {
    for violation in &report.violations {
        println!("VIOLATION: {}\n{}", violation.property, violation.story);
    }
    println!("{}", report.line());
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
