//! Repairs of a Pod cgroup that the kubelet left unchanged (kubernetes#138760).

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const GAP: &str = "kubernetes#138760";

fn backs_off() -> ContainerState {
    ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() }
}

/// The kubelet is done with the request, and `app` does not run.
fn stuck() -> Scene {
    let mut scene = Scene::new(grow(&json!({"activeDeadlineSeconds": 600})));
    scene.config.resize_cri = true;
    scene.settle();
    scene.done();
    scene.low = 1;
    scene.status("app").state = backs_off();
    scene.settle();
    scene
}

/// `app` runs and the kubelet reports the resize as done, but the Pod's cgroup is unchanged. A CPU nudge would restart
/// `app`.
fn low() -> Scene {
    let mut scene = Scene::new(grow(&json!({"activeDeadlineSeconds": 600})));
    scene.config.resize_cri = true;
    scene.settle();
    scene.done();
    scene.container("app").restart_for.cpu = true;
    scene.low = 1;
    scene.settle();
    scene
}

fn ids(scene: &Scene) -> Vec<&str> {
    scene.orders.iter().map(|order| order.id.as_str()).collect()
}

#[test]
fn a_container_that_stays_down_gets_a_pod_that_is_large_enough() {
    let mut scene = stuck();
    assert_eq!(scene.plan().wake_at, Some(Mono(5_000)));
    assert_eq!((ids(&scene), scene.writes), (vec![], 2), "it may be an ordinary restart");
    scene.later(5);
    scene.settle();
    assert_eq!(ids(&scene), ["prs-1/app/1"]);
    let order = scene.orders[0].clone();
    assert_eq!(order.container.id, id(1)["containerd://".len()..], "the instance that has ended");
    let give = order.action.resize.unwrap();
    assert_eq!((give.container, give.hold), (None, false), "nothing is held");
    let pod = give.pod.unwrap();
    assert_eq!((pod.cpu_request, pod.cpu_limit, pod.memory_limit), (200, Some(500), Some(256 * MI)));
    let text = scene.message();
    assert!(
        text.starts_with("waits for container app to be ready") && text.contains("has repaired"),
        "{text}"
    );
    for instance in 2..5 {
        scene.later(60);
        scene.status("app").container_id = id(instance);
        scene.settle();
    }
    assert_eq!(ids(&scene), ["prs-1/app/1"], "the same values are given once");
    scene.status("app").state = ContainerState::Running;
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    let cgroup = scene.resize.status.containers[0].cgroup.unwrap();
    assert_eq!(cgroup.pod.cpu_quota, Some(50_000), "what the daemon was asked, not what it gave");
    assert!(scene.orders.is_empty());
}

#[test]
fn an_ordinary_restart_is_none_of_it() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.config.resize_cri = true;
    scene.container("app").restart_for.cpu = true;
    scene.settle();
    scene.done();
    scene.status("app").state = ContainerState::Terminated { exit_code: 143 };
    scene.settle();
    scene.later(4);
    scene.settle();
    let status = scene.status("app");
    (status.state, status.container_id, status.restart_count) = (ContainerState::Running, id(2), 1);
    scene.status("app").ready = false;
    scene.later(60);
    scene.settle();
    assert!(scene.orders.is_empty(), "it runs, and is not ready yet");
    scene.status("app").ready = true;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
    assert_eq!(scene.writes, 5);
}

#[test]
fn an_open_order_stays_while_the_container_comes_and_goes_and_goes_with_the_request() {
    let mut scene = stuck();
    scene.daemon = Daemon::Silent;
    scene.later(5);
    scene.settle();
    let text = scene.message();
    assert!(text.contains("the node's daemon repairs the Pod's cgroup") && text.contains(GAP), "{text}");
    scene.status("app").state = ContainerState::Running;
    scene.settle();
    assert_eq!(ids(&scene), ["prs-1/app/2", "prs-1/app/1"], "the question has a number of its own");
    scene.status("app").state = backs_off();
    scene.settle();
    assert_eq!(scene.orders.len(), 2, "not asked anew");
    scene.resize.spec.cancel = true;
    let plan = scene.plan();
    assert!(plan.status.unwrap().status.restoring.is_some());
    assert!(!plan.orders.iter().any(is_repair), "what it gives is right no more");
}

#[test]
fn what_the_daemon_does_not_do_is_told_and_asked_again_later() {
    let mut scene = stuck();
    scene.daemon = Daemon::Answers(AnswerState::Refused, AnswerReason::NotEnabled);
    scene.later(5);
    scene.settle();
    let text = scene.message();
    assert!(text.contains("the node's daemon does not repair it") && text.contains(GAP), "{text}");
    scene.later(29);
    scene.settle();
    assert_eq!(ids(&scene), ["prs-1/app/1"]);
    scene.later(1);
    scene.settle();
    assert_eq!(ids(&scene), ["prs-1/app/2"], "an order never changes");
}

