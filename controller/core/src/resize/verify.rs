//! Verification: one order per container asks the node's daemon whether the kernel has the wanted values.
//!
//! The order changes nothing, so it may be repeated at will, with another number because an order never changes. An
//! order names the instance that the Pod shows. A new instance gets a new order.

use std::time::Duration;

use pitstop_api::id::split_reference;
use pitstop_api::logic::cgroup;
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, Cgroup, Observed as Cgroups, Order, OrderAction, OrderContainer,
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
const AGAIN: Duration = Duration::from_secs(2);
/// The longest of these waits.
const SELDOM: Duration = Duration::from_mins(1);

/// Result of the verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
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
    pub(super) verdict: Verdict,
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
    Told(&'a Order, &'a Cgroups),
    /// The values are unknown: a reason, and a sentence.
    Untold(&'static str, String),
}

/// Asks about every container of the request, and judges the answers.
pub(super) fn verify(now: Mono, config: &Config, observed: &Observed<'_>, pod: &Pod) -> Verification {
    let resize = observed.resize;
    let mut result = Verification { verdict: Verdict::Matches, orders: Vec::new(), wake_at: None, low: None };
    let mut all_have = true;
    for container in &resize.status.containers {
        let verdict = match next(now, observed, container, pod) {
            Next::Untold(reason, text) => Verdict::Unknown(reason, text),
            Next::Told(order, cgroups) => {
                let own = own_verdict(observed, container, cgroups, pod);
                let differs = matches!(own, Verdict::Differs(_));
                all_have &= !differs;
                let of_pod =
                    if differs { Verdict::Matches } else { pod_verdict(observed, cgroups, pod, &own) };
                if matches!(of_pod, Verdict::Differs(_)) {
                    let (wanted, found) = but_unset_quota(observed, cgroups, pod, &own);
                    let (cpu, memory) = cgroup::pod_apart(&wanted, found);
                    result.low = Some(Low { container: container.name.clone(), cpu, memory });
                }
                let verdict = worse(own, of_pod);
                let open = matches!(verdict, Verdict::Differs(_));
                let at = again_at(now, observed, order);
                if open && at <= now {
                    result.orders.extend(place(observed, container, pod));
                } else {
                    result.wake_at = earliest(result.wake_at, open.then_some(at));
                    result.orders.extend(Some(order).filter(|order| order.action.verify.is_some()).cloned());
                }
                verdict
            }
            Next::Order(order, again) => {
                result.orders.push(*order);
                result.wake_at = earliest(result.wake_at, again);
                Verdict::Waits
            }
        };
        result.verdict = worse(result.verdict, verdict);
    }
    if result.verdict == Verdict::Waits {
        let since = observed.memory.asked_since.or(observed.memory.sized_since).unwrap_or(now);
        let at = since.after(config.daemon_silent_after);
        if at <= now {
            let text = "the node's daemon has not reported the kernel's values".to_owned();
            result.verdict = Verdict::Unknown(SILENT, text);
        }
        result.wake_at = earliest(result.wake_at, Some(at));
    }
    result.low = result.low.filter(|_| all_have && matches!(result.verdict, Verdict::Differs(_)));
    if !observed.guarded {
        // Without the policy, no order is placed, and existing ones may go.
        result.orders.clear();
    }
    result
}

/// The verdict that counts: `Waits` before `Differs`, `Unknown`, `NoQuota` and `Matches`.
fn worse(one: Verdict, other: Verdict) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Matches => 0,
        Verdict::NoQuota(_) => 1,
        Verdict::Unknown(..) => 2,
        Verdict::Differs(_) => 3,
        Verdict::Waits => 4,
    };
    if rank(&other) > rank(&one) { other } else { one }
}

/// When to ask again after an answer: the longer the difference lasts, the later.
fn again_at(now: Mono, observed: &Observed<'_>, order: &Order) -> Mono {
    let said = observed.memory.answered_since(&order.id).unwrap_or(now);
    let since = observed.memory.sized_since.unwrap_or(said);
    let at = said.after(said.since(since).clamp(AGAIN, SELDOM));
    // A repair since then may have fixed the difference.
    let done =
        observed.repairs.iter().filter(|v| v.answer.is_some_and(|answer| answer.state == AnswerState::Done));
    let repaired = done.filter_map(|view| observed.memory.answered_since(&view.order.id)).max();
    repaired.filter(|repaired| *repaired >= said).map_or(at, |repaired| at.min(repaired.after(AGAIN)))
}

