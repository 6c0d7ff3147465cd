//! Progress of one order in this process.

mod resizing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::MAX_ORDERS;
use pitstop_api::condition::truncate;
use pitstop_api::id::ContainerId;
use pitstop_api::logic::backoff::Backoff;
use pitstop_api::logic::time::{Mono, seconds};
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, CgroupReading, MAX_MESSAGE, Order, OrderContainer, OrderPod,
    ResizeOrder,
};

use crate::MIN_GRACE_SECONDS;
use crate::action::{Action, CallFailure};
use crate::decision::well_formed;
use crate::hook::Hook;
use crate::resize::Present;
use resizing::Resizing;

/// Stops without effect after which the daemon reports them. It goes on: the controller withdraws the order in time.
pub(crate) const REPORT_STOPS: u32 = 3;

/// How long after a hook's limit its end may be reported: the executor ends a hook at its limit.
const HOOK_MARGIN: Duration = Duration::from_secs(5);

/// What this process does about an order.
#[derive(Clone, Debug, Default)]
pub(crate) enum Step {
    /// The runtime must be asked about the container.
    #[default]
    Ask,
    /// The runtime is being asked.
    Asking,
    /// The hook may run, or the container be stopped, once the acknowledgement is stored.
    Ready,
    /// The container's hook runs.
    Hooking,
    /// The runtime is stopping the container.
    Stopping,
    /// The cgroups may be read. That changes nothing, so it needs no acknowledgement.
    Read,
    /// The cgroups are being read.
    Reading,
    /// The resources to change may be read.
    Look,
    /// They are being read.
    Looking,
    /// They may be changed, once the acknowledgement is stored.
    Resize {
        /// The resources found.
        present: Box<Present>,
        /// When they were read.
        at: Mono,
    },
    /// They are being changed.
    Resizing,
    /// The order is over; its answer.
    Over(Answer),
}

/// What an order asks for, as first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Task {
    /// Nothing that this daemon knows.
    #[default]
    Nothing,
    /// A stop.
    Stop,
    /// The values of the cgroups.
    Read,
    /// Other resources.
    Resize(Box<ResizeOrder>),
}

impl Task {
    fn of(order: &Order) -> Self {
        let action = &order.action;
        match (&action.recreate, &action.verify, &action.resize) {
            (Some(_), None, None) => Self::Stop,
            (None, Some(_), None) => Self::Read,
            (None, None, Some(resize)) => Self::Resize(Box::new(resize.clone())),
            _ => Self::Nothing,
        }
    }
}

/// State of the container's preStop hook.
#[derive(Clone, Debug, Default)]
pub(crate) enum HookStep {
    /// None, or not known yet.
    #[default]
    None,
    /// It must run before the stop.
    Waits(Hook),
    /// It ended, in this or an earlier process; the failure, or `None`.
    Ended(Option<String>),
}

/// Whether this process was paused while the hook ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HookTime {
    /// It runs no hook, or the stop after the hook has begun.
    #[default]
    None,
    /// Unless the process is paused, it learns of the hook's end by then.
    Until(Mono),
    /// The hook ended in time. The stop, which began with the hook, follows.
    Kept,
    /// The process learned of the end too late: it was paused.
    Missed,
}

/// Relation of the order to its book.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Membership {
    /// The book has the order.
    #[default]
    Listed,
    /// It has its turn, but a write must first prove that the book still has it.
    Unproved,
    /// Its book is gone.
    Orphaned,
}

/// How many sent stops are remembered: four times the orders of a full book.
const MAX_SENT: usize = 4 * MAX_ORDERS;

/// Stops that this process was about to send, by order ID. Each has the container, and the start of its grace period in
/// seconds since the node's boot. Beyond [`MAX_SENT`], the oldest are forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentStops(BTreeMap<String, (ContainerId, i64)>);

impl SentStops {
    fn note(&mut self, order_id: &str, container_id: &ContainerId, since: i64) {
        if self.0.contains_key(order_id) {
            return;
        }
        if self.0.len() >= MAX_SENT
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, since))| *since).map(|(id, _)| id.clone())
        {
            self.0.remove(&oldest);
        }
        self.0.insert(order_id.to_owned(), (container_id.clone(), since));
    }

    /// Start of the grace period, in seconds since the node's boot, if this process was about to send that order's
    /// stop.
    pub(crate) fn since(&self, order: &Order) -> Option<i64> {
        self.0
            .get(&order.id)
            .filter(|(container, _)| order.container.id == *container)
            .map(|(_, since)| *since)
    }
}

