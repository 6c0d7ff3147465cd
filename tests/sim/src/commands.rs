//! What the program can be asked to do.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::oracle::Violation;
use crate::shrink::shrink;
use crate::world::plan::{Crash, Position, Schedule};
use crate::world::{Ran, run};
use crate::{draw, scenarios};

/// Runs a schedule; a panic of production code is a violation as well.
pub fn guarded(schedule: &Schedule, telling: bool) -> Ran {
    catch_unwind(AssertUnwindSafe(|| run(schedule, telling))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Ran {
            violation: Some(Violation {
                invariant: "panic",
                what: text.unwrap_or_else(|| "a panic".to_owned()),
                at: 0,
            }),
            hash: 0,
            ends: BTreeMap::new(),
            effects: Vec::new(),
            crashed: BTreeMap::new(),
            story: Vec::new(),
        }
    })
}

/// What many schedules came to.
#[derive(Debug, Default)]
pub struct Sum {
    /// How many ran.
    pub schedules: u64,
    /// Seeds that broke something, and what.
    pub violations: Vec<(u64, Violation)>,
    /// Of all hashes in the order of the seeds.
    pub trace: u64,
    /// How requests ended.
    pub ends: BTreeMap<String, usize>,
}

/// Runs the schedules of seeds, in so many threads; each schedule runs in one.
pub fn seeds(range: Range<u64>, jobs: u64) -> Sum {
    let part = |job: u64| -> Vec<(u64, Ran)> {
        let mine = range.clone().filter(|seed| seed % jobs == job);
        mine.map(|seed| (seed, guarded(&draw::schedule(seed), false))).collect()
    };
    let mut all: Vec<(u64, Ran)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|job| scope.spawn(move || part(job))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    all.sort_by_key(|(seed, _)| *seed);
    let mut hash = DefaultHasher::new();
    let mut sum = Sum::default();
    for (seed, ran) in all {
        sum.schedules += 1;
        ran.hash.hash(&mut hash);
        for (end, n) in ran.ends {
            *sum.ends.entry(end).or_default() += n;
        }
        sum.violations.extend(ran.violation.map(|v| (seed, v)));
    }
    sum.trace = hash.finish();
    sum
}

/// A readable story of one schedule, and what it broke.
pub fn trace(schedule: &Schedule) -> Ran {
    guarded(schedule, true)
}

/// The smallest schedule that fails as this one does, as text.
pub fn smallest(schedule: &Schedule) -> String {
    let small = shrink(schedule);
    let mut text = String::new();
    for step in &small.steps {
        text.push_str(&format!("  {:>8} ms  {:?}\n", step.at, step.what));
    }
    for fault in &small.faults {
        text.push_str(&format!("  {:>8} ms  {:?}\n", fault.at, fault.what));
    }
    text
}

/// Crash at every effect.
#[derive(Debug, Default)]
pub struct Crashes {
    /// How many runs.
    pub runs: u64,
    /// Scenario, effect and position that broke something.
    pub violations: Vec<(String, Crash, Violation)>,
    /// Kinds of effects with the positions at which a process was killed, and how often.
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
        for effect in 0..ran.effects.len() {
            for position in [Position::Before, Position::Begun, Position::Known] {
                work.push(Schedule { crash: Some(Crash { effect, position }), ..scenario.clone() });
            }
        }
    }
    let part = |job: usize| -> Vec<(usize, Ran)> {
        let mine = work.iter().enumerate().filter(|(at, _)| at % jobs == job);
        mine.map(|(at, schedule)| (at, guarded(schedule, false))).collect()
    };
    let mut all: Vec<(usize, Ran)> = std::thread::scope(|scope| {
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

/// Hours by which the clocks of API server, controllers and nodes are wrong, in the runs that must be the same.
const SKEWS: [[i64; 3]; 5] = [[0, 0, 0], [12, -12, 0], [-12, 12, 12], [0, 12, -12], [3, 0, -1]];

/// Runs each seed's schedule under several sets of clocks; gives back the seeds whose decisions were not the same.
pub fn skews(range: Range<u64>, jobs: u64) -> Vec<u64> {
    let same = |seed: u64| -> bool {
        let mut schedule = draw::schedule(seed);
        let hashes = SKEWS.map(|[server, controllers, nodes]| {
            let hour = 3_600_000;
            schedule.clocks.server.wrong_by = server * hour;
            for clock in &mut schedule.clocks.controllers {
                clock.wrong_by = controllers * hour;
                clock.boot += 1_234_567;
            }
            schedule.clocks.nodes.iter_mut().for_each(|clock| clock.wrong_by = nodes * hour);
            guarded(&schedule, false).hash
        });
        hashes.iter().all(|hash| *hash == hashes[0])
    };
    let part =
        |job: u64| -> Vec<u64> { range.clone().filter(|seed| seed % jobs == job && !same(*seed)).collect() };
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|job| scope.spawn(move || part(job))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    all.sort_unstable();
    all
}
