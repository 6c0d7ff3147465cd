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

/// The value of `kind`.
pub const KIND: &str = "ContainerRecreateRequest";
/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "containerrecreaterequests";

/// Most containers that one request may name.
pub const MAX_CONTAINERS: usize = 64;

/// Longest container ID of a request, with `<runtime>://`, in characters.
pub const MAX_CONTAINER_ID: usize = 128;

/// Most ports of a container that a request shows.
pub const MAX_PORTS: usize = 256;

/// Condition types of a request.
pub mod conditions {
    pub use crate::condition::{COMPLETE, FAILED, RECONCILING, STALLED};

    /// True: the request is valid, and its containers are found. False: the reason says why.
    pub const ACCEPTED: &str = "Accepted";
    /// True: a container's preStop hook failed, and the stop went ahead. Otherwise absent.
    pub const PRE_STOP_HOOK_FAILED: &str = "PreStopHookFailed";
    /// `OpenKruise`'s. True: the drain began at `lastTransitionTime`.
    pub const PRE_RECREATE_GRACE: &str = "PreRecreateGrace";
    /// True: the Pod was not ready before the first stop. False: the reason says why not. Absent: no drain is
    /// requested.
    pub const DRAINED: &str = "Drained";
}

/// Which containers to restart, and how.
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
    doc = "Restarts named containers of one running Pod in place.",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"Pending, Recreating or Completed"}"#,
    printcolumn = r#"{"name":"Pod","type":"string","jsonPath":".spec.podName","description":"The Pod whose containers are restarted"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".metadata.labels.crr\\.apps\\.kruise\\.io/node-name","description":"The Pod's node"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Result","type":"string","jsonPath":".status.conditions[?(@.type==\"Complete\")].reason","description":"Outcome of the request, or what it waits for"}"#,
    printcolumn = r#"{"name":"Drained","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Drained\")].reason","description":"State of the drain, if requested"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Complete\")].message","description":"The result in a sentence"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateRequestSpec {
    /// Name of the Pod, in the request's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub pod_name: String,
    /// The containers to restart, stopped in this order. Names are unique. Set only the names; admission adds the rest.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<RecreateContainer>,
    /// How to restart them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {}))]
    pub strategy: Option<RecreateStrategy>,
    /// Seconds after which the request ends: nothing new begins, and a stop under way completes. Default: the
    /// controller's `--default-active-deadline`, one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = crate::MAX_SECONDS))]
    pub active_deadline_seconds: Option<i64>,
    /// Seconds from the end of the request to its deletion. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// Makes the spec immutable, and describes Kubernetes' own types in few words. `OpenKruise`'s typed clients drop
/// `preStop.sleep` and `strategy.mechanism`, so these two may be absent from an update. The webhook restores them; if it
/// is not reached, what was recorded at acceptance stays in force.
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
    let Some(fields) = &mut item.properties else { return };
    if let Some(JSONSchemaPropsOrArray::Schema(port)) = fields.get_mut("ports").and_then(|f| f.items.as_mut())
    {
        describe_as_in_a_pod(port);
    }
    if let Some(hook) = fields.get_mut("preStop") {
        hook.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(describe_as_in_a_pod);
        immutable(hook, "spec.containers.preStop", &["exec", "httpGet", "tcpSocket"], WHY);
        droppable(hook, "spec.containers.preStop", "sleep", WHY);
    }
}

/// Describes the fields below in few words: `kubectl explain pod` has the rest.
fn describe_as_in_a_pod(schema: &mut JSONSchemaProps) {
    for field in schema.properties.iter_mut().flat_map(|all| all.values_mut()) {
        field.description = Some("As in a Pod.".to_owned());
        describe_as_in_a_pod(field);
        if let Some(JSONSchemaPropsOrArray::Schema(element)) = &mut field.items {
            describe_as_in_a_pod(element);
        }
    }
}

/// A rule by which the field never changes, but may go.
fn droppable(schema: &mut JSONSchemaProps, path: &str, field: &str, why: &str) {
    let kept = format!("!has(self.{field}) || (has(oldSelf.{field}) && self.{field} == oldSelf.{field})");
    rule(schema, field, kept, format!("{path}.{field}{why}"));
}

/// A container to restart. Users set only `name`; admission fills in the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecreateContainer {
    /// Name of the container in the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The container's preStop hook. Read-only, for information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<PreStopHandler>,
    /// The container's ports, if the hook is `httpGet`. Read-only, for information.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub ports: Vec<ContainerPort>,
    /// The container when the request was created. Read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_context: Option<StatusContext>,
}