fn next<'a>(now: Mono, observed: &Observed<'a>, container: &ContainerStatus, pod: &Pod) -> Next<'a> {
    let Some(new) = place(observed, container, pod) else {
        return Next::Untold(
            REFUSED,
            format!("the Pod's status has no valid ID of container {}", container.name),
        );
    };
    let asks =
        |view: &OrderView<'_>| view.order.container == new.container && view.order.action.verify.is_some();
    let own = newest(&observed.orders, &container.name).filter(asks);
    let Some(view) = own else {
        if let Some((order, cgroups)) = told(observed, container, &new.container) {
            return Next::Told(order, cgroups);
        }
        return Next::Order(Box::new(new), None);
    };
    let stays = |again| Next::Order(Box::new(view.order.clone()), again);
    let Some(answer) = view.answer else { return stays(None) };
    let said = observed.memory.answered_since(&view.order.id);
    match (answer.state, answer.observed.as_deref()) {
        // An answer from before the Pod had its resources proves nothing.
        (AnswerState::Done, _)
            if said.zip(observed.memory.sized_since).is_some_and(|(said, at)| said < at) =>
        {
            Next::Order(Box::new(new), None)
        }
        (AnswerState::Acknowledged, _) => stays(None),
        (AnswerState::Done, Some(cgroups)) => Next::Told(view.order, cgroups),
        // The Pod's status will show another instance, or that this one still runs.
        (AnswerState::Refused, _) if answer.reason == Some(AnswerReason::NotRunning) => {
            let at = again_at(now, observed, view.order);
            if at <= now { Next::Order(Box::new(new), None) } else { stays(Some(at)) }
        }
        _ => untold(container, answer),
    }
}

fn untold(container: &ContainerStatus, answer: &Answer) -> Next<'static> {
    let unreadable = answer.reason == Some(AnswerReason::CgroupUnreadable);
    let reason = if unreadable { UNREADABLE } else { REFUSED };
    Next::Untold(reason, format!("container {}: {}", container.name, answer.message))
}

/// The next question about a container; `None` without a container ID.
pub(super) fn place(observed: &Observed<'_>, container: &ContainerStatus, pod: &Pod) -> Option<Order> {
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
fn own_verdict(
    observed: &Observed<'_>,
    container: &ContainerStatus,
    cgroups: &Cgroups,
    pod: &Pod,
) -> Verdict {
    let (from, to) = (original(container), desired(container));
    let Some(text) = cgroup::container_differs(&to, &cgroups.container) else { return Verdict::Matches };
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
        None => Verdict::NoQuota(format!("the kubelet sets no CPU quota for container {}", container.name)),
        Some(text) => Verdict::Differs(format!("container {}: {text}", container.name)),
    }
}

/// Whether the Pod's cgroup has the wanted values. `own`: verdict on the container that was asked about.
fn pod_verdict(observed: &Observed<'_>, cgroups: &Cgroups, pod: &Pod, own: &Verdict) -> Verdict {
    // Pod-level resources bound the Pod by another sum.
    if pod.pod_level.is_some() {
        return Verdict::Matches;
    }
    let (wanted, found) = of_whole(observed, cgroups, pod);
    if cgroup::pod_differs(&wanted, found).is_none() {
        return Verdict::Matches;
    }
    let (wanted, found) = but_unset_quota(observed, cgroups, pod, own);
    match cgroup::pod_differs(&wanted, found) {
        None => Verdict::NoQuota("the kubelet sets no CPU quota for the Pod".to_owned()),
        Some(text) => Verdict::Differs(format!("the Pod: {text}")),
    }
}

/// Wanted and found values of the Pod's cgroup, without a quota that the kubelet does not set.
fn but_unset_quota<'a>(
    observed: &Observed<'a>,
    cgroups: &'a Cgroups,
    pod: &Pod,
    own: &Verdict,
) -> (Resources, &'a Cgroup) {
    let (wanted, found) = of_whole(observed, cgroups, pod);
    let all = &observed.resize.status.containers;
    let before = of_pod(pod, |container| {
        let named = all.iter().find(|named| named.name == container.name);
        named.map_or(container.resources, original)
    });
    let sets_none =
        !observed.resize.held() && (before.cpu_limit.is_some() || matches!(own, Verdict::NoQuota(_)));
    if sets_none && found.cpu_quota.is_none() {
        (cgroup::without_quota(&wanted), found)
    } else {
        (wanted, found)
    }
}

/// Wanted and found values of the Pod's cgroup.
fn of_whole<'a>(observed: &Observed<'a>, cgroups: &'a Cgroups, pod: &Pod) -> (Resources, &'a Cgroup) {
    match observed.told.filter(|_| observed.resize.held()) {
        Some(told) => (pod_wants(told, observed.force), last_pod(observed).unwrap_or(&cgroups.pod)),
        None => (of_pod(pod, |container| container.resources), &cgroups.pod),
    }
}

/// Values of the Pod's cgroup that the daemon found at its last change; `None` if a question was answered since.
fn last_pod<'a>(observed: &Observed<'a>) -> Option<&'a Cgroup> {
    let asked = observed.orders.iter().any(|view| view.answer.is_some());
    let done = observed.held.iter().filter(|_| !asked).max_by_key(|view| view.attempt())?;
    done.answer?.observed.as_deref().map(|observed| &observed.pod)
}

/// The order by which the daemon gave the container the desired resources, and the values that it found.
fn told<'a>(
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
