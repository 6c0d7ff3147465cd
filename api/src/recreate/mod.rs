//! `ContainerRecreateRequest`: restart named containers of one running Pod.
//!
//! Wire-compatible with `OpenKruise` (`apps.kruise.io`): names, types, defaults and the meaning of absent
//! fields are theirs. `status.conditions` (beyond `PreRecreateGrace`), `status.observedGeneration` and `status.target`
//! are ours; their typed clients drop them.

mod defaults;
mod validate;

use std::borrow::Cow;

use chrono::{DateTime, Utc};
pub use k8s_openapi::api::core::v1::ContainerPort;
use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, SleepAction, TCPSocketAction};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer, Serialize};

pub use defaults::apply_defaults;
pub use validate::validate;

use crate::schema::{immutable, rule};
use crate::{Condition, is_false};

/// What `kind` says.
pub const KIND: &str = "ContainerRecreateRequest";
/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "containerrecreaterequests";

/// Most containers that one request may name.
pub const MAX_CONTAINERS: usize = 64;

/// Longest container ID that a request names, `<runtime>://` included, in characters.
pub const MAX_CONTAINER_ID: usize = 128;

/// Most ports of a container that a request shows.
pub const MAX_PORTS: usize = 256;

/// Condition types of a request.
pub mod conditions {
    pub use crate::condition::{COMPLETE, FAILED, RECONCILING, STALLED};

    /// True once the request was found valid and its containers were resolved; False with the reason when not.
    pub const ACCEPTED: &str = "Accepted";
    /// True when a container's preStop hook failed, though its stop went ahead; else absent.
    pub const PRE_STOP_HOOK_FAILED: &str = "PreStopHookFailed";
    /// `OpenKruise`'s: True from when the drain began, which is its `lastTransitionTime`.
    pub const PRE_RECREATE_GRACE: &str = "PreRecreateGrace";
    /// Whether the Pod was out of service before its first container was stopped, and if not, whether it still can be;
    /// only where a drain was asked for.
    pub const DRAINED: &str = "Drained";
}

/// What to restart, and how.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "apps.kruise.io",
    version = "v1alpha1",
    kind = "ContainerRecreateRequest",
    plural = "containerrecreaterequests",
    singular = "containerrecreaterequest",
    shortname = "crr",
    category = "pitstop",
    selectable = ".spec.podName",
    selectable = ".status.phase",
    namespaced,
    status = "ContainerRecreateRequestStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Asks for a restart of named containers of one running Pod, in place.",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"Pending, Recreating or Completed"}"#,
    printcolumn = r#"{"name":"Pod","type":"string","jsonPath":".spec.podName","description":"The Pod whose containers are restarted"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".metadata.labels.crr\\.apps\\.kruise\\.io/node-name","description":"The Pod's node"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Result","type":"string","jsonPath":".status.conditions[?(@.type==\"Complete\")].reason","description":"Complete, or why it failed, or what it waits for"}"#,
    printcolumn = r#"{"name":"Drained","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Drained\")].reason","description":"How far the Pod is out of service, where that was asked for"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Complete\")].message","description":"The same in a sentence: what it waits for, or how it went"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateRequestSpec {
    /// Name of the Pod, in the request's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub pod_name: String,
    /// The containers to restart, in the order in which they are stopped. Names are unique.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<RecreateContainer>,
    /// How to restart them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {}))]
    pub strategy: Option<RecreateStrategy>,
    /// Seconds after which the request ends whatever happened. Absent: the controller's default, one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = crate::MAX_SECONDS))]
    pub active_deadline_seconds: Option<i64>,
    /// Seconds after the end at which the request is deleted. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// The spec never changes. But `OpenKruise`'s typed clients know neither `preStop.sleep` nor `strategy.mechanism`, and send
