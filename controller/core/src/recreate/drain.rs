//! The drain: taking a Pod out of service before the first of its containers is stopped.
//!
//! The request's hold keeps the condition behind every served readiness gate of the Pod False. Once the Pod is seen
//! both held and not ready, the grace period runs on this process's clock, and starts anew should the Pod become
//! ready again. A Pod without such a gate stays in service; there the grace only passes. Nothing is stopped before.

use chrono::{DateTime, Utc};
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::recreate::{ContainerRecreateRequestStatus, conditions};

use super::judge::is_pinned;
use super::observe::{Observed, Request};
use super::status::{Wait, set};
use crate::pod::Pod;
use crate::time::{Mono, note_since, seconds};

/// What this process has seen of a drain; another process counts anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// When it first saw the request accepted.
    accepted: Option<Mono>,
    /// Since when the Pod is held and not ready.
    unready: Option<Mono>,
}

impl Seen {
    /// Notes since when the request is at work, and its Pod out of service.
    pub(super) fn update(&mut self, now: Mono, request: &Request, pod: Option<&Pod>) {
        let Some(pod) = pod.filter(|pod| request.started_for(pod)) else {
            *self = Self::default();
            return;
        };
        self.accepted.get_or_insert(now);
        let out = !pod.ready && request.hold().is_some_and(|hold| pod.gates.iter().all(|g| g.held_by(&hold)));
        note_since(&mut self.unready, now, out);
    }
}

/// How far the drain of an accepted request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// None was asked for.
    Unasked,
    /// It is over, or it was before something was stopped: containers may be stopped.
    Over,
    /// Nothing may be stopped: why, and when to look again though nothing happened.
    Lasts(Wait, Option<Mono>),
}

impl Drain {
    /// Nothing keeps containers from being stopped.
    pub(super) fn drained(&self) -> bool {
        !matches!(self, Self::Lasts(..))
    }

    /// When to look again though nothing happened.
    pub(super) fn wake_at(&self) -> Option<Mono> {
        match self {
            Self::Lasts(_, at) => *at,
            Self::Unasked | Self::Over => None,
        }
    }
}

/// How far the drain is; `pod` is the one that the request was accepted for, if it is there.
pub(super) fn stage(now: Mono, observed: &Observed<'_>, pod: Option<&Pod>) -> Drain {
    let Some(grace) = grace(observed.request) else { return Drain::Unasked };
    // What was ordered, pinned or stopped already was so after the drain: it is not asked again whether the Pod is
    // ready.
    let status = &observed.request.status;
    let killed = status.container_recreate_states.iter().any(|s| s.is_killed);
    let mut targets = status.target.iter().flat_map(|t| &t.containers);
    if killed || !observed.orders.is_empty() || targets.any(|t| pod.is_some_and(|pod| is_pinned(t, pod))) {
        return Drain::Over;
    }
    let Some(pod) = pod else { return Drain::Lasts(Wait::NotReadyPod, None) };
    let seen = observed.memory.drain;
    let since = if pod.gates.is_empty() { seen.accepted } else { seen.unready };
    let until = since.map(|since| since.after(seconds(grace)));
    match until {
        Some(until) if until <= now => Drain::Over,
        Some(until) if pod.gates.is_empty() => Drain::Lasts(Wait::NoGate(grace), Some(until)),
        Some(until) => Drain::Lasts(Wait::Draining(grace), Some(until)),
        None => Drain::Lasts(opening(pod, grace), None),
    }
}

/// What the request waits for when it has just been accepted; absent when it asks for no drain.
pub(super) fn first_wait(request: &Request, pod: &Pod) -> Option<Wait> {
    grace(request).map(|grace| opening(pod, grace))
}

/// What a drain waits for at its beginning.
fn opening(pod: &Pod, grace: i64) -> Wait {
    let foreign = pod.gates.iter().find(|gate| gate.foreign());
    match foreign {
        Some(gate) => Wait::ForeignGate(gate.type_.clone()),
        None if pod.gates.is_empty() => Wait::NoGate(grace),
        None => Wait::NotReadyPod,
    }
}

