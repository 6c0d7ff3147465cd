//! Taking the Pod out of service before the first stop.

use pitstop_api::annotations::{self, UNREADY_ACQUIRED};
use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::recreate::{Mechanism, RecreateStrategy};
use serde_json::json;

use super::*;
use crate::readiness::{self, Gate, KRUISE_POD_READY};
use crate::recreate::admission::{create, update};
use crate::recreate::notes;
use crate::review::{Hooks, Response};

/// A request with a drain, for a Pod with this many gates.
fn with_gates(gates: usize, seconds: i64, containers: &[&str]) -> Scene {
    let mut scene = Scene::admitted(containers);
    let strategy = RecreateStrategy { unready_grace_period_seconds: Some(seconds), ..Default::default() };
    scene.request.spec.strategy = Some(strategy);
    let pod = scene.pod.as_mut().unwrap();
    pod.ready = true;
    let types = readiness::SERVED.iter().take(gates);
    pod.gates = types.map(|t| Gate { type_: (*t).to_owned(), condition: None }).collect();
    open(&mut scene);
    scene
}

fn gated(seconds: i64) -> Scene {
    with_gates(1, seconds, &["app"])
}

/// Sets the Pod's gates: held while the request is at work, open otherwise.
fn open(scene: &mut Scene) {
    let pod = scene.pod.as_mut().unwrap();
    let wanted = scene.request.hold().filter(|_| scene.request.started_for(pod));
    for change in readiness::plan(&pod.gates, &wanted.into_iter().collect()) {
        let gate = pod.gates.iter_mut().find(|g| g.type_ == change.type_).unwrap();
        gate.condition = Some(readiness::GateCondition { open: change.open, message: change.message });
    }
}

fn ready(scene: &mut Scene, ready: bool) {
    scene.pod.as_mut().unwrap().ready = ready;
}

/// Accepted, held, and seen not ready.
fn out_of_service(seconds: i64) -> Scene {
    let mut scene = gated(seconds);
    scene.settle();
    open(&mut scene);
    ready(&mut scene, false);
    scene
}

fn drained(scene: &Scene) -> (ConditionStatus, &str) {
    let drained = condition::find(&scene.request.status.conditions, conditions::DRAINED).unwrap();
    (drained.status, &drained.reason)
}

fn began(scene: &Scene) -> &Condition {
    condition::find(&scene.request.status.conditions, conditions::PRE_RECREATE_GRACE).unwrap()
}

#[test]
fn a_request_without_the_field_knows_no_drain() {
    let mut scene = with_gates(1, 0, &["app"]);
    scene.request.spec.strategy = None;
    scene.settle();
    assert_eq!(scene.orders.len(), 1);
    let status = &scene.request.status;
    for type_ in [conditions::DRAINED, conditions::PRE_RECREATE_GRACE] {
        assert_eq!(condition::find(&status.conditions, type_), None);
    }
    assert!(scene.request.more.annotations.is_empty());
}

#[test]
fn the_drain_is_written_down_with_the_acceptance_in_kruises_shape() {
    let mut scene = gated(5);
    scene.at(7 * S).settle();
    let grace = began(&scene);
    assert_eq!((grace.status, grace.reason.as_str()), (ConditionStatus::True, "PreRecreateGrace"));
    assert_eq!(grace.last_transition_time, wall(Mono(7 * S)));
    assert_eq!(drained(&scene), (ConditionStatus::False, "Draining"));
    assert_eq!(reason(&scene.request.status, conditions::COMPLETE), "WaitingForNotReady");
    assert_eq!(scene.request.more.annotations[UNREADY_ACQUIRED], "2027-01-15T08:00:07Z");
    assert!(scene.orders.is_empty());
}