/// an object that they have read without them: what such a client cannot carry may be absent from an update. The
/// webhook puts it back; where that is not reached, what was resolved at acceptance stays in force.
pub(crate) fn fix(spec: &mut JSONSchemaProps) {
    const WHY: &str = ": spec of ContainerRecreateRequest is immutable";
    immutable(spec, "spec", &["podName", "activeDeadlineSeconds", "ttlSecondsAfterFinished"], WHY);
    let Some(fields) = &mut spec.properties else { return };
    if let Some(strategy) = fields.get_mut("strategy") {
        let known = [
            "failurePolicy",
            "orderedRecreate",
            "forceRecreate",
            "terminationGracePeriodSeconds",
            "unreadyGracePeriodSeconds",
            "minStartedSeconds",
        ];
        immutable(strategy, "spec.strategy", &known, WHY);
        droppable(strategy, "spec.strategy", "mechanism", WHY);
    }
    let Some(containers) = fields.get_mut("containers") else { return };
    let same = "self.map(c, c.name) == oldSelf.map(c, c.name)".to_owned();
    rule(containers, "", same, format!("spec.containers{WHY}"));
    let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut containers.items else { return };
    immutable(item, "spec.containers", &["ports", "statusContext"], WHY);
    let same = "has(self.preStop) == has(oldSelf.preStop)".to_owned();
    rule(item, "preStop", same, format!("spec.containers.preStop{WHY}"));
    if let Some(hook) = item.properties.as_mut().and_then(|all| all.get_mut("preStop")) {
        immutable(hook, "spec.containers.preStop", &["exec", "httpGet", "tcpSocket"], WHY);
        droppable(hook, "spec.containers.preStop", "sleep", WHY);
    }
}

/// A rule by which the field never changes, but may go.
fn droppable(schema: &mut JSONSchemaProps, path: &str, field: &str, why: &str) {
    let kept = format!("!has(self.{field}) || (has(oldSelf.{field}) && self.{field} == oldSelf.{field})");
    rule(schema, field, kept, format!("{path}.{field}{why}"));
}

/// One container to restart. All but the name is filled in at admission and must be left empty by users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecreateContainer {
    /// Name of the container in the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The container's preStop hook; read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<PreStopHandler>,
    /// The container's ports, when the hook needs them; read-only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub ports: Vec<ContainerPort>,
    /// The container as it was when the request was made; read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_context: Option<StatusContext>,
}

/// A preStop hook as `OpenKruise` writes it, and `sleep`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreStopHandler {
    /// Run a command in the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// Send an HTTP GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HTTPGetAction>,
    /// Open a TCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TCPSocketAction>,
    /// Wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepAction>,
}

/// A container at the time of admission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusContext {
    /// `<runtime>://<64 hex digits>` as in the Pod's status.
    #[serde(rename = "containerID")]
    #[schemars(length(max = 128))]
    pub container_id: String,
    /// The Pod status's restart count of the container.
    pub restart_count: i32,
}

/// How the containers of one request are restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecreateStrategy {
    /// What a failed stop means for the containers after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Fail"))]
    pub failure_policy: Option<FailurePolicy>,
    /// Restart a container only after the one before it is up again.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub ordered_recreate: bool,
    /// Restart a container also when it was restarted by others since the request was made.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub force_recreate: bool,
    /// Seconds between the stop signal and the kill. Absent: the Pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Seconds for which the Pod is kept not ready before the first stop, counted from when it is seen not ready; with
    /// a readiness gate `KruisePodReady` or `pitstop.dev/ready` in the Pod, else they only pass. Absent: no drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub unready_grace_period_seconds: Option<i64>,
    /// Seconds that a new container must have run before it counts as restarted.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS), extend("default" = 0))]
    pub min_started_seconds: i32,
    /// By which means a container is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
}

/// By which means a container is restarted: `Runtime` (the node's daemon stops it through the container runtime),
/// `Kubelet` (the kubelet restarts it because its image string changes: the digest that runs already is written into it),
/// or `Auto` (default), `Runtime` where the node's daemon answers and the container comes back that way, else
/// `Kubelet`. An addition to `OpenKruise`'s fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    /// The node's daemon stops it through the container runtime.
    Runtime,
    /// The kubelet restarts it because its image string changes.
    Kubelet,
    /// `Runtime` where the node's daemon answers and the container comes back that way, else `Kubelet`.
    #[default]
    Auto,
}

/// What a container that cannot be stopped means for the request: `Fail` (default: the request ends) or `Ignore` (the
/// request goes on with the next container).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicy {
    /// The request ends.
    #[default]
    Fail,
    /// The request goes on with the next container.
    Ignore,
}

/// Phases of a request and of its containers; one enum, as in `OpenKruise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Request: waits for its turn. Container: not stopped yet.
    Pending,
    /// Request: at work. Container: stopped, not yet up again.
    Recreating,
    /// Container only: up again.
    Succeeded,
    /// Container only: could not be stopped.
    Failed,
    /// Request only: over, whatever the outcome.
    Completed,
}

impl Phase {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Recreating => "Recreating",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Completed => "Completed",
        }
    }
}

