//! Tests of `cargo xtask mutants` beside the crates' own: the scenarios, and as many seeds as its time limit allows.
#![allow(clippy::panic, reason = "tests")]

use pitstop_sim::{commands, draw, scenarios};

/// Number of drawn schedules; the campaign has 20,000.
const SEEDS: u64 = 250;

/// Stops at the first violation.
#[test]
fn neither_scenarios_nor_seeds_break_anything() {
    let drawn = (0..SEEDS).map(draw::schedule);
    for schedule in scenarios::all().into_iter().chain(drawn) {
        let violation = commands::guarded(&schedule, false).violation;
        assert_eq!(violation, None, "{} {}", schedule.name, schedule.seed);
    }
    for (name, violation) in commands::regressions() {
        assert_eq!(violation, None, "{name}");
    }
}
