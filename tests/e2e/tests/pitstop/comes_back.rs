//! Whether a stopped container restarts: by its Pod's policy, its own policy, and the kubelet's back-off.

use std::time::{Instant, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::{Context, LONG, Ns, Result, SHORT, ensure, on_shared_cluster, pods, requests, until};
use serde_json::{Value, json};

fn with_strategy(name: &str, strategy: Value) -> Value {
    let mut spec = requests::plain("web", &["app"]);
    spec["strategy"] = strategy;
    requests::with_spec(name, &spec)
}

/// The image string that made the kubelet restart a container; None if the runtime stopped it.
fn pin<'a>(request: &'a ContainerRecreateRequest, container: &str) -> Option<&'a str> {
    let target = request.status.as_ref()?.target.as_ref()?;
    target.containers.iter().find(|c| c.name == container)?.pin.as_ref().map(|pin| pin.image.as_str())
}

/// A Pod with that policy, whose container `app` exits 0 on SIGTERM.
fn pod(policy: &str, own: Option<&str>, rules: &Value) -> Value {
    let mut app = pods::idle("app");
    if let Some(own) = own {
        app["restartPolicy"] = json!(own);
        app["restartPolicyRules"] = rules.clone();
    }
    let mut pod = pods::pod("web", &[app, pods::idle("sidecar")]);
    pod["spec"]["restartPolicy"] = json!(policy);
    pod
}

async fn restarted(ns: &Ns, name: &str, before: &Pod) -> Result<ContainerRecreateRequest> {
    let over = ns.over(name).await?;
    assert_eq!(requests::states(&over), [requests::succeeded("app")], "{name}");
    let after = ns.pod("web").await?;
    pods::assert_restarted_once(before, &after, "app")?;
    pods::assert_untouched(before, &after, "sidecar")?;
    Ok(over)
}

/// A container with policy `Never` in a Pod with `Always` (Kubernetes 1.35 and later).
#[test]
fn a_container_that_never_comes_back_goes_through_the_kubelet() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pod("Always", Some("Never"), &json!([]))).await?;
        let refused = ns.try_create(with_strategy("stop", json!({"mechanism": "Runtime"}))).await?;
        let (code, message) = refused.err().context("a stop that nothing undoes is not refused")?;
        assert_eq!(code, 400);
        assert!(message.contains("the container's restartPolicy is Never"), "{message}");
        ns.create(requests::recreate("auto", "web", &["app"])).await?;
        let over = restarted(ns, "auto", &before).await?;
        ensure!(pin(&over, "app").is_some(), "it was not the kubelet");
        Ok(())
    })
}

/// Containers that restart by their own policy, or by rules for every code, in a Pod with `Never`.
#[test]
fn a_container_that_comes_back_by_its_own_policy_is_stopped_by_the_runtime() -> Result<()> {
    on_shared_cluster(async |ns| {
        let every = json!([
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [0]}},
            {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}},
        ]);
        for (name, own, rules) in [("always", "Always", json!([])), ("ruled", "Never", every)] {
            let before = ns.start_pod(pod("Never", Some(own), &rules)).await?;
            ns.create(requests::recreate(name, "web", &["app"])).await?;
            let over = restarted(ns, name, &before).await?;
            ensure!(pin(&over, "app").is_none(), "{name}: it was not the runtime");
            ns.pods().delete("web", &kube::api::DeleteParams::default().grace_period(0)).await?;
            until("the Pod to be gone", SHORT, async || {
                Ok(ns.pods().get_opt("web").await?.is_none().then_some(()))
            })
            .await?;
        }
        Ok(())
    })
}

/// A program that exits 0 on SIGTERM would complete its Pod.
#[test]
fn a_restart_does_not_complete_a_pod_on_failure() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pod("OnFailure", None, &json!([]))).await?;
        ns.create(requests::recreate("auto", "web", &["app"])).await?;
        let over = restarted(ns, "auto", &before).await?;
        ensure!(pin(&over, "app").is_some(), "it was not the kubelet");
        let after = ns.pod("web").await?;
        assert_eq!(after.status.and_then(|s| s.phase).as_deref(), Some("Running"));
        Ok(())
    })
}

