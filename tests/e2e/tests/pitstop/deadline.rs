//! Requests end: by their own deadline, and when the node's daemon is away.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::DeleteParams;
use pitstop_api::labels;
use pitstop_api::recreate::Phase;
use pitstop_e2e::system::{self, DAEMON, NAMESPACE};
use pitstop_e2e::{LONG, Result, SHORT, on_cluster, pods, requests, until};
use serde_json::json;

/// OpenKruise's e2e case 3b, with a slow container in the place of its preStop hook.
#[test]
fn a_request_ends_at_its_deadline() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::pod("web", &[pods::slow("app", 7), pods::idle("sidecar")])).await?;
        let mut spec = requests::plain("web", &["app", "sidecar"]);
        spec["activeDeadlineSeconds"] = json!(3);
        let created = ns.create(requests::with_spec("late", &spec)).await?;
        let since = Instant::now();
        let over = ns.over("late").await?;
        assert!(since.elapsed() < Duration::from_secs(5), "ended {:?} after creation", since.elapsed());
        assert_eq!(requests::message(&over), "recreating has exceeded the activeDeadlineSeconds");
        let conditions = requests::conditions(&over);
        assert_eq!(conditions["Failed"], "True/DeadlineExceeded");
        assert_eq!(conditions["Complete"], "False/DeadlineExceeded");
        let unlabelled = until("the label active to be removed", Duration::from_secs(5), async || {
            Ok(Some(ns.request("late").await?).filter(|r| requests::label(r, labels::ACTIVE).is_none()))
        })
        .await?;
        let pending = |name| requests::state(name, Phase::Pending, false);
        assert_eq!(requests::states(&unlabelled), [pending("app"), pending("sidecar")]);

        // The stop under way goes on to its end, and that is told. Nothing new begins.
        until("app to be up again", SHORT, async || {
            Ok((pods::restarts(&ns.pod("web").await?, "app")? == 1).then_some(()))
        })
        .await?;
        ns.ready("web").await?;
        let stopped = requests::state("app", Phase::Recreating, true);
        until("the end of the stop to be told", SHORT, async || {
            Ok((requests::states(&ns.request("late").await?).first() == Some(&stopped)).then_some(()))
        })
        .await?;
        let last = ns.settled(&created).await?;
        assert_eq!(requests::states(&last), [stopped, pending("sidecar")]);
        assert_eq!(
            last.status.as_ref().and_then(|s| s.completion_time),
            over.status.as_ref().and_then(|s| s.completion_time)
        );
        assert_eq!(requests::message(&last), requests::message(&over));
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "sidecar")
    })
}

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
