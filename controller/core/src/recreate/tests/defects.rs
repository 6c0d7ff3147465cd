//! Defects of `OpenKruise` that must not exist here and that no other test covers. Each test's name begins with its row
//! of `docs/design/kruise-defects.md`.

use pitstop_api::recreate::RecreateStrategy;

use super::super::admission::create;
use super::super::status::notes;
use super::*;
use crate::review::{Hooks, Response};

const DAY: i64 = 86_400;

/// Runs the test with a wall clock that jumps a day ahead and back between two steps.
fn with_jumps(run: impl Fn(&mut dyn FnMut(&mut Scene))) {
    for first in [DAY, -DAY] {
        let mut wrong_by = first;
        run(&mut |scene| {
            scene.wrong_by = wrong_by;
            wrong_by = -wrong_by;
        });
    }
}

#[test]
fn k2_a_daemon_has_its_minute_whatever_the_wall_clock_says() {
    with_jumps(|jump| {
        let mut scene = Scene::ordered(&["app"]);
        scene.settle();
        jump(&mut scene);
        scene.at(59_999).settle();
        assert!(!scene.request.completed());
        jump(&mut scene);
        scene.at(60 * S).settle();
        assert_ended(&scene, "DaemonNotResponding", "daemon has not responded for a long time");
    });
}

#[test]
fn k3_a_deadline_counts_from_when_the_request_was_seen_whatever_the_wall_clock_says() {
    with_jumps(|jump| {
        let mut scene = Scene::admitted(&["app"]);
        scene.request.spec.active_deadline_seconds = Some(5);
        jump(&mut scene);
        scene.request.created = wall(Mono(0)).timestamp() + scene.wrong_by;
        scene.settle();
        scene.acknowledge("app");
        jump(&mut scene);
        scene.at(4999).settle();
        assert!(!scene.request.completed());
        jump(&mut scene);
        scene.at(5 * S).settle();
        assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    });
}

#[test]
fn k4_a_time_to_live_counts_from_when_the_end_was_seen_whatever_the_completion_time_says() {
    with_jumps(|jump| {
        let mut scene = Scene::ordered(&["app"]);
        scene.request.spec.ttl_seconds_after_finished = Some(3);
        scene.acknowledge("app");
        scene.restarts("app", true);
        jump(&mut scene);
        scene.at(10 * S).settle();
        let completed = scene.request.status.completion_time.unwrap();
        assert_eq!((completed - wall(Mono(10 * S))).num_seconds(), scene.wrong_by);
        jump(&mut scene);
        assert!(!scene.at(13 * S - 1).plan().delete);
        assert!(scene.at(13 * S).plan().delete);
        // Another process sees the end anew.
        scene.memory = Memory::new(Mono(20 * S));
        assert_eq!(scene.at(20 * S).plan().wake_at, Some(Mono(23 * S)));
    });
}

#[test]
fn k6_min_started_seconds_pass_whatever_the_wall_clock_says() {
    with_jumps(|jump| {
        let mut scene = Scene::admitted(&["app"]);
        scene.request.spec.strategy =
            Some(RecreateStrategy { min_started_seconds: 5, ..RecreateStrategy::default() });
        scene.settle();
        scene.acknowledge("app");
        scene.at(10 * S).restarts("app", true);
        jump(&mut scene);
        scene.settle();
        jump(&mut scene);
        scene.at(15 * S - 1).settle();
        assert!(!scene.request.completed());
        scene.at(15 * S).settle();
        assert_ended(&scene, "Complete", "");
    });
}

