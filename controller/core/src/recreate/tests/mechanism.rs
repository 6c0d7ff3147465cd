//! Restarts through the kubelet: the image is pinned, the rest is judged as usual.

use std::time::Duration;

use pitstop_api::recreate::{Mechanism, RecreateStrategy};

use super::*;
use crate::pod::{OwnPolicy, RestartPolicy};

fn digest() -> String {
    format!("sha256:{:064x}", 7)
}

fn pinnable(pod: &mut Pod) {
    for container in &mut pod.containers {
        container.image = format!("shop/{}:1", container.name);
        container.status.as_mut().unwrap().image_id = format!("shop/{}@{}", container.name, digest());
    }
}

fn with(mechanism: Mechanism, containers: &[&str]) -> Scene {
    let mut scene = Scene::admitted(containers);
    pinnable(scene.pod.as_mut().unwrap());
    scene.request.spec.strategy =
        Some(RecreateStrategy { mechanism: Some(mechanism), ..RecreateStrategy::default() });
    scene
}

fn images(scene: &Scene) -> Vec<&str> {
    scene.pod.as_ref().unwrap().containers.iter().map(|c| c.image.as_str()).collect()
}

fn app_pinned() -> String {
    format!("shop/app:1@{}", digest())
}

#[test]
fn both_containers_are_pinned_in_one_change_and_nothing_is_ordered() {
    let mut scene = with(Mechanism::Kubelet, &["app", "sidecar"]);
    scene.act();
    let plan = scene.act();
    assert_eq!(plan.images.len(), 2);
    assert!(scene.settle().images.is_empty(), "what is pinned is not pinned again");
    assert!(scene.orders.is_empty());
    assert_eq!(
        scene.states(),
        [state("app", Phase::Pending, false), state("sidecar", Phase::Pending, false)]
    );
    scene.at(4 * S);
    assert_eq!(waits_for(&scene.plan()), "WaitingForKubelet");
    scene.restarts("app", true);
    scene.restarts("sidecar", false);
    scene.settle();
    assert!(!scene.request.completed());
    scene.status("sidecar", |s| s.ready = true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(
        scene.states(),
        [state("app", Phase::Succeeded, true), state("sidecar", Phase::Succeeded, true)]
    );
    assert!(scene.settle().images.is_empty());
}

#[test]
fn ordered_pins_one_after_the_other() {
    let mut scene = with(Mechanism::Kubelet, &["app", "sidecar"]);
    scene.request.spec.strategy.as_mut().unwrap().ordered_recreate = true;
    scene.settle();
    assert_eq!(images(&scene), [app_pinned().as_str(), "shop/sidecar:1"]);
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(images(&scene)[1], format!("shop/sidecar:1@{}", digest()));
}

#[test]
fn a_container_that_was_restarted_meanwhile_is_not_pinned() {
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.act();
    scene.restarts("app", true);
    assert!(scene.settle().images.is_empty());
    assert_eq!(images(&scene)[0], "shop/app:1");
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, false)], "nobody killed it");
}

#[test]
fn an_image_that_somebody_changed_is_left_alone() {
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.act();
    scene.pod.as_mut().unwrap().containers[0].image = "shop/app:2".into();
    assert!(scene.settle().images.is_empty());
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}

/// D14: a container of a Pod with restartPolicy Never comes back through the kubelet.
#[test]
fn d14_never_goes_through_the_kubelet() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    scene.pod.as_mut().unwrap().restart_policy = RestartPolicy::Never;
    scene.settle();
    assert_eq!(images(&scene)[0], app_pinned());
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}

/// D14: a request fails at once if its container has ended for good.
#[test]
fn d14_never_and_ended_fails_at_once() {
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.pod.as_mut().unwrap().restart_policy = RestartPolicy::Never;
    scene.act();
    scene.ends("app", 0);
    scene.settle();
    assert_eq!(outcome(&scene).1, "ContainerFailed");
    assert!(scene.states()[0].message.contains("restartPolicy is Never"), "{:?}", scene.states());
}

/// D14: the same for the new container, which ended by itself before it had run for long enough.
#[test]
fn d14_never_and_the_new_one_ended_fails_at_once() {
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.pod.as_mut().unwrap().restart_policy = RestartPolicy::Never;
    scene.request.spec.strategy.get_or_insert_default().min_started_seconds = 5;
    scene.settle();
    scene.restarts("app", true);
    scene.settle();
    assert!(!scene.request.completed(), "it has not run for 5 s");
    scene.ends("app", 1);
    scene.settle();
    assert_eq!(outcome(&scene).1, "ContainerFailed");
    assert!(scene.states()[0].message.contains("restartPolicy is Never"), "{:?}", scene.states());
}

/// D10: a container in back-off is restarted by the pin, and not reported as killed.
#[test]
fn d10_back_off_ends_with_the_pin() {
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.status("app", |s| {
        s.ready = false;
        s.state =
            ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: "back-off 5m0s".into() };
    });
    scene.settle();
    assert_eq!(images(&scene)[0], app_pinned());
    scene.at(4 * S);
    assert_eq!(waits_for(&scene.plan()), "ContainerNotStarted");
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, false)]);
}

