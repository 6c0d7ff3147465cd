//! The steps of an order to resize.

use std::time::Duration;

use pitstop_api::condition::truncate;
use pitstop_api::id::ContainerId;
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, Bounds, CgroupReading, Held, MAX_MESSAGE, Order, ResizeOrder,
};

use super::{Progress, Step, Task, answer};
use crate::action::{Action, CallFailure};
use crate::resize::{Change, Driver, Goal, Present, Seen, Write, describe_write, forgets, in_use, writes};

/// Older values are read again before a write: memory may be in use by now.
const FRESH: Duration = Duration::from_secs(2);
/// Waits while memory is in use: the first and the longest.
const IN_USE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Wait before the kernel is asked again to reclaim memory.
const RECLAIMED: Duration = Duration::from_secs(30);
/// Waits after writes that failed or had no effect.
const FAILED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What this process knows of an order to resize.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resizing {
    /// Whether the container runs. If not, only the Pod is changed.
    pub(crate) runs: bool,
    /// Why it yields to later orders of its Pod.
    pub(crate) stalled: Option<(AnswerReason, String)>,
    /// Number of consecutive waits for that reason.
    stalls: u32,
    /// When this process last made the kernel reclaim memory.
    reclaimed_at: Option<Mono>,
    /// Whether this process has written to the container.
    written: bool,
    /// The last writes of resources.
    writes: Writes,
}

/// State of the writes of resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Writes {
    /// No write has an unknown effect.
    #[default]
    Settled,
    /// They are under way.
    UnderWay,
    /// The written values are not read back yet.
    Unproven,
}

impl Progress {
    /// The check of an order to resize succeeded.
    pub(crate) fn allow_resize(&mut self, order: &Order, runs: bool) {
        let forgets = order.action.resize.as_ref().is_some_and(forgets);
        self.resizing.runs = runs;
        // Nothing changes on the node, so no acknowledgement is needed.
        self.step = if forgets {
            Step::Over(answer(&order.id, AnswerState::Done, None, String::new()))
        } else {
            Step::Look
        };
    }

    /// Begins to read the cgroups.
    pub(crate) fn look(&mut self, order_id: &str, held: &[Held]) -> Option<Action> {
        let container_id = self.target.clone()?;
        self.ask_at = None;
        self.step = Step::Looking;
        let of_it = held.iter().find(|held| held.pod == self.pod);
        Some(Action::ReadResources {
            order_id: order_id.to_owned(),
            container_id,
            pod_uid: self.pod.uid.clone(),
            runs: self.resizing.runs,
            held: of_it.map(|held| held.cgroup.clone()),
        })
    }

    /// Takes the result of the read. Cgroups vanish with the container, so after the first failure the daemon asks the
    /// runtime whether it has ended.
    pub(crate) fn resources_read(
        &mut self,
        order_id: &str,
        resize: &ResizeOrder,
        now: Mono,
        result: Result<Box<Present>, CallFailure>,
    ) {
        self.step = match result {
            Ok(present) if present.container.is_some() || !self.resizing.runs => {
                self.unreadable = false;
                self.backoff.succeeded();
                match refusal(resize, &present) {
                    Some((reason, why)) => {
                        let why = why.to_owned();
                        Step::Over(answer(order_id, AnswerState::Refused, Some(reason), why))
                    }
                    None => Step::Resize { present, at: now },
                }
            }
            Err(failure) if failure.retry => {
                self.backoff.failed(now);
                self.ask_at = self.backoff.waits_until(now);
                Step::Look
            }
            Ok(_) | Err(_) if !self.unreadable => {
                self.unreadable = true;
                Step::Ask
            }
            result => {
                let message = match result {
                    Ok(_) => "the cgroup of the container is gone".to_owned(),
                    Err(failure) => truncate(&failure.message, MAX_MESSAGE),
                };
                let reason = Some(AnswerReason::CgroupUnreadable);
                Step::Over(answer(order_id, AnswerState::Failed, reason, message))
            }
        };
    }

