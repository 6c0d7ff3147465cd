//! Parked workloads get new images in their running Pods, and their own controllers agree.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use pitstop_api::rollout::{PodState, Update, UpdateEnd};
use pitstop_e2e::images::{REPOSITORY, with_parking, with_workloads};
use pitstop_e2e::registry::tag;
use pitstop_e2e::workloads::{
    all, change_parked, create, get, is_rolled_out, ready, rollout, rolls_natively, servers, until_reason,
    update_ended,
};
use pitstop_e2e::{Context as _, LONG, Ns, Result, ensure, on_cluster, pods, until};
use serde_json::{Value, json};

pub fn image(tag: &str) -> Value {
    json!({"containers": [{"name": "app", "image": format!("{REPOSITORY}:{tag}")}]})
}

/// Creates a workload and a rollout that updates it in place; returns its Pods.
pub async fn begin(ns: &Ns, kind: &str, replicas: u32, strategy: &Value) -> Result<BTreeMap<String, Pod>> {
    begin_with(ns, kind, &servers(kind, replicas), strategy).await
}

/// The same for this workload.
async fn begin_with(
    ns: &Ns,
    kind: &str,
    workload: &Value,
    strategy: &Value,
) -> Result<BTreeMap<String, Pod>> {
    create(ns, workload)?;
    let replicas = workload["spec"]["replicas"].as_u64().unwrap_or(1);
    let before = ready(ns, usize::try_from(replicas)?).await?;
    create(ns, &rollout(kind, &json!({"templateChanges": "InPlace", "strategy": strategy})))?;
    until_reason(ns, "NothingRequested").await?;
    Ok(before)
}

/// Fails unless the Pods are the same, and in each only `app` was restarted, once.
pub fn assert_updated(before: &BTreeMap<String, Pod>, after: &BTreeMap<String, Pod>) -> Result<()> {
    ensure!(before.keys().eq(after.keys()), "{:?}, then {:?}", before.keys(), after.keys());
    for (name, pod) in after {
        let old = before.get(name).context("a new Pod")?;
        pods::assert_restarted_once(old, pod, "app").with_context(|| name.clone())?;
        pods::assert_untouched(old, pod, "other").with_context(|| name.clone())?;
    }
    Ok(())
}

/// Value of the workload at that path.
pub fn field(ns: &Ns, kind: &str, path: &str) -> Result<String> {
    ns.kubectl(&["get", &kind.to_lowercase(), "web", "-o", &format!("jsonpath={{{path}}}")])
}

/// Fails unless the workload's own controller has nothing to do, and still replaces Pods when another field of the
/// template changes.
async fn natively_complete(ns: &Ns, kind: &str, after: &BTreeMap<String, Pod>) -> Result<()> {
    let resource = format!("{}/web", kind.to_lowercase());
    ensure!(field(ns, kind, ".metadata.labels.pitstop\\.dev/parked")?.is_empty(), "it is parked");
    let deployment = kind == "Deployment";
    let strategy = field(ns, kind, if deployment { ".spec.strategy" } else { ".spec.updateStrategy" })?;
    ensure!(strategy.contains("RollingUpdate") && !strategy.contains("2147483647"), "{strategy}");
    ensure!(field(ns, kind, ".spec.paused")?.is_empty(), "it is paused");
    is_rolled_out(ns, &resource)?;
    let history = ns.kubectl(&["rollout", "history", &resource])?;
    ensure!(
        history.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count() == 2,
        "{history}"
    );
    ensure!(all(ns).await?.keys().eq(after.keys()));
    if deployment {
        // The previous template is kept in the only other ReplicaSet.
        ns.kubectl(&["rollout", "undo", &resource])?;
        rolls_natively(ns, &resource, after).await?;
        let has = field(ns, kind, ".spec.template.spec.containers[0].image")?;
        ensure!(has.ends_with(":1"), "{has}");
        return images(ns, "1").await;
    }
    ns.kubectl(&["set", "env", &resource, "NEW=1"])?;
    rolls_natively(ns, &resource, after).await
}

