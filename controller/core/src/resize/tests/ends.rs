//! Ends without success: no change stays that the Pod has not applied.

use super::*;

/// A request whose change is in the Pod's spec.
fn patched(more: &Value) -> Scene {
    let mut scene = Scene::new(grow(more));
    scene.settle();
    assert_eq!(scene.cpu_limit(), Some(300));
    scene
}

/// Carries out the restore of the original resources.
fn restored(scene: &mut Scene) {
    scene.settle();
    assert!(scene.resize.status.restoring.is_some(), "{:?}", scene.resize.status);
    assert_eq!(scene.stored().1, "Restoring");
    assert_eq!(scene.cpu_limit(), Some(200), "{:?}", scene.resize.status);
    scene.done();
    scene.settle();
    assert_eq!(scene.resize.status.restoring, None);
    assert!(
        scene.resize.status.message.ends_with("the original resources are back"),
        "{:?}",
        scene.resize.status
    );
}

#[test]
fn what_the_node_can_never_give_is_taken_back() {
    let mut scene = patched(&json!({}));
    scene.pending("Infeasible", "Node didn't have enough capacity: cpu, requested: 9000, capacity: 2000");
    restored(&mut scene);
    assert_eq!(scene.stored(), (Some(Phase::Infeasible), "NodeCapacity"));
}

#[test]
fn what_the_api_server_knows_to_be_infeasible_is_not_patched() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.act();
    let text = "pods \"web\" is forbidden: node didn't have enough allocatable resources: cpu";
    scene.refuse(text);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Infeasible), "NodeCapacity"));
    assert_eq!((scene.writes, scene.resize.status.message.as_str()), (2, text));
}

#[test]
fn an_api_server_that_is_just_starting_is_asked_again() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.act();
    let text = "pods \"web\" is forbidden: User \"pitstop\" cannot patch resource \"pods/resize\"";
    for _ in 0..3 {
        scene.refuse(text);
        assert!(scene.plan().sizing.is_some());
    }
    scene.later(10);
    scene.act();
    let end = scene.stored().1.to_owned();
    assert_eq!(end, "Refused");
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Refused"));
}

#[test]
fn room_is_waited_for_as_long_as_is_said() {
    let mut scene = patched(&json!({"onDeferred": {"waitSeconds": 30}, "activeDeadlineSeconds": 60}));
    scene.later(5);
    scene.pending("Deferred", "no room");
    scene.settle();
    assert_eq!(scene.plan().wake_at, Some(Mono(35_000)));
    scene.later(30);
    restored(&mut scene);
    assert_eq!(scene.stored(), (Some(Phase::Failed), "NodeBusy"));

    let mut scene = patched(&json!({"activeDeadlineSeconds": 60}));
    scene.pending("Deferred", "no room");
    scene.settle();
    assert_eq!(scene.plan().wake_at, Some(Mono(60_000)), "until the deadline");
    scene.later(60);
    restored(&mut scene);
    assert_eq!(scene.stored(), (Some(Phase::Failed), "DeadlineExceeded"));
    assert!(scene.resize.status.message.contains("activeDeadlineSeconds: no room"));
}

#[test]
fn what_is_cancelled_is_taken_back() {
    let mut scene = patched(&json!({}));
    scene.resize.spec.cancel = true;
    restored(&mut scene);
    assert_eq!(scene.stored(), (Some(Phase::Cancelled), "Cancelled"));
    let mut scene = Scene::new(grow(&json!({"cancel": true})));
    scene.settle();
    assert_eq!((scene.stored().0, scene.writes), (Some(Phase::Cancelled), 1), "nothing was changed");
}

