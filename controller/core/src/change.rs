//! What requests change of Pods and tell people, whatever their kind.

use std::fmt;

use pitstop_api::quantity::Resources;

use crate::key::{KindId, ObjectKey};
use crate::readiness::GateChange;

/// One kind of change to a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// Set these conditions of its status, and no other.
    Gates(Vec<GateChange>),
    /// Set these containers' images, after a dry run has shown that just this would be stored.
    Images(Vec<ImageChange>),
    /// Set these containers' resources, after a dry run has shown that just this would be stored.
    Resources(Sizing),
}

/// Resources to set in a Pod through its subresource `resize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizing {
    /// The containers; all others stay as they are.
    pub containers: Vec<ResourceChange>,
    /// Only find out whether it would be stored.
    pub dry_run: bool,
}

/// Other resources for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceChange {
    /// The container.
    pub container: String,
    /// It is one of `spec.initContainers`.
    pub init: bool,
    /// What to set; what is absent stays as it is.
    pub resources: Resources,
    /// All that the container is to have then.
    pub whole: Resources,
}

/// Another image string for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageChange {
    /// The container.
    pub container: String,
    /// It is one of `spec.initContainers`.
    pub init: bool,
    /// The image to set.
    pub image: String,
    /// The API server has just said that it would store it: it is not asked again before it is set.
    pub tried: bool,
}

/// A request, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its kind.
    pub kind: KindId,
    /// It.
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
    /// The request's kind, or that of a workload.
    pub kind: KindId,
    /// The request, or the workload.
    pub request: ObjectKey,
    /// Its UID.
    pub request_uid: String,
    /// The Pod it is about, if the event belongs there too.
    pub pod: Option<(ObjectKey, String)>,
    /// The request was made for an object of [many](crate::kind::About::many) Pods, which tells of it and deletes it.
    pub owned: bool,
    /// It tells of a failure.
    pub warning: bool,
    /// One `CamelCase` word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Note {
    /// The event is recorded on the request, and not on its Pod alone.
    pub fn is_on_request(&self) -> bool {
        !self.owned || self.pod.is_none()
    }
}
