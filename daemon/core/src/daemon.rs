//! The order book of the own node, and what follows from it.
//!
//! An order is carried out in steps: ask the runtime, acknowledge with a conditional write, run the container's
//! preStop hook, stop, ask again. The acknowledgement counts only when the book as stored names this very process: a
//! daemon that started anew acknowledges again, so no stop ever rests on a stale view. Orders of one Pod go one after
//! another.
//!
//! An order to read cgroups changes nothing, so it is answered without an acknowledgement. What an order to resize does is
//! in [`resize`].
//!
//! The hook is a part of the stop, as with the kubelet: its time counts against the grace, its failure holds nothing
//! up, and an order that is withdrawn while it runs is carried out to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::condition::truncate;
use pitstop_api::logic::backoff::Backoff;
use pitstop_api::logic::machine::{Machine, Now};
use pitstop_api::logic::time::{Mono, earliest};
use pitstop_api::logic::tracked::Tracked;
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, Boot, Held, MAX_MESSAGE, NodeWorkStatus, Observed, Order, RuntimeInfo,
};

use crate::DEFAULT_GRACE_SECONDS;
use crate::action::{Action, Book, CallFailure, Event, Facts, Outcome};
use crate::order::{
    Asks, HookStep, HookTime, Progress, Sent, Standing, Step, TOLD_STOPS, answer, request_over,
    uptime_seconds,
};
use crate::resize::{self, Owed};
use crate::verdict::{Verdict, verdict};

/// How long to wait before a container that was made but not started is asked about again.
const CREATED_PATIENCE: Duration = Duration::from_secs(1);
/// How long ago the write may have begun that proves the book when a hook or a stop begins. Longer than such a write may
/// take (30 s, `kit/src/client.rs`), so that a slow API server does not hold up every stop for ever.
const FRESH: Duration = Duration::from_secs(40);
/// How long the watch may take to show what a conflict was about.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(5);

/// Hooks that ended, by their orders' IDs, with what went wrong. More of them than [`MAX_ENDED_HOOKS`] are never kept.
pub type EndedHooks = BTreeMap<String, Option<String>>;

/// How many ended hooks are remembered: four times what a book can hold.
pub const MAX_ENDED_HOOKS: usize = 256;

/// Who this daemon is.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Unique to this process.
    pub instance: String,
    /// The node's boot, `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// Everything known. Times are milliseconds since the node's boot.
#[derive(Clone, Debug)]
pub struct Daemon {
    pub(crate) identity: Identity,
    /// Orders to resize are carried out.
    pub(crate) resizes: bool,
    runtime: Option<RuntimeInfo>,
    pub(crate) book: Option<Tracked<Book>>,
    pub(crate) orders: BTreeMap<String, Progress>,
    pub(crate) ended_hooks: EndedHooks,
    /// Stops that this process sent. An order that is withdrawn and placed again names a container that has its signal, so
    /// its grace goes on.
    pub(crate) sent: Sent,
    /// Pods that are to get back what they had, by their UIDs.
    pub(crate) owed: BTreeMap<String, Owed>,
    backoff: Backoff,
    /// When to try a write again: the back-off is over, or the watch has had its time to explain a conflict.
    write_at: Option<Mono>,
    /// When the write under way began.
    write_began: Option<Mono>,
    /// When the last write began that was stored: then the book was as it is known, or is shown anew.
    proved_at: Option<Mono>,
}

