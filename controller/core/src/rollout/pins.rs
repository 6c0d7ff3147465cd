//! What the tags of an update's images mean: all Pods get what the first node has pulled, though a tag is moved meanwhile.

use std::collections::BTreeMap;

use pitstop_api::image::Reference;
use pitstop_api::image_update::MAX_IMAGE;
use pitstop_api::rollout::{MAX_IMAGES, TagMeaning};

use crate::kind::Relative;
use crate::template::Image;

/// Digests of images, by the names that the template has for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(BTreeMap<String, String>);

impl Pins {
    /// Those that were told.
    pub(super) fn of(told: &[TagMeaning]) -> Self {
        Self(told.iter().map(|told| (told.image.clone(), told.digest.clone())).collect())
    }

    /// For people, and for the process that leads next.
    pub(super) fn told(&self) -> Vec<TagMeaning> {
        let told = self.0.iter().map(|(image, digest)| (image.clone(), digest.clone()));
        told.map(|(image, digest)| TagMeaning { image, digest }).collect()
    }

    /// The first digest of an image is its digest.
    pub(super) fn learn(&mut self, request: &Relative<'_>) {
        for (image, digest) in &request.pulled {
            if self.0.len() < MAX_IMAGES && !self.0.contains_key(*image) {
                self.0.insert((*image).to_owned(), (*digest).to_owned());
            }
        }
    }

    /// How the node of the request has understood a tag otherwise than the first one.
    pub(super) fn moved(&self, request: &Relative<'_>) -> Option<String> {
        let differs = request.pulled.iter().find_map(|(image, digest)| {
            let pinned = self.0.get(*image).filter(|pinned| pinned != digest)?;
            Some((image, pinned, digest))
        });
        differs.map(|(image, pinned, digest)| {
            // The digests first: what is told of a Pod is cut at its end.
            format!("TagMoved: this Pod has {digest}, and the first one {pinned}, of {image}")
        })
    }

    /// Names them by their digests, as far as those are known.
    pub(super) fn pin(&self, images: &mut [Image]) {
        for image in images {
            let digest = self.0.get(&image.image);
            let pinned = digest.and_then(|digest| Reference::parse(&image.image).ok()?.with_digest(digest));
            if let Some(pinned) = pinned.filter(|pinned| pinned.len() <= MAX_IMAGE) {
                image.image = pinned;
            }
        }
    }
}
