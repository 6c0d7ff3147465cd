//! Parked workloads that are released before all their Pods are updated: by a user, by a change that is impossible in
//! place, or because their rollout is gone.

use pitstop_api::rollout::UpdateEnd;
use pitstop_e2e::images::with_workloads;
use pitstop_e2e::workloads::{all, change_parked, rolls_natively, until_reason, update_ended};
use pitstop_e2e::{Context as _, LONG, Ns, Result, SHORT, ensure, on_cluster, pods, until};
use serde_json::json;

use super::updates::{begin, field, image, images};

/// Waits until the workload has no mark.
async fn unmarked(ns: &Ns, kind: &str) -> Result<()> {
    until("the label to be gone", LONG, async || {
        Ok(field(ns, kind, ".metadata.labels.pitstop\\.dev/parked")?.is_empty().then_some(()))
    })
    .await
}

/// Waits for an event of the workload with that reason.
async fn until_event(ns: &Ns, workload: &str, reason: &str) -> Result<()> {
    until(reason, SHORT, async || {
        Ok(ns.kubectl(&["events", &format!("--for={workload}")])?.contains(reason).then_some(()))
    })
    .await
}

/// Without pitstop, a user releases a workload during an update, and its own controller continues.
#[test]
fn a_user_releases_it_in_the_midst() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "StatefulSet", 2, &json!({"soakSeconds": 600})).await?;
        change_parked(ns, "StatefulSet", &image("2"))?;
        until_reason(ns, "Updating").await?;
        let names = [("set db --namespace=shop", &*format!("set web --namespace={}", ns.name))];
        ns.cluster.documented("release-a-workload", &names)?;
        update_ended(ns, UpdateEnd::Superseded).await?;
        rolls_natively(ns, "statefulset/web", &before).await
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// As with any paused Deployment. pitstop removes the remaining label.
#[test]
fn a_user_resumes_a_deployment_in_the_midst() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "Deployment", 2, &json!({"soakSeconds": 600})).await?;
        change_parked(ns, "Deployment", &image("2"))?;
        until_reason(ns, "Updating").await?;
        ns.kubectl(&["rollout", "resume", "deployment/web"])?;
        update_ended(ns, UpdateEnd::Superseded).await?;
        rolls_natively(ns, "deployment/web", &before).await?;
        images(ns, "2").await?;
        unmarked(ns, "Deployment").await
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// A change that running Pods cannot get goes the native way.
#[test]
fn another_change_releases_the_workload() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "StatefulSet", 2, &json!({})).await?;
        let env = json!({"containers": [{"name": "app", "env": [{"name": "NEW", "value": "1"}]}]});
        change_parked(ns, "StatefulSet", &env)?;
        let over = update_ended(ns, UpdateEnd::NotInPlace).await?.status.context("no status")?;
        let update = over.update.context("no update")?;
        ensure!(update.message.contains("spec.template.spec.containers[0].env"), "{update:?}");
        until("the workload to be released", SHORT, async || {
            let partition = field(ns, "StatefulSet", ".spec.updateStrategy.rollingUpdate.partition")?;
            Ok((partition == "0").then_some(()))
        })
        .await?;
        rolls_natively(ns, "statefulset/web", &before).await
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// A workload without its rollout is not forgotten: its own controller continues.
#[test]
fn a_workload_whose_rollout_is_deleted_is_released() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "Deployment", 2, &json!({"soakSeconds": 600})).await?;
        change_parked(ns, "Deployment", &image("2"))?;
        until_reason(ns, "Updating").await?;
        ns.kubectl(&["delete", "ipr/web"])?;
        unmarked(ns, "Deployment").await?;
        rolls_natively(ns, "deployment/web", &before).await?;
        images(ns, "2").await?;
        until_event(ns, "deployment/web", "WorkloadReleased").await
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// After a failed update, the workload's own controller does not get the failed change.
#[test]
fn a_workload_whose_update_has_failed_stays_as_it_is() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "StatefulSet", 2, &json!({"soakSeconds": 1})).await?;
        change_parked(ns, "StatefulSet", &image("none"))?;
        until_reason(ns, "PodsFailed").await?;
        ns.kubectl(&["delete", "ipr/web"])?;
        unmarked(ns, "StatefulSet").await?;
        ensure!(field(ns, "StatefulSet", ".spec.updateStrategy.rollingUpdate.partition")? == "2147483647");
        for (name, pod) in &all(ns).await? {
            pods::assert_untouched(before.get(name).context("a new Pod")?, pod, "app")?;
        }
        until_event(ns, "statefulset/web", "WorkloadLeftParked").await
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}
