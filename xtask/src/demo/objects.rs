//! The fields of a Pod and of a request that the demo shows, and texts for their changes.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use pitstop_api::recreate::{ContainerRecreateRequest, Phase, conditions};
use pitstop_api::{condition, labels};
use serde::Deserialize;
use serde_json::Value;

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodView {
    pub(super) uid: String,
    pub(super) ip: String,
    pub(super) node: String,
    pub(super) ready: bool,
    pub(super) containers: BTreeMap<String, ContainerView>,
}

/// A container of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ContainerView {
    pub(super) id: String,
    /// The image with its digest.
    pub(super) image: String,
    pub(super) restarts: u64,
    pub(super) running: bool,
    /// Exit code, if the container's state is terminated.
    pub(super) exit_code: Option<i64>,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RequestView {
    pub(super) name: String,
    pub(super) phase: Option<Phase>,
    /// Phase of each container, and whether pitstop's stop ended it.
    pub(super) containers: BTreeMap<String, (Phase, bool)>,
    /// Status, reason and message of the condition `Complete`.
    pub(super) complete: (bool, String, String),
    pub(super) active: bool,
}

/// The fields of a Pod that matter here, as the API server writes them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(rename = "podIP")]
    pod_ip: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<Container>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    #[serde(rename = "containerID")]
    id: String,
    #[serde(rename = "imageID")]
    image: String,
    restart_count: u64,
    state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    running: Option<Value>,
    terminated: Option<Terminated>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    exit_code: i64,
}

impl PodView {
    pub(super) fn read(pod: Value) -> Result<Self> {
        let Pod { metadata, spec, status } =
            serde_json::from_value(pod).context("kubectl's Pod is not understood")?;
        let container = |c: Container| {
            let view = ContainerView {
                id: c.id,
                image: c.image,
                restarts: c.restart_count,
                running: c.state.running.is_some(),
                exit_code: c.state.terminated.map(|terminated| terminated.exit_code),
            };
            (c.name, view)
        };
        Ok(Self {
            uid: metadata.uid,
            ip: status.pod_ip,
            node: spec.node_name,
            ready: status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True"),
            containers: status.container_statuses.into_iter().map(container).collect(),
        })
    }

    /// Texts for the changes of the Pod.
    pub(super) fn changes(&self, new: &Self) -> Vec<String> {
        let mut out = Vec::new();
        for (name, now) in &new.containers {
            let Some(old) = self.containers.get(name) else { continue };
            if let (true, Some(code)) = (old.running, now.exit_code) {
                out.push(format!("Pod      container {name} has ended with exit code {code}"));
            }
            if now.running && now.id != old.id {
                let id = short(&now.id);
                out.push(format!("Pod      container {name} runs again, as {id}: restart {}", now.restarts));
            }
        }
        if self.ready != new.ready {
            out.push(format!("Pod      {}", if new.ready { "Ready again" } else { "not Ready" }));
        }
        out
    }
}

impl RequestView {
    pub(super) fn read(request: Value) -> Result<Self> {
        let ContainerRecreateRequest { metadata, status, .. } =
            serde_json::from_value(request).context("kubectl's request is not understood")?;
        let status = status.unwrap_or_default();
        let complete = condition::find(&status.conditions, conditions::COMPLETE)
            .map(|c| (c.status == condition::ConditionStatus::True, c.reason.clone(), c.message.clone()));
        let label = metadata.labels.unwrap_or_default().remove(labels::ACTIVE);
        let entries = status.container_recreate_states.into_iter();
        Ok(Self {
            name: metadata.name.unwrap_or_default(),
            phase: status.phase,
            containers: entries.map(|s| (s.name, (s.phase, s.is_killed))).collect(),
            complete: complete.unwrap_or_default(),
            active: label.is_some_and(|value| value == labels::ACTIVE_TRUE),
        })
    }

    /// Whether the request is completed and its label no longer says that it is active.
    pub(super) fn over(&self) -> bool {
        self.phase == Some(Phase::Completed) && !self.active
    }

    /// Texts for the changes of the request.
    pub(super) fn changes(&self, new: &Self) -> Vec<String> {
        let mut out = Vec::new();
        for (name, (phase, killed)) in &new.containers {
            if self.containers.get(name).is_none_or(|(old, _)| old != phase) {
                let by = if *killed && *phase == Phase::Recreating { ", stopped by pitstop" } else { "" };
                out.push(format!("request  container {name}: {phase:?}{by}"));
            }
        }
        let (_, reason, message) = &new.complete;
        if let Some(phase) = new.phase.filter(|_| self.phase != new.phase) {
            out.push(format!("request  {phase:?}: {message}"));
        } else if self.complete.1 != *reason {
            out.push(format!("request  {message}"));
        }
        if self.active && !new.active {
            out.push("request  label `active` is gone".to_owned());
        }
        out
    }
}

/// The first digits of a container's ID.
pub(super) fn short(id: &str) -> String {
    id.rsplit('/').next().unwrap_or(id).chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(id: &str, restarts: u64, state: &Value, ready: &str) -> PodView {
        PodView::read(json!({
            "metadata": {"uid": "u"}, "spec": {"nodeName": "node1"},
            "status": {
                "podIP": "10.0.0.1",
                "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}],
                "containerStatuses": [
                    {"name": "app", "containerID": id, "restartCount": restarts, "state": state},
                ],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_restart_is_told_step_by_step() {
        let before = pod("containerd://0123456789abcdef", 0, &json!({"running": {}}), "True");
        let ended = pod("containerd://0123456789abcdef", 0, &json!({"terminated": {"exitCode": 0}}), "False");
        let after = pod("containerd://fedcba9876543210", 1, &json!({"running": {}}), "True");
        assert_eq!(before.changes(&before), Vec::<String>::new());
        assert_eq!(
            before.changes(&ended),
            ["Pod      container app has ended with exit code 0", "Pod      not Ready"]
        );
        assert_eq!(
            ended.changes(&after),
            ["Pod      container app runs again, as fedcba987654: restart 1", "Pod      Ready again"]
        );
    }

    #[test]
    fn a_request_is_told_step_by_step() {
        let view = |phase: &str, state: &str, killed: bool, reason: &str, active: &str| {
            RequestView::read(json!({
                "apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest",
                "metadata": {"labels": {"crr.apps.kruise.io/active": active}},
                "spec": {"podName": "web", "containers": [{"name": "app"}]},
                "status": {
                    "phase": phase,
                    "containerRecreateStates": [{"name": "app", "phase": state, "isKilled": killed}],
                    "conditions": [{"type": "Complete", "status": "False", "lastTransitionTime": "2026-11-21T11:00:00Z", "reason": reason, "message": "because"}],
                },
            }))
            .unwrap()
        };
        let new = RequestView { active: true, ..RequestView::default() };
        assert!(new.active && !new.over());
        let accepted = view("Recreating", "Pending", false, "A", "true");
        assert_eq!(
            new.changes(&accepted),
            ["request  container app: Pending", "request  Recreating: because"]
        );
        let stopped = view("Recreating", "Recreating", true, "B", "true");
        assert_eq!(
            accepted.changes(&stopped),
            ["request  container app: Recreating, stopped by pitstop", "request  because"]
        );
        let done = view("Completed", "Succeeded", true, "C", "");
        assert!(done.over());
        assert_eq!(
            stopped.changes(&done),
            [
                "request  container app: Succeeded",
                "request  Completed: because",
                "request  label `active` is gone"
            ]
        );
    }
}
