//! Answers about an image: whether it is allowed, and what the node has.

use pitstop_api::condition::truncate;
use pitstop_api::image::Reference;
use pitstop_api::nodework::{AnswerReason, Order, Pulled, Running};
use pitstop_api::text::quoted;

use super::{Image, NamedContainer, NewestContainer};
use crate::decision::wrong_label;

/// Longest image ID in an answer, in characters: the bound of the `NodeWork`.
const MAX_ID: usize = 256;

/// Why an order may not pull its image: the container must already run an image of that repository.
pub(super) fn refused(
    order: &Order,
    wanted: &Reference,
    known: Option<&NamedContainer>,
) -> Option<(AnswerReason, String)> {
    let Some(named) = known else {
        return Some((AnswerReason::NotRunning, "the runtime knows no container of that ID".to_owned()));
    };
    if let Some(text) = wrong_label(order, &named.facts) {
        return Some((AnswerReason::WrongContainer, text));
    }
    let known = references(named);
    let same = |text: &&str| Reference::parse(text).is_ok_and(|known| known.same_repository(wanted));
    if known.iter().any(|text| same(&text.as_str())) {
        return None;
    }
    let known: Vec<String> = known.iter().take(4).map(|text| quoted(text)).collect();
    let text = format!(
        "{} is of another repository than the image of the container, {}",
        quoted(&wanted.to_string()),
        known.join(", ")
    );
    Some((AnswerReason::WrongRepository, text))
}

/// The Pod's name for the image or, if the runtime does not report that, all names of the runtime.
fn references(named: &NamedContainer) -> Vec<String> {
    if named.asked.is_empty() { named.references.clone() } else { vec![named.asked.clone()] }
}

/// The error text if fewer bytes are free than needed; `None` also if the free bytes are unknown.
pub(super) fn too_full(free: Option<u64>, needed: u64) -> Option<String> {
    let free = free.filter(|free| *free < needed)?;
    let mib = |bytes: u64| bytes / (1024 * 1024);
    Some(format!(
        "the node's image store has {} MiB free; its daemon requires {} MiB (--image-room)",
        mib(free),
        mib(needed)
    ))
}

/// The report of an image on the node.
pub(super) fn pulled(wanted: &Reference, image: &Image, milliseconds: Option<i64>) -> Pulled {
    Pulled {
        image_id: truncate(&image.id, MAX_ID),
        digest: digest(wanted, &image.digests),
        bytes: image.bytes,
        milliseconds: milliseconds.unwrap_or(0),
        present: milliseconds.is_none(),
    }
}

/// The report of a container.
pub(super) fn running(wanted: &Reference, newest: &NewestContainer) -> Running {
    Running {
        container_id: newest.id.as_str().to_owned(),
        image_id: truncate(&newest.image_id, MAX_ID),
        digest: digest(wanted, &newest.digests),
    }
}

/// The digest by which the runtime knows an image in that repository. One image can have several: an index and a
/// manifest name the same configuration. The ordered digest goes first, then the smallest, so that all nodes report the
/// same.
fn digest(wanted: &Reference, digests: &[String]) -> String {
    let of = |text: &String| {
        let known = Reference::parse(text).ok().filter(|known| known.same_repository(wanted))?;
        known.digest
    };
    let mut all: Vec<String> = digests.iter().filter_map(of).collect();
    all.sort();
    let asked = wanted.digest.clone().filter(|digest| all.contains(digest));
    asked.or_else(|| all.into_iter().next()).unwrap_or_default()
}
