//! The daemon's decisions, step by step.
#![allow(clippy::unnecessary_wraps, reason = "what the runtime tells of a container may be absent")]

mod back;
mod book;
mod hooks;
mod images;
mod over;
mod reclaim;
mod refused;
mod resize;
mod rivals;
mod verify;
mod weights;

use pitstop_api::id::ContainerId;
use pitstop_api::logic::machine::{Machine, Now};
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, NodeWorkStatus, Order, OrderAction, OrderContainer, OrderPod,
    Recreate, RuntimeInfo, Verify,
};

use crate::*;

fn id(n: u8) -> ContainerId {
    ContainerId::parse(&format!("{n:064x}")).unwrap()
}

fn order(n: u8, pod: &str, grace: Option<i64>) -> Order {
    Order {
        id: format!("req/c{n}/1"),
        pod: OrderPod { namespace: "ns".into(), name: pod.into(), uid: format!("uid-{pod}") },
        container: OrderContainer { name: format!("c{n}"), id: id(n).into() },
        action: Recreate::with_grace(grace).into(),
        ..Order::default()
    }
}

fn facts(n: u8, pod: &str, state: ContainerState) -> Facts {
    Facts {
        namespace: "ns".into(),
        pod: pod.into(),
        pod_uid: format!("uid-{pod}"),
        container: format!("c{n}"),
        state,
        ..Facts::default()
    }
}

/// A daemon, its book as the API server has it, and its pending actions.
struct Node {
    daemon: Daemon,
    book: Book,
    now: u64,
    todo: Vec<Action>,
    writes: usize,
}

impl Node {
    fn new(orders: Vec<Order>) -> Self {
        let book = Book { uid: "b".into(), resource_version: "1".into(), orders, ..Book::default() };
        let mut node = Self { daemon: daemon("one"), book, now: 100_000, todo: Vec::new(), writes: 0 };
        node.send(Event::Book(Watch::list(vec![node.book.clone()])));
        node
    }

    fn send(&mut self, event: Event) {
        let now = Now { mono: Mono(self.now), wall: "2026-01-01T00:00:00Z".parse().unwrap() };
        let actions = self.daemon.handle(now, event);
        self.todo.extend(actions);
        let wake = self.wake_at();
        assert!(wake.is_none_or(|at| at.0 > self.now), "wakes at {wake:?}, and it is {}", self.now);
    }

    fn wake_at(&self) -> Option<Mono> {
        self.daemon.next_wake(Mono(self.now))
    }

    fn restart(&mut self, instance: &str) {
        self.daemon = daemon(instance);
        self.todo.clear();
        self.send(Event::Book(Watch::list(vec![self.book.clone()])));
    }

    fn change(&mut self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book);
        self.bump();
        self.send(Event::Book(Watch::Upsert(self.book.clone())));
    }

    fn bump(&mut self) {
        let next: u32 = self.book.resource_version.parse::<u32>().unwrap() + 1;
        self.book.resource_version = next.to_string();
    }

    fn inspect(&mut self, n: u8, facts: impl Into<Option<Facts>>) {
        self.expect(|a| matches!(a, Action::Inspect { container_id, .. } if *container_id == id(n)));
        self.send(Event::Inspected(format!("req/c{n}/1"), Ok(facts.into())));
    }

    fn stored(&mut self) -> NodeWorkStatus {
        let action = self.expect(|a| matches!(a, Action::WriteStatus { .. }));
        let Action::WriteStatus { resource_version, status } = action else { panic!() };
        assert_eq!(resource_version, self.book.resource_version, "every write carries the version it saw");
        self.book.status = *status;
        self.bump();
        self.writes += 1;
        self.send(Event::StatusWritten(Outcome::Written(self.book.clone())));
        self.send(Event::Book(Watch::Upsert(self.book.clone())));
        self.book.status.clone()
    }

    fn stop(&mut self, n: u8) -> i64 {
        match self.expect(|a| matches!(a, Action::Stop { container_id, .. } if *container_id == id(n))) {
            Action::Stop { grace_seconds, .. } => grace_seconds,
            other => panic!("{other:?}"),
        }
    }

    fn stopped(&mut self, n: u8) {
        self.send(Event::Stopped(format!("req/c{n}/1"), Ok(())));
    }

    fn expect(&mut self, is: impl Fn(&Action) -> bool) -> Action {
        let at = self.todo.iter().position(is).unwrap_or_else(|| panic!("not among {:?}", self.todo));
        self.todo.remove(at)
    }

    fn quiet(&self) {
        assert_eq!(self.todo, [], "nothing more to do");
    }
}

