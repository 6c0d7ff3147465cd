//! Whole workloads are restarted in place, beside their own controllers.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::DeleteParams;
use pitstop_e2e::system;
use pitstop_e2e::workloads::{
    all, assert_all_restarted, create, get, is_rolled_out, no_requests_left, ready, restarted, rollout,
    rolls_natively, until_reason, workload,
};
use pitstop_e2e::{
    Context as _, LONG, Ns, Result, SHORT, bail, ensure, on_cluster, on_shared_cluster, pods, until,
};
use serde_json::json;

/// For each kind: every Pod is restarted once and kept, and the workload's own controller has nothing to do.
async fn restarts_in_place(ns: &Ns, kind: &str, count: u32) -> Result<()> {
    create(ns, &workload(kind, count))?;
    let before = ready(ns, usize::try_from(count)?).await?;
    let resource = format!("{}/web", kind.to_lowercase());
    let generation = || ns.kubectl(&["get", &resource, "-o", "jsonpath={.metadata.generation}"]);
    let untouched = generation()?;
    create(ns, &rollout(kind, &json!({"strategy": {"soakSeconds": 1, "maxUnavailable": 2}})))?;
    until_reason(ns, "NothingRequested").await?;

    let patch = "{\"spec\":{\"restartedAt\":\"2026-11-26T10:00:00Z\"}}";
    ns.kubectl(&["patch", "ipr", "web", "--type=merge", "-p", patch])?;
    let over = restarted(ns, "2026-11-26T10:00:00Z").await?.status.context("no status")?;
    let count = i32::try_from(count)?;
    ensure!((over.pods, over.current, over.failed) == (count, count, 0), "{over:?}");
    let after = all(ns).await?;
    assert_all_restarted(&before, &after, "app")?;
    assert_all_restarted(&before, &after, "sidecar")?;
    ensure!(generation()? == untouched, "the workload was changed");
    is_rolled_out(ns, &resource)?;
    no_requests_left(ns).await?;

    // A change of the template still goes the native way.
    ns.kubectl(&["set", "env", &resource, "NEW=1"])?;
    rolls_natively(ns, &resource, &after).await
}

#[test]
fn a_deployment_restarts_in_place() -> Result<()> {
    on_shared_cluster(async |ns| restarts_in_place(ns, "Deployment", 4).await)
}

#[test]
fn a_stateful_set_restarts_in_place() -> Result<()> {
    on_shared_cluster(async |ns| restarts_in_place(ns, "StatefulSet", 3).await)
}

#[test]
fn a_daemon_set_restarts_in_place() -> Result<()> {
    on_shared_cluster(async |ns| restarts_in_place(ns, "DaemonSet", 1).await)
}

/// A Pod that is created during a restart is new anyway.
#[test]
fn a_pod_that_is_made_during_a_restart_is_left_alone() -> Result<()> {
    on_shared_cluster(async |ns| {
        create(ns, &workload("Deployment", 3))?;
        let before = ready(ns, 3).await?;
        let strategy = json!({"soakSeconds": 2, "maxUnavailable": 1});
        create(ns, &rollout("Deployment", &json!({"strategy": strategy, "restartedAt": "one"})))?;
        until_reason(ns, "Restarting").await?;
        // Creation times have whole seconds.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let gone = before.keys().next_back().context("no Pod")?;
        ns.pods().delete(gone, &DeleteParams::default()).await?;
        ns.kubectl(&["scale", "deployment/web", "--replicas=4"])?;
        restarted(ns, "one").await?;
        let after = ready(ns, 4).await?;
        for (name, pod) in &after {
            match before.get(name) {
                Some(old) => pods::assert_restarted_once(old, pod, "app")?,
                None => ensure!(pods::restarts(pod, "app")? == 0, "{name} was restarted"),
            }
        }
        ensure!(after.len() == 4 && after.keys().filter(|name| before.contains_key(*name)).count() == 2);
        Ok(())
    })
}

