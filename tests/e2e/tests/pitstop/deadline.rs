//! Requests end when the node's daemon is away.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::DeleteParams;
use pitstop_api::recreate::Phase;
use pitstop_e2e::system::{self, DAEMON, NAMESPACE};
use pitstop_e2e::{LONG, Result, SHORT, on_cluster, pods, requests, until};
use serde_json::json;

#[test]
fn a_request_ends_when_the_daemon_is_away() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let daemon_sets: Api<DaemonSet> = Api::namespaced(ns.cluster.client.clone(), NAMESPACE);
        daemon_sets.delete(DAEMON, &DeleteParams::foreground()).await?;
        until("the daemon to be gone", SHORT, async || {
            Ok(daemon_sets.get_opt(DAEMON).await?.is_none().then_some(()))
        })
        .await?;
        let mut spec = requests::plain("web", &["app"]);
        spec["strategy"] = json!({"mechanism": "Runtime"});
        let created = ns.create(requests::with_spec("alone", &spec)).await?;
        ns.ordered(&created).await?;
        let since = Instant::now();
        let over = ns.over_within("alone", LONG).await?;
        assert!(since.elapsed() > Duration::from_secs(50), "given up after {:?}", since.elapsed());
        assert_eq!(requests::message(&over), "daemon has not responded for a long time");
        assert_eq!(requests::conditions(&over)["Failed"], "True/DaemonNotResponding");
        assert_eq!(requests::states(&over), [requests::state("app", Phase::Pending, false)]);
        ns.settled(&created).await?;

        // A daemon that comes back finds nothing to do.
        ns.cluster.install()?;
        system::healthy(&ns.cluster).await?;
        ns.create(requests::recreate("pass-by", "web", &["sidecar"])).await?;
        let next = ns.over("pass-by").await?;
        assert_eq!(requests::states(&next), [requests::succeeded("sidecar")]);
        let after = ns.pod("web").await?;
        pods::assert_untouched(&before, &after, "app")?;
        assert_eq!(requests::states(&ns.request("alone").await?), requests::states(&over));
        Ok(())
    })
}
