//! Workloads and rollouts in the world: objects of a workload's controllers, and `InPlaceRollout`s of users.
//!
//! Without `native`, native controllers only recreate Pods that are gone: a `StatefulSet` under the same name, others
//! under another one. The garbage collector only deletes requests of deleted rollouts. The disruption controller only
//! counts the Pods of a budget.

use http::Request;
use pitstop_api::rollout::Share;
use pitstop_controller_core::wire::HttpRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::imaging::UPDATES;
use super::objects::{NAMESPACE, REQUESTS, delete};
use super::plan::{PodPlan, Schedule, Word};
use super::{Happening, World};
use crate::oracle::Writer;

/// Path of rollouts.
pub const ROLLOUTS: &str = "/apis/pitstop.dev/v1alpha1/namespaces/shop/inplacerollouts";
/// Milliseconds until the garbage collector finds that an owner is gone.
const COLLECTS: u64 = 700;
/// Milliseconds until the disruption controller counts changed Pods.
const COUNTS: u64 = 300;
/// Separates the planned name of a Pod from the number of its replacement.
const ANEW: &str = "-r";

/// A workload. Its Pods are those of the schedule whose names begin with its own and a dash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadPlan {
    /// `Deployment`, `StatefulSet` or `DaemonSet`.
    pub kind: Word,
    /// Its name.
    pub name: String,
    /// `maxUnavailable` of its own strategy: a number or a percentage.
    pub max_unavailable: Option<Word>,
    /// `spec.updateStrategy.rollingUpdate.partition`.
    pub partition: i64,
    /// `spec.minReadySeconds`.
    pub min_ready: i64,
    /// `spec.minAvailable` of a `PodDisruptionBudget` for its Pods.
    pub budget: Option<i64>,
    /// Its native controllers are modelled, and its Pods are made from its template.
    pub native: bool,
    /// Number of planned Pods that exist only after scaling up.
    pub spare: usize,
    /// Admission carries out no release for the controller, as before Kubernetes 1.36.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_unpark: bool,
}

/// An `InPlaceRollout` for the schedule's workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RolloutPlan {
    /// Its name.
    pub name: String,
    /// `spec.templateChanges` is `InPlace`.
    pub in_place: bool,
    /// `spec.restartedAt`.
    pub restarted_at: Option<Word>,
    /// `spec.restart.containers`.
    pub containers: Vec<Word>,
    /// `spec.paused`.
    pub paused: bool,
    /// `spec.progressDeadlineSeconds`.
    pub progress_deadline: Option<i64>,
    /// `spec.strategy.maxUnavailable`: a number or a percentage.
    pub max_unavailable: Option<Word>,
    /// `spec.strategy.canary.pods`.
    pub canary: Option<i64>,
    /// `spec.strategy.onFailure` is `RollBack`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolls_back: bool,
    /// `spec.strategy.soakSeconds`.
    pub soak: Option<i64>,
    /// `spec.strategy.unreadyGracePeriodSeconds`.
    pub unready_grace: Option<i64>,
    /// `spec.strategy.failureThreshold`.
    pub failure_threshold: Option<i64>,
    /// `spec.respectDisruptionBudgets` is false.
    pub ignores_budgets: bool,
    /// It selects the workload's Pods by their label, whoever owns them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selects: bool,
    /// `spec.images`: names of containers and tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<(Word, Word)>,
}

/// `spec.images` of a rollout with these tags.
pub(super) fn wish(tags: &[(Word, Word)]) -> Value {
    let image =
        |(name, tag): &(Word, Word)| json!({"name": name, "image": format!("registry.example/{name}:{tag}")});
    tags.iter().map(image).collect()
}

/// A number, or a text.
fn share(text: &Word) -> Value {
    text.parse::<i64>().map_or_else(|_| json!(text), Value::from)
}

impl WorkloadPlan {
    /// True if that Pod belongs to the workload.
    pub fn has(&self, pod: &str) -> bool {
        pod.strip_prefix(&*self.name).is_some_and(|rest| rest.starts_with('-'))
    }

    /// `maxUnavailable` of its own strategy, if set.
    pub fn most(&self) -> Option<Share> {
        self.max_unavailable.as_ref().and_then(|most| serde_json::from_value(share(most)).ok())
    }

    /// True if its controller recreates a Pod under the same name.
    pub(super) fn keeps_names(&self) -> bool {
        &*self.kind == "StatefulSet"
    }

    /// Kind and name of the owner of its Pods.
    fn owner(&self) -> (String, String) {
        match &*self.kind {
            "Deployment" => ("ReplicaSet".to_owned(), format!("{}-5d8f9", self.name)),
            kind => (kind.to_owned(), self.name.clone()),
        }
    }

    pub(super) fn selector(&self) -> Value {
        json!({"matchLabels": {"app": self.name}})
    }

