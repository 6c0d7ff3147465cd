//! What is kept of objects, and what is counted of them.

use super::*;

/// The request has been carried out, and its order is out of the book.
fn done() -> Bench {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    let over = bench.restarted("web");
    bench.all(over);
    bench.now = Mono(1000);
    let tidy = bench.step(Event::Tick);
    bench.all(tidy);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Completed), 0));
    bench
}

#[test]
fn a_request_is_open_until_it_has_ended() {
    let requests = vec![request("a", "web", 0), request("b", "web", 1), request("c", "db", 2)];
    let mut bench = Bench::new(vec![pod("web"), pod("db")], requests);
    assert_eq!(bench.engine.open_of(recreate::ID), 3);
    bench.acknowledge();
    let over = bench.restarted("web");
    bench.all(over);
    assert_eq!((bench.phase("a"), bench.engine.open_of(recreate::ID)), (Some(Phase::Completed), 2));
}

#[test]
fn a_stop_lasts_until_the_container_has_ended_and_a_start_until_the_new_one_is_ready() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    let book = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(book)));
    bench.acknowledge();
    let mut web = pod("web");
    let mut shows = |at, id: u8, ready, state| {
        let status = web.containers[0].status.as_mut().unwrap();
        (status.container_id, status.restart_count) = (format!("containerd://{id:064x}"), i32::from(id) - 1);
        (status.ready, status.state) = (ready, state);
        (bench.now, web.resource_version) = (Mono(at), format!("at-{at}"));
        let actions = bench.step(Event::Pods(Watch::Upsert(web.clone())));
        let took = |action| match action {
            Action::Count(Measure::Took { stage, duration }) => Some((stage, duration.as_millis())),
            _ => None,
        };
        actions.into_iter().filter_map(took).collect::<Vec<_>>()
    };
    let ended = ContainerState::Terminated { exit_code: 143 };
    assert_eq!(shows(700, 1, false, ended), [(Stage::Stop, 700)]);
    assert_eq!(shows(900, 2, false, ContainerState::Running), []);
    assert_eq!(shows(1500, 2, true, ContainerState::Running), [(Stage::Start, 800)]);
}

/// Otherwise the controller would grow for as long as it runs.
#[test]
fn nothing_is_kept_of_what_is_gone() {
    let mut bench = done();
    assert!(
        bench.engine.stores.recreates.by_node.is_empty(),
        "a request that is over asks nothing of its node"
    );
    let request = bench.requests[&ObjectKey::new("shop", "a")].clone();
    assert!(bench.step(Event::of::<Request>(Watch::Gone(request))).is_empty());
    assert!(bench.step(Event::Pods(Watch::Gone(pod("web")))).is_empty());
    let engine = &bench.engine;
    assert!(engine.stores.recreates.objects.is_empty() && engine.pods.keys().next().is_none());
    assert!(engine.stores.recreates.queues.is_empty() && engine.stores.recreates.by_node.is_empty());
    assert_eq!(bench.wake_at(), None);
}

/// After a watch broke, a list shows deletions only by leaving objects out.
#[test]
fn a_pod_that_a_list_leaves_out_is_gone() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    bench.now = Mono(3000);
    bench.pods.clear();
    let gone = bench.step(Event::Pods(Watch::list(Vec::new())));
    bench.all(gone);
    let status = &bench.requests[&ObjectKey::new("shop", "a")].status;
    assert_eq!(status.message, "pod has gone");
}

#[test]
fn a_book_that_a_list_leaves_out_is_made_anew() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    let anew = only(bench.step(Event::NodeWorks(Watch::list(Vec::new()))));
    let Action::WriteOrders { basis, orders, .. } = anew else { panic!("{anew:?}") };
    assert_eq!((basis, orders.len()), (Basis::Absent, 1));
    // A write under way may still take effect, whatever an earlier list says.
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    let book = &bench.engine.books.objects[&ObjectKey::new("", "node1")];
    assert!(book.creating && book.placing.contains("uid-a"), "{book:?}");
}
