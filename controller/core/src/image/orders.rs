//! Orders for the node's daemon: one for each container, from the acceptance of the request until the kubelet reports
//! that the new container runs the pulled image, or until the request ends.

use pitstop_api::id::split_reference;
use pitstop_api::image_update::{ContainerStatus, Pull as Wanted};
use pitstop_api::nodework::{
    AnswerReason, AnswerState, ImageAnswer, Order, OrderContainer, OrderId, OrderPod, Pull, PullPolicy,
    Pulled,
};

use super::judge::is_pulled;
use super::observe::Observed;
use super::puller::{has_pulled, is_own};
use super::status::{self, End};
use crate::nodework::{OrderView, newest};
use crate::pod::{Container, Pod};

/// Most orders about one container.
const MAX_ATTEMPTS: u32 = 5;

/// How far a pull is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The node has the image.
    Pulled(Pulled),
    /// No instance can be stopped, so nothing is asked.
    Unneeded,
    /// The daemon has not answered.
    Unanswered,
    /// The daemon pulls.
    Pulls,
    /// The daemon is at work and reports a problem: its message.
    Underway(String),
    /// The registry requires credentials, or says without them that the image does not exist. Holds the end of the
    /// request if no puller Pod pulls the image, with the daemon's message.
    Unauthorized(End),
    /// The pull has failed: the reason, and the daemon's message.
    Failed(End),
}

/// How far the pull for that container is.
pub(super) fn stage(observed: &Observed<'_>, container: &ContainerStatus) -> Stage {
    let in_pod = observed.pod.and_then(|pod| pod.container(&container.name));
    if instance(container, in_pod).is_none() {
        return Stage::Unneeded;
    }
    let last = newest(&observed.orders, &container.name);
    if let Some(pulled) = observed.proven(&container.name).filter(|_| last.is_none()) {
        return Stage::Pulled(pulled.clone());
    }
    let Some((last, answer)) = last.and_then(|view: OrderView<'_>| Some((view, view.answer?))) else {
        return Stage::Unanswered;
    };
    let message = |text: &str| format!("container {}: {text}", container.name);
    let pulled = answer.image.as_ref().and_then(|image| image.pulled.clone());
    match (answer.state, pulled) {
        (AnswerState::Done, Some(pulled)) => Stage::Pulled(pulled),
        (AnswerState::Acknowledged, _) if answer.reason == Some(AnswerReason::Pulling) => Stage::Pulls,
        (AnswerState::Acknowledged | AnswerState::Done, _) => Stage::Underway(message(&answer.message)),
        (AnswerState::Refused | AnswerState::Failed, _) => {
            let ends = |reason| End::failed(reason, message(&answer.message));
            match answer.reason {
                Some(AnswerReason::PullUnauthorized) => Stage::Unauthorized(ends(status::CANNOT_PROVE)),
                // The node had it from a puller Pod.
                Some(AnswerReason::ImageNeverPull) if lost_image(last, container) => {
                    Stage::Unauthorized(ends(status::CANNOT_PROVE))
                }
                // Registries hide private images: they say that the image does not exist.
                Some(AnswerReason::PullFailed) if observed.pod.is_some_and(|pod| pod.pull_secrets) => {
                    Stage::Unauthorized(ends(status::PULL_FAILED))
                }
                Some(AnswerReason::NoDiskRoom) => Stage::Failed(ends(status::NO_ROOM)),
                _ => Stage::Failed(ends(status::PULL_FAILED)),
            }
        }
    }
}

/// The node had the image from a puller Pod and lost it: garbage collection removes images that no container uses.
fn lost_image(last: OrderView<'_>, container: &ContainerStatus) -> bool {
    (2..MAX_ATTEMPTS).contains(&last.attempt()) && container.pulled.is_some()
}

/// The daemon's report on a container's image.
pub(super) fn report<'a>(observed: &Observed<'a>, container: &str) -> Option<&'a ImageAnswer> {
    newest(&observed.orders, container)?.answer?.image.as_deref()
}

