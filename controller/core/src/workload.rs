//! What is read of a workload: a `Deployment`, a `StatefulSet` or a `DaemonSet`.

use pitstop_api::rollout::TargetKind;

use crate::key::ObjectKey;

/// Which workload to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadQuery {
    /// Its kind.
    pub kind: TargetKind,
    /// Namespace and name.
    pub key: ObjectKey,
    /// List its Pods, too.
    pub pods: bool,
}

/// A workload, as the API server tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// UIDs of the controllers that its Pods belong to: its own, or those of its `ReplicaSet`s that have Pods.
    pub controllers: Vec<String>,
    /// How many Pods it is to have.
    pub desired: u32,
    /// How many of them its strategy lets be unavailable, percentages rounded down; 0 only where it says so itself.
    pub max_unavailable: u32,
    /// `spec.updateStrategy.rollingUpdate.partition`: Pods with lower ordinals are left alone.
    pub partition: u32,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: u32,
    /// Its Pods, if that was asked for.
    pub pods: Option<Vec<Listed>>,
}

/// A Pod, as a list that was asked for names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`, in seconds.
    pub created: i64,
}
