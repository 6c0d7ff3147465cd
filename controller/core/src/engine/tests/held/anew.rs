//! A request that a later one replaced: its claim counts again once it is admitted anew.

use pitstop_api::condition::ConditionStatus;

use super::*;

fn cpu(request: &str, limit: &str) -> Value {
    json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": request}, "limits": {"cpu": limit}}}]})
}

/// A Pod with that CPU request on the node, in millicores.
fn neighbour(node: &Node, request: i64) -> Pod {
    let mut other = node.pod.clone();
    (other.key, other.uid) = (ObjectKey::new("shop", "other"), "uid-other".into());
    other.containers[0].resources.cpu_request = Some(request);
    other
}

fn in_force(node: &Node, name: &str) -> Option<(ConditionStatus, String)> {
    let condition = node.status(name).conditions.iter().find(|c| c.type_ == "InForce");
    condition.map(|condition| (condition.status, condition.reason.clone()))
}

/// Much was granted, and then less.
fn less_after_much() -> Node {
    let mut node = Node::new();
    node.apply("much", &cpu("2", "3"));
    node.apply("less", &cpu("200m", "400m"));
    assert_eq!(node.given(), Some(bounds(200, 400, 128)));
    node.at_rest();
    node
}

/// A process begins to lead, and finds the Pod `other`, too.
fn leads(node: &mut Node, other: Pod) {
    node.happens(Event::Leader(true));
    node.happens(Event::Pods(Watch::list(vec![node.pod.clone(), other])));
    node.happens(Event::of::<Request>(Watch::list(Vec::new())));
    node.happens(Event::NodeWorks(Watch::list(vec![node.book.clone()])));
    let resizes: Vec<Resize> = node.resizes.values().cloned().collect();
    node.happens(Event::of::<Resize>(Watch::list(resizes)));
    for list in crate::fixtures::other_lists() {
        node.happens(list);
    }
}

#[test]
fn what_others_have_got_meanwhile_is_not_given_again() {
    let mut node = less_after_much();
    let other = neighbour(&node, 3000);
    node.happens(Event::Pods(Watch::Upsert(other.clone())));
    node.delete("less");
    assert_eq!(node.book.status.held, [], "there is no room for what was granted before");
    assert_eq!(in_force(&node, "much"), Some((ConditionStatus::False, "NodeBusy".into())));
    assert_eq!(node.reason("much").0, Some(Phase::Succeeded), "how it ended does not change");
    node.at_rest();
    node.happens(Event::Pods(Watch::Gone(other)));
    node.later(61);
    assert_eq!(node.given(), Some(bounds(2000, 3000, 128)));
    assert_eq!(in_force(&node, "much"), Some((ConditionStatus::True, "Resized".into())));
    node.at_rest();
}

/// Going back to the spec first would lower the limit for a moment.
#[test]
fn what_may_be_given_again_is_given_in_one_step() {
    let mut node = less_after_much();
    let (writes, attempt) = (node.writes, node.book.generation);
    node.delete("less");
    assert_eq!(node.given(), Some(bounds(2000, 3000, 128)));
    assert_eq!(in_force(&node, "much"), None);
    node.at_rest();
    assert_eq!((node.writes - writes, node.book.generation - attempt), (4, 2), "an order and its end");
}

/// Only the daemon's record shows a new leader what was given for which request.
#[test]
fn a_new_leader_admits_anew_what_it_does_not_find_on_record() {
    for room in [true, false] {
        let mut node = less_after_much();
        let other = neighbour(&node, if room { 100 } else { 3000 });
        let less = node.resizes.remove(&ObjectKey::new("shop", "less")).unwrap();
        node.happens(Event::Leader(false));
        node.happens(Event::of::<Resize>(Watch::Gone(less)));
        leads(&mut node, other);
        assert_eq!(node.given(), room.then(|| bounds(2000, 3000, 128)));
        node.at_rest();
    }
}

/// Given resources count, whichever process leads and however full the node is.
#[test]
fn what_is_on_record_is_not_admitted_anew() {
    let mut node = less_after_much();
    let other = neighbour(&node, 3950);
    node.happens(Event::Leader(false));
    leads(&mut node, other);
    node.restart(7);
    assert_eq!(node.given(), Some(bounds(200, 400, 128)));
    node.at_rest();
}

/// Seconds pass between the survey for the acceptance and the return of the claim.
#[test]
fn what_was_read_for_the_acceptance_does_not_count_for_the_return() {
    let mut node = Node::new();
    node.apply("much", &cpu("2", "3"));
    node.apply("less", &cpu("200m", "400m"));
    node.later(1);
    node.allocatable = 1000;
    node.delete("less");
    assert_eq!((node.given(), node.book.status.held.len()), (None, 0), "it was read again, at once");
    assert_eq!(in_force(&node, "much"), Some((ConditionStatus::False, "NodeCapacity".into())));
    node.at_rest();
}
