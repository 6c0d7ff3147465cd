//! Requests that end while the daemon is away: a request that is over stops nothing.

use super::*;

const ORDER: &str = "req/c1/1";

fn acknowledged() -> Node {
    let mut node = Node::new(vec![order(1, "web", Some(30))]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node
}

fn refused_as_over(node: &mut Node) {
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::RequestOver)));
    assert_ne!(answer.acknowledged_by, "", "a controller that leads since learns that it was taken up");
    node.quiet();
}

#[test]
fn a_process_that_comes_back_begins_no_stop_of_a_request_that_is_over() {
    let mut node = acknowledged();
    node.now += 135_000;
    node.book.closed = vec![ORDER.to_owned()];
    node.restart("two");
    node.inspect(1, running(1, "web"));
    refused_as_over(&mut node);
}

#[test]
fn a_stop_that_ended_its_container_is_told_though_the_request_is_over() {
    let mut node = acknowledged();
    node.book.closed = vec![ORDER.to_owned()];
    node.restart("two");
    node.inspect(1, exited(1, "web"));
    node.change(|b| b.orders.push(order(2, "db", None)));
    node.inspect(2, running(2, "db"));
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Done, None));
}

/// Either the acknowledgement or the end wins: the daemon's write is conditional on the book's version.
#[test]
fn an_end_that_is_stored_before_the_acknowledgement_wins() {
    let mut node = acknowledged();
    node.restart("two");
    node.inspect(1, running(1, "web"));
    node.todo.clear();
    node.change(|b| b.closed = vec![ORDER.to_owned()]);
    node.quiet();
    node.send(Event::StatusWritten(Outcome::Conflict));
    refused_as_over(&mut node);
}

#[test]
fn a_stop_without_effect_is_not_repeated_once_the_request_is_over() {
    let mut node = acknowledged();
    node.stop(1);
    node.change(|b| b.closed = vec![ORDER.to_owned()]);
    node.quiet();
    node.stopped(1);
    node.inspect(1, running(1, "web"));
    refused_as_over(&mut node);
}

/// The runtime was away, or the process was paused between its acknowledgement and the stop.
#[test]
fn a_stop_begins_only_a_short_while_after_the_book_was_proved() {
    let mut node = acknowledged();
    node.stop(1);
    node.send(Event::Stopped(ORDER.into(), Err(CallFailure { retry: true, message: "away".into() })));
    node.now += 3_600_000;
    node.send(Event::Tick);
    node.inspect(1, running(1, "web"));
    node.quiet_but_write();
    let status = node.stored();
    assert_eq!(status.answers[0].acknowledged_uptime_seconds, Some(100), "its signal may have reached it");
    node.stop(1);
    // A process that cannot prove the book stops nothing.
    let mut node = acknowledged();
    node.stop(1);
    node.send(Event::Stopped(ORDER.into(), Err(CallFailure { retry: true, message: "away".into() })));
    node.now += 3_600_000;
    node.send(Event::Tick);
    node.inspect(1, running(1, "web"));
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Retry));
    node.now += 3_600_000;
    node.send(Event::Tick);
    node.quiet_but_write();
}

/// A process that learns of a hook's end after the hook's limit was paused. It asks the book, even if that was proved
/// recently.
#[test]
fn a_process_that_stood_still_over_its_hook_asks_the_book_first() {
    let mut node = super::hooks::hooking(10);
    node.now += 20_000;
    node.hook_done(1, Err("the preStop command did not end within 10 s"));
    node.quiet_but_write();
    node.stored();
    node.stop(1);
}

/// A slow API server answers after 30 seconds at most.
#[test]
fn a_slow_acknowledgement_is_enough() {
    let mut node = Node::new(vec![order(1, "web", Some(30))]);
    node.inspect(1, running(1, "web"));
    node.now += 30_000;
    node.stored();
    node.stop(1);
    node.quiet();
}

/// Nothing shows that the container got its signal, so an outage must not shorten its grace period.
#[test]
fn an_outage_before_the_signal_leaves_the_whole_grace() {
    let mut node = acknowledged();
    node.now += 7_200_000;
    node.restart("two");
    node.inspect(1, running(1, "web"));
    assert_eq!(node.stored().answers[0].acknowledged_uptime_seconds, Some(7_300));
    assert_eq!(node.stop(1), 30);
}

#[test]
fn d22_a_daemon_that_starts_anew_acknowledges_again_and_keeps_to_the_grace_left() {
    let mut node = Node::new(vec![order(1, "web", Some(30))]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
    node.now += 12_000;
    node.restart_knowing("two", &[("req/c1/1", None)]);
    node.inspect(1, running(1, "web"));
    node.quiet_but_write();
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.acknowledged_by.as_str(), answer.acknowledged_uptime_seconds), ("two", Some(100)));
    assert_eq!(node.stop(1), 18);
}

/// A stale list makes the controller withdraw an order and place it again.
#[test]
fn an_order_that_is_placed_again_keeps_to_the_grace_left() {
    let orders = vec![order(1, "web", Some(30))];
    let mut node = Node::new(orders.clone());
    node.inspect(1, running(1, "web"));
    node.stored();
    assert_eq!(node.stop(1), 30);
    // The next write of the status forgets the answer.
    node.change(|book| (book.orders, book.status.answers) = (Vec::new(), Vec::new()));
    node.send(Event::Stopped("req/c1/1".into(), Err(CallFailure { retry: true, message: String::new() })));
    node.now += 9_000;
    node.change(|book| book.orders = orders);
    node.inspect(1, running(1, "web"));
    assert_eq!(node.stored().answers[0].acknowledged_uptime_seconds, Some(100));
    assert_eq!(node.stop(1), 21);
}

#[test]
fn after_a_reboot_the_old_uptime_says_nothing() {
    let mut node = Node::new(vec![order(1, "web", Some(30))]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.book.status.boot.as_mut().unwrap().id = "other".into();
    node.now = 5_000;
    node.restart("two");
    node.inspect(1, running(1, "web"));
    assert_eq!(node.stored().answers[0].acknowledged_uptime_seconds, Some(5));
    assert_eq!(node.stop(1), 30);
}

/// containerd counts nanoseconds in 64 bits: 9223372037 s and more become a time in the past.
#[test]
fn no_grace_overflows_in_the_runtime() {
    for (asked, of_pod) in [(Some(i64::MAX), None), (None, Some(9_223_372_037)), (None, Some(i64::MAX))] {
        let mut book = order(1, "web", None);
        book.action.recreate.as_mut().unwrap().grace_period_seconds = asked;
        let mut node = Node::new(vec![book]);
        node.inspect(1, Facts { grace_seconds: of_pod, ..running(1, "web") });
        node.stored();
        assert_eq!(node.stop(1), pitstop_api::MAX_SECONDS);
    }
}
