//! What the node's daemon is asked: one order for each container, from the acceptance of the request to its end.

use pitstop_api::id::split_reference;
use pitstop_api::image_update::{ContainerStatus, Pull as Wanted};
use pitstop_api::nodework::{
    AnswerReason, AnswerState, ImageAnswer, Order, OrderContainer, OrderId, OrderPod, Pull, Pulled,
};

use super::observe::Observed;
use super::status::{self, End};
use crate::nodework::{OrderView, newest};
use crate::pod::{Container, Pod};

/// How far a pull is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The node has the image.
    Pulled(Pulled),
    /// There is nothing to be stopped, and so nothing to be asked.
    Unneeded,
    /// The daemon has not said a word.
    Unanswered,
    /// It is at work: its words.
    Underway(String),
    /// It has failed: the reason, and the daemon's words.
    Failed(End),
}

/// How far the pull for that container is.
pub(super) fn stage(observed: &Observed<'_>, container: &ContainerStatus) -> Stage {
    let in_pod = observed.pod.and_then(|pod| pod.container(&container.name));
    if instance(container, in_pod).is_none() {
        return Stage::Unneeded;
    }
    let Some(answer) = newest(&observed.orders, &container.name).and_then(|view: OrderView<'_>| view.answer)
    else {
        return Stage::Unanswered;
    };
    let said = |text: &str| format!("container {}: {text}", container.name);
    let pulled = answer.image.as_ref().and_then(|image| image.pulled.clone());
    match (answer.state, pulled) {
        (AnswerState::Done, Some(pulled)) => Stage::Pulled(pulled),
        (AnswerState::Acknowledged | AnswerState::Done, _) => Stage::Underway(said(&answer.message)),
        (AnswerState::Refused | AnswerState::Failed, _) => {
            let reason = match answer.reason {
                Some(AnswerReason::PullUnauthorized) => status::CANNOT_PROVE,
                Some(AnswerReason::NoDiskRoom) => status::NO_ROOM,
                _ => status::PULL_FAILED,
            };
            Stage::Failed(End::failed(reason, said(&answer.message)))
        }
    }
}

/// What the daemon has told of a container's image.
pub(super) fn told<'a>(observed: &Observed<'a>, container: &str) -> Option<&'a ImageAnswer> {
    newest(&observed.orders, container)?.answer?.image.as_deref()
}

/// The instance that was there when the request was accepted, else the one that has come up since.
fn instance(container: &ContainerStatus, in_pod: Option<&Container>) -> Option<String> {
    let now = in_pod.and_then(|in_pod| in_pod.status.as_ref()).map(|now| now.container_id.as_str());
    let names = [Some(container.before.container_id.as_str()), now];
    names.into_iter().flatten().find_map(|name| split_reference(name).ok().map(|(_, id)| id.into()))
}

/// The orders that the request wants: to pull, and then to tell what runs. Where the pull is the kubelet's, the daemon is
/// asked what the node has once the new containers are there.
pub(super) fn wanted(observed: &Observed<'_>, pod: &Pod) -> Vec<Order> {
    let update = observed.update;
    let spec = &update.spec;
    let of = |container: &ContainerStatus| {
        let placed = observed.orders.iter().find(|view| view.order.container.name == container.name);
        // An order never changes, though another instance may be there by now.
        let named = placed.map(|view| view.order.container.id.clone());
        let in_pod = pod.container(&container.name)?;
        let id = named.or_else(|| instance(container, Some(in_pod)))?;
        let wanted = spec.containers.iter().find(|wanted| wanted.name == container.name)?;
        let replaced = in_pod.status.as_ref().is_some_and(|now| {
            !now.container_id.is_empty() && now.container_id != container.before.container_id
        });
        let failed = || {
            let first = observed
                .orders
                .iter()
                .find(|view| view.order.container.name == container.name && view.attempt() == 1);
            let over = [AnswerState::Failed, AnswerState::Refused];
            first.and_then(|view| view.answer).is_some_and(|answer| over.contains(&answer.state))
        };
        let asked_later = observed
            .orders
            .iter()
            .any(|view| view.order.container.name == container.name && view.attempt() == 2);
        let later = match spec.pull() {
            Wanted::Required => false,
            Wanted::IfPossible => asked_later || (replaced && update.changes() && failed()),
            Wanted::Skip => replaced && update.changes(),
        };
        if spec.pull() == Wanted::Skip && !later {
            return None;
        }
        let (image, policy, attempt) = if later {
            // What the node's kubelet has pulled by now, or nobody has.
            (in_pod.image.clone(), pitstop_api::nodework::PullPolicy::Never, 2)
        } else {
            (wanted.image.clone(), in_pod.pull_policy, 1)
        };
        Some(Order {
            id: OrderId { owner: &update.uid, container: &container.name, attempt }.to_string(),
            pod: OrderPod {
                namespace: pod.key.namespace.clone(),
                name: pod.key.name.clone(),
                uid: pod.uid.clone(),
            },
            container: OrderContainer { name: container.name.clone(), id },
            action: Pull::new(image, policy, spec.pull_timeout()).into(),
            ..Order::default()
        })
    };
    update.status.containers.iter().filter_map(of).collect()
}