/// A preStop hook as in `OpenKruise`, and `sleep`.
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
    /// `<runtime>://<64 hex digits>`, from the Pod's status.
    #[serde(rename = "containerID")]
    #[schemars(length(max = 128))]
    pub container_id: String,
    /// Its restart count, from the Pod's status.
    pub restart_count: i32,
}

/// How the containers of one request are restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecreateStrategy {
    /// Whether a failed container ends the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Fail"))]
    pub failure_policy: Option<FailurePolicy>,
    /// The next stop waits until the container before has `Succeeded`. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub ordered_recreate: bool,
    /// Also restart a container that has restarted since the request was made. Default: false, it counts as restarted.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub force_recreate: bool,
    /// Seconds for the preStop hook and the time from stop signal to kill (at least 2), together. With 0 no hook runs.
    /// Default: the Pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Seconds for which the Pod must be seen not ready before the first stop. Without a readiness gate
    /// `KruisePodReady` or `pitstop.dev/ready`, it stays in service while they pass. Default: no drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub unready_grace_period_seconds: Option<i64>,
    /// A new container counts as restarted when it is Ready and has run for so many seconds. Default: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS), extend("default" = 0))]
    pub min_started_seconds: i32,
    /// `Runtime`, `Kubelet` or `Auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
}

/// How a container is restarted. `Runtime`: the node's daemon stops it through the runtime. `Kubelet`: the kubelet
/// restarts it, because its image string gets the running digest. `Auto` (default): `Runtime` if the daemon answers and
/// the container surely starts again, otherwise `Kubelet`. `OpenKruise` has no such field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    /// The daemon stops it.
    Runtime,
    /// The kubelet restarts it.
    Kubelet,
    /// `Runtime` if possible and sure, otherwise `Kubelet`.
    #[default]
    Auto,
}

/// What follows if a container fails. `Fail` (default): the request fails. `Ignore`: it continues with the other
/// containers, then fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicy {
    /// The request fails.
    #[default]
    Fail,
    /// It continues with the other containers, then fails.
    Ignore,
}

/// Phase of a request. `Pending`: waits for its turn. `Recreating`: at work. `Completed`: over, whatever the outcome.
/// Others are for containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nothing is stopped yet.
    Pending,
    /// At work.
    Recreating,
    /// Container only.
    Succeeded,
    /// Container only.
    Failed,
    /// Request only.
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

/// Progress and outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateRequestStatus {
    /// The reason of the condition `Reconciling`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "phase")]
    pub phase: Option<Phase>,
    /// `metadata.generation` that this status describes. -1: the controller has not seen the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the request ended. Set with phase `Completed`, never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<DateTime<Utc>>,
    /// Why the request ended early. Empty if all containers were handled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The containers, in the spec's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub container_recreate_states: Vec<ContainerRecreateState>,
    /// The new instances at the end of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub container_status_snapshot: Vec<ContainerStatusSnapshot>,
    /// Conditions: `Accepted`, `Complete`, `Failed`, `Drained`, `PreStopHookFailed`; `Reconciling` and `Stalled` for
    /// kstatus; `OpenKruise`'s `PreRecreateGrace`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The exact containers that the controller found. Its orders name only these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
}

/// Progress of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateState {
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub name: String,
    /// `Pending`: not stopped yet. `Recreating`: stopped, not yet `Succeeded`. `Succeeded`: another instance is Ready
    /// and has run for `minStartedSeconds`. `Failed`: cannot be stopped, or will not start again.
    pub phase: Phase,
    /// Why it failed. Empty in other phases.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// True only if pitstop's stop or pin ended the container.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_killed: bool,
}

/// The new instance of a container.
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

/// The exact instances, read from the Pod, not from the user.
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
    /// The containers to stop, in the spec's order.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<TargetContainer>,
    /// The request's mechanism at acceptance. Absent: `Auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Mechanism")]
    pub mechanism: Option<Mechanism>,
}

/// The only instance of a container that a request may stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetContainer {
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub name: String,
    /// `<runtime>://<64 hex digits>` of the instance to stop. Another ID means that it was restarted.
    #[serde(rename = "containerID")]
    #[schemars(length(max = 128))]
    pub container_id: String,
    /// Its restart count. A Pod status with a lower count is older than the request.
    pub restart_count: i32,
    /// The image string that makes the kubelet restart it. Absent: the daemon stops it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
}

/// Another image string for the same image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The image string to replace. The controller changes no other.
    #[schemars(length(max = 512))]
    pub from: String,
    /// The image string to set: the same repository, with the running digest.
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
