//! The book: its orders, what the daemon remembers, and what happens when it changes or goes.

use super::hooks::{exec, hooked, hooking};
use super::*;

impl Node {
    /// The watch delivers another state of the book than the API server has now.
    fn shown(&mut self, version: &str, change: impl FnOnce(&mut Book)) {
        let mut book = self.book.clone();
        book.resource_version = version.into();
        change(&mut book);
        self.send(Event::Book(Watch::Upsert(book)));
    }
}

#[test]
fn the_orders_of_the_book_are_open_until_they_are_withdrawn() {
    let mut node = Node::new(vec![order(1, "web", None), order(2, "db", None)]);
    assert_eq!(node.daemon.open_orders().len(), 2);
    node.change(|b| b.orders.truncate(1));
    assert_eq!(node.daemon.open_orders().len(), 1);
    node.send(Event::Book(Watch::Gone(node.book.clone())));
    assert_eq!(node.daemon.open_orders().len(), 0);
}

/// A node that returns under its name has a new book; the watch never shows the write to the old one.
#[test]
fn a_book_made_anew_is_heeded_though_an_own_write_has_not_come_by() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    let action = node.expect(|a| matches!(a, Action::WriteStatus { .. }));
    let Action::WriteStatus { status, .. } = action else { panic!() };
    let written = Book { resource_version: "9".into(), status: *status, ..node.book.clone() };
    node.send(Event::StatusWritten(Outcome::Written(written)));
    node.stop(1);
    node.shown("2", |b| b.generation = Some(7));
    assert_eq!(node.daemon.open_orders().len(), 1, "that was before the write");
    node.shown("3", |b| {
        b.uid = "new".into();
        b.orders.clear();
    });
    assert_eq!(node.daemon.open_orders().len(), 0);
}

#[test]
fn an_order_withdrawn_before_anything_began_holds_up_no_other_of_its_pod() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Conflict));
    node.change(|b| b.orders = vec![order(2, "web", None)]);
    node.inspect(2, running(2, "web"));
    node.stored();
    node.stop(2);
}

/// A container that was told to shut down must not stay behind.
#[test]
fn a_hook_whose_book_goes_while_it_runs_is_followed_by_the_stop() {
    let mut node = hooking(30);
    node.send(Event::Book(Watch::Gone(node.book.clone())));
    node.quiet();
    node.hook_done(1, Ok(()));
    assert_eq!(node.stop(1), 30);
}

/// A list may be older than what the watch has shown.
#[test]
fn the_hook_of_an_order_that_a_stale_list_brings_back_is_not_run_again() {
    let mut node = hooking(30);
    let before = node.book.clone();
    node.hook_done(1, Ok(()));
    node.stop(1);
    node.change(|b| b.orders = vec![order(2, "db", Some(30))]);
    node.stopped(1);
    node.inspect(2, hooked(2, "db"));
    node.stored();
    assert_eq!(node.hook(2).0, exec());
    node.hook_done(2, Ok(()));
    node.stop(2);
    node.send(Event::Book(Watch::list(vec![before])));
    node.inspect(1, hooked(1, "web"));
    node.stop(1);
    node.quiet();
}

#[test]
fn of_hooks_that_ended_those_of_withdrawn_orders_are_forgotten_when_there_are_too_many() {
    let mut node = hooking(30);
    let many = (0..MAX_ENDED_HOOKS).map(|n| (format!("old/c{n}/1"), None));
    node.daemon = daemon("two").with_ended_hooks(many.collect());
    node.send(Event::Book(Watch::list(vec![node.book.clone()])));
    node.inspect(1, hooked(1, "web"));
    node.stored();
    node.hook(1);
    node.hook_done(1, Ok(()));
    node.stop(1);
    // An order with the ID of a forgotten one: its hook counts as not run.
    let again = Order { id: "old/c7/1".into(), ..order(7, "db", Some(30)) };
    node.change(|b| b.orders.push(again));
    node.expect(|a| matches!(a, Action::Inspect { container_id, .. } if *container_id == id(7)));
    node.send(Event::Inspected("old/c7/1".into(), Ok(Some(hooked(7, "db")))));
    node.stored();
    assert_eq!(node.hook(7).0, exec());
}

