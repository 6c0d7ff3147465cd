//! `PodResize` through the API server's own resize, checked in the Pod and in the node's cgroups.

mod asked;
mod beside;
mod repaired;
mod together;
mod unquoted;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use pitstop_api::resize::Phase;
use pitstop_e2e::resizes::{
    MI, api, assert_verified, create, ends, fill, kernel, resize, sized, usual, waits, wanting, web, with,
};
use pitstop_e2e::{Context, Result, SHORT, on_cluster, on_shared_cluster, pods, stories, until, users};
use serde_json::{Value, json};

/// An amount in the Pod's spec.
fn spec_amount(pod: &Pod, container: &str, list: &str, resource: &str) -> Result<String> {
    let value = serde_json::to_value(&pods::container(pod, container)?.resources)?;
    let amount = value[list][resource].as_str().with_context(|| format!("{list}.{resource}: {value}"))?;
    Ok(amount.to_owned())
}

#[test]
fn a_pod_grows_and_shrinks_in_its_place() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        assert_eq!(kernel(&before, "app")?, [(20_000, 128 * MI), (40_000, 256 * MI)]);
        let larger = json!({"requests": {"cpu": "+50%"}, "limits": {"cpu": "400m", "memory": "x2"}});
        create(ns, resize("grow", "app", &larger)).await?;
        let status = ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        assert_eq!(
            status.message,
            "app: requests.cpu 100m -> 150m, limits.cpu 200m -> 400m, limits.memory 128Mi -> 256Mi"
        );
        let after = ns.pod("web").await?;
        assert_eq!(kernel(&after, "app")?, [(40_000, 256 * MI), (60_000, 384 * MI)], "the kernel has it");
        pods::assert_untouched(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "proxy")?;
        let [container] = &status.containers[..] else { panic!("{status:?}") };
        assert_eq!(container.actual.as_ref().unwrap().limits.memory.as_deref(), Some("256Mi"));
        assert_verified(&status)?;
        let cgroup = container.cgroup.context("the daemon has told nothing")?;
        assert_eq!((cgroup.container.cpu_quota, cgroup.pod.cpu_quota), (Some(40_000), Some(60_000)));
        assert_eq!(cgroup.container.memory_limit, Some(256 * MI));
        assert_eq!(container.allocated.as_ref().unwrap().cpu.as_deref(), Some("150m"));
        create(ns, resize("shrink", "app", &usual())).await?;
        ends(ns, "shrink", Phase::Succeeded, "Resized").await?;
        let last = ns.pod("web").await?;
        assert_eq!(kernel(&last, "app")?, [(20_000, 128 * MI), (40_000, 256 * MI)]);
        pods::assert_untouched(&before, &last, "app")?;
        Ok(())
    })
}

#[test]
fn a_policy_that_restarts_is_heeded() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut app = sized(pods::idle("app"), &usual());
        app["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        let before = ns.start_pod(pods::pod("web", &[app])).await?;
        let never = resize("never", "app", &json!({"limits": {"memory": "256Mi"}}));
        create(ns, with(never, "restart", &json!("Never"))).await?;
        ends(ns, "never", Phase::Failed, "PolicyWouldRestart").await?;
        assert_eq!(spec_amount(&ns.pod("web").await?, "app", "limits", "memory")?, "128Mi");
        create(ns, resize("memory", "app", &json!({"limits": {"memory": "256Mi"}}))).await?;
        let status = ends(ns, "memory", Phase::Succeeded, "Resized").await?;
        assert!(status.containers[0].restarts);
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        assert_eq!(kernel(&after, "app")?[0].1, 256 * MI);
        Ok(())
    })
}

#[test]
fn a_full_node_is_waited_for_until_there_is_room() -> Result<()> {
    on_cluster(async |ns| {
        ns.start_pod(web()).await?;
        let cpu = fill(ns).await?;
        create(ns, wanting("grow", &cpu)).await?;
        let status = waits(ns, "grow", "NodeBusy").await?;
        assert_eq!(status.phase, Some(Phase::Deferred));
        ns.kubectl(&["delete", "pod", "filler", "--grace-period=1"])?;
        ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        Ok(())
    })
}

