//! Orders to resize that are never carried out.

use pitstop_api::nodework::{Bounds, Held, HeldContainer, ResizeOrder};

use super::resize::{bounds, hold, never, present};
use super::*;
use crate::resize::Present;

#[test]
fn what_does_not_run_is_not_held_at_anything() {
    let unknown = facts(1, "web", ContainerState::Unknown);
    for found in [None, Some(exited(1, "web")), Some(unknown)] {
        let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
        node.inspected("req/c1/1", found);
        let (state, reason, _) = node.answer();
        assert_eq!((state, reason), (AnswerState::Refused, Some(AnswerReason::NotRunning)));
        node.quiet();
    }
    // The container ended between the two looks.
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Err(never("no such file")));
    node.inspected("req/c1/1", exited(1, "web"));
    assert_eq!(node.answer().1, Some(AnswerReason::NotRunning));
    // The container runs, but its cgroup cannot be read.
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    for _ in 0..2 {
        node.inspected("req/c1/1", running(1, "web"));
        node.looks("req/c1/1", Err(never("no such file")));
    }
    let (state, reason, message) = node.answer();
    assert_eq!((state, reason), (AnswerState::Failed, Some(AnswerReason::CgroupUnreadable)));
    assert_eq!(message, "no such file");
}

#[test]
fn swap_cpus_of_its_own_and_a_daemon_without_the_right_are_refused() {
    let with = |swap, pinned| Present { pinned, swap, ..present("web", bounds(100, 32), bounds(100, 32)) };
    let careful = |mut order: Order| {
        if let Some(resize) = &mut order.action.resize {
            resize.unless_pinned = true;
        }
        order
    };
    for (order, seen, reason) in [
        (hold(1, "web", 100, 64), with(true, false), Some(AnswerReason::Swap)),
        (hold(1, "web", 100, 64), with(false, true), None),
        (careful(hold(1, "web", 100, 64)), with(false, true), Some(AnswerReason::Pinned)),
        (careful(hold(1, "web", 100, 64)), with(false, false), None),
    ] {
        let mut node = Node::resizing(vec![order]);
        node.inspected("req/c1/1", running(1, "web"));
        node.looks("req/c1/1", Ok(seen));
        let status = node.stored();
        let expected = if reason.is_some() { AnswerState::Refused } else { AnswerState::Acknowledged };
        assert_eq!((status.answers[0].state, status.answers[0].reason), (expected, reason));
        assert_eq!(status.held.is_empty(), reason.is_some());
    }
    let mut node = Node::new(vec![hold(1, "web", 100, 64)]);
    let (state, reason, message) = node.answer();
    assert_eq!((state, reason), (AnswerState::Refused, Some(AnswerReason::NotEnabled)));
    assert!(message.contains("--resize"), "{message}");
    node.quiet();
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let with = |change: fn(&mut ResizeOrder)| {
        let mut order = hold(1, "web", 100, 64);
        change(order.action.resize.as_mut().unwrap());
        order
    };
    let both = Order {
        action: OrderAction { recreate: Some(Recreate::default()), ..hold(1, "web", 1, 1).action },
        ..hold(1, "web", 1, 1)
    };
    for order in [
        with(|r| (r.container, r.pod) = (None, None)),
        with(|r| r.memory_margin = -1),
        with(|r| r.container = Some(Bounds { cpu_request: -1, ..Bounds::default() })),
        with(|r| r.pod = Some(Bounds { cpu_limit: Some(0), ..Bounds::default() })),
        with(|r| r.pod = Some(Bounds { memory_limit: Some(-5), ..Bounds::default() })),
        both,
    ] {
        let mut node = Node::resizing(vec![order]);
        let (state, reason, _) = node.answer();
        assert_eq!((state, reason), (AnswerState::Refused, Some(AnswerReason::InvalidOrder)));
        node.quiet();
    }
}

#[test]
fn an_order_that_asks_for_other_amounts_than_at_first_is_refused() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.change(|b| b.orders = vec![hold(1, "web", 100, 4096)]);
    node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(100, 32))));
    assert_eq!(node.answer().1, Some(AnswerReason::InvalidOrder));
    node.quiet();
}

fn filled(pods: usize, each: u8) -> Vec<Held> {
    let containers = |pod: usize| {
        (0..each).map(move |n| HeldContainer {
            name: format!("x{n}"),
            id: format!("{:064x}", pod * 1000 + usize::from(n)),
            order: "old".into(),
            ..Default::default()
        })
    };
    let held = |n: usize| Held {
        pod: OrderPod { uid: format!("other-{n}"), ..OrderPod::default() },
        containers: containers(n).collect(),
        ..Held::default()
    };
    (0..pods).map(held).collect()
}

/// Two orders at once: the record may have room for one.
#[test]
fn no_more_is_held_than_the_book_can_keep() {
    for (mut held, room) in [(filled(127, 1), 1), (filled(128, 1), 0), (filled(8, 64), 0), (filled(7, 64), 2)]
    {
        let mut node = Node::resizing(vec![]);
        node.change(|b| b.status.held.append(&mut held));
        node.change(|b| b.orders = vec![hold(1, "web", 100, 64), hold(2, "db", 100, 64)]);
        for (n, pod) in [(1, "web"), (2, "db")] {
            node.inspected(&format!("req/c{n}/1"), running(n, pod));
        }
        // Both are seen before the first write is stored.
        for (n, pod) in [(1, "web"), (2, "db")] {
            node.looks(&format!("req/c{n}/1"), Ok(present(pod, bounds(100, 32), bounds(100, 32))));
        }
        node.stored();
        if node.todo.iter().any(|a| matches!(a, Action::WriteStatus { .. })) {
            node.stored();
        }
        let answers = &node.book.status.answers;
        let refused = answers.iter().filter(|a| a.reason == Some(AnswerReason::TooManyHeld)).count();
        assert_eq!(refused, 2 - room, "{answers:?}");
    }
}
