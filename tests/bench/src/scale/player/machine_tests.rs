use super::*;

use chrono::DateTime;
use pitstop_api::nodework::{AnswerState, Order, OrderContainer, OrderPod, Recreate};

fn at(ms: u64) -> Now {
    Now { mono: Mono(ms), wall: DateTime::from_timestamp(1_800_000_000, 0).unwrap() }
}

fn pod(ignores_term: bool) -> Pod {
    Pod {
        namespace: "shop".into(),
        name: "web".into(),
        uid: "u1".into(),
        node: "n1".into(),
        set: "web-1".into(),
        grace_seconds: 30,
        containers: vec![Container::new("u1", "app", ignores_term, at(0).wall)],
    }
}

fn book(version: &str, id: &str, status: NodeWorkStatus) -> Book {
    let order = Order {
        id: "r/app/1".into(),
        pod: OrderPod { namespace: "shop".into(), name: "web".into(), uid: "u1".into() },
        container: OrderContainer { name: "app".into(), id: id.to_owned() },
        action: Recreate::with_grace(Some(7)).into(),
        ..Order::default()
    };
    Book {
        uid: "b".into(),
        resource_version: version.into(),
        generation: Some(1),
        orders: vec![order],
        closed: Vec::new(),
        status,
    }
}

/// Advances time until there are actions; returns that time and the actions.
fn next(player: &mut Player) -> (u64, Vec<Action>) {
    loop {
        let wake = player.next_wake(Mono(0)).expect("nothing is to come");
        let actions = player.handle(at(wake.0), Event::Tick);
        if !actions.is_empty() {
            return (wake.0, actions);
        }
    }
}

/// A player with an acknowledged order for the Pod's container, and the container's ID.
fn ordered(ignores_term: bool) -> (Player, String) {
    let mut player = Player::new(vec![pod(ignores_term)]);
    let id = player.pods[0].containers[0].id.clone();
    let shown = Watch::list(vec![("n1".to_owned(), book("1", &id, NodeWorkStatus::default()))]);
    let actions = player.handle(at(1_000), Event::Books(shown));
    let [Action::WriteBook { node, resource_version, status }] = actions.as_slice() else {
        panic!("no acknowledgement")
    };
    assert_eq!((node.as_str(), resource_version.as_str()), ("n1", "1"));
    assert_eq!(status.answers[0].state, AnswerState::Acknowledged);
    let written = Outcome::Written(book("2", &id, (**status).clone()));
    assert!(player.handle(at(1_001), Event::BookWritten("n1".into(), written)).is_empty());
    (player, id)
}

fn statuses(actions: &[Action]) -> Vec<Value> {
    let patches = actions.iter().filter_map(|action| match action {
        Action::WritePod { patch, .. } => Some(patch["status"]["containerStatuses"][0].clone()),
        Action::WriteBook { .. } => None,
    });
    patches.collect()
}

#[test]
fn a_container_is_stopped_by_order_and_the_next_one_has_another_id() {
    let (mut player, id) = ordered(false);
    let (when, actions) = next(&mut player);
    assert_eq!(when, 1_041);
    let written = statuses(&actions);
    assert_eq!(written[0]["state"]["terminated"]["containerID"], format!("containerd://{id}"));
    player.handle(at(1_045), Event::PodWritten(0, true));
    let (when, actions) = next(&mut player);
    assert_eq!(when, 1_061);
    let written = statuses(&actions);
    assert_ne!(written[0]["containerID"], format!("containerd://{id}"));
    assert_eq!((&written[0]["ready"], &written[0]["restartCount"]), (&true.into(), &1.into()));
    assert_eq!(player.facts("n1", &id).unwrap().state, ContainerState::Exited);
}

#[test]
fn a_container_that_ignores_the_signal_ends_with_its_grace() {
    let (mut player, _) = ordered(true);
    let (when, _) = next(&mut player);
    assert_eq!(when, 1_001 + 7_000 + 20);
}

#[test]
fn another_node_knows_nothing_of_the_container() {
    let player = Player::new(vec![pod(false)]);
    let id = player.pods[0].containers[0].id.clone();
    assert!(player.facts("n1", &id).is_some());
    assert!(player.facts("n2", &id).is_none());
}

#[test]
fn a_status_is_written_by_one_write_at_a_time_and_again_after_a_failure() {
    let mut player = Player::new(vec![pod(false)]);
    let mut out = Vec::new();
    player.write_pod(at(0), 0, &mut out);
    player.write_pod(at(1), 0, &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(player.handle(at(2), Event::PodWritten(0, true)).len(), 1, "what came meanwhile");
    assert!(player.handle(at(3), Event::PodWritten(0, false)).is_empty());
    assert_eq!(next(&mut player).0, 1_003);
}