/// Fails unless every Pod has that image.
pub async fn images(ns: &Ns, tag: &str) -> Result<()> {
    let image = format!("{REPOSITORY}:{tag}");
    for (name, pod) in all(ns).await? {
        let has = pod.spec.and_then(|spec| spec.containers.into_iter().next()?.image).unwrap_or_default();
        ensure!(has.starts_with(&image), "{name}: {has}");
    }
    Ok(())
}

async fn updates_in_place(ns: &Ns, kind: &str, replicas: u32) -> Result<()> {
    let before = begin(ns, kind, replicas, &json!({"soakSeconds": 1})).await?;
    let here = format!("set web --namespace={}", ns.name);
    let image = format!("{REPOSITORY}:2");
    match kind {
        "StatefulSet" => {
            let names = [("registry.example.com/shop/db:v2", &*image), ("set db --namespace=shop", &*here)];
            ns.cluster.documented("update-a-statefulset", &names)?;
        }
        "DaemonSet" => {
            let names =
                [("registry.example.com/shop/agent:v2", &*image), ("set agent --namespace=shop", &*here)];
            ns.cluster.documented("update-a-daemonset", &names)?;
        }
        _ => {
            let here = format!("deployment web --namespace={}", ns.name);
            let names =
                [("registry.example.com/shop/web:v2", &*image), ("deployment web --namespace=shop", &*here)];
            ns.cluster.documented("update-a-deployment", &names)?;
        }
    }
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
fn a_deployment_is_updated_in_place() -> Result<()> {
    on_cluster(async |ns| with_workloads(ns, updates_in_place(ns, "Deployment", 3)).await)
}

#[test]
fn a_daemon_set_is_updated_in_place() -> Result<()> {
    on_cluster(async |ns| with_workloads(ns, updates_in_place(ns, "DaemonSet", 1)).await)
}

/// A missing image stops nothing. With the old image back in the template, the workload is released.
#[test]
fn an_image_that_is_not_there_stops_nothing() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "StatefulSet", 2, &json!({"soakSeconds": 1})).await?;
        change_parked(ns, "StatefulSet", &image("none"))?;
        let stalled = until_reason(ns, "PodsFailed").await?.status.context("no status")?;
        let mut failed =
            stalled.pods_of_interest.iter().filter(|pod| pod.state == PodState::Failed).peekable();
        ensure!(
            failed.peek().is_some() && failed.all(|pod| pod.message.contains("not found")),
            "{stalled:?}"
        );
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