/// K5: the drain is counted on one monotonic clock, from when the Pod is seen held and not ready.
#[test]
fn k5_nothing_is_ordered_before_the_pod_was_not_ready_for_the_whole_grace() {
    let mut scene = gated(5);
    scene.settle();
    open(&mut scene);
    let plan = scene.at(100 * S).settle();
    assert!(scene.orders.is_empty(), "held, but the kubelet has not followed");
    assert_eq!(reason(&scene.request.status, conditions::COMPLETE), "WaitingForNotReady");
    assert_eq!(plan.wake_at, Some(Mono(3600 * S)), "only the deadline");
    ready(&mut scene, false);
    let plan = scene.at(101 * S).plan();
    assert_eq!((waits_for(&plan), plan.wake_at), ("Draining", Some(Mono(106 * S))));
    assert!(scene.at(106 * S - 1).plan().orders.is_empty());
    scene.at(106 * S).settle();
    assert_eq!(scene.orders.len(), 1);
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(drained(&scene), (ConditionStatus::True, "Drained"));
    assert!(scene.request.more.annotations.is_empty(), "it goes with the label");
}

/// K5: a Pod that was not ready before it was held has not been drained.
#[test]
fn k5_not_ready_counts_only_together_with_the_hold() {
    let mut scene = gated(5);
    ready(&mut scene, false);
    scene.settle();
    scene.at(100 * S).settle();
    assert!(scene.orders.is_empty());
    open(&mut scene);
    assert_eq!(scene.at(101 * S).plan().wake_at, Some(Mono(106 * S)));
}

/// K5: a process does not know what another one counted, so the full grace always passes.
#[test]
fn k5_another_process_counts_anew() {
    let mut scene = out_of_service(5);
    scene.at(10 * S).settle();
    scene.at(14 * S).memory = Memory::new(Mono(14 * S));
    assert_eq!(scene.plan().wake_at, Some(Mono(19 * S)));
    scene.at(19 * S).settle();
    assert_eq!(scene.orders.len(), 1);
}

#[test]
fn a_pod_that_becomes_ready_again_begins_anew() {
    let mut scene = out_of_service(5);
    scene.request.status = scene.at(10 * S).settle().status.unwrap().status;
    ready(&mut scene, true);
    let plan = scene.at(12 * S).settle();
    assert_eq!(waits_for(&scene.plan()), "WaitingForNotReady");
    assert_eq!(plan.wake_at, Some(Mono(3600 * S)));
    ready(&mut scene, false);
    assert_eq!(scene.at(13 * S).plan().wake_at, Some(Mono(18 * S)));
    // Another client opens the gate: the hold is gone, whatever Ready says.
    scene.pod.as_mut().unwrap().gates[0].condition.as_mut().unwrap().open = true;
    scene.at(20 * S).settle();
    assert!(scene.orders.is_empty());
}

#[test]
fn every_gate_counts() {
    let mut scene = with_gates(2, 0, &["app"]);
    scene.settle();
    open(&mut scene);
    ready(&mut scene, false);
    let gates = &mut scene.pod.as_mut().unwrap().gates;
    let other = gates[1].condition.replace(readiness::GateCondition { open: true, message: "[]".into() });
    scene.settle();
    assert!(scene.orders.is_empty());
    scene.pod.as_mut().unwrap().gates[1].condition = other;
    scene.settle();
    assert_eq!(scene.orders.len(), 1);
}

#[test]
fn a_grace_of_zero_waits_for_not_ready_and_for_nothing_more() {
    let mut scene = gated(0);
    scene.settle();
    open(&mut scene);
    scene.at(50 * S).settle();
    assert!(scene.orders.is_empty());
    ready(&mut scene, false);
    scene.settle();
    assert_eq!(scene.orders.len(), 1);
}

#[test]
fn what_is_ordered_stays_ordered_though_the_pod_becomes_ready_again() {
    let mut scene = out_of_service(0);
    scene.settle();
    let orders = scene.orders.clone();
    assert_eq!(orders.len(), 1);
    ready(&mut scene, true);
    scene.at(50 * S).settle();
    assert_eq!(scene.orders, orders);
    scene.memory = Memory::new(Mono(50 * S));
    scene.settle();
    assert_eq!(scene.orders, orders, "not even by another process");
}