/// A container that does not come up again stops the rollout, and the other Pods are not touched.
#[test]
fn a_canary_that_fails_spares_the_others() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut object = workload("StatefulSet", 3);
        // Its first instance runs; every later one ends at once.
        let script = "[ -e /kept/ran ] && exit 1; touch /kept/ran; trap 'exit 0' TERM; sleep 100000 & wait";
        let mut app = pods::shell("app", script);
        app["volumeMounts"] = json!([{"name": "kept", "mountPath": "/kept"}]);
        object["spec"]["template"]["spec"]["containers"] = json!([app]);
        object["spec"]["template"]["spec"]["volumes"] = json!([{"name": "kept", "emptyDir": {}}]);
        create(ns, &object)?;
        let before = ready(ns, 3).await?;
        let strategy = json!({"canary": {"pods": 1, "soakSeconds": 5}, "maxUnavailable": 3});
        create(
            ns,
            &rollout(
                "StatefulSet",
                &json!({"strategy": strategy, "restartedAt": "one", "progressDeadlineSeconds": 15}),
            ),
        )?;
        let stalled = until_reason(ns, "ProgressDeadlineExceeded").await?.status.context("no status")?;
        ensure!((stalled.pods, stalled.current, stalled.started) == (3, 0, 1), "{stalled:?}");
        let after = all(ns).await?;
        for name in ["web-0", "web-1"] {
            let (old, new) = (before.get(name).context("no Pod")?, after.get(name).context("no Pod")?);
            pods::assert_untouched(old, new, "app")?;
        }
        stalled.pods_of_interest.first().context("no Pod is named")?;
        ns.kubectl(&["delete", "ipr", "web"])?;
        no_requests_left(ns).await
    })
}

#[test]
fn a_disruption_budget_holds_a_restart_back() -> Result<()> {
    on_shared_cluster(async |ns| {
        create(ns, &workload("Deployment", 3))?;
        let before = ready(ns, 3).await?;
        create(
            ns,
            &json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"},
                "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}}),
        )?;
        let strategy = json!({"soakSeconds": 1, "maxUnavailable": 3});
        create(ns, &rollout("Deployment", &json!({"strategy": strategy, "restartedAt": "one"})))?;
        until_reason(ns, "DisruptionBudget").await?;
        for (name, pod) in all(ns).await? {
            pods::assert_untouched(before.get(&name).context("a new Pod")?, &pod, "app")?;
        }
        ns.kubectl(&["patch", "pdb", "all", "--type=merge", "-p", "{\"spec\":{\"minAvailable\":2}}"])?;
        restarted(ns, "one").await?;
        assert_all_restarted(&before, &all(ns).await?, "app")
    })
}

