//! Deeds: what a request does besides writes of itself, its Pod and its orders.

use std::collections::BTreeMap;

use pitstop_api::nodework::PullPolicy;
use pitstop_api::rollout::TargetKind;
use serde_json::Value;

use crate::change::ImageChange;
use crate::key::{KindId, ObjectKey};
use crate::workload::{Set, Version, Workload, WorkloadQuery};

/// One action for a request. It names its precondition and can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Create an object that the request owns.
    Create(Box<Child>),
    /// Delete such an object, if it still has this UID.
    Delete {
        /// Its kind.
        kind: KindId,
        /// The object.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Release such an object that was created [suspended](crate::kind::Kind::suspended), if it still has this UID.
    Resume {
        /// Its kind.
        kind: KindId,
        /// The object.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The Pod that it is for.
        pod: ObjectKey,
    },
    /// Find out whether the API server would store these images in a Pod, if it still has this UID.
    TryImages {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The images.
        images: Vec<ImageChange>,
    },
    /// Find out whether a node of this name exists and is ready.
    AskNode(String),
    /// Read a workload.
    AskWorkload(Box<WorkloadQuery>),
    /// Mark a Pod with its revision for the workload's controller, if the Pod is still this version.
    MarkPod {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// Its version.
        resource_version: String,
        /// The revision.
        revision: String,
        /// Kind of its workload, if any. The controller of a `Deployment` does not look at the mark.
        kind: Option<TargetKind>,
    },
    /// Write a template into a `ReplicaSet` of a parked `Deployment`, if both are still this version.
    Commit(Box<Commit>),
    /// Release a parked workload, if it is still this version.
    Release(Box<Release>),
    /// Find out whether a workload, parked or not, could be released: the controller has the right, and the policy
    /// exists that narrows this right.
    TryRelease {
        /// Its kind.
        kind: TargetKind,
        /// Namespace and name.
        key: ObjectKey,
    },
    /// Create a Pod that makes a node's kubelet pull images with the credentials of another Pod.
    Pull(Box<Puller>),
    /// Delete a Pod that was made for the request, if it still has this UID.
    DeletePod {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Evict a Pod, if it still has this UID.
    Evict {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
}

impl Deed {
    /// It concerns one Pod of many, or the request for that Pod: several may be under way.
    pub fn is_one_of_many(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Delete { .. } | Self::Resume { .. } | Self::MarkPod { .. })
    }
}

/// An object to create. The request owns it, so it is deleted with the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its kind.
    pub kind: KindId,
    /// Namespace, which is the request's, and name.
    pub key: ObjectKey,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec`.
    pub spec: Value,
}

/// A workload to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its kind.
    pub kind: TargetKind,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The strategy to restore.
    pub to: Strategy,
}

/// A strategy to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The strategy is already as before.
    AsIs,
    /// The partition of a `StatefulSet`.
    Partition(u32),
    /// `RollingUpdate`.
    Rolling,
    /// A `Deployment` that is not paused.
    Unpaused,
}

impl Strategy {
    /// The strategy that the mark of a parked workload names; `None` for any other value.
    pub fn marked(kind: TargetKind, mark: &str) -> Option<Self> {
        match kind {
            TargetKind::StatefulSet => mark.parse().ok().map(Self::Partition),
            TargetKind::DaemonSet => (mark == "RollingUpdate").then_some(Self::Rolling),
            TargetKind::Deployment => (mark == "Unpaused").then_some(Self::Unpaused),
        }
    }

    /// The mark that names it; `None` if nothing is to be restored.
    pub(crate) fn mark(self) -> Option<String> {
        match self {
            Self::AsIs => None,
            Self::Partition(partition) => Some(partition.to_string()),
            Self::Rolling => Some("RollingUpdate".to_owned()),
            Self::Unpaused => Some("Unpaused".to_owned()),
        }
    }
}

/// A step by which a `Deployment` adopts its existing Pods as Pods of its new template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The namespace.
    pub namespace: String,
    /// The `Deployment`.
    pub deployment: Version,
    /// Its `ReplicaSet` that has Pods.
    pub active: Set,
    /// What to write.
    pub step: CommitStep,
}

/// What to write into which `ReplicaSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitStep {
    /// The old template, with the annotations that `kubectl rollout history` reads, into this one, which has the new
    /// template.
    Keep(Set),
    /// The same into a new `ReplicaSet` without Pods.
    Make,
    /// The new template, into the `ReplicaSet` with Pods.
    Swap,
    /// A mark, into this one: it is older and has the template of the one with Pods, so it would get the Pods.
    Void(Set),
}

impl CommitStep {
    /// Its name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Keep(_) => "keep the old template in another ReplicaSet",
            Self::Make => "keep the old template in a new ReplicaSet",
            Self::Swap => "give the ReplicaSet the new template",
            Self::Void(_) => "void another ReplicaSet",
        }
    }
}

/// A Pod that makes the kubelet of its node pull images, runs nothing of them, and ends. The request owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Puller {
    /// Namespace, which is the request's, and name.
    pub key: ObjectKey,
    /// The Pod whose `imagePullSecrets` and service account it uses.
    pub lender: ObjectKey,
    /// That Pod's UID.
    pub lender_uid: String,
    /// Its node.
    pub node: String,
    /// Seconds until the kubelet ends it.
    pub limit: i64,
    /// The images, each for a container of that Pod.
    pub images: Vec<ImageToPull>,
}

/// An image for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageToPull {
    /// The container's name.
    pub container: String,
    /// The image.
    pub image: String,
    /// The container's `imagePullPolicy`.
    pub policy: PullPolicy,
}

/// How a deed ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It took effect.
    Effected,
    /// The workload that was read.
    Read(Box<Workload>),
    /// Its object does not exist. For a query about a node, also: the node is not ready.
    Gone,
    /// Its precondition failed, or the object to create exists.
    Conflict,
    /// It failed with this message, perhaps after it took effect. Worth another try.
    Retry(String),
    /// It was refused with this message, so it had no effect. Worth another try: an API server that has just started
    /// refuses requests until it knows the roles.
    Refused(String),
}
