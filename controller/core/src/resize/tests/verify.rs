//! Verification of the kernel's values.

use super::*;

/// A request that the kubelet reports as done, and a daemon.
fn sized(daemon: Daemon) -> Scene {
    let mut scene = Scene::new(grow(&json!({"activeDeadlineSeconds": 600})));
    scene.daemon = daemon;
    scene.settle();
    scene.done();
    scene.settle();
    scene
}

#[test]
fn the_daemons_word_is_written_down() {
    let scene = sized(Daemon::Right);
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    assert_eq!(scene.verified(), (ConditionStatus::True, "CgroupsMatch"));
    let cgroup = scene.resize.status.containers[0].cgroup.unwrap();
    assert_eq!((cgroup.container.cpu_quota, cgroup.pod.cpu_quota), (Some(30_000), Some(50_000)));
    assert!(scene.orders.is_empty(), "what is over asks nobody");
}

#[test]
fn a_kernel_that_has_something_else_is_asked_again() {
    let mut scene = sized(Daemon::Differs);
    assert_eq!(scene.planned(), (Phase::Verifying, "KernelDiffers".into()));
    assert_eq!(scene.orders[0].id, "prs-1/app/1");
    assert_eq!(scene.plan().wake_at, Some(Mono(2_000)));
    scene.later(2);
    scene.settle();
    assert_eq!(scene.orders[0].id, "prs-1/app/2", "an order never changes");
    scene.later(2);
    scene.daemon = Daemon::Right;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
    assert_eq!(scene.verified(), (ConditionStatus::True, "CgroupsMatch"));
}

/// Number of the latest question at each second.
fn asked_until(scene: &mut Scene, seconds: u64) -> Vec<u32> {
    let mut last = Vec::new();
    for _ in 0..seconds {
        scene.later(1);
        scene.settle();
        last.extend(scene.orders.iter().map(|order| pitstop_api::nodework::order_attempt(&order.id)));
    }
    last
}

#[test]
fn what_the_kubelet_says_that_it_did_stays_whatever_the_kernel_has() {
    let mut scene = sized(Daemon::Differs);
    let asked = asked_until(&mut scene, 119);
    assert_eq!(asked.last(), Some(&7), "2, 4, 8, 16, 32 and 64 seconds after the first: {asked:?}");
    assert_eq!(scene.planned(), (Phase::Verifying, "KernelDiffers".into()));
    assert_eq!(scene.plan().wake_at, Some(Mono(120_000)));
    scene.later(1);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    assert_eq!(scene.verified(), (ConditionStatus::False, "KernelDiffers"));
    let found = condition::find(&scene.resize.status.conditions, conditions::VERIFIED).unwrap();
    assert!(found.message.contains("cpu.cfs_quota_us holds 60000"), "{}", found.message);
    assert!(scene.resize.status.message.contains("the kernel has other values"));
    assert_eq!(scene.cpu_limit(), Some(300), "nothing is taken back");
    assert!(scene.orders.is_empty());
}

#[test]
fn a_deadline_ends_the_wait_for_the_kernel_and_takes_nothing_back() {
    for (daemon, status, reason) in [
        (Daemon::Differs, ConditionStatus::False, "KernelDiffers"),
        (Daemon::Silent, ConditionStatus::Unknown, "DaemonNotResponding"),
    ] {
        let mut scene = Scene::new(grow(&json!({"activeDeadlineSeconds": 10})));
        scene.daemon = daemon;
        scene.settle();
        scene.done();
        scene.settle();
        scene.later(10);
        scene.settle();
        assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
        assert_eq!(scene.verified(), (status, reason));
        assert_eq!(scene.cpu_limit(), Some(300));
    }
    let mut scene = Scene::new(grow(&json!({"activeDeadlineSeconds": 10})));
    scene.settle();
    scene.later(10);
    scene.settle();
    assert_eq!(scene.cpu_limit(), Some(200), "the kubelet has not reported it: taken back");
}

#[test]
fn where_the_kubelet_sets_no_quota_none_is_missed() {
    let memory = json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"limits": {"memory": "256Mi"}}}]});
    for spec in [memory, grow(&json!({}))] {
        let mut scene = Scene::new(spec);
        scene.daemon = Daemon::NoQuota;
        scene.settle();
        scene.done();
        // `convertToAPIContainerStatuses` of the kubelet: without a quota it reports the old limit for ever.
        scene.status("app").actual.as_mut().unwrap().cpu_limit = Some(200);
        scene.settle();
        if !scene.resize.completed() {
            assert_eq!(scene.planned(), (Phase::InProgress, "WaitingForKubelet".into()));
            assert_eq!(scene.plan().wake_at, Some(Mono(10_000)), "it may still report");
            scene.later(10);
            scene.settle();
        }
        assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
        assert_eq!(scene.verified(), (ConditionStatus::True, "CPUQuotaNotSet"));
    }
}

