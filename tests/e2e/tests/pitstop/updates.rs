//! Parked workloads get new images in their running Pods, and their own controllers agree.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use pitstop_api::rollout::UpdateEnd;
use pitstop_e2e::images::{REPOSITORY, server, with_workloads};
use pitstop_e2e::workloads::{all, change_parked, create, ready, rollout, says, update_ended, workload};
use pitstop_e2e::{Context as _, Ns, Result, SHORT, ensure, on_cluster, pods, until};
use serde_json::{Value, json};

/// A workload `web` of web servers that do by their image what a test wants.
fn servers(kind: &str, replicas: u32) -> Value {
    let mut object = workload(kind, replicas);
    object["spec"]["template"]["spec"]["containers"] = json!([server("app", 8080), server("other", 8081)]);
    object
}

fn image(tag: &str) -> Value {
    json!({"containers": [{"name": "app", "image": format!("{REPOSITORY}:{tag}")}]})
}

/// The workload with a rollout that updates it in place, and its Pods.
async fn begin(ns: &Ns, kind: &str, replicas: u32, strategy: &Value) -> Result<BTreeMap<String, Pod>> {
    create(ns, &servers(kind, replicas))?;
    let before = ready(ns, usize::try_from(replicas)?).await?;
    create(ns, &rollout(kind, &json!({"templateChanges": "InPlace", "strategy": strategy})))?;
    says(ns, "NothingRequested").await?;
    Ok(before)
}

/// No Pod has come or gone, and of each just that container was restarted, once.
fn assert_updated(before: &BTreeMap<String, Pod>, after: &BTreeMap<String, Pod>) -> Result<()> {
    ensure!(before.keys().eq(after.keys()), "{:?}, then {:?}", before.keys(), after.keys());
    for (name, pod) in after {
        let old = before.get(name).context("a new Pod")?;
        pods::assert_restarted_once(old, pod, "app").with_context(|| name.clone())?;
        pods::assert_untouched(old, pod, "other").with_context(|| name.clone())?;
    }
    Ok(())
}

/// What the workload has at that path.
fn field(ns: &Ns, kind: &str, path: &str) -> Result<String> {
    ns.kubectl(&["get", &kind.to_lowercase(), "web", "-o", &format!("jsonpath={{{path}}}")])
}

/// Its own controller has nothing to do, and does what it ever did when another field of the template changes.
async fn natively_complete(ns: &Ns, kind: &str, after: &BTreeMap<String, Pod>) -> Result<()> {
    let resource = format!("{}/web", kind.to_lowercase());
    ensure!(field(ns, kind, ".metadata.labels.pitstop\\.dev/parked")?.is_empty(), "it is parked");
    let strategy = field(ns, kind, ".spec.updateStrategy")?;
    ensure!(strategy.contains("RollingUpdate") && !strategy.contains("2147483647"), "{strategy}");
    let said = ns.kubectl(&["rollout", "status", &resource, "--timeout=30s"])?;
    ensure!(said.contains("successfully rolled out") || said.contains("roll out complete"), "{said}");
    let history = ns.kubectl(&["rollout", "history", &resource])?;
    ensure!(
        history.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count() == 2,
        "{history}"
    );
    ensure!(all(ns).await?.keys().eq(after.keys()));
    ns.kubectl(&["set", "env", &resource, "NEW=1"])?;
    ns.kubectl(&["rollout", "status", &resource, "--timeout=60s"])?;
    let uid = |pod: &Pod| pod.metadata.uid.clone();
    let native = ready(ns, after.len()).await?;
    ensure!(native.values().all(|new| after.values().all(|old| uid(new) != uid(old))), "Pods are as before");
    Ok(())
}

async fn updates_in_place(ns: &Ns, kind: &str, replicas: u32) -> Result<()> {
    let before = begin(ns, kind, replicas, &json!({"soakSeconds": 1})).await?;
    let (mark, name) = match kind {
        "StatefulSet" => ("update-a-statefulset", "db"),
        _ => ("update-a-daemonset", "agent"),
    };
    let names = [
        (format!("registry.example.com/shop/{name}:v2"), format!("{REPOSITORY}:2")),
        (format!("set {name} --namespace=shop"), format!("set web --namespace={}", ns.name)),
    ];
    ns.cluster.documented(mark, &names.each_ref().map(|(from, to)| (from.as_str(), to.as_str())))?;
    let over = update_ended(ns, UpdateEnd::Updated).await?.status.context("no status")?;
    let count = i32::try_from(replicas)?;
    ensure!((over.pods, over.current, over.failed) == (count, count, 0), "{over:?}");
    let after = all(ns).await?;
    assert_updated(&before, &after)?;
    natively_complete(ns, kind, &after).await
}