    /// The object, with `pods` Pods.
    pub(super) fn object(&self, pods: usize) -> Value {
        let mut rolling = json!({});
        if let Some(most) = &self.max_unavailable {
            rolling["maxUnavailable"] = share(most);
        }
        let template = json!({"metadata": {"labels": {"app": self.name}}});
        let mut spec =
            json!({"selector": self.selector(), "minReadySeconds": self.min_ready, "template": template});
        let mut status = json!({});
        if &*self.kind == "StatefulSet" {
            rolling["partition"] = self.partition.into();
        }
        let strategy = if &*self.kind == "Deployment" { "strategy" } else { "updateStrategy" };
        spec[strategy] = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        if &*self.kind == "DaemonSet" {
            status["desiredNumberScheduled"] = pods.into();
        } else {
            spec["replicas"] = pods.into();
        }
        json!({"metadata": {"name": self.name, "namespace": NAMESPACE}, "spec": spec, "status": status})
    }

    /// The disruption budget for its Pods, before the first count.
    fn disruption_budget(&self, least: i64) -> Value {
        json!({
            "metadata": {"name": self.name, "namespace": NAMESPACE, "generation": 1},
            "spec": {"minAvailable": least, "selector": self.selector()},
            "status": {"observedGeneration": 1, "desiredHealthy": least, "currentHealthy": 0, "expectedPods": 0},
        })
    }

    /// The `ReplicaSet`s of a `Deployment`: the previous one without Pods, and the present one.
    fn sets(&self, uid: &str, pods: usize) -> [Value; 2] {
        let owner = json!({"apiVersion": "apps/v1", "kind": self.kind, "name": self.name, "uid": uid, "controller": true});
        [(format!("{}-57bcd", self.name), 0), (self.owner().1, pods)].map(|(name, pods)| {
            json!({
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": self.name},
                    "ownerReferences": [owner.clone()]},
                "spec": {"replicas": pods, "selector": self.selector()}, "status": {"replicas": pods},
            })
        })
    }
}

impl RolloutPlan {
    fn create(&self, workload: &WorkloadPlan) -> HttpRequest {
        let target = json!({"apiVersion": "apps/v1", "kind": workload.kind, "name": workload.name});
        let target = json!({"targetRef": target});
        let mut spec = if self.selects { json!({"selector": workload.selector()}) } else { target };
        let mut strategy = json!({});
        let set = |of: &mut Value, field: &str, value: Option<Value>| {
            if let Some(value) = value {
                of[field] = value;
            }
        };
        set(&mut strategy, "maxUnavailable", self.max_unavailable.as_ref().map(share));
        set(&mut strategy, "canary", self.canary.map(|pods| json!({"pods": pods})));
        set(&mut strategy, "soakSeconds", self.soak.map(Into::into));
        set(&mut strategy, "onFailure", self.rolls_back.then(|| "RollBack".into()));
        set(&mut strategy, "unreadyGracePeriodSeconds", self.unready_grace.map(Into::into));
        set(&mut strategy, "failureThreshold", self.failure_threshold.map(Into::into));
        set(&mut spec, "restartedAt", self.restarted_at.as_deref().map(Into::into));
        set(&mut spec, "templateChanges", self.in_place.then(|| json!("InPlace")));
        set(&mut spec, "progressDeadlineSeconds", self.progress_deadline.map(Into::into));
        set(&mut spec, "images", (!self.images.is_empty()).then(|| wish(&self.images)));
        set(&mut spec, "paused", self.paused.then_some(Value::Bool(true)));
        set(&mut spec, "respectDisruptionBudgets", self.ignores_budgets.then_some(Value::Bool(false)));
        if !self.containers.is_empty() {
            spec["restart"] = json!({"containers": self.containers});
        }
        spec["strategy"] = strategy;
        let body = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout",
            "metadata": {"name": self.name, "namespace": NAMESPACE}, "spec": spec});
        let request = Request::post(ROLLOUTS).header(http::header::CONTENT_TYPE, "application/json");
        request.body(serde_json::to_vec(&body).unwrap()).unwrap()
    }
}

impl Schedule {
    /// Index in the plan of the Pod of that name, or of the Pod that it replaces.
    pub fn pod_at(&self, name: &str) -> Option<usize> {
        let first = name.rsplit_once(ANEW).filter(|(_, n)| n.parse::<u32>().is_ok()).map(|(first, _)| first);
        self.pods.iter().position(|pod| pod.name == name || Some(&*pod.name) == first)
    }

    /// The plan of the Pod of that name.
    pub fn pod(&self, name: &str) -> Option<&PodPlan> {
        self.pod_at(name).map(|at| &self.pods[at])
    }

    /// Number of planned Pods of the workload, with the spare ones.
    pub fn members(&self) -> usize {
        let of = |workload: &WorkloadPlan| self.pods.iter().filter(|pod| workload.has(&pod.name)).count();
        self.workload.as_ref().map_or(0, of)
    }
}

