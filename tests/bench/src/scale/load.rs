//! Fills the API server: many objects, few requests at a time.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, bail};
use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request as Builder;
use pitstop_api::logic::answer::Answer;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_kit::client;
use serde_json::{Value, json};

use super::bulk::{self, NODES, PODS, REQUESTS, overlay};
use super::objects::{finished, object, uid};
use super::player::pod::Pod;
use crate::harness::say;

/// API requests in flight at a time.
const PARALLEL: usize = 24;

/// Sends an API request. A refusal is an error.
pub(crate) async fn sent(client: &Client, request: Request<Vec<u8>>) -> Result<String> {
    let what = format!("{} {}", request.method(), request.uri().path());
    match client::send(client, request).await {
        Answer::Body(text) => Ok(text),
        Answer::Failed(failure) => bail!("{what}: {}", failure.message),
    }
}

/// Creates an object at an API path.
pub(crate) async fn create(client: &Client, path: String, object: &impl serde::Serialize) -> Result<String> {
    let request = Builder::new(path).create(&PostParams::default(), serde_json::to_vec(object)?)?;
    sent(client, request).await
}

/// Runs `work` for each item, [`PARALLEL`] at a time.
async fn each<T>(what: &str, things: Vec<T>, work: impl AsyncFn(T) -> Result<()>) -> Result<()> {
    let (begin, count) = (Instant::now(), things.len());
    let work = &work;
    stream::iter(things).map(|thing| work(thing)).buffered(PARALLEL).try_collect::<()>().await?;
    say(format!("{count} {what} in {:.1} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

/// Creates nodes without kubelets.
pub(crate) async fn nodes(client: &Client, names: Vec<String>) -> Result<()> {
    let node = |name: &String| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid(&["Node", name])}});
    let Some(first) = names.first() else { return Ok(()) };
    create(client, NODES.path(""), &node(first)).await?;
    bulk::write(client, NODES, names, move |name| node(name)).await
}

/// Creates namespaces, with the `ServiceAccount` that Pods need.
pub(crate) async fn namespaces(client: &Client, names: Vec<String>) -> Result<()> {
    each("namespaces", names, async |name| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(client, "/api/v1/namespaces".to_owned(), &namespace).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        create(client, format!("/api/v1/namespaces/{name}/serviceaccounts"), &account).await.map(drop)
    })
    .await
}

/// Creates running, ready Pods.
pub(crate) async fn pods(client: &Client, pods: &[Pod]) -> Result<()> {
    // A copy has as many containers as its original.
    let mut alike: BTreeMap<usize, Vec<Pod>> = BTreeMap::new();
    for pod in pods {
        alike.entry(pod.containers.len()).or_default().push(pod.clone());
    }
    for pods in alike.into_values() {
        let now = wall();
        let Some(first) = pods.first() else { continue };
        create(client, PODS.path(&first.namespace), &object(first)).await?;
        pod_status(client, first, &first.status(now, "")).await?;
        bulk::write(client, PODS, pods, move |pod| {
            let mut object = object(pod);
            overlay(&mut object, pod.status(now, ""));
            object
        })
        .await?;
    }
    Ok(())
}

/// Creates `count` finished requests, for these Pods in turn.
pub(crate) async fn finished_requests(client: &Client, pods: &[Pod], count: usize) -> Result<()> {
    let now = wall();
    let named = pods.iter().cycle().take(count).enumerate();
    let named: Vec<_> = named.map(|(i, pod)| (format!("over-{i:05}"), pod.clone())).collect();
    let Some((name, pod)) = named.first() else { return Ok(()) };
    let first = finished(name, pod, now);
    create(client, REQUESTS.path(&pod.namespace), &first).await?;
    let patch = PatchParams::default();
    let builder = Builder::new(REQUESTS.path(&pod.namespace));
    let status = Patch::Merge(json!({"status": first.get("status")}));
    sent(client, builder.patch_subresource("status", name, &patch, &status)?).await?;
    bulk::write(client, REQUESTS, named, move |(name, pod)| finished(name, pod, now)).await
}

/// Creates requests.
pub(crate) async fn requests(client: &Client, requests: Vec<ContainerRecreateRequest>) -> Result<()> {
    each("requests", requests, async |object| request(client, &object).await).await
}

/// Creates a request.
pub(crate) async fn request(client: &Client, object: &ContainerRecreateRequest) -> Result<()> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    create(client, REQUESTS.path(namespace), object).await.map(drop)
}

/// Patches the status of a Pod, as its kubelet does.
pub(crate) async fn pod_status(client: &Client, pod: &Pod, patch: &Value) -> Result<()> {
    patch_pod_status(client, &pod.namespace, &pod.name, patch).await
}

/// Patches the status of the Pod of that name, as its kubelet does.
pub(crate) async fn patch_pod_status(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> Result<()> {
    let builder = Builder::new(PODS.path(namespace));
    let request =
        builder.patch_subresource("status", name, &PatchParams::default(), &Patch::Strategic(patch))?;
    sent(client, request).await.map(drop)
}

/// The current time in whole seconds, as in objects.
pub(crate) fn wall() -> DateTime<Utc> {
    pitstop_kit::now().wall
}
