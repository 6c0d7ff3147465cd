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

use crate::nodework::Observed;
use crate::quantity::{Resource, Resources};
use crate::schema::immutable;
use crate::{Condition, is_false, is_zero};

/// What `kind` says.
pub const KIND: &str = "PodResize";
/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "podresizes";

/// Most containers that one request may name.
pub const MAX_CONTAINERS: usize = 64;

/// What to change, and what to do when that cannot be.
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
    doc = "Changes CPU and memory of chosen containers of one running Pod, in place, and follows that to its end.",
    printcolumn = r#"{"name":"Pod","type":"string","jsonPath":".spec.podRef.name","description":"The Pod that is resized"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"How far it is, or how it ended"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Complete\")].reason","description":"What it waits for, or why it ended so"}"#,
    printcolumn = r#"{"name":"Mechanism","type":"string","priority":1,"jsonPath":".status.mechanism","description":"By which means the Pod is resized"}"#,
    printcolumn = r#"{"name":"Node","type":"string","priority":1,"jsonPath":".status.target.nodeName","description":"The Pod's node"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Complete\")].message","description":"The same in a sentence"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.activeDeadlineSeconds) || (has(self.activeDeadlineSeconds) && self.activeDeadlineSeconds >= oldSelf.activeDeadlineSeconds)").message("activeDeadlineSeconds can only be raised: a request may be given more time, not less").field_path(".activeDeadlineSeconds"))]
#[x_kube(validation = Rule::new("!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)").message("cancel cannot be taken back: make another PodResize").field_path(".cancel"))]
pub struct PodResizeSpec {
    /// The Pod, in the namespace of the request. Immutable.
    pub pod_ref: PodRef,
    /// The containers to resize; sidecars too. Names are unique. Immutable.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<ContainerResize>,
    /// By which means. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Auto"))]
    pub mechanism: Option<Mechanism>,
    /// Whether containers may be restarted for it. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "IfPolicyRequires"))]
    pub restart: Option<Restart>,
    /// How memory limits are lowered. Absent: in one step, and as soon as the kubelet accepts them. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_shrink: Option<MemoryShrink>,
    /// What to do when the node can never give the resources. Absent: fail at once. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_infeasible: Option<OnInfeasible>,
    /// What to do while the node has no room. Absent: wait until the deadline. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_deferred: Option<OnDeferred>,
    /// When to put the original resources back because the Pod does badly with the new ones. Absent: the Pod is not
    /// watched. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_on_failure: Option<RollbackOnFailure>,
    /// Seconds after which the request ends; resources that the Pod has not got by then are taken back. It can be raised
    /// while the request runs, not lowered. Absent: the controller's default, one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = crate::MAX_SECONDS))]
    pub active_deadline_seconds: Option<i64>,
    /// Change nothing: the status says what would happen, and why not. Immutable.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub dry_run: bool,
    /// End the request, and take back what the Pod has got by then. It cannot be taken back.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub cancel: bool,
    /// Seconds after the end at which the request is deleted. Absent: never.
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

/// A Pod, which may be pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its UID: another Pod of that name is left alone. Absent: the Pod that exists when the request is made, whose UID
    /// the webhook writes here; if the webhook was not reached, the Pod that exists when the request is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub uid: Option<String>,
}

/// One container and its new resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResize {
    /// Name of the container in the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The new resources, as in the Pod's own spec; a value that is not named stays.
    pub resources: NewResources,
}

/// The new resources of a container, in the shape of `spec.containers[].resources` of a Pod; a value that is not named
/// stays. Beside a quantity, each value may be a change of what the container has, such as `+20%`, `-10%` or `x1.5`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.requests) && size(self.requests) > 0) || (has(self.limits) && size(self.limits) > 0)").message("name at least one of requests and limits"))]
pub struct NewResources {
    /// Requests of `cpu` (cores, `500m` is half of one) and `memory` (bytes, `256Mi`): quantities, or changes such as
    /// `+20%`, `-10%` or `x1.5`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    #[x_kube(validation = Rule::new("self.all(r, r == 'cpu' || r == 'memory')").message("only cpu and memory can be resized in place"))]
    pub requests: BTreeMap<String, Amount>,
    /// Limits of `cpu` (cores, `500m` is half of one) and `memory` (bytes, `256Mi`): quantities, or changes such as
    /// `+20%`, `-10%` or `x1.5`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    #[x_kube(validation = Rule::new("self.all(r, r == 'cpu' || r == 'memory')").message("only cpu and memory can be resized in place"))]
    pub limits: BTreeMap<String, Amount>,
}

/// By which means the Pod is resized: `API` (the subresource `pods/resize` of the API server, Kubernetes 1.33 and later),
/// `CRI` (the node's daemon, through the container runtime and the Pod's cgroup, where the kubelet does not resize; the
/// Pod has the resources for as long as the request exists), or `Auto` (default), the best that the Pod's node offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    /// The best that the Pod's node offers.
    #[default]
    Auto,
    /// The subresource `pods/resize` of the API server (Kubernetes 1.33 and later).
    #[serde(rename = "API")]
    Api,
    /// The node's daemon.
    #[serde(rename = "CRI")]
    Cri,
}

