//! Orders that are not taken up: the node's daemon is silent, or its book has no place for them.

use pitstop_api::recreate::{Mechanism, RecreateStrategy, Target, TargetContainer};

use super::judge::Finding;
use super::mechanism::by_kubelet;
use super::observe::Observed;
use super::plan::Planner;
use crate::pod::Pod;
use crate::time::Mono;

/// What follows if an order is not taken up.
pub(super) enum Silence {
    /// The daemon is not silent, or no container waits for it.
    None,
    /// The daemon has time until then.
    Until(Mono),
    /// The daemon was silent for too long.
    Over,
    /// The kubelet restarts the containers instead, with this target.
    FallBack(Target),
}

/// The target with a pin for every container that waits for the daemon; `None` if one cannot be pinned.
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
    /// What follows if the daemon leaves an order unanswered for too long, or if the order finds no place.
    pub(super) fn silence(&self, target: &Target, pod: &Pod, findings: &[Finding]) -> Silence {
        let memory = self.observed.memory;
        let Some(since) = memory.unanswered_since.or(memory.crowded_since) else { return Silence::None };
        let waiting = |(t, f): (&TargetContainer, &Finding)| {
            !f.over() && t.pin.is_none() && !self.observed.taken_up(&t.name)
        };
        if !target.containers.iter().zip(findings).any(waiting) {
            return Silence::None;
        }
        let strategy = self.observed.request.spec.strategy.as_ref();
        // From the acceptance: a typed client of OpenKruise may have dropped the field since.
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
            Some(target) => Silence::FallBack(target),
            // The daemon answers, and a place will become free.
            None if memory.unanswered_since.is_none() => Silence::None,
            None => Silence::Over,
        }
    }
}
