//! Which instance counts if the Pod has the image already, or a container restarts before the change.

use super::*;
use crate::image::kind::goes_before;
use crate::kind::{Kind as _, WorkState};

/// A strategic merge patch puts containers into its own order, which the API server refuses for a Pod.
#[test]
fn the_dry_run_names_containers_in_the_order_of_the_pod() {
    let image = "registry.example.com/shop/web:v2";
    let two = json!({"containers": [{"name": "sidecar", "image": image}, {"name": "app", "image": image}]});
    let mut world = World::new(&two);
    world.pod.as_mut().unwrap().containers.push(container("sidecar"));
    let Some(Deed::TryImages { images, .. }) = world.plan().deed else { panic!("no dry run") };
    let names: Vec<&str> = images.iter().map(|change| change.container.as_str()).collect();
    assert_eq!(names, ["app", "sidecar"]);
}

/// The change names a digest, which is known before only if the request names it.
#[test]
fn the_api_server_is_not_asked_twice_within_seconds_about_the_same_change() {
    let tried = |image: &str, seconds: u64| {
        let mut world = World::new(&json!({"containers": [{"name": "app", "image": image}]}));
        world.settle();
        world.now = Mono(world.now.0 + seconds * 1_000);
        world.pulled();
        assert_eq!(world.wrote, [true], "the write itself tries nothing more");
        world.tried
    };
    let tag = "registry.example.com/shop/web:v2";
    let pinned = format!("{tag}@{NEW}");
    assert_eq!([tried(&pinned, 0), tried(&pinned, 1), tried(tag, 0)], [1, 2, 2]);
}

/// A new webhook may rewrite images meanwhile.
#[test]
fn a_change_that_was_sent_in_vain_is_tried_before_it_is_sent_again() {
    let mut world = World::new(&json!({"pull": "Skip"}));
    for _ in 0..2 {
        let Plan { status, deed, .. } = world.plan();
        if let Some(deed) = deed {
            let done = world.does(&deed);
            world.memory.deed_done(world.now, &deed, done);
        }
        world.update.status = status.unwrap().status;
    }
    let tried = |world: &mut World| world.plan().images.iter().map(|image| image.tried).collect::<Vec<_>>();
    assert_eq!(tried(&mut world), [true]);
    world.memory.images_written(None);
    assert_eq!(tried(&mut world), [false]);
}

/// This saves a round trip to the API server before the pull and before the change of the Pod.
#[test]
fn the_api_server_is_asked_while_the_status_is_written_and_answers_before_what_follows() {
    let tries = |plan: &Plan| matches!(plan.deed, Some(Deed::TryImages { .. }));
    let mut world = World::new(&json!({}));
    for pulled in [false, true] {
        if pulled {
            world.settle();
            let image = ImageAnswer { pulled: Some(super::pulled()), running: None };
            world.set_answers(AnswerState::Done, None, Some(&image));
        }
        let plan = world.plan();
        assert!(tries(&plan));
        world.update.status = plan.status.unwrap().status;
        world.doing = plan.deed;
        let waits = world.plan();
        assert!(tries(&waits) && waits.images.is_empty());
        assert_eq!(waits.orders.is_empty(), !pulled);
        let deed = world.doing.take().unwrap();
        let done = world.does(&deed);
        world.memory.deed_done(world.now, &deed, done);
        let plan = world.plan();
        assert!(!tries(&plan));
        assert_eq!((plan.orders.len(), plan.images.iter().any(|image| image.tried)), (1, pulled));
    }
}

