//! From an order to a container that is up again.

use super::*;
use crate::pod::RestartPolicy;

#[test]
fn a_container_of_another_id_that_is_ready_has_been_restarted() {
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    scene.settle();
    scene.ends("app", 143);
    scene.settle();
    scene.restarts("app", false);
    assert_eq!(waits_for(&scene.plan()), "ContainerNotReady");
    scene.status("app", |s| s.ready = true);
    scene.at(2 * S).settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, true)]);
    let status = &scene.request.status;
    assert_eq!(status.completion_time, Some(wall(Mono(2 * S))));
    let snapshot = &status.container_status_snapshot[0];
    assert_eq!((snapshot.container_id.clone(), snapshot.restart_count), (id("app", 2), 2));
    assert!(!scene.request.more.labels.contains_key(labels::ACTIVE));
    assert!(scene.orders.is_empty());
}

#[test]
fn what_happens_meanwhile_is_written_later_and_with_its_reason() {
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    let plan = scene.plan();
    assert_eq!(waits_for(&plan), "Stopping");
    let write = plan.status.unwrap();
    assert_eq!(write.urgency, Urgency::Later);
    assert_eq!(write.status.container_recreate_states, [state("app", Phase::Pending, false)]);
    scene.ends("app", 137);
    let plan = scene.plan();
    assert_eq!(waits_for(&plan), "WaitingForRestart");
    let states = plan.status.unwrap().status.container_recreate_states;
    assert_eq!(states, [state("app", Phase::Recreating, true)]);
}

#[test]
fn a_done_answer_shows_before_the_pods_status_does() {
    let mut scene = Scene::ordered(&["app"]);
    scene.answer("app", AnswerState::Done, None);
    let plan = scene.plan();
    assert_eq!(waits_for(&plan), "WaitingForRestart");
    let states = plan.status.unwrap().status.container_recreate_states;
    assert_eq!(states, [state("app", Phase::Recreating, true)]);
    assert_eq!(plan.orders, scene.orders, "the order stays until the end");
}

#[test]
fn an_old_status_of_the_pod_is_no_restart() {
    let mut scene = Scene::ordered(&["app"]);
    for old in [ContainerState::Running, ContainerState::Terminated { exit_code: 1 }] {
        scene.status("app", |s| {
            s.container_id = id("app", 0);
            s.restart_count = 0;
            s.state = old;
        });
        let plan = scene.plan();
        assert_eq!(plan.status, None, "still pending");
        assert_eq!(plan.orders, scene.orders);
    }
    let waiting = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() };
    scene.status("app", |s| s.state = waiting);
    assert_eq!(scene.plan().status, None, "the wait is that of an older instance");
    scene.status("app", |s| s.container_id.clear());
    assert_eq!(scene.plan().status, None, "it is that of the very first one");
    scene.orders.clear();
    assert!(scene.plan().orders.is_empty(), "an instance that is not there yet is not ordered");
}

#[test]
fn phases_never_go_back() {
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    scene.ends("app", 1);
    scene.request.status = scene.plan().status.unwrap().status;
    assert_eq!(scene.states(), [state("app", Phase::Recreating, true)]);
    scene.status("app", |s| s.state = ContainerState::Running);
    assert!(
        scene
            .plan()
            .status
            .is_none_or(|w| w.status.container_recreate_states == [state("app", Phase::Recreating, true)])
    );
    scene.pod.as_mut().unwrap().containers[0].status = None;
    let plan = scene.plan();
    assert!(
        plan.status
            .is_none_or(|w| w.status.container_recreate_states == [state("app", Phase::Recreating, true)])
    );
}

#[test]
fn one_restart_of_two_is_half_the_work() {
    let mut scene = Scene::ordered(&["app", "sidecar"]);
    scene.acknowledge("app");
    scene.restarts("app", true);
    let plan = scene.plan();
    assert_eq!(waits_for(&plan), "WaitingForDaemon");
    scene.request.status = plan.status.unwrap().status;
    assert_eq!(
        scene.states(),
        [state("app", Phase::Succeeded, true), state("sidecar", Phase::Pending, false)]
    );
    // A later crash of the first is not the request's concern.
    scene.ends("app", 1);
    scene.acknowledge("sidecar");
    scene.restarts("sidecar", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}

#[test]
fn a_crash_loop_is_waited_out_and_nobody_is_said_to_be_killed() {
    let mut scene = Scene::admitted(&["app"]);
    let waiting =
        ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: "back-off 5m0s".into() };
    scene.status("app", |s| {
        s.ready = false;
        s.state = waiting;
    });
    scene.act();
    let plan = scene.plan();
    assert!(plan.orders.is_empty(), "there is nothing to stop");
    assert_eq!(waits_for(&plan), "ContainerNotStarted");
    let status = plan.status.unwrap().status;
    assert!(status.conditions.iter().any(|c| c.message.ends_with("app: CrashLoopBackOff: back-off 5m0s")));
    assert_eq!(status.container_recreate_states, [state("app", Phase::Recreating, false)]);
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, false)]);
}

#[test]
fn a_container_that_the_runtime_forgot_has_ended() {
    let mut scene = Scene::ordered(&["app"]);
    let creating = ContainerState::Waiting { reason: "ContainerCreating".into(), message: String::new() };
    scene.status("app", |s| {
        s.container_id.clear();
        s.state = creating;
    });
    let status = scene.plan().status.unwrap().status;
    assert_eq!(status.container_recreate_states, [state("app", Phase::Recreating, false)]);
}