/// An order is placed before one that is already checked. The answer of this process to the latter stands.
#[test]
fn an_acknowledgement_of_this_process_is_not_written_again_while_another_order_goes_ahead() {
    let mut node = Node::new(vec![order(1, "web", Some(30))]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
    node.book.status.answers[0].reason = Some(AnswerReason::StopRetried);
    node.restart("one");
    node.change(|b| b.orders.insert(0, order(2, "web", Some(30))));
    node.expect(|a| matches!(a, Action::Inspect { container_id, .. } if *container_id == id(2)));
    node.inspect(1, running(1, "web"));
    node.quiet();
}

/// Makes the order name the `n`th container.
fn renamed(node: &mut Node, n: u8) {
    node.change(|b| b.orders[0].container.id = id(n).into());
}

fn refused_as_reused(node: &mut Node) {
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::InvalidOrder)));
    assert!(answer.message.contains("has the same ID"), "{}", answer.message);
    node.quiet();
}

/// The check was for another container than the order names now.
#[test]
fn an_order_that_names_another_container_than_at_first_is_refused() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Conflict));
    renamed(&mut node, 2);
    refused_as_reused(&mut node);

    let mut node = Node::new(vec![order(1, "web", None)]);
    renamed(&mut node, 2);
    node.inspect(1, running(1, "web"));
    refused_as_reused(&mut node);

    let mut node = Node::new(vec![order(1, "web", None)]);
    node.expect(|a| matches!(a, Action::Inspect { .. }));
    node.send(Event::Inspected("req/c1/1".into(), Err(CallFailure { retry: true, message: "away".into() })));
    renamed(&mut node, 2);
    node.now += 60_000;
    node.send(Event::Tick);
    refused_as_reused(&mut node);
}

/// Two orders with one ID are both invalid, in either sequence.
#[test]
fn two_orders_of_one_id_are_refused() {
    let other = Order { id: "req/c1/1".into(), ..order(2, "bank", None) };
    let mut node = Node::new(vec![order(1, "web", None), other]);
    node.inspect(1, running(1, "web"));
    node.expect(|a| {
        matches!(a, Action::WriteStatus { status, .. } if status.answers.iter().all(|a| {
            (a.state, a.reason) == (AnswerState::Refused, Some(AnswerReason::InvalidOrder))
        }))
    });
    node.quiet();
}

/// A container that was told to shut down must not stay behind; the other one is not touched.
#[test]
fn a_hook_whose_order_names_another_container_meanwhile_is_followed_by_the_stop_of_its_own() {
    let mut node = hooking(30);
    renamed(&mut node, 2);
    node.send(Event::HookDone("req/c1/1".into(), Ok(())));
    node.stop(1);
    node.stopped(1);
    refused_as_reused(&mut node);
}

/// The next book numbers its orders anew, so the same ID may be another order's.
#[test]
fn an_order_of_another_book_by_the_id_of_one_under_way_is_carried_out_after_it() {
    for deleted in [false, true] {
        let mut node = Node::new(vec![order(1, "web", None)]);
        node.expect(|a| matches!(a, Action::Inspect { container_id, .. } if *container_id == id(1)));
        if deleted {
            node.send(Event::Book(Watch::Gone(node.book.clone())));
        }
        node.book.uid = "new".into();
        renamed(&mut node, 2);
        node.quiet();
        node.send(Event::Inspected("req/c1/1".into(), Ok(Some(running(1, "web")))));
        node.expect(|a| matches!(a, Action::Inspect { container_id, .. } if *container_id == id(2)));
        node.send(Event::Inspected("req/c1/1".into(), Ok(Some(facts(1, "web", ContainerState::Running)))));
        assert_eq!(node.stored().answers.remove(0).state, AnswerState::Acknowledged);
        node.stop(2);
    }
}

/// An answer counts only in its own book, and rests on work for that book.
#[test]
fn the_same_order_in_another_book_is_carried_out_anew() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.change(|b| {
        b.uid = "new".into();
        b.status = NodeWorkStatus::default();
    });
    node.inspect(1, exited(1, "web"));
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::NotRunning)));
}
