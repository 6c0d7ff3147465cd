//! New images from a registry that is slow, asks for a password or refuses.

use pitstop_api::image_update::Phase;
use pitstop_e2e::registry::{Failing, Faults, PRIVATE, credentials, pull_secret, requests};
use pitstop_e2e::{Context, LONG, Ns, Result, ensure, images, on_cluster, pods, until};
use serde_json::json;

const REPOSITORY: &str = "test/busybox";

/// Runs a test in a namespace that has opted in.
fn on_updating_cluster(test: impl AsyncFnOnce(&Ns) -> Result<()>) -> Result<()> {
    on_cluster(async |ns| {
        images::with_component(ns, async {
            images::opt_in(&ns.cluster, &ns.name)?;
            test(ns).await
        })
        .await
    })
}

#[test]
fn a_slow_registry_is_waited_for_before_anything_stops_and_not_asked_again() -> Result<()> {
    on_updating_cluster(async |ns| {
        let before = ns.start_pod(images::web()).await?;
        {
            // The pull of 4 MiB takes about five seconds.
            let faults = Faults { delay_milliseconds: 1000, bytes_per_second: 1 << 20, ..Faults::default() };
            let _slow = Failing::with(&ns.cluster, &faults)?;
            let fields = json!({"suspend": true, "observeSeconds": 0});
            images::create(ns, images::update("slow", "big", &fields)).await?;
            let pulling = |u: &_| images::reason(u) == Some("Pulling");
            images::seen(ns, "slow", "pulling", pulling).await?;
            let suspended = |u: &_| images::reason(u) == Some("Suspended");
            images::seen(ns, "slow", "suspended", suspended).await?;
        }
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")?;
        let asked = requests(&ns.cluster, REPOSITORY)?;
        ensure!(asked.iter().any(|line| line.ends_with("manifests/big")), "{asked:?}");
        ns.kubectl(&["patch", "piu/slow", "--type=merge", r#"--patch={"spec":{"suspend":false}}"#])?;
        let (slow, reason) = images::over(ns, "slow").await?;
        let status = slow.status.context("no status")?;
        ensure!(reason == "Updated", "{status:?}");
        let pulled = status.containers[0].pulled.as_ref().context("nothing pulled")?;
        ensure!(pulled.milliseconds >= 4000, "{pulled:?}");
        pods::assert_restarted_once(&before, &ns.ready("web").await?, "app")?;
        let after = requests(&ns.cluster, REPOSITORY)?;
        ensure!(after == asked, "the registry was asked after the pull: {:?}", &after[asked.len()..]);
        Ok(())
    })
}

#[test]
fn an_image_that_the_node_loses_is_pulled_again_before_anything_stops() -> Result<()> {
    on_updating_cluster(async |ns| {
        let before = ns.start_pod(images::web()).await?;
        let began = requests(&ns.cluster, REPOSITORY)?.len();
        let fields = json!({"suspend": true, "observeSeconds": 0});
        images::create(ns, images::update("lost", "2", &fields)).await?;
        let suspended = |u: &_| images::reason(u) == Some("Suspended");
        images::seen(ns, "lost", "suspended", suspended).await?;
        let once = requests(&ns.cluster, REPOSITORY)?.len();

        let faults = Faults { delay_milliseconds: 6000, ..Faults::default() };
        let _slow = Failing::with(&ns.cluster, &faults)?;
        images::forget(&ns.cluster)?;
        until("the daemon to miss the image", LONG, async || {
            let book = ["get", "nodework", "node1", "--output=jsonpath={.status.answers[*].state}"];
            Ok((ns.cluster.kubectl(&book)? == "Acknowledged").then_some(()))
        })
        .await?;
        ns.kubectl(&["patch", "piu/lost", "--type=merge", r#"--patch={"spec":{"suspend":false}}"#])?;
        let pulling = |u: &_| images::reason(u) == Some("Pulling");
        images::seen(ns, "lost", "pulling again", pulling).await?;
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")?;
        ensure!(images::image(&ns.pod("web").await?, "app")? == images::image(&before, "app")?);
        let (lost, reason) = images::over(ns, "lost").await?;
        ensure!(reason == "Updated", "{:?}", lost.status);
        pods::assert_restarted_once(&before, &ns.ready("web").await?, "app")?;
        // A pull by the kubelet would be a third one. The kubelet may check its access to an image (HEAD), and layers
        // shared with other images need no download.
        let asked = requests(&ns.cluster, REPOSITORY)?;
        let (first, again) = (&asked[began..once], &asked[once..]);
        let pulls = |asked: &[String]| {
            asked.iter().filter(|line| line.contains("GET") && line.contains("manifests")).count()
        };
        ensure!((pulls(first), pulls(again)) == (1, 1), "{first:?}, then {again:?}");
        Ok(())
    })
}

#[test]
fn a_registry_that_refuses_stops_nothing_and_its_words_are_told() -> Result<()> {
    on_updating_cluster(async |ns| {
        let mut pod = images::web();
        pod["spec"]["containers"][1]["image"] = json!(format!("{PRIVATE}/{REPOSITORY}:1"));
        pod["spec"]["imagePullSecrets"] = json!([{"name": "registry"}]);
        pull_secret(ns, "registry")?;
        let before = ns.start_pod(pod).await?;
        // The node's runtime has no password of its own.
        let private =
            json!({"containers": [{"name": "other", "image": format!("{PRIVATE}/{REPOSITORY}:2")}]});
        let mut seen = Vec::new();
        for (name, status, fields, expected) in [
            ("private", 0, private, "CannotProvePull"),
            ("unauthorized", 401, json!({"pullTimeoutSeconds": 5}), "CannotProvePull"),
            ("too-many", 429, json!({"pullTimeoutSeconds": 5}), "PullFailed"),
            ("unavailable", 503, json!({"pullTimeoutSeconds": 5}), "PullFailed"),
        ] {
            let _failing = Failing::with(&ns.cluster, &Faults { status, ..Faults::default() })?;
            images::create(ns, images::update(name, "2", &fields)).await?;
            let (update, reason) = images::over(ns, name).await?;
            let status = update.status.context("no status")?;
            ensure!(reason == expected && status.phase == Some(Phase::Failed), "{name}: {status:?}");
            seen.push(status.message);
        }
        ensure!(seen[2].contains("429") && seen[3].contains("503"), "{seen:?}");
        for container in ["app", "other"] {
            pods::assert_untouched(&before, &ns.pod("web").await?, container)?;
        }
        let password = credentials(&ns.cluster)?.password;
        let output = ns.kubectl(&["get", "piu,events", "--output=yaml"])?;
        ensure!(!output.contains(&password), "the password is in a status or an event");
        Ok(())
    })
}

#[test]
fn an_image_that_needs_too_much_memory_goes_back() -> Result<()> {
    on_updating_cluster(async |ns| {
        let before = ns.start_pod(images::web()).await?;
        images::create(ns, images::update("oom", "oom", &json!({"readyTimeoutSeconds": 20}))).await?;
        let (update, reason) = images::over(ns, "oom").await?;
        let status = update.status.context("no status")?;
        let bad = ["OOMKilled", "ContainerExited", "CrashLoopBackOff"].contains(&reason.as_str());
        ensure!(bad && status.phase == Some(Phase::RolledBack), "{status:?}");
        let back = ns.ready("web").await?;
        pods::assert_untouched(&before, &back, "other")?;
        Ok(())
    })
}
