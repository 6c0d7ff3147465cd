//! One container of an accepted request: how far it is, why it waits, and whether it must still be stopped.
//!
//! The container's ID decides: the target is restarted once another instance has replaced it.

use std::time::Duration;

use pitstop_api::condition::{MAX_MESSAGE, truncate};
use pitstop_api::id::split_reference;
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState};
use pitstop_api::recreate::{ContainerRecreateState, MAX_CONTAINER_ID, Mechanism, Phase, TargetContainer};

use super::mechanism::{by_kubelet, choose, in_back_off};
use super::observe::{Memory, Observed, Request};
use super::status::Wait;
use crate::nodework::{OrderView, grace};
use crate::pod::{AfterEnd, ContainerState, ContainerStatus, Pod};
use crate::time::{Mono, seconds};

/// Number of refused pins after which the controller tries no more. An API server that has just started refuses
/// requests until it knows the roles.
const MAX_REFUSALS: u32 = 4;

/// How long a kubelet may take to start an ended container by itself. During a back-off it may report only the end: it
/// looks at the Pod again afterwards (seen on Kubernetes 1.36.3).
const STARTS: Duration = Duration::from_millis(1500);

/// Finding about one container.
pub(super) struct Finding {
    /// Its entry in `status.containerRecreateStates`.
    pub(super) state: ContainerRecreateState,
    /// Its wait; `None` once it has succeeded or failed.
    pub(super) wait: Option<Wait>,
    /// The target runs, and the daemon must stop it: its image is not pinned.
    pub(super) needs_stop: bool,
    /// The target is still there, and its image is not pinned yet.
    pub(super) needs_pin: bool,
    /// Its new target, if it changes.
    pub(super) new_target: Option<TargetContainer>,
    /// When to look again though nothing happened.
    pub(super) wake_at: Option<Mono>,
}

impl Finding {
    fn ends(state: ContainerRecreateState) -> Self {
        Self { wait: None, ..Self::waits(state, Wait::Daemon) }
    }

    fn waits(state: ContainerRecreateState, wait: Wait) -> Self {
        Self { state, wait: Some(wait), needs_stop: false, needs_pin: false, new_target: None, wake_at: None }
    }