fn daemon(instance: &str) -> Daemon {
    Daemon::new(Identity { instance: instance.into(), boot_id: "boot".into() })
}

fn running(n: u8, pod: &str) -> Facts {
    facts(n, pod, ContainerState::Running)
}

fn exited(n: u8, pod: &str) -> Facts {
    facts(n, pod, ContainerState::Exited)
}

#[test]
fn one_order_needs_one_write() {
    let mut node = Node::new(vec![order(1, "web", Some(7))]);
    node.inspect(1, running(1, "web"));
    node.quiet_but_write();
    let status = node.stored();
    assert_eq!(status.answers[0].state, AnswerState::Acknowledged);
    assert_eq!(status.answers[0].acknowledged_uptime_seconds, Some(100));
    assert_eq!(node.stop(1), 7);
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.quiet();
    assert_eq!(node.writes, 1, "the success waits for a later write");
    node.change(|b| b.orders.clear());
    node.quiet();
}

impl Node {
    fn quiet_but_write(&self) {
        assert!(
            matches!(self.todo[..], [Action::WriteStatus { .. }]),
            "no stop before the write: {:?}",
            self.todo
        );
    }
}

#[test]
fn a_conflict_stops_nothing_and_the_next_version_is_acknowledged_anew() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Conflict));
    node.quiet();
    node.change(|b| b.generation = Some(2));
    let status = node.stored();
    assert_eq!(status.observed_generation, Some(2));
    node.stop(1);
}

#[test]
fn an_order_withdrawn_before_its_acknowledgement_is_never_carried_out() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.todo.clear();
    node.change(|b| b.orders.clear());
    node.send(Event::StatusWritten(Outcome::Conflict));
    node.now += 60_000;
    node.send(Event::Tick);
    node.quiet();
}

#[test]
fn an_ambiguous_write_is_acted_on_only_once_it_is_seen() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    let Action::WriteStatus { status, .. } = node.expect(|a| matches!(a, Action::WriteStatus { .. })) else {
        panic!()
    };
    node.send(Event::StatusWritten(Outcome::Retry));
    node.quiet();
    node.change(|b| b.status = *status);
    node.quiet();
    // That the write was stored proves nothing about the present.
    node.now += 10_000;
    node.send(Event::Tick);
    node.stored();
    node.stop(1);
}

#[test]
fn a_moment_that_passed_unseen_is_still_a_reason_to_wake() {
    let mut node = Node::new(vec![order(1, "web", Some(1))]);
    node.inspect(1, running(1, "web"));
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Retry));
    node.now += 10_000;
    assert!(node.wake_at().is_some_and(|at| at.0 <= node.now), "or the driver would sleep for ever");
    node.send(Event::Tick);
    assert_eq!(node.wake_at(), None, "and it would not sleep at all");
    assert!(node.todo.iter().any(|action| matches!(action, Action::WriteStatus { .. })));
}

#[test]
fn a_write_that_was_refused_is_tried_again_soon() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.todo.clear();
    node.send(Event::StatusWritten(Outcome::Retry));
    node.quiet();
    assert_eq!(node.wake_at(), Some(Mono(node.now + 500)));
    node.now += 500;
    node.send(Event::Tick);
    node.stored();
    node.stop(1);
}

