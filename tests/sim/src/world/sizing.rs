//! Sizes of Pods in the world: `PodResize`s of users, changes by other clients, and the room that admission and nodes
//! have.

use std::collections::BTreeMap;

use http::Request;
use pitstop_api::quantity::Resource;
use pitstop_controller_core::wire::HttpRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::World;
use super::objects::NAMESPACE;
use super::plan::Word;
use crate::node::keys;
use crate::oracle::Writer;
use crate::server::Server;
use crate::server::admission::{Admission, Operation, Refusal, Review};

/// Path of resizes.
pub const RESIZES: &str = "/apis/pitstop.dev/v1alpha1/namespaces/shop/podresizes";

/// Amounts by resource, as users write them.
pub type Amounts = BTreeMap<Word, Word>;

/// The size of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Size {
    /// `resources.requests`.
    pub requests: Amounts,
    /// `resources.limits`.
    pub limits: Amounts,
    /// Resources whose change restarts the container.
    pub restarts: Vec<Word>,
}

impl Size {
    /// Puts it into a container's spec.
    pub(super) fn put(&self, container: &mut Value) {
        if *self == Self::default() {
            return;
        }
        container["resources"] = lists(&self.requests, &self.limits);
        let policy = |resource| json!({"resourceName": resource, "restartPolicy": "RestartContainer"});
        container["resizePolicy"] = self.restarts.iter().map(policy).collect();
    }
}

/// Requests and limits; an empty list is left out.
fn lists(requests: &Amounts, limits: &Amounts) -> Value {
    let named = [("requests", requests), ("limits", limits)];
    let present = named.into_iter().filter(|(_, amounts)| !amounts.is_empty());
    present.map(|(list, amounts)| (list.to_owned(), json!(amounts))).collect::<Map<_, _>>().into()
}

/// Room for resizes. None: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Room {
    /// Millicores that each node has for Pods.
    pub millicores: Option<i64>,
    /// Millicores that all Pods of the namespace may request together.
    pub quota: Option<i64>,
    /// Kubelets, not admission, refuse a Pod that is larger than its node (before Kubernetes 1.36).
    pub kubelets_judge: bool,
    /// Nodes whose kubelet does not resize, so that their daemons do.
    pub fixed: Vec<usize>,
    /// Nodes whose kubelet sets no CPU quota (`cpuCFSQuota: false`).
    #[serde(default)]
    pub no_quota: Vec<usize>,
}

/// A `PodResize`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ResizePlan {
    /// Its name.
    pub name: String,
    /// `spec.podRef.name`.
    pub pod: String,
    /// `spec.podRef.uid` is set to that of the existing Pod.
    pub pinned: bool,
    /// `spec.containers`: name, requests and limits.
    pub containers: Vec<(Word, Amounts, Amounts)>,
    /// `spec.restart`.
    pub restart: Option<Word>,
    /// `spec.onDeferred.waitSeconds`.
    pub deferred: Option<i64>,
    /// `spec.rollbackOnFailure.observeSeconds`.
    pub observe: Option<i64>,
    /// `spec.activeDeadlineSeconds`.
    pub deadline: Option<i64>,
    /// `spec.ttlSecondsAfterFinished`.
    pub ttl: Option<i32>,
    /// `spec.dryRun`.
    pub dry_run: bool,
    /// Another client's finalizer keeps it.
    #[serde(default)]
    pub kept: bool,
    /// `spec.mechanism`.
    #[serde(default)]
    pub mechanism: Option<Word>,
}

impl ResizePlan {
    /// The request that creates it; `uid` is that of the existing Pod.
    fn create(&self, uid: Option<&str>) -> HttpRequest {
        let containers: Vec<Value> = self
            .containers
            .iter()
            .map(|(name, requests, limits)| json!({"name": name, "resources": lists(requests, limits)}))
            .collect();
        let mut spec = json!({"podRef": {"name": self.pod}, "containers": containers});
        let mut set = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                spec[field] = value;
            }
        };
        set("mechanism", self.mechanism.as_deref().map(Into::into));
        set("restart", self.restart.as_deref().map(Into::into));
        set("onDeferred", self.deferred.map(|s| json!({"waitSeconds": s})));
        set("rollbackOnFailure", self.observe.map(|s| json!({"observeSeconds": s})));
        set("activeDeadlineSeconds", self.deadline.map(Into::into));
        set("ttlSecondsAfterFinished", self.ttl.map(Into::into));
        set("dryRun", self.dry_run.then_some(Value::Bool(true)));
        if let Some(uid) = uid.filter(|_| self.pinned) {
            spec["podRef"]["uid"] = uid.into();
        }
        let mut body = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize",
            "metadata": {"name": self.name, "namespace": NAMESPACE}, "spec": spec});
        if self.kept {
            body["metadata"]["finalizers"] = json!(["example.com/keep"]);
        }
        let request = Request::post(RESIZES).header(http::header::CONTENT_TYPE, "application/json");
        request.body(serde_json::to_vec(&body).unwrap()).unwrap()
    }
}