/// The kubelet restarts no container whose image string stays, so no new one is awaited.
#[test]
fn what_the_pod_has_already_is_no_reason_to_wait() {
    let has = format!("registry.example.com/shop/web:v2@{NEW}");
    let pod = |image_id: String| {
        let mut pod = web();
        pod.containers[0].image.clone_from(&has);
        pod.containers[0].status.as_mut().unwrap().image_id = image_id;
        Some(pod)
    };
    let mut world =
        World { pod: pod(format!("registry.example.com/shop/web@{NEW}")), ..World::new(&json!({})) };
    world.settle();
    world.pulled();
    assert_eq!((world.phase(), world.image()), (Phase::Observing, has.as_str()));
    world.pass(30);
    assert_eq!((world.phase(), world.reason()), (Phase::Succeeded, "Updated"));
    // Some runtimes report the image ID.
    let mut world = World { pod: pod("config-2".into()), ..World::new(&json!({})) };
    world.settle();
    world.pulled();
    assert_eq!(world.phase(), Phase::Observing);
    // It is no longer ready: nothing was changed, so nothing is restored.
    world.show(|status| status.ready = false);
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "NotReady"));
    let mut world = World { pod: pod("config-1".into()), ..World::new(&json!({})) };
    world.settle();
    world.pulled();
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "WaitingForKubelet"));
    world.pass(5);
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "OtherImage"));
}

/// Another update wrote the image and was deleted, and the kubelet replaces the container: seed 17998.
#[test]
fn a_container_that_is_being_replaced_for_what_the_pod_has_already_is_waited_for() {
    let mut world = World::new(&json!({}));
    let pod = world.pod.as_mut().unwrap();
    pod.containers[0].image = format!("registry.example.com/shop/web:v2@{NEW}");
    (pod.generation, pod.observed_generation, pod.grace_seconds) = (Some(3), Some(3), Some(30));
    world.settle();
    world.pulled();
    world.pass(30);
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "WaitingForKubelet"));
    world.starts(true);
    assert_eq!(world.phase(), Phase::Observing);
    world.pass(30);
    assert_eq!((world.phase(), world.reason()), (Phase::Succeeded, "Updated"));
}

/// The Pod had another image for a while, and its kubelet may be applying it: it stops the container, and reports
/// nothing meanwhile.
#[test]
fn what_the_pod_has_already_is_not_believed_before_the_kubelet_has_seen_it() {
    let mut world = World::new(&json!({}));
    let pod = world.pod.as_mut().unwrap();
    pod.containers[0].image = format!("registry.example.com/shop/web:v2@{NEW}");
    pod.containers[0].status.as_mut().unwrap().image_id = format!("registry.example.com/shop/web@{NEW}");
    (pod.generation, pod.observed_generation) = (Some(3), Some(2));
    world.settle();
    world.pulled();
    world.pass(60);
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "WaitingForKubelet"));
    world.pod.as_mut().unwrap().observed_generation = Some(3);
    world.settle();
    assert_eq!(world.phase(), Phase::Observing);
}

#[test]
fn one_that_has_it_already_waits_for_the_one_that_gets_it() {
    let image = "registry.example.com/shop/web:v2";
    let both = json!({"containers": [{"name": "app", "image": image}, {"name": "sidecar", "image": image}]});
    let mut world = World::new(&both);
    let pod = world.pod.as_mut().unwrap();
    pod.containers.push(container("sidecar"));
    pod.containers[1].image = format!("{image}@{NEW}");
    pod.containers[1].status.as_mut().unwrap().image_id = format!("registry.example.com/shop/web@{NEW}");
    world.settle();
    world.pulled();
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "WaitingForKubelet"));
    let app = world.pod.as_mut().unwrap().containers[0].status.as_mut().unwrap();
    (app.container_id, app.restart_count) = (id(2), 1);
    app.image_id = format!("registry.example.com/shop/web@{NEW}");
    world.settle();
    world.runs("config-2");
    assert_eq!(world.phase(), Phase::Observing);
}

fn restarts(world: &mut World, n: u8, state: &ContainerState) {
    world.show(|status| {
        status.container_id = id(n);
        status.restart_count += 1;
        status.state = state.clone();
        status.ready = *state == ContainerState::Running;
    });
}

