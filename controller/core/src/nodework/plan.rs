//! From the orders that requests want to the one write that a node's book needs.

use pitstop_api::MAX_ORDERS;
use pitstop_api::nodework::Order;

use super::NodeWork;
use crate::plan::Urgency;

/// A write of a book.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct BookWrite {
    /// All open orders.
    pub orders: Vec<Order>,
    /// IDs of those of them whose request is over.
    pub closed: Vec<String>,
    /// New orders, withdrawals and ends of requests are urgent; tidying up answered orders can wait for company.
    pub urgency: Urgency,
}

/// The write that brings a node's book to the wanted orders, if it needs one.
///
/// Orders that stay keep their place, since orders of one Pod are carried out in the order of the list. New
/// ones follow in the given sequence as far as [`MAX_ORDERS`] allows; the others wait for room. `over`: IDs of orders
/// whose request is over.
pub fn plan(book: Option<&NodeWork>, wanted: &[Order], over: &[String]) -> Option<BookWrite> {
    let current: &[Order] = book.map_or(&[], |b| &b.orders);
    let mut orders: Vec<Order> = current.iter().filter(|o| wanted.contains(o)).cloned().collect();
    let dropped = |o: &&Order| !wanted.contains(o);
    let withdraws = current.iter().filter(dropped).any(|o| book.and_then(|b| b.answer(&o.id)).is_none());
    // An order never changes: one of the same ID must be gone from the book before it can be placed anew.
    let places: Vec<&Order> = wanted.iter().filter(|o| !current.iter().any(|c| c.id == o.id)).collect();
    let before = orders.len();
    orders.extend(places.into_iter().take(MAX_ORDERS.saturating_sub(before)).cloned());
    let known: &[String] = book.map_or(&[], |b| &b.closed);
    // A leader that does not know of the end yet says nothing else.
    let is_over = |id: &&String| over.contains(id) || known.contains(id);
    let closed: Vec<String> = orders.iter().map(|o| &o.id).filter(is_over).cloned().collect();
    let marks = closed.iter().any(|id| !known.contains(id));
    let urgent = withdraws || marks || orders.len() > before;
    let urgency = if urgent { Urgency::Now } else { Urgency::Later };
    (marks || orders != current).then_some(BookWrite { orders, closed, urgency })
}

#[cfg(test)]
mod tests {
    use pitstop_api::nodework::{Answer, AnswerState};

    use super::*;

    fn order(id: &str) -> Order {
        Order { id: id.into(), ..Order::default() }
    }

    fn book(orders: &[&str], answered: &[&str]) -> NodeWork {
        let mut book =
            NodeWork { orders: orders.iter().map(|id| order(id)).collect(), ..NodeWork::default() };
        book.status.answers = answered
            .iter()
            .map(|id| Answer {
                order_id: (*id).into(),
                state: AnswerState::Acknowledged,
                reason: None,
                message: String::new(),
                acknowledged_uptime_seconds: None,
                acknowledged_by: String::new(),
                observed: None,
            })
            .collect();
        book
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
        let wanted: Vec<Order> = (0..200).map(|i| order(&format!("{i:03}"))).collect();
        let write = plan(None, &wanted, &[]).unwrap();
        assert_eq!(write.orders.len(), MAX_ORDERS);
        let mut full = book(&[], &[]);
        full.orders.clone_from(&write.orders);
        assert_eq!(plan(Some(&full), &wanted, &[]), None);
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

    #[test]
    fn an_order_is_not_changed_in_place() {
        let mut other = order("a");
        other.container.name = "x".into();
        let write = plan(Some(&book(&["a"], &[])), &[other], &[]).unwrap();
        assert!(write.orders.is_empty());
    }
}
