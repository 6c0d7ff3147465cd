//! The images of a node: pulls and removals.

use super::types::Failure;
use super::{Client, Runtime};
use crate::node::image::Image;
use crate::node::registry::Registry;

/// The node got or lost an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageNews {
    /// The image, under all its names.
    pub image: Image,
    /// Whether the node has it now.
    pub has: bool,
}

impl Runtime {
    /// The registries as this node sees them.
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Replaces the default registries, whose pulls take no time.
    #[must_use]
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Whether pulls take no time.
    pub fn pulls_at_once(&self) -> bool {
        self.registry.at_once()
    }

    /// The image that a reference names, if the node has it.
    pub fn image(&self, reference: &str) -> Option<&Image> {
        self.images.values().find(|image| image.is_named(reference))
    }

    /// Free bytes for images.
    pub fn free_bytes(&self, now: u64) -> u64 {
        if now < self.full_until { 0 } else { 1 << 40 }
    }

    /// Leaves no room for images until that time.
    pub fn fill_disk(&mut self, until: u64) {
        self.full_until = until;
    }

    /// Puts an image into the node, as if it had been pulled.
    pub(in crate::node) fn fetch(
        &mut self,
        now: u64,
        client: Client,
        reference: &str,
    ) -> Result<String, Failure> {
        let content = self.registry.pull(now, reference, client == Client::KUBELET)?;
        let new = Image::of(content, reference);
        let id = new.id.clone();
        // A name means one image.
        for image in self.images.values_mut() {
            image.tags.retain(|tag| !new.tags.contains(tag));
        }
        let image = self.images.entry(id.clone()).or_insert_with(|| new.clone());
        image.tags.extend(new.tags);
        image.digests.extend(new.digests);
        let news = ImageNews { image: image.clone(), has: true };
        self.image_news.push(news);
        Ok(id)
    }

    /// The kubelet's garbage collection: removes images that no container uses, running or ended.
    pub fn collect_images(&mut self) {
        let used = |id: &String| self.containers.values().any(|c| c.info.image_id == *id);
        let unused: Vec<String> = self.images.keys().filter(|id| !used(id)).cloned().collect();
        for id in unused {
            self.forget_image(&id);
        }
    }

    fn forget_image(&mut self, id: &str) {
        if let Some(image) = self.images.remove(id) {
            self.image_news.push(ImageNews { image, has: false });
        }
    }

    /// Removes all images.
    pub(super) fn wipe_images(&mut self) {
        let all: Vec<String> = self.images.keys().cloned().collect();
        for id in all {
            self.forget_image(&id);
        }
    }

    /// Changes since the last call.
    pub fn take_image_news(&mut self) -> Vec<ImageNews> {
        std::mem::take(&mut self.image_news)
    }
}
