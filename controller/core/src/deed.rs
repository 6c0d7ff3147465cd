//! What a request has done beside writing itself, its Pod and its orders.

use std::collections::BTreeMap;

use pitstop_api::nodework::PullPolicy;
use pitstop_api::rollout::TargetKind;
use serde_json::Value;

use crate::change::ImageChange;
use crate::key::{KindId, ObjectKey};
use crate::workload::{Set, Version, Workload, WorkloadQuery};

/// One such thing. It names what it relies on, and can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Make an object that belongs to the request.
    Create(Box<Child>),
    /// Delete such an object, if it still has that UID.
    Delete {
        /// Its kind.
        kind: KindId,
        /// The object.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Let such an object go on that was made [suspended](crate::kind::Kind::suspended), if it still has that UID.
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
    /// Find out whether the API server would store these images in a Pod, if it still has that UID.
    TryImages {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The images.
        images: Vec<ImageChange>,
    },
    /// Find out whether there is a node of that name that is ready.
    AskNode(String),
    /// Read a workload.
    AskWorkload(Box<WorkloadQuery>),
    /// Tell its controller of which revision a Pod is, if it is still that version.
    MarkPod {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// Its version.
        resource_version: String,
        /// The revision.
        revision: String,
        /// Of which kind its workload is, if it has one: that of a `Deployment` does not look at it.
        of: Option<TargetKind>,
    },
    /// Write a template into a `ReplicaSet` of a parked `Deployment`, if both are still that version.
    Commit(Box<Commit>),
    /// Release a workload that is parked, if it is still that version.
    Release(Box<Release>),
    /// Find out whether a workload could be released, parked or not: there is the right, and the policy without which it would be
    /// the right to do more.
    TryRelease {
        /// Its kind.
        kind: TargetKind,
        /// Namespace and name.
        key: ObjectKey,
    },
    /// Make a Pod that has a node's kubelet pull images, with the credentials of another Pod.
    Pull(Box<Puller>),
    /// Delete a Pod that was made for the request, if it still has that UID.
    DeletePod {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Evict a Pod, if it still has that UID.
    Evict {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
}

impl Deed {
    /// It is about one Pod of many, or the request for one: several may be under way.
    pub fn is_one_of_many(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Delete { .. } | Self::Resume { .. } | Self::MarkPod { .. })
    }
}

/// An object to make. It goes with the request, its owner.
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
    /// What its strategy was before.
    pub to: Strategy,
}

/// A strategy to put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// It is as it was already.
    AsIs,
    /// The partition of a `StatefulSet`.
    Partition(u32),
    /// `RollingUpdate`.
    Rolling,
    /// A `Deployment` that is not paused.
    Unpaused,
}

impl Strategy {
    /// What the mark of a parked workload says that it is released to; nothing where it says something else.
    pub fn marked(kind: TargetKind, mark: &str) -> Option<Self> {
        match kind {
            TargetKind::StatefulSet => mark.parse().ok().map(Self::Partition),
            TargetKind::DaemonSet => (mark == "RollingUpdate").then_some(Self::Rolling),
            TargetKind::Deployment => (mark == "Unpaused").then_some(Self::Unpaused),
        }
    }

    /// The mark that says it; nothing where there is nothing to put back.
    pub(crate) fn mark(self) -> Option<String> {
        match self {
            Self::AsIs => None,
            Self::Partition(partition) => Some(partition.to_string()),
            Self::Rolling => Some("RollingUpdate".to_owned()),
            Self::Unpaused => Some("Unpaused".to_owned()),
        }
    }
}

/// A step by which a `Deployment` takes the Pods that it has for those of its new template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The namespace.
    pub namespace: String,
    /// The `Deployment`.
    pub deployment: Version,
    /// The one of its `ReplicaSet`s that has Pods.
    pub active: Set,
    /// What is written.
    pub step: CommitStep,
}

/// What is written into which `ReplicaSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitStep {
    /// The old template, with the annotations that `kubectl rollout history` reads, into this one, which has the new one.
    Keep(Set),
    /// The same into a new one without Pods.
    Make,
    /// The new template, into the one with Pods.
    Swap,
    /// A mark, into this one: it has the template of the one with Pods, and is older, so it would get the Pods.
    Void(Set),
}

impl CommitStep {
    /// What it is in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Keep(_) => "keep the old template in another ReplicaSet",
            Self::Make => "keep the old template in a new ReplicaSet",
            Self::Swap => "give the ReplicaSet the new template",
            Self::Void(_) => "void another ReplicaSet",
        }
    }
}

/// A Pod that has the kubelet of its node pull images, runs nothing of them, and ends. It goes with the request, its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Puller {
    /// Namespace, which is the request's, and name.
    pub key: ObjectKey,
    /// The Pod whose `imagePullSecrets` and service account it has.
    pub of: ObjectKey,
    /// That Pod's UID.
    pub of_uid: String,
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
    /// The workload that was asked for.
    Told(Box<Workload>),
    /// What it is about does not exist.
    Gone,
    /// Its precondition failed, or what it makes exists.
    Conflict,
    /// It failed in these words, perhaps after it took effect; worth another try.
    Retry(String),
    /// It was refused in these words, so it had no effect. Worth another try all the same: an API server that has just
    /// started refuses what it does not know the roles for yet.
    Refused(String),
}