/// If an image crashes in one Pod, the Pods updated before are rolled back. The workload stays parked until its user
/// undoes the change.
#[test]
fn pods_that_were_updated_go_back() -> Result<()> {
    let test = async |ns: &Ns| {
        let mut set = servers("StatefulSet", 3);
        let env = set.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut);
        env.context("no env")?.push(json!({"name": "ONLY", "value": "web-1"}));
        let strategy = json!({"soakSeconds": 1, "onFailure": "RollBack"});
        let before = begin_with(ns, "StatefulSet", &set, &strategy).await?;
        change_parked(ns, "StatefulSet", &image("crash"))?;
        let over = update_ended(ns, UpdateEnd::RolledBack).await?.status.context("no status")?;
        let why = over.update.context("no update")?.message;
        ensure!(why.starts_with("Pod web-1 failed: "), "{why}");
        until_reason(ns, "RolledBack").await?;
        let after = ready(ns, 3).await?;
        images(ns, "1").await?;
        let uid = |pod: &Pod| pod.metadata.uid.clone();
        for (name, pod) in &after {
            let old = before.get(name).context("a new Pod")?;
            ensure!(uid(old) == uid(pod), "{name} was made anew");
            match name.as_str() {
                "web-0" => pods::assert_untouched(old, pod, "app")?,
                _ => ensure!(pods::id(old, "app")? != pods::id(pod, "app")?, "{name}"),
            }
        }
        ensure!(field(ns, "StatefulSet", ".metadata.labels.pitstop\\.dev/parked")? == "0");
        ns.kubectl(&["rollout", "undo", "statefulset/web"])?;
        update_ended(ns, UpdateEnd::Updated).await?;
        for (name, pod) in &all(ns).await? {
            pods::assert_untouched(after.get(name).context("a new Pod")?, pod, "app")?;
        }
        ensure!(field(ns, "StatefulSet", ".spec.updateStrategy.rollingUpdate.partition")? == "0");
        Ok(())
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// If a tag moves during an update, all Pods get the image that the first one got.
#[test]
fn a_tag_that_moves_means_what_it_meant_for_the_first_pod() -> Result<()> {
    let test = async |ns: &Ns| {
        let named = format!("{REPOSITORY}:{}", ns.name);
        tag(&ns.cluster, &format!("{REPOSITORY}:2"), &named)?;
        let strategy = json!({"soakSeconds": 3, "canary": {"pods": 1}});
        let before = begin(ns, "StatefulSet", 3, &strategy).await?;
        change_parked(ns, "StatefulSet", &image(&ns.name))?;
        let pulled = until("the first node to have pulled it", LONG, async || {
            let update = get(ns).await?.status.and_then(|status| status.update);
            Ok(update.and_then(|update| update.images.into_iter().next()))
        })
        .await?;
        ensure!(pulled.image == named, "{pulled:?}");
        tag(&ns.cluster, &format!("{REPOSITORY}:big"), &named)?;
        update_ended(ns, UpdateEnd::Updated).await?;
        let after = all(ns).await?;
        assert_updated(&before, &after)?;
        let pinned = format!("{named}@{}", pulled.digest);
        for (name, pod) in &after {
            let has = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.as_ref());
            ensure!(has == Some(&pinned), "{name}: {has:?}");
        }
        Ok(())
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// A crashing image is rolled back in the one Pod that has it. A Pod that is deleted meanwhile comes back with the old
/// image.
#[test]
fn an_image_that_crashes_is_one_pods_matter() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = begin(ns, "StatefulSet", 3, &json!({"soakSeconds": 1, "canary": {"pods": 1}})).await?;
        change_parked(ns, "StatefulSet", &image("crash"))?;
        until_reason(ns, "PodsFailed").await?;
        ready(ns, 3).await?;
        ns.kubectl(&["delete", "pod", "web-1", "--wait=true"])?;
        let after = ready(ns, 3).await?;
        let (old, new) = (before.get("web-0").context("no Pod")?, after.get("web-0").context("no Pod")?);
        pods::assert_untouched(old, new, "app")?;
        // A good image continues the update.
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

/// Users' changes of a workload are carried out in its Pods.
async fn verbs_in_place(ns: &Ns, kind: &str, replicas: u32) -> Result<()> {
    let resource = format!("{}/web", kind.to_lowercase());
    let manifest = |tag: &str| {
        let mut object = servers(kind, replicas);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("{REPOSITORY}:{tag}"));
        // Like many manifests, it sets the field that parks the workload.
        if kind == "Deployment" {
            object["spec"]["paused"] = json!(false);
        } else {
            object["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
        }
        object.to_string()
    };
    let run = |args: &[&str], input: &str| {
        ns.cluster.kubectl_with(&[&["--namespace", &ns.name], args].concat(), input).map(drop)
    };
    run(&["apply", "-f", "-"], &manifest("1"))?;
    let before = ready(ns, usize::try_from(replicas)?).await?;
    let more = json!({"templateChanges": "InPlace", "strategy": {"soakSeconds": 0},
        "restartAnnotations": ["example.com/config"]});
    create(ns, &rollout(kind, &more))?;
    armed(ns, kind).await?;
    let uids = |pods: &BTreeMap<String, Pod>| -> BTreeMap<String, Option<String>> {
        pods.iter().map(|(name, pod)| (name.clone(), pod.metadata.uid.clone())).collect()
    };
    let set = format!("app={REPOSITORY}:2");
    let whole = |tag: &str| -> Result<String> {
        let mut object: Value = serde_json::from_str(&ns.kubectl(&["get", &resource, "-o", "json"])?)?;
        // Its controller may write the status meanwhile.
        object["metadata"].as_object_mut().context("no metadata")?.remove("resourceVersion");
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("{REPOSITORY}:{tag}"));
        Ok(object.to_string())
    };
    let ids = |all: &BTreeMap<String, Pod>| -> Result<[Vec<String>; 2]> {
        let of = |name: &str| all.values().map(|pod| pods::id(pod, name)).collect::<Result<_>>();
        Ok([of("app")?, of("other")?])
    };
    let mut last = ids(&before)?;
    for (verb, tag) in [
        ("set", "2"),
        ("resources", "2"),
        ("restart", "2"),
        ("undo", "2"),
        ("apply", "1"),
        ("server-side", "2"),
        ("replace", "1"),
        ("annotate", "1"),
    ] {
        // The annotations that the rollout names work the same for each kind.
        if verb == "annotate" && kind != "StatefulSet" {
            continue;
        }
        let last_update = get(ns).await?.status.and_then(|status| status.update);
        match verb {
            "set" => run(&["set", "image", &resource, &set], "")?,
            "resources" => {
                run(&["set", "resources", &resource, "--containers=app", "--requests=cpu=23m"], "")?;
            }
            "restart" => run(&["rollout", "restart", &resource], "")?,
            "annotate" => {
                let annotations = json!({"metadata": {"annotations": {"example.com/config": "2"}}});
                let patch = json!({"spec": {"template": annotations}}).to_string();
                run(&["patch", &resource, "--patch", &patch], "")?;
            }
            "undo" => run(&["rollout", "undo", &resource], "")?,
            "apply" => run(&["apply", "-f", "-"], &manifest(tag))?,
            "server-side" => {
                run(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &manifest(tag))?;
            }
            _ => run(&["replace", "-f", "-"], &whole(tag)?)?,
        }
        // The same manifest again, during the update, as GitOps tools do.
        if verb == "apply" {
            run(&["apply", "-f", "-"], &manifest(tag))?;
        }
        until(&format!("what {verb} has changed to be in all Pods"), LONG, async || {
            let status = get(ns).await?.status.unwrap_or_default();
            let over = status.update.as_ref().and_then(|update| update.ended) == Some(UpdateEnd::Updated);
            let generation = |update: Option<&Update>| update.map_or(0, |update| update.generation);
            let newer = generation(status.update.as_ref()) > generation(last_update.as_ref());
            ensure!(over && newer, "{status:?}");
            Ok(Some(()))
        })
        .await?;
        let after = all(ns).await?;
        ensure!(uids(&before) == uids(&after), "{verb}: {:?}, then {:?}", uids(&before), uids(&after));
        // A restart and its undo restart both containers; a new image restarts its own; new resources restart none.
        let both = ids(&after)?;
        let other = ["restart", "undo", "annotate"].contains(&verb);
        let changed = (both[0] != last[0], both[1] != last[1]);
        ensure!(changed == (verb != "resources", other), "{verb}: {last:?}, then {both:?}");
        last = both;
        if verb == "resources" {
            for (name, pod) in &after {
                let requests = pod
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.containers.first()?.resources.as_ref()?.requests.clone());
                let cpu = requests.and_then(|mut requests| requests.remove("cpu"));
                ensure!(cpu.as_ref().is_some_and(|cpu| cpu.0 == "23m"), "{name}: {cpu:?}");
            }
        }
        images(ns, tag).await.with_context(|| verb.to_owned())?;
        ensure!(field(ns, kind, ".metadata.labels.pitstop\\.dev/parked")?.is_empty(), "{verb}: it is parked");
        ns.kubectl(&["rollout", "status", &resource, "--timeout=30s"])?;
    }
    // A server-side apply of the strategy has no conflict with pitstop, which released the workload.
    let all: Value =
        serde_json::from_str(&ns.kubectl(&["get", &resource, "-o", "json", "--show-managed-fields"])?)?;
    for entry in all["metadata"]["managedFields"].as_array().context("no managers")? {
        let ours = entry["manager"].as_str().is_some_and(|manager| manager.starts_with("pitstop"));
        ensure!(!ours || entry["fieldsV1"]["f:spec"].is_null(), "{entry}");
    }
    // Another change still goes the native way.
    ns.kubectl(&["set", "env", &resource, "NEW=1"])?;
    rolls_natively(ns, &resource, &before).await
}

