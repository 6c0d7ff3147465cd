//! On a paused clock: a wait of a minute takes no time.

use super::*;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use hyper::Method;
use material::{Material, Reading, issue};
use pitstop_kit::shutdown::Trigger;
use serde_json::json;

use super::fake_api::FakeApi;
use super::keeper::SETTLE;

fn config() -> Config {
    config_for("webhook", "ns")
}

fn now() -> DateTime<Utc> {
    pitstop_kit::clock::wall()
}

/// The content of a Secret that was issued `days_ago` days ago.
fn made(days_ago: i64) -> Material {
    issue(now() - TimeDelta::days(days_ago), &config().names, &Reading::default()).unwrap()
}

struct Running {
    api: FakeApi,
    pair: signal::Receiver<Option<Arc<CertifiedKey>>>,
    leads: signal::Sender<bool>,
    readiness: Readiness,
    metrics: CertMetrics,
    _trigger: Trigger,
}

fn start(api: &FakeApi, leads: bool) -> Running {
    let readiness = Readiness::new();
    let metrics = CertMetrics::default();
    let certs = Certs {
        client: api.client(),
        namespace: "ns".to_owned(),
        secret: "cert".to_owned(),
        webhook_configuration: "pitstop".to_owned(),
        config: config(),
        loaded: readiness.condition("certificate"),
        watch_metrics: WatchMetrics::default(),
        metrics: metrics.clone(),
    };
    let (pair_tx, pair) = signal::channel(None);
    let (leads, leader_rx) = signal::channel(leads);
    let (trigger, shutdown) = Shutdown::manual();
    tokio::spawn(run(certs, pair_tx, leader_rx, shutdown));
    Running { api: api.clone(), pair, leads, readiness, metrics, _trigger: trigger }
}

impl Running {
    /// The certificate that is served.
    fn served(&self) -> Option<Arc<CertifiedKey>> {
        self.pair.borrow().clone()
    }

    /// Whether an API server that trusts the published bundle accepts the served certificate.
    fn works(&self) -> bool {
        let published = Reading::new(&Material { ca_crt: published(&self.api), ..Material::default() });
        self.served().is_some_and(|pair| published.accepts(&pair, &config().names, now()))
    }

    /// Whether the stored certificate is served, works, and differs from that of `old`.
    fn serves_another(&self, old: &Material) -> bool {
        let stored = stored(&self.api);
        let served = self.served().map(|pair| pair.cert.clone());
        stored.tls_crt != old.tls_crt
            && served == Reading::new(&stored).pair.map(|pair| pair.cert.clone())
            && self.works()
    }
}

fn with_webhooks() -> FakeApi {
    let api = FakeApi::default();
    let webhook = |name| json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {"service": {"name": "webhook", "namespace": "ns"}}});
    api.put(
        "webhooks",
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "pitstop"}, "webhooks": [webhook("a"), webhook("b")],
        }),
    );
    api
}

/// The CA bundle of both webhooks.
fn published(api: &FakeApi) -> Vec<u8> {
    let configuration = api.get("webhooks").unwrap();
    let bundles = [0, 1].map(|n| configuration["webhooks"][n]["clientConfig"]["caBundle"].clone());
    assert_eq!(bundles[0], bundles[1]);
    assert_eq!(configuration["webhooks"][1]["clientConfig"]["service"]["name"], "webhook", "its fields stay");
    STANDARD.decode(bundles[0].as_str().unwrap_or_default()).unwrap()
}

/// Another client writes the CA bundle of the webhooks.
fn publish(api: &FakeApi, bundle: &[u8]) {
    let mut configuration = api.get("webhooks").unwrap();
    for n in [0, 1] {
        configuration["webhooks"][n]["clientConfig"]["caBundle"] = json!(STANDARD.encode(bundle));
    }
    api.put("webhooks", configuration);
}

