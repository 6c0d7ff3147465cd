//! What goes into the index and what comes out of it.

use std::collections::BTreeMap;
use std::fmt;

pub use pitstop_api::logic::watch::Watch;
use pitstop_api::nodework::Order;
use pitstop_api::quantity::Resources;
use pitstop_api::recreate::ContainerRecreateRequestStatus;
use pitstop_api::resize::PodResizeStatus;

use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::measure::Measure;
use crate::nodework::NodeWork;
use crate::pod::Pod;
use crate::readiness::GateChange;
use crate::recreate::Request;
use crate::resize::Resize;
use crate::resize::admission::Survey;

/// Something happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Pods changed.
    Pods(Watch<Pod>),
    /// Requests changed.
    Requests(Watch<Request>),
    /// Resizes changed.
    Resizes(Watch<Resize>),
    /// Order books changed.
    NodeWorks(Watch<NodeWork>),
    /// This process began or ceased to lead.
    Leader(bool),
    /// The API server keeps each daemon to its own node, or does not ([`crate::guard`]).
    Guarded(bool),
    /// A write of a request came back.
    RequestWritten {
        /// The request.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Outcome<Request>,
    },
    /// A write of a Pod came back.
    PodWritten {
        /// The Pod.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Outcome<Pod>,
    },
    /// A dry run of a Pod's change came back.
    PodTried {
        /// The Pod.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Outcome<()>,
    },
    /// A write of a resize came back.
    ResizeWritten {
        /// The resize.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Outcome<Resize>,
    },
    /// What a resize has had done came back.
    DeedDone {
        /// The resize.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        done: Done,
    },
    /// A survey for a resize came back.
    Surveyed {
        /// The resize.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// What was found.
        outcome: Outcome<Survey>,
    },
    /// The API server was asked for the Pod of a request.
    PodRead {
        /// The request's kind.
        kind: RequestKind,
        /// The request.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// The Pod's UID.
        outcome: Outcome<String>,
    },
    /// A write of an order book came back.
    NodeWorkWritten(String, Outcome<NodeWork>),
    /// Time passed.
    Tick,
}

/// How a write ended.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// It took effect; the object as stored.
    Written(T),
    /// The object no longer exists.
    Gone,
    /// Its precondition failed.
    Conflict,
    /// It failed, perhaps after it took effect; worth another try.
    Retry,
    /// It was refused, so it had no effect. Worth another try all the same: an API server that has just started
    /// refuses what it does not know the roles for yet.
    Refused(String),
}

/// A write, or a reading, to do. Each names what it relies on, and can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Replace a request's status, if it is still that version.
    WriteStatus {
        /// The request.
        key: ObjectKey,
        /// Its UID, for the logs.
        uid: String,
        /// The version that the status was computed from.
        resource_version: String,
        /// The whole status.
        status: Box<ContainerRecreateRequestStatus>,
    },
    /// Replace a resize's status, if it is still that version.
    WriteResizeStatus {
        /// The resize.
        key: ObjectKey,
        /// Its UID, for the logs.
        uid: String,
        /// The version that the status was computed from.
        resource_version: String,
        /// The whole status.
        status: Box<PodResizeStatus>,
    },
    /// Delete a resize, if it still has that UID.
    DeleteResize {
        /// The resize.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Read what bounds the Pod of a resize: the `LimitRange`s and the `ResourceQuota`s of its namespace, and its node.
    Survey {
        /// The resize.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The node.
        node: String,
    },
    /// Read whether the Pod of a request exists.
    ReadPod {
        /// The request's kind.
        kind: RequestKind,
        /// The request.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The Pod.
        pod: ObjectKey,
    },
    /// Set or remove labels and annotations of a request, if it is still that version.
    PatchMetadata {
        /// The request.
        key: ObjectKey,
        /// Its UID, for the logs.
        uid: String,
        /// The version that was looked at.
        resource_version: String,
        /// Label values; absent ones are removed.
        labels: BTreeMap<String, Option<String>>,
        /// Annotation values; absent ones are removed.
        annotations: BTreeMap<String, Option<String>>,
    },
    /// Delete a request, if it still has that UID.
    DeleteRequest {
        /// The request.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Write a node's orders, if its book is still that version; create the book when there is none.
    WriteOrders {
        /// The node.
        node: String,
        /// The version that was looked at; absent to create.
        resource_version: Option<String>,
        /// All open orders.
        orders: Vec<Order>,
        /// IDs of those of them whose request has ended or is about to.
        closed: Vec<String>,
        /// The book has no owner, and gets its node for one if that is there.
        adopt: bool,
    },
    /// Change a Pod, if it is still that version.
    PatchPod {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The version that was looked at.
        resource_version: String,
        /// What to change; all else stays.
        change: PodChange,
    },
    /// Do something for a resize.
    Do {
        /// The resize.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// What.
        deed: Deed,
    },
    /// Tell people; lost ones are not repeated.
    Emit(Note),
    /// Count; lost ones are not repeated.
    Count(Measure),
}

impl Action {
    /// The namespace of what it is about; absent for a node.
    pub fn namespace(&self) -> Option<&str> {
        let key = match self {
            Self::WriteStatus { key, .. }
            | Self::WriteResizeStatus { key, .. }
            | Self::DeleteResize { key, .. }
            | Self::Survey { key, .. }
            | Self::ReadPod { key, .. }
            | Self::PatchMetadata { key, .. }
            | Self::DeleteRequest { key, .. }
            | Self::PatchPod { key, .. }
            | Self::Do { key, .. } => key,
            Self::Emit(note) => &note.request,
            Self::WriteOrders { .. } | Self::Count(_) => return None,
        };
        Some(&key.namespace)
    }
}

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
}

/// A kind of what users ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// `ContainerRecreateRequest`.
    Recreate,
    /// `PodResize`.
    Resize,
}

impl RequestKind {
    /// As `kind` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recreate => "ContainerRecreateRequest",
            Self::Resize => "PodResize",
        }
    }
}

/// A request of either kind, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its kind.
    pub kind: RequestKind,
    /// It.
    pub key: ObjectKey,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.key)
    }
}

/// A Kubernetes event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The request's kind.
    pub kind: RequestKind,
    /// The request.
    pub request: ObjectKey,
    /// The request's UID.
    pub request_uid: String,
    /// The Pod it is about, if the event belongs there too.
    pub pod: Option<(ObjectKey, String)>,
    /// It tells of a failure.
    pub warning: bool,
    /// One `CamelCase` word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}
