//! From acceptance to success.

use super::*;

#[test]
fn a_growth_takes_five_writes() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Proposed), "Proposing"));
    assert_eq!(scene.cpu_limit(), Some(300));
    assert_eq!(scene.planned(), (Phase::Proposed, "WaitingForKubelet".into()), "the kubelet has not seen it");
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    assert_eq!(scene.writes, 5, "acceptance, patch, order, end, and the order dropped");
    let container = &scene.resize.status.containers[0];
    assert_eq!(container.original.limits.cpu.as_deref(), Some("200m"));
    assert_eq!(container.actual.as_ref().unwrap().limits.cpu.as_deref(), Some("300m"));
    assert_eq!(scene.resize.status.message, "app: limits.cpu 200m -> 300m");
    let settled = scene.plan();
    assert_eq!(settled, Plan::default(), "nothing follows the end");
}

/// Both conditions are absent before the kubelet has seen the change, too.
#[test]
fn no_condition_alone_is_no_success() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.settle();
    scene.observe_spec();
    scene.settle();
    assert_eq!(scene.planned(), (Phase::InProgress, "WaitingForKubelet".into()), "it has the old limit");
    // A kubelet without `observedGeneration` (1.33).
    scene.pod.as_mut().unwrap().observed_generation = None;
    assert_eq!(scene.planned().0, Phase::InProgress);
    scene.status("app").actual = Some(Resources { cpu_limit: Some(300), ..container("app").resources });
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

#[test]
fn what_the_kubelet_rounds_is_what_was_asked_for() {
    let spec = json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"requests": {"cpu": "111m"}}}]});
    for (reported, phase) in [(110, Phase::Succeeded), (112, Phase::Succeeded), (109, Phase::Proposed)] {
        let mut scene = Scene::new(spec.clone());
        scene.settle();
        scene.done();
        scene.status("app").actual =
            Some(Resources { cpu_request: Some(reported), ..container("app").resources });
        scene.settle();
        assert_eq!(scene.stored().0, Some(phase), "{reported}");
    }
}

#[test]
fn the_kubelets_words_are_passed_on() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.settle();
    scene.pending("Deferred", "Node didn't have enough resource: cpu");
    assert_eq!(scene.planned(), (Phase::Deferred, "NodeBusy".into()));
    let pod = scene.pod.as_mut().unwrap();
    pod.resize.pending = None;
    pod.resize.in_progress = Some(Explanation::default());
    assert_eq!(scene.planned(), (Phase::InProgress, "WaitingForKubelet".into()));
    for (message, reason) in [
        (
            "cannot decrease memory limits: attempting to set pod memory limit (1) below current usage (2)",
            "MemoryInUse",
        ),
        ("rpc error", "RuntimeError"),
    ] {
        let error = Explanation { reason: "Error".into(), message: message.into() };
        scene.pod.as_mut().unwrap().resize.in_progress = Some(error);
        assert_eq!(scene.planned(), (Phase::InProgress, reason.into()));
    }
    scene.done();
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

#[test]
fn what_the_spec_says_already_is_followed_and_not_patched() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.container("app").resources.cpu_limit = Some(300);
    scene.settle();
    assert_eq!(scene.writes, 1, "somebody's patch is still under way in the kubelet");
    scene.status("app").actual = Some(scene.container("app").resources);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    assert!(scene.resize.status.message.contains("already has these resources"));
}

#[test]
fn a_policy_that_restarts_needs_a_new_container_that_is_ready() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.container("app").restart_for.cpu = true;
    scene.settle();
    assert!(scene.resize.status.containers[0].restarts);
    scene.done();
    assert_eq!(scene.planned(), (Phase::InProgress, "WaitingForRestart".into()), "the old one still runs");
    let status = scene.status("app");
    (status.container_id, status.restart_count, status.ready) = (id(2), 1, false);
    assert_eq!(scene.planned().1, "WaitingForRestart");
    scene.status("app").ready = true;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

#[test]
fn a_container_that_does_not_run_is_waited_for() {
    let mut scene = Scene::new(grow(&json!({})));
    let waiting = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() };
    scene.status("app").state = waiting;
    scene.settle();
    assert_eq!(scene.resize.status.containers[0].container_id, "", "none ran");
    scene.done();
    assert_eq!(scene.planned().1, "WaitingForRestart");
    scene.status("app").state = ContainerState::Running;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_would_be() {
    let mut scene = Scene::new(grow(&json!({"dryRun": true})));
    scene.container("app").restart_for.cpu = true;
    let before = scene.pod.clone();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "WouldResize"));
    assert_eq!(scene.pod, before);
    assert_eq!(scene.resize.status.message, "dry run: app: limits.cpu 200m -> 300m; restarts app");
    let mut scene = Scene::new(grow(&json!({"dryRun": true})));
    scene.act();
    scene.refuse("exceeded quota: q");
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Quota"));
    assert_eq!(scene.resize.status.message, "dry run: exceeded quota: q");
    let mut scene = Scene::new(grow(&json!({"dryRun": true})));
    scene.act();
    scene.container("app").resources.cpu_request = Some(150);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Superseded"), "not what was resolved");
}

#[test]
fn only_the_amounts_that_change_are_patched() {
    let spec = json!({"podRef": {"name": "web"}, "containers": [
        {"name": "app", "resources": {"requests": {"cpu": "100m", "memory": "+50%"}, "limits": {"memory": "256Mi"}}},
        {"name": "proxy", "resources": {"limits": {"cpu": "200m"}}}]});
    let mut scene = Scene::new(spec);
    scene.container("app").kind = ContainerKind::Sidecar;
    scene.act();
    let sizing = scene.plan().sizing.unwrap();
    assert_eq!(sizing.containers.len(), 1, "proxy has that limit");
    let change = &sizing.containers[0];
    assert!(change.init && change.container == "app" && !sizing.dry_run);
    let expected =
        Resources { memory_request: Some(96 * MI), memory_limit: Some(256 * MI), ..Resources::default() };
    assert_eq!(change.resources, expected);
}

#[test]
fn a_resize_that_is_over_is_deleted_in_time() {
    let mut scene = Scene::new(grow(&json!({"ttlSecondsAfterFinished": 60})));
    scene.settle();
    scene.done();
    scene.settle();
    assert_eq!(scene.plan().wake_at, Some(Mono(60_000)));
    scene.later(60);
    assert!(scene.plan().delete);
}