fn stored(api: &FakeApi) -> Material {
    let secret = api.get("secrets").unwrap_or_default();
    let read = |key: &str| STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).unwrap();
    Material { ca_crt: read("ca.crt"), tls_crt: read("tls.crt"), tls_key: read("tls.key") }
}

/// Another client writes the Secret.
fn store(api: &FakeApi, material: &Material) {
    let data = json!({
        "ca.crt": STANDARD.encode(&material.ca_crt),
        "tls.crt": STANDARD.encode(&material.tls_crt),
        "tls.key": STANDARD.encode(&material.tls_key),
    });
    let metadata = json!({"name": "cert", "namespace": "ns", "labels": {"kept": "yes"}});
    api.put("secrets", json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}));
}

fn writes(api: &FakeApi) -> Vec<(Method, &'static str)> {
    api.0.lock().unwrap().writes.clone()
}

async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never happened");
}

/// A leader that serves, and the material that it made.
async fn settled() -> (Running, Material) {
    let running = start(&with_webhooks(), true);
    eventually(|| running.works()).await;
    let made = stored(&running.api);
    (running, made)
}

#[tokio::test(start_paused = true)]
async fn the_leader_makes_everything_and_the_others_serve_it() {
    let api = with_webhooks();
    let follower = start(&api, false);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(writes(&api).is_empty() && !follower.readiness.is_ready());
    let leader = start(&api, true);
    eventually(|| follower.works() && leader.works()).await;
    assert!(follower.readiness.is_ready() && leader.readiness.is_ready());
    assert_eq!(published(&api), stored(&api).ca_crt);
    // After that it writes nothing.
    tokio::time::sleep(Duration::from_hours(100)).await;
    assert_eq!(writes(&api), [(Method::POST, "secrets"), (Method::PATCH, "webhooks")]);
    let end = (now() + TimeDelta::days(90)).timestamp();
    assert!((end - leader.metrics.not_after.get()).abs() < 600);
    assert_eq!(leader.metrics.failures.get(), 0);
}

/// Between the renewal and its publication, both replicas serve the old certificate, and the old CA stays trusted.
#[tokio::test(start_paused = true)]
async fn a_renewal_cuts_nobody_off() {
    let api = with_webhooks();
    let old = made(61);
    store(&api, &old);
    let mut with_ca_key = api.get("secrets").unwrap();
    with_ca_key["data"]["ca.key"] = json!(STANDARD.encode("kept by another version"));
    api.put("secrets", with_ca_key);
    publish(&api, &old.ca_crt);
    let follower = start(&api, false);
    eventually(|| follower.works()).await;
    let before = follower.served().unwrap();
    let begun = tokio::time::Instant::now();
    let leader = start(&api, true);
    eventually(|| leader.served().is_some()).await;
    assert_eq!(leader.served().unwrap().cert, before.cert, "it begins with what is trusted");
    eventually(|| {
        assert!(follower.works() && (leader.works() || leader.served().is_none()));
        follower.serves_another(&old) && leader.serves_another(&old)
    })
    .await;
    assert!(begun.elapsed() >= SETTLE, "API servers that are late know the CA");
    let new = Reading::new(&stored(&api));
    assert!(new.accepts(&before, &config().names, now()), "replicas that are late are trusted");
    assert_eq!(writes(&api), [(Method::PATCH, "secrets"), (Method::PATCH, "webhooks")]);
    let secret = api.get("secrets").unwrap();
    assert_eq!(secret["metadata"]["labels"]["kept"], "yes");
    let keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"], "no key of any CA stays");
}

