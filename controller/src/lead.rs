//! The core's watches, and whether this process leads.
//!
//! A process that does not lead watches too, so a missing right to list shows early. The core keeps the Pods, because a
//! leader knows them only from the watch. It keeps nothing else. When the process begins to lead, every other watch
//! starts again with a current list. Earlier events may be older than the last writes of the previous leader. A leader
//! that does not know a request yet would treat its hold as left behind, and put the Pod into service too soon.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::apps::v1 as apps;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use pitstop_api::rollout::{PARKED, TargetKind};
use pitstop_controller_core::kinds::{ForEach, Registered, for_each};
use pitstop_controller_core::wire::observe::{self, SlimPod};
use pitstop_controller_core::{Event, KindId};
use pitstop_kit::WatchMetrics;
use pitstop_kit::health::Condition;
use pitstop_kit::watch::{self, Source, Watch};
use tokio::sync::{mpsc, watch as signal};
use tokio::task::JoinSet;

use crate::metrics::ControllerMetrics;

/// Readiness conditions that hold from the first complete list on.
pub struct Synced {
    /// Pods.
    pub pods: Condition,
    /// Objects of each kind.
    pub kinds: BTreeMap<KindId, Condition>,
    /// Order books.
    pub books: Condition,
    /// Parked workloads: `Deployment`s, `StatefulSet`s and `DaemonSet`s.
    pub parked: [Condition; 3],
}

/// The watches of the core.
pub struct Watches {
    client: Client,
    synced: Synced,
    metrics: WatchMetrics,
    events: mpsc::Sender<Event>,
}

impl Watches {
    /// Watches the API server of `client`; the core reads `events`.
    pub fn new(client: Client, synced: Synced, metrics: WatchMetrics, events: mpsc::Sender<Event>) -> Self {
        Self { client, synced, metrics, events }
    }

    /// Starts the watch of Pods, which runs as long as the core.
    fn pods(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(watch::run(
            Api::all(self.client.clone()),
            self.source("pods", &self.synced.pods),
            |pod: SlimPod| Some(observe::pod(pod)),
            Event::Pods,
            self.events.clone(),
        ));
        tasks
    }

    /// Starts the other watches, each with a list. They end when the set is dropped or shut down.
    fn spawn(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (listed, books_listed) = signal::channel(false);
        tasks.spawn(watch::run(
            Api::all(self.client.clone()),
            self.source("nodeworks", &self.synced.books),
            |work| Some(observe::nodework(work)),
            move |watch| {
                if matches!(&watch, Watch::Listed(part) if part.last) {
                    listed.send_replace(true);
                }
                Event::NodeWorks(watch)
            },
            self.events.clone(),
        ));
        for_each(&mut Spawn { watches: self, books_listed, tasks: &mut tasks });
        let [deployments, sets, daemons] = &self.synced.parked;
        self.parked::<apps::Deployment>("deployments", TargetKind::Deployment, deployments, &mut tasks);
        self.parked::<apps::StatefulSet>("statefulsets", TargetKind::StatefulSet, sets, &mut tasks);
        self.parked::<apps::DaemonSet>("daemonsets", TargetKind::DaemonSet, daemons, &mut tasks);
        tasks
    }

    /// Starts the watch of parked workloads of one kind.
    fn parked<K>(&self, name: &'static str, kind: TargetKind, synced: &Condition, tasks: &mut JoinSet<()>)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    {
        let mut source = self.source(name, synced);
        source.config = source.config.labels(PARKED);
        tasks.spawn(watch::run(
            Api::all(self.client.clone()),
            source,
            move |workload: PartialObjectMeta<K>| Some(observe::parked(kind, workload.metadata)),
            move |watch| Event::Parked(kind, watch),
            self.events.clone(),
        ));
    }

    fn source(&self, name: &'static str, synced: &Condition) -> Source {
        Source {
            name,
            config: watcher::Config::default(),
            synced: synced.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

/// Starts the watch of each kind after the first list of order books. With the books, the core knows at once which of
/// very many objects are finished, and need not be kept.
struct Spawn<'a> {
    watches: &'a Watches,
    books_listed: signal::Receiver<bool>,
    tasks: &'a mut JoinSet<()>,
}

impl ForEach for Spawn<'_> {
    fn kind<K: Registered>(&mut self) {
        let Watches { client, synced, events, .. } = self.watches;
        let Some(synced) = synced.kinds.get(&K::ABOUT.id) else { return };
        let watching = watch::run(
            Api::all(client.clone()),
            self.watches.source(K::ABOUT.watch, synced),
            |object: K::Object| Some(K::observe(object)),
            Event::of::<K>,
            events.clone(),
        );
        let mut books_listed = self.books_listed.clone();
        self.tasks.spawn(async move {
            // Cannot fail: the watch of the books runs as long as this one.
            let _ = books_listed.wait_for(|listed| *listed).await;
            watching.await;
        });
    }
}

/// Watches, and tells the core when this process begins or ceases to lead, until the core ends. A process that may not
/// carry out requests never leads.
pub async fn run(
    watches: Watches,
    mut leading: signal::Receiver<bool>,
    mut allowed: signal::Receiver<bool>,
    metrics: ControllerMetrics,
) {
    let _pods = watches.pods();
    let mut running = watches.spawn();
    let mut sent = false;
    loop {
        let changed = tokio::select! {
            changed = leading.changed() => changed,
            changed = allowed.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        let leads = *leading.borrow_and_update();
        metrics.lead(leads);
        let now = leads && *allowed.borrow_and_update();
        if now == sent {
            continue;
        }
        sent = now;
        if now {
            // End the watches first: then every list that the core gets after this event, except that of Pods, was
            // requested after it.
            running.shutdown().await;
        }
        if watches.events.send(Event::Leader(now)).await.is_err() {
            return;
        }
        if now {
            running = watches.spawn();
        }
    }
}