    /// Writes the missing values. The order is acknowledged, and the original resources are recorded.
    pub(crate) fn resize(&mut self, acknowledged: &Answer, held: &[Held], now: Mono) -> Option<Action> {
        let Task::Resize(resize) = self.task.clone() else { return None };
        let resize = resize.as_ref();
        let (present, at) = match std::mem::take(&mut self.step) {
            Step::Resize { present, at } => (present, at),
            other => {
                self.step = other;
                return None;
            }
        };
        let order_id = acknowledged.order_id.clone();
        if now.since(at) > FRESH {
            return self.look(&order_id, held);
        }
        let unproven = std::mem::take(&mut self.resizing.writes) == Writes::Unproven;
        let worth = self.resizing.reclaimed_at.is_none_or(|at| now.since(at) >= RECLAIMED);
        if let Some(bytes) = to_reclaim(resize, &present).filter(|_| worth) {
            self.resizing.reclaimed_at = Some(now);
            let reclaim = Write::Reclaim { cgroup: present.of_container.clone(), bytes };
            return self.write(order_id, present.cgroup, vec![reclaim]);
        }
        if let Some(why) = no_room(resize, &present) {
            self.stall(now, AnswerReason::MemoryInUse, &why, IN_USE);
            return None;
        }
        let writes = plan(resize, &present, self.target.as_ref()?, self.resizing.written);
        let Some(first) = writes.first() else {
            self.step = Step::Over(done(acknowledged, &present));
            return None;
        };
        if unproven {
            // If the container's limits are missing, its weight may be missing too, and look right by chance.
            if writes.iter().any(|write| matches!(write, Write::Container { .. })) {
                self.resizing.written = false;
            }
            let why = format!("the write had no effect: {}", describe_write(first));
            self.stall(now, AnswerReason::ResizeRetried, &why, FAILED);
            return None;
        }
        self.resizing.writes = Writes::UnderWay;
        self.write(order_id, present.cgroup, writes)
    }

    fn write(&mut self, order_id: String, cgroup: String, writes: Vec<Write>) -> Option<Action> {
        let (container_id, pod_uid) = (self.target.clone()?, self.pod.uid.clone());
        self.step = Step::Resizing;
        Some(Action::Resize { order_id, container_id, pod_uid, cgroup, writes })
    }

    /// Takes the result of the writes; the next read shows whether they had an effect.
    pub(crate) fn resized(
        &mut self,
        order_id: &str,
        stored: Option<&Answer>,
        now: Mono,
        result: Result<(), CallFailure>,
    ) {
        let wrote_resources = std::mem::take(&mut self.resizing.writes) == Writes::UnderWay;
        match result {
            Ok(()) => {
                // The next read shows how much was reclaimed.
                if wrote_resources {
                    (self.resizing.written, self.resizing.writes) = (true, Writes::Unproven);
                }
                self.step = Step::Look;
            }
            Err(failure) if failure.retry => {
                self.stall(now, AnswerReason::ResizeRetried, &failure.message, FAILED);
            }
            Err(failure) => {
                self.step = Step::Over(failed(order_id, stored, &failure.message));
            }
        }
    }

    /// The book has the acknowledgement but not the record. A daemon that does not know such records has written the
    /// status since, or the CRD is too old. Nothing could ever restore the original resources.
    pub(crate) fn unrecorded(&mut self, acknowledged: &Answer) {
        let why = "the NodeWork did not store the original resources: its CRD, or another daemon of this node, has \
                   an older version";
        self.step = Step::Over(failed(&acknowledged.order_id, Some(acknowledged), why));
    }

    /// Waits, and lets later orders of the Pod pass. Each reason is reported once: changing numbers would cost a write
    /// each time.
    fn stall(&mut self, now: Mono, reason: AnswerReason, why: &str, (first, most): (Duration, Duration)) {
        if self.resizing.stalled.as_ref().is_none_or(|(before, _)| *before != reason) {
            self.resizing.stalled = Some((reason, truncate(why, MAX_MESSAGE)));
            self.resizing.stalls = 0;
        }
        let times = 1_u32.checked_shl(self.resizing.stalls).unwrap_or(u32::MAX);
        self.resizing.stalls = self.resizing.stalls.saturating_add(1);
        self.ask_at = Some(now.after(first.saturating_mul(times).min(most)));
        self.step = Step::Look;
    }
}