#[test]
fn orders_of_one_pod_follow_one_another_and_of_two_go_side_by_side() {
    let mut node = Node::new(vec![order(1, "web", None), order(2, "web", None), order(3, "db", None)]);
    node.inspect(1, running(1, "web"));
    node.inspect(3, running(3, "db"));
    // The first write may start before the second answer of the runtime.
    node.stored();
    if node.todo.iter().any(|a| matches!(a, Action::WriteStatus { .. })) {
        node.stored();
    }
    node.stop(1);
    node.stop(3);
    node.quiet();
    node.stopped(1);
    node.inspect(1, exited(1, "web"));
    node.inspect(2, running(2, "web"));
    let status = node.stored();
    assert_eq!(
        status.answers.iter().map(|a| a.state).collect::<Vec<_>>(),
        [AnswerState::Done, AnswerState::Acknowledged, AnswerState::Acknowledged]
    );
    node.stop(2);
}

#[test]
fn what_the_labels_do_not_confirm_is_refused() {
    let wrong: [fn(&mut Facts); 4] = [
        |f| f.namespace = "other".into(),
        |f| f.pod = "other".into(),
        |f| f.pod_uid = "other".into(),
        |f| f.container = "other".into(),
    ];
    for spoil in wrong {
        let mut node = Node::new(vec![order(1, "web", None)]);
        let mut found = facts(1, "web", ContainerState::Running);
        spoil(&mut found);
        node.inspect(1, Some(found));
        let answer = node.stored().answers.remove(0);
        assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::WrongContainer)));
        assert!(answer.message.contains("other"), "{}", answer.message);
        node.quiet();
    }
}

#[test]
fn malformed_orders_never_reach_the_runtime() {
    for spoil in [
        |o: &mut Order| o.container.id.truncate(12),
        |o: &mut Order| o.container.id.clear(),
        |o: &mut Order| o.container.id = "Z".repeat(64),
        |o: &mut Order| o.pod.namespace.clear(),
        |o: &mut Order| o.pod.name.clear(),
        |o: &mut Order| o.pod.uid.clear(),
        |o: &mut Order| o.container.name.clear(),
        |o: &mut Order| o.action.recreate = None,
        |o: &mut Order| o.action.recreate = Some(Recreate::with_grace(Some(-1))),
        |o: &mut Order| o.action.verify = Some(Verify::default()),
    ] {
        let mut bad = order(1, "web", None);
        spoil(&mut bad);
        let mut node = Node::new(vec![bad]);
        let answer = node.stored().answers.remove(0);
        assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::InvalidOrder)));
        node.quiet();
    }
}

#[test]
fn gone_and_ended_containers_are_refused() {
    for found in [None, Some(exited(1, "web"))] {
        let mut node = Node::new(vec![order(1, "web", None)]);
        node.inspect(1, found);
        let answer = node.stored().answers.remove(0);
        assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::NotRunning)));
        node.quiet();
    }
}

#[test]
fn d13_a_container_that_was_only_made_is_waited_for() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, Some(facts(1, "web", ContainerState::Created)));
    node.quiet();
    assert_eq!(node.wake_at(), Some(Mono(node.now + 1_000)));
    node.now += 1_000;
    node.send(Event::Tick);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
}

#[test]
fn grace_comes_from_the_order_else_the_annotation_else_the_default_and_is_never_under_two() {
    let annotated = Facts { grace_seconds: Some(9), ..facts(1, "web", ContainerState::Running) };
    for (asked, found, wanted) in [
        (Some(5), annotated.clone(), 5),
        (Some(0), annotated.clone(), 2),
        (None, annotated, 9),
        (None, facts(1, "web", ContainerState::Running), 30),
    ] {
        let mut node = Node::new(vec![order(1, "web", asked)]);
        node.inspect(1, Some(found));
        node.stored();
        assert_eq!(node.stop(1), wanted);
    }
}

#[test]
fn d8_a_stop_that_the_last_daemon_finished_is_not_repeated() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.restart("two");
    node.inspect(1, None::<Facts>);
    node.quiet();
}

#[test]
fn a_container_that_ended_before_the_stop_is_told_at_once() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
    node.restart("one");
    node.inspect(1, exited(1, "web"));
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Done, Some(AnswerReason::EndedByItself)));
}

