//! The long runs of continuous integration: `cargo xtask test` runs them in the profile `sim`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use pitstop_sim::commands::{self, Sum};
use pitstop_sim::world::plan::Position;

/// Threads; each schedule runs in one.
const JOBS: u64 = 2;

/// The schedules, which run once for all tests that look at them.
static SCHEDULES: LazyLock<Sum> = LazyLock::new(|| commands::seeds(0..20_000, JOBS));

#[test]
fn twenty_thousand_schedules_break_nothing() {
    let sum = &*SCHEDULES;
    println!("schedules={} trace={:016x} ends={:?}", sum.schedules, sum.trace, sum.ends);
    assert_eq!(sum.violations, [], "replay with `cargo xtask sim --seed S --trace`");
    for end in ["Complete", "DeadlineExceeded", "DaemonNotResponding", "PodGone", "Invalid"] {
        assert!(sum.ends.get(end).is_some_and(|n| *n > 50), "{end} is too rare: {:?}", sum.ends);
    }
    for end in
        ["Resized", "WouldResize", "Superseded", "Cancelled", "DeadlineExceeded", "Restarted", "NodeCapacity"]
    {
        let resizes = sum.ends.get(&format!("resize: {end}"));
        assert!(resizes.is_some_and(|n| *n > 50), "{end} of resizes is too rare: {:?}", sum.ends);
    }
    let restarted = sum.ends.get("rollout: Restarted");
    assert!(restarted.is_some_and(|n| *n > 1_000), "rollouts are too rare: {:?}", sum.ends);
    let updates = [
        "Updated",
        "WouldUpdate",
        "PullFailed",
        "NotReady",
        "ContainerExited",
        "Superseded",
        "Cancelled",
        "DeadlineExceeded",
        "Refused",
    ];
    for end in updates {
        let updates = sum.ends.get(&format!("update: {end}"));
        assert!(updates.is_some_and(|n| *n > 50), "{end} of updates is too rare: {:?}", sum.ends);
    }
}

#[test]
fn a_crash_at_any_effect_breaks_nothing() {
    let sum = commands::crash_points(usize::try_from(JOBS).unwrap());
    assert!(sum.violations.is_empty(), "{:?}", sum.violations);
    assert!(sum.runs > 2_500, "{}", sum.runs);
    let covers = |kind: &str, position| sum.coverage.contains_key(&(kind.to_owned(), position));
    let kinds: BTreeSet<&String> = sum.coverage.keys().map(|(kind, _)| kind).collect();
    for kind in kinds {
        assert!(covers(kind, Position::Begun), "{kind} is not covered");
        // An effect that changes something is covered at all positions.
        let known = covers(kind, Position::Known);
        assert_eq!(covers(kind, Position::Before), known, "{kind}");
    }
    for kind in ["POST containerrecreaterequests", "PATCH pods", "PATCH nodeworks", "Stop", "Hook", "Pull"] {
        assert!(covers(kind, Position::Known), "{kind} is not covered");
    }
}

#[test]
fn a_thousand_seeds_give_the_same_trace_twice() {
    assert_eq!(commands::seeds(0..1_000, 1).hashes, SCHEDULES.hashes[..1_000]);
}

#[test]
fn no_decision_of_two_thousand_schedules_depends_on_a_wall_clock() {
    assert_eq!(commands::skews(&SCHEDULES.hashes[1_000..3_000], JOBS), Vec::<u64>::new());
}
