//! The controller's index, real daemons' cores and models of all else, in one thread and in virtual time.
//!
//! A seed decides the order of everything: which watch delivers next, which write is carried out and which
//! answer is lost, who is restarted when. At every write the store checks what no schedule may break; at the end
//! everything must be over, and silent.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::struct_excessive_bools,
    reason = "a test, also outside #[test]"
)]

mod controller;
mod node;
mod rng;
mod store;
mod world;

use std::collections::BTreeMap;

use chrono::TimeDelta;
use store::Writes;
use world::{Faults, World};

fn run(seed: u64, faults: Faults, offset: TimeDelta) -> World {
    let mut world = World::new(seed, faults, offset);
    world.chaos(250);
    world.calm();
    world
}

/// Runs the seeds and names the one that fails; gives back how often requests ended how.
fn schedules(seeds: std::ops::Range<u64>, faults: Faults) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    for seed in seeds {
        let Ok(world) = std::panic::catch_unwind(|| run(seed, faults, TimeDelta::zero())) else {
            panic!("seed {seed} fails with {faults:?}");
        };
        for (outcome, n) in world.store.outcomes {
            *seen.entry(outcome).or_default() += n;
        }
    }
    seen
}

/// Every outcome came about often enough to mean something.
fn assert_seen(seen: &BTreeMap<String, usize>, outcomes: &[&str]) {
    let rare = outcomes.iter().filter(|o| seen.get(**o).is_none_or(|n| *n < 10));
    assert_eq!(rare.collect::<Vec<_>>(), Vec::<&&str>::new(), "too rare among {seen:?}");
}

const ALL: Faults = Faults {
    lost_answers: true,
    crashes: true,
    pods: true,
    deletions: true,
    restarts: true,
    leaders: false,
    silence: true,
};

#[test]
fn any_order_of_events() {
    let seen = schedules(0..500, Faults::default());
    assert_seen(&seen, &["AllContainersRestarted", "DeadlineExceeded"]);
}

#[test]
fn lost_answers_and_restarts() {
    let faults = Faults { lost_answers: true, restarts: true, ..Faults::default() };
    let seen = schedules(10_000..10_700, faults);
    assert_seen(&seen, &["AllContainersRestarted", "DeadlineExceeded", "late record"]);
}

#[test]
fn everything_goes_wrong() {
    let seen = schedules(20_000..21_200, ALL);
    let outcomes = [
        "AllContainersRestarted",
        "DeadlineExceeded",
        "DaemonNotResponding",
        "PodGone",
        "Invalid",
        "late record",
    ];
    assert_seen(&seen, &outcomes);
}

#[test]
fn two_leaders() {
    schedules(30_000..30_600, Faults { leaders: true, ..ALL });
}

#[test]
fn the_same_seed_gives_the_same_actions_whatever_the_clocks_say() {
    for seed in 0..100 {
        let trace = run(seed, ALL, TimeDelta::zero()).trace();
        for hours in [0, 12, -12] {
            assert_eq!(run(seed, ALL, TimeDelta::hours(hours)).trace(), trace, "seed {seed}, {hours} h");
        }
    }
}

/// A world in which there is nothing to do.
fn at_rest(seed: u64) -> World {
    let mut world = World::new(seed, Faults::default(), TimeDelta::zero());
    world.run_quietly();
    let gated = world.store.pods.values().filter(|p| !p.gates.is_empty()).count();
    let opened = Writes { pods: gated, ..Writes::default() };
    assert_eq!(world.store.writes, opened, "without a request, only gates are opened");
    world.store.writes = Writes::default();
    world
}

#[test]
fn a_request_for_one_container_costs_six_writes() {
    for seed in 0..50 {
        let mut world = at_rest(seed);
        while !world.add_request("web", &["app"], |_| ()) {}
        let labels_missing = usize::from(world.store.requests.values().all(|r| r.labels.is_empty()));
        world.run_quietly();
        let expected =
            Writes { status: 2, labels: 1 + labels_missing, deletions: 0, orders: 2, answers: 1, pods: 0 };
        assert_eq!(world.store.writes, expected, "seed {seed}");
        assert_eq!(expected.total(), 6 + labels_missing);
    }
}

/// The hold, its release, and the annotation that tells clients of `v1alpha1` of it.
#[test]
fn a_drain_costs_three_writes_more() {
    let mut gates_seen = 0;
    for seed in 0..50 {
        let mut world = at_rest(seed);
        while !world.add_request("web", &["app"], |spec| {
            spec.strategy.get_or_insert_default().unready_grace_period_seconds = Some(1);
        }) {}
        world.run_quietly();
        let gated = world.store.pods.values().any(|p| p.key.name == "web" && !p.gates.is_empty());
        gates_seen += usize::from(gated);
        let pods = if gated { 2 } else { 0 };
        let expected = Writes { status: 2, labels: 2, deletions: 0, orders: 2, answers: 1, pods };
        assert_eq!(world.store.writes, expected, "seed {seed}");
    }
    assert!(gates_seen > 10, "{gates_seen}");
}
