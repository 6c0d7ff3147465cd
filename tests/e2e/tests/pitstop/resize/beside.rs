//! What the daemon may do on a node whose kubelet resizes, with the component `resize-cri`.

use pitstop_e2e::resizes::{fill_page_cache, usage};
use pitstop_e2e::{Ns, ensure, system};

use super::*;

/// Runs a test while the daemons may change control groups.
pub(super) async fn with_daemons(ns: &Ns, test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    ns.cluster.install_with(&["resize-cri"])?;
    let outcome = match system::healthy(&ns.cluster).await {
        Ok(()) => test().await,
        Err(error) => Err(error),
    };
    let right = "pitstop-controller-resize-cri";
    ns.cluster.kubectl(&["delete", "clusterrolebinding,clusterrole", right, "--ignore-not-found"])?;
    ns.cluster.install()?;
    system::healthy(&ns.cluster).await?;
    outcome
}

/// The kubelet counts page cache as use, and would refuse.
#[test]
fn memory_is_reclaimed_where_a_lower_limit_has_no_room() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        fill_page_cache(ns, &before).await?;
        let less = resize("shrink", "app", &json!({"limits": {"memory": "64Mi"}}));
        let shrink = with(less, "memoryShrink", &json!({"margin": "16Mi", "reclaim": true}));
        create(ns, shrink.clone()).await?;
        let status = ends(ns, "shrink", Phase::Failed, "Unsupported").await?;
        assert!(status.message.contains("apply deploy/components/resize-cri"), "{}", status.message);
        with_daemons(ns, async || {
            let mut shrink = shrink;
            shrink["metadata"]["name"] = json!("again");
            create(ns, shrink).await?;
            ends(ns, "again", Phase::Succeeded, "Resized").await.map(drop)
        })
        .await?;
        let after = ns.pod("web").await?;
        assert_eq!(kernel(&after, "app")?[0].1, 64 * MI);
        let used = usage(&after, "app")?;
        ensure!(used <= 48 * MI, "{used} bytes are in use still");
        pods::assert_untouched(&before, &after, "app")
    })
}
