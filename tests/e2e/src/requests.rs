//! `ContainerRecreateRequest`s and their fields.

use std::collections::BTreeMap;

use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::recreate::{ContainerRecreateRequest, ContainerRecreateState, Phase};
use serde_json::{Value, json};

/// A plain request.
pub fn recreate(name: &str, pod: &str, containers: &[&str]) -> Value {
    with_spec(name, &plain(pod, containers))
}

/// The spec of a plain request.
pub fn plain(pod: &str, containers: &[&str]) -> Value {
    let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
    json!({"podName": pod, "containers": containers})
}

/// A request with that spec.
pub fn with_spec(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "ContainerRecreateRequest",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// State of a container that pitstop stopped and that runs again.
pub fn succeeded(name: &str) -> ContainerRecreateState {
    state(name, Phase::Succeeded, true)
}

/// State of a container in that phase.
pub fn state(name: &str, phase: Phase, is_killed: bool) -> ContainerRecreateState {
    ContainerRecreateState { name: name.to_owned(), phase, message: String::new(), is_killed }
}

/// The states of the containers.
pub fn states(request: &ContainerRecreateRequest) -> &[ContainerRecreateState] {
    request.status.as_ref().map_or(&[], |s| &s.container_recreate_states)
}

/// The conditions, each as `status/reason`.
pub fn conditions(request: &ContainerRecreateRequest) -> BTreeMap<&str, String> {
    let all = request.status.iter().flat_map(|s| &s.conditions);
    let text = |status| match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    all.map(|c| (c.type_.as_str(), format!("{}/{}", text(c.status), c.reason))).collect()
}

/// A condition.
pub fn condition<'a>(request: &'a ContainerRecreateRequest, type_: &str) -> Option<&'a Condition> {
    condition::find(&request.status.as_ref()?.conditions, type_)
}

/// The phase.
pub fn phase(request: &ContainerRecreateRequest) -> Option<Phase> {
    request.status.as_ref()?.phase
}

/// Whether the request has ended.
pub fn is_over(request: &ContainerRecreateRequest) -> bool {
    request.status.as_ref().is_some_and(|s| s.completion_time.is_some())
}

/// Why it ended early.
pub fn message(request: &ContainerRecreateRequest) -> &str {
    request.status.as_ref().map_or("", |s| &s.message)
}

/// A label.
pub fn label<'a>(request: &'a ContainerRecreateRequest, key: &str) -> Option<&'a str> {
    request.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
