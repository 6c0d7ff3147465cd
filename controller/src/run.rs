//! Wiring: watches in, the core in the middle, the executor out; election, certificates and webhook beside it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use pitstop_controller_core::kinds::all;
use pitstop_controller_core::{Action, Config, Engine, Event};
use pitstop_kit::health::{self, Condition, Readiness};
use pitstop_kit::{CommonArgs, Metrics, Shutdown, WatchMetrics, clock};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch as signal};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

use crate::admission::handler::Handler;
use crate::admission::server;
use crate::args::Args;
use crate::certs::{self, CertMetrics, Certs};
use crate::coexist::{self, Coexistence};
use crate::election::{self, Candidate};
use crate::events::Events;
use crate::executor::Executor;
use crate::guard::Guard;
use crate::lead;
use crate::metrics::ControllerMetrics;
use crate::own_pod::OwnPod;

const NAME: &str = "pitstop-controller";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Events that may wait for the core. If the queue is full, the watches wait.
const QUEUE: usize = 256;
/// How long writes under way, the release of the lease and open admission reviews may delay the end of the process. The
/// webhook serves for up to eight more seconds, until its Service no longer routes to this Pod.
const DRAIN: Duration = Duration::from_secs(10);
/// The webhook's Service.
const SERVICE: &str = "pitstop-webhook";
/// The Secret that keeps the webhook's certificate.
const SECRET: &str = "pitstop-webhook-cert";
/// The `MutatingWebhookConfiguration` that names the webhook.
const WEBHOOK_CONFIGURATION: &str = "pitstop";

/// The webhook's server.
type Serving = JoinHandle<anyhow::Result<()>>;

/// Readiness conditions of the controller.
struct Needs {
    lease: Condition,
    certificate: Condition,
    /// No `OpenKruise` carries out the same requests.
    alone: Condition,
    watches: lead::Synced,
}

impl Needs {
    /// Every name that `/readyz` can show; `docs/troubleshooting.md` explains them.
    fn named(readiness: &Readiness) -> Self {
        Self {
            lease: readiness.condition("lease synced"),
            certificate: readiness.condition("webhook certificate loaded"),
            alone: readiness.condition(coexist::CONDITION),
            watches: lead::Synced {
                pods: readiness.condition("Pods synced"),
                kinds: all().map(|about| (about.id, readiness.condition(about.synced))).collect(),
                books: readiness.condition("NodeWorks synced"),
                parked: [
                    "parked Deployments synced",
                    "parked StatefulSets synced",
                    "parked DaemonSets synced",
                ]
                .map(|name| readiness.condition(name)),
            },
        }
    }
}

/// State that the parts of the program share.
struct Shared {
    client: Client,
    /// The own namespace.
    namespace: String,
    metrics: ControllerMetrics,
    watch_metrics: WatchMetrics,
    shutdown: Shutdown,
}

impl Shared {
    fn certs(&self, loaded: Condition, metrics: CertMetrics) -> Certs {
        Certs {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            secret: SECRET.to_owned(),
            webhook_configuration: WEBHOOK_CONFIGURATION.to_owned(),
            config: certs::config_for(SERVICE, &self.namespace),
            loaded,
            watch_metrics: self.watch_metrics.clone(),
            metrics,
        }
    }

    fn coexistence(&self, own_pod: OwnPod, kruise_off: bool, clear: Condition) -> Coexistence {
        Coexistence {
            client: self.client.clone(),
            own_pod,
            kruise_off,
            clear,
            refusing: self.metrics.refusing(),
            watch_metrics: self.watch_metrics.clone(),
        }
    }

    fn candidate(&self, identity: String, synced: Condition) -> Candidate {
        Candidate {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            identity,
            synced,
            metrics: self.watch_metrics.clone(),
        }
    }

    /// Answers admission reviews.
    fn serve(&self, listener: TcpListener, pair: server::Pair, service_account: &str) -> Serving {
        let handler = Handler {
            client: self.client.clone(),
            metrics: self.metrics.clone(),
            own_user: format!("system:serviceaccount:{}:{service_account}", self.namespace),
        };
        let review = move |review| {
            let handler = handler.clone();
            async move { handler.review(review).await }
        };
        tokio::spawn(server::serve(listener, pair, review, self.shutdown.clone()))
    }

    /// Runs the core, and starts its actions, on its own thread: the lease, the webhook and health never wait for a
    /// plan. Ends with the shutdown, and returns the actions under way.
    fn drive(
        &self,
        config: Config,
        mut events: mpsc::Receiver<Event>,
        executor: Executor,
    ) -> JoinHandle<JoinSet<()>> {
        let (metrics, shutdown) = (self.metrics.clone(), self.shutdown.clone());
        pitstop_kit::on_own_thread(async move {
            let mut engine = Engine::new(config);
            let mut actions = JoinSet::new();
            let execute = |action: Action| {
                while actions.try_join_next().is_some() {}
                actions.spawn(executor.clone().execute(action, pitstop_kit::now().mono));
            };
            let after = |engine: &Engine, took| {
                metrics.stepped(took);
                metrics.open(engine.open(), &engine.open_orders());
                metrics.waiting(engine.waiting());
            };
            pitstop_kit::drive(&mut engine, &mut events, &shutdown, execute, after).await;
            actions
        })
    }
}