#[test]
fn a_stop_without_effect_is_retried_until_the_order_is_withdrawn() {
    let mut node = Node::new(vec![order(1, "web", Some(1))]);
    node.inspect(1, running(1, "web"));
    node.stored();
    let (mut waits, mut proofs) = (Vec::new(), 0);
    for n in 1..=20 {
        node.stop(1);
        let busy = CallFailure { retry: true, message: "busy".into() };
        node.send(Event::Stopped("req/c1/1".into(), if n % 2 == 0 { Ok(()) } else { Err(busy) }));
        let at = node.wake_at().unwrap();
        waits.push(at.since(Mono(node.now)).as_millis());
        node.now = at.0;
        node.send(Event::Tick);
        node.inspect(1, running(1, "web"));
        if n != 3 && matches!(node.todo[..], [Action::WriteStatus { .. }]) {
            // Each stop needs a recent write that proves the book.
            let before = node.book.status.clone();
            assert_eq!(node.stored(), before);
            proofs += 1;
        }
        if n == 3 {
            let answer = node.stored().answers.remove(0);
            assert_eq!(
                (answer.state, answer.reason),
                (AnswerState::Acknowledged, Some(AnswerReason::StopRetried))
            );
            assert_eq!(answer.message, "the container still runs after 3 stops; the daemon retries");
        }
    }
    assert_eq!(node.writes, 2 + proofs, "it is reported once");
    assert!(waits.is_sorted() && waits.last() == Some(&60_000), "{waits:?}");
    node.stop(1);
    node.change(|b| b.orders.clear());
    node.stopped(1);
    node.now += 600_000;
    node.send(Event::Tick);
    node.quiet();
}

#[test]
fn a_stop_that_can_never_work_fails_at_once() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
    let denied = CallFailure { retry: false, message: "access denied".into() };
    node.send(Event::Stopped("req/c1/1".into(), Err(denied)));
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Failed, Some(AnswerReason::StopFailed)));
    assert_eq!(answer.message, "access denied");
    node.quiet();
}

#[test]
fn d12_a_stop_that_fails_while_the_container_ends_is_done() {
    let mut node = Node::new(vec![order(1, "web", None), order(2, "db", None)]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
    let late = CallFailure { retry: true, message: "no answer within 150 s".into() };
    node.send(Event::Stopped("req/c1/1".into(), Err(late)));
    node.now = node.wake_at().unwrap().0;
    node.send(Event::Tick);
    node.inspect(1, exited(1, "web"));
    node.inspect(2, running(2, "db"));
    let answers = node.stored().answers;
    assert_eq!((answers[0].state, answers[0].reason), (AnswerState::Done, None));
}

#[test]
fn a_runtime_that_is_back_is_asked_at_once() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    for _ in 0..9 {
        node.expect(|a| matches!(a, Action::Inspect { .. }));
        let down = CallFailure { retry: true, message: "no container runtime answers".into() };
        node.send(Event::Inspected("req/c1/1".into(), Err(down)));
        node.now = node.wake_at().unwrap().0;
        node.send(Event::Tick);
    }
    node.expect(|a| matches!(a, Action::Inspect { .. }));
    node.send(Event::Inspected("req/c1/1".into(), Err(CallFailure { retry: true, message: "no".into() })));
    node.quiet();
    node.send(Event::Runtime(RuntimeInfo { name: "containerd".into(), version: "2".into() }));
    node.inspect(1, running(1, "web"));
    assert_eq!(node.stored().runtime.unwrap().name, "containerd");
    node.stop(1);
}

#[test]
fn a_runtime_that_does_not_answer_is_asked_again_and_nothing_fails() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    for _ in 0..20 {
        node.expect(|a| matches!(a, Action::Inspect { .. }));
        let down = CallFailure { retry: true, message: "connection refused".into() };
        node.send(Event::Inspected("req/c1/1".into(), Err(down)));
        node.quiet();
        node.now = node.wake_at().unwrap().0;
        node.send(Event::Tick);
    }
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
}

#[test]
fn a_stop_under_way_finishes_when_its_order_is_withdrawn() {
    let mut node = Node::new(vec![order(1, "web", None)]);
    node.inspect(1, running(1, "web"));
    node.stored();
    node.stop(1);
    node.change(|b| b.orders.clear());
    node.stopped(1);
    node.quiet();
}
