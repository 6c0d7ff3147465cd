//! From API objects to what the core decides on.
//!
//! Pods are decoded into structs that hold only the fields needed: a full Pod costs about ten times as much
//! memory while it is decoded.

use std::collections::BTreeMap;

use crate::ObjectKey;
use crate::nodework::NodeWork;
use crate::pod::{Container, ContainerKind, ContainerState, ContainerStatus, Pod, RestartPolicy};
use crate::readiness::{self, Gate, GateCondition};
use crate::recreate::Request;
use crate::recreate::admission::{Hooked, Hooks};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::Resource;
use kube::core::DynamicObject;
use pitstop_api::annotations;
use pitstop_api::nodework::NodeWork as NodeWorkObject;
use pitstop_api::recreate::{ContainerRecreateRequest, PreStopHandler};
use serde::{Deserialize, Serialize};

/// Annotation of a Pod that mirrors a static one.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A Pod with the fields that decisions need.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = core::Pod)]
#[serde(rename_all = "camelCase")]
pub struct SlimPod {
    /// `metadata`.
    pub metadata: ObjectMeta,
    /// `spec`.
    #[serde(default)]
    spec: SlimSpec,
    /// `status`.
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimSpec {
    node_name: Option<String>,
    restart_policy: String,
    readiness_gates: Vec<SlimGate>,
    termination_grace_period_seconds: Option<i64>,
    containers: Vec<SlimContainer>,
    init_containers: Vec<SlimContainer>,
    ephemeral_containers: Vec<SlimContainer>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimGate {
    condition_type: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimContainer {
    name: String,
    image: String,
    /// Only of init containers, and only `Always`.
    restart_policy: Option<String>,
}

/// What only admission looks at, in a Pod that it reads: the watch of all Pods keeps none of it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HookSpec {
    containers: Vec<HookContainer>,
    init_containers: Vec<HookContainer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HookContainer {
    name: String,
    lifecycle: Option<HookLifecycle>,
    ports: Vec<core::ContainerPort>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HookLifecycle {
    pre_stop: Option<PreStopHandler>,
}

/// A Pod that was read as a whole: what the core decides on, and the hooks of its containers.
pub fn live(object: DynamicObject) -> Result<(Pod, Hooks), kube::core::dynamic::ParseDynamicObjectError> {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    // A hook that cannot be read is not shown.
    let HookSpec { containers, init_containers } = serde_json::from_value(spec).unwrap_or_default();
    let hooks = containers.into_iter().chain(init_containers).filter_map(|container| {
        let pre_stop = container.lifecycle?.pre_stop?;
        Some((container.name, Hooked { pre_stop, ports: container.ports }))
    });
    let hooks = hooks.collect();
    Ok((pod(object.try_parse()?), hooks))
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimStatus {
    phase: String,
    conditions: Vec<SlimCondition>,
    container_statuses: Vec<SlimContainerStatus>,
    init_container_statuses: Vec<SlimContainerStatus>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    message: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    #[serde(rename = "imageID")]
    image_id: String,
    restart_count: i32,
    ready: bool,
    state: SlimState,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimState {
    waiting: Option<SlimWaiting>,
    running: Option<SlimRunning>,
    terminated: Option<SlimTerminated>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimWaiting {
    reason: String,
    message: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SlimRunning {}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimTerminated {
    exit_code: i32,
}

fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// The Pod as the core sees it.
pub fn pod(pod: SlimPod) -> Pod {
    let SlimPod { metadata, spec, status } = pod;
    let gates = gates(&spec.readiness_gates, &status.conditions);
    let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let mut statuses: BTreeMap<String, SlimContainerStatus> = status
        .container_statuses
        .into_iter()
        .chain(status.init_container_statuses)
        .map(|s| (s.name.clone(), s))
        .collect();
    let kinds = [
        (ContainerKind::Main, spec.containers),
        (ContainerKind::Init, spec.init_containers),
        (ContainerKind::Ephemeral, spec.ephemeral_containers),
    ];
    let containers = kinds
        .into_iter()
        .flat_map(|(kind, list)| list.into_iter().map(move |container| (kind, container)))
        .map(|(kind, container)| Container {
            kind: match (kind, container.restart_policy.as_deref()) {
                (ContainerKind::Init, Some("Always")) => ContainerKind::Sidecar,
                _ => kind,
            },
            image: container.image,
            status: statuses.remove(&container.name).map(container_status),
            name: container.name,
        })
        .collect();
    Pod {
        key: key(&metadata),
        mirror: metadata.annotations.is_some_and(|a| a.contains_key(MIRROR)),
        deleting: metadata.deletion_timestamp.is_some(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        node: spec.node_name.filter(|name| !name.is_empty()),
        finished: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
        restart_policy: match spec.restart_policy.as_str() {
            "Never" => RestartPolicy::Never,
            "OnFailure" => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        },
        grace_seconds: spec.termination_grace_period_seconds,
        gates,
        ready,
        containers,
    }
}

/// The Pod's gates of the types that pitstop serves, each with its condition.
fn gates(gates: &[SlimGate], conditions: &[SlimCondition]) -> Vec<Gate> {
    let served = gates.iter().map(|g| &g.condition_type).filter(|t| readiness::SERVED.contains(&t.as_str()));
    served
        .map(|type_| {
            let condition = conditions.iter().find(|c| c.type_ == *type_);
            let condition =
                condition.map(|c| GateCondition { open: c.status == "True", message: c.message.clone() });
            Gate { type_: type_.clone(), condition }
        })
        .collect()
}

fn container_status(status: SlimContainerStatus) -> ContainerStatus {
    let SlimState { waiting, running, terminated } = status.state;
    let state = if running.is_some() {
        ContainerState::Running
    } else if let Some(terminated) = terminated {
        ContainerState::Terminated { exit_code: terminated.exit_code }
    } else if let Some(waiting) = waiting {
        ContainerState::Waiting { reason: waiting.reason, message: waiting.message }
    } else {
        ContainerState::Unknown
    };
    ContainerStatus {
        container_id: status.container_id,
        image_id: status.image_id,
        restart_count: status.restart_count,
        ready: status.ready,
        state,
    }
}

/// The request as the core sees it.
pub fn request(object: ContainerRecreateRequest) -> Request {
    let ContainerRecreateRequest { metadata, spec, status } = object;
    Request {
        key: key(&metadata),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        created: metadata.creation_timestamp.map_or(0, |t| t.0.as_second()),
        deleting: metadata.deletion_timestamp.is_some(),
        in_v1beta1: metadata.managed_fields.iter().flatten().any(wrote_spec_in_v1beta1),
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata
            .annotations
            .into_iter()
            .flatten()
            .filter(|(key, _)| annotations::INTERNAL.contains(&key.as_str()))
            .collect(),
        spec,
        status: status.unwrap_or_default(),
    }
}

fn wrote_spec_in_v1beta1(entry: &ManagedFieldsEntry) -> bool {
    let spec = entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some());
    spec && entry.api_version.as_deref() == Some("apps.kruise.io/v1beta1")
}

/// The order book as the core sees it.
pub fn nodework(object: NodeWorkObject) -> NodeWork {
    let NodeWorkObject { metadata, spec, status } = object;
    NodeWork {
        node: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        orders: spec.orders,
        status: status.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use pitstop_api::recreate::Phase;

    use super::*;

    #[test]
    fn a_pod_of_the_api_server_is_understood() {
        let text = r#"{"apiVersion":"v1","kind":"Pod",
          "metadata":{"name":"web","namespace":"ns","uid":"u","resourceVersion":"7","managedFields":[{"manager":"x"}]},
          "spec":{"nodeName":"node1","restartPolicy":"Always","terminationGracePeriodSeconds":30,
            "volumes":[{"name":"v","emptyDir":{}}],
            "readinessGates":[{"conditionType":"example.com/other"},{"conditionType":"KruisePodReady"}],
            "initContainers":[{"name":"init"},{"name":"proxy","image":"p","restartPolicy":"Always"}],
            "containers":[{"name":"app","image":"a","lifecycle":{"preStop":{"exec":{"command":["x"]}}}},{"name":"sidecar"}]},
          "status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"},
            {"type":"KruisePodReady","status":"False","message":"[]","lastTransitionTime":null}],
           "initContainerStatuses":[{"name":"proxy","containerID":"containerd://3","imageID":"p@sha256:1"}],
           "containerStatuses":[
            {"name":"app","containerID":"containerd://1","restartCount":2,"ready":true,"image":"a","imageID":"b",
             "state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},"lastState":{}},
            {"name":"sidecar","restartCount":0,"ready":false,"image":"a","imageID":"",
             "state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off 10s"}}}]}}"#;
        let pod = pod(serde_json::from_str(text).unwrap());
        assert_eq!((pod.uid.as_str(), pod.node.as_deref(), pod.gone()), ("u", Some("node1"), false));
        let app = pod.container("app").unwrap();
        let status = app.status.clone().unwrap();
        assert_eq!((status.restart_count, status.ready, status.state), (2, true, ContainerState::Running));
        let sidecar = pod.container("sidecar").unwrap().status.clone().unwrap();
        assert_eq!(sidecar.container_id, "");
        assert!(
            matches!(sidecar.state, ContainerState::Waiting { reason, .. } if reason == "CrashLoopBackOff")
        );
        assert_eq!(pod.container("init").unwrap().kind, ContainerKind::Init);
        let proxy = pod.container("proxy").unwrap();
        assert_eq!((proxy.kind, proxy.image.as_str()), (ContainerKind::Sidecar, "p"));
        assert_eq!(proxy.status.as_ref().unwrap().image_id, "p@sha256:1");
        let condition = GateCondition { open: false, message: "[]".into() };
        assert!(pod.ready);
        assert_eq!(pod.gates, [Gate { type_: "KruisePodReady".into(), condition: Some(condition) }]);
    }

    #[test]
    fn a_pod_is_ready_by_its_condition_ready_alone() {
        let ready = |ready: &str, other: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"web"}},"status":{{"conditions":[{{"type":"Ready","status":"{ready}"}},
                    {{"type":"PodScheduled","status":"{other}"}}]}}}}"#
            );
            pod(serde_json::from_str(&text).unwrap()).ready
        };
        assert!(ready("True", "False"));
        assert!(!ready("False", "True") && !ready("Unknown", "True"));
    }

    #[test]
    fn what_a_pod_leaves_out_is_what_kubernetes_takes_it_for() {
        let pod = |spec: &str| {
            pod(serde_json::from_str(&format!(r#"{{"metadata":{{"name":"web"}},"spec":{spec}}}"#)).unwrap())
        };
        for (written, policy) in [
            ("Always", RestartPolicy::Always),
            ("", RestartPolicy::Always),
            ("OnFailure", RestartPolicy::OnFailure),
            ("Never", RestartPolicy::Never),
        ] {
            assert_eq!(pod(&format!(r#"{{"restartPolicy":"{written}"}}"#)).restart_policy, policy);
        }
        assert_eq!(pod("{}").restart_policy, RestartPolicy::Always);
        assert_eq!((pod("{}").node, pod(r#"{"nodeName":""}"#).node), (None, None), "not scheduled yet");
        assert_eq!(pod(r#"{"nodeName":"n1"}"#).node.as_deref(), Some("n1"));
    }

    #[test]
    fn a_request_keeps_all_that_decisions_rest_on() {
        let text = r#"{"apiVersion":"apps.kruise.io/v1alpha1","kind":"ContainerRecreateRequest",
          "metadata":{"name":"crr","namespace":"shop","uid":"u","resourceVersion":"7","generation":2,
            "creationTimestamp":"1970-01-01T00:01:05Z","deletionTimestamp":"1970-01-01T00:02:00Z",
            "labels":{"a":"b"},"annotations":{"example.com/own":"x"}},
          "spec":{"podName":"web","containers":[{"name":"app"}]},"status":{"phase":"Recreating"}}"#;
        let request = request(serde_json::from_str(text).unwrap());
        assert_eq!((request.key.to_string().as_str(), request.uid.as_str()), ("shop/crr", "u"));
        assert_eq!((request.resource_version.as_str(), request.generation), ("7", Some(2)));
        assert_eq!((request.created, request.deleting), (65, true));
        assert_eq!(request.labels.get("a").map(String::as_str), Some("b"));
        assert!(request.annotations.is_empty(), "those of others are none of its business");
        assert_eq!((request.spec.pod_name.as_str(), request.status.phase), ("web", Some(Phase::Recreating)));
    }

    #[test]
    fn the_version_of_a_request_is_that_which_its_spec_was_written_in() {
        let made = |spec: &str, status: &str| {
            let entry = |version: &str, fields: &str| {
                format!(
                    r#"{{"manager":"x","operation":"Update","apiVersion":"apps.kruise.io/{version}","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
                )
            };
            let entries = [
                entry(status, r#"{"f:metadata":{"f:labels":{}}}"#),
                entry(spec, r#"{"f:spec":{".":{},"f:podName":{}}}"#),
            ];
            let text = format!(
                r#"{{"apiVersion":"apps.kruise.io/v1alpha1","kind":"ContainerRecreateRequest",
                    "metadata":{{"name":"a","namespace":"ns","managedFields":[{}]}},
                    "spec":{{"podName":"web","containers":[{{"name":"app"}}]}}}}"#,
                entries.join(",")
            );
            request(serde_json::from_str(&text).unwrap()).in_v1beta1
        };
        assert!(made("v1beta1", "v1alpha1"));
        assert!(!made("v1alpha1", "v1beta1"));
    }

    #[test]
    fn hooks_of_a_pod_that_was_read_are_told_with_the_ports_of_their_containers() {
        let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"ns","uid":"u"},
          "spec":{"initContainers":[{"name":"proxy","lifecycle":{"preStop":{"sleep":{"seconds":3}}}}],
            "containers":[{"name":"app","lifecycle":{"preStop":{"httpGet":{"port":"web"}}},
              "ports":[{"name":"web","containerPort":8080,"protocol":"TCP"}]},
              {"name":"plain","lifecycle":{"postStart":{"sleep":{"seconds":1}}}},{"name":"bare"}]}}"#;
        let (pod, hooks) = live(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(pod.uid, "u");
        assert_eq!(hooks.keys().collect::<Vec<_>>(), ["app", "proxy"]);
        assert!(hooks["app"].pre_stop.http_get.is_some());
        assert_eq!(hooks["app"].ports[0].container_port, 8080);
        assert_eq!(hooks["proxy"].pre_stop.sleep.as_ref().unwrap().seconds, 3);
    }

    /// Nodes with wrong clocks: when a container started is read by nobody.
    #[test]
    fn k1_no_decision_sees_when_a_container_started_or_ended() {
        let seen = |year: u16| {
            let text = format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web","creationTimestamp":"{year}-01-01T00:00:00Z"}},
                "spec":{{"containers":[{{"name":"app"}},{{"name":"sidecar"}}]}},
                "status":{{"startTime":"{year}-01-01T00:00:00Z","containerStatuses":[
                 {{"name":"app","containerID":"containerd://1","restartCount":2,"ready":true,"image":"a","imageID":"b",
                  "state":{{"running":{{"startedAt":"{year}-01-01T00:00:00Z"}}}},
                  "lastState":{{"terminated":{{"exitCode":1,"finishedAt":"{year}-01-01T00:00:00Z"}}}}}},
                 {{"name":"sidecar","containerID":"containerd://2","restartCount":1,"ready":false,"image":"a","imageID":"b",
                  "state":{{"terminated":{{"exitCode":1,"finishedAt":"{year}-01-01T00:00:00Z"}}}}}}]}}}}"#
            );
            pod(serde_json::from_str(&text).unwrap())
        };
        assert_eq!(seen(2026), seen(1970));
        assert_eq!(seen(2026), seen(2038));
    }
}
