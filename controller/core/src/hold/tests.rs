//! A Pod and its node's daemon, which obeys orders. Whatever happens, restarts included, the Pod ends up with what is
//! in force.

mod world;

use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, Order, OrderPod};
use pitstop_api::quantity::Resources;
use proptest::prelude::*;

use crate::fixtures::{MI, id, pod};
use crate::nodework::OrderView;
use crate::pod::{Container, ContainerState, Pod};
use crate::time::Mono;
use world::{Happens, World, answer, happens, play, record_of, spec_of};

proptest! {
    #[test]
    fn whatever_happens_a_pod_comes_to_rest_with_what_is_in_force(
        story in proptest::collection::vec(happens(), 0..30)
    ) {
        play(&story);
    }
}

#[test]
fn beside_one_that_makes_no_headway_a_restarted_one_has_its_part_of_the_pod() {
    use self::Happens::{Controls, Hinders, Obeys, Restarts, Wants};
    let app = [Wants(0, Some((200, 128))), Controls, Obeys];
    let both = [&app[..], &[Wants(1, Some((50, 32))), Controls, Obeys]].concat();
    // Nothing is wanted for it any more.
    let one = [Wants(0, Some((50, 32))), Restarts(1), Controls, Hinders, Wants(1, None)];
    // It should have more than the previous instance, and less than its spec.
    let other = [Restarts(1), Wants(1, Some((50, 120))), Wants(0, None), Controls, Hinders];
    for then in [one, other] {
        play(&[both.clone(), then.to_vec()].concat());
    }
}

#[test]
fn one_change_takes_one_order() {
    let mut world = World::new();
    world.want(0, Some((300, 256)));
    world.rest();
    assert_eq!(world.placed, 1);
    let held = world.held.as_ref().unwrap();
    assert_eq!(held.pod, OrderPod { namespace: "shop".into(), name: "web".into(), uid: "pod-1".into() });
    assert_eq!(world.cgroup.memory_limit, Some((256 + 128) * MI));
}

/// The kubelet does not run, so it restarts nothing, and the Pod's status is outdated.
#[test]
fn what_has_ended_is_not_asked_about_all_the_time_and_what_comes_after_it_is_at_once() {
    let mut world = World::new();
    world.want(0, Some((300, 256)));
    world.control();
    let status = world.pod.as_ref().unwrap().clone();
    world.crash(0);
    world.obey();
    world.pod = Some(status);
    assert_eq!(world.answers[0].reason, Some(AnswerReason::NotRunning));
    for _ in 0..29 {
        world.now = world.now.after(std::time::Duration::from_secs(1));
        world.control();
    }
    assert_eq!(world.placed, 1);
    world.restart(0);
    world.control();
    assert_eq!(world.placed, 2);
    world.rest();
}

#[test]
fn what_cannot_be_given_now_keeps_no_other_container_waiting() {
    let mut world = World::new();
    world.want(0, Some((300, 256)));
    world.want(1, Some((300, 256)));
    world.control();
    let [order] = &world.orders[..] else { panic!("one at a time: {:?}", world.orders) };
    world.answers.push(answer(&order.id, AnswerState::Acknowledged, Some(AnswerReason::ResizeRetried)));
    world.control();
    let named: Vec<&str> = world.orders.iter().map(|order| order.container.name.as_str()).collect();
    assert_eq!(named, ["app", "proxy"]);
}

#[test]
fn what_made_no_headway_does_not_bound_the_pod_by_what_others_had() {
    let mut world = World::new();
    world.want(0, Some((300, 64)));
    world.control();
    world.hinder();
    world.want(1, Some((300, 256)));
    world.control();
    world.obey();
    world.rest();
    assert_eq!(world.cgroup.memory_limit, Some((64 + 256) * MI));
}

/// The containers have ended. The kubelet, which does not run, reports only one of them.
#[test]
fn what_gives_back_only_the_pods_part_in_vain_is_not_repeated_after_the_others() {
    let mut world = World::new();
    world.want(0, Some((300, 256)));
    world.want(1, Some((300, 256)));
    world.rest();
    world.crash(0);
    world.want(0, None);
    world.control();
    world.hinder();
    assert_eq!(world.answers.len(), 1, "the Pod's group cannot be written");
    world.want(1, None);
    world.control();
    let named: Vec<&str> = world.orders.iter().map(|order| order.container.name.as_str()).collect();
    assert_eq!(named, ["proxy"]);
    world.rest();
}

#[test]
fn what_is_given_back_last_says_what_the_pod_had() {
    use self::Happens::{Controls, Hinders, Obeys, Wants};
    let given = [Wants(0, Some((300, 256))), Wants(1, Some((300, 256))), Controls, Obeys, Controls, Obeys];
    let back = [Wants(0, None), Wants(1, None), Controls, Hinders, Controls, Obeys];
    play(&[given, back].concat());
}

#[test]
fn a_container_that_is_about_to_start_keeps_its_part_of_the_pod() {
    let mut world = World::new();
    world.want(0, Some((300, 64)));
    world.rest();
    let placed = world.placed;
    world.crash(0);
    world.rest();
    assert_eq!(world.placed, placed);
}

/// Found by the simulator (seed 7006972).
#[test]
fn a_wish_for_what_the_spec_says_keeps_nothing_of_the_instance_before() {
    for restarts in [World::restart as fn(&mut World, usize), World::crash] {
        let mut world = World::new();
        world.want(0, Some((300, 256)));
        world.rest();
        assert_ne!(world.cgroup, spec_of(world.pod.as_ref().unwrap()));
        restarts(&mut world, 0);
        world.want_spec(0);
        world.rest();
        assert_eq!((&world.held, world.cgroup), (&None, spec_of(world.pod.as_ref().unwrap())));
    }
}

/// Found by the simulator (seed 9769284): the daemon may have carried out an order that is withdrawn.
#[test]
fn what_is_under_way_counts_for_the_pod_of_another() {
    let mut world = World::new();
    world.want(0, Some((300, 256)));
    world.rest();
    world.want(1, Some((300, 256)));
    world.control();
    let [order] = &world.orders[..] else { panic!("{:?}", world.orders) };
    world.answers.push(answer(&order.id, AnswerState::Acknowledged, None));
    let record = record_of(order);
    world.held.as_mut().unwrap().containers.push(record);
    (0..2).for_each(|n| world.want(n, None));
    world.control();
    let [back] = &world.orders[..] else { panic!("{:?}", world.orders) };
    let pod = back.action.resize.as_ref().unwrap().pod.unwrap();
    assert_eq!((back.container.name.as_str(), pod.memory_limit), ("app", Some((128 + 256) * MI)));
}

#[test]
fn a_pod_that_is_gone_is_forgotten() {
    let mut world = World::new();
    world.want(0, Some((300, 256)));
    world.rest();
    world.pod = None;
    world.control();
    let [order] = &world.orders[..] else { panic!("{:?}", world.orders) };
    let resize = order.action.resize.as_ref().unwrap();
    assert_eq!((resize.container, resize.pod, resize.hold), (None, None, false));
    world.rest();
}
