//! Workloads for tests, and functions that check their Pods.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use pitstop_api::condition;
use pitstop_api::rollout::{InPlaceRollout, PARKED, Phase, UpdateEnd};
use serde_json::{Value, json};

use crate::ns::Ns;
use crate::wait::{LONG, until};
use crate::{images, pods, requests};

/// A workload `web` of Pods with a web server and a sidecar.
pub fn workload(kind: &str, replicas: u32) -> Value {
    of(kind, replicas, &[pods::web("app"), pods::idle("sidecar")])
}

fn of(kind: &str, replicas: u32, containers: &[Value]) -> Value {
    let labels = json!({"app": "web"});
    let spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels},
            "spec": {"containers": containers, "enableServiceLinks": false, "terminationGracePeriodSeconds": 1}},
    });
    let of_kind = match kind {
        "DaemonSet" => json!({}),
        "StatefulSet" => {
            json!({"replicas": replicas, "serviceName": "web", "podManagementPolicy": "Parallel"})
        }
        _ => json!({"replicas": replicas}),
    };
    let spec = merged(spec, &of_kind);
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec})
}

/// The same with web servers `app` and `other`, whose behaviour depends on their image.
pub fn servers(kind: &str, replicas: u32) -> Value {
    of(kind, replicas, &[images::server("app", 8080), images::server("other", 8081)])
}

/// A rollout of the workload `web`, with more fields.
pub fn rollout(kind: &str, more: &Value) -> Value {
    let spec = json!({"targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": "web"}});
    let spec = merged(spec, more);
    json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout", "metadata": {"name": "web"}, "spec": spec})
}

/// The object with the fields of `more` added.
pub fn merged(mut object: Value, more: &Value) -> Value {
    if let (Some(fields), Some(more)) = (object.as_object_mut(), more.as_object()) {
        fields.extend(more.clone());
    }
    object
}

/// The value to which the workload is released, and the spec fields that park it.
pub fn park(kind: &str) -> (&'static str, Value) {
    match kind {
        "StatefulSet" => ("0", json!({"updateStrategy": {"rollingUpdate": {"partition": i32::MAX}}})),
        "DaemonSet" => ("RollingUpdate", json!({"updateStrategy": {"type": "OnDelete"}})),
        _ => ("Unpaused", json!({"paused": true})),
    }
}

/// Parks the workload and changes its template, in one write.
pub fn change_parked(ns: &Ns, kind: &str, pod: &Value) -> Result<()> {
    let (was, spec) = park(kind);
    let spec = merged(spec, &json!({"template": {"spec": pod}}));
    let patch = json!({"metadata": {"labels": {PARKED: was}}, "spec": spec});
    ns.kubectl(&["patch", &kind.to_lowercase(), "web", "--type=strategic", "-p", &patch.to_string()])
        .map(drop)
}

/// Waits until an update has ended in this way.
pub async fn update_ended(ns: &Ns, end: UpdateEnd) -> Result<InPlaceRollout> {
    until(&format!("the update to end as {}", end.name()), LONG, async || {
        let rollout = get(ns).await?;
        let status = rollout.status.clone().unwrap_or_default();
        ensure!(status.update.as_ref().and_then(|update| update.ended) == Some(end), "{status:?}");
        Ok(Some(rollout))
    })
    .await
}

/// Creates the object as a user does.
pub fn create(ns: &Ns, object: &Value) -> Result<()> {
    ns.cluster.kubectl_with(&["--namespace", &ns.name, "create", "-f", "-"], &object.to_string()).map(drop)
}

/// Pods of the workload, by name, once exactly `count` exist and all are ready.
pub async fn ready(ns: &Ns, count: usize) -> Result<BTreeMap<String, Pod>> {
    until(&format!("{count} Pods to be ready"), LONG, async || {
        let all = all(ns).await?;
        Ok(Some(all).filter(|all| all.len() == count && all.values().all(pods::is_ready)))
    })
    .await
}

/// Fails unless `kubectl rollout status` reports that the workload is complete.
pub fn is_rolled_out(ns: &Ns, resource: &str) -> Result<()> {
    let output = ns.kubectl(&["rollout", "status", resource, "--timeout=30s"])?;
    ensure!(output.contains("successfully rolled out") || output.contains("roll out complete"), "{output}");
    Ok(())
}

/// Waits until the workload's own controller has replaced every Pod.
pub async fn rolls_natively(ns: &Ns, resource: &str, before: &BTreeMap<String, Pod>) -> Result<()> {
    ns.kubectl(&["rollout", "status", resource, "--timeout=60s"])?;
    let uid = |pod: &Pod| pod.metadata.uid.clone();
    let after = ready(ns, before.len()).await?;
    let anew = after.values().all(|new| before.values().all(|old| uid(new) != uid(old)));
    ensure!(anew, "Pods are as before: {:?}", after.values().map(uid).collect::<Vec<_>>());
    Ok(())
}

/// The Pods of the workload, by name.
pub async fn all(ns: &Ns) -> Result<BTreeMap<String, Pod>> {
    let list = ns.pods().list(&ListParams::default().labels("app=web")).await?;
    list.items.into_iter().map(|pod| Ok((pod.metadata.name.clone().context("no name")?, pod))).collect()
}

/// Fails unless the container of every Pod was restarted exactly once, and the Pods are the same.
pub fn assert_all_restarted(
    before: &BTreeMap<String, Pod>,
    after: &BTreeMap<String, Pod>,
    container: &str,
) -> Result<()> {
    ensure!(before.keys().eq(after.keys()), "{:?}, then {:?}", before.keys(), after.keys());
    for (name, pod) in after {
        let old = before.get(name).context("a new Pod")?;
        pods::assert_restarted_once(old, pod, container).with_context(|| name.clone())?;
    }
    Ok(())
}

/// The rollout `web`.
pub async fn get(ns: &Ns) -> Result<InPlaceRollout> {
    let api: kube::Api<InPlaceRollout> = kube::Api::namespaced(ns.cluster.client.clone(), &ns.name);
    Ok(api.get("web").await?)
}

/// Waits until the restart `value` is finished.
pub async fn restarted(ns: &Ns, value: &str) -> Result<InPlaceRollout> {
    let what = format!("the restart {value} to be finished");
    until(&what, LONG, async || {
        let rollout = get(ns).await?;
        let status = rollout.status.clone().unwrap_or_default();
        let over = status.phase == Some(Phase::Complete) && status.restarted_at.as_deref() == Some(value);
        ensure!(over, "{status:?}");
        Ok(Some(rollout))
    })
    .await
}

/// Waits until the condition `Complete` has that reason.
pub async fn until_reason(ns: &Ns, reason: &str) -> Result<InPlaceRollout> {
    until(&format!("the rollout's reason {reason}"), LONG, async || {
        let rollout = get(ns).await?;
        let conditions = rollout.status.clone().unwrap_or_default().conditions;
        let complete = condition::find(&conditions, condition::COMPLETE).cloned();
        ensure!(complete.as_ref().is_some_and(|complete| complete.reason == reason), "{complete:?}");
        Ok(Some(rollout))
    })
    .await
}

/// Waits until all requests of rollouts are deleted.
pub async fn no_requests_left(ns: &Ns) -> Result<()> {
    until("the requests of the rollout to be deleted", LONG, async || {
        let left = ns.requests().list(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{} are left, such as {:?}", left.len(), left.first().map(requests::phase));
        Ok(Some(()))
    })
    .await
}