#[test]
fn a_stateful_set_is_updated_in_place() -> Result<()> {
    on_cluster(async |ns| with_workloads(ns, updates_in_place(ns, "StatefulSet", 3)).await)
}

#[test]
fn a_daemon_set_is_updated_in_place() -> Result<()> {
    on_cluster(async |ns| with_workloads(ns, updates_in_place(ns, "DaemonSet", 1)).await)
}

/// Nothing stops for an image that is not there; with the old one back in the template, the workload is released.
#[test]
fn an_image_that_is_not_there_stops_nothing() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "StatefulSet", 2, &json!({"soakSeconds": 1})).await?;
        change_parked(ns, "StatefulSet", &image("none"))?;
        let stalled = says(ns, "PodsFailed").await?.status.context("no status")?;
        let named = stalled.pods_of_interest.first().context("no Pod is named")?;
        ensure!(named.name == "web-1" && named.message.contains("not found"), "{named:?}");
        ns.kubectl(&["rollout", "undo", "statefulset/web"])?;
        update_ended(ns, UpdateEnd::Updated).await?;
        let after = all(ns).await?;
        for (name, pod) in &after {
            pods::assert_untouched(before.get(name).context("a new Pod")?, pod, "app")?;
        }
        ensure!(field(ns, "StatefulSet", ".spec.updateStrategy.rollingUpdate.partition")? == "0");
        Ok(())
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// An image that crashes is taken back in the one Pod that has it; a Pod that is evicted meanwhile comes back with the old one.
#[test]
fn an_image_that_crashes_is_one_pods_matter() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "StatefulSet", 3, &json!({"soakSeconds": 1, "canary": {"pods": 1}})).await?;
        change_parked(ns, "StatefulSet", &image("crash"))?;
        says(ns, "PodsFailed").await?;
        ready(ns, 3).await?;
        ns.kubectl(&["delete", "pod", "web-1", "--wait=true"])?;
        let after = ready(ns, 3).await?;
        let (old, new) = (before.get("web-0").context("no Pod")?, after.get("web-0").context("no Pod")?);
        pods::assert_untouched(old, new, "app")?;
        // The change goes on with one that is good.
        ns.kubectl(&["set", "image", "statefulset/web", &format!("app={REPOSITORY}:2")])?;
        update_ended(ns, UpdateEnd::Updated).await?;
        let over = all(ns).await?;
        let uid = |pod: &Pod| pod.metadata.uid.clone();
        ensure!(
            over.iter().all(|(name, pod)| after.get(name).map(uid) == Some(uid(pod))),
            "a Pod was made anew"
        );
        Ok(())
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// Without pitstop, a workload in mid-roll is released by its own editor, and its own controller goes on.
#[test]
fn a_user_releases_it_in_the_midst() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "StatefulSet", 2, &json!({"soakSeconds": 600})).await?;
        change_parked(ns, "StatefulSet", &image("2"))?;
        says(ns, "Updating").await?;
        let names = [("set db --namespace=shop", &*format!("set web --namespace={}", ns.name))];
        ns.cluster.documented("release-a-workload", &names)?;
        update_ended(ns, UpdateEnd::Superseded).await?;
        ns.kubectl(&["rollout", "status", "statefulset/web", "--timeout=60s"])?;
        let uid = |pod: &Pod| pod.metadata.uid.clone();
        let native = ready(ns, 2).await?;
        ensure!(
            native.values().all(|new| before.values().all(|old| uid(new) != uid(old))),
            "Pods are as before"
        );
        Ok(())
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// What running Pods cannot get goes the native way.
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
        ns.kubectl(&["rollout", "status", "statefulset/web", "--timeout=60s"])?;
        let uid = |pod: &Pod| pod.metadata.uid.clone();
        let native = ready(ns, 2).await?;
        ensure!(
            native.values().all(|new| before.values().all(|old| uid(new) != uid(old))),
            "Pods are as before"
        );
        Ok(())
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}
