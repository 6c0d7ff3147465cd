//! Makes the certificate, publishes its CA, and takes it into use.
//!
//! The first start, a renewal and the repair of damage work the same way: [`next`] returns the next [`Step`]. Each
//! certificate has its own CA. Earlier CAs stay in the bundle, so the served certificate is trusted all the time.
//! Replicas serve a new certificate [`SETTLE`] after its CA was published, or at once if their current certificate does
//! not work. The Secret is the only state, so a process that ends leaves nothing half done.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use pitstop_kit::watch::Watch;
use pitstop_kit::{clock, describe};
use rustls::sign::CertifiedKey;
use tokio::sync::watch as signal;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Certs;
use super::material::{self, Reading};
use super::stored::{self, SecretView, WebhookView};

/// Days before its end at which a certificate is renewed.
const RENEW_DAYS: i64 = 30;
/// Age of a publication from which every API server is assumed to know it.
pub(super) const SETTLE: Duration = Duration::from_mins(1);
/// Shortest time between two rounds of writes, also if another client undoes each.
const PAUSE: Duration = Duration::from_secs(1);
/// Time from a failed write to the next.
const RETRY: Duration = Duration::from_secs(5);
/// Longest time between two checks: certificates age, and the wall clock may be set.
const CHECK: Duration = Duration::from_hours(12);

/// State of the stored certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    /// Absent, or not accepted by a client that trusts the stored bundle.
    Broken,
    /// To be renewed.
    Due,
    /// Neither.
    Good,
}

/// How the `caBundle` in the webhook's configuration compares with the stored bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Published {
    /// The configuration is absent, so no API server verifies anything.
    Absent,
    /// It differs.
    Other,
    /// It is the same; this process has seen that since then.
    Same(Instant),
}

/// What the leader writes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A new certificate and its CA into the Secret.
    Renew,
    /// The stored bundle into the webhook's configuration.
    Publish,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Renew => "renew",
            Self::Publish => "publish the CA",
        }
    }
}

/// The next step, if one is due.
fn next(stored: Stored, published: Published) -> Option<Step> {
    match (stored, published) {
        (Stored::Broken, _) => Some(Step::Renew),
        // Before a renewal: the stored bundle is right to trust.
        (_, Published::Other) => Some(Step::Publish),
        (Stored::Due, _) => Some(Step::Renew),
        (Stored::Good, _) => None,
    }
}

/// Keeps what the watches showed, and acts on it.
pub(super) struct Keeper {
    certs: Certs,
    pair: signal::Sender<Option<Arc<CertifiedKey>>>,
    /// The Secret, which may be absent; `None` until the first list.
    secret: Option<(Option<SecretView>, Reading)>,
    /// The webhook's configuration, empty if it is absent; `None` until the first list.
    webhook: Option<WebhookView>,
    /// Since when the published bundle equals the stored one; `None` while it differs.
    same_since: Option<Instant>,
    /// Earliest time of the next write.
    next_write: Instant,
}

impl Keeper {
    pub(super) fn new(certs: Certs, pair: signal::Sender<Option<Arc<CertifiedKey>>>) -> Self {
        Self { certs, pair, secret: None, webhook: None, same_since: None, next_write: Instant::now() }
    }

    /// Takes an event of the Secret's watch.
    pub(super) fn watched_secret(&mut self, watch: Watch<SecretView>) {
        self.see_secret(watch.shown());
    }

    /// Takes an event of the configuration's watch.
    pub(super) fn watched_webhook(&mut self, watch: Watch<WebhookView>) {
        self.see_webhook(watch.shown());
    }

    fn see_secret(&mut self, view: Option<SecretView>) {
        let reading = view.as_ref().map(|view| Reading::new(&view.material)).unwrap_or_default();
        self.secret = Some((view, reading));
        self.compare();
    }

    fn see_webhook(&mut self, view: Option<WebhookView>) {
        self.webhook = Some(view.unwrap_or_default());
        self.compare();
    }

    /// Updates since when the published bundle equals the stored one.
    fn compare(&mut self) {
        let (Some((_, reading)), Some(webhook)) = (&self.secret, &self.webhook) else { return };
        let same = webhook.publishes(&reading.bundle_pem());
        self.same_since = same.then(|| self.same_since.unwrap_or_else(Instant::now));
    }

    /// `None` before the configuration is known.
    fn published(&self) -> Option<Published> {
        Some(match (self.webhook.as_ref()?, self.same_since) {
            (webhook, _) if webhook.is_empty() => Published::Absent,
            (_, None) => Published::Other,
            (_, Some(since)) => Published::Same(since),
        })
    }

