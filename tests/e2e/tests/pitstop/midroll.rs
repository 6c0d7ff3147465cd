//! Other changes of a workload while its Pods are updated.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use pitstop_api::rollout::UpdateEnd;
use pitstop_e2e::images::{self, REPOSITORY, with_workloads};
use pitstop_e2e::ns::NODE;
use pitstop_e2e::workloads::{
    change_parked, create, get, is_rolled_out, ready, rolls_natively, update_ended,
};
use pitstop_e2e::{Context as _, LONG, Ns, Result, ensure, on_cluster, until};
use serde_json::{Value, json};

use super::updates::{begin, image, images};

/// Waits until an update under way has updated `count` Pods: the status may still show the previous update.
async fn until_current(ns: &Ns, count: i32) -> Result<()> {
    until("Pods to be updated", LONG, async || {
        let status = get(ns).await?.status.unwrap_or_default();
        let goes_on = status.update.as_ref().is_some_and(|update| update.ended.is_none());
        Ok((goes_on && status.current >= count).then_some(()))
    })
    .await
}

/// Creates a workload, and waits until one Pod is updated; returns the Pods before.
async fn half(ns: &Ns, kind: &str, replicas: u32) -> Result<BTreeMap<String, Pod>> {
    let before = begin(ns, kind, replicas, &json!({"soakSeconds": 3})).await?;
    change_parked(ns, kind, &image("2"))?;
    until_current(ns, 1).await?;
    Ok(before)
}

fn uid(pod: &Pod) -> Option<&str> {
    pod.metadata.uid.as_deref()
}

/// Pods come and go during the update, and the template changes again. At the end all Pods have the last template.
#[test]
fn a_deployment_changes_in_mid_roll() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = half(ns, "Deployment", 3).await?;
        let known = |pod: &Pod| before.values().any(|old| uid(old) == uid(pod));
        // The replacement of an updated Pod has the old image.
        let requests = images::api(ns).list(&ListParams::default()).await?;
        let updated = requests.iter().find(|request| images::reason(request) == Some("Updated"));
        let name = &updated.context("no Pod is updated")?.spec.pod_ref.name;
        ns.kubectl(&["delete", "pod", name, "--wait=true"])?;
        ns.kubectl(&["scale", "deployment/web", "--replicas=4"])?;
        ns.kubectl(&["set", "image", "deployment/web", &format!("app={REPOSITORY}:1")])?;
        ns.kubectl(&["set", "image", "deployment/web", &format!("app={REPOSITORY}:big")])?;
        update_ended(ns, UpdateEnd::Updated).await?;
        let after = ready(ns, 4).await?;
        ensure!(after.values().filter(|pod| known(pod)).count() == 2, "{:?}", after.keys());
        images(ns, "big").await?;
        is_rolled_out(ns, "deployment/web")?;
        // Its controller still replaces Pods for another change.
        ns.kubectl(&["set", "env", "deployment/web", "NEW=1"])?;
        rolls_natively(ns, "deployment/web", &after).await?;
        images(ns, "big").await
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// An autoscaler adds and removes Pods: at the end all have the image, and the remaining Pods are the same.
#[test]
fn an_autoscaler_scales_it_in_mid_roll() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = half(ns, "Deployment", 2).await?;
        create(ns, &autoscaler(4, 6))?;
        ready(ns, 4).await?;
        update_ended(ns, UpdateEnd::Updated).await?;
        let more = ready(ns, 4).await?;
        ensure!(
            before.iter().all(|(name, pod)| more.get(name).and_then(uid) == uid(pod)),
            "{:?}",
            more.keys()
        );
        images(ns, "2").await?;
        // A scale-down during the next update.
        change_parked(ns, "Deployment", &image("big"))?;
        until_current(ns, 1).await?;
        ns.kubectl(&[
            "patch",
            "hpa/web",
            "--type=merge",
            r#"-p={"spec":{"minReplicas":1,"maxReplicas":2}}"#,
        ])?;
        update_ended(ns, UpdateEnd::Updated).await?;
        let less = ready(ns, 2).await?;
        ensure!(less.iter().all(|(name, pod)| more.get(name).and_then(uid) == uid(pod)), "{:?}", less.keys());
        images(ns, "big").await?;
        is_rolled_out(ns, "deployment/web")
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// An autoscaler without metrics, which keeps the workload within its bounds.
fn autoscaler(least: u32, most: u32) -> Value {
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": least, "maxReplicas": most,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}})
}

/// The node of the Pods crashes, with the controller and the daemon. The update continues when they are back.
#[test]
fn its_node_crashes_in_mid_roll() -> Result<()> {
    for kind in ["StatefulSet", "Deployment"] {
        let test = async |ns: &Ns| {
            let before = half(ns, kind, 3).await?;
            ns.cluster.reboot(NODE)?;
            update_ended(ns, UpdateEnd::Updated).await?;
            let after = ready(ns, 3).await?;
            ensure!(before.iter().all(|(name, pod)| after.get(name).and_then(uid) == uid(pod)), "{kind}");
            images(ns, "2").await?;
            let workload = format!("{}/web", kind.to_lowercase());
            is_rolled_out(ns, &workload)?;
            ns.kubectl(&["set", "env", &workload, "NEW=1"])?;
            rolls_natively(ns, &workload, &after).await
        };
        on_cluster(async |ns| with_workloads(ns, test(ns)).await)?;
    }
    Ok(())
}
