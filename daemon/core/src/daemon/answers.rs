//! Answers to orders, and the one status write that the book needs.

use std::time::Duration;

use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, Boot, Held, NodeWorkStatus, Order};

use super::{Daemon, Identity};
use crate::action::{Action, Outcome};
use crate::image;
use crate::order::{Membership, Progress, SentStops, Step, answer, uptime_seconds};
use crate::resize;

/// How long to wait for the watch to show the cause of a conflict.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(5);

impl Daemon {
    /// Takes the outcome of the status write.
    pub(super) fn written(&mut self, now: Mono, outcome: Outcome) {
        let began = self.write_began.take();
        let Some(book) = &mut self.book else { return };
        match outcome {
            Outcome::Written(new) => {
                book.written(new);
                self.proved_at = began;
                self.backoff.succeeded();
                self.write_at = None;
            }
            Outcome::Conflict => {
                book.conflicted();
                self.write_at = Some(now.after(CONFLICT_PATIENCE));
            }
            Outcome::Retry => {
                book.failed();
                self.backoff.failed(now);
                self.write_at = self.backoff.waits_until(now);
            }
        }
    }

    /// The status write that the book needs, if it may start now.
    pub(super) fn write(&mut self, now: Mono) -> Option<Action> {
        let book = self.book.as_mut().filter(|b| b.writable())?;
        if self.backoff.waits_until(now).is_some() {
            return None;
        }
        let stored = book.get();
        let same_boot = self.identity.same_boot(&stored.status);
        let context = Context { identity: &self.identity, sent: &self.sent, same_boot, now };
        let mut held = stored.status.held.clone();
        let mut urgent = false;
        let mut answers = Vec::new();
        for order in &stored.orders {
            let before = stored.answer(&order.id);
            if image::is_pull(order) {
                let wanted = self.images.answer(now, &order.id, before);
                urgent |= wanted.as_ref() != before;
                answers.extend(wanted);
                continue;
            }
            let Some(progress) = self.orders.get_mut(&order.id) else {
                answers.extend(before.cloned());
                continue;
            };
            let (wanted, at_once) = context.answer(order, progress, before, &mut held);
            urgent |= at_once;
            answers.extend(wanted);
        }
        if !urgent {
            return None;
        }
        let status = NodeWorkStatus {
            observed_generation: stored.generation,
            boot: Some(Boot { id: self.identity.boot_id.clone() }),
            runtime: self.runtime.clone(),
            answers,
            held,
        };
        let resource_version = stored.resource_version.clone();
        book.write_started();
        self.write_began = Some(now);
        Some(Action::WriteStatus { resource_version, status: Box::new(status) })
    }
}

/// Context for answers to orders.
struct Context<'a> {
    identity: &'a Identity,
    sent: &'a SentStops,
    /// Whether the stored uptimes count from the current boot.
    same_boot: bool,
    now: Mono,
}

impl Context<'_> {
    /// The answer to an order, and whether it must be written at once.
    fn answer(
        &self,
        order: &Order,
        progress: &mut Progress,
        before: Option<&Answer>,
        held: &mut Vec<Held>,
    ) -> (Option<Answer>, bool) {
        let acknowledged = before.is_some_and(|a| self.identity.acknowledged(a));
        record(held, order, &mut progress.step, before, acknowledged);
        let unproved = acknowledged && progress.membership == Membership::Unproved;
        let mut urgent = false;
        let mut wanted = match &progress.step {
            Step::Over(over) => Some(with_acknowledgement(over.clone(), before)),
            Step::Ready | Step::Resize { .. } if !acknowledged || unproved => {
                urgent = unproved;
                Some(self.acknowledgement(order, progress, before))
            }
            _ => before.cloned(),
        };
        let acting = wanted.as_mut().filter(|a| a.state == AnswerState::Acknowledged);
        if let (Some(acting), Some((reason, message))) = (acting, progress.trouble()) {
            acting.reason = Some(reason);
            message.clone_into(&mut acting.message);
        }
        urgent |= wanted.as_ref() != before && !wanted.as_ref().is_some_and(|a| can_wait(order, a, before));
        (wanted, urgent)
    }

    /// The acknowledgement of an order. If the container was signalled, or this process was about to send its stop, the
    /// grace period continues.
    fn acknowledgement(&self, order: &Order, progress: &Progress, before: Option<&Answer>) -> Answer {
        let counts = self.same_boot && (!matches!(progress.step, Step::Ready) || progress.signalled());
        let uptime = before
            .and_then(|a| a.acknowledged_uptime_seconds)
            .filter(|_| counts)
            .or_else(|| self.sent.since(order).filter(|_| before.is_none()))
            .unwrap_or_else(|| uptime_seconds(self.now));
        Answer {
            acknowledged_uptime_seconds: Some(uptime),
            acknowledged_by: self.identity.instance.clone(),
            ..answer(&order.id, AnswerState::Acknowledged, None, String::new())
        }
    }
}

/// Records the original resources with the acknowledgement of a resize; refuses the order if the record has no room.
/// Updates the record with the answer `Done`.
fn record(held: &mut Vec<Held>, order: &Order, step: &mut Step, before: Option<&Answer>, acknowledged: bool) {
    match step {
        Step::Resize { present, .. } if !acknowledged => {
            if let Err(why) = resize::begin(held, order, present) {
                let reason = Some(AnswerReason::TooManyHeld);
                *step = Step::Over(answer(&order.id, AnswerState::Refused, reason, why));
            }
        }
        Step::Over(over)
            if over.state == AnswerState::Done
                && before.is_none_or(|a| a.state == AnswerState::Acknowledged) =>
        {
            resize::finish(held, order);
        }
        _ => {}
    }
}

/// Keeps in the final answer who acknowledged the order, and when.
fn with_acknowledgement(over: Answer, before: Option<&Answer>) -> Answer {
    match before.cloned().filter(|_| over.acknowledged_by.is_empty()) {
        None => over,
        Some(Answer { acknowledged_uptime_seconds, acknowledged_by, .. }) => {
            Answer { acknowledged_uptime_seconds, acknowledged_by, ..over }
        }
    }
}

/// Whether an answer can wait for the next write: a success that the Pod's status will show, without a new reason. Only
/// the answer shows what cgroups hold or held.
fn can_wait(order: &Order, answer: &Answer, before: Option<&Answer>) -> bool {
    let known = answer.reason.is_none() || before.is_some_and(|b| b.reason == answer.reason);
    answer.state == AnswerState::Done && known && answer.observed.is_none() && order.action.resize.is_none()
}
