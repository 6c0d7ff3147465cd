//! Defects of `OpenKruise` that must not exist here: rows of `docs/design/kruise-defects.md`.

use super::*;

/// The API server counts creation times in seconds: which of two requests goes first must not change with the order in
/// which they are seen.
#[test]
fn k7_requests_of_the_same_second_go_by_their_names() {
    let two = || [request("b", "web", 5), request("a", "web", 5)];
    let [b, a] = two();
    for requests in [vec![b.clone(), a.clone()], vec![a, b]] {
        let bench = Bench::new(vec![pod("web")], requests);
        assert_eq!((bench.phase("a"), bench.phase("b")), (Some(Phase::Recreating), Some(Phase::Pending)));
    }
}

/// Only the event that ends the request before wakes a waiting request.
#[test]
fn d1_the_next_request_of_a_pod_begins_in_the_step_that_sees_the_end_of_the_one_before() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0), request("b", "web", 1)]);
    assert_eq!(bench.phase("b"), Some(Phase::Pending));
    bench.acknowledge();
    let over = bench.restarted("web");
    let end = over.iter().find(|a| status_write(a).is_some()).unwrap();
    let stored = bench.write(end);
    let next = bench.step(stored);
    let accepts = |a: &Action| matches!(a, Action::Write { object: Object { key, .. }, write: Write::Status { status: Status::Recreate(status), .. } } if key.name == "b" && status.target.is_some());
    assert!(next.iter().any(accepts), "{next:?}");
}

/// The cost of an event depends on what it concerns, not on the number of requests and Pods.
#[test]
fn d25_an_event_concerns_only_the_requests_of_its_pod_or_node() {
    let names: Vec<String> = (0..50).map(|i| format!("p{i:02}")).collect();
    let pods = names.iter().map(|n| pod(n)).collect();
    let requests = names.iter().map(|n| request(n, n, 0)).collect();
    let mut bench = Bench::new(pods, requests);
    assert!(bench.engine.stores.recreates.dirty.is_empty());
    bench.engine.pods_changed(Watch::Upsert(Pod { resource_version: "2".into(), ..pod("p07") }));
    let own = ObjectKey::new("shop", "p07");
    assert_eq!(bench.engine.stores.recreates.dirty, BTreeSet::from([own.clone()]));
    assert_eq!(bench.engine.dirty_pods, BTreeSet::from([own]));
    bench.step(Event::Tick);
    bench
        .engine
        .books_changed(Mono(0), Watch::Upsert(NodeWork { node: "node2".into(), ..NodeWork::default() }));
    assert!(bench.engine.stores.recreates.dirty.is_empty(), "nothing is at work on that node");
}