/// The kubelet has reported the resize as done, though with another limit.
#[test]
fn a_deadline_takes_nothing_back_where_the_kubelet_tells_the_limit_of_before() {
    let mut scene = Scene::new(grow(&json!({"activeDeadlineSeconds": 9})));
    scene.daemon = Daemon::NoQuota;
    scene.settle();
    scene.done();
    scene.status("app").actual.as_mut().unwrap().cpu_limit = Some(200);
    scene.settle();
    scene.later(9);
    scene.settle();
    assert_eq!(scene.cpu_limit(), Some(300));
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
}

/// The old limit counts only if the kubelet reports `observedGeneration` and no condition.
#[test]
fn a_limit_that_is_not_told_yet_counts_only_where_the_kubelet_counts() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.settle();
    scene.done();
    scene.pod.as_mut().unwrap().observed_generation = None;
    scene.status("app").actual.as_mut().unwrap().cpu_limit = Some(200);
    scene.settle();
    scene.later(60);
    scene.settle();
    assert_eq!(scene.planned(), (Phase::InProgress, "WaitingForKubelet".into()));
    scene.observe_spec();
    scene.pod.as_mut().unwrap().resize.in_progress = Some(Explanation::default());
    scene.later(60);
    scene.settle();
    assert_eq!(scene.planned().0, Phase::InProgress);
}

/// Then nothing shows that the kubelet sets no quota: it may have done nothing.
#[test]
fn a_first_limit_without_a_quota_is_a_difference_unless_the_weight_shows_that_it_was_written() {
    for (cpu, expected) in [
        (json!({"limits": {"cpu": "300m"}}), (ConditionStatus::False, "KernelDiffers")),
        (
            json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "300m"}}),
            (ConditionStatus::True, "CPUQuotaNotSet"),
        ),
    ] {
        let container = json!({"name": "app", "resources": cpu});
        let mut scene = Scene::new(json!({"podRef": {"name": "web"}, "containers": [container]}));
        scene.container("app").resources.cpu_limit = None;
        scene.status("app").actual.as_mut().unwrap().cpu_limit = None;
        scene.daemon = Daemon::NoQuota;
        scene.settle();
        scene.done();
        scene.settle();
        scene.later(120);
        scene.settle();
        assert_eq!((scene.stored(), scene.verified()), ((Some(Phase::Succeeded), "Resized"), expected));
    }
}

#[test]
fn a_daemon_that_cannot_tell_holds_nothing_up() {
    for (reason, expected) in [
        (AnswerReason::CgroupUnreadable, "CgroupUnreadable"),
        // A daemon that does not know such orders.
        (AnswerReason::InvalidOrder, "VerifyRefused"),
    ] {
        let scene = sized(Daemon::Answers(AnswerState::Failed, reason));
        assert_eq!(scene.stored().0, Some(Phase::Succeeded));
        assert_eq!(scene.verified(), (ConditionStatus::Unknown, expected));
    }
    for guarded in [true, false] {
        let mut scene = sized(Daemon::Silent);
        assert_eq!(scene.planned(), (Phase::Verifying, "Verifying".into()));
        scene.guarded = guarded;
        scene.later(60);
        scene.settle();
        assert_eq!(scene.stored().0, Some(Phase::Succeeded));
        assert_eq!(scene.verified(), (ConditionStatus::Unknown, "DaemonNotResponding"));
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
    assert_eq!(scene.planned(), (Phase::Verifying, "WaitingForPolicy".into()));
}

#[test]
fn another_instance_is_asked_about_anew() {
    let mut scene = sized(Daemon::Answers(AnswerState::Refused, AnswerReason::NotRunning));
    assert_eq!(scene.planned().1, "Verifying");
    scene.later(1);
    scene.daemon = Daemon::Right;
    scene.status("app").container_id = id(2);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
    let mut scene = sized(Daemon::Answers(AnswerState::Refused, AnswerReason::NotRunning));
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
        {"name": "app", "resources": {"limits": {"cpu": "300m"}}}, {"name": "proxy", "resources": {"limits": {"cpu": "400m"}}}]});
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
    assert_eq!(scene.verified(), (ConditionStatus::True, "CgroupsMatch"));
}
