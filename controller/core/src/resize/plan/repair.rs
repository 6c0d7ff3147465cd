//! Repairs of the Pod's cgroup that the kubelet left unchanged.

use pitstop_api::nodework::{AnswerState, Order};

use super::{Plan, Planner};
use crate::pod::Pod;
use crate::resize::judge::SpecState;
use crate::resize::repair::{REPAIR_AFTER, Repair, current_repair, is_repair, repair};
use crate::time::{Mono, earliest};

impl Planner<'_> {
    /// Plan while a container does not run that should get the resources of the Pod's spec.
    pub(super) fn stuck(&self, pod: &Pod, state: &SpecState, name: &str, deadline: Option<Mono>) -> Plan {
        self.with_repair(self.waiting(pod, &self.wait(state, pod), deadline), pod, name)
    }

    /// The plan with the repair for a container that does not run.
    pub(super) fn with_repair(&self, plan: Plan, pod: &Pod, container: &str) -> Plan {
        let Some(Repair { order, wake_at, .. }) = self.stuck_repair(pod, container) else {
            let at = self.observed.memory.stuck_since.map(|since| since.after(REPAIR_AFTER));
            return Plan { wake_at: earliest(plan.wake_at, at.filter(|at| *at > self.now)), ..plan };
        };
        let mut orders = plan.orders;
        orders.retain(|order| !is_repair(order));
        orders.extend(order);
        Plan { orders, wake_at: earliest(plan.wake_at, wake_at), ..plan }
    }

    /// The repair, once the container has not run for long enough.
    pub(super) fn stuck_repair(&self, pod: &Pod, container: &str) -> Option<Repair> {
        let due = self.observed.memory.stuck_since?.after(REPAIR_AFTER) <= self.now;
        due.then(|| repair(self.now, self.config, self.observed, pod, container, false)).flatten()
    }

    /// The repair, once only the Pod's cgroup has been wrong for long enough.
    pub(super) fn low_repair(&self, pod: &Pod, container: &str) -> Option<Repair> {
        let since = self.observed.memory.sized_since.unwrap_or(self.now);
        let due = since.after(REPAIR_AFTER) <= self.now;
        due.then(|| repair(self.now, self.config, self.observed, pod, container, true)).flatten()
    }

    /// The current repair order, kept so that it is not made twice.
    pub(super) fn current_repair(&self) -> Option<Order> {
        current_repair(self.observed, self.observed.pod?).map(|view| view.order.clone())
    }

    /// Whether the order changes something and may still be carried out.
    pub(super) fn acts_on(&self, order: &Order) -> bool {
        let mut all = self.observed.repairs.iter().chain(&self.observed.orders);
        let of_it = all.find(|view| view.order.id == order.id && view.order.action.resize.is_some());
        of_it.is_some_and(|view| view.answer.is_none_or(|a| a.state == AnswerState::Acknowledged))
    }
}
