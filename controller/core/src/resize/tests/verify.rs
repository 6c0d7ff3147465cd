//! What the kernel has.

use super::*;

/// A request of which the kubelet says that it is done, and a daemon.
fn sized(daemon: Daemon) -> Scene {
    let mut scene = Scene::new(grow(&json!({"activeDeadlineSeconds": 600})));
    scene.daemon = daemon;
    scene.settle();
    scene.done();
    scene.settle();
    scene
}

fn verified(scene: &Scene) -> (ConditionStatus, &str) {
    let found = condition::find(&scene.resize.status.conditions, conditions::VERIFIED).unwrap();
    (found.status, found.reason.as_str())
}

#[test]
fn the_daemons_word_is_written_down() {
    let scene = sized(Daemon::Right);
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    assert_eq!(verified(&scene), (ConditionStatus::True, "CgroupsMatch"));
    let cgroup = scene.resize.status.containers[0].cgroup.unwrap();
    assert_eq!((cgroup.container.cpu_quota, cgroup.pod.cpu_quota), (Some(30_000), Some(50_000)));
    assert!(scene.orders.is_empty(), "what is over asks nobody");
}

#[test]
fn a_kernel_that_has_something_else_is_asked_again_until_the_deadline() {
    let mut scene = sized(Daemon::Differs);
    assert_eq!(scene.told(), (Phase::Verifying, "KernelDiffers".into()));
    assert_eq!(scene.orders[0].id, "prs-1/app/1");
    assert_eq!(scene.plan().wake_at, Some(Mono(2_000)));
    scene.later(2);
    scene.settle();
    assert_eq!(scene.orders[0].id, "prs-1/app/2", "an order never changes");
    scene.later(2);
    scene.daemon = Daemon::Right;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
    let mut scene = sized(Daemon::Differs);
    scene.later(600);
    scene.settle();
    assert_eq!(scene.cpu_limit(), Some(200), "taken back");
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "DeadlineExceeded"));
}

#[test]
fn a_daemon_that_cannot_tell_holds_nothing_up() {
    for (reason, told) in [
        (AnswerReason::CgroupUnreadable, "CgroupUnreadable"),
        // One that does not know of such orders.
        (AnswerReason::InvalidOrder, "VerifyRefused"),
    ] {
        let scene = sized(Daemon::Says(AnswerState::Failed, reason));
        assert_eq!(scene.stored().0, Some(Phase::Succeeded));
        assert_eq!(verified(&scene), (ConditionStatus::Unknown, told));
    }
    for guarded in [true, false] {
        let mut scene = sized(Daemon::Silent);
        assert_eq!(scene.told(), (Phase::Verifying, "Verifying".into()));
        scene.guarded = guarded;
        scene.later(60);
        scene.settle();
        assert_eq!(scene.stored().0, Some(Phase::Succeeded));
        assert_eq!(verified(&scene), (ConditionStatus::Unknown, "DaemonNotResponding"));
    }
}

#[test]
fn without_the_policy_no_daemon_is_asked() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.guarded = false;
    scene.settle();
    scene.done();
    scene.settle();
    assert!(scene.orders.is_empty());
    assert_eq!(scene.told(), (Phase::Verifying, "WaitingForPolicy".into()));
}

#[test]
fn another_instance_is_asked_about_anew() {
    let mut scene = sized(Daemon::Says(AnswerState::Refused, AnswerReason::NotRunning));
    assert_eq!(scene.told().1, "Verifying");
    scene.later(1);
    scene.daemon = Daemon::Right;
    scene.status("app").container_id = id(2);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
    let mut scene = sized(Daemon::Says(AnswerState::Refused, AnswerReason::NotRunning));
    scene.later(2);
    scene.settle();
    assert_eq!(scene.orders[0].id, "prs-1/app/2", "the same instance, once more");
}

#[test]
fn no_question_has_the_number_of_an_earlier_one() {
    let mut scene = sized(Daemon::Differs);
    assert_eq!(scene.orders[0].id, "prs-1/app/1");
    scene.status("app").state = ContainerState::Unknown;
    scene.settle();
    scene.status("app").state = ContainerState::Running;
    scene.status("app").container_id = id(2);
    scene.settle();
    assert_eq!(scene.orders[0].id, "prs-1/app/2", "an answer to the first would else be taken for its own");
}

#[test]
fn what_was_asked_stands_until_the_end_is_stored() {
    let mut scene = sized(Daemon::Silent);
    scene.daemon = Daemon::Right;
    scene.answer();
    let plan = scene.plan();
    assert_eq!(plan.status.unwrap().status.phase, Some(Phase::Succeeded));
    assert_eq!(plan.orders, scene.orders, "where that write fails, nothing is asked anew");
}

#[test]
fn every_container_of_the_request_is_asked_about() {
    let spec = json!({"podRef": {"name": "web"}, "containers": [
        {"name": "app", "limits": {"cpu": "300m"}}, {"name": "proxy", "limits": {"cpu": "400m"}}]});
    let mut scene = Scene::new(spec);
    scene.daemon = Daemon::Silent;
    scene.settle();
    scene.done();
    scene.settle();
    assert_eq!(
        scene.orders.iter().map(|o| o.id.as_str()).collect::<Vec<_>>(),
        ["prs-1/app/1", "prs-1/proxy/1"]
    );
    scene.daemon = Daemon::Right;
    scene.answer();
    scene.settle();
    assert_eq!(verified(&scene), (ConditionStatus::True, "CgroupsMatch"));
}
