//! While the node is not ready, only the user's own clock runs, and the image is not blamed.

use super::*;

impl World {
    /// The node lifecycle controller has noticed that the node is silent, or the kubelet reports again.
    fn unheard(&mut self, unheard: bool) {
        let pod = self.pod.as_mut().unwrap();
        (pod.unheard, pod.ready) = (unheard, !unheard);
        self.settle();
    }

    fn asks(&self) -> usize {
        self.deeds.iter().filter(|deed| matches!(deed, Deed::AskNode(_))).count()
    }
}

/// Its new container is ready, and is watched.
fn watched(spec: &Value) -> World {
    let mut world = World::changed(spec);
    world.starts(true);
    world.runs("config-2");
    assert_eq!(world.phase(), Phase::Observing);
    world
}

#[test]
fn while_the_node_is_lost_nothing_is_watched() {
    let mut world = watched(&json!({"observeSeconds": 30}));
    world.pass(20);
    world.unheard(true);
    assert_eq!((world.phase(), world.reason()), (Phase::Observing, "NodeNotReady"));
    assert!(world.condition(conditions::COMPLETE).message.contains("node node1 is not ready"));
    world.pass(1_000);
    assert_eq!(world.phase(), Phase::Observing);
    world.unheard(false);
    assert_eq!((world.phase(), world.reason()), (Phase::Observing, "Observing"));
    world.pass(29);
    assert_eq!(world.phase(), Phase::Observing, "what ran before the loss was not watched to its end");
    world.pass(1);
    assert_eq!((world.phase(), world.reason(), world.asks()), (Phase::Succeeded, "Updated", 0));
}

/// A restarted kubelet may have to probe first.
#[test]
fn a_container_that_is_not_ready_when_its_node_is_back_has_the_whole_time() {
    let mut world = watched(&json!({"readyTimeoutSeconds": 60, "observeSeconds": 30}));
    world.unheard(true);
    world.pass(500);
    world.pod.as_mut().unwrap().containers[0].status.as_mut().unwrap().ready = false;
    world.unheard(false);
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "ContainerNotReady"));
    world.pass(59);
    assert_eq!(world.phase(), Phase::Updating);
    let mut late = World {
        update: world.update.clone(),
        pod: world.pod.clone(),
        memory: world.memory.clone(),
        now: world.now,
        ..watched(&json!({}))
    };
    late.update.spec = world.update.spec.clone();
    late.pass(1);
    assert_eq!((late.phase(), late.reason()), (Phase::RollingBack, "RollingBack"));
    world.show(|status| status.ready = true);
    assert_eq!(world.phase(), Phase::Observing);
    // From now on the image is blamed again.
    world.show(|status| status.ready = false);
    assert_eq!(world.update.status.restoring.as_ref().unwrap().reason, "NotReady");
}

#[test]
fn what_restarts_with_its_node_is_not_blamed_and_what_restarts_once_more_is() {
    let mut world = watched(&json!({}));
    world.unheard(true);
    world.pass(100);
    // The kubelet finds that the reboot has ended the container, and starts it again.
    let ended = |status: &mut ContainerStatus| {
        (status.state, status.ready) = (ContainerState::Terminated { exit_code: 255 }, false);
    };
    let status = world.pod.as_mut().unwrap().containers[0].status.as_mut().unwrap();
    ended(status);
    world.unheard(false);
    assert_eq!(world.phase(), Phase::Updating);
    let starts = |n: u8| {
        move |status: &mut ContainerStatus| {
            (status.container_id, status.state, status.ready) = (id(n), ContainerState::Running, true);
            status.restart_count += 1;
        }
    };
    world.show(starts(3));
    assert_eq!(world.phase(), Phase::Observing);
    world.show(starts(4));
    assert_eq!(world.update.status.restoring.as_ref().unwrap().reason, "Restarted");
}

/// A Pod that was not ready does not show that its node is lost.
#[test]
fn before_a_new_container_is_blamed_for_the_time_it_takes_its_node_is_asked_for() {
    for (node, ends) in [
        (Done::Effected, true),
        (Done::Refused("forbidden".into()), true),
        (Done::Conflict, false),
        (Done::Gone, false),
        (Done::Retry("etcd is away".into()), false),
    ] {
        let mut world = World::changed(&json!({"readyTimeoutSeconds": 60}));
        world.starts(false);
        world.node = node.clone();
        world.pass(59);
        assert_eq!((world.phase(), world.asks()), (Phase::Updating, 0));
        world.pass(1);
        let expected = if ends { Phase::RollingBack } else { Phase::Updating };
        assert_eq!(world.phase(), expected, "{node:?}");
        let known = node == Done::Gone;
        assert_eq!(world.reason() == "NodeNotReady", known, "{node:?}: {}", world.reason());
        assert!(world.asks() > 0);
    }
}

