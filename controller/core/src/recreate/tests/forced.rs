//! `forceRecreate`: the running instance is stopped, even if the target has ended by itself meanwhile.

use pitstop_api::recreate::{Mechanism, RecreateStrategy};

use super::*;
use crate::pod::RestartPolicy;

fn forced(containers: &[&str]) -> Scene {
    let mut scene = Scene::admitted(containers);
    scene.request.spec.strategy = Some(RecreateStrategy { force_recreate: true, ..Default::default() });
    scene.act();
    scene
}

fn target(scene: &Scene) -> (&str, i32) {
    let target = &scene.request.status.target.as_ref().unwrap().containers[0];
    (&target.container_id, target.restart_count)
}

#[test]
fn a_container_that_ended_by_itself_before_its_order_was_taken_up_is_restarted_once_more() {
    let mut scene = forced(&["app"]);
    scene.act();
    assert_eq!(scene.orders[0].id, "crr-1/app/2");
    scene.restarts("app", true);
    let plan = scene.act();
    assert!(plan.orders.is_empty() && plan.status.is_none(), "first the order is withdrawn: {plan:?}");
    scene.act();
    assert_eq!(target(&scene), (id("app", 2).as_str(), 2));
    scene.act();
    let order = &scene.orders[0];
    assert_eq!((order.id.as_str(), order.container.id.as_str()), ("crr-1/app/3", &id("app", 2)[13..]));
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, true)]);
}

/// The daemon found the container ended, and stopped nothing.
#[test]
fn an_order_that_came_too_late_counts_for_nothing() {
    let mut scene = forced(&["app"]);
    scene.act();
    scene.answer("app", AnswerState::Refused, Some(AnswerReason::NotRunning));
    scene.restarts("app", true);
    scene.settle();
    assert!(!scene.request.completed());
    assert_eq!(target(&scene).1, 2);
    let ids: Vec<&str> = scene.orders.iter().map(|o| o.id.as_str()).collect();
    assert_eq!(ids, ["crr-1/app/3"], "the old one goes with the new one's coming");
}

#[test]
fn once_taken_up_the_next_instance_is_never_stopped() {
    use AnswerState::{Acknowledged, Done};
    for (answer, why) in [(Acknowledged, None), (Done, None), (Done, Some(AnswerReason::EndedByItself))] {
        let mut scene = forced(&["app"]);
        scene.act();
        scene.answer("app", answer, why);
        scene.settle();
        scene.restarts("app", true);
        scene.settle();
        assert_ended(&scene, "Complete", "");
        assert_eq!(target(&scene).1, 1, "{answer:?} {why:?}");
    }
}

/// Another client deletes the book with its answers.
#[test]
fn what_was_taken_up_is_remembered_without_its_book() {
    let mut scene = forced(&["app"]);
    scene.act();
    scene.acknowledge("app");
    scene.plan();
    (scene.orders, scene.answers) = (Vec::new(), Vec::new());
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(target(&scene).1, 1);
}

/// Another leader that has not seen the new target yet keeps the order.
#[test]
fn an_order_for_a_newer_target_than_is_known_stays_once_it_is_taken_up() {
    let mut scene = forced(&["app"]);
    let old = scene.request.clone();
    scene.restarts("app", true);
    scene.settle();
    scene.acknowledge("app");
    scene.memory = Memory::new(scene.now);
    scene.request = old;
    let plan = scene.plan();
    assert_eq!(plan.orders, scene.orders);
    let next = plan.status.and_then(|write| write.status.target).map(|t| t.containers[0].restart_count);
    assert!(next.is_none_or(|count| count == 1), "and no newer target is taken");
}

#[test]
fn unforced_what_ended_by_itself_is_done() {
    let mut scene = Scene::ordered(&["app"]);
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(target(&scene).1, 1);
}

#[test]
fn the_others_go_on_meanwhile() {
    let mut scene = forced(&["app", "sidecar"]);
    scene.act();
    let sidecar = scene.orders[1].clone();
    scene.restarts("app", true);
    let plan = scene.act();
    assert_eq!(plan.orders, std::slice::from_ref(&sidecar));
    scene.settle();
    assert_eq!(scene.orders.len(), 2);
    assert!(scene.orders.contains(&sidecar));
}

