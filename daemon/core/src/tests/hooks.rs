//! preStop hooks.

use super::*;

const EXEC: &str = r#"{"exec":{"command":["/bye"]}}"#;

pub(super) fn exec() -> Hook {
    Hook::Exec { command: vec!["/bye".into()] }
}

pub(super) fn hooked(n: u8, pod: &str) -> Facts {
    Facts { pre_stop: Some(EXEC.into()), ..facts(n, pod, ContainerState::Running) }
}

impl Node {
    /// The hook to run now, and its limit in seconds.
    pub(super) fn hook(&mut self, n: u8) -> (Hook, i64) {
        match self.expect(|a| matches!(a, Action::RunHook { container_id, .. } if *container_id == id(n))) {
            Action::RunHook { hook, limit_seconds, .. } => (hook, limit_seconds),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn hook_done(&mut self, n: u8, result: Result<(), &str>) {
        self.send(Event::HookDone(format!("req/c{n}/1"), result.map_err(str::to_owned)));
    }

    pub(super) fn restart_knowing(&mut self, instance: &str, ended: &[(&str, Option<&str>)]) {
        let ended = ended.iter().map(|(id, failure)| ((*id).to_owned(), failure.map(str::to_owned)));
        self.daemon = daemon(instance).with_ended_hooks(ended.collect());
        self.todo.clear();
        self.send(Event::Book(Watch::list(vec![self.book.clone()])));
    }
}

/// A node with an acknowledged order whose hook runs.
pub(super) fn hooking(grace: i64) -> Node {
    let mut node = Node::new(vec![order(1, "web", Some(grace))]);
    node.inspect(1, hooked(1, "web"));
    node.quiet_but_write();
    node.stored();
    assert_eq!(node.hook(1), (exec(), grace));
    node.quiet();
    node
}

#[test]
fn the_hook_runs_before_the_stop_and_its_time_counts() {
    let mut node = hooking(30);
    node.now += 12_900;
    node.hook_done(1, Ok(()));
    assert_eq!(node.stop(1), 18);
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.quiet();
    assert_eq!(node.writes, 1, "a hook that went well needs no word");
}

#[test]
fn after_a_hook_that_took_all_the_grace_two_seconds_are_left() {
    let mut node = hooking(5);
    node.now += 5_200;
    node.hook_done(1, Ok(()));
    assert_eq!(node.stop(1), 2);
}

#[test]
fn without_grace_no_hook_runs() {
    let mut node = Node::new(vec![order(1, "web", Some(0))]);
    node.inspect(1, hooked(1, "web"));
    node.stored();
    assert_eq!(node.stop(1), 2);
    node.quiet();
}

#[test]
fn named_ports_come_from_the_ports_annotation() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    let found = Facts {
        pre_stop: Some(r#"{"httpGet":{"port":"admin","path":"/bye"}}"#.into()),
        ports: Some(r#"[{"name":"admin","containerPort":8081}]"#.into()),
        ..facts(1, "web", ContainerState::Running)
    };
    node.inspect(1, found);
    node.stored();
    let get = HttpGet { port: 8081, path: "/bye".into(), ..HttpGet::default() };
    assert_eq!(node.hook(1), (Hook::HttpGet(get), 30));
}

#[test]
fn a_failed_hook_is_told_at_once_and_the_stop_goes_ahead() {
    let mut node = hooking(30);
    node.hook_done(1, Err("exit code 3"));
    assert_eq!(node.stop(1), 30);
    let answer = node.stored().answers.remove(0);
    assert_eq!(
        (answer.state, answer.reason, answer.message.as_str()),
        (AnswerState::Acknowledged, Some(AnswerReason::PreStopHookFailed), "exit code 3")
    );
    assert_eq!((answer.acknowledged_by.as_str(), answer.acknowledged_uptime_seconds), ("one", Some(100)));
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.quiet();
    assert_eq!(node.writes, 2, "what was reported before waits for the next write");
    node.book.orders.push(order(2, "db", None));
    node.change(|_| ());
    node.inspect(2, running(2, "db"));
    let answer = node.stored().answers.remove(0);
    assert_eq!(
        (answer.state, answer.reason, answer.message.as_str()),
        (AnswerState::Done, Some(AnswerReason::PreStopHookFailed), "exit code 3")
    );
}

#[test]
fn a_failure_that_could_not_be_told_before_the_end_is_told_at_the_end() {
    let mut node = hooking(30);
    node.hook_done(1, Err("x".repeat(9_000).as_str()));
    node.stop(1);
    node.todo.clear();
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.send(Event::StatusWritten(Outcome::Conflict));
    node.change(|_| ());
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Done, Some(AnswerReason::PreStopHookFailed)));
    assert_eq!(answer.message.len(), 512);
}

#[test]
fn d8_a_hook_that_ended_is_not_run_again_after_a_crash() {
    let mut node = hooking(30);
    node.now += 10_000;
    node.restart_knowing("two", &[("other/c9/1", None), ("req/c1/1", None)]);
    node.inspect(1, hooked(1, "web"));
    assert_eq!(node.stored().answers[0].reason, None);
    assert_eq!(node.stop(1), 20);
    node.quiet();
}

#[test]
fn a_failure_outlives_a_crash_by_the_record_and_by_the_answer() {
    let reports_failure = |node: &mut Node| {
        node.inspect(1, hooked(1, "web"));
        let answer = node.stored().answers.remove(0);
        assert_eq!((answer.state, answer.acknowledged_by.as_str()), (AnswerState::Acknowledged, "two"));
        assert_eq!(
            (answer.reason, answer.message.as_str()),
            (Some(AnswerReason::PreStopHookFailed), "exit code 3")
        );
        node.stop(1);
        node.quiet();
    };
    let mut node = hooking(30);
    node.restart_knowing("two", &[("req/c1/1", Some("exit code 3"))]);
    // The daemon reports the record before it knows anything else.
    node.stored();
    reports_failure(&mut node);

    let mut node = hooking(30);
    node.hook_done(1, Err("exit code 3"));
    node.stored();
    node.restart("two");
    reports_failure(&mut node);
}

/// The container has no stop signal yet, and how much of the grace period the hook used is unknown.
#[test]
fn d8_a_hook_that_the_crash_cut_runs_again_with_the_whole_grace() {
    for away in [12_000, 30_000, 7_200_000] {
        let mut node = hooking(30);
        node.now += away;
        node.restart("two");
        node.inspect(1, hooked(1, "web"));
        node.stored();
        assert_eq!(node.hook(1), (exec(), 30));
        node.now += 8_000;
        node.hook_done(1, Ok(()));
        assert_eq!(node.stop(1), 22);
    }
}

#[test]
fn an_order_withdrawn_while_its_hook_runs_is_carried_out() {
    let mut node = hooking(30);
    node.change(|b| b.orders.clear());
    node.quiet();
    node.now += 3_000;
    node.hook_done(1, Ok(()));
    assert_eq!(node.stop(1), 27);
    node.stopped(1);
    node.quiet();
}

#[test]
fn the_next_order_of_a_pod_waits_for_one_that_was_withdrawn() {
    let mut node = hooking(30);
    node.change(|b| b.orders = vec![order(2, "web", None), order(3, "db", None)]);
    node.inspect(3, running(3, "db"));
    node.stored();
    node.stop(3);
    node.quiet();
    node.hook_done(1, Err("exit code 3"));
    node.stop(1);
    node.quiet();
    node.stopped(1);
    node.inspect(2, hooked(2, "web"));
}

#[test]
fn a_hook_is_not_followed_by_a_stop_that_another_daemon_has_taken_over() {
    let mut node = hooking(30);
    node.change(|b| b.status.answers[0].acknowledged_by = "two".into());
    node.hook_done(1, Ok(()));
    assert!(!node.todo.iter().any(|a| matches!(a, Action::Stop { .. })), "{:?}", node.todo);
}

#[test]
fn containers_of_one_pod_are_hooked_and_stopped_one_after_another() {
    let mut node = Node::new(vec![order(1, "web", Some(30)), order(2, "web", Some(20))]);
    node.inspect(1, hooked(1, "web"));
    node.stored();
    node.hook(1);
    node.now += 4_000;
    node.quiet();
    node.hook_done(1, Ok(()));
    node.stop(1);
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.inspect(2, hooked(2, "web"));
    node.stored();
    assert_eq!(node.hook(2), (exec(), 20), "the grace counts from the container's own acknowledgement");
    node.hook_done(2, Ok(()));
    assert_eq!(node.stop(2), 20);
    node.quiet();
}

#[test]
fn a_stop_that_is_tried_again_runs_no_hook_again() {
    let mut node = hooking(30);
    node.hook_done(1, Ok(()));
    node.stop(1);
    node.send(Event::Stopped("req/c1/1".into(), Err(CallFailure { retry: true, message: "busy".into() })));
    node.now += 1_000;
    node.send(Event::Tick);
    node.inspect(1, hooked(1, "web"));
    node.stop(1);
    node.quiet();
}

/// The controller withdraws such an order, so it must learn of it also after a failed hook.
#[test]
fn stops_without_effect_are_told_also_where_the_hook_failed() {
    let mut node = hooking(30);
    node.hook_done(1, Err("exit code 3"));
    for n in 1..=3 {
        node.stop(1);
        if n == 1 {
            node.stored();
        }
        node.stopped(1);
        if let Some(at) = node.wake_at() {
            node.now = at.0;
            node.send(Event::Tick);
        }
        node.inspect(1, hooked(1, "web"));
    }
    let answer = node.stored().answers.remove(0);
    assert_eq!(answer.reason, Some(AnswerReason::StopRetried));
    node.restart_knowing("two", &[]);
    node.inspect(1, hooked(1, "web"));
    node.stored();
    node.stop(1);
}

#[test]
fn a_book_that_goes_and_comes_back_runs_no_hook_again() {
    let mut node = hooking(30);
    node.hook_done(1, Ok(()));
    node.stop(1);
    node.send(Event::Book(Watch::Gone(node.book.clone())));
    node.stopped(1);
    node.change(|_| ());
    node.inspect(1, hooked(1, "web"));
    if node.todo.iter().any(|a| matches!(a, Action::WriteStatus { .. })) {
        node.stored();
    }
    node.stop(1);
    node.quiet();
}

#[test]
fn a_late_word_about_a_hook_changes_nothing() {
    let mut node = Node::new(vec![order(1, "web", Some(30))]);
    node.hook_done(1, Err("late"));
    node.hook_done(2, Err("late"));
    node.inspect(1, hooked(1, "web"));
    node.stored();
    node.hook(1);
    node.quiet();
}

#[test]
fn d22_a_long_hook_of_one_pod_holds_up_no_other() {
    let mut node = Node::new(vec![order(1, "web", Some(300)), order(2, "db", Some(30))]);
    node.inspect(1, hooked(1, "web"));
    node.stored();
    node.hook(1);
    node.inspect(2, hooked(2, "db"));
    node.stored();
    node.hook(2);
    node.hook_done(2, Ok(()));
    assert_eq!(node.stop(2), 30);
    node.stopped(2);
    node.inspect(2, exited(2, "db"));
    node.quiet();
}

/// A process that learns of a hook's end after the hook's limit was paused. It asks the book first.
#[test]
fn a_process_that_stood_still_in_mid_hook_begins_no_stop_of_a_request_that_is_over() {
    type End = fn(&mut Book);
    let ends: [(End, bool); 2] =
        [(|b| b.orders.clear(), false), (|b| b.closed = vec!["req/c1/1".to_owned()], true)];
    for (end, answered) in ends {
        let mut node = hooking(30);
        node.now += 7_200_000;
        node.hook_done(1, Ok(()));
        end(&mut node.book);
        if let [Action::WriteStatus { .. }] = node.todo[..] {
            node.todo.clear();
            node.send(Event::StatusWritten(Outcome::Conflict));
        }
        node.change(|_| ());
        if answered {
            let answer = node.stored().answers.remove(0);
            assert_eq!(
                (answer.state, answer.reason),
                (AnswerState::Refused, Some(AnswerReason::RequestOver))
            );
        }
        node.quiet();
    }
}

#[test]
fn a_process_that_stood_still_in_mid_hook_goes_on_with_the_whole_grace_where_the_order_stands() {
    let mut node = hooking(30);
    node.now += 7_200_000;
    node.hook_done(1, Ok(()));
    node.quiet_but_write();
    assert_eq!(node.stored().answers[0].acknowledged_uptime_seconds, Some(7_300));
    assert_eq!(node.stop(1), 30);
    node.quiet();
}

/// `OpenKruise`'s e2e case 3b: the deadline is over while the hook runs.
#[test]
fn a_request_that_ends_in_mid_hook_is_carried_out_by_the_process_that_runs_the_hook() {
    let mut node = hooking(30);
    node.change(|b| b.closed = vec!["req/c1/1".to_owned()]);
    node.quiet();
    node.now += 8_000;
    node.hook_done(1, Ok(()));
    assert_eq!(node.stop(1), 22);
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.quiet();
    node.book.orders.push(order(2, "db", None));
    node.change(|_| ());
    node.inspect(2, running(2, "db"));
    assert_eq!(node.stored().answers[0].state, AnswerState::Done);
}
