//! The commands of the program.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::oracle::Violation;
use crate::shrink::shrink;
use crate::world::plan::{Crash, Position, Schedule};
use crate::world::{Report, run};
use crate::{draw, scenarios};

/// Runs a schedule; a panic of production code is a violation as well.
pub fn guarded(schedule: &Schedule, verbose: bool) -> Report {
    catch_unwind(AssertUnwindSafe(|| run(schedule, verbose))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Report {
            violation: Some(Violation {
                invariant: "panic",
                what: text.unwrap_or_else(|| "a panic".to_owned()),
                at: 0,
            }),
            hash: 0,
            ends: BTreeMap::new(),
            effects: Vec::new(),
            writes: 0,
            crashed: BTreeMap::new(),
            story: Vec::new(),
        }
    })
}

/// Result of many schedules.
#[derive(Debug, Default)]
pub struct Sum {
    /// Number of schedules that ran.
    pub schedules: u64,
    /// Seeds that violated an invariant, with the violation.
    pub violations: Vec<(u64, Violation)>,
    /// Each seed with the hash of its decisions, in the order of the seeds.
    pub hashes: Vec<(u64, u64)>,
    /// Hash of all these hashes.
    pub trace: u64,
    /// Outcomes of requests, with their counts.
    pub ends: BTreeMap<String, usize>,
}

/// `count` seeds that no earlier run had: the first is the number of microseconds since 1970.
pub fn fresh(since_1970: Duration, count: u64) -> Range<u64> {
    let first = u64::try_from(since_1970.as_micros()).unwrap_or_default();
    first..first.saturating_add(count)
}

/// The command that runs these seeds again.
pub fn command(seeds: &Range<u64>) -> String {
    format!("cargo xtask sim --seeds {}..{}", seeds.start, seeds.end)
}

/// Parses `A..B`; None for other texts.
pub fn range(text: &str) -> Option<Range<u64>> {
    text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?))
}

/// Runs the schedules of seeds in `jobs` threads; each schedule runs in one.
pub fn seeds(range: Range<u64>, jobs: u64) -> Sum {
    let part = |job: u64| -> Vec<(u64, Report)> {
        let mine = range.clone().filter(|seed| seed % jobs == job);
        mine.map(|seed| (seed, guarded(&draw::schedule(seed), false))).collect()
    };
    let mut all: Vec<(u64, Report)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|job| scope.spawn(move || part(job))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    all.sort_by_key(|(seed, _)| *seed);
    let mut hash = DefaultHasher::new();
    let mut sum = Sum::default();
    for (seed, ran) in all {
        sum.schedules += 1;
        ran.hash.hash(&mut hash);
        sum.hashes.push((seed, ran.hash));
        for (end, n) in ran.ends {
            *sum.ends.entry(end).or_default() += n;
        }
        sum.violations.extend(ran.violation.map(|v| (seed, v)));
    }
    sum.trace = hash.finish();
    sum
}

/// Runs one schedule and records a readable story.
pub fn trace(schedule: &Schedule) -> Report {
    guarded(schedule, true)
}

/// The smallest schedule found that violates the same invariant, also as text.
pub fn smallest(schedule: &Schedule) -> (Schedule, String) {
    let small = shrink(schedule);
    let steps = small.steps.iter().map(|s| format!("  {:>8} ms  {:?}\n", s.at, s.what));
    let faults = small.faults.iter().map(|f| format!("  {:>8} ms  {:?}\n", f.at, f.what));
    let text = steps.chain(faults).collect();
    (small, text)
}

/// Result of the runs with a crash at every effect.
#[derive(Debug, Default)]
pub struct Crashes {
    /// Number of runs.
    pub runs: u64,
    /// Scenario, crash and violation of each failed run.
    pub violations: Vec<(String, Crash, Violation)>,
    /// Number of kills by kind of effect and position.
    pub coverage: BTreeMap<(String, Position), usize>,
}

