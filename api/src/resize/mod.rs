//! `PodResize`: change CPU and memory of containers of one running Pod, in place.

mod amount;
pub mod conditions;
mod validate;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use amount::Amount;
pub use validate::validate;

use crate::nodework::CgroupReading;
use crate::quantity::{Resource, Resources};
use crate::schema::immutable;
use crate::{Condition, is_false, is_zero};

/// Value of `kind`.
pub const KIND: &str = "PodResize";
/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "podresizes";

/// Most containers in one request.
pub const MAX_CONTAINERS: usize = 64;

/// What to change, and how.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "pitstop.dev",
    version = "v1alpha1",
    kind = "PodResize",
    plural = "podresizes",
    singular = "podresize",
    shortname = "prz",
    category = "pitstop",
    selectable = ".spec.podRef.name",
    selectable = ".status.phase",
    namespaced,
    status = "PodResizeStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Changes CPU and memory of chosen containers of one running Pod, in place.",
    printcolumn = r#"{"name":"Pod","type":"string","jsonPath":".spec.podRef.name","description":"The Pod that is resized"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"Phase of the request"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Complete\")].reason","description":"Why the request waits, or how it ended"}"#,
    printcolumn = r#"{"name":"Mechanism","type":"string","priority":1,"jsonPath":".status.mechanism","description":"How the Pod is resized"}"#,
    printcolumn = r#"{"name":"Node","type":"string","priority":1,"jsonPath":".status.target.nodeName","description":"The Pod's node"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Complete\")].message","description":"The reason in a sentence"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.activeDeadlineSeconds) || (has(self.activeDeadlineSeconds) && self.activeDeadlineSeconds >= oldSelf.activeDeadlineSeconds)").message("activeDeadlineSeconds can only be raised: a request may be given more time, not less").field_path(".activeDeadlineSeconds"))]
#[x_kube(validation = Rule::new("!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)").message("cancel cannot be taken back: make another PodResize").field_path(".cancel"))]
pub struct PodResizeSpec {
    /// The Pod, in the request's namespace. Immutable.
    pub pod_ref: PodRef,
    /// The containers to resize; native sidecars too. Names are unique. Immutable.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<ContainerResize>,
    /// How the Pod is resized. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Auto"))]
    pub mechanism: Option<Mechanism>,
    /// Whether containers restart. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "IfPolicyRequires"))]
    pub restart: Option<Restart>,
    /// How to lower memory limits. Default: in one step, once the kubelet (`CRI`: the memory in use) allows it.
    /// Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_shrink: Option<MemoryShrink>,
    /// What to do if the node is too small. Default: fail at once. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_infeasible: Option<OnInfeasible>,
    /// What to do while the node has no room. Default: wait until the deadline. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_deferred: Option<OnDeferred>,
    /// Watch the Pod, and restore the original resources if it becomes unhealthy. Default: no watch. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_on_failure: Option<RollbackOnFailure>,
    /// Seconds until the request ends, without `observeSeconds`. If the Pod lacks the resources by then, the original
    /// ones are restored. Can only be raised. Default: the controller's `--default-active-deadline`, one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = crate::MAX_SECONDS))]
    pub active_deadline_seconds: Option<i64>,
    /// Only report in the status what would happen, or why not. Immutable. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub dry_run: bool,
    /// End the request and restore the original resources. Cannot be unset. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub cancel: bool,
    /// Seconds from the end of the request to its deletion. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// What never changes of a spec.
pub(crate) fn fix(spec: &mut JSONSchemaProps) {
    let fields = [
        "podRef",
        "containers",
        "mechanism",
        "restart",
        "memoryShrink",
        "onInfeasible",
        "onDeferred",
        "rollbackOnFailure",
        "dryRun",
    ];
    immutable(spec, "spec", &fields, " is immutable: make another PodResize");
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRef {
    /// Name of the Pod.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// UID of the Pod; another Pod of that name is left alone. Default: that of the Pod at the request's creation, set
    /// by the webhook. If the webhook was not reached: at acceptance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub uid: Option<String>,
}

/// A container and its new resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResize {
    /// Name of the container in the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The new resources, as in the Pod's spec. Amounts that are left out stay.
    pub resources: NewResources,
}

/// New resources of a container, as in a Pod's spec, or as changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.requests) && size(self.requests) > 0) || (has(self.limits) && size(self.limits) > 0)").message("name at least one of requests and limits"))]
pub struct NewResources {
    /// Requests of `cpu` (cores, `500m`) and `memory` (bytes, `256Mi`): quantities, or changes such as `+20%`, `-10%`
    /// or `x1.5`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    #[x_kube(validation = Rule::new("self.all(r, r == 'cpu' || r == 'memory')").message("only cpu and memory can be resized in place"))]
    pub requests: BTreeMap<String, Amount>,
    /// Limits of `cpu` (cores, `500m`) and `memory` (bytes, `256Mi`): quantities, or changes such as `+20%`, `-10%` or
    /// `x1.5`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    #[x_kube(validation = Rule::new("self.all(r, r == 'cpu' || r == 'memory')").message("only cpu and memory can be resized in place"))]
    pub limits: BTreeMap<String, Amount>,
}

/// How the Pod is resized. `Auto` (default): as its node supports. `API`: by the kubelet, through `pods/resize`
/// (Kubernetes 1.33 and later). `CRI`: by the node's daemon, through the container runtime and the Pod's cgroup, if the
/// kubelet does not resize. With `CRI`, the Pod has the resources only while the request exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    /// As the node supports.
    #[default]
    Auto,
    /// By the kubelet.
    #[serde(rename = "API")]
    Api,
    /// By the node's daemon.
    #[serde(rename = "CRI")]
    Cri,
}

