//! Orders to read cgroups.

use pitstop_api::nodework::{Cgroup, CgroupReading};

use super::*;

fn look(n: u8, pod: &str) -> Order {
    Order { action: Verify::default().into(), ..order(n, pod, None) }
}

fn observed() -> CgroupReading {
    let container = Cgroup { cpu_shares: Some(512), memory_limit: Some(1 << 20), ..Cgroup::default() };
    CgroupReading { container, pod: Cgroup { cpu_shares: Some(1024), ..Cgroup::default() } }
}

impl Node {
    /// Expects a read of the cgroups, and returns this result.
    fn reads(&mut self, n: u8, pod: &str, result: Result<(), CallFailure>) {
        let action = self.expect(|a| matches!(a, Action::ReadCgroups { .. }));
        let named = (format!("req/c{n}/1"), id(n), format!("uid-{pod}"));
        let (order_id, container_id, pod_uid) = named.clone();
        assert_eq!(action, Action::ReadCgroups { order_id, container_id, pod_uid });
        self.send(Event::CgroupsRead(named.0, result.map(|()| Box::new(observed()))));
    }
}

fn failure(retry: bool) -> CallFailure {
    CallFailure { retry, message: "memory.max: no such file".into() }
}

/// The answer is written at once: no other object shows it.
#[test]
fn cgroups_are_read_without_an_acknowledgement_and_told_in_one_write() {
    let mut node = Node::new(vec![look(1, "web")]);
    node.inspect(1, running(1, "web"));
    node.reads(1, "web", Ok(()));
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason, answer.acknowledged_by.as_str()), (AnswerState::Done, None, ""));
    assert_eq!(answer.observed.as_deref(), Some(&observed()));
    node.quiet();
    // Neither this process nor the next one reads again.
    node.change(|b| b.generation = Some(2));
    node.restart("two");
    node.quiet();
}

#[test]
fn what_does_not_run_or_is_another_pods_is_refused_and_never_read() {
    use AnswerReason::{NotRunning, WrongContainer};
    let another = Facts { pod_uid: "uid-other".into(), ..running(1, "web") };
    for (found, reason) in
        [(None, NotRunning), (Some(exited(1, "web")), NotRunning), (Some(another), WrongContainer)]
    {
        let mut node = Node::new(vec![look(1, "web")]);
        node.inspect(1, found);
        let answer = node.stored().answers.remove(0);
        assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(reason)));
        node.quiet();
    }
}

#[test]
fn a_container_that_is_yet_to_start_is_waited_for() {
    let mut node = Node::new(vec![look(1, "web")]);
    node.inspect(1, facts(1, "web", ContainerState::Created));
    node.quiet();
    node.now = node.wake_at().unwrap().0;
    node.send(Event::Tick);
    node.inspect(1, running(1, "web"));
    node.reads(1, "web", Ok(()));
    assert_eq!(node.stored().answers[0].state, AnswerState::Done);
}

/// A cgroup vanishes with its container.
#[test]
fn what_cannot_be_read_has_ended_or_it_is_told_that_and_why() {
    let mut node = Node::new(vec![look(1, "web")]);
    node.inspect(1, running(1, "web"));
    node.reads(1, "web", Err(failure(false)));
    node.inspect(1, exited(1, "web"));
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::NotRunning)));
    node.quiet();

    let mut node = Node::new(vec![look(1, "web")]);
    for _ in 0..2 {
        node.inspect(1, running(1, "web"));
        node.reads(1, "web", Err(failure(false)));
    }
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Failed, Some(AnswerReason::CgroupUnreadable)));
    assert_eq!((answer.message.as_str(), answer.observed), ("memory.max: no such file", None));
    node.quiet();
}

