//! `kubectl pitstop`, as users run it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use pitstop_api::rollout::InPlaceRollout;
use pitstop_e2e::images::{REPOSITORY, with_in_place};
use pitstop_e2e::terminal::{CliOutput, Terminal, good, run};
use pitstop_e2e::workloads::{
    all, assert_all_restarted, create, get, ready, rollout, rolls_natively, servers, until_reason, workload,
};
use pitstop_e2e::{
    Context as _, LONG, Ns, Result, bail, ensure, on_cluster, on_shared_cluster, pods, system, until,
};
use serde_json::{Value, json};

use super::updates::{assert_updated, field, images};

/// A Pod `web` of two containers.
async fn web(ns: &Ns) -> Result<Pod> {
    ns.start_pod(pods::pod("web", &[pods::web("app"), pods::idle("sidecar")])).await
}

fn refused(ns: &Ns, args: &[&str], expected: &[&str]) -> Result<()> {
    let CliOutput { code, out, err } = run(ns, args)?;
    ensure!(code == 1 && out.is_empty(), "{args:?} ended with code {code}: {out}{err}");
    for expected in expected {
        ensure!(err.contains(expected), "{args:?} does not show {expected:?}: {err}");
    }
    Ok(())
}

#[test]
fn one_container_is_restarted_and_waited_for() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = web(ns).await?;
        let out = good(ns, &["restart", "pod/web", "-c", "app", "--wait", "--timeout=90s"])?;
        ensure!(out.contains("containerrecreaterequest.apps.kruise.io/web-"), "{out}");
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "sidecar")
    })
}

#[test]
fn what_is_waited_for_says_how_it_ended_by_the_exit_code() -> Result<()> {
    on_shared_cluster(async |ns| {
        let stubborn = pods::pod("web", &[pods::stubborn("app")]);
        ns.start_pod(stubborn).await?;
        let made = good(ns, &["restart", "pod/web", "--grace=30s", "--mechanism=Runtime", "-o", "name"])?;
        let request = made.trim().rsplit_once('/').context("no name")?.1.to_owned();
        let name = format!("crr/{request}");
        let CliOutput { code, err, .. } = run(ns, &["wait", &name, "--timeout=1s"])?;
        ensure!(code == 2, "{code}: {err}");
        // A second request for the same Pod ends at its own deadline.
        let made = good(ns, &["restart", "pod/web", "--deadline=3s", "-o", "name"])?;
        let late = format!("crr/{}", made.trim().rsplit_once('/').context("no name")?.1);
        let CliOutput { code, out, err } = run(ns, &["wait", &late, "--timeout=60s"])?;
        ensure!(code == 1 && format!("{out}{err}").contains("DeadlineExceeded"), "{code}: {out}{err}");
        let CliOutput { code, out, err } = run(ns, &["wait", &name, "--timeout=90s"])?;
        ensure!(code == 0, "{code}: {out}{err}");
        Ok(())
    })
}

#[test]
fn a_workload_is_restarted_without_an_opt_in_and_is_not_parked() -> Result<()> {
    on_shared_cluster(async |ns| {
        create(ns, &workload("Deployment", 3))?;
        let before = ready(ns, 3).await?;
        good(ns, &["restart", "deploy/web", "-c", "app", "--wait", "--timeout=120s"])?;
        let after = all(ns).await?;
        assert_all_restarted(&before, &after, "app")?;
        let labels = ns.kubectl(&["get", "deployment/web", "-o", "jsonpath={.metadata.labels}"])?;
        ensure!(!labels.contains("pitstop.dev/parked"), "{labels}");
        // Once more: the same object gets a new value.
        let first = get(ns).await?.spec.restarted_at;
        good(ns, &["restart", "deploy/web", "-c", "app", "--wait", "--timeout=120s"])?;
        ensure!(get(ns).await?.spec.restarted_at != first);
        Ok(())
    })
}

