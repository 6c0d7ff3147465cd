//! The fields of `spec.strategy`, with the set-ups and bounds of OpenKruise's own cases.

use k8s_openapi::api::core::v1::Pod;
use pitstop_e2e::{Context, Ns, Result, on_cluster, pods, requests};
use serde_json::{Value, json};

/// Seconds that `app` takes to start: Kubernetes counts it as running only after its postStart hook.
const POST_START: i64 = 5;

/// A Pod whose `app` starts slowly.
fn slow_to_start() -> Value {
    let mut app = pods::web("app");
    app["lifecycle"] = json!({"postStart": {"exec": {"command": ["sleep", POST_START.to_string()]}}});
    pods::pod("web", &[app, pods::idle("sidecar")])
}

async fn restart(ns: &Ns, pod: Value, containers: &[&str], strategy: Value) -> Result<(Pod, Pod)> {
    let before = ns.start_pod(pod).await?;
    let mut spec = requests::plain("web", containers);
    spec["strategy"] = strategy;
    let created = ns.create(requests::with_spec("strategy", &spec)).await?;
    let over = ns.over("strategy").await?;
    let succeeded: Vec<_> = containers.iter().map(|name| requests::succeeded(name)).collect();
    assert_eq!(requests::states(&over), succeeded);
    let after = ns.pod("web").await?;
    for name in containers {
        pods::assert_restarted_once(&before, &after, name)?;
    }
    ns.settled(&created).await?;
    Ok((before, after))
}

/// When the instance that was restarted had ended, in seconds; both times of a comparison are the same node's.
fn ended(pod: &Pod, container: &str) -> Result<i64> {
    let time = pods::last_end(pod, container)?.finished_at.context("no finishedAt")?;
    Ok(pitstop_kit::time::from_time(&time).timestamp())
}

#[test]
fn unordered_does_not_wait_for_the_start() -> Result<()> {
    on_cluster(async |ns| {
        let (_, after) = restart(ns, slow_to_start(), &["app", "sidecar"], json!({})).await?;
        let apart = ended(&after, "sidecar")? - ended(&after, "app")?;
        assert!(apart < 3, "sidecar ended {apart} s after app");
        Ok(())
    })
}

#[test]
fn ordered_waits_for_the_success_of_the_one_before() -> Result<()> {
    on_cluster(async |ns| {
        let strategy = json!({"orderedRecreate": true});
        let (_, after) = restart(ns, slow_to_start(), &["app", "sidecar"], strategy).await?;
        let apart = ended(&after, "sidecar")? - ended(&after, "app")?;
        assert!(apart >= POST_START, "sidecar ended {apart} s after app");
        Ok(())
    })
}

#[test]
fn force_restarts_exactly_once() -> Result<()> {
    on_cluster(async |ns| {
        restart(ns, pods::app("web"), &["app", "sidecar"], json!({"forceRecreate": true})).await?;
        Ok(())
    })
}

#[test]
fn min_started_is_waited_for() -> Result<()> {
    on_cluster(async |ns| {
        let strategy = json!({"minStartedSeconds": 5});
        let (_, after) = restart(ns, pods::app("web"), &["app"], strategy).await?;
        let state = pods::status(&after, "app")?.state.clone().context("no state")?;
        let started = state.running.and_then(|r| r.started_at).context("app does not run")?;
        let over =
            ns.request("strategy").await?.status.and_then(|s| s.completion_time).context("not over")?;
        let ran = (over - pitstop_kit::time::from_time(&started)).num_seconds();
        assert!(ran > 4, "over {ran} s after the start");
        Ok(())
    })
}
