//! Requests for one Pod are served one after another.

use pitstop_api::recreate::Phase;
use pitstop_e2e::{Context, Result, SHORT, on_shared_cluster, pods, requests, until};

#[test]
fn two_requests_for_one_pod() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::pod("web", &[pods::slow("app", 4), pods::idle("sidecar")])).await?;
        let first = ns.create(requests::recreate("first", "web", &["app"])).await?;
        ns.stopping(&first, "app").await?;
        let second = ns.create(requests::recreate("second", "web", &["sidecar"])).await?;
        let waiting = until("the second request to wait", SHORT, async || {
            Ok(Some(ns.request("second").await?).filter(|r| requests::phase(r).is_some()))
        })
        .await?;
        assert_eq!(requests::phase(&waiting), Some(Phase::Pending));
        let complete = requests::condition(&waiting, "Complete").context("no condition")?;
        assert_eq!(complete.reason, "Queued");
        assert!(complete.message.contains("first"), "{}", complete.message);
        assert!(!requests::is_over(&ns.request("first").await?), "the first is done too early for this test");
        assert!(ns.orders(&second).await?.is_empty());
        pods::assert_untouched(&before, &ns.pod("web").await?, "sidecar")?;

        let over = ns.over("second").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("sidecar")]);
        let first = ns.request("first").await?;
        assert_eq!(requests::states(&first), [requests::succeeded("app")]);
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_restarted_once(&before, &after, "sidecar")?;
        let ended = pods::last_end(&after, "sidecar")?.finished_at.context("no end")?.0.as_second();
        let completed =
            first.status.and_then(|s| s.completion_time).context("the first is not over")?.timestamp();
        assert!(ended >= completed, "the second stop was {} s before the first was over", completed - ended);
        Ok(())
    })
}