/// Runs until the process is asked to stop, or loses the lead.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let config = config(&args);
    let Args { webhook_address, kruise_crr_off, namespace, pod_name, service_account, common, .. } = args;
    let CommonArgs { log_level: _, log_format: _, metrics_address } = common;
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let client = pitstop_kit::client::connect(NAME, VERSION).await?;
    let identity = format!("{pod_name}_{}", clock::Monotonic::now());
    info!(version = VERSION, identity, "starts");

    let mut counted = Metrics::new("pitstop_controller", VERSION);
    let metrics = ControllerMetrics::register(&mut counted);
    let cert_metrics = CertMetrics::register(counted.registry());
    let watch_metrics = WatchMetrics::register(counted.registry());
    let readiness = Readiness::new();
    let needs = Needs::named(&readiness);
    let shared = Shared { client, namespace, metrics, watch_metrics, shutdown };
    let Shared { client, namespace, metrics, watch_metrics, shutdown } = &shared;
    let own_pod = OwnPod { client: client.clone(), namespace: namespace.clone(), name: pod_name.clone() };
    let (sender, inbox) = mpsc::channel(QUEUE);
    let (events, recording) = Events::new(client.clone(), pod_name, metrics.clone());
    let (leading, is_leading) = signal::channel(false);
    let (until, leads_until) = signal::channel(None);
    let (allowed, is_allowed) = signal::channel(false);
    let (pair, current_pair) = signal::channel(None);

    let health =
        health::serve(listen(metrics_address).await?, readiness, Arc::new(counted), shutdown.clone());
    let mut serving = shared.serve(listen(webhook_address).await?, current_pair, &service_account);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { match health.await {} });
    let certs = shared.certs(needs.certificate, cert_metrics);
    tasks.spawn(certs::run(certs, pair, is_leading.clone(), shutdown.clone()));
    tasks.spawn(recording);
    let coexistence = shared.coexistence(own_pod.clone(), kruise_crr_off, needs.alone);
    tasks.spawn(coexist::run(coexistence, allowed));
    let in_force = metrics.policy_in_force();
    tasks.spawn(Guard { client: client.clone(), own_pod, in_force, events: sender.clone() }.run());
    let watches = lead::Watches::new(client.clone(), needs.watches, watch_metrics.clone(), sender.clone());
    tasks.spawn(lead::run(watches, is_leading, is_allowed, metrics.clone()));
    let candidate = shared.candidate(identity, needs.lease);
    let mut election = tokio::spawn(election::run(candidate, leading, until, shutdown.clone()));
    let executor = Executor::new(client.clone(), events, metrics.clone(), leads_until, sender);
    let actions = tokio::select! {
        actions = shared.drive(config, inbox, executor) => actions.context("the controller's core ended")?,
        ended = &mut election => return ended.context("the election ended")?,
        ended = &mut serving => return ended.context("the webhook ended")?,
    };
    drain(actions, election, serving).await;
    Ok(())
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    health::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// The core's settings; zero means no bound.
fn config(args: &Args) -> Config {
    Config {
        resize_cri: args.resize_cri,
        default_active_deadline: Some(args.default_active_deadline).filter(|deadline| !deadline.is_zero()),
        max_open_requests_per_namespace: Some(args.max_open_requests_per_namespace).filter(|most| *most > 0),
        ..Config::default()
    }
}

/// Waits at most [`DRAIN`] for the actions, the election and the webhook.
async fn drain(mut actions: JoinSet<()>, election: JoinHandle<anyhow::Result<()>>, serving: Serving) {
    info!(under_way = actions.len(), "stops");
    let draining = async {
        while actions.join_next().await.is_some() {}
        let _ = election.await;
        let _ = serving.await;
    };
    if tokio::time::timeout(DRAIN, draining).await.is_err() {
        warn!("exits while writes are under way; the next leader continues them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_be_missing_is_explained() {
        let page = include_str!("../../docs/troubleshooting.md");
        let readiness = Readiness::new();
        Needs::named(&readiness);
        let missing = readiness.missing();
        assert!(!missing.is_empty());
        let unexplained: Vec<&String> =
            missing.iter().filter(|name| !page.contains(&format!("\n| `{name}` | "))).collect();
        assert!(unexplained.is_empty(), "{unexplained:?}");
        for event in [coexist::FOUND, coexist::GONE, crate::guard::MISSING, crate::guard::IN_FORCE] {
            assert!(page.contains(&format!("\n| `{event}` | ")), "{event}");
        }
    }
}