/// One order's progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The current step.
    pub(crate) step: Step,
    /// The Pod that the order names.
    pub(crate) pod: OrderPod,
    /// The container that it names.
    pub(crate) container: OrderContainer,
    /// Its ID; `None` for an invalid order, of which nothing begins.
    pub(crate) target: Option<ContainerId>,
    /// What the order asks for.
    pub(crate) task: Task,
    /// Whether the book still has the order.
    pub(crate) membership: Membership,
    /// The hook.
    pub(crate) hook: HookStep,
    /// Whether this process was paused while it ran.
    pub(crate) hook_time: HookTime,
    /// Number of stops that this process sent.
    pub(crate) stops: u32,
    /// Message about stops without effect, once there were [`REPORT_STOPS`].
    pub(crate) retry_message: Option<String>,
    /// Whole grace period in seconds; known once the runtime was asked.
    pub(crate) grace_seconds: i64,
    /// Start of the grace period, in seconds since the node's boot; known once this process acts.
    pub(crate) grace_since: i64,
    /// State of a resize.
    pub(crate) resizing: Resizing,
    /// Whether the runtime was asked about the container at least once.
    pub(crate) begun: bool,
    /// Whether a read of the cgroups failed. Then the runtime says whether the container has ended.
    pub(crate) unreadable: bool,
    /// Waits between tries.
    pub(crate) backoff: Backoff,
    /// When to ask again.
    pub(crate) ask_at: Option<Mono>,
}

impl Progress {
    /// A new order.
    pub(crate) fn new(order: &Order, target: Option<ContainerId>, step: Step, hook: HookStep) -> Self {
        let (pod, container) = (order.pod.clone(), order.container.clone());
        Self { step, pod, container, target, task: Task::of(order), hook, ..Self::default() }
    }

    /// Whether the order is the one first seen. An order never changes, so another order with its ID must not be
    /// carried out: the checked container would not be the named one. Work for another book does not count.
    pub(crate) fn is_of(&self, order: &Order) -> bool {
        self.membership != Membership::Orphaned
            && self.pod == order.pod
            && self.container == order.container
            && self.task == Task::of(order)
    }

    /// Applies the stored answer, which may be from another daemon on this node. A final answer stands. If the
    /// container was found ended before the acknowledgement was seen, the daemon asks again: a stop may have ended it.
    /// It never asks about an invalid order.
    pub(crate) fn apply(&mut self, order: &Order, stored: &Answer) {
        let acknowledged = stored.state == AnswerState::Acknowledged;
        let asked = || self.task == Task::Stop && well_formed(order).is_ok();
        match &self.step {
            Step::Over(own) if acknowledged && own.reason == Some(AnswerReason::NotRunning) && asked() => {
                self.step = Step::Ask;
            }
            Step::Ask | Step::Ready | Step::Read | Step::Look | Step::Resize { .. } | Step::Over(_)
                if !acknowledged =>
            {
                self.step = Step::Over(stored.clone());
            }
            _ => {}
        }
    }

    /// Whether no action is under way.
    pub(crate) fn idle(&self) -> bool {
        !matches!(
            self.step,
            Step::Asking | Step::Hooking | Step::Stopping | Step::Reading | Step::Looking | Step::Resizing
        )
    }

    /// Whether it waits for something that may never come, so that later orders of its Pod pass.
    pub(crate) fn yields(&self) -> bool {
        self.resizing.stalled.is_some()
    }

    /// Whether it yields and must wait. Its time has not come, or its own action or another order of its Pod is
    /// under way (`taken`: UIDs of such Pods).
    pub(crate) fn waits_behind(&mut self, now: Mono, taken: &BTreeSet<String>) -> bool {
        if !self.yields() {
            return false;
        }
        if !self.idle() || self.ask_at.is_some_and(|at| at > now) {
            return true;
        }
        // No wake-up is needed: it continues when the other order has ended.
        self.ask_at = None;
        taken.contains(&self.pod.uid)
    }

    /// Why the hook failed.
    pub(crate) fn hook_failure(&self) -> Option<&str> {
        match &self.hook {
            HookStep::Ended(failure) => failure.as_deref(),
            HookStep::None | HookStep::Waits(_) => None,
        }
    }

    /// Reason and message for an order under way.
    pub(crate) fn trouble(&self) -> Option<(AnswerReason, &str)> {
        // The controller must know of stops without effect, to withdraw the order. A failed hook was reported before.
        let retried = self.retry_message.as_deref().map(|text| (AnswerReason::StopRetried, text));
        let stalled = self.resizing.stalled.as_ref().map(|(reason, text)| (*reason, text.as_str()));
        retried.or(stalled).or_else(|| Some((AnswerReason::PreStopHookFailed, self.hook_failure()?)))
    }

    /// A hook ended.
    pub(crate) fn hook_ended(&mut self, failure: Option<&str>) {
        self.hook = hook_ended(failure);
    }

    /// Whether the container has its stop signal, or is about to get it: the rest of the grace period is the
    /// container's alone. Before that, the grace period begins again: the container was not told to end, or its hook
    /// was cut and runs again. A hook that ended by the node's record was followed by the stop, except in a paused
    /// process.
    pub(crate) fn signalled(&self) -> bool {
        let paused = matches!(self.hook_time, HookTime::Until(_) | HookTime::Missed);
        self.stops > 0 || (matches!(self.hook, HookStep::Ended(_)) && !paused)
    }

    /// Whether the book must have been proved recently: what begins now does not follow at once from what this process
    /// began.
    pub(crate) fn needs_proof(&self) -> bool {
        matches!(self.step, Step::Ready) && self.hook_time != HookTime::Kept
    }

