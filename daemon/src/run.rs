//! Wiring: the watch and the runtime in, the core in the middle, the executor out.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Api;
use kube::runtime::watcher;
use pitstop_api::nodework::NodeWork;
use pitstop_daemon_core::{Daemon, Event, Identity, Search};
use pitstop_kit::watch::Source;
use pitstop_kit::{CommonArgs, Metrics, Readiness, Shutdown, WatchMetrics, clock, health, watch};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::args::Args;
use crate::execute::{Executor, book};
use crate::metrics::DaemonMetrics;
use crate::record::Record;
use crate::search;

const NAME: &str = "pitstop-daemon";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Events that may wait for the core: one per order and direction, and some.
const QUEUE: usize = 256;
/// How long a hook or a stop under way may hold up the end of the process. What is cut goes on in the next daemon.
const DRAIN: Duration = Duration::from_secs(10);

/// Runs until the process is asked to stop.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { node_name, runtime_endpoint, host_root, state_dir, common } = args;
    let CommonArgs { log_level: _, log_format: _, metrics_address } = common;
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let client = pitstop_kit::client::connect(NAME, VERSION).await?;
    let boot_id = clock::boot_id().context("cannot read the node's boot ID")?;
    // Two daemons on one node differ in their process's place in the boot, to the millisecond, and in its number.
    let instance = format!("{}-{}", clock::Monotonic::now(), std::process::id());
    info!(version = VERSION, node = node_name, instance, "starts");

    let mut metrics = Metrics::new("pitstop_daemon", VERSION);
    let own_metrics = DaemonMetrics::register(&mut metrics);
    let watch_metrics = WatchMetrics::register(metrics.registry());
    let readiness = Readiness::new();
    let synced = readiness.condition("NodeWork synced");
    let runtime_ready = readiness.condition("container runtime reachable");
    let serving = shutdown.clone();
    let listener =
        health::bind(metrics_address).await.with_context(|| format!("cannot listen on {metrics_address}"))?;

    let (events, mut inbox) = mpsc::channel(QUEUE);
    let api: Api<NodeWork> = Api::all(client.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        health::serve(listener, readiness, Arc::new(metrics), serving).await;
    });
    let source = Source {
        name: "nodework",
        config: watcher::Config::default().fields(&format!("metadata.name={node_name}")),
        synced,
        metrics: watch_metrics,
    };
    tasks.spawn(watch::run(Api::all(client), source, |o| Some(book(o)), Event::Book, events.clone()));
    let (finder, link) = search::link();
    let runtimes = Search::new(&host_root, runtime_endpoint);
    tasks.spawn(search::run(runtimes, finder, runtime_ready, own_metrics.clone(), events.clone()));

    let record = Record::open(&state_dir);
    let mut daemon = Daemon::new(Identity { instance, boot_id }).with_ended_hooks(record.ended());
    let executor = Executor { node: node_name, api, link, record, metrics: own_metrics.clone(), events };
    let mut actions = JoinSet::new();
    pitstop_kit::drive(
        &mut daemon,
        &mut inbox,
        &shutdown,
        |action| {
            while actions.try_join_next().is_some() {}
            actions.spawn(executor.clone().execute(action));
        },
        |daemon| own_metrics.orders(daemon.order_counts().0),
    )
    .await;

    info!(under_way = actions.len(), "stops");
    if tokio::time::timeout(DRAIN, async { while actions.join_next().await.is_some() {} }).await.is_err() {
        warn!("ends with a stop under way; the next daemon goes on with it");
    }
    Ok(())
}
