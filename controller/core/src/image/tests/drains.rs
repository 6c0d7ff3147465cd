//! A Pod is taken out of service before it is changed.

use super::*;
use crate::readiness::{Gate, GateCondition};

/// Pulled, and about to be drained for 5 s by the Pod's readiness gate.
fn drains() -> World {
    let mut world = World::new(&json!({"unreadyGracePeriodSeconds": 5}));
    world.pod.as_mut().unwrap().gates = vec![Gate { type_: "pitstop.dev/ready".into(), condition: None }];
    world.settle();
    assert_eq!(world.update.hold(), None, "it is in service while the node pulls");
    world.pulled();
    assert_eq!((world.phase(), world.reason()), (Phase::Draining, "WaitingForNotReady"));
    world
}

/// The Pod has the request's hold, and its kubelet reports whether it is ready.
fn held(world: &mut World, ready: bool) {
    let message = serde_json::to_string(&[world.update.hold().unwrap()]).unwrap();
    let pod = world.pod.as_mut().unwrap();
    pod.gates[0].condition = Some(GateCondition { open: false, message });
    pod.ready = ready;
}

#[test]
fn a_pod_is_taken_out_of_service_first_where_that_is_asked_for() {
    let mut world = drains();
    held(&mut world, false);
    world.settle();
    assert_eq!(world.phase(), Phase::Draining);
    world.pass(5);
    assert_eq!((world.phase(), world.condition("Drained").status), (Phase::Updating, ConditionStatus::True));
    assert!(world.update.hold().is_some(), "until the new container is ready");
    world.starts(true);
    world.runs("config-2");
    assert_eq!((world.phase(), world.update.hold()), (Phase::Observing, None));
}

/// The previous update opened the gate for a moment, and the kubelet reports that when the grace period is over.
#[test]
fn a_pod_that_is_ready_again_before_it_is_changed_is_drained_anew() {
    let mut world = drains();
    held(&mut world, false);
    world.settle();
    world.now = Mono(world.now.0 + 5_000);
    assert!(world.step());
    assert!(world.update.changes(), "what the Pod gets is written down");
    held(&mut world, true);
    world.settle();
    assert_eq!((world.image(), world.reason()), ("registry.example.com/shop/web:v1", "WaitingForNotReady"));
    held(&mut world, false);
    world.settle();
    world.pass(4);
    assert_eq!((world.image(), world.reason()), ("registry.example.com/shop/web:v1", "Draining"));
    world.pass(1);
    assert!(world.image().contains(":v2@"), "{}", world.image());
}
