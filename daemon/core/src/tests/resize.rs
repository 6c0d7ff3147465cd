//! Orders to resize, and the record of the original resources.

use pitstop_api::nodework::{Bounds, Cgroup, Held, ResizeOrder};

use super::*;
use crate::cgroup::Version;
use crate::resize::{Present, Seen, Setting, Write};

pub(super) const MB: i64 = 1 << 20;

pub(super) fn bounds(cpu: i64, memory: i64) -> Bounds {
    Bounds { cpu_request: cpu, cpu_limit: Some(cpu), memory_limit: Some(memory * MB) }
}

pub(super) fn cgroup(bounds: Bounds) -> Cgroup {
    Cgroup {
        cpu_quota: bounds.cpu_limit.map(|limit| limit * 100),
        cpu_period: Some(100_000),
        cpu_shares: Some(bounds.cpu_request * 1024 / 1000),
        memory_limit: bounds.memory_limit,
        memory_usage: Some(7 * MB),
        oom_kills: Some(0),
        ..Cgroup::default()
    }
}

pub(super) fn limits(bounds: Bounds) -> Cgroup {
    Cgroup { memory_usage: None, oom_kills: None, ..cgroup(bounds) }
}

/// A container and its Pod with these resources.
pub(super) fn present(pod: &str, container: Bounds, of_pod: Bounds) -> Present {
    let seen = |bounds| Seen { cgroup: cgroup(bounds), inactive_file: MB };
    Present {
        cgroup: format!("kubepods/poduid-{pod}"),
        of_container: format!("kubepods/poduid-{pod}/1"),
        version: Version::V1,
        container: Some(seen(container)),
        pod: Some(seen(of_pod)),
        pinned: false,
        swap: false,
    }
}

pub(super) fn resize(container: Option<Bounds>, pod: Option<Bounds>, hold: bool) -> ResizeOrder {
    ResizeOrder { container, pod, hold, ..ResizeOrder::default() }
}

pub(super) fn ask(n: u8, pod: &str, resize: ResizeOrder) -> Order {
    Order { action: resize.into(), ..order(n, pod, None) }
}

pub(super) fn hold(n: u8, pod: &str, cpu: i64, memory: i64) -> Order {
    ask(n, pod, resize(Some(bounds(cpu, memory)), Some(bounds(cpu, memory)), true))
}

pub(super) fn give_back(n: u8, pod: &str, cpu: i64, memory: i64) -> Order {
    let order = ask(n, pod, resize(Some(bounds(cpu, memory)), Some(bounds(cpu, memory)), false));
    Order { id: format!("req/c{n}/2"), ..order }
}

pub(super) fn may_pass(message: &str) -> CallFailure {
    CallFailure { retry: true, message: message.into() }
}

pub(super) fn never(message: &str) -> CallFailure {
    CallFailure { retry: false, message: message.into() }
}

impl Node {
    pub(super) fn resizing(orders: Vec<Order>) -> Self {
        let mut node = Self::new(vec![]);
        node.anew("one");
        node.change(|b| b.orders = orders);
        node
    }

    /// Starts another process, which may resize.
    fn anew(&mut self, instance: &str) {
        self.daemon = daemon(instance).with_resizes(true);
        self.todo.clear();
        self.send(Event::Book(Watch::list(vec![self.book.clone()])));
    }

    pub(super) fn inspected(&mut self, order: &str, facts: impl Into<Option<Facts>>) {
        self.expect(|a| matches!(a, Action::Inspect { order_id, .. } if order_id == order));
        self.send(Event::Inspected(order.into(), Ok(facts.into())));
    }

    pub(super) fn looks(&mut self, order: &str, result: Result<Present, CallFailure>) -> Action {
        let action =
            self.expect(|a| matches!(a, Action::ReadResources { order_id, .. } if order_id == order));
        self.send(Event::ResourcesRead(order.into(), result.map(Box::new)));
        action
    }

    pub(super) fn writes(&mut self, order: &str, result: Result<(), CallFailure>) -> Vec<Write> {
        let action = self.expect(|a| matches!(a, Action::Resize { order_id, .. } if order_id == order));
        let Action::Resize { writes, cgroup, .. } = action else { panic!() };
        assert!(!writes.is_empty() && cgroup.starts_with("kubepods/poduid-"));
        self.send(Event::Resized(order.into(), result));
        writes
    }

