//! From a new request to its orders.

use pitstop_api::condition::ConditionStatus;
use pitstop_api::nodework::{OrderContainer, OrderPod};
use pitstop_api::recreate::RecreateStrategy;

use super::*;

#[test]
fn acceptance_makes_the_target_durable_and_orders_come_after() {
    let mut scene = Scene::admitted(&["app", "sidecar"]);
    let plan = scene.act();
    assert!(plan.orders.is_empty(), "no order rests on anything that is not stored");
    assert_eq!(plan.wake_at, Some(Mono(3600 * S)), "the deadline holds also if no answer ever comes");
    let status = &scene.request.status;
    assert_eq!(status.phase, Some(Phase::Recreating));
    assert_eq!(
        scene.states(),
        [state("app", Phase::Pending, false), state("sidecar", Phase::Pending, false)]
    );
    let target = status.target.as_ref().unwrap();
    assert_eq!((target.pod_uid.as_str(), target.containers.len()), ("pod-1", 2));
    let accepted = status.conditions.iter().find(|c| c.type_ == conditions::ACCEPTED).unwrap();
    assert_eq!((accepted.status, accepted.observed_generation), (ConditionStatus::True, Some(1)));
    assert_eq!(reason(status, conditions::COMPLETE), "WaitingForDaemon");

    let plan = scene.act();
    assert_eq!((plan.status, plan.labels.len()), (None, 0), "the webhook has set the labels");
    assert_eq!(scene.orders.len(), 2);
    let order = &scene.orders[0];
    assert_eq!(order.id, "crr-1/app/2");
    let pod = OrderPod { namespace: "shop".into(), name: "web".into(), uid: "pod-1".into() };
    assert_eq!(order.pod, pod);
    let full = id("app", 1).split_once("//").unwrap().1.to_owned();
    assert_eq!(order.container, OrderContainer { name: "app".into(), id: full });

    let plan = scene.settle();
    assert_eq!((plan.status, plan.orders, plan.labels.len()), (None, scene.orders, 0), "then it waits");
}

#[test]
fn the_grace_is_the_requests_else_the_pods() {
    let grace = |scene: &Scene| scene.orders[0].action.recreate.as_ref().unwrap().grace_period_seconds;
    assert_eq!(grace(&Scene::ordered(&["app"])), Some(30));
    let mut scene = Scene::admitted(&["app"]);
    scene.request.spec.strategy =
        Some(RecreateStrategy { termination_grace_period_seconds: Some(0), ..Default::default() });
    scene.act();
    scene.act();
    assert_eq!(grace(&scene), Some(0));
}

#[test]
fn a_request_that_makes_no_sense_ends_at_once() {
    let mut scene = Scene::admitted(&["app"]);
    scene.request.spec.containers.clear();
    scene.settle();
    assert_ended(&scene, "Invalid", "spec.containers: containers list can not be null");
    assert_eq!(reason(&scene.request.status, conditions::ACCEPTED), "Invalid");
    assert!(!scene.request.more.labels.contains_key(labels::ACTIVE));
    assert!(scene.states().is_empty() && scene.orders.is_empty());
}

#[test]
fn without_a_webhook_the_controller_sets_the_labels() {
    let mut scene = Scene::admitted(&["app"]);
    scene.request.more.labels.clear();
    scene.request.spec.containers[0].status_context = None;
    scene.act();
    scene.act();
    let labels: Vec<(&str, &str)> =
        scene.request.more.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        labels,
        [
            ("crr.apps.kruise.io/active", "true"),
            ("crr.apps.kruise.io/node-name", "node1"),
            ("crr.apps.kruise.io/pod-uid", "pod-1")
        ]
    );
    assert_eq!(scene.orders.len(), 1);
}

#[test]
fn a_pod_that_the_watch_does_not_show_yet_is_waited_for() {
    let mut scene = Scene::admitted(&["app"]);
    let pod = scene.pod.take();
    let plan = scene.act();
    assert_eq!((plan.status.is_none(), plan.wake_at), (true, Some(Mono(2 * S))));
    scene.at(1999).pod = pod;
    scene.act();
    assert!(scene.request.started());

    let mut scene = Scene::admitted(&["app"]);
    scene.pod = None;
    scene.at(2 * S).settle();
    assert_ended(&scene, "PodGone", "pod has gone");
}

