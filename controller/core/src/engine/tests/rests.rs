//! Resting requests: they have ended, and only their deletion is left.

use super::*;

/// A request that has been carried out, as it is stored.
fn done(ttl: Option<i32>) -> Request {
    let mut wants = request("a", "web", 0);
    wants.spec.ttl_seconds_after_finished = ttl;
    let mut bench = Bench::new(vec![pod("web")], vec![wants]);
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    let over = bench.restarted("web");
    bench.all(over);
    bench.now = Mono(5_000);
    let tidy = bench.step(Event::Tick);
    bench.all(tidy);
    bench.requests[&ObjectKey::new("shop", "a")].clone()
}

/// A process that finds `many` ended requests.
fn finds(many: usize, ttl: Option<i32>) -> Bench {
    let done = done(ttl);
    assert!(done.completed());
    let finished = (0..many).map(|i| Request {
        key: ObjectKey::new("shop", format!("done-{i}")),
        uid: format!("uid-done-{i}"),
        ..done.clone()
    });
    Bench::new(vec![pod("web")], finished.collect())
}

fn deletes(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::Write { write: Write::Delete, .. })).count()
}

#[test]
fn nothing_is_kept_of_them_but_their_names() {
    let mut bench = finds(300, None);
    let requests = &bench.engine.stores.recreates;
    assert_eq!((requests.objects.len(), requests.resting.len(), requests.open.count()), (0, 300, 0));
    assert_eq!(requests.open.oldest(), None);
    assert!(requests.queues.is_empty() && requests.by_node.is_empty());
    assert_eq!(bench.wake_at(), None);
    let before = bench.engine.planned();
    let changed = Pod { resource_version: "7".into(), ..pod("web") };
    assert_eq!(bench.step(Event::Pods(Watch::Upsert(changed))), []);
    assert_eq!(bench.engine.planned(), before, "a change of their Pod is none of their business");
    bench.step(Event::of::<Request>(Watch::list(Vec::new())));
    assert!(bench.engine.stores.recreates.resting.is_empty(), "they are gone");
}

#[test]
fn they_are_deleted_in_time_however_often_the_watch_begins_anew() {
    let mut bench = finds(3, Some(60));
    assert_eq!((bench.engine.stores.recreates.resting.len(), bench.wake_at()), (3, Some(Mono(60_000))));
    bench.now = Mono(30_000);
    let all = bench.requests.values().cloned().collect();
    assert_eq!(deletes(&bench.step(Event::of::<Request>(Watch::list(all)))), 0);
    assert_eq!(bench.engine.stores.recreates.resting.len(), 3);
    bench.now = Mono(60_000);
    assert_eq!(deletes(&bench.step(Event::Tick)), 3, "counted from when they were first seen");
    assert_eq!(bench.wake_at(), None, "that is under way");
    let key = ObjectKey::new("shop", "done-1");
    let outcome = |outcome| Event::written::<Request>(key.clone(), "uid-done-1".into(), outcome);
    assert_eq!(bench.step(outcome(Outcome::Retry)), []);
    bench.now = bench.wake_at().unwrap();
    assert_eq!(deletes(&bench.step(Event::Tick)), 1);
    assert_eq!((bench.step(outcome(Outcome::Gone)), bench.wake_at()), (Vec::new(), None));
    let gone = bench.requests[&key].clone();
    bench.step(Event::of::<Request>(Watch::Gone(gone)));
    assert_eq!(bench.engine.stores.recreates.resting.len(), 2);
}

/// An object with the same name and another UID is a new request.
#[test]
fn one_that_is_made_anew_is_carried_out() {
    let mut bench = finds(1, None);
    let again = Request { uid: "uid-again".into(), ..request("done-0", "web", 9) };
    bench.requests.insert(again.key.clone(), again.clone());
    let accepts = bench.step(Event::of::<Request>(Watch::Upsert(again)));
    bench.all(accepts);
    assert_eq!((bench.phase("done-0"), bench.orders()), (Some(Phase::Recreating), 1));
    assert!(bench.engine.stores.recreates.resting.is_empty());
}

/// The watch may show an older state again, in which the request had not ended.
#[test]
fn one_rests_once_the_watch_has_shown_its_end() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    let open = bench.requests[&ObjectKey::new("shop", "a")].clone();
    let over = bench.restarted("web");
    bench.all(over);
    bench.now = Mono(5_000);
    let tidy = bench.step(Event::Tick);
    bench.all(tidy);
    let ended = bench.requests[&ObjectKey::new("shop", "a")].clone();
    let book = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(book)));
    assert!(open.status.completion_time.is_none() && ended.completed());
    assert_eq!(bench.step(Event::of::<Request>(Watch::Upsert(open))), [], "it is older");
    assert!(bench.engine.stores.recreates.resting.is_empty());
    assert_eq!(bench.step(Event::of::<Request>(Watch::Upsert(ended))), []);
    assert_eq!(bench.engine.stores.recreates.resting.len(), 1);
}

/// Otherwise a new leader would keep every request and every Pod whole until the last list is complete.
#[test]
fn they_rest_while_their_list_still_comes() {
    let done = done(Some(60));
    let mut open = request("open", "web", 0);
    open.uid = "uid-open".into();
    let mut bench = Bench::new(vec![pod("web")], vec![done.clone()]);
    for leading in [false, true] {
        bench.step(Event::Leader(leading));
    }
    bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    bench.step(Event::NodeWorks(Watch::list(bench.book.clone().into_iter().collect())));
    let woken = |bench: &Bench| bench.engine.pods.awake().count();
    let part = |objects: &[&Request], first, last| {
        let objects = objects.iter().map(|&request| request.clone()).collect();
        Event::of::<Request>(Watch::Listed(Part { objects, first, last }))
    };
    assert_eq!(bench.step(part(&[&done], true, false)), []);
    let kept = &bench.engine.stores.recreates;
    assert_eq!((kept.objects.len(), kept.resting.len(), woken(&bench)), (0, 1, 0));
    bench.step(part(&[&open], false, true));
    let kept = &bench.engine.stores.recreates;
    assert_eq!((kept.objects.len(), kept.resting.len(), woken(&bench)), (1, 1, 1));
    bench.step(Event::of::<Resize>(Watch::list(Vec::new())));
    bench.now = Mono(65_000);
    assert_eq!(deletes(&bench.step(Event::Tick)), 1, "and are deleted in time");
}

#[test]
fn those_that_no_part_of_a_list_names_are_gone_when_the_last_one_has_come() {
    let mut bench = finds(3, None);
    let named: Vec<Request> = bench.requests.values().take(2).cloned().collect();
    let [one, two] = &named[..] else { panic!() };
    for (request, first, last, left) in [(one, true, false, 3), (two, false, true, 2)] {
        let part = Part { objects: vec![request.clone()], first, last };
        bench.step(Event::of::<Request>(Watch::Listed(part)));
        assert_eq!(bench.engine.stores.recreates.resting.len(), left);
    }
}

/// A request with an owner does not rest.
#[test]
fn what_has_ended_keeps_no_pod_awake() {
    let owner = Owner { kind: "PodResize".into(), name: "bigger".into(), uid: "uid-bigger".into() };
    let child = Request { owner: Some(owner), ..done(None) };
    let bench = Bench::new(vec![pod("web")], vec![child]);
    let requests = &bench.engine.stores.recreates;
    assert_eq!((requests.objects.len(), requests.resting.len()), (1, 0));
    assert_eq!(bench.engine.pods.awake().count(), 0);
}
