//! What the kubelet leaves undone for a container that does not run.

use pitstop_api::nodework::{AnswerState, Order};

use super::{Plan, Planner};
use crate::pod::Pod;
use crate::resize::judge::Place;
use crate::resize::repair::{REPAIR_AFTER, Repair, is_repair, repair, standing};
use crate::time::{Mono, earliest};

impl Planner<'_> {
    /// A container does not run that should, with what the Pod's spec says.
    pub(super) fn stuck(&self, pod: &Pod, place: &Place, container: &str, deadline: Option<Mono>) -> Plan {
        self.with_repair(self.waiting(pod, &self.wait(place, pod), deadline), pod, container)
    }

    /// The plan, and what is done for a container that does not run.
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

    /// What is done once it has not run for long enough.
    pub(super) fn stuck_repair(&self, pod: &Pod, container: &str) -> Option<Repair> {
        let due = self.observed.memory.stuck_since?.after(REPAIR_AFTER) <= self.now;
        due.then(|| repair(self.now, self.config, self.observed, pod, container, false)).flatten()
    }

    /// What is done once the Pod's cgroup has not had what it should for long enough, though its containers have.
    pub(super) fn low_repair(&self, pod: &Pod, container: &str) -> Option<Repair> {
        let since = self.observed.memory.sized_since.unwrap_or(self.now);
        let due = since.after(REPAIR_AFTER) <= self.now;
        due.then(|| repair(self.now, self.config, self.observed, pod, container, true)).flatten()
    }

    /// The repair that stands: it is not to be made twice.
    pub(super) fn standing_repair(&self) -> Option<Order> {
        standing(self.observed, self.observed.pod?).map(|view| view.order.clone())
    }

    /// The order changes something, and may still be carried out.
    pub(super) fn acts_on(&self, order: &Order) -> bool {
        let mut all = self.observed.repairs.iter().chain(&self.observed.orders);
        let of_it = all.find(|view| view.order.id == order.id && view.order.action.resize.is_some());
        of_it.is_some_and(|view| view.answer.is_none_or(|a| a.state == AnswerState::Acknowledged))
    }
}