/// Runs every scenario once, and then again for each of its effects and positions with a crash there.
pub fn crash_points(jobs: usize) -> Crashes {
    let mut work: Vec<Schedule> = Vec::new();
    let mut sum = Crashes::default();
    for scenario in scenarios::all() {
        let ran = guarded(&scenario, false);
        sum.runs += 1;
        if let Some(violation) = ran.violation {
            let crash = Crash { effect: usize::MAX, position: Position::Before };
            sum.violations.push((scenario.name.clone(), crash, violation));
        }
        for (effect, positions) in ran.effects.into_iter().enumerate() {
            let crash = |&position: &Position| Schedule {
                crash: Some(Crash { effect, position }),
                ..scenario.clone()
            };
            work.extend(positions.iter().map(crash));
        }
    }
    let part = |job: usize| -> Vec<(usize, Report)> {
        let mine = work.iter().enumerate().filter(|(at, _)| at % jobs == job);
        mine.map(|(at, schedule)| (at, guarded(schedule, false))).collect()
    };
    let mut all: Vec<(usize, Report)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|job| scope.spawn(move || part(job))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    for (at, ran) in all {
        sum.runs += 1;
        for (kind, n) in ran.crashed {
            *sum.coverage.entry(kind).or_default() += n;
        }
        if let Some(violation) = ran.violation {
            sum.violations.push((work[at].name.clone(), work[at].crash.unwrap(), violation));
        }
    }
    sum
}

/// Hours by which the clocks of API server, controllers and nodes are wrong. Decisions must be the same as with the
/// drawn clocks.
const SKEWS: [[i64; 3]; 4] = [[12, -12, 0], [-12, 12, 12], [0, 12, -12], [3, 0, -1]];

/// Runs each schedule again under several sets of clocks. `drawn`: seeds with their hashes under the drawn clocks
/// ([`Sum::hashes`]). Returns the seeds whose decisions differ.
pub fn skews(drawn: &[(u64, u64)], jobs: u64) -> Vec<u64> {
    let same = |seed: u64, drawn: u64| -> bool {
        let mut schedule = draw::schedule(seed);
        SKEWS.iter().all(|[server, controllers, nodes]| {
            let hour = 3_600_000;
            // Keep the fraction of a second: creation times are whole seconds, and names order objects of the same
            // second.
            let fraction = schedule.clocks.server.wrong_by.rem_euclid(1000);
            schedule.clocks.server.wrong_by = server * hour + fraction;
            for clock in &mut schedule.clocks.controllers {
                clock.wrong_by = controllers * hour;
                clock.boot += 1_234_567;
            }
            schedule.clocks.nodes.iter_mut().for_each(|clock| clock.wrong_by = nodes * hour);
            guarded(&schedule, false).hash == drawn
        })
    };
    let part = |job: u64| -> Vec<u64> {
        let mine = drawn.iter().filter(|(seed, hash)| seed % jobs == job && !same(*seed, *hash));
        mine.map(|(seed, _)| *seed).collect()
    };
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|job| scope.spawn(move || part(job))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    all.sort_unstable();
    all
}

/// A schedule that once violated an invariant.
#[derive(Debug, Serialize, Deserialize)]
pub struct Regression {
    /// The violation, and the mistake that caused it.
    pub why: String,
    /// The schedule.
    pub schedule: Schedule,
}

/// All regressions by name.
///
/// # Panics
/// When a file cannot be read.
pub fn kept() -> Vec<(String, Schedule)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: std::path::PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        let regression: Regression =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        (name, regression.schedule)
    };
    files.into_iter().map(read).collect()
}

/// Runs all regressions; returns their names and violations.
pub fn regressions() -> Vec<(String, Option<Violation>)> {
    kept().into_iter().map(|(name, schedule)| (name, guarded(&schedule, false).violation)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_seeds_can_be_run_again() {
        let now = Duration::from_micros(1_795_000_000_123_456);
        let seeds = fresh(now, 3);
        assert_eq!(seeds, 1_795_000_000_123_456..1_795_000_000_123_459);
        let again = command(&seeds);
        assert_eq!(range(again.strip_prefix("cargo xtask sim --seeds ").unwrap()), Some(seeds.clone()));
        assert_ne!(fresh(now + Duration::from_micros(3), 3).start, seeds.start);
        assert_eq!(range("5"), None);
    }

    #[test]
    fn seeds_that_are_run_again_do_the_same() {
        let seeds = fresh(Duration::from_secs(1_795_000_000), 4);
        let (first, second) = (super::seeds(seeds.clone(), 1), super::seeds(seeds, 2));
        assert_eq!((first.schedules, first.trace), (4, second.trace));
    }
}
