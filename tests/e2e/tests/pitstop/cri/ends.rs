//! How given resources end before their request is deleted.

use kube::Api;
use kube::api::DeleteParams;
use pitstop_api::nodework::NodeWork;
use pitstop_e2e::ns::NODE;
use pitstop_e2e::resizes::web;
use pitstop_e2e::system;
use pitstop_e2e::{Ns, Result, pods, stories};

use super::{BEFORE, LARGER, larger, on_old_cluster, succeeds, until_groups};

#[test]
fn an_out_of_memory_kill_rolls_back() -> Result<()> {
    on_old_cluster(async |ns| stories::out_of_memory(ns, "the previous resources are back").await)
}

#[test]
fn an_uninstall_gives_everything_back() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        succeeds(ns, larger("grow")).await?;
        ns.cluster.uninstall()?;
        let outcome = until_groups(ns, BEFORE).await;
        ns.cluster.install()?;
        system::healthy(&ns.cluster).await?;
        pods::assert_untouched(&before, &outcome?, "app")
    })
}

#[test]
fn a_lost_book_is_no_loss() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        succeeds(ns, larger("grow")).await?;
        system::without_controllers(&ns.cluster, without_a_book(ns)).await?;
        // The request still exists.
        let after = until_groups(ns, LARGER).await?;
        pods::assert_untouched(&before, &after, "app")
    })
}

/// Deletes the order book while no controller writes another.
async fn without_a_book(ns: &Ns) -> Result<()> {
    let books: Api<NodeWork> = Api::all(ns.cluster.client.clone());
    books.delete(NODE, &DeleteParams::default()).await?;
    until_groups(ns, BEFORE).await.map(drop)
}
