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

/// Value of `kind`.
pub const KIND: &str = "InPlaceRollout";
/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "inplacerollouts";

/// Most containers that may be named.
pub const MAX_CONTAINERS: usize = 64;
/// Pattern of label values.
pub const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Most labels that may be named.
pub const MAX_LABELS: usize = 16;
/// Most annotations that may be named.
pub const MAX_ANNOTATIONS: usize = 16;
/// Most characters of an annotation's name: 253 of its domain, a slash, 63 of its own.
pub const MAX_ANNOTATION: usize = 317;
/// Most seconds of a soak: a day.
pub const MAX_SOAK_SECONDS: i64 = 86_400;
/// Default of `strategy.soakSeconds`.
pub const SOAK_SECONDS: i64 = 10;
/// Label of a parked workload, whose own controller replaces no Pods when the template changes. The value says what to
/// release it to: `Unpaused` (`Deployment`), the partition (`StatefulSet`) or `RollingUpdate` (`DaemonSet`).
pub const PARKED: &str = "pitstop.dev/parked";
/// Prefix of that value by which the controller asks admission to release the workload. Admission stores no such label.
pub const RELEASE: &str = "release-";
/// Annotation of a Pod that was updated in place, of a `Deployment` or selected by labels: its revision.
pub const POD_REVISION: &str = "pitstop.dev/revision";
/// Label of an armed `InPlaceRollout`: admission may park its workload. Only the controller sets it.
pub const ARMED: &str = "pitstop.dev/armed";
/// Default of `progressDeadlineSeconds`.
pub const PROGRESS_DEADLINE_SECONDS: i64 = 600;

/// Which Pods are restarted or updated, to what, and how.
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
    doc = "Restarts or updates Pods of one workload, or selected by labels, in place, in order and within a budget. An update gives them the images and resources of a changed template, or of the rollout itself. No Pod is replaced.",
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.targetRef.kind","description":"The workload's kind"}"#,
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.targetRef.name","description":"The workload"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"Phase of the rollout"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Complete\")].reason","description":"Why the rollout waits, or what it has done"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".status.pods","description":"Pods of the restart or update"}"#,
    printcolumn = r#"{"name":"Current","type":"integer","jsonPath":".status.current","description":"Pods that are done"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Complete\")].message","description":"The reason in a sentence"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceRolloutSpec {
    /// The workload, in the rollout's namespace. Only the oldest rollout of a workload acts. Exactly one of `targetRef`
    /// and `selector` is required. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Pods of any owner in the rollout's namespace: meant for those that no Deployment, StatefulSet or DaemonSet owns.
    /// Pods that have ended are not selected. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<PodSelector>,
    /// Images for containers of selected Pods, existing and later ones. Each Pod must have each container. An updated
    /// Pod is left alone until `images` or `resources` change. Only with `selector`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub images: Vec<ContainerImage>,
    /// CPU and memory for containers of selected Pods, like `images`. Amounts left out stay. Only with `selector`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<ContainerAmounts>,
    /// What happens when the template of a parked workload (label `pitstop.dev/parked`) changes. `Native` (default):
    /// its own controller makes new Pods. `InPlace`: running Pods get the new images and resources, and restart if an
    /// annotation asks for it; then the workload is released.
    #[serde(default)]
    #[schemars(extend("default" = "Native"))]
    pub template_changes: TemplateChanges,
    /// A new value restarts all existing Pods, but no later ones. Once the restart is finished, `status.restartedAt`
    /// has this value. The template does not change. Any text works; write a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub restarted_at: Option<String>,
    /// Which containers restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartOf>,
    /// With `templateChanges: InPlace`: further annotations of the Pod template whose change restarts Pods, beside
    /// `kubectl.kubernetes.io/restartedAt`, `reloader.stakater.com/last-reloaded-from` and any that begins with
    /// `checksum/`. Running Pods keep their annotations. None may begin with `pitstop.dev/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ANNOTATIONS), inner(length(min = 1, max = MAX_ANNOTATION), regex(pattern = crate::condition::TYPE)), extend("x-kubernetes-list-type" = "set"))]
    pub restart_annotations: Vec<String>,
    /// How Pods are restarted and updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Begin with a ready Pod only while each `PodDisruptionBudget` that selects the labels of the workload's Pod
    /// template allows another unavailable Pod. Pods that are not ready do not wait. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub respect_disruption_budgets: Option<bool>,
    /// While true, no further Pod restarts or is updated. Pods already begun are finished. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub paused: bool,
    /// After this many seconds without a finished Pod, beside drain and soak, the rollout is reported as stalled. It
    /// continues when it can. Default: 600.
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
    /// `apps/v1`.
    pub api_version: ApiVersion,
    /// `Deployment`, `StatefulSet` or `DaemonSet`.
    pub kind: TargetKind,
    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Pods with certain labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSelector {
    /// The labels, all of which a Pod must have. Of a Pod's labels, the first 64 by name count.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16, "additionalProperties" = json!({"type": "string", "maxLength": 63, "pattern": LABEL_VALUE})))]
    pub match_labels: BTreeMap<String, String>,
}

