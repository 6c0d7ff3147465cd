//! `PodResize` on a cluster whose API server and kubelet do not resize: through the node's daemon, checked in the
//! cgroups.
//!
//! These tests need another Kubernetes than all others: `cargo xtask cluster up --kubernetes 1.36-as-1.34`, or `1.34`
//! itself.

mod counts;
mod documented;
mod ends;
mod given;
mod refused;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use pitstop_api::nodework::{Held, NodeWork};
use pitstop_api::resize::{Phase, PodResizeStatus};
use pitstop_e2e::ns::NODE;
use pitstop_e2e::resizes::{Group, MI, api, create, ends as ends_so, groups, resize};
use pitstop_e2e::{Context, Ns, Result, SHORT, ensure, on_cluster, until};
use serde_json::{Value, json};

/// Values of the container `app` and its Pod by the Pod's spec.
const BEFORE: [Group; 2] = [
    Group { shares: 102, quota: 20_000, memory: 128 * MI },
    Group { shares: 204, quota: 40_000, memory: 256 * MI },
];
/// Their values with [`larger`].
const LARGER: [Group; 2] = [
    Group { shares: 153, quota: 40_000, memory: 256 * MI },
    Group { shares: 256, quota: 60_000, memory: 384 * MI },
];

/// Runs a test on a cluster without the resize API.
fn on_old_cluster(test: impl AsyncFnOnce(&Ns) -> Result<()>) -> Result<()> {
    on_cluster(async |ns| {
        ensure!(
            !ns.cluster.resizes(),
            "this cluster resizes Pods by itself; run `cargo xtask cluster up --kubernetes 1.36-as-1.34`"
        );
        test(ns).await
    })
}

/// A request for more of everything except requested memory.
fn larger(name: &str) -> Value {
    let resources = json!({"requests": {"cpu": "150m"}, "limits": {"cpu": "400m", "memory": "256Mi"}});
    resize(name, "app", &resources)
}

/// Creates a request that must succeed.
async fn succeeds(ns: &Ns, object: Value) -> Result<PodResizeStatus> {
    let name = create(ns, object).await?.metadata.name.context("a request without a name")?;
    ends_so(ns, &name, Phase::Succeeded, "Resized").await
}

/// Deletes a request.
async fn delete(ns: &Ns, name: &str) -> Result<()> {
    api(ns).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until the container `app` and its Pod have these values.
async fn until_groups(ns: &Ns, wanted: [Group; 2]) -> Result<Pod> {
    until(&format!("the control groups to hold {wanted:?}"), SHORT, async || {
        let pod = ns.pod("web").await?;
        let found = groups(&pod, "app")?;
        ensure!(found == wanted, "they hold {found:?}");
        Ok(Some(pod))
    })
    .await
}

/// The daemon's record of a Pod.
async fn held(ns: &Ns, pod: &Pod) -> Result<Option<Held>> {
    let book = Api::<NodeWork>::all(ns.cluster.client.clone()).get(NODE).await?;
    let uid = pod.metadata.uid.as_deref().context("a Pod without a UID")?;
    Ok(book.status.unwrap_or_default().held.into_iter().find(|held| held.pod.uid == uid))
}
