//! Pods without an owner, which a rollout selects by their labels.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use pitstop_e2e::images::{REPOSITORY, server, with_workloads};
use pitstop_e2e::workloads::{all, create, get, merged, no_requests_left, ready, restarted, until_reason};
use pitstop_e2e::{Context as _, Ns, Result, SHORT, ensure, on_cluster, on_shared_cluster, pods, until};
use serde_json::{Value, json};

use crate::updates::images;

/// A Pod of two servers, with that label.
fn bare(name: &str, app: &str) -> Value {
    let mut servers = [server("app", 8080), server("other", 8081)];
    servers[0]["resources"] = json!({"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}});
    let pod = pods::pod(name, &servers);
    let labels = json!({"labels": {"app": app}});
    merged(pod.clone(), &json!({"metadata": merged(pod["metadata"].clone(), &labels)}))
}

fn selects(more: &Value) -> Value {
    let spec = merged(json!({"selector": {"matchLabels": {"app": "web"}}}), more);
    json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout", "metadata": {"name": "web"}, "spec": spec})
}

async fn made(ns: &Ns) -> Result<BTreeMap<String, Pod>> {
    for name in ["one", "two", "three"] {
        create(ns, &bare(name, "web"))?;
    }
    create(ns, &bare("stranger", "db"))?;
    ready(ns, 3).await
}

fn cpu(pod: &Pod) -> Option<String> {
    let resources = pod.spec.as_ref()?.containers.first()?.resources.as_ref()?;
    Some(resources.requests.as_ref()?.get("cpu")?.0.clone())
}

/// Selected Pods get images, resources and a restart, also those that are created later.
#[test]
fn selected_pods_get_what_the_rollout_says() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = made(ns).await?;
        let here = format!("--namespace={}", ns.name);
        let image = format!("{REPOSITORY}:2");
        let names = [("--namespace=train", &*here), ("registry.example.com/train/worker:v2", &*image)];
        ns.cluster.documented("update-by-labels", &names)?;
        let after = all(ns).await?;
        for (name, pod) in &after {
            let old = before.get(name).context("a new Pod")?;
            pods::assert_restarted_once(old, pod, "app")?;
            pods::assert_untouched(old, pod, "other")?;
            ensure!(cpu(pod).as_deref() == Some("20m"), "{name}: {:?}", cpu(pod));
        }
        images(ns, "2").await?;
        let stranger = ns.pods().get("stranger").await?;
        ensure!(pods::restarts(&stranger, "app")? == 0, "a Pod of other labels was updated");
        no_requests_left(ns).await?;

        // A manual change stays, and a Pod that is created later gets the rollout's values.
        let resize = r#"{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"15m"}}}]}}"#;
        ns.kubectl(&["patch", "pod", "one", "--subresource=resize", "-p", resize])?;
        create(ns, &bare("four", "web"))?;
        until("the new Pod to be updated", SHORT, async || {
            let four = ns.pods().get("four").await?;
            Ok(Some(()).filter(|()| cpu(&four).as_deref() == Some("20m") && pods::is_ready(&four)))
        })
        .await?;
        until_reason(ns, "Updated").await?;
        images(ns, "2").await?;
        let one = ns.pods().get("one").await?;
        ensure!(cpu(&one).as_deref() == Some("15m"), "{:?}", cpu(&one));

        let before = ready(ns, 4).await?;
        ns.kubectl(&["patch", "ipr", "web", "--type=merge", "-p", r#"{"spec":{"restartedAt":"one"}}"#])?;
        restarted(ns, "one").await?;
        for (name, pod) in &all(ns).await? {
            let old = before.get(name).context("a new Pod")?;
            pods::assert_restarted_once(old, pod, "app")?;
            pods::assert_restarted_once(old, pod, "other")?;
        }
        Ok(())
    };
    on_cluster(async |ns| with_workloads(ns, Box::pin(test(ns))).await)
}

/// Neither a missing image nor one of another repository stops a container. Pods may be deleted meanwhile.
#[test]
fn what_selected_pods_cannot_get_stops_nothing() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = made(ns).await?;
        let image = |image: &str| json!({"images": [{"name": "app", "image": image}], "strategy": {"soakSeconds": 0}});
        create(ns, &selects(&image(&format!("{REPOSITORY}:none"))))?;
        let status = until_reason(ns, "PodsFailed").await?.status.context("no status")?;
        ensure!(status.pods_of_interest.iter().any(|pod| pod.message.contains("not found")), "{status:?}");
        let other = json!({"spec": image("pitstop.dev/test/other:2")}).to_string();
        ns.kubectl(&["patch", "ipr", "web", "--type=merge", "-p", &other])?;
        until("the other repository to be refused", SHORT, async || {
            let status = get(ns).await?.status.unwrap_or_default();
            let refused = |message: &str| message.contains("another repository");
            Ok(Some(()).filter(|()| status.pods_of_interest.iter().any(|pod| refused(&pod.message))))
        })
        .await?;
        for (name, pod) in &all(ns).await? {
            pods::assert_untouched(before.get(name).context("a new Pod")?, pod, "app")?;
        }
        ns.pods().delete("three", &DeleteParams::default()).await?;
        let good = json!({"spec": image(&format!("{REPOSITORY}:2"))}).to_string();
        ns.kubectl(&["patch", "ipr", "web", "--type=merge", "-p", &good])?;
        until_reason(ns, "Updated").await?;
        // The rollout does not wait for a Pod that is being deleted.
        ready(ns, 2).await?;
        images(ns, "2").await
    };
    on_cluster(async |ns| with_workloads(ns, test(ns)).await)
}

