//! The Pod is out of service before its first container stops, and returns however the request ends.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::system;
use pitstop_e2e::{
    Context, LONG, Ns, Result, SHORT, ensure, on_cluster, on_shared_cluster, pods, requests, until,
};
use serde_json::{Value, json};

const GATE: &str = "KruisePodReady";
/// From the end of a request to the release of its hold, on a busy machine.
const FREE_WITHIN: Duration = Duration::from_mins(1);

fn drained(containers: &[&str], strategy: Value) -> Value {
    let mut spec = requests::plain("web", containers);
    spec["strategy"] = strategy;
    requests::with_spec("drain", &spec)
}

fn hold(ns: &str) -> String {
    format!(r#"[{{"userAgent":"ContainerRecreateRequest","key":"{ns}/drain"}}]"#)
}

/// Status and message of the condition behind a gate.
fn gate<'a>(pod: &'a Pod, type_: &str) -> (&'a str, &'a str) {
    let condition = pods::condition(pod, type_);
    condition.map_or(("", ""), |c| (c.status.as_str(), c.message.as_deref().unwrap_or_default()))
}

/// Waits until the condition has that status; gives back its message.
async fn gate_is(ns: &Ns, status: &str, limit: Duration) -> Result<String> {
    until(&format!("{GATE} to be {status}"), limit, async || {
        let pod = ns.pod("web").await?;
        let (now, message) = gate(&pod, GATE);
        Ok((now == status).then(|| message.to_owned()))
    })
    .await
}

/// A ready Pod with the gate, and a request for `app` with a long drain.
async fn in_drain(ns: &Ns) -> Result<(Pod, ContainerRecreateRequest)> {
    let before = ns.start_pod(pods::gated(pods::app("web"), &[GATE])).await?;
    let request = ns.create(drained(&["app"], json!({"unreadyGracePeriodSeconds": 600}))).await?;
    assert_eq!(gate_is(ns, "False", SHORT).await?, hold(&ns.name));
    until("the drain to be told", SHORT, async || {
        let now = ns.request("drain").await?;
        let waits = requests::conditions(&now).get("Complete").is_some_and(|c| c == "False/Draining");
        Ok(waits.then_some(()))
    })
    .await?;
    Ok((before, request))
}

/// K5 on the real kubelet: both times are the node's.
#[test]
fn k5_the_first_stop_comes_a_whole_grace_after_the_pod_was_not_ready() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(pods::gated(pods::app("web"), &["pitstop.dev/ready", GATE])).await?;
        ns.create(drained(&["app"], json!({"unreadyGracePeriodSeconds": 3}))).await?;
        let out = until("the Pod to be not ready", SHORT, async || {
            Ok(Some(ns.pod("web").await?).filter(|pod| !pods::is_ready(pod)))
        })
        .await?;
        for type_ in [GATE, "pitstop.dev/ready"] {
            assert_eq!(gate(&out, type_), ("False", hold(&ns.name).as_str()));
        }
        let ready = pods::condition(&out, "Ready").context("no condition Ready")?;
        assert_eq!(ready.reason.as_deref(), Some("ReadinessGatesNotReady"), "it is the gates");
        ns.over("drain").await?;
        let ended = pods::last_end(&ns.pod("web").await?, "app")?.finished_at.context("no end")?;
        let since = ready.last_transition_time.as_ref().context("no time")?.0.as_second();
        let apart = ended.0.as_second() - since;
        ensure!(apart >= 3, "app ended {apart} s after the Pod was not ready");
        Ok(())
    })
}

#[test]
fn d24_a_pod_without_a_gate_stays_in_service_and_that_is_told() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let created = ns.create(drained(&["app"], json!({"unreadyGracePeriodSeconds": 3}))).await?;
        let began = until("the acceptance", SHORT, async || {
            Ok(Some(ns.request("drain").await?).filter(|r| requests::condition(r, "Drained").is_some()))
        })
        .await?;
        assert_eq!(requests::conditions(&began)["Drained"], "False/NoReadinessGate");
        ensure!(pods::is_ready(&ns.pod("web").await?), "it stays in service");
        let over = ns.over("drain").await?;
        assert_eq!(requests::conditions(&over)["Drained"], "False/NoReadinessGate");
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        let made = created.metadata.creation_timestamp.context("no creationTimestamp")?.0.as_second();
        let ended = pods::last_end(&after, "app")?.finished_at.context("no end")?.0.as_second();
        ensure!(ended - made >= 3, "app ended {} s after the creation", ended - made);
        let events: Api<Event> = Api::namespaced(ns.cluster.client.clone(), &ns.name);
        for about in ["Pod", "ContainerRecreateRequest"] {
            until(&format!("a warning on the {about}"), SHORT, async || {
                let list = events.list(&ListParams::default()).await?.items;
                let warned = list.iter().any(|e| {
                    e.involved_object.kind.as_deref() == Some(about)
                        && e.type_.as_deref() == Some("Warning")
                        && e.reason.as_deref() == Some("NotDrained")
                });
                Ok(warned.then_some(()))
            })
            .await?;
        }
        Ok(())
    })
}

