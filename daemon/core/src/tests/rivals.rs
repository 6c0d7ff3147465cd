//! Two daemons on one node, as during an update: each applies the other's answers.

use super::*;

fn answer_of_the_other(b: &mut Book, state: AnswerState, reason: Option<AnswerReason>) {
    b.status.answers = vec![Answer {
        order_id: "req/c1/1".into(),
        state,
        reason,
        message: String::new(),
        acknowledged_uptime_seconds: Some(90),
        acknowledged_by: "other".into(),
        observed: None,
        image: None,
    }];
}

/// This daemon looked after the other's stop, before it saw the other's acknowledgement.
#[test]
fn what_the_other_ended_is_not_refused() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, exited(1, "web"));
    node.quiet_but_write();
    // The write was refused as stale; the watch shows why.
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Conflict));
    node.change(|b| answer_of_the_other(b, AnswerState::Acknowledged, None));
    node.inspect(1, exited(1, "web"));
    node.quiet();
    // The next write carries the success.
    node.change(|b| b.orders.push(order(2, "db", None)));
    node.inspect(2, running(2, "db"));
    let status = node.stored();
    assert_eq!((status.answers[0].state, status.answers[0].reason), (AnswerState::Done, None));
}

#[test]
fn what_the_other_brought_to_its_end_stands() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.quiet_but_write();
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Conflict));
    let by_itself = Some(AnswerReason::EndedByItself);
    node.change(|b| answer_of_the_other(b, AnswerState::Done, by_itself));
    node.quiet();
    node.change(|b| b.orders.push(order(2, "db", None)));
    node.inspect(2, running(2, "db"));
    let status = node.stored();
    assert_eq!((status.answers[0].state, status.answers[0].reason), (AnswerState::Done, by_itself));
    node.stop(2);
    node.quiet();
}

/// Found by fuzzing: an earlier order with that ID left a final answer, and the other daemon replaced it by an
/// acknowledgement.
#[test]
fn what_makes_no_sense_is_not_asked_about_whatever_the_other_says() {
    let mut bad = order(1, "web", None);
    bad.container.id.truncate(12);
    let mut node = Node::new(Vec::new());
    node.change(|b| {
        answer_of_the_other(b, AnswerState::Refused, Some(AnswerReason::NotRunning));
        b.orders = vec![bad];
    });
    node.quiet();
    node.change(|b| answer_of_the_other(b, AnswerState::Acknowledged, None));
    let answer = node.stored().answers.remove(0);
    assert_eq!(answer.state, AnswerState::Refused);
    node.quiet();
}