#[test]
fn auto_falls_back_when_the_daemon_is_silent() {
    let mut scene = with(Mechanism::Auto, &["app", "sidecar"]);
    scene.settle();
    assert_eq!(scene.orders.len(), 2);
    let (began, patience) = (scene.now, scene.config.fall_back_after);
    let wake = scene.plan().wake_at.unwrap();
    assert_eq!(wake, began.after(patience));
    scene.now = wake;
    let plan = scene.act();
    assert!(plan.orders.is_empty() && plan.status.is_none(), "first the orders are withdrawn: {plan:?}");
    scene.settle();
    assert_eq!(images(&scene)[0], app_pinned());
    assert!(scene.orders.is_empty());
    scene.at(200 * S);
    scene.restarts("app", true);
    scene.restarts("sidecar", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}

#[test]
fn what_the_daemon_took_up_stays_with_it() {
    let mut scene = with(Mechanism::Auto, &["app", "sidecar"]);
    scene.settle();
    scene.acknowledge("app");
    scene.settle();
    scene.restarts("app", true);
    scene.settle();
    scene.at(60 * S).settle();
    assert_eq!(images(&scene)[0], "shop/app:1");
}

#[test]
fn what_the_daemon_did_is_followed_after_it_fell_silent_about_the_rest() {
    let mut scene = with(Mechanism::Auto, &["app", "sidecar"]);
    scene.request.spec.strategy.as_mut().unwrap().min_started_seconds = 5;
    scene.settle();
    scene.answer("app", AnswerState::Done, None);
    scene.ends("app", 0);
    scene.settle();
    scene.at(11 * S).settle();
    assert_eq!(images(&scene), ["shop/app:1".to_owned(), format!("shop/sidecar:1@{}", digest())]);
    scene.restarts("app", true);
    scene.restarts("sidecar", true);
    let plan = scene.settle();
    assert_eq!(plan.wake_at, Some(scene.now.after(Duration::from_secs(5))));
    scene.at(16 * S).settle();
    assert_ended(&scene, "Complete", "");
}

#[test]
fn runtime_never_falls_back() {
    let mut scene = with(Mechanism::Runtime, &["app"]);
    scene.settle();
    scene.at(59 * S).settle();
    assert_eq!(images(&scene)[0], "shop/app:1");
    scene.at(61 * S).settle();
    assert_eq!(outcome(&scene).1, "DaemonNotResponding");
}

#[test]
fn a_pin_that_is_refused_again_and_again_fails_with_the_words_of_the_api_server() {
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.act();
    for _ in 0..3 {
        scene.memory.pin_written(Some("policy says no".into()));
        assert_eq!(scene.plan().images.len(), 1);
    }
    scene.memory.pin_written(Some("policy says no".into()));
    let status = scene.plan().status.unwrap().status;
    assert_eq!(reason(&status, conditions::FAILED), "ContainerFailed");
    assert!(status.container_recreate_states[0].message.contains("policy says no"));
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.act();
    for refused in [Some("x".to_owned()), None, Some("x".into()), Some("x".into()), Some("x".into())] {
        scene.memory.pin_written(refused);
    }
    assert_eq!(scene.plan().images.len(), 1, "only refusals in a row count");
}

#[test]
fn at_the_deadline_nothing_is_pinned_any_more() {
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.act();
    scene.at(3 * S).settle();
    assert_eq!(outcome(&scene).1, "DeadlineExceeded");
    assert_eq!(images(&scene)[0], "shop/app:1");
}

#[test]
fn native_sidecars_are_pinned_among_the_init_containers() {
    let mut scene = with(Mechanism::Kubelet, &["sidecar"]);
    scene.pod.as_mut().unwrap().containers[1].kind = ContainerKind::Sidecar;
    scene.act();
    let plan = scene.act();
    assert!(plan.images[0].init);
}

#[test]
fn native_sidecars_go_through_the_runtime_also_where_the_pod_says_never() {
    let mut scene = with(Mechanism::Auto, &["sidecar"]);
    let pod = scene.pod.as_mut().unwrap();
    (pod.restart_policy, pod.containers[1].kind) = (RestartPolicy::Never, ContainerKind::Sidecar);
    scene.settle();
    assert_eq!(scene.orders.len(), 1);
    scene.acknowledge("sidecar");
    scene.ends("sidecar", 0);
    scene.settle();
    assert!(!scene.request.completed(), "it has a restart policy of its own");
    scene.restarts("sidecar", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}

fn waits_in_back_off(scene: &mut Scene, name: &str) {
    scene.status(name, |s| {
        s.ready = false;
        s.state =
            ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: "back-off 5m0s".into() };
    });
}

#[test]
fn auto_does_not_wait_for_a_back_off() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    waits_in_back_off(&mut scene, "app");
    scene.settle();
    assert_eq!(images(&scene)[0], app_pinned());
    assert!(scene.orders.is_empty());
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, false)], "nobody killed it");
}

