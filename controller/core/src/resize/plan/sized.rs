//! A Pod with its new resources: verified and watched.

use std::time::Duration;

use pitstop_api::nodework::Order;
use pitstop_api::resize::Phase;

use super::{Plan, Planner};
use crate::guard::POLICY;
use crate::plan::Urgency;
use crate::pod::Pod;
use crate::resize::judge::SpecState;
use crate::resize::restart::to_restart;
use crate::resize::rollback::{failed, was_ready};
use crate::resize::status::{self, End, Wait, changes, ended};
use crate::resize::verify::{Finding, SILENT, Verification, verify};
use crate::time::{Mono, earliest, seconds};

/// How long the kernel may differ after the kubelet is done.
const KERNEL_PATIENCE: Duration = Duration::from_mins(2);

impl Planner<'_> {
    /// Plan once the kubelet reports the new resources: verify them for a while, watch the Pod if requested, then end.
    /// A difference in the kernel reverts nothing.
    pub(super) fn sized(&self, pod: &Pod, expired: bool, deadline: Option<Mono>) -> Plan {
        if let Some(sizing) = self.open_nudge() {
            return Plan { sizing: Some(sizing.clone()), ..self.keep_orders() };
        }
        let memory = self.observed.memory;
        let since = memory.sized_since.unwrap_or(self.now);
        let watch = self.observed.resize.spec.rollback_on_failure.as_ref();
        let until = watch.map(|w| since.after(seconds(w.observe_seconds)));
        let last = memory.done_since.unwrap_or(since).after(KERNEL_PATIENCE);
        let enough = expired || last <= self.now;
        let Verification { mut finding, mut orders, mut wake_at, low } =
            verify(self.now, self.config, self.observed, pod);
        if expired && finding == Finding::Waits {
            let text = "the node's daemon did not report the kernel's values before the deadline".to_owned();
            finding = Finding::Unknown(SILENT, text);
        }
        let low = low.filter(|_| !enough);
        let nudging = low.as_ref().and_then(|low| self.nudging(pod, low));
        let repair = low.filter(|_| nudging.is_none()).and_then(|low| self.low_repair(pod, &low.container));
        let remedy = nudging.as_ref().and_then(|n| n.text.as_ref()).or(repair.as_ref().map(|r| &r.text));
        let remedy = remedy.map(|text| format!("; {text}")).unwrap_or_default();
        let wakes = [nudging.as_ref().and_then(|n| n.wake_at), repair.as_ref().and_then(|r| r.wake_at)];
        wake_at = wakes.into_iter().fold(wake_at, earliest);
        let order = repair.map_or_else(|| self.current_repair(), |repair| repair.order);
        if order.as_ref().is_some_and(|order| !self.observed.repairs.iter().any(|v| v.order.id == order.id)) {
            // The next questions follow the repair, with other numbers.
            orders = self.observed.orders.iter().map(|view| view.order.clone()).collect();
        }
        orders.extend(order);
        if let Some((reason, text)) = self.kernel_wait(&finding, enough, &remedy) {
            let wait = Wait::new(Phase::Verifying, reason, text);
            let last = Some(last).filter(|_| reason == status::KERNEL_DIFFERS);
            let wake_at =
                [deadline, until.filter(|at| *at > self.now), wake_at, last].into_iter().flatten().min();
            let sizing = nudging.and_then(|nudging| nudging.sizing);
            return Plan { orders, sizing, ..self.waiting(pod, &wait, wake_at) };
        }
        self.watched(pod, orders, until, &finding)
    }

    /// Reason and sentence of a wait for the kernel. `remedy`: text about nudge or repair.
    fn kernel_wait(&self, finding: &Finding, enough: bool, remedy: &str) -> Option<(&'static str, String)> {
        match finding {
            // `KernelDiffers` stays: it identifies a nudge in the Pod's spec as the request's own.
            Finding::Waits if self.observed.resize.waits_for(status::KERNEL_DIFFERS) => {
                let text = "asks the node's daemon again for the kernel's values".to_owned();
                Some((status::KERNEL_DIFFERS, text))
            }
            Finding::Waits if !self.observed.guarded => Some((status::POLICY, policy_missing())),
            Finding::Waits => {
                Some((status::VERIFYING, "asks the node's daemon for the kernel's values".to_owned()))
            }
            Finding::Differs(text) if !enough => Some((status::KERNEL_DIFFERS, format!("{text}{remedy}"))),
            Finding::Differs(_) | Finding::Matches | Finding::NoQuota(_) | Finding::Unknown(..) => None,
        }
    }

    /// Plan after the verification: watches the Pod until then if requested, and ends.
    fn watched(&self, pod: &Pod, orders: Vec<Order>, until: Option<Mono>, finding: &Finding) -> Plan {
        let resize = self.observed.resize;
        let watch = resize.spec.rollback_on_failure.as_ref();
        if let (Some(watch), Some(at)) = (watch, until.filter(|at| *at > self.now)) {
            let text = format!("watches the Pod with its new resources for {} s", watch.observe_seconds);
            let wait = Wait::new(Phase::Verifying, status::OBSERVING, text);
            return Plan { orders, ..self.waiting(pod, &wait, Some(at)) };
        }
        if watch.is_some_and(|w| w.not_ready != Some(false)) && was_ready(&resize.status) && !pod.ready {
            let end =
                End::new(Phase::RolledBack, status::NOT_READY, "the Pod was ready before, and is not now");
            return self.give_up(&SpecState::Desired, end);
        }
        if self.write_unknown() {
            return self.repeat_write();
        }
        self.succeeded(finding)
    }

    /// Ends with success and the result of the verification.
    pub(super) fn succeeded(&self, finding: &Finding) -> Plan {
        let mut text = changes(&self.observed.resize.status.containers);
        if let Finding::Differs(found) = finding {
            text = format!(
                "{text}; the kubelet reports that it is done, but the kernel has other values: {found}"
            );
        }
        let end = End::new(Phase::Succeeded, status::RESIZED, text);
        let mut status = ended(self.observed, &end, self.wall);
        status::record_verification(&mut status, self.observed, finding, self.wall);
        self.with_status(status, Urgency::Now)
    }

    /// Failure of the Pod since its spec was changed, if the request asks to watch it.
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
        "asks no daemon until the ValidatingAdmissionPolicy {POLICY} restricts each daemon to its own node: apply it and its binding"
    )
}