fn merge(path: &str, content_type: &str, patch: &Value) -> HttpRequest {
    let request = Request::patch(path).header(http::header::CONTENT_TYPE, content_type);
    request.body(serde_json::to_vec(patch).unwrap()).unwrap()
}

impl World {
    pub(super) fn create_resize(&mut self, plan: &ResizePlan) {
        let pod = self.server.object("Pod", NAMESPACE, &plan.pod);
        let uid = pod.and_then(|p| p["metadata"]["uid"].as_str()).map(str::to_owned);
        self.ask(Writer::User, &plan.create(uid.as_deref()));
    }

    pub(super) fn cancel_resize(&mut self, name: &str) {
        let patch = json!({"spec": {"cancel": true}});
        let request = merge(&format!("{RESIZES}/{name}"), "application/merge-patch+json", &patch);
        self.ask(Writer::User, &request);
    }

    pub(super) fn free_resize(&mut self, name: &str) {
        let patch = json!({"metadata": {"finalizers": null}});
        let request = merge(&format!("{RESIZES}/{name}"), "application/merge-patch+json", &patch);
        self.ask(Writer::User, &request);
    }

    /// `kubectl patch --subresource resize` by another client.
    pub(super) fn set_size(&mut self, pod: &str, container: &str, requests: &Amounts, limits: &Amounts) {
        let find = |list: &str| {
            let pod = self.server.object("Pod", NAMESPACE, pod)?;
            pod["spec"][list].as_array()?.iter().find(|c| c["name"] == container).map(|_| list.to_owned())
        };
        let Some(list) = find("containers").or_else(|| find("initContainers")) else { return };
        let resources = lists(requests, limits);
        let patch = json!({"spec": {list: [{"name": container, "resources": resources}]}});
        let path = format!("{}/resize", super::objects::pod_path(pod));
        self.ask(Writer::Other, &merge(&path, "application/strategic-merge-patch+json", &patch));
    }

    fn ask(&mut self, writer: Writer, request: &HttpRequest) {
        let response = self.handle(writer, request);
        if !response.status().is_success() {
            self.story.note(self.now, "user", || format!("refused: {}", response.body()["message"]));
        }
    }

    /// A container uses that many mebibytes for a moment; beyond its limit it is killed.
    pub(super) fn bloat(&mut self, pod: &str, container: &str, mebibytes: i64) {
        let now = self.now;
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            let found = node.runtime.containers().values().find(|c| {
                let label = |key| c.info.labels.get(key).map(String::as_str);
                c.alive(now)
                    && label(keys::POD_NAME) == Some(pod)
                    && label(keys::CONTAINER_NAME) == Some(container)
            });
            let Some(info) = found.map(|c| c.info.clone()) else { continue };
            let cgroups = node.kubelet.cgroups();
            let fixed = self.schedule.room.fixed.contains(&at);
            let limit = if fixed {
                cgroups.of_container(now, &info).memory_limit
            } else {
                cgroups.last_size(&info).memory_limit
            };
            if limit.is_some_and(|limit| limit < mebibytes << 20) {
                node.runtime.run_out_of_memory(now, &info.id);
                self.after_node(at);
            }
        }
    }
}

/// Admission of the API server: refuses sizes above a `ResourceQuota` and, from Kubernetes 1.36 on, above the node's
/// capacity (`PodResizeValidator`).
#[derive(Debug)]
pub struct Limits(pub Room);

impl Admission for Limits {
    fn validate(&self, server: &Server, review: &Review<'_>, pod: &Value) -> Result<(), Refusal> {
        if review.kind != "Pod" || review.subresource != "resize" || review.operation != Operation::Update {
            return Ok(());
        }
        let (before, after) = (review.old.map_or(0, requested), requested(pod));
        let refuse = |why: String| {
            let message = format!("pods {:?} is forbidden: {why}", review.name);
            Err(Refusal { code: 403, reason: "Forbidden", message })
        };
        let all: i64 = server.objects("Pod").map(|pod| requested(pod)).sum();
        let (used, more) = (all, after - before);
        if let Some(quota) = self.0.quota.filter(|quota| more > 0 && used + more > *quota) {
            return refuse(format!(
                "exceeded quota: small, requested: requests.cpu={more}m, used: requests.cpu={used}m, limited: \
                 requests.cpu={quota}m"
            ));
        }
        let most = self.0.millicores.filter(|most| !self.0.kubelets_judge && after > *most);
        match most {
            Some(most) => refuse(format!(
                "node didn't have enough allocatable resources: cpu, requested: {after}, allocatable: {most}"
            )),
            None => Ok(()),
        }
    }
}

/// CPU request of a Pod, in millicores.
fn requested(pod: &Value) -> i64 {
    let containers =
        ["containers", "initContainers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
    let amounts = containers.flatten().filter_map(|c| c["resources"]["requests"]["cpu"].as_str());
    amounts.filter_map(|text| Resource::Cpu.parse(text)).sum()
}
