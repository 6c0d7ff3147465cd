//! How far one order is, in this process.

use pitstop_api::logic::backoff::Backoff;
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState};

/// Stops that had no effect before the daemon gives up.
pub(crate) const MAX_STOPS: u32 = 5;

/// What this process does about an order.
#[derive(Clone, Debug, Default)]
pub(crate) enum Step {
    /// The runtime must be asked about the container.
    #[default]
    Ask,
    /// The runtime is being asked.
    Asking,
    /// The container may be stopped once the acknowledgement is stored.
    Ready,
    /// The runtime is stopping the container.
    Stopping,
    /// Nothing is left to do; the answer.
    Over(Answer),
}

/// One order's progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// What is being done.
    pub(crate) step: Step,
    /// A stop was sent by this process.
    pub(crate) stops: u32,
    /// Seconds of grace in all; known once the runtime was asked.
    pub(crate) grace_seconds: i64,
    /// Waits between tries.
    pub(crate) backoff: Backoff,
    /// When to ask again.
    pub(crate) ask_at: Option<Mono>,
}

impl Progress {
    /// Nothing is under way in the runtime.
    pub(crate) fn idle(&self) -> bool {
        !matches!(self.step, Step::Asking | Step::Stopping)
    }
}

/// An answer without times.
pub(crate) fn answer(
    order_id: &str,
    state: AnswerState,
    reason: Option<AnswerReason>,
    message: String,
) -> Answer {
    Answer {
        order_id: order_id.to_owned(),
        state,
        reason,
        message,
        acknowledged_uptime_seconds: None,
        acknowledged_by: String::new(),
    }
}
