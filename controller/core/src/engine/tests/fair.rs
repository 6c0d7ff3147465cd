//! Places in a node's book: shared over requests, Pods and namespaces.

use std::collections::BTreeSet;

use pitstop_api::condition;
use pitstop_api::recreate::ContainerRecreateRequestStatus;

use super::pins::pinnable;
use super::*;

fn waits_for(status: &ContainerRecreateRequestStatus) -> &str {
    &condition::find(&status.conditions, "Complete").unwrap().reason
}

fn named(bench: &Bench, name: &str) -> ContainerRecreateRequestStatus {
    bench.requests[&ObjectKey::new("shop", name)].status.clone()
}

/// Requests of one namespace for `many` Pods of a node, and a last one for the Pod `last`.
fn crowd(many: usize, last: Pod) -> Bench {
    let names: Vec<String> = (0..many).map(|i| format!("p{i:02}")).collect();
    let own = request("z-last", &last.key.name, 99);
    let pods = names.iter().map(|name| pod(name)).chain([last]).collect();
    let requests = (0..).zip(&names).map(|(i, name)| request(name, name, i)).chain([own]).collect();
    let mut bench = Bench::new(pods, requests);
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    bench
}

fn tick(bench: &mut Bench, at: u64) {
    bench.now = Mono(at);
    while bench.wake_at().is_some_and(|at| at <= bench.now) {
        let actions = bench.step(Event::Tick);
        bench.all(actions);
    }
}

#[test]
fn who_finds_no_place_says_so_and_gets_the_next_one() {
    let mut bench = crowd(48, pod("web"));
    assert_eq!(bench.orders(), 48);
    // While many are at work on a node, each reports its waits later.
    tick(&mut bench, 40_000);
    assert_eq!(waits_for(&named(&bench, "z-last")), "WaitingForPlace");
    let over = bench.restarted("p00");
    bench.all(over);
    let pods: Vec<&str> = bench.book.as_ref().unwrap().orders.iter().map(|o| o.pod.name.as_str()).collect();
    assert_eq!((pods.len(), pods[0], pods[47]), (48, "p01", "web"));
}

/// A daemon exists and a place will become free: the request does not report a silent daemon.
#[test]
fn who_cannot_do_without_the_daemon_waits_for_a_place() {
    let mut bench = crowd(48, pod("web"));
    tick(&mut bench, 90_000);
    let status = named(&bench, "z-last");
    assert_eq!((status.phase, waits_for(&status)), (Some(Phase::Recreating), "WaitingForPlace"));
}

#[test]
fn who_can_do_without_the_daemon_waits_for_ten_seconds() {
    let mut bench = crowd(48, pinnable());
    let pinned = |bench: &Bench| named(bench, "z-last").target.unwrap().containers[0].pin.is_some();
    tick(&mut bench, 9_999);
    assert!(!pinned(&bench));
    bench.now = Mono(10_000);
    let falls_back = bench.step(Event::Tick).into_iter().find(|action| {
        matches!(action, Action::Write { object: Object { key, .. }, write: Write::Status { status: Status::Recreate(status), .. } }
            if key.name == "z-last" && status.target.as_ref().is_some_and(|t| t.containers[0].pin.is_some()))
    });
    // A place that becomes free before this is stored does not matter: the two never act at once.
    let falls_back = falls_back.unwrap();
    while bench.wake_at().is_some_and(|at| at <= bench.now) {
        bench.step(Event::Tick);
    }
    let over = bench.restarted("p00");
    let orders = |actions: &[Action]| {
        actions.iter().any(|action| {
            matches!(action, Action::WriteOrders { orders, .. } if orders.iter().any(|o| o.pod.name == "web"))
        })
    };
    assert!(!orders(&over), "{over:?}");
    let stored = bench.write(&falls_back);
    let next = bench.step(stored);
    assert!(
        !orders(&next) && next.iter().any(|action| matches!(action, Action::PatchPod { .. })),
        "{next:?}"
    );
}

