//! The history of restarts and updates.

use pitstop_api::rollout::{RollResult, ServiceGap, TemplateChanges};

use super::updates::image;
use super::*;
use crate::template::{Change, Delta};

const THREE: [&str; 3] = ["web-0", "web-1", "web-2"];

impl World {
    /// What ended, how, and how many Pods of how many were done.
    fn rolls(&self) -> Vec<(String, RollResult, i32, i32)> {
        let what = |restarted_at: Option<&str>, revision: Option<&str>, from: Option<&str>| {
            let update = |to| format!("{} to {to}", from.unwrap_or("something"));
            restarted_at.map_or_else(|| revision.map(update).unwrap(), str::to_owned)
        };
        let all = self.rollout.status.history.iter().map(|roll| {
            assert_eq!(roll.completed_at, DateTime::UNIX_EPOCH);
            let what = what(roll.restarted_at.as_deref(), roll.revision.as_deref(), roll.from.as_deref());
            (what, roll.result, roll.current, roll.pods)
        });
        all.collect()
    }

    /// Gaps of the newest entry: their number, median and maximum in milliseconds.
    fn gap(&self) -> Option<(i32, i64, i64)> {
        let ServiceGap { measured, median_milliseconds, maximum_milliseconds } =
            self.rollout.status.history[0].service_gap?;
        Some((measured, median_milliseconds, maximum_milliseconds))
    }

    /// The Pod is not ready for this time.
    fn out_for(&mut self, pod: &str, milliseconds: u64) {
        self.ready(pod, false);
        self.now.0 += milliseconds;
        self.ready(pod, true);
    }

    fn wishes(&mut self, restarted_at: &str) {
        self.rollout.spec.restarted_at = Some(restarted_at.into());
        self.settle();
    }

    /// The template changes again. `lacks`: what Pods then lack.
    fn newer(&mut self, lacks: impl Fn() -> Change) {
        self.template().revision = Some("newer".into());
        self.template().changes = [
            ("old".into(), lacks()),
            ("new".into(), lacks()),
            ("newer".into(), Change::InPlace(Delta::default())),
        ]
        .into();
        self.template().generation = 3;
        self.parked.as_mut().unwrap().generation = 3;
        self.settle();
    }
}

fn is(what: &str, result: RollResult, current: i32, pods: i32) -> (String, RollResult, i32, i32) {
    (what.to_owned(), result, current, pods)
}

#[test]
fn a_restart_is_remembered_with_the_gaps_of_its_pods() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    world.settle();
    for (pod, gap) in [("web-0", 900), ("web-1", 2_000), ("web-2", 1_100)] {
        world.out_for(pod, gap);
        assert!(world.rolls().is_empty());
        world.end(pod, true);
    }
    assert_eq!(world.rolls(), [is("one", RollResult::Restarted, 3, 3)]);
    assert_eq!(world.gap(), Some((3, 1_100, 2_000)));
    // The next restart has its own gaps. A Pod that is out of service already has none.
    world.wishes("two");
    world.end("web-0", true);
    world.ready("web-2", false);
    world.run();
    assert_eq!((world.rolls()[0].clone(), world.gap()), (is("two", RollResult::Restarted, 3, 3), None));
    world.ready("web-2", true);
    assert_eq!(world.rolls().len(), 2);
}

#[test]
fn an_update_is_remembered_when_the_workload_is_released() {
    let mut world = World::parked();
    world.settle();
    for pod in ["web-2", "web-1", "web-0"] {
        assert!(world.rolls().is_empty());
        world.out_for(pod, 500);
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!(world.rolls(), [is("old to new", RollResult::Updated, 3, 3)]);
    assert_eq!(world.gap(), Some((3, 500, 500)));
    let writes = world.writes;
    world.later(600);
    assert_eq!((world.writes, world.rolls().len()), (writes, 1));
}

#[test]
fn a_roll_back_ends_with_the_gaps_of_both_ways() {
    let mut world = World::rolls_back();
    world.settle();
    world.out_for("web-2", 1_000);
    world.updated("web-2", "shop/web:v2");
    world.out_for("web-1", 7_000);
    world.fails("web-1");
    assert!(world.rolls().is_empty() && world.report().0 == "RollingBack");
    world.out_for("web-2", 3_000);
    world.updated("web-2", "shop/web:v1");
    let rolled_back = is("old to new", RollResult::RolledBack, 3, 3);
    assert_eq!((world.rolls(), world.gap()), (vec![rolled_back.clone()], Some((3, 3_000, 7_000))));
    // The update has ended already when the user releases the workload.
    world.parked = None;
    (world.template().parked, world.template().holds) = (None, false);
    world.settle();
    assert_eq!((world.report().0, world.rolls()), ("Superseded", vec![rolled_back]));
}

#[test]
fn the_last_five_are_remembered_the_newest_first() {
    let mut world = World::new("Deployment", &json!({}), &["web-0"], 1);
    for wish in ["1", "2", "3", "4", "5", "6", "7"] {
        world.wishes(wish);
        world.run();
    }
    let of = |wish| is(wish, RollResult::Restarted, 1, 1);
    assert_eq!(world.rolls(), ["7", "6", "5", "4", "3"].map(of));
}

#[test]
fn what_another_one_takes_the_place_of_is_given_up() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    world.settle();
    world.out_for("web-0", 800);
    world.end("web-0", true);
    world.ready("web-1", false);
    world.wishes("two");
    let given_up = is("one", RollResult::GivenUp, 1, 3);
    assert_eq!((world.rolls(), world.gap()), (vec![given_up.clone()], Some((1, 800, 800))));
    world.now.0 += 5_000;
    world.ready("web-1", true);
    world.end("web-1", true);
    world.run();
    assert_eq!(world.rolls(), [is("two", RollResult::Restarted, 3, 3), given_up]);
    assert_eq!(world.gap(), None, "the gap began before it");
    // A restart that is no longer requested is given up too.
    world.wishes("three");
    world.rollout.spec.restarted_at = None;
    world.settle();
    assert_eq!(world.rolls()[0], is("three", RollResult::GivenUp, 0, 3));
    assert_eq!(world.rolls().len(), 3);
}

