//! The world in small: what `cargo xtask sim` does with thousands of schedules, and exact counts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use pitstop_sim::{commands, draw, scenarios, world};

#[test]
fn schedules_of_all_kinds_break_nothing() {
    let sum = commands::seeds(0..60, 2);
    assert_eq!(sum.violations, [], "replay with `cargo xtask sim --seed S --trace`");
    assert!(sum.ends["AllContainersRestarted"] > 20, "{:?}", sum.ends);
}

#[test]
fn a_seed_gives_the_same_decisions_every_time() {
    for seed in 0..15 {
        let schedule = draw::schedule(seed);
        assert_eq!(world::run(&schedule, false).hash, world::run(&schedule, true).hash, "seed {seed}");
    }
}

#[test]
fn no_decision_depends_on_a_wall_clock() {
    assert_eq!(commands::skews(0..8, 2), Vec::<u64>::new());
}

#[test]
fn what_broke_something_once_breaks_nothing_now() {
    let broken: Vec<_> =
        commands::regressions().into_iter().filter(|(_, violation)| violation.is_some()).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

fn writes_of(name: &str) -> usize {
    let scenario = scenarios::all().into_iter().find(|s| s.name == name).unwrap();
    let bare = world::plan::Schedule { steps: Vec::new(), ..scenario.clone() };
    let (ran, idle) = (world::run(&scenario, true), world::run(&bare, false));
    // What is shown when the count is another one.
    ran.story.iter().for_each(|line| println!("{line}"));
    assert_eq!((ran.violation, idle.violation), (None, None));
    ran.writes - idle.writes
}

/// Two of the status, the label, the order and its end, the answer.
#[test]
fn a_request_for_one_container_costs_six_writes() {
    assert_eq!(writes_of("Runtime one ordered=false"), 6);
}

/// The hold, its release, and the annotation that tells clients of `v1alpha1` of it.
#[test]
fn a_drain_costs_three_writes_more() {
    assert_eq!(writes_of("Runtime drain of 0 s"), 9);
    assert_eq!(writes_of("Runtime drain of 0 s without a gate"), 7);
}

/// No order and no answer, and no daemon: the pin itself.
#[test]
fn a_restart_by_pin_costs_four_writes() {
    assert_eq!(writes_of("Kubelet one ordered=false"), 4);
}

/// Its acceptance and its end, the Pod's resources, the question and its end, the answer; of each further container one
/// answer more.
#[test]
fn a_resize_costs_six_writes() {
    assert_eq!(writes_of("resize grows"), 6);
    assert_eq!(writes_of("resize grows both"), 7);
    assert_eq!(writes_of("resize dry run"), 2);
}