#[test]
fn what_cannot_be_is_refused_with_what_would_be_right() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = web(ns).await?;
        refused(ns, &["restart", "pod/web", "-c", "ap"], &["app", "sidecar"])?;
        refused(ns, &["restart", "pod/web"], &["app", "sidecar", "-c"])?;
        refused(ns, &["restart", "pod/none", "-c", "app"], &["Error from server (NotFound)", "none"])?;
        refused(ns, &["restart", "node/web"], &["not a type that pitstop services"])?;
        refused(ns, &["--context=none", "status"], &["none"])?;
        refused(ns, &["resize", "pod/web", "-c", "app", "cpu=much"], &["cpu", "much"])?;
        refused(ns, &["set-image", "pod/web", "app=other.example.com/x:v1"], &["not its repository"])?;
        refused(ns, &["undo", "pod/web"], &["pod/web is not a workload"])?;
        refused(ns, &["undo", "deploy/none"], &["NotFound", "none"])?;
        refused(ns, &["pause", "deploy/none"], &["none"])?;
        refused(ns, &["enable", "deploy/none"], &["NotFound", "none"])?;
        refused(ns, &["disable", "namespace/none"], &["NotFound", "none"])?;
        refused(ns, &["cancel", "crr/none"], &["none"])?;
        refused(ns, &["status", "pod/none"], &["there is no pod/none in namespace"])?;
        refused(ns, &["wait", "pod/web"], &["pod/web is not a request"])?;
        let dry = good(ns, &["restart", "pod/web", "-c", "app", "--dry-run=server", "-o", "json"])?;
        let dry: Value = serde_json::from_str(&dry)?;
        // The webhook or the API server has filled it in.
        ensure!(dry["kind"] == "ContainerRecreateRequest" && dry["spec"]["podName"] == "web", "{dry}");
        let kept = ns.kubectl(&["get", "crr", "-o", "name"])?;
        ensure!(kept.is_empty(), "a dry run has made {kept}");
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")
    })
}

/// Runs a command in a terminal, which must end with `code` and show `expected`.
fn at_desk(ns: &Ns, code: i32, expected: &str, args: &[&str]) -> Result<String> {
    let (ended, text, sane) = Terminal::start(ns, 50, 160, args)?.end()?;
    ensure!(
        ended == code && sane && text.contains(expected),
        "{args:?} ended with code {ended} (the terminal is as it was: {sane}), without {expected:?}:\n{text}"
    );
    Ok(text)
}

#[test]
fn each_command_works_in_a_terminal_and_says_what_is_wrong() -> Result<()> {
    on_shared_cluster(async |ns| {
        let desk = |code: i32, expected: &str, args: &[&str]| at_desk(ns, code, expected, args);
        let namespace = format!("namespace/{}", ns.name);
        web(ns).await?;
        ns.start_pod(pods::pod("slow", &[pods::stubborn("app")])).await?;
        create(ns, &workload("Deployment", 1))?;
        let made = desk(0, "web-", &["restart", "pod/web", "-c", "app", "-o", "name"])?;
        let request = made.trim().replace("containerrecreaterequest.apps.kruise.io", "crr");
        desk(0, " done: ", &["wait", &request, "--timeout=90s"])?;
        desk(1, "\"none\" is not a container of it", &["restart", "pod/web", "-c", "none"])?;
        desk(1, "pod/web is not a request", &["wait", "pod/web"])?;
        desk(
            0,
            "created (server dry run)",
            &["resize", "pod/web", "-c", "app", "cpu=150m", "--dry-run=server"],
        )?;
        desk(1, "much", &["resize", "pod/web", "-c", "app", "cpu=much"])?;
        desk(0, "enabled", &["enable", &namespace])?;
        desk(1, "NotFound", &["enable", "deploy/none"])?;
        desk(0, "created (dry run)", &["set-image", "pod/web", &version("2"), "--dry-run=client"])?;
        desk(1, "not its repository", &["set-image", "pod/web", "app=other.example.com/x:v1"])?;
        desk(0, "created", &["enable", "deploy/web"])?;
        desk(0, "paused", &["pause", "deploy/web"])?;
        desk(1, "already paused", &["pause", "deploy/web"])?;
        desk(0, "resumed", &["resume", "deploy/web"])?;
        desk(1, "is not paused", &["resume", "deploy/web"])?;
        desk(1, "no earlier revision", &["undo", "deploy/web"])?;
        desk(0, "disabled", &["disable", "deploy/web"])?;
        desk(1, "there is nothing to disable", &["disable", "deploy/web"])?;
        ns.kubectl(&["rollout", "status", "deploy/web", "--timeout=60s"])?;
        ns.kubectl(&["set", "env", "deploy/web", "NEW=1"])?;
        desk(0, "rolled back to revision 1", &["undo", "deploy/web", "--dry-run=client"])?;
        let slow = ["restart", "pod/slow", "--grace=20s", "--mechanism=Runtime", "-o", "name"];
        let made = desk(0, "slow-", &slow)?;
        let request = made.trim().replace("containerrecreaterequest.apps.kruise.io", "crr");
        desk(0, "Pod slow", &["status", &request])?;
        desk(1, "there is no pod/none", &["status", "pod/none"])?;
        desk(1, " at work: ", &["doctor", "--before-uninstall"])?;
        desk(0, "node1", &["explain", &request])?;
        desk(1, "there is no", &["explain", "crr/none"])?;
        desk(0, "", &["cancel", &request])?;
        desk(1, "NotFound", &["cancel", "crr/none"])?;
        desk(0, "pitstop-daemon-", &["node", "node1"])?;
        desk(1, "none", &["node", "none"])?;
        desk(1, "invalid value", &["doctor", "-o", "none"])?;
        desk(0, "complete -F", &["completion", "bash"])?;
        desk(1, "invalid value", &["completion", "none"]).map(drop)
    })
}

