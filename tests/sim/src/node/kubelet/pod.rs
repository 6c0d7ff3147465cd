//! A Pod as the kubelet reads it.

use std::collections::BTreeMap;

use pitstop_api::quantity::{Resource, Resources};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::{Condition, ContainerStatus};
use crate::node::behaviour::{self, Behaviour};
use crate::node::runtime::{ContainerInfo, KILLED, Process};
use crate::node::{cgroups, keys};

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
    /// `deletionGracePeriodSeconds`, once it is being deleted.
    pub deleting: Option<i64>,
    pub policy: Policy,
    pub grace: i64,
    /// `spec.readinessGates`.
    pub gates: Vec<String>,
    /// In start order: init containers and sidecars, then the others.
    pub containers: Vec<PodContainer>,
    /// UID of the static Pod that it mirrors.
    pub mirrors: Option<String>,
    /// The status in the API.
    pub status: ApiStatus,
}

/// The status in the API, as far as the kubelet reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiStatus {
    pub phase: String,
    pub conditions: Vec<Condition>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
    pub start_time: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Policy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// `imagePullPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PullPolicy {
    Always,
    #[default]
    IfNotPresent,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Init,
    Sidecar,
    Main,
}

/// One container of the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct PodContainer {
    pub name: String,
    pub image: String,
    pub pull_policy: PullPolicy,
    pub kind: Kind,
    /// `lifecycle.preStop`, raw.
    pub pre_stop: Option<Value>,
    /// `ports`, raw.
    pub ports: Option<Value>,
    /// `resources`.
    pub size: Resources,
    /// `resizePolicy`: whether a change of CPU, or of memory, restarts it.
    pub restart_for: (bool, bool),
    /// `restartPolicy` of a container that is not a sidecar.
    pub policy: Option<Policy>,
    /// `restartPolicyRules` with the action `Restart`: whether the operator is `NotIn`, and the exit codes.
    pub rules: Vec<(bool, Vec<i32>)>,
    pub behaviour: Behaviour,
}

impl PodContainer {
    /// Hash that decides whether the kubelet replaces a container: since 1.31, of name and image.
    pub fn hash(&self) -> String {
        let text = self.name.bytes().chain([0]).chain(self.image.bytes());
        let hash =
            text.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        format!("{hash:x}")
    }

    /// Back-off key beside its name: since 1.34 it includes resources.
    pub fn backoff_key(&self) -> String {
        if self.size == Resources::default() {
            return self.image.clone();
        }
        format!("{} {}", self.image, cgroups::text(&self.size))
    }

    /// When an instance passes its readiness probe; None for never.
    pub fn ready_after(&self, instance: &ContainerInfo) -> Option<u64> {
        self.behaviour.ready.filter(|_| !instance.annotations.contains_key(keys::UNREADY))
    }

    /// The process of an instance with this size. If it uses more memory than its limit, it ends soon.
    pub fn process(&self, attempt: u32, size: &Resources) -> Process {
        let mut process = self.behaviour.process(attempt, self.hook_command().as_deref());
        if size.memory_limit.is_some_and(|limit| limit < self.behaviour.uses << 20) {
            (process.runs, process.out_of_memory) = (Some((300, KILLED)), true);
        }
        process
    }

    /// `ContainerShouldRestart` after this exit code.
    pub fn should_restart(&self, pod: Policy, exit_code: i32) -> bool {
        if self.kind == Kind::Sidecar {
            return true;
        }
        let ruled = self.rules.iter().any(|(not_in, codes)| codes.contains(&exit_code) != *not_in);
        let by_policy = match self.policy.unwrap_or(pod) {
            Policy::Always => true,
            Policy::OnFailure => exit_code != 0,
            Policy::Never => false,
        };
        (ruled && self.policy.is_some()) || by_policy
    }

    /// The command of an exec hook.
    pub fn hook_command(&self) -> Option<Vec<String>> {
        let command = self.pre_stop.as_ref()?.pointer("/exec/command")?;
        Vec::<String>::deserialize(command).ok()
    }
}

