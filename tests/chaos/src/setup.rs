//! Prepares the cluster: the kubelets' back-off, and the Pods.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use pitstop_e2e::{Cluster, LONG, Ns, SHORT, ensure, images, system, until};
use serde_json::{Value, json};

use crate::plan::{NODES, Plan};
use crate::trace;

/// The longest wait of a kubelet before it starts a container again, in seconds. With the default, 5 minutes, the Pods
/// of a stream would soon be in back-off all the time, and so would what was killed of pitstop.
const LONGEST_BACK_OFF: u32 = 3;

/// A namespace on the cluster, with pitstop installed.
pub(crate) async fn installed() -> Result<Ns> {
    let cluster = Cluster::connect().await?;
    shorten_back_off(&cluster).await?;
    cluster.install_with(&["image-update", "in-place"]).context("cannot install pitstop")?;
    system::healthy(&cluster).await?;
    let ns = Ns::open(cluster).await?;
    images::opt_in(&ns.cluster, &ns.name)?;
    Ok(ns)
}

/// Shortens the back-off of all kubelets: `crashLoopBackOff` of the kubelet's configuration, on by default since
/// Kubernetes 1.35 (KEP-4603).
async fn shorten_back_off(cluster: &Cluster) -> Result<()> {
    for node in NODES {
        let path = cluster.config(node, "kubelet.json");
        let shown = path.display();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let mut config: BTreeMap<String, Value> =
            serde_json::from_str(&text).with_context(|| format!("{shown} is not understood"))?;
        let back_off = json!({"maxContainerRestartPeriod": format!("{LONGEST_BACK_OFF}s")});
        config.insert("crashLoopBackOff".to_owned(), back_off);
        fs::write(&path, serde_json::to_vec_pretty(&config)?)
            .with_context(|| format!("cannot write {shown}"))?;
        // It starts again, with the new configuration.
        cluster.kill(&format!("kubelet@{node}"))?;
    }
    until("all nodes to be ready", LONG, async || {
        let nodes: Vec<Value> = cluster.status("/nodes")?;
        let ready = nodes.iter().filter(|node| node.get("ready") == Some(&Value::Bool(true))).count();
        ensure!(nodes.len() == NODES.len(), "{} nodes, not {}", nodes.len(), NODES.len());
        Ok((ready == nodes.len()).then_some(()))
    })
    .await
}

/// Starts the Pods and waits until they are ready; gives back their UIDs by name.
pub(crate) async fn start(ns: &Ns, plan: &Plan) -> Result<BTreeMap<String, String>> {
    let started = try_join_all(plan.pods.iter().map(async |pod| ns.start_pod(trace::pod(pod)).await)).await?;
    let mut uids = BTreeMap::new();
    for (pod, plan) in started.into_iter().zip(&plan.pods) {
        let uid = pod.metadata.uid.context("a Pod without a UID")?;
        // They are called ready as soon as they run, which may be before they write.
        until(&format!("a line of each container of {}", plan.name), SHORT, async || {
            let starts = read_trace(&ns.cluster, plan.node, &uid)?.len();
            ensure!(starts == plan.containers.len(), "{starts} lines");
            Ok(Some(()))
        })
        .await?;
        uids.insert(plan.name.clone(), uid);
    }
    Ok(uids)
}

/// What the Pod's containers wrote down.
pub(crate) fn read_trace(cluster: &Cluster, node: &str, uid: &str) -> Result<Vec<trace::Entry>> {
    let path = cluster.var(node).join(trace::path(uid));
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    trace::parse(&text)
}