#[test]
fn a_rollout_is_paused_and_goes_on() -> Result<()> {
    on_shared_cluster(async |ns| {
        create(ns, &workload("Deployment", 2))?;
        ready(ns, 2).await?;
        create(ns, &rollout("Deployment", &json!({"strategy": {"soakSeconds": 1}})))?;
        good(ns, &["pause", "deploy/web"])?;
        ensure!(get(ns).await?.spec.paused);
        good(ns, &["resume", "deploy/web"])?;
        ensure!(!get(ns).await?.spec.paused);
        Ok(())
    })
}

/// Whether a frame of `status --watch` shows the counts of its rollout.
fn shows(rollout: &InPlaceRollout, lines: &str) -> bool {
    let Some(status) = &rollout.status else { return true };
    let counts = format!("{} of {} done, {} at work", status.current, status.pods, status.started);
    status.pods == 0 || lines.contains(&counts)
}

/// Collects every version of the rollout that the API server sends, until this is dropped.
async fn versions(ns: &Ns, into: &Mutex<BTreeMap<String, InPlaceRollout>>) -> Result<()> {
    let rollouts: Api<InPlaceRollout> = Api::namespaced(ns.cluster.client.clone(), &ns.name);
    let mut events = rollouts.watch(&WatchParams::default(), "0").await?.boxed();
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(rollout) | WatchEvent::Modified(rollout) = event {
            let version = rollout.metadata.resource_version.clone().unwrap_or_default();
            into.lock().unwrap_or_else(PoisonError::into_inner).insert(version, rollout);
        }
    }
    bail!("the watch has ended")
}

#[test]
fn the_picture_shows_what_the_objects_say_at_the_same_version() -> Result<()> {
    on_shared_cluster(async |ns| {
        create(ns, &workload("Deployment", 20))?;
        ready(ns, 20).await?;
        let strategy = json!({"soakSeconds": 1, "maxUnavailable": 4});
        create(ns, &rollout("Deployment", &json!({"strategy": strategy})))?;
        let file = tempfile::NamedTempFile::new()?;
        let frames = file.path().to_str().context("no path")?;
        let seen = Mutex::new(BTreeMap::new());
        let watched = async {
            let terminal =
                Terminal::start(ns, 40, 100, &["status", "deploy/web", "--watch", "--frames", frames])?;
            terminal.until("the workload", |text| text.contains("deployment/web")).await?;
            good(ns, &["restart", "deploy/web", "-c", "app"])?;
            terminal.until("Pods at work", |text| text.contains("at work")).await?;
            terminal.resize(30, 80)?;
            terminal.until("the end", |text| text.contains("20 of 20 done")).await?;
            terminal.interrupt()
        };
        let (code, last, sane) = tokio::select! {
            end = watched => end?,
            error = versions(ns, &seen) => bail!("{error:?}"),
        };
        ensure!(code == 130 && sane, "code {code}, the terminal is as it was: {sane}");
        ensure!(
            last.contains("20 of 20 done") && last.contains("kubectl pitstop wait deployment/web"),
            "{last}"
        );

        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut compared, text) = (0, std::fs::read_to_string(frames)?);
        // The terminal's text may join two lines: one was wrapped before the program knew the new size.
        let last: Value = serde_json::from_str(text.lines().last().context("no frame")?)?;
        let last: Vec<String> = serde_json::from_value(last["lines"].clone())?;
        ensure!(last.len() <= 30 && last.iter().all(|line| line.chars().count() <= 80), "{last:?}");
        for line in text.lines() {
            let frame: Value = serde_json::from_str(line)?;
            let lines: Vec<String> = serde_json::from_value(frame["lines"].clone())?;
            let version = frame["resourceVersions"]["inplacerollout/web"].as_str().unwrap_or_default();
            if let Some(rollout) = seen.get(version) {
                let lines = lines.join("\n");
                ensure!(shows(rollout, &lines), "{:?} is shown as\n{lines}", rollout.status);
                compared += 1;
            }
        }
        ensure!(compared > 5, "of {} frames, only {compared} could be compared", text.lines().count());
        Ok(())
    })
}