/// Waits until the controller has armed the rollout, and admission parks its workload. API servers see policies and
/// their parameters a moment later.
async fn armed(ns: &Ns, kind: &str) -> Result<()> {
    let resource = format!("{}/web", kind.to_lowercase());
    until("the workload to be parked by a change", LONG, async || {
        let set = format!("app={REPOSITORY}:2");
        let path = "jsonpath={.metadata.labels.pitstop\\.dev/parked}";
        let mark = ns.kubectl(&["set", "image", &resource, &set, "--dry-run=server", "-o", path])?;
        ensure!(!mark.is_empty(), "{:?}", get(ns).await?.status);
        Ok(Some(()))
    })
    .await
}

#[test]
fn what_people_do_to_a_stateful_set_is_done_in_its_pods() -> Result<()> {
    on_cluster(async |ns| with_parking(ns, verbs_in_place(ns, "StatefulSet", 2)).await)
}

#[test]
fn what_people_do_to_a_deployment_is_done_in_its_pods() -> Result<()> {
    on_cluster(async |ns| with_parking(ns, verbs_in_place(ns, "Deployment", 2)).await)
}

#[test]
fn what_people_do_to_a_daemon_set_is_done_in_its_pods() -> Result<()> {
    on_cluster(async |ns| with_parking(ns, verbs_in_place(ns, "DaemonSet", 1)).await)
}