#[test]
fn what_somebody_else_changes_is_not_fought_for() {
    let mut scene = patched(&json!({}));
    scene.container("app").resources.cpu_limit = Some(777);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Superseded"));
    assert_eq!(scene.cpu_limit(), Some(777));
    // Another client's restore is a change too.
    let mut scene = patched(&json!({}));
    assert!(scene.plan().sizing.is_none());
    scene.container("app").resources.cpu_limit = Some(200);
    scene.settle();
    assert_eq!(scene.stored().1, "Superseded");
    assert_eq!(scene.cpu_limit(), Some(200));
    // A later resize begins from the original resources.
    let mut scene = patched(&json!({}));
    scene.newer = Some(ObjectKey::new("shop", "later"));
    restored(&mut scene);
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Superseded"));
    assert!(scene.resize.status.message.contains("shop/later"));
    let mut scene = Scene::new(grow(&json!({})));
    scene.ahead =
        Some(Blocker::Request(Named { kind: crate::resize::ID, key: ObjectKey::new("shop", "earlier") }));
    assert_eq!(scene.planned(), (Phase::Proposed, "Queued".into()));
}

#[test]
fn the_change_waits_for_a_restart_that_has_begun() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.act();
    scene.ahead =
        Some(Blocker::Request(Named { kind: crate::recreate::ID, key: ObjectKey::new("shop", "crr") }));
    let plan = scene.plan();
    assert!(plan.sizing.is_none(), "{plan:?}");
    let status = plan.status.unwrap().status;
    let complete = condition::find(&status.conditions, "Complete").unwrap();
    assert_eq!(complete.reason, "Queued");
    assert_eq!(complete.message, "waits for its turn: ContainerRecreateRequest shop/crr goes first");
    // Its time begins when the restart is over.
    assert_eq!(scene.memory.busy_since, Some(Mono(0)));
    scene.memory.reset_busy(Mono(70_000));
    assert_eq!(scene.memory.busy_since, Some(Mono(70_000)));
    scene.ahead = None;
    assert!(scene.plan().sizing.is_some());
}

#[test]
fn a_pod_that_does_badly_gets_its_resources_back() {
    let watch = json!({"rollbackOnFailure": {"observeSeconds": 20}});
    let badly: [(Event, &str); 3] = [
        (|scene| scene.status("app").oom_killed = id(1), "OOMKilled"),
        (|scene| scene.status("app").restart_count = 1, "Restarted"),
        (|scene| scene.pod.as_mut().unwrap().ready = false, "NotReady"),
    ];
    for (change, reason) in badly {
        let mut scene = patched(&watch);
        scene.done();
        scene.settle();
        assert_eq!(scene.planned(), (Phase::Verifying, "Observing".into()));
        assert_eq!(scene.plan().wake_at, Some(Mono(20_000)));
        change(&mut scene);
        scene.later(20);
        restored(&mut scene);
        assert_eq!(scene.stored(), (Some(Phase::RolledBack), reason));
    }
    let mut scene = patched(&watch);
    scene.done();
    scene.settle();
    scene.later(20);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
}

#[test]
fn what_is_not_watched_does_not_roll_back() {
    let watch = json!({"rollbackOnFailure":
        {"observeSeconds": 20, "oomKill": false, "restarts": false, "notReady": false}});
    let mut scene = patched(&watch);
    scene.done();
    scene.settle();
    let status = scene.status("app");
    (status.oom_killed, status.restart_count) = (id(1), 3);
    scene.pod.as_mut().unwrap().ready = false;
    scene.later(20);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

/// A kill before the request is often the reason for it.
#[test]
fn a_kill_before_the_request_is_no_failure_of_it() {
    let mut scene = Scene::new(grow(&json!({"rollbackOnFailure": {"observeSeconds": 20}})));
    let waiting = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() };
    let status = scene.status("app");
    (status.state, status.oom_killed, status.restart_count) = (waiting, id(1), 4);
    scene.settle();
    scene.done();
    let status = scene.status("app");
    (status.state, status.container_id, status.restart_count) = (ContainerState::Running, id(2), 5);
    scene.settle();
    scene.later(20);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded), "{:?}", scene.resize.status);
    let mut scene = patched(&json!({"rollbackOnFailure": {"observeSeconds": 20}}));
    scene.status("app").oom_killed = id(0);
    scene.done();
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Proposed), "an instance from before");
}

