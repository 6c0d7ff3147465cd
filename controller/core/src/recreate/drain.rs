//! The drain of a recreate request: its Pod goes out of service before the first container is stopped.

use chrono::{DateTime, Utc};
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::recreate::{ContainerRecreateRequestStatus, conditions};

use super::judge::is_pinned;
use super::observe::{Observed, Request};
use super::status::set;
use crate::drain::initial_condition;
pub(super) use crate::drain::{DRAINING, GATE_IN_USE, NO_GATE, NOT_DRAINED, Wait};
use crate::pod::Pod;
use crate::time::Mono;

/// State of the drain of an accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// No drain is requested.
    Unasked,
    /// It is over, or a stop has begun: containers may be stopped.
    Over,
    /// No container may be stopped: why, and when to look again though nothing happened.
    Lasts(Wait, Option<Mono>),
}

impl Drain {
    /// Whether containers may be stopped.
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

/// State of the drain; `pod`: the Pod that the request was accepted for, if it exists.
pub(super) fn stage(now: Mono, observed: &Observed<'_>, pod: Option<&Pod>) -> Drain {
    let Some(grace) = grace(observed.request) else { return Drain::Unasked };
    // An order, a pin or a stop comes only after the drain, so readiness is not checked again.
    let status = &observed.request.status;
    let killed = status.container_recreate_states.iter().any(|s| s.is_killed);
    let mut targets = status.target.iter().flat_map(|t| &t.containers);
    if killed || !observed.orders.is_empty() || targets.any(|t| pod.is_some_and(|pod| is_pinned(t, pod))) {
        return Drain::Over;
    }
    let Some(pod) = pod else { return Drain::Lasts(Wait::NotReadyPod, None) };
    match observed.memory.drain.stage(now, pod, grace) {
        Ok(()) => Drain::Over,
        Err((wait, at)) => Drain::Lasts(wait, at),
    }
}

/// First wait of an accepted request; `None` if it asks for no drain.
pub(super) fn first_wait(request: &Request, pod: &Pod) -> Option<Wait> {
    grace(request).map(|grace| Wait::opening(pod, grace))
}

/// Records the beginning of a requested drain; an existing record stays.
pub(super) fn begin(
    status: &mut ContainerRecreateRequestStatus,
    request: &Request,
    pod: &Pod,
    now: DateTime<Utc>,
) {
    let Some(grace) = grace(request) else { return };
    let (reason, text) = initial_condition(pod, grace);
    for (type_, value, reason) in [
        (conditions::PRE_RECREATE_GRACE, ConditionStatus::True, conditions::PRE_RECREATE_GRACE),
        (conditions::DRAINED, ConditionStatus::False, reason),
    ] {
        if condition::find(&status.conditions, type_).is_none() {
            set(status, request, type_, value, reason, &text, now);
        }
    }
}

/// Records that the Pod was out of service before the first stop. Before that, records whether another client uses its
/// gate.
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
        Drain::Lasts(..) if has_reason(status, &[GATE_IN_USE]) => {
            let text = format!("containers are stopped once the Pod has been not ready for {grace} s");
            (ConditionStatus::False, DRAINING, text)
        }
        Drain::Lasts(..) | Drain::Unasked => return,
    };
    if lasts(status) {
        set(status, request, conditions::DRAINED, value, reason, &text, now);
    }
}

/// Records the result of the drain when the request ends.
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

/// Whether the status says that the drain lasts, or has yet to begin.
fn lasts(status: &ContainerRecreateRequestStatus) -> bool {
    has_reason(status, &[DRAINING, GATE_IN_USE])
}

/// Whether the status says that the Pod cannot be taken out of service.
pub(super) fn impossible(status: &ContainerRecreateRequestStatus) -> bool {
    has_reason(status, &[NO_GATE])
}

/// Whether the condition `Drained` has one of these reasons.
fn has_reason(status: &ContainerRecreateRequestStatus, reasons: &[&str]) -> bool {
    let drained = condition::find(&status.conditions, conditions::DRAINED);
    drained.is_some_and(|c| reasons.contains(&c.reason.as_str()))
}

/// When the drain began, according to the status.
pub(super) fn began(status: &ContainerRecreateRequestStatus) -> Option<DateTime<Utc>> {
    let begun = condition::find(&status.conditions, conditions::PRE_RECREATE_GRACE);
    begun.filter(|c| c.status == ConditionStatus::True).map(|c| c.last_transition_time)
}

/// Every reason of the condition `Drained`.
pub(super) const REASONS: [&str; 5] = [DRAINING, conditions::DRAINED, NO_GATE, GATE_IN_USE, NOT_DRAINED];
/// Seconds for which the Pod should be not ready; `None` if the request asks for no drain.
fn grace(request: &Request) -> Option<i64> {
    request.spec.strategy.as_ref()?.unready_grace_period_seconds
}
