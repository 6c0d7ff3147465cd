//! Orders with `reclaim_to`, by which the kernel reclaims memory, and with `only_raise`, by which a Pod's values only
//! rise.

use pitstop_api::nodework::{Cgroup, ResizeOrder};

use super::resize::{MB, ask, bounds, cgroup, hold, never, present, resize};
use super::*;
use crate::resize::{Present, Setting, Write};

fn reclaim(n: u8, pod: &str, to: i64, resize: ResizeOrder) -> Order {
    ask(n, pod, ResizeOrder { reclaim_to: Some(to * MB), ..resize })
}

/// Container and Pod with this limit and memory use, in MiB.
fn using(pod: &str, limit: i64, usage: i64) -> Present {
    let mut present = present(pod, bounds(100, limit), bounds(100, limit));
    for seen in [&mut present.container, &mut present.pod].into_iter().flatten() {
        seen.cgroup.memory_usage = Some(usage * MB);
    }
    present
}

#[test]
fn memory_is_reclaimed_before_a_limit_is_lowered() {
    let wanted = resize(Some(bounds(100, 32)), Some(bounds(100, 32)), true);
    let mut node = Node::resizing(vec![reclaim(1, "web", 30, wanted)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(using("web", 64, 40)));
    node.stored();
    let reclaims = Write::Reclaim { cgroup: "kubepods/poduid-web/1".into(), bytes: 10 * MB };
    assert_eq!(node.writes("req/c1/1", Ok(())), [reclaims]);
    node.looks("req/c1/1", Ok(using("web", 64, 20)));
    let writes = node.writes("req/c1/1", Ok(()));
    assert!(writes.iter().all(|write| !matches!(write, Write::Reclaim { .. })), "{writes:?}");
    node.looks("req/c1/1", Ok(using("web", 32, 20)));
    assert_eq!(node.stored().answers[0].state, AnswerState::Done);
}

/// If the kernel cannot reclaim enough, the order waits as usual. The next try comes after 30 s.
#[test]
fn memory_that_stays_in_use_is_waited_for() {
    let wanted = resize(Some(bounds(100, 32)), None, true);
    let mut node = Node::resizing(vec![reclaim(1, "web", 32, wanted)]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(using("web", 64, 40)));
    node.stored();
    node.writes("req/c1/1", Ok(()));
    node.looks("req/c1/1", Ok(using("web", 64, 38)));
    assert_eq!(node.stored().answers[0].reason, Some(AnswerReason::MemoryInUse));
    let mut passed = node.wait();
    assert_eq!(passed, 1_000);
    while passed < 30_000 {
        node.looks("req/c1/1", Ok(using("web", 64, 38)));
        node.quiet();
        passed += node.wait();
    }
    node.looks("req/c1/1", Ok(using("web", 64, 38)));
    let again = node.writes("req/c1/1", Ok(()));
    assert!(matches!(again[..], [Write::Reclaim { bytes, .. }] if bytes == 6 * MB), "{again:?}");
}

/// A limit that is not lowered needs no room.
#[test]
fn nothing_is_reclaimed_for_a_limit_that_is_not_lowered() {
    for limit in [64, 96] {
        let wanted = resize(Some(bounds(200, limit)), None, true);
        let mut node = Node::resizing(vec![reclaim(1, "web", 32, wanted)]);
        node.inspected("req/c1/1", running(1, "web"));
        node.looks("req/c1/1", Ok(using("web", 64, 60)));
        node.stored();
        let writes = node.writes("req/c1/1", Ok(()));
        assert!(writes.iter().all(|write| !matches!(write, Write::Reclaim { .. })), "{writes:?}");
    }
}

/// Raises only what the kubelet leaves too low. Higher values of the Pod stay, and so does the absence of a limit.
#[test]
fn a_pod_that_is_only_raised_loses_nothing() {
    let wanted = ResizeOrder { only_raise: true, ..resize(None, Some(bounds(100, 64)), false) };
    let of = |ended: bool, pod: Cgroup| {
        let mut node = Node::resizing(vec![ask(1, "web", wanted.clone())]);
        node.inspected("req/c1/1", if ended { exited(1, "web") } else { running(1, "web") });
        let mut seen = using("web", 32, 30);
        seen.pod.as_mut().unwrap().cgroup = pod;
        seen.container = seen.container.filter(|_| !ended);
        node.looks("req/c1/1", Ok(seen));
        node.stored();
        node
    };
    let low = cgroup(bounds(50, 32));
    for ended in [false, true] {
        let mut node = of(ended, low);
        let raised = [
            Write::Pod(Setting::Quota { quota: Some(10_000), period: 100_000 }),
            Write::Pod(Setting::Memory(Some(64 * MB))),
            Write::Pod(Setting::Shares(102)),
        ];
        assert_eq!(node.writes("req/c1/1", Ok(())), raised);
    }
    let more = Cgroup { memory_usage: Some(100 * MB), ..cgroup(bounds(200, 128)) };
    let unlimited = Cgroup { cpu_quota: None, memory_limit: None, ..more };
    for enough in [more, unlimited] {
        let mut node = of(true, enough);
        assert_eq!(node.stored().answers[0].state, AnswerState::Done);
        node.quiet();
    }
    let mut node = of(true, Cgroup { cpu_quota: None, ..low });
    let writes = node.writes("req/c1/1", Ok(()));
    assert!(!writes.iter().any(|w| matches!(w, Write::Pod(Setting::Quota { .. }))), "{writes:?}");
}

#[test]
fn memory_is_reclaimed_alone_and_leaves_no_record() {
    for (usage, ended) in [(40, false), (20, false), (40, true)] {
        let mut node = Node::resizing(vec![hold(2, "web", 100, 64)]);
        let held = node.held(2, "web", 32, 64);
        node.change(|b| b.orders = vec![reclaim(1, "web", 30, ResizeOrder::default())]);
        node.inspected("req/c1/1", if ended { exited(1, "web") } else { running(1, "web") });
        let mut seen = using("web", 64, usage);
        seen.container = seen.container.filter(|_| !ended);
        node.looks("req/c1/1", Ok(seen));
        node.stored();
        if usage > 30 && !ended {
            node.writes("req/c1/1", Ok(()));
            node.looks("req/c1/1", Ok(using("web", 64, 35)));
        }
        let status = node.stored();
        assert_eq!(status.answers[0].state, AnswerState::Done);
        assert_eq!(status.held, [held]);
        node.quiet();
    }
}

#[test]
fn memory_that_cannot_be_reclaimed_at_all_is_told_of() {
    let mut node = Node::resizing(vec![reclaim(1, "web", 30, ResizeOrder::default())]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(using("web", 64, 40)));
    node.stored();
    node.writes("req/c1/1", Err(never("reclaiming memory takes Linux 5.19")));
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Failed, Some(AnswerReason::ResizeFailed)));
}
