//! Which order the daemon is silent about: orders of one Pod run one after another, those of two side by side.

use pitstop_api::recreate::{Mechanism, RecreateStrategy};

use super::*;

const SILENT: &str = "daemon has not responded for a long time";

/// The daemon acknowledges the order of that request alone, and the watch shows it.
fn takes_up(bench: &mut Bench, request: &str) {
    let own = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(own)));
    bench.acknowledge();
    let book = bench.book.as_mut().unwrap();
    book.status.answers.retain(|a| a.order_id == format!("uid-{request}/app/1"));
    bench.version += 1;
    book.resource_version = bench.version.to_string();
    let book = book.clone();
    bench.step(Event::NodeWorks(Watch::Upsert(book)));
}

fn passes(bench: &mut Bench, seconds: u64) {
    bench.now = bench.now.after(Duration::from_secs(seconds));
    let actions = bench.step(Event::Tick);
    bench.all(actions);
}

fn message<'a>(bench: &'a Bench, request: &str) -> &'a str {
    &bench.requests[&ObjectKey::new("shop", request)].status.message
}

#[test]
fn a_daemon_at_work_on_one_pod_is_silent_about_another() {
    let mut bench = Bench::new(vec![pod("web"), pod("db")], vec![request("a", "web", 0)]);
    bench.requests.insert(ObjectKey::new("shop", "b"), request("b", "db", 1));
    let actions = bench.step(Event::of::<Request>(Watch::Upsert(request("b", "db", 1))));
    bench.all(actions);
    takes_up(&mut bench, "a");
    assert_eq!(bench.orders(), 2);
    passes(&mut bench, 61);
    assert_eq!((message(&bench, "b"), bench.phase("a")), (SILENT, Some(Phase::Recreating)));
}

#[test]
fn a_daemon_that_still_stops_a_container_of_the_pod_is_not_silent_about_the_next() {
    let mut first = request("a", "web", 0);
    first.spec.active_deadline_seconds = Some(3);
    let mut bench = Bench::new(vec![pod("web")], vec![first, request("b", "web", 1)]);
    takes_up(&mut bench, "a");
    passes(&mut bench, 3);
    assert_eq!((bench.phase("a"), bench.phase("b")), (Some(Phase::Completed), Some(Phase::Recreating)));
    assert_eq!(bench.orders(), 2, "the stop under way may finish");
    passes(&mut bench, 70);
    assert_eq!((bench.phase("b"), bench.orders()), (Some(Phase::Recreating), 2));
    // Once the container is seen ended, it is the next order's turn.
    let mut ended = Pod { resource_version: "2".into(), ..pod("web") };
    ended.containers[0].status.as_mut().unwrap().state = ContainerState::Terminated { exit_code: 143 };
    let actions = bench.step(Event::Pods(Watch::Upsert(ended)));
    bench.all(actions);
    passes(&mut bench, 61);
    assert_eq!(message(&bench, "b"), SILENT);
}

/// A daemon that is away or hangs may keep an order for any time.
#[test]
fn what_takes_longer_than_it_may_is_silence_about_the_next_order() {
    let mut first = request("a", "web", 0);
    first.spec.active_deadline_seconds = Some(3);
    let mut bench = Bench::new(vec![pod("web")], vec![first, request("b", "web", 1)]);
    takes_up(&mut bench, "a");
    passes(&mut bench, 3);
    assert_eq!(bench.phase("b"), Some(Phase::Recreating));
    // 30 s of grace, 60 s of patience, counted from when the order was taken up.
    passes(&mut bench, 86);
    assert_eq!(message(&bench, "b"), "");
    assert_eq!(bench.wake_at(), Some(Mono(90_000)));
    passes(&mut bench, 1);
    passes(&mut bench, 59);
    assert_eq!(message(&bench, "b"), "");
    passes(&mut bench, 1);
    assert_eq!(message(&bench, "b"), SILENT);
}

/// While the end is being written, the book may call for the next order: nothing begins any more.
#[test]
fn nothing_is_ordered_while_the_end_is_being_written() {
    let mut pod = pod("web");
    let mut second = pod.containers[0].clone();
    second.name = "sidecar".into();
    second.status.as_mut().unwrap().container_id = format!("containerd://{:064x}", 7);
    pod.containers.push(second);
    let mut asked = request("a", "web", 0);
    asked.spec.containers.push(RecreateContainer { name: "sidecar".into(), ..Default::default() });
    asked.spec.strategy = Some(RecreateStrategy {
        mechanism: Some(Mechanism::Runtime),
        ordered_recreate: true,
        ..RecreateStrategy::default()
    });
    let mut bench = Bench::new(vec![pod.clone()], vec![asked]);
    let placed = bench.book.clone().unwrap();
    assert_eq!(placed.orders.len(), 1);
    bench.now = bench.now.after(Duration::from_secs(61));
    let actions = bench.step(Event::Tick);
    let written = bench.write(actions.iter().find(|a| matches!(a, Action::WriteOrders { .. })).unwrap());
    let ends = bench.step(written);
    assert!(ends.iter().any(|a| matches!(a, Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. } if status.message == SILENT)));
    let empty = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(empty)));
    // An etcd was restored: the daemon had carried out the first order.
    let status = pod.containers[0].status.as_mut().unwrap();
    (status.container_id, status.restart_count) = (format!("containerd://{:064x}", 2), 1);
    pod.resource_version = "2".into();
    bench.step(Event::Pods(Watch::Upsert(pod)));
    let mut late = placed;
    late.resource_version = "900".into();
    late.status.answers = vec![Answer {
        order_id: late.orders[0].id.clone(),
        state: AnswerState::Done,
        reason: None,
        message: String::new(),
        acknowledged_uptime_seconds: None,
        acknowledged_by: String::new(),
        observed: None,
        image: None,
    }];
    let next = bench.step(Event::NodeWorks(Watch::Upsert(late)));
    let more = |a: &Action| matches!(a, Action::WriteOrders { orders, .. } if orders.len() > 1);
    assert!(!next.iter().any(more), "{next:?}");
}