/// The instance at the acceptance of the request or, without one, the instance that has started since.
fn instance(container: &ContainerStatus, in_pod: Option<&Container>) -> Option<String> {
    let now = in_pod.and_then(|in_pod| in_pod.status.as_ref()).map(|now| now.container_id.as_str());
    let names = [Some(container.before.container_id.as_str()), now];
    names.into_iter().flatten().find_map(|name| split_reference(name).ok().map(|(_, id)| id.into()))
}

/// The daemon is asked again whether the node has a container's image.
pub(super) fn is_asked_again(observed: &Observed<'_>, container: &str) -> bool {
    newest(&observed.orders, container).is_some_and(|view| view.attempt() > 1)
}

/// The orders that the request wants: to pull, and then to report what runs. If the kubelet pulls, by a puller Pod or
/// for the new containers, the daemon is asked afterwards what the node has.
pub(super) fn wanted(observed: &Observed<'_>, pod: &Pod) -> Vec<Order> {
    let update = observed.update;
    let of = |container: &ContainerStatus| {
        let (attempt, pull) = pull(observed, container, pod)?;
        let mut placed = observed.orders.iter().filter(|view| view.order.container.name == container.name);
        let named = placed.clone().next().map(|view| view.order.container.id.clone());
        // An order never changes, whatever a newer controller has put into it.
        if let Some(existing) = placed.find(|view| view.attempt() == attempt) {
            return Some(existing.order.clone());
        }
        // Nor does its instance, though another one may exist by now.
        let id = named.or_else(|| instance(container, pod.container(&container.name)))?;
        Some(Order {
            id: OrderId { owner: &update.uid, container: &container.name, attempt }.to_string(),
            pod: OrderPod {
                namespace: pod.key.namespace.clone(),
                name: pod.key.name.clone(),
                uid: pod.uid.clone(),
            },
            container: OrderContainer { name: container.name.clone(), id },
            action: pull.into(),
            ..Order::default()
        })
    };
    update.status.containers.iter().filter_map(of).collect()
}

/// What to ask about a container's image, and the attempt number.
fn pull(observed: &Observed<'_>, container: &ContainerStatus, pod: &Pod) -> Option<(u32, Pull)> {
    let update = observed.update;
    let (spec, name) = (&update.spec, &container.name);
    let wanted = spec.containers.iter().find(|wanted| wanted.name == *name)?;
    let in_pod = pod.container(name)?;
    let last = newest(&observed.orders, name);
    let asks = |image: &String, policy| Pull::new(image.clone(), policy, spec.pull_timeout());
    let attempt = last.map_or(1, |last| last.attempt());
    let refused = matches!(stage(observed, container), Stage::Unauthorized(_));
    let by_puller = observed.puller.filter(|puller| is_own(update, puller) && refused);
    if by_puller.is_some_and(|puller| has_pulled(puller, name)) && !update.changes() {
        return Some((attempt.saturating_add(1), asks(&wanted.image, PullPolicy::Never)));
    }
    // An order never changes.
    let repeated = last.filter(|last| last.attempt() > 1);
    if let Some(existing) = repeated.and_then(|last| last.order.action.pull.clone()) {
        return Some((attempt, existing));
    }
    let replaced = in_pod
        .status
        .as_ref()
        .is_some_and(|now| !now.container_id.is_empty() && now.container_id != container.before.container_id);
    let failed = || {
        let over = [AnswerState::Failed, AnswerState::Refused];
        last.and_then(|last| last.answer).is_some_and(|answer| over.contains(&answer.state))
    };
    // The kubelet's report that it runs the proven image suffices; otherwise the daemon is asked.
    let is_proven = match &container.pulled {
        Some(pulled) if update.changes() => {
            !replaced || in_pod.status.as_ref().is_some_and(|now| is_pulled(&now.image_id, pulled))
        }
        _ => observed.proven(name).is_some(),
    };
    if last.is_none() && is_proven {
        return None;
    }
    // Before the Pod has the new image, a replaced container runs the old one.
    let later = replaced && update.changes() && in_pod.image == container.written;
    if spec.pull() == Wanted::Skip && !later {
        return None;
    }
    Some(if later && (spec.pull() == Wanted::Skip || failed()) {
        // Whether the node's kubelet has pulled the image by now.
        (2, asks(&in_pod.image, PullPolicy::Never))
    } else {
        (1, asks(&wanted.image, in_pod.pull_policy))
    })
}
