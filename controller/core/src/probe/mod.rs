//! A kind for tests alone: the proof that a kind is one folder and one line in [`crate::kinds`].
//!
//! It looks at its Pod, makes a recreate request for it, and ends when that request ends.

mod kind;
mod plan;
mod tests;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::reduced::Reduced;
use crate::time::Mono;

/// The Pod to look at.
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
    /// Name of the Pod.
    pub pod_name: String,
}

/// What the probe found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodProbeStatus {
    /// The Pod's UID; empty until the Pod is seen.
    pub pod_uid: String,
    /// Its node.
    pub node_name: String,
    /// How the probe ended; None while it is open.
    pub outcome: Option<String>,
}

/// A `PodProbe`, reduced to what decisions need.
pub type Probe = Reduced<PodProbeSpec, PodProbeStatus>;

/// This process's memory of one probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    completed_seen: Option<Mono>,
    /// When the child was made.
    made: Option<Mono>,
}
