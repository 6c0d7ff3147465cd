//! Small runs of the world (`cargo xtask sim` runs thousands of schedules), and exact counts of writes.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use pitstop_sim::{commands, draw, scenarios, world};

#[test]
fn schedules_of_all_kinds_break_nothing() {
    let sum = commands::seeds(0..60, 2);
    assert_eq!(sum.violations, [], "replay with `cargo xtask sim --seed S --trace`");
    assert!(sum.ends["Complete"] > 20, "{:?}", sum.ends);
}

/// The watch of Pods falls behind before a Pod is replaced. A request for the new Pod waits for the watch.
#[test]
fn a_watch_of_pods_that_is_behind_ends_no_request() {
    use world::plan::{Fault, Schedule, Step, Timed};
    let scenario = scenarios::all().into_iter().find(|s| s.name == "Runtime one ordered=false").unwrap();
    let create = scenario.steps[0].what.clone();
    let deleted = Timed { at: 20_000, what: Step::ForceDeletePod("web".to_owned()) };
    let schedule = Schedule {
        steps: vec![deleted, Timed { at: 30_000, what: create }],
        faults: vec![Timed { at: 19_000, what: Fault::HoldWatch(0, 0, 25_000) }],
        ..scenario
    };
    let ran = world::run(&schedule, true);
    ran.story.iter().for_each(|line| println!("{line}"));
    assert_eq!(ran.violation, None);
    assert_eq!(ran.ends.get("Complete"), Some(&1), "{:?}", ran.ends);
}

/// A container that ends by itself before a forced request stops it is restarted once more.
#[test]
fn a_forced_request_restarts_the_instance_that_runs() {
    for mechanism in ["Runtime", "Kubelet", "Auto"] {
        let name = format!("{mechanism} forced, crashes in the drain");
        let scenario = scenarios::all().into_iter().find(|s| s.name == name).unwrap();
        let undisturbed = world::plan::Schedule { steps: scenario.steps[..1].to_vec(), ..scenario.clone() };
        let starts = |schedule| {
            let ran = world::run(schedule, true);
            // Shown when a count is wrong.
            ran.story.iter().for_each(|line| println!("{line}"));
            assert_eq!(ran.violation, None);
            assert_eq!(ran.ends.get("Complete"), Some(&1), "{:?}", ran.ends);
            ran.story.iter().filter(|line| line.contains("Started of")).count()
        };
        assert_eq!(starts(&scenario), starts(&undisturbed) + 1, "{mechanism}");
    }
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
    assert_eq!(commands::skews(&commands::seeds(0..8, 2).hashes, 2), Vec::<u64>::new());
}

