//! No order before the API server is known to keep each daemon to its own node.

use super::*;

fn writes_orders(actions: &[Action]) -> bool {
    actions.iter().any(|a| matches!(a, Action::WriteOrders { .. }))
}

#[test]
fn no_order_is_placed_before_the_policy_has_denied_something() {
    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    assert!(bench.step(Event::Guarded(false)).is_empty());
    let wants = request("a", "web", 0);
    bench.requests.insert(wants.key.clone(), wants.clone());
    let accepts = bench.step(Event::of::<Request>(Watch::Upsert(wants)));
    bench.all(accepts);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Recreating), 0));
    // The request reports its wait after a while.
    bench.now = Mono(3000);
    let reports = bench.step(Event::Tick);
    bench.all(reports);
    let status = &bench.requests[&ObjectKey::new("shop", "a")].status;
    let complete = status.conditions.iter().find(|c| c.type_ == "Complete").unwrap();
    assert_eq!(complete.reason, "WaitingForPolicy");
    assert!(complete.message.contains(crate::guard::POLICY), "{}", complete.message);
    assert_eq!(bench.orders(), 0);

    let placed = bench.step(Event::Guarded(true));
    assert!(writes_orders(&placed), "{placed:?}");
    bench.all(placed);
    assert_eq!(bench.orders(), 1);
    assert!(bench.step(Event::Guarded(true)).is_empty(), "nothing new");
}

#[test]
fn an_order_that_stands_is_left_alone_when_the_policy_goes() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    assert_eq!(bench.orders(), 1);
    let gone = bench.step(Event::Guarded(false));
    assert!(gone.is_empty(), "{gone:?}");
    bench.acknowledge();
    let restarted = bench.restarted("web");
    bench.all(restarted);
    assert_eq!(bench.phase("a"), Some(Phase::Completed));
}
