//! Draining: a Pod goes out of service before any of its containers stops, for requests of every kind.
//!
//! The request's hold keeps the condition of every served readiness gate of the Pod False. Once the Pod is seen both
//! held and not ready, the grace period runs on this process's clock. It starts anew if the Pod becomes ready again. A
//! Pod without such a gate stays in service; only the grace period passes.

use crate::pod::Pod;
use crate::readiness::Hold;
use crate::time::{Mono, note_since, seconds};

/// What this process has seen of a drain; another process starts anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainTimer {
    /// When it first saw that the Pod is to be drained.
    asked: Option<Mono>,
    /// Since when the Pod is held and not ready.
    unready: Option<Mono>,
}

impl DrainTimer {
    /// Notes since when the hold keeps the Pod out of service. Without hold or Pod, the Pod is not drained.
    pub(crate) fn update(&mut self, now: Mono, pod: Option<&Pod>, hold: Option<&Hold>) {
        let Some(pod) = pod else {
            *self = Self::default();
            return;
        };
        self.asked.get_or_insert(now);
        let out = !pod.ready && hold.is_some_and(|hold| pod.gates.iter().all(|g| g.held_by(hold)));
        note_since(&mut self.unready, now, out);
    }

    /// Succeeds if the Pod has been out of service for `grace` seconds. The error says why not, and when to look again
    /// without an event.
    pub(crate) fn stage(&self, now: Mono, pod: &Pod, grace: i64) -> Result<(), (Wait, Option<Mono>)> {
        let since = if pod.gates.is_empty() { self.asked } else { self.unready };
        let until = since.map(|since| since.after(seconds(grace)));
        match until {
            Some(until) if until <= now => Ok(()),
            Some(until) if pod.gates.is_empty() => Err((Wait::NoGate(grace), Some(until))),
            Some(until) => Err((Wait::Draining(grace), Some(until))),
            None => Err((Wait::opening(pod, grace), None)),
        }
    }
}

/// Why no container of a Pod may be stopped yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The Pod is still ready: its condition is not written, or the kubelet has not reacted.
    NotReadyPod,
    /// The condition of this type has a message that pitstop must not change.
    ForeignGate(String),
    /// The Pod is out of service, and stays so for this many seconds before the first stop.
    Draining(i64),
    /// The Pod cannot be taken out of service; this many seconds still pass before the first stop.
    NoGate(i64),
}

/// Reason of `Drained` while the Pod is being taken out of service, and of the wait for it.
pub const DRAINING: &str = "Draining";
/// Reason of `Drained` when the Pod cannot be taken out of service, and of the wait for the time to pass.
pub const NO_GATE: &str = "NoReadinessGate";
/// Reason of `Drained` while another writer holds the gate that the drain needs, and of the wait for it.
pub const GATE_IN_USE: &str = "ReadinessGateInUse";
/// Reason of `Drained` if the request ended earlier, and of the event about a Pod without a gate.
pub const NOT_DRAINED: &str = "NotDrained";

impl Wait {
    /// Every reason.
    pub const REASONS: [&str; 4] = ["WaitingForNotReady", GATE_IN_USE, DRAINING, NO_GATE];

    /// What a drain waits for at its beginning.
    pub(crate) fn opening(pod: &Pod, grace: i64) -> Self {
        let foreign = pod.gates.iter().find(|gate| gate.foreign());
        match foreign {
            Some(gate) => Self::ForeignGate(gate.type_.clone()),
            None if pod.gates.is_empty() => Self::NoGate(grace),
            None => Self::NotReadyPod,
        }
    }

    /// One `CamelCase` word.
    pub fn reason(&self) -> &'static str {
        let [not_ready, ..] = Self::REASONS;
        match self {
            Self::NotReadyPod => not_ready,
            Self::ForeignGate(_) => GATE_IN_USE,
            Self::Draining(_) => DRAINING,
            Self::NoGate(_) => NO_GATE,
        }
    }

    /// A sentence.
    pub fn message(&self) -> String {
        match self {
            Self::NotReadyPod => "waits until the Pod is no longer Ready".to_owned(),
            Self::ForeignGate(type_) => format!(
                "cannot take the Pod out of service: another client wrote the message of its condition {type_}, \
                 which is no list of holds; clear that message, or leave out unreadyGracePeriodSeconds"
            ),
            Self::Draining(seconds) => {
                format!("no container stops before {seconds} s have passed (unreadyGracePeriodSeconds)")
            }
            Self::NoGate(seconds) => format!(
                "the Pod has no readiness gate and stays in service; no container stops before {seconds} s have \
                 passed (unreadyGracePeriodSeconds)"
            ),
        }
    }
}

/// Reason and message of `Drained` when the drain begins.
pub(crate) fn initial_condition(pod: &Pod, grace: i64) -> (&'static str, String) {
    match Wait::opening(pod, grace) {
        Wait::NoGate(_) => {
            let text = format!(
                "the Pod has no readiness gate KruisePodReady or pitstop.dev/ready, so it stays in service; \
                 its containers stop after {grace} s"
            );
            (NO_GATE, text)
        }
        wait @ Wait::ForeignGate(_) => (GATE_IN_USE, wait.message()),
        Wait::NotReadyPod | Wait::Draining(_) => {
            let gates: Vec<&str> = pod.gates.iter().map(|g| g.type_.as_str()).collect();
            let text = format!(
                "the Pod is taken out of service by {}; containers are stopped once it has been not ready for {grace} s",
                gates.join(", ")
            );
            (DRAINING, text)
        }
    }
}
