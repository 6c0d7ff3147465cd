//! How held Pods get their original resources back when their book is gone.

use pitstop_api::logic::cgroup::{curved_weight, linear_weight};
use pitstop_api::nodework::{Cgroup, Held, ResizeOrder};

use super::resize::{MB, ask, bounds, cgroup, hold, limits, may_pass, never, present};
use super::*;
use crate::resize::{RunningContainer, Seen, Write, give_back, shares_of};

/// A held Pod without an open order, whose book is about to be deleted.
fn losing() -> Node {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.held(1, "web", 32, 64);
    node.change(|b| b.orders.clear());
    node.quiet();
    node
}

impl Node {
    fn writes_back(&mut self, result: Result<(), CallFailure>) -> Held {
        let Action::WriteBack { held } = self.expect(|a| matches!(a, Action::WriteBack { .. })) else {
            panic!()
        };
        self.send(Event::WrittenBack(held.pod.uid.clone(), result));
        *held
    }
}

#[test]
fn when_the_book_is_deleted_what_was_there_before_comes_back() {
    for by_list in [false, true] {
        let mut node = losing();
        let last = node.book.clone();
        assert!(node.daemon.holds());
        node.send(Event::Book(if by_list { Watch::list(vec![]) } else { Watch::Gone(last.clone()) }));
        assert!(node.daemon.holds());
        assert_eq!(node.writes_back(Ok(())), last.status.held[0]);
        assert!(!node.daemon.holds());
        node.quiet();
        assert_eq!(node.wake_at(), None);
    }
}

#[test]
fn a_book_made_anew_keeps_no_record_so_what_was_there_before_comes_back_first() {
    let mut node = losing();
    node.change(|b| {
        b.uid = "new".into();
        b.status = NodeWorkStatus::default();
        b.orders = vec![Order { id: "req/c1/9".into(), ..hold(1, "web", 100, 96) }, hold(2, "db", 100, 64)];
    });
    // Only orders of that Pod wait: its present values are not the original ones.
    node.inspected("req/c2/1", running(2, "db"));
    node.writes_back(Ok(()));
    node.inspected("req/c1/9", running(1, "web"));
}

#[test]
fn what_fails_to_come_back_is_tried_again_some_times() {
    let mut node = losing();
    node.send(Event::Book(Watch::Gone(node.book.clone())));
    let mut waits = Vec::new();
    for n in 0..5 {
        // A failure that seems final may come from a container that ended meanwhile.
        node.writes_back(Err(if n == 1 { never("gone") } else { may_pass("busy") }));
        waits.push(node.wait());
    }
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000]);
    node.writes_back(Err(may_pass("busy")));
    assert_eq!(node.wake_at(), None);
    node.quiet();
}

#[test]
fn a_book_that_is_there_again_ends_that() {
    let mut node = losing();
    node.send(Event::Book(Watch::list(vec![])));
    node.writes_back(Err(may_pass("busy")));
    node.send(Event::Book(Watch::list(vec![node.book.clone()])));
    assert_eq!(node.wake_at(), None);
    node.now += 60_000;
    node.send(Event::Tick);
    node.quiet();
}

#[test]
fn what_is_being_written_when_the_book_goes_is_waited_for() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(100, 32))));
    node.stored();
    node.send(Event::Book(Watch::Gone(node.book.clone())));
    assert!(matches!(node.todo.as_slice(), [Action::Resize { .. }]), "{:?}", node.todo);
    assert_eq!(node.wake_at(), None);
    node.writes("req/c1/1", Ok(()));
    node.writes_back(Ok(()));
    node.quiet();
}

#[test]
fn a_daemon_without_the_right_gives_nothing_back() {
    let mut node = losing();
    node.restart("without");
    node.send(Event::Book(Watch::Gone(node.book.clone())));
    node.quiet();
}

#[test]
fn shares_that_make_a_weight_are_found_for_both_kinds_of_runtime() {
    for weight in [1, 2, 4, 39, 79, 100, 391, 5000, 9999, 10_000] {
        assert_eq!(linear_weight(shares_of(weight, false)), weight);
        assert_eq!(curved_weight(shares_of(weight, true)), weight);
    }
    assert_eq!((shares_of(0, false), shares_of(20_000, true)), (2, 262_144));
}

#[test]
fn a_pod_and_its_containers_get_back_what_they_had_unless_memory_is_in_use() {
    let original = limits(bounds(100, 32));
    let held = Held { cgroup: "kubepods/poduid-web".into(), original, ..Held::default() };
    let seen = Seen { cgroup: cgroup(bounds(200, 64)), inactive_file: 0 };
    let (one, two) = (id(1), id(2));
    let running = |id| RunningContainer { id, original: &original, present: &seen };
    let plan = give_back(&held, Some(&seen), &[running(&one), running(&two)]).unwrap();
    let kinds: Vec<bool> = plan.iter().map(|write| matches!(write, Write::Pod(_))).collect();
    assert_eq!(kinds, [false, false, true, true, true], "from the containers up: {plan:?}");
    let full = Seen { cgroup: Cgroup { memory_usage: Some(33 * MB), ..seen.cgroup }, ..seen };
    assert!(give_back(&held, Some(&full), &[]).unwrap_err().contains("by the Pod"));
    let full = RunningContainer { id: &one, original: &original, present: &full };
    assert!(give_back(&held, None, &[full]).unwrap_err().contains("by the container"));
    let back = Seen { cgroup: original, inactive_file: 0 };
    assert_eq!(give_back(&held, Some(&back), &[]), Ok(vec![]));
}

/// The order to drop the record of a missing Pod.
fn forget() -> Order {
    Order { id: "req/c1/2".into(), ..ask(1, "web", ResizeOrder::default()) }
}

/// Also by a daemon without the right to resize: nothing changes on the node.
#[test]
fn a_pod_that_is_gone_is_forgotten_in_one_write() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.held(1, "web", 32, 64);
    node.change(|b| b.orders = vec![forget()]);
    node.restart("without");
    node.inspected("req/c1/2", None::<Facts>);
    let status = node.stored();
    assert_eq!((status.answers[0].state, status.held.len()), (AnswerState::Done, 0));
    node.quiet();
}

/// A controller with a stale list takes Pods for gone that it does not know yet.
#[test]
fn a_pod_is_not_forgotten_while_its_container_runs() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.held(1, "web", 32, 64);
    let held = node.book.status.held.clone();
    node.change(|b| b.orders = vec![forget()]);
    node.inspected("req/c1/2", running(1, "web"));
    node.quiet();
    assert_eq!((node.book.status.held.len(), &node.book.status.held), (1, &held));
    assert_eq!(node.wait(), 1_000);
    node.inspected("req/c1/2", exited(1, "web"));
    let status = node.stored();
    assert_eq!((status.answers[0].state, status.held.len()), (AnswerState::Done, 0));
    node.quiet();
}
