//! The namespace of one test, and what tests do in it.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, LogParams, ObjectMeta, PostParams};
use pitstop_api::labels;
use pitstop_api::nodework::{Answer, AnswerState, NodeWork, Order, request_uid};
use pitstop_api::recreate::ContainerRecreateRequest;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::wait::{LONG, SHORT, until};
use crate::{pods, requests};

/// Name prefix of test namespaces; a random suffix follows.
pub const PREFIX: &str = "e2e-";
/// The cluster's only node.
pub const NODE: &str = "node1";

/// A refusal of the API server: HTTP code and message.
pub type Refusal = (u16, String);

/// A namespace for one test.
pub struct Ns {
    /// The cluster of the namespace.
    pub cluster: Cluster,
    /// Its name.
    pub name: String,
}

impl Ns {
    /// Creates a namespace, and waits until Pods can be created in it.
    pub async fn open(cluster: Cluster) -> Result<Self> {
        let all: Api<Namespace> = Api::all(cluster.client.clone());
        let metadata = ObjectMeta { generate_name: Some(PREFIX.to_owned()), ..ObjectMeta::default() };
        let made =
            all.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
        let ns = Self { cluster, name: made.metadata.name.context("a namespace without a name")? };
        let accounts: Api<ServiceAccount> = Api::namespaced(ns.cluster.client.clone(), &ns.name);
        until("the default ServiceAccount", LONG, async || Ok(accounts.get_opt("default").await?)).await?;
        Ok(ns)
    }

    /// Deletes the namespace in the background.
    pub async fn close(&self) -> Result<()> {
        // Without grace period, or slow containers and Pods of nodes that do not exist would delay the deletion.
        let at_once = DeleteParams::default().grace_period(0);
        self.pods().delete_collection(&at_once, &ListParams::default()).await?;
        let all: Api<Namespace> = Api::all(self.cluster.client.clone());
        all.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Runs `kubectl` in the namespace.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster.kubectl(&[&["--namespace", &self.name], args].concat())
    }

