//! Wiring: the watch and the runtime in, the core in the middle, the executor out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Api;
use kube::runtime::watcher;
use pitstop_api::logic::time::Mono;
use pitstop_daemon_core::{Action, Daemon, Event, Identity, Search, wire};
use pitstop_kit::clock::Monotonic;
use pitstop_kit::health::Condition;
use pitstop_kit::watch::Source;
use pitstop_kit::{CommonArgs, Metrics, Readiness, Shutdown, WatchMetrics, clock, health, watch};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{info, warn};

use crate::args::Args;
use crate::cgroup::Cgroups;
use crate::disk::Disk;
use crate::execute::Executor;
use crate::metrics::DaemonMetrics;
use crate::record::Record;
use crate::resize::Resizer;
use crate::search;
use crate::systemd::Systemd;

const NAME: &str = "pitstop-daemon";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Events that may wait for the core: one per order and direction, and some.
const QUEUE: usize = 256;
/// How long the process waits at its end for a hook or stop under way. The next daemon continues what is cut.
const DRAIN: Duration = Duration::from_secs(10);

/// How long a stopping process with held Pods waits for the deletion of its book: an uninstall does both. With
/// [`DRAIN`] it fits into the grace period of the daemon's Pod.
const FAREWELL: Duration = Duration::from_secs(10);

/// What must be true before the daemon is ready.
struct Needs {
    /// The watch of the own book has delivered its first list.
    book: Condition,
    runtime: Condition,
}

impl Needs {
    /// Registers every name that `/readyz` can show; `docs/troubleshooting.md` explains them.
    fn register(readiness: &Readiness) -> Self {
        Self {
            book: readiness.condition("NodeWork synced"),
            runtime: readiness.condition("container runtime reachable"),
        }
    }
}

/// Runs until the process is asked to stop.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { node_name, runtime_endpoint, host_root, state_dir, resize, image_room, common } = args;
    let CommonArgs { log_level: _, log_format: _, metrics_address } = common;
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let client = pitstop_kit::client::connect(NAME, VERSION).await?;
    let identity = identity()?;
    info!(version = VERSION, node = node_name, instance = identity.instance, resize, "starts");

    let mut metrics = Metrics::new("pitstop_daemon", VERSION);
    let own_metrics = DaemonMetrics::register(&mut metrics);
    let watch_metrics = WatchMetrics::register(metrics.registry());
    let readiness = Readiness::new();
    let needs = Needs::register(&readiness);
    let listener =
        health::bind(metrics_address).await.with_context(|| format!("cannot listen on {metrics_address}"))?;

    let (events, inbox) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let serving = shutdown.clone();
    tasks.spawn(async move {
        health::serve(listener, readiness, Arc::new(metrics), serving).await;
    });
    let source =
        Source { name: "nodework", config: own_book(&node_name), synced: needs.book, metrics: watch_metrics };
    let books = Api::all(client.clone());
    tasks.spawn(watch::run(books, source, |o| Some(wire::book(o)), Event::Book, events.clone()));
    let (finder, link) = search::link();
    let runtimes = Search::new(&host_root, runtime_endpoint);
    tasks.spawn(search::run(runtimes, finder, needs.runtime, own_metrics.clone(), events.clone()));

    let record = Record::open(&state_dir);
    let daemon = Daemon::new(identity)
        .with_ended_hooks(record.ended())
        .with_resizes(resize)
        .with_image_room(image_room);
    let resizer = Resizer { cgroups: Cgroups::new(&host_root), systemd: Systemd::new(&host_root) };
    let disk = Disk::new(&host_root);
    let metrics = own_metrics;
    let executor = Executor { node: node_name, disk, client, link, record, resizer, metrics, events };
    work(daemon, inbox, &executor, &shutdown).await;
    Ok(())
}

/// Two daemons on one node differ in their start time, in milliseconds since boot, and in their process ID.
fn identity() -> anyhow::Result<Identity> {
    let boot_id = clock::boot_id().context("cannot read the node's boot ID")?;
    Ok(Identity { instance: format!("{}-{}", Monotonic::now(), std::process::id()), boot_id })
}

/// Decides and acts until the process is asked to stop, then finishes actions under way if time allows.
async fn work(
    mut daemon: Daemon,
    mut inbox: mpsc::Receiver<Event>,
    executor: &Executor,
    shutdown: &Shutdown,
) {
    let mut actions = JoinSet::new();
    let mut pulls: BTreeMap<String, AbortHandle> = BTreeMap::new();
    pitstop_kit::drive(
        &mut daemon,
        &mut inbox,
        shutdown,
        |action| {
            while actions.try_join_next().is_some() {}
            pulls.retain(|_, pull| !pull.is_finished());
            if let Action::CancelPull { image } = &action {
                if let Some(pull) = pulls.remove(image) {
                    info!(image, "cancels the pull");
                    pull.abort();
                }
                return;
            }
            let pulled = if let Action::Pull { image, .. } = &action { Some(image.clone()) } else { None };
            let handle = actions.spawn(executor.clone().execute(action));
            pulls.extend(pulled.map(|image| (image, handle)));
        },
        |daemon, _| executor.metrics.orders(daemon.open_orders().len()),
    )
    .await;

    if daemon.holds() {
        info!("Pods are held: checks whether the NodeWork is deleted");
        let farewell = give_back(&mut daemon, &mut inbox, |action| {
            actions.spawn(executor.clone().execute(action));
        });
        // The book still exists: the next daemon continues with it.
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }
    info!(under_way = actions.len(), "stops");
    if tokio::time::timeout(DRAIN, async { while actions.join_next().await.is_some() {} }).await.is_err() {
        warn!("exits while a stop is under way; the next daemon continues it");
    }
}

/// Restores held Pods if the book is deleted; returns when none is held any more. Begins nothing else.
async fn give_back(daemon: &mut Daemon, inbox: &mut mpsc::Receiver<Event>, mut act: impl FnMut(Action)) {
    while daemon.holds() {
        let now = Mono(Monotonic::now());
        let wait = daemon.wake_at().map_or(FAREWELL, |at| at.since(now));
        let event = match tokio::time::timeout(wait, inbox.recv()).await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(_) => Event::Tick,
        };
        let actions = daemon.step(Mono(Monotonic::now()), event);
        actions.into_iter().filter(|action| matches!(action, Action::WriteBack { .. })).for_each(&mut act);
    }
}

/// What the daemon watches: the one book of its node.
fn own_book(node_name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={node_name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The API server passes a change of an object to the watches of its name, and tests no other.
    #[test]
    fn d25_the_daemon_watches_one_object_by_its_name() {
        let config = own_book("node1");
        assert_eq!(config.field_selector.as_deref(), Some("metadata.name=node1"));
        assert_eq!(config.label_selector, None);
    }

    #[test]
    fn everything_that_can_be_missing_is_explained() {
        let page = include_str!("../../docs/troubleshooting.md");
        let readiness = Readiness::new();
        Needs::register(&readiness);
        let missing = readiness.missing();
        assert!(!missing.is_empty());
        let unexplained: Vec<&String> =
            missing.iter().filter(|name| !page.contains(&format!("\n| `{name}` | "))).collect();
        assert!(unexplained.is_empty(), "{unexplained:?}");
    }
}
