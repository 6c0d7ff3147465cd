//! Whether the kernel has what the kubelet says: asked of the node's daemon, one order for each container.
//!
//! The order changes nothing, so it may be placed again at will: under another number, since an order never changes. A
//! container is asked about as the instance that the Pod shows; when that is another one, it is asked about anew.

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

/// How long after the first answer that was not the wanted one the daemon is asked again; then after twice as long each time.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest of these waits.
const SELDOM: Duration = Duration::from_mins(1);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The daemon has not answered yet.
    Waits,
    /// The kernel has something else: what, and where.
    Differs(String),
    /// The kernel has it.
    Matches,
    /// The kernel has it, but for CPU quotas, which the kubelet sets none of: a sentence.
    NoQuota(String),
    /// Nobody can tell: a reason, and a sentence.
    Unknown(&'static str, String),
}

/// The kernel has it.
pub(super) const MATCH: &str = "CgroupsMatch";
/// The kernel has it, but for a CPU quota that the kubelet does not set.
pub(super) const NO_QUOTA: &str = "CPUQuotaNotSet";
/// The node's daemon does not answer.
pub(super) const SILENT: &str = "DaemonNotResponding";
/// The node's daemon cannot tell.
pub(super) const UNREADABLE: &str = "CgroupUnreadable";
/// The node's daemon refuses to tell.
pub(super) const REFUSED: &str = "VerifyRefused";
/// Every reason of the condition `Verified`, beside [`KERNEL_DIFFERS`](super::status::KERNEL_DIFFERS).
pub(super) const REASONS: [&str; 5] = [MATCH, NO_QUOTA, SILENT, UNREADABLE, REFUSED];

/// How far the verification is.
#[derive(Clone, Debug)]
pub(super) struct Verification {
    pub(super) verdict: Verdict,
    /// What the request wants in the node's book.
    pub(super) orders: Vec<Order>,
    /// When to look again.
    pub(super) wake_at: Option<Mono>,
    /// The containers have what they should, and only the Pod has not.
    pub(super) low: Option<Low>,
}

/// What the cgroup of the Pod does not hold as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Low {
    /// The container that was asked about.
    pub(super) container: String,
    pub(super) cpu: bool,
    pub(super) memory: bool,
}

/// What one container needs.
enum Next<'a> {
    /// Its order stays, or another one follows.
    Order(Box<Order>, Option<Mono>),
    /// It was told.
    Told(&'a Order, &'a Cgroups),
    /// It cannot be told.
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
            let text = "the node's daemon has not said what the kernel has".to_owned();
            result.verdict = Verdict::Unknown(SILENT, text);
        }
        result.wake_at = earliest(result.wake_at, Some(at));
    }
    result.low = result.low.filter(|_| all_have && matches!(result.verdict, Verdict::Differs(_)));
    if !observed.guarded {
        // No order is placed; those that stand may go.
        result.orders.clear();
    }
    result
}

/// What counts of two containers' verdicts: what is not known ends the question, what is awaited goes on.
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

/// When an answer is worth another question: the longer it has been so, the later.
fn again_at(now: Mono, observed: &Observed<'_>, order: &Order) -> Mono {
    let said = observed.memory.answered_since(&order.id).unwrap_or(now);
    let since = observed.memory.sized_since.unwrap_or(said);
    let at = said.after(said.since(since).clamp(AGAIN, SELDOM));
    // What was repaired since may be right.
    let done =
        observed.repairs.iter().filter(|v| v.answer.is_some_and(|answer| answer.state == AnswerState::Done));
    let repaired = done.filter_map(|view| observed.memory.answered_since(&view.order.id)).max();
    repaired.filter(|repaired| *repaired >= said).map_or(at, |repaired| at.min(repaired.after(AGAIN)))
}

fn next<'a>(now: Mono, observed: &Observed<'a>, container: &ContainerStatus, pod: &Pod) -> Next<'a> {
    let Some(new) = place(observed, container, pod) else {
        return Next::Untold(
            REFUSED,
            format!("container {} has no ID that can be asked about", container.name),
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
        // What was said before the Pod had its resources says nothing of them.
        (AnswerState::Done, _)
            if said.zip(observed.memory.sized_since).is_some_and(|(said, at)| said < at) =>
        {
            Next::Order(Box::new(new), None)
        }
        (AnswerState::Acknowledged, _) => stays(None),
        (AnswerState::Done, Some(cgroups)) => Next::Told(view.order, cgroups),
        // The Pod's status will show another instance, or that it still runs.
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

/// The next question about a container.
pub(super) fn place(observed: &Observed<'_>, container: &ContainerStatus, pod: &Pod) -> Option<Order> {
    next_order(observed, &container.name, pod, Verify::default().into())
}

/// The next order about a container.
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

/// Whether the kernel has for the container what it should.
fn own_verdict(
    observed: &Observed<'_>,
    container: &ContainerStatus,
    cgroups: &Cgroups,
    pod: &Pod,
) -> Verdict {
    let (from, to) = (original(container), desired(container));
    let Some(text) = cgroup::container_differs(&to, &cgroups.container) else { return Verdict::Matches };
    // Who sets quotas would have set one for the limit of before, or when the instance began; and the weight goes with the
    // quota, in one call (`updateContainerResources`).
    let status = pod.container(&container.name).and_then(|found| found.status.as_ref());
    let began = status.is_some_and(|status| status.container_id != container.container_id);
    let weighed = cgroup::container_differs(&cgroup::without_quota(&from), &cgroups.container).is_some();
    let sets_none = !observed.resize.held() && (from.cpu_limit.is_some() || began || weighed);
    let text = if sets_none && cgroups.container.cpu_quota.is_none() {
        // A quota that nobody sets is not missed.
        cgroup::container_differs(&cgroup::without_quota(&to), &cgroups.container)
    } else {
        Some(text)
    };
    match text {
        None => Verdict::NoQuota(format!("the kubelet sets no CPU quota for container {}", container.name)),
        Some(text) => Verdict::Differs(format!("container {}: {text}", container.name)),
    }
}

/// Whether the kernel has for the Pod what it should. `own` is the verdict on the container that was asked about.
fn pod_verdict(observed: &Observed<'_>, cgroups: &Cgroups, pod: &Pod, own: &Verdict) -> Verdict {
    // What bounds the Pod as a whole is another sum then.
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

/// What the cgroup of the Pod should hold, but for a quota that its kubelet does not set, and what it holds.
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

/// What the cgroup of the Pod should hold, and what it holds.
fn of_whole<'a>(observed: &Observed<'a>, cgroups: &'a Cgroups, pod: &Pod) -> (Resources, &'a Cgroup) {
    match observed.told.filter(|_| observed.resize.held()) {
        Some(told) => (pod_wants(told, observed.force), last_pod(observed).unwrap_or(&cgroups.pod)),
        None => (of_pod(pod, |container| container.resources), &cgroups.pod),
    }
}

/// What the daemon found in the cgroup of the Pod when it changed it last, unless it was asked since.
fn last_pod<'a>(observed: &Observed<'a>) -> Option<&'a Cgroup> {
    let asked = observed.orders.iter().any(|view| view.answer.is_some());
    let done = observed.held.iter().filter(|_| !asked).max_by_key(|view| view.attempt())?;
    done.answer?.observed.as_deref().map(|observed| &observed.pod)
}

/// What the daemon found when it gave the container what it should have.
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
