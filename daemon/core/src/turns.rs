//! Which order moves on, and how far. Orders of one Pod go one after another as they stand in the book; one that waits for
//! memory or for a runtime that fails lets those after it go meanwhile, and goes on when none of them is under way.

use std::collections::BTreeSet;

use pitstop_api::condition::truncate;
use pitstop_api::logic::time::Mono;
use pitstop_api::logic::tracked::Tracked;
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, MAX_MESSAGE, Order};

use crate::action::{Action, Book, CallFailure, Watch};
use crate::daemon::Daemon;
use crate::order::{HookStep, Progress, Standing, Step, answer, ended, request_over, reused, uptime_seconds};
use crate::resize::{Owed, Present, forgets, recorded};
use crate::verdict::malformed;

impl Daemon {
    /// The watch selects the node's own book by name, so a list holds at most that one.
    pub(crate) fn book_changed(&mut self, watch: Watch<Book>) {
        let (shown, listed) = match watch {
            Watch::Upsert(book) => (Some(book), false),
            Watch::Gone(last) => {
                let known = self.book.take().map(|book| book.get().clone());
                self.outlive();
                // What was deleted is the newest there was; a list that lacks the book says nothing of it.
                return self.lost(known.filter(|known| known.uid != last.uid).into_iter().chain([last]));
            }
            Watch::Listed(list) => (list.objects.into_iter().next(), true),
        };
        let replaced = self.book.as_ref().map(Tracked::get);
        let replaced = replaced.filter(|known| shown.as_ref().is_none_or(|book| book.uid != known.uid));
        let replaced = replaced.cloned();
        if replaced.is_some() {
            self.outlive();
        }
        self.lost(replaced.into_iter());
        if let Some(book) = &shown {
            self.found(book);
        }
        match (shown, &mut self.book) {
            (Some(book), Some(known)) if listed => known.listed(book),
            (Some(book), Some(known)) => known.observed(book),
            (book, _) => self.book = book.map(Tracked::new),
        }
    }

    /// The orders of the book are withdrawn; the next book counts their numbers anew.
    fn outlive(&mut self) {
        self.orders.retain(|_, progress| !progress.idle());
        for progress in self.orders.values_mut() {
            progress.standing = Standing::Outlived;
        }
    }

    /// Books are gone, and with them the wish that Pods be held at anything.
    fn lost(&mut self, books: impl Iterator<Item = Book>) {
        for book in books.filter(|_| self.resizes) {
            for held in book.status.held {
                let owed = Owed::new(held, book.uid.clone());
                self.owed.insert(owed.held.pod.uid.clone(), owed);
            }
        }
    }

    /// There is a book: Pods that it has on record are its own, and so are those of it that was taken for gone.
    fn found(&mut self, book: &Book) {
        self.owed.retain(|uid, owed| {
            let recorded = book.status.held.iter().any(|held| held.pod.uid == *uid);
            owed.book != book.uid && !recorded
        });
    }

    /// Pods are held at something, or are to get back what they had. A process that ends would leave them so if the book
    /// is deleted at that time.
    pub fn holds(&self) -> bool {
        let recorded = self.book.as_ref().is_some_and(|book| !book.get().status.held.is_empty());
        !self.owed.is_empty() || (self.resizes && recorded)
    }

    /// Pods get back what they had once nothing else is under way for them.
    pub(crate) fn give_back(&mut self, now: Mono) -> Vec<Action> {
        let busy: BTreeSet<&str> =
            self.orders.values().filter(|p| !p.idle()).map(|p| p.pod.uid.as_str()).collect();
        let mut actions = Vec::new();
        for (uid, owed) in &mut self.owed {
            if owed.under_way || owed.at.is_some_and(|at| at > now) {
                continue;
            }
            owed.at = None;
            if !busy.contains(uid.as_str()) {
                owed.under_way = true;
                actions.push(Action::WriteBack { held: Box::new(owed.held.clone()) });
            }
        }
        actions
    }

