//! Requests end while the node's daemon is away, and it returns; connections to the API server break unnoticed.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use nix::sys::signal::Signal;
use pitstop_api::nodework::AnswerState;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::system::{self, DAEMON, NAMESPACE};
use pitstop_e2e::{Context, LONG, Ns, Result, SHORT, on_cluster, pods, process, requests, until};
use serde_json::json;

/// A request for a container with a hook of `hook` seconds, once the daemon has acknowledged its order.
async fn in_mid_hook(
    ns: &Ns,
    hook: u32,
    grace: u32,
    deadline: u32,
) -> Result<(Pod, ContainerRecreateRequest)> {
    let mut app = pods::idle("app");
    app["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep", hook.to_string()]}}});
    let before = ns.start_pod(pods::pod("web", &[app, pods::idle("sidecar")])).await?;
    let mut spec = requests::plain("web", &["app"]);
    spec["strategy"] = json!({"mechanism": "Runtime", "terminationGracePeriodSeconds": grace});
    spec["activeDeadlineSeconds"] = deadline.into();
    let request = ns.create(requests::with_spec("late", &spec)).await?;
    until("an acknowledgement", SHORT, async || {
        let orders = ns.orders(&request).await?;
        let acknowledged = orders
            .iter()
            .any(|(_, answer)| answer.as_ref().is_some_and(|a| a.state == AnswerState::Acknowledged));
        Ok(acknowledged.then_some(()))
    })
    .await?;
    Ok((before, request))
}

/// The request has reached its deadline. The returned daemon stops nothing for it, and serves the next one.
async fn stops_nothing(ns: &Ns, before: &Pod, request: &ContainerRecreateRequest) -> Result<()> {
    system::healthy(&ns.cluster).await?;
    ns.create(requests::recreate("pass-by", "web", &["sidecar"])).await?;
    assert_eq!(requests::states(&ns.over_within("pass-by", LONG).await?), [requests::succeeded("sidecar")]);
    ns.no_orders(request).await?;
    // Longer than the two seconds after which the daemon used to stop it.
    tokio::time::sleep(Duration::from_secs(10)).await;
    pods::assert_untouched(before, &ns.pod("web").await?, "app")?;
    let over = ns.request("late").await?;
    assert_eq!(requests::conditions(&over)["Failed"], "True/DeadlineExceeded");
    Ok(())
}

#[test]
fn a_daemon_that_comes_back_stops_nothing_of_a_request_that_is_over() -> Result<()> {
    on_cluster(async |ns| {
        let (before, request) = in_mid_hook(ns, 300, 600, 45).await?;
        let daemon_sets: Api<DaemonSet> = Api::namespaced(ns.cluster.client.clone(), NAMESPACE);
        daemon_sets.delete(DAEMON, &DeleteParams::foreground()).await?;
        until("the daemon to be gone", SHORT, async || {
            Ok(daemon_sets.get_opt(DAEMON).await?.is_none().then_some(()))
        })
        .await?;
        ns.over_within("late", LONG).await?;
        ns.cluster.install()?;
        stops_nothing(ns, &before, &request).await
    })
}

#[test]
fn a_daemon_that_stood_still_stops_nothing_of_a_request_that_is_over() -> Result<()> {
    on_cluster(async |ns| {
        let (before, request) = in_mid_hook(ns, 5, 10, 20).await?;
        let daemon = process::of_container(&pods::id(&system::daemon(&ns.cluster).await?, "daemon")?)?;
        process::signal(daemon, Signal::SIGSTOP)?;
        let over = ns.over_within("late", LONG).await;
        let woken = process::signal(daemon, Signal::SIGCONT);
        over?;
        // The kubelet may have ended the unresponsive daemon.
        drop(woken);
        stops_nothing(ns, &before, &request).await
    })
}

/// Local ports of a process's connections to the API server, which serves on 443 and 6443.
fn ports(pid: i32) -> Result<Vec<u16>> {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let open = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, "01", ..] = fields[..] else { return None };
        matches!(port(remote)?, 443 | 6443).then(|| port(local)).flatten()
    });
    Ok(open.collect())
}

/// The packets of the daemon's connections are dropped, and neither side notices. A new connection works. By default,
/// Linux gives such a connection up after a quarter of an hour; `kit`'s tests check the 45 s.
#[test]
fn a_connection_that_died_unseen_is_noticed() -> Result<()> {
    on_cluster(async |ns| {
        ns.start_pod(pods::app("web")).await?;
        let daemon = system::daemon(&ns.cluster).await?;
        let ip = daemon.status.as_ref().and_then(|s| s.pod_ip.clone()).context("no address")?;
        let ports = ports(process::of_container(&pods::id(&daemon, "daemon")?)?)?;
        assert!(!ports.is_empty(), "the daemon has no connection");
        let vanish = |how: &str| -> Result<()> {
            for port in &ports {
                let port = port.to_string();
                let rule = |chain: &str, table: &str, [at, on]: [&str; 2]| {
                    let words =
                        ["iptables", "-t", table, how, chain, "-p", "tcp", at, &ip, on, &port, "-j", "DROP"];
                    ns.cluster.exec("node1", &words).map(drop)
                };
                rule("PREROUTING", "raw", ["-s", "--sport"])?;
                rule("POSTROUTING", "mangle", ["-d", "--dport"])?;
            }
            Ok(())
        };
        vanish("-I")?;
        let mut spec = requests::plain("web", &["app"]);
        spec["strategy"] = json!({"mechanism": "Runtime"});
        let over = match ns.create(requests::with_spec("again", &spec)).await {
            Ok(_) => ns.over_within("again", LONG).await,
            Err(error) => Err(error),
        };
        vanish("-D")?;
        assert_eq!(requests::states(&over?), [requests::succeeded("app")]);
        Ok(())
    })
}
