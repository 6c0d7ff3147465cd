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

    /// True once the request is valid and `target` is known. False if the request ended before.
    pub const ACCEPTED: &str = "Accepted";
    /// True once the node has all images. False if it cannot have them. Unknown if the kubelet pulls.
    pub const PULLED: &str = "Pulled";
    /// With a drain: True once the Pod was out of service before its change, False while it is not.
    pub const DRAINED: &str = "Drained";
}

/// How far the request is, and what the Pod had before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodImageUpdateStatus {
    /// How far the request is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `metadata.generation` that this status is for; -1 until the controller has seen the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the request ended; never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<DateTime<Utc>>,
    /// How the request ended, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The Pod that the request was accepted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The spec's containers, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<ContainerStatus>,
    /// While the old images are being restored: how the request will end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    /// Milliseconds from the end of the first old container until all new ones were ready, as the controller saw it.
    /// Informational. Absent if one change of the Pod showed both, or if the node was not ready meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub gap_milliseconds: Option<i64>,
    /// Conditions `Accepted`, `Pulled`, `Drained`, `Complete`, `Failed`, and `Reconciling` and `Stalled` for kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The Pod that a request was accepted for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// UID of the Pod.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 128))]
    pub pod_uid: String,
    /// Node of the Pod.
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
    /// The old container: recorded at acceptance, and again just before the Pod is changed.
    pub before: Before,
    /// The new image on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulled: Option<Pulled>,
    /// The image string that the Pod gets, recorded before the Pod is changed. Absent until then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub written: String,
    /// The image string that restores the old image, recorded before the Pod is changed back. Absent until then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub restored: String,
    /// The new container, as the daemon or the kubelet reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
}

/// A container before its change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Before {
    /// Image string in the Pod's spec.
    #[schemars(length(max = 512))]
    pub image: String,
    /// `imageID` in the Pod's status.
    #[serde(rename = "imageID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub image_id: String,
    /// `<runtime>://<id>` of the container.
    #[serde(rename = "containerID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub container_id: String,
    /// Restart count of the container.
    pub restart_count: i32,
    /// Whether the container ran.
    #[serde(default, skip_serializing_if = "is_false")]
    pub running: bool,
    /// Whether the container was ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ready: bool,
}

/// How a request will end once the old images are restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restoring {
    /// The final phase.
    pub phase: Phase,
    /// The reason of the end.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The reason in a sentence.
    #[schemars(length(max = 1024))]
    pub message: String,
}
