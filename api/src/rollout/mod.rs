//! `InPlaceRollout`: a standing object for one workload, whose Pods are serviced in place and in order.

mod share;
mod status;
mod validate;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use share::{Share, share_of};
pub use status::{
    InPlaceRolloutStatus, MAX_HISTORY, MAX_IMAGES, MAX_PODS, Phase, PodOfInterest, PodState, Restart, Roll,
    RollResult, ServiceGap, TagMeaning, Update, UpdateEnd, conditions,
};
pub use validate::validate;

use crate::image_update::ContainerImage;
use crate::is_false;
use crate::quantity::{Resource, Resources};
use crate::resize::Amount;
use crate::schema::{immutable, rule};

/// What `kind` says.
pub const KIND: &str = "InPlaceRollout";
/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "inplacerollouts";

/// Most containers that may be named.
pub const MAX_CONTAINERS: usize = 64;
/// What the value of a label is.
pub const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Most labels that may be named.
pub const MAX_LABELS: usize = 16;
/// Most annotations that may be named.
pub const MAX_ANNOTATIONS: usize = 16;
/// Most characters of the name of an annotation: 253 of its domain, a slash, 63 of its own.
pub const MAX_ANNOTATION: usize = 317;
/// Most seconds for which a Pod is watched before it counts: a day.
pub const MAX_SOAK_SECONDS: i64 = 86_400;
/// Seconds for which a Pod is watched where nothing else is said.
pub const SOAK_SECONDS: i64 = 10;
/// Label of a workload that is parked: its own controller makes no new Pods when its template changes. The value is what to
/// release it to: of a `Deployment` `Unpaused`, of a `StatefulSet` the partition, of a `DaemonSet` `RollingUpdate`.
pub const PARKED: &str = "pitstop.dev/parked";
/// Before the value of that label, in a write of the controller: admission releases the workload, and does not store it.
pub const RELEASE: &str = "release-";
/// Annotation of a `Deployment`'s Pod that was updated in place: to which revision.
pub const POD_REVISION: &str = "pitstop.dev/revision";
/// Label of an `InPlaceRollout` that is armed: admission may park its workload. Only the controller sets it.
pub const ARMED: &str = "pitstop.dev/armed";
/// Seconds without progress after which a rollout is stalled, where nothing else is said.
pub const PROGRESS_DEADLINE_SECONDS: i64 = 600;

