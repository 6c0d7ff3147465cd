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

/// Value of `kind`.
pub const KIND: &str = "PodImageUpdate";
/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "podimageupdates";

/// Most containers of one request: the most orders that a request has in its node's order book.
pub const MAX_CONTAINERS: usize = 8;
/// Longest image string, in bytes.
pub const MAX_IMAGE: usize = 512;

/// Default of `pullTimeoutSeconds`.
pub const PULL_TIMEOUT_SECONDS: i64 = 600;
/// Default of `readyTimeoutSeconds`.
pub const READY_TIMEOUT_SECONDS: i64 = 300;
/// Default of `observeSeconds`.
pub const OBSERVE_SECONDS: i64 = 30;
/// Largest value of these three: a day.
pub const MAX_STEP_SECONDS: i64 = 86_400;

/// Which containers get which images, and how.
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
    doc = "Changes images of containers of one running Pod in place: pulls them first, and restores the old ones if the new containers fail or are not ready in time.",
    printcolumn = r#"{"name":"Pod","type":"string","jsonPath":".spec.podRef.name","description":"The Pod whose images are changed"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"Phase of the request"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Complete\")].reason","description":"Why the request waits, or how it ended"}"#,
    printcolumn = r#"{"name":"Gap-ms","type":"integer","priority":1,"jsonPath":".status.gapMilliseconds","description":"Milliseconds from the end of the old container until the new one is ready"}"#,
    printcolumn = r#"{"name":"Node","type":"string","priority":1,"jsonPath":".status.target.nodeName","description":"The Pod's node"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Complete\")].message","description":"The reason in a sentence"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.activeDeadlineSeconds) || (has(self.activeDeadlineSeconds) && self.activeDeadlineSeconds >= oldSelf.activeDeadlineSeconds)").message("activeDeadlineSeconds can only be raised: a request may be given more time, not less").field_path(".activeDeadlineSeconds"))]
#[x_kube(validation = Rule::new("!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)").message("cancel cannot be taken back: make another PodImageUpdate").field_path(".cancel"))]
pub struct PodImageUpdateSpec {
    /// The Pod, in the namespace of the request. Immutable.
    pub pod_ref: PodRef,
    /// The main containers and sidecars that get another image. Names are unique. Immutable.
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<ContainerImage>,
    /// While true, only check and pull: nothing stops, and the deadline does not run. No effect once the drain or the
    /// change has begun. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub suspend: bool,
    /// Whether the node must have the images before anything stops. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Required"))]
    pub pull: Option<Pull>,
    /// Seconds for the pull of an image, with retries and waits for other pulls of the node. Default: 600. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400), extend("default" = 600))]
    pub pull_timeout_seconds: Option<i64>,
    /// Seconds for which the Pod must be seen not ready before it is changed; it stays so until its new containers are
    /// ready. Without a readiness gate `pitstop.dev/ready` or `KruisePodReady`, it stays in service while they pass.
    /// Default: no drain. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub unready_grace_period_seconds: Option<i64>,
    /// Seconds that the new containers have to become ready; anew after the node was not ready. Default: 300.
    /// Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400), extend("default" = 300))]
    pub ready_timeout_seconds: Option<i64>,
    /// Seconds that the new containers must then stay ready, without a restart; anew after the node was not ready.
    /// Default: 30. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400), extend("default" = 30))]
    pub observe_seconds: Option<i64>,
    /// Restore the old images at once if the new containers fail or are not ready in time, or on `cancel` or deadline.
    /// Default: true. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub rollback_on_failure: Option<bool>,
    /// Seconds after which the request ends. Can only be raised. Default: the controller's `--default-active-deadline`,
    /// one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = crate::MAX_SECONDS))]
    pub active_deadline_seconds: Option<i64>,
    /// Only report in the status whether the API server would store the change, or why not; pull and change nothing.
    /// Immutable. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub dry_run: bool,
    /// End the request, and restore the old images, unless `rollbackOnFailure` is false. Cannot be unset. Default:
    /// false.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub cancel: bool,
    /// Seconds from the end of the request to its deletion. Default: never.
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
    /// The new image: another tag, digest, or both, of the same repository. The Pod gets it with the digest that the
    /// node has pulled.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
}

/// Whether the node must have the images before anything stops. `Required` (default): a failed pull ends the request,
/// and nothing stops. `IfPossible`: after a failed pull, the kubelet pulls, once it has stopped the old container.
/// `Skip`: only the kubelet pulls, after that stop. Immutable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Pull {
    /// A failed pull ends the request.
    #[default]
    Required,
    /// After a failed pull, the kubelet pulls.
    IfPossible,
    /// Only the kubelet pulls.
    Skip,
}