impl Daemon {
    /// Nothing known yet.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            resizes: false,
            runtime: None,
            book: None,
            orders: BTreeMap::new(),
            ended_hooks: EndedHooks::new(),
            sent: Sent::default(),
            owed: BTreeMap::new(),
            backoff: Backoff::default(),
            write_at: None,
            write_began: None,
            proved_at: None,
        }
    }

    /// Hooks that the processes before this one brought to an end; they are not run again.
    #[must_use]
    pub fn with_ended_hooks(mut self, ended: EndedHooks) -> Self {
        self.ended_hooks = ended;
        self
    }

    /// Whether it may change the resources of containers and Pods; without this it may not.
    #[must_use]
    pub fn with_resizes(mut self, allowed: bool) -> Self {
        self.resizes = allowed;
        self
    }

    /// Takes in one event and gives back what to do. `now` counts from the node's boot.
    pub fn step(&mut self, now: Mono, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Book(watch) => self.book_changed(watch),
            Event::Runtime(runtime) => self.runtime_is_back(runtime),
            Event::Inspected(id, result) => self.inspected(now, &id, result),
            Event::HookDone(id, result) => actions.extend(self.hook_done(now, &id, result)),
            Event::Stopped(id, result) => self.stopped(now, &id, result),
            Event::CgroupsRead(id, result) => self.cgroups_read(now, &id, result),
            Event::ResourcesRead(id, result) => self.resources_read(now, &id, result),
            Event::Resized(id, result) => self.resized(now, &id, result),
            Event::WrittenBack(uid, result) => self.written_back(now, &uid, &result),
            Event::StatusWritten(outcome) => self.written(now, outcome),
            Event::Tick => {}
        }
        if self.write_at.take_if(|at| *at <= now).is_some()
            && let Some(book) = &mut self.book
        {
            book.retry();
        }
        actions.extend(self.next_steps(now));
        actions.extend(self.give_back(now));
        actions.extend(self.write(now));
        actions
    }

    /// When to call [`Daemon::step`] with a tick though nothing happened.
    pub fn wake_at(&self) -> Option<Mono> {
        let asks = self.orders.values().filter_map(|p| p.ask_at).min();
        let owed = self.owed.values().filter(|owed| !owed.under_way).filter_map(|owed| owed.at).min();
        earliest(earliest(asks, owed), self.write_at)
    }

    /// The orders in the book.
    pub fn open_orders(&self) -> &[Order] {
        self.book.as_ref().map_or(&[], |b| &b.get().orders)
    }

    /// The runtime answers, for the first time or again: what waited for it is asked at once.
    fn runtime_is_back(&mut self, runtime: RuntimeInfo) {
        self.runtime = Some(runtime);
        for progress in self.orders.values_mut() {
            progress.backoff.succeeded();
            progress.ask_at = None;
        }
        for owed in self.owed.values_mut() {
            owed.at = None;
        }
    }

    /// What the book says was proved a short while ago by a write of this process. A process that stood still, or whose
    /// writes fail, does not know whether its orders still stand.
    pub(crate) fn proved(&self, now: Mono) -> bool {
        self.proved_at.is_some_and(|at| now < at.after(FRESH))
    }

    fn written(&mut self, now: Mono, outcome: Outcome) {
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

    fn inspected(&mut self, now: Mono, id: &str, result: Result<Option<Facts>, CallFailure>) {
        let order = self.open_orders().iter().find(|o| o.id == id).cloned();
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
            stored.filter(|a| a.state == AnswerState::Acknowledged && progress.asks == Asks::Stop);
        match (verdict(&order, facts.as_ref(), DEFAULT_GRACE_SECONDS), acknowledged) {
            // It was there when it was acknowledged, by this process or the one before it.
            (Verdict::Refuse(AnswerReason::NotRunning, _), Some(before)) => {
                let by_itself = progress.stops == 0 && before.acknowledged_by == self.identity.instance;
                let (reason, message) = match progress.hook_failure() {
                    _ if by_itself => (Some(AnswerReason::EndedByItself), String::new()),
                    Some(failure) => (Some(AnswerReason::PreStopHookFailed), failure.to_owned()),
                    None => (None, String::new()),
                };
                progress.step = Step::Over(Answer { state: AnswerState::Done, reason, message, ..before });
            }
            (Verdict::Refuse(reason, message), _) => {
                progress.step = Step::Over(answer(id, AnswerState::Refused, Some(reason), message));
            }
            (Verdict::Read, _) => progress.step = Step::Read,
            (Verdict::Resize { runs }, _) => progress.may_resize(&order, runs),
            (Verdict::Stop { .. }, _) if closed => progress.step = request_over(id),
            (Verdict::Wait, _) => progress.ask_at = Some(now.after(CREATED_PATIENCE)),
            (Verdict::Stop { grace_seconds, hook }, _) => {
                progress.grace_seconds = grace_seconds;
                if progress.stops >= TOLD_STOPS {
                    let text =
                        || format!("the container still runs after {TOLD_STOPS} stops, and is stopped again");
                    progress.retried.get_or_insert_with(text);
                }
                if !matches!(progress.hook, HookStep::Ended(_)) {
                    progress.hook = hook.map_or(HookStep::None, HookStep::Waits);
                }
                progress.step = Step::Ready;
            }
        }
    }

    /// A hook ended. An order that is open goes on as its acknowledgement allows; one that was withdrawn meanwhile, or
    /// whose request ended, is stopped all the same, since its stop began with the hook: a container that was told to
    /// shut down must not stay behind. But what is told later than the hook may last is told by a process that stood
    /// still: that one asks the book first.
    fn hook_done(&mut self, now: Mono, id: &str, result: Result<(), String>) -> Option<Action> {
        let open: BTreeSet<String> = self.open_orders().iter().map(|o| o.id.clone()).collect();
        let named = self.open_orders().iter().find(|o| o.id == id).cloned();
        let acknowledged = self.stored(id).is_some_and(|a| self.identity.acknowledged(a));
        let finishes = self.closed(id) && acknowledged;
        let progress = self.orders.get_mut(id).filter(|p| matches!(p.step, Step::Hooking))?;
        let failure = result.err();
        progress.hook_ended(failure.as_deref());
        progress.step = Step::Ready;
        let in_time = matches!(progress.hook_time, HookTime::Until(until) if now <= until);
        progress.hook_time = if in_time { HookTime::Kept } else { HookTime::Missed };
        let stands = named.is_some_and(|order| progress.is_of(&order));
        if !stands && !in_time {
            return None;
        }
        if !stands || (finishes && in_time) {
            return Some(progress.act(id, now, &mut self.sent));
        }
        if !in_time {
            // Whatever was proved before this process stood still says nothing of now.
            self.proved_at = None;
        }
        if self.ended_hooks.len() >= MAX_ENDED_HOOKS {
            self.ended_hooks.retain(|id, _| open.contains(id));
        }
        self.ended_hooks.insert(id.to_owned(), failure);
        None
    }

    fn stopped(&mut self, now: Mono, id: &str, result: Result<(), CallFailure>) {
        let stored = self.stored(id).cloned();
        let open = self.open_orders().iter().any(|o| o.id == id);
        let Some(progress) = self.orders.get_mut(id) else { return };
        if !open {
            self.orders.remove(id);
            return;
        }
        // Whatever the runtime says of the call: what counts is whether the container is gone.
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

    fn cgroups_read(&mut self, now: Mono, id: &str, result: Result<Box<Observed>, CallFailure>) {
        let order = self.open_orders().iter().find(|o| o.id == id).cloned();
        let Some(progress) = self.orders.get_mut(id).filter(|p| matches!(p.step, Step::Reading)) else {
            return;
        };
        match order {
            None => drop(self.orders.remove(id)),
            Some(order) if progress.is_of(&order) => progress.was_read(id, now, result),
            Some(_) => progress.step = Step::Ask,
        }
    }

    /// The book says that the order's request is over.
    fn closed(&self, order_id: &str) -> bool {
        self.book.as_ref().is_some_and(|book| book.get().closed.iter().any(|id| id == order_id))
    }

    pub(crate) fn stored(&self, order_id: &str) -> Option<&Answer> {
        self.book.as_ref()?.get().answer(order_id)
    }

    /// The write that the book needs, if it may happen now.
    fn write(&mut self, now: Mono) -> Option<Action> {
        let book = self.book.as_mut().filter(|b| b.writable())?;
        if self.backoff.waits_until(now).is_some() {
            return None;
        }
        let stored = book.get();
        let mut held = stored.status.held.clone();
        let same_boot = stored.status.boot.as_ref().is_some_and(|b| b.id == self.identity.boot_id);
        let mut urgent = false;
        let mut answers = Vec::new();
        for order in &stored.orders {
            let before = stored.answer(&order.id);
            let mut progress = self.orders.get_mut(&order.id);
            let acknowledged = before.is_some_and(|a| self.identity.acknowledged(a));
            if let Some(Progress { step: step @ Step::Fit { .. }, .. }) = progress.as_deref_mut() {
                record(&mut held, order, step, acknowledged);
            }
            let progress = progress.as_deref();
            let unproved = acknowledged && progress.is_some_and(|p| p.standing == Standing::AsksBook);
            let mut wanted = match progress.map(|p| &p.step) {
                Some(Step::Over(over)) => {
                    let first = before.is_none_or(|a| a.state == AnswerState::Acknowledged);
                    if first && over.state == AnswerState::Done {
                        resize::finish(&mut held, order);
                    }
                    Some(taken_up_as(over.clone(), before))
                }
                Some(step @ (Step::Ready | Step::Fit { .. })) if !acknowledged || unproved => {
                    urgent |= unproved;
                    let counts = same_boot
                        && (!matches!(step, Step::Ready) || progress.is_some_and(Progress::signalled));
                    let uptime = before
                        .and_then(|a| a.acknowledged_uptime_seconds)
                        .filter(|_| counts)
                        .or_else(|| self.sent.since(order).filter(|_| before.is_none()))
                        .unwrap_or_else(|| uptime_seconds(now));
                    Some(Answer {
                        acknowledged_uptime_seconds: Some(uptime),
                        acknowledged_by: self.identity.instance.clone(),
                        ..answer(&order.id, AnswerState::Acknowledged, None, String::new())
                    })
                }
                _ => before.cloned(),
            };
            let acting = wanted.as_mut().filter(|a| a.state == AnswerState::Acknowledged);
            if let (Some(acting), Some((reason, message))) = (acting, progress.and_then(Progress::trouble)) {
                acting.reason = Some(reason);
                message.clone_into(&mut acting.message);
            }
            urgent |= wanted.as_ref() != before && !wanted.as_ref().is_some_and(|a| rides(order, a, before));
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

/// Who took an order up is told with whatever came of it.
fn taken_up_as(over: Answer, before: Option<&Answer>) -> Answer {
    match before.cloned().filter(|_| over.acknowledged_by.is_empty()) {
        None => over,
        Some(Answer { acknowledged_uptime_seconds, acknowledged_by, .. }) => {
            Answer { acknowledged_uptime_seconds, acknowledged_by, ..over }
        }
    }
}

impl Identity {
    /// The answer is an acknowledgement of this very process.
    pub(crate) fn acknowledged(&self, answer: &Answer) -> bool {
        answer.state == AnswerState::Acknowledged && answer.acknowledged_by == self.instance
    }
}

/// A success that the Pod's own status will show need not be told at once; nor what was told before. What cgroups hold
/// or held nobody else shows.
fn rides(order: &Order, answer: &Answer, before: Option<&Answer>) -> bool {
    let told = answer.reason.is_none() || before.is_some_and(|b| b.reason == answer.reason);
    answer.state == AnswerState::Done && told && answer.observed.is_none() && order.action.resize.is_none()
}

/// The acknowledgement of a resize goes with the record of what was there before; where there is no room for that, it is
/// refused.
fn record(held: &mut Vec<Held>, order: &Order, step: &mut Step, acknowledged: bool) {
    let Step::Fit { present, .. } = &*step else { return };
    if acknowledged {
        return;
    }
    if let Err(why) = resize::begin(held, order, present) {
        *step = Step::Over(answer(&order.id, AnswerState::Refused, Some(AnswerReason::TooManyHeld), why));
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

impl Machine for Daemon {
    type Event = Event;
    type Action = Action;

    fn tick() -> Event {
        Event::Tick
    }

    fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        self.step(now.mono, event)
    }

    fn next_wake(&self, _: Mono) -> Option<Mono> {
        self.wake_at()
    }
}