#[test]
fn d23_the_deletion_of_a_request_ends_its_drain() -> Result<()> {
    on_shared_cluster(async |ns| {
        let (before, request) = in_drain(ns).await?;
        ns.requests().delete("drain", &DeleteParams::default()).await?;
        assert_eq!(gate_is(ns, "True", FREE_WITHIN).await?, "[]");
        let after = ns.ready("web").await?;
        ensure!(ns.orders(&request).await?.is_empty(), "nothing was ordered");
        pods::assert_untouched(&before, &after, "app")
    })
}

#[test]
fn d23_a_hold_of_a_request_that_was_deleted_meanwhile_is_swept() -> Result<()> {
    on_cluster(async |ns| {
        let (before, _) = in_drain(ns).await?;
        system::without_controllers(&ns.cluster, deleted_meanwhile(ns)).await?;
        assert_eq!(gate_is(ns, "True", LONG).await?, "[]");
        pods::assert_untouched(&before, &ns.ready("web").await?, "app")
    })
}

async fn deleted_meanwhile(ns: &Ns) -> Result<()> {
    ns.kubectl(&["delete", "crr", "drain", "--force", "--grace-period=0", "--timeout=10s"])?;
    ensure!(ns.requests().get_opt("drain").await?.is_none(), "no finalizer keeps it");
    assert_eq!(gate(&ns.pod("web").await?, GATE), ("False", hold(&ns.name).as_str()));
    Ok(())
}

#[test]
fn holds_of_other_writers_stay() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::gated(pods::app("web"), &[GATE])).await?;
        let theirs = r#"{"userAgent":"Theirs","key":"x"}"#;
        let write = |status: &str, message: &str| {
            let condition = json!({"type": GATE, "status": status, "message": message});
            let patch = json!({"status": {"conditions": [condition]}}).to_string();
            ns.kubectl(&["patch", "pod", "web", "--subresource=status", "-p", &patch]).map(drop)
        };
        write("False", &format!("[{theirs}]"))?;
        ns.create(drained(&["app"], json!({"unreadyGracePeriodSeconds": 2}))).await?;
        let both = format!("{},{theirs}]", hold(&ns.name).trim_end_matches(']'));
        until("both holds", SHORT, async || {
            Ok((gate(&ns.pod("web").await?, GATE) == ("False", both.as_str())).then_some(()))
        })
        .await?;
        ns.over("drain").await?;
        until("our hold to go", FREE_WITHIN, async || {
            Ok((gate(&ns.pod("web").await?, GATE) == ("False", &format!("[{theirs}]"))).then_some(()))
        })
        .await?;
        pods::assert_restarted_once(&before, &ns.pod("web").await?, "app")?;
        write("True", "[]")?;
        ns.ready("web").await.map(drop)
    })
}

/// pitstop has no finalizers, so no deletion waits for a removed controller.
#[test]
fn a_namespace_goes_in_a_drain_though_pitstop_was_uninstalled() -> Result<()> {
    on_cluster(async |ns| {
        in_drain(ns).await?;
        let other = format!("{}-gone", ns.name);
        ns.cluster.kubectl(&["create", "namespace", &other])?;
        until("the ServiceAccount of the second namespace", SHORT, async || {
            ns.cluster.kubectl(&["get", "serviceaccount", "default", "--namespace", &other]).map(Some)
        })
        .await?;
        let within = |args: &[&str]| ns.cluster.kubectl(&[&["--namespace", &other], args].concat());
        let apply = |object: &Value| {
            let args = ["apply", "--namespace", &other, "-f", "-"];
            ns.cluster.kubectl_with(&args, &object.to_string())
        };
        apply(&pods::gated(pods::app("web"), &[GATE]))?;
        within(&["wait", "--for=condition=Ready", "--timeout=60s", "pod/web"])?;
        apply(&drained(&["app"], json!({"unreadyGracePeriodSeconds": 600})))?;
        within(&["wait", "--for=condition=KruisePodReady=False", "--timeout=60s", "pod/web"])?;

        let folder = pitstop_e2e::cluster::root().join("deploy/default");
        let removed = ns.cluster.kubectl(&["delete", "-k", &folder.to_string_lossy(), "--timeout=120s"]);
        let gone =
            removed.and_then(|_| ns.cluster.kubectl(&["delete", "namespace", &other, "--timeout=60s"]));
        ns.cluster.install()?;
        system::healthy(&ns.cluster).await?;
        gone?;
        // The removed definitions took all requests with them; the reinstalled pitstop releases their holds.
        assert_eq!(gate_is(ns, "True", SHORT).await?, "[]");
        Ok(())
    })
}
