//! Order books, as the watch and own writes show them in turn.

use pitstop_api::recreate::RecreateStrategy;

use super::*;

fn book(version: &str) -> NodeWork {
    let (node, uid) = ("node1".into(), "book".into());
    NodeWork { node, uid, resource_version: version.into(), ..NodeWork::default() }
}

/// The writes of books among the actions: what each requires, and how many orders it leaves.
fn writes(actions: &[Action]) -> Vec<(Basis, usize)> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::WriteOrders { basis, orders, .. } => Some((basis.clone(), orders.len())),
            _ => None,
        })
        .collect()
}

/// A request has its order in a book that existed before.
fn ordered() -> Bench {
    let mut bench = Bench::empty();
    bench.book = Some(book("50"));
    bench.requests.insert(ObjectKey::new("shop", "a"), request("a", "web", 0));
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    bench.step(Event::NodeWorks(Watch::list(vec![book("50")])));
    let first = bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)])));
    bench.all(first);
    assert_eq!(bench.orders(), 1);
    bench
}

#[test]
fn a_version_from_before_the_own_write_changes_nothing() {
    let mut bench = ordered();
    let late = bench.step(Event::NodeWorks(Watch::Upsert(book("60"))));
    assert_eq!(writes(&late), []);
}

/// Another leader that knows less removes the order as often as this one places it.
#[test]
fn what_another_undoes_is_not_written_again_as_fast_as_it_can_be() {
    let mut bench = ordered();
    let own = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(own)));
    let mut placed = 0;
    for ms in 1..=2_000 {
        bench.now = Mono(ms);
        bench.version += 1;
        let mut actions = bench.step(Event::NodeWorks(Watch::Upsert(book(&bench.version.to_string()))));
        while let Some(write) = actions.pop() {
            placed += writes(std::slice::from_ref(&write)).len();
            let written = bench.write(&write);
            actions.extend(bench.step(written));
            let own = bench.book.clone().unwrap();
            actions.extend(bench.step(Event::NodeWorks(Watch::Upsert(own))));
        }
    }
    assert_eq!(placed, 3, "one in 500 ms");
}

#[test]
fn a_list_counts_though_the_own_write_has_not_come_by() {
    let mut bench = ordered();
    let list = bench.step(Event::NodeWorks(Watch::list(vec![book("60")])));
    assert_eq!(writes(&list), [(Basis::Version("60".into()), 1)]);
}

#[test]
fn a_list_that_comes_while_a_write_is_under_way_starts_no_other() {
    let mut bench = Bench::empty();
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    bench.step(Event::NodeWorks(Watch::list(vec![book("50")])));
    bench.requests.insert(ObjectKey::new("shop", "a"), request("a", "web", 0));
    let accepts = only(bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)]))));
    let accepted = bench.write(&accepts);
    assert_eq!(writes(&bench.step(accepted)), [(Basis::Version("50".into()), 1)]);
    let list = bench.step(Event::NodeWorks(Watch::list(vec![book("50")])));
    assert_eq!(writes(&list), []);
}

#[test]
fn a_book_that_another_of_its_name_replaced_is_forgotten_though_the_own_write_has_not_come_by() {
    let mut bench = ordered();
    let other = NodeWork { uid: "other".into(), ..book("70") };
    let anew = bench.step(Event::NodeWorks(Watch::Upsert(other)));
    assert_eq!(writes(&anew), [(Basis::Version("70".into()), 1)]);
}

#[test]
fn an_end_of_another_book_of_that_name_says_nothing() {
    let mut bench = ordered();
    let other = NodeWork { uid: "other".into(), ..book("70") };
    assert_eq!(writes(&bench.step(Event::NodeWorks(Watch::Gone(other)))), []);
    let own = bench.book.clone().unwrap();
    assert_eq!(writes(&bench.step(Event::NodeWorks(Watch::Gone(own)))), [(Basis::Absent, 1)]);
}

/// The event `gone` removes the book with the order of a forced request, and its container is restarted. Returns the
/// restart count of its target after that.
fn forced_without_its_book(acknowledged: bool, gone: fn(NodeWork) -> Watch<NodeWork>) -> i32 {
    let mut forced = request("a", "web", 0);
    let strategy = RecreateStrategy { force_recreate: true, ..RecreateStrategy::default() };
    forced.spec.strategy = Some(strategy);
    let mut bench = Bench::new(vec![pod("web")], vec![forced]);
    let mut book = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(book.clone())));
    if acknowledged {
        // The watch did not show this before the end of the book.
        let order_id = book.orders[0].id.clone();
        let answer = Answer {
            order_id,
            state: AnswerState::Acknowledged,
            reason: None,
            message: String::new(),
            acknowledged_uptime_seconds: None,
            acknowledged_by: String::new(),
            observed: None,
            image: None,
        };
        book.status.answers = vec![answer];
        book.resource_version = "900".into();
    }
    bench.book = None;
    let actions = bench.step(Event::NodeWorks(gone(book)));
    bench.all(actions);
    let actions = bench.restarted("web");
    bench.all(actions);
    let status = &bench.requests[&ObjectKey::new("shop", "a")].status;
    status.target.as_ref().unwrap().containers[0].restart_count
}

/// Nothing shows any more whether the container was stopped for the request.
#[test]
fn what_was_taken_up_unseen_is_remembered_when_its_book_goes() {
    assert_eq!(forced_without_its_book(true, Watch::Gone), 0);
    assert_eq!(forced_without_its_book(false, Watch::Gone), 1, "its last state says that nobody did");
    assert_eq!(forced_without_its_book(true, |_| Watch::list(Vec::new())), 0);
    assert_eq!(forced_without_its_book(false, |_| Watch::list(Vec::new())), 0, "nobody knows");
}

/// Only the answer to its creation would mention the book again.
#[test]
fn a_book_that_was_deleted_before_the_answer_to_its_creation_is_not_written_to() {
    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    let accepted = bench.accept(request("a", "web", 0));
    let next = bench.step(accepted);
    let create = next.iter().find(|a| matches!(a, Action::WriteOrders { .. })).unwrap();
    let created = bench.write(create);
    let made = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(made.clone())));
    let request = bench.requests[&ObjectKey::new("shop", "a")].clone();
    bench.step(Event::of::<Request>(Watch::Gone(request)));
    bench.step(Event::NodeWorks(Watch::Gone(made)));
    assert!(bench.step(created).is_empty());
}
