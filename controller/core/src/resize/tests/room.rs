//! A node without room, and evictions.

use super::*;
use crate::deed::{Deed, Done};

const SMALL: &str = "Node didn't have enough capacity: cpu, requested: 9000, capacity: 2000";
const FORBIDDEN: &str = "pods \"web\" is forbidden: node didn't have enough allocatable resources: cpu";
const BUDGET: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// A request whose change is pending in the kubelet.
fn pending(more: &Value, reason: &str, text: &str) -> Scene {
    let mut scene = Scene::new(grow(more));
    scene.settle();
    scene.pending(reason, text);
    scene.settle();
    scene
}

fn evict() -> Deed {
    Deed::Evict { key: ObjectKey::new("shop", "web"), uid: "pod-1".into() }
}

/// A request that evicts its Pod.
fn evicting() -> Scene {
    let more = json!({"onDeferred": {"waitSeconds": 30, "then": "Evict"}, "activeDeadlineSeconds": 600});
    let mut scene = pending(&more, "Deferred", "no room");
    scene.later(29);
    assert_eq!(scene.plan().deed, None);
    scene.later(1);
    let plan = scene.plan();
    assert!(plan.deed.is_none() && plan.status.is_some(), "what will be is stored first");
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::InProgress), "Evicting"));
    assert_eq!(scene.plan().deed, Some(evict()));
    scene
}

/// Reports the result of the eviction.
fn report(scene: &mut Scene, done: Done) {
    scene.memory.deed_done(scene.now, evict(), done);
}

#[test]
fn a_pod_without_room_is_evicted_where_that_is_asked_for() {
    let mut scene = evicting();
    report(&mut scene, Done::Effected);
    assert_eq!(scene.plan().deed, None, "the watch has yet to show it");
    scene.later(5);
    assert_eq!(scene.plan().deed, Some(evict()), "it has not");
    scene.pod.as_mut().unwrap().deleting = true;
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Evicted"));
    assert_eq!(scene.resize.status.message, "the Pod is evicted: no room");
    assert_eq!(scene.resize.status.restoring, None);
}

#[test]
fn another_controller_goes_on_with_an_eviction() {
    let mut scene = evicting();
    scene.memory = Memory::new(scene.now);
    assert_eq!(scene.plan().deed, Some(evict()));
    scene.memory = Memory::new(scene.now);
    scene.pod = None;
    scene.settle();
    assert_eq!(scene.stored().1, "Evicting", "its watch may be a little behind");
    scene.later(2);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Evicted"));
}

#[test]
fn a_disruption_budget_is_waited_for_until_the_deadline() {
    let mut scene = evicting();
    report(&mut scene, Done::Retry(BUDGET.into()));
    assert_eq!(scene.planned(), (Phase::InProgress, "DisruptionBudget".into()));
    assert_eq!((scene.plan().deed, scene.plan().wake_at), (None, Some(Mono(35_000))));
    scene.later(5);
    assert_eq!(scene.plan().deed, Some(evict()));
    scene.later(600);
    scene.settle();
    assert_eq!(scene.stored().1, "Restoring");
    assert_eq!(scene.cpu_limit(), Some(200));
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "DeadlineExceeded"));
    assert!(scene.resize.status.message.contains("disruption budget"));
}

#[test]
fn an_eviction_that_is_not_allowed_puts_the_original_back() {
    let mut scene = evicting();
    for _ in 0..3 {
        report(&mut scene, Done::Refused("pods \"web\" is forbidden".into()));
    }
    assert_eq!(scene.plan().deed, Some(evict()), "an API server that has just started knows no roles");
    scene.later(10);
    scene.settle();
    assert_eq!(scene.cpu_limit(), Some(200));
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "EvictionForbidden"));
    assert!(scene.resize.status.message.contains("deploy/components/resize-evict"));
}

#[test]
fn an_eviction_can_be_called_off() {
    for newer in [true, false] {
        let mut scene = evicting();
        scene.newer = newer.then(|| ObjectKey::new("shop", "later"));
        scene.resize.spec.cancel = !newer;
        scene.deed = Some(evict());
        assert_eq!((scene.plan().status, scene.plan().deed), (None, Some(evict())), "not while it is sent");
        scene.deed = None;
        scene.settle();
        assert_eq!(scene.cpu_limit(), Some(200));
        scene.done();
        scene.settle();
        assert_eq!(scene.stored().1, if newer { "Superseded" } else { "Cancelled" });
    }
}

#[test]
fn a_pod_that_gets_its_room_is_not_evicted() {
    let mut scene = evicting();
    report(&mut scene, Done::Retry(BUDGET.into()));
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    assert_eq!(scene.cpu_limit(), Some(300));
}