/// Which workload, and how carefully.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "pitstop.dev",
    version = "v1alpha1",
    kind = "InPlaceRollout",
    plural = "inplacerollouts",
    singular = "inplacerollout",
    shortname = "ipr",
    category = "pitstop",
    selectable = ".spec.targetRef.name",
    selectable = ".status.phase",
    namespaced,
    status = "InPlaceRolloutStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Stands beside one workload, or selects Pods, and services the Pods in place, in order and within a budget: restarts them, and gives them what a changed template says, or what it says itself. No Pod is made anew.",
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.targetRef.kind","description":"The workload's kind"}"#,
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.targetRef.name","description":"The workload"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"How far it is"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Complete\")].reason","description":"What it waits for, or what it has done"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".status.pods","description":"Pods that the restart or the update is for"}"#,
    printcolumn = r#"{"name":"Current","type":"integer","jsonPath":".status.current","description":"Those of them that are done"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Complete\")].message","description":"The same in a sentence"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceRolloutSpec {
    /// The workload, in the namespace of the rollout. Of several rollouts for one workload only the oldest acts. One of
    /// `targetRef` and `selector` must be there. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The Pods, in the namespace of the rollout, whoever has made them: for Pods that no Deployment, StatefulSet or DaemonSet
    /// owns. A Pod that has ended does not count. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<PodSelector>,
    /// The images that containers of the selected Pods are to have: of those that there are, and of those that are made later.
    /// Each Pod must have each of the containers. What a Pod has got once is not looked at again until this list, or `resources`,
    /// changes. Only with `selector`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub images: Vec<ContainerImage>,
    /// The CPU and memory that containers of the selected Pods are to have, like `images`; what is not named stays. Only with
    /// `selector`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<ContainerAmounts>,
    /// What happens when the template of a parked workload changes. `Native` (default): its own controller makes new Pods, as
    /// without a rollout. `InPlace`: the running Pods get the new images and resources, and are restarted if an annotation asks
    /// for it; the workload is released when that is done in all of them. A workload is parked by its label
    /// `pitstop.dev/parked`.
    #[serde(default)]
    #[schemars(extend("default" = "Native"))]
    pub template_changes: TemplateChanges,
    /// A new value restarts all existing Pods of the workload, in place. The template does not change. Pods that are made later
    /// are not restarted. When the restart is finished, `status.restartedAt` has this value. Write a time; any other text works,
    /// too, because it is not compared with a clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub restarted_at: Option<String>,
    /// What a restart includes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartOf>,
    /// Further annotations of the Pod template that ask for a restart when they change, beside
    /// `kubectl.kubernetes.io/restartedAt`, `reloader.stakater.com/last-reloaded-from` and all that begin with `checksum/`: a
    /// change of these is made in place, where `templateChanges` is `InPlace`. The annotations of running Pods stay as they are.
    /// None may begin with `pitstop.dev/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ANNOTATIONS), inner(length(min = 1, max = MAX_ANNOTATION), regex(pattern = crate::condition::TYPE)), extend("x-kubernetes-list-type" = "set"))]
    pub restart_annotations: Vec<String>,
    /// In which steps the Pods are restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Restart a Pod only while each `PodDisruptionBudget` for it lets another Pod be unavailable. A budget is for the Pods of the
    /// workload if it selects the labels of its Pod template. A Pod that is not ready is restarted whatever a budget says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub respect_disruption_budgets: Option<bool>,
    /// While this is true, no further Pod is restarted. Pods that are being restarted are finished.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub paused: bool,
    /// If no further Pod is finished for so many seconds, the rollout is reported as stalled. It continues when it can. The seconds
    /// of `unreadyGracePeriodSeconds` and of the soak are added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = crate::MAX_SECONDS), extend("default" = 600))]
    pub progress_deadline_seconds: Option<i64>,
}

impl InPlaceRolloutSpec {
    /// Changes of the workload's template are carried out in its Pods while it is parked.
    pub fn changes_in_place(&self) -> bool {
        self.template_changes == TemplateChanges::InPlace
    }

    /// The workload's kind; absent where Pods are selected.
    pub fn kind(&self) -> Option<TargetKind> {
        self.target_ref.as_ref().map(|target| target.kind)
    }

    /// The labels of selected Pods; none where there is a workload.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.selector.as_ref().map_or(&NONE, |selector| &selector.match_labels)
    }

    /// Selected Pods are to have something.
    pub fn wants_something(&self) -> bool {
        self.selector.is_some() && !(self.images.is_empty() && self.resources.is_empty())
    }

    /// Whose Pods, as people read it: `Deployment web`, or `selector app=web,tier=front`.
    pub fn target(&self) -> String {
        if let Some(TargetRef { kind, name, .. }) = &self.target_ref {
            return format!("{} {name}", kind.name());
        }
        let labels: Vec<String> =
            self.labels().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("selector {}", labels.join(","))
    }

    /// Seconds for which a Pod is watched before it counts.
    pub fn soak(&self) -> i64 {
        self.strategy.as_ref().and_then(|strategy| strategy.soak_seconds).unwrap_or(SOAK_SECONDS)
    }

    /// The Pods that go first.
    pub fn canary(&self) -> Option<&Canary> {
        self.strategy.as_ref().and_then(|strategy| strategy.canary.as_ref())
    }

    /// After so many failed Pods, no further Pod is restarted.
    pub fn failure_threshold(&self) -> u32 {
        let own = self.strategy.as_ref().and_then(|strategy| strategy.failure_threshold);
        own.and_then(|own| u32::try_from(own).ok()).unwrap_or(1)
    }

    /// Pods that were updated go back when others have failed.
    pub fn rolls_back(&self) -> bool {
        self.strategy.as_ref().is_some_and(|strategy| strategy.on_failure == OnFailure::RollBack)
    }

    /// Whether a Pod waits for the disruption budgets that are for it.
    pub fn respects_disruption_budgets(&self) -> bool {
        self.respect_disruption_budgets.unwrap_or(true)
    }

    /// Seconds without progress after which it is stalled.
    pub fn progress_deadline(&self) -> i64 {
        self.progress_deadline_seconds.unwrap_or(PROGRESS_DEADLINE_SECONDS)
    }
}