/// A request for mechanism `Runtime` gets it, and reports the result.
#[test]
fn a_stop_that_completes_a_container_is_told() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(pod("OnFailure", None, &json!([]))).await?;
        ns.create(with_strategy("stop", json!({"mechanism": "Runtime"}))).await?;
        let over = ns.over("stop").await?;
        let [state] = requests::states(&over) else { panic!("{over:?}") };
        let expected = "container app ended with exit code 0 and restartPolicy is OnFailure";
        assert!(state.message.starts_with(expected), "{}", state.message);
        Ok(())
    })
}

/// `app` fails until the file `/data/go` exists, which the sidecar can create.
fn failing() -> Value {
    let script = "trap 'exit 0' TERM; [ -e /data/go ] || exit 1; sleep 100000 & wait";
    let mut pod = pods::pod("web", &[pods::shell("app", script), pods::idle("sidecar")]);
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    }
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod
}

/// Waits for a back-off of which at least 15 s remain. It is 10 s after the second end, then doubles each time. The
/// kubelet reports `CrashLoopBackOff` only if it looks at the Pod again before the back-off ends.
async fn in_back_off(ns: &Ns) -> Result<Pod> {
    until("a back-off that lasts", LONG, async || {
        let pod = ns.pod("web").await?;
        let Ok(status) = pods::status(&pod, "app") else { return Ok(None) };
        let (now, before) = (status.state.as_ref(), status.last_state.as_ref());
        let waits =
            now.and_then(|state| state.waiting.as_ref()?.reason.as_deref()) == Some("CrashLoopBackOff");
        let over = now.and_then(|state| state.terminated.as_ref());
        let over = over.or_else(|| before?.terminated.as_ref().filter(|_| waits));
        let Some(ended) = over.and_then(|end| end.finished_at.as_ref()) else { return Ok(None) };
        let passed = i64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_secs())? - ended.0.as_second();
        let restarts = u32::try_from(status.restart_count)?;
        let lasts = (5 << restarts) - passed;
        Ok((restarts >= 2 && lasts >= 15).then_some(pod))
    })
    .await
}

#[test]
fn a_back_off_is_ended_unasked() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.create_pod(failing()).await?;
        let before = in_back_off(ns).await?;
        ns.kubectl(&["exec", "web", "--container", "sidecar", "--", "touch", "/data/go"])?;
        let began = Instant::now();
        ns.create(requests::recreate("auto", "web", &["app"])).await?;
        let over = ns.over("auto").await?;
        let took = began.elapsed();
        println!("from the request in a back-off to its end: {took:?}");
        let [state] = requests::states(&over) else { panic!("{over:?}") };
        assert!(!state.is_killed, "nobody killed it: it had ended by itself");
        let after = ns.pod("web").await?;
        assert_eq!(pods::restarts(&after, "app")?, pods::restarts(&before, "app")? + 1);
        ensure!(pin(&over, "app").is_some(), "it was not the kubelet");
        Ok(())
    })
}

/// A container that ends by itself during the drain is restarted once more.
#[test]
fn a_forced_request_restarts_what_came_up_by_itself_meanwhile() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::gated(pods::app("web"), &["pitstop.dev/ready"])).await?;
        let strategy = json!({"forceRecreate": true, "unreadyGracePeriodSeconds": 8});
        let request = ns.create(with_strategy("force", strategy)).await?;
        until("the request to be accepted", SHORT, async || {
            Ok(ns.request("force").await?.status.and_then(|s| s.target).map(drop))
        })
        .await?;
        ensure!(ns.orders(&request).await?.is_empty(), "nothing is ordered in a drain");
        // Delayed, because otherwise the command ends with the container and fails.
        let kill = "(sleep 1; kill 1) > /dev/null 2>&1 &";
        ns.kubectl(&["exec", "web", "--container", "app", "--", "sh", "-c", kill])?;
        until("the container to come up by itself", SHORT, async || {
            let pod = ns.pod("web").await?;
            let count = pods::restarts(&pod, "app")? - pods::restarts(&before, "app")?;
            Ok((count == 1 && pods::id(&pod, "app").is_ok()).then_some(()))
        })
        .await?;
        let over = ns.over("force").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        let after = ns.pod("web").await?;
        assert_eq!(pods::restarts(&after, "app")?, pods::restarts(&before, "app")? + 2);
        Ok(())
    })
}
