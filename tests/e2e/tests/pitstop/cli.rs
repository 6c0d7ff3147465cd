//! `kubectl pitstop`, as people run it.

use k8s_openapi::api::core::v1::Pod;
use pitstop_e2e::terminal::{Said, good, run};
use pitstop_e2e::workloads::{all, assert_all_restarted, create, get, ready, rollout, workload};
use pitstop_e2e::{Context as _, Ns, Result, ensure, on_shared_cluster, pods};
use serde_json::{Value, json};

/// A Pod `web` of two containers.
async fn web(ns: &Ns) -> Result<Pod> {
    ns.start_pod(pods::pod("web", &[pods::web("app"), pods::idle("sidecar")])).await
}

fn refused(ns: &Ns, args: &[&str], told: &[&str]) -> Result<()> {
    let Said { code, out, err } = run(ns, args)?;
    ensure!(code == 1 && out.is_empty(), "{args:?} ended with code {code}: {out}{err}");
    for told in told {
        ensure!(err.contains(told), "{args:?} does not tell {told:?}: {err}");
    }
    Ok(())
}

#[test]
fn one_container_is_restarted_and_waited_for() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = web(ns).await?;
        let out = good(ns, &["restart", "pod/web", "-c", "app", "--wait", "--timeout=90s"])?;
        ensure!(out.contains("containerrecreaterequest.apps.kruise.io/web-"), "{out}");
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "sidecar")
    })
}

#[test]
fn what_is_waited_for_says_how_it_ended_by_the_exit_code() -> Result<()> {
    on_shared_cluster(async |ns| {
        let stubborn = pods::pod("web", &[pods::stubborn("app")]);
        ns.start_pod(stubborn).await?;
        let made = good(ns, &["restart", "pod/web", "--grace=30s", "--mechanism=Runtime", "-o", "name"])?;
        let request = made.trim().rsplit_once('/').context("no name")?.1.to_owned();
        let name = format!("crr/{request}");
        let Said { code, err, .. } = run(ns, &["wait", &name, "--timeout=1s"])?;
        ensure!(code == 2, "{code}: {err}");
        // A second one for the same Pod ends by its own deadline.
        let made = good(ns, &["restart", "pod/web", "--deadline=3s", "-o", "name"])?;
        let late = format!("crr/{}", made.trim().rsplit_once('/').context("no name")?.1);
        let Said { code, out, err } = run(ns, &["wait", &late, "--timeout=60s"])?;
        ensure!(code == 1 && format!("{out}{err}").contains("DeadlineExceeded"), "{code}: {out}{err}");
        let Said { code, out, err } = run(ns, &["wait", &name, "--timeout=90s"])?;
        ensure!(code == 0, "{code}: {out}{err}");
        Ok(())
    })
}

#[test]
fn a_workload_is_restarted_without_an_opt_in_and_is_not_parked() -> Result<()> {
    on_shared_cluster(async |ns| {
        create(ns, &workload("Deployment", 3))?;
        let before = ready(ns, 3).await?;
        good(ns, &["restart", "deploy/web", "-c", "app", "--wait", "--timeout=120s"])?;
        let after = all(ns).await?;
        assert_all_restarted(&before, &after, "app")?;
        let labels = ns.kubectl(&["get", "deployment/web", "-o", "jsonpath={.metadata.labels}"])?;
        ensure!(!labels.contains("pitstop.dev/parked"), "{labels}");
        // Once more: the same object gets a new value.
        let first = get(ns).await?.spec.restarted_at;
        good(ns, &["restart", "deploy/web", "-c", "app", "--wait", "--timeout=120s"])?;
        ensure!(get(ns).await?.spec.restarted_at != first);
        Ok(())
    })
}

#[test]
fn what_cannot_be_is_refused_with_what_would_be_right() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = web(ns).await?;
        refused(ns, &["restart", "pod/web", "-c", "ap"], &["app", "sidecar"])?;
        refused(ns, &["restart", "pod/web"], &["app", "sidecar", "-c"])?;
        refused(ns, &["restart", "pod/none", "-c", "app"], &["Error from server (NotFound)", "none"])?;
        refused(ns, &["restart", "node/web"], &["no type that pitstop services"])?;
        refused(ns, &["--context=none", "status"], &["none"])?;
        let dry = good(ns, &["restart", "pod/web", "-c", "app", "--dry-run=server", "-o", "json"])?;
        let dry: Value = serde_json::from_str(&dry)?;
        // The webhook or the API server has filled it in.
        ensure!(dry["kind"] == "ContainerRecreateRequest" && dry["spec"]["podName"] == "web", "{dry}");
        let kept = ns.kubectl(&["get", "crr", "-o", "name"])?;
        ensure!(kept.is_empty(), "a dry run has made {kept}");
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")
    })
}

#[test]
fn a_rollout_is_paused_and_goes_on() -> Result<()> {
    on_shared_cluster(async |ns| {
        create(ns, &workload("Deployment", 2))?;
        ready(ns, 2).await?;
        create(ns, &rollout("Deployment", &json!({"strategy": {"soakSeconds": 1}})))?;
        good(ns, &["pause", "deploy/web"])?;
        ensure!(get(ns).await?.spec.paused);
        good(ns, &["resume", "deploy/web"])?;
        ensure!(!get(ns).await?.spec.paused);
        Ok(())
    })
}
