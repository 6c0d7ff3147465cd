//! A stop that outlives its request (`OpenKruise`'s e2e case 3b): one record, and nothing more.

use super::*;

/// Both containers have orders, the first is being stopped, and the deadline has passed.
fn expired() -> Scene {
    let mut scene = Scene::admitted(&["app", "sidecar"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.act();
    scene.act();
    scene.acknowledge("app");
    scene.settle();
    scene.at(3 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    assert_eq!(
        scene.states(),
        [state("app", Phase::Pending, false), state("sidecar", Phase::Pending, false)]
    );
    assert!(!scene.request.more.labels.contains_key(labels::ACTIVE));
    assert_eq!(scene.orders.len(), 1, "the running stop may finish, the other one never begins");
    scene
}

/// The status without the record of `app`.
fn rest(scene: &Scene) -> ContainerRecreateRequestStatus {
    let mut status = scene.request.status.clone();
    status.container_recreate_states.remove(0);
    status
}

#[test]
fn the_end_of_the_stop_is_recorded_once() {
    type How = fn(&mut Scene);
    let cases: [How; 4] = [
        |s| s.answer("app", AnswerState::Done, None),
        |s| s.ends("app", 143),
        |s| s.restarts("app", true),
        |s| {
            let reason = "CrashLoopBackOff".into();
            s.status("app", |s| s.state = ContainerState::Waiting { reason, message: String::new() });
        },
    ];
    for how in cases {
        let mut scene = expired();
        let before = rest(&scene);
        how(scene.at(8 * S));
        let plan = scene.act();
        assert_eq!(plan.orders.len(), 1, "the order stays until its end is recorded");
        assert_eq!(
            scene.states(),
            [state("app", Phase::Recreating, true), state("sidecar", Phase::Pending, false)]
        );
        assert_eq!(rest(&scene), before, "nothing else changes");
        scene.settle();
        assert!(scene.orders.is_empty());
        let recorded = scene.request.clone();
        for ready in [false, true] {
            scene.restarts("app", ready);
            scene.at(20 * S).settle();
            assert_eq!(scene.request, recorded);
        }
    }
}

#[test]
fn a_stop_that_fails_late_is_recorded_too() {
    let mut scene = expired();
    scene.answer("app", AnswerState::Failed, Some(AnswerReason::StopFailed));
    scene.settle();
    assert_eq!(scene.states()[0].message, "kill container error: told so");
    assert_eq!(scene.states()[0].phase, Phase::Failed);
    assert!(scene.orders.is_empty());
}

#[test]
fn a_container_that_ended_by_itself_is_not_recorded_as_killed() {
    let mut scene = expired();
    scene.answer("app", AnswerState::Done, Some(AnswerReason::EndedByItself));
    let before = scene.request.clone();
    scene.settle();
    assert_eq!(scene.request, before);
    assert!(scene.orders.is_empty());
}

#[test]
fn nothing_is_recorded_of_a_pod_that_is_gone() {
    let mut scene = expired();
    let before = scene.request.clone();
    scene.pod.as_mut().unwrap().deleting = true;
    scene.settle();
    assert_eq!(scene.request, before);
    assert!(scene.orders.is_empty());
}

#[test]
fn the_record_comes_before_the_label_and_the_deletion_does_not_wait() {
    let mut scene = expired();
    scene.request.more.labels.insert(labels::ACTIVE.into(), labels::ACTIVE_TRUE.into());
    scene.restarts("app", true);
    let plan = scene.plan();
    assert!(plan.status.is_some());
    assert_eq!(plan.labels.get(labels::ACTIVE), Some(&None));
}

#[test]
fn a_stop_that_was_over_at_the_deadline_is_in_the_outcome() {
    let mut scene = Scene::ordered(&["app", "sidecar"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.answer("app", AnswerState::Done, None);
    scene.at(3 * S).settle();
    assert_eq!(
        scene.states(),
        [state("app", Phase::Recreating, true), state("sidecar", Phase::Pending, false)]
    );
    assert!(scene.orders.is_empty());
    let failed = scene.request.status.conditions.iter().find(|c| c.type_ == conditions::FAILED).unwrap();
    assert!(failed.message.ends_with("not restarted: app, sidecar"), "{}", failed.message);
}

/// Such a stop may never end, so it does not outlive the request.
#[test]
fn a_stop_without_effect_is_withdrawn_at_the_end() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.answer("app", AnswerState::Acknowledged, Some(AnswerReason::StopRetried));
    assert_eq!(waits_for(&scene.plan()), "StopRetried");
    scene.at(2 * S).settle();
    assert_eq!(scene.orders.len(), 1, "while the deadline allows, the daemon goes on");
    scene.at(3 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    assert!(scene.orders.is_empty());
}

/// The book closes the order before users see the end, so that a daemon that comes back knows it.
#[test]
fn the_book_says_that_a_request_is_over_before_the_outcome_is_told() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.acknowledge("app");
    let id = scene.orders[0].id.clone();
    let plan = scene.at(3 * S).act();
    assert_eq!((plan.status, plan.closed), (None, vec![id.clone()]));
    let plan = scene.act();
    assert!(plan.status.is_some());
    assert_eq!((plan.orders.len(), plan.closed), (1, vec![id]), "the stop under way may finish");
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    // If the container has ended, its order needs no closing.
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    scene.restarts("app", true);
    let plan = scene.act();
    assert!(plan.status.is_some() && plan.closed.is_empty());
}

#[test]
fn a_deleted_request_leaves_nothing_to_begin() {
    let mut scene = Scene::ordered(&["app", "sidecar"]);
    scene.acknowledge("app");
    scene.request.deleting = true;
    let plan = scene.plan();
    assert_eq!((plan.orders.len(), plan.closed), (1, vec![scene.orders[0].id.clone()]));
}

/// The stop took the Pod's grace of 30 seconds and a minute more: its daemon is gone.
#[test]
fn a_stop_whose_daemon_is_gone_is_withdrawn_before_the_outcome() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(90);
    scene.acknowledge("app");
    scene.plan();
    let plan = scene.at(90 * S).plan();
    assert_eq!((plan.status, plan.orders.len(), plan.closed.len()), (None, 0, 0));
    scene.settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    assert_eq!(scene.states(), [state("app", Phase::Pending, false)]);
}

#[test]
fn a_stop_whose_daemon_is_gone_is_withdrawn_after_the_outcome() {
    let mut scene = expired();
    assert_eq!(scene.plan().wake_at, Some(Mono(90 * S)));
    scene.at(90 * S - 1).settle();
    assert_eq!(scene.orders.len(), 1);
    scene.at(90 * S).settle();
    assert!(scene.orders.is_empty());
    assert_eq!(scene.states()[0], state("app", Phase::Pending, false));
}

#[test]
fn a_daemon_that_takes_a_stop_over_has_its_own_time_for_it() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(100);
    scene.acknowledge("app");
    scene.plan();
    scene.answers[0].acknowledged_by = "another".into();
    scene.at(60 * S).plan();
    scene.at(100 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    assert_eq!(scene.orders.len(), 1, "it may finish until 150 s");
    scene.at(150 * S).settle();
    assert!(scene.orders.is_empty());
}

/// The order is closed, and the write of the end was lost. The daemon's answer is no failure.
#[test]
fn an_end_whose_write_was_lost_stays_that_end() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(10);
    scene.acknowledge("app");
    scene.plan();
    let plan = scene.at(10 * S).plan();
    assert_eq!((plan.status, plan.closed.len()), (None, 1));
    scene.closed = plan.closed;
    scene.answer("app", AnswerState::Refused, Some(AnswerReason::RequestOver));
    scene.settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    assert_eq!(scene.states(), [state("app", Phase::Pending, false)]);
}

/// A new leader has not seen when the request began.
#[test]
fn an_end_that_another_process_decided_upon_is_told_from_what_the_daemon_says() {
    let ended = |deadline: Option<i64>, by: &str| {
        let mut scene = Scene::ordered(&["app"]);
        scene.request.spec.active_deadline_seconds = deadline;
        scene.answer("app", AnswerState::Refused, Some(AnswerReason::RequestOver));
        scene.answers.iter_mut().for_each(|answer| by.clone_into(&mut answer.acknowledged_by));
        scene.settle();
        scene
    };
    let deadline = "recreating has exceeded the activeDeadlineSeconds";
    let silent = "daemon has not responded for a long time";
    assert_ended(&ended(Some(600), "daemon-1"), "DeadlineExceeded", deadline);
    assert_ended(&ended(Some(600), ""), "DaemonNotResponding", silent);
    assert_ended(&ended(None, ""), "DaemonNotResponding", silent);
    assert_ended(&ended(Some(60), ""), "DeadlineExceeded", deadline);
}
