//! Rollouts as items.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use pitstop_api::rollout::{InPlaceRollout, InPlaceRolloutStatus, Phase, PodState, Roll, TagMeaning, Update};

use super::requests::{change, milliseconds, short_digest};
use super::{Item, MOST_TEXT, Mark, Part};
use crate::plain;
use crate::summary::{Progress, summary};

/// A rollout in one line, with its progress in the next ones.
pub(super) fn rollout(rollout: &InPlaceRollout) -> Item {
    let summary = summary(rollout);
    let name = plain::line(&format!("inplacerollout/{}", rollout.name_any()), 300);
    let item = Item::of(name, &summary);
    let mark = if summary.phase == Phase::Paused.name() { Mark::Waiting } else { item.mark };
    let item = Item { mark, ..item };
    let Some(status) = &rollout.status else { return item };
    let open = summary.progress == Progress::Open;
    let mut items = Vec::new();
    items.extend(counts(status, item.mark));
    if let Some(of) = &status.update {
        items.push(update(of));
        items.extend(of.images.iter().map(image));
    }
    if let Some(restart) = &status.restart {
        items.push(Item { text: plain::line(&restart.restarted_at, 64), ..Item::new("restart") });
    }
    if open && item.mark == Mark::Working && status.pods > 0 {
        items.push(detail("steps", steps(rollout)));
    }
    if let Some(last) = status.history.first() {
        items.push(ended(last));
        items.extend(gap(last).filter(|_| !open));
    }
    Item { items, ..item }
}

/// The same, with the Pods that its status names: for a tree without Pods of its own.
pub(super) fn with_pods(of: &InPlaceRollout) -> Item {
    let mut item = rollout(of);
    let pods = of.status.iter().flat_map(|status| &status.pods_of_interest);
    item.items.extend(pods.map(|pod| {
        let (mark, reason) = match pod.state {
            PodState::Failed => (Mark::Failed, "Failed"),
            PodState::Started => (Mark::Working, "Started"),
        };
        let text = request_text(&pod.request, &pod.message);
        Item {
            mark,
            reason: reason.to_owned(),
            text,
            ..Item::new(plain::line(&format!("pod/{}", pod.name), 260))
        }
    }));
    item
}

/// A request's name and message.
pub(super) fn request_text(request: &str, message: &str) -> String {
    let text = if message.is_empty() { request.to_owned() } else { format!("{request}: {message}") };
    plain::line(&text, MOST_TEXT)
}

fn detail(name: &str, text: String) -> Item {
    Item { text, part: Part::Detail, ..Item::new(name) }
}

fn counts(status: &InPlaceRolloutStatus, mark: Mark) -> Option<Item> {
    let InPlaceRolloutStatus { pods, current, started, failed, .. } = status;
    let waiting = pods.saturating_sub(current.saturating_add(*started).saturating_add(*failed)).max(0);
    let text = format!("{current} of {pods} done, {started} at work, {failed} failed, {waiting} waiting");
    let mark = if *failed > 0 { Mark::Failed } else { mark };
    (*pods > 0).then(|| Item { mark, text, ..Item::new("Pods") })
}

fn update(update: &Update) -> Item {
    let from = update.from.as_ref().map(|from| plain::line(from, 63));
    let direction = if update.rolling_back { " (rolling back)" } else { "" };
    let text = format!("{}{direction}", change(from, Some(plain::line(&update.revision, 63))));
    let reason = update.ended.map(|end| end.name().to_owned()).unwrap_or_default();
    Item { reason, text, ..Item::new("update") }
}

fn image(of: &TagMeaning) -> Item {
    detail("image", plain::line(&format!("{} is {}", of.image, short_digest(&of.digest)), MOST_TEXT))
}

/// The strategy.
fn steps(rollout: &InPlaceRollout) -> String {
    let strategy = rollout.spec.strategy.as_ref();
    let most = strategy.and_then(|strategy| strategy.max_unavailable.as_ref()).map(|most| match &most.0 {
        IntOrString::Int(number) => format!("at most {number} unavailable"),
        IntOrString::String(share) => format!("at most {} unavailable", plain::line(share, 8)),
    });
    let canary = rollout.spec.canary().map(|canary| {
        let soak = canary.soak_seconds.map(|soak| format!(" (soak {soak} s)")).unwrap_or_default();
        format!("canary {}{soak}", canary.pods)
    });
    let soak = format!("soak {} s", rollout.spec.soak());
    most.into_iter().chain(canary).chain([soak]).collect::<Vec<_>>().join(", ")
}

/// The restart or update that ended last.
fn ended(roll: &Roll) -> Item {
    let result = serde_json::to_value(roll.result).ok();
    let result = result.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    let of = match (&roll.revision, &roll.restarted_at) {
        (Some(revision), _) => format!(", {}", change(roll.from.clone(), Some(revision.clone()))),
        (None, Some(at)) => format!(", restart {at}"),
        (None, None) => String::new(),
    };
    let text = plain::line(&format!("{} of {} Pods{of}", roll.current, roll.pods), MOST_TEXT);
    Item { reason: result.to_owned(), since: Some(roll.completed_at), ..detail("last", text) }
}

/// For how long its Pods were not ready.
fn gap(roll: &Roll) -> Option<Item> {
    let gap = roll.service_gap?;
    let (median, most) = (milliseconds(gap.median_milliseconds), milliseconds(gap.maximum_milliseconds));
    Some(Item {
        text: format!("{median} (median of {}), {most} (longest)", gap.measured),
        ..Item::new("gap")
    })
}
