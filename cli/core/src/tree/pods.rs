//! Pods as items: those of a workload by node, or one with its containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use pitstop_api::rollout::{InPlaceRollout, POD_REVISION, PodState, UpdateEnd};

use super::requests::{change, created, failed_last, is_done_by, of_pod, short_id};
use super::rollout::{request_text, rollout};
use super::{Item, Mark, Objects, Part};
use crate::plain;
use crate::ready::is_ready;
use crate::summary::{Progress, summary};

/// A workload: its rollouts, and its Pods by node.
pub(super) fn workload(name: &str, objects: &Objects) -> Item {
    let mut items: Vec<Item> = objects.rollouts.iter().map(rollout).collect();
    let mut nodes: BTreeMap<String, Vec<Item>> = BTreeMap::new();
    let acting = objects.rollouts.first();
    for pod in &objects.pods {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let node = node.map_or_else(|| "no node yet".to_owned(), |node| plain::line(&node, 253));
        let pod = Item { part: Part::Pod, ..member(pod, acting, objects) };
        nodes.entry(node).or_default().push(pod);
    }
    items.extend(nodes.into_iter().map(|(node, mut pods)| {
        pods.sort_by(|one, other| (one.mark, &one.name).cmp(&(other.mark, &other.name)));
        let quiet = pods.iter().all(|pod| pod.quiet);
        Item { items: pods, part: Part::Node, quiet, ..Item::new(node) }
    }));
    let mark = items.iter().take(objects.rollouts.len()).map(|item| item.mark).min().unwrap_or_default();
    let text = if objects.rollouts.is_empty() { "has no InPlaceRollout" } else { "" };
    Item { mark, items, text: text.to_owned(), ..Item::new(name) }
}

/// A Pod of a workload: with its open requests, or in one line.
fn member(pod: &Pod, acting: Option<&InPlaceRollout>, objects: &Objects) -> Item {
    let name = plain::line(&pod.name_any(), 253);
    let items = of_pod(objects, &pod.name_any());
    let interest = acting.and_then(|it| it.status.as_ref()).map(|it| it.pods_of_interest.as_slice());
    let interest = interest.unwrap_or_default().iter().find(|it| it.name == pod.name_any());
    if let Some(failed) = interest.filter(|it| it.state == PodState::Failed) {
        let text = request_text(&failed.request, &failed.message);
        return Item { mark: Mark::Failed, reason: "Failed".to_owned(), text, items, ..Item::new(name) };
    }
    let ready = is_ready(pod);
    let mut requests = items.into_iter();
    if let Some(first) = requests.next() {
        return at_work(name, ready, first, requests.collect());
    }
    let mark = match acting {
        _ if !ready => Mark::NotReady,
        Some(acting) if is_newer(pod, acting) => Mark::Plain,
        Some(acting) if is_current(pod, acting) || is_done_by(objects, acting, &pod.name_any()) => Mark::Done,
        Some(acting) if is_under_way(acting) => Mark::Waiting,
        _ => Mark::Plain,
    };
    let text = if ready { String::new() } else { not_ready(pod) };
    Item { mark, text, quiet: ready, since: (!ready).then(|| created(pod)).flatten(), ..Item::new(name) }
}

/// A Pod with open requests. Its line shows the first; the containers of that and the other requests are below.
fn at_work(name: String, ready: bool, first: Item, others: Vec<Item>) -> Item {
    let text = if ready { first.text } else { format!("not ready; {}", first.text) };
    let items = first.items.into_iter().chain(others).collect();
    Item { mark: Mark::Working, since: first.since, reason: first.reason, text, items, ..Item::new(name) }
}

/// The rollout has Pods left.
fn is_under_way(acting: &InPlaceRollout) -> bool {
    let status = acting.status.as_ref();
    summary(acting).progress == Progress::Open
        && status.is_some_and(|status| status.current < status.pods || status.restart.is_some())
}

/// The Pod was made after the restart began: the restart leaves it alone.
fn is_newer(pod: &Pod, acting: &InPlaceRollout) -> bool {
    let restart = acting.status.as_ref().and_then(|status| status.restart.as_ref());
    let newest = restart.and_then(|restart| restart.newest_pod);
    newest.is_some_and(|newest| created(pod).is_some_and(|made| made > newest))
}

/// The Pod has the revision of the last update, by its annotation or label. A Deployment's Pod with neither has
/// the template of its ReplicaSet: it counts once the update has succeeded.
fn is_current(pod: &Pod, acting: &InPlaceRollout) -> bool {
    let update = acting.status.as_ref().and_then(|status| status.update.as_ref());
    let label = pod.labels().get("controller-revision-hash");
    let revision = pod.annotations().get(POD_REVISION).or(label);
    update.is_some_and(|update| {
        revision.map_or(update.ended == Some(UpdateEnd::Updated), |revision| *revision == update.revision)
    })
}

/// One Pod with all of its containers, and the requests for it.
pub(super) fn single(pod: &Pod, objects: &Objects) -> Item {
    let spec = pod.spec.as_ref();
    let node = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node yet");
    let mark = if is_ready(pod) { Mark::Plain } else { Mark::NotReady };
    let text = if is_ready(pod) { "ready".to_owned() } else { not_ready(pod) };
    let text = format!("on {}, {text}", plain::line(node, 253));
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let sidecars = init.iter().filter(|it| it.restart_policy.as_deref() == Some("Always"));
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let containers = sidecars.chain(main).map(|it| container(pod, &it.name, it.image.as_deref()));
    let requests = of_pod(objects, &pod.name_any());
    let failed = failed_last(objects, &pod.name_any());
    let items = containers.chain(requests).chain(failed).collect();
    let name = plain::line(&format!("pod/{}", pod.name_any()), 260);
    Item { mark, text, items, since: created(pod), ..Item::new(name) }
}

fn container(pod: &Pod, name: &str, image: Option<&str>) -> Item {
    let status = status(pod, name);
    let state = status.and_then(|it| it.state.as_ref());
    let waiting = state.and_then(|it| it.waiting.as_ref());
    let ended = state.and_then(|it| it.terminated.as_ref());
    let reason = waiting.and_then(|it| it.reason.clone()).or_else(|| ended.and_then(|it| it.reason.clone()));
    let running = state.and_then(|it| it.running.as_ref()).and_then(|it| it.started_at.as_ref());
    let since = running.and_then(|at| chrono::DateTime::from_timestamp(at.0.as_second(), 0));
    let ready = status.is_some_and(|it| it.ready);
    let id = status.and_then(|it| it.container_id.as_deref()).map(short_id).unwrap_or_default();
    let image = image.map(|image| format!("{}, ", plain::line(image, 200))).unwrap_or_default();
    let restarts = status.map(|it| it.restart_count).unwrap_or_default();
    let text = format!("{image}{restarts} restarts{}", if id.is_empty() { id } else { format!(", {id}") });
    let mark = if ready { Mark::Plain } else { Mark::NotReady };
    let reason = plain::line(&reason.unwrap_or_default(), 128);
    Item { mark, since, reason, text, ..Item::new(plain::line(name, 63)) }
}

fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let main = status.container_statuses.iter().flatten();
    main.chain(status.init_container_statuses.iter().flatten()).find(|it| it.name == name)
}

/// Why a Pod is not ready, by its condition.
fn not_ready(pod: &Pod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "is being deleted".to_owned();
    }
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|it| it.type_ == "Ready");
    let why = change(None, ready.and_then(|it| it.message.clone()));
    if why.is_empty() { "not ready".to_owned() } else { format!("not ready: {}", plain::line(&why, 200)) }
}
