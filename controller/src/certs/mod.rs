//! The webhook's certificate. The leader makes, stores, publishes and renews it; every replica serves it.
//!
//! One Secret is the only state. Two watches of one object each show changes of it and of the webhook's configuration.
//! Twice a day, the leader also checks without an event. Nothing polls.

mod keeper;
pub mod material;
mod stored;

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use kube::{Api, Client};
use pitstop_kit::health::{Condition, Readiness};
use pitstop_kit::watch::{self, Source, Watch};
use pitstop_kit::{Shutdown, WatchMetrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::sign::CertifiedKey;
use tokio::sync::{mpsc, watch as signal};
use tokio::time::sleep;

use keeper::Keeper;
use stored::{SecretView, WebhookView};

/// Properties of the certificate.
pub struct Config {
    /// DNS names that the certificate must hold.
    pub names: Vec<String>,
}

/// Purpose, storage and reporting of the certificate.
pub struct Certs {
    /// Kubernetes client.
    pub client: Client,
    /// The own namespace, of the Secret and of the webhook's Service.
    pub namespace: String,
    /// Name of the Secret: `pitstop-webhook-cert`.
    pub secret: String,
    /// Name of the `MutatingWebhookConfiguration`: `pitstop`.
    pub webhook_configuration: String,
    /// Properties of the certificate; see [`config_for`].
    pub config: Config,
    /// Holds once a certificate can be served.
    pub loaded: Condition,
    /// Counters of the watches.
    pub watch_metrics: WatchMetrics,
    /// The certificates' own metrics.
    pub metrics: CertMetrics,
}

/// Properties of a certificate for the Service.
pub fn config_for(service: &str, namespace: &str) -> Config {
    let names = ["svc", "svc.cluster.local"].map(|end| format!("{service}.{namespace}.{end}"));
    Config { names: names.into() }
}

/// Metrics of the certificates.
#[derive(Clone, Debug, Default)]
pub struct CertMetrics {
    not_after: Gauge,
    failures: Counter,
}

impl CertMetrics {
    /// Registers the metrics.
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

/// Events of the watches.
enum Event {
    Secret(Watch<SecretView>),
    Webhook(Watch<WebhookView>),
}

/// Keeps the certificate until the shutdown starts.
///
/// Every replica sends the certificate that it serves into `pair`. Only the leader writes. The first leader makes the
/// first certificate.
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
            tokio::select! {
                event = rx.recv() => match event {
                    Some(Event::Secret(watch)) => keeper.watched_secret(watch),
                    Some(Event::Webhook(watch)) => keeper.watched_webhook(watch),
                    None => return,
                },
                changed = leader.changed() => if changed.is_err() { return },
                () = sleep(wake) => {}
            }
        }
    };
    tokio::select! {
        () = keeping => {}
        () = watches => {}
        () = shutdown.wait() => {}
    }
}

/// Runs both watches until the receiver is dropped.
fn watches(certs: &Certs, tx: &mpsc::Sender<Event>) -> impl Future<Output = ()> + use<> {
    // Not part of `/readyz`: a replica with a certificate has both watches synced.
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
