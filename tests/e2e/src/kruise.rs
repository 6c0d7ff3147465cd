//! `ContainerRecreateRequest`s as `OpenKruise`'s own clients know them.
//!
//! The types have only the fields of `OpenKruise`'s Go types and drop all others that the API server sends. They always
//! send `status.phase`, even empty, as Go does. Metadata keys are literals, because clients match on them.
#![allow(missing_docs, reason = "fields are OpenKruise's")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ContainerPort, ExecAction, HTTPGetAction, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use kube::api::{ApiResource, GroupVersionKind, Object, PostParams};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ns::Ns;
use crate::wait::until;

/// Label: the Pod's UID.
pub const POD_UID: &str = "crr.apps.kruise.io/pod-uid";
/// Label: the Pod's node.
pub const NODE_NAME: &str = "crr.apps.kruise.io/node-name";
/// Label: `true` until shortly after the request ends.
pub const ACTIVE: &str = "crr.apps.kruise.io/active";
/// Annotation of `v1alpha1`: when the drain began.
pub const UNREADY_ACQUIRED: &str = "crr.apps.kruise.io/unready-acquired";
/// Annotation of `v1alpha1`: the containers that run after their restart.
pub const SYNC_CONTAINER_STATUSES: &str = "crr.apps.kruise.io/sync-container-statuses";

/// How long a request may keep the label [`ACTIVE`] after its end.
const ACTIVE_FOR: Duration = Duration::from_secs(5);

/// `ContainerRecreateRequestSpec`, the same in both versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    pub pod_name: String,
    pub containers: Vec<Container>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// `ContainerRecreateRequestContainer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<PreStop>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ContainerPort>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_context: Option<StatusContext>,
}

/// `ProbeHandler`, in `v1beta1` `CRRProbeHandler`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreStop {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HTTPGetAction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TCPSocketAction>,
}

/// `ContainerRecreateRequestContainerContext`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusContext {
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub restart_count: i32,
}

/// `ContainerRecreateRequestStrategy`. None is omitted, as Go omits zero values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered_recreate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_recreate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unready_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_started_seconds: Option<i32>,
}

/// `ContainerRecreateRequestStatus` of `v1alpha1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct V1alpha1 {
    pub phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_recreate_states: Vec<State>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// `ContainerRecreateRequestStatus` of `v1beta1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct V1beta1 {
    #[serde(flatten)]
    pub common: V1alpha1,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_status_snapshot: Vec<Snapshot>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// `ContainerRecreateRequestContainerRecreateState`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    pub name: String,
    pub phase: String,
    pub message: String,
    pub is_killed: bool,
}

/// `ContainerRecreateRequestSyncContainerStatus`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    pub name: String,
    pub ready: bool,
    pub restart_count: i32,
    #[serde(rename = "containerID")]
    pub container_id: String,
}

/// The status of one version.
pub trait Status: Clone + Debug + Default + Serialize + DeserializeOwned {
    /// API version.
    const VERSION: &'static str;
    /// Fields that both versions have.
    fn common(&self) -> &V1alpha1;
}

impl Status for V1alpha1 {
    const VERSION: &'static str = "v1alpha1";
    fn common(&self) -> &V1alpha1 {
        self
    }
}

impl Status for V1beta1 {
    const VERSION: &'static str = "v1beta1";
    fn common(&self) -> &V1alpha1 {
        &self.common
    }
}

/// A request in one version.
pub type Request<S> = Object<Spec, S>;

/// A client of one version.
pub struct Client<S: Status> {
    kind: ApiResource,
    api: Api<Request<S>>,
}

impl<S: Status> Client<S> {
    /// A client for the requests of the namespace.
    pub fn new(ns: &Ns) -> Self {
        let kind = GroupVersionKind::gvk("apps.kruise.io", S::VERSION, "ContainerRecreateRequest");
        let kind = ApiResource::from_gvk(&kind);
        Self { api: Api::namespaced_with(ns.cluster.client.clone(), &ns.name, &kind), kind }
    }

    /// Creates a request.
    pub async fn create(&self, name: &str, spec: Spec) -> Result<Request<S>> {
        let request = Request { status: Some(S::default()), ..Request::new(name, &self.kind, spec) };
        Ok(self.api.create(&PostParams::default(), &request).await?)
    }

    /// Reads a request.
    pub async fn get(&self, name: &str) -> Result<Request<S>> {
        Ok(self.api.get(name).await?)
    }

    /// Whether there is no such request.
    pub async fn is_gone(&self, name: &str) -> Result<bool> {
        Ok(self.api.get_opt(name).await?.is_none())
    }

    /// Waits until the request is over.
    pub async fn completed(&self, name: &str, limit: Duration) -> Result<Request<S>> {
        let over = until(&format!("request {name} to be Completed"), limit, async || {
            Ok(Some(self.get(name).await?).filter(|request| common(request).phase == "Completed"))
        })
        .await?;
        common(&over).completion_time.as_ref().context("no completionTime")?;
        Ok(over)
    }

    /// Waits until the request, which is over, has no label [`ACTIVE`].
    pub async fn inactive(&self, name: &str) -> Result<Request<S>> {
        until("the label active to be removed", ACTIVE_FOR, async || {
            Ok(Some(self.get(name).await?).filter(|request| label(request, ACTIVE).is_none()))
        })
        .await
    }
}

/// A request for these containers of the Pod.
pub fn spec(pod: &str, containers: &[&str]) -> Spec {
    let containers =
        containers.iter().map(|name| Container { name: (*name).to_owned(), ..Container::default() });
    Spec { pod_name: pod.to_owned(), containers: containers.collect(), ..Spec::default() }
}

/// The state of a container.
pub fn state(name: &str, phase: &str, is_killed: bool) -> State {
    State { name: name.to_owned(), phase: phase.to_owned(), message: String::new(), is_killed }
}

/// Status fields that both versions have.
pub fn common<S: Status>(request: &Request<S>) -> V1alpha1 {
    request.status.as_ref().map(|status| status.common().clone()).unwrap_or_default()
}

/// The states of the containers.
pub fn states<S: Status>(request: &Request<S>) -> Vec<State> {
    common(request).container_recreate_states
}

/// Container IDs that admission filled in, by container name.
pub fn instances<S: Status>(request: &Request<S>) -> BTreeMap<&str, &str> {
    let all = request.spec.containers.iter();
    all.filter_map(|c| Some((c.name.as_str(), c.status_context.as_ref()?.container_id.as_str()))).collect()
}

/// A label.
pub fn label<'a, S: Status>(request: &'a Request<S>, key: &str) -> Option<&'a str> {
    request.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation.
pub fn annotation<'a, S: Status>(request: &'a Request<S>, key: &str) -> Option<&'a str> {
    request.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
