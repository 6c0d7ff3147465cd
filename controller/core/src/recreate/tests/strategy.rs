//! The fields of `spec.strategy`.

use pitstop_api::recreate::{FailurePolicy, RecreateStrategy};

use super::*;

fn with(strategy: RecreateStrategy, containers: &[&str]) -> Scene {
    let mut scene = Scene::admitted(containers);
    scene.request.spec.strategy = Some(strategy);
    scene
}

fn names(scene: &Scene) -> Vec<&str> {
    scene.orders.iter().map(|o| o.container.name.as_str()).collect()
}

#[test]
fn ordered_means_that_the_next_order_waits_for_the_success_of_the_one_before() {
    let strategy = RecreateStrategy { ordered_recreate: true, ..Default::default() };
    let mut scene = with(strategy, &["app", "sidecar"]);
    scene.settle();
    assert_eq!(names(&scene), ["app"]);
    scene.acknowledge("app");
    scene.ends("app", 143);
    scene.settle();
    assert_eq!(names(&scene), ["app"], "stopped is not enough");
    scene.restarts("app", false);
    scene.settle();
    assert_eq!(names(&scene), ["app"], "running is not enough");
    scene.status("app", |s| s.ready = true);
    scene.settle();
    assert_eq!(names(&scene), ["app", "sidecar"]);
    scene.acknowledge("sidecar");
    scene.restarts("sidecar", true);
    scene.settle();
    assert_eq!(outcome(&scene).1, "Complete");
    assert_eq!(
        scene.states(),
        [state("app", Phase::Succeeded, true), state("sidecar", Phase::Succeeded, true)]
    );
}

#[test]
fn a_later_container_that_was_restarted_by_others_needs_no_turn() {
    let strategy = RecreateStrategy { ordered_recreate: true, ..Default::default() };
    let mut scene = with(strategy, &["app", "sidecar"]);
    scene.settle();
    scene.restarts("sidecar", true);
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(
        scene.states(),
        [state("app", Phase::Succeeded, true), state("sidecar", Phase::Succeeded, false)]
    );
}

#[test]
fn ignore_goes_on_after_a_failure_and_the_request_still_says_what_failed() {
    let strategy = RecreateStrategy {
        failure_policy: Some(FailurePolicy::Ignore),
        ordered_recreate: true,
        ..Default::default()
    };
    let mut scene = with(strategy, &["app", "sidecar"]);
    scene.settle();
    scene.answer("app", AnswerState::Failed, Some(AnswerReason::StopFailed));
    scene.settle();
    assert_eq!(names(&scene), ["app", "sidecar"]);
    assert!(!scene.request.completed());
    scene.acknowledge("sidecar");
    scene.restarts("sidecar", true);
    scene.settle();
    assert_eq!(outcome(&scene), (Some(Phase::Completed), "ContainerFailed", ""));
    assert_eq!(scene.states()[1], state("sidecar", Phase::Succeeded, true));
    let failed = scene.request.status.conditions.iter().find(|c| c.type_ == conditions::FAILED).unwrap();
    assert!(failed.message.contains("told so; not restarted: app"), "{}", failed.message);
}

#[test]
fn min_started_is_taken_once_from_the_start_that_was_seen() {
    let strategy = RecreateStrategy { min_started_seconds: 5, ..Default::default() };
    let mut scene = with(strategy, &["app"]);
    scene.settle();
    scene.acknowledge("app");
    scene.at(10 * S).ends("app", 143);
    scene.settle();
    scene.at(11 * S).restarts("app", false);
    scene.settle();
    scene.at(13 * S).status("app", |s| s.ready = true);
    let plan = scene.settle();
    assert_eq!(waits_for(&plan), "WaitingForMinStarted");
    assert_eq!(plan.wake_at, Some(Mono(16 * S)), "from the start at 11 s, not from Ready");
    scene.at(16 * S - 1).settle();
    assert!(!scene.request.completed());
    scene.at(16 * S).settle();
    assert_eq!(outcome(&scene).1, "Complete");
}

#[test]
fn min_started_begins_again_with_every_new_instance() {
    let strategy = RecreateStrategy { min_started_seconds: 5, ..Default::default() };
    let mut scene = with(strategy, &["app"]);
    scene.settle();
    scene.acknowledge("app");
    scene.at(10 * S).restarts("app", true);
    scene.settle();
    scene.at(14 * S).restarts("app", true);
    scene.settle();
    scene.at(18 * S).settle();
    assert!(!scene.request.completed());
    scene.at(19 * S).settle();
    assert!(scene.request.completed());
}

#[test]
fn without_force_a_restart_since_admission_counts_and_with_force_it_does_not() {
    let forced = |force_recreate| {
        let mut scene = with(RecreateStrategy { force_recreate, ..Default::default() }, &["app"]);
        scene.restarts("app", true);
        scene.settle();
        scene
    };
    let plain = forced(false);
    assert_eq!(plain.states(), [state("app", Phase::Succeeded, false)]);
    let mut scene = forced(true);
    assert_eq!(names(&scene), ["app"]);
    assert_eq!(scene.orders[0].container.id, id("app", 2).rsplit('/').next().unwrap());
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, true)]);
    scene.settle();
    assert!(names(&scene).is_empty(), "exactly one restart");
}

#[test]
fn force_does_not_fall_for_an_old_view_of_the_pod() {
    let mut scene = with(RecreateStrategy { force_recreate: true, ..Default::default() }, &["app"]);
    scene.status("app", |s| {
        s.restart_count = 0;
        s.container_id = id("app", 0);
    });
    scene.settle();
    let target = scene.request.status.target.as_ref().unwrap();
    assert_eq!(target.containers[0].container_id, id("app", 1));
    assert!(names(&scene).is_empty());
}
