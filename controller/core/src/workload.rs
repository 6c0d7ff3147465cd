//! What is read of a workload: a `Deployment`, a `StatefulSet` or a `DaemonSet`.

use std::collections::BTreeMap;

use pitstop_api::labels;
use pitstop_api::rollout::TargetKind;

use crate::key::ObjectKey;
use crate::pod::{Group, Pod};
use crate::template::{Change, Delta, Wanted, same_image, same_repository};

/// Which workload to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadQuery {
    /// Its kind; `None` for Pods with certain labels, which are always listed.
    pub kind: Option<TargetKind>,
    /// Namespace and name.
    pub key: ObjectKey,
    /// These labels, if there is no kind.
    pub labels: BTreeMap<String, String>,
    /// List its Pods, too.
    pub pods: bool,
    /// Read the disruption budgets that are for its Pods, too.
    pub budgets: bool,
    /// Read what its template has changed, too.
    pub template: bool,
    /// Further annotations of its template that ask for a restart.
    pub restarts: Vec<String>,
    /// Compare older revisions with this one, instead of with the template.
    pub back: Option<String>,
}

/// A workload that is parked, as the watch shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Its kind.
    pub kind: TargetKind,
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.generation`.
    pub generation: i64,
    /// The value of its label `pitstop.dev/parked`.
    pub mark: String,
}

impl Parked {
    /// The name under which a rollout for it stands in line.
    pub fn queue_key(&self) -> ObjectKey {
        queue_key(self.kind, &self.key)
    }
}

/// Whether a workload is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parking<'a> {
    /// The watch has not shown that yet.
    Unknown,
    /// It is not.
    No,
    /// It is.
    Yes(&'a Parked),
}

/// The name under which rollouts for a workload stand in line: no Pod has such a name.
pub fn queue_key(kind: TargetKind, key: &ObjectKey) -> ObjectKey {
    ObjectKey::new(&key.namespace, format!("{}/{}", kind.name(), key.name))
}

/// Revision of a Pod that an abandoned update may have changed.
pub const UNKNOWN: &str = "unknown";

/// Hash of a revision, the value of a Pod's label `controller-revision-hash`; 0 for none. A Pod keeps only this hash.
pub fn revision_hash(label: &str) -> u64 {
    if label.is_empty() { 0 } else { labels::hash(label) }
}

/// A workload, as the API server shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// UIDs of the controllers that its Pods belong to: its own, or those of its `ReplicaSet`s that have Pods.
    pub controllers: Vec<String>,
    /// [Hashes](crate::pod::label_hash) of the labels that its Pods have, if labels select them.
    pub labels: Vec<u64>,
    /// How many Pods it is to have.
    pub desired: u32,
    /// How many of them may be unavailable by its strategy, percentages rounded down; 0 only if the strategy says 0.
    pub max_unavailable: u32,
    /// `spec.updateStrategy.rollingUpdate.partition`: Pods with lower ordinals are left alone.
    pub partition: u32,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: u32,
    /// The disruption budgets for its Pods, if requested.
    pub budgets: Option<Vec<Budget>>,
    /// What its template has changed, if requested.
    pub template: Option<Template>,
    /// Its Pods, if requested.
    pub pods: Option<Vec<Listed>>,
}

impl Workload {
    /// The Pod belongs to it.
    pub fn has(&self, pod: &Pod) -> bool {
        if self.labels.is_empty() {
            let of = pod.controller.as_ref();
            return of.is_some_and(|of| self.controllers.iter().any(|uid| **uid == *of.uid));
        }
        !pod.finished && pod.has_labels(&self.labels)
    }

    /// Its Pods.
    pub fn groups(&self) -> Vec<Group> {
        if self.labels.is_empty() {
            return self.controllers.iter().cloned().map(Group::Controller).collect();
        }
        vec![Group::Labels(self.labels.clone())]
    }
}

/// The template of a workload, and what it has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// `metadata.generation` of the workload.
    pub generation: i64,
    /// `metadata.resourceVersion` of the workload.
    pub resource_version: String,
    /// Its controller has seen that generation.
    pub seen: bool,
    /// The value of the label `pitstop.dev/parked`; `None` if it is not parked.
    pub parked: Option<String>,
    /// Its strategy is that of a parked one: its controller replaces no Pod of an older revision.
    pub holds: bool,
    /// The revision of Pods of this template; `None` until its controller has made it.
    pub revision: Option<String>,
    /// Its controller makes new Pods of this revision; for a `Deployment` or `DaemonSet`, it counts all Pods as
    /// updated.
    pub committed: bool,
    /// How many Pods of this revision the controller of a `StatefulSet` counts; 0 for other kinds.
    pub updated: u32,
    /// The revision that its Pods had before it, as far as is known.
    pub previous: Option<String>,
    /// The older revision to compare others with, if requested.
    pub back: Option<String>,
    /// What it has changed, by the older revisions that are kept; or what [`back`](Self::back) has changed. In a
    /// `Deployment`, the empty revision stands for Pods that were never updated.
    pub changes: BTreeMap<String, Change>,
    /// Only for a `Deployment`.
    pub sets: Sets,
}

impl Template {
    /// Its controller counts the Pod as one of this template, but the Pod has parts of another: an update to that one
    /// was abandoned.
    pub fn strays(&self, kind: TargetKind, pod: &Pod) -> bool {
        let of = self.revision.as_ref().is_some_and(|revision| pod.revision == revision_hash(revision));
        if kind == TargetKind::Deployment {
            let other = |(name, wanted): (&String, &Wanted)| {
                let has = pod.container(name).map_or("", |container| &container.image);
                !same_image(has, &wanted.image) && same_repository(has, &wanted.image).is_ok()
            };
            return self.sets.swapped() && (pod.revision != 0 && !of || self.sets.wanted.iter().any(other));
        }
        let has = |change: &Change| match change {
            Change::InPlace(Delta { images, sizes, .. }) => {
                images.iter().any(|image| image.was_in(pod)) || sizes.iter().any(|size| size.was_in(pod))
            }
            Change::Other(_) => false,
        };
        of && self.changes.values().any(has)
    }
}

/// The `ReplicaSet`s of a `Deployment`, and what is written into them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    /// Those that have Pods, or are to have some.
    pub active: Vec<Set>,
    /// The others.
    pub others: Vec<Set>,
    /// It keeps the `ReplicaSet`s of older templates: `spec.revisionHistoryLimit` is not 0.
    pub kept: bool,
    /// The wanted state of containers that can change in place, by the template that others are compared with.
    pub wanted: BTreeMap<String, Wanted>,
}

impl Sets {
    /// The `ReplicaSet` with Pods has the template of the `Deployment`.
    pub fn swapped(&self) -> bool {
        self.active.iter().any(|set| set.new)
    }
}

/// A `ReplicaSet` of a `Deployment`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// `metadata.creationTimestamp`, in seconds.
    pub created: i64,
    /// Its version, as read.
    pub version: Version,
    /// The value of the label `pod-template-hash` of its template.
    pub hash: String,
    /// Its template is the one that others are compared with: that of the `Deployment`.
    pub new: bool,
    /// Its template is that of the `ReplicaSet` with Pods.
    pub old: bool,
    /// Its controller has seen its `metadata.generation`.
    pub seen: bool,
}

/// A version of an object in a known namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// A `PodDisruptionBudget` that selects the labels of the workload's Pod template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// `metadata.name`.
    pub name: String,
    /// `status.desiredHealthy`; `None` until its controller has seen the current spec.
    pub desired_healthy: Option<u32>,
    /// `status.currentHealthy`: ready Pods, those of other workloads included.
    pub healthy: u32,
    /// `status.expectedPods`: all that it selects.
    pub expected: u32,
    /// It is for some of the Pods only.
    pub partial: bool,
}

impl Budget {
    /// How many of its Pods are healthy. `own` of the workload's are, as the watch knows sooner than the budget's
    /// controller does. `all` are the workload's Pods, and `ready` those of them that the controller may count.
    ///
    /// Which of them a partial budget selects is unknown here: each unhealthy one is taken for one that the controller
    /// has counted.
    pub fn healthy(&self, own: u32, ready: u32, all: u32) -> u32 {
        if self.partial {
            return self.healthy.saturating_sub(all.saturating_sub(own));
        }
        let others = self.healthy.saturating_sub(ready).min(self.expected.saturating_sub(all));
        own.saturating_add(others)
    }
}

/// A Pod in a requested list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`, in seconds.
    pub created: i64,
    /// [Hash](revision_hash) of its revision.
    pub revision: u64,
}
