//! Verification: one order per container asks the node's daemon whether the kernel has the wanted values.
//!
//! The order changes nothing, so it may be repeated at will, with another number because an order never changes. An
//! order names the instance that the Pod shows. A new instance gets a new order.

use std::time::Duration;

use pitstop_api::id::split_reference;
use pitstop_api::logic::cgroup;
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, Cgroup, CgroupReading as Cgroups, Order, OrderAction, OrderContainer,
    OrderId, OrderPod, Verify,
};
use pitstop_api::quantity::Resources;
use pitstop_api::resize::ContainerStatus;

use super::judge::{desired, original};
use super::observe::Observed;
use crate::config::Config;
use crate::hold::{bounds, of_pod, pod_wants};
use crate::nodework::{OrderView, newest};
use crate::pod::Pod;
use crate::time::{Mono, earliest};

/// Wait after the first answer that differs, before the daemon is asked again. Each further wait is twice as long.
const MIN_BACKOFF: Duration = Duration::from_secs(2);
/// The longest of these waits.
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// Result of the verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The daemon has not answered yet.
    Waits,
    /// The kernel has other values: which, and where.
    Differs(String),
    /// The kernel has the wanted values.
    Matches,
    /// The kernel has the wanted values, except CPU quotas, which the kubelet does not set: a sentence.
    NoQuota(String),
    /// The kernel's values are unknown: a reason, and a sentence.
    Unknown(&'static str, String),
}

/// The kernel has the wanted values.
pub(super) const MATCH: &str = "CgroupsMatch";
/// The kernel has the wanted values, except a CPU quota that the kubelet does not set.
pub(super) const NO_QUOTA: &str = "CPUQuotaNotSet";
/// The node's daemon does not answer.
pub(super) const SILENT: &str = "DaemonNotResponding";
/// The node's daemon cannot read the values.
pub(super) const UNREADABLE: &str = "CgroupUnreadable";
/// The node's daemon refuses to verify.
pub(super) const REFUSED: &str = "VerifyRefused";
/// Every reason of the condition `Verified`, except [`KERNEL_DIFFERS`](super::status::KERNEL_DIFFERS).
pub(super) const REASONS: [&str; 5] = [MATCH, NO_QUOTA, SILENT, UNREADABLE, REFUSED];

/// State of the verification.
#[derive(Clone, Debug)]
pub(super) struct Verification {
    pub(super) finding: Finding,
    /// Orders that the node's book should hold.
    pub(super) orders: Vec<Order>,
    /// When to look again.
    pub(super) wake_at: Option<Mono>,
    /// Set if only the Pod's cgroup differs, and all containers match.
    pub(super) low: Option<Low>,
}

/// Resources that differ in the Pod's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Low {
    /// The container that was asked about.
    pub(super) container: String,
    pub(super) cpu: bool,
    pub(super) memory: bool,
}

/// Next step for one container.
enum Next<'a> {
    /// Keep or place this order; when to look again.
    Order(Box<Order>, Option<Mono>),
    /// The daemon reported values for this order.
    Reported(&'a Order, &'a Cgroups),
    /// The values are unknown: a reason, and a sentence.
    Unknown(&'static str, String),
}

/// Asks about every container of the request, and judges the answers.
pub(super) fn verify(now: Mono, config: &Config, observed: &Observed<'_>, pod: &Pod) -> Verification {
    let resize = observed.resize;
    let mut result = Verification { finding: Finding::Matches, orders: Vec::new(), wake_at: None, low: None };
    let mut all_match = true;
    for container in &resize.status.containers {
        let finding = match next(now, observed, container, pod) {
            Next::Unknown(reason, text) => Finding::Unknown(reason, text),
            Next::Reported(order, cgroups) => {
                let own = container_finding(observed, container, cgroups, pod);
                let differs = matches!(own, Finding::Differs(_));
                all_match &= !differs;
                let of_pod =
                    if differs { Finding::Matches } else { pod_finding(observed, cgroups, pod, &own) };
                if matches!(of_pod, Finding::Differs(_)) {
                    let (wanted, found) = without_unset_quota(observed, cgroups, pod, &own);
                    let (cpu, memory) = cgroup::pod_mismatch(&wanted, found);
                    result.low = Some(Low { container: container.name.clone(), cpu, memory });
                }
                let finding = worse(own, of_pod);
                let open = matches!(finding, Finding::Differs(_));
                let at = retry_at(now, observed, order);
                if open && at <= now {
                    result.orders.extend(question(observed, container, pod));
                } else {
                    result.wake_at = earliest(result.wake_at, open.then_some(at));
                    result.orders.extend(Some(order).filter(|order| order.action.verify.is_some()).cloned());
                }
                finding
            }
            Next::Order(order, again) => {
                result.orders.push(*order);
                result.wake_at = earliest(result.wake_at, again);
                Finding::Waits
            }
        };
        result.finding = worse(result.finding, finding);
    }
    if result.finding == Finding::Waits {
        let since = observed.memory.asked_since.or(observed.memory.sized_since).unwrap_or(now);
        let at = since.after(config.daemon_silent_after);
        if at <= now {
            let text = "the node's daemon has not reported the kernel's values".to_owned();
            result.finding = Finding::Unknown(SILENT, text);
        }
        result.wake_at = earliest(result.wake_at, Some(at));
    }
    result.low = result.low.filter(|_| all_match && matches!(result.finding, Finding::Differs(_)));
    if !observed.guarded {
        // Without the policy, no order is placed, and existing ones may go.
        result.orders.clear();
    }
    result
}

