//! How the kubelet ends a container: `killContainer` of `pkg/kubelet/kuberuntime/kuberuntime_container.go`,
//! Kubernetes 1.36.

use super::pod::{Kind, PodContainer};
use crate::node::runtime::{Call, CallId, Client, Reply, Runtime};

/// Minimum of seconds between stop signal and kill.
const MINIMUM_GRACE: i64 = 2;

/// The end of one container.
#[derive(Clone, Debug)]
pub(super) struct Kill {
    pub(super) id: String,
    sidecar: bool,
    grace: i64,
    begun: u64,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The hook runs: its call, or when it ends by itself.
    Hook {
        call: Option<CallId>,
        over: u64,
    },
    /// It waits for the containers that must end before it.
    Turn,
    Stop(CallId),
    Done {
        good: bool,
    },
}

impl Kill {
    /// Begins with the hook, if the container has a hook and the grace is not 0.
    pub(super) fn begin(
        now: u64,
        id: String,
        spec: Option<&PodContainer>,
        grace: i64,
        runtime: &mut Runtime,
    ) -> Self {
        let hook = spec.and_then(|s| s.pre_stop.as_ref().map(|hook| (s, hook))).filter(|_| grace > 0);
        let command = hook.and_then(|(spec, _)| spec.hook_command());
        let phase = match (hook, command) {
            (None, _) => Phase::Turn,
            // The kubelet gives the command no timeout; it stops waiting for it.
            (Some(_), Some(cmd)) => {
                let call = Call::ExecSync { id: id.clone(), cmd, timeout_s: 0 };
                Phase::Hook { call: Some(runtime.call(now, Client::KUBELET, call)), over: u64::MAX }
            }
            (Some((spec, hook)), None) => {
                let seconds = hook.pointer("/sleep/seconds").and_then(serde_json::Value::as_u64);
                let ms = seconds.map_or(spec.behaviour.hook.0, |s| s * 1000);
                Phase::Hook { call: None, over: now + ms }
            }
        };
        let sidecar = spec.is_some_and(|s| s.kind == Kind::Sidecar);
        Self { id, sidecar, grace, begun: now, phase }
    }

    pub(super) fn done(&self) -> bool {
        matches!(self.phase, Phase::Done { .. })
    }

    pub(super) fn failed(&self) -> bool {
        matches!(self.phase, Phase::Done { good: false })
    }

    pub(super) fn sidecar(&self) -> bool {
        self.sidecar
    }

    /// Takes a reply; returns whether its call was this container's.
    pub(super) fn reply(&mut self, call: CallId, reply: &Reply) -> bool {
        match self.phase {
            // A failed hook does not delay the stop.
            Phase::Hook { call: Some(own), .. } if own == call => self.phase = Phase::Turn,
            Phase::Stop(own) if own == call => {
                let good = reply.is_ok() || crate::node::runtime::gone(reply);
                self.phase = Phase::Done { good };
            }
            _ => return false,
        }
        true
    }

    /// Continues as far as possible. `first`: other containers must end before a sidecar.
    pub(super) fn advance(&mut self, now: u64, first: bool, runtime: &mut Runtime) {
        let limit = self.limit();
        if let Phase::Hook { over, .. } = self.phase
            && (over <= now || limit <= now)
        {
            self.phase = Phase::Turn;
        }
        if matches!(self.phase, Phase::Turn) && !(self.sidecar && first && now < limit) {
            // The kubelet counts whole seconds.
            let spent = i64::try_from((now - self.begun) / 1000).unwrap_or(i64::MAX);
            let timeout_s = (self.grace - spent).max(MINIMUM_GRACE);
            let call = Call::StopContainer { id: self.id.clone(), timeout_s };
            self.phase = Phase::Stop(runtime.call(now, Client::KUBELET, call));
        }
    }

    pub(super) fn wake_at(&self) -> Option<u64> {
        match self.phase {
            Phase::Hook { over, .. } => Some(over.min(self.limit())),
            Phase::Turn => Some(self.limit()),
            Phase::Stop(_) | Phase::Done { .. } => None,
        }
    }

    /// The call that it waits for.
    pub(super) fn call(&self) -> Option<CallId> {
        match self.phase {
            Phase::Hook { call, .. } => call,
            Phase::Stop(call) => Some(call),
            Phase::Turn | Phase::Done { .. } => None,
        }
    }

    fn limit(&self) -> u64 {
        self.begun.saturating_add(u64::try_from(self.grace).unwrap_or(0).saturating_mul(1000))
    }
}
