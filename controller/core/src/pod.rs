//! A Pod, reduced to what decisions need.

mod ends;

use std::collections::BTreeMap;

use pitstop_api::labels;
use pitstop_api::nodework::PullPolicy;
use pitstop_api::quantity::Resources;
use serde::{Deserialize, Serialize};

use crate::key::ObjectKey;
use crate::owner::Owner;
use crate::readiness::Gate;
use crate::tracked::Versioned;

/// How many labels of a Pod selectors can match.
pub const MAX_LABELS: usize = 64;

/// A hash of a label, by which selectors find Pods.
pub fn label_hash(name: &str, value: &str) -> u64 {
    labels::hash(&format!("{name}={value}"))
}

/// [Hashes](label_hash) of the first [`MAX_LABELS`] labels, sorted.
pub fn label_hashes(labels: &BTreeMap<String, String>) -> Vec<u64> {
    let labels = labels.iter().take(MAX_LABELS);
    let mut hashes: Vec<u64> = labels.map(|(name, value)| label_hash(name, value)).collect();
    hashes.sort_unstable();
    hashes
}

pub use ends::{AfterEnd, AfterStop, MAX_EXIT_CODES, MAX_RULES, OwnPolicy, RestartRule};

/// A Pod as the API server last showed it.
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the API's Pod")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp`, in seconds; only compared with other objects of the same API server.
    pub created: i64,
    /// [Hash](crate::workload::revision_hash) of its revision.
    pub revision: u64,
    /// [Hash](crate::workload::revision_hash) of its annotation `pitstop.dev/revision` alone.
    pub marked: u64,
    /// [Hashes](label_hash) of its labels, sorted: of the first [`MAX_LABELS`] by name.
    pub labels: Box<[u64]>,
    /// The controller that the Pod belongs to.
    pub controller: Option<Box<Controller>>,
    /// Set if it was made for an object of ours. Boxed, because few Pods have it.
    pub made: Option<Box<Made>>,
    /// `metadata.generation`, which a change of the spec raises.
    pub generation: Option<i64>,
    /// `status.observedGeneration`: the spec that the kubelet has seen (Kubernetes 1.34 and later).
    pub observed_generation: Option<i64>,
    /// `spec.nodeName`; absent while unscheduled.
    pub node: Option<String>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `status.phase` is `Succeeded` or `Failed`.
    pub finished: bool,
    /// It mirrors a static Pod (annotation `kubernetes.io/config.mirror`).
    pub mirror: bool,
    /// `spec.restartPolicy`.
    pub restart_policy: RestartPolicy,
    /// `spec.terminationGracePeriodSeconds`, in seconds.
    pub grace_seconds: Option<i64>,
    /// Its readiness gates of the types that pitstop serves.
    pub gates: Vec<Gate>,
    /// Condition `Ready` is True.
    pub ready: bool,
    /// The kubelet last reported it ready, but it counts as not ready because its node is not ready.
    pub unheard: bool,
    /// What the kubelet reports of a resize.
    pub resize: ResizeConditions,
    /// `spec.overhead`: what the Pod's sandbox uses besides its containers.
    pub overhead: Resources,
    /// `spec.resources`, which bound all its containers together (KEP-2837).
    pub pod_level: Option<Box<Resources>>,
    /// It asks for `hugepages-<size>`.
    pub huge_pages: bool,
    /// It has `spec.activeDeadlineSeconds`.
    pub active_deadline: bool,
    /// It has `spec.imagePullSecrets`: its kubelet may pull private images.
    pub pull_secrets: bool,
    /// `spec.priorityClassName`.
    pub priority_class: Option<Box<str>>,
    /// Containers of every kind.
    pub containers: Vec<Container>,
}

/// Pods of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// Those of the controller with this UID.
    Controller(String),
    /// Those that have all these [labels](label_hash).
    Labels(Vec<u64>),
}

/// The controlling owner of a Pod (`metadata.ownerReferences`), of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// Its kind, such as `ReplicaSet`.
    pub kind: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
}

/// Further data of a Pod that was made for an object of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// That object.
    pub owner: Owner,
    /// `status.reason` and `status.message`: why the kubelet does not, or no longer, run it.
    pub ended: Explanation,
    /// The images of its image volumes, by volume name.
    pub volumes: BTreeMap<String, String>,
}