/// The finding that counts: `Waits` before `Differs`, `Unknown`, `NoQuota` and `Matches`.
fn worse(one: Finding, other: Finding) -> Finding {
    let rank = |finding: &Finding| match finding {
        Finding::Matches => 0,
        Finding::NoQuota(_) => 1,
        Finding::Unknown(..) => 2,
        Finding::Differs(_) => 3,
        Finding::Waits => 4,
    };
    if rank(&other) > rank(&one) { other } else { one }
}

/// When to ask again after an answer: the longer the difference lasts, the later.
fn retry_at(now: Mono, observed: &Observed<'_>, order: &Order) -> Mono {
    let answered = observed.memory.answered_since(&order.id).unwrap_or(now);
    let since = observed.memory.sized_since.unwrap_or(answered);
    let at = answered.after(answered.since(since).clamp(MIN_BACKOFF, MAX_BACKOFF));
    // A repair since then may have fixed the difference.
    let done =
        observed.repairs.iter().filter(|v| v.answer.is_some_and(|answer| answer.state == AnswerState::Done));
    let repaired = done.filter_map(|view| observed.memory.answered_since(&view.order.id)).max();
    repaired.filter(|at| *at >= answered).map_or(at, |repaired| at.min(repaired.after(MIN_BACKOFF)))
}

fn next<'a>(now: Mono, observed: &Observed<'a>, container: &ContainerStatus, pod: &Pod) -> Next<'a> {
    let Some(new) = question(observed, container, pod) else {
        return Next::Unknown(
            REFUSED,
            format!("the Pod's status has no valid ID of container {}", container.name),
        );
    };
    let asks =
        |view: &OrderView<'_>| view.order.container == new.container && view.order.action.verify.is_some();
    let own = newest(&observed.orders, &container.name).filter(asks);
    let Some(view) = own else {
        if let Some((order, cgroups)) = held_report(observed, container, &new.container) {
            return Next::Reported(order, cgroups);
        }
        return Next::Order(Box::new(new), None);
    };
    let keep = |at| Next::Order(Box::new(view.order.clone()), at);
    let Some(answer) = view.answer else { return keep(None) };
    let answered = observed.memory.answered_since(&view.order.id);
    match (answer.state, answer.observed.as_deref()) {
        // An answer from before the Pod had its resources proves nothing.
        (AnswerState::Done, _)
            if answered
                .zip(observed.memory.sized_since)
                .is_some_and(|(answered, sized)| answered < sized) =>
        {
            Next::Order(Box::new(new), None)
        }
        (AnswerState::Acknowledged, _) => keep(None),
        (AnswerState::Done, Some(cgroups)) => Next::Reported(view.order, cgroups),
        // The Pod's status will show another instance, or that this one still runs.
        (AnswerState::Refused, _) if answer.reason == Some(AnswerReason::NotRunning) => {
            let at = retry_at(now, observed, view.order);
            if at <= now { Next::Order(Box::new(new), None) } else { keep(Some(at)) }
        }
        _ => unknown(container, answer),
    }
}

fn unknown(container: &ContainerStatus, answer: &Answer) -> Next<'static> {
    let unreadable = answer.reason == Some(AnswerReason::CgroupUnreadable);
    let reason = if unreadable { UNREADABLE } else { REFUSED };
    Next::Unknown(reason, format!("container {}: {}", container.name, answer.message))
}

/// The next question about a container; `None` without a container ID.
pub(super) fn question(observed: &Observed<'_>, container: &ContainerStatus, pod: &Pod) -> Option<Order> {
    next_order(observed, &container.name, pod, Verify::default().into())
}

/// The next order for a container, with a new number; `None` without a container ID.
pub(super) fn next_order(
    observed: &Observed<'_>,
    container: &str,
    pod: &Pod,
    action: OrderAction,
) -> Option<Order> {
    let status = pod.container(container)?.status.as_ref()?;
    let (_, id) = split_reference(&status.container_id).ok()?;
    let known = [&observed.orders, &observed.repairs].map(|all| newest(all, container));
    let known = known.into_iter().flatten().map(|view| view.attempt()).max().unwrap_or_default();
    let attempt = known.max(observed.last_attempt).saturating_add(1);
    Some(Order {
        id: OrderId { owner: &observed.resize.uid, container, attempt }.to_string(),
        pod: OrderPod {
            namespace: pod.key.namespace.clone(),
            name: pod.key.name.clone(),
            uid: pod.uid.clone(),
        },
        container: OrderContainer { name: container.to_owned(), id: id.into() },
        action,
        ..Order::default()
    })
}