#[test]
fn what_is_deferred_ends_by_deadline_by_cancel_and_by_another_hand() -> Result<()> {
    on_cluster(async |ns| {
        ns.start_pod(web()).await?;
        let cpu = fill(ns).await?;
        let original =
            async || -> Result<String> { spec_amount(&ns.pod("web").await?, "app", "requests", "cpu") };
        create(ns, with(wanting("deadline", &cpu), "activeDeadlineSeconds", &json!(6))).await?;
        let status = ends(ns, "deadline", Phase::Failed, "DeadlineExceeded").await?;
        assert!(status.message.ends_with("the original resources are back"), "{}", status.message);
        assert_eq!(original().await?, "100m");

        create(ns, with(wanting("patience", &cpu), "onDeferred", &json!({"waitSeconds": 4}))).await?;
        ends(ns, "patience", Phase::Failed, "NodeBusy").await?;
        assert_eq!(original().await?, "100m");

        create(ns, wanting("cancel", &cpu)).await?;
        waits(ns, "cancel", "NodeBusy").await?;
        let change = Patch::Merge(json!({"spec": {"cancel": true}}));
        api(ns).patch("cancel", &PatchParams::default(), &change).await?;
        ends(ns, "cancel", Phase::Cancelled, "Cancelled").await?;
        assert_eq!(original().await?, "100m");

        create(ns, wanting("fought", &cpu)).await?;
        waits(ns, "fought", "NodeBusy").await?;
        let patch = r#"{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"120m"},"limits":{"cpu":"220m"}}}]}}"#;
        ns.kubectl(&["patch", "pod", "web", "--subresource=resize", "--patch", patch])?;
        ends(ns, "fought", Phase::Failed, "Superseded").await?;
        assert_eq!(original().await?, "120m", "nobody is fought");

        create(ns, wanting("earlier", &cpu)).await?;
        waits(ns, "earlier", "NodeBusy").await?;
        create(ns, resize("never", "proxy", &stories::both("900"))).await?;
        waits(ns, "never", "Queued").await?;
        waits(ns, "earlier", "NodeBusy").await.context("it gives way to what would be refused")?;
        ns.kubectl(&["delete", "podresize", "never"])?;
        create(ns, resize("later", "proxy", &json!({"limits": {"cpu": "250m"}}))).await?;
        let status = ends(ns, "earlier", Phase::Failed, "Superseded").await?;
        assert!(status.message.contains("/later"), "{}", status.message);
        ends(ns, "later", Phase::Succeeded, "Resized").await?;
        assert_eq!(original().await?, "120m", "the earlier one has put back what it had changed");
        Ok(())
    })
}

#[test]
fn refusals_are_told_in_the_users_words_and_change_nothing() -> Result<()> {
    on_cluster(async |ns| {
        let before = stories::refusals(ns).await?;
        let after = ns.pod("web").await?;
        assert_eq!(after.metadata.generation, before.metadata.generation, "the Pod's spec was never changed");
        // Status and event have only the API server's words.
        let words = "pods \"web\" is forbidden: exceeded quota: quota, requested: ";
        let message = api(ns).get("quota").await?.status.unwrap_or_default().message;
        let last = message.rsplit("limited: ").next().unwrap_or_default();
        assert!(message.starts_with(words) && last == "requests.cpu=150m", "{message}");
        let note = until("the event that tells of the quota", SHORT, async || {
            let fields = ["get", "events", "--output=jsonpath={range .items[*]}{.message}{\"\\n\"}{end}"];
            let notes = ns.kubectl(&fields)?;
            Ok(notes.lines().find(|note| note.contains(words)).map(str::to_owned))
        });
        let note = note.await?;
        assert!(note.ends_with("limited: requests.cpu=150m"), "{note}");

        let gpu = resize("gpu", "app", &json!({"limits": {"nvidia.com/gpu": "1"}}));
        let refused = create(ns, gpu).await.unwrap_err().to_string();
        assert!(refused.contains("only cpu and memory can be resized in place"), "{refused}");
        Ok(())
    })
}

#[test]
fn an_out_of_memory_kill_rolls_back() -> Result<()> {
    on_shared_cluster(async |ns| stories::out_of_memory(ns, "the original resources are back").await)
}

#[test]
fn the_daemon_does_not_go_behind_a_kubelet_that_resizes() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        let grow = resize("grow", "app", &json!({"limits": {"cpu": "400m"}}));
        create(ns, with(grow, "mechanism", &json!("CRI"))).await?;
        let status = ends(ns, "grow", Phase::Failed, "Unsupported").await?;
        assert!(
            status.message.contains("the kubelet of the Pod's node resizes by itself"),
            "{}",
            status.message
        );
        let after = ns.pod("web").await?;
        assert_eq!(kernel(&after, "app")?, [(20_000, 128 * MI), (40_000, 256 * MI)]);
        assert_eq!(after.metadata.generation, before.metadata.generation, "the Pod's spec was never changed");
        Ok(())
    })
}

#[test]
fn a_user_needs_the_right_to_do_by_hand_what_a_resize_does() -> Result<()> {
    on_cluster(async |ns| users::are_asked_what_they_could_do_by_hand(ns).await)
}
