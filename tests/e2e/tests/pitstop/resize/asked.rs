//! What a `PodResize` can ask for beyond the change itself.

use pitstop_api::condition;
use pitstop_api::resize::conditions;

use super::*;

#[test]
fn containers_are_restarted_once_they_are_resized() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        let mut grow = resize("grow", "app", &json!({"limits": {"memory": "256Mi"}}));
        grow["spec"]["restart"] = json!("Always");
        create(ns, grow).await?;
        ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "proxy")?;
        assert_eq!(kernel(&after, "app")?[0].1, 256 * MI);
        let restart = ns.request("grow-restart").await?;
        let owner = restart.metadata.owner_references.unwrap_or_default();
        assert_eq!(owner.iter().map(|o| o.kind.as_str()).collect::<Vec<_>>(), ["PodResize"]);
        Ok(())
    })
}

#[test]
fn a_memory_limit_follows_what_is_in_use() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        // A file in shared memory counts as the container's own memory until it is removed.
        ns.kubectl(&[
            "exec",
            "web",
            "-c",
            "app",
            "--",
            "dd",
            "if=/dev/zero",
            "of=/dev/shm/held",
            "bs=1M",
            "count=50",
        ])?;
        let less = json!({"requests": {"memory": "32Mi"}, "limits": {"memory": "32Mi"}});
        let mut shrink = resize("shrink", "app", &less);
        shrink["spec"]["memoryShrink"] = json!({"margin": "8Mi", "step": "48Mi"});
        create(ns, shrink).await?;
        let status = waits(ns, "shrink", "MemoryInUse").await?;
        let complete = condition::find(&status.conditions, conditions::COMPLETE).context("no condition")?;
        assert!(complete.message.contains("app is 80Mi on the way to 32Mi"), "{}", complete.message);
        assert_eq!(kernel(&ns.pod("web").await?, "app")?[0].1, 80 * MI);
        ns.kubectl(&["exec", "web", "-c", "app", "--", "rm", "/dev/shm/held"])?;
        ends(ns, "shrink", Phase::Succeeded, "Resized").await?;
        let after = ns.pod("web").await?;
        assert_eq!(kernel(&after, "app")?[0].1, 32 * MI);
        pods::assert_untouched(&before, &after, "app")?;
        Ok(())
    })
}

#[test]
fn a_pod_that_finds_no_room_is_evicted_where_that_is_allowed() -> Result<()> {
    on_cluster(async |ns| {
        // Stands for the workload that the Pod belongs to.
        ns.kubectl(&["create", "configmap", "owner"])?;
        let uid = ns.kubectl(&["get", "configmap", "owner", "--output=jsonpath={.metadata.uid}"])?;
        let mut pod = web();
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true}]);
        ns.start_pod(pod).await?;
        let cpu = fill(ns).await?;
        let evict = |name: &str| {
            let mut evict = wanting(name, &cpu);
            evict["spec"]["onDeferred"] = json!({"waitSeconds": 2, "then": "Evict"});
            evict
        };
        create(ns, evict("forbidden")).await?;
        let status = ends(ns, "forbidden", Phase::Failed, "EvictionForbidden").await?;
        assert!(status.message.contains("deploy/components/resize-evict"), "{}", status.message);
        assert_eq!(spec_amount(&ns.pod("web").await?, "app", "requests", "cpu")?, "100m");
        ns.cluster.documented("resize-evict", &[])?;
        let allowed = async {
            create(ns, evict("evict")).await?;
            ends(ns, "evict", Phase::Failed, "Evicted").await
        };
        let allowed = allowed.await;
        // The right is cluster-wide, and other tests check the controller's rights.
        let folder = pitstop_e2e::cluster::root().join("deploy/components/resize-evict");
        ns.cluster.kubectl(&["delete", "-k", &folder.to_string_lossy()])?;
        let status = allowed?;
        assert!(status.message.starts_with("the Pod is evicted"), "{}", status.message);
        Ok(())
    })
}

#[test]
fn a_request_names_the_pod_that_there_is_when_it_is_made() -> Result<()> {
    on_shared_cluster(async |ns| {
        let uid = ns.start_pod(web()).await?.metadata.uid.context("a Pod without a UID")?;
        let grow = resize("grow", "app", &json!({"limits": {"cpu": "300m"}}));
        let made = create(ns, grow.clone()).await?;
        assert_eq!(made.spec.pod_ref.uid.as_deref(), Some(uid.as_str()));
        ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        // The same file again, and the same with a change.
        let mut file = grow;
        ns.cluster.kubectl_with(&["--namespace", &ns.name, "replace", "-f", "-"], &file.to_string())?;
        file["spec"]["cancel"] = json!(true);
        ns.cluster.kubectl_with(&["--namespace", &ns.name, "replace", "-f", "-"], &file.to_string())?;
        let mut other = resize("other", "app", &json!({"limits": {"cpu": "400m"}}));
        other["spec"]["podRef"]["uid"] = json!("0eb8c2ee-2805-4222-b6b3-e8134389e5f1");
        let refused = create(ns, other).await.expect_err("bound to another Pod");
        let text = format!("{refused:#}");
        assert!(text.contains("mpodresize.pitstop.dev") && text.contains(&uid), "{text}");
        Ok(())
    })
}
