//! Orders to have an image on the node, and to tell what runs of it.
//!
//! They change nothing about a container, so they need no acknowledgement before they begin and take no turn among the other
//! orders of their Pod. Each stays in the book until the controller withdraws it, and is answered again when something changes:
//! when the node has the image, when it has it no more (its garbage collection takes what no container uses), and when another
//! container of that name runs.

mod progress;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::logic::pull::meaning;
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Answer, Order};

use crate::action::{Action, Book, CallFailure, Image, Look, Named, Newest, PullFailure};
pub(crate) use progress::Progress;

/// How many pulls of a node are under way at a time.
const MAX_PULLS: usize = 2;

/// All orders of that sort, and the pulls that they wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    /// By the orders' IDs.
    orders: BTreeMap<String, Progress>,
    /// The IDs of those that were withdrawn while the runtime was being asked: another order of that ID waits until it has told.
    late: BTreeSet<String>,
    /// What is being pulled, by the images.
    pulls: BTreeMap<String, UnderWay>,
    /// Bytes that must be free where images are kept; 0: nobody looks.
    room: u64,
}

/// A pull; every order that wants its image waits for it.
#[derive(Clone, Debug)]
struct UnderWay {
    /// Of the order that it was begun for.
    namespace: String,
    began: Mono,
}

impl Images {
    /// So many bytes must be free where images are kept; 0: nobody looks.
    pub(crate) fn needs_room(&mut self, bytes: u64) {
        self.room = bytes;
    }

    /// Moves every order on as far as it may go; pulls that no order waits for any more are given up.
    pub(crate) fn next_steps(&mut self, now: Mono, book: Option<&Book>) -> Vec<Action> {
        let orders = book.map_or(&[][..], |book| &book.orders);
        let open: BTreeSet<&str> = orders.iter().filter(|o| asks(o)).map(|o| o.id.as_str()).collect();
        let withdrawn = self.orders.extract_if(.., |id, _| !open.contains(id.as_str()));
        self.late.extend(withdrawn.filter(|(_, progress)| progress.looking).map(|(id, _)| id));
        let mut actions = Vec::new();
        for order in orders.iter().filter(|order| asks(order) && !self.late.contains(&order.id)) {
            let stored = book.and_then(|book| book.answer(&order.id));
            let progress =
                self.orders.entry(order.id.clone()).or_insert_with(|| Progress::new(now, order, stored));
            progress.compare(order);
            progress.expire(now);
            actions.extend(progress.look(now, self.room > 0));
        }
        let awaited: BTreeSet<String> = self.orders.values().filter_map(Progress::awaits).collect();
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

    /// Begins pulls as far as there are places: of the namespace that has the fewest under way, the oldest in the book.
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

    /// The runtime told what it knows, or could not; what it tells of an order that was withdrawn says nothing.
    pub(crate) fn seen(&mut self, now: Mono, order_id: &str, result: Result<Box<Look>, CallFailure>) {
        if !self.late.remove(order_id)
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
            if progress.awaits().as_deref() == Some(image) {
                progress.pulled(now, result.clone());
            }
        }
    }

    /// What is to be told of an order; `before` is what was told last.
    pub(crate) fn answer(&self, now: Mono, order_id: &str, before: Option<&Answer>) -> Option<Answer> {
        self.orders.get(order_id).map_or_else(|| before.cloned(), |progress| progress.answer(now, before))
    }

    /// When to look again though nothing happened.
    pub(crate) fn wake_at(&self, now: Mono) -> Option<Mono> {
        self.orders.values().filter_map(|progress| progress.wake_at(now)).min()
    }

    /// The runtime is back: what waited for it is asked at once.
    pub(crate) fn retry(&mut self) {
        self.orders.values_mut().for_each(Progress::retry);
    }
}

/// The order is one of that sort.
pub(crate) fn asks(order: &Order) -> bool {
    order.action.pull.is_some()
}
