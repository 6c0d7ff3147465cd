//! The simulator. `cargo xtask sim` builds and runs it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test program")]

use std::ops::Range;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Parser, Subcommand};
use pitstop_sim::commands;
use pitstop_sim::draw;
use pitstop_sim::scenarios;
use pitstop_sim::world::plan::Position::{Before, Begun, Known};
use pitstop_sim::world::plan::Schedule;

/// Runs the production cores of controller and daemon through schedules of faults.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Threads; each schedule runs in one.
    #[arg(long, global = true, default_value_t = 2)]
    jobs: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the schedules of seeds.
    Seeds {
        /// `A..B`, without B.
        range: String,
    },
    /// Runs the schedules of seeds that no earlier run had.
    Fresh {
        /// Number of schedules.
        count: u64,
    },
    /// Prints the story of a schedule; if it violates an invariant, also the smallest schedule that does.
    Trace {
        /// The seed, or the name of a regression or a scenario.
        what: String,
    },
    /// Runs the schedules of seeds under several sets of wrong clocks: all must decide the same.
    Skews {
        /// `A..B`, without B.
        range: String,
    },
    /// Kills a process at every effect of every scenario.
    CrashPoints,
    /// Runs all regressions.
    Regressions,
    /// Runs schedules until the planted bug is found.
    #[cfg(feature = "planted")]
    Planted {
        /// Name of the bug.
        name: String,
        /// Maximum number of drawn schedules.
        #[arg(long, default_value_t = 5000)]
        at_most: u64,
        /// Print the story of the schedule that finds it.
        #[arg(long)]
        trace: bool,
    },
}

fn range(text: &str) -> Option<Range<u64>> {
    let parsed = commands::range(text);
    if parsed.is_none() {
        println!("{text} is no range of seeds; for example 0..1000");
    }
    parsed
}

fn main() -> ExitCode {
    let args = Args::parse();
    // `commands::guarded` reports a panic as a violation.
    std::panic::set_hook(Box::new(|_| ()));
    let good = match args.command {
        Command::Seeds { range: text } => range(&text).is_some_and(|range| seeds(range, args.jobs)),
        Command::Fresh { count } => fresh(count, args.jobs),
        Command::Skews { range: text } => range(&text).is_some_and(|range| skews(range, args.jobs)),
        Command::Trace { what } => trace(&what),
        Command::Regressions => regressions(),
        Command::CrashPoints => crash_points(usize::try_from(args.jobs).unwrap()),
        #[cfg(feature = "planted")]
        Command::Planted { name, at_most, trace } => planted(&name, at_most, trace),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fresh(count: u64, jobs: u64) -> bool {
    let seeds = commands::fresh(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default(), count);
    // Print this first, so that an interrupted run can be repeated.
    println!("fresh seeds; again with: {}", commands::command(&seeds));
    self::seeds(seeds, jobs)
}

fn seeds(range: Range<u64>, jobs: u64) -> bool {
    let sum = commands::seeds(range, jobs);
    for (end, n) in &sum.ends {
        println!("{n:>9} requests ended with {end}");
    }
    for (seed, violation) in sum.violations.iter().take(20) {
        println!("seed {seed}: {} at {} ms: {}", violation.invariant, violation.at, violation.what);
    }
    if !sum.violations.is_empty() {
        let broken: Vec<String> = sum.violations.iter().map(|(seed, _)| seed.to_string()).collect();
        println!("seeds that broke something: {}", broken.join(" "));
    }
    println!("schedules={} violations={} trace={:016x}", sum.schedules, sum.violations.len(), sum.trace);
    sum.violations.is_empty()
}

fn skews(range: Range<u64>, jobs: u64) -> bool {
    let drawn = commands::seeds(range, jobs);
    let other = commands::skews(&drawn.hashes, jobs);
    for seed in other.iter().take(20) {
        println!("seed {seed}: decisions depend on a wall clock");
    }
    println!("schedules={} differing={}", drawn.schedules, other.len());
    other.is_empty()
}

fn trace(what: &str) -> bool {
    let drawn = what.parse().map(draw::schedule).ok();
    let kept =
        || commands::kept().into_iter().find_map(|(name, schedule)| (name == what).then_some(schedule));
    let scenario = || scenarios::all().into_iter().find(|scenario| scenario.name == what);
    let Some(schedule) = drawn.or_else(kept).or_else(scenario) else {
        println!("{what} is no seed, no regression and no scenario");
        return false;
    };
    story(what, &schedule)
}

fn story(what: &str, schedule: &Schedule) -> bool {
    println!("{schedule:#?}");
    let ran = commands::trace(schedule);
    for line in &ran.story {
        println!("{line}");
    }
    let Some(violation) = ran.violation else {
        println!("{what}: nothing is broken, trace={:016x}", ran.hash);
        return true;
    };
    let (small, text) = commands::smallest(schedule);
    println!("the smallest schedule that breaks the same:\n{text}");
    let regression = commands::Regression { why: violation.what.clone(), schedule: small };
    println!("for tests/sim/regressions:\n{}", serde_json::to_string(&regression).unwrap());
    println!("{what}: {} at {} ms: {}", violation.invariant, violation.at, violation.what);
    false
}

fn regressions() -> bool {
    let all = commands::regressions();
    let broken: Vec<_> = all.iter().filter_map(|(name, v)| Some((name, v.as_ref()?))).collect();
    for (name, violation) in &broken {
        println!("{name}: {} at {} ms: {}", violation.invariant, violation.at, violation.what);
    }
    println!("regressions={} violations={}", all.len(), broken.len());
    broken.is_empty()
}

fn crash_points(jobs: usize) -> bool {
    let sum = commands::crash_points(jobs);
    let mut kinds: Vec<&String> = sum.coverage.keys().map(|(kind, _)| kind).collect();
    kinds.dedup();
    for kind in kinds {
        let of = |position| sum.coverage.get(&(kind.clone(), position)).copied().unwrap_or_default();
        println!("{kind:<42} before {:>5}  begun {:>5}  known {:>5}", of(Before), of(Begun), of(Known));
    }
    for (scenario, crash, violation) in sum.violations.iter().take(20) {
        println!("{scenario}, {crash:?}: {} at {} ms: {}", violation.invariant, violation.at, violation.what);
    }
    println!("crash-points={} violations={}", sum.runs, sum.violations.len());
    sum.violations.is_empty()
}

#[cfg(feature = "planted")]
fn planted(name: &str, at_most: u64, trace: bool) -> bool {
    pitstop_api::planted::set(name);
    // Regressions first, and of these its own: drawn schedules show some bugs once in many thousands.
    let mut kept = commands::kept();
    let own = format!("planted-{name}");
    kept.sort_by_key(|(file, _)| *file != own);
    let drawn = (0..at_most).map(|seed| (seed.to_string(), draw::schedule(seed)));
    for (number, (what, schedule)) in (1..).zip(kept.into_iter().chain(drawn)) {
        if let Some(violation) = commands::guarded(&schedule, false).violation {
            if trace {
                story(&what, &schedule);
            }
            println!("planted {name} found after {number} schedules: {}", violation.invariant);
            return true;
        }
    }
    println!("planted {name} not found in {at_most} schedules");
    false
}
