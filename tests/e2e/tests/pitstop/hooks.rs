//! preStop hooks, as the kubelet runs them.
//!
//! Hooks write into the file `/data/hooks` of a volume; the Pod's `sidecar` logs what is in it.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::{
    Context, LONG, Ns, Result, SHORT, on_cluster, on_shared_cluster, pods, requests, system, until,
};
use serde_json::{Value, json};

/// A Pod whose `app` is that container with that hook.
fn pod(mut app: Value, hook: &Value) -> Value {
    app["lifecycle"] = json!({"preStop": hook});
    let mut sidecar = pods::shell("sidecar", "touch /data/hooks; tail -f /data/hooks");
    for container in [&mut app, &mut sidecar] {
        container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    }
    let mut pod = pods::pod("web", &[app, sidecar]);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod
}

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

/// What the hooks have written.
async fn written(ns: &Ns) -> Result<Vec<String>> {
    Ok(ns.log("web", "sidecar").await?.lines().map(str::to_owned).collect())
}

/// Starts the Pod and creates a request for `app`; returns both.
async fn ask(ns: &Ns, pod: Value, grace: i64) -> Result<(Pod, ContainerRecreateRequest)> {
    let before = ns.start_pod(pod).await?;
    let mut spec = requests::plain("web", &["app"]);
    spec["strategy"] = json!({"terminationGracePeriodSeconds": grace});
    let request = ns.create(requests::with_spec("again", &spec)).await?;
    Ok((before, request))
}

/// Waits until the request has restarted `app` once. Returns the request, and the seconds from its creation to the end
/// of the old container. Both times are the same machine's.
async fn done(
    ns: &Ns,
    before: &Pod,
    request: &ContainerRecreateRequest,
) -> Result<(ContainerRecreateRequest, i64)> {
    let over = ns.over_within("again", LONG).await?;
    assert_eq!(requests::states(&over), [requests::succeeded("app")]);
    assert_eq!(requests::conditions(&over)["Complete"], "True/Complete");
    ns.settled(request).await?;
    let after = ns.ready("web").await?;
    pods::assert_restarted_once(before, &after, "app")?;
    pods::assert_untouched(before, &after, "sidecar")?;
    let ended = pods::last_end(&after, "app")?.finished_at.context("no finishedAt")?.0.as_second();
    let created = request.metadata.creation_timestamp.clone().context("no creation time")?.0.as_second();
    Ok((over, ended - created))
}

/// Waits for the Warning `FailedPreStopHook` on the Pod and on the request; gives back what the condition says.
async fn warned(ns: &Ns, pod: &Pod, over: &ContainerRecreateRequest) -> Result<String> {
    let warning = requests::condition(over, "PreStopHookFailed").context("no condition PreStopHookFailed")?;
    assert_eq!(requests::conditions(over)["PreStopHookFailed"], "True/FailedPreStopHook");
    let events: Api<Event> = Api::namespaced(ns.cluster.client.clone(), &ns.name);
    for uid in [&pod.metadata.uid, &over.metadata.uid] {
        let event = until("the event FailedPreStopHook", SHORT, async || {
            let list = events.list(&ListParams::default()).await?;
            Ok(list.items.into_iter().find(|event| {
                event.reason.as_deref() == Some("FailedPreStopHook")
                    && event.regarding.as_ref().is_some_and(|about| about.uid == *uid)
            }))
        })
        .await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.note.unwrap_or_default(), format!("Request {}/again: {}", ns.name, warning.message));
    }
    Ok(warning.message.clone())
}

#[test]
fn a_command_runs_once_before_the_stop() -> Result<()> {
    on_shared_cluster(async |ns| {
        let (before, request) = ask(ns, pod(pods::idle("app"), &exec("echo bye >>/data/hooks")), 30).await?;
        let shown = request.spec.containers[0].pre_stop.clone().context("the request shows no hook")?;
        assert_eq!(shown.exec.and_then(|exec| exec.command).unwrap_or_default()[0], "sh");
        let (over, _) = done(ns, &before, &request).await?;
        assert_eq!(written(ns).await?, ["bye"]);
        assert_eq!(requests::condition(&over, "PreStopHookFailed"), None);
        Ok(())
    })
}

#[test]
fn d18_a_sleep_is_waited_for() -> Result<()> {
    on_shared_cluster(async |ns| {
        let (before, request) =
            ask(ns, pod(pods::idle("app"), &json!({"sleep": {"seconds": 4}})), 30).await?;
        let shown = request.spec.containers[0].pre_stop.clone().context("the request shows no hook")?;
        assert_eq!(shown.sleep.map(|sleep| sleep.seconds), Some(4));
        let (over, took) = done(ns, &before, &request).await?;
        assert!((4..15).contains(&took), "ended after {took} s");
        assert_eq!(requests::condition(&over, "PreStopHookFailed"), None);
        Ok(())
    })
}