/// A backup of a parked workload is restored as released, and a user's own park is left alone.
#[test]
fn what_admission_leaves_alone() -> Result<()> {
    let test = async |ns: &Ns| {
        create(ns, &servers("StatefulSet", 1))?;
        ready(ns, 1).await?;
        create(ns, &rollout("StatefulSet", &json!({"templateChanges": "InPlace"})))?;
        armed(ns, "StatefulSet").await?;
        let resource = "statefulset/web";
        let dry = |args: &[&str]| {
            let path = "jsonpath={.metadata.labels.pitstop\\.dev/parked}";
            ns.kubectl(&[args, &["--dry-run=server", "-o", path]].concat())
        };
        ensure!(dry(&["set", "env", resource, "NEW=1"])?.is_empty(), "an environment");
        ensure!(dry(&["annotate", resource, "x=y"])?.is_empty(), "an annotation");
        let both = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7,
            "containers": [{"name": "app", "image": format!("{REPOSITORY}:2")}]}}}});
        ensure!(dry(&["patch", resource, "-p", &both.to_string()])?.is_empty(), "an image and more");
        // A park by the user.
        let own = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
        ns.kubectl(&["patch", resource, "-p", &own.to_string()])?;
        let image = format!("app={REPOSITORY}:2");
        ensure!(dry(&["set", "image", resource, &image])?.is_empty(), "OnDelete");

        let mut copy = servers("StatefulSet", 1);
        copy["metadata"] = json!({"name": "copy", "labels": {"pitstop.dev/parked": "3"}});
        copy["spec"]["updateStrategy"] = json!({"rollingUpdate": {"partition": i32::MAX}});
        copy["spec"]["template"]["metadata"]["labels"] = json!({"app": "copy"});
        copy["spec"]["selector"]["matchLabels"] = json!({"app": "copy"});
        create(ns, &copy)?;
        let path =
            "jsonpath={.metadata.labels.pitstop\\.dev/parked} {.spec.updateStrategy.rollingUpdate.partition}";
        let stored = ns.kubectl(&["get", "statefulset/copy", "-o", path])?;
        ensure!(stored.trim() == "3", "{stored}");
        // Users do not arm rollouts by hand.
        ns.kubectl(&["label", "ipr", "web", "pitstop.dev/armed-"])?;
        let armed =
            ns.kubectl(&["get", "ipr", "web", "-o", "jsonpath={.metadata.labels.pitstop\\.dev/armed}"])?;
        ensure!(armed == "true", "{armed}");
        Ok(())
    };
    on_cluster(async |ns| with_parking(ns, test(ns)).await)
}
