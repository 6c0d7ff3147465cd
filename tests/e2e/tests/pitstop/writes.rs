//! Requests of pitstop to the API server, counted from the audit log.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use pitstop_api::nodework::NodeWork;
use pitstop_e2e::audit::{Entry, Mark};
use pitstop_e2e::ns::{NODE, PREFIX};
use pitstop_e2e::{LONG, Ns, Result, SHORT, on_cluster, pods, requests, until};
use serde_json::json;

/// OpenKruise needs 8.
const MOST_WRITES: usize = 6;
/// How long an idle cluster is watched.
const WATCHED: Duration = Duration::from_mins(1);
/// Each replica looks once a minute whether the daemons' policy is in force.
const MOST_CHECKS: usize = 4;

/// Resources whose writes are not part of a request's cost.
const ASIDE: [&str; 2] = ["events", "leases"];

#[test]
fn one_request_costs_at_most_six_writes() -> Result<()> {
    on_cluster(async |ns| {
        ns.start_pod(pods::app("web")).await?;
        alone(ns).await?;
        let mark = Mark::now(&ns.cluster)?;
        let created = ns.create(requests::recreate("again", "web", &["app"])).await?;
        ns.over("again").await?;
        ns.settled(&created).await?;
        costs(ns, &mark, "one request for one container").await
    })
}

#[test]
fn one_resize_costs_at_most_six_writes() -> Result<()> {
    on_cluster(async |ns| {
        let mut pod = pods::app("web");
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "20m"}});
        ns.start_pod(pod).await?;
        alone(ns).await?;
        let mark = Mark::now(&ns.cluster)?;
        let resize = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize", "metadata": {"name": "grow"},
            "spec": {"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"requests": {"cpu": "50m"}}}]}});
        ns.cluster.kubectl_with(&["--namespace", &ns.name, "apply", "-f", "-"], &resize.to_string())?;
        ns.kubectl(&["wait", "--for=condition=Complete", "prz/grow", "--timeout=60s"])?;
        costs(ns, &mark, "one resize of one container").await
    })
}

/// Counts pitstop's writes since the mark, after the last one.
async fn costs(ns: &Ns, mark: &Mark, what: &str) -> Result<()> {
    // Late writes arrive before the leader has renewed its lease twice.
    let settled = Mark::now(&ns.cluster)?;
    until("two renewals of the lease", SHORT, async || {
        let renewals = settled.entries()?.iter().filter(|e| e.resource() == "leases").count();
        Ok((renewals >= 2).then_some(()))
    })
    .await?;
    let writes: Vec<Entry> = mark
        .entries()?
        .into_iter()
        .filter(|entry| {
            entry.writes()
                && !entry.self_check()
                && !entry.dry_run()
                && !ASIDE.contains(&entry.resource().as_str())
        })
        .collect();
    println!("{} writes for {what}:", writes.len());
    for entry in &writes {
        println!("  {entry}");
    }
    assert!((1..=MOST_WRITES).contains(&writes.len()), "{} writes, see above", writes.len());
    Ok(())
}

#[test]
fn an_idle_pitstop_only_watches() -> Result<()> {
    on_cluster(async |ns| {
        // A request that is over still exists.
        ns.start_pod(pods::app("web")).await?;
        let created = ns.create(requests::recreate("again", "web", &["app"])).await?;
        ns.over("again").await?;
        ns.settled(&created).await?;
        alone(ns).await?;
        let mark = Mark::now(&ns.cluster)?;
        tokio::time::sleep(WATCHED).await;
        let entries = mark.entries()?;
        let watch = |entry: &Entry| entry.verb == "watch";
        let renewal =
            |entry: &Entry| entry.resource() == "leases" && matches!(entry.verb.as_str(), "update" | "patch");
        let checks = entries.iter().filter(|e| e.self_check()).count();
        let known = |e: &&Entry| watch(e) || renewal(e) || e.self_check();
        let others: Vec<String> = entries.iter().filter(|e| !known(e)).map(ToString::to_string).collect();
        let (watches, renewals) =
            (entries.iter().filter(|e| watch(e)).count(), entries.iter().filter(|e| renewal(e)).count());
        println!(
            "{WATCHED:?} idle: {watches} watches begun, {renewals} renewals of the lease, {checks} self-checks"
        );
        assert!(others.is_empty(), "{others:#?}");
        assert!(checks <= MOST_CHECKS, "{checks} self-checks");
        assert!(renewals > 0, "the audit log shows nothing");
        Ok(())
    })
}

/// Waits until earlier tests have left nothing: no namespace, no order.
async fn alone(ns: &Ns) -> Result<()> {
    let all: Api<Namespace> = Api::all(ns.cluster.client.clone());
    until("the tests before to be gone", LONG, async || {
        let list = all.list_metadata(&ListParams::default()).await?;
        let others = list.items.iter().filter_map(|n| n.metadata.name.as_deref());
        let mut others = others.filter(|name| name.starts_with(PREFIX) && *name != ns.name);
        let books: Api<NodeWork> = Api::all(ns.cluster.client.clone());
        let orders = books.get_opt(NODE).await?.map_or(0, |book| book.spec.orders.len());
        Ok((others.next().is_none() && orders == 0).then_some(()))
    })
    .await
}
