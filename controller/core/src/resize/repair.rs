//! Repair of a Pod cgroup that the kubelet left unchanged.
//!
//! Kubelets from 1.33 to 1.36.3 do not change it for a container that does not run (kubernetes#138760). The container
//! then starts with its new limits in a Pod that is too small. It is killed again, or on cgroup v1 cannot even be
//! created. So an order makes the node's daemon set the Pod's cgroup. The daemon does not hold the Pod for that.

use std::time::Duration;

use pitstop_api::nodework::{AnswerState, Bounds, Order, ResizeOrder};

use super::observe::Observed;
use super::verify::next_order;
use crate::config::Config;
use crate::hold::{bounds, of_pod};
use crate::nodework::OrderView;
use crate::pod::Pod;
use crate::time::Mono;

/// How long the kubelet may take. An ordinary restart is over by then.
pub(super) const REPAIR_AFTER: Duration = Duration::from_secs(5);
/// Wait before an order is repeated that was refused or had no effect.
const RETRY: Duration = Duration::from_secs(30);

/// State of the repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repair {
    /// The order that the node's book should hold.
    pub(super) order: Option<Order>,
    /// Text for the wait message.
    pub(super) text: String,
    /// When to look again.
    pub(super) wake_at: Option<Mono>,
}

impl Repair {
    fn of(text: impl Into<String>) -> Self {
        Self { order: None, text: text.into(), wake_at: None }
    }
}

/// Whether the order only gives a Pod's cgroup the values of its spec.
pub fn is_repair(order: &Order) -> bool {
    repair_bounds(order).is_some()
}

fn repair_bounds(order: &Order) -> Option<Bounds> {
    let resize = order.action.resize.as_ref()?;
    resize.pod.filter(|_| resize.container.is_none() && !resize.hold)
}

/// The last repair order, if it matches the Pod's current spec.
pub(super) fn current_repair<'a>(observed: &Observed<'a>, pod: &Pod) -> Option<OrderView<'a>> {
    let last = observed.repairs.iter().max_by_key(|view| view.attempt())?;
    (repair_bounds(last.order) == Some(wants(pod))).then_some(*last)
}

fn wants(pod: &Pod) -> Bounds {
    bounds(&of_pod(pod, |container| container.resources))
}

/// Whether the Pod's kubelet resizes: it reports allocated resources. Other kubelets leave nothing to repair.
fn resizes(pod: &Pod) -> bool {
    pod.containers.iter().any(|c| c.status.as_ref().is_some_and(|status| status.allocated.is_some()))
}

/// Whether the kubelet writes the Pod's cgroup from the containers' resources. Pod-level resources and held Pods have
/// other sums.
pub(super) fn kubelet_writes(observed: &Observed<'_>, pod: &Pod) -> bool {
    let own = !observed.resize.held() && pod.pod_level.is_none() && resizes(pod);
    own && observed.force.containers.is_empty() && !observed.recorded
}

/// Repairs the Pod's cgroup by an order that names this container; `None` if pitstop must not repair it.
///
/// `low`: the daemon has found a wrong cgroup.
pub(super) fn repair(
    now: Mono,
    config: &Config,
    observed: &Observed<'_>,
    pod: &Pod,
    container: &str,
    low: bool,
) -> Option<Repair> {
    if !kubelet_writes(observed, pod) {
        return None;
    }
    if !config.resize_cri {
        return Some(Repair::of(
            "the kubelet may not have changed the Pod's cgroup, because a container did not run \
             (kubernetes#138760); with deploy/components/resize-cri, the node's daemon repairs it",
        ));
    }
    if observed.sizing_now || observed.sizing.is_some() || observed.deed.is_some() {
        return None;
    }
    let last = current_repair(observed, pod);
    let retry = last.and_then(|view| retry_at(now, observed, &view, low));
    if last.is_none() || retry.is_some_and(|at| at <= now) {
        let resize = ResizeOrder { pod: Some(wants(pod)), only_raise: true, ..ResizeOrder::default() };
        let order = next_order(observed, container, pod, resize.into()).filter(|_| observed.guarded)?;
        return Some(Repair { order: Some(order), ..Repair::of(ASKED) });
    }
    let view = last?;
    let text = match view.answer {
        None => ASKED.to_owned(),
        Some(answer) => match answer.state {
            AnswerState::Acknowledged if answer.message.is_empty() => ASKED.to_owned(),
            AnswerState::Acknowledged => format!("{ASKED}: {}", answer.message),
            AnswerState::Done if answer.observed.is_none() => {
                "the kubelet may not have changed the Pod's cgroup (kubernetes#138760), and the node's \
                 daemon does not find it"
                    .to_owned()
            }
            AnswerState::Done => {
                "the node's daemon has repaired the Pod's cgroup; the kubelet had not changed it".to_owned()
            }
            AnswerState::Refused | AnswerState::Failed => format!(
                "the kubelet may not have changed the Pod's cgroup (kubernetes#138760), and the node's \
                 daemon does not repair it: {}",
                answer.message
            ),
        },
    };
    Some(Repair { order: Some(view.order.clone()), text, wake_at: retry })
}

/// Text while the daemon repairs.
const ASKED: &str = "the node's daemon repairs the Pod's cgroup, which the kubelet does not change for a \
                     container that does not run (kubernetes#138760)";

/// When to repeat the order; `None` before the daemon's answer and after a repair.
fn retry_at(now: Mono, observed: &Observed<'_>, view: &OrderView<'_>, low: bool) -> Option<Mono> {
    let since = || observed.memory.answered_since(&view.order.id).unwrap_or(now);
    let answer = view.answer?;
    match answer.state {
        AnswerState::Acknowledged => None,
        // The runtime may have forgotten the named instance.
        AnswerState::Done => (low || answer.observed.is_none()).then(|| since().after(RETRY)),
        AnswerState::Refused | AnswerState::Failed => Some(since().after(RETRY)),
    }
}