/// Whether containers may be restarted for a resize: `Never` (where the container's `resizePolicy` asks for a restart, the
/// request fails), `IfPolicyRequires` (default: where its `resizePolicy` asks for it), or `Always` (every container of
/// the request, once it has its new resources, as by a `ContainerRecreateRequest`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Restart {
    /// Not at all: where the container's `resizePolicy` asks for a restart, the request fails.
    Never,
    /// Where the container's `resizePolicy` asks for it.
    #[default]
    IfPolicyRequires,
    /// Every container of the request, once it has its new resources.
    Always,
}

/// How memory limits are lowered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryShrink {
    /// Memory that a lower limit must leave free beyond what is in use, in bytes, such as `64Mi`. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub margin: Option<String>,
    /// If the margin is not free, the kernel first reclaims memory of the container, page cache before all. The node's
    /// daemon needs more rights for that (component `resize-cri`).
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub reclaim: bool,
    /// Lower each limit by at most this at a time, in bytes, such as `256Mi`. Absent: in one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub step: Option<String>,
}

/// What to do while the node has no room for the Pod's new size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnDeferred {
    /// Seconds to wait for room, from when the request is seen deferred.
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub wait_seconds: i64,
    /// What to do after that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Fail"))]
    pub then: Option<AfterWait>,
}

/// What to do when the node can never give the resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnInfeasible {
    /// Seconds for which the request is tried again, from when it is seen infeasible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS), extend("default" = 0))]
    pub wait_seconds: Option<i64>,
    /// What to do after that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Fail"))]
    pub then: Option<LastResort>,
}

/// What to do when waiting does not help: `Fail` (default: put the original resources back and end the request as failed)
/// or `Evict` (evict the Pod, as `kubectl drain` does: its workload makes another one, which may find room elsewhere).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LastResort {
    /// Put the original resources back, and end the request as failed.
    #[default]
    Fail,
    /// Evict the Pod.
    Evict,
}

/// What to do when no room was found in time: `Fail` (default: put the original resources back and end the request as
/// failed), `Evict` (evict the Pod, as `kubectl drain` does: its workload makes another one, which may find room
/// elsewhere) or `Keep` (end the request, and leave the resize to the kubelet).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AfterWait {
    /// Put the original resources back, and end the request as failed.
    #[default]
    Fail,
    /// Evict the Pod.
    Evict,
    /// End the request, and leave the resize to the kubelet.
    Keep,
}

/// When the original resources are put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackOnFailure {
    /// Seconds for which the Pod is watched once it has the new resources.
    #[schemars(range(min = 1, max = 86400))]
    pub observe_seconds: i64,
    /// If a container is killed for lack of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub oom_kill: Option<bool>,
    /// If a container restarts that should not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub restarts: Option<bool>,
    /// If the Pod, which was ready, is not ready at the end of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub not_ready: Option<bool>,
}

/// How far a request is. A phase that tells of an end is never left again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// What to do is resolved; the Pod is not changed yet, or its kubelet has not said a word.
    Proposed,
    /// The node has no room now; the kubelet tries again.
    Deferred,
    /// The kubelet changes the containers.
    InProgress,
    /// The Pod has the resources; the kernel's word for it is awaited, or the Pod is watched with them.
    Verifying,
    /// Over: the Pod has the resources.
    Succeeded,
    /// Over: the node can never give them.
    Infeasible,
    /// Over: refused, or not done in time.
    Failed,
    /// Over: the Pod did badly with the new resources, and has the original ones again.
    RolledBack,
    /// Over: by the user's wish.
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

/// How far a request is, and what was there before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodResizeStatus {
    /// How far it is: the reason of the condition `Reconciling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `metadata.generation` that this status speaks of; -1 while the controller has not seen the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When it ended; never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<DateTime<Utc>>,
    /// How it ended, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// By which means the Pod is resized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// The Pod that the request was resolved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Every container of the spec, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<ContainerStatus>,
    /// The original resources are put back; this is how the request will end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    /// What holds of the request: `Accepted`, `Complete`, `Verified`, `Failed`, and `Reconciling` and `Stalled` for
    /// kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The Pod that a request was resolved to when it was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Its UID.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 128))]
    pub pod_uid: String,
    /// Its node.
    #[schemars(length(max = 253))]
    pub node_name: String,
    /// It was ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ready: bool,
    /// Its place among the requests that the node's daemon carries out for the Pod, from 1 on: a later one counts. 0 for
    /// those that its kubelet carries out.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub turn: i64,
    /// What its kubelet said of an earlier resize that waited then; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub pending_before: String,
}

/// One container's part of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub name: String,
    /// `<runtime>://<id>` of the instance that ran when the request was accepted; empty when none did.
    #[serde(rename = "containerID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub container_id: String,
    /// Its restart count.
    pub restart_count: i32,
    /// Its `resizePolicy` asks for a restart.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restarts: bool,
    /// The resources of the Pod's spec before the request.
    pub original: Values,
    /// Those that the request means.
    pub desired: Values,
    /// Requests that the kubelet has admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<Amounts>,
    /// What the kubelet says that the container runs with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<Values>,
    /// What the node's daemon has found in the control groups of the container and of its Pod at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Observed>,
}

/// Requests and limits, as quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Values {
    /// What is asked for.
    #[serde(default)]
    pub requests: Amounts,
    /// What may be used; absent: without limit.
    #[serde(default)]
    pub limits: Amounts,
}

/// An amount of each resource, as quantities.
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

/// An end that comes once the original resources are back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restoring {
    /// The phase that follows.
    pub phase: Phase,
    /// Its reason.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The same in a sentence.
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