/// CPU and memory of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerAmounts {
    /// Name of the container in the Pods.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Resources, as in a Pod's spec.
    pub resources: Amounts,
}

/// Resources, as in a Pod's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.requests) && size(self.requests) > 0) || (has(self.limits) && size(self.limits) > 0)").message("name at least one of requests and limits"))]
pub struct Amounts {
    /// Requests of `cpu` (cores) and `memory` (bytes), such as `500m` and `256Mi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    #[x_kube(validation = Rule::new("self.all(r, r == 'cpu' || r == 'memory')").message("only cpu and memory can be resized in place"))]
    pub requests: BTreeMap<String, Amount>,
    /// Limits of `cpu` (cores) and `memory` (bytes), such as `500m` and `256Mi`.
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

/// API versions of workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// `apps/v1`.
    #[default]
    #[serde(rename = "apps/v1")]
    AppsV1,
}

/// Kinds of workloads.
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

/// What a changed template of a parked workload does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TemplateChanges {
    /// The workload's own controller makes new Pods.
    #[default]
    Native,
    /// Running Pods change in place.
    InPlace,
}

/// Which containers restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartOf {
    /// Names of containers to restart. A Pod with none of them is left alone. Absent or empty: all main containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub containers: Vec<String>,
}

/// How Pods are restarted and updated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// How many Pods may be unavailable, for any reason: a number, or a share such as `25%`, rounded down to at least
    /// one. Default: as the workload's own strategy says; with `selector`, one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Share>,
    /// The Pods that go first; the others wait until these are done. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Seconds that new containers must run before their Pod counts, or the workload's `minReadySeconds` if longer.
    /// Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400), extend("default" = 10))]
    pub soak_seconds: Option<i64>,
    /// Seconds for which a Pod must be seen not ready before its containers stop; it stays so until its new containers
    /// are ready. Without a readiness gate `pitstop.dev/ready` or `KruisePodReady`, it stays in service while they
    /// pass. Default: no drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub unready_grace_period_seconds: Option<i64>,
    /// After this many failed Pods, no further Pod restarts or is updated. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub failure_threshold: Option<i32>,
    /// What happens when too many Pods have failed. `Pause` (default): nothing more. `RollBack`: updated Pods get their
    /// old images and resources back; if untouched Pods became unavailable too, only once these are available again. The
    /// workload stays parked until its template changes. Restarts are never rolled back.
    #[serde(default)]
    #[schemars(extend("default" = "Pause"))]
    pub on_failure: OnFailure,
}

/// What happens when Pods have failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Nothing more.
    #[default]
    Pause,
    /// Updated Pods go back, the last first.
    RollBack,
}

/// The Pods that go first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// How many Pods.
    #[schemars(range(min = 1, max = 1000))]
    pub pods: i32,
    /// Seconds that their new containers must run, if longer than for other Pods. Default: as for other Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub soak_seconds: Option<i64>,
}
