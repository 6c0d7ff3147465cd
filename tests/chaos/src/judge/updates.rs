//! What is wrong about image updates: what they say against what the containers wrote down.

use std::collections::BTreeSet;

use pitstop_api::image_update::Phase;

use super::{LEGAL_FAILURES, START, is_broken_off};
use crate::facts::{End, Facts, Pod, Update};
use crate::plan::{CRASHING, Images, Victim};
use crate::trace::{Entry, Event};

/// The reason of an end for want of an image.
const NOT_PULLED: &str = "PullFailed";

/// Image strings by which pitstop puts an old image back, beside the one that was there.
const OTHER_WAYS: usize = 3;

/// Why the update did not do what it says that it did, or what it had to do.
pub(super) fn lost(facts: &Facts, update: &Update) -> Vec<String> {
    if update.is_gone {
        return vec!["vanished".to_owned()];
    }
    if update.images == Images::Missing && !update.replaced.is_empty() {
        return vec!["the Pod was given images of which the registry has not all".to_owned()];
    }
    let Some(End { phase, reason }) = &update.end else { return Vec::new() };
    let is_late = *phase == Phase::Failed && LEGAL_FAILURES.contains(&reason.as_str());
    match (update.images, phase) {
        (Images::Good, Phase::Succeeded) => not_updated(facts, update),
        (Images::Good, Phase::RolledBack) if was_hit(facts, update) => Vec::new(),
        (Images::Crashing, Phase::RolledBack) => Vec::new(),
        (Images::Missing, Phase::Failed) if reason == NOT_PULLED => Vec::new(),
        _ if is_late => Vec::new(),
        (images, phase) => vec![format!("with images that are {images:?}: {} with {reason}", phase.name())],
    }
}

/// The containers of which no instance ran the version that the update says they got.
fn not_updated(facts: &Facts, update: &Update) -> Vec<String> {
    let Some(pod) = facts.pods.get(&update.pod) else { return Vec::new() };
    let wrong = update.wanted.iter().filter(|(container, version)| {
        let starts = starts(pod, container);
        let before = update.before.get(*container);
        let from = starts.iter().position(|entry| Some(&entry.id) == before).unwrap_or_default();
        !starts.iter().skip(from).any(|entry| entry.version == **version)
    });
    wrong
        .map(|(name, version)| format!("container {name}: reported to run {version}, which never ran"))
        .collect()
}

/// Whether who starts containers was killed on the Pod's node while the update went on: that may break off the start of the new
/// container, which then is put back.
fn was_hit(facts: &Facts, update: &Update) -> bool {
    let node = facts.pods.get(&update.pod).map(|pod| pod.node.as_str());
    let seen = update.seen.0..=update.seen.1;
    facts.kills.iter().any(|kill| match kill.victim {
        Victim::Kubelet(of) | Victim::Containerd(of) => Some(of) == node && seen.contains(&kill.time),
        _ => false,
    })
}

/// Containers that do not run in the end what the last update of them has left.
pub(super) fn left(pod: &Pod, updates: &[&Update]) -> Vec<String> {
    let mut wrong = Vec::new();
    let names: BTreeSet<&String> = updates.iter().flat_map(|u| u.replaced.keys()).collect();
    for name in names {
        let starts = starts(pod, name);
        let changed = updates.iter().filter_map(|update| {
            let id = update.replaced.get(name)?;
            let at = starts.iter().position(|entry| entry.id == *id)?;
            Some((at, update.seen, *update))
        });
        let Some((at, _, update)) = changed.max_by_key(|(at, seen, _)| (*at, *seen)) else { continue };
        let (Some(old), Some(end)) = (starts.get(at), &update.end) else { continue };
        let wanted = if end.phase == Phase::Succeeded { update.wanted.get(name) } else { Some(&old.version) };
        let runs = starts.last().map(|last| &last.version);
        if runs != wanted {
            let ended = end.phase.name();
            wrong.push(format!(
                "container {name}: runs {runs:?}, not {wanted:?} as its last update left it ({ended})"
            ));
        }
    }
    wrong
}

/// The instances that ended by the update: the one that it replaced, and if it was put back its new one; and of what crashes, all.
pub(super) fn ends<'a>(facts: &Facts, pod: &'a Pod, update: &Update) -> Vec<&'a Entry> {
    let mut ends = Vec::new();
    for (name, id) in update.replaced.iter().filter(|_| update.images != Images::Missing) {
        let starts = starts(pod, name);
        let Some(at) = replaced_at(facts, update, &starts, name, id) else { continue };
        let mut later = starts.into_iter().skip(at);
        let Some(mut old) = later.next() else { continue };
        ends.push(old);
        let mut later = later.peekable();
        // One whose start was broken off comes up once more with its old image.
        while is_broken_off(facts, pod, &old.id)
            && let Some(again) = later.next_if(|entry| entry.version == old.version)
        {
            old = again;
            ends.push(old);
        }
        let is_put_back = update.end.as_ref().is_none_or(|end| end.phase != Phase::Succeeded);
        let Some(wanted) = update.wanted.get(name).filter(|_| is_put_back) else { continue };
        let mut later = later.skip_while(|entry| is_broken_off(facts, pod, &entry.id)).peekable();
        // What crashes is started again and again.
        let most = if wanted == CRASHING { usize::MAX } else { 1 };
        let is_new = |entry: &&Entry| entry.version == *wanted;
        ends.extend(std::iter::from_fn(|| later.next_if(is_new)).take(most));
        // While the kubelet keeps the old image waiting, other strings are written for it. It may have started it by the one before
        // just then.
        let again =
            later.take_while(|entry| entry.version == old.version && is_replaced_at_once(pod, &entry.id));
        ends.extend(again.take(OTHER_WAYS));
    }
    ends
}

/// Where among the starts of a container the instance is that the update replaced. If a kill broke off its start before it wrote a
/// line, the kubelet starts the old image once more, after the instance before.
fn replaced_at(facts: &Facts, update: &Update, starts: &[&Entry], name: &str, id: &str) -> Option<usize> {
    let position = |id: &str| starts.iter().position(|entry| entry.id == id);
    position(id).or_else(|| {
        let before = position(update.before.get(name)?)?;
        let again = before + 1;
        let is_same = starts.get(again)?.version == starts.get(before)?.version;
        (is_same && was_hit(facts, update)).then_some(again)
    })
}

/// Whether the kubelet stopped the instance as soon as it had started it.
fn is_replaced_at_once(pod: &Pod, id: &str) -> bool {
    let mut lines = pod.trace.iter().filter(|entry| entry.id == id);
    let Some((start, next)) = lines.next().zip(lines.next()) else { return false };
    next.time.saturating_sub(start.time) <= START
}

/// The instances of a container that were started, in order.
fn starts<'a>(pod: &'a Pod, container: &str) -> Vec<&'a Entry> {
    let started = |entry: &&Entry| entry.event == Event::Started && entry.container == container;
    pod.trace.iter().filter(started).collect()
}

#[cfg(test)]
#[path = "updates_tests.rs"]
mod tests;
