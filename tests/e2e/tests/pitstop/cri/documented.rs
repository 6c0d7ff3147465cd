//! Documented commands for Kubernetes before 1.36, and what holds without the resize API.

use pitstop_e2e::cluster::root;
use pitstop_e2e::{LONG, pods};
use pitstop_e2e::{Ns, Result, ensure, requests, system, users};

use super::on_old_cluster;
use crate::{charted, documented::every_component};

#[test]
fn installing_and_removing() -> Result<()> {
    on_old_cluster(async |ns| {
        let outcome = installing(ns).await;
        ns.cluster.install()?;
        system::healthy(&ns.cluster).await?;
        outcome
    })
}

async fn installing(ns: &Ns) -> Result<()> {
    let cluster = &ns.cluster;
    cluster.uninstall()?;
    cluster.documented("install-before-1.36", &[])?;
    system::healthy(cluster).await?;
    ns.start_pod(pods::app("web")).await?;
    ns.create(requests::recreate("again", "web", &["app"])).await?;
    let over = ns.over_within("again", LONG).await?;
    ensure!(requests::states(&over) == [requests::succeeded("app")], "{:?}", requests::conditions(&over));
    cluster.documented("resize-cri", &[])?;
    system::healthy(cluster).await?;
    cluster.documented("uninstall-before-1.36", &[])?;
    let folder = root().join("deploy/overlays/resize-cri");
    let left =
        cluster.kubectl(&["get", "-k", &folder.to_string_lossy(), "--ignore-not-found", "-o", "name"])?;
    ensure!(left.trim().is_empty(), "left after uninstalling: {left}");
    Ok(())
}

#[test]
fn every_component_is_accepted_by_the_api_server() -> Result<()> {
    on_old_cluster(async |ns| every_component(&ns.cluster, &["gate-webhook", "resize-cri"]))
}

#[test]
fn what_the_chart_renders_is_accepted_by_the_api_server() -> Result<()> {
    on_old_cluster(async |ns| charted::rendered(ns, &["webhook"]))
}

/// This API server has no `pods/resize`, but its roles still say who may patch it.
#[test]
fn a_user_needs_the_right_to_do_by_hand_what_a_resize_does() -> Result<()> {
    on_old_cluster(async |ns| users::are_asked_what_they_could_do_by_hand(ns).await)
}