#[test]
fn a_runtime_that_does_not_answer_is_asked_again_ever_more_rarely_and_nothing_fails() {
    let mut node = Node::new(vec![look(1, "web")]);
    node.inspect(1, running(1, "web"));
    let mut last = 0;
    for _ in 0..20 {
        node.reads(1, "web", Err(failure(true)));
        node.quiet();
        let wait = node.wake_at().unwrap().0 - node.now;
        assert!(wait >= last.min(30_000), "{wait} after {last}");
        last = wait;
        node.now += wait;
        node.send(Event::Tick);
    }
    assert!(last >= 30_000);
    // A waiting order asks as soon as the runtime is back.
    node.reads(1, "web", Err(failure(true)));
    node.send(Event::Runtime(RuntimeInfo { name: "containerd".into(), version: "2".into() }));
    node.reads(1, "web", Ok(()));
    assert_eq!(node.stored().answers[0].state, AnswerState::Done);
}

#[test]
fn it_waits_for_the_orders_before_it_of_its_pod_and_for_no_other() {
    let mut node = Node::new(vec![order(1, "web", None), look(2, "web"), look(3, "db")]);
    node.inspect(3, running(3, "db"));
    node.reads(3, "db", Ok(()));
    node.stored();
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
    node.quiet();
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.inspect(2, running(2, "web"));
    node.reads(2, "web", Ok(()));
    let states: Vec<AnswerState> = node.stored().answers.iter().map(|a| a.state).collect();
    assert_eq!(states, [AnswerState::Done; 3]);
    node.quiet();
}

#[test]
fn an_order_that_is_withdrawn_while_its_cgroups_are_read_is_forgotten_and_holds_up_the_pod_till_then() {
    let mut node = Node::new(vec![look(1, "web")]);
    node.inspect(1, running(1, "web"));
    node.change(|b| b.orders = vec![order(2, "web", None)]);
    node.reads(1, "web", Ok(()));
    node.inspect(2, running(2, "web"));
    let status = node.stored();
    assert_eq!(status.answers.len(), 1);
    node.stop(2);
}

/// Otherwise the read values, or the stop, would belong to another order than the checked one.
#[test]
fn an_order_that_asks_for_something_else_than_at_first_is_refused() {
    for (first, then) in [(look(1, "web"), order(1, "web", None)), (order(1, "web", None), look(1, "web"))] {
        let mut node = Node::new(vec![first]);
        node.inspect(1, running(1, "web"));
        node.todo.retain(|a| matches!(a, Action::ReadCgroups { .. }));
        let reading = !node.todo.is_empty();
        if !reading {
            node.send(Event::StatusWritten(Outcome::Conflict));
        }
        node.change(|b| b.orders = vec![then]);
        if reading {
            node.reads(1, "web", Ok(()));
        }
        let answer = node.stored().answers.remove(0);
        assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::InvalidOrder)));
        node.quiet();
    }
}

/// No daemon acknowledges such an order. Whatever wrote this, the daemon answers once.
#[test]
fn an_acknowledgement_that_nobody_should_have_written_changes_nothing() {
    for (found, state) in [(running(1, "web"), AnswerState::Done), (exited(1, "web"), AnswerState::Refused)] {
        let mut node = Node::new(vec![order(1, "web", None)]);
        node.inspect(1, running(1, "web"));
        node.stored();
        node.book.orders = vec![look(1, "web")];
        node.restart("two");
        let runs = found.state == ContainerState::Running;
        node.inspect(1, found);
        if runs {
            node.reads(1, "web", Ok(()));
        }
        assert_eq!(node.stored().answers[0].state, state);
        node.quiet();
    }
}

#[test]
fn what_another_daemon_answered_stands() {
    let mut node = Node::new(vec![look(1, "web")]);
    node.inspect(1, running(1, "web"));
    node.reads(1, "web", Ok(()));
    let theirs = CgroupReading { container: Cgroup::default(), ..observed() };
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Conflict));
    node.change(|b| {
        b.status.answers = vec![Answer {
            order_id: "req/c1/1".into(),
            state: AnswerState::Done,
            reason: None,
            message: String::new(),
            acknowledged_uptime_seconds: None,
            acknowledged_by: String::new(),
            observed: Some(Box::new(theirs)),
            image: None,
        }];
    });
    node.quiet();
}