#[test]
fn an_original_that_cannot_be_put_back_is_told() {
    let mut scene = patched(&json!({}));
    scene.resize.spec.cancel = true;
    scene.act();
    assert!(scene.resize.status.restoring.is_some());
    // The refusal may be temporary.
    scene.refuse("exceeded quota: q");
    assert!(scene.plan().sizing.is_some());
    scene.later(60);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Cancelled));
    assert!(scene.resize.status.message.ends_with("could not be put back: exceeded quota: q"));
    let mut scene = patched(&json!({}));
    scene.resize.spec.cancel = true;
    scene.settle();
    scene.pending("Deferred", "no room");
    scene.later(60);
    scene.settle();
    assert!(scene.resize.status.message.ends_with("have them yet: no room"), "{:?}", scene.resize.status);
}

#[test]
fn nothing_ends_while_a_write_may_take_effect() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.act();
    scene.sizing = scene.plan().sizing;
    assert!(scene.sizing.is_some());
    scene.resize.spec.cancel = true;
    let plan = scene.plan();
    assert_eq!((plan.status, &plan.sizing), (None, &scene.sizing), "the same write is repeated");
    scene.sizing = None;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Cancelled));
    assert_eq!(scene.cpu_limit(), Some(200));
}

#[test]
fn a_pod_that_goes_ends_the_request() {
    let mut scene = patched(&json!({}));
    scene.later(10);
    scene.pod.as_mut().unwrap().deleting = true;
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "PodGone"));
    let mut scene = patched(&json!({}));
    scene.later(10);
    scene.pod.as_mut().unwrap().uid = "pod-2".into();
    let before = scene.pod.clone();
    scene.settle();
    assert_eq!((scene.stored().1, scene.pod == before), ("PodGone", true), "another Pod of that name");
}

#[test]
fn a_pod_that_the_watch_has_lost_ends_nothing() {
    let mut scene = patched(&json!({}));
    scene.later(10);
    (scene.pod, scene.found) = (None, Found::There);
    scene.settle();
    assert_eq!(scene.resize.status.completion_time, None);
    scene.later(3600);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "DeadlineExceeded"));
}

/// A new controller process continues from the stored status.
#[test]
fn every_stage_survives_the_loss_of_the_memory() {
    let mut scene = patched(&json!({}));
    scene.memory = Memory::new(scene.now);
    scene.pending("Infeasible", "swap");
    scene.act();
    scene.memory = Memory::new(scene.now);
    restored(&mut scene);
    assert_eq!(scene.stored(), (Some(Phase::Infeasible), "Swap"));
}

/// Kubernetes removes no amount in place. All others are restored, without endless tries.
#[test]
fn what_was_added_stays_and_is_told() {
    let containers =
        json!([{"name": "app", "resources": {"requests": {"cpu": "150m"}, "limits": {"memory": "32Mi"}}}]);
    let mut scene = Scene::new(json!({"podRef": {"name": "web"}, "containers": containers}));
    let app = scene.container("app");
    (app.resources.memory_limit, app.resources.memory_request) = (None, Some(16 * MI));
    scene.done();
    scene.settle();
    scene.resize.spec.cancel = true;
    scene.settle();
    assert_eq!(scene.container("app").resources.cpu_request, Some(100));
    scene.done();
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Cancelled));
    let message = &scene.resize.status.message;
    assert!(message.ends_with("except what cannot be removed in place: limits.memory of app"), "{message}");
    let only_added = json!([{"name": "app", "resources": {"limits": {"memory": "64Mi"}}}]);
    let mut scene = Scene::new(json!({"podRef": {"name": "web"}, "containers": only_added}));
    scene.container("app").resources.memory_limit = None;
    scene.done();
    scene.settle();
    scene.resize.spec.cancel = true;
    scene.done();
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Cancelled));
}

