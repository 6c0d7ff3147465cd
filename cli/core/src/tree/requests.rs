//! Requests as items.

use chrono::{DateTime, Utc};
use kube::{Resource, ResourceExt as _};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::InPlaceRollout;

use super::rollout::{rollout, with_pods};
use super::{Item, MOST_TEXT, Mark, Objects, Part};
use crate::plain;
use crate::summary::{Progress, Request, summary};

/// Every request that is open, and every rollout; those that have failed first.
pub(super) fn open(objects: &Objects) -> Vec<Item> {
    let open = of_pods(objects).filter(|item| item.mark == Mark::Working);
    let mut items: Vec<Item> = open.chain(objects.rollouts.iter().map(rollout)).collect();
    items.sort_by(|one, other| (one.mark, &one.name).cmp(&(other.mark, &other.name)));
    items
}

/// Every request; rollouts with the Pods that they are at work with.
pub(super) fn all(objects: &Objects) -> Vec<Item> {
    of_pods(objects).chain(objects.rollouts.iter().map(with_pods)).collect()
}

/// All requests for single Pods.
fn of_pods(objects: &Objects) -> impl Iterator<Item = Item> {
    let restarts = objects.restarts.iter().map(|it| with_pod(restart(it), &it.spec.pod_name));
    let resizes = objects.resizes.iter().map(|it| with_pod(resize(it), &it.spec.pod_ref.name));
    let updates = objects.updates.iter().map(|it| with_pod(update(it), &it.spec.pod_ref.name));
    restarts.chain(resizes).chain(updates)
}

/// The open requests for a Pod.
pub(super) fn of_pod(objects: &Objects, pod: &str) -> Vec<Item> {
    every_of_pod(objects, pod).filter(|item| item.mark == Mark::Working).collect()
}

/// The request for a Pod that ended last, if it failed.
pub(super) fn failed_last(objects: &Objects, pod: &str) -> Option<Item> {
    let ended = every_of_pod(objects, pod).filter(|item| item.mark != Mark::Working);
    ended.max_by_key(|item| item.since).filter(|item| item.mark == Mark::Failed)
}

fn every_of_pod<'a>(objects: &'a Objects, pod: &'a str) -> impl Iterator<Item = Item> + 'a {
    let restarts = objects.restarts.iter().filter(move |it| it.spec.pod_name == pod).map(restart);
    let resizes = objects.resizes.iter().filter(move |it| it.spec.pod_ref.name == pod).map(resize);
    let updates = objects.updates.iter().filter(move |it| it.spec.pod_ref.name == pod).map(update);
    restarts.chain(resizes).chain(updates)
}

/// A request of that rollout for the Pod has done its work.
pub(super) fn is_done_by(objects: &Objects, rollout: &InPlaceRollout, pod: &str) -> bool {
    fn done<R: Request>(request: &R, rollout: &InPlaceRollout) -> bool {
        let mut owners = request.meta().owner_references.iter().flatten();
        let own = owners.any(|owner| Some(&owner.uid) == rollout.metadata.uid.as_ref());
        own && summary(request).progress == Progress::Succeeded
    }
    objects.restarts.iter().any(|it| it.spec.pod_name == pod && done(it, rollout))
        || objects.updates.iter().any(|it| it.spec.pod_ref.name == pod && done(it, rollout))
}

fn request_item<R: Request>(request: &R) -> Item {
    let summary = summary(request);
    let name = format!("{}/{}", R::KIND.singular(), request.name_any());
    let item = Item::of(plain::line(&name, 300), &summary);
    let since = if summary.progress == Progress::Open { created(request).or(item.since) } else { item.since };
    Item { since, ..item }
}

/// The item of a request, with its Pod.
fn with_pod(item: Item, pod: &str) -> Item {
    let pod = plain::line(pod, 253);
    let text = if item.text.is_empty() { format!("Pod {pod}") } else { format!("Pod {pod}: {}", item.text) };
    Item { text, ..item }
}

/// When an object was made, on the API server's clock.
pub(super) fn created<K: Resource>(object: &K) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(object.meta().creation_timestamp.as_ref()?.0.as_second(), 0)
}

/// A container of a request.
fn detail(container: &str) -> Item {
    Item { part: Part::Detail, ..Item::new(plain::line(container, 63)) }
}

