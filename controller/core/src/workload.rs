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
    /// Read the disruption budgets that are for its Pods, too.
    pub budgets: bool,
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
    /// The disruption budgets that are for its Pods, if that was asked for.
    pub budgets: Vec<Budget>,
    /// Its Pods, if that was asked for.
    pub pods: Option<Vec<Listed>>,
}

/// A `PodDisruptionBudget` that selects the labels of the workload's Pod template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// `metadata.name`.
    pub name: String,
    /// `status.desiredHealthy`; absent while its controller has yet to look at what it says now.
    pub desired_healthy: Option<u32>,
    /// `status.currentHealthy`: ready Pods, those of other workloads included.
    pub healthy: u32,
    /// `status.expectedPods`: all that it selects.
    pub expected: u32,
}

impl Budget {
    /// How many of its Pods are healthy, where `own` of the workload's are: the watch knows those sooner than the budget's
    /// controller does. `all` are the workload's Pods, and `ready` those of them that the controller may count.
    pub fn healthy(&self, own: u32, ready: u32, all: u32) -> u32 {
        let others = self.healthy.saturating_sub(ready).min(self.expected.saturating_sub(all));
        own.saturating_add(others)
    }
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
