//! Handling of the outcomes of actions.

use std::collections::BTreeSet;
use std::time::Duration;

use pitstop_api::condition::truncate;
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, CgroupReading, MAX_MESSAGE, Order};

use super::{Daemon, MAX_ENDED_HOOKS};
use crate::DEFAULT_GRACE_SECONDS;
use crate::action::{Action, CallFailure, Facts};
use crate::decision::{Decision, decide};
use crate::order::{HookTime, Progress, Step, Task, answer, request_over};
use crate::resize::Present;

/// Wait before the daemon asks again about a container that is created but not started.
const CREATED_PATIENCE: Duration = Duration::from_secs(1);

impl Daemon {
    /// Takes the runtime's answer about a container.
    pub(super) fn inspected(&mut self, now: Mono, id: &str, result: Result<Option<Facts>, CallFailure>) {
        let order = self.order(id).cloned();
        let stored = self.stored(id).cloned();
        let closed = self.closed(id);
        let Some(progress) = self.orders.get_mut(id) else { return };
        let Some(order) = order else {
            // Withdrawn meanwhile.
            self.orders.remove(id);
            return;
        };
        progress.step = Step::Ask;
        if !progress.is_of(&order) {
            return;
        }
        let Ok(facts) = result else {
            progress.backoff.failed(now);
            progress.ask_at = progress.backoff.waits_until(now);
            return;
        };
        if progress.stops == 0 {
            progress.backoff.succeeded();
        }
        progress.ask_at = None;
        let acknowledged =
            stored.filter(|a| a.state == AnswerState::Acknowledged && progress.task == Task::Stop);
        match (decide(&order, facts.as_ref(), DEFAULT_GRACE_SECONDS), acknowledged) {
            // The container was there when this or an earlier process acknowledged the order.
            (Decision::Refuse(AnswerReason::NotRunning, _), Some(before)) => {
                let own = before.acknowledged_by == self.identity.instance;
                progress.step = Step::Over(progress.final_answer(before, own));
            }
            (Decision::Refuse(reason, message), _) => {
                progress.step = Step::Over(answer(id, AnswerState::Refused, Some(reason), message));
            }
            (Decision::Read, _) => progress.step = Step::Read,
            (Decision::Resize { runs }, _) => progress.allow_resize(&order, runs),
            (Decision::Stop { .. }, _) if closed => progress.step = request_over(id),
            (Decision::Wait, _) => progress.ask_at = Some(now.after(CREATED_PATIENCE)),
            (Decision::Stop { grace_seconds, hook }, _) => progress.allow_stop(grace_seconds, hook),
        }
    }

    /// A hook ended. An open order continues as its acknowledgement allows. If the order was withdrawn or closed
    /// meanwhile, the stop still follows: it began with the hook, and the container was told to shut down. But if this
    /// process learns of the end after the hook's time limit, it was paused, and asks the book first.
    pub(super) fn hook_done(&mut self, now: Mono, id: &str, result: Result<(), String>) -> Option<Action> {
        let open: BTreeSet<String> = self.open_orders().iter().map(|o| o.id.clone()).collect();
        let named = self.order(id).cloned();
        let acknowledged = self.stored(id).is_some_and(|a| self.identity.acknowledged(a));
        let finishes = self.closed(id) && acknowledged;
        let progress = self.orders.get_mut(id).filter(|p| matches!(p.step, Step::Hooking))?;
        let failure = result.err();
        progress.hook_ended(failure.as_deref());
        progress.step = Step::Ready;
        let in_time = matches!(progress.hook_time, HookTime::Until(until) if now <= until);
        progress.hook_time = if in_time { HookTime::Kept } else { HookTime::Missed };
        let listed = named.is_some_and(|order| progress.is_of(&order));
        if !listed && !in_time {
            return None;
        }
        if !listed || (finishes && in_time) {
            return progress.act(id, now, &mut self.sent);
        }
        if !in_time {
            // A proof from before the pause says nothing about the present.
            self.proved_at = None;
        }
        if self.ended_hooks.len() >= MAX_ENDED_HOOKS {
            self.ended_hooks.retain(|id, _| open.contains(id));
        }
        self.ended_hooks.insert(id.to_owned(), failure);
        None
    }

    pub(super) fn stopped(&mut self, now: Mono, id: &str, result: Result<(), CallFailure>) {
        let stored = self.stored(id).cloned();
        let open = self.order(id).is_some();
        let Some(progress) = self.orders.get_mut(id) else { return };
        if !open {
            self.orders.remove(id);
            return;
        }
        // The daemon asks again: what counts is whether the container is gone.
        progress.step = Step::Ask;
        match result {
            Ok(()) if progress.stops <= 1 => progress.ask_at = None,
            Err(failure) if !failure.retry => {
                if let Some(before) = stored {
                    progress.step = Step::Over(failed(before, &failure.message));
                }
            }
            Ok(()) | Err(_) => {
                progress.backoff.failed(now);
                progress.ask_at = progress.backoff.waits_until(now);
            }
        }
    }

    pub(super) fn cgroups_read(
        &mut self,
        now: Mono,
        id: &str,
        result: Result<Box<CgroupReading>, CallFailure>,
    ) {
        if let Some((_, progress)) = self.unchanged_order(id, |step| matches!(step, Step::Reading)) {
            progress.cgroups_read(id, now, result);
        }
    }

    pub(super) fn resources_read(&mut self, now: Mono, id: &str, result: Result<Box<Present>, CallFailure>) {
        if let Some((order, progress)) = self.unchanged_order(id, |step| matches!(step, Step::Looking))
            && let Some(resize) = &order.action.resize
        {
            progress.resources_read(id, resize, now, result);
        }
    }

    pub(super) fn resized(&mut self, now: Mono, id: &str, result: Result<(), CallFailure>) {
        let stored = self.stored(id).cloned();
        if let Some((_, progress)) = self.unchanged_order(id, |step| matches!(step, Step::Resizing)) {
            progress.resized(id, stored.as_ref(), now, result);
        }
    }

    /// The order whose action has ended, if it is unchanged. An order that was withdrawn meanwhile is forgotten.
    fn unchanged_order(&mut self, id: &str, awaited: fn(&Step) -> bool) -> Option<(Order, &mut Progress)> {
        self.orders.get(id).filter(|progress| awaited(&progress.step))?;
        let Some(order) = self.order(id).cloned() else {
            self.orders.remove(id);
            return None;
        };
        let progress = self.orders.get_mut(id)?;
        if !progress.is_of(&order) {
            progress.step = Step::Ask;
            return None;
        }
        Some((order, progress))
    }
}

fn failed(before: Answer, message: &str) -> Answer {
    Answer {
        state: AnswerState::Failed,
        reason: Some(AnswerReason::StopFailed),
        message: truncate(message, MAX_MESSAGE),
        ..before
    }
}
