//! What is written down of a rollout.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Condition, is_false};

/// Condition types.
pub mod conditions {
    pub use crate::condition::{COMPLETE, FAILED, RECONCILING, STALLED};
    /// True if admission may park the workload, since the controller can release it.
    pub const ARMED: &str = "Armed";
}

/// Most entries of `podsOfInterest`.
pub const MAX_PODS: usize = 20;
/// Most entries of `update.images`.
pub const MAX_IMAGES: usize = 64;
/// Most entries of `history`.
pub const MAX_HISTORY: usize = 5;

/// How far the rollout is: the reason of the condition `Reconciling`. `Idle`: nothing is requested, or the workload's
/// own controller took over. `Pending`: it cannot begin yet. `Progressing`: at work. `Paused`: by `spec.paused`.
/// `Stalled`: a user is usually needed; the condition `Complete` says why. `Complete`: everything is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nothing is to be done.
    Idle,
    /// It cannot begin yet.
    Pending,
    /// At work.
    Progressing,
    /// By `spec.paused`.
    Paused,
    /// A user is usually needed.
    Stalled,
    /// Everything is done.
    Complete,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Pending, Self::Progressing, Self::Paused, Self::Stalled, Self::Complete];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Pending => "Pending",
            Self::Progressing => "Progressing",
            Self::Paused => "Paused",
            Self::Stalled => "Stalled",
            Self::Complete => "Complete",
        }
    }
}

/// How far the rollout is, and with which Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceRolloutStatus {
    /// How far the rollout is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `metadata.generation` that this status is for; -1 until the controller has seen the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `spec.restartedAt` of the last finished restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub restarted_at: Option<String>,
    /// The restart under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// The current or last update: to a changed template or, with `selector`, to changed `images` or `resources`. A
    /// restart removes it, except with these two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Update>,
    /// How many Pods the current or last restart or update includes.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub pods: i32,
    /// How many of these Pods are done.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub current: i32,
    /// How many of these Pods are being restarted or updated.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub started: i32,
    /// How many of these Pods failed.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub failed: i32,
    /// Failed Pods, then Pods being restarted or updated; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pods_of_interest: Vec<PodOfInterest>,
    /// The last 5 restarts and updates that ended, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_HISTORY), extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<Roll>,
    /// Conditions `Complete`, `Failed`, `Armed`, and `Reconciling` and `Stalled` for kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A restart under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// The value of `spec.restartedAt`.
    #[schemars(length(max = 64))]
    pub restarted_at: String,
    /// `metadata.creationTimestamp` of the newest Pod when the restart began. Later Pods are left alone. Absent: there
    /// was no Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_pod: Option<DateTime<Utc>>,
}

/// An update of Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// The new revision. StatefulSet, DaemonSet: the Pods' label `controller-revision-hash`. Otherwise a hash of what
    /// running Pods can get. Updated Pods have it as annotation `pitstop.dev/revision`, those of a Deployment only
    /// after an earlier update that did not reach all Pods.
    #[schemars(length(max = 63))]
    pub revision: String,
    /// The `metadata.generation` that the update is for: the workload's or, with `selector`, the rollout's.
    #[serde(default)]
    pub generation: i64,
    /// The Pods' revision before the update, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// Tagged images, and the digests that the first node pulled for them. Other Pods get the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["image"]))]
    pub images: Vec<TagMeaning>,
    /// Pods failed, and updated Pods go back to `from`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rolling_back: bool,
    /// How the update ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<UpdateEnd>,
    /// Why the workload was released before all Pods were updated, or why Pods go back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
}

/// An image with a tag, and its digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TagMeaning {
    /// The image, as template or rollout names it.
    #[schemars(length(max = 512))]
    pub image: String,
    /// Digest of the image.
    #[schemars(length(max = 128))]
    pub digest: String,
}

/// How the update ended; absent while under way. `Updated`: in all Pods, and the workload is released. `NotInPlace`:
/// running Pods cannot get the change; the workload is released, and its own controller replaces them. `Superseded`:
/// someone else released the workload. `RolledBack`: Pods failed, and all have the revision `from`; the workload stays
/// parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum UpdateEnd {
    /// All Pods are updated.
    Updated,
    /// Running Pods cannot get the change.
    NotInPlace,
    /// Someone else released the workload.
    Superseded,
    /// Pods failed, and all went back.
    RolledBack,
}

impl UpdateEnd {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Updated, Self::NotInPlace, Self::Superseded, Self::RolledBack];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Updated => "Updated",
            Self::NotInPlace => "NotInPlace",
            Self::Superseded => "Superseded",
            Self::RolledBack => "RolledBack",
        }
    }
}

/// A restart or update that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Roll {
    /// For a restart: the value of `spec.restartedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub restarted_at: Option<String>,
    /// For an update: the new revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub revision: Option<String>,
    /// The Pods' revision before the update, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// How it ended. `Restarted`, `Updated`: in all Pods. `NotInPlace`, `Superseded`, `RolledBack`: as in
    /// `status.update.ended`. `GivenUp`: another restart or update took over, or `spec` no longer asks for it.
    pub result: RollResult,
    /// How many Pods it included.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub pods: i32,
    /// How many of these Pods were done; after `RolledBack`, how many have the revision `from`.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub current: i32,
    /// When it ended, by the controller's clock. Informational: pitstop never compares it.
    pub completed_at: DateTime<Utc>,
    /// How long Pods were not ready, by one controller process's monotonic clock. Left out: Pods that were not ready
    /// when their turn came, that are not ready again yet, or that an earlier process began with. Absent if nothing was
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_gap: Option<ServiceGap>,
}

/// How a restart or update ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RollResult {
    /// All Pods were restarted.
    Restarted,
    /// All Pods are updated.
    Updated,
    /// Running Pods cannot get the change.
    NotInPlace,
    /// Someone else released the workload.
    Superseded,
    /// Pods failed, and all went back.
    RolledBack,
    /// Another one took over, or `spec` no longer asks for it.
    GivenUp,
}

impl From<UpdateEnd> for RollResult {
    fn from(end: UpdateEnd) -> Self {
        match end {
            UpdateEnd::Updated => Self::Updated,
            UpdateEnd::NotInPlace => Self::NotInPlace,
            UpdateEnd::Superseded => Self::Superseded,
            UpdateEnd::RolledBack => Self::RolledBack,
        }
    }
}

/// How long Pods were not ready during a restart or update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceGap {
    /// Number of gaps. A Pod that becomes not ready twice has two.
    #[schemars(range(min = 1))]
    pub measured: i32,
    /// Median of the first 1000 gaps, in milliseconds.
    #[schemars(range(min = 0))]
    pub median_milliseconds: i64,
    /// Longest of all gaps, in milliseconds.
    #[schemars(range(min = 0))]
    pub maximum_milliseconds: i64,
}

/// A Pod that failed, or is being restarted or updated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodOfInterest {
    /// Name of the Pod.
    #[schemars(length(max = 253))]
    pub name: String,
    /// `Failed`, or `Started`: being restarted or updated.
    pub state: PodState,
    /// Name of the Pod's `ContainerRecreateRequest`, `PodImageUpdate` or `PodResize`.
    #[schemars(length(max = 253))]
    pub request: String,
    /// Why the Pod failed, or what it waits for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
}

/// How far a Pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PodState {
    /// It failed.
    Failed,
    /// It is being restarted or updated.
    Started,
}
