//! Nothing is stopped before the node has the image.

use super::*;

#[test]
fn what_cannot_be_pulled_ends_the_request_and_the_pod_has_not_noticed() {
    for (reason, expected) in [
        (AnswerReason::PullFailed, "PullFailed"),
        (AnswerReason::PullTimedOut, "PullFailed"),
        (AnswerReason::ImageNeverPull, "PullFailed"),
        (AnswerReason::PullUnauthorized, "CannotProvePull"),
        (AnswerReason::NoDiskRoom, "NoDiskRoom"),
    ] {
        let mut world = World::new(&json!({}));
        world.settle();
        world.answer(AnswerState::Failed, Some(reason), None);
        assert_eq!((world.phase(), world.reason()), (Phase::Failed, expected));
        assert!(world.update.status.message.contains("the daemon's words"));
        let condition = world.condition(conditions::PULLED);
        assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, expected));
        assert_eq!(world.pod, Some(web()));
        assert!(world.orders.is_empty());
    }
    let mut world = World::new(&json!({}));
    world.settle();
    world.answer(AnswerState::Refused, Some(AnswerReason::WrongRepository), None);
    assert_eq!(world.reason(), "PullFailed");
}

#[test]
fn a_pull_may_take_its_time() {
    let mut world = World::new(&json!({"activeDeadlineSeconds": 5000}));
    world.settle();
    world.answer(AnswerState::Acknowledged, Some(AnswerReason::Pulling), None);
    assert_eq!((world.phase(), world.reason()), (Phase::Pulling, "Pulling"));
    world.pass(4_000);
    assert_eq!(world.phase(), Phase::Pulling);
    world.pass(1_000);
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "DeadlineExceeded"));
    assert_eq!(world.pod, Some(web()));
}

/// The acceptance has reported it.
#[test]
fn that_the_daemon_pulls_takes_no_write_of_the_status() {
    let mut world = World::new(&json!({"observeSeconds": 0}));
    world.settle();
    let before = world.writes;
    world.answer(AnswerState::Acknowledged, Some(AnswerReason::Pulling), None);
    world.pass(500);
    assert_eq!((world.phase(), world.reason(), world.writes), (Phase::Pulling, "Pulling", before));
    let asked = "the node's daemon is asked to pull (DaemonNotResponding if it says nothing for 60 s)";
    assert_eq!(world.condition(conditions::COMPLETE).message, asked);
    // A problem is reported, and its end.
    world.answer(AnswerState::Acknowledged, Some(AnswerReason::PullRetried), None);
    let problem = "the node pulls: container app: the daemon's words";
    assert_eq!((&*world.condition(conditions::COMPLETE).message, world.writes), (problem, before + 1));
    world.answer(AnswerState::Acknowledged, Some(AnswerReason::Pulling), None);
    assert_eq!((&*world.condition(conditions::COMPLETE).message, world.writes), (asked, before + 2));
}

/// Otherwise the pull would begin again.
#[test]
fn an_order_that_says_more_than_this_version_knows_stands() {
    let mut world = World::new(&json!({}));
    world.settle();
    world.orders[0].action.pull.as_mut().unwrap().unknown.insert("later".into(), json!({"b": 2}));
    world.orders[0].unknown.insert("later".into(), json!({"a": 1}));
    let placed = world.orders.clone();
    world.settle();
    assert_eq!(world.orders, placed);
}

/// Whichever container comes first.
#[test]
fn what_is_in_the_way_of_one_pull_is_told_beside_another_that_goes_on() {
    let image = "registry.example.com/shop/web:v2";
    let both = json!({"containers": [{"name": "app", "image": image}, {"name": "sidecar", "image": image}]});
    let mut world = World::new(&both);
    world.pod.as_mut().unwrap().containers.push(container("sidecar"));
    world.settle();
    world.answer(AnswerState::Acknowledged, Some(AnswerReason::Pulling), None);
    world.answers[1].reason = Some(AnswerReason::PullRetried);
    world.settle();
    let problem = "the node pulls: container sidecar: the daemon's words";
    assert_eq!(world.condition(conditions::COMPLETE).message, problem);
}

#[test]
fn a_daemon_that_says_nothing_ends_the_request() {
    let mut world = World::new(&json!({}));
    world.settle();
    world.pass(59);
    assert_eq!(world.reason(), "Pulling");
    world.pass(1);
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "DaemonNotResponding"));
    // Without the policy, or a place in the book, the daemon is not asked, so it is not silent.
    let mut world = World::new(&json!({}));
    world.guarded = false;
    world.settle();
    assert_eq!((world.reason(), world.orders.len()), ("WaitingForPolicy", 0));
}

#[test]
fn an_image_that_is_gone_before_the_change_is_waited_for_anew() {
    let mut world = World::new(&json!({"suspend": true}));
    world.settle();
    world.pulled();
    world.answer(AnswerState::Acknowledged, Some(AnswerReason::ImageGone), None);
    world.update.spec.suspend = false;
    world.settle();
    assert_eq!(world.image(), "registry.example.com/shop/web:v1");
    assert_eq!(world.reason(), "Pulling");
    world.pulled();
    assert_eq!(world.phase(), Phase::Updating);
}

#[test]
fn the_pull_is_left_to_the_kubelet_where_that_is_asked_for() {
    let mut world = World::new(&json!({"pull": "IfPossible"}));
    world.settle();
    world.answer(AnswerState::Failed, Some(AnswerReason::PullUnauthorized), None);
    assert_eq!(world.phase(), Phase::Updating);
    assert_eq!(world.condition(conditions::PULLED).status, ConditionStatus::Unknown);
    assert_eq!(world.image(), "registry.example.com/shop/web:v2", "nobody knows the digest");
    let mut world = World::new(&json!({"pull": "Skip"}));
    world.settle();
    assert_eq!((world.phase(), world.orders.len()), (Phase::Updating, 0));
    // Once the new container exists, the daemon is asked what it runs.
    world.starts(true);
    let pull = world.orders[0].action.pull.clone().unwrap();
    assert_eq!(world.orders[0].id, "u-1/app/2");
    assert_eq!(pull.policy, Some(pitstop_api::nodework::PullPolicy::Never));
    world.runs("config-2");
    assert_eq!(world.phase(), Phase::Observing);
}

#[test]
fn what_does_not_run_needs_no_proof() {
    let mut world = World::new(&json!({}));
    world.show(|status| {
        status.container_id.clear();
        status.state = ContainerState::Waiting { reason: "ImagePullBackOff".into(), message: String::new() };
    });
    assert_eq!((world.phase(), world.orders.len()), (Phase::Updating, 0), "there is nothing to stop");
}

#[test]
fn a_digest_that_the_user_names_is_kept() {
    let image = format!("registry.example.com/shop/web:v2@{NEW}");
    let spec = json!({"containers": [{"name": "app", "image": image}]});
    let world = World::changed(&spec);
    assert_eq!(world.image(), image);
}
