//! Images in the world: `PodImageUpdate`s of users, registries, and another program's webhook.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use pitstop_controller_core::wire::HttpRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::objects::NAMESPACE;
use super::plan::{Step, Timed, Word};
use super::{Happening, NOTICED, World};
use crate::node::registry::Registry;
use crate::oracle::Writer;
use crate::server::Server;
use crate::server::admission::{Admission, Operation, Refusal, Review};

/// Path of image updates.
pub const UPDATES: &str = "/apis/pitstop.dev/v1alpha1/namespaces/shop/podimageupdates";
/// Bytes that daemons want free in the image store.
pub const ROOM: u64 = 1 << 30;

/// Registries and admission, as far as images are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Images {
    /// Duration of a pull, in milliseconds.
    pub pull_ms: u64,
    /// The registry wants credentials, which only kubelets have.
    pub private: bool,
    /// New and original name of the same content, each with repository and tag.
    pub same: Vec<(Word, Word)>,
    /// What another program's webhook does to images while it is on; None without such a webhook.
    pub webhook: Option<Rewriting>,
}

/// What a webhook does to the images of Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rewriting {
    /// Replaces the registry.
    Mirror,
    /// Replaces the digest by a tag.
    Tag,
    /// Refuses them.
    Deny,
}

impl Rewriting {
    /// The image that the webhook writes; None if it refuses.
    pub fn of(self, image: &str) -> Option<String> {
        match self {
            Self::Mirror => Some(image.replace("registry.example/", "mirror.example/")),
            Self::Tag => Some(image.split('@').next().unwrap_or_default().to_owned() + "-signed"),
            Self::Deny => None,
        }
    }
}

/// A `PodImageUpdate`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdatePlan {
    /// Its name.
    pub name: String,
    /// `spec.podRef.name`.
    pub pod: String,
    /// `spec.containers`: names and images.
    pub containers: Vec<(Word, Word)>,
    /// `spec.suspend`.
    pub suspend: bool,
    /// `spec.pull`.
    pub pull: Option<Word>,
    /// `spec.pullTimeoutSeconds`.
    pub pull_timeout: Option<i64>,
    /// `spec.unreadyGracePeriodSeconds`.
    pub unready_grace: Option<i64>,
    /// `spec.readyTimeoutSeconds`.
    pub ready_timeout: Option<i64>,
    /// `spec.observeSeconds`.
    pub observe: Option<i64>,
    /// `spec.rollbackOnFailure`.
    pub rollback: Option<bool>,
    /// `spec.activeDeadlineSeconds`.
    pub deadline: Option<i64>,
    /// `spec.ttlSecondsAfterFinished`.
    pub ttl: Option<i32>,
    /// `spec.dryRun`.
    pub dry_run: bool,
    /// Another client's finalizer keeps it.
    pub kept: bool,
    /// pitstop's webhook does not answer.
    pub unasked: bool,
}

impl UpdatePlan {
    fn create(&self) -> HttpRequest {
        let containers: Vec<Value> =
            self.containers.iter().map(|(name, image)| json!({"name": name, "image": image})).collect();
        let mut spec = json!({"podRef": {"name": self.pod}, "containers": containers});
        let mut set = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                spec[field] = value;
            }
        };
        set("suspend", self.suspend.then_some(Value::Bool(true)));
        set("pull", self.pull.as_deref().map(Into::into));
        set("pullTimeoutSeconds", self.pull_timeout.map(Into::into));
        set("unreadyGracePeriodSeconds", self.unready_grace.map(Into::into));
        set("readyTimeoutSeconds", self.ready_timeout.map(Into::into));
        set("observeSeconds", self.observe.map(Into::into));
        set("rollbackOnFailure", self.rollback.map(Into::into));
        set("activeDeadlineSeconds", self.deadline.map(Into::into));
        set("ttlSecondsAfterFinished", self.ttl.map(Into::into));
        set("dryRun", self.dry_run.then_some(Value::Bool(true)));
        let mut body = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodImageUpdate",
            "metadata": {"name": self.name, "namespace": NAMESPACE}, "spec": spec});
        if self.kept {
            body["metadata"]["finalizers"] = json!(["example.com/keep"]);
        }
        let mut request = Request::post(UPDATES).header(http::header::CONTENT_TYPE, "application/json");
        if self.unasked {
            request = request.header(super::webhook::UNASKED, "1");
        }
        request.body(serde_json::to_vec(&body).unwrap()).unwrap()
    }
}