    /// The leader's next step; `None` also before both objects are known.
    fn next(&self, now: DateTime<Utc>) -> Option<Step> {
        let ((_, reading), published) = (self.secret.as_ref()?, self.published()?);
        let works = |at| {
            reading.pair.as_ref().is_some_and(|pair| reading.accepts(pair, &self.certs.config.names, at))
        };
        let stored = if !works(now) {
            Stored::Broken
        } else if works(now + TimeDelta::days(RENEW_DAYS)) {
            Stored::Good
        } else {
            Stored::Due
        };
        next(stored, published)
    }

    /// Serves and writes what is due. Returns the time until the next check.
    pub(super) async fn act(&mut self, leads: bool) -> Duration {
        let now = clock::wall();
        // A stored and trusted certificate works until it is replaced.
        self.serve(now);
        if leads && Instant::now() >= self.next_write {
            // A renewal is published at once.
            for _ in 0..2 {
                let Some(step) = self.next(now) else { break };
                let result = self.carry_out(step, now).await;
                self.next_write = Instant::now() + if result.is_ok() { PAUSE } else { RETRY };
                match result {
                    Ok(()) => info!(step = step.name(), "webhook certificate: done"),
                    // Another replica or a user was first: the watch delivers what they wrote.
                    Err(Failure::Api(kube::Error::Api(status))) if status.code == 409 => {
                        info!(step = step.name(), "webhook certificate: another client changed the object");
                        break;
                    }
                    Err(error) => {
                        self.certs.metrics.failures.inc();
                        warn!(step = step.name(), error = describe(&error), "webhook certificate: failed");
                        break;
                    }
                }
            }
        }
        let wake = self.serve(now);
        let waits = leads && self.next(now).is_some();
        if waits { wake.min(self.next_write.saturating_duration_since(Instant::now())) } else { wake }
    }

    async fn carry_out(&mut self, step: Step, now: DateTime<Utc>) -> Result<(), Failure> {
        let Certs { client, namespace, secret: name, webhook_configuration, config, .. } = &self.certs;
        let Some((view, reading)) = &self.secret else { return Ok(()) };
        match (step, &self.webhook) {
            (Step::Renew, _) => {
                let new = material::issue(now, &config.names, reading)?;
                let written = stored::write(client, namespace, name, view.as_ref(), new).await?;
                self.see_secret(Some(written));
            }
            (Step::Publish, Some(seen)) => {
                let bundle = reading.bundle_pem();
                let written = stored::publish(client, webhook_configuration, seen, &bundle).await?;
                self.see_webhook(Some(written));
            }
            (Step::Publish, None) => {}
        }
        Ok(())
    }

    /// Serves the stored certificate if it is due. Returns the time until the next check.
    fn serve(&self, now: DateTime<Utc>) -> Duration {
        let Some((_, reading)) = &self.secret else { return CHECK };
        let Some(new) = &reading.pair else { return CHECK };
        let current = self.pair.borrow().clone();
        if current.as_ref().is_some_and(|current| current.cert == new.cert) {
            return CHECK;
        }
        // A certificate that does not work is replaced at once.
        if current.as_ref().is_none_or(|current| reading.accepts(current, &self.certs.config.names, now)) {
            let settle = if current.is_some() { SETTLE } else { Duration::ZERO };
            let settled = match self.published() {
                Some(Published::Absent) => Duration::ZERO,
                Some(Published::Same(since)) => (since + settle).saturating_duration_since(Instant::now()),
                // The publication wakes the keeper.
                Some(Published::Other) | None => CHECK,
            };
            if !settled.is_zero() {
                return settled;
            }
        }
        self.pair.send_replace(Some(Arc::clone(new)));
        self.certs.loaded.set(true);
        if let Some(end) = material::not_after(new) {
            self.certs.metrics.not_after.set(end);
            info!(not_after = %DateTime::from_timestamp(end, 0).unwrap_or_default(), "serving certificate");
        }
        CHECK
    }
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The API server refused or was not reached.
    #[error("cannot write to the API server")]
    Api(#[from] kube::Error),
    /// No certificate could be made.
    #[error("cannot make a certificate")]
    Issue(#[from] rcgen::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_is_published_before_it_is_renewed() {
        let same = Published::Same(Instant::now());
        for (stored, published, expected) in [
            (Stored::Broken, Published::Other, Some(Step::Renew)),
            (Stored::Broken, Published::Absent, Some(Step::Renew)),
            (Stored::Due, Published::Other, Some(Step::Publish)),
            (Stored::Due, same, Some(Step::Renew)),
            (Stored::Good, Published::Other, Some(Step::Publish)),
            (Stored::Good, same, None),
            (Stored::Good, Published::Absent, None),
        ] {
            assert_eq!(next(stored, published), expected, "{stored:?} {published:?}");
        }
    }
}
