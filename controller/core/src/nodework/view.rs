//! An order with its answer.

use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, Order, order_attempt, request_uid};

use super::NodeWork;
use crate::pod::{ContainerState, Pod};

/// One order of a request as the node's book has it, with the daemon's answer.
#[derive(Clone, Copy, Debug)]
pub struct OrderView<'a> {
    /// The order.
    pub order: &'a Order,
    /// The daemon's answer, if there is one.
    pub answer: Option<&'a Answer>,
    /// The book says that the order's request is over: the daemon begins nothing of it.
    pub closed: bool,
}

impl OrderView<'_> {
    /// Its attempt among the orders about its container.
    pub fn attempt(&self) -> u32 {
        order_attempt(&self.order.id)
    }

    /// The daemon may be acting on it.
    pub fn acting(&self) -> bool {
        self.answer.is_some_and(|a| a.state == AnswerState::Acknowledged)
    }

    /// The daemon has taken it up: it was not withdrawn before, nor refused.
    pub fn begun(&self) -> bool {
        self.answer.is_some_and(|a| a.state != AnswerState::Refused)
    }

    /// The daemon's stop ended the container, or will.
    pub fn kills(&self) -> bool {
        self.answer.is_some_and(|a| matches!(a.state, AnswerState::Acknowledged | AnswerState::Done))
            && !self.spared()
    }

    /// The container ended before the daemon could stop it.
    pub fn spared(&self) -> bool {
        self.answer.is_some_and(|a| a.reason == Some(AnswerReason::EndedByItself))
    }

    /// The daemon has tried the stop several times without effect, and continues.
    pub fn retried(&self) -> bool {
        self.answer.is_some_and(|a| a.reason == Some(AnswerReason::StopRetried))
    }

    /// The daemon begins nothing of it, because the book says that its request is over.
    pub fn request_over(&self) -> bool {
        self.answer.is_some_and(|a| a.reason == Some(AnswerReason::RequestOver))
    }

    /// A daemon process had acknowledged it, whatever the result.
    pub fn was_taken_up(&self) -> bool {
        self.answer.is_some_and(|a| !a.acknowledged_by.is_empty())
    }

    /// The daemon reports that the container no longer runs.
    pub fn ended(&self) -> bool {
        self.answer.is_some_and(|a| {
            a.state == AnswerState::Done
                || (a.state == AnswerState::Refused && a.reason == Some(AnswerReason::NotRunning))
        })
    }
}

/// The last order about a container.
pub(crate) fn newest<'a>(views: &[OrderView<'a>], container: &str) -> Option<OrderView<'a>> {
    let of = views.iter().filter(|view| view.order.container.name == container);
    of.max_by_key(|view| view.attempt()).copied()
}

/// Every order of a book.
pub(crate) fn views(book: Option<&NodeWork>) -> impl Iterator<Item = OrderView<'_>> {
    book.into_iter().flat_map(|b| {
        b.orders.iter().map(|order| OrderView {
            order,
            answer: b.answer(&order.id),
            closed: b.closed.contains(&order.id),
        })
    })
}

/// The orders of a request, or about a Pod, by its UID.
pub(crate) fn orders_of<'a>(
    book: Option<&'a NodeWork>,
    uid: &'a str,
) -> impl Iterator<Item = OrderView<'a>> + use<'a> {
    views(book).filter(move |view| request_uid(&view.order.id) == uid)
}

/// By the Pod's status, the container that the order names still runs.
pub(crate) fn may_run(order: &Order, pod: Option<&Pod>) -> bool {
    let status = pod
        .filter(|p| p.uid == order.pod.uid)
        .and_then(|p| p.container(&order.container.name))
        .and_then(|c| c.status.as_ref());
    status
        .is_some_and(|s| s.state == ContainerState::Running && s.container_id.ends_with(&order.container.id))
}