#[test]
fn through_a_pipe_each_change_is_a_line_until_the_request_has_ended() -> Result<()> {
    on_shared_cluster(async |ns| {
        web(ns).await?;
        let made = good(ns, &["restart", "pod/web", "-c", "app", "-o", "name"])?;
        let name = made.trim().rsplit_once('/').context("no name")?.1.to_owned();
        let out = good(ns, &["status", &format!("crr/{name}"), "--watch"])?;
        let last = out.lines().last().unwrap_or_default();
        ensure!(out.contains("Pod web") && !out.contains('\u{1b}') && last.contains("Succeeded"), "{out}");
        Ok(())
    })
}

#[test]
fn pods_are_resized_and_updated() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut app = pods::web("app");
        app["resources"] = json!({"requests": {"cpu": "50m"}});
        let before = ns.start_pod(pods::pod("web", &[app])).await?;
        good(ns, &["resize", "pod/web", "-c", "app", "cpu=150m", "--wait", "--timeout=90s"])?;
        let after = ns.pod("web").await?;
        let requests = pods::container(&after, "app")?.resources.clone().and_then(|it| it.requests);
        ensure!(requests.is_some_and(|it| it["cpu"].0 == "150m"));
        pods::assert_untouched(&before, &after, "app")?;
        // An image that cannot be pulled stops nothing.
        let CliOutput { code, err, .. } =
            run(ns, &["set-image", "pod/web", "app=registry.invalid/none:v1", "--wait", "--timeout=60s"])?;
        ensure!(code == 1 || code == 2, "{code}: {err}");
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")
    })
}

#[test]
fn a_namespace_is_opted_in_and_out() -> Result<()> {
    on_shared_cluster(async |ns| {
        let namespace = format!("namespace/{}", ns.name);
        let CliOutput { code, err, .. } = run(ns, &["enable", &namespace])?;
        // Earlier tests may have installed the component that changes workloads.
        let bound = ns.kubectl(&["get", "rolebinding", "-o", "name"])?.contains("pitstop-in-place");
        let warned = err.contains("there is no ClusterRole pitstop-in-place");
        ensure!(code == 0 && bound != warned, "{code}, bound {bound}: {err}");
        let labels = || ns.kubectl(&["get", "namespace", &ns.name, "-o", "jsonpath={.metadata.labels}"]);
        ensure!(labels()?.contains("pitstop.dev/in-place"), "{}", labels()?);
        good(ns, &["disable", &namespace])?;
        ensure!(!labels()?.contains("pitstop.dev/in-place"), "{}", labels()?);
        Ok(())
    })
}

/// Creates a workload of two Pods, and enables its namespace and the workload with the plugin.
async fn switched_on(ns: &Ns, kind: &str, workload: &str, soak: &str) -> Result<BTreeMap<String, Pod>> {
    let namespace = format!("namespace/{}", ns.name);
    create(ns, &servers(kind, 2))?;
    let before = ready(ns, 2).await?;
    refused(ns, &["set-image", workload, &version("2")], &["run `kubectl pitstop enable"])?;
    let out = good(ns, &["enable", &namespace])?;
    ensure!(out.contains("enabled") && out.contains("rolebinding"), "{out}");
    let out = good(ns, &["enable", workload, soak, "--wait", "--timeout=90s"])?;
    ensure!(out.contains("created") && out.contains("CanRelease"), "{out}");
    Ok(before)
}