/// Whether containers restart. `IfPolicyRequires` (default): if their `resizePolicy` requires it (`CRI`: then the
/// request fails). `Never`: if their `resizePolicy` requires it, the request fails. `Always`: all containers of the
/// request restart once they have the resources, as by a `ContainerRecreateRequest`. Immutable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Restart {
    /// No restart.
    Never,
    /// If the `resizePolicy` requires it.
    #[default]
    IfPolicyRequires,
    /// All containers of the request.
    Always,
}

/// How to lower memory limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryShrink {
    /// Memory that a lower limit must leave free, in bytes, such as `64Mi`. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub margin: Option<String>,
    /// If the margin is not free, the kernel first reclaims the container's memory: page cache before the rest. Needs
    /// the component `resize-cri`. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub reclaim: bool,
    /// Largest step by which limits are lowered, in bytes, such as `256Mi`. At least `1Mi`, at most 100 steps; not with
    /// `CRI`. Default: one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub step: Option<String>,
}

/// What to do while the node has no room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnDeferred {
    /// Seconds to wait for room, from when the controller sees that there is none.
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub wait_seconds: i64,
    /// What to do after `waitSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Fail"))]
    pub then: Option<AfterWait>,
}

/// What to do if the node is too small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnInfeasible {
    /// Seconds to retry, from when the controller sees that the node is too small. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS), extend("default" = 0))]
    pub wait_seconds: Option<i64>,
    /// What to do after `waitSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Fail"))]
    pub then: Option<LastResort>,
}

/// What to do after `waitSeconds`. `Fail` (default): the request fails, and the original resources are restored.
/// `Evict`: the controller evicts the Pod, as `kubectl drain` does. Its workload makes another one, which may find room
/// elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LastResort {
    /// The request fails.
    #[default]
    Fail,
    /// Evict the Pod.
    Evict,
}

/// What to do after `waitSeconds`. `Fail` (default): the request fails, and the original resources are restored.
/// `Evict`: the controller evicts the Pod, as `kubectl drain` does. Its workload makes another one, which may find room
/// elsewhere. `Keep`: the request ends, but the kubelet may resize later; not with `CRI`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AfterWait {
    /// The request fails.
    #[default]
    Fail,
    /// Evict the Pod.
    Evict,
    /// The kubelet may resize later.
    Keep,
}

/// When to restore the original resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackOnFailure {
    /// Seconds to watch the Pod once it has the new resources.
    #[schemars(range(min = 1, max = 86400))]
    pub observe_seconds: i64,
    /// Restore if a container of the request is OOM-killed. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub oom_kill: Option<bool>,
    /// Restore if a container of the request restarts, unless for this resize. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub restarts: Option<bool>,
    /// Restore if the Pod was ready at acceptance, but is not after `observeSeconds`. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub not_ready: Option<bool>,
}

