//! Changes that requests of all kinds make to Pods, and events that they record.

use std::fmt;

use pitstop_api::quantity::Resources;

use crate::key::{KindId, ObjectKey};
use crate::readiness::GateChange;

/// One kind of change to a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// Set only these conditions of its status.
    Gates(Vec<GateChange>),
    /// Set images of containers, after a dry run has shown that the API server stores exactly this.
    Images(Vec<ImageChange>),
    /// Set resources of containers, after a dry run has shown that the API server stores exactly this.
    Resources(Sizing),
}

/// Resources to set in a Pod through its subresource `resize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizing {
    /// The containers; all others stay unchanged.
    pub containers: Vec<ResourceChange>,
    /// Make only a dry run.
    pub dry_run: bool,
}

/// New resources for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceChange {
    /// The container.
    pub container: String,
    /// It is one of `spec.initContainers`.
    pub init: bool,
    /// Amounts to set; absent amounts stay unchanged.
    pub resources: Resources,
    /// All resources of the container after the change.
    pub whole: Resources,
}

/// A new image string for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageChange {
    /// The container.
    pub container: String,
    /// It is one of `spec.initContainers`.
    pub init: bool,
    /// The image to set.
    pub image: String,
    /// A dry run has just succeeded, so no other one is made before the write.
    pub tried: bool,
}

/// A request, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its kind.
    pub kind: KindId,
    /// Namespace and name.
    pub key: ObjectKey,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// A Kubernetes event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Kind of the request or workload.
    pub kind: KindId,
    /// The request, or the workload.
    pub request: ObjectKey,
    /// Its UID.
    pub request_uid: String,
    /// The Pod that also gets the event, and its UID.
    pub pod: Option<(ObjectKey, String)>,
    /// The request was made by an object for [many](crate::kind::About::many) Pods, which reports on it and deletes it.
    pub owned: bool,
    /// It reports a failure.
    pub warning: bool,
    /// One `CamelCase` word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Note {
    /// The event is recorded on the request, not only on its Pod.
    pub fn is_on_request(&self) -> bool {
        !self.owned || self.pod.is_none()
    }
}
