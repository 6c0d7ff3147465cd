//! `cargo xtask sim`: the simulator of `tests/sim`, and the bugs that it must find.

mod bugs;
mod copy;
mod planted;
mod schemata;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

pub(crate) use self::planted::{Count, campaign};
use crate::sh::{Cmd, exit_code};

/// Schedules within which a planted bug must be found.
const FOUND_WITHIN: u64 = 5_000;

/// Fails unless the text of every planted bug is in the sources. Finds the same errors as `--planted`, without a
/// build.
pub(crate) fn fits(root: &Path) -> Result<()> {
    copy::planted(root, &bugs::load(root)?)?;
    Ok(())
}

/// What to simulate.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    mode: Mode,
    /// How many threads run schedules side by side.
    #[arg(long, value_name = "N", conflicts_with_all = ["seed", "skews", "crash_points", "regressions", "planted"])]
    jobs: Option<u32>,
    /// Tell what happens, step by step: of one seed, or of the schedule that shows one planted bug.
    #[arg(long, conflicts_with_all = ["seeds", "fresh", "skews", "crash_points", "regressions"])]
    trace: bool,
    /// Only this planted bug; may be given several times.
    #[arg(long = "bug", value_name = "NAME", requires = "planted", conflicts_with_all = ["seed", "seeds", "fresh", "skews", "crash_points", "regressions"])]
    bugs: Vec<String>,
    /// Schedules within which a planted bug must be found.
    #[arg(long, value_name = "N", requires = "planted", default_value_t = FOUND_WITHIN)]
    schedules_at_most: u64,
}

/// The kind of run.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Mode {
    /// Run the schedules of the seeds from A to below B.
    #[arg(long, value_name = "A..B")]
    seeds: Option<String>,
    /// Run the schedules of N seeds that no run before had, and print them.
    #[arg(long, value_name = "N")]
    fresh: Option<u64>,
    /// Run the schedule of one seed.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Run the schedules of the seeds under several sets of wrong clocks: all must decide the same.
    #[arg(long, value_name = "A..B")]
    skews: Option<String>,
    /// Crash at every effect of every scenario.
    #[arg(long)]
    crash_points: bool,
    /// Run again the schedules that found violations once.
    #[arg(long)]
    regressions: bool,
    /// Run every planted bug until it is found.
    #[arg(long)]
    planted: bool,
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    if let (true, true, [bug]) = (args.mode.planted, args.trace, &args.bugs[..]) {
        return planted::trace(root, bug, args.schedules_at_most);
    }
    if args.mode.planted {
        if args.trace {
            bail!("--trace tells of one planted bug: name it with --bug");
        }
        return planted::run(root, &args.bugs, args.schedules_at_most);
    }
    let status = Cmd::cargo()
        .args(["run", "--profile", "sim", "--locked", "--quiet", "-p", "pitstop-sim", "--"])
        .args(words(args))
        .dir(root)
        .status()?;
    Ok(exit_code(status))
}

/// Looks for every planted bug, for `cargo xtask test`.
pub(crate) fn look_for_planted(root: &Path) -> Result<Count> {
    planted::look(root, &[], FOUND_WITHIN)
}

/// The simulator's own arguments.
fn words(args: &Args) -> Vec<String> {
    let mode = &args.mode;
    if let Some(seeds) = &mode.skews {
        return vec!["skews".to_owned(), seeds.clone()];
    }
    let many = |mode: &str, value: String| {
        let jobs = args.jobs.into_iter().flat_map(|n| ["--jobs".to_owned(), n.to_string()]);
        [mode.to_owned(), value].into_iter().chain(jobs).collect()
    };
    if let Some(count) = mode.fresh {
        return many("fresh", count.to_string());
    }
    match (&mode.seeds, mode.seed) {
        (Some(seeds), _) => many("seeds", seeds.clone()),
        (None, Some(seed)) if args.trace => vec!["trace".to_owned(), seed.to_string()],
        (None, Some(seed)) => vec!["seeds".to_owned(), format!("{seed}..{}", seed.saturating_add(1))],
        (None, None) if mode.crash_points => vec!["crash-points".to_owned()],
        (None, None) => vec!["regressions".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn line(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(["sim"].into_iter().chain(line.split_whitespace())).map(|line| line.args)
    }

    #[test]
    fn the_simulator_gets_its_own_words() {
        for (given, expected) in [
            ("--seeds 5..9", "seeds 5..9"),
            ("--seeds 5..9 --jobs 2", "seeds 5..9 --jobs 2"),
            ("--fresh 20", "fresh 20"),
            ("--fresh 20 --jobs 1", "fresh 20 --jobs 1"),
            ("--seed 7", "seeds 7..8"),
            ("--seed 7 --trace", "trace 7"),
            ("--skews 0..9", "skews 0..9"),
            ("--crash-points", "crash-points"),
            ("--regressions", "regressions"),
        ] {
            assert_eq!(words(&line(given).unwrap()).join(" "), expected);
        }
    }

    #[test]
    fn one_thing_at_a_time() {
        for wrong in [
            "",
            "--seeds 1..2 --planted",
            "--trace",
            "--crash-points --trace",
            "--seed 1 --bug x",
            "--fresh 2 --seed 1",
        ] {
            assert!(line(wrong).is_err(), "{wrong}");
        }
        assert_eq!(line("--planted --bug a --bug b").unwrap().bugs, ["a", "b"]);
    }
}
