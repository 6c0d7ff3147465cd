//! From the orders that requests want to the one write that a node's book needs.

use std::collections::BTreeMap;

use pitstop_api::MAX_ORDERS;
use pitstop_api::nodework::{AnswerState, Order, request_uid};

use super::NodeWork;
use crate::plan::Urgency;

/// How many stops of one request can be under way at a time.
const MAX_OF_REQUEST: usize = 8;
/// The same for the requests of one namespace.
const MAX_OF_NAMESPACE: usize = MAX_ORDERS / 4 * 3;

/// How many pull orders a book has at a time, and how many of one namespace. Each stays until its request ends, which
/// may be suspended for days. The other slots are for other orders.
const MAX_PULLS: usize = MAX_ORDERS / 2;
const MAX_PULLS_OF_NAMESPACE: usize = MAX_ORDERS / 4;

/// A write of a book.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct BookWrite {
    /// All open orders.
    pub orders: Vec<Order>,
    /// IDs of the orders whose request is over.
    pub closed: Vec<String>,
    /// New orders, withdrawals and ends of requests are urgent; the removal of answered orders can wait for another
    /// write.
    pub urgency: Urgency,
    /// It only adds stops and pulls, and drops stops that are over: it is valid whatever the daemon has answered
    /// meanwhile.
    pub adds: bool,
}

/// The write that brings a node's book to the wanted orders, if it needs one.
///
/// Orders that stay keep their position, because orders of one Pod are carried out in the order of the list. New ones
/// follow while [slots](fill_slots) are free; the others wait. `over`: IDs of orders whose request is over.
pub fn plan(book: Option<&NodeWork>, wanted: &[Order], over: &[String]) -> Option<BookWrite> {
    let current: &[Order] = book.map_or(&[], |b| &b.orders);
    let mut orders: Vec<Order> = current.iter().filter(|o| wanted.contains(o)).cloned().collect();
    let dropped = |o: &&Order| !wanted.contains(o);
    let withdraws = current.iter().filter(dropped).any(|o| book.and_then(|b| b.answer(&o.id)).is_none());
    // An order never changes: one of the same ID must be gone from the book before it can be placed anew.
    let new: Vec<&Order> = wanted.iter().filter(|o| !current.iter().any(|c| c.id == o.id)).collect();
    let before = orders.len();
    let finished = |order: &Order| {
        let answer = book.and_then(|book| book.answer(&order.id));
        answer.is_some_and(|answer| answer.state != AnswerState::Acknowledged)
    };
    let holds = |order: &&Order| order.action.pull.is_some() || !finished(order);
    let used = UsedSlots::of(orders.iter().filter(holds));
    fill_slots(&mut orders, new, used);
    let known: &[String] = book.map_or(&[], |b| &b.closed);
    // The mark stays, even if this leader does not know of the end yet.
    let is_over = |id: &&String| over.contains(id) || known.contains(id);
    let closed: Vec<String> = orders.iter().map(|o| &o.id).filter(is_over).cloned().collect();
    let marks = closed.iter().any(|id| !known.contains(id));
    let adds = orders.len() > before;
    let urgent = withdraws || marks || adds;
    let urgency = if urgent { Urgency::Now } else { Urgency::Later };
    let goes = |order: &Order| order.action.recreate.is_some() || order.action.pull.is_some();
    let adds = adds
        && closed == known
        && orders.iter().skip(before).all(goes)
        // A final answer to a stop stays. A pull is done again when the image is gone.
        && current.iter().filter(dropped).all(|order| order.action.recreate.is_some() && finished(order));
    (marks || orders != current).then_some(BookWrite { orders, closed, urgency, adds })
}

/// Gives each free slot to the namespace with the fewest slots, there to the Pod with the fewest, and there to its
/// first new order.
fn fill_slots(orders: &mut Vec<Order>, mut new: Vec<&Order>, mut used: UsedSlots) {
    while orders.len() < MAX_ORDERS {
        let free = new.iter().enumerate().filter(|(_, order)| used.leaves_room(order));
        let Some((at, _)) = free.min_by_key(|(at, order)| (used.beside(order), *at)) else { return };
        let order = new.remove(at);
        used.add(order);
        orders.push(order.clone());
    }
}