#[test]
fn once_something_was_stopped_the_rest_is_not_drained_again() {
    let mut scene = with_gates(1, 5, &["app", "sidecar"]);
    scene.request.spec.strategy.as_mut().unwrap().ordered_recreate = true;
    scene.settle();
    open(&mut scene);
    ready(&mut scene, false);
    scene.settle();
    scene.at(5 * S).settle();
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.request.status = scene.plan().status.unwrap().status;
    // The book is lost, and another process leads.
    scene.orders.clear();
    scene.memory = Memory::new(Mono(5 * S));
    ready(&mut scene, true);
    scene.settle();
    assert_eq!(scene.orders.iter().map(|o| o.container.name.as_str()).collect::<Vec<_>>(), ["sidecar"]);
}

#[test]
fn a_container_that_ends_by_itself_does_not_cut_the_drain_of_the_others() {
    let mut scene = with_gates(1, 5, &["app", "sidecar"]);
    scene.settle();
    open(&mut scene);
    scene.ends("app", 1);
    let plan = scene.plan();
    assert_eq!(waits_for(&plan), "WaitingForNotReady");
    scene.request.status = plan.status.unwrap().status;
    assert_eq!(scene.states()[0], state("app", Phase::Recreating, false));
    scene.settle();
    assert!(scene.orders.is_empty());
    ready(&mut scene, false);
    scene.at(20 * S).settle();
    scene.at(25 * S).settle();
    assert_eq!(scene.orders.iter().map(|o| o.container.name.as_str()).collect::<Vec<_>>(), ["sidecar"]);
}

#[test]
fn containers_that_others_restarted_need_no_drain() {
    let mut scene = gated(5);
    scene.settle();
    open(&mut scene);
    scene.restarts("app", false);
    assert_eq!(waits_for(&scene.plan()), "ContainerNotReady", "there is nothing to drain the Pod for");
    scene.status("app", |s| s.ready = true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(drained(&scene), (ConditionStatus::False, "NotDrained"));
}

#[test]
fn a_restart_through_the_kubelet_waits_for_the_drain_too_and_is_not_taken_back() {
    let mut scene = gated(5);
    scene.request.spec.strategy.as_mut().unwrap().mechanism = Some(Mechanism::Kubelet);
    let digest = format!("sha256:{:064x}", 7);
    let app = &mut scene.pod.as_mut().unwrap().containers[0];
    app.image = "shop/app:1".into();
    app.status.as_mut().unwrap().image_id = format!("shop/app@{digest}");
    scene.settle();
    open(&mut scene);
    let plan = scene.plan();
    assert!(plan.images.is_empty());
    assert_eq!(reason(&scene.request.status, conditions::COMPLETE), "WaitingForNotReady");
    ready(&mut scene, false);
    scene.at(S).plan();
    assert_eq!(scene.at(6 * S).act().images.len(), 1);
    // After the pin, another process or a ready Pod changes nothing.
    ready(&mut scene, true);
    scene.memory = Memory::new(Mono(6 * S));
    let write = scene.settle().status.unwrap();
    assert_eq!(reason(&write.status, conditions::COMPLETE), "WaitingForKubelet");
    assert_eq!(reason(&write.status, conditions::DRAINED), "Drained");
}

/// D24: without a gate the grace still passes, and the status does not say that the Pod was out of service.
#[test]
fn d24_without_a_gate_the_grace_passes_and_the_condition_and_an_event_say_so() {
    let mut scene = with_gates(0, 5, &["app"]);
    let before = scene.request.status.clone();
    let plan = scene.at(3 * S).settle();
    assert_eq!((plan.wake_at, scene.orders.len()), (Some(Mono(8 * S)), 0));
    assert_eq!(reason(&scene.request.status, conditions::COMPLETE), "NoReadinessGate");
    assert_eq!(drained(&scene), (ConditionStatus::False, "NoReadinessGate"));
    assert!(began(&scene).message.contains("stays in service"), "{}", began(&scene).message);
    let warnings_of = |old| notes(&scene.request, old).into_iter().filter(|n| n.warning).collect::<Vec<_>>();
    let warnings = warnings_of(&before);
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].reason, "NotDrained");
    assert_eq!(warnings[0].pod.as_ref().unwrap().1, "pod-1");
    assert_eq!(warnings_of(&scene.request.status), [], "once");
    scene.at(8 * S).settle();
    assert_eq!(scene.orders.len(), 1);
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(drained(&scene), (ConditionStatus::False, "NoReadinessGate"));
}