#[test]
fn an_update_is_given_up_for_another_template_and_for_the_native_way() {
    let mut world = World::parked();
    world.settle();
    world.updated("web-2", "shop/web:v2");
    world.newer(|| image("shop/web:v2", "shop/web:v3"));
    assert_eq!(world.rolls(), [is("old to new", RollResult::GivenUp, 1, 3)]);
    world.rollout.spec.template_changes = TemplateChanges::Native;
    world.settle();
    assert_eq!((world.rolls().len(), &world.rolls()[0].0[..]), (2, "old to newer"));
    assert_eq!(world.rolls()[0].1, RollResult::GivenUp);
}

#[test]
fn what_ends_as_it_begins_is_remembered_once() {
    let mut world = World::parked();
    world.template().holds = false;
    world.release = Done::Refused("forbidden".into());
    world.settle();
    world.later(60);
    assert_eq!(world.rolls(), [is("something to new", RollResult::Superseded, 0, 0)]);
    world.release = Done::Effected;
    world.later(60);
    assert_eq!((world.released, world.rolls().len()), (Some(Strategy::AsIs), 1));
    // In mid-roll, it replaces the update under way.
    let mut world = World::parked();
    world.settle();
    world.updated("web-2", "shop/web:v2");
    world.newer(|| Change::Other("spec differs".into()));
    let results: Vec<RollResult> = world.rolls().iter().map(|roll| roll.1).collect();
    assert_eq!(results, [RollResult::NotInPlace, RollResult::GivenUp]);
}

/// Steps until nothing is left to do. After `crash` steps, another process leads.
fn settle(world: &mut World, steps: &mut usize, crash: usize) {
    for _ in 0..1_000 {
        if *steps == crash {
            world.restart();
        }
        *steps += 1;
        if !world.step() {
            return;
        }
        let status = &world.rollout.status;
        let ended =
            status.restarted_at.is_some() || status.update.as_ref().is_some_and(|u| u.ended.is_some());
        assert_eq!(status.history.len(), usize::from(ended), "they come in one write");
    }
    panic!("it never comes to rest");
}

#[test]
fn a_crash_of_the_controller_loses_gaps_and_nothing_more() {
    let restart = || World::new("Deployment", &json!({}), &THREE, 1);
    let expected = [
        (restart as fn() -> World, is("one", RollResult::Restarted, 3, 3)),
        (World::parked, is("old to new", RollResult::Updated, 3, 3)),
    ];
    for (new, expected) in expected {
        let (mut crash, mut steps, mut lost) = (0, usize::MAX, 0);
        while crash < steps {
            let mut world = new();
            steps = 0;
            for _ in 0..3 {
                settle(&mut world, &mut steps, crash);
                let pod = world.open()[0].to_owned();
                let key = ObjectKey::new("shop", &pod);
                for ready in [false, true] {
                    let pod = world.pods.get_mut(&key).unwrap();
                    pod.ready = ready;
                    if ready && pod.revision != 0 {
                        pod.containers[0].image = "shop/web:v2".into();
                    }
                    world.changed(&key);
                    settle(&mut world, &mut steps, crash);
                    world.now.0 += 100;
                }
                let asked = world.asked.values_mut().find(|asked| asked.pod == pod && asked.ended.is_none());
                asked.unwrap().ended = Some(true);
                world.changed(&key);
            }
            settle(&mut world, &mut steps, crash);
            assert_eq!(world.rolls(), std::slice::from_ref(&expected), "after a crash at step {crash}");
            lost += usize::from(world.gap().is_none_or(|(measured, ..)| measured < 3));
            crash += 1;
        }
        assert!(lost > 0 && lost < steps, "{lost} of {steps}");
    }
}

/// The answer to the write is lost, and another process reads the stored status.
#[test]
fn an_end_that_is_stored_is_not_told_again() {
    let mut world = World::new("Deployment", &json!({}), &["web-0"], 1);
    world.run();
    let status = world.rollout.status.clone();
    assert_eq!(world.rolls(), [is("one", RollResult::Restarted, 1, 1)]);
    world.restart();
    assert_eq!(world.plan().status, None);
    world.settle();
    assert_eq!(world.rollout.status, status);
}
