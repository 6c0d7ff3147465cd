//! `PodImageUpdate`: new images for containers of one running Pod, in place.

mod phase;
mod status;
mod validate;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use phase::Phase;
pub use status::{Before, ContainerStatus, PodImageUpdateStatus, Restoring, Target, conditions};
pub(crate) use validate::images;
pub use validate::validate;

use crate::is_false;
use crate::resize::PodRef;
use crate::schema::immutable;

/// What `kind` says.
pub const KIND: &str = "PodImageUpdate";
/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "podimageupdates";

/// Most containers that one request may name: each has an order in its node's book, and one request has at most so many
/// there.
pub const MAX_CONTAINERS: usize = 8;
/// Longest image string, in bytes.
pub const MAX_IMAGE: usize = 512;

/// Seconds that a pull may take where nothing else is said.
pub const PULL_TIMEOUT_SECONDS: i64 = 600;
/// Seconds until new containers must be ready where nothing else is said.
pub const READY_TIMEOUT_SECONDS: i64 = 300;
/// Seconds for which the Pod is watched where nothing else is said.
pub const OBSERVE_SECONDS: i64 = 30;
/// Most seconds of those durations: a day.
pub const MAX_STEP_SECONDS: i64 = 86_400;

/// Which images, and how carefully.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "pitstop.dev",
    version = "v1alpha1",
    kind = "PodImageUpdate",
    plural = "podimageupdates",
    singular = "podimageupdate",
    shortname = "piu",
    category = "pitstop",
    selectable = ".spec.podRef.name",
    selectable = ".status.phase",
    namespaced,
    status = "PodImageUpdateStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Changes the images of chosen containers of one running Pod, in place: pulls them first, follows the new containers until they are ready, and puts the old images back if they are not.",
    printcolumn = r#"{"name":"Pod","type":"string","jsonPath":".spec.podRef.name","description":"The Pod whose images are changed"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"How far it is, or how it ended"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Complete\")].reason","description":"What it waits for, or why it ended so"}"#,
    printcolumn = r#"{"name":"Gap-ms","type":"integer","priority":1,"jsonPath":".status.gapMilliseconds","description":"From the end of the old container to the new one being ready, in milliseconds"}"#,
    printcolumn = r#"{"name":"Node","type":"string","priority":1,"jsonPath":".status.target.nodeName","description":"The Pod's node"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Complete\")].message","description":"The same in a sentence"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.activeDeadlineSeconds) || (has(self.activeDeadlineSeconds) && self.activeDeadlineSeconds >= oldSelf.activeDeadlineSeconds)").message("activeDeadlineSeconds can only be raised: a request may be given more time, not less").field_path(".activeDeadlineSeconds"))]
#[x_kube(validation = Rule::new("!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)").message("cancel cannot be taken back: make another PodImageUpdate").field_path(".cancel"))]
pub struct PodImageUpdateSpec {
    /// The Pod, in the namespace of the request. Immutable.
    pub pod_ref: PodRef,
    /// The containers that get another image; sidecars too. Names are unique. Immutable.
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<ContainerImage>,
    /// Check and pull, then wait: nothing is stopped while this is true. Once the Pod is being changed, it has no effect. The
    /// deadline does not run while this is true.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub suspend: bool,
    /// Whether the node must have the images before anything stops. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Required"))]
    pub pull: Option<Pull>,
    /// Seconds that the pull of an image may take, tries and the wait for other pulls of the node included. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400), extend("default" = 600))]
    pub pull_timeout_seconds: Option<i64>,
    /// Keep the Pod not ready for that many seconds before it is changed, and until its new containers are ready, so that no
    /// traffic meets a container that stops. It needs the readiness gate `pitstop.dev/ready` or `KruisePodReady`; a Pod
    /// without one stays in service for these seconds. Absent: the Pod is changed at once. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub unready_grace_period_seconds: Option<i64>,
    /// Seconds after the change until the new containers must be ready. Do not run while the node is not ready, and begin anew
    /// when it is back. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400), extend("default" = 300))]
    pub ready_timeout_seconds: Option<i64>,
    /// Seconds for which the new containers must then stay ready, without a restart. Do not run while the node is not ready, and
    /// begin anew when it is back. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400), extend("default" = 30))]
    pub observe_seconds: Option<i64>,
    /// Put the old images back at once if the new ones fail, are not ready in time, or the request is cancelled or runs out of
    /// time. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub rollback_on_failure: Option<bool>,
    /// Seconds after which the request ends. It can be raised while the request runs, not lowered. Absent: the controller's
    /// default, one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = crate::MAX_SECONDS))]
    pub active_deadline_seconds: Option<i64>,
    /// Change nothing and pull nothing: the status says whether the API server would store the change, and why not.
    /// Immutable.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub dry_run: bool,
    /// End the request. What it has changed is put back, unless `rollbackOnFailure` is false. It cannot be taken back.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub cancel: bool,
    /// Seconds after the end at which the request is deleted. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub ttl_seconds_after_finished: Option<i32>,
}

impl PodImageUpdateSpec {
    /// Whether the node must have the images first.
    pub fn pull(&self) -> Pull {
        self.pull.unwrap_or_default()
    }

    /// Seconds that a pull may take.
    pub fn pull_timeout(&self) -> i64 {
        self.pull_timeout_seconds.unwrap_or(PULL_TIMEOUT_SECONDS)
    }

    /// Seconds until the new containers must be ready.
    pub fn ready_timeout(&self) -> i64 {
        self.ready_timeout_seconds.unwrap_or(READY_TIMEOUT_SECONDS)
    }

    /// Seconds for which they must stay so.
    pub fn observe(&self) -> i64 {
        self.observe_seconds.unwrap_or(OBSERVE_SECONDS)
    }

    /// What fails is put back.
    pub fn rolls_back(&self) -> bool {
        self.rollback_on_failure.unwrap_or(true)
    }
}

/// What never changes of a spec.
pub(crate) fn fix(spec: &mut JSONSchemaProps) {
    let fields = [
        "podRef",
        "containers",
        "pull",
        "pullTimeoutSeconds",
        "unreadyGracePeriodSeconds",
        "readyTimeoutSeconds",
        "observeSeconds",
        "rollbackOnFailure",
        "dryRun",
    ];
    immutable(spec, "spec", &fields, " is immutable: make another PodImageUpdate");
}

/// One container and its new image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerImage {
    /// Name of the container in the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The new image, of the same repository as the one that the container has: another tag, another digest, or both. The Pod
    /// gets it with the digest that the node has pulled.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
}

/// Whether the node must have the images before anything stops: `Required` (default: what cannot be pulled ends the request,
/// and the Pod has not noticed), `IfPossible` (what cannot be pulled is left to the kubelet, which stops the old container
/// first) or `Skip` (nothing is pulled: the kubelet does it, after it has stopped the old container).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Pull {
    /// It must.
    #[default]
    Required,
    /// It is tried.
    IfPossible,
    /// Nothing is pulled.
    Skip,
}
