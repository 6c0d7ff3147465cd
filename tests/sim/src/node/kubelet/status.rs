//! A Pod's status as the kubelet makes it. Sources: `convertToAPIContainerStatuses` and `getPhase` in
//! `pkg/kubelet/kubelet_pods.go`, `pkg/kubelet/status/generate.go`, Kubernetes 1.36.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pod::Amounts;

/// `status.containerStatuses[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name.
    pub name: String,
    /// Its current state.
    pub state: ContainerState,
    /// How the previous instance ended.
    pub last_state: ContainerState,
    /// Whether it passes its readiness probe.
    pub ready: bool,
    /// Number of restarts.
    pub restart_count: i32,
    /// The image.
    pub image: String,
    /// The image that runs.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// `<runtime>://<id>`.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// Whether it passed its startup probe.
    pub started: Option<bool>,
    /// The admitted requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<BTreeMap<String, String>>,
    /// The resources that it runs with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Amounts>,
}

/// `state` and `lastState`: at most one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// It runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// It has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

/// Why it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// For programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Since when it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// RFC 3339, the node's clock.
    pub started_at: String,
}

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Exit code.
    pub exit_code: i32,
    /// `Completed`, `Error` and others.
    pub reason: String,
    /// RFC 3339, the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// RFC 3339, the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// `<runtime>://<id>`.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}

impl ContainerState {
    pub(super) fn waiting(reason: &str, message: &str) -> Self {
        let waiting = Waiting { reason: reason.to_owned(), message: message.to_owned() };
        Self { waiting: Some(waiting), ..Self::default() }
    }
}

/// `status.conditions[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True` or `False`.
    pub status: String,
    /// For programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// RFC 3339, the writer's clock.
    pub last_transition_time: Option<String>,
    /// The Pod's generation that it describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A Pod's status from the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Phase.
    pub phase: String,
    /// The kubelet's own conditions.
    pub conditions: Vec<Condition>,
    /// Statuses of init containers and sidecars.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Statuses of the other containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// The node's address.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// The Pod's address.
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// When the kubelet first saw it.
    pub start_time: String,
    /// The Pod's generation that it describes.
    pub observed_generation: i64,
}

/// Condition types that belong to the kubelet.
pub const OWN_CONDITIONS: [&str; 7] = [
    "PodScheduled",
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "Ready",
    "PodResizePending",
    "PodResizeInProgress",
];

/// A write of a Pod's status. The kubelet sends it as a strategic merge patch with the UID as its precondition.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub name: String,
    /// UID of the Pod: if another Pod has the name by now, nothing is written.
    pub uid: String,
    /// The kubelet's fields; of the conditions, only its own.
    pub status: Value,
}

impl StatusWrite {
    /// The status after this write: it replaces lists of containers and keeps conditions of other writers.
    pub fn merged(&self, stored: &Value) -> Value {
        let mut status = stored.as_object().cloned().unwrap_or_default();
        let own = |c: &&Value| OWN_CONDITIONS.iter().any(|t| c["type"] == *t);
        let theirs = stored["conditions"].as_array().into_iter().flatten().filter(|c| !own(c));
        let ours = self.status["conditions"].as_array().into_iter().flatten();
        let conditions: Vec<Value> = theirs.chain(ours).cloned().collect();
        for (key, value) in self.status.as_object().into_iter().flatten() {
            status.insert(key.clone(), value.clone());
        }
        status.insert("conditions".to_owned(), Value::Array(conditions));
        Value::Object(status)
    }
}

/// RFC 3339 in whole seconds, from nanoseconds.
pub(super) fn rfc3339(nanos: i64) -> String {
    let time = chrono::DateTime::from_timestamp_nanos(nanos);
    time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}
