//! Carries out the plan for the certificates, one step at a time.

use std::sync::Arc;
use std::time::Duration;

use pitstop_controller_core::certs::{Config, Published, Step, Stored, plan};
use pitstop_kit::clock::{self, Monotonic};
use pitstop_kit::describe;
use pitstop_kit::watch::Watch;
use rustls::sign::CertifiedKey;
use tokio::sync::watch as signal;
use tracing::{info, warn};

use super::facts::Reading;
use super::secret::{self, Material, SecretView};
use super::webhook::{self, WebhookView};
use super::{Certs, issue};

/// Most steps without a look at the watches. The longest road has five.
const MAX_STEPS: usize = 8;
/// First wait after a failure; doubled with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest wait after a failure.
const LAST_RETRY: Duration = Duration::from_mins(1);
/// Days before the end of a certificate from which it is complained about.
const ALARM_DAYS: i64 = 14;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum StepError {
    /// The API server refused or was not reached.
    #[error("the API server did not take it")]
    Api(#[from] kube::Error),
    /// No certificate could be made.
    #[error("cannot make a certificate")]
    Issue(#[from] rcgen::Error),
    /// The plan asked for something that is not there.
    #[error("the {0} to work with is missing")]
    Missing(&'static str),
}

/// The last look at the Secret.
#[derive(Default)]
struct Seen {
    view: Option<SecretView>,
    stored: Option<Stored>,
    /// What is to be published.
    bundle: String,
}

/// The last look at the webhook's configuration.
enum Configuration {
    /// Before the first list.
    Unknown,
    /// There is none, or none with a webhook in it.
    Absent,
    /// It is so.
    Present(WebhookView),
}

/// Holds what was seen, and acts on it.
pub(super) struct Keeper {
    certs: Certs,
    pair: signal::Sender<Option<Arc<CertifiedKey>>>,
    /// `None` until the first list.
    secret: Option<Seen>,
    webhook: Configuration,
    /// The published bundle that equals the stored one, and since when, in milliseconds of the monotonic clock.
    same: Option<(String, u64)>,
    failures: u32,
    /// Not before this time, in milliseconds of the monotonic clock.
    retry_at: u64,
}

impl Keeper {
    pub(super) fn new(certs: Certs, pair: signal::Sender<Option<Arc<CertifiedKey>>>) -> Self {
        Self {
            certs,
            pair,
            secret: None,
            webhook: Configuration::Unknown,
            same: None,
            failures: 0,
            retry_at: 0,
        }
    }

    /// The watch of the Secret tells something.
    pub(super) fn watched_secret(&mut self, watch: Watch<SecretView>) {
        let current = self.secret.as_ref().and_then(|seen| seen.view.as_ref());
        if let Watch::Upsert(new) = &watch
            && current.is_some_and(|current| is_older(&new.resource_version, &current.resource_version))
        {
            return;
        }
        self.see_secret(latest(watch));
    }

    /// The watch of the webhook's configuration tells something.
    pub(super) fn watched_webhook(&mut self, watch: Watch<WebhookView>) {
        if let (Watch::Upsert(new), Configuration::Present(current)) = (&watch, &self.webhook)
            && is_older(&new.resource_version, &current.resource_version)
        {
            return;
        }
        self.see_webhook(latest(watch));
    }

    /// The Secret is so, or absent.
    fn see_secret(&mut self, view: Option<SecretView>) {
        let Some(view) = view else {
            // A pair that was loaded is still served: it is what the API servers trust.
            self.secret = Some(Seen::default());
            return;
        };
        let reading = Reading::new(&view.material);
        let bundle = reading.bundle_pem();
        if let Some(pair) = reading.pair {
            self.serve(pair, &reading.stored);
        }
        self.secret = Some(Seen { view: Some(view), stored: Some(reading.stored), bundle });
        self.compare();
    }

    /// The webhook's configuration is so, or absent.
    fn see_webhook(&mut self, view: Option<WebhookView>) {
        self.webhook = match view.filter(|view| !view.is_empty()) {
            Some(view) => Configuration::Present(view),
            None => Configuration::Absent,
        };
        self.compare();
    }

    /// Hands a pair to the server, unless it has it already.
    fn serve(&self, pair: Arc<CertifiedKey>, stored: &Stored) {
        let changed = self.pair.send_if_modified(|current| {
            let same = current.as_ref().is_some_and(|current| current.cert == pair.cert);
            if !same {
                *current = Some(pair);
            }
            !same
        });
        self.certs.loaded.set(true);
        if let Some(leaf) = stored.leaf.as_ref().filter(|_| changed) {
            self.certs.metrics.not_after.set(leaf.cert.not_after.timestamp());
            info!(fingerprint = leaf.cert.fingerprint, not_after = %leaf.cert.not_after, "serving certificate");
        }
    }

    /// Notes since when the published bundle is the stored one.
    fn compare(&mut self) {
        let (Some(secret), Configuration::Present(webhook)) = (&self.secret, &self.webhook) else {
            self.same = None;
            return;
        };
        if !webhook.publishes(&secret.bundle) {
            self.same = None;
        } else if self.same.as_ref().is_none_or(|(bundle, _)| *bundle != secret.bundle) {
            self.same = Some((secret.bundle.clone(), Monotonic::now()));
        }
    }

    /// How the two compare; `None` before both are known.
    fn published(&self) -> Option<Published> {
        match (&self.webhook, &self.same) {
            (Configuration::Unknown, _) => None,
            (Configuration::Absent, _) => Some(Published::Absent),
            (Configuration::Present(_), None) => Some(Published::Other),
            (Configuration::Present(_), Some((_, since))) => {
                Some(Published::Same(Duration::from_millis(Monotonic::now().saturating_sub(*since))))
            }
        }
    }

    /// Does what is due, if this replica leads. Returns when to look again by itself, if ever.
    pub(super) async fn act(&mut self, leads: bool) -> Option<Duration> {
        if !leads {
            self.failures = 0;
            self.retry_at = 0;
            return None;
        }
        for _ in 0..MAX_STEPS {
            let (Some(secret), Some(published)) = (&self.secret, self.published()) else { return None };
            let wait = self.retry_at.saturating_sub(Monotonic::now());
            if wait > 0 {
                return Some(Duration::from_millis(wait));
            }
            let now = clock::wall();
            let step = plan(now, secret.stored.as_ref(), published, &self.certs.config);
            if let Step::Nothing { check_again_in } = step {
                self.complain(now);
                return Some(check_again_in);
            }
            match self.carry_out(&step).await {
                Ok(()) => {
                    self.failures = 0;
                    info!(step = name(&step), "webhook certificates: done");
                }
                Err(error) => self.failed(&step, &error),
            }
        }
        Some(LAST_RETRY)
    }

    async fn carry_out(&mut self, step: &Step) -> Result<(), StepError> {
        let Certs { client, namespace, secret: name, webhook_configuration, config, .. } = &self.certs;
        let seen = self.secret.as_ref().ok_or(StepError::Missing("Secret"))?;
        if *step == Step::PublishCaBundle {
            let Configuration::Present(view) = &self.webhook else {
                return Err(StepError::Missing("webhook configuration"));
            };
            let written = webhook::publish(client, webhook_configuration, view, &seen.bundle).await?;
            self.see_webhook(Some(written));
            return Ok(());
        }
        let view = seen.view.as_ref();
        let old = view.map(|view| view.material.clone()).unwrap_or_default();
        let Some(new) = change(step, old, config)? else { return Ok(()) };
        let written = secret::write(client, namespace, name, view, &new).await?;
        self.see_secret(Some(written));
        Ok(())
    }

    fn failed(&mut self, step: &Step, error: &StepError) {
        let wait = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(self.failures.min(16))).min(LAST_RETRY);
        self.failures = self.failures.saturating_add(1);
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.retry_at = Monotonic::now().saturating_add(wait_ms);
        // Another replica, or a person, was first: not worth a warning, the watch brings what they wrote.
        let raced =
            matches!(error, StepError::Api(kube::Error::Api(status)) if matches!(status.code, 409 | 422));
        if raced && self.failures == 1 {
            info!(step = name(step), error = describe(error), "changed meanwhile");
        } else {
            self.certs.metrics.failures.inc();
            let (error, retry_in_seconds) = (describe(error), wait.as_secs());
            warn!(step = name(step), error, retry_in_seconds, "webhook certificates: failed");
        }
    }

    /// A certificate that is about to end is renewed long before, so one that is not has a cause to look for.
    fn complain(&self, now: chrono::DateTime<chrono::Utc>) {
        let leaf = self.secret.as_ref().and_then(|seen| seen.stored.as_ref()?.leaf.as_ref());
        if let Some(leaf) = leaf.filter(|leaf| (leaf.cert.not_after - now).num_days() < ALARM_DAYS) {
            warn!(not_after = %leaf.cert.not_after, "the webhook certificate ends soon");
        }
    }
}

/// The one object that the watch is of, if it is there.
fn latest<T>(watch: Watch<T>) -> Option<T> {
    match watch {
        Watch::Upsert(object) => Some(object),
        Watch::Gone(_) => None,
        Watch::Restart(all) => all.into_iter().next(),
    }
}

/// Whether a watched version is from before a write of our own, whose answer was faster than the watch. Versions that
/// are no numbers are taken as they come; so is a list, for after a restore from a backup versions begin lower.
fn is_older(new: &str, current: &str) -> bool {
    matches!((new.parse::<u64>(), current.parse::<u64>()), (Ok(new), Ok(current)) if new < current)
}

/// The Secret's content after the step; `None` for steps that do not change it.
fn change(step: &Step, old: Material, config: &Config) -> Result<Option<Material>, StepError> {
    let reading = Reading::new(&old);
    let new = match step {
        Step::Nothing { .. } | Step::PublishCaBundle => return Ok(None),
        Step::AddCa { validity, keep } => {
            let ca = issue::ca(validity)?;
            let bundle = reading.keep_pem(keep) + &ca.cert_pem.replace("\r\n", "\n");
            Material { ca_crt: bundle.into_bytes(), ca_key: ca.key_pem.into_bytes(), ..old }
        }
        Step::IssueLeaf { validity } => {
            let signer = reading.stored.signer.as_deref();
            let ca = signer.and_then(|signer| reading.ca(signer)).ok_or(StepError::Missing("CA"))?;
            let key = std::str::from_utf8(&old.ca_key).map_err(|_| StepError::Missing("CA key"))?;
            let leaf = issue::leaf(validity, &config.names, ca, key)?;
            Material { tls_crt: leaf.cert_pem.into_bytes(), tls_key: leaf.key_pem.into_bytes(), ..old }
        }
        Step::DropOldCas { keep } => Material { ca_crt: reading.keep_pem(keep).into_bytes(), ..old },
    };
    Ok(Some(new))
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Nothing { .. } => "nothing",
        Step::AddCa { .. } => "add a CA",
        Step::PublishCaBundle => "publish the CA bundle",
        Step::IssueLeaf { .. } => "issue a certificate",
        Step::DropOldCas { .. } => "drop old CAs",
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// The Secret's content after a first start at this time.
    pub fn first_start(now: chrono::DateTime<chrono::Utc>, config: &Config) -> Material {
        let mut material = Material::default();
        for _ in 0..2 {
            let stored = Reading::new(&material).stored;
            let step = plan(now, Some(&stored), Published::Absent, config);
            material = after(&step, material, config);
        }
        material
    }

    /// The Secret's content after the step.
    pub fn after(step: &Step, material: Material, config: &Config) -> Material {
        change(step, material, config).unwrap().unwrap()
    }
}