    /// Carries out an order that holds a container; returns the record.
    pub(super) fn held(&mut self, n: u8, pod: &str, from: i64, to: i64) -> Held {
        let id = format!("req/c{n}/1");
        self.inspected(&id, running(n, pod));
        self.looks(&id, Ok(present(pod, bounds(100, from), bounds(100, from))));
        self.stored();
        self.writes(&id, Ok(()));
        self.looks(&id, Ok(present(pod, bounds(100, to), bounds(100, to))));
        self.stored().held.into_iter().find(|held| held.pod.name == pod).unwrap()
    }

    pub(super) fn wait(&mut self) -> u64 {
        let wait = self.wake_at().unwrap().0 - self.now;
        self.now += wait;
        self.send(Event::Tick);
        wait
    }

    pub(super) fn answer(&mut self) -> (AnswerState, Option<AnswerReason>, String) {
        let answer = self.stored().answers.remove(0);
        (answer.state, answer.reason, answer.message)
    }
}

#[test]
fn what_was_there_is_recorded_with_the_acknowledgement_and_what_was_given_with_the_answer() {
    let mut node = Node::resizing(vec![hold(1, "web", 500, 64)]);
    node.inspected("req/c1/1", running(1, "web"));
    let asked = node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(200, 48))));
    let (order_id, container_id, pod_uid) = ("req/c1/1".into(), id(1), "uid-web".into());
    assert_eq!(asked, Action::ReadResources { order_id, container_id, pod_uid, runs: true, held: None });
    node.quiet_but_write();
    let status = node.stored();
    assert_eq!(status.answers[0].state, AnswerState::Acknowledged);
    let [held] = status.held.as_slice() else { panic!("{:?}", status.held) };
    assert_eq!((held.pod.uid.as_str(), held.cgroup.as_str()), ("uid-web", "kubepods/poduid-web"));
    assert_eq!(held.original, limits(bounds(200, 48)));
    let container = &held.containers[0];
    assert_eq!(
        (container.name.as_str(), container.id.as_str(), container.order.as_str()),
        ("c1", id(1).as_str(), "req/c1/1")
    );
    assert_eq!((container.original, container.given, held.given), (limits(bounds(100, 32)), None, None));

    let quota = Setting::Quota { quota: Some(50_000), period: 100_000 };
    let memory = Setting::Memory(Some(64 * MB));
    let shares = Setting::Shares(512);
    let all = Write::Container { id: id(1), settings: vec![quota, memory, shares] };
    let expected = [Write::Pod(quota), Write::Pod(memory), Write::Pod(shares), all];
    assert_eq!(node.writes("req/c1/1", Ok(())), expected);
    let now = present("web", bounds(500, 64), bounds(500, 64));
    node.looks("req/c1/1", Ok(now.clone()));
    let status = node.stored();
    let answer = &status.answers[0];
    assert_eq!(
        (answer.state, answer.reason, answer.acknowledged_by.as_str()),
        (AnswerState::Done, None, "one")
    );
    let observed = answer.observed.as_deref().unwrap();
    assert_eq!((observed.container, observed.pod), (now.container.unwrap().cgroup, now.pod.unwrap().cgroup));
    let held = &status.held[0];
    let container = &held.containers[0];
    assert_eq!((container.given, held.given), (Some(bounds(500, 64)), Some(bounds(500, 64))));
    assert_eq!(container.original, limits(bounds(100, 32)));
    node.quiet();
    assert_eq!(node.writes, 2);
}

#[test]
fn an_order_for_what_is_there_already_writes_nothing_into_a_cgroup() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 32)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(100, 32))));
    node.stored();
    assert_eq!(node.answer().0, AnswerState::Done);
    node.quiet();
}

