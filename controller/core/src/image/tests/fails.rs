//! Failed updates restore the old images.

use super::*;

/// What the kubelet shows when the old image is back.
fn back(world: &mut World) {
    world.show(|status| {
        status.container_id = id(3);
        status.image_id = format!("registry.example.com/shop/web@{OLD}");
        status.restart_count += 1;
        (status.state, status.ready) = (ContainerState::Running, true);
    });
}

fn waits(reason: &str) -> ContainerState {
    ContainerState::Waiting { reason: reason.into(), message: "the kubelet's words".into() }
}

/// The kubelet has started the new image, and it crashes.
fn crashes(status: &mut ContainerStatus) {
    status.image_id = format!("registry.example.com/shop/web@{NEW}");
    (status.container_id, status.state) = (id(2), waits("CrashLoopBackOff"));
}

#[test]
fn what_does_badly_gets_the_old_image_back_at_once() {
    type Bad = (&'static str, fn(&mut ContainerStatus));
    let all: [Bad; 6] = [
        ("CrashLoopBackOff", |status| {
            (status.container_id, status.state) = (id(2), waits("CrashLoopBackOff"));
        }),
        ("ImagePullBackOff", |status| status.state = waits("ImagePullBackOff")),
        ("ContainerNotStarted", |status| status.state = waits("InvalidImageName")),
        ("ContainerExited", |status| {
            status.state = ContainerState::Terminated { exit_code: 1 };
            (status.container_id, status.restart_count) = (id(2), 1);
        }),
        ("OOMKilled", |status| {
            (status.container_id, status.restart_count, status.oom_killed) = (id(3), 2, id(2));
        }),
        ("Restarted", |status| (status.container_id, status.restart_count) = (id(3), 2)),
    ];
    for (reason, bad) in all {
        let mut world = World::changed(&json!({}));
        world.show(|status| {
            status.image_id = format!("registry.example.com/shop/web@{NEW}");
            bad(status);
        });
        assert_eq!((world.phase(), world.image()), (Phase::RollingBack, "registry.example.com/shop/web:v1"));
        back(&mut world);
        assert_eq!((world.phase(), world.reason()), (Phase::RolledBack, reason));
        assert!(world.update.status.message.ends_with("the old images are back"));
        assert!(world.orders.is_empty());
    }
}

#[test]
fn what_is_never_ready_goes_back_in_time() {
    let mut world = World::changed(&json!({"readyTimeoutSeconds": 20}));
    world.starts(false);
    world.pass(19);
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "ContainerNotReady"));
    world.pass(1);
    assert_eq!(world.phase(), Phase::RollingBack);
    back(&mut world);
    assert_eq!((world.phase(), world.reason()), (Phase::RolledBack, "NotReady"));
}

#[test]
fn what_is_ready_and_then_not_goes_back() {
    let mut world = World::changed(&json!({}));
    world.starts(true);
    world.runs("config-2");
    assert_eq!(world.phase(), Phase::Observing);
    world.show(|status| status.ready = false);
    assert_eq!(world.phase(), Phase::RollingBack);
}

/// A restarted kubelet may report not ready until its next probe (seen on 1.36).
#[test]
fn what_is_not_told_to_be_ready_until_its_next_probe_is_not_blamed() {
    let watched = || {
        let mut world = World::changed(&json!({"observeSeconds": 60, "readyTimeoutSeconds": 5}));
        world.pod.as_mut().unwrap().containers[0].probe_seconds = 10;
        world.starts(true);
        world.runs("config-2");
        world.pass(20);
        world.show(|status| status.ready = false);
        world.pass(11);
        assert_eq!((world.phase(), world.reason()), (Phase::Observing, "Observing"));
        world
    };
    let mut world = watched();
    world.pass(1);
    assert_eq!(world.phase(), Phase::RollingBack);
    // It is watched anew once it is ready again; a flapping container fails.
    let mut world = watched();
    world.show(|status| status.ready = true);
    world.pass(59);
    assert_eq!(world.phase(), Phase::Observing);
    world.pass(1);
    assert_eq!((world.phase(), world.reason()), (Phase::Succeeded, "Updated"));
    let mut world = watched();
    world.show(|status| status.ready = true);
    world.pass(1);
    world.show(|status| status.ready = false);
    assert_eq!(world.phase(), Phase::RollingBack);
    // After a while of readiness, one more loss counts separately: the kubelet has restarted.
    let mut world = watched();
    for expected in [Phase::Observing, Phase::RollingBack] {
        world.show(|status| status.ready = true);
        world.pass(20);
        assert_eq!(world.phase(), Phase::Observing);
        world.show(|status| status.ready = false);
        assert_eq!(world.phase(), expected);
    }
}

#[test]
fn what_runs_something_else_than_was_pulled_goes_back() {
    let mut world = World::changed(&json!({}));
    world.starts(false);
    world.show(|status| {
        status.image_id = format!("registry.example.com/shop/web@sha256:{}", "ab".repeat(32));
        status.ready = true;
    });
    world.runs("config-9");
    assert_eq!(world.phase(), Phase::RollingBack);
    back(&mut world);
    assert_eq!(world.reason(), "OtherImage");
}