/// D7: the beginning of the drain is written once, and other conditions survive.
#[test]
fn d7_an_existing_drain_time_is_never_moved_and_other_conditions_survive() {
    let mut scene = gated(5);
    let foreign = Condition::new("Theirs", ConditionStatus::True, "X", "", wall(Mono(0)), None);
    scene.request.status.conditions.push(foreign.clone());
    scene.at(7 * S).settle();
    let first = began(&scene).clone();
    scene.memory = Memory::new(Mono(60 * S));
    open(&mut scene);
    ready(&mut scene, false);
    scene.at(60 * S).settle();
    scene.at(65 * S).settle();
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(*began(&scene), first);
    assert_eq!(scene.request.status.conditions[0], foreign);
}

#[test]
fn a_drain_that_was_not_written_down_is_so_at_once() {
    let mut scene = out_of_service(5);
    scene.request.status.conditions.retain(|c| c.type_ != conditions::PRE_RECREATE_GRACE);
    let write = scene.at(S).plan().status.unwrap();
    assert_eq!(write.urgency, Urgency::Now);
    assert!(condition::find(&write.status.conditions, conditions::PRE_RECREATE_GRACE).is_some());
}

#[test]
fn what_a_user_wrote_into_the_annotation_is_replaced() {
    let mut scene = gated(5);
    scene.request.more.annotations.insert(UNREADY_ACQUIRED.into(), "2000-01-01T00:00:00Z".into());
    scene.at(7 * S).settle();
    assert_eq!(scene.request.more.annotations[UNREADY_ACQUIRED], "2027-01-15T08:00:07Z");
    scene.at(3000 * S).settle();
    assert!(scene.orders.is_empty(), "and starts nothing");
}

/// `OpenKruise`'s cases 8 and 9: a request is made in one version and, when it is over, read in the other.
#[test]
fn the_annotation_stays_on_what_was_made_in_v1beta1_and_goes_from_what_was_made_in_v1alpha1() {
    for in_v1beta1 in [false, true] {
        let mut scene = gated(0);
        scene.request.more.in_v1beta1 = in_v1beta1;
        scene.request.spec.active_deadline_seconds = Some(30);
        scene.at(7 * S).settle();
        assert!(scene.request.more.annotations.contains_key(UNREADY_ACQUIRED));
        scene.at(37 * S).settle();
        assert!(scene.request.completed());
        let removed = scene.request.more.annotations.remove(UNREADY_ACQUIRED);
        assert_eq!(removed.as_deref(), in_v1beta1.then_some("2027-01-15T08:00:07Z"));
        scene.settle();
        assert_eq!(scene.request.more.annotations.contains_key(UNREADY_ACQUIRED), in_v1beta1, "it was lost");
    }
}

/// D23: the deletion of a request ends its drain, and releases its hold.
#[test]
fn d23_a_request_that_is_deleted_in_its_drain_stops_nothing_and_holds_nothing() {
    let mut scene = out_of_service(5);
    scene.settle();
    scene.request.deleting = true;
    let plan = scene.at(60 * S).plan();
    assert_eq!(plan, Plan::default());
    open(&mut scene);
    let condition = scene.pod.as_ref().unwrap().gates[0].condition.clone().unwrap();
    assert_eq!((condition.open, condition.message.as_str()), (true, "[]"));
}