impl Pod {
    /// Reads a Pod in API form.
    pub fn read(value: &Value) -> Self {
        let Object { metadata, spec, status } = Object::deserialize(value).expect("a Pod in API form");
        let Meta {
            name,
            namespace,
            uid,
            generation,
            deletion_timestamp,
            deletion_grace_period_seconds,
            annotations,
        } = metadata;
        let behaviour = |name: &str| {
            annotations
                .get(&format!("{}{name}", behaviour::PREFIX))
                .map_or_else(Behaviour::default, |text| Behaviour::parse(text))
        };
        let inits = spec.init_containers.into_iter().map(|c| {
            let sidecar = c.restart_policy == Some(Policy::Always);
            (if sidecar { Kind::Sidecar } else { Kind::Init }, c)
        });
        let containers = inits
            .chain(spec.containers.into_iter().map(|c| (Kind::Main, c)))
            .map(|(kind, c)| PodContainer {
                behaviour: behaviour(&c.name),
                pre_stop: c.lifecycle.and_then(|l| l.pre_stop),
                ports: c.ports,
                size: c.resources.read(),
                restart_for: (asks(&c.resize_policy, "cpu"), asks(&c.resize_policy, "memory")),
                policy: c.restart_policy,
                rules: c
                    .restart_policy_rules
                    .into_iter()
                    .filter(|rule| rule.action == "Restart")
                    .map(|rule| (rule.exit_codes.operator == "NotIn", rule.exit_codes.values))
                    .collect(),
                name: c.name,
                image: c.image,
                pull_policy: c.image_pull_policy,
                kind,
            })
            .collect();
        let grace = spec.termination_grace_period_seconds.unwrap_or(30);
        Self {
            namespace,
            name,
            uid,
            generation,
            deleting: deletion_timestamp.map(|_| deletion_grace_period_seconds.unwrap_or(grace)),
            policy: spec.restart_policy,
            grace,
            gates: spec.readiness_gates.into_iter().map(|g| g.condition_type).collect(),
            containers,
            mirrors: annotations.get(keys::CONFIG_MIRROR).cloned(),
            status,
        }
    }

    pub fn container(&self, name: &str) -> Option<&PodContainer> {
        self.containers.iter().find(|c| c.name == name)
    }

    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &PodContainer> {
        self.containers.iter().filter(move |c| c.kind == kind)
    }

    /// Whether the API's condition of this type is True; None if it does not exist. For types that are not
    /// the kubelet's.
    pub fn gate_open(&self, type_: &str) -> Option<bool> {
        self.status.conditions.iter().find(|c| c.type_ == type_).map(|c| c.status == "True")
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Object {
    metadata: Meta,
    spec: Spec,
    status: ApiStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
    generation: i64,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    init_containers: Vec<Container>,
    containers: Vec<Container>,
    restart_policy: Policy,
    termination_grace_period_seconds: Option<i64>,
    readiness_gates: Vec<Gate>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    image: String,
    image_pull_policy: PullPolicy,
    restart_policy: Option<Policy>,
    restart_policy_rules: Vec<Rule>,
    lifecycle: Option<Lifecycle>,
    ports: Option<Value>,
    resources: Amounts,
    resize_policy: Vec<ResizePolicy>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amounts {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

impl Amounts {
    fn read(&self) -> Resources {
        let of = |amounts: &BTreeMap<String, String>, resource: Resource| {
            amounts.get(resource.as_str()).and_then(|text| resource.parse(text))
        };
        Resources {
            cpu_request: of(&self.requests, Resource::Cpu),
            cpu_limit: of(&self.limits, Resource::Cpu),
            memory_request: of(&self.requests, Resource::Memory),
            memory_limit: of(&self.limits, Resource::Memory),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    action: String,
    exit_codes: ExitCodes,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ExitCodes {
    operator: String,
    values: Vec<i32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResizePolicy {
    resource_name: String,
    restart_policy: String,
}

fn asks(policies: &[ResizePolicy], resource: &str) -> bool {
    policies.iter().any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer")
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Lifecycle {
    pre_stop: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Gate {
    condition_type: String,
}