    /// Whether the container has succeeded or failed.
    pub(super) fn over(&self) -> bool {
        matches!(self.state.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// Judges one container.
///
/// `patience`: how long the daemon may be silent beyond what a stop can take.
pub(super) fn judge(
    now: Mono,
    patience: Duration,
    observed: &Observed<'_>,
    target: &TargetContainer,
    pod: &Pod,
) -> Finding {
    let name = &target.name;
    let stored = observed.request.status.container_recreate_states.iter().find(|s| s.name == *name);
    if let Some(state) = stored.filter(|s| matches!(s.phase, Phase::Succeeded | Phase::Failed)) {
        return Finding::ends(state.clone());
    }
    let order = observed.order(name);
    let spared = order.is_some_and(|o| o.spared());
    let killed = !spared
        && (stored.is_some_and(|s| s.is_killed)
            || order.is_some_and(|o| o.kills())
            || observed.memory.pinned.contains(name));
    // Phases never go back, whatever an old status of the Pod shows.
    let ended = stored.is_some_and(|s| s.phase == Phase::Recreating) || order.is_some_and(|o| o.ended());
    let so_far = if ended { recreating(name, killed) } else { pending(name) };
    let Some(status) = status_of(pod, name) else {
        return Finding::waits(so_far, Wait::Restart(name.clone()));
    };
    let case = Case { now, observed, target, pod, status, stored, order, spared, killed, so_far };
    if replaced(target, status) {
        return case.replaced();
    }
    if let Some(answer) = order.and_then(|o| o.answer).filter(|a| hopeless(a)) {
        return Finding::ends(failed(name, answer));
    }
    let refused = observed.memory.pin_refused.as_ref().filter(|(n, _)| *n >= MAX_REFUSALS);
    let auto = observed.request.mechanism() == Mechanism::Auto;
    let comes_back = over(target, status) && case.for_good().is_none();
    if let Some((_, text)) = refused.filter(|_| case.needs_pin() && !(auto && comes_back)) {
        let message = format!("kill container error: the Pod's image cannot be pinned: {text}");
        let message = truncate(&message, MAX_MESSAGE);
        return Finding::ends(ContainerRecreateState { phase: Phase::Failed, message, ..pending(name) });
    }
    if over(target, status) {
        return case.ended(auto, refused.is_some());
    }
    if target.pin.is_some() {
        let needs_pin = case.needs_pin();
        let wait = if needs_pin { Wait::Pin(name.clone()) } else { Wait::Pinned(name.clone()) };
        return Finding { needs_pin, ..Finding::waits(case.so_far, wait) };
    }
    let refused = case.may_not_stop();
    refused.unwrap_or_else(|| case.runs(patience))
}

/// A container that the Pod's status shows.
struct Case<'a> {
    now: Mono,
    observed: &'a Observed<'a>,
    target: &'a TargetContainer,
    pod: &'a Pod,
    status: &'a ContainerStatus,
    /// Its stored entry.
    stored: Option<&'a ContainerRecreateState>,
    /// The order for its target.
    order: Option<OrderView<'a>>,
    /// It ended before the daemon could stop it.
    spared: bool,
    /// It was stopped for the request.
    killed: bool,
    /// Its entry according to the stored one and the daemon's answer.
    so_far: ContainerRecreateState,
}

impl Case<'_> {
    /// Its failure if the kubelet does not start it again.
    fn for_good(&self) -> Option<Finding> {
        let (pod, status, name, killed) = (self.pod, self.status, &self.target.name, self.killed);
        let why = ended_for_good(pod, name, &status.state)?;
        let message = format!("container {name} {why}: the kubelet will not start it again");
        let phase = Phase::Failed;
        Some(Finding::ends(ContainerRecreateState { phase, message, ..recreating(name, killed) }))
    }

    /// Whether the target's image is still to be pinned.
    fn needs_pin(&self) -> bool {
        self.target.pin.is_some() && !is_pinned(self.target, self.pod)
    }

    /// Its failure if it was waiting to start when it became the target, but runs now, and no mechanism may restart it.
    fn may_not_stop(&self) -> Option<Finding> {
        let request = self.observed.request;
        let auto = request.mechanism() == Mechanism::Auto && self.order.is_none();
        let container = self.pod.container(&self.target.name).filter(|_| auto)?;
        let why = choose(request.spec.strategy.as_ref(), self.pod, container).err()?;
        let message = truncate(&format!("kill container error: {why}"), MAX_MESSAGE);
        let failed = ContainerRecreateState { phase: Phase::Failed, message, ..pending(&self.target.name) };
        Some(Finding::ends(failed))
    }

    /// Judges a container whose target another instance has replaced.
    fn replaced(self) -> Finding {
        let Self { now, observed, target, pod, status, killed, .. } = self;
        let name = &target.name;
        let new_target = newer(observed, target, pod).filter(|_| self.for_good().is_none());
        if new_target.is_some() {
            return Finding { new_target, ..Finding::waits(self.so_far, Wait::Daemon) };
        }
        match &status.state {
            ContainerState::Running if status.ready => {
                started(now, observed, target, recreating(name, killed))
            }
            ContainerState::Running => Finding::waits(recreating(name, killed), Wait::NotReady(name.clone())),
            other => self
                .for_good()
                .unwrap_or_else(|| Finding::waits(recreating(name, killed), not_running(name, other))),
        }
    }

    /// Judges a target that has ended without a replacement. In back-off the kubelet starts it at once if its image
    /// string changes.
    ///
    /// No pin follows a stop by the request: the kubelet may report a back-off as it ends, and the pin would end the
    /// new instance. The same applies if the book with the record of such a stop was lost.
    fn ended(self, auto: bool, refused: bool) -> Finding {
        if let Some(failed) = self.for_good() {
            return failed;
        }
        let Self { now, observed, target, pod, status, killed, .. } = self;
        let name = &target.name;
        let stopped = killed || (observed.begun(name) && !self.spared);
        let unpinned = auto && !stopped && target.pin.is_none() && !refused;
        let waits_at = observed.memory.ended_since(name).filter(|_| unpinned).map(|at| at.after(STARTS));
        let waits_long = waits_at.is_some_and(|at| at <= now);
        let waiting = pod.container(name).filter(|c| unpinned && (in_back_off(c) || waits_long));
        let strategy = observed.request.spec.strategy.as_ref();
        let pin = waiting.and_then(|container| by_kubelet(strategy, pod, container).ok());
        let new_target = pin.map(|pin| TargetContainer { pin: Some(pin), ..target.clone() });
        let wake_at = waits_at.filter(|at| *at > now);
        let needs_pin = self.needs_pin() && !refused;
        let waits = Finding::waits(recreating(name, killed), not_running(name, &status.state));
        Finding { needs_pin, new_target, wake_at, ..waits }
    }

    /// Judges a target that runs, as far as known, and that the daemon must stop.
    fn runs(self, patience: Duration) -> Finding {
        let Self { now, observed, target, status, stored, order, .. } = self;
        let name = &target.name;
        // The stop is recorded, and its order may be gone to free a place.
        let stopped = stored.is_some_and(|s| s.phase == Phase::Recreating && s.is_killed);
        let overdue_at = order.and_then(|o| observed.acting.overdue_at(o.order, patience));
        let wait = match order {
            Some(OrderView { answer: Some(answer), .. })
                if answer.reason == Some(AnswerReason::StopRetried) =>
            {
                Wait::StopRetried(name.clone(), answer.message.clone())
            }
            Some(o) if o.acting() => match overdue_at.filter(|at| *at <= now) {
                Some(_) => Wait::StopOverdue(name.clone(), grace(o.order).saturating_add(patience).as_secs()),
                None => Wait::Stopping(name.clone()),
            },
            Some(o) if o.answer.is_some() => Wait::Restart(name.clone()),
            None if stopped => Wait::Restart(name.clone()),
            None if !observed.guarded => Wait::Policy,
            None if observed.memory.crowded_since.is_some() => Wait::BookFull,
            _ => Wait::Daemon,
        };
        let runs = status.container_id == target.container_id && status.state == ContainerState::Running;
        let wake_at = overdue_at.filter(|at| *at > now);
        Finding { needs_stop: runs && !stopped, wake_at, ..Finding::waits(self.so_far, wait) }
    }
}

/// The instance that runs now, if the request is forced and the target has ended by itself.
///
/// Once the daemon has taken an order up or the image is pinned, the next instance may be the requested one. Equal
/// restart counts do not distinguish instances, and orders are numbered by them.
fn newer(observed: &Observed<'_>, target: &TargetContainer, pod: &Pod) -> Option<TargetContainer> {
    let strategy = observed.request.spec.strategy.as_ref();
    let container = pod.container(&target.name)?;
    let status = container.status.as_ref().filter(|s| s.restart_count > target.restart_count)?;
    let (id, restart_count) = (&status.container_id, status.restart_count);
    let usable = id.len() <= MAX_CONTAINER_ID && split_reference(id).is_ok();
    let forced = strategy.is_some_and(|s| s.force_recreate);
    // The image changed: the kubelet restarted the container for the pin, or for another client's later change.
    let begun = target.pin.as_ref().is_some_and(|pin| container.image != pin.from);
    if !forced || !usable || begun || observed.begun(&target.name) {
        return None;
    }
    let pin = match &target.pin {
        Some(_) => Some(by_kubelet(strategy, pod, container).ok()?),
        None => choose(strategy, pod, container).ok()?,
    };
    // A container that waits to start cannot be stopped. Once it runs, it can.
    if pin.is_none() && observed.request.mechanism() == Mechanism::Auto && in_back_off(container) {
        return None;
    }
    Some(TargetContainer { name: target.name.clone(), container_id: id.clone(), restart_count, pin })
}

/// Why the kubelet does not start an ended container again, if so.
fn ended_for_good(pod: &Pod, name: &str, state: &ContainerState) -> Option<String> {
    let ContainerState::Terminated { exit_code } = state else { return None };
    let container = pod.container(name)?;
    let stays = pod.after_end(container, *exit_code) == AfterEnd::Stays;
    stays.then(|| format!("ended with exit code {exit_code} and {}", pod.restart_policy_of(container)))
}

/// Whether the Pod's spec has the image of the target's pin.
pub(super) fn is_pinned(target: &TargetContainer, pod: &Pod) -> bool {
    target.pin.as_ref().is_some_and(|pin| pod.container(&target.name).is_some_and(|c| c.image == pin.image))
}

/// Judges a new instance that runs and is ready. It succeeds after `minStartedSeconds`, counted on this process's clock
/// since it saw the instance run.
fn started(
    now: Mono,
    observed: &Observed<'_>,
    target: &TargetContainer,
    state: ContainerRecreateState,
) -> Finding {
    let least = observed.request.spec.strategy.as_ref().map_or(0, |s| s.min_started_seconds);
    let since = observed.memory.running_since(&target.name).unwrap_or(now);
    let at = since.after(seconds(least.into()));
    if at <= now {
        return Finding::ends(ContainerRecreateState { phase: Phase::Succeeded, ..state });
    }
    Finding { wake_at: Some(at), ..Finding::waits(state, Wait::MinStarted(target.name.clone(), least)) }
}

pub(super) fn status_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    pod.container(name)?.status.as_ref()
}