#[test]
fn what_restarts_before_the_change_is_not_taken_for_the_new_one() {
    let mut world = World::new(&json!({"suspend": true}));
    world.settle();
    world.pulled();
    let order = world.orders.clone();
    restarts(&mut world, 3, &ContainerState::Running);
    world.update.spec.suspend = false;
    world.settle();
    assert_eq!((world.phase(), &world.orders), (Phase::Updating, &order), "an order never changes");
    let before = &world.update.status.containers[0].before;
    assert_eq!((before.container_id.as_str(), before.restart_count), (id(3).as_str(), 1));
    // The daemon reports it as another instance than its order names.
    let running = Running { container_id: "03".repeat(32), image_id: "config-1".into(), digest: OLD.into() };
    let image = ImageAnswer { pulled: Some(pulled()), running: Some(running) };
    world.answer(AnswerState::Done, None, Some(&image));
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "WaitingForKubelet"));
    world
        .show(|status| (status.state, status.ready) = (ContainerState::Terminated { exit_code: 143 }, false));
    assert_eq!(world.phase(), Phase::Updating, "that is the kubelet's stop");
    world.starts(true);
    world.runs("config-2");
    assert_eq!(world.phase(), Phase::Observing);
}

/// The old container ends by itself before the kubelet applies the new image.
#[test]
fn what_restarts_with_its_old_image_after_the_change_is_waited_for() {
    let mut world = World::changed(&json!({}));
    for state in [
        ContainerState::Terminated { exit_code: 1 },
        ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() },
        ContainerState::Running,
    ] {
        restarts(&mut world, 3, &state);
        assert_eq!((world.phase(), world.reason()), (Phase::Updating, "WaitingForKubelet"), "{state:?}");
    }
}

/// The container starts while the request waits: now it must be stopped.
#[test]
fn what_comes_up_before_the_change_is_not_stopped_before_the_pull() {
    let mut world = World::new(&json!({"suspend": true}));
    never_ran(&mut world);
    assert_eq!((world.phase(), world.orders.len()), (Phase::Pulled, 0));
    restarts(&mut world, 3, &ContainerState::Running);
    assert_eq!((world.phase(), world.orders.len()), (Phase::Pulling, 1));
    world.update.spec.suspend = false;
    world.settle();
    assert_eq!(world.image(), "registry.example.com/shop/web:v1");
    world.pulled();
    assert_eq!(world.phase(), Phase::Updating);
}

/// A container that starts with the old image during the change is also ready.
#[test]
fn the_watch_begins_with_the_instance_that_has_the_new_image() {
    let mut world = World::new(&json!({}));
    world.show(|status| status.state = ContainerState::Terminated { exit_code: 1 });
    world.pulled();
    assert_eq!(world.phase(), Phase::Updating);
    restarts(&mut world, 3, &ContainerState::Running);
    world.pass(29);
    assert_eq!(world.phase(), Phase::Updating);
    world.starts(true);
    world.runs("config-2");
    assert_eq!(world.phase(), Phase::Observing);
    world.pass(29);
    assert_eq!(world.phase(), Phase::Observing);
    world.pass(1);
    assert_eq!(world.phase(), Phase::Succeeded);
}

/// A new leader may plan others before this request.
#[test]
fn what_is_stored_of_a_beginning_is_in_the_way_of_others() {
    let world = World::changed(&json!({}));
    let work = || WorkState { begun: None, lingers: false, stops: false };
    let fresh = Memory::new(Mono(7));
    assert_eq!(world.update.disturbs(&fresh, work(), None), Some(Mono(7)));
    let waits = World::new(&json!({}));
    assert_eq!(waits.update.disturbs(&fresh, work(), None), None);
}

/// Its kubelet stops another container of the Pod, and reports the rest as before.
#[test]
fn what_was_never_replaced_is_back_once_the_kubelet_has_seen_that() {
    let mut world = World::changed(&json!({}));
    let pod = world.pod.as_mut().unwrap();
    (pod.generation, pod.observed_generation) = (Some(3), Some(2));
    world.update.spec.cancel = true;
    world.settle();
    world.pass(20);
    assert_eq!(world.phase(), Phase::RollingBack);
    let pod = world.pod.as_mut().unwrap();
    pod.observed_generation = pod.generation;
    world.settle();
    assert_eq!(world.phase(), Phase::Cancelled);
}

