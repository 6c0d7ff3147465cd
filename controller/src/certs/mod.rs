//! The webhook's certificates: made, stored, published and renewed by the leader, served by every replica.
//!
//! What to do is decided by `pitstop_controller_core::certs`; here it is done. One Secret is the only state, two
//! watches of one object each tell when it or the webhook's configuration changes, and a timer wakes the leader at
//! the next due moment. Nothing polls.

pub mod facts;
pub mod issue;
pub(crate) mod keeper;
pub mod secret;
pub mod webhook;

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use kube::{Api, Client};
use pitstop_controller_core::certs::Config;
use pitstop_kit::health::{Condition, Readiness};
use pitstop_kit::watch::{self, Source, Watch};
use pitstop_kit::{Shutdown, WatchMetrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::sign::CertifiedKey;
use tokio::sync::{mpsc, watch as signal};
use tokio::time::Instant;

use keeper::Keeper;
use secret::SecretView;
use webhook::WebhookView;

/// Field manager of the writes.
const FIELD_MANAGER: &str = "pitstop-controller";
/// Days that a leaf lives; it is renewed after 60.
const LEAF_DAYS: u16 = 90;
/// Days that a CA lives; it is followed by another one after 243.
const CA_DAYS: u16 = 365;

/// What the certificates are for and where they are kept.
pub struct Certs {
    /// Client.
    pub client: Client,
    /// The own namespace, of the Secret and of the webhook's Service.
    pub namespace: String,
    /// Name of the Secret: `pitstop-webhook-cert`.
    pub secret: String,
    /// Name of the `MutatingWebhookConfiguration`: `pitstop`.
    pub webhook_configuration: String,
    /// What is made; see [`config_for`].
    pub config: Config,
    /// Holds from when a certificate can be served.
    pub loaded: Condition,
    /// Where the watches are counted.
    pub watch_metrics: WatchMetrics,
    /// The certificates' own metrics.
    pub metrics: CertMetrics,
}

/// Certificates of 90 days for the Service, from CAs of one year.
pub fn config_for(service: &str, namespace: &str) -> Config {
    let names =
        vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")];
    Config { names, leaf_days: LEAF_DAYS, ca_days: CA_DAYS }
}

/// What is counted of the certificates.
#[derive(Clone, Debug, Default)]
pub struct CertMetrics {
    not_after: Gauge,
    failures: Counter,
}

impl CertMetrics {
    /// Registers them all.
    pub fn register(registry: &mut Registry) -> Self {
        let own = Self::default();
        registry.register(
            "webhook_certificate_not_after_seconds",
            "When the served certificate ends, since 1970; 0 while there is none",
            own.not_after.clone(),
        );
        registry.register(
            "webhook_certificate_failures",
            "Failed attempts to make, store or publish a certificate",
            own.failures.clone(),
        );
        own
    }
}

/// What the watches tell.
enum Event {
    Secret(Watch<SecretView>),
    Webhook(Watch<WebhookView>),
}

/// Keeps the certificates until the shutdown starts.
///
/// Every replica sends the newest usable pair into `pair`; only the one that leads writes. The first pair is made
/// by whoever leads first.
pub async fn run(
    certs: Certs,
    pair: signal::Sender<Option<Arc<CertifiedKey>>>,
    mut leader: signal::Receiver<bool>,
    shutdown: Shutdown,
) {
    let (tx, mut rx) = mpsc::channel(4);
    let watches = watches(&certs, &tx);
    let mut keeper = Keeper::new(certs, pair);
    let keeping = async {
        loop {
            let leads = *leader.borrow_and_update();
            let wake = keeper.act(leads).await;
            let timer = async {
                match wake {
                    Some(wait) => tokio::time::sleep_until(Instant::now() + wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = rx.recv() => match event {
                    Some(Event::Secret(watch)) => keeper.watched_secret(watch),
                    Some(Event::Webhook(watch)) => keeper.watched_webhook(watch),
                    None => return,
                },
                changed = leader.changed() => if changed.is_err() { return },
                () = timer => {}
            }
        }
    };
    tokio::select! {
        () = keeping => {}
        () = watches => {}
        () = shutdown.wait() => {}
    }
}

/// Both watches; ends with the receiver.
fn watches(certs: &Certs, tx: &mpsc::Sender<Event>) -> impl Future<Output = ()> + use<> {
    // Ready is who has a certificate; that both watches are synced follows from it.
    let internal = Readiness::new();
    let source = |name, object: &str| Source {
        name,
        config: watcher::Config::default().fields(&format!("metadata.name={object}")),
        synced: internal.condition(name),
        metrics: certs.watch_metrics.clone(),
    };
    let secrets = watch::run(
        Api::namespaced(certs.client.clone(), &certs.namespace),
        source("webhook secret", &certs.secret),
        |secret: Secret| Some(SecretView::new(secret)),
        Event::Secret,
        tx.clone(),
    );
    let webhooks = watch::run(
        Api::all(certs.client.clone()),
        source("webhook configuration", &certs.webhook_configuration),
        |webhook: MutatingWebhookConfiguration| Some(WebhookView::new(webhook)),
        Event::Webhook,
        tx.clone(),
    );
    async move {
        tokio::join!(secrets, webhooks);
    }
}

#[cfg(test)]
mod fake_api;
#[cfg(test)]
#[path = "certs_tests.rs"]
mod tests;