#[test]
fn what_waits_may_be_left_to_the_kubelet() {
    let more = json!({"onDeferred": {"waitSeconds": 30, "then": "Keep"}});
    let mut scene = pending(&more, "Deferred", "no room");
    scene.later(30);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "NodeBusy"));
    assert!(scene.resize.status.message.contains("once there is room"));
    assert_eq!(scene.cpu_limit(), Some(300));
}

#[test]
fn a_node_that_is_too_small_may_be_waited_for() {
    let more = json!({"onInfeasible": {"waitSeconds": 30}});
    let mut scene = pending(&more, "Infeasible", SMALL);
    assert_eq!(scene.planned(), (Phase::Deferred, "NodeCapacity".into()));
    assert_eq!(scene.plan().wake_at, Some(Mono(30_000)));
    scene.later(30);
    scene.settle();
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Infeasible), "NodeCapacity"));
    assert_eq!(scene.cpu_limit(), Some(200));
    let mut scene = pending(&more, "Infeasible", SMALL);
    scene.later(20);
    scene.done();
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
    // The request waits only for a larger node.
    let mut scene = pending(&more, "Infeasible", "In-place resize of containers with swap is not supported.");
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Infeasible), "Swap"));
}

#[test]
fn an_api_server_that_calls_the_node_too_small_is_asked_again() {
    let mut scene = Scene::new(grow(&json!({"onInfeasible": {"waitSeconds": 30}})));
    scene.act();
    scene.refuse(FORBIDDEN);
    assert_eq!(scene.planned(), (Phase::Proposed, "NodeCapacity".into()));
    assert_eq!((scene.plan().sizing, scene.plan().wake_at), (None, Some(Mono(10_000))));
    scene.later(10);
    assert!(scene.plan().sizing.is_some());
    scene.refuse(FORBIDDEN);
    assert_eq!((scene.plan().sizing, scene.plan().wake_at), (None, Some(Mono(20_000))));
    // After the wait is stored, the original resources do not count as another client's restore.
    scene.resize.status = scene.plan().status.unwrap().status;
    scene.later(20);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Infeasible), "NodeCapacity"));
    assert_eq!(scene.cpu_limit(), Some(200));
    for text in ["exceeded quota: q", "Pod QOS Class may not change"] {
        let mut scene = Scene::new(grow(&json!({"onInfeasible": {"waitSeconds": 30}})));
        scene.act();
        scene.refuse(text);
        scene.settle();
        assert_eq!(scene.stored().0, Some(Phase::Failed), "{text}");
    }
}

#[test]
fn a_node_that_is_too_small_may_be_left() {
    let more = json!({"onInfeasible": {"waitSeconds": 30, "then": "Evict"}});
    for asked in [true, false] {
        let mut scene = Scene::new(grow(&more));
        scene.act();
        if asked {
            scene.refuse(FORBIDDEN);
            scene.later(5);
            let _ = scene.plan();
            scene.later(25);
        } else {
            scene.settle();
            scene.pending("Infeasible", SMALL);
        }
        let _ = scene.plan();
        scene.later(30);
        scene.settle();
        assert_eq!(scene.plan().deed, Some(evict()));
        assert_eq!(scene.cpu_limit(), Some(if asked { 200 } else { 300 }), "left as it is");
        scene.pod.as_mut().unwrap().finished = true;
        scene.settle();
        assert_eq!(scene.stored(), (Some(Phase::Infeasible), "Evicted"));
    }
    // If the eviction is given up, the Pod may need no restore.
    let mut scene = Scene::new(grow(&more));
    scene.act();
    scene.refuse(FORBIDDEN);
    let _ = scene.plan();
    scene.later(30);
    scene.settle();
    scene.resize.spec.cancel = true;
    scene.later(60);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Cancelled), "Cancelled"));
}

#[test]
fn a_pod_that_nobody_would_make_again_elsewhere_is_not_evicted() {
    for (controller, why) in [(None, "belongs to no workload"), (Some("DaemonSet"), "on the same node")] {
        for (field, spec) in [
            ("onDeferred", json!({"onDeferred": {"waitSeconds": 1, "then": "Evict"}})),
            ("onInfeasible", json!({"onInfeasible": {"then": "Evict"}})),
        ] {
            let mut scene = Scene::new(grow(&spec));
            scene.pod.as_mut().unwrap().controller =
                controller.map(crate::fixtures::controller).map(Box::new);
            scene.later(10);
            scene.settle();
            assert_eq!(scene.stored(), (Some(Phase::Failed), "Invalid"));
            let message = &scene.resize.status.message;
            assert!(message.contains(why) && message.contains(field), "{message}");
        }
    }
    let mut scene = pending(&json!({"onDeferred": {"waitSeconds": 0, "then": "Evict"}}), "Proposed", "");
    scene.pod.as_mut().unwrap().controller = None;
    scene.resize.status.restoring = None;
    scene.pending("Deferred", "no room");
    scene.settle();
    scene.done();
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Failed));
    assert_eq!(scene.plan().deed, None);
}