/// Who has how many slots for unfinished stops and for pulls. Other orders are bounded otherwise, and may be wanted
/// all together.
#[derive(Default)]
struct UsedSlots {
    pulls: usize,
    pulls_of: BTreeMap<String, usize>,
    requests: BTreeMap<String, usize>,
    pods: BTreeMap<String, usize>,
    namespaces: BTreeMap<String, usize>,
}

impl UsedSlots {
    fn of<'a>(orders: impl Iterator<Item = &'a Order>) -> Self {
        let mut used = Self::default();
        orders.for_each(|order| used.add(order));
        used
    }

    fn add(&mut self, order: &Order) {
        if order.action.pull.is_some() {
            self.pulls = self.pulls.saturating_add(1);
            let of = self.pulls_of.entry(order.pod.namespace.clone()).or_default();
            *of = of.saturating_add(1);
        }
        if order.action.recreate.is_none() {
            return;
        }
        let namespace = self.namespaces.entry(order.pod.namespace.clone()).or_default();
        *namespace = namespace.saturating_add(1);
        let pod = self.pods.entry(order.pod.uid.clone()).or_default();
        *pod = pod.saturating_add(1);
        let request = self.requests.entry(request_uid(&order.id).to_owned()).or_default();
        *request = request.saturating_add(1);
    }

    /// Slots for stops of the order's namespace and of its Pod; for a pull, the namespace's slots for pulls.
    fn beside(&self, order: &Order) -> (usize, usize) {
        let of = |all: &BTreeMap<String, usize>, key: &str| all.get(key).copied().unwrap_or_default();
        let namespaces = if order.action.pull.is_some() { &self.pulls_of } else { &self.namespaces };
        (of(namespaces, &order.pod.namespace), of(&self.pods, &order.pod.uid))
    }

    fn leaves_room(&self, order: &Order) -> bool {
        if order.action.pull.is_some() {
            let of = self.pulls_of.get(&order.pod.namespace).copied().unwrap_or_default();
            return self.pulls < MAX_PULLS && of < MAX_PULLS_OF_NAMESPACE;
        }
        let request = self.requests.get(request_uid(&order.id)).copied().unwrap_or_default();
        order.action.recreate.is_none()
            || (request < MAX_OF_REQUEST && self.beside(order).0 < MAX_OF_NAMESPACE)
    }
}

#[cfg(test)]
mod tests {
    use pitstop_api::nodework::{Answer, OrderAction, OrderPod, Pull, PullPolicy, Recreate, Verify};

    use super::*;

    fn order(id: &str) -> Order {
        Order { id: id.into(), ..Order::default() }
    }

    fn book(orders: &[&str], answered: &[&str]) -> NodeWork {
        let mut book =
            NodeWork { orders: orders.iter().map(|id| order(id)).collect(), ..NodeWork::default() };
        book.status.answers =
            answered.iter().map(|id| Answer { order_id: (*id).into(), ..answer() }).collect();
        book
    }

    fn answer() -> Answer {
        Answer {
            order_id: String::new(),
            state: AnswerState::Acknowledged,
            reason: None,
            message: String::new(),
            acknowledged_uptime_seconds: None,
            acknowledged_by: String::new(),
            observed: None,
            image: None,
        }
    }

    fn ids(write: &BookWrite) -> Vec<&str> {
        write.orders.iter().map(|o| o.id.as_str()).collect()
    }

    #[test]
    fn a_missing_book_is_written_only_for_orders() {
        assert_eq!(plan(None, &[], &[]), None);
        let write = plan(None, &[order("a")], &[]).unwrap();
        assert_eq!((ids(&write), write.urgency), (vec!["a"], Urgency::Now));
    }

    #[test]
    fn planning_again_after_the_write_plans_nothing() {
        let wanted = [order("b"), order("a")];
        let write = plan(Some(&book(&["a", "x"], &[])), &wanted, &[]).unwrap();
        assert_eq!(ids(&write), ["a", "b"]);
        assert_eq!(plan(Some(&book(&["a", "b"], &[])), &wanted, &[]), None);
    }

