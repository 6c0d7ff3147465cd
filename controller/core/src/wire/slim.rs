//! A Pod with the fields that decisions need: a full one costs about ten times as much memory while it is decoded.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use pitstop_api::nodework::PullPolicy;
use pitstop_api::quantity::{self, Resources};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::amounts::Amounts;
use super::conditions::{SlimCondition, explanation, is_true, is_unheard};
use super::metadata::{MIRROR, metadata, pod_labels, pod_mark, pod_revision};
use super::policies::{SlimRule, own_policy, policy};
use super::volumes::{SlimVolume, images};
use crate::key::ObjectKey;
use crate::owner::{controller, owner};
use crate::pod::{
    Container, ContainerKind, ContainerState, ContainerStatus, Controller, Explanation, Made, Pod,
    ResizeConditions, RestartFor,
};
use crate::readiness::{self, Gate, GateCondition};

/// A Pod with the fields that decisions need.
#[derive(Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = core::Pod)]
#[serde(rename_all = "camelCase")]
pub struct SlimPod {
    /// `metadata`, without what decisions do not need.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// `spec`.
    #[serde(default)]
    spec: SlimSpec,
    /// `status`.
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimSpec {
    node_name: Option<String>,
    restart_policy: String,
    readiness_gates: Vec<SlimGate>,
    overhead: Amounts,
    resources: Option<SlimResources>,
    termination_grace_period_seconds: Option<i64>,
    active_deadline_seconds: Option<i64>,
    priority_class_name: Option<String>,
    /// Only whether any exists counts.
    image_pull_secrets: Vec<IgnoredAny>,
    volumes: Vec<SlimVolume>,
    containers: Vec<SlimContainer>,
    init_containers: Vec<SlimContainer>,
    ephemeral_containers: Vec<SlimContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimGate {
    condition_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimContainer {
    name: String,
    image: String,
    image_pull_policy: String,
    /// `Always` for init containers (KEP-753); any policy for others (KEP-5307).
    restart_policy: Option<String>,
    restart_policy_rules: Vec<SlimRule>,
    resources: SlimResources,
    resize_policy: Vec<SlimResizePolicy>,
    readiness_probe: Option<SlimProbe>,
    startup_probe: Option<SlimProbe>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimProbe {
    period_seconds: i32,
    success_threshold: i32,
}

impl SlimProbe {
    /// The API server fills in both fields.
    fn seconds(&self) -> u16 {
        u16::try_from(self.period_seconds.saturating_mul(self.success_threshold)).unwrap_or(u16::MAX)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimResources {
    requests: Amounts,
    limits: Amounts,
}

impl SlimResources {
    fn huge_pages(&self) -> bool {
        self.requests.huge_pages || self.limits.huge_pages
    }

    fn read(&self) -> Resources {
        Resources {
            cpu_request: self.requests.cpu,
            cpu_limit: self.limits.cpu,
            memory_request: self.requests.memory,
            memory_limit: self.limits.memory,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimResizePolicy {
    resource_name: String,
    restart_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimStatus {
    phase: String,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
    conditions: Vec<SlimCondition>,
    container_statuses: Vec<SlimContainerStatus>,
    init_container_statuses: Vec<SlimContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
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
    last_state: SlimState,
    allocated_resources: Option<Amounts>,
    resources: Option<SlimResources>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimState {
    waiting: Option<SlimWaiting>,
    running: Option<SlimRunning>,
    terminated: Option<SlimTerminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimWaiting {
    reason: String,
    message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SlimRunning {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimTerminated {
    exit_code: i32,
    reason: String,
    #[serde(rename = "containerID")]
    container_id: String,
}

/// The Pod as the core sees it.
pub fn pod(pod: SlimPod) -> Pod {
    let SlimPod { metadata, spec, status } = pod;
    let own = spec.containers.iter().chain(&spec.init_containers).map(|container| &container.resources);
    let huge_pages = own.chain(&spec.resources).any(SlimResources::huge_pages);
    let ended = Explanation { reason: status.reason, message: status.message };
    let controlled_by = |owner: &OwnerReference| {
        Box::new(Controller { kind: owner.kind.as_str().into(), uid: owner.uid.as_str().into() })
    };
    Pod {
        controller: controller(&metadata).map(controlled_by),
        made: owner(&metadata).map(|owner| Box::new(Made { owner, ended, volumes: images(spec.volumes) })),
        key: ObjectKey::of(&metadata),
        revision: pod_revision(&metadata),
        marked: pod_mark(&metadata),
        labels: pod_labels(&metadata),
        mirror: metadata.annotations.is_some_and(|a| a.contains_key(MIRROR)),
        deleting: metadata.deletion_timestamp.is_some(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        created: metadata.creation_timestamp.map_or(0, |time| time.0.as_second()),
        generation: metadata.generation,
        observed_generation: status.observed_generation,
        node: spec.node_name.filter(|name| !name.is_empty()),
        finished: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
        restart_policy: policy(&spec.restart_policy).unwrap_or_default(),
        grace_seconds: spec.termination_grace_period_seconds.map(grace),
        gates: gates(&spec.readiness_gates, &status.conditions),
        ready: is_true(&status.conditions, "Ready").is_some(),
        unheard: is_unheard(&status.conditions),
        resize: ResizeConditions {
            pending: explanation(&status.conditions, "PodResizePending"),
            in_progress: explanation(&status.conditions, "PodResizeInProgress"),
        },
        overhead: SlimResources { requests: spec.overhead, ..SlimResources::default() }.read(),
        pod_level: spec.resources.map(|resources| Box::new(resources.read())),
        huge_pages,
        active_deadline: spec.active_deadline_seconds.is_some(),
        pull_secrets: !spec.image_pull_secrets.is_empty(),
        priority_class: spec.priority_class_name.filter(|name| !name.is_empty()).map(Into::into),
        containers: containers(
            [
                (ContainerKind::Main, spec.containers),
                (ContainerKind::Init, spec.init_containers),
                (ContainerKind::Ephemeral, spec.ephemeral_containers),
            ],
            status.container_statuses.into_iter().chain(status.init_container_statuses),
        ),
    }
}

/// The containers of each list, with their statuses.
fn containers(
    lists: [(ContainerKind, Vec<SlimContainer>); 3],
    statuses: impl Iterator<Item = SlimContainerStatus>,
) -> Vec<Container> {
    let mut statuses: BTreeMap<String, SlimContainerStatus> =
        statuses.map(|status| (status.name.clone(), status)).collect();
    // Exact capacity: most Pods have one container, and every Pod of the cluster is kept.
    let mut containers = Vec::with_capacity(lists.iter().map(|(_, list)| list.len()).sum());
    let all = lists
        .into_iter()
        .flat_map(|(kind, list)| list.into_iter().map(move |container| (kind, container)))
        .map(|(kind, container)| Container {
            kind: match (kind, container.restart_policy.as_deref()) {
                (ContainerKind::Init, Some("Always")) => ContainerKind::Sidecar,
                _ => kind,
            },
            image: container.image,
            pull_policy: match container.image_pull_policy.as_str() {
                "Always" => PullPolicy::Always,
                "Never" => PullPolicy::Never,
                _ => PullPolicy::IfNotPresent,
            },
            resources: container.resources.read(),
            restart_for: restart_for(&container.resize_policy),
            probe_seconds: [&container.readiness_probe, &container.startup_probe]
                .into_iter()
                .flatten()
                .fold(0, |sum, probe| sum.saturating_add(probe.seconds())),
            own_policy: own_policy(container.restart_policy.as_deref(), container.restart_policy_rules),
            status: statuses.remove(&container.name).map(container_status),
            name: container.name,
        });
    containers.extend(all);
    containers
}

/// Seconds. A negative value, which may be stored from long ago, means 1: an update may change it to 1 only
/// (`ValidatePodUpdate` of Kubernetes 1.36).
fn grace(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// The Pod's gates of the types that pitstop serves, each with its condition.
fn gates(gates: &[SlimGate], conditions: &[SlimCondition]) -> Vec<Gate> {
    let served = gates.iter().map(|g| &g.condition_type).filter(|t| readiness::SERVED.contains(&t.as_str()));
    served
        .map(|type_| {
            let condition = conditions.iter().find(|c| c.type_ == *type_);
            let condition =
                condition.map(|c| GateCondition { open: c.status == Some(true), message: c.message.clone() });
            Gate { type_: type_.clone(), condition }
        })
        .collect()
}

fn restart_for(policies: &[SlimResizePolicy]) -> RestartFor {
    let asks = |resource: quantity::Resource| {
        policies
            .iter()
            .any(|p| p.resource_name == resource.as_str() && p.restart_policy == "RestartContainer")
    };
    RestartFor { cpu: asks(quantity::Resource::Cpu), memory: asks(quantity::Resource::Memory) }
}

fn container_status(status: SlimContainerStatus) -> ContainerStatus {
    let ends = [&status.state.terminated, &status.last_state.terminated];
    let oom_killed = ends.into_iter().flatten().find(|ended| ended.reason == "OOMKilled");
    let oom_killed = oom_killed.map_or_else(String::new, |ended| ended.container_id.clone());
    // Reasons of the runtimes, and of a kubelet that does not find the container.
    let lost = |ended: &SlimTerminated| ["Unknown", "ContainerStatusUnknown"].contains(&&*ended.reason);
    let lost = ends.iter().zip(0_i32..).find(|(ended, _)| ended.as_ref().is_some_and(lost));
    let lost = lost.map(|(_, ago)| status.restart_count.saturating_sub(ago));
    let requests = |requests| SlimResources { requests, ..SlimResources::default() }.read();
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
        allocated: status.allocated_resources.map(requests),
        actual: status.resources.map(|resources| resources.read()),
        exact: false,
        oom_killed,
        lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::RestartPolicy;

    #[test]
    fn a_grace_period_below_zero_is_one_second() {
        for (stored, meant) in [(-5, 1), (0, 0), (30, 30)] {
            let text = format!(r#"{{"metadata":{{}},"spec":{{"terminationGracePeriodSeconds":{stored}}}}}"#);
            let slim: SlimPod = serde_json::from_str(&text).unwrap();
            assert_eq!(pod(slim).grace_seconds, Some(meant));
        }
    }

    #[test]
    fn a_pod_of_the_api_server_is_understood() {
        let text = r#"{"apiVersion":"v1","kind":"Pod",
          "metadata":{"name":"web","namespace":"ns","uid":"u","resourceVersion":"7",
            "creationTimestamp":"2026-01-01T00:00:09Z","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"n"},
              {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"r","controller":true}],
            "managedFields":[{"manager":"x"}]},
          "spec":{"nodeName":"node1","restartPolicy":"Always","terminationGracePeriodSeconds":30,"imagePullSecrets":[{"name":"r"}],
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
        assert!(pod.pull_secrets);
        assert_eq!(pod.created, 1_767_225_609);
        let controller = Controller { kind: "ReplicaSet".into(), uid: "r".into() };
        assert_eq!(pod.controller.as_deref(), Some(&controller));
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
    fn what_admits_a_resize_is_understood() {
        let pod = |spec: &str| {
            pod(serde_json::from_str(&format!(r#"{{"metadata":{{"name":"web"}},"spec":{spec}}}"#)).unwrap())
        };
        let plain = pod(r#"{"priorityClassName":"","containers":[{"name":"app"}]}"#);
        assert_eq!((plain.active_deadline, plain.huge_pages, plain.priority_class), (false, false, None));
        assert!(!plain.pull_secrets);
        let job = pod(r#"{"activeDeadlineSeconds":60,"priorityClassName":"high"}"#);
        assert_eq!((job.active_deadline, job.priority_class.as_deref()), (true, Some("high")));
        for list in ["containers", "initContainers"] {
            for kind in ["requests", "limits"] {
                let spec = format!(
                    r#"{{"{list}":[{{"name":"a","resources":{{"{kind}":{{"hugepages-2Mi":"4Mi"}}}}}}]}}"#
                );
                assert!(pod(&spec).huge_pages, "{spec}");
            }
        }
        let whole = pod(r#"{"resources":{"requests":{"cpu":"1","hugepages-1Gi":"1Gi"}}}"#);
        assert!(whole.huge_pages);
        assert_eq!(whole.pod_level.unwrap().cpu_request, Some(1000));
    }

    /// Every Pod of the cluster is kept.
    #[test]
    fn a_pod_is_small() {
        let (pod, container) = (size_of::<Pod>(), size_of::<Container>());
        assert!(pod <= 520 && container <= 500, "a Pod takes {pod} bytes, each container {container}");
    }

    /// Nodes may have wrong clocks: nothing reads when a container started. Pod creation is by the API server's clock.
    #[test]
    fn k1_no_decision_sees_when_a_container_started_or_ended() {
        let seen = |year: u16| {
            let text = format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web","creationTimestamp":"2026-01-01T00:00:00Z"}},
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

    #[test]
    fn what_a_kubelet_says_of_a_resize_is_understood() {
        let text = r#"{"metadata":{"name":"web","generation":4},
          "spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"memory":"1Gi"}},
            "resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"},
              {"resourceName":"memory","restartPolicy":"RestartContainer"}],
            "startupProbe":{"periodSeconds":5,"successThreshold":1},
            "readinessProbe":{"periodSeconds":10,"successThreshold":2}}]},
          "status":{"observedGeneration":3,"conditions":[
              {"type":"PodResizePending","status":"True","reason":"Deferred","message":"no room"},
              {"type":"PodResizeInProgress","status":"False","reason":"Error","message":"old"}],
            "containerStatuses":[{"name":"app","containerID":"containerd://2","restartCount":1,"ready":true,
              "state":{"running":{}},"lastState":{"terminated":{"reason":"OOMKilled","exitCode":137,"containerID":"containerd://1"}},
              "allocatedResources":{"cpu":"50m"},"resources":{"limits":{"memory":"512Mi"}}}]}}"#;
        let lost = pod(serde_json::from_str(&text.replace("OOMKilled", "Unknown")).unwrap());
        assert_eq!(lost.containers[0].status.as_ref().unwrap().lost, Some(0));
        let pod = pod(serde_json::from_str(text).unwrap());
        assert_eq!((pod.generation, pod.observed_generation), (Some(4), Some(3)));
        let pending = Some(Explanation { reason: "Deferred".into(), message: "no room".into() });
        assert_eq!(pod.resize, ResizeConditions { pending, in_progress: None });
        let app = &pod.containers[0];
        let wanted = Resources {
            cpu_request: Some(100),
            memory_request: Some(64 << 20),
            memory_limit: Some(1 << 30),
            ..Resources::default()
        };
        assert_eq!((app.resources, app.restart_for), (wanted, RestartFor { cpu: false, memory: true }));
        let status = app.status.as_ref().unwrap();
        assert_eq!((&*status.oom_killed, status.lost, app.probe_seconds), ("containerd://1", None, 25));
        assert_eq!(status.allocated, Some(Resources { cpu_request: Some(50), ..Resources::default() }));
        assert_eq!(status.actual, Some(Resources { memory_limit: Some(512 << 20), ..Resources::default() }));
    }
}
