//! A kind for tests alone: the proof that a kind is one folder and one line in [`crate::kinds`].
//!
//! It looks at its Pod, makes a recreate request for it, and has ended once that has.

mod kind;
mod plan;
mod tests;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::key::ObjectKey;
use crate::kind::Owner;
use crate::time::Mono;
use crate::tracked::Versioned;

/// Which Pod to look at.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "pitstop.dev",
    version = "v1alpha1",
    kind = "PodProbe",
    plural = "podprobes",
    namespaced,
    schema = "disabled",
    status = "PodProbeStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", default)]
pub struct PodProbeSpec {
    /// The Pod.
    pub pod_name: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodProbeStatus {
    /// The Pod's UID, once it was seen.
    pub pod_uid: String,
    /// Its node.
    pub node_name: String,
    /// How it ended.
    pub outcome: Option<String>,
}

/// A `PodProbe`, reduced to what decisions need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp`, in seconds.
    pub created: i64,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The request that it belongs to.
    pub owner: Option<Owner>,
    /// `spec`.
    pub spec: PodProbeSpec,
    /// `status`.
    pub status: PodProbeStatus,
}

impl Versioned for Probe {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// What this process remembers of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    completed_seen: Option<Mono>,
    /// When the child was made.
    made: Option<Mono>,
}
