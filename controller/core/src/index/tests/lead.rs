//! What a process does that has just begun to lead: its watches may lag behind what the leader before it wrote.

use super::*;

/// A request that was accepted by another leader and has no orders yet.
fn accepted_elsewhere() -> (Bench, Request) {
    let mut other = Bench::new(vec![pod("web")], Vec::new());
    let first = other.step(Event::Requests(Watch::Upsert(request("a", "web", 0))));
    other.requests.insert(ObjectKey::new("shop", "a"), request("a", "web", 0));
    let accepts = first.iter().find(|a| matches!(a, Action::WriteStatus { .. })).unwrap();
    other.write(accepts);
    let stored = other.requests.values().next().unwrap().clone();
    let mut bench = Bench::empty();
    bench.requests.insert(stored.key.clone(), stored.clone());
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::Restart(vec![pod("web")])));
    bench.step(Event::NodeWorks(Watch::Restart(Vec::new())));
    (bench, stored)
}

fn orders(actions: &[Action]) -> usize {
    actions.iter().filter(|a| matches!(a, Action::WriteOrders { .. })).count()
}

#[test]
fn nothing_is_ordered_before_a_write_has_shown_that_the_request_is_as_known() {
    let (mut bench, stored) = accepted_elsewhere();
    let first = bench.step(Event::Requests(Watch::Restart(vec![stored.clone()])));
    assert_eq!(orders(&first), 0, "{first:?}");
    let Action::WriteStatus { resource_version, status, .. } = &first[0] else { panic!("{first:?}") };
    assert_eq!((resource_version, &**status), (&stored.resource_version, &stored.status), "as it is");
    let (key, uid) = (stored.key.clone(), stored.uid.clone());
    let same = Event::RequestWritten { key, uid, outcome: Outcome::Written(stored) };
    let next = bench.step(same);
    assert_eq!(orders(&next), 1, "{next:?}");
}

#[test]
fn nothing_is_ordered_for_a_request_that_another_leader_has_ended() {
    let (mut bench, stored) = accepted_elsewhere();
    bench.step(Event::Requests(Watch::Restart(vec![stored.clone()])));
    let (key, uid) = (stored.key, stored.uid);
    let next = bench.step(Event::RequestWritten { key, uid, outcome: Outcome::Conflict });
    assert_eq!(orders(&next), 0, "{next:?}");
    bench.now = Mono(60_000);
    let later = bench.step(Event::Tick);
    assert_eq!(orders(&later), 0, "{later:?}");
}
