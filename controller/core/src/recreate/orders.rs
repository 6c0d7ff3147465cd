//! Orders to the node's daemon, and image changes for the kubelet.

use pitstop_api::id::split_reference;
use pitstop_api::nodework::{AnswerState, Order, OrderContainer, OrderId, OrderPod, Recreate};
use pitstop_api::recreate::{ContainerRecreateState, Phase, Target, TargetContainer};

use super::drain::Drain;
use super::judge::Finding;
use super::mechanism::pin;
use super::plan::Planner;
use crate::change::ImageChange;
use crate::nodework::OrderView;
use crate::pod::Pod;

impl Planner<'_> {
    /// Orders for the containers that are still to be stopped and whose turn has come.
    pub(super) fn orders(
        &self,
        target: &Target,
        pod: &Pod,
        findings: &[Finding],
        in_turn: usize,
        drain: &Drain,
    ) -> Vec<Order> {
        let unplaced = self.observed.memory.unplaced;
        target
            .containers
            .iter()
            .zip(findings)
            .enumerate()
            .filter_map(|(i, (t, f))| match self.observed.order(&t.name) {
                Some(order) => (!(unplaced && self.is_done(&order))).then(|| order.order.clone()),
                None => (f.needs_stop && i < in_turn && drain.drained() && self.observed.guarded)
                    .then(|| self.order(target, t, pod))
                    .flatten(),
            })
            // Begun orders for a target that this process has not seen yet, or no longer sees.
            .chain(
                self.observed.orders.iter().filter(|o| o.begun() && self.stale(o)).map(|o| o.order.clone()),
            )
            .collect()
    }

    /// Images to pin for containers whose turn has come. A write under way stays wanted until its result is known.
    pub(super) fn images(
        &self,
        target: &Target,
        pod: &Pod,
        findings: &[Finding],
        in_turn: usize,
        drain: &Drain,
    ) -> Vec<ImageChange> {
        if !drain.drained() {
            return self.observed.pinning.to_vec();
        }
        let needs = target.containers.iter().zip(findings).take(in_turn).filter(|(_, f)| f.needs_pin);
        needs.filter_map(|(t, _)| pin(t, pod)).collect()
    }

    /// Whether the order can go: its container was stopped or is over, and the status records that.
    fn is_done(&self, view: &OrderView<'_>) -> bool {
        let name = &view.order.container.name;
        let mut states = self.observed.request.status.container_recreate_states.iter();
        let over = |s: &ContainerRecreateState| matches!(s.phase, Phase::Succeeded | Phase::Failed);
        let done = view.answer.is_some_and(|answer| answer.state == AnswerState::Done) && !view.spared();
        states.any(|s| s.name == *name && (over(s) || (done && s.is_killed)))
    }

    fn order(&self, target: &Target, container: &TargetContainer, pod: &Pod) -> Option<Order> {
        let request = self.observed.request;
        let grace = request.spec.strategy.as_ref().and_then(|s| s.termination_grace_period_seconds);
        let (_, id) = split_reference(&container.container_id).ok()?;
        let attempt = u32::try_from(container.restart_count).unwrap_or_default().saturating_add(1);
        Some(Order {
            // One number per instance: a forced request may order the stop of another instance later.
            id: OrderId { owner: &request.uid, container: &container.name, attempt }.to_string(),
            pod: OrderPod {
                namespace: pod.key.namespace.clone(),
                name: pod.key.name.clone(),
                uid: target.pod_uid.clone(),
            },
            container: OrderContainer { name: container.name.clone(), id: id.into() },
            action: Recreate::with_grace(grace.or(pod.grace_seconds)).into(),
            ..Order::default()
        })
    }

    /// Whether the order names another instance than the target.
    fn stale(&self, view: &OrderView<'_>) -> bool {
        let current = self.observed.order(&view.order.container.name);
        current.is_none_or(|current| current.order.id != view.order.id)
    }
}