    pub(crate) fn written_back(&mut self, now: Mono, pod_uid: &str, result: &Result<(), CallFailure>) {
        let owed = self.owed.get_mut(pod_uid).filter(|owed| owed.under_way);
        if owed.is_some_and(|owed| !owed.ended(now, result)) {
            self.owed.remove(pod_uid);
        }
    }

    pub(crate) fn resources_read(&mut self, now: Mono, id: &str, result: Result<Box<Present>, CallFailure>) {
        let order = self.open_orders().iter().find(|o| o.id == id).cloned();
        let Some(progress) = self.orders.get_mut(id).filter(|p| matches!(p.step, Step::Looking)) else {
            return;
        };
        match order.as_ref().map(|order| (order, &order.action.resize)) {
            None => drop(self.orders.remove(id)),
            Some((order, Some(resize))) if progress.is_of(order) => {
                progress.was_looked_at(id, resize, now, result);
            }
            Some(_) => progress.step = Step::Ask,
        }
    }

    pub(crate) fn resized(&mut self, now: Mono, id: &str, result: Result<(), CallFailure>) {
        let order = self.open_orders().iter().find(|o| o.id == id).cloned();
        let stored = self.stored(id).cloned();
        let Some(progress) = self.orders.get_mut(id).filter(|p| matches!(p.step, Step::Resizing)) else {
            return;
        };
        match order {
            None => drop(self.orders.remove(id)),
            Some(order) if progress.is_of(&order) => progress.was_resized(id, stored.as_ref(), now, result),
            Some(_) => progress.step = Step::Ask,
        }
    }

    /// Moves every order on as far as it may go.
    pub(crate) fn next_steps(&mut self, now: Mono) -> Vec<Action> {
        let Some(book) = self.book.as_ref().map(|b| b.get().clone()) else {
            self.orders.retain(|_, p| !p.idle());
            return Vec::new();
        };
        let open: BTreeSet<&str> = book.orders.iter().map(|o| o.id.as_str()).collect();
        self.orders.retain(|id, p| open.contains(id.as_str()) || !p.idle());
        let (mut busy_pods, taken) = self.busy_pods(&open);
        let proved = self.proved(now);
        let mut actions = Vec::new();
        for order in &book.orders {
            let stored = book.answer(&order.id);
            let hook = self.ended_hooks.get(&order.id);
            let resizes = self.resizes;
            let acknowledged = stored.filter(|a| self.identity.acknowledged(a));
            let progress =
                self.orders.entry(order.id.clone()).or_insert_with(|| start(order, stored, hook, resizes));
            if progress.standing == Standing::Outlived && progress.idle() {
                *progress = start(order, stored, hook, resizes);
            }
            if let Some(stored) = stored {
                progress.heed(order, stored);
            }
            if !progress.is_of(order) {
                if progress.idle() {
                    progress.step = Step::Over(reused(&order.id));
                } else {
                    busy_pods.insert(progress.pod.uid.clone());
                }
                continue;
            }
            if matches!(progress.step, Step::Over(_)) || progress.waits_behind(now, &taken) {
                continue;
            }
            if !busy_pods.insert(order.pod.uid.clone()) {
                continue;
            }
            match progress.step {
                Step::Ask if progress.ask_at.is_none_or(|at| at <= now) => {
                    progress.ask_at = None;
                    progress.begun = true;
                    progress.step = Step::Asking;
                    let (order_id, container_id) = (order.id.clone(), order.container.id.clone());
                    actions.push(Action::Inspect { order_id, container_id });
                }
                Step::Ready if book.closed.contains(&order.id) => progress.step = request_over(&order.id),
                Step::Ready => {
                    let Some(acknowledged) = acknowledged else { continue };
                    if !proved && progress.must_ask() {
                        progress.standing = Standing::AsksBook;
                        continue;
                    }
                    progress.standing = Standing::Stands;
                    let same_boot = book.status.boot.as_ref().is_some_and(|b| b.id == self.identity.boot_id);
                    let since = acknowledged.acknowledged_uptime_seconds.filter(|_| same_boot);
                    progress.grace_since = since.unwrap_or_else(|| uptime_seconds(now));
                    actions.push(progress.act(&order.id, now, &mut self.sent));
                }
                Step::Read if progress.ask_at.is_none_or(|at| at <= now) => {
                    actions.push(progress.read(&order.id));
                }
                Step::Look if progress.ask_at.is_none_or(|at| at <= now) => {
                    actions.push(progress.look(&order.id, &book.status.held));
                }
                Step::Fit { .. } => {
                    let Some(acknowledged) = acknowledged else { continue };
                    if !recorded(&book.status.held, order) {
                        progress.unrecorded(acknowledged);
                        continue;
                    }
                    actions.extend(progress.resize(acknowledged, &book.status.held, now));
                    // Nothing was asked for, so nothing would come back to let the next one go.
                    if progress.idle() {
                        busy_pods.remove(&order.pod.uid);
                    }
                }
                Step::Ask
                | Step::Asking
                | Step::Hooking
                | Step::Stopping
                | Step::Over(_)
                | Step::Read
                | Step::Reading
                | Step::Look
                | Step::Looking
                | Step::Resizing => {}
            }
        }
        actions
    }

