//! Each rule that no planted bug breaks first can fail.

use pitstop_api::nodework::{OrderContainer, OrderPod, ResizeOrder};
use pitstop_api::resize::{ContainerStatus, Target};

use super::*;
use crate::world::plan::Position;

fn holds() -> Holds {
    let mut holds = Holds::new(&crate::draw::schedule(0));
    holds.schedule.faults.clear();
    holds.keeps("node0", Keeping::default());
    holds
}

fn order() -> Order {
    let of = |text: &str| text.to_owned();
    Order {
        id: of("u/app/1"),
        pod: OrderPod { namespace: of("shop"), name: of("web"), uid: of("u") },
        container: OrderContainer { name: of("app"), id: of("a") },
        action: ResizeOrder { hold: true, ..ResizeOrder::default() }.into(),
        ..Order::default()
    }
}

fn touched(container: Option<&str>) -> Touched {
    Touched {
        pod: "u".to_owned(),
        container: container.map(str::to_owned),
        original: Cgroup::default(),
        before: Cgroup::default(),
        after: Cgroup::default(),
        wrong: None,
    }
}

fn numbers(found: &Found) -> Vec<&'static str> {
    found.iter().map(|(number, _)| *number).collect()
}

#[test]
fn what_no_order_names_is_not_written() {
    let mut holds = holds();
    let server = Server::for_worlds();
    let by = ("daemon0-1", "node0");
    assert_eq!(numbers(&holds.touched(1, by, None, &touched(None), &server)), ["H1"], "no order");
    assert_eq!(numbers(&holds.touched(1, by, Some("u/app/1"), &touched(None), &server)), ["H1"], "nowhere");
    holds.orders.insert("u/app/1".to_owned(), order());
    let found = holds.touched(1, by, Some("u/app/1"), &touched(Some("b")), &server);
    assert_eq!(numbers(&found), ["H1", "H1"], "another container, and no acknowledgement");
}

#[test]
fn what_is_held_is_ordered_for_the_pod_of_a_request_and_for_what_runs() {
    let mut holds = holds();
    assert_eq!(numbers(&holds.placed(&order(), true)), ["H7"]);
    holds.accepted.insert("u".to_owned());
    assert_eq!(numbers(&holds.placed(&order(), false)), ["H7"]);
    assert_eq!(numbers(&holds.placed(&order(), true)), [""; 0]);
    holds.ended_at.insert("a".to_owned(), 1);
    holds.now = 20_000;
    assert_eq!(numbers(&holds.placed(&order(), true)), ["H7"]);
    holds.schedule.crash = Some(crate::world::plan::Crash { effect: 0, position: Position::Before });
    assert_eq!(numbers(&holds.placed(&order(), true)), [""; 0], "nobody may have seen it");
}

#[test]
fn a_repair_gives_a_pod_what_its_spec_says() {
    let mut holds = holds();
    let bounds = |cpu| Bounds { cpu_request: cpu, ..Bounds::default() };
    let give = |cpu| ResizeOrder { pod: Some(bounds(cpu)), only_raise: true, ..ResizeOrder::default() };
    let repair = |give: ResizeOrder| Order { id: "r/app/1".to_owned(), action: give.into(), ..order() };
    holds.sums.insert("u".to_owned(), vec![bounds(100), bounds(200)]);
    assert_eq!(numbers(&holds.placed(&repair(give(200)), true)), ["H8"], "of no request");
    holds.by_api.insert("r".to_owned(), "u".to_owned());
    assert_eq!(numbers(&holds.placed(&repair(give(200)), true)), [""; 0]);
    assert_eq!(numbers(&holds.placed(&repair(give(300)), true)), ["H8"], "never in the spec");
    assert_eq!(numbers(&holds.placed(&repair(give(200)), false)), [""; 0], "what cannot start never ran");
    let lowering = ResizeOrder { only_raise: false, ..give(200) };
    assert_eq!(numbers(&holds.placed(&repair(lowering), true)), ["H8"], "nothing is lowered");
    let holding = ResizeOrder { hold: true, ..give(200) };
    assert_eq!(numbers(&holds.placed(&repair(holding), true)), ["H8"], "nothing is held");
}

#[test]
fn a_success_is_one_of_every_container() {
    let holds = holds();
    let mut container = ContainerStatus { name: "app".to_owned(), ..ContainerStatus::default() };
    container.desired.limits.cpu = Some("1".to_owned());
    let target = Target { pod_uid: "u".to_owned(), node_name: "node0".to_owned(), ..Target::default() };
    let status = PodResizeStatus {
        mechanism: Some(Mechanism::Cri),
        target: Some(target),
        containers: vec![container],
        ..PodResizeStatus::default()
    };
    assert_eq!(numbers(&holds.succeeded("r", &status)), ["H5"]);
}