/// The conditions of a Pod about a resize (KEP-1287). `Some` means that the condition is True.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeConditions {
    /// `PodResizePending`: the new size is not admitted.
    pub pending: Option<Explanation>,
    /// `PodResizeInProgress`: it is admitted, and the containers do not have it yet.
    pub in_progress: Option<Explanation>,
}

/// Reason and message of a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// When the kubelet restarts an ended container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Whenever it ends.
    #[default]
    Always,
    /// When it ends with an error.
    OnFailure,
    /// Not at all.
    Never,
}

/// What kind of container it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerKind {
    /// `spec.containers`.
    #[default]
    Main,
    /// `spec.initContainers` that run to their end before the others start.
    Init,
    /// `spec.initContainers` with `restartPolicy: Always`, which run beside the others (KEP-753).
    Sidecar,
    /// `spec.ephemeralContainers`.
    Ephemeral,
}

/// One container: its spec and status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: ContainerKind,
    /// `image` of its spec.
    pub image: String,
    /// `imagePullPolicy` of its spec.
    pub pull_policy: PullPolicy,
    /// `resources` of its spec.
    pub resources: Resources,
    /// Resources whose change restarts it.
    pub restart_for: RestartFor,
    /// Seconds that its readiness and startup probes may take to succeed. For that long, a restarted kubelet may report
    /// it as not ready.
    pub probe_seconds: u16,
    /// When the kubelet restarts it; `None` if the Pod's policy applies.
    pub own_policy: Option<Box<OwnPolicy>>,
    /// Its status in the Pod, if any.
    pub status: Option<ContainerStatus>,
}

/// `resizePolicy`: the resources whose change restarts the container (`RestartContainer`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartFor {
    /// CPU.
    pub cpu: bool,
    /// Memory.
    pub memory: bool,
}

/// `status.containerStatuses[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// `<runtime>://<id>`; empty before the first start.
    pub container_id: String,
    /// The image that it runs, `imageID`: `<repository>@sha256:<digest>` where the runtime knows a repository.
    pub image_id: String,
    /// How often it was restarted.
    pub restart_count: i32,
    /// It passes its readiness probe.
    pub ready: bool,
    /// Its state.
    pub state: ContainerState,
    /// `allocatedResources`: the requests that the kubelet has admitted.
    pub allocated: Option<Resources>,
    /// `resources`: what the container runs with. `None` if the kubelet does not support resizing.
    pub actual: Option<Resources>,
    /// `actual` is from the node's daemon, and exact. A kubelet computes it from shares.
    pub exact: bool,
    /// `containerID` of the last instance that was killed for lack of memory; empty for none.
    pub oom_killed: String,
    /// The last instance whose end is unknown, such as one that ended with its node: the restart count at that time.
    /// `None` for no such instance.
    pub lost: Option<i32>,
}

/// The state of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// It waits to start: reason and message of the kubelet.
    Waiting {
        /// For example `CrashLoopBackOff`.
        reason: String,
        /// The kubelet's words.
        message: String,
    },
    /// It runs.
    Running,
    /// It has ended.
    Terminated {
        /// Exit code.
        exit_code: i32,
    },
    /// The kubelet has not reported it.
    #[default]
    Unknown,
}

impl Pod {
    /// The container of that name.
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// Its kubelet has not seen its current spec. Not every kubelet reports this.
    pub fn unseen(&self) -> bool {
        self.observed_generation.zip(self.generation).is_some_and(|(seen, is)| seen < is)
    }

    /// Its kubelet reports that it has seen its current spec.
    pub fn seen(&self) -> bool {
        self.observed_generation.zip(self.generation).is_some_and(|(seen, is)| seen >= is)
    }

    /// It has all these [labels](label_hash).
    pub fn has_labels(&self, labels: &[u64]) -> bool {
        labels.iter().all(|label| self.labels.binary_search(label).is_ok())
    }

    /// It will never run again.
    pub fn gone(&self) -> bool {
        self.deleting || self.finished
    }
}

impl Versioned for Pod {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}