    /// The Pods for which no order may begin: something is under way for them, of an order that was withdrawn or that
    /// stands back otherwise, or they are to get back what they had. And the Pods of which an order has begun that does
    /// not stand back.
    fn busy_pods(&self, open: &BTreeSet<&str>) -> (BTreeSet<String>, BTreeSet<String>) {
        let uid = |p: &Progress| p.pod.uid.clone();
        let withdrawn = self.orders.iter().filter(|(id, _)| !open.contains(id.as_str())).map(|(_, p)| uid(p));
        let back_again = self.orders.values().filter(|p| p.stands_back() && !p.idle()).map(uid);
        let busy = withdrawn.chain(back_again).chain(self.owed.keys().cloned()).collect();
        let began = |p: &&Progress| p.begun && !p.stands_back() && !matches!(p.step, Step::Over(_));
        (busy, self.orders.values().filter(began).map(uid).collect())
    }
}

impl Progress {
    /// It stands back, and its time has not come, or an order of its Pod is under way. What is under way of itself goes on.
    fn waits_behind(&mut self, now: Mono, taken: &BTreeSet<String>) -> bool {
        if !self.stands_back() {
            return false;
        }
        if !self.idle() || self.ask_at.is_some_and(|at| at > now) {
            return true;
        }
        // Not to be woken for it: it goes on when the other one has ended.
        self.ask_at = None;
        taken.contains(&self.pod.uid)
    }

    /// The runtime knows the container of an order to resize, or it need not.
    pub(crate) fn may_resize(&mut self, order: &Order, runs: bool) {
        let forgets = order.action.resize.as_ref().is_some_and(forgets);
        self.resizing.runs = runs;
        // Nothing is changed on the node, so nothing need be acknowledged.
        self.step = if forgets {
            Step::Over(answer(&order.id, AnswerState::Done, None, String::new()))
        } else {
            Step::Look
        };
    }
}

/// An order seen for the first time by this process; `hook`: how its hook ended, if it did. A final answer in the book
/// is yet to be heeded.
fn start(order: &Order, stored: Option<&Answer>, hook: Option<&Option<String>>, resizes: bool) -> Progress {
    let refused = |reason, why: &str| {
        Step::Over(answer(&order.id, AnswerState::Refused, Some(reason), truncate(why, MAX_MESSAGE)))
    };
    let changes = order.action.resize.as_ref().is_some_and(|resize| !forgets(resize));
    let step = match malformed(order) {
        Some(why) => refused(AnswerReason::InvalidOrder, &why),
        None if changes && !resizes => {
            refused(AnswerReason::NotEnabled, "this daemon was started without --resize")
        }
        None => Step::Ask,
    };
    let told = stored.and_then(|a| Some((a.reason?, a.message.as_str())));
    let hook = match (hook, told) {
        (Some(failure), _) => ended(failure.as_deref()),
        (None, Some((AnswerReason::PreStopHookFailed, message))) => ended(Some(message)),
        // It was stopped, so its hook had ended.
        (None, Some((AnswerReason::StopRetried, _))) => ended(None),
        (None, _) => HookStep::None,
    };
    Progress::new(order, step, hook)
}