/// How far the request is. `Proposed`: the change has not begun. `Deferred`: the node has no room. `InProgress`:
/// containers are resized, restarted or restored, or the Pod is evicted. `Verifying`: the Pod has the resources;
/// pitstop checks the kernel or watches the Pod. Final: `Succeeded`, `Infeasible` (the node can never give the
/// resources), `Failed`, `RolledBack` (by `rollbackOnFailure`), `Cancelled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The change has not begun.
    Proposed,
    /// The node has no room.
    Deferred,
    /// The Pod is changed or evicted.
    InProgress,
    /// The kernel is checked, or the Pod watched.
    Verifying,
    /// The Pod has the resources.
    Succeeded,
    /// The node can never give them.
    Infeasible,
    /// Another failure.
    Failed,
    /// By `rollbackOnFailure`.
    RolledBack,
    /// By `cancel`.
    Cancelled,
}

impl Phase {
    /// Nothing follows.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Infeasible | Self::Failed | Self::RolledBack | Self::Cancelled)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proposed => "Proposed",
            Self::Deferred => "Deferred",
            Self::InProgress => "InProgress",
            Self::Verifying => "Verifying",
            Self::Succeeded => "Succeeded",
            Self::Infeasible => "Infeasible",
            Self::Failed => "Failed",
            Self::RolledBack => "RolledBack",
            Self::Cancelled => "Cancelled",
        }
    }
}

/// Progress, result and original resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodResizeStatus {
    /// Reason of `Reconciling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `metadata.generation` that this status is for; -1 until the controller has seen the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the request ended; never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<DateTime<Utc>>,
    /// How the request ended, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The mechanism at work: `API` or `CRI`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Mechanism")]
    pub mechanism: Option<Mechanism>,
    /// The Pod, from acceptance on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The spec's containers, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<ContainerStatus>,
    /// How the request will end, while the original resources are restored or the Pod is evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    /// Conditions `Accepted`, `Complete`, `Verified`, `Failed`, `InForce`, and `Reconciling` and `Stalled` for kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The Pod of an accepted request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// UID of the Pod.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 128))]
    pub pod_uid: String,
    /// Node of the Pod.
    #[schemars(length(max = 253))]
    pub node_name: String,
    /// The Pod was ready at acceptance.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ready: bool,
    /// Order among the Pod's `CRI` requests, from 1: for a container in several, the largest counts. With `API`: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub turn: i64,
    /// Message of the Pod's `PodResizePending`, from an earlier resize, at acceptance. Absent: none waited.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub pending_before: String,
}

/// A container of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub name: String,
    /// `<runtime>://<id>` of the instance that ran at acceptance. Absent: none ran.
    #[serde(rename = "containerID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub container_id: String,
    /// Restart count at acceptance.
    pub restart_count: i32,
    /// The `resizePolicy` requires a restart. With `CRI`: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restarts: bool,
    /// Resources before the request, from the Pod's spec (`CRI`: those in force).
    pub original: Values,
    /// The wanted resources.
    pub desired: Values,
    /// Requests that the kubelet has admitted; not with `CRI`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<Amounts>,
    /// What the container runs with, as the kubelet (`CRI`: the daemon) reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<Values>,
    /// What the daemon found in the cgroups of container and Pod at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupReading>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Values {
    /// Requests.
    #[serde(default)]
    pub requests: Amounts,
    /// Limits. Absent: no limit.
    #[serde(default)]
    pub limits: Amounts,
}

/// Quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub cpu: Option<String>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub memory: Option<String>,
}

/// The end after a restore or eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restoring {
    /// Phase at the end.
    pub phase: Phase,
    /// Reason at the end.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The reason in a sentence.
    #[schemars(length(max = 1024))]
    pub message: String,
}

impl From<&Resources> for Values {
    fn from(resources: &Resources) -> Self {
        let show = |resource: Resource, amount: Option<i64>| amount.map(|amount| resource.show(amount));
        let amounts =
            |cpu, memory| Amounts { cpu: show(Resource::Cpu, cpu), memory: show(Resource::Memory, memory) };
        Self {
            requests: amounts(resources.cpu_request, resources.memory_request),
            limits: amounts(resources.cpu_limit, resources.memory_limit),
        }
    }
}

impl From<&Values> for Resources {
    fn from(values: &Values) -> Self {
        let read =
            |resource: Resource, text: &Option<String>| text.as_deref().and_then(|text| resource.parse(text));
        Self {
            cpu_request: read(Resource::Cpu, &values.requests.cpu),
            cpu_limit: read(Resource::Cpu, &values.limits.cpu),
            memory_request: read(Resource::Memory, &values.requests.memory),
            memory_limit: read(Resource::Memory, &values.limits.memory),
        }
    }
}