/// The watch is far behind what admission read.
#[test]
fn a_pod_that_the_api_server_knows_is_waited_for() {
    for other in [None, Some("pod-0")] {
        let mut scene = Scene::admitted(&["app"]);
        let pod = scene.pod.take();
        scene.pod = other.map(|uid| Pod { uid: uid.into(), ..pod.clone().unwrap() });
        scene.found = Found::There;
        scene.at(60 * S);
        let plan = scene.settle();
        assert!(!scene.request.completed());
        assert_eq!(plan.wake_at, Some(Mono(60_500)));
        scene.pod = pod;
        scene.settle();
        assert!(scene.request.started());
    }
}

#[test]
fn a_pod_of_another_uid_is_an_older_or_a_newer_one() {
    let mut scene = Scene::admitted(&["app"]);
    scene.pod.as_mut().unwrap().uid = "pod-0".into();
    assert_eq!(scene.act().status, None);
    scene.at(2 * S).settle();
    assert_ended(&scene, "PodGone", "pod has gone");
}

#[test]
fn an_old_view_of_the_pod_refuses_nothing() {
    let mut scene = Scene::admitted(&["app"]);
    scene.pod.as_mut().unwrap().node = None;
    let plan = scene.act();
    assert_eq!((plan.status, plan.wake_at), (None, Some(Mono(2 * S))));
    scene.at(2 * S).settle();
    assert_eq!(reason(&scene.request.status, conditions::ACCEPTED), "Invalid");
    assert!(scene.request.status.message.contains("pending Pod"));
}

#[test]
fn a_pod_on_its_way_out_never_comes_back() {
    for change in [|p: &mut Pod| p.deleting = true, |p: &mut Pod| p.finished = true] {
        let mut scene = Scene::admitted(&["app"]);
        change(scene.pod.as_mut().unwrap());
        scene.settle();
        assert_ended(&scene, "PodGone", "pod has gone");
    }
}

#[test]
fn a_later_request_waits_its_turn() {
    let mut scene = Scene::admitted(&["app"]);
    scene.ahead = Some(Ahead { blocker: first(), until: None, has_pod: false, crowded: false });
    let plan = scene.act();
    assert_eq!(scene.request.status.phase, Some(Phase::Pending));
    assert_eq!(waits_for(&plan), "Queued");
    assert!(plan.status.unwrap().status.conditions[0].message.contains("shop/first"));
    assert!(scene.states().is_empty());
    let plan = scene.act();
    assert_eq!((plan.status, plan.orders.len()), (None, 0), "it is written once");
    // Another request goes first now, for a limited time.
    let blocker = Blocker::Request(Named { kind: crate::resize::ID, key: ObjectKey::new("shop", "grow") });
    scene.ahead = Some(Ahead { blocker, until: Some(Mono(9 * S)), has_pod: false, crowded: false });
    let plan = scene.act();
    assert_eq!((plan.status, plan.wake_at), (None, Some(Mono(9 * S))));
    scene.ahead = None;
    scene.act();
    assert_eq!(scene.request.status.phase, Some(Phase::Recreating));
}

#[test]
fn the_deadline_counts_in_the_queue_too() {
    let mut scene = Scene::admitted(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.ahead = Some(Ahead { blocker: first(), until: None, has_pod: false, crowded: false });
    scene.act();
    assert_eq!(scene.plan().wake_at, Some(Mono(3 * S)));
    scene.at(3 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
}

#[test]
fn a_request_of_a_resize_that_is_over_restarts_nothing() {
    let mut scene = Scene::admitted(&["app"]);
    scene.owner_over = true;
    scene.request.owner = Some(Owner { kind: "PodResize".into(), name: "grow".into(), uid: "prs-1".into() });
    scene.settle();
    let message = "metadata.ownerReferences: the PodResize that the request belongs to is over or gone: nothing is \
                   restarted for it";
    assert_ended(&scene, "Invalid", message);
}