impl Images {
    /// The registries at the beginning.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::new(self.pull_ms, self.private);
        for (name, content) in &self.same {
            registry.tag(name, content);
        }
        registry
    }
}

impl World {
    pub(super) fn create_update(&mut self, plan: &UpdatePlan) {
        self.ask_as_user(&plan.create());
    }

    /// Patches the spec or metadata of an update.
    pub(super) fn patch_update(&mut self, name: &str, patch: &Value) {
        let request = Request::patch(format!("{UPDATES}/{name}"))
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        self.ask_as_user(&request.body(serde_json::to_vec(patch).unwrap()).unwrap());
    }

    /// etcd was restored: users notice that released updates are suspended again, and release them again.
    pub(super) fn release_again(&mut self) {
        let released =
            |step: &Timed<Step>| step.at <= self.now && matches!(step.what, Step::ReleaseUpdate(_));
        let steps = self.schedule.steps.iter().enumerate().filter(|(_, step)| released(step));
        for (at, _) in steps {
            self.queue.push(self.now + NOTICED, Happening::Step(at));
        }
    }

    pub(super) fn ask_as_user(&mut self, request: &HttpRequest) {
        let response = self.handle(Writer::User, request);
        if !response.status().is_success() {
            self.story.note(self.now, "user", || format!("refused: {}", response.body()["message"]));
        }
    }

    /// Changes the registries of all nodes in the same way.
    pub(super) fn registries(&mut self, change: impl Fn(&mut Registry)) {
        self.nodes.iter_mut().for_each(|node| change(node.runtime.registry_mut()));
    }

    /// The kubelet's garbage collection of images.
    pub(super) fn collect_images(&mut self, at: usize) {
        self.nodes[at].runtime.collect_images();
        self.after_node(at);
    }
}

/// Another program's webhook. While it is on, it rewrites or refuses changed images of Pods.
#[derive(Clone, Debug)]
pub struct Rewriter {
    does: Option<Rewriting>,
    on: Arc<AtomicBool>,
}

impl Rewriter {
    /// A webhook that is off.
    pub fn new(does: Option<Rewriting>) -> Self {
        Self { does, on: Arc::default() }
    }

    /// Switches it on or off.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }
}

impl Admission for Rewriter {
    fn mutate(&self, _: &Server, review: &Review<'_>, pod: &mut Value) -> Result<(), Refusal> {
        let Some(does) = self.does.filter(|_| self.on.load(Ordering::Relaxed)) else { return Ok(()) };
        let changes = review.kind == "Pod" && review.subresource.is_empty();
        if !changes || review.operation != Operation::Update {
            return Ok(());
        }
        for list in ["containers", "initContainers"] {
            let old = review.old.map(|old| old["spec"][list].clone()).unwrap_or_default();
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                let same = |o: &&Value| o["name"] == container["name"] && o["image"] == container["image"];
                if old.as_array().into_iter().flatten().any(|o| same(&o)) {
                    continue;
                }
                let image = container["image"].as_str().unwrap_or_default();
                let Some(made) = does.of(image) else {
                    let message = format!("admission webhook denied the request: {image} is not signed");
                    return Err(Refusal { code: 403, reason: "Forbidden", message });
                };
                container["image"] = made.into();
            }
        }
        Ok(())
    }
}