#[test]
fn an_image_that_is_to_stay_stays() {
    let mut world = World::changed(&json!({"rollbackOnFailure": false}));
    world.show(crashes);
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "CrashLoopBackOff"));
    assert!(world.image().contains(":v2@"));
}

#[test]
fn who_cancels_in_the_midst_gets_the_old_image_back() {
    let mut world = World::changed(&json!({}));
    world.update.spec.cancel = true;
    world.settle();
    assert_eq!((world.phase(), world.image()), (Phase::RollingBack, "registry.example.com/shop/web:v1"));
    // The old container runs; the kubelet may be about to stop it.
    world.pass(4);
    assert_eq!(world.phase(), Phase::RollingBack);
    world.pass(1);
    assert_eq!((world.phase(), world.reason()), (Phase::Cancelled, "Cancelled"));
    let mut world = World::new(&json!({}));
    world.settle();
    world.update.spec.cancel = true;
    world.settle();
    assert_eq!((world.phase(), world.pod), (Phase::Cancelled, Some(web())));
}

#[test]
fn old_images_that_do_not_come_back_are_told() {
    let mut world = World::changed(&json!({"readyTimeoutSeconds": 20}));
    world.show(crashes);
    world.pass(19);
    assert_eq!(world.phase(), Phase::RollingBack);
    world.pass(1);
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "RollbackFailed"));
}

#[test]
fn an_image_that_somebody_else_sets_is_left_alone() {
    let mut world = World::changed(&json!({}));
    world.pod.as_mut().unwrap().containers[0].image = "registry.example.com/shop/web:v3".into();
    world.settle();
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "Superseded"));
    assert_eq!(world.image(), "registry.example.com/shop/web:v3");
}

#[test]
fn a_restart_by_pin_is_nobody_elses_image() {
    let mut world = World::new(&json!({"suspend": true}));
    world.settle();
    world.pod.as_mut().unwrap().containers[0].image = format!("registry.example.com/shop/web:v1@{OLD}");
    world.pulled();
    assert_eq!(world.phase(), Phase::Pulled);
}

#[test]
fn what_the_api_server_refuses_again_and_again_ends_before_anything_is_pulled() {
    let mut world = World::new(&json!({}));
    world.refuses = Some("no such right".into());
    world.settle();
    assert_eq!((world.phase(), world.reason(), world.orders.len()), (Phase::Failed, "Refused", 0));
    assert_eq!(world.update.status.message, "no such right");
    // The same after the pull: nothing was changed, so nothing is restored.
    let mut world = World::new(&json!({}));
    world.settle();
    world.refuses = Some("no such right".into());
    world.pulled();
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "Refused"));
}

#[test]
fn a_pod_that_is_gone_ends_the_request() {
    let mut world = World::changed(&json!({}));
    world.pod = None;
    world.settle();
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "PodGone"));
}

/// A report right after the change may be about the old image.
#[test]
fn a_new_image_is_not_blamed_for_what_was_so_before() {
    let mut world = World::new(&json!({}));
    world.show(|status| (status.state, status.ready) = (waits("CrashLoopBackOff"), false));
    world.pulled();
    world.pass(100);
    assert_eq!(world.phase(), Phase::Updating, "the old one crashes: a new image may be the cure");
    world.show(|status| status.state = waits("ImagePullBackOff"));
    assert_eq!((world.phase(), world.reason()), (Phase::RollingBack, "RollingBack"));
    assert_eq!(world.update.status.restoring.as_ref().unwrap().reason, "ImagePullBackOff");
}

/// Accepted, pulled and changed, in a Pod whose containers had restarted before.
fn changed_after_a_restart(spec: &Value) -> World {
    let mut world = World::new(spec);
    world.show(|status| status.restart_count = 1);
    world.pulled();
    assert_eq!(world.phase(), Phase::Updating, "{:#?}", world.update.status);
    world
}

/// The kubelet keeps a container in back-off that it started with the same string a short while ago (seen on 1.36).
#[test]
fn old_images_that_are_in_back_off_get_other_strings() {
    let mut world = changed_after_a_restart(&json!({}));
    world.show(crashes);
    let web = "registry.example.com/shop/web";
    assert_eq!(world.image(), format!("{web}:v1"));
    for way in [
        format!("{web}:v1@{OLD}"),
        format!("{web}:v1.back@{OLD}"),
        format!("{web}@{OLD}"),
        format!("{web}:back@{OLD}"),
    ] {
        world.pass(1);
        assert_ne!(world.image(), way, "the report may be about the new image");
        world.pass(1);
        assert_eq!((world.image(), world.phase()), (way.as_str(), Phase::RollingBack));
    }
    world.pass(60);
    back(&mut world);
    assert_eq!((world.phase(), world.reason()), (Phase::RolledBack, "CrashLoopBackOff"));
}

