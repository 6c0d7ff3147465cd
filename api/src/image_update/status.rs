//! What is written down of a request.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Phase;
use crate::nodework::{Pulled, Running};
use crate::{Condition, is_false};

/// Condition types.
pub mod conditions {
    pub use crate::condition::{COMPLETE, FAILED, RECONCILING, STALLED};

    /// True once the request was found valid and the API server would store the change; False with the reason when not.
    pub const ACCEPTED: &str = "Accepted";
    /// True once the node has all images; False with the reason while it has not, or cannot have them; Unknown where the
    /// pull is left to the kubelet.
    pub const PULLED: &str = "Pulled";
    /// True once the Pod was out of service before it was changed; False with the reason while it is not.
    pub const DRAINED: &str = "Drained";
}

/// How far a request is, and what was there before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodImageUpdateStatus {
    /// How far it is: the reason of the condition `Reconciling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `metadata.generation` that this status speaks of; -1 while the controller has not seen the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When it ended; never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<DateTime<Utc>>,
    /// How it ended, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The Pod that the request was resolved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Every container of the spec, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<ContainerStatus>,
    /// The old images are put back; this is how the request will end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    /// Milliseconds from when the first old container was seen to have ended to when all new ones were seen ready, on the
    /// controller's clock; for people. Absent where the kubelet told of both in one change of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub gap_milliseconds: Option<i64>,
    /// What holds of the request: `Accepted`, `Pulled`, `Drained`, `Complete`, `Failed`, and `Reconciling` and `Stalled` for
    /// kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The Pod that a request was resolved to when it was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Its UID.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 128))]
    pub pod_uid: String,
    /// Its node.
    #[schemars(length(max = 253))]
    pub node_name: String,
}

/// One container's part of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub name: String,
    /// What the Pod had when the request was accepted.
    pub before: Before,
    /// What the node has pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulled: Option<Pulled>,
    /// The image string that the Pod gets: written down before the Pod is changed. Empty until then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub written: String,
    /// The image string by which the old image is put back: written down before the Pod is changed back. Empty until then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub restored: String,
    /// The new container, as the node's daemon has told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
}

/// A container before it got another image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Before {
    /// The image string of the Pod's spec.
    #[schemars(length(max = 512))]
    pub image: String,
    /// `imageID` of the Pod's status.
    #[serde(rename = "imageID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub image_id: String,
    /// `<runtime>://<id>` of the instance that was there.
    #[serde(rename = "containerID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub container_id: String,
    /// Its restart count.
    pub restart_count: i32,
    /// It ran.
    #[serde(default, skip_serializing_if = "is_false")]
    pub running: bool,
    /// It was ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ready: bool,
}

/// How a request will end once the old images are back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restoring {
    /// Its phase then.
    pub phase: Phase,
    /// The reason.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The same in a sentence.
    #[schemars(length(max = 1024))]
    pub message: String,
}
