//! The one place that writes. Outcomes go back to the core as events.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use pitstop_api::nodework::{NodeWork as NodeWorkObject, NodeWorkSpec, Order};
use pitstop_api::recreate::{
    ContainerRecreateRequest, ContainerRecreateRequestSpec, ContainerRecreateRequestStatus,
};
use pitstop_controller_core::{Action, Event, ObjectKey, Outcome};
use pitstop_kit::{Class, classify, is_gone};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, info, warn};

use crate::events::Events;
use crate::metrics::ControllerMetrics;
use crate::observe;
use crate::pods::{self, Pods};

/// Most writes under way at a time; each holds a connection.
const MAX_WRITES: usize = 16;

/// What actions are carried out with.
#[derive(Clone)]
pub struct Executor {
    client: Client,
    pods: Pods,
    events: Events,
    metrics: ControllerMetrics,
    outcomes: mpsc::Sender<Event>,
    slots: Arc<Semaphore>,
}

impl Executor {
    /// Tells outcomes to `outcomes`.
    pub fn new(
        client: Client,
        events: Events,
        metrics: ControllerMetrics,
        outcomes: mpsc::Sender<Event>,
    ) -> Self {
        let pods = Pods::new(client.clone());
        Self { client, pods, events, metrics, outcomes, slots: Arc::new(Semaphore::new(MAX_WRITES)) }
    }

    /// Carries one action out and tells the outcome.
    pub async fn execute(self, action: Action) {
        let Ok(_slot) = self.slots.acquire().await else { return };
        let outcome = match action {
            Action::Count(measure) => return self.metrics.measure(&measure),
            Action::Emit(note) => {
                let (request, request_uid) = (note.request.to_string(), &note.request_uid);
                info!(request, request_uid, reason = note.reason, "{}", note.message);
                return self.events.record(note);
            }
            Action::WriteStatus { key, uid, resource_version, status } => {
                debug!(request = %key, request_uid = uid, phase = ?status.phase, "writes the status");
                let result = self.write_status(&key, uid.clone(), resource_version, *status).await;
                let outcome = self.outcome("write_status", &key.to_string(), result, observe::request);
                Event::RequestWritten { key, uid, outcome }
            }
            Action::PatchMetadata { key, uid, resource_version, labels, annotations } => {
                debug!(request = %key, request_uid = uid, ?labels, ?annotations, "patches metadata");
                let body = json!({"metadata":
                    {"resourceVersion": resource_version, "labels": labels, "annotations": annotations}});
                let api = self.requests(&key);
                let result = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(body)).await;
                let outcome = self.outcome("patch_metadata", &key.to_string(), result, observe::request);
                Event::RequestWritten { key, uid, outcome }
            }
            Action::DeleteRequest { key, uid } => {
                info!(request = %key, request_uid = uid, "deletes the request: its time to live is over");
                let params = DeleteParams {
                    preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
                    ..DeleteParams::default()
                };
                let outcome = match self.requests(&key).delete(&key.name, &params).await {
                    Ok(_) => {
                        self.metrics.count("delete_request", "ok");
                        Outcome::Gone
                    }
                    Err(error) => {
                        self.outcome("delete_request", &key.to_string(), Err(error), observe::request)
                    }
                };
                Event::RequestWritten { key, uid, outcome }
            }
            Action::PatchPod { key, uid, resource_version, change } => {
                debug!(pod = %key, pod_uid = uid, ?change, "changes the Pod");
                let result = self.pods.patch(&key, &uid, &resource_version, &change).await;
                let outcome = self.outcome(pods::name(&change), &key.to_string(), result, observe::pod);
                Event::PodWritten { key, uid, outcome }
            }
            Action::WriteOrders { node, resource_version, orders } => {
                for order in &orders {
                    debug!(order_id = order.id, node, container = order.container.id, "order stands");
                }
                let result = self.write_orders(&node, resource_version, orders).await;
                let outcome = self.outcome("write_orders", &node, result, observe::nodework);
                Event::NodeWorkWritten(node, outcome)
            }
        };
        // The receiver is gone only when the process ends.
        let _ = self.outcomes.send(outcome).await;
    }

    fn requests(&self, key: &ObjectKey) -> Api<ContainerRecreateRequest> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn write_status(
        &self,
        key: &ObjectKey,
        uid: String,
        resource_version: String,
        status: ContainerRecreateRequestStatus,
    ) -> kube::Result<ContainerRecreateRequest> {
        // The API server takes the spec of a status write from the stored object.
        let mut object = ContainerRecreateRequest::new(&key.name, ContainerRecreateRequestSpec::default());
        object.metadata.namespace = Some(key.namespace.clone());
        object.metadata.uid = Some(uid);
        object.metadata.resource_version = Some(resource_version);
        object.status = Some(status);
        self.requests(key).replace_status(&key.name, &PostParams::default(), &object).await
    }

    async fn write_orders(
        &self,
        node: &str,
        resource_version: Option<String>,
        orders: Vec<Order>,
    ) -> kube::Result<NodeWorkObject> {
        let api: Api<NodeWorkObject> = Api::all(self.client.clone());
        if let Some(resource_version) = resource_version {
            let body = json!({"metadata": {"resourceVersion": resource_version}, "spec": {"orders": orders}});
            return api.patch(node, &PatchParams::default(), &Patch::Merge(body)).await;
        }
        let mut object = NodeWorkObject::new(node, NodeWorkSpec { orders });
        // So that the book goes when its node goes.
        let nodes: Api<Node> = Api::all(self.client.clone());
        if let Some(owner) = nodes.get_metadata_opt(node).await? {
            object.metadata.owner_references = Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node.to_owned(),
                uid: owner.metadata.uid.unwrap_or_default(),
                ..OwnerReference::default()
            }]);
        }
        api.create(&PostParams::default(), &object).await
    }

    fn outcome<K, T>(
        &self,
        action: &'static str,
        object: &str,
        result: kube::Result<K>,
        convert: impl Fn(K) -> T,
    ) -> Outcome<T> {
        let error = match result {
            Ok(stored) => {
                self.metrics.count(action, "ok");
                return Outcome::Written(convert(stored));
            }
            Err(error) => error,
        };
        if is_gone(&error) {
            self.metrics.count(action, "gone");
            return Outcome::Gone;
        }
        let class = classify(&error);
        self.metrics.count(action, class.as_str());
        match class {
            Class::Conflict => Outcome::Conflict,
            Class::Retry => {
                warn!(action, object, %error, "a write failed and will be tried again");
                Outcome::Retry
            }
            Class::Invalid | Class::Fatal => {
                warn!(action, object, %error, "the API server refuses a write");
                Outcome::Refused(error.to_string())
            }
        }
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