/// Writes the beginning of the drain down, if one was asked for; what is written already stays.
pub(super) fn begin(
    status: &mut ContainerRecreateRequestStatus,
    request: &Request,
    pod: &Pod,
    now: DateTime<Utc>,
) {
    let Some(grace) = grace(request) else { return };
    let (reason, text) = match opening(pod, grace) {
        Wait::NoGate(_) => {
            let text = format!(
                "the Pod has no readiness gate KruisePodReady or pitstop.dev/ready, so it stays in service; \
                 containers are stopped after {grace} s all the same"
            );
            (NO_GATE, text)
        }
        wait @ Wait::ForeignGate(_) => (GATE_IN_USE, wait.message()),
        _ => {
            let gates: Vec<&str> = pod.gates.iter().map(|g| g.type_.as_str()).collect();
            let text = format!(
                "the Pod is taken out of service by {}; containers are stopped once it has been not ready for {grace} s",
                gates.join(", ")
            );
            (DRAINING, text)
        }
    };
    for (type_, value, reason) in [
        (conditions::PRE_RECREATE_GRACE, ConditionStatus::True, conditions::PRE_RECREATE_GRACE),
        (conditions::DRAINED, ConditionStatus::False, reason),
    ] {
        if condition::find(&status.conditions, type_).is_none() {
            set(status, request, type_, value, reason, &text, now);
        }
    }
}

/// Writes down that the Pod was out of service before the first stop, once that is so, and until then whether it can be
/// taken out of service.
pub(super) fn proceed(
    status: &mut ContainerRecreateRequestStatus,
    request: &Request,
    drain: &Drain,
    now: DateTime<Utc>,
) {
    let grace = grace(request).unwrap_or(0);
    let (value, reason, text) = match drain {
        Drain::Over => {
            let text = format!("the Pod was not ready for {grace} s before the first stop");
            (ConditionStatus::True, conditions::DRAINED, text)
        }
        Drain::Lasts(wait @ Wait::ForeignGate(_), _) => (ConditionStatus::False, GATE_IN_USE, wait.message()),
        Drain::Lasts(..) if is(status, &[GATE_IN_USE]) => {
            let text = format!("containers are stopped once the Pod has been not ready for {grace} s");
            (ConditionStatus::False, DRAINING, text)
        }
        Drain::Lasts(..) | Drain::Unasked => return,
    };
    if lasts(status) {
        set(status, request, conditions::DRAINED, value, reason, &text, now);
    }
}

/// Writes down how the drain of a request went that ends now.
pub(super) fn conclude(
    status: &mut ContainerRecreateRequestStatus,
    request: &Request,
    drain: &Drain,
    now: DateTime<Utc>,
) {
    proceed(status, request, drain, now);
    if lasts(status) {
        let text = "the request ended before the Pod was drained";
        set(status, request, conditions::DRAINED, ConditionStatus::False, NOT_DRAINED, text, now);
    }
}

/// The status says that the Pod is being taken out of service, or is to be.
fn lasts(status: &ContainerRecreateRequestStatus) -> bool {
    is(status, &[DRAINING, GATE_IN_USE])
}

/// Whether the status says that the Pod cannot be taken out of service.
pub(super) fn impossible(status: &ContainerRecreateRequestStatus) -> bool {
    is(status, &[NO_GATE])
}

/// Whether the drain has one of these reasons.
fn is(status: &ContainerRecreateRequestStatus, reasons: &[&str]) -> bool {
    let drained = condition::find(&status.conditions, conditions::DRAINED);
    drained.is_some_and(|c| reasons.contains(&c.reason.as_str()))
}

/// When the drain began, as written down.
pub(super) fn began(status: &ContainerRecreateRequestStatus) -> Option<DateTime<Utc>> {
    let begun = condition::find(&status.conditions, conditions::PRE_RECREATE_GRACE);
    begun.filter(|c| c.status == ConditionStatus::True).map(|c| c.last_transition_time)
}

/// Every reason of the condition `Drained`.
pub(super) const REASONS: [&str; 5] = [DRAINING, conditions::DRAINED, NO_GATE, GATE_IN_USE, NOT_DRAINED];
/// Reason of `Drained` while the Pod is being taken out of service, and of the wait for it.
pub(super) const DRAINING: &str = "Draining";
/// Reason of `Drained` when the Pod cannot be taken out of service, and of the wait for the time to pass.
pub(super) const NO_GATE: &str = "NoReadinessGate";
/// Reason of `Drained` while somebody else holds the gate by which the Pod is to be taken out of service, and of the wait
/// for that.
pub(super) const GATE_IN_USE: &str = "ReadinessGateInUse";
/// Reason of `Drained` when the request ended before; and of the event that tells of a Pod without a gate.
pub(super) const NOT_DRAINED: &str = "NotDrained";

/// The seconds for which the request wants its Pod not ready; absent when it asks for no drain.
fn grace(request: &Request) -> Option<i64> {
    request.spec.strategy.as_ref()?.unready_grace_period_seconds
}