fn version(tag: &str) -> String {
    format!("app={REPOSITORY}:{tag}")
}

/// Fails unless the workload is not parked, and its own controller replaces its Pods.
async fn is_let_go(ns: &Ns, kind: &str, before: &BTreeMap<String, Pod>) -> Result<()> {
    let mark = field(ns, kind, ".metadata.labels.pitstop\\.dev/parked")?;
    ensure!(mark.is_empty(), "it is parked: {mark}");
    rolls_natively(ns, &format!("{}/web", kind.to_lowercase()), before).await
}

#[test]
fn a_workload_gets_new_images_in_its_pods_goes_back_and_is_let_go() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = switched_on(ns, "Deployment", "deploy/web", "--soak=1s").await?;
        good(ns, &["set-image", "deploy/web", &version("2"), "--wait", "--timeout=120s"])?;
        let after = all(ns).await?;
        assert_updated(&before, &after)?;
        images(ns, "2").await?;
        good(ns, &["undo", "deploy/web", "--wait", "--timeout=120s"])?;
        ensure!(all(ns).await?.keys().eq(before.keys()), "{:?}", all(ns).await?.keys());
        images(ns, "1").await?;
        good(ns, &["disable", "deploy/web"])?;
        refused(ns, &["set-image", "deploy/web", &version("2")], &["run `kubectl pitstop enable"])?;
        ns.kubectl(&["set", "image", "deploy/web", &version("2")])?;
        is_let_go(ns, "Deployment", &before).await?;
        let out = good(ns, &["disable", &format!("namespace/{}", ns.name)])?;
        ensure!(out.contains("disabled") && out.contains("rolebinding"), "{out}");
        Ok(())
    };
    on_cluster(async |ns| with_in_place(ns, &["image-update", "in-place"], test(ns)).await)
}

#[test]
fn a_parked_workload_is_let_go_where_no_controller_runs() -> Result<()> {
    let test = async |ns: &Ns| {
        let before = switched_on(ns, "StatefulSet", "sts/web", "--soak=600s").await?;
        good(ns, &["set-image", "sts/web", &version("2")])?;
        until_reason(ns, "Updating").await?;
        let namespace = format!("namespace/{}", ns.name);
        let let_go = async {
            // The namespace parks no more workloads, but the right to release the parked one stays.
            let CliOutput { code, err, .. } = run(ns, &["disable", &namespace])?;
            ensure!(
                code == 1 && err.contains("run `kubectl pitstop disable statefulset/web"),
                "{code}: {err}"
            );
            let out = good(ns, &["disable", "sts/web"])?;
            ensure!(out.contains("released"), "{out}");
            is_let_go(ns, "StatefulSet", &before).await?;
            images(ns, "2").await
        };
        system::without_controllers(&ns.cluster, let_go).await?;
        let out = good(ns, &["disable", &namespace])?;
        ensure!(out.contains("rolebinding"), "{out}");
        Ok(())
    };
    on_cluster(async |ns| with_in_place(ns, &["image-update", "in-place"], test(ns)).await)
}

#[test]
fn what_is_waited_for_is_explained_and_taken_back() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::pod("web", &[pods::stubborn("app"), pods::idle("other")])).await?;
        good(ns, &["restart", "pod/web", "-c", "app", "--grace=30s", "--mechanism=Runtime"])?;
        let out = until("the stop", LONG, async || {
            let out = good(ns, &["explain", "pod/web"])?;
            Ok(Some(out).filter(|out| out.contains("Stopping") && out.contains("acknowledged")))
        });
        let out = out.await?;
        for part in ["The daemon runs the preStop hook", "node1 is Ready", "pitstop-daemon-"] {
            ensure!(out.contains(part), "{part:?} is not in\n{out}");
        }
        // Requests of the same second run in any order, so this one is created after the other has begun.
        let made = good(ns, &["restart", "pod/web", "-c", "other", "-o", "name"])?;
        let second = format!("crr/{}", made.trim().rsplit_once('/').context("no name")?.1);
        let out = until("the wait", LONG, async || {
            let out = good(ns, &["explain", &second])?;
            Ok(Some(out).filter(|out| out.contains("Queued")))
        });
        let out = out.await?;
        ensure!(out.contains("goes first"), "{out}");
        good(ns, &["cancel", &second])?;
        let CliOutput { code, err, .. } = run(ns, &["explain", &second])?;
        ensure!(code == 1 && err.contains("there is no"), "{code}: {err}");
        pods::assert_untouched(&before, &ns.pod("web").await?, "other")
    })
}

