//! Images of a simulated node: the runtime's knowledge, and the kubelet's reaction to a container's new image.

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use pitstop_api::id::ContainerId;
use pitstop_api::logic::machine::Now;
use pitstop_daemon_core::{Image, Look, NamedContainer, NewestContainer, Watch};

use super::machine::{Due, NOTICE, Player, STOP};
use super::pod::{Container, IMAGE, reference};

/// Duration of a pull.
const PULL: Duration = Duration::from_millis(50);
/// Size of every image, in bytes.
const BYTES: i64 = 64 << 20;

/// The images in a Pod's spec, by container.
pub(crate) struct Spec {
    namespace: String,
    name: String,
    images: Vec<(String, String)>,
}

impl Spec {
    /// The images of a Pod.
    pub(super) fn of(pod: core::Pod) -> Option<Self> {
        let images = pod.spec?.containers.into_iter();
        Some(Self {
            namespace: pod.metadata.namespace?,
            name: pod.metadata.name?,
            images: images.map(|container| (container.name, container.image.unwrap_or_default())).collect(),
        })
    }
}

impl Player {
    /// Delivers changed specs to the kubelets.
    pub(super) fn specs(&mut self, now: Now, watch: Watch<Spec>) {
        let seen = match watch {
            Watch::Upsert(one) => vec![one],
            Watch::Listed(part) => part.objects,
            Watch::Gone(_) => Vec::new(),
        };
        for spec in seen {
            self.spec(now, spec);
        }
    }

    /// Stops each container whose image changed. Its next instance gets the image.
    fn spec(&mut self, now: Now, spec: Spec) {
        let Some(at) = self.names.get(&(spec.namespace, spec.name)).copied() else { return };
        let Some(pod) = self.pods.get_mut(at) else { return };
        for (name, image) in spec.images {
            let found = pod.containers.iter_mut().enumerate().find(|(_, container)| container.name == name);
            let Some((i, container)) = found.filter(|(_, container)| container.wanted != image) else {
                continue;
            };
            container.wanted = image;
            if container.ended.is_none() {
                let ends = Due::Ends(at, i, container.restarts);
                self.due.insert((now.mono.after(NOTICE).after(STOP), ends));
            }
        }
    }

    /// The node's runtime's answer about a container and an image.
    pub(super) fn look_at_image(&self, node: &str, id: &ContainerId, image: &str) -> Look {
        let container = self.ids.get(id.as_str());
        let container = container.and_then(|(pod, at)| self.pods.get(*pod)?.containers.get(*at));
        let named = self.facts(node, id.as_str()).zip(container);
        let named = named.map(|(facts, container)| NamedContainer {
            facts,
            asked: container.image.clone(),
            references: Vec::new(),
        });
        let image = self.has(node, image).then(|| Image {
            id: config(image),
            digests: vec![reference(image)],
            bytes: BYTES,
        });
        Look { named, image, newest: container.and_then(newest), ..Look::default() }
    }

    /// Starts a pull.
    pub(super) fn pull(&mut self, now: Now, node: &str, image: String) {
        self.due.insert((now.mono.after(PULL), Due::Pulled(node.to_owned(), image)));
    }

    /// Records that the node has that image.
    pub(super) fn has_pulled(&mut self, node: &str, image: &str) {
        self.pulled.insert((node.to_owned(), reference(image)));
    }

    fn has(&self, node: &str, image: &str) -> bool {
        let image = reference(image);
        image == reference(IMAGE) || self.pulled.contains(&(node.to_owned(), image))
    }
}

/// The newest instance of a container.
fn newest(container: &Container) -> Option<NewestContainer> {
    Some(NewestContainer {
        id: ContainerId::parse(&container.id).ok()?,
        runs: container.ended.is_none(),
        started: true,
        image_id: config(&container.image),
        digests: vec![reference(&container.image)],
    })
}

/// Image ID in the runtime.
fn config(image: &str) -> String {
    format!("config of {}", reference(image))
}