impl World {
    /// Creates the workload and the objects of its controllers.
    pub(super) fn make_workload(&mut self) {
        let (wall, pods) = (self.server_wall(), self.schedule.members());
        let Some(workload) = self.schedule.workload.clone() else { return };
        if workload.native {
            self.make_native(&workload);
        } else {
            let stored = self.server.insert(wall, &workload.kind, workload.object(pods));
            if &*workload.kind == "Deployment" {
                for set in workload.sets(stored["metadata"]["uid"].as_str().unwrap_or_default(), pods) {
                    self.server.insert(wall, "ReplicaSet", set);
                }
            }
        }
        if let Some(least) = workload.budget {
            self.server.insert(wall, "PodDisruptionBudget", workload.disruption_budget(least));
        }
    }

    /// Gives a Pod the workload's label and, if it belongs to the workload, its owner.
    pub(super) fn adopt(&self, pod: &mut Value) {
        let Some(workload) = &self.schedule.workload else { return };
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        pod["metadata"]["labels"] = json!({"app": workload.name});
        if !workload.has(&name) {
            return;
        }
        let (kind, owner) = workload.owner();
        let Some(object) = self.server.object(&kind, NAMESPACE, &owner) else { return };
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind, "name": owner,
            "uid": object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]);
    }

    /// Name for the replacement of a planned Pod; None while the Pod exists.
    pub(super) fn name_anew(&mut self, at: usize) -> Option<String> {
        let name = &self.schedule.pods[at].name;
        let of = |pod: &Value| {
            self.schedule.pod_at(pod["metadata"]["name"].as_str().unwrap_or_default()) == Some(at)
        };
        if self.server.objects("Pod").any(|pod| of(pod)) {
            return None;
        }
        if self.schedule.workload.as_ref().is_none_or(|w| w.keeps_names() || !w.has(name)) {
            return Some(name.clone());
        }
        self.anew += 1;
        Some(format!("{name}{ANEW}{}", self.anew))
    }

    pub(super) fn create_rollout(&mut self, plan: &RolloutPlan) {
        if let Some(workload) = self.schedule.workload.clone() {
            self.ask_as_user(&plan.create(&workload));
        }
    }

    pub(super) fn patch_rollout(&mut self, name: &str, spec: &Value) {
        let request = Request::patch(format!("{ROLLOUTS}/{name}"))
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        let body = serde_json::to_vec(&json!({"spec": spec})).unwrap();
        self.ask_as_user(&request.body(body).unwrap());
    }

    /// Deletes the failed requests of a rollout, so that their Pods are tried again.
    pub(super) fn retry_rollout(&mut self, name: &str) {
        let failed = |request: &Value| {
            let conditions = request["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|c| c["type"] == "Failed" && c["status"] == "True")
        };
        self.delete_children(Writer::User, |owner, request| owner["name"] == *name && failed(request));
    }

    /// Plans a turn of the disruption controller after Pods may have changed.
    pub(super) fn plan_count(&mut self) {
        if self.schedule.workload.as_ref().is_some_and(|workload| workload.budget.is_some()) {
            self.queue.push(self.now + COUNTS, Happening::Count);
        }
    }

    /// Counts the Pods of the workload's disruption budget, and those of them that are ready and not being deleted.
    pub(super) fn count_pods(&mut self) {
        let Some(workload) = self.schedule.workload.clone() else { return };
        let healthy = |pod: &Value| {
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
            ready && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let mut counts = [0, 0];
        for pod in self.server.objects("Pod").filter(|pod| pod["metadata"]["labels"]["app"] == *workload.name)
        {
            counts[0] += 1;
            counts[1] += i32::from(healthy(pod));
        }
        self.change(Writer::Other, "PodDisruptionBudget", NAMESPACE, &workload.name, |budget| {
            budget["status"]["expectedPods"] = counts[0].into();
            budget["status"]["currentHealthy"] = counts[1].into();
        });
    }

    /// Plans a turn of the garbage collector after an owner may be gone.
    pub(super) fn plan_collection(&mut self) {
        if self.schedule.workload.is_some() {
            self.queue.push(self.now + COLLECTS, Happening::Orphans);
        }
    }

    /// Deletes requests whose rollouts are gone.
    pub(super) fn collect_orphans(&mut self) {
        let there: Vec<Value> =
            self.server.objects("InPlaceRollout").map(|r| r["metadata"]["uid"].clone()).collect();
        self.delete_children(Writer::Other, |owner, _| !there.contains(&owner["uid"]));
    }

    fn delete_children(&mut self, writer: Writer, which: impl Fn(&Value, &Value) -> bool) {
        let of = |request: &Value| {
            let owners = request["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.into_iter().any(|owner| owner["kind"] == "InPlaceRollout" && which(owner, request))
        };
        for (kind, path) in [("ContainerRecreateRequest", REQUESTS), ("PodImageUpdate", UPDATES)] {
            let found = self.server.objects(kind).filter(|request| of(request));
            let names: Vec<String> =
                found.map(|r| r["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect();
            for name in names {
                self.handle(writer, &delete(&format!("{path}/{name}"), None, None));
            }
        }
    }
}