#[test]
fn what_broke_something_once_breaks_nothing_now() {
    let broken: Vec<_> =
        commands::regressions().into_iter().filter(|(_, violation)| violation.is_some()).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

/// The daemon is killed or paused during a hook, and is back only after the deadline.
#[test]
fn a_daemon_that_was_away_stops_nothing_of_a_request_that_is_over() {
    use world::plan::{Fault, HookPlan, Step, Timed};
    for (hook, fault) in [
        (8, Fault::KillDaemon(0, 60_000)),
        (8, Fault::PauseDaemon(0, 60_000)),
        (60, Fault::KillDaemon(0, 25_000)),
    ] {
        let mut schedule = scenarios::all().into_iter().find(|s| s.name == "hook sleep").unwrap();
        schedule.pods[0].containers[0].hook = Some(HookPlan::Sleep(hook));
        let Step::Create(request) = &mut schedule.steps[0].what else { panic!() };
        request.mechanism = Some("Runtime".into());
        (request.deadline, request.grace) = (Some(5), Some(10));
        schedule.faults.push(Timed { at: schedule.steps[0].at + 2_000, what: fault });
        let ran = world::run(&schedule, true);
        ran.story.iter().for_each(|line| println!("{line}"));
        assert_eq!(ran.violation, None);
    }
}

fn writes_of(name: &str) -> usize {
    writes_in(&scenarios::all().into_iter().find(|s| s.name == name).unwrap())
}

fn writes_in(scenario: &world::plan::Schedule) -> usize {
    let bare = world::plan::Schedule { steps: Vec::new(), ..scenario.clone() };
    let (ran, idle) = (world::run(scenario, true), world::run(&bare, false));
    // Shown when the count is wrong.
    ran.story.iter().for_each(|line| println!("{line}"));
    assert_eq!((ran.violation, idle.violation), (None, None));
    ran.writes - idle.writes
}

/// kubernetes#138760: the controller sets 128 MiB and one byte, and back, without an order that writes into a control
/// group.
#[test]
fn a_pod_that_its_kubelet_left_low_is_written_by_a_step_there_and_back() {
    let named = |s: &world::plan::Schedule| s.name == "resize while its container is down";
    let ran = world::run(&scenarios::all().into_iter().find(named).unwrap(), true);
    assert_eq!(ran.violation, None, "{:#?}", ran.story);
    assert_eq!(ran.ends.get("resize: Resized"), Some(&1), "{:?}", ran.ends);
    let more = format!("memory_request: Some({})", (128 << 20) + 1);
    let hits = |words: &str| ran.story.iter().filter(|l| l.contains("PatchPod") && l.contains(words)).count();
    assert_eq!((hits(&more), hits("Resources(")), (1, 3), "{:#?}", ran.story);
    assert!(!ran.story.iter().any(|line| line.contains("only_raise: true")), "{:#?}", ran.story);
}

/// Two status writes, the label, the order and its removal, the answer.
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

/// The pin replaces the order, its removal and the answer; no daemon is needed.
#[test]
fn a_restart_by_pin_costs_four_writes() {
    assert_eq!(writes_of("Kubelet one ordered=false"), 4);
}

/// The request's acceptance and end, the Pod's resources, the question to the daemon and its removal, the answer. Each
/// further container costs one more answer.
#[test]
fn a_resize_costs_six_writes() {
    assert_eq!(writes_of("resize grows"), 6);
    assert_eq!(writes_of("resize grows both"), 7);
    assert_eq!(writes_of("resize dry run"), 2);
}

/// The request's acceptance, record of its change and end; the order, its removal and the answer; the Pod's images. The
/// daemon also reports a long pull.
#[test]
fn an_update_costs_seven_writes_and_with_a_long_pull_eight() {
    use world::plan::Step;
    let mut scenario = scenarios::all().into_iter().find(|s| s.name == "update one").unwrap();
    let Step::Update(update) = &mut scenario.steps[0].what else { panic!() };
    update.observe = Some(0);
    for (pull_ms, writes) in [(700, 7), (5_000, 8), (9_000, 8)] {
        scenario.images.pull_ms = pull_ms;
        assert_eq!(writes_in(&scenario), writes, "{pull_ms} ms");
    }
}

/// Outcome of each scenario of an update: `Updated` if not listed, empty for none.
const ENDS: [(&str, &str); 22] = [
    ("dry run", "WouldUpdate"),
    ("to one that crashes", "ContainerExited"),
    ("to one that crashes later", "ContainerExited"),
    ("to one that is never ready", "NotReady"),
    ("to one that does not start", "RunContainerError"),
    ("to one that crashes, and stays", "ContainerExited"),
    ("to one that is missing", "PullFailed"),
    ("IfPossible to one that is missing", "ImagePullBackOff"),
    ("Skip to one that is missing", "ImagePullBackOff"),
    ("to another repository", "Invalid"),
    ("suspended, cancelled", "Cancelled"),
    ("webhook", "Refused"),
    ("suspended, webhook", "Refused"),
    ("cancelled soon", "Cancelled"),
    ("cancelled late", "Cancelled"),
    ("Pod deleted soon", "PodGone"),
    ("Pod deleted late", "PodGone"),
    ("foreign soon", "Superseded"),
    ("foreign late", "Superseded"),
    ("deleted soon", ""),
    ("deleted late", ""),
    ("one", "Updated"),
];

#[test]
fn updates_end_as_their_images_do() {
    let updates = scenarios::all().into_iter().filter(|s| s.name.starts_with("update "));
    let mut wrong = Vec::new();
    for scenario in updates {
        let name = scenario.name.trim_start_matches("update ").to_owned();
        let ran = world::run(&scenario, false);
        let expected = ENDS.iter().find(|(of, _)| *of == name).map_or("Updated", |(_, end)| *end);
        let ends: Vec<&str> = ran.ends.keys().filter_map(|end| end.strip_prefix("update: ")).collect();
        let right = if expected.is_empty() { ends.is_empty() } else { ends == [expected] };
        if !right || ran.violation.is_some() {
            wrong.push((name, ends.join(" "), ran.violation.clone()));
        }
    }
    assert_eq!(wrong, []);
}

/// Number of finished restarts in the scenarios of rollouts; 1 if not listed.
const FINISHED: [(&str, usize); 5] =
    [("again", 2), ("deleted", 0), ("of nothing", 0), ("paused for good", 0), ("that fails", 0)];

#[test]
fn rollouts_finish_what_is_asked_for() {
    for scenario in scenarios::all().into_iter().filter(|s| s.name.starts_with("rollout ")) {
        let name = scenario.name.trim_start_matches("rollout ").to_owned();
        let ran = world::run(&scenario, false);
        let expected = FINISHED.iter().find(|(of, _)| *of == name).map_or(1, |(_, times)| *times);
        let finished = ran.ends.get("rollout: Restarted").copied().unwrap_or_default();
        assert_eq!((ran.violation, finished), (None, expected), "{name}");
    }
}
