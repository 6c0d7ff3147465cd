//! Fills the API server: many objects, few requests at a time.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request as Builder;
use pitstop_api::logic::answer::Answer;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_kit::client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::objects::{Plan, finished, finished_status, restart};
use super::player::pod::{Container, Pod};
use crate::harness::say;

/// Requests under way at a time.
const PARALLEL: usize = 24;

/// Sends a request; a refusal is an error.
pub(crate) async fn sent(client: &Client, request: Request<Vec<u8>>) -> Result<String> {
    let what = format!("{} {}", request.method(), request.uri().path());
    match client::send(client, request).await {
        Answer::Body(text) => Ok(text),
        Answer::Failed(failure) => bail!("{what}: {}", failure.message),
    }
}

async fn create(client: &Client, path: String, object: &impl serde::Serialize) -> Result<String> {
    let request = Builder::new(path).create(&PostParams::default(), serde_json::to_vec(object)?)?;
    sent(client, request).await
}

/// Does the same for each, a few at a time, and says how fast that was. The results are in the order of the things.
async fn each<T, R>(what: &str, things: Vec<T>, work: impl AsyncFn(T) -> Result<R>) -> Result<Vec<R>> {
    let (begin, count) = (Instant::now(), things.len());
    let work = &work;
    let done: Vec<R> = stream::iter(things).map(|thing| work(thing)).buffered(PARALLEL).try_collect().await?;
    let took = begin.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let rate = count as f64 / took.max(0.001);
    say(format!("{count} {what} in {took:.1} s ({rate:.0} a second)"));
    Ok(done)
}

/// Makes nodes that nobody runs on.
pub(crate) async fn nodes(client: &Client, names: Vec<String>) -> Result<()> {
    each("nodes", names, async |name| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        create(client, "/api/v1/nodes".to_owned(), &node).await
    })
    .await
    .map(drop)
}

/// Makes namespaces, with the `ServiceAccount` that Pods need.
pub(crate) async fn namespaces(client: &Client, names: Vec<String>) -> Result<()> {
    each("namespaces", names, async |name| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(client, "/api/v1/namespaces".to_owned(), &namespace).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        create(client, format!("/api/v1/namespaces/{name}/serviceaccounts"), &account).await
    })
    .await
    .map(drop)
}

/// Makes Pods, and writes for each that it runs and is ready.
pub(crate) async fn pods(client: &Client, plans: Vec<Plan>) -> Result<Vec<Pod>> {
    each("running Pods", plans, async |plan| {
        let path = format!("/api/v1/namespaces/{}/pods", plan.namespace);
        let uid = uid(&create(client, path, &plan.object()).await?)?;
        let now = wall();
        let container = |name: &String| Container::new(&uid, name, plan.ignores_term, now);
        let containers = plan.containers.iter().map(container).collect();
        let Plan { namespace, name, node, grace_seconds, .. } = plan;
        let pod = Pod { namespace, name, uid, node, grace_seconds, containers };
        pod_status(client, &pod, &pod.status(now, "")).await?;
        Ok(pod)
    })
    .await
}

/// Makes requests that ended long ago: so many, for these Pods in turn.
pub(crate) async fn finished_requests(client: &Client, pods: &[Pod], count: usize) -> Result<()> {
    let named: Vec<(usize, &Pod)> = pods.iter().cycle().take(count).enumerate().collect();
    each("finished requests", named, async |(i, pod)| {
        let name = format!("over-{i:05}");
        request(client, &finished(restart(&name, pod))).await?;
        let patch = Patch::Merge(finished_status(pod, wall()));
        let builder = Builder::new(requests_of(&pod.namespace));
        sent(client, builder.patch_subresource("status", &name, &PatchParams::default(), &patch)?).await
    })
    .await
    .map(drop)
}

/// Makes requests.
pub(crate) async fn requests(client: &Client, requests: Vec<ContainerRecreateRequest>) -> Result<()> {
    each("requests", requests, async |object| request(client, &object).await).await.map(drop)
}

/// Makes a request.
pub(crate) async fn request(client: &Client, object: &ContainerRecreateRequest) -> Result<()> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    create(client, requests_of(namespace), object).await.map(drop)
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
    let builder = Builder::new(format!("/api/v1/namespaces/{namespace}/pods"));
    let request =
        builder.patch_subresource("status", name, &PatchParams::default(), &Patch::Strategic(patch))?;
    sent(client, request).await.map(drop)
}

/// Where requests are, in a namespace.
fn requests_of(namespace: &str) -> String {
    format!("/apis/apps.kruise.io/v1alpha1/namespaces/{namespace}/containerrecreaterequests")
}

/// The UID of an object that was made.
fn uid(text: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Stored {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let stored: Stored = serde_json::from_str(text).context("the answer to a create is not understood")?;
    Ok(stored.metadata.uid)
}

/// The present in whole seconds, as objects carry it.
pub(crate) fn wall() -> DateTime<Utc> {
    pitstop_kit::now().wall
}