/// The kubelet does not start it yet: it stops the other container first (seen on 1.36, which then started it twice).
#[test]
fn what_waits_for_another_container_to_end_gets_no_other_string() {
    let image = "registry.example.com/shop/web:v2";
    let both = json!({"containers": [{"name": "app", "image": image}, {"name": "sidecar", "image": image}]});
    let mut world = World::new(&both);
    world.pod.as_mut().unwrap().containers.push(container("sidecar"));
    world.show(|status| status.restart_count = 1);
    world.pulled();
    world.starts(true);
    crashes(world.pod.as_mut().unwrap().containers[0].status.as_mut().unwrap());
    world.settle();
    world.pass(20);
    assert_eq!((world.phase(), world.image()), (Phase::RollingBack, "registry.example.com/shop/web:v1"));
    // The other one has stopped, and the kubelet keeps this one in back-off.
    let sidecar = world.pod.as_mut().unwrap().containers[1].status.as_mut().unwrap();
    (sidecar.container_id, sidecar.restart_count) = (id(3), 3);
    sidecar.image_id = format!("registry.example.com/shop/web@{OLD}");
    world.settle();
    assert_eq!(world.image(), format!("registry.example.com/shop/web:v1@{OLD}"));
}

/// The same, if the other container's new image is its old one with another string (seen on 1.36, under kills).
#[test]
fn what_waits_for_the_same_image_to_end_gets_no_other_string() {
    let image = "registry.example.com/shop/web:v2";
    let both = json!({"containers": [{"name": "app", "image": image}, {"name": "sidecar", "image": image}]});
    let mut world = World::new(&both);
    world.pod.as_mut().unwrap().containers.push(container("sidecar"));
    world.show(|status| status.restart_count = 1);
    world.pulled();
    world.starts(true);
    let containers = &mut world.pod.as_mut().unwrap().containers;
    crashes(containers[0].status.as_mut().unwrap());
    containers[1].status.as_mut().unwrap().image_id = format!("registry.example.com/shop/web@{OLD}");
    world.settle();
    world.pass(4);
    assert_eq!((world.phase(), world.image()), (Phase::RollingBack, "registry.example.com/shop/web:v1"));
    // By then, a kubelet that stops the other container has stopped it.
    world.pass(2);
    assert_eq!(world.image(), format!("registry.example.com/shop/web:v1@{OLD}"));
}

/// A kubelet that has never restarted a container does not hold its string back: its report is still about the new
/// image, however long the start of the old one takes.
#[test]
fn an_old_image_that_was_never_restarted_needs_no_other_string() {
    let mut world = World::changed(&json!({}));
    world.show(crashes);
    world.pass(60);
    assert_eq!((world.phase(), world.image()), (Phase::RollingBack, "registry.example.com/shop/web:v1"));
    back(&mut world);
    assert_eq!((world.phase(), world.reason()), (Phase::RolledBack, "CrashLoopBackOff"));
}

/// The kubelet starts the container with the first string just when another one is written, and then stops it for that
/// one (seen on 1.36, under kills), within the Pod's grace period.
#[test]
fn old_images_that_get_other_strings_are_back_once_no_stop_can_follow() {
    let by_another_string = |spec: Value| {
        let mut world = changed_after_a_restart(&spec);
        world.pod.as_mut().unwrap().grace_seconds = Some(30);
        world.show(crashes);
        world.pass(2);
        assert!(world.image().ends_with(&format!("v1@{OLD}")), "{}", world.image());
        back(&mut world);
        world
    };
    let mut world = by_another_string(json!({}));
    world.pass(34);
    assert_eq!(world.phase(), Phase::RollingBack);
    world.show(|status| (status.state, status.ready) = (ContainerState::Terminated { exit_code: 0 }, false));
    world.pass(1);
    assert_eq!(world.phase(), Phase::RollingBack);
    back(&mut world);
    assert_eq!((world.phase(), world.reason()), (Phase::RolledBack, "CrashLoopBackOff"));
    // At most the time in which it must be ready.
    let mut world = by_another_string(json!({"readyTimeoutSeconds": 3}));
    world.pass(2);
    assert_eq!(world.phase(), Phase::RollingBack);
    world.pass(1);
    assert_eq!((world.phase(), world.reason()), (Phase::RolledBack, "CrashLoopBackOff"));
}

/// A container that did not run when the kubelet had seen a string was started with that string.
#[test]
fn an_old_image_that_can_only_be_started_by_the_last_string_is_back_at_once() {
    let observes = |world: &mut World| {
        let pod = world.pod.as_mut().unwrap();
        pod.observed_generation = pod.generation;
    };
    let mut world = changed_after_a_restart(&json!({}));
    world.pod.as_mut().unwrap().generation = Some(2);
    world.show(crashes);
    observes(&mut world);
    world.pass(2);
    assert!(world.image().ends_with(&format!("v1@{OLD}")), "{}", world.image());
    // The kubelet has not seen the other string: it starts the container with the first one.
    back(&mut world);
    observes(&mut world);
    world.pass(1);
    assert_eq!(world.phase(), Phase::RollingBack);
    world.show(|status| (status.state, status.ready) = (ContainerState::Terminated { exit_code: 0 }, false));
    assert_eq!(world.phase(), Phase::RollingBack);
    back(&mut world);
    assert_eq!((world.phase(), world.reason()), (Phase::RolledBack, "CrashLoopBackOff"));
}