/// Each of 40 Pods has two containers to restart, and the places are too few for all at once.
#[test]
fn requests_that_share_the_places_get_on() {
    let mut bench = Bench::new(Vec::new(), Vec::new());
    for i in 0..40 {
        let name = format!("p{i:02}");
        let (mut web, mut both) = (pod(&name), request(&name, &name, i));
        let names = ["app", "log"];
        web.containers =
            names.map(|name| Container { name: name.into(), ..web.containers[0].clone() }).to_vec();
        both.spec.containers =
            names.map(|name| RecreateContainer { name: name.into(), ..Default::default() }).to_vec();
        bench.pods.insert(web.key.clone(), web.clone());
        bench.requests.insert(both.key.clone(), both.clone());
        bench.step(Event::Pods(Watch::Upsert(web)));
    }
    let all = bench.requests.values().cloned().collect();
    let accepts = bench.step(Event::of::<Request>(Watch::list(all)));
    bench.all(accepts);
    assert_eq!(bench.orders(), 48);
    let mut ordered: BTreeSet<String> = BTreeSet::new();
    for _ in 0..3 {
        ordered.extend(bench.book.as_ref().unwrap().orders.iter().map(|order| order.id.clone()));
        answers(&mut bench, AnswerState::Acknowledged);
        answers(&mut bench, AnswerState::Done);
    }
    assert_eq!(ordered.len(), 80);
}

/// The daemon gives this answer to every order that is not `Done`; the watch shows it, and all that follows takes
/// effect.
fn answers(bench: &mut Bench, state: AnswerState) {
    // The watch shows our own write first.
    let own = bench.book.clone().unwrap();
    let first = bench.step(Event::NodeWorks(Watch::Upsert(own)));
    bench.all(first);
    let book = bench.book.as_mut().unwrap();
    let answer = |order: &pitstop_api::nodework::Order| Answer {
        order_id: order.id.clone(),
        state,
        reason: None,
        message: String::new(),
        acknowledged_uptime_seconds: None,
        acknowledged_by: String::new(),
        observed: None,
        image: None,
    };
    let done =
        |id: &str| book.status.answers.iter().find(|a| a.order_id == id && a.state == AnswerState::Done);
    book.status.answers =
        book.orders.iter().map(|o| done(&o.id).cloned().unwrap_or_else(|| answer(o))).collect();
    bench.version += 1;
    book.resource_version = bench.version.to_string();
    let book = book.clone();
    let next = bench.step(Event::NodeWorks(Watch::Upsert(book)));
    bench.all(next);
    tick(bench, bench.now.0 + 1_000);
}

#[test]
fn another_namespace_finds_a_place() {
    let mut bench = crowd(60, pod("web"));
    assert_eq!(bench.orders(), 48);
    let mut other = pod("web");
    (other.key.namespace, other.uid) = ("other".into(), "uid-other".into());
    let mut own = request("own", "web", 100);
    (own.key.namespace, own.uid) = ("other".into(), "uid-own".into());
    bench.pods.insert(other.key.clone(), other.clone());
    bench.requests.insert(own.key.clone(), own.clone());
    bench.step(Event::Pods(Watch::Upsert(other)));
    let accepts = bench.step(Event::of::<Request>(Watch::Upsert(own)));
    bench.all(accepts);
    let last = bench.book.as_ref().unwrap().orders.last().unwrap();
    assert_eq!(last.pod.namespace, "other");
}

/// A stop makes room for the next ones once it is recorded; nothing is stopped twice.
#[test]
fn a_large_request_goes_on_by_eight() {
    let names: Vec<String> = (0..20).map(|i| format!("c{i:02}")).collect();
    let mut web = pod("web");
    web.containers =
        names.iter().map(|name| Container { name: name.clone(), ..web.containers[0].clone() }).collect();
    let mut all = request("a", "web", 0);
    all.spec.containers =
        names.iter().map(|name| RecreateContainer { name: name.clone(), ..Default::default() }).collect();
    let mut bench = Bench::new(vec![web.clone()], vec![all]);
    let mut ordered: Vec<String> = Vec::new();
    for _ in 0..3 {
        answers(&mut bench, AnswerState::Acknowledged);
        let book = bench.book.as_ref().unwrap();
        let acting = book.orders.iter().zip(&book.status.answers);
        let acting = acting.filter(|(_, answer)| answer.state == AnswerState::Acknowledged);
        let acting: Vec<String> = acting.map(|(order, _)| order.container.name.clone()).collect();
        assert!(acting.len() <= 8, "{acting:?}");
        ordered.extend(acting);
        answers(&mut bench, AnswerState::Done);
    }
    assert_eq!(ordered, names);
    for container in &mut web.containers {
        let status = container.status.as_mut().unwrap();
        (status.container_id, status.restart_count) = (format!("containerd://{:064x}", 2), 1);
    }
    web.resource_version = "2".into();
    let over = bench.step(Event::Pods(Watch::Upsert(web)));
    bench.all(over);
    let status = named(&bench, "a");
    assert_eq!((status.phase, waits_for(&status)), (Some(Phase::Completed), "Complete"));
    assert!(status.container_recreate_states.iter().all(|state| state.is_killed));
}

