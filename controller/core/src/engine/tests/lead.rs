//! A new leader: its watches may lag behind the previous leader's writes.

use super::*;

/// A request that was accepted by another leader and has no orders yet.
fn accepted_elsewhere() -> (Bench, Request) {
    let mut other = Bench::new(vec![pod("web")], Vec::new());
    let first = other.step(Event::of::<Request>(Watch::Upsert(request("a", "web", 0))));
    other.requests.insert(ObjectKey::new("shop", "a"), request("a", "web", 0));
    let accepts = first.iter().find(|a| status_write(a).is_some()).unwrap();
    other.write(accepts);
    let stored = other.requests.values().next().unwrap().clone();
    let mut bench = Bench::empty();
    bench.requests.insert(stored.key.clone(), stored.clone());
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    (bench, stored)
}

fn orders(actions: &[Action]) -> usize {
    actions.iter().filter(|a| matches!(a, Action::WriteOrders { .. })).count()
}

#[test]
fn nothing_is_ordered_before_a_write_has_shown_that_the_request_is_as_known() {
    let (mut bench, stored) = accepted_elsewhere();
    let first = bench.step(Event::of::<Request>(Watch::list(vec![stored.clone()])));
    assert_eq!(orders(&first), 0, "{first:?}");
    let Action::Write { write: Write::Status { resource_version, status: Status::Recreate(status) }, .. } =
        &first[0]
    else {
        panic!("{first:?}")
    };
    assert_eq!((resource_version, &**status), (&stored.resource_version, &stored.status), "as it is");
    let (key, uid) = (stored.key.clone(), stored.uid.clone());
    let same = Event::written::<Request>(key, uid, Outcome::Written(stored));
    let next = bench.step(same);
    assert_eq!(orders(&next), 1, "{next:?}");
}

#[test]
fn nothing_is_ordered_for_a_request_that_another_leader_has_ended() {
    let (mut bench, stored) = accepted_elsewhere();
    bench.step(Event::of::<Request>(Watch::list(vec![stored.clone()])));
    let (key, uid) = (stored.key, stored.uid);
    let next = bench.step(Event::written::<Request>(key, uid, Outcome::Conflict));
    assert_eq!(orders(&next), 0, "{next:?}");
    bench.now = Mono(60_000);
    let later = bench.step(Event::Tick);
    assert_eq!(orders(&later), 0, "{later:?}");
}

/// The process leads again, and the lists show these objects.
fn leads_again(bench: &mut Bench, pods: Vec<Pod>, books: Vec<NodeWork>) -> Vec<Action> {
    bench.step(Event::Leader(false));
    bench.step(Event::Leader(true));
    let mut actions = bench.step(Event::Pods(Watch::list(pods)));
    actions.extend(bench.step(Event::NodeWorks(Watch::list(books))));
    let requests = bench.requests.values().cloned().collect();
    actions.extend(bench.step(Event::of::<Request>(Watch::list(requests))));
    actions
}

#[test]
fn what_was_confirmed_in_an_earlier_lead_is_confirmed_anew() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    assert_eq!(bench.orders(), 1);
    let first = leads_again(&mut bench, vec![pod("web")], Vec::new());
    assert_eq!(orders(&first), 0, "{first:?}");
    assert!(status_write(&only(first)).is_some());
}

