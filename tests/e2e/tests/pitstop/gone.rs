//! The Pod or the request is deleted while the request is under way.

use kube::api::DeleteParams;
use pitstop_api::recreate::{ContainerRecreateRequest, Phase};
use pitstop_e2e::{Ns, Result, SHORT, on_cluster, on_shared_cluster, pods, requests, until};

const CONTAINERD: &str = "containerd@node1";

fn assert_pod_gone(over: &ContainerRecreateRequest) {
    assert_eq!(requests::phase(over), Some(Phase::Completed));
    assert_eq!(requests::message(over), "pod has gone");
    let conditions = requests::conditions(over);
    assert_eq!(conditions["Failed"], "True/PodGone");
    assert_eq!(conditions["Complete"], "False/PodGone");
}

/// A Pod with a container `app` that takes some seconds to end, and a request that stops it.
async fn stopping(ns: &Ns) -> Result<ContainerRecreateRequest> {
    ns.start_pod(pods::pod("web", &[pods::slow("app", 4), pods::idle("sidecar")])).await?;
    let request = ns.create(requests::recreate("again", "web", &["app"])).await?;
    ns.stopping(&request, "app").await?;
    Ok(request)
}

/// Completes a request for another container of the Pod: then the daemon has seen all earlier orders.
async fn pass_by(ns: &Ns, pod: &str) -> Result<()> {
    ns.create(requests::recreate("pass-by", pod, &["sidecar"])).await?;
    let over = ns.over("pass-by").await?;
    assert_eq!(requests::states(&over), [requests::succeeded("sidecar")]);
    ns.settled(&over).await?;
    Ok(())
}

#[test]
fn the_pod_is_deleted() -> Result<()> {
    on_shared_cluster(async |ns| {
        let request = stopping(ns).await?;
        ns.pods().delete("web", &DeleteParams::default()).await?;
        assert_pod_gone(&ns.over("again").await?);
        assert_pod_gone(&ns.settled(&request).await?);
        Ok(())
    })
}

#[test]
fn the_pod_is_replaced_under_its_name() -> Result<()> {
    on_shared_cluster(async |ns| {
        let request = stopping(ns).await?;
        ns.pods().delete("web", &DeleteParams::default().grace_period(0)).await?;
        until("the Pod to be gone", SHORT, async || {
            Ok(ns.pods().get_opt("web").await?.is_none().then_some(()))
        })
        .await?;
        let next = ns.start_pod(pods::app("web")).await?;
        assert_pod_gone(&ns.over("again").await?);
        ns.settled(&request).await?;
        pass_by(ns, "web").await?;
        pods::assert_untouched(&next, &ns.pod("web").await?, "app")
    })
}

#[test]
fn the_request_is_deleted_before_the_stop() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        ns.cluster.stop(CONTAINERD)?;
        let request = ns.create(requests::recreate("again", "web", &["app"])).await?;
        ns.ordered(&request).await?;
        ns.requests().delete("again", &DeleteParams::default()).await?;
        ns.no_orders(&request).await?;
        ns.cluster.start(CONTAINERD)?;
        pass_by(ns, "web").await?;
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")
    })
}

#[test]
fn the_request_is_deleted_during_the_stop() -> Result<()> {
    on_shared_cluster(async |ns| {
        let request = stopping(ns).await?;
        let before = ns.pod("web").await?;
        ns.requests().delete("again", &DeleteParams::default()).await?;
        // An acknowledged stop completes.
        until("the container to be up again", SHORT, async || {
            Ok((pods::restarts(&ns.pod("web").await?, "app")? == 1).then_some(()))
        })
        .await?;
        ns.no_orders(&request).await?;
        pass_by(ns, "web").await?;
        pods::assert_restarted_once(&before, &ns.ready("web").await?, "app")
    })
}

#[test]
fn the_request_is_deleted_while_it_waits_for_its_turn() -> Result<()> {
    on_shared_cluster(async |ns| {
        let first = stopping(ns).await?;
        let before = ns.pod("web").await?;
        let second = ns.create(requests::recreate("second", "web", &["sidecar"])).await?;
        until("the second request to wait", SHORT, async || {
            let request = ns.request("second").await?;
            Ok(requests::conditions(&request)
                .get("Complete")
                .is_some_and(|c| c == "False/Queued")
                .then_some(()))
        })
        .await?;
        ns.requests().delete("second", &DeleteParams::default()).await?;
        let over = ns.over("again").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        ns.settled(&first).await?;
        assert!(ns.orders(&second).await?.is_empty());
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "sidecar")
    })
}