/// Whether the container's cgroup has the wanted values.
fn container_finding(
    observed: &Observed<'_>,
    container: &ContainerStatus,
    cgroups: &Cgroups,
    pod: &Pod,
) -> Finding {
    let (from, to) = (original(container), desired(container));
    let Some(text) = cgroup::container_differs(&to, &cgroups.container) else { return Finding::Matches };
    // A kubelet that sets quotas would have set one for the old limit, or when the instance started. It writes weight
    // and quota in one call (`updateContainerResources`), so a changed weight proves the same.
    let status = pod.container(&container.name).and_then(|found| found.status.as_ref());
    let began = status.is_some_and(|status| status.container_id != container.container_id);
    let weighed = cgroup::container_differs(&cgroup::without_quota(&from), &cgroups.container).is_some();
    let sets_none = !observed.resize.held() && (from.cpu_limit.is_some() || began || weighed);
    let text = if sets_none && cgroups.container.cpu_quota.is_none() {
        // This kubelet sets no quota, so none is expected.
        cgroup::container_differs(&cgroup::without_quota(&to), &cgroups.container)
    } else {
        Some(text)
    };
    match text {
        None => Finding::NoQuota(format!("the kubelet sets no CPU quota for container {}", container.name)),
        Some(text) => Finding::Differs(format!("container {}: {text}", container.name)),
    }
}

/// Whether the Pod's cgroup has the wanted values. `own`: finding on the container that was asked about.
fn pod_finding(observed: &Observed<'_>, cgroups: &Cgroups, pod: &Pod, own: &Finding) -> Finding {
    // Pod-level resources bound the Pod by another sum.
    if pod.pod_level.is_some() {
        return Finding::Matches;
    }
    let (wanted, found) = pod_values(observed, cgroups, pod);
    if cgroup::pod_differs(&wanted, found).is_none() {
        return Finding::Matches;
    }
    let (wanted, found) = without_unset_quota(observed, cgroups, pod, own);
    match cgroup::pod_differs(&wanted, found) {
        None => Finding::NoQuota("the kubelet sets no CPU quota for the Pod".to_owned()),
        Some(text) => Finding::Differs(format!("the Pod: {text}")),
    }
}

/// Wanted and found values of the Pod's cgroup, without a quota that the kubelet does not set.
fn without_unset_quota<'a>(
    observed: &Observed<'a>,
    cgroups: &'a Cgroups,
    pod: &Pod,
    own: &Finding,
) -> (Resources, &'a Cgroup) {
    let (wanted, found) = pod_values(observed, cgroups, pod);
    let all = &observed.resize.status.containers;
    let before = of_pod(pod, |container| {
        let named = all.iter().find(|named| named.name == container.name);
        named.map_or(container.resources, original)
    });
    let sets_none =
        !observed.resize.held() && (before.cpu_limit.is_some() || matches!(own, Finding::NoQuota(_)));
    if sets_none && found.cpu_quota.is_none() {
        (cgroup::without_quota(&wanted), found)
    } else {
        (wanted, found)
    }
}

/// Wanted and found values of the Pod's cgroup.
fn pod_values<'a>(observed: &Observed<'a>, cgroups: &'a Cgroups, pod: &Pod) -> (Resources, &'a Cgroup) {
    match observed.api_pod.filter(|_| observed.resize.held()) {
        Some(pod) => (pod_wants(pod, observed.force), last_pod(observed).unwrap_or(&cgroups.pod)),
        None => (of_pod(pod, |container| container.resources), &cgroups.pod),
    }
}

/// Values of the Pod's cgroup that the daemon found at its last change; `None` if a question was answered since.
fn last_pod<'a>(observed: &Observed<'a>) -> Option<&'a Cgroup> {
    let asked = observed.orders.iter().any(|view| view.answer.is_some());
    let done = observed.held.iter().filter(|_| !asked).max_by_key(|view| view.attempt())?;
    done.answer?.observed.as_deref().map(|cgroups| &cgroups.pod)
}

/// The order by which the daemon gave the container the desired resources, and the values that it found.
fn held_report<'a>(
    observed: &Observed<'a>,
    container: &ContainerStatus,
    instance: &OrderContainer,
) -> Option<(&'a Order, &'a Cgroups)> {
    let wanted = bounds(&Resources::from(&container.desired));
    let gave = |view: &&OrderView<'_>| {
        let given = view.order.action.resize.as_ref().and_then(|resize| resize.container);
        view.order.container == *instance && given == Some(wanted)
    };
    let view = observed.held.iter().filter(gave).max_by_key(|view| view.attempt())?;
    let done = view.answer.filter(|answer| answer.state == AnswerState::Done)?;
    Some((view.order, done.observed.as_deref()?))
}