/// How far a request is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateRequestStatus {
    /// `Pending`, `Recreating` or `Completed`: the reason of the condition `Reconciling`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "phase")]
    pub phase: Option<Phase>,
    /// `metadata.generation` that this status speaks of; -1 while the controller has not seen the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the request ended; set together with `Completed` and never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<DateTime<Utc>>,
    /// Why the request ended early; empty when all containers were handled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// One entry per container of the spec, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub container_recreate_states: Vec<ContainerRecreateState>,
    /// The containers that run after their restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub container_status_snapshot: Vec<ContainerStatusSnapshot>,
    /// What holds of the request: `Accepted`, `Complete`, `Failed`, `Drained`, `PreStopHookFailed`, `Reconciling` and
    /// `Stalled` for kstatus, and `OpenKruise`'s `PreRecreateGrace`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What the controller resolved the request to; the daemon is told nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
}

/// One container's part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateState {
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub name: String,
    /// `Pending`, `Recreating`, `Succeeded` or `Failed`.
    pub phase: Phase,
    /// Why it failed; empty in every other state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// True when pitstop's own stop ended the container.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_killed: bool,
}

/// A container of the Pod after its restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatusSnapshot {
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Whether it was ready.
    pub ready: bool,
    /// Its restart count.
    pub restart_count: i32,
    /// `<runtime>://<id>`.
    #[serde(rename = "containerID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub container_id: String,
}

/// What a request was resolved to when it was accepted: read from the Pod, not from the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// UID of the Pod.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 128))]
    pub pod_uid: String,
    /// Node of the Pod.
    #[schemars(length(max = 253))]
    pub node_name: String,
    /// The containers to stop, in the order of the spec.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<TargetContainer>,
    /// By which means the request asked for it when it was accepted. Absent: `Auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
}

/// The one container instance that a request may stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetContainer {
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub name: String,
    /// `<runtime>://<64 hex digits>`: the instance to stop; another one means that it was restarted.
    #[serde(rename = "containerID")]
    #[schemars(length(max = 128))]
    pub container_id: String,
    /// Its restart count: a Pod status with a lower one is older than the request.
    pub restart_count: i32,
    /// The image string by which the kubelet restarts it; absent when the runtime does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
}

/// A change of a container's image string that leaves the image what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The image of the Pod's spec when the request was accepted; any other one is left alone.
    #[schemars(length(max = 512))]
    pub from: String,
    /// The image to set: the same repository, with the digest that runs.
    #[schemars(length(max = 512))]
    pub image: String,
}

/// A phase. `OpenKruise` writes an empty one where there is none, in its clients and, converting, into storage.
fn phase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Phase>, D::Error> {
    let text = Option::<Cow<'de, str>>::deserialize(deserializer)?;
    text.filter(|text| !text.is_empty()).map(|text| Phase::deserialize(text.into_deserializer())).transpose()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(value: &i32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_stay_absent_on_the_wire() {
        let text = r#"{"podName":"web","containers":[{"name":"app"}]}"#;
        let spec: ContainerRecreateRequestSpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), text);
    }

    #[test]
    fn states_look_like_kruises() {
        let state = ContainerRecreateState {
            name: "app".into(),
            phase: Phase::Succeeded,
            message: String::new(),
            is_killed: true,
        };
        assert_eq!(
            serde_json::to_string(&state).unwrap(),
            r#"{"name":"app","phase":"Succeeded","isKilled":true}"#
        );
    }

    #[test]
    fn an_empty_phase_is_none() {
        for text in [r#"{"phase":""}"#, r#"{"phase":null}"#, "{}"] {
            let status: ContainerRecreateRequestStatus = serde_json::from_str(text).unwrap();
            assert_eq!(status, ContainerRecreateRequestStatus::default());
        }
        let text = r#"{"phase":"Gone"}"#;
        assert!(serde_json::from_str::<ContainerRecreateRequestStatus>(text).is_err());
    }

    #[test]
    fn a_status_of_kruises_client_decodes() {
        let text = r#"{"phase":"Completed","completionTime":"2026-07-02T10:00:00Z","containerRecreateStates":
            [{"name":"app","phase":"Recreating","isKilled":true},{"name":"sidecar","phase":"Pending"}],
            "containerStatusSnapshot":[{"name":"app","ready":true,"restartCount":1,"containerID":"containerd://x"}],
            "message":"recreating has exceeded the activeDeadlineSeconds"}"#;
        let status: ContainerRecreateRequestStatus = serde_json::from_str(text).unwrap();
        assert_eq!(status.phase, Some(Phase::Completed));
        assert_eq!(status.container_recreate_states.len(), 2);
        assert_eq!(status.container_status_snapshot[0].container_id, "containerd://x");
    }
}
