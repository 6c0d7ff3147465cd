//! New images in running Pods: nothing stops before the node has them, and what does badly goes back.

use pitstop_api::image_update::Phase;
use pitstop_e2e::{Context, LONG, Result, ensure, images, on_cluster, pods, until};
use serde_json::json;

#[test]
fn images_are_pulled_and_changed_and_put_back() -> Result<()> {
    on_cluster(async |ns| {
        images::allow(ns)?;
        let before = ns.start_pod(images::web()).await?;

        // Pulled, and then waits until it is released.
        images::create(ns, images::update("good", "2", &json!({"suspend": true, "observeSeconds": 1})))
            .await?;
        let suspended = |u: &_| images::reason(u) == Some("Suspended");
        images::seen(ns, "good", "suspended", suspended).await?;
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")?;
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
        ensure!(status.gap_milliseconds.is_some_and(|gap| gap > 0), "{status:?}");

        // The same image under another tag.
        images::create(ns, images::update("again", "2-again", &json!({"observeSeconds": 0}))).await?;
        let (again, reason) = images::over(ns, "again").await?;
        ensure!(reason == "Updated", "{:?}", again.status);
        let mut last = ns.ready("web").await?;
        pods::assert_restarted_once(&after, &last, "app")?;

        // What is bad goes back.
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
            // Perhaps by another string: the kubelet keeps one waiting that has just been used.
            let digest = |pod: &_| {
                images::image(pod, "app").map(|image| image.split_once('@').map(|(_, d)| d.to_owned()))
            };
            ensure!(digest(&back)? == digest(&last)?, "{status:?}");
            last = back;
        }
        Ok(())
    })
}

#[test]
fn what_cannot_be_pulled_or_is_not_allowed_stops_nothing() -> Result<()> {
    on_cluster(async |ns| {
        ns.cluster.install_with(&["image-update"])?;
        let before = ns.start_pod(images::web()).await?;
        // Not in a namespace that has not opted in.
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
        // The registry is away, and comes back.
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
        until("no order to be left", LONG, async || {
            let book =
                ns.cluster.kubectl(&["get", "nodework", "node1", "--output=jsonpath={.spec.orders}"])?;
            Ok(["", "[]"].contains(&book.as_str()).then_some(()))
        })
        .await
    })
}
