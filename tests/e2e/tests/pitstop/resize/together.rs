//! A restart and a resize of a Pod, requested at the same moment.

use pitstop_e2e::requests;

use super::*;

/// A container that restarts while the kubelet resizes its Pod would leave the Pod's cgroup as it was
/// (kubernetes#138760).
#[test]
fn a_restart_and_a_resize_of_one_moment_go_one_after_the_other() -> Result<()> {
    on_shared_cluster(async |ns| {
        for (turn, larger) in [(0, "300m"), (1, "450m")] {
            let before = ns.start_pod(web()).await?;
            let size = resize("grow", "app", &json!({"limits": {"cpu": larger, "memory": "256Mi"}}));
            let restart = requests::recreate("restart", "web", &["app"]);
            if turn == 0 {
                create(ns, size).await?;
                ns.create(restart).await?;
            } else {
                ns.create(restart).await?;
                create(ns, size).await?;
            }
            let over = ns.over("restart").await?;
            assert_eq!(requests::states(&over), [requests::succeeded("app")]);
            let status = ends(ns, "grow", Phase::Succeeded, "Resized").await?;
            assert_verified(&status)?;
            let after = ns.pod("web").await?;
            pods::assert_restarted_once(&before, &after, "app")?;
            let quota = if turn == 0 { 30_000 } else { 45_000 };
            assert_eq!(kernel(&after, "app")?, [(quota, 256 * MI), (quota + 20_000, 384 * MI)], "{larger}");
            ns.kubectl(&["delete", "pod/web", "prz/grow", "crr/restart", "--grace-period=1"])?;
        }
        Ok(())
    })
}