    /// Begins to ask the runtime about the container.
    pub(crate) fn ask(&mut self, order_id: &str) -> Option<Action> {
        let container_id = self.target.clone()?;
        self.ask_at = None;
        self.begun = true;
        self.step = Step::Asking;
        Some(Action::Inspect { order_id: order_id.to_owned(), container_id })
    }

    /// The container runs and may be stopped.
    pub(crate) fn allow_stop(&mut self, grace_seconds: i64, hook: Option<Hook>) {
        self.grace_seconds = grace_seconds;
        if self.stops >= REPORT_STOPS {
            let text = || format!("the container still runs after {REPORT_STOPS} stops; the daemon retries");
            self.retry_message.get_or_insert_with(text);
        }
        if !matches!(self.hook, HookStep::Ended(_)) {
            self.hook = hook.map_or(HookStep::None, HookStep::Waits);
        }
        self.step = Step::Ready;
    }

    /// The answer to an acknowledged stop whose container has ended; `own`: this process acknowledged it.
    pub(crate) fn final_answer(&self, acknowledged: Answer, own: bool) -> Answer {
        let (reason, message) = match self.hook_failure() {
            _ if own && self.stops == 0 => (Some(AnswerReason::EndedByItself), String::new()),
            Some(failure) => (Some(AnswerReason::PreStopHookFailed), failure.to_owned()),
            None => (None, String::new()),
        };
        Answer { state: AnswerState::Done, reason, message, ..acknowledged }
    }

    /// The hook if it must still run, otherwise the stop, with the rest of the grace period.
    pub(crate) fn act(&mut self, order_id: &str, now: Mono, sent: &mut SentStops) -> Option<Action> {
        let elapsed = uptime_seconds(now).saturating_sub(self.grace_since).max(0);
        let left = self.grace_seconds.saturating_sub(elapsed);
        let (order_id, container_id) = (order_id.to_owned(), self.target.clone()?);
        match std::mem::take(&mut self.hook) {
            HookStep::Waits(hook) if left > 0 => {
                self.step = Step::Hooking;
                self.hook_time = HookTime::Until(now.after(seconds(left)).after(HOOK_MARGIN));
                return Some(Action::RunHook { order_id, container_id, hook, limit_seconds: left });
            }
            // An earlier process used up the grace period, and was cut before the hook ended.
            HookStep::Waits(_) => self.hook_ended(Some("no grace was left to run the preStop hook again")),
            other => self.hook = other,
        }
        self.stops = self.stops.saturating_add(1);
        self.hook_time = HookTime::None;
        self.step = Step::Stopping;
        sent.note(&order_id, &container_id, self.grace_since);
        Some(Action::Stop { order_id, container_id, grace_seconds: left.max(MIN_GRACE_SECONDS) })
    }

    /// Begins to read the cgroups.
    pub(crate) fn read(&mut self, order_id: &str) -> Option<Action> {
        let (container_id, pod_uid) = (self.target.clone()?, self.pod.uid.clone());
        self.ask_at = None;
        self.step = Step::Reading;
        Some(Action::ReadCgroups { order_id: order_id.to_owned(), container_id, pod_uid })
    }

    /// Takes the result of the read. Cgroups vanish with the container, so after the first failure the daemon asks the
    /// runtime whether it has ended.
    pub(crate) fn cgroups_read(
        &mut self,
        order_id: &str,
        now: Mono,
        result: Result<Box<CgroupReading>, CallFailure>,
    ) {
        self.step = match result {
            Ok(observed) => {
                let done = answer(order_id, AnswerState::Done, None, String::new());
                Step::Over(Answer { observed: Some(observed), ..done })
            }
            Err(failure) if failure.retry => {
                self.backoff.failed(now);
                self.ask_at = self.backoff.waits_until(now);
                Step::Read
            }
            Err(_) if !self.unreadable => {
                self.unreadable = true;
                Step::Ask
            }
            Err(failure) => {
                let message = truncate(&failure.message, MAX_MESSAGE);
                let reason = Some(AnswerReason::CgroupUnreadable);
                Step::Over(answer(order_id, AnswerState::Failed, reason, message))
            }
        };
    }
}

/// A hook that ended; truncates `failure`, which may come from outside.
pub(crate) fn hook_ended(failure: Option<&str>) -> HookStep {
    HookStep::Ended(failure.map(|text| truncate(text, MAX_MESSAGE)))
}

/// Whole seconds since the node's boot.
pub(crate) fn uptime_seconds(now: Mono) -> i64 {
    i64::try_from(now.0 / 1000).unwrap_or(i64::MAX)
}

/// The answer to an order with the ID of another.
pub(crate) fn reused_id(order_id: &str) -> Answer {
    let text = "an earlier order has the same ID: withdraw this order and place it again with a new ID";
    answer(order_id, AnswerState::Refused, Some(AnswerReason::InvalidOrder), text.to_owned())
}

/// The answer to a closed order whose container still runs.
pub(crate) fn request_over(order_id: &str) -> Step {
    let text = "the request has ended: the container is not stopped";
    Step::Over(answer(order_id, AnswerState::Refused, Some(AnswerReason::RequestOver), text.to_owned()))
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
        observed: None,
        image: None,
    }
}