#[test]
fn what_did_not_run_may_come_up_once_more_with_its_old_image() {
    for (running, phase) in [(false, Phase::Updating), (true, Phase::RollingBack)] {
        let mut world = World::new(&json!({}));
        world.settle();
        let state =
            if running { ContainerState::Running } else { ContainerState::Terminated { exit_code: 0 } };
        world.show(|status| status.state = state.clone());
        world.pulled();
        world.show(|status| status.restart_count = 1);
        world.starts(false);
        assert_eq!(world.phase(), phase);
    }
}

/// Another update has written this string meanwhile.
#[test]
fn what_goes_back_is_what_the_pod_had_when_it_was_changed() {
    let mut world = World::new(&json!({"suspend": true}));
    world.settle();
    world.pulled();
    let pinned = format!("registry.example.com/shop/web:v1@{OLD}");
    world.pod.as_mut().unwrap().containers[0].image.clone_from(&pinned);
    world.update.spec.suspend = false;
    world.settle();
    assert_eq!(world.phase(), Phase::Updating);
    world.update.spec.cancel = true;
    world.settle();
    assert_eq!((world.phase(), world.image()), (Phase::RollingBack, pinned.as_str()));
}

/// The daemon can be asked for the kubelet's image only once the Pod has it.
#[test]
fn the_daemon_is_asked_later_about_what_was_written() {
    let mut world = World::new(&json!({"pull": "Skip"}));
    world.settle();
    assert_eq!((world.phase(), world.orders.len()), (Phase::Updating, 0));
    // The old container restarts, and another writer has undone the change.
    world.pod.as_mut().unwrap().containers[0].image = "registry.example.com/shop/web:v1".into();
    let status = world.pod.as_mut().unwrap().containers[0].status.as_mut().unwrap();
    status.container_id = id(3);
    assert!(world.plan().orders.is_empty());
    world.settle();
    let pull = world.orders[0].action.pull.as_ref().unwrap();
    assert_eq!(pull.image, "registry.example.com/shop/web:v2");
    world.show(|status| status.state = ContainerState::Terminated { exit_code: 0 });
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "WaitingForKubelet"));
}

#[test]
fn what_was_suspended_waits_for_a_later_one_that_has_begun() {
    let released = World::new(&json!({})).update;
    let later = |update: ImageUpdate| ImageUpdate { uid: "u-2".into(), created: 9, ..update };
    let begun = later(World::changed(&json!({})).update);
    assert!(goes_before(&begun, &released) && !goes_before(&begun, &begun));
    assert!(!goes_before(&later(released.clone()), &released));
    assert!(goes_before(&released, &later(released.clone())));
    let suspended = World::new(&json!({"suspend": true})).update;
    assert!(!goes_before(&suspended, &begun));
}

#[test]
fn what_never_ran_is_judged_by_its_kubelet_where_a_digest_is_named() {
    let named = |image: &str| json!({"containers": [{"name": "app", "image": image}]});
    for (image, phase) in [
        (format!("registry.example.com/shop/web:v2@{NEW}"), Phase::Observing),
        ("registry.example.com/shop/web:v2".to_owned(), Phase::Updating),
    ] {
        let mut world = World::new(&named(&image));
        never_ran(&mut world);
        assert_eq!(world.phase(), Phase::Updating);
        world.starts(true);
        assert_eq!(world.phase(), phase, "{image}");
    }
}

fn never_ran(world: &mut World) {
    world.show(|status| {
        (status.container_id, status.image_id) = (String::new(), String::new());
        status.state = ContainerState::Waiting { reason: "ImagePullBackOff".into(), message: String::new() };
        status.ready = false;
    });
}
