//! Requests, as the watch and own writes show them in turn.

use super::*;

fn key() -> ObjectKey {
    ObjectKey::new("shop", "a")
}

/// Accepted, with its order in the book.
fn at_work() -> Bench {
    let bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Recreating), 1));
    bench
}

#[test]
fn a_request_has_its_labels_as_long_as_it_is_at_work() {
    let mut bench = at_work();
    let active = |bench: &Bench| bench.requests[&key()].labels.contains_key(pitstop_api::labels::ACTIVE);
    assert!(active(&bench) && bench.requests[&key()].annotations.is_empty());
    bench.acknowledge();
    let over = bench.restarted("web");
    bench.all(over);
    assert_eq!((bench.phase("a"), active(&bench)), (Some(Phase::Completed), false));
}

#[test]
fn a_version_from_before_the_own_write_accepts_nothing_anew() {
    let mut bench = at_work();
    let late = Request { resource_version: "2".into(), ..request("a", "web", 0) };
    assert!(bench.step(Event::Requests(Watch::Upsert(late))).is_empty());
}

#[test]
fn a_list_counts_though_the_own_write_has_not_come_by() {
    let mut bench = at_work();
    let listed = Request { resource_version: "2".into(), ..request("a", "web", 0) };
    let anew = bench.step(Event::Requests(Watch::Restart(vec![listed])));
    let accepts = |a: &Action| matches!(a, Action::WriteStatus { resource_version, status, .. } if resource_version == "2" && status.target.is_some());
    assert!(anew.iter().any(accepts), "{anew:?}");
}

#[test]
fn a_request_that_a_list_leaves_out_is_gone_and_its_order_withdrawn() {
    let mut bench = at_work();
    let withdraws = bench.step(Event::Requests(Watch::Restart(Vec::new())));
    bench.all(withdraws);
    assert_eq!((bench.orders(), bench.index.open_requests()), (0, 0));
}