/// The API server would always refuse a limit below the restored request.
#[test]
fn a_limit_that_was_added_stays_above_the_request() {
    let resources = json!({"requests": {"cpu": "330m"}, "limits": {"cpu": 1}});
    let mut scene = Scene::new(
        json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": resources}]}),
    );
    let app = scene.container("app");
    (app.resources.cpu_request, app.resources.cpu_limit) = (Some(64_000), None);
    scene.done();
    scene.settle();
    scene.resize.spec.cancel = true;
    scene.settle();
    let back = scene.container("app").resources;
    assert_eq!((back.cpu_request, back.cpu_limit), (Some(64_000), Some(64_001)));
}

#[test]
fn a_pod_may_be_watched_for_longer_than_the_deadline() {
    let spec = json!({"activeDeadlineSeconds": 30, "rollbackOnFailure": {"observeSeconds": 7200}});
    let mut scene = patched(&spec);
    scene.done();
    scene.settle();
    scene.later(60);
    assert_eq!(scene.planned(), (Phase::Verifying, "Observing".into()));
    scene.later(7200);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

/// The previous leader may have sent the patch just then.
#[test]
fn a_request_that_was_taken_over_does_not_end_before_a_patch_of_before_is_given_up() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.act();
    scene.memory = Memory::new(scene.now);
    scene.resize.spec.cancel = true;
    let plan = scene.plan();
    assert_eq!((plan.status, plan.wake_at), (None, Some(Mono(60_000))));
    scene.later(60);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Cancelled));
}

/// Without `observedGeneration` (1.33), the verdict on an earlier resize stays for a moment.
#[test]
fn a_verdict_of_before_is_not_about_this_resize() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.pending("Infeasible", "requested: 9000");
    scene.pod.as_mut().unwrap().observed_generation = None;
    scene.settle();
    assert_eq!(scene.planned(), (Phase::Proposed, "WaitingForKubelet".into()));
    scene.pod.as_mut().unwrap().resize.pending =
        Some(Explanation { reason: "Infeasible".into(), message: "requested: 300".into() });
    scene.settle();
    assert!(scene.resize.status.restoring.is_some());
}

#[test]
fn a_container_that_ends_for_good_ends_the_request() {
    let mut scene = patched(&json!({}));
    scene.done();
    scene.pod.as_mut().unwrap().restart_policy = crate::pod::RestartPolicy::OnFailure;
    scene.status("app").state = ContainerState::Terminated { exit_code: 0 };
    scene.settle();
    assert!(scene.resize.status.restoring.is_some());
    assert!(scene.resize.status.restoring.as_ref().unwrap().message.contains("will not run again"));
}

/// kstatus takes a request with an old `observedGeneration` for one at work, even after its end.
#[test]
fn a_change_after_the_end_is_seen_and_changes_nothing_else() {
    let mut scene = patched(&json!({}));
    scene.done();
    scene.settle();
    assert!(scene.resize.completed());
    let before = scene.resize.status.clone();
    scene.resize.generation = scene.resize.generation.map(|generation| generation + 1);
    scene.resize.spec.ttl_seconds_after_finished = Some(60);
    scene.settle();
    let seen = PodResizeStatus { observed_generation: scene.resize.generation, ..before };
    assert_eq!(scene.resize.status, seen);
    assert_eq!(scene.plan().status, None);
}

#[test]
fn the_reason_of_another_version_is_no_reason_of_ours() {
    let mut scene = patched(&json!({}));
    let (phase, message) = (Phase::Failed, "as it says".to_owned());
    scene.resize.status.restoring =
        Some(pitstop_api::resize::Restoring { phase, reason: "WhoKnows".to_owned(), message });
    scene.settle();
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Unknown"));
}
