//! Both halves: restarts of all Pods at once by request, and at the runtime.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequest, Mechanism};
use pitstop_cri::{ContainerId, Deadlines, split_reference};

use super::load::{Before, Load};
use crate::harness::audit::Mark;
use crate::harness::books::no_orders;
use crate::harness::cluster::Cluster;
use crate::harness::figures::milliseconds;
use crate::harness::pods::{GRACE, Ns, ready_container, replaced};
use crate::harness::programs::NAMESPACE;
use crate::harness::requests::{outcome, restart};
use crate::harness::tape::Tape;
use crate::harness::writes::Writes;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(3);
/// Pause before a half, so that work from the Pods' start ends.
const PAUSE: Duration = Duration::from_secs(10);

/// One Pod's restart, in milliseconds since just before the first request or stop was sent.
pub(super) struct Restart {
    /// The Pod's status with the new container ready arrived here.
    pub(super) ready: f64,
    /// The request's status with `Completed` arrived here; `None` without a request.
    pub(super) completed: Option<f64>,
    /// The container was restarted as the request asked.
    pub(super) restarted: bool,
}

/// Results of the half by request.
pub(super) struct ByRequest {
    pub(super) restarts: Vec<Restart>,
    pub(super) writes: Writes,
    pub(super) loads: Vec<Load>,
}

/// A Pod before its restart.
struct Fresh {
    pod: String,
    container: ContainerId,
    node: String,
}

/// Creates a request for every Pod at once.
pub(super) async fn by_request(cluster: &Cluster, ns: &Ns, names: &[String]) -> Result<ByRequest> {
    let fresh = start(ns, names).await?;
    let mut pods = Tape::<Pod>::start(ns.api()).await?;
    let mut requests = Tape::<ContainerRecreateRequest>::start(ns.api()).await?;
    let api: Api<ContainerRecreateRequest> = ns.api();
    let before = Before::now(&cluster.client).await?;
    let mark = Mark::end_of(&cluster.audit_log())?;

    let begin = Instant::now();
    try_join_all(fresh.iter().map(async |fresh| {
        let create = api.create(&PostParams::default(), &restart(&fresh.pod, Mechanism::Auto)).await;
        create.with_context(|| format!("cannot create the request for Pod {}", fresh.pod))
    }))
    .await?;
    let mut restarts = Vec::new();
    for Fresh { pod, container, .. } in &fresh {
        let what = format!("the request for Pod {pod} to end");
        let (completed, restarted) = requests.find(begin, PATIENCE, &what, |seen| outcome(pod, seen)).await?;
        let ready = ready(&mut pods, begin, pod, container).await?;
        restarts.push(Restart { ready, completed: Some(milliseconds(completed - begin)), restarted });
    }
    // The clean-up is part of the cost.
    for Fresh { pod, .. } in &fresh {
        let tidy = |seen: &ContainerRecreateRequest| {
            (outcome(pod, seen).is_some() && !seen.labels().contains_key(labels::ACTIVE)).then_some(())
        };
        requests.find(begin, PATIENCE, "the labels `active` to go", tidy).await?;
    }
    no_orders(&cluster.client, PATIENCE).await?;
    Ok(ByRequest { restarts, writes: Writes::count(&mark.read()?, NAMESPACE), loads: before.since()? })
}

/// Stops every Pod's container at once at the runtime, as the daemon would.
pub(super) async fn direct(cluster: &Cluster, ns: &Ns, names: &[String]) -> Result<Vec<Restart>> {
    let fresh = start(ns, names).await?;
    let node = fresh.first().map(|fresh| fresh.node.clone()).unwrap_or_default();
    let runtime = pitstop_cri::connect(&cluster.containerd_socket(&node)?, Deadlines::default())?;
    // Connect before the measurement, because the daemon is also connected already.
    runtime.version().await?;
    let mut pods = Tape::<Pod>::start(ns.api()).await?;

    let begin = Instant::now();
    try_join_all(fresh.iter().map(|fresh| runtime.stop_container(&fresh.container, GRACE))).await?;
    let mut restarts = Vec::new();
    for Fresh { pod, container, .. } in &fresh {
        let ready = ready(&mut pods, begin, pod, container).await?;
        restarts.push(Restart { ready, completed: None, restarted: true });
    }
    Ok(restarts)
}

/// Starts Pods and waits until the node is idle.
async fn start(ns: &Ns, names: &[String]) -> Result<Vec<Fresh>> {
    ns.start(names).await?;
    tokio::time::sleep(PAUSE).await;
    let api: Api<Pod> = ns.api();
    let mut fresh = Vec::new();
    for object in api.list(&ListParams::default()).await? {
        let pod = object.name_any();
        let status = ready_container(&object).with_context(|| format!("Pod {pod} is not ready"))?;
        if status.restart_count != 0 {
            bail!("the container of Pod {pod} was restarted before: {:?}", status.last_state);
        }
        let (_, container) = split_reference(status.container_id.as_deref().unwrap_or_default())?;
        let node = object.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        fresh.push(Fresh { pod, container, node });
    }
    if fresh.iter().any(|one| fresh.first().is_some_and(|first| first.node != one.node)) {
        bail!("the Pods are on several nodes; this measures one");
    }
    Ok(fresh)
}

/// Milliseconds until the Pod's status showed a new ready container.
async fn ready(pods: &mut Tape<Pod>, begin: Instant, pod: &str, old: &ContainerId) -> Result<f64> {
    let what = format!("the new container of Pod {pod} to be ready");
    let (at, ()) = pods.find(begin, PATIENCE, &what, |seen| replaced(seen, pod, old).then_some(())).await?;
    Ok(milliseconds(at - begin))
}