#[test]
fn d17_http_get_without_a_host_goes_to_the_pod_ip() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut app = pods::idle("app");
        app["ports"] = json!([{"name": "bye", "containerPort": 8090}]);
        let mut pod = pod(app, &json!({"httpGet": {"path": "/good/bye", "port": "bye"}}));
        // The server logs its requests. Containers of a Pod share its address.
        let server = pods::shell("server", "exec httpd -f -vv -p 8090 -h /tmp");
        pod["spec"]["containers"].as_array_mut().context("no containers")?.push(server);
        let (before, request) = ask(ns, pod, 30).await?;
        let shown = &request.spec.containers[0];
        assert!(shown.pre_stop.as_ref().is_some_and(|hook| hook.http_get.is_some()));
        assert_eq!(shown.ports[0].container_port, 8090);
        let (over, _) = done(ns, &before, &request).await?;
        let log = ns.log("web", "server").await?;
        assert_eq!(log.lines().filter(|line| line.ends_with("url:/good/bye")).count(), 1, "{log}");
        // The answer is 404, which is as good as any other.
        assert_eq!(requests::condition(&over, "PreStopHookFailed"), None);
        Ok(())
    })
}

#[test]
fn a_failing_hook_warns_and_the_stop_goes_ahead() -> Result<()> {
    on_shared_cluster(async |ns| {
        let hook = exec("echo the-password >&2; echo tried >>/data/hooks; exit 3");
        let (before, request) = ask(ns, pod(pods::idle("app"), &hook), 30).await?;
        let (over, _) = done(ns, &before, &request).await?;
        let warning = warned(ns, &before, &over).await?;
        let text = "container app: the preStop command ended with exit code 3, and the stop went ahead";
        assert_eq!(warning, text, "and nothing of what it printed");
        assert_eq!(written(ns).await?, ["tried"]);
        Ok(())
    })
}

#[test]
fn d21_tcp_socket_warns_and_the_stop_goes_ahead() -> Result<()> {
    on_shared_cluster(async |ns| {
        let (before, request) =
            ask(ns, pod(pods::idle("app"), &json!({"tcpSocket": {"port": 80}})), 30).await?;
        let (over, _) = done(ns, &before, &request).await?;
        let warning = warned(ns, &before, &over).await?;
        assert!(warning.contains("tcpSocket is not supported for preStop hooks"), "{warning}");
        Ok(())
    })
}

#[test]
fn d20_a_hook_ends_with_the_grace() -> Result<()> {
    on_shared_cluster(async |ns| {
        let hook = exec("echo begin >>/data/hooks; sleep 60; echo late >>/data/hooks");
        let (before, request) = ask(ns, pod(pods::idle("app"), &hook), 4).await?;
        let (over, took) = done(ns, &before, &request).await?;
        assert!((3..15).contains(&took), "ended after {took} s");
        let warning = warned(ns, &before, &over).await?;
        assert!(warning.contains("app: the preStop command did not end within"), "{warning}");
        assert_eq!(written(ns).await?, ["begin"]);
        Ok(())
    })
}

#[test]
fn without_grace_no_hook_runs() -> Result<()> {
    on_shared_cluster(async |ns| {
        let (before, request) = ask(ns, pod(pods::idle("app"), &exec("echo bye >>/data/hooks")), 0).await?;
        done(ns, &before, &request).await?;
        assert_eq!(written(ns).await?, [""; 0]);
        Ok(())
    })
}

#[test]
fn d8_a_hook_that_the_daemons_end_cut_runs_again() -> Result<()> {
    on_cluster(async |ns| {
        let daemon = system::daemon(&ns.cluster).await?;
        let hook = exec("echo begin >>/data/hooks; sleep 5; echo end >>/data/hooks");
        let (before, request) = ask(ns, pod(pods::idle("app"), &hook), 60).await?;
        ns.logged("web", "sidecar", "begin").await?;
        system::kill_9(&[daemon])?;
        let (over, _) = done(ns, &before, &request).await?;
        let lines = written(ns).await?;
        assert_eq!(lines.iter().filter(|line| *line == "begin").count(), 2, "{lines:?}");
        assert_eq!(lines.last().map(String::as_str), Some("end"), "the stop waited for the second run");
        assert_eq!(requests::condition(&over, "PreStopHookFailed"), None);
        Ok(())
    })
}

#[test]
fn d8_a_hook_that_ended_is_not_run_again_by_the_next_daemon() -> Result<()> {
    on_cluster(async |ns| {
        let daemon = system::daemon(&ns.cluster).await?;
        let (before, request) =
            ask(ns, pod(pods::slow("app", 5), &exec("echo bye >>/data/hooks")), 60).await?;
        ns.stopping(&request, "app").await?;
        system::kill_9(&[daemon])?;
        done(ns, &before, &request).await?;
        assert_eq!(written(ns).await?, ["bye"]);
        Ok(())
    })
}

/// A restart of the runtime ends its exec call. The container survives that, and is still stopped.
#[test]
fn the_runtime_starts_anew_during_a_hook() -> Result<()> {
    on_cluster(async |ns| {
        let hook = exec("echo begin >>/data/hooks; sleep 5");
        let (before, request) = ask(ns, pod(pods::idle("app"), &hook), 20).await?;
        ns.logged("web", "sidecar", "begin").await?;
        ns.cluster.kill("containerd@node1")?;
        let (over, _) = done(ns, &before, &request).await?;
        let warning = warned(ns, &before, &over).await?;
        assert!(warning.starts_with("container app: the preStop command could not be run"), "{warning}");
        Ok(())
    })
}