/// `many` requests of one namespace, and one of another. `most` of a namespace are carried out at a time.
fn bounded(most: usize, many: usize) -> Bench {
    let mut bench = Bench::empty();
    let config = Config { max_open_requests_per_namespace: Some(most), ..Config::default() };
    bench.engine = Engine::new(config);
    bench.step(Event::Guarded(true));
    let names: Vec<String> = (0..many).map(|i| format!("p{i:02}")).collect();
    // The list is sorted by name, and the names do not show the age.
    let mut requests: Vec<Request> = (0..).zip(&names).map(|(i, name)| request(name, name, 99 - i)).collect();
    let mut other = request("a", "a", 500);
    other.key.namespace = "z-other".into();
    requests.push(other);
    let mut pods: Vec<Pod> = names.iter().map(|name| pod(name)).collect();
    let key = ObjectKey::new("z-other", "a");
    pods.push(Pod { key, uid: "uid-other".into(), ..pod("a") });
    bench.requests = requests.iter().map(|r| (r.key.clone(), r.clone())).collect();
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(pods)));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    let first = bench.step(Event::of::<Request>(Watch::list(requests)));
    bench.all(first);
    bench
}

fn accepted(bench: &Bench) -> Vec<&str> {
    let accepted = bench.requests.values().filter(|r| r.status.target.is_some());
    accepted.map(|r| r.key.name.as_str()).collect()
}

#[test]
fn a_namespace_with_too_many_requests_waits_and_no_other_does() {
    let mut bench = bounded(2, 5);
    assert_eq!(accepted(&bench), ["p03", "p04", "a"], "the oldest two, and that of the other namespace");
    let waiting = named(&bench, "p01");
    assert_eq!((waiting.phase, waits_for(&waiting)), (Some(Phase::Pending), "TooManyRequests"));
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    let (before, version) =
        (bench.engine.planned(), bench.requests[&ObjectKey::new("shop", "p00")].resource_version.clone());
    let over = bench.restarted("p04");
    bench.all(over);
    assert_eq!(accepted(&bench), ["p02", "p03", "p04", "a"], "the next one");
    // Waiting requests are neither planned nor written again.
    let planned = bench.engine.planned() - before;
    assert!(planned <= 16, "{planned}");
    assert_eq!(bench.requests[&ObjectKey::new("shop", "p00")].resource_version, version);
}

/// Ten thousand equal writes would delay the requests at work.
#[test]
fn where_very_many_have_no_place_each_says_so_later() {
    let mut bench = bounded(2, 42);
    let reports = |bench: &Bench| bench.requests.values().filter(|r| !r.status.conditions.is_empty()).count();
    tick(&mut bench, 19_999);
    assert_eq!(reports(&bench), 3, "those that have begun");
    tick(&mut bench, 20_000);
    assert_eq!((reports(&bench), waits_for(&named(&bench, "p00"))), (43, "TooManyRequests"));
}

/// A new leader lets no older request displace one that has begun.
#[test]
fn who_has_begun_keeps_the_place() {
    let mut bench = bounded(2, 3);
    assert_eq!(accepted(&bench), ["p01", "p02", "a"]);
    let older = request("older", "p00", 0);
    bench.requests.insert(older.key.clone(), older.clone());
    let actions = bench.step(Event::of::<Request>(Watch::Upsert(older)));
    bench.all(actions);
    assert_eq!(accepted(&bench), ["p01", "p02", "a"]);
    assert_eq!(waits_for(&named(&bench, "older")), "TooManyRequests");
}

#[test]
fn who_waits_for_too_many_others_ends_by_the_deadline() {
    let mut bench = bounded(0, 1);
    assert_eq!(waits_for(&named(&bench, "p00")), "TooManyRequests");
    tick(&mut bench, 3_600_000);
    assert_eq!(waits_for(&named(&bench, "p00")), "DeadlineExceeded");
}