    #[test]
    fn tidying_up_can_wait_but_withdrawals_cannot() {
        let done = plan(Some(&book(&["a", "b"], &["a"])), &[order("b")], &[]).unwrap();
        assert_eq!(done.urgency, Urgency::Later);
        let withdrawn = plan(Some(&book(&["a", "b"], &["a"])), &[order("a")], &[]).unwrap();
        assert_eq!(withdrawn.urgency, Urgency::Now);
    }

    #[test]
    fn a_book_is_never_longer_than_allowed() {
        let wanted: Vec<Order> =
            (0..200).map(|i| of(&format!("ns-{}", i % 2), &format!("{i:03}"), "app")).collect();
        let write = plan(None, &wanted, &[]).unwrap();
        assert_eq!(write.orders.len(), MAX_ORDERS);
        let mut full = book(&[], &[]);
        full.orders.clone_from(&write.orders);
        assert_eq!(plan(Some(&full), &wanted, &[]), None);
    }

    fn of(namespace: &str, pod: &str, container: &str) -> Order {
        let pod =
            OrderPod { namespace: namespace.into(), name: pod.into(), uid: format!("{namespace}-{pod}") };
        let id = format!("request-of-{}/{container}/1", pod.uid);
        Order { id, pod, action: Recreate::with_grace(None).into(), ..Order::default() }
    }

    fn taken(orders: &[Order]) -> NodeWork {
        NodeWork { orders: orders.to_vec(), ..NodeWork::default() }
    }

    #[test]
    fn one_request_has_eight_places_and_its_orders_stay_in_sequence() {
        let wanted: Vec<Order> = (0..33).map(|i| of("a", "web", &format!("{i:02}"))).collect();
        let first = plan(None, &wanted, &[]).unwrap().orders;
        assert_eq!(first, wanted[..8]);
        assert_eq!(plan(Some(&taken(&first)), &wanted, &[]), None);
        // Three of them are over: two answered, one withdrawn.
        let mut book = taken(&first);
        for done in &first[1..3] {
            book.status.answers.push(Answer {
                order_id: done.id.clone(),
                state: AnswerState::Done,
                ..answer()
            });
        }
        let next = plan(Some(&book), &wanted[1..], &[]).unwrap().orders;
        assert_eq!(next, wanted[1..11]);
    }

    /// All may be wanted together, and none stops a container.
    #[test]
    fn questions_and_resizes_are_not_counted() {
        let questions: Vec<Order> = (0..64)
            .map(|i| Order { action: OrderAction::default(), ..of("a", "web", &i.to_string()) })
            .collect();
        assert_eq!(plan(None, &questions, &[]).unwrap().orders.len(), 64);
    }

    #[test]
    fn pulls_leave_places_to_all_else_and_to_other_namespaces() {
        let pull = |namespace: &str, pod: &str| {
            let action = Pull::new("web:v2".into(), PullPolicy::default(), 600).into();
            Order { action, ..of(namespace, pod, "app") }
        };
        let many = |namespace: &str| (0..40).map(|i| pull(namespace, &format!("{i:02}"))).collect::<Vec<_>>();
        let write = plan(None, &many("a"), &[]).unwrap();
        assert_eq!(write.orders.len(), 16);
        // Pull orders stay although they are answered.
        let mut book = taken(&write.orders);
        book.status.answers = write
            .orders
            .iter()
            .map(|o| Answer { order_id: o.id.clone(), state: AnswerState::Done, ..answer() })
            .collect();
        let all: Vec<Order> =
            ["a", "b", "c"].into_iter().flat_map(many).chain([of("d", "web", "app")]).collect();
        let write = plan(Some(&book), &all, &[]).unwrap();
        let of = |namespace: &str| write.orders.iter().filter(|o| o.pod.namespace == namespace).count();
        assert_eq!(["a", "b", "c", "d"].map(of), [16, 8, 8, 1]);
    }

