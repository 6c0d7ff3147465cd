//! For how long the daemon has been carrying out orders.

use std::collections::BTreeMap;
use std::time::Duration;

use pitstop_api::nodework::Order;

use super::{NodeWork, OrderView, views};
use crate::time::{Mono, seconds};

/// Grace period in seconds if neither the request nor the Pod sets one (Kubernetes' default).
const DEFAULT_GRACE: i64 = 30;

/// Which daemon process carries out each order of a book, and since when this process has seen that, by order ID. Lost
/// when this process ends, and then counted anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acting(BTreeMap<String, (String, Mono)>);

impl Acting {
    /// Notes what the book shows. A daemon process that takes over an order has its own time for it.
    pub fn see(&mut self, now: Mono, book: Option<&NodeWork>) {
        let acting = views(book).filter(OrderView::acting);
        let acting = acting.filter_map(|view| Some((&view.order.id, &view.answer?.acknowledged_by)));
        self.0 = acting
            .map(|(id, by)| {
                let known = self.0.get(id).filter(|(before, _)| before == by).map(|(_, since)| *since);
                (id.clone(), (by.clone(), known.unwrap_or(now)))
            })
            .collect();
    }

    /// When the daemon exceeds the order's time by `patience`; `None` if it does not carry out the order.
    pub fn overdue_at(&self, order: &Order, patience: Duration) -> Option<Mono> {
        self.0.get(&order.id).map(|(_, since)| since.after(grace(order)).after(patience))
    }
}

/// How long the stop of an order may take: the grace period, which is at least the runtime's own two seconds. An order
/// that stops nothing takes no time.
pub fn grace(order: &Order) -> Duration {
    let recreate = order.action.recreate.as_ref();
    recreate.map_or(Duration::ZERO, |recreate| {
        seconds(recreate.grace_period_seconds.unwrap_or(DEFAULT_GRACE).max(2))
    })
}

#[cfg(test)]
mod tests {
    use pitstop_api::nodework::{Answer, AnswerState, Recreate};

    use super::*;

    fn book(by: &str, state: AnswerState) -> NodeWork {
        let answer = Answer {
            order_id: "a/app/1".into(),
            state,
            reason: None,
            message: String::new(),
            acknowledged_uptime_seconds: None,
            acknowledged_by: by.into(),
            observed: None,
            image: None,
        };
        let order = Order { id: "a/app/1".into(), ..Order::default() };
        let mut book = NodeWork { orders: vec![order], ..NodeWork::default() };
        book.status.answers.push(answer);
        book
    }

    #[test]
    fn each_process_of_the_daemon_has_its_own_time_for_an_order() {
        let mut stop = Order { id: "a/app/1".into(), ..Order::default() };
        stop.action = Recreate::with_grace(Some(7)).into();
        let mut acting = Acting::default();
        let at = |acting: &Acting| acting.overdue_at(&stop, Duration::from_mins(1));
        acting.see(Mono(1_000), Some(&book("one", AnswerState::Acknowledged)));
        acting.see(Mono(5_000), Some(&book("one", AnswerState::Acknowledged)));
        assert_eq!(at(&acting), Some(Mono(68_000)));
        acting.see(Mono(9_000), Some(&book("two", AnswerState::Acknowledged)));
        assert_eq!(at(&acting), Some(Mono(76_000)));
        acting.see(Mono(10_000), Some(&book("two", AnswerState::Done)));
        assert_eq!(at(&acting), None);
        acting.see(Mono(11_000), None);
        assert_eq!(acting, Acting::default());
    }

    #[test]
    fn only_a_stop_takes_its_grace() {
        let mut order = Order { id: "a".into(), ..Order::default() };
        for (given, taken) in [(None, 30), (Some(0), 2), (Some(90), 90)] {
            order.action = Recreate::with_grace(given).into();
            assert_eq!(grace(&order), Duration::from_secs(taken), "{given:?}");
        }
        assert_eq!(grace(&Order::default()), Duration::ZERO);
    }
}