/// A kubelet may report only the end during its back-off.
#[test]
fn auto_waits_a_moment_for_a_container_that_has_ended() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    scene.ends("app", 1);
    scene.settle();
    assert_eq!(images(&scene)[0], "shop/app:1", "it may be about to start");
    assert_eq!(scene.plan().wake_at, Some(Mono(1_500)));
    scene.at(1_500).settle();
    assert_eq!(images(&scene)[0], app_pinned());
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}

/// Also if the back-off begins after acceptance.
#[test]
fn auto_ends_a_back_off_that_comes_before_its_stop() {
    let mut scene = with(Mechanism::Auto, &["app", "sidecar"]);
    scene.settle();
    scene.answer("app", AnswerState::Refused, Some(AnswerReason::NotRunning));
    waits_in_back_off(&mut scene, "app");
    let sidecar = scene.orders[1].clone();
    scene.settle();
    assert_eq!(images(&scene), [app_pinned().as_str(), "shop/sidecar:1"]);
    assert!(scene.orders.contains(&sidecar), "the daemon still stops the other one");
    scene.acknowledge("sidecar");
    scene.restarts("app", true);
    scene.restarts("sidecar", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(scene.states()[0], state("app", Phase::Succeeded, false));
}

/// The kubelet may report the back-off as it starts the next instance, which the pin would end.
#[test]
fn a_back_off_that_its_own_stop_leads_to_is_waited_out() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    scene.settle();
    scene.answer("app", AnswerState::Done, None);
    waits_in_back_off(&mut scene, "app");
    scene.settle();
    assert_eq!(images(&scene)[0], "shop/app:1");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, true)]);
}

/// Another client deletes the book before the request's status records the stop.
#[test]
fn a_back_off_is_waited_out_though_the_word_of_the_stop_is_gone() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    scene.settle();
    scene.acknowledge("app");
    scene.plan();
    (scene.orders, scene.answers) = (Vec::new(), Vec::new());
    waits_in_back_off(&mut scene, "app");
    scene.settle();
    assert_eq!(images(&scene)[0], "shop/app:1");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}

#[test]
fn an_order_that_nobody_took_up_is_withdrawn_before_its_container_is_pinned() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    scene.settle();
    waits_in_back_off(&mut scene, "app");
    let plan = scene.act();
    assert!(plan.orders.is_empty() && plan.status.is_none() && plan.images.is_empty(), "{plan:?}");
    scene.settle();
    assert_eq!(images(&scene)[0], app_pinned());
}

#[test]
fn a_new_container_that_loops_is_not_pinned_again() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    waits_in_back_off(&mut scene, "app");
    scene.settle();
    scene.restarts("app", false);
    waits_in_back_off(&mut scene, "app");
    assert!(scene.settle().images.is_empty());
    assert_eq!(images(&scene)[0], app_pinned());
}

/// Without a pin, the request waits for the end of the back-off.
#[test]
fn a_back_off_is_waited_out_where_no_pin_is_let_through() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    waits_in_back_off(&mut scene, "app");
    scene.act();
    for _ in 0..4 {
        scene.memory.pin_written(Some("policy says no".into()));
    }
    scene.at(4 * S);
    let plan = scene.plan();
    assert!(plan.images.is_empty(), "{plan:?}");
    assert_eq!(waits_for(&plan), "ContainerNotStarted");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}

#[test]
fn runtime_waits_a_back_off_out() {
    let mut scene = with(Mechanism::Runtime, &["app"]);
    waits_in_back_off(&mut scene, "app");
    scene.settle();
    assert_eq!(images(&scene)[0], "shop/app:1");
    assert!(!scene.request.completed());
}

#[test]
fn auto_does_not_let_a_stop_complete_a_container() {
    let mut scene = with(Mechanism::Auto, &["app"]);
    scene.pod.as_mut().unwrap().restart_policy = RestartPolicy::OnFailure;
    scene.settle();
    assert_eq!(images(&scene)[0], app_pinned());
    assert!(scene.orders.is_empty());
}

/// A container's own policy decides whether the request fails at once or waits for the next instance.
#[test]
fn a_containers_own_restart_policy_decides() {
    let own = |policy| Some(Box::new(OwnPolicy { policy, rules: Vec::new() }));
    let mut scene = with(Mechanism::Kubelet, &["app"]);
    scene.pod.as_mut().unwrap().containers[0].own_policy = own(RestartPolicy::Never);
    scene.act();
    scene.ends("app", 143);
    scene.settle();
    assert_eq!(outcome(&scene).1, "ContainerFailed");
    let message = &scene.states()[0].message;
    assert!(
        message.contains("exit code 143") && message.contains("the container's restartPolicy is Never"),
        "{message}"
    );

    let mut scene = with(Mechanism::Runtime, &["app"]);
    let pod = scene.pod.as_mut().unwrap();
    (pod.restart_policy, pod.containers[0].own_policy) = (RestartPolicy::Never, own(RestartPolicy::Always));
    scene.settle();
    scene.acknowledge("app");
    scene.ends("app", 0);
    scene.settle();
    assert!(!scene.request.completed(), "it comes back");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}