#[test]
fn what_cannot_be_restarted_says_why() -> Result<()> {
    on_shared_cluster(async |ns| {
        create(ns, &rollout("Deployment", &json!({"restartedAt": "one"})))?;
        until_reason(ns, "TargetNotFound").await?;
        let mut object = workload("Deployment", 1);
        object["spec"]["strategy"] = json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
        create(ns, &object)?;
        until_reason(ns, "NeedsUnavailability").await?;
        let mut second = rollout("Deployment", &json!({"restartedAt": "one"}));
        second["metadata"]["name"] = json!("second");
        create(ns, &second)?;
        ns.kubectl(&[
            "wait",
            "ipr/second",
            "--for=jsonpath={.status.conditions[?(@.type==\"Complete\")].reason}=Conflict",
            "--timeout=30s",
        ])?;
        ns.kubectl(&[
            "patch",
            "ipr",
            "web",
            "--type=merge",
            "-p",
            "{\"spec\":{\"strategy\":{\"maxUnavailable\":1,\"soakSeconds\":0}}}",
        ])?;
        restarted(ns, "one").await?;
        for (spec, text) in [
            (json!({"strategy": {"maxUnavailable": 0}}), "spec.strategy.maxUnavailable"),
            (json!({"strategy": {"maxUnavailable": "0%"}}), "spec.strategy.maxUnavailable"),
            (json!({"strategy": {"canary": {"pods": 0}}}), "spec.strategy.canary.pods"),
            (json!({"templateChanges": "Surge"}), "Unsupported value: \"Surge\""),
            (json!({"restartedAt": ""}), "spec.restartedAt"),
            (json!({"restart": {"containers": ["a", "a"]}}), "Duplicate value"),
        ] {
            let mut wrong = rollout("Deployment", &spec);
            wrong["metadata"]["name"] = json!("wrong");
            match create(ns, &wrong) {
                Ok(()) => bail!("{spec} is accepted"),
                Err(error) => ensure!(format!("{error:#}").contains(text), "{error:#}"),
            }
        }
        let other = "{\"spec\":{\"targetRef\":{\"name\":\"other\"}}}";
        let error =
            ns.kubectl(&["patch", "ipr", "web", "--type=merge", "-p", other]).err().context("changed")?;
        ensure!(format!("{error:#}").contains("spec.targetRef is immutable"), "{error:#}");
        Ok(())
    })
}

/// A user who creates a rollout could also restart the workload by its template.
#[test]
fn a_rollout_takes_the_right_to_patch_its_workload() -> Result<()> {
    on_shared_cluster(async |ns| {
        let role = "--verb=create,get,patch,update";
        ns.kubectl(&["create", "role", "rollouts", role, "--resource=inplacerollouts.pitstop.dev"])?;
        ns.kubectl(&["create", "rolebinding", "rollouts", "--role=rollouts", "--user=ron"])?;
        let object = rollout("StatefulSet", &json!({"restartedAt": "one"})).to_string();
        let as_ron = ["--as=ron", "--namespace", &ns.name, "create", "--dry-run=server", "-f", "-"];
        until("ron to be asked for his right", SHORT, async || {
            let error = ns.cluster.kubectl_with(&as_ron, &object).err().context("allowed")?;
            let text = format!("{error:#}");
            ensure!(
                text.contains("needs the right to patch that StatefulSet, which ron does not have"),
                "{text}"
            );
            Ok(Some(()))
        })
        .await?;
        ns.kubectl(&["create", "rolebinding", "edit", "--clusterrole=edit", "--user=ron"])?;
        until("ron to be allowed", SHORT, async || ns.cluster.kubectl_with(&as_ron, &object).map(Some))
            .await?;
        Ok(())
    })
}

/// The leader is killed repeatedly, but each Pod is restarted only once.
#[test]
fn a_restart_goes_on_after_the_controller_was_killed() -> Result<()> {
    on_cluster(async |ns| {
        create(ns, &workload("Deployment", 5))?;
        let before = ready(ns, 5).await?;
        create(
            ns,
            &rollout(
                "Deployment",
                &json!({"restartedAt": "one", "strategy": {"soakSeconds": 2, "maxUnavailable": 1}}),
            ),
        )?;
        until_reason(ns, "Restarting").await?;
        for _ in 0..2 {
            let current = get(ns).await?.status.unwrap_or_default().current;
            system::kill_9(&[system::leader(&ns.cluster).await?])?;
            until("the restart to go on", LONG, async || {
                let status = get(ns).await?.status.unwrap_or_default();
                Ok((status.current > current || status.restarted_at.is_some()).then_some(()))
            })
            .await?;
        }
        restarted(ns, "one").await?;
        assert_all_restarted(&before, &all(ns).await?, "app")?;
        let deployments: Api<Deployment> = Api::namespaced(ns.cluster.client.clone(), &ns.name);
        let generation = deployments.get("web").await?.metadata.generation;
        ensure!(generation == Some(1), "the Deployment was changed: {generation:?}");
        no_requests_left(ns).await?;
        system::healthy(&ns.cluster).await
    })
}
