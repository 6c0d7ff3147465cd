//! What kubelets before 1.37 do not resize for a container that does not run (kubernetes#138760).

use pitstop_api::condition;
use pitstop_api::nodework::NodeWork;
use pitstop_api::resize::conditions;
use pitstop_e2e::ns::NODE;
use pitstop_e2e::{LONG, Ns, ensure};

use super::beside::with_daemons;
use super::*;

/// A Pod that takes 100 MB when it runs, with a limit of 32 MiB.
fn starved() -> Value {
    let little =
        json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "32Mi"}});
    pods::pod("web", &[sized(pods::shell("app", "sleep 1; exec tail -c 100000000 /dev/zero"), &little)])
}

/// A Pod whose container fails twice, and runs from the third start on.
fn failing() -> Value {
    let script = "n=$(cat /data/n || echo 0); echo $((n + 1)) > /data/n; [ $n -lt 2 ] && sleep 1 && exit 1; \
                  trap 'exit 0' TERM; sleep 100000 & wait";
    let mut app = sized(pods::shell("app", script), &usual());
    app["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let mut pod = pods::pod("web", &[app]);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod
}

/// Waits until the container has ended twice, and does not run.
async fn ended_twice(ns: &Ns) -> Result<()> {
    until("the container to end twice", LONG, async || {
        let pod = ns.pod("web").await?;
        let Ok(status) = pods::status(&pod, "app") else { return Ok(None) };
        let runs = status.state.as_ref().is_some_and(|state| state.running.is_some());
        Ok((status.restart_count >= 1 && !runs).then_some(()))
    })
    .await
}

/// Waits until the message of the condition `Complete` contains `words`.
async fn until_message(ns: &Ns, name: &str, words: &str) -> Result<()> {
    until(&format!("{name} to say {words:?}"), LONG, async || {
        let status = api(ns).get(name).await?.status.unwrap_or_default();
        let complete = condition::find(&status.conditions, conditions::COMPLETE).cloned();
        Ok(complete.is_some_and(|c| c.message.contains(words)).then_some(()))
    })
    .await
}

/// Waits until the order book has no order and no held Pod.
async fn forgotten(ns: &Ns) -> Result<()> {
    until("the node's book to be empty", SHORT, async || {
        let book = kube::Api::<NodeWork>::all(ns.cluster.client.clone()).get(NODE).await?;
        let held = book.status.unwrap_or_default().held;
        Ok((held.is_empty() && book.spec.orders.is_empty()).then_some(()))
    })
    .await
}

/// Without any right on the node: a resize by one byte and back makes the kubelet write the Pod's cgroup.
#[test]
fn a_pod_that_stays_too_small_while_it_runs_is_repaired_by_default() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.create_pod(failing()).await?;
        ended_twice(ns).await?;
        let before = ns.pod("web").await?;
        create(ns, resize("more", "app", &json!({"limits": {"memory": "256Mi"}}))).await?;
        assert_verified(&ends(ns, "more", Phase::Succeeded, "Resized").await?)?;
        let pod = ns.ready("web").await?;
        let found = kernel(&pod, "app")?;
        ensure!(found == [(20_000, 256 * MI); 2], "{found:?}");
        let changes = pod.metadata.generation.zip(before.metadata.generation).map(|(to, from)| to - from);
        let expected = if ns.cluster.leaves_pods_too_small() { 3 } else { 1 };
        ensure!(changes == Some(expected), "the resize, and the step and the way back: {changes:?}");
        let (request, limit) =
            (spec_amount(&pod, "app", "requests", "memory")?, spec_amount(&pod, "app", "limits", "memory")?);
        ensure!((&*request, &*limit) == ("64Mi", "256Mi"), "{request} to {limit}");
        let restarts = pods::restarts(&pod, "app")?;
        ensure!(restarts == 2, "{restarts} restarts: the step restarts nothing");
        forgotten(ns).await
    })
}

#[test]
fn what_is_killed_in_a_pod_that_stays_too_small_is_repaired() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.create_pod(starved()).await?;
        ended_twice(ns).await?;
        let enough = json!({"requests": {"memory": "256Mi"}, "limits": {"memory": "256Mi"}});
        create(ns, resize("rescue", "app", &enough)).await?;
        if !ns.cluster.leaves_pods_too_small() {
            assert_verified(&ends(ns, "rescue", Phase::Succeeded, "Resized").await?)?;
            let found = kernel(&ns.ready("web").await?, "app")?;
            ensure!(found == [(20_000, 256 * MI); 2], "{found:?}");
            return forgotten(ns).await;
        }
        until_message(ns, "rescue", "with deploy/components/resize-cri, the node's daemon repairs it")
            .await?;
        with_daemons(ns, async || {
            let status = ends(ns, "rescue", Phase::Succeeded, "Resized").await?;
            assert_verified(&status)?;
            let pod = ns.ready("web").await?;
            let found = kernel(&pod, "app")?;
            ensure!(found == [(20_000, 256 * MI); 2], "{found:?}");
            let restarts = pods::restarts(&pod, "app")?;
            forgotten(ns).await?;

            // The other symptom: on cgroup v1 the container cannot even be created.
            ns.kubectl(&["delete", "pod", "web", "--grace-period=1"])?;
            ensure!(restarts > 1, "it was never killed");
            ns.create_pod(failing()).await?;
            ended_twice(ns).await?;
            create(ns, resize("more", "app", &json!({"limits": {"cpu": "400m"}}))).await?;
            until_message(ns, "more", "the node's daemon has repaired the Pod's cgroup").await?;
            assert_verified(&ends(ns, "more", Phase::Succeeded, "Resized").await?)?;
            let pod = ns.ready("web").await?;
            let found = kernel(&pod, "app")?;
            ensure!(found == [(40_000, 128 * MI); 2], "{found:?}");
            forgotten(ns).await
        })
        .await
    })
}
