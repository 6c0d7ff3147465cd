//! Memory that the kernel is made to reclaim, with an order to resize or by itself.

use pitstop_api::nodework::Resize;

use super::resize::{MB, ask, bounds, hold, never, present, resize};
use super::*;
use crate::resize::{Present, Write};

fn reclaim(n: u8, pod: &str, to: i64, resize: Resize) -> Order {
    ask(n, pod, Resize { reclaim_to: Some(to * MB), ..resize })
}

/// What the container uses, beside its limits.
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

/// What cannot be reclaimed is waited for as without that, and is asked for once.
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
    assert_eq!(node.wait(), 1_000);
    node.looks("req/c1/1", Ok(using("web", 64, 38)));
    node.quiet();
}

#[test]
fn memory_is_reclaimed_alone_and_leaves_no_record() {
    for (usage, ended) in [(40, false), (20, false), (40, true)] {
        let mut node = Node::resizing(vec![hold(2, "web", 100, 64)]);
        let held = node.held(2, "web", 32, 64);
        node.change(|b| b.orders = vec![reclaim(1, "web", 30, Resize::default())]);
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
    let mut node = Node::resizing(vec![reclaim(1, "web", 30, Resize::default())]);
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(using("web", 64, 40)));
    node.stored();
    node.writes("req/c1/1", Err(never("reclaiming memory takes Linux 5.19")));
    let answer = node.stored().answers.remove(0);
    assert_eq!((answer.state, answer.reason), (AnswerState::Failed, Some(AnswerReason::ResizeFailed)));
}