#[test]
fn phases_stay_where_they_are() {
    let mut scene = forced(&["app"]);
    scene.act();
    scene.ends("app", 1);
    scene.request.status = scene.plan().status.unwrap().status;
    assert_eq!(scene.states(), [state("app", Phase::Recreating, false)]);
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(scene.states(), [state("app", Phase::Recreating, false)]);
    assert_eq!(scene.orders.len(), 1);
}

#[test]
fn an_older_status_of_the_pod_is_no_newer_instance() {
    let mut scene = forced(&["app"]);
    scene.act();
    scene.status("app", |s| (s.container_id, s.restart_count) = (id("app", 0), 0));
    scene.settle();
    assert_eq!((target(&scene).1, scene.orders.len()), (1, 1));
}

#[test]
fn through_the_kubelet_the_newer_instance_is_pinned_and_then_no_other() {
    let mut scene = Scene::admitted(&["app"]);
    let app = &mut scene.pod.as_mut().unwrap().containers[0];
    app.image = "shop/app:1".into();
    let digest = format!("sha256:{:064x}", 7);
    app.status.as_mut().unwrap().image_id = format!("shop/app@{digest}");
    let mechanism = Some(Mechanism::Kubelet);
    scene.request.spec.strategy =
        Some(RecreateStrategy { force_recreate: true, mechanism, ..Default::default() });
    scene.act();
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(target(&scene).1, 2);
    assert_eq!(scene.pod.as_ref().unwrap().containers[0].image, format!("shop/app:1@{digest}"));
    assert!(!scene.request.completed());
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(target(&scene).1, 2);
}

/// Another client has set another image since. Whether the kubelet restarted the container for the pin is unknown.
#[test]
fn where_another_image_came_after_the_pin_no_instance_is_pinned_any_more() {
    let mut scene = Scene::admitted(&["app"]);
    let app = &mut scene.pod.as_mut().unwrap().containers[0];
    app.image = "shop/app:1".into();
    app.status.as_mut().unwrap().image_id = format!("shop/app@sha256:{:064x}", 7);
    let mechanism = Some(Mechanism::Kubelet);
    scene.request.spec.strategy =
        Some(RecreateStrategy { force_recreate: true, mechanism, ..Default::default() });
    scene.act();
    scene.pod.as_mut().unwrap().containers[0].image = "shop/app:2".into();
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(target(&scene).1, 1);
}

/// A Pod whose containers may not come back, and a request that the kubelet cannot carry out and that does not ask for
/// the runtime. It is accepted while the kubelet keeps the container waiting.
fn waits_to_start(force_recreate: bool) -> Scene {
    let mut scene = Scene::admitted(&["app"]);
    scene.pod.as_mut().unwrap().restart_policy = RestartPolicy::OnFailure;
    let grace = Some(3);
    let strategy =
        RecreateStrategy { force_recreate, termination_grace_period_seconds: grace, ..Default::default() };
    scene.request.spec.strategy = Some(strategy);
    back_off(&mut scene);
    scene.settle();
    assert_eq!((target(&scene).1, scene.orders.len()), (1, 0));
    scene
}

fn back_off(scene: &mut Scene) {
    scene.status("app", |s| {
        s.ready = false;
        s.state = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() };
    });
}

/// The kubelet still reports the back-off after it has made the next instance.
#[test]
fn an_instance_that_is_about_to_start_is_not_named_to_be_stopped() {
    let mut scene = waits_to_start(true);
    scene.restarts("app", false);
    back_off(&mut scene);
    scene.settle();
    assert_eq!(target(&scene).1, 1);
    scene.status("app", |s| (s.state, s.ready) = (ContainerState::Running, true));
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!((target(&scene).1, scene.orders.len()), (1, 0));
}

#[test]
fn what_was_named_while_it_was_about_to_start_is_not_stopped() {
    let mut scene = waits_to_start(false);
    scene.status("app", |s| (s.state, s.ready) = (ContainerState::Running, true));
    scene.settle();
    assert!(scene.orders.is_empty());
    assert_eq!(scene.states()[0].phase, Phase::Failed);
    assert!(scene.states()[0].message.contains("would not come back"), "{:?}", scene.states());
}

/// Until the daemon takes an order up, a new target follows each instance that ends by itself.
#[test]
fn the_deadline_ends_it_all_the_same() {
    let mut scene = forced(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    for _ in 0..3 {
        scene.restarts("app", true);
        scene.settle();
    }
    assert_eq!(target(&scene).1, 4);
    scene.at(3 * S).settle();
    assert_eq!(outcome(&scene).1, "DeadlineExceeded");
    assert!(scene.orders.is_empty());
}
