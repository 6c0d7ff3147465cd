//! The Pod has its new resources: asked of the kernel, and watched.

use pitstop_api::resize::Phase;

use super::{Plan, Planner, overdue};
use crate::guard::POLICY;
use crate::plan::Urgency;
use crate::pod::Pod;
use crate::resize::judge::Place;
use crate::resize::restart::to_restart;
use crate::resize::rollback::{failed, was_ready};
use crate::resize::status::{self, End, Wait, changes, ended};
use crate::resize::verify::{Verdict, Verification, verify};
use crate::time::{Mono, earliest, seconds};

impl Planner<'_> {
    /// The Pod has what it should have: watch it where that is asked for, then end.
    pub(super) fn sized(&self, pod: &Pod, expired: bool, deadline: Option<Mono>) -> Plan {
        let resize = self.observed.resize;
        let watch = resize.spec.rollback_on_failure.as_ref();
        let since = self.observed.memory.sized_since.unwrap_or(self.now);
        let until = watch.map(|w| since.after(seconds(w.observe_seconds)));
        let Verification { verdict, mut orders, mut wake_at, pod_alone } =
            verify(self.now, self.config, self.observed, pod);
        let repair = pod_alone.and_then(|container| self.low_repair(pod, &container));
        let repaired = repair.as_ref().map(|repair| format!("; {}", repair.text)).unwrap_or_default();
        wake_at = earliest(wake_at, repair.as_ref().and_then(|repair| repair.wake_at));
        let order = repair.map_or_else(|| self.standing_repair(), |repair| repair.order);
        if order.as_ref().is_some_and(|order| !self.observed.repairs.iter().any(|v| v.order.id == order.id)) {
            // What is asked next is asked after it, and has another number.
            orders = self.observed.orders.iter().map(|view| view.order.clone()).collect();
        }
        orders.extend(order);
        let unsettled = match &verdict {
            Verdict::Waits if !self.observed.guarded => Some((status::POLICY, policy_missing())),
            Verdict::Waits => {
                Some((status::VERIFYING, "asks the node's daemon what the kernel has".to_owned()))
            }
            Verdict::Differs(text) => Some((status::KERNEL_DIFFERS, format!("{text}{repaired}"))),
            Verdict::Matches | Verdict::Unknown(..) => None,
        };
        if let Some((reason, text)) = unsettled {
            if expired {
                return self.give_up(&Place::Desired, overdue(&text));
            }
            let wait = Wait::new(Phase::Verifying, reason, text);
            let wake_at = [deadline, until.filter(|at| *at > self.now), wake_at].into_iter().flatten().min();
            return Plan { orders, ..self.waiting(pod, &wait, wake_at) };
        }
        if let (Some(watch), Some(at)) = (watch, until.filter(|at| *at > self.now)) {
            let text = format!("watches the Pod with its new resources for {} s", watch.observe_seconds);
            let wait = Wait::new(Phase::Verifying, status::OBSERVING, text);
            return Plan { orders, ..self.waiting(pod, &wait, Some(at)) };
        }
        if watch.is_some_and(|w| w.not_ready != Some(false)) && was_ready(&resize.status) && !pod.ready {
            let end =
                End::new(Phase::RolledBack, status::NOT_READY, "the Pod was ready before, and is not now");
            return self.give_up(&Place::Desired, end);
        }
        if self.unsettled() {
            return self.unsure();
        }
        let end = End::new(Phase::Succeeded, status::RESIZED, changes(&resize.status.containers));
        let mut status = ended(self.observed, &end, self.wall);
        status::verified(&mut status, self.observed, &verdict, self.wall);
        self.with_status(status, Urgency::Now)
    }

    /// What went wrong with the Pod since its spec was changed, where that is watched.
    pub(super) fn failure(&self, pod: &Pod) -> Option<End> {
        let resize = self.observed.resize;
        let watch = resize.spec.rollback_on_failure.as_ref()?;
        let begun = self.observed.memory.restarted.is_some();
        let restarted = |name: &str| begun && to_restart(resize).any(|other| other == name);
        let containers = &resize.status.containers;
        containers.iter().find_map(|c| failed(watch, c, i32::from(restarted(&c.name)), pod))
    }
}

pub(super) fn policy_missing() -> String {
    format!(
        "asks no daemon while the API server does not keep each to its own node: apply the ValidatingAdmissionPolicy {POLICY} and its binding"
    )
}