/// Whether another instance has replaced the target. A lower restart count means that this Pod status is older than the
/// request, not that the container was restarted.
pub(super) fn replaced(target: &TargetContainer, status: &ContainerStatus) -> bool {
    !status.container_id.is_empty()
        && status.container_id != target.container_id
        && status.restart_count >= target.restart_count
}

/// Whether a container of the request has yet to end or be replaced. A forced request may also have to stop the next
/// instance, until it has begun with the container.
pub fn stops_yet(request: &Request, memory: &Memory, pod: &Pod) -> bool {
    let forced = request.spec.strategy.as_ref().is_some_and(|s| s.force_recreate);
    let over = |target: &TargetContainer| {
        let name = &target.name;
        let stored = request.status.container_recreate_states.iter().find(|s| s.name == *name);
        let begun = memory.begun.contains(name) || memory.pinned.contains(name);
        let settled = !forced || begun || stored.is_some_and(|s| s.is_killed);
        stored.is_some_and(|s| matches!(s.phase, Phase::Succeeded | Phase::Failed))
            || (settled && status_of(pod, name).is_some_and(|status| replaced(target, status)))
    };
    let target = request.status.target.as_ref().filter(|_| request.started_for(pod));
    target.is_some_and(|target| !target.containers.iter().all(over))
}

