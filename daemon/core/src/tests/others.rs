//! Other processes of the same node.

use pitstop_api::nodework::Answer;

use super::*;

/// Two daemons may run on a node for a while: what one of them brought to its end the other leaves as it is.
#[test]
fn an_end_that_another_process_of_the_node_wrote_stays() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.expect(|a| matches!(a, Action::Inspect { .. }));
    node.change(|b| {
        b.status.answers = vec![Answer {
            order_id: "req/c1/1".into(),
            state: AnswerState::Done,
            reason: None,
            message: String::new(),
            acknowledged_uptime_seconds: Some(90),
            acknowledged_by: "two".into(),
        }];
    });
    node.send(Event::Inspected("req/c1/1".into(), Ok(Some(exited(1, "web")))));
    node.quiet();
    node.now += 60_000;
    node.send(Event::Tick);
    node.quiet();
}