#[test]
fn where_it_is_not_pitstops_to_do_nothing_is_ordered() {
    let cases: [(Event, &str); 5] = [
        (|scene| scene.config.resize_cri = false, "resize-cri, the node's daemon repairs it"),
        (|scene| scene.guarded = false, ""),
        (|scene| scene.recorded = true, ""),
        (|scene| scene.pod.as_mut().unwrap().pod_level = Some(Box::default()), ""),
        (|scene| scene.status("app").container_id.clear(), ""),
    ];
    for (event, suffix) in cases {
        let mut scene = stuck();
        event(&mut scene);
        scene.later(60);
        scene.settle();
        assert!(scene.orders.is_empty(), "{suffix}");
        let text = scene.message();
        assert!(text.ends_with(if suffix.is_empty() { "its new resources" } else { suffix }), "{text}");
    }
    let mut scene = stuck();
    scene.config.resize_cri = false;
    assert!(!scene.message().contains(GAP), "it may start yet");
}

#[test]
fn a_pod_that_stays_too_low_once_its_containers_run_is_repaired() {
    let mut scene = low();
    assert_eq!(scene.planned(), (Phase::Verifying, "KernelDiffers".into()));
    for _ in 0..2 {
        scene.later(2);
        scene.settle();
    }
    assert_eq!(ids(&scene), ["prs-1/app/3"], "the kubelet may be slow");
    scene.later(2);
    let plan = scene.plan();
    let ids: Vec<&str> = plan.orders.iter().map(|order| order.id.as_str()).collect();
    assert_eq!(ids, ["prs-1/app/3", "prs-1/app/4"], "nothing is asked until it is done");
    assert!(is_repair(&plan.orders[1]));
    scene.settle();
    scene.later(2);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
}

#[test]
fn what_does_not_help_is_done_again_in_time() {
    let mut scene = low();
    scene.low = 3;
    let mut placed = BTreeMap::new();
    for _ in 0..40 {
        scene.later(2);
        scene.settle();
        for order in scene.orders.iter().filter(|order| is_repair(order)) {
            placed.entry(order.id.clone()).or_insert(scene.now.0 / 1000);
        }
    }
    let seconds: BTreeSet<u64> = placed.values().copied().collect();
    assert_eq!(seconds, BTreeSet::from([6, 36, 66]), "{placed:?}");
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
}

#[test]
fn a_container_that_differs_is_no_repair() {
    let mut scene = low();
    scene.daemon = Daemon::Differs;
    for _ in 0..5 {
        scene.later(2);
        scene.settle();
    }
    assert_eq!(scene.planned().1, "KernelDiffers");
    assert!(!scene.orders.iter().any(is_repair));
}

#[test]
fn what_the_daemon_did_not_find_is_ordered_again() {
    let mut scene = stuck();
    scene.later(5);
    scene.settle();
    scene.answers.iter_mut().for_each(|answer| answer.observed = None);
    let text = scene.message();
    assert!(text.contains("the node's daemon does not find it"), "{text}");
    scene.later(30);
    scene.settle();
    assert_eq!(ids(&scene), ["prs-1/app/2"]);
}

/// With the original resources, the container needs the larger Pod again, which the kubelet made smaller while it ran.
#[test]
fn what_is_put_back_is_repaired_too() {
    let mut scene = stuck();
    scene.later(5);
    scene.settle();
    assert_eq!(ids(&scene), ["prs-1/app/1"]);
    scene.resize.spec.cancel = true;
    scene.settle();
    assert!(scene.resize.status.restoring.is_some());
    assert_eq!(scene.cpu_limit(), Some(200));
    assert!(scene.orders.is_empty(), "no order for the cancelled resources stays");
    scene.done();
    scene.status("app").state = backs_off();
    scene.settle();
    assert_eq!(scene.plan().wake_at, Some(Mono(10_000)));
    scene.later(5);
    scene.settle();
    assert_eq!(ids(&scene), ["prs-1/app/1"]);
    let give = scene.orders[0].action.resize.clone().unwrap();
    assert_eq!((give.pod.unwrap().cpu_limit, give.only_raise), (Some(400), true));
    scene.status("app").state = ContainerState::Running;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Cancelled));
    assert!(scene.orders.is_empty());
}

/// A kubelet that does not resize leaves nothing to repair.
#[test]
fn where_no_kubelet_resizes_nothing_is_repaired() {
    let mut scene = stuck();
    for name in ["app", "proxy"] {
        scene.status(name).allocated = None;
    }
    scene.later(60);
    scene.settle();
    assert!(scene.orders.is_empty());
}