    #[test]
    fn a_namespace_leaves_places_to_others() {
        let wanted: Vec<Order> = (0..100).map(|i| of("a", &format!("{i:02}"), "app")).collect();
        let write = plan(None, &wanted, &[]).unwrap();
        assert_eq!(write.orders, wanted[..48]);
        let book = taken(&write.orders);
        // The other namespace's order is the last that was requested.
        let all: Vec<Order> = wanted.iter().cloned().chain([of("b", "web", "app")]).collect();
        let write = plan(Some(&book), &all, &[]).unwrap();
        assert_eq!((write.orders.len(), &write.orders[48]), (49, &all[100]));
    }

    #[test]
    fn places_go_round_namespaces_and_pods() {
        let wanted =
            [of("a", "x", "1"), of("a", "x", "2"), of("a", "y", "1"), of("b", "z", "1"), of("b", "z", "2")];
        let write = plan(None, &wanted, &[]).unwrap();
        let names: Vec<String> = write
            .orders
            .iter()
            .map(|o| format!("{}{}", o.pod.name, &o.id[o.id.len() - 3..o.id.len() - 2]))
            .collect();
        assert_eq!(names, ["x1", "z1", "y1", "z2", "x2"]);
    }

    #[test]
    fn what_is_over_is_said_at_once_and_forgotten_with_its_order() {
        let wanted = [order("a"), order("b")];
        let over = ["a".to_owned(), "x".to_owned()];
        let mut stored = book(&["a", "b"], &["a", "b"]);
        let write = plan(Some(&stored), &wanted, &over).unwrap();
        assert_eq!((&write.closed[..], write.urgency), (&over[..1], Urgency::Now));
        stored.closed = write.closed;
        assert_eq!(plan(Some(&stored), &wanted, &over), None);
        assert_eq!(plan(Some(&stored), &wanted, &[]), None, "it is never taken back");
        let tidied = plan(Some(&stored), &wanted[1..], &over).unwrap();
        assert!(tidied.closed.is_empty());
        assert_eq!(tidied.urgency, Urgency::Later);
    }

    /// Such a write is valid whatever the daemon answers meanwhile: it has not seen new orders, and ended ones stay
    /// ended.
    #[test]
    fn what_only_adds_orders_says_so() {
        let stop = |id: &str| Order { action: Recreate::with_grace(None).into(), ..order(id) };
        let pull = |id: &str| Order {
            action: Pull::new("a:b".into(), PullPolicy::default(), 60).into(),
            ..order(id)
        };
        let verify = |id: &str| Order { action: Verify::default().into(), ..order(id) };
        let mut stored = taken(&[stop("a"), stop("b"), pull("c")]);
        let adds = |stored: &NodeWork, wanted: &[Order], over: &[String]| {
            plan(Some(stored), wanted, over).is_some_and(|write| write.adds)
        };
        let all = |more: Order| [stop("a"), stop("b"), pull("c"), more];
        assert!(adds(&stored, &all(stop("d")), &[]));
        assert!(adds(&stored, &all(pull("d")), &[]));
        assert!(!adds(&stored, &all(verify("d")), &[]), "what is held may be another by now");
        assert!(!adds(&stored, &all(stop("d")), &["b".into()]), "it ends what the daemon may begin");
        let without = |id: &str| all(stop("d")).into_iter().filter(|o| o.id != id).collect::<Vec<_>>();
        assert!(!adds(&stored, &without("b"), &[]), "the daemon may acknowledge it this very moment");
        stored.status.answers =
            ["b", "c"].map(|id| Answer { order_id: id.into(), state: AnswerState::Done, ..answer() }).into();
        assert!(adds(&stored, &without("b"), &[]), "it is over for good");
        assert!(!adds(&stored, &without("c"), &[]), "it is pulled again when the image is gone");
        assert!(!adds(&stored, &[stop("a"), pull("c")], &[]), "nothing is added");
        stored.status.answers[0].state = AnswerState::Acknowledged;
        assert!(!adds(&stored, &without("b"), &[]), "it is being carried out");
    }

    #[test]
    fn an_order_is_not_changed_in_place() {
        let mut other = order("a");
        other.container.name = "x".into();
        let write = plan(Some(&book(&["a"], &[])), &[other], &[]).unwrap();
        assert!(write.orders.is_empty());
    }
}
