//! How far one order is, in this process.

mod resizing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::MAX_ORDERS;
use pitstop_api::condition::truncate;
use pitstop_api::id::ContainerId;
use pitstop_api::logic::backoff::Backoff;
use pitstop_api::logic::time::{Mono, seconds};
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, MAX_MESSAGE, Observed, Order, OrderContainer, OrderPod, Resize,
};

use crate::MIN_GRACE_SECONDS;
use crate::action::{Action, CallFailure};
use crate::hook::Hook;
use crate::resize::Present;
use crate::verdict::well_formed;
use resizing::Resizing;

/// Stops without effect after which the daemon says so. It goes on: the controller withdraws the order in time.
pub(crate) const TOLD_STOPS: u32 = 3;

/// How long after its time the end of a hook may be told: the executor ends a hook at its limit.
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
    /// The cgroups may be read: nothing is changed by it, so no acknowledgement is needed.
    Read,
    /// The cgroups are being read.
    Reading,
    /// What is to be changed may be looked at.
    Look,
    /// It is being looked at.
    Looking,
    /// It may be changed, once the acknowledgement is stored.
    Fit {
        /// What was seen.
        present: Box<Present>,
        /// When.
        at: Mono,
    },
    /// It is being changed.
    Resizing,
    /// Nothing is left to do; the answer.
    Over(Answer),
}

/// What an order asks for, as it was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Nothing that this daemon knows.
    #[default]
    Nothing,
    /// A stop.
    Stop,
    /// A look at the cgroups.
    Read,
    /// Other resources.
    Resize(Box<Resize>),
}

impl Asks {
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

/// Where the container's preStop hook stands.
#[derive(Clone, Debug, Default)]
pub(crate) enum HookStep {
    /// There is none, or nobody has looked yet.
    #[default]
    None,
    /// It must run before the stop.
    Waits(Hook),
    /// It ended, in this process or in one before it; what went wrong.
    Ended(Option<String>),
}

/// Whether this process was there while the hook ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HookTime {
    /// It ran none, or the stop that follows one has begun.
    #[default]
    None,
    /// It is told of the end by then, if it does not stand still.
    Until(Mono),
    /// The hook has ended by then, and the stop follows: it began with the hook.
    Kept,
    /// It was told later than that: it stood still.
    Missed,
}

/// How the order stands with its book.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It stands in the book.
    #[default]
    Stands,
    /// It is its turn, and nothing begins before a write proves that it still stands.
    AsksBook,
    /// The book that it stood in is gone.
    Outlived,
}

/// How many sent stops are remembered: four times what a book can hold.
const MAX_SENT: usize = 4 * MAX_ORDERS;

/// The stops that this process was about to send, by their orders' IDs: the container, and when its grace began to count, in seconds
/// since the node's boot. The oldest are forgotten beyond [`MAX_SENT`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent(BTreeMap<String, (ContainerId, i64)>);

impl Sent {
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

    /// When the grace of the order's container began to count, if a stop was about to be sent to it for that order.
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
    /// What is being done.
    pub(crate) step: Step,
    /// The Pod that the order names.
    pub(crate) pod: OrderPod,
    /// The container that it names.
    pub(crate) container: OrderContainer,
    /// Its ID; absent where the order makes no sense, of which nothing begins then.
    pub(crate) target: Option<ContainerId>,
    /// What is to be done.
    pub(crate) asks: Asks,
    /// Whether it still stands.
    pub(crate) standing: Standing,
    /// The hook.
    pub(crate) hook: HookStep,
    /// Whether this process was there while it ran.
    pub(crate) hook_time: HookTime,
    /// A stop was sent by this process.
    pub(crate) stops: u32,
    /// What to say of stops that had no effect, once there were [`TOLD_STOPS`].
    pub(crate) retried: Option<String>,
    /// Seconds of grace in all; known once the runtime was asked.
    pub(crate) grace_seconds: i64,
    /// When the grace began to count, in seconds since the node's boot; known once this process acts.
    pub(crate) grace_since: i64,
    /// What is known of a resize.
    pub(crate) resizing: Resizing,
    /// The runtime was asked about the container at least once.
    pub(crate) begun: bool,
    /// The cgroups could not be read; whether because the container has ended, the runtime was to tell.
    pub(crate) unreadable: bool,
    /// Waits between tries.
    pub(crate) backoff: Backoff,
    /// When to ask again.
    pub(crate) ask_at: Option<Mono>,
}

impl Progress {
    /// Nothing done yet about the order.
    pub(crate) fn new(order: &Order, target: Option<ContainerId>, step: Step, hook: HookStep) -> Self {
        let (pod, container) = (order.pod.clone(), order.container.clone());
        Self { step, pod, container, target, asks: Asks::of(order), hook, ..Self::default() }
    }

    /// The order names what it named when it was first seen. An order never changes, so another one of its ID is none
    /// that may be carried out: the container that is known to be the Pod's would not be the one that is named. What was
    /// done for another book counts for none of this one.
    pub(crate) fn is_of(&self, order: &Order) -> bool {
        self.standing != Standing::Outlived
            && self.pod == order.pod
            && self.container == order.container
            && self.asks == Asks::of(order)
    }

    /// Heeds the stored answer, which may be another daemon's on this node: a final one stands. What was found ended
    /// before the acknowledgement was seen is asked about again, since a stop may have ended it meanwhile.
    /// An order that makes no sense is never asked about.
    pub(crate) fn heed(&mut self, order: &Order, stored: &Answer) {
        let acknowledged = stored.state == AnswerState::Acknowledged;
        let asked = || self.asks == Asks::Stop && well_formed(order).is_ok();
        match &self.step {
            Step::Over(own) if acknowledged && own.reason == Some(AnswerReason::NotRunning) && asked() => {
                self.step = Step::Ask;
            }
            Step::Ask | Step::Ready | Step::Read | Step::Look | Step::Fit { .. } | Step::Over(_)
                if !acknowledged =>
            {
                self.step = Step::Over(stored.clone());
            }
            _ => {}
        }
    }