fn restart(request: &ContainerRecreateRequest) -> Item {
    let item = request_item(request);
    let status = request.status.as_ref();
    let parts = status.map(|status| status.container_recreate_states.as_slice()).unwrap_or_default();
    let target = status.and_then(|status| status.target.as_ref());
    let snapshot = status.map(|status| status.container_status_snapshot.as_slice()).unwrap_or_default();
    let container = |state: &pitstop_api::recreate::ContainerRecreateState| {
        use pitstop_api::recreate::Phase;
        let mark = match state.phase {
            Phase::Pending => Mark::Waiting,
            Phase::Recreating => Mark::Working,
            Phase::Failed => Mark::Failed,
            Phase::Succeeded | Phase::Completed => Mark::Done,
        };
        let old = target.and_then(|target| target.containers.iter().find(|it| it.name == state.name));
        let new = snapshot.iter().find(|it| it.name == state.name);
        let ids = change(
            old.map(|it| short_id(&it.container_id)),
            new.map(|it| short_id(&it.container_id)).filter(|_| mark == Mark::Done),
        );
        let text = if state.message.is_empty() { ids } else { plain::line(&state.message, MOST_TEXT) };
        let reason = state.phase.name().to_owned();
        Item { mark, reason, text, ..detail(&state.name) }
    };
    Item { items: parts.iter().map(container).collect(), ..item }
}

fn resize(request: &PodResize) -> Item {
    let item = request_item(request);
    let containers = request.status.as_ref().map(|it| it.containers.as_slice()).unwrap_or_default();
    let container = |of: &pitstop_api::resize::ContainerStatus| {
        let shown = |values: &pitstop_api::resize::Values| {
            let amounts = |of: &pitstop_api::resize::Amounts| {
                let known = [("cpu", &of.cpu), ("memory", &of.memory)];
                let known =
                    known.into_iter().filter_map(|(name, of)| Some(format!("{name}={}", of.as_ref()?)));
                known.collect::<Vec<_>>().join(",")
            };
            format!("requests {} limits {}", amounts(&values.requests), amounts(&values.limits))
        };
        let text = change(Some(shown(&of.original)), Some(shown(&of.desired)));
        Item { mark: item.mark, text: plain::line(&text, MOST_TEXT), ..detail(&of.name) }
    };
    let items = containers.iter().map(container).collect();
    Item { items, ..item }
}

fn update(request: &PodImageUpdate) -> Item {
    let item = request_item(request);
    let status = request.status.as_ref();
    let containers = status.map(|it| it.containers.as_slice()).unwrap_or_default();
    let container = |of: &pitstop_api::image_update::ContainerStatus| {
        let wanted = request.spec.containers.iter().find(|it| it.name == of.name);
        let pulled = of.pulled.as_ref().map(|it| it.digest.as_str()).unwrap_or_default();
        let image = wanted.map(|it| image(&it.image, pulled));
        let text = change(Some(self::image(&of.before.image, &of.before.image_id)), image);
        Item { mark: item.mark, text: plain::line(&text, MOST_TEXT), ..detail(&of.name) }
    };
    let gap = status.and_then(|it| it.gap_milliseconds).map(|gap| format!(" · gap {}", milliseconds(gap)));
    let items = containers.iter().map(container).collect();
    Item { items, text: format!("{}{}", item.text, gap.unwrap_or_default()), ..item }
}

/// `old -> new`, as far as they are known.
pub(super) fn change(old: Option<String>, new: Option<String>) -> String {
    match (old.filter(|it| !it.is_empty()), new.filter(|it| !it.is_empty())) {
        (Some(old), Some(new)) => format!("{old} -> {new}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => String::new(),
    }
}

/// The first 12 digits of a container's ID, as the runtimes' own tools show it.
pub(crate) fn short_id(reference: &str) -> String {
    let id = reference.rsplit_once("://").map_or(reference, |(_, id)| id);
    plain::line(id, 64).chars().take(12).collect()
}

/// An image, and the first digits of its digest if that is known and the image does not name it.
fn image(name: &str, digest: &str) -> String {
    let digest = short_digest(digest);
    if digest.is_empty() || name.contains('@') { name.to_owned() } else { format!("{name} ({digest})") }
}

/// The first 12 digits of a digest.
pub(super) fn short_digest(digest: &str) -> String {
    let digits = digest.rsplit_once(':').map_or(digest, |(_, digits)| digits);
    plain::line(digits, 64).chars().take(12).collect()
}

pub(super) fn milliseconds(of: i64) -> String {
    format!("{}.{} s", of.max(0) / 1_000, of.max(0) % 1_000 / 100)
}