#[test]
fn once_the_node_is_back_the_time_is_counted_anew() {
    let mut world = World::changed(&json!({"readyTimeoutSeconds": 60}));
    world.starts(false);
    world.node = Done::Gone;
    world.pass(60);
    world.pass(600);
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "NodeNotReady"));
    world.node = Done::Effected;
    world.pass(10);
    assert_eq!((world.phase(), world.reason()), (Phase::Updating, "ContainerNotReady"));
    world.pass(59);
    assert_eq!(world.phase(), Phase::Updating);
    let asked = world.asks();
    world.pass(1);
    assert_eq!((world.phase(), world.asks()), (Phase::RollingBack, asked + 1), "it may be lost anew");
    // The kubelet's report is news, even without another question.
    let mut world = World::changed(&json!({"readyTimeoutSeconds": 60, "observeSeconds": 5}));
    world.starts(false);
    world.node = Done::Gone;
    world.pass(60);
    world.show(|status| status.ready = true);
    world.runs("config-2");
    assert_eq!((world.phase(), world.reason()), (Phase::Observing, "Observing"));
    world.pass(5);
    assert_eq!(world.phase(), Phase::Succeeded);
}

/// A container that was ready before is no news.
#[test]
fn what_was_ready_before_the_node_was_lost_does_not_bring_it_back() {
    let mut world = World::changed(&json!({"readyTimeoutSeconds": 60}));
    world.starts(false);
    world.show(|status| {
        status.image_id = format!("registry.example.com/shop/web@sha256:{}", "ab".repeat(32));
        status.ready = true;
    });
    assert_eq!(world.reason(), "Attesting");
    world.node = Done::Gone;
    world.pass(60);
    for _ in 0..5 {
        world.pass(10);
        assert_eq!((world.phase(), world.reason()), (Phase::Updating, "NodeNotReady"));
    }
    assert_eq!(world.memory.node.outages(), 0, "it is lost still");
    world.node = Done::Effected;
    world.pass(10);
    assert_eq!((world.reason(), world.memory.node.outages()), ("Attesting", 1));
}

/// A crashed node may be back before its loss is noticed.
#[test]
fn what_ends_with_its_node_is_not_blamed_on_its_image() {
    for known in [false, true] {
        let mut world = watched(&json!({"observeSeconds": 30}));
        world.pass(20);
        world.show(|status| {
            (status.state, status.ready) = (ContainerState::Terminated { exit_code: 255 }, false);
            status.lost = (!known).then_some(status.restart_count);
        });
        if known {
            assert_eq!(world.phase(), Phase::RollingBack, "it has ended by itself");
            continue;
        }
        assert_eq!((world.phase(), world.memory.node.outages()), (Phase::Updating, 1));
        world.show(|status| {
            (status.state, status.container_id) = (ContainerState::Running, id(3));
            (status.restart_count, status.ready) = (status.restart_count + 1, true);
        });
        world.runs("config-2");
        assert_eq!((world.phase(), world.memory.node.outages()), (Phase::Observing, 1));
        world.pass(29);
        assert_eq!(world.phase(), Phase::Observing, "it is watched anew");
        world.pass(1);
        assert_eq!(world.phase(), Phase::Succeeded);
    }
}

#[test]
fn the_users_own_deadline_runs_on() {
    for unheard in [true, false] {
        let spec = json!({"readyTimeoutSeconds": 60, "activeDeadlineSeconds": 600});
        let mut world = if unheard { watched(&spec) } else { World::changed(&spec) };
        world.node = Done::Gone;
        if unheard {
            world.unheard(true);
        }
        world.pass(599);
        assert_eq!(world.reason(), "NodeNotReady");
        world.pass(1);
        assert_eq!(world.update.status.restoring.as_ref().unwrap().reason, "DeadlineExceeded");
        assert!(world.update.status.message.is_empty());
        let text = &world.update.status.restoring.as_ref().unwrap().message;
        assert!(text.contains("node node1 is not ready"), "{text}");
    }
}

/// The rollback waits for the node, too, but not for ever.
#[test]
fn old_images_that_are_put_back_are_not_said_to_fail_while_the_node_is_lost() {
    let mut world = World::changed(&json!({"readyTimeoutSeconds": 60, "activeDeadlineSeconds": 600}));
    world.starts(false);
    world.update.spec.cancel = true;
    world.node = Done::Gone;
    world.settle();
    world.pass(60);
    world.pass(60);
    assert_eq!((world.phase(), world.reason()), (Phase::RollingBack, "NodeNotReady"));
    assert!(world.orders.is_empty());
    world.pass(600);
    assert_eq!((world.phase(), world.reason()), (Phase::Failed, "RollbackFailed"));
}