#[test]
fn the_picture_stays_while_the_api_server_is_gone() -> Result<()> {
    on_cluster(async |ns| {
        create(ns, &workload("Deployment", 2))?;
        ready(ns, 2).await?;
        let terminal = Terminal::start(ns, 30, 120, &["status", "deploy/web", "--watch"])?;
        terminal.until("the Pods", |text| text.contains("web-")).await?;
        ns.cluster.stop("apiserver")?;
        let gone = terminal.until("how old it is", |text| text.contains(" s old: ")).await;
        ns.cluster.start("apiserver")?;
        let gone = gone?;
        ensure!(gone.contains("deployment/web") && gone.contains("web-"), "{gone}");
        terminal.until("that it is current", |text| !text.contains(" s old: ")).await?;
        let (code, last, sane) = terminal.interrupt()?;
        ensure!(code == 130 && sane && last.contains("The requests continue"), "{code} {sane}: {last}");
        Ok(())
    })
}

#[test]
fn an_installation_is_examined_good_and_bad() -> Result<()> {
    on_cluster(async |ns| {
        let CliOutput { code, out, err } = run(ns, &["doctor"])?;
        ensure!(
            code == 0 && out.contains("enforces the policy") && out.contains("0 errors"),
            "{code}: {out}{err}"
        );
        let report: Value = serde_json::from_str(&good(ns, &["doctor", "-o", "json"])?)?;
        ensure!(report.to_string().contains("policies"), "{report}");
        ns.cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "pitstop-daemon"])?;
        let bad = run(ns, &["doctor"]);
        ns.cluster.install()?;
        let CliOutput { code, out, err } = bad?;
        ensure!(code == 1 && out.contains("error") && out.contains("pitstop-daemon"), "{code}: {out}{err}");
        Ok(())
    })
}

/// The check covers all namespaces, so no other test may run.
#[test]
fn before_an_uninstallation_what_is_at_work_is_named() -> Result<()> {
    on_cluster(async |ns| {
        ns.start_pod(pods::pod("web", &[pods::stubborn("app")])).await?;
        let made = good(ns, &["restart", "pod/web", "--grace=10s", "--mechanism=Runtime", "-o", "name"])?;
        let request = made.trim().rsplit_once('/').context("no name")?.1;
        let CliOutput { code, out, err } = run(ns, &["doctor", "--before-uninstall"])?;
        let words = [" at work: ", &format!("{}/{request}", ns.name)];
        ensure!(code == 1 && words.iter().all(|word| out.contains(word)), "{code}: {out}{err}");
        good(ns, &["wait", &format!("crr/{request}"), "--timeout=90s"])?;
        let idle = async || Ok(Some(good(ns, &["doctor", "--before-uninstall"])?));
        let out = until("nothing to be at work", LONG, idle).await?;
        ensure!(out.contains("no Pod held at other resources") && out.contains("0 errors"), "{out}");
        Ok(())
    })
}

#[test]
fn the_order_book_of_a_node_is_shown() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(pods::pod("web", &[pods::stubborn("app")])).await?;
        good(ns, &["restart", "pod/web", "--grace=20s", "--mechanism=Runtime"])?;
        let order = format!("{}/web app", ns.name);
        let out = until("the order", LONG, async || {
            let out = good(ns, &["node", "node1"])?;
            Ok(Some(out).filter(|out| out.contains(&order) && out.contains("Acknowledged")))
        });
        let out = out.await?;
        ensure!(out.contains("pitstop-daemon-") && out.contains("containerd"), "{out}");
        let out = good(ns, &["status", "--all-namespaces"])?;
        ensure!(out.contains(&format!("namespace/{}", ns.name)) && out.contains("Pod web: "), "{out}");
        refused(ns, &["node", "none"], &["none"])
    })
}