    /// Nothing is under way in the runtime.
    pub(crate) fn idle(&self) -> bool {
        !matches!(
            self.step,
            Step::Asking | Step::Hooking | Step::Stopping | Step::Reading | Step::Looking | Step::Resizing
        )
    }

    /// It waits for something that may take for ever, so later orders of its Pod go.
    pub(crate) fn stands_back(&self) -> bool {
        self.resizing.stalled.is_some()
    }

    /// It stands back, and its time has not come, or an order of its Pod is under way (`taken`: UIDs of such Pods). What
    /// is under way of itself goes on.
    pub(crate) fn waits_behind(&mut self, now: Mono, taken: &BTreeSet<String>) -> bool {
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

    /// What went wrong with the hook.
    pub(crate) fn hook_failure(&self) -> Option<&str> {
        match &self.hook {
            HookStep::Ended(failure) => failure.as_deref(),
            HookStep::None | HookStep::Waits(_) => None,
        }
    }

    /// What to say of an order that is being carried out.
    pub(crate) fn trouble(&self) -> Option<(AnswerReason, &str)> {
        // The controller must know of stops without effect to withdraw the order; a hook that failed was told before.
        let retried = self.retried.as_deref().map(|text| (AnswerReason::StopRetried, text));
        let stalled = self.resizing.stalled.as_ref().map(|(reason, text)| (*reason, text.as_str()));
        retried.or(stalled).or_else(|| Some((AnswerReason::PreStopHookFailed, self.hook_failure()?)))
    }

    /// A hook ended.
    pub(crate) fn hook_ended(&mut self, failure: Option<&str>) {
        self.hook = hook_ended(failure);
    }

    /// The container has got its signal, or is about to: what is left of the grace is the container's alone. Before that
    /// nobody has told it to end, or its hook was cut and begins anew, and so does the grace. What ended by the record of
    /// the node was followed by the stop, but in a process that stood still.
    pub(crate) fn signalled(&self) -> bool {
        let stood_still = matches!(self.hook_time, HookTime::Until(_) | HookTime::Missed);
        self.stops > 0 || (matches!(self.hook, HookStep::Ended(_)) && !stood_still)
    }

    /// Something is to begin that does not follow at once from what this process has begun: the book must have been proved
    /// a short while ago.
    pub(crate) fn must_ask(&self) -> bool {
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
    pub(crate) fn may_stop(&mut self, grace_seconds: i64, hook: Option<Hook>) {
        self.grace_seconds = grace_seconds;
        if self.stops >= TOLD_STOPS {
            let text = || format!("the container still runs after {TOLD_STOPS} stops, and is stopped again");
            self.retried.get_or_insert_with(text);
        }
        if !matches!(self.hook, HookStep::Ended(_)) {
            self.hook = hook.map_or(HookStep::None, HookStep::Waits);
        }
        self.step = Step::Ready;
    }

    /// The answer to an acknowledged stop whose container has ended; `own`: this process acknowledged it.
    pub(crate) fn ended(&self, acknowledged: Answer, own: bool) -> Answer {
        let (reason, message) = match self.hook_failure() {
            _ if own && self.stops == 0 => (Some(AnswerReason::EndedByItself), String::new()),
            Some(failure) => (Some(AnswerReason::PreStopHookFailed), failure.to_owned()),
            None => (None, String::new()),
        };
        Answer { state: AnswerState::Done, reason, message, ..acknowledged }
    }

    /// The hook, if it still must run, else the stop; with the grace that is left.
    pub(crate) fn act(&mut self, order_id: &str, now: Mono, sent: &mut Sent) -> Option<Action> {
        let elapsed = uptime_seconds(now).saturating_sub(self.grace_since).max(0);
        let left = self.grace_seconds.saturating_sub(elapsed);
        let (order_id, container_id) = (order_id.to_owned(), self.target.clone()?);
        match std::mem::take(&mut self.hook) {
            HookStep::Waits(hook) if left > 0 => {
                self.step = Step::Hooking;
                self.hook_time = HookTime::Until(now.after(seconds(left)).after(HOOK_MARGIN));
                return Some(Action::RunHook { order_id, container_id, hook, limit_seconds: left });
            }
            // A process before this one used up the grace, and was cut before the hook ended.
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

    /// The cgroups were read, or not. They go with the container, so the first time that they cannot be read the
    /// runtime is asked whether it has ended.
    pub(crate) fn was_read(&mut self, order_id: &str, now: Mono, result: Result<Box<Observed>, CallFailure>) {
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

/// A hook that ended; `failure` may come from outside.
pub(crate) fn hook_ended(failure: Option<&str>) -> HookStep {
    HookStep::Ended(failure.map(|text| truncate(text, MAX_MESSAGE)))
}

/// Whole seconds since the node's boot.
pub(crate) fn uptime_seconds(now: Mono) -> i64 {
    i64::try_from(now.0 / 1000).unwrap_or(i64::MAX)
}

/// The answer to an order whose ID was another order's.
pub(crate) fn reused(order_id: &str) -> Answer {
    let text =
        "an order never changes, and this one has the ID of another: withdraw it and place one with a new ID";
    answer(order_id, AnswerState::Refused, Some(AnswerReason::InvalidOrder), text.to_owned())
}

/// The answer to an order of which nothing may begin any more, while its container runs.
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