#[test]
fn the_record_is_kept_by_every_write_and_by_a_later_order_of_the_same_instance() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.held(1, "web", 32, 64);
    // A stop of another Pod's container.
    node.change(|b| b.orders = vec![order(3, "db", None)]);
    node.inspect(3, running(3, "db"));
    assert_eq!(node.stored().held.len(), 1);
    // More for the same container: `given` is unknown meanwhile, and the original values stay.
    node.change(|b| b.orders = vec![Order { id: "req/c1/2".into(), ..hold(1, "web", 100, 96) }]);
    node.inspected("req/c1/2", running(1, "web"));
    node.looks("req/c1/2", Ok(present("web", bounds(100, 64), bounds(100, 64))));
    let held = node.stored().held.remove(0);
    assert_eq!(
        (held.original, held.containers[0].original),
        (limits(bounds(100, 32)), limits(bounds(100, 32)))
    );
    assert_eq!((held.containers[0].given, held.containers[0].order.as_str()), (None, "req/c1/2"));
    node.writes("req/c1/2", Ok(()));
}

#[test]
fn a_container_that_was_restarted_has_its_own_original_and_the_pod_the_first() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.held(1, "web", 32, 64);
    let mut again = hold(2, "web", 100, 64);
    again.container.name = "c1".into();
    node.change(|b| b.orders = vec![again]);
    node.inspected("req/c2/1", Facts { container: "c1".into(), ..running(2, "web") });
    node.looks("req/c2/1", Ok(present("web", bounds(100, 16), bounds(100, 64))));
    let held = node.stored().held.remove(0);
    assert_eq!(held.original, limits(bounds(100, 32)));
    let [container] = held.containers.as_slice() else { panic!() };
    assert_eq!((container.id.as_str(), container.original), (id(2).as_str(), limits(bounds(100, 16))));
}

#[test]
fn a_process_that_starts_anew_acknowledges_again_and_reads_no_original_anew() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(100, 32))));
    node.stored();
    // The process dies during its writes.
    node.anew("two");
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(100, 64))));
    node.quiet_but_write();
    let status = node.stored();
    assert_eq!(status.answers[0].acknowledged_by, "two");
    assert_eq!(status.held[0].original, limits(bounds(100, 32)));
    let writes = node.writes("req/c1/1", Ok(()));
    assert!(matches!(writes.as_slice(), [Write::Container { .. }]), "the Pod has it already: {writes:?}");
}

#[test]
fn what_was_given_comes_back_and_the_record_goes_with_the_answer() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64), hold(2, "web", 100, 64)]);
    node.held(1, "web", 32, 64);
    assert_eq!(node.held(2, "web", 32, 64).containers.len(), 2);
    for (n, left) in [(1, 1), (2, 0)] {
        let back = format!("req/c{n}/2");
        node.change(|b| b.orders = vec![give_back(n, "web", 100, 32)]);
        node.inspected(&back, running(n, "web"));
        node.looks(&back, Ok(present("web", bounds(100, 64), bounds(100, 64))));
        let held = node.stored().held;
        let of_it = held[0].containers.iter().find(|c| c.id == id(n)).unwrap();
        assert_eq!((of_it.given, of_it.order.as_str()), (None, back.as_str()), "nobody knows meanwhile");
        let writes = node.writes(&back, Ok(()));
        assert!(matches!(writes.as_slice(), [Write::Container { .. }, Write::Pod(_)]), "{writes:?}");
        node.looks(&back, Ok(present("web", bounds(100, 32), bounds(100, 32))));
        let status = node.stored();
        assert_eq!(status.answers[0].state, AnswerState::Done);
        assert_eq!(status.held.iter().map(|held| held.containers.len()).sum::<usize>(), left);
        assert_eq!(status.held.len(), left, "the Pod's goes with its last container's");
    }
    node.quiet();
}

/// The Pod's resources are still restored. If the runtime no longer knows the container, the record says where they
/// are.
#[test]
fn what_a_container_that_has_ended_was_given_comes_back_to_its_pod() {
    for found in [None, Some(exited(1, "web"))] {
        let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
        node.held(1, "web", 32, 64);
        node.change(|b| b.orders = vec![give_back(1, "web", 100, 32)]);
        node.inspected("req/c1/2", found);
        let gone = |pod| Present { container: None, ..present("web", bounds(1, 1), pod) };
        let asked = node.looks("req/c1/2", Ok(gone(bounds(100, 64))));
        assert!(
            matches!(&asked, Action::ReadResources { runs: false, held: Some(path), .. }
                if path == "kubepods/poduid-web"),
            "{asked:?}"
        );
        node.stored();
        let memory = Write::Pod(Setting::Memory(Some(32 * MB)));
        assert_eq!(node.writes("req/c1/2", Ok(())), [memory]);
        node.looks("req/c1/2", Ok(gone(bounds(100, 32))));
        let status = node.stored();
        assert_eq!((status.answers[0].state, status.held.len()), (AnswerState::Done, 0));
        node.quiet();
    }
}

