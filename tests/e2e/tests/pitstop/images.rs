//! New images in running Pods: nothing stops before the node has them, and a bad image is rolled back.

use pitstop_api::image_update::Phase;
use pitstop_e2e::system::{DAEMON, NAMESPACE};
use pitstop_e2e::{Context, LONG, Ns, Result, ensure, images, on_cluster, pods, until};
use serde_json::json;

/// Runs a test in which the controller may change images in namespaces that opt in.
fn on_updating_cluster(test: impl AsyncFnOnce(&Ns) -> Result<()>) -> Result<()> {
    on_cluster(async |ns| images::with_component(ns, test(ns)).await)
}

#[test]
fn images_are_pulled_and_changed_and_put_back() -> Result<()> {
    on_updating_cluster(async |ns| {
        images::opt_in(&ns.cluster, &ns.name)?;
        let before = ns.start_pod(images::web()).await?;

        // The daemon pulls the image, then the update waits while suspended.
        images::create(ns, images::update("good", "2", &json!({"suspend": true, "observeSeconds": 1})))
            .await?;
        let suspended = |u: &_| images::reason(u) == Some("Suspended");
        images::seen(ns, "good", "suspended", suspended).await?;
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")?;
        // The node loses the image: it is pulled again, and nothing stops meanwhile.
        images::forget(&ns.cluster)?;
        ns.kubectl(&["patch", "piu/good", "--type=merge", r#"--patch={"spec":{"suspend":false}}"#])?;
        let (good, reason) = images::over(ns, "good").await?;
        let status = good.status.context("no status")?;
        ensure!(reason == "Updated" && status.phase == Some(Phase::Succeeded), "{status:?}");
        let after = ns.ready("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "other")?;
        let container = &status.containers[0];
        let pulled = container.pulled.as_ref().context("nothing pulled")?;
        ensure!(!pulled.present && pulled.bytes > 0, "{pulled:?}");
        ensure!(images::image(&after, "app")? == format!("{}:2@{}", images::REPOSITORY, pulled.digest));
        let running = container.running.as_ref().context("nothing runs")?;
        ensure!(running.image_id == pulled.image_id, "{running:?}");

        // The same image under another tag.
        images::create(ns, images::update("again", "2-again", &json!({"observeSeconds": 0}))).await?;
        let (again, reason) = images::over(ns, "again").await?;
        ensure!(reason == "Updated", "{:?}", again.status);
        let mut last = ns.ready("web").await?;
        pods::assert_restarted_once(&after, &last, "app")?;

        // A bad image is rolled back.
        for (tag, expected) in
            [("crash", &["ContainerExited", "CrashLoopBackOff", "Restarted"][..]), ("unready", &["NotReady"])]
        {
            let fields = json!({"readyTimeoutSeconds": 10});
            images::create(ns, images::update(tag, tag, &fields)).await?;
            let (bad, reason) = images::over(ns, tag).await?;
            let status = bad.status.context("no status")?;
            ensure!(expected.contains(&reason.as_str()), "{status:?}");
            ensure!(status.phase == Some(Phase::RolledBack), "{status:?}");
            let back = ns.ready("web").await?;
            // The string may differ: the kubelet delays a string that was just used.
            let digest = |pod: &_| {
                images::image(pod, "app").map(|image| image.split_once('@').map(|(_, d)| d.to_owned()))
            };
            ensure!(digest(&back)? == digest(&last)?, "{status:?}");
            last = back;
        }
        Ok(())
    })
}

/// In its own Pod: the kubelet delays image strings to which a Pod has just returned.
#[test]
fn what_uses_up_its_memory_goes_back() -> Result<()> {
    on_updating_cluster(async |ns| {
        images::opt_in(&ns.cluster, &ns.name)?;
        let before = ns.start_pod(images::web()).await?;
        images::create(ns, images::update("oom", "oom", &json!({"readyTimeoutSeconds": 30}))).await?;
        let (update, reason) = images::over(ns, "oom").await?;
        let status = update.status.context("no status")?;
        ensure!(reason == "OOMKilled" && status.phase == Some(Phase::RolledBack), "{status:?}");
        let back = ns.ready("web").await?;
        ensure!(pods::status(&back, "app")?.image_id == pods::status(&before, "app")?.image_id, "{status:?}");
        pods::assert_untouched(&before, &back, "other")
    })
}

#[test]
fn containers_of_a_pod_and_its_sidecar_are_changed_together() -> Result<()> {
    on_updating_cluster(async |ns| {
        images::opt_in(&ns.cluster, &ns.name)?;
        let mut pod = images::web();
        let mut sidecar = images::server("side", 8082);
        sidecar["restartPolicy"] = json!("Always");
        pod["spec"]["initContainers"] = json!([sidecar]);
        let before = ns.start_pod(pod).await?;
        let names = ["app", "other", "side"];
        let all = names.map(|name| json!({"name": name, "image": format!("{}:2", images::REPOSITORY)}));
        let fields = json!({"containers": all, "observeSeconds": 0, "unreadyGracePeriodSeconds": 1});
        images::create(ns, images::update("all", "2", &fields)).await?;
        let (update, reason) = images::over(ns, "all").await?;
        let status = update.status.context("no status")?;
        ensure!(reason == "Updated" && status.containers.len() == 3, "{status:?}");
        let after = ns.ready("web").await?;
        for name in names {
            pods::assert_restarted_once(&before, &after, name)?;
        }
        for container in status.containers {
            let pulled = container.pulled.context("nothing pulled")?;
            ensure!(
                container.running.context("nothing runs")?.image_id == pulled.image_id,
                "{}",
                container.name
            );
        }
        Ok(())
    })
}

#[test]
fn an_image_for_which_a_node_has_no_room_is_not_pulled() -> Result<()> {
    on_updating_cluster(async |ns| {
        images::opt_in(&ns.cluster, &ns.name)?;
        let before = ns.start_pod(images::web()).await?;
        let daemon = |value: &str| {
            ns.cluster.kubectl(&[
                "-n",
                NAMESPACE,
                "set",
                "env",
                "daemonset",
                DAEMON,
                &format!("PITSTOP_IMAGE_ROOM{value}"),
            ])?;
            ns.cluster.kubectl(&["-n", NAMESPACE, "rollout", "status", "daemonset", DAEMON, "--timeout=2m"])
        };
        // More than any disk has.
        daemon("=1000000000000000000")?;
        let over = async {
            images::create(ns, images::update("large", "2", &json!({}))).await?;
            images::over(ns, "large").await
        };
        let over = over.await;
        daemon("-")?;
        let (update, reason) = over?;
        let message = update.status.context("no status")?.message;
        ensure!(
            reason == "NoDiskRoom" && message.contains("requires 953674316406 MiB"),
            "{reason}: {message}"
        );
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")
    })
}

#[test]
fn what_cannot_be_pulled_or_is_not_allowed_stops_nothing() -> Result<()> {
    on_updating_cluster(async |ns| {
        let before = ns.start_pod(images::web()).await?;
        // The namespace has not opted in.
        images::create(ns, images::update("unasked", "2", &json!({}))).await?;
        let (update, reason) = images::over(ns, "unasked").await?;
        let message = update.status.context("no status")?.message;
        ensure!(reason == "Refused" && message.contains("pitstop.dev/in-place=enabled"), "{message}");
        images::opt_in(&ns.cluster, &ns.name)?;
        // No such tag.
        images::create(ns, images::update("wrong-tag", "no-such", &json!({}))).await?;
        let (update, reason) = images::over(ns, "wrong-tag").await?;
        ensure!(reason == "PullFailed", "{:?}", update.status);
        // Another repository.
        let other = json!({"containers": [{"name": "app", "image": "pitstop.dev/test/other:2"}]});
        images::create(ns, images::update("other", "2", &other)).await?;
        let (update, reason) = images::over(ns, "other").await?;
        ensure!(reason == "Invalid", "{:?}", update.status);
        // The registry stops for a while.
        ns.cluster.stop("registry")?;
        let away =
            images::create(ns, images::update("away", "away", &json!({"pullTimeoutSeconds": 3}))).await;
        let ended = async {
            away?;
            images::over(ns, "away").await
        };
        let ended = ended.await;
        ns.cluster.start("registry")?;
        let (update, reason) = ended?;
        ensure!(reason == "PullFailed", "{:?}", update.status);
        for container in ["app", "other"] {
            pods::assert_untouched(&before, &ns.pod("web").await?, container)?;
        }
        images::no_order_is_left(ns).await
    })
}

/// With the component, in an opted-in namespace, for any holder of the controller's token.
#[test]
fn the_controller_may_write_other_versions_of_an_image_and_nothing_else() -> Result<()> {
    on_updating_cluster(async |ns| {
        let mut pod = images::web();
        pod["spec"]["initContainers"] =
            json!([{"name": "first", "image": format!("{}:1", images::REPOSITORY), "command": ["true"]}]);
        ns.start_pod(pod).await?;
        let patch = |target: &str, more: &[&str], patch: serde_json::Value| {
            let patch = format!("--patch={patch}");
            let usual = [
                "--as=system:serviceaccount:pitstop-system:pitstop-controller",
                "patch",
                target,
                "--dry-run=server",
            ];
            ns.kubectl(&[&usual[..], more, &[&patch]].concat())
        };
        let image =
            |list: &str, name: &str, image: &str| json!({"spec": {list: [{"name": name, "image": image}]}});
        let version = |tag: &str| format!("{}:{tag}", images::REPOSITORY);
        let denied = |what: &str, result: Result<String>| {
            let refusal = result.map_or_else(|error| format!("{error:#}"), |_| "it is allowed".to_owned());
            ensure!(
                refusal.contains("pitstop may") || refusal.to_lowercase().contains("forbidden"),
                "{what}: {refusal}"
            );
            Ok(())
        };
        let good = image("containers", "app", &version("2"));
        denied("no opt-in", patch("pod/web", &[], good.clone()))?;
        images::opt_in(&ns.cluster, &ns.name)?;
        until("the policy to see the label", LONG, async || Ok(patch("pod/web", &[], good.clone()).ok()))
            .await?;
        let with_label = json!({"metadata": {"labels": {"a": "b"}}, "spec": good["spec"]});
        let deadline = json!({"spec": {"activeDeadlineSeconds": 5}});
        for (what, forged) in [
            ("another repository", image("containers", "app", "pitstop.dev/test/other:2")),
            ("another registry", image("containers", "app", "example.com/test/busybox:2")),
            ("an init container", image("initContainers", "first", &version("2"))),
            ("metadata beside it", with_label),
            ("another field", deadline),
        ] {
            denied(what, patch("pod/web", &[], forged))?;
        }
        denied(
            "through pods/status",
            patch("pod/web", &["--subresource=status"], json!({"metadata": {"labels": {"a": "b"}}})),
        )?;
        denied(
            "through ephemeral containers",
            patch(
                "pod/web",
                &["--subresource=ephemeralcontainers"],
                image("ephemeralContainers", "x", &version("2")),
            ),
        )?;
        let label = json!({"metadata": {"labels": {"pitstop.dev/in-place": "enabled"}}});
        denied("the label itself", patch(&format!("namespace/{}", ns.name), &[], label))
    })
}