/// Whether the target has ended without a replacement. A waiting container keeps the ID of its last instance, or none
/// if the runtime has forgotten that.
pub(super) fn over(target: &TargetContainer, status: &ContainerStatus) -> bool {
    let same = status.container_id == target.container_id;
    match status.state {
        ContainerState::Terminated { .. } => same,
        ContainerState::Waiting { .. } => {
            same || (status.container_id.is_empty() && status.restart_count >= target.restart_count)
        }
        ContainerState::Running | ContainerState::Unknown => false,
    }
}

/// Whether the daemon's answer means that this container will not be restarted.
fn hopeless(answer: &Answer) -> bool {
    match answer.state {
        AnswerState::Failed => true,
        // `RequestOver` is no failure of the container.
        AnswerState::Refused => {
            !matches!(answer.reason, Some(AnswerReason::NotRunning | AnswerReason::RequestOver))
        }
        AnswerState::Acknowledged | AnswerState::Done => false,
    }
}

fn not_running(name: &str, state: &ContainerState) -> Wait {
    match state {
        ContainerState::Waiting { reason, message } if !reason.is_empty() => {
            let words = [reason.as_str(), message].map(str::trim).join(": ");
            Wait::NotStarted(name.to_owned(), words.trim_end_matches(": ").to_owned())
        }
        _ => Wait::Restart(name.to_owned()),
    }
}

fn pending(name: &str) -> ContainerRecreateState {
    ContainerRecreateState {
        name: name.to_owned(),
        phase: Phase::Pending,
        message: String::new(),
        is_killed: false,
    }
}

pub(super) fn recreating(name: &str, is_killed: bool) -> ContainerRecreateState {
    ContainerRecreateState { phase: Phase::Recreating, is_killed, ..pending(name) }
}

pub(super) fn failed(name: &str, answer: &Answer) -> ContainerRecreateState {
    let message = truncate(&format!("kill container error: {}", answer.message), MAX_MESSAGE);
    ContainerRecreateState { phase: Phase::Failed, message, ..pending(name) }
}
