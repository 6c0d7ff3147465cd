//! The order books of the nodes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kube::api::ListParams;
use kube::{Api, Client};
use pitstop_api::nodework::NodeWork;

const PERIOD: Duration = Duration::from_millis(200);

/// Waits until no book holds an order.
pub(crate) async fn no_orders(client: &Client, patience: Duration) -> Result<()> {
    let books: Api<NodeWork> = Api::all(client.clone());
    let begin = Instant::now();
    while books.list(&ListParams::default()).await?.items.iter().any(|book| !book.spec.orders.is_empty()) {
        if begin.elapsed() > patience {
            bail!("orders are still there after {} s", patience.as_secs());
        }
        tokio::time::sleep(PERIOD).await;
    }
    Ok(())
}