/// The API server refuses invalid specs, and requires the rights to do the same by hand.
#[test]
fn what_a_selector_cannot_have_is_refused() -> Result<()> {
    on_shared_cluster(async |ns| {
        let args = ["--namespace", &ns.name, "create", "--dry-run=server", "-f", "-"];
        let refused = |object: &Value, why: &str| {
            let error = ns.cluster.kubectl_with(&args, &object.to_string()).err().context("it is taken")?;
            ensure!(format!("{error:#}").contains(why), "{error:#}");
            Ok(())
        };
        let image = json!([{"name": "app", "image": "web:2"}]);
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        refused(&selects(&json!({"targetRef": target})), "spec must have one of targetRef and selector")?;
        refused(&selects(&json!({"templateChanges": "InPlace"})), "spec.templateChanges must be Native")?;
        refused(&selects(&json!({"strategy": {"onFailure": "RollBack"}})), "spec.strategy.onFailure Pause")?;
        refused(&selects(&json!({"selector": {"matchLabels": {}}})), "at least 1 propert")?;
        refused(&selects(&json!({"selector": {"matchLabels": {"a": "b,c"}}})), "should match")?;
        let mut native = selects(&json!({"images": image}));
        native["spec"]["targetRef"] = target;
        native["spec"].as_object_mut().context("no spec")?.remove("selector");
        refused(&native, "spec.images and spec.resources are for spec.selector")?;

        let role = "--verb=create,get,patch,update";
        ns.kubectl(&["create", "role", "rollouts", role, "--resource=inplacerollouts.pitstop.dev"])?;
        ns.kubectl(&["create", "rolebinding", "rollouts", "--role=rollouts", "--user=sue"])?;
        let as_sue = ["--as=sue", "--namespace", &ns.name, "create", "--dry-run=server", "-f", "-"];
        let asked = async |object: &Value, why: &str| {
            until("sue to be asked for her right", SHORT, async || {
                let error = ns.cluster.kubectl_with(&as_sue, &object.to_string()).err().context("allowed")?;
                ensure!(format!("{error:#}").contains(why), "{error:#}");
                Ok(Some(()))
            })
            .await
        };
        asked(&selects(&json!({"images": image})), "needs the right to patch all pods of namespace").await?;
        ns.kubectl(&["create", "rolebinding", "edit", "--clusterrole=edit", "--user=sue"])?;
        let amounts = json!([{"name": "app", "resources": {"requests": {"cpu": "1"}}}]);
        asked(&selects(&json!({"resources": amounts})), "needs the right to patch pods/resize").await?;
        until("sue to be allowed", SHORT, async || {
            ns.cluster.kubectl_with(&as_sue, &selects(&json!({"images": image})).to_string()).map(Some)
        })
        .await?;
        Ok(())
    })
}
