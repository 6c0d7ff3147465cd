//! Requests, as the watch and own writes show them in turn.

use super::*;

fn key() -> ObjectKey {
    ObjectKey::new("shop", "a")
}

/// An accepted request, with its order in the book.
fn at_work() -> Bench {
    let bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Recreating), 1));
    bench
}

#[test]
fn a_request_has_its_labels_as_long_as_it_is_at_work() {
    let mut bench = at_work();
    let active = |bench: &Bench| bench.requests[&key()].more.labels.contains_key(pitstop_api::labels::ACTIVE);
    assert!(active(&bench) && bench.requests[&key()].more.annotations.is_empty());
    bench.acknowledge();
    let over = bench.restarted("web");
    bench.all(over);
    assert_eq!((bench.phase("a"), active(&bench)), (Some(Phase::Completed), false));
}

#[test]
fn a_version_from_before_the_own_write_accepts_nothing_anew() {
    let mut bench = at_work();
    let late = Request { resource_version: "2".into(), ..request("a", "web", 0) };
    assert!(bench.step(Event::of::<Request>(Watch::Upsert(late))).is_empty());
}

#[test]
fn a_list_counts_though_the_own_write_has_not_come_by() {
    let mut bench = at_work();
    let listed = Request { resource_version: "2".into(), ..request("a", "web", 0) };
    let anew = bench.step(Event::of::<Request>(Watch::list(vec![listed])));
    let accepts = |a: &Action| matches!(a, Action::Write { write: Write::Status { resource_version, status: Status::Recreate(status) }, .. } if resource_version == "2" && status.target.is_some());
    assert!(anew.iter().any(accepts), "{anew:?}");
}

#[test]
fn a_request_that_a_list_leaves_out_is_gone_and_its_order_withdrawn() {
    let mut bench = at_work();
    let withdraws = bench.step(Event::of::<Request>(Watch::list(Vec::new())));
    bench.all(withdraws);
    assert_eq!((bench.orders(), bench.engine.open_of(recreate::ID)), (0, 0));
}

#[test]
fn an_answer_about_a_deleted_request_says_nothing_about_the_next_of_its_name() {
    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    let first = request("a", "web", 0);
    let accept = only(bench.step(Event::of::<Request>(Watch::Upsert(first.clone()))));
    bench.step(Event::of::<Request>(Watch::Gone(first)));
    let second = Request { uid: "other".into(), ..request("a", "web", 1) };
    bench.requests.insert(second.key.clone(), second.clone());
    let again = only(bench.step(Event::of::<Request>(Watch::Upsert(second))));
    let Object { key, uid, .. } = status_write(&accept).unwrap().clone();
    assert!(bench.step(Event::written::<Request>(key, uid, Outcome::Gone)).is_empty());
    bench.all(vec![again]);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Recreating), 1));
}

#[test]
fn a_conflict_that_the_watch_does_not_explain_is_tried_again() {
    for outcome in [Outcome::Conflict, Outcome::Gone] {
        let mut bench = Bench::new(vec![pod("web")], Vec::new());
        let accept = only(bench.step(Event::of::<Request>(Watch::Upsert(request("a", "web", 0)))));
        let Object { key, uid, .. } = status_write(&accept).unwrap().clone();
        assert!(bench.step(Event::written::<Request>(key, uid, outcome)).is_empty());
        bench.now = Mono(4999);
        assert!(bench.step(Event::Tick).is_empty());
        bench.now = bench.wake_at().unwrap();
        assert_eq!(bench.now, Mono(5000));
        only(bench.step(Event::Tick));
    }
}

#[test]
fn one_request_of_a_pod_goes_first_and_is_not_overtaken() {
    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    let accept = only(bench.step(Event::of::<Request>(Watch::Upsert(request("b", "web", 5)))));
    // Created in the same second, with a smaller name, and seen before the acceptance is stored.
    bench.requests.insert(ObjectKey::new("shop", "a"), request("a", "web", 5));
    bench.requests.insert(ObjectKey::new("shop", "b"), request("b", "web", 5));
    let queue = bench.step(Event::of::<Request>(Watch::Upsert(request("a", "web", 5))));
    bench.all(queue);
    assert_eq!(bench.phase("a"), Some(Phase::Pending));
    bench.all(vec![accept]);
    assert_eq!((bench.phase("a"), bench.phase("b")), (Some(Phase::Pending), Some(Phase::Recreating)));
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    let over = bench.restarted("web");
    bench.all(over);
    assert_eq!(bench.phase("b"), Some(Phase::Completed));
    assert_eq!(bench.phase("a"), Some(Phase::Recreating), "the end of one wakes the next at once");
}

#[test]
fn the_deletion_of_one_wakes_the_next() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0), request("b", "web", 1)]);
    assert_eq!((bench.phase("a"), bench.phase("b")), (Some(Phase::Recreating), Some(Phase::Pending)));
    let first = bench.requests[&ObjectKey::new("shop", "a")].clone();
    let next = bench.step(Event::of::<Request>(Watch::Gone(first)));
    bench.all(next);
    assert_eq!(bench.phase("b"), Some(Phase::Recreating));
    let order = &bench.book.as_ref().unwrap().orders;
    assert_eq!((order.len(), order[0].id.as_str()), (1, "uid-b/app/1"), "one is withdrawn, the other placed");
}
