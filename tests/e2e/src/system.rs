//! pitstop's own Pods in the cluster.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use pitstop_api::recreate::ContainerRecreateRequest;

use crate::cluster::Cluster;
use crate::wait::{LONG, SHORT, until};
use crate::{pods, process, requests};

/// The namespace of pitstop.
pub const NAMESPACE: &str = "pitstop-system";
/// Name of the Deployment, its container's label and the lease.
pub const CONTROLLER: &str = "pitstop-controller";
/// Name of the `DaemonSet`.
pub const DAEMON: &str = "pitstop-daemon";
/// Name of the webhook's configuration.
pub const WEBHOOK: &str = "pitstop";
/// The name that pitstop's webhook has in refusals.
pub const WEBHOOK_NAME: &str = "mcontainerrecreaterequest.pitstop.dev";

/// Replicas of the controller.
const REPLICAS: usize = 2;
/// A lease renewed longer ago has no live holder; it is renewed every five seconds.
const FRESH_SECONDS: i64 = 8;

/// Pods of [`CONTROLLER`] or [`DAEMON`] that are not being deleted.
pub async fn pods_of(cluster: &Cluster, program: &str) -> Result<Vec<Pod>> {
    let component = program.trim_start_matches("pitstop-");
    let labels = format!("app.kubernetes.io/name=pitstop,app.kubernetes.io/component={component}");
    let mut list = api(cluster).list(&ListParams::default().labels(&labels)).await?.items;
    list.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(list)
}

/// The metrics that a Pod of pitstop serves, as text.
pub async fn metrics(cluster: &Cluster, pod: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8080/proxy/metrics");
    let request = http::Request::get(path).body(Vec::new())?;
    Ok(cluster.client.request_text(request).await?)
}

/// The Pod of the only daemon.
pub async fn daemon(cluster: &Cluster) -> Result<Pod> {
    let mut list = pods_of(cluster, DAEMON).await?;
    ensure!(list.len() == 1, "{} daemons on a cluster of one node", list.len());
    list.pop().context("no daemon")
}

/// The Pod of the leader.
pub async fn leader(cluster: &Cluster) -> Result<Pod> {
    let name = leader_name(cluster).await?.context("nobody leads")?;
    let list = pods_of(cluster, CONTROLLER).await?;
    let found = list.into_iter().find(|pod| pod.metadata.name.as_ref() == Some(&name));
    found.with_context(|| format!("the leader {name} is not there"))
}

/// Name of the leader's Pod; None unless the lease is being renewed.
pub async fn leader_name(cluster: &Cluster) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let Some(spec) = leases.get_opt(CONTROLLER).await?.and_then(|lease| lease.spec) else { return Ok(None) };
    let renewed = spec.renew_time.map_or(0, |time| time.0.as_second());
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    let holder = spec.holder_identity.filter(|_| now - renewed < FRESH_SECONDS);
    Ok(holder.and_then(|holder| holder.split('_').next().map(str::to_owned)).filter(|name| !name.is_empty()))
}

/// `kill -9` for the programs of these Pods.
pub fn kill_9(list: &[Pod]) -> Result<()> {
    let ids = list.iter().map(|pod| {
        let name = if is_daemon(pod) { "daemon" } else { "controller" };
        process::of_container(&pods::id(pod, name)?)
    });
    ids.collect::<Result<Vec<_>>>()?.into_iter().try_for_each(process::kill_9)
}

/// Waits until both programs are ready and serve. Replaces Pods that have crashed, because the kubelet would delay them
/// longer after each crash.
pub async fn healthy(cluster: &Cluster) -> Result<()> {
    for program in [CONTROLLER, DAEMON] {
        let list = pods_of(cluster, program).await?;
        let crashed = list.iter().filter(|pod| restarts(pod) > 0);
        try_join_all(
            crashed
                .filter_map(|pod| pod.metadata.name.as_deref())
                .map(async |name| api(cluster).delete(name, &DeleteParams::default()).await.map(drop)),
        )
        .await?;
    }
    until("pitstop to be ready", LONG, async || {
        let controllers = pods_of(cluster, CONTROLLER).await?;
        let daemons = pods_of(cluster, DAEMON).await?;
        let counts = controllers.len() == REPLICAS && !daemons.is_empty();
        let all = controllers.iter().chain(&daemons);
        Ok((counts
            && all.clone().count() > 0
            && all.clone().all(pods::is_ready)
            && rolled_out(cluster, daemons.len()).await?)
            .then_some(()))
    })
    .await?;
    until("a leader", LONG, async || leader(cluster).await.map(Some)).await?;
    until("the webhook", SHORT, async || Ok(webhook_answers(cluster).await?.then_some(()))).await
}

/// Runs a test without controllers, and starts them again.
pub async fn without_controllers(cluster: &Cluster, test: impl Future<Output = Result<()>>) -> Result<()> {
    let test = Box::pin(test);
    cluster.kubectl(&["--namespace", NAMESPACE, "scale", "deployment", CONTROLLER, "--replicas=0"])?;
    // A controller that is about to end still writes.
    let gone = until("the controllers to be gone", LONG, async || {
        let labels = ListParams::default().labels("app.kubernetes.io/component=controller");
        Ok(api(cluster).list(&labels).await?.items.is_empty().then_some(()))
    });
    let result = match gone.await {
        Ok(()) => test.await,
        gone => gone,
    };
    cluster.install()?;
    result.and(healthy(cluster).await)
}

/// Whether the newest templates run, and `daemons` is the number of daemons that must run.
async fn rolled_out(cluster: &Cluster, daemons: usize) -> Result<bool> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let daemon_sets: Api<DaemonSet> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let (deployment, daemon_set) = (deployments.get(CONTROLLER).await?, daemon_sets.get(DAEMON).await?);
    let deployed = deployment.status.unwrap_or_default();
    let spread = daemon_set.status.unwrap_or_default();
    Ok(deployed.observed_generation == deployment.metadata.generation
        && deployed.updated_replicas == i32::try_from(REPLICAS).ok()
        && spread.observed_generation == daemon_set.metadata.generation
        && usize::try_from(spread.desired_number_scheduled).ok() == Some(daemons)
        && spread.updated_number_scheduled == Some(spread.desired_number_scheduled))
}

/// Whether the API server calls the webhook and gets an answer.
pub async fn webhook_answers(cluster: &Cluster) -> Result<bool> {
    let api: Api<ContainerRecreateRequest> = Api::namespaced(cluster.client.clone(), "default");
    let request = requests::recreate("probe", "there-is-no-such-pod", &["app"]);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&dry, &serde_json::from_value(request)?).await {
        Err(kube::Error::Api(status)) if status.code == 400 => Ok(status.message.contains(WEBHOOK_NAME)),
        Err(error) => Err(error.into()),
        // The webhook fails open.
        Ok(_) => Ok(false),
    }
}

/// The CA by which the API server trusts the webhook.
pub async fn ca_bundle(cluster: &Cluster) -> Result<Option<Vec<u8>>> {
    let all: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let config = all.get(WEBHOOK).await?;
    let mut bundles = config.webhooks.into_iter().flatten().map(|w| w.client_config.ca_bundle.map(|b| b.0));
    Ok(bundles.next().flatten())
}

/// API of pitstop's Pods.
pub fn api(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

fn is_daemon(pod: &Pod) -> bool {
    pod.metadata.name.as_ref().is_some_and(|name| name.starts_with(DAEMON))
}

fn restarts(pod: &Pod) -> i32 {
    let all = pod.status.iter().filter_map(|s| s.container_statuses.as_ref()).flatten();
    all.map(|s| s.restart_count).sum()
}
