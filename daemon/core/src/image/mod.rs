//! Orders to get the node an image, and to report what runs of it.
//!
//! They change no container. So they begin without an acknowledgement, and take no turn among the other orders of their
//! Pod. Each stays in the book until the controller withdraws it. The daemon answers again when the node gets the
//! image, when it loses it, and when another container of that name runs. (The node's garbage collection removes images
//! that no container uses.)

mod progress;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::logic::pull::meaning;
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Answer, Order};

use crate::action::{Action, Book, CallFailure, Image, Look, NamedContainer, NewestContainer, PullFailure};
pub(crate) use progress::Progress;

/// Most pulls of a node at a time.
const MAX_PULLS: usize = 2;

/// All orders to pull, and the pulls that they wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    /// By order ID.
    orders: BTreeMap<String, Progress>,
    /// IDs of orders withdrawn while the runtime was being asked. Another order with that ID waits for the answer.
    unanswered: BTreeSet<String>,
    /// Pulls under way, by image.
    pulls: BTreeMap<String, UnderWay>,
    /// Bytes that must be free in the image store; 0: no check.
    room: u64,
}

/// A pull under way, shared by all orders of its image.
#[derive(Clone, Debug)]
struct UnderWay {
    /// Namespace of the order that started it.
    namespace: String,
    began: Mono,
}

impl Images {
    /// Sets how many bytes must be free in the image store; 0: no check.
    pub(crate) fn require_room(&mut self, bytes: u64) {
        self.room = bytes;
    }

    /// Continues every order as far as possible, and cancels pulls that no order waits for any more.
    pub(crate) fn next_steps(&mut self, now: Mono, book: Option<&Book>) -> Vec<Action> {
        let orders = book.map_or(&[][..], |book| &book.orders);
        let open: BTreeSet<&str> = orders.iter().filter(|o| is_pull(o)).map(|o| o.id.as_str()).collect();
        let withdrawn = self.orders.extract_if(.., |id, _| !open.contains(id.as_str()));
        self.unanswered.extend(withdrawn.filter(|(_, progress)| progress.looking).map(|(id, _)| id));
        let mut actions = Vec::new();
        for order in orders.iter().filter(|order| is_pull(order) && !self.unanswered.contains(&order.id)) {
            let stored = book.and_then(|book| book.answer(&order.id));
            let progress =
                self.orders.entry(order.id.clone()).or_insert_with(|| Progress::new(now, order, stored));
            progress.compare(order);
            progress.expire(now);
            actions.extend(progress.look(now, self.room > 0));
        }
        let awaited: BTreeSet<String> = self.orders.values().filter_map(Progress::awaited_image).collect();
        self.pulls.retain(|image, _| {
            let stays = awaited.contains(image);
            if !stays {
                actions.push(Action::CancelPull { image: image.clone() });
            }
            stays
        });
        actions.extend(self.pull(now, orders));
        actions
    }

    /// Begins pulls while slots are free: of the namespace with the fewest under way, the first order in the book.
    fn pull(&mut self, now: Mono, orders: &[Order]) -> Vec<Action> {
        let mut actions = Vec::new();
        loop {
            for progress in self.orders.values_mut() {
                progress.join(|image| self.pulls.contains_key(image));
            }
            if self.pulls.len() >= MAX_PULLS {
                return actions;
            }
            let beside =
                |order: &Order| self.pulls.values().filter(|p| p.namespace == order.pod.namespace).count();
            let may_begin = |order: &Order| self.orders.get(&order.id).is_some_and(Progress::wants_pull);
            let waits = orders.iter().enumerate().filter(|(_, order)| may_begin(order));
            let next = waits.min_by_key(|(at, order)| (beside(order), *at)).map(|(_, order)| order);
            let begun = next.and_then(|order| {
                let (image, limit) = self.orders.get_mut(&order.id)?.pull(now)?;
                let namespace = order.pod.namespace.clone();
                self.pulls.insert(image.clone(), UnderWay { namespace, began: now });
                Some(Action::Pull { order_id: order.id.clone(), image, limit })
            });
            match begun {
                Some(action) => actions.push(action),
                None => return actions,
            }
        }
    }

    /// Takes the runtime's answer about an order; ignores it if that order was withdrawn.
    pub(crate) fn seen(&mut self, now: Mono, order_id: &str, result: Result<Box<Look>, CallFailure>) {
        if !self.unanswered.remove(order_id)
            && let Some(progress) = self.orders.get_mut(order_id)
        {
            progress.seen(now, result, self.room);
        }
    }

    /// A pull ended.
    pub(crate) fn pulled(&mut self, now: Mono, image: &str, result: &Result<(), PullFailure>) {
        let Some(UnderWay { began, .. }) = self.pulls.remove(image) else { return };
        let result = result
            .as_ref()
            .map(|()| now.since(began))
            .map_err(|failure| meaning(&failure.message, failure.missing));
        for progress in self.orders.values_mut() {
            if progress.awaited_image().as_deref() == Some(image) {
                progress.pulled(now, result.clone());
            }
        }
    }

    /// The answer to an order; `before` is its stored answer.
    pub(crate) fn answer(&self, now: Mono, order_id: &str, before: Option<&Answer>) -> Option<Answer> {
        self.orders.get(order_id).map_or_else(|| before.cloned(), |progress| progress.answer(now, before))
    }

    /// When to act again if no event comes before.
    pub(crate) fn wake_at(&self, now: Mono) -> Option<Mono> {
        self.orders.values().filter_map(|progress| progress.wake_at(now)).min()
    }

    /// The runtime is back: waiting orders ask it at once.
    pub(crate) fn retry(&mut self) {
        self.orders.values_mut().for_each(Progress::retry);
    }
}

/// Whether the order is to pull an image.
pub(crate) fn is_pull(order: &Order) -> bool {
    order.action.pull.is_some()
}
