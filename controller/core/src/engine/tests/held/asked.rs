//! What a request can ask for beside the change itself.

use super::*;

#[test]
fn a_pod_that_finds_no_room_is_evicted_where_that_is_asked_for() {
    let more = json!({"cpu": "5"});
    for (ask, reason) in [
        (json!({"onInfeasible": {"waitSeconds": 10, "then": "Evict"}}), "NodeCapacity"),
        (json!({"onInfeasible": {"waitSeconds": 10}}), "NodeCapacity"),
    ] {
        let mut node = Node::new();
        node.pod.controller = Some(Box::new(crate::fixtures::controller("ReplicaSet")));
        node.pod.resource_version = "9".into();
        node.happens(Event::Pods(Watch::Upsert(node.pod.clone())));
        let mut spec =
            json!({"containers": [{"name": "app", "resources": {"requests": more, "limits": {"cpu": "6"}}}]});
        spec.as_object_mut().unwrap().extend(ask.as_object().unwrap().clone());
        node.apply("much", &spec);
        node.later(5);
        assert_eq!(node.reason("much"), (Some(Phase::Proposed), reason.into()));
        node.later(20);
        let evicts = ask["onInfeasible"]["then"] == "Evict";
        let (phase, reason) =
            if evicts { (Phase::InProgress, "Evicting") } else { (Phase::Infeasible, reason) };
        assert_eq!(node.reason("much"), (Some(phase), reason.into()));
        assert_eq!(!node.deeds.is_empty(), evicts, "{:?}", node.deeds);
        assert_eq!((node.book.orders.len(), node.book.status.held.len()), (0, 0));
        if evicts {
            node.happens(Event::Pods(Watch::Gone(node.pod.clone())));
            node.later(5);
            assert_eq!(node.reason("much"), (Some(Phase::Infeasible), "Evicted".into()));
        }
    }
}

#[test]
fn a_container_that_its_policy_restarts_is_restarted_only_where_that_is_asked_for() {
    for (restart, reason) in [("IfPolicyRequires", "PolicyWouldRestart"), ("Always", "Restarting")] {
        let mut node = Node::new();
        node.pod.containers[0].restart_for.cpu = true;
        node.pod.resource_version = "9".into();
        node.happens(Event::Pods(Watch::Upsert(node.pod.clone())));
        node.apply("grow", &json!({"restart": restart}));
        node.later(10);
        assert_eq!(node.reason("grow").1, reason);
        assert_eq!(node.deeds.is_empty(), restart != "Always");
    }
}

/// The daemon may have seen an order that was withdrawn before any answer.
#[test]
fn no_order_has_the_number_of_one_that_was_withdrawn_unanswered() {
    let mut node = Node::new();
    node.away = true;
    node.apply("first", &json!({}));
    let first: Vec<String> = node.book.orders.iter().map(|order| order.id.clone()).collect();
    node.delete("first");
    assert_eq!((first.len(), node.book.orders.len()), (1, 0));
    node.apply("second", &json!({"containers": [{"name": "app", "resources": {"limits": {"cpu": "500m"}}}]}));
    assert_eq!(node.book.orders.len(), 1);
    assert!(node.book.orders.iter().all(|order| !first.contains(&order.id)));
}

/// Nothing waits for the orders of a request that is being deleted.
#[test]
fn a_request_that_is_being_deleted_keeps_no_order_in_the_book() {
    let mut node = Node::new();
    node.away = true;
    node.apply("first", &json!({}));
    node.away = false;
    node.change("first", |resize| resize.deleting = true);
    node.at_rest();
}