/// For example, the leader died between the two writes. A ready replica would take calls from replicas that still work.
#[tokio::test(start_paused = true)]
async fn a_replica_that_starts_serves_nothing_that_is_not_trusted_yet() {
    let api = with_webhooks();
    let new = made(0);
    store(&api, &new);
    publish(&api, &made(0).ca_crt);
    let follower = start(&api, false);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(follower.served().is_none() && !follower.readiness.is_ready());
    publish(&api, &new.ca_crt);
    eventually(|| follower.works()).await;
    assert!(follower.readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_good_for_long_is_left_alone() {
    let api = with_webhooks();
    let good = made(59);
    store(&api, &good);
    publish(&api, &good.ca_crt);
    let running = start(&api, true);
    eventually(|| running.works()).await;
    tokio::time::sleep(Duration::from_hours(100)).await;
    assert!(writes(&api).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_people_damage_is_repaired() {
    let (running, made) = settled().await;
    let api = &running.api;
    // A user applies the manifest again.
    publish(api, b"");
    eventually(|| running.works()).await;
    assert_eq!(stored(api).tls_crt, made.tls_crt, "what is served was right all the time");
    // A user publishes another CA.
    publish(api, &self::made(0).ca_crt);
    eventually(|| running.works()).await;
    assert_eq!(stored(api).tls_crt, made.tls_crt);
    // A user empties the certificate. Meanwhile the old one is served, and trusted.
    store(api, &Material { tls_crt: Vec::new(), ..made.clone() });
    eventually(|| {
        assert!(running.works());
        running.serves_another(&made)
    })
    .await;
    // A user deletes the Secret.
    let made = stored(api);
    api.delete("secrets");
    eventually(|| running.serves_another(&made)).await;
    assert!(running.readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn expired_and_foreign_certificates_are_replaced() {
    let (good, other) = (made(0), made(0));
    let foreign_ca = Material { ca_crt: other.ca_crt.clone(), ..good.clone() };
    let foreign_pair = Material { ca_crt: good.ca_crt.clone(), ..other.clone() };
    let foreign_key = Material { tls_key: other.tls_key, ..good };
    let names = config_for("webhook", "elsewhere").names;
    let foreign_names = issue(now(), &names, &Reading::default()).unwrap();
    for (what, material) in [
        ("of long ago", made(1000)),
        // Made while the wall clock was ahead.
        ("of later", made(-1000)),
        ("foreign CA", foreign_ca),
        ("foreign pair", foreign_pair),
        ("foreign key", foreign_key),
        ("foreign names", foreign_names),
        ("empty", Material::default()),
    ] {
        let api = with_webhooks();
        store(&api, &material);
        let running = start(&api, true);
        let begun = tokio::time::Instant::now();
        eventually(|| running.serves_another(&material)).await;
        assert!(begun.elapsed() < SETTLE, "{what}: nothing is waited for");
        assert_eq!(writes(&api), [(Method::PATCH, "secrets"), (Method::PATCH, "webhooks")], "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_who_lead_at_once_agree() {
    let api = with_webhooks();
    let both = [start(&api, false), start(&api, false)];
    tokio::time::sleep(Duration::from_mins(1)).await;
    for one in &both {
        one.leads.send_replace(true);
    }
    eventually(|| both.iter().all(Running::works)).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(both.iter().all(Running::works));
    assert_eq!(both[0].served().unwrap().cert, both[1].served().unwrap().cert);
    assert!(writes(&api).len() <= 4, "{:?}", writes(&api));
    assert!(api.0.lock().unwrap().conflicts > 0);
    assert!(both.iter().all(|one| one.metrics.failures.get() == 0), "who comes second has not failed");
}

#[tokio::test(start_paused = true)]
async fn somebody_who_undoes_each_write_is_met_once_a_second() {
    let (running, _) = settled().await;
    let before = writes(&running.api).len();
    for _ in 0..1000 {
        publish(&running.api, b"");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(writes(&running.api).len() - before <= 11);
    eventually(|| running.works()).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_configuration_the_certificate_is_made_and_published_later() {
    let api = FakeApi::default();
    let running = start(&api, true);
    eventually(|| running.readiness.is_ready()).await;
    assert_eq!(writes(&api), [(Method::POST, "secrets")]);
    let installed = with_webhooks().get("webhooks").unwrap();
    api.put("webhooks", installed);
    eventually(|| running.works()).await;
}
