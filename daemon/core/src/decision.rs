//! Whether an order may be carried out, decided by the runtime's answer about its container.
//!
//! Orders are not trusted: a writer of a `NodeWork` reaches only containers that it names in full and by all their
//! labels.

use pitstop_api::MAX_SECONDS;
use pitstop_api::condition::truncate;
use pitstop_api::id::ContainerId;
use pitstop_api::nodework::{
    AnswerReason, Bounds, MAX_MESSAGE, MAX_PULL_SECONDS, Order, OrderAction, Pull, ResizeOrder,
};
use pitstop_api::text::quoted;

use crate::action::{ContainerState, Facts};
use crate::hook::{self, Hook};
use crate::resize::forgets;

/// What to do about an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Stop the container.
    Stop {
        /// Seconds for the hook and from the stop signal to the kill, together.
        grace_seconds: i64,
        /// Hook to run first.
        hook: Option<Hook>,
    },
    /// Read its cgroups.
    Read,
    /// Change its resources and its Pod's; only the Pod's if it does not run.
    Resize {
        /// Whether it runs.
        runs: bool,
    },
    /// It is neither running nor ended, or runs although the order says that its Pod is gone: ask again.
    Wait,
    /// Refuse the order: reason and message.
    Refuse(AnswerReason, String),
}

/// The container ID of a well-formed order; the error says what is wrong with the order.
pub(crate) fn well_formed(order: &Order) -> Result<ContainerId, String> {
    let id = &order.container.id;
    let wrong = |_| format!("container.id must be 64 hex digits, not {}", quoted(&truncate(id, 80)));
    let container = ContainerId::parse(id).map_err(wrong)?;
    match unnamed(order).or_else(|| malformed_action(&order.action)) {
        Some(why) => Err(why),
        None => Ok(container),
    }
}

/// An empty name would match a container without that label, such as one that is not the kubelet's.
fn unnamed(order: &Order) -> Option<String> {
    let named = [
        ("pod.namespace", &order.pod.namespace),
        ("pod.name", &order.pod.name),
        ("pod.uid", &order.pod.uid),
        ("container.name", &order.container.name),
    ];
    let (field, _) = named.into_iter().find(|(_, text)| text.is_empty())?;
    Some(format!("{field} must not be empty"))
}

fn malformed_action(action: &OrderAction) -> Option<String> {
    match (&action.recreate, &action.verify, &action.resize, &action.pull) {
        (Some(recreate), None, None, None) => recreate
            .grace_period_seconds
            .filter(|seconds| *seconds < 0)
            .map(|seconds| format!("action.recreate.gracePeriodSeconds must not be negative: {seconds}")),
        (None, Some(_), None, None) => None,
        (None, None, Some(resize), None) => malformed_resize(resize),
        (None, None, None, Some(Pull { timeout_seconds: seconds, .. })) => (!(1..=MAX_PULL_SECONDS)
            .contains(seconds))
        .then(|| format!("action.pull.timeoutSeconds must be from 1 to {MAX_PULL_SECONDS}, not {seconds}")),
        (None, None, None, None) => Some("action has no field that this daemon knows".to_owned()),
        _ => Some("action must name one of recreate, verify, resize and pull, not several".to_owned()),
    }
}

fn malformed_resize(resize: &ResizeOrder) -> Option<String> {
    if resize.hold && resize.container.is_none() && resize.pod.is_none() {
        return Some("action.resize with hold must name container or pod".to_owned());
    }
    if resize.memory_margin < 0 {
        return Some("action.resize.memoryMargin must not be negative".to_owned());
    }
    if resize.reclaim_to.is_some_and(|bytes| bytes < 0) {
        return Some("action.resize.reclaimTo must not be negative".to_owned());
    }
    let bounds = [("container", &resize.container), ("pod", &resize.pod)];
    bounds.into_iter().find_map(|(whose, bounds)| {
        let Bounds { cpu_request, cpu_limit, memory_limit } = (*bounds)?;
        let none = |limit: Option<i64>| limit.is_some_and(|limit| limit < 1);
        let wrong = cpu_request < 0 || none(cpu_limit) || none(memory_limit);
        wrong.then(|| format!("action.resize.{whose} must have no negative request and no limit below 1"))
    })
}

/// Decides about a well-formed order.
pub(crate) fn decide(order: &Order, facts: Option<&Facts>, default_grace: i64) -> Decision {
    // The Pod gets its resources back even if the container has ended.
    let gives_back = order.action.resize.as_ref().is_some_and(|resize| !resize.hold);
    let Some(facts) = facts else {
        if gives_back {
            return Decision::Resize { runs: false };
        }
        return refuse(AnswerReason::NotRunning, "the runtime knows no container of that ID");
    };
    if let Some(text) = wrong_label(order, facts) {
        return refuse(AnswerReason::WrongContainer, &text);
    }
    match facts.state {
        ContainerState::Exited | ContainerState::Unknown if gives_back => Decision::Resize { runs: false },
        ContainerState::Unknown if order.action.resize.is_some() => {
            refuse(AnswerReason::NotRunning, "the runtime does not know whether the container runs")
        }
        ContainerState::Exited => refuse(AnswerReason::NotRunning, "the container has ended"),
        ContainerState::Created => Decision::Wait,
        // The controller has not seen the Pod yet: without the record, nothing would restore its resources.
        ContainerState::Running if order.action.resize.as_ref().is_some_and(forgets) => Decision::Wait,
        ContainerState::Running | ContainerState::Unknown if order.action.verify.is_some() => Decision::Read,
        ContainerState::Running if order.action.resize.is_some() => Decision::Resize { runs: true },
        ContainerState::Running | ContainerState::Unknown => {
            let asked = order.action.recreate.as_ref().and_then(|r| r.grace_period_seconds);
            // More would overflow in the runtime, which then kills at once.
            let grace_seconds = asked.or(facts.grace_seconds).unwrap_or(default_grace).clamp(0, MAX_SECONDS);
            // With a grace period of 0, the kubelet runs no hook.
            let handler = facts.pre_stop.as_deref().filter(|_| grace_seconds > 0);
            let hook = handler.map(|handler| hook::parse(handler, facts.ports.as_deref()));
            Decision::Stop { grace_seconds, hook }
        }
    }
}

fn refuse(reason: AnswerReason, text: &str) -> Decision {
    Decision::Refuse(reason, truncate(text, MAX_MESSAGE))
}

/// Which label names another Pod or container than the order, as a sentence; `None` if all match.
pub(crate) fn wrong_label(order: &Order, facts: &Facts) -> Option<String> {
    let labels = [
        ("namespace", &order.pod.namespace, &facts.namespace),
        ("pod", &order.pod.name, &facts.pod),
        ("uid", &order.pod.uid, &facts.pod_uid),
        ("container", &order.container.name, &facts.container),
    ];
    let (what, asked, found) = labels.into_iter().find(|(_, asked, found)| asked != found)?;
    let (found, asked) = (quoted(found), quoted(asked));
    Some(format!("the runtime's labels name {what} {found}, but the order names {asked}"))
}
