//! Which resources a Pod gets.

use pitstop_api::resize::{Mechanism, Phase};
use pitstop_e2e::resizes::{
    Group, MI, assert_verified, create, ends, fill_page_cache, groups, resize, sized, usage, usual, web, with,
};
use pitstop_e2e::{LONG, Result, SHORT, ensure, pods, process, requests, until};
use serde_json::json;

use super::{BEFORE, LARGER, delete, held, larger, on_old_cluster, succeeds, until_groups};

#[test]
fn a_pod_grows_and_shrinks_in_its_place() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        ensure!(
            pods::status(&before, "app")?.resources.is_none(),
            "the kubelet says what containers run with"
        );
        assert_eq!(groups(&before, "app")?, BEFORE);
        let grow = json!({"requests": {"cpu": "+50%"}, "limits": {"cpu": "400m", "memory": "x2"}});
        let status = succeeds(ns, resize("grow", "app", &grow)).await?;
        assert_eq!(
            status.message,
            "app: requests.cpu 100m -> 150m, limits.cpu 200m -> 400m, limits.memory 128Mi -> 256Mi"
        );
        assert_eq!(status.mechanism, Some(Mechanism::Cri));
        assert_verified(&status)?;
        let after = ns.pod("web").await?;
        assert_eq!(groups(&after, "app")?, LARGER, "the kernel has it");
        pods::assert_untouched(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "proxy")?;
        assert_eq!(after.metadata.generation, before.metadata.generation, "the Pod's spec stays as it is");
        let [container] = &status.containers[..] else { panic!("{status:?}") };
        let cgroup = container.cgroup.expect("the daemon has told nothing");
        assert_eq!((cgroup.container.cpu_quota, cgroup.pod.cpu_quota), (Some(40_000), Some(60_000)));
        assert_eq!(cgroup.container.memory_limit, Some(256 * MI));

        // Less than the spec says.
        let smaller = json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "100m", "memory": "96Mi"}});
        let status = succeeds(ns, resize("shrink", "app", &smaller)).await?;
        assert_verified(&status)?;
        let last = ns.pod("web").await?;
        let container = Group { shares: 51, quota: 10_000, memory: 96 * MI };
        let pod = Group { shares: 153, quota: 30_000, memory: 224 * MI };
        assert_eq!(groups(&last, "app")?, [container, pod]);
        pods::assert_untouched(&before, &last, "app")
    })
}

#[test]
fn memory_is_reclaimed_before_a_limit_is_lowered() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        fill_page_cache(ns, &before).await?;
        let less = resize("shrink", "app", &json!({"limits": {"memory": "64Mi"}}));
        succeeds(ns, with(less, "memoryShrink", &json!({"margin": "16Mi", "reclaim": true}))).await?;
        let after = ns.pod("web").await?;
        assert_eq!(groups(&after, "app")?[0].memory, 64 * MI);
        // The kernel alone goes just below the new limit.
        let used = usage(&after, "app")?;
        ensure!(used <= 48 * MI, "{used} bytes are in use still");
        pods::assert_untouched(&before, &after, "app")
    })
}

#[test]
fn a_restarted_container_is_given_it_again() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        succeeds(ns, larger("grow")).await?;
        process::kill_9(process::of_container(&pods::id(&before, "app")?)?)?;
        until("another instance of the container", SHORT, async || {
            Ok((pods::restarts(&ns.pod("web").await?, "app")? == 1).then_some(()))
        })
        .await?;
        ns.ready("web").await?;
        let between = until_groups(ns, LARGER).await?;
        pods::assert_restarted_once(&before, &between, "app")?;

        ns.create(requests::recreate("again", "web", &["app"])).await?;
        let over = ns.over_within("again", LONG).await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        let after = until_groups(ns, LARGER).await?;
        pods::assert_restarted_once(&between, &after, "app")?;
        pods::assert_untouched(&before, &after, "proxy")
    })
}

#[test]
fn what_was_there_before_comes_back_with_the_deletion() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        succeeds(ns, larger("grow")).await?;
        let record = held(ns, &before).await?.expect("no record of the Pod");
        assert_eq!(record.original.cpu_quota, Some(BEFORE[1].quota));
        delete(ns, "grow").await?;
        let after = until_groups(ns, BEFORE).await?;
        pods::assert_untouched(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "proxy")?;
        until("the record of the Pod to go", SHORT, async || {
            Ok(held(ns, &after).await?.is_none().then_some(()))
        })
        .await
    })
}

#[test]
fn a_container_without_limits_has_none_again() -> Result<()> {
    on_old_cluster(async |ns| {
        let requests = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
        let pod =
            pods::pod("web", &[sized(pods::idle("app"), &requests), sized(pods::idle("proxy"), &usual())]);
        let before = ns.start_pod(pod).await?;
        let unbound = groups(&before, "app")?;
        assert_eq!((unbound[0].quota, unbound[1].quota), (-1, -1));
        let limited = resize("limit", "app", &json!({"limits": {"cpu": "400m", "memory": "256Mi"}}));
        create(ns, limited).await?;
        let status = ends(ns, "limit", Phase::Succeeded, "Resized").await?;
        assert_verified(&status)?;
        let found = groups(&ns.pod("web").await?, "app")?;
        assert_eq!(
            found,
            [
                Group { shares: 102, quota: 40_000, memory: 256 * MI },
                Group { shares: 204, quota: 60_000, memory: 384 * MI },
            ]
        );
        delete(ns, "limit").await?;
        let after = until_groups(ns, unbound).await?;
        pods::assert_untouched(&before, &after, "app")
    })
}
