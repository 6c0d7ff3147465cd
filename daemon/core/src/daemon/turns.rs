//! Which order continues, and how far. Orders of one Pod run one after another, in the sequence of the book. An order
//! that waits for memory or for a failing runtime lets later ones pass, and continues when none of them is under way.

use std::collections::BTreeSet;

use pitstop_api::condition::truncate;
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, MAX_MESSAGE, Order};

use super::Daemon;
use crate::action::{Action, Book};
use crate::decision::well_formed;
use crate::image;
use crate::order::{
    HookStep, Membership, Progress, Step, answer, hook_ended, request_over, reused_id, uptime_seconds,
};
use crate::resize::{forgets, recorded};

/// UIDs of Pods whose orders must wait.
struct Turns {
    /// No order of these Pods may begin. An action of a withdrawn order, or of one that yields, is under way, or
    /// the Pod must be restored.
    busy: BTreeSet<String>,
    /// Pods with a begun order that does not yield.
    taken: BTreeSet<String>,
}

impl Daemon {
    /// Continues every order as far as possible.
    pub(super) fn next_steps(&mut self, now: Mono) -> Vec<Action> {
        let Some(book) = self.book.as_ref().map(|b| b.get().clone()) else {
            self.orders.retain(|_, p| !p.idle());
            return Vec::new();
        };
        let open: BTreeSet<&str> = book.orders.iter().map(|o| o.id.as_str()).collect();
        self.orders.retain(|id, p| open.contains(id.as_str()) || !p.idle());
        let mut turns = self.turns(&open);
        let mut actions = Vec::new();
        for order in book.orders.iter().filter(|order| !image::is_pull(order)) {
            self.track(order, book.answer(&order.id));
            if self.has_its_turn(now, order, &mut turns) {
                actions.extend(self.next_action(now, &book, order, &mut turns));
            }
        }
        actions
    }

    fn turns(&self, open: &BTreeSet<&str>) -> Turns {
        let uid = |p: &Progress| p.pod.uid.clone();
        let withdrawn = self.orders.iter().filter(|(id, _)| !open.contains(id.as_str())).map(|(_, p)| uid(p));
        let yielding = self.orders.values().filter(|p| p.yields() && !p.idle()).map(uid);
        let busy = withdrawn.chain(yielding).chain(self.restores.keys().cloned()).collect();
        let began = |p: &&Progress| p.begun && !p.yields() && !matches!(p.step, Step::Over(_));
        Turns { busy, taken: self.orders.values().filter(began).map(uid).collect() }
    }

    /// Starts to track an order of the book, and applies its stored answer.
    fn track(&mut self, order: &Order, stored: Option<&Answer>) {
        let hook = self.ended_hooks.get(&order.id);
        let fresh = || start(order, stored, hook, self.resizes);
        let progress = self.orders.entry(order.id.clone()).or_insert_with(fresh);
        if progress.membership == Membership::Orphaned && progress.idle() {
            *progress = fresh();
        }
        if let Some(stored) = stored {
            progress.apply(order, stored);
        }
    }

    /// Whether an order may continue; if so, no later order of its Pod may.
    fn has_its_turn(&mut self, now: Mono, order: &Order, turns: &mut Turns) -> bool {
        let Some(progress) = self.orders.get_mut(&order.id) else { return false };
        if !progress.is_of(order) {
            if progress.idle() {
                progress.step = Step::Over(reused_id(&order.id));
            } else {
                turns.busy.insert(progress.pod.uid.clone());
            }
            return false;
        }
        !matches!(progress.step, Step::Over(_))
            && !progress.waits_behind(now, &turns.taken)
            && turns.busy.insert(order.pod.uid.clone())
    }

    /// The action that an order begins in its turn.
    fn next_action(&mut self, now: Mono, book: &Book, order: &Order, turns: &mut Turns) -> Option<Action> {
        let stored = book.answer(&order.id);
        let acknowledged = stored.filter(|a| self.identity.acknowledged(a));
        let progress = self.orders.get_mut(&order.id)?;
        let due = progress.ask_at.is_none_or(|at| at <= now);
        match progress.step {
            Step::Ask if due => progress.ask(&order.id),
            Step::Ready if book.closed.contains(&order.id) => {
                progress.step = request_over(&order.id);
                None
            }
            Step::Ready => self.stop(now, book, order, acknowledged?),
            Step::Read if due => progress.read(&order.id),
            Step::Look if due => progress.look(&order.id, &book.status.held),
            Step::Resize { .. } => self.resize(now, book, order, acknowledged?, turns),
            Step::Ask
            | Step::Asking
            | Step::Hooking
            | Step::Stopping
            | Step::Over(_)
            | Step::Read
            | Step::Reading
            | Step::Look
            | Step::Looking
            | Step::Resizing => None,
        }
    }

    /// The hook or stop of an acknowledged order, once a write has proved that the book still has the order.
    fn stop(&mut self, now: Mono, book: &Book, order: &Order, acknowledged: &Answer) -> Option<Action> {
        let proved = self.proved(now);
        let progress = self.orders.get_mut(&order.id)?;
        if !proved && progress.needs_proof() {
            progress.membership = Membership::Unproved;
            return None;
        }
        progress.membership = Membership::Listed;
        let same_boot = self.identity.same_boot(&book.status);
        let since = acknowledged.acknowledged_uptime_seconds.filter(|_| same_boot);
        progress.grace_since = since.unwrap_or_else(|| uptime_seconds(now));
        progress.act(&order.id, now, &mut self.sent)
    }

    /// The writes of an acknowledged order, once the original resources are on record.
    fn resize(
        &mut self,
        now: Mono,
        book: &Book,
        order: &Order,
        acknowledged: &Answer,
        turns: &mut Turns,
    ) -> Option<Action> {
        let progress = self.orders.get_mut(&order.id)?;
        if !recorded(&book.status.held, order) {
            progress.unrecorded(acknowledged);
            return None;
        }
        let action = progress.resize(acknowledged, &book.status.held, now);
        // No action began, so no outcome would let the next order begin.
        if progress.idle() {
            turns.busy.remove(&order.pod.uid);
        }
        action
    }
}

/// An order that this process sees for the first time; `hook`: how its hook ended, if it did. The caller applies a
/// final answer in the book.
fn start(order: &Order, stored: Option<&Answer>, hook: Option<&Option<String>>, resizes: bool) -> Progress {
    let refused = |reason, why: &str| {
        Step::Over(answer(&order.id, AnswerState::Refused, Some(reason), truncate(why, MAX_MESSAGE)))
    };
    let changes = order.action.resize.as_ref().is_some_and(|resize| !forgets(resize));
    let (target, step) = match well_formed(order) {
        Err(why) => (None, refused(AnswerReason::InvalidOrder, &why)),
        Ok(target) if changes && !resizes => {
            (Some(target), refused(AnswerReason::NotEnabled, "this daemon was started without --resize"))
        }
        Ok(target) => (Some(target), Step::Ask),
    };
    let reported = stored.and_then(|a| Some((a.reason?, a.message.as_str())));
    let hook = match (hook, reported) {
        (Some(failure), _) => hook_ended(failure.as_deref()),
        (None, Some((AnswerReason::PreStopHookFailed, message))) => hook_ended(Some(message)),
        // It was stopped, so its hook had ended.
        (None, Some((AnswerReason::StopRetried, _))) => hook_ended(None),
        (None, _) => HookStep::None,
    };
    Progress::new(order, target, step, hook)
}