#[test]
fn a_kubelet_that_gives_no_reason_is_waited_for_with_our_own() {
    let mut scene = Scene::ordered(&["app"]);
    let state = ContainerState::Waiting { reason: String::new(), message: String::new() };
    scene.status("app", |s| s.state = state);
    assert_eq!(waits_for(&scene.plan()), "WaitingForRestart", "a condition must have a reason");
}

/// The answers of `docs/design/order-protocol.md`.
#[test]
fn each_answer_says_whether_the_container_has_ended_and_whether_our_stop_ends_it() {
    use AnswerState::{Acknowledged, Done, Failed, Refused};
    for (answer, why, ended, kills) in [
        (Acknowledged, None, false, true),
        (Acknowledged, Some(AnswerReason::PreStopHookFailed), false, true),
        (Acknowledged, Some(AnswerReason::StopRetried), false, true),
        (Done, None, true, true),
        (Done, Some(AnswerReason::PreStopHookFailed), true, true),
        (Done, Some(AnswerReason::EndedByItself), true, false),
        (Refused, Some(AnswerReason::NotRunning), true, false),
        (Refused, Some(AnswerReason::WrongContainer), false, false),
        (Refused, Some(AnswerReason::InvalidOrder), false, false),
        (Failed, Some(AnswerReason::StopFailed), false, false),
    ] {
        let mut scene = Scene::ordered(&["app"]);
        scene.answer("app", answer, why);
        let view = OrderView { order: &scene.orders[0], answer: scene.answers.first(), closed: false };
        assert_eq!((view.ended(), view.kills()), (ended, kills), "{answer:?} {why:?}");
    }
}

#[test]
fn killed_means_that_our_stop_ended_it() {
    let cases = [
        (None, None, false),
        (Some(AnswerState::Acknowledged), None, true),
        (Some(AnswerState::Done), None, true),
        (Some(AnswerState::Done), Some(AnswerReason::EndedByItself), false),
        (Some(AnswerState::Refused), Some(AnswerReason::NotRunning), false),
    ];
    for (answer, why, killed) in cases {
        let mut scene = Scene::ordered(&["app"]);
        if let Some(answer) = answer {
            scene.answer("app", answer, why);
        }
        scene.restarts("app", true);
        scene.settle();
        assert_eq!(scene.states(), [state("app", Phase::Succeeded, killed)], "{answer:?} {why:?}");
    }
    // Acknowledged and seen to end, but the daemon says that it came too late.
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    scene.ends("app", 1);
    scene.request.status = scene.plan().status.unwrap().status;
    scene.answer("app", AnswerState::Done, Some(AnswerReason::EndedByItself));
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(scene.states(), [state("app", Phase::Succeeded, false)]);
}

#[test]
fn a_container_that_the_kubelet_will_not_start_again_fails() {
    let mut scene = Scene::ordered(&["app"]);
    scene.pod.as_mut().unwrap().restart_policy = RestartPolicy::OnFailure;
    scene.acknowledge("app");
    scene.ends("app", 0);
    // The Pod finishes with its last container.
    scene.pod.as_mut().unwrap().finished = true;
    scene.settle();
    assert_ended(&scene, "ContainerFailed", "");
    let state = &scene.states()[0];
    assert_eq!((state.phase, state.is_killed), (Phase::Failed, true));
    assert!(state.message.contains("exit code 0"), "{}", state.message);
    let failed = scene.request.status.conditions.iter().find(|c| c.type_ == conditions::FAILED).unwrap();
    assert!(failed.message.ends_with("not restarted: app"), "{}", failed.message);

    let mut scene = Scene::ordered(&["app"]);
    scene.pod.as_mut().unwrap().restart_policy = RestartPolicy::OnFailure;
    scene.acknowledge("app");
    scene.ends("app", 143);
    scene.settle();
    assert!(!scene.request.completed(), "an error is restarted");
}

#[test]
fn a_failed_or_refused_stop_fails_the_request() {
    let cases = [
        (AnswerState::Failed, Some(AnswerReason::StopFailed)),
        (AnswerState::Refused, Some(AnswerReason::WrongContainer)),
        (AnswerState::Refused, Some(AnswerReason::InvalidOrder)),
        (AnswerState::Refused, None),
    ];
    for (answer, why) in cases {
        let mut scene = Scene::ordered(&["app", "sidecar"]);
        scene.answer("app", answer, why);
        let plan = scene.act();
        assert_eq!(plan.status, None, "first the order that nobody took up is withdrawn");
        assert_eq!(plan.orders.len(), 1);
        scene.settle();
        assert_ended(&scene, "ContainerFailed", "");
        let failed = ContainerRecreateState {
            message: "kill container error: told so".into(),
            ..state("app", Phase::Failed, false)
        };
        assert_eq!(scene.states(), [failed, state("sidecar", Phase::Pending, false)]);
        assert!(scene.orders.is_empty());
    }
}

#[test]
fn a_container_that_was_gone_before_the_stop_is_waited_for() {
    let mut scene = Scene::ordered(&["app"]);
    scene.answer("app", AnswerState::Refused, Some(AnswerReason::NotRunning));
    scene.settle();
    assert!(!scene.request.completed());
    assert_eq!(waits_for(&scene.plan()), "WaitingForRestart");
    scene.restarts("app", true);
    scene.settle();
    assert_ended(&scene, "Complete", "");
}