/// Why an order is never carried out.
fn refusal(resize: &ResizeOrder, present: &Present) -> Option<(AnswerReason, &'static str)> {
    if resize.hold && resize.container.is_some() && present.swap {
        return Some((AnswerReason::Swap, "the container may use swap, which would change with its memory"));
    }
    (resize.unless_pinned && present.pinned).then_some((
        AnswerReason::Pinned,
        "the container has CPUs or memory nodes of its own, from the kubelet's static managers",
    ))
}

/// Wanted and present values of the container, if it runs.
fn of_container<'a>(resize: &'a ResizeOrder, present: &'a Present) -> Option<(&'a Bounds, &'a Seen)> {
    resize.container.as_ref().zip(present.container.as_ref())
}

/// Bytes that the container uses above `reclaim_to`; `None` if its limit is not lowered, which needs no room.
fn to_reclaim(resize: &ResizeOrder, present: &Present) -> Option<i64> {
    let cgroup = present.container?.cgroup;
    let beyond = cgroup.memory_usage?.saturating_sub(resize.reclaim_to?);
    let lowers = resize.container.is_none_or(|bounds| {
        bounds.memory_limit.is_some_and(|limit| cgroup.memory_limit.is_none_or(|found| limit < found))
    });
    (beyond > 0 && lowers && !present.of_container.is_empty()).then_some(beyond)
}

/// The goal for the Pod's cgroup.
fn of_pod<'a>(resize: &ResizeOrder, present: &'a Present) -> Option<(Goal, &'a Seen)> {
    let (bounds, seen) = resize.pod.as_ref().zip(present.pod.as_ref())?;
    let goal = Goal::of(bounds, &seen.cgroup);
    Some((if resize.only_raise { goal.or_more(&seen.cgroup) } else { goal }, seen))
}

fn no_room(resize: &ResizeOrder, present: &Present) -> Option<String> {
    let look = |whose: &str, (goal, seen): (Goal, &Seen)| in_use(whose, seen, &goal, resize.memory_margin);
    of_container(resize, present)
        .and_then(|(bounds, seen)| look("container", (Goal::of(bounds, &seen.cgroup), seen)))
        .or_else(|| look("Pod", of_pod(resize, present)?))
}

fn plan(resize: &ResizeOrder, present: &Present, container_id: &ContainerId, written: bool) -> Vec<Write> {
    let change = |(bounds, seen): (&Bounds, &'_ Seen)| Goal::of(bounds, &seen.cgroup);
    let pod = of_pod(resize, present).map(|(goal, seen)| Change { present: &seen.cgroup, goal, written });
    let container = of_container(resize, present)
        .map(|each| (container_id, Change { present: &each.1.cgroup, goal: change(each), written }));
    writes(Driver::of(&present.cgroup), pod, container.as_slice())
}

fn done(acknowledged: &Answer, present: &Present) -> Answer {
    let cgroup = |seen: Option<Seen>| seen.map(|seen| seen.cgroup).unwrap_or_default();
    let seen = present.container.is_some() || present.pod.is_some();
    let observed = CgroupReading { container: cgroup(present.container), pod: cgroup(present.pod) };
    Answer {
        state: AnswerState::Done,
        reason: None,
        message: String::new(),
        observed: seen.then(|| Box::new(observed)),
        ..acknowledged.clone()
    }
}

fn failed(order_id: &str, stored: Option<&Answer>, why: &str) -> Answer {
    let (state, reason) = (AnswerState::Failed, Some(AnswerReason::ResizeFailed));
    let message = truncate(why, MAX_MESSAGE);
    match stored {
        Some(acknowledged) => Answer { state, reason, message, ..acknowledged.clone() },
        None => answer(order_id, state, reason, message),
    }
}