#[test]
fn d11_every_failed_end_names_the_containers_that_were_not_restarted() {
    type End = fn(&mut Scene);
    let cases: [(End, &str, &str); 4] = [
        (|_| (), "DeadlineExceeded", "not restarted: sidecar"),
        (
            |s| {
                s.pod = None;
                s.at(50 * S).settle();
            },
            "PodGone",
            "not restarted: sidecar",
        ),
        (
            |s| s.answer("sidecar", AnswerState::Failed, Some(AnswerReason::StopFailed)),
            "ContainerFailed",
            "told so; not restarted: sidecar",
        ),
        (
            |s| {
                s.pod.as_mut().unwrap().restart_policy = crate::pod::RestartPolicy::Never;
                s.ends("sidecar", 0);
            },
            "ContainerFailed",
            "not restarted: sidecar",
        ),
    ];
    for (end, why, names) in cases {
        let mut scene = Scene::ordered(&["app", "sidecar"]);
        scene.request.spec.active_deadline_seconds = Some(100);
        scene.acknowledge("app");
        scene.restarts("app", true);
        scene.request.status = scene.plan().status.unwrap().status;
        scene.acknowledge("sidecar");
        end(&mut scene);
        scene.at(100 * S).settle();
        assert_eq!(outcome(&scene).1, why);
        let conditions = &scene.request.status.conditions;
        for type_ in [conditions::FAILED, conditions::COMPLETE] {
            let message = &conditions.iter().find(|c| c.type_ == type_).unwrap().message;
            assert!(message.ends_with(names), "{type_}: {message}");
        }
    }
}

#[test]
fn d15_an_app_that_never_turns_ready_says_so_and_ends_at_the_deadline() {
    let mut scene = Scene::ordered(&["app"]);
    scene.acknowledge("app");
    scene.restarts("app", false);
    assert_eq!(waits_for(&scene.at(60 * S).plan()), "ContainerNotReady");
    scene.at(3599 * S).settle();
    assert!(!scene.request.completed());
    scene.at(3600 * S).settle();
    assert_ended(&scene, "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds");
    assert_eq!(scene.states(), [state("app", Phase::Recreating, true)]);
    assert!(!scene.request.started_for(scene.pod.as_ref().unwrap()), "and so holds its Pod no longer");
}

#[test]
fn d16_a_node_name_that_is_too_long_for_a_label_is_served() {
    let node = "n".repeat(70);
    let mut scene = Scene::admitted(&["app"]);
    scene.pod.as_mut().unwrap().node = Some(node.clone());
    let Response::Allow(patch) = create(&raw(&["app"]), scene.pod.as_ref(), &Hooks::new(), false) else {
        panic!("refused")
    };
    let label = patch[0]["value"][labels::NODE_NAME].as_str().unwrap().to_owned();
    assert!(label.len() <= 63 && label.starts_with("node-"), "{label}");
    // Without the webhook, the controller sets the same label; it uses the full name itself.
    scene.request.more.labels.clear();
    scene.settle();
    assert_eq!(scene.request.more.labels[labels::NODE_NAME], label);
    assert_eq!(scene.request.status.target.as_ref().unwrap().node_name, node);
    assert_eq!(scene.orders.len(), 1);
}

#[test]
fn d30_events_tell_who_restarts_what_and_which_container_replaced_which() {
    let mut scene = Scene::admitted(&["app"]);
    let before = scene.request.status.clone();
    scene.settle();
    let started = notes(&scene.request, &before);
    assert_eq!(started.len(), 1);
    assert_eq!((started[0].reason, started[0].warning), ("RecreateStarted", false));
    assert_eq!(started[0].message, "Request shop/crr restarts container(s) app");
    assert_eq!(started[0].pod, Some((ObjectKey::new("shop", "web"), "pod-1".into())), "on the Pod too");

    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.status("app", |s| s.container_id = format!("containerd://{}", "c".repeat(64)));
    let before = scene.request.status.clone();
    scene.settle();
    let ended = notes(&scene.request, &before);
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].reason, ended[0].warning), ("RecreateCompleted", false));
    assert!(ended[0].message.ends_with("(app: a00000000000 -> cccccccccccc)"), "{}", ended[0].message);

    let mut scene = Scene::ordered(&["app"]);
    let before = scene.request.status.clone();
    scene.pod = None;
    scene.at(10 * S).settle();
    let failed = notes(&scene.request, &before);
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].reason, failed[0].warning), ("RecreateFailed", true));
    assert!(failed[0].message.contains("(PodGone)"), "{}", failed[0].message);
}