/// What never changes of a spec, and what an attribute cannot say.
pub(crate) fn fix(spec: &mut JSONSchemaProps) {
    immutable(spec, "spec", &["targetRef", "selector"], " is immutable: make another InPlaceRollout");
    let one = "has(self.targetRef) != has(self.selector)";
    rule(spec, "", one.to_owned(), "spec must have one of targetRef and selector".to_owned());
    let selected = "has(self.selector) || (!has(self.images) && !has(self.resources))";
    let why = "spec.images and spec.resources are for spec.selector: a workload's template says what its Pods are to have";
    rule(spec, "images", selected.to_owned(), why.to_owned());
    let workload = "has(self.targetRef) || ((!has(self.templateChanges) || self.templateChanges == 'Native') && \
        !has(self.restartAnnotations) && (!has(self.strategy) || !has(self.strategy.onFailure) || self.strategy.onFailure == 'Pause'))";
    let why = "with spec.selector, spec.templateChanges must be Native, spec.restartAnnotations absent and spec.strategy.onFailure \
        Pause: there is no template, and what Pods had before is not kept";
    rule(spec, "selector", workload.to_owned(), why.to_owned());
    let most = "!has(self.strategy) || !has(self.strategy.maxUnavailable) || type(self.strategy.maxUnavailable) != int \
        || self.strategy.maxUnavailable >= 1";
    let why = "must be at least 1: a Pod that is serviced in place is unavailable meanwhile";
    rule(spec, "strategy.maxUnavailable", most.to_owned(), format!("spec.strategy.maxUnavailable {why}"));
    let others =
        "!has(self.restartAnnotations) || !self.restartAnnotations.exists(a, a.startsWith('pitstop.dev/'))";
    let why = "spec.restartAnnotations must name annotations of others: none that begins with pitstop.dev/";
    rule(spec, "restartAnnotations", others.to_owned(), why.to_owned());
}

/// A workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// Its API version: `apps/v1`.
    pub api_version: ApiVersion,
    /// Its kind: `Deployment`, `StatefulSet` or `DaemonSet`.
    pub kind: TargetKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Pods that have some labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSelector {
    /// The labels, all of which a Pod must have. Of a Pod with more than 64 labels the first 64 by name count.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16, "additionalProperties" = json!({"type": "string", "maxLength": 63, "pattern": LABEL_VALUE})))]
    pub match_labels: BTreeMap<String, String>,
}

/// The CPU and memory of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerAmounts {
    /// Name of the container in the Pods.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its resources, as in a Pod's own spec.
    pub resources: Amounts,
}

/// CPU (cores, `500m` is half of one) and memory (bytes, `256Mi`), in the shape of `spec.containers[].resources` of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.requests) && size(self.requests) > 0) || (has(self.limits) && size(self.limits) > 0)").message("name at least one of requests and limits"))]
pub struct Amounts {
    /// Requests of `cpu` and `memory`: quantities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    #[x_kube(validation = Rule::new("self.all(r, r == 'cpu' || r == 'memory')").message("only cpu and memory can be resized in place"))]
    pub requests: BTreeMap<String, Amount>,
    /// Limits of `cpu` and `memory`: quantities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    #[x_kube(validation = Rule::new("self.all(r, r == 'cpu' || r == 'memory')").message("only cpu and memory can be resized in place"))]
    pub limits: BTreeMap<String, Amount>,
}