#[test]
fn where_the_cgroup_of_the_pod_is_gone_too_nothing_is_left_to_do() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.held(1, "web", 32, 64);
    node.change(|b| b.orders = vec![give_back(1, "web", 100, 32)]);
    node.inspected("req/c1/2", None::<Facts>);
    let gone = Present { container: None, pod: None, ..present("web", bounds(1, 1), bounds(1, 1)) };
    node.looks("req/c1/2", Ok(gone));
    node.stored();
    let status = node.stored();
    assert_eq!((status.answers[0].state, status.answers[0].observed.as_ref()), (AnswerState::Done, None));
    assert_eq!(status.held, []);
}

/// Repairs what the kubelet leaves (kubernetes#138760), for an ended and for a running container.
#[test]
fn the_cgroup_of_a_pod_is_repaired_and_nothing_is_held() {
    for found in [exited(1, "web"), running(1, "web")] {
        let runs = found.state == ContainerState::Running;
        let mut node = Node::resizing(vec![ask(1, "web", resize(None, Some(bounds(500, 64)), false))]);
        node.inspected("req/c1/1", found);
        let seen = |pod| {
            let all = present("web", bounds(100, 32), pod);
            if runs { all } else { Present { container: None, ..all } }
        };
        node.looks("req/c1/1", Ok(seen(bounds(100, 32))));
        assert_eq!(node.stored().held, []);
        let writes = node.writes("req/c1/1", Ok(()));
        assert!(writes.len() == 3 && writes.iter().all(|w| matches!(w, Write::Pod(_))), "{writes:?}");
        node.looks("req/c1/1", Ok(seen(bounds(500, 64))));
        let status = node.stored();
        assert_eq!((status.answers[0].state, status.held.len()), (AnswerState::Done, 0));
    }
}

#[test]
fn memory_in_use_is_waited_for_and_told_once() {
    let mut order = hold(1, "web", 100, 16);
    order.action.resize.as_mut().unwrap().memory_margin = 8 * MB;
    let mut node = Node::resizing(vec![order]);
    let full = |used: i64| {
        let mut seen = present("web", bounds(100, 32), bounds(100, 32));
        seen.container.as_mut().unwrap().cgroup.memory_usage = Some(used * MB);
        seen
    };
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(full(20)));
    node.stored();
    let (state, reason, message) = node.answer();
    assert_eq!((state, reason), (AnswerState::Acknowledged, Some(AnswerReason::MemoryInUse)));
    assert!(message.starts_with(&format!("{} bytes", 19 * MB)), "{message}");
    let mut waits = Vec::new();
    for used in [19, 18, 17, 17, 17, 17] {
        waits.push(node.wait());
        node.looks("req/c1/1", Ok(full(used)));
        node.quiet();
    }
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    node.wait();
    node.looks("req/c1/1", Ok(full(9)));
    node.writes("req/c1/1", Ok(()));
    node.looks("req/c1/1", Ok(present("web", bounds(100, 16), bounds(100, 16))));
    let (state, reason, message) = node.answer();
    assert_eq!((state, reason, message.as_str()), (AnswerState::Done, None, ""));
    node.quiet();
    assert_eq!(node.wake_at(), None);
}

#[test]
fn what_may_pass_is_tried_again_and_what_never_will_fails_with_the_effect_on_record() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    let before = || present("web", bounds(100, 32), bounds(100, 32));
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(before()));
    node.stored();
    let mut waits = Vec::new();
    for n in 0..8 {
        node.writes("req/c1/1", Err(may_pass("the runtime is busy")));
        if n == 0 {
            let (state, reason, message) = node.answer();
            assert_eq!((state, reason), (AnswerState::Acknowledged, Some(AnswerReason::ResizeRetried)));
            assert_eq!(message, "the runtime is busy");
        }
        waits.push(node.wait());
        node.looks("req/c1/1", Ok(before()));
    }
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    node.writes("req/c1/1", Err(never("unimplemented")));
    let status = node.stored();
    let answer = &status.answers[0];
    assert_eq!((answer.state, answer.reason), (AnswerState::Failed, Some(AnswerReason::ResizeFailed)));
    assert_eq!((answer.message.as_str(), answer.acknowledged_by.as_str()), ("unimplemented", "one"));
    assert_eq!(status.held[0].containers[0].given, None);
    node.quiet();
}

