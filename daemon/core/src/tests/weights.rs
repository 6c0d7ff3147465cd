//! Weights of cgroup v2, which runtimes compute differently.

use super::resize::{bounds, hold, present};
use super::*;

#[test]
fn a_weight_is_not_believed_after_a_write_without_effect() {
    let mut node = Node::resizing(vec![hold(1, "web", 45, 64)]);
    let mut before = present("web", bounds(50, 64), bounds(45, 64));
    for (seen, weight) in [(&mut before.container, 11), (&mut before.pod, 2)] {
        let cgroup = &mut seen.as_mut().unwrap().cgroup;
        (cgroup.cpu_shares, cgroup.cpu_weight) = (None, Some(weight));
    }
    node.inspected("req/c1/1", running(1, "web"));
    node.looks("req/c1/1", Ok(before.clone()));
    node.stored();
    let first = node.writes("req/c1/1", Ok(()));
    node.looks("req/c1/1", Ok(before.clone()));
    assert_eq!(node.answer().1, Some(AnswerReason::ResizeRetried));
    node.wait();
    node.looks("req/c1/1", Ok(before));
    assert_eq!(node.writes("req/c1/1", Ok(())), first, "the shares too");
}
