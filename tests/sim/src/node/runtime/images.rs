//! The images of a node: what its runtime has pulled, and what takes it away again.

use super::types::Failure;
use super::{Client, Runtime};
use crate::node::image::Image;
use crate::node::registry::Registry;

/// The node has an image from now on, or has it no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageNews {
    /// The image, under all its names.
    pub image: Image,
    /// It is there.
    pub has: bool,
}

impl Runtime {
    /// What the registries say to this node.
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Other registries than those whose pulls take no time.
    #[must_use]
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Pulls take no time.
    pub fn pulls_at_once(&self) -> bool {
        self.registry.at_once()
    }

    /// The image that a reference names, if the node has it.
    pub fn image(&self, reference: &str) -> Option<&Image> {
        self.images.values().find(|image| image.is_named(reference))
    }

    /// Bytes that are free where images are kept.
    pub fn free_bytes(&self, now: u64) -> u64 {
        if now < self.full_until { 0 } else { 1 << 40 }
    }

    /// There is no room for images until then.
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

    /// The kubelet's garbage collection: what no container uses is removed, whether it runs or has ended.
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

    /// All images are gone.
    pub(super) fn wipe_images(&mut self) {
        let all: Vec<String> = self.images.keys().cloned().collect();
        for id in all {
            self.forget_image(&id);
        }
    }

    /// What changed since it was last asked.
    pub fn take_image_news(&mut self) -> Vec<ImageNews> {
        std::mem::take(&mut self.image_news)
    }
}