/// A plugin of the runtime may have changed the value.
#[test]
fn what_was_written_without_effect_is_told_and_written_again() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.inspected("req/c1/1", running(1, "web"));
    let half = || present("web", bounds(100, 32), bounds(100, 64));
    node.looks("req/c1/1", Ok(half()));
    node.stored();
    node.writes("req/c1/1", Ok(()));
    node.looks("req/c1/1", Ok(half()));
    let (_, reason, message) = node.answer();
    assert_eq!(reason, Some(AnswerReason::ResizeRetried));
    assert_eq!(message, "the write had no effect: the container's memory limit 67108864 (bytes)");
    node.quiet();
    assert_eq!(node.wait(), 500);
    node.looks("req/c1/1", Ok(half()));
    node.writes("req/c1/1", Ok(()));
}

/// The acknowledgement may take long, and memory may come into use meanwhile.
#[test]
fn what_was_seen_long_ago_is_looked_at_again_before_anything_is_written() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 16)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(100, 32))));
    node.now += 2_001;
    node.stored();
    let mut full = present("web", bounds(100, 32), bounds(100, 32));
    full.pod.as_mut().unwrap().cgroup.memory_usage = Some(20 * MB);
    node.looks("req/c1/1", Ok(full));
    assert_eq!(node.answer().1, Some(AnswerReason::MemoryInUse));
    node.quiet();
}

#[test]
fn an_order_that_waits_lets_those_after_it_go_and_goes_on_when_they_have_ended() {
    let mut node =
        Node::resizing(vec![hold(1, "web", 100, 16), order(2, "web", Some(5)), hold(3, "web", 100, 64)]);
    let mut full = present("web", bounds(100, 32), bounds(100, 32));
    full.container.as_mut().unwrap().cgroup.memory_usage = Some(30 * MB);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(full.clone()));
    node.stored();
    // It yields: the Pod's next order begins.
    node.stored();
    node.inspect(2, running(2, "web"));
    node.stored();
    assert_eq!(node.stop(2), 5);
    // Its time comes while the other order is under way: it waits on, without a wake-up.
    node.now += 60_000;
    node.send(Event::Tick);
    node.quiet();
    assert_eq!(node.wake_at(), None);
    node.stopped(2);
    node.inspect(2, exited(2, "web"));
    // Now it goes first again, and the third order waits for that look.
    node.looks("req/c1/1", Ok(full));
    node.inspected("req/c3/1", running(3, "web"));
    node.quiet_but_looks("req/c3/1");
}

impl Node {
    fn quiet_but_looks(&self, order: &str) {
        let only =
            matches!(self.todo.as_slice(), [Action::ReadResources { order_id, .. }] if order_id == order);
        assert!(only, "{:?}", self.todo);
    }
}

#[test]
fn an_order_withdrawn_amid_its_writes_holds_up_its_pod_till_then_and_stays_on_record() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(100, 32))));
    node.stored();
    node.change(|b| b.orders = vec![order(2, "web", None)]);
    node.writes("req/c1/1", Ok(()));
    node.inspect(2, running(2, "web"));
    assert_eq!(node.stored().held[0].containers[0].given, None);
}

/// A CRD that is too old prunes the record, and an older daemon omits it.
#[test]
fn without_a_record_nothing_is_changed() {
    let mut node = Node::resizing(vec![hold(1, "web", 100, 64)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(present("web", bounds(100, 32), bounds(100, 32))));
    let Action::WriteStatus { mut status, .. } = node.expect(|a| matches!(a, Action::WriteStatus { .. }))
    else {
        panic!()
    };
    status.held.clear();
    node.book.status = *status;
    node.bump();
    node.send(Event::StatusWritten(Outcome::Written(node.book.clone())));
    let (state, reason, message) = node.answer();
    assert_eq!((state, reason), (AnswerState::Failed, Some(AnswerReason::ResizeFailed)));
    assert!(message.contains("older version"), "{message}");
    node.quiet();
}