impl Amounts {
    /// The amounts, in millicores and bytes. Fails with the field, what is wrong with it, and what would be right.
    pub fn read(&self) -> Result<Resources, (String, String)> {
        let one = |list: &str, amounts: &BTreeMap<String, Amount>, resource: Resource| {
            let amount = amounts.get(resource.as_str()).map(|amount| amount.quantity(resource));
            amount.transpose().map_err(|why| (format!("{list}.{resource}"), why))
        };
        for (list, amounts) in [("requests", &self.requests), ("limits", &self.limits)] {
            if let Some(other) = amounts.keys().find(|name| Resource::ALL.iter().all(|r| r.as_str() != *name))
            {
                return Err((
                    format!("{list}.{other}"),
                    "only cpu and memory can be resized in place".to_owned(),
                ));
            }
        }
        Ok(Resources {
            cpu_request: one("requests", &self.requests, Resource::Cpu)?,
            cpu_limit: one("limits", &self.limits, Resource::Cpu)?,
            memory_request: one("requests", &self.requests, Resource::Memory)?,
            memory_limit: one("limits", &self.limits, Resource::Memory)?,
        })
    }
}

/// API versions of workloads: `apps/v1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// That of Kubernetes' own.
    #[default]
    #[serde(rename = "apps/v1")]
    AppsV1,
}

/// Kinds of workloads: `Deployment`, `StatefulSet` or `DaemonSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TargetKind {
    /// A `Deployment`.
    #[default]
    Deployment,
    /// A `StatefulSet`.
    StatefulSet,
    /// A `DaemonSet`.
    DaemonSet,
}

impl TargetKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
        }
    }
}

/// What happens when the template of a parked workload changes: `Native` (default: its own controller makes new Pods) or
/// `InPlace` (it is carried out in the running Pods).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TemplateChanges {
    /// Its own controller makes new Pods.
    #[default]
    Native,
    /// It is carried out in the running Pods.
    InPlace,
}

/// What a restart means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartOf {
    /// Names of the containers to restart. A Pod without such a container is left alone. Absent or empty: all main containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub containers: Vec<String>,
}

/// In which steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// How many Pods of the workload may be unavailable at a time, for any reason: a number, or a share such as `25%`, which is
    /// rounded down to at least 1. Absent: the value of the workload's own strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Share>,
    /// The Pods that are restarted first. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Seconds for which the new containers of a Pod must have run before the Pod counts; at least the workload's
    /// `minReadySeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400), extend("default" = 10))]
    pub soak_seconds: Option<i64>,
    /// Keep a Pod not ready for that many seconds before it is restarted, and until its new containers are ready, so that no
    /// traffic meets a container that stops. It needs the readiness gate `pitstop.dev/ready` or `KruisePodReady`; a Pod
    /// without one stays in service for these seconds. Absent: it is restarted at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub unready_grace_period_seconds: Option<i64>,
    /// How many Pods may fail before no further one is begun with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub failure_threshold: Option<i32>,
    /// What happens then. `Pause` (default): nothing more. `RollBack`: the Pods that were updated get their old images and resources
    /// back. The template stays as it is, and the workload stays parked until its template changes. If Pods that were not touched
    /// have become unavailable, too, it is `Pause`. A restart is never taken back.
    #[serde(default)]
    #[schemars(extend("default" = "Pause"))]
    pub on_failure: OnFailure,
}

/// What happens when Pods have failed: `Pause` (default: nothing more) or `RollBack` (those that were updated go back, the last first).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// No further Pod is begun with.
    #[default]
    Pause,
    /// And Pods that were updated get what they had before.
    RollBack,
}

/// The Pods that are restarted first. The others wait until these are restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// How many Pods.
    #[schemars(range(min = 1, max = 1000))]
    pub pods: i32,
    /// Seconds for which their new containers must have run. Absent: as for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub soak_seconds: Option<i64>,
}
