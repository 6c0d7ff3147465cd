//! What is written down of a rollout.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Condition, is_false};

/// Condition types.
pub mod conditions {
    pub use crate::condition::{COMPLETE, FAILED, RECONCILING, STALLED};
    /// Admission may park the workload, since the controller can release it.
    pub const ARMED: &str = "Armed";
}

/// Most Pods that a status names.
pub const MAX_PODS: usize = 20;
/// Most images that a status names.
pub const MAX_IMAGES: usize = 64;
/// Most restarts and updates that a status remembers.
pub const MAX_HISTORY: usize = 5;

/// How far a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nothing has been asked for.
    Idle,
    /// It waits for something before it can begin.
    Pending,
    /// It is at work.
    Progressing,
    /// It begins with no further Pod, by the user's wish.
    Paused,
    /// It goes on only once somebody has seen to it.
    Stalled,
    /// Everything that was asked for is done.
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

/// How far a rollout is, and with which Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceRolloutStatus {
    /// How far it is: the reason of the condition `Reconciling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `metadata.generation` that this status speaks of; -1 while the controller has not seen the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `spec.restartedAt` of the last restart that is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub restarted_at: Option<String>,
    /// The restart that is under way; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// The change of the workload's template that is carried out in the running Pods, or was last; absent when a restart has
    /// begun since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Update>,
    /// How many Pods the restart or the update is for, or was for.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub pods: i32,
    /// How many of them are done.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub current: i32,
    /// How many of them are being restarted or updated.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub started: i32,
    /// How many of them could not be.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub failed: i32,
    /// Pods that are being restarted or updated, or could not be, those first; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pods_of_interest: Vec<PodOfInterest>,
    /// The restarts and updates that ended last, the newest first; at most 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_HISTORY), extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<Roll>,
    /// What holds of the rollout: `Complete`, `Failed`, `Armed`, and `Reconciling` and `Stalled` for kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A restart that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// `spec.restartedAt` that asked for it.
    #[schemars(length(max = 64))]
    pub restarted_at: String,
    /// `metadata.creationTimestamp` of the newest Pod that there was when it began: Pods that were made later are left alone.
    /// Absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_pod: Option<DateTime<Utc>>,
}

/// A change of the workload's template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// The revision of the new template: the value of the label `controller-revision-hash` that its Pods have. Of a Deployment, a
    /// hash of what running Pods can get. Its Pods have it as annotation `pitstop.dev/revision` only if an update before did not
    /// end with all Pods.
    #[schemars(length(max = 63))]
    pub revision: String,
    /// `metadata.generation` of the workload when the update began: it is for the change that led to that generation.
    #[serde(default)]
    pub generation: i64,
    /// The revision that its Pods had before, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// What the tags of its images mean: the digests that the first node has pulled. Every other Pod gets the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["image"]))]
    pub images: Vec<TagMeaning>,
    /// Pods have failed, and those that were updated go back to `from`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rolling_back: bool,
    /// How it ended; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<UpdateEnd>,
    /// Why the workload was released, where that was before all Pods were updated; or why Pods go back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
}

/// What the tag of an image means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TagMeaning {
    /// The image, as the template names it.
    #[schemars(length(max = 512))]
    pub image: String,
    /// Its digest.
    #[schemars(length(max = 128))]
    pub digest: String,
}

/// How a change of the workload's template ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum UpdateEnd {
    /// Every Pod has the new images, and the workload is released.
    Updated,
    /// It is no change that running Pods can get: the workload was released, and its own controller makes new Pods.
    NotInPlace,
    /// Somebody else has released the workload.
    Superseded,
    /// Pods have failed, and all have what they had before. The workload is parked still.
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

/// A restart or an update that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Roll {
    /// `spec.restartedAt` that asked for the restart; absent for an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub restarted_at: Option<String>,
    /// The revision that the update was to; absent for a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub revision: Option<String>,
    /// The revision that the Pods had before the update, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// How it ended. `Restarted` or `Updated`: in all Pods. `RolledBack`: Pods failed, and all have the revision `from`.
    /// `NotInPlace`: running Pods cannot get that change, and the workload was released. `Superseded`: someone else released the
    /// workload. `GivenUp`: another restart or update took its place, or `spec` no longer asks for it.
    pub result: RollResult,
    /// How many Pods it was for.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub pods: i32,
    /// How many of them were done at its end; after `RolledBack`, how many have the revision `from`.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub current: i32,
    /// When it ended, on the controller's clock; for people, never compared.
    pub completed_at: DateTime<Utc>,
    /// For how long Pods were not ready: each time from when the controller saw a Pod that it had begun with become not ready until
    /// it saw the Pod ready again, on its own monotonic clock. Pods are left out if they were not ready when their turn came, if they
    /// are not ready again yet, or if an earlier controller process began with them. Absent if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_gap: Option<ServiceGap>,
}

/// How a restart or an update ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RollResult {
    /// Every Pod was restarted.
    Restarted,
    /// Every Pod was updated, and the workload is released.
    Updated,
    /// The workload was released for a change that running Pods cannot get.
    NotInPlace,
    /// Somebody else has released the workload.
    Superseded,
    /// Pods have failed, and all have what they had before.
    RolledBack,
    /// Another one took its place, or nobody asks for it any more.
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

/// For how long Pods were not ready while they were restarted or updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceGap {
    /// How many gaps were measured. A Pod that becomes not ready twice has two.
    #[schemars(range(min = 1))]
    pub measured: i32,
    /// Their median, in milliseconds; of more than 1000 gaps, that of the first 1000.
    #[schemars(range(min = 0))]
    pub median_milliseconds: i64,
    /// The longest of all, in milliseconds.
    #[schemars(range(min = 0))]
    pub maximum_milliseconds: i64,
}

/// A Pod that is being restarted or updated, or could not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodOfInterest {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// How far it is.
    pub state: PodState,
    /// The `ContainerRecreateRequest` by which it is restarted, or the `PodImageUpdate` by which it gets new images.
    #[schemars(length(max = 253))]
    pub request: String,
    /// Why it could not be.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
}

/// How far a Pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PodState {
    /// It could not be restarted or updated.
    Failed,
    /// It is being restarted or updated.
    Started,
}