#[test]
fn a_condition_that_is_somebody_elses_is_named_and_the_deadline_ends_the_request() {
    let mut scene = gated(0);
    let theirs = readiness::GateCondition { open: false, message: "maintenance until Monday".into() };
    scene.pod.as_mut().unwrap().gates[0].condition = Some(theirs);
    ready(&mut scene, false);
    scene.settle();
    open(&mut scene);
    scene.at(10 * S).settle();
    assert!(scene.orders.is_empty());
    let complete = condition::find(&scene.request.status.conditions, conditions::COMPLETE).unwrap();
    assert_eq!(complete.reason, "ReadinessGateInUse");
    assert!(complete.message.contains(KRUISE_POD_READY), "{}", complete.message);
    assert_eq!(drained(&scene), (ConditionStatus::False, "ReadinessGateInUse"));
    scene.at(3600 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    assert_eq!(drained(&scene), (ConditionStatus::False, "NotDrained"));
}

#[test]
fn a_drain_that_cannot_begin_is_told_from_one_that_lasts() {
    let mut scene = gated(0);
    let theirs = readiness::GateCondition { open: false, message: "maintenance until Monday".into() };
    let gate = |scene: &mut Scene, to| scene.pod.as_mut().unwrap().gates[0].condition = to;
    let reasons = |scene: &mut Scene| {
        if let Some(write) = scene.plan().status {
            scene.request.status = write.status;
        }
        let status = &scene.request.status;
        assert_eq!(drained(scene).0, ConditionStatus::False);
        (drained(scene).1.to_owned(), reason(status, conditions::COMPLETE).to_owned())
    };
    let in_use = "ReadinessGateInUse".to_owned();
    gate(&mut scene, Some(theirs.clone()));
    scene.act();
    assert_eq!(reasons(&mut scene), (in_use.clone(), in_use.clone()));
    gate(&mut scene, None);
    assert_eq!(reasons(&mut scene), ("Draining".to_owned(), "WaitingForNotReady".to_owned()));
    gate(&mut scene, Some(theirs));
    assert_eq!(reasons(&mut scene), (in_use.clone(), in_use));
}

#[test]
fn the_deadline_ends_a_drain_that_does_not_come_about() {
    let mut scene = gated(0);
    scene.request.spec.active_deadline_seconds = Some(30);
    scene.settle();
    scene.at(30 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    assert!(scene.request.more.annotations.is_empty());
    assert_eq!(scene.states(), [state("app", Phase::Pending, false)]);
}

#[test]
fn a_pod_that_goes_in_its_restart_was_drained_all_the_same() {
    let mut scene = out_of_service(0);
    scene.settle();
    scene.acknowledge("app");
    scene.pod = None;
    scene.at(10 * S).settle();
    assert_ended(&scene, "PodGone", "pod has gone");
    assert_eq!(drained(&scene), (ConditionStatus::True, "Drained"));
}

#[test]
fn admission_drops_what_users_write_into_the_controllers_annotations() {
    let mut request = raw(&["app"]);
    let plain = create(&request, Some(&pod()), &Hooks::default(), false);
    for key in annotations::INTERNAL {
        request.more.annotations.insert(key.into(), "2000-01-01T00:00:00Z".into());
    }
    let (Response::Allow(plain), Response::Allow(patch)) =
        (plain, create(&request, Some(&pod()), &Hooks::default(), false))
    else {
        panic!("refused")
    };
    let removals: Vec<_> = patch.into_iter().filter(|op| !plain.contains(op)).collect();
    let removal =
        |name| json!({"op": "remove", "path": format!("/metadata/annotations/crr.apps.kruise.io~1{name}")});
    assert_eq!(removals, ["sync-container-statuses", "unready-acquired"].map(removal));
}

#[test]
fn only_the_controller_changes_the_drain_time_of_an_open_request() {
    let mut old = Scene::admitted(&["app"]).request;
    old.more.annotations.insert(UNREADY_ACQUIRED.into(), "2027-01-15T08:00:07Z".into());
    for value in [None, Some("2000-01-01T00:00:00Z")] {
        let mut new = old.clone();
        new.more.annotations.clear();
        new.more.annotations.extend(value.map(|v| (UNREADY_ACQUIRED.to_owned(), v.to_owned())));
        let Response::Deny { code, message } = update(&old, &new, false) else { panic!("allowed") };
        assert_eq!(code, 403);
        let text = format!("not allowed to update immutable annotation {UNREADY_ACQUIRED}");
        assert!(message.ends_with(&text), "{message}");
        assert_eq!(update(&old, &new, true), Response::Allow(Vec::new()));
        let mut over = old.clone();
        over.status.completion_time = Some(wall(Mono(0)));
        assert_eq!(update(&over, &new, false), Response::Allow(Vec::new()));
    }
}
