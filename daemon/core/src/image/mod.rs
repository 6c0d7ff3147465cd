//! Orders to have an image on the node, and to tell what runs of it.
//!
//! They change nothing about a container, so they need no acknowledgement before they begin and take no turn among the other
//! orders of their Pod. Each stays in the book until its request ends, and is answered again when something changes: when the
//! node has the image, when it has it no more (its garbage collection takes what no container uses), and when another
//! container of that name runs.

mod progress;
mod secrets;
mod told;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Answer, Order};

use crate::action::{Action, Book, CallFailure, Image, Look, Named, Newest, PullFailure};
use crate::order::reused;
pub(crate) use progress::Progress;
use progress::Step;

/// How many pulls of a node are under way at a time.
const MAX_PULLS: usize = 2;

/// All orders of that sort, by their IDs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images(BTreeMap<String, Progress>);

impl Images {
    /// Moves every order on as far as it may go; pulls of orders that were withdrawn are given up.
    pub(crate) fn next_steps(&mut self, now: Mono, book: Option<&Book>) -> Vec<Action> {
        let orders = book.map_or(&[][..], |book| &book.orders);
        let open: BTreeSet<&str> = orders.iter().filter(|o| asks(o)).map(|o| o.id.as_str()).collect();
        let mut actions = Vec::new();
        self.0.retain(|id, progress| {
            let stays = open.contains(id.as_str());
            if !stays && progress.step == Step::Pulling {
                actions.push(Action::CancelPull { order_id: id.clone() });
            }
            stays
        });
        for order in orders.iter().filter(|order| asks(order)) {
            let stored = book.and_then(|book| book.answer(&order.id));
            let progress =
                self.0.entry(order.id.clone()).or_insert_with(|| Progress::new(now, order, stored));
            if !progress.is_of(order) {
                if progress.step == Step::Pulling {
                    actions.push(Action::CancelPull { order_id: order.id.clone() });
                }
                progress.step = Step::Over(Box::new(reused(&order.id)));
            }
            progress.expire(now, &order.id);
            actions.extend(progress.look(now, order));
        }
        actions.extend(self.pull(now, orders));
        actions
    }

    /// Begins pulls as far as there are places: of the namespace that has the fewest under way, the oldest in the book.
    fn pull(&mut self, now: Mono, orders: &[Order]) -> Vec<Action> {
        let mut actions = Vec::new();
        loop {
            let under_way = || orders.iter().filter(|order| self.steps(order, &Step::Pulling));
            if under_way().count() >= MAX_PULLS {
                return actions;
            }
            let beside = |order: &Order| {
                under_way().filter(|other| other.pod.namespace == order.pod.namespace).count()
            };
            let waits = orders
                .iter()
                .enumerate()
                .filter(|(_, order)| self.0.get(&order.id).is_some_and(|progress| progress.wants_pull(now)));
            let next = waits.min_by_key(|(at, order)| (beside(order), *at)).map(|(_, order)| order);
            let begun = next.and_then(|order| self.0.get_mut(&order.id)?.pull(now, order));
            match begun {
                Some(action) => actions.push(action),
                None => return actions,
            }
        }
    }

    fn steps(&self, order: &Order, step: &Step) -> bool {
        self.0.get(&order.id).is_some_and(|progress| progress.step == *step)
    }

    /// The runtime told what it knows, or could not.
    pub(crate) fn seen(&mut self, now: Mono, order: &Order, result: Result<Box<Look>, CallFailure>) {
        if let Some(progress) = self.0.get_mut(&order.id).filter(|p| p.step == Step::Looking) {
            progress.seen(now, order, result);
        }
    }

    /// A pull ended.
    pub(crate) fn pulled(&mut self, now: Mono, order_id: &str, result: Result<(), PullFailure>) {
        if let Some(progress) = self.0.get_mut(order_id).filter(|p| p.step == Step::Pulling) {
            progress.pulled(now, order_id, result);
        }
    }

    /// What is to be told of an order; `before` is what was told last.
    pub(crate) fn answer(&self, now: Mono, order_id: &str, before: Option<&Answer>) -> Option<Answer> {
        self.0
            .get(order_id)
            .map_or_else(|| before.cloned(), |progress| progress.answer(now, order_id, before))
    }

    /// When to look again though nothing happened.
    pub(crate) fn wake_at(&self, now: Mono) -> Option<Mono> {
        self.0.values().filter_map(|progress| progress.wake_at(now)).min()
    }

    /// The runtime is back: what waited for it is asked at once.
    pub(crate) fn retry(&mut self) {
        self.0.values_mut().for_each(Progress::retry);
    }
}

/// The order is one of that sort.
pub(crate) fn asks(order: &Order) -> bool {
    order.action.pull.is_some()
}
