//! Digests for the tags of an update's images. All Pods get what the first node pulled, even if a tag moves.

use std::collections::BTreeMap;

use pitstop_api::image::Reference;
use pitstop_api::image_update::MAX_IMAGE;
use pitstop_api::rollout::{MAX_IMAGES, TagMeaning};

use crate::kind::Relative;
use crate::template::Image;

/// Digests, by the image names of the template.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(BTreeMap<String, String>);

impl Pins {
    /// From the status.
    pub(super) fn of(tags: &[TagMeaning]) -> Self {
        Self(tags.iter().map(|tag| (tag.image.clone(), tag.digest.clone())).collect())
    }

    /// For the status, which users and the next leader read.
    pub(super) fn to_status(&self) -> Vec<TagMeaning> {
        let tags = self.0.iter().map(|(image, digest)| (image.clone(), digest.clone()));
        tags.map(|(image, digest)| TagMeaning { image, digest }).collect()
    }

    /// Keeps the first digest of each image.
    pub(super) fn learn(&mut self, request: &Relative<'_>) {
        for (image, digest) in &request.pulled {
            if self.0.len() < MAX_IMAGES && !self.0.contains_key(*image) {
                self.0.insert((*image).to_owned(), (*digest).to_owned());
            }
        }
    }

    /// Message if the request's node pulled another digest for a tag than the first node.
    pub(super) fn moved(&self, request: &Relative<'_>) -> Option<String> {
        let differs = request.pulled.iter().find_map(|(image, digest)| {
            let pinned = self.0.get(*image).filter(|pinned| pinned != digest)?;
            Some((image, pinned, digest))
        });
        differs.map(|(image, pinned, digest)| {
            // The digests come first, since the message is cut at its end.
            format!("TagMoved: this Pod has {digest}, but the first Pod has {pinned}, of {image}")
        })
    }

    /// Pins the images whose digests are known.
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