#[test]
fn a_new_lead_waits_for_no_back_off_of_an_earlier_one() {
    let gate = crate::readiness::Gate { type_: crate::readiness::PITSTOP_READY.into(), condition: None };
    let web = Pod { gates: vec![gate], ..pod("web") };
    let mut bench = Bench::empty();
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(vec![web.clone()])));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    let opens = only(bench.step(Event::of::<Request>(Watch::list(Vec::new()))));
    let Action::PatchPod { key, uid, .. } = opens else { panic!("{opens:?}") };
    assert!(bench.step(Event::PodWritten { key, uid, outcome: Outcome::Retry }).is_empty());
    let again = leads_again(&mut bench, vec![web], Vec::new());
    assert!(matches!(only(again), Action::PatchPod { .. }));

    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    let accepted = bench.accept(request("a", "web", 0));
    let next = bench.step(accepted);
    let labels =
        next.iter().find(|a| matches!(a, Action::Write { write: Write::Metadata { .. }, .. })).unwrap();
    let labelled = bench.write(labels);
    bench.step(labelled);
    bench.step(Event::NodeWorkWritten("node1".into(), Outcome::Retry));
    let first = leads_again(&mut bench, vec![pod("web")], Vec::new());
    let confirms = first.iter().find(|a| status_write(a).is_some()).unwrap();
    let confirmed = bench.write(confirms);
    let next = bench.step(confirmed);
    assert_eq!(orders(&first) + orders(&next), 1, "{first:?} {next:?}");
}

/// The Pods would take longest to list.
#[test]
fn a_process_that_does_not_lead_keeps_the_pods_and_nothing_else() {
    let mut bench = Bench::empty();
    bench.step(Event::Pods(Watch::list(vec![pod("web"), pod("gone")])));
    bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)])));
    bench.step(Event::of::<Request>(Watch::Upsert(request("b", "web", 0))));
    bench.step(Event::Pods(Watch::Gone(pod("gone"))));
    let engine = &bench.engine;
    assert_eq!(engine.pods.keys().collect::<Vec<_>>(), [&ObjectKey::new("shop", "web")]);
    assert!(engine.pods.awake().next().is_none() && engine.stores.recreates.objects.is_empty());
    assert_eq!((engine.synced(), engine.open_of(recreate::ID), bench.wake_at()), (false, 0, None));
}

fn gated(name: &str, message: &str) -> Pod {
    let condition = GateCondition { open: message.is_empty(), message: message.into() };
    let gate =
        crate::readiness::Gate { type_: crate::readiness::PITSTOP_READY.into(), condition: Some(condition) };
    Pod { gates: vec![gate], ..pod(name) }
}

/// A new leader plans by the Pods as it watched them while another process led.
#[test]
fn who_begins_to_lead_plans_by_the_pods_that_it_has_watched() {
    let hold = r#"[{"userAgent":"ContainerRecreateRequest","key":"shop/over"}]"#;
    let mut bench = Bench::empty();
    bench.step(Event::Pods(Watch::list(vec![pod("web"), gated("open", ""), gated("held", "")])));
    assert!(bench.engine.pods.awake().next().is_none(), "nothing is to be done for them");
    assert!(bench.step(Event::Pods(Watch::Upsert(gated("held", hold)))).is_empty());
    bench.requests.insert(ObjectKey::new("shop", "a"), request("a", "web", 0));
    assert!(bench.step(Event::Leader(true)).is_empty());
    assert!(bench.step(Event::NodeWorks(Watch::list(Vec::new()))).is_empty());
    let first = bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)])));
    let released = |a: &Action| matches!(a, Action::PatchPod { key, .. } if key.name == "held");
    let accepts = |a: &Action| status_write(a).is_some_and(|object| object.key.name == "a");
    assert!(first.len() == 2 && first.iter().any(released) && first.iter().any(accepts), "{first:?}");
}

/// A hold is judged by its request, and a new leader lists the requests anew.
#[test]
fn a_hold_stays_until_the_requests_are_listed_in_the_lead() {
    let mut bench = Bench::empty();
    bench.step(Event::of::<Request>(Watch::list(Vec::new())));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    let hold = r#"[{"userAgent":"ContainerRecreateRequest","key":"shop/new"}]"#;
    bench.step(Event::Pods(Watch::list(vec![gated("held", hold)])));
    assert!(bench.step(Event::Leader(true)).is_empty());
    assert!(bench.step(Event::Pods(Watch::Upsert(gated("held", hold)))).is_empty());
    assert!(bench.step(Event::NodeWorks(Watch::list(Vec::new()))).is_empty());
}
