//! Orders that nobody takes up: the node's daemon says nothing, or its book has no place for them.

use pitstop_api::recreate::{Mechanism, RecreateStrategy, Target, TargetContainer};

use super::judge::Judged;
use super::mechanism::by_kubelet;
use super::observe::Observed;
use super::plan::Planner;
use crate::pod::Pod;
use crate::time::Mono;

/// What it means that nobody takes an order up.
pub(super) enum Silence {
    /// It is not silent, or nobody waits for it.
    None,
    /// It may take until then.
    Until(Mono),
    /// It has been silent for too long.
    Over,
    /// The kubelet does it instead.
    Instead(Target),
}

/// The target with a pin for every container that waits for the daemon; absent when one of them cannot be pinned.
fn kubelet_instead(
    strategy: Option<&RecreateStrategy>,
    target: &Target,
    pod: &Pod,
    observed: &Observed<'_>,
) -> Option<Target> {
    let mut target = target.clone();
    for container in &mut target.containers {
        if container.pin.is_none() && !observed.taken_up(&container.name) {
            container.pin = Some(by_kubelet(strategy, pod, pod.container(&container.name)?).ok()?);
        }
    }
    Some(target)
}

impl Planner<'_> {
    /// Whether the node's daemon has left an order unanswered for too long, or the order has found no place, and what follows.
    pub(super) fn silence(&self, target: &Target, pod: &Pod, judged: &[Judged]) -> Silence {
        let memory = self.observed.memory;
        let Some(since) = memory.unanswered_since.or(memory.crowded_since) else { return Silence::None };
        let waiting = |(t, j): (&TargetContainer, &Judged)| {
            !j.over() && t.pin.is_none() && !self.observed.taken_up(&t.name)
        };
        if !target.containers.iter().zip(judged).any(waiting) {
            return Silence::None;
        }
        let strategy = self.observed.request.spec.strategy.as_ref();
        // As it was accepted: a typed client of OpenKruise may have dropped the field since.
        let asked = target.mechanism.or_else(|| strategy?.mechanism).unwrap_or_default();
        let auto = asked == Mechanism::Auto;
        let instead = auto.then(|| kubelet_instead(strategy, target, pod, self.observed)).flatten();
        let patience = match &instead {
            Some(_) => self.config.fall_back_after,
            None => self.config.daemon_silent_after,
        };
        let at = since.after(patience);
        match instead {
            _ if at > self.now => Silence::Until(at),
            Some(target) => Silence::Instead(target),
            // There is a daemon, and there will be a place.
            None if memory.unanswered_since.is_none() => Silence::None,
            None => Silence::Over,
        }
    }
}