    /// API of the Pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client.clone(), &self.name)
    }

    /// API of the requests.
    pub fn requests(&self) -> Api<ContainerRecreateRequest> {
        Api::namespaced(self.cluster.client.clone(), &self.name)
    }

    /// Reads a Pod.
    pub async fn pod(&self, name: &str) -> Result<Pod> {
        Ok(self.pods().get(name).await?)
    }

    /// Creates a Pod, which may have fields that the client's types do not know.
    pub async fn create_pod(&self, pod: Value) -> Result<Pod> {
        let kind = ApiResource::erase::<Pod>(&());
        let pods: Api<DynamicObject> = Api::namespaced_with(self.cluster.client.clone(), &self.name, &kind);
        let made = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(made.try_parse()?)
    }

    /// Creates a Pod and waits until it is ready.
    pub async fn start_pod(&self, pod: Value) -> Result<Pod> {
        let name = self.create_pod(pod).await?.metadata.name.context("a Pod without a name")?;
        self.ready(&name).await
    }

    /// Waits until the Pod is ready.
    pub async fn ready(&self, name: &str) -> Result<Pod> {
        let what = format!("Pod {name} to be ready");
        until(&what, SHORT, async || Ok(Some(self.pod(name).await?).filter(pods::is_ready))).await
    }

    /// Log of the container's current instance.
    pub async fn log(&self, pod: &str, container: &str) -> Result<String> {
        let params = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
        Ok(self.pods().logs(pod, &params).await?)
    }

    /// Waits until the container has logged that line.
    pub async fn logged(&self, pod: &str, container: &str, line: &str) -> Result<()> {
        let what = format!("container {container} of Pod {pod} to log {line:?}");
        until(&what, SHORT, async || {
            let log = self.log(pod, container).await?;
            Ok(log.lines().any(|l| l == line).then_some(()))
        })
        .await
    }

    /// Creates a request.
    pub async fn create(&self, request: Value) -> Result<ContainerRecreateRequest> {
        match self.try_create(request).await? {
            Ok(created) => Ok(created),
            Err((code, message)) => bail!("the request is refused with {code}: {message}"),
        }
    }

    /// Creates a request, or returns why it is refused.
    pub async fn try_create(&self, request: Value) -> Result<Result<ContainerRecreateRequest, Refusal>> {
        let name = request.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        // As JSON, so that requests can be wrong in ways that our types do not allow.
        let kind = kube::core::ApiResource::erase::<ContainerRecreateRequest>(&());
        let api: Api<kube::core::DynamicObject> =
            Api::namespaced_with(self.cluster.client.clone(), &self.name, &kind);
        let created = api.create(&PostParams::default(), &serde_json::from_value(request)?).await;
        match refusal(created)? {
            Ok(created) => {
                Ok(Ok(created.try_parse().with_context(|| format!("request {name} is not understood"))?))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Reads a request.
    pub async fn request(&self, name: &str) -> Result<ContainerRecreateRequest> {
        Ok(self.requests().get(name).await?)
    }

    /// Waits until the request is over.
    pub async fn over(&self, name: &str) -> Result<ContainerRecreateRequest> {
        self.over_within(name, SHORT).await
    }

    /// Waits until the request is over, at most for `limit`.
    pub async fn over_within(
        &self,
        name: &str,
        limit: std::time::Duration,
    ) -> Result<ContainerRecreateRequest> {
        let what = format!("request {name} to be over");
        until(&what, limit, async || Ok(Some(self.request(name).await?).filter(requests::is_over))).await
    }

    /// Waits until a request that is over is cleaned up: no label `active`, no order.
    pub async fn settled(&self, request: &ContainerRecreateRequest) -> Result<ContainerRecreateRequest> {
        let name = request.metadata.name.as_deref().unwrap_or_default();
        self.no_orders(request).await?;
        until("the label active to be removed", SHORT, async || {
            Ok(Some(self.request(name).await?).filter(|r| requests::label(r, labels::ACTIVE).is_none()))
        })
        .await
    }

    /// Waits until the request has no orders.
    pub async fn no_orders(&self, request: &ContainerRecreateRequest) -> Result<()> {
        until("the request's orders to be dropped", SHORT, async || {
            Ok(self.orders(request).await?.is_empty().then_some(()))
        })
        .await
    }

    /// The request's orders, with the daemon's answers.
    pub async fn orders(&self, request: &ContainerRecreateRequest) -> Result<Vec<(Order, Option<Answer>)>> {
        self.orders_of(request.metadata.uid.as_deref().context("a request without a UID")?).await
    }

    /// The orders and answers of the request with that UID.
    pub async fn orders_of(&self, uid: &str) -> Result<Vec<(Order, Option<Answer>)>> {
        let books: Api<NodeWork> = Api::all(self.cluster.client.clone());
        let Some(book) = books.get_opt(NODE).await? else { return Ok(Vec::new()) };
        let answers = book.status.unwrap_or_default().answers;
        let own = book.spec.orders.into_iter().filter(|order| request_uid(&order.id) == uid);
        Ok(own
            .map(|order| {
                let answer = answers.iter().find(|a| a.order_id == order.id).cloned();
                (order, answer)
            })
            .collect())
    }

    /// Waits until the request has an order that the daemon has not answered.
    pub async fn ordered(&self, request: &ContainerRecreateRequest) -> Result<()> {
        until("an order", SHORT, async || {
            let orders = self.orders(request).await?;
            Ok(orders.iter().any(|(_, answer)| answer.is_none()).then_some(()))
        })
        .await
    }

    /// Waits until the order is acknowledged, and the container has got SIGTERM.
    pub async fn stopping(&self, request: &ContainerRecreateRequest, container: &str) -> Result<()> {
        until("an acknowledgement", SHORT, async || {
            let orders = self.orders(request).await?;
            let acknowledged = |answer: &Answer| answer.state == AnswerState::Acknowledged;
            Ok(orders.iter().any(|(_, answer)| answer.as_ref().is_some_and(acknowledged)).then_some(()))
        })
        .await?;
        self.logged(&request.spec.pod_name, container, pods::ASKED).await
    }
}

/// Splits a refusal of the API server from other failures.
pub fn refusal<T>(result: kube::Result<T>) -> Result<Result<T, Refusal>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
            Ok(Err((status.code, status.message)))
        }
        Err(error) => Err(error.into()),
    }
}
