//! Ends of a request with a cause outside it.

use super::*;

const DEADLINE: &str = "recreating has exceeded the activeDeadlineSeconds";

#[test]
fn orders_that_nobody_took_up_are_withdrawn_before_the_outcome() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.at(3 * S);
    let plan = scene.plan();
    assert_eq!((plan.status, plan.orders.len()), (None, 0), "that write proves that nobody took it up");
    // The daemon was faster: its answer makes the withdrawal fail.
    scene.acknowledge("app");
    let plan = scene.act();
    assert_eq!(plan.orders, scene.orders, "a stop under way may finish");
    assert_eq!((plan.status, plan.closed), (None, vec![scene.orders[0].id.clone()]), "no other may begin");
    scene.act();
    assert_ended(&scene, "DeadlineExceeded", DEADLINE);
}

#[test]
fn an_order_that_may_just_be_placed_delays_the_outcome() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.orders.clear();
    scene.placing = true;
    let plan = scene.at(3 * S).plan();
    assert_eq!((plan.status, plan.orders.len()), (None, 0));
    scene.placing = false;
    scene.settle();
    assert_ended(&scene, "DeadlineExceeded", DEADLINE);
}

#[test]
fn a_request_without_a_deadline_gets_the_default_one() {
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    scene.restarts("app", false);
    assert_eq!(scene.plan().wake_at, Some(Mono(3600 * S)));
    scene.at(3600 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", DEADLINE);

    let mut scene = Scene::ordered(&["app"]);
    scene.config.default_active_deadline = None;
    scene.acknowledge("app");
    scene.restarts("app", false);
    assert_eq!(scene.plan().wake_at, None);
    scene.at(1_000_000 * S).settle();
    assert!(!scene.request.completed());
}

#[test]
fn a_daemon_that_never_answers_ends_the_request() {
    let mut scene = Scene::ordered(&["app"]);
    assert_eq!(scene.plan().wake_at, Some(Mono(60 * S)));
    scene.at(59_999).settle();
    assert!(!scene.request.completed());
    scene.at(60 * S);
    let plan = scene.act();
    assert_eq!((plan.status, plan.orders.len()), (None, 0));
    // The order is gone, but the silence still counts.
    scene.act();
    assert_ended(&scene, "DaemonNotResponding", "daemon has not responded for a long time");
    assert_eq!(scene.states(), [state("app", Phase::Pending, false)]);
    scene.settle();
    assert!(scene.orders.is_empty());
}

#[test]
fn a_daemon_at_work_is_not_silent() {
    let mut scene = Scene::ordered(&["app", "sidecar"]);
    scene.at(50 * S).settle();
    scene.acknowledge("app");
    scene.at(600 * S).settle();
    assert!(!scene.request.completed(), "the second order waits for the first");
    scene.answer("app", AnswerState::Done, None);
    scene.at(700 * S).settle();
    scene.at(759 * S).settle();
    assert!(!scene.request.completed());
    scene.at(760 * S).settle();
    assert_ended(&scene, "DaemonNotResponding", "daemon has not responded for a long time");
}

#[test]
fn a_silence_counts_from_the_last_answer() {
    let mut scene = Scene::ordered(&["app", "sidecar"]);
    assert_eq!(scene.settle().wake_at, Some(Mono(60 * S)));
    scene.at(50 * S).answer("app", AnswerState::Refused, Some(AnswerReason::NotRunning));
    scene.settle();
    scene.at(109 * S).settle();
    assert!(!scene.request.completed(), "it answered 59 s ago");
    scene.at(110 * S).settle();
    assert_ended(&scene, "DaemonNotResponding", "daemon has not responded for a long time");
}

#[test]
fn a_pod_that_goes_ends_the_request() {
    type Change = fn(&mut Scene);
    let cases: [Change; 4] = [
        |s| s.pod.as_mut().unwrap().deleting = true,
        |s| s.pod.as_mut().unwrap().finished = true,
        |s| s.pod = None,
        |s| s.pod.as_mut().unwrap().uid = "pod-2".into(),
    ];
    for change in cases {
        let mut scene = Scene::ordered(&["app", "sidecar"]);
        scene.acknowledge("app");
        change(scene.at(10 * S));
        scene.settle();
        assert_ended(&scene, "PodGone", "pod has gone");
        assert!(scene.orders.is_empty());
        assert_eq!(
            scene.states(),
            [state("app", Phase::Pending, false), state("sidecar", Phase::Pending, false)]
        );
    }
}

#[test]
fn a_pod_that_is_not_seen_yet_may_only_be_late() {
    let mut scene = Scene::ordered(&["app"]);
    scene.pod = None;
    let plan = scene.act();
    assert_eq!((plan.status, plan.wake_at), (None, Some(Mono(2 * S))));
    assert_eq!(plan.orders, scene.orders);
    scene.at(2 * S).settle();
    assert_ended(&scene, "PodGone", "pod has gone");
}

/// The orders stay, so that their answers are known when the watch shows the Pod again.
#[test]
fn a_pod_that_the_watch_has_lost_ends_nothing() {
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    (scene.pod, scene.found) = (None, Found::There);
    scene.at(60 * S).settle();
    assert_eq!((scene.request.completed(), scene.orders.len()), (false, 1));
    scene.at(3600 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", DEADLINE);
}

#[test]
fn a_request_that_is_deleted_starts_nothing_and_lets_a_stop_finish() {
    let mut scene = Scene::admitted(&["app"]);
    scene.request.deleting = true;
    assert_eq!(scene.plan(), Plan::default());

    let mut scene = Scene::ordered(&["app", "sidecar"]);
    scene.acknowledge("app");
    scene.request.deleting = true;
    let plan = scene.act();
    assert_eq!((plan.status, plan.labels.len()), (None, 0));
    assert_eq!(scene.orders.len(), 1);
    assert_eq!(scene.orders[0].container.name, "app");
    scene.restarts("app", true);
    scene.act();
    assert!(scene.orders.is_empty());
}

#[test]
fn a_request_is_deleted_when_its_time_to_live_is_over() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.ttl_seconds_after_finished = Some(3);
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.at(10 * S).settle();
    assert_ended(&scene, "Complete", "");
    let plan = scene.plan();
    assert_eq!((plan.delete, plan.wake_at), (false, Some(Mono(13 * S))));
    let plan = scene.at(13 * S).plan();
    assert_eq!((plan.delete, plan.wake_at), (true, None));
    scene.request.deleting = true;
    assert!(!scene.plan().delete, "once is enough");
}

#[test]
fn planning_again_after_the_end_plans_nothing() {
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    scene.restarts("app", true);
    assert_eq!(scene.settle(), Plan::default());
    // Whatever becomes of the Pod, the outcome stands.
    scene.ends("app", 1);
    assert_eq!(scene.plan(), Plan::default());
    scene.pod = None;
    assert_eq!(scene.plan(), Plan::default());
}

/// D29: a request for a Pod on a virtual node ends at once, and not after a minute of silence.
#[test]
fn d29_a_virtual_node_ends_early() {
    let mut scene = Scene::admitted(&["app"]);
    scene.request.more.labels.insert(labels::NODE_TYPE.into(), labels::VIRTUAL_KUBELET.into());
    scene.settle();
    assert_eq!(outcome(&scene).1, "VirtualNode");
    assert!(scene.request.status.message.contains("no container runtime"));
    assert!(scene.orders.is_empty());
}

/// D6: the status reports a daemon that is silent after its acknowledgement. The request continues until its deadline.
#[test]
fn d6_a_daemon_that_falls_silent_after_its_acknowledgement_is_told() {
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    scene.settle();
    // Grace 30 s, and a minute of patience.
    let wake = scene.plan().wake_at.unwrap();
    assert_eq!(wake, Mono(90 * S));
    scene.at(90 * S - 1);
    assert_eq!(waits_for(&scene.plan()), "Stopping");
    scene.at(90 * S);
    let plan = scene.plan();
    assert_eq!(waits_for(&plan), "StopOverdue");
    assert_eq!(plan.wake_at, Some(Mono(3600 * S)), "nothing is to be looked at before the deadline");
    assert!(!scene.settle().orders.is_empty(), "the order stands");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}
