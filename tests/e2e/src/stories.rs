//! Tests of resizes that hold for every mechanism.

use k8s_openapi::api::core::v1::Pod;
use pitstop_api::resize::Phase;
use serde_json::{Value, json};

use crate::ns::Ns;
use crate::resizes::{MI, create, ends, hungry, kernel, resize, sized, waits, with};
use crate::wait::{SHORT, until};
use crate::{Result, ensure, pods};

/// Requests and limits of that much CPU.
pub fn both(cpu: &str) -> Value {
    json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}})
}

/// Creates requests that are refused with reasons in users' terms, and a dry run that succeeds. Returns the Pod `web`
/// as it was before: 100m and 64Mi, in a namespace with a quota of 150m CPU.
pub async fn refusals(ns: &Ns) -> Result<Pod> {
    let guaranteed =
        json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}});
    let before = ns.start_pod(pods::pod("web", &[sized(pods::idle("app"), &guaranteed)])).await?;
    for (name, resources, phase, reason) in [
        ("qos", json!({"limits": {"cpu": "200m"}}), Phase::Failed, "QoSChange"),
        ("node", both("900"), Phase::Infeasible, "NodeCapacity"),
        ("name", json!({"limits": {"cpu": "50m"}}), Phase::Failed, "Invalid"),
    ] {
        create(ns, resize(name, "app", &resources)).await?;
        ends(ns, name, phase, reason).await?;
    }
    apply(
        ns,
        &json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "300m"}}]}}),
    )?;
    create(ns, resize("range", "app", &both("400m"))).await?;
    let status = ends(ns, "range", Phase::Failed, "LimitRange").await?;
    let words = "maximum cpu usage per Container is 300m";
    ensure!(status.message.contains(words), "{}", status.message);
    quota(ns, "150m", "100m").await?;
    create(ns, resize("quota", "app", &both("200m"))).await?;
    let status = ends(ns, "quota", Phase::Failed, "Quota").await?;
    ensure!(status.message.contains("exceeded quota: quota"), "{}", status.message);

    create(ns, with(resize("dry", "app", &both("140m")), "dryRun", &json!(true))).await?;
    let status = ends(ns, "dry", Phase::Succeeded, "WouldResize").await?;
    ensure!(status.message.starts_with("dry run: app: requests.cpu 100m -> 140m"), "{}", status.message);
    Ok(before)
}

fn apply(ns: &Ns, object: &Value) -> Result<String> {
    ns.cluster.kubectl_with(&["--namespace", &ns.name, "apply", "-f", "-"], &object.to_string())
}

/// Sets a quota for the namespace's requested CPU, and waits until `used` of it counts.
pub async fn quota(ns: &Ns, hard: &str, used: &str) -> Result<()> {
    apply(
        ns,
        &json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
            "spec": {"hard": {"requests.cpu": hard}}}),
    )?;
    until("the quota to count", SHORT, async || {
        let counted =
            ns.kubectl(&["get", "quota", "quota", "--output=jsonpath={.status.used.requests\\.cpu}"])?;
        Ok((counted == used).then_some(()))
    })
    .await
}

/// A container is OOM-killed at a limit that is too small, and gets its old resources back; `back` is the message's
/// end.
pub async fn out_of_memory(ns: &Ns, back: &str) -> Result<()> {
    ns.start_pod(hungry()).await?;
    let small =
        resize("small", "app", &json!({"requests": {"memory": "32Mi"}, "limits": {"memory": "32Mi"}}));
    create(ns, with(small, "rollbackOnFailure", &json!({"observeSeconds": 60}))).await?;
    let status = waits(ns, "small", "Observing").await?;
    ensure!(status.phase == Some(Phase::Verifying), "{:?}", status.phase);
    let found = kernel(&ns.pod("web").await?, "app")?;
    ensure!(found == [(20_000, 32 * MI); 2], "{found:?}");
    ns.kubectl(&["exec", "web", "--", "touch", "/data/go"])?;
    let status = ends(ns, "small", Phase::RolledBack, "OOMKilled").await?;
    ensure!(status.message.ends_with(back), "{}", status.message);
    let found = kernel(&ns.ready("web").await?, "app")?;
    ensure!(found == [(20_000, 128 * MI); 2], "{found:?}");
    Ok(())
}
