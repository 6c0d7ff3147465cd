use super::*;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use facts::Reading;
use hyper::Method;
use pitstop_controller_core::certs::{Published, Step, Stored, plan};
use pitstop_kit::shutdown::Trigger;
use secret::Material;
use serde_json::json;

use super::fake_api::FakeApi;
use super::keeper::testing::{after, first_start};

fn at(days: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000, 0).unwrap() + TimeDelta::days(days)
}

fn config() -> Config {
    config_for("webhook", "ns")
}

const SETTLED: Published = Published::Same(Duration::from_hours(1));

#[test]
fn what_is_issued_reads_back_as_planned() {
    let material = first_start(at(0), &config());
    let reading = Reading::new(&material);
    let Stored { bundle, signer, leaf } = &reading.stored;
    let leaf = leaf.as_ref().unwrap();
    assert_eq!(signer.as_ref(), Some(&bundle[0].fingerprint));
    assert_eq!(leaf.issuer, *signer);
    assert_eq!(leaf.names, ["webhook.ns.svc", "webhook.ns.svc.cluster.local"]);
    assert_eq!(leaf.cert.not_after, at(90));
    assert_eq!(bundle[0].not_after, at(365));
    assert_eq!(reading.bundle_pem().as_bytes(), material.ca_crt);
    assert!(reading.pair.is_some());
    assert!(matches!(plan(at(1), Some(&reading.stored), SETTLED, &config()), Step::Nothing { .. }));
}

#[test]
fn years_of_certificates_stay_readable() {
    let mut material = first_start(at(0), &config());
    let (mut cas, mut leaves) = (0, 0);
    for day in 1..800 {
        let stored = Reading::new(&material).stored;
        let step = plan(at(day), Some(&stored), SETTLED, &config());
        match step {
            Step::Nothing { .. } => continue,
            Step::AddCa { .. } => cas += 1,
            Step::IssueLeaf { .. } => leaves += 1,
            Step::PublishCaBundle | Step::DropOldCas { .. } => {}
        }
        material = after(&step, material, &config());
        let reading = Reading::new(&material);
        assert!(reading.pair.is_some() && reading.stored.leaf.unwrap().issuer.is_some(), "{step:?}");
    }
    assert_eq!((cas, leaves), (3, 13));
}

#[test]
fn what_cannot_be_read_is_absent() {
    let good = first_start(at(0), &config());
    let other = first_start(at(0), &config());
    let stored = |material: Material| Reading::new(&material).stored;
    assert_eq!(stored(Material::default()), Stored::default());
    assert_eq!(stored(Material { ca_key: b"x".to_vec(), ..good.clone() }).signer, None);
    assert_eq!(stored(Material { ca_key: other.ca_key, ..good.clone() }).signer, None);
    assert_eq!(stored(Material { tls_key: other.tls_key, ..good.clone() }).leaf, None);
    assert_eq!(stored(Material { ca_crt: other.ca_crt, ..good.clone() }).leaf.unwrap().issuer, None);
    // Twice the same CA, a leaf among the CAs, and rubbish.
    let mixed = [
        &good.ca_crt[..],
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        &good.ca_crt,
        &good.tls_crt,
    ]
    .concat();
    let reading = Reading::new(&Material { ca_crt: mixed, ..good.clone() });
    assert_eq!(reading.stored, stored(good.clone()));
    assert_eq!(reading.bundle_pem().as_bytes(), good.ca_crt);
}

struct Running {
    api: FakeApi,
    pair: signal::Receiver<Option<Arc<CertifiedKey>>>,
    leads: signal::Sender<bool>,
    readiness: Readiness,
    _trigger: Trigger,
}

fn start(api: FakeApi, leads: bool) -> Running {
    let readiness = Readiness::new();
    let certs = Certs {
        client: api.client(),
        namespace: "ns".to_owned(),
        secret: "cert".to_owned(),
        webhook_configuration: "pitstop".to_owned(),
        config: config(),
        loaded: readiness.condition("certificate"),
        watch_metrics: WatchMetrics::default(),
        metrics: CertMetrics::default(),
    };
    let (pair_tx, pair) = signal::channel(None);
    let (leads, leader_rx) = signal::channel(leads);
    let (trigger, shutdown) = Shutdown::manual();
    tokio::spawn(run(certs, pair_tx, leader_rx, shutdown));
    Running { api, pair, leads, readiness, _trigger: trigger }
}

fn with_webhook() -> FakeApi {
    let api = FakeApi::default();
    api.put(
        "webhooks",
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "pitstop"},
            "webhooks": [{"name": "a", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {}}],
        }),
    );
    api
}

fn published(api: &FakeApi) -> Vec<u8> {
    let webhook = api.get("webhooks").unwrap();
    STANDARD.decode(webhook["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default()).unwrap()
}

fn stored(api: &FakeApi, key: &str) -> Vec<u8> {
    STANDARD.decode(api.get("secrets").unwrap()["data"][key].as_str().unwrap_or_default()).unwrap()
}

async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened");
}

#[tokio::test]
async fn the_leader_makes_everything_and_the_others_serve_it() {
    let api = with_webhook();
    let follower = start(api.clone(), false);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(api.0.lock().unwrap().writes.is_empty() && !follower.readiness.is_ready());
    let leader = start(api.clone(), true);
    let mut pair = follower.pair.clone();
    let served = pair.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert!(follower.readiness.is_ready());
    eventually(|| leader.pair.borrow().as_ref().is_some_and(|own| own.cert == served.cert)).await;
    assert_eq!(published(&api), stored(&api, "ca.crt"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        api.0.lock().unwrap().writes,
        [(Method::POST, "secrets"), (Method::PATCH, "webhooks"), (Method::PATCH, "secrets")]
    );
}

#[tokio::test]
async fn damage_is_repaired_without_a_person() {
    let running = start(with_webhook(), true);
    let mut pair = running.pair.clone();
    pair.wait_for(Option::is_some).await.unwrap();
    let api = &running.api;
    // Somebody applies the manifest anew.
    let mut webhook = api.get("webhooks").unwrap();
    webhook["webhooks"][0]["clientConfig"] = json!({});
    api.put("webhooks", webhook);
    eventually(|| published(api) == stored(api, "ca.crt")).await;
    // Somebody empties the leaf: the old pair is served until there is a new one.
    pair.borrow_and_update();
    let mut secret = api.get("secrets").unwrap();
    secret["data"]["tls.crt"] = json!("");
    secret["metadata"]["labels"] = json!({"kept": "yes"});
    api.put("secrets", secret);
    pair.changed().await.unwrap();
    assert!(pair.borrow().is_some());
    assert_eq!(api.get("secrets").unwrap()["metadata"]["labels"]["kept"], "yes");
    // Somebody deletes the Secret.
    pair.borrow_and_update();
    api.delete("secrets");
    pair.changed().await.unwrap();
    eventually(|| published(api) == stored(api, "ca.crt")).await;
    assert!(running.readiness.is_ready());
}

#[tokio::test]
async fn a_race_is_lost_in_peace_and_leadership_comes_later() {
    let api = with_webhook();
    api.0.lock().unwrap().conflicts = 2;
    let running = start(api, false);
    running.leads.send(true).unwrap();
    let mut pair = running.pair.clone();
    tokio::time::timeout(Duration::from_secs(20), pair.wait_for(Option::is_some)).await.unwrap().unwrap();
}

/// The Secret, as somebody put it there.
fn put_secret(api: &FakeApi, material: &Material) {
    let data = [
        ("ca.crt", &material.ca_crt),
        ("ca.key", &material.ca_key),
        ("tls.crt", &material.tls_crt),
        ("tls.key", &material.tls_key),
    ];
    let data: serde_json::Value =
        data.map(|(key, bytes)| (key, STANDARD.encode(bytes))).into_iter().collect();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cert", "namespace": "ns"}, "data": data});
    api.put("secrets", secret);
}

/// Whether an API server that trusts what is published accepts what is stored.
fn works(api: &FakeApi) -> bool {
    let read = |key| stored(api, key);
    let material = Material {
        ca_crt: published(api),
        ca_key: read("ca.key"),
        tls_crt: read("tls.crt"),
        tls_key: read("tls.key"),
    };
    let now = pitstop_kit::clock::wall();
    let in_date =
        |cert: &pitstop_controller_core::certs::CertFacts| cert.not_before <= now && now < cert.not_after;
    let Stored { bundle, leaf, .. } = Reading::new(&material).stored;
    leaf.is_some_and(|leaf| {
        let issuer = bundle.iter().find(|ca| leaf.issuer.as_ref() == Some(&ca.fingerprint));
        in_date(&leaf.cert) && issuer.is_some_and(in_date) && config().names == leaf.names
    })
}

#[tokio::test]
async fn expired_and_foreign_certificates_are_replaced_without_a_person() {
    let now = pitstop_kit::clock::wall();
    let (good, other) = (first_start(now, &config()), first_start(now, &config()));
    // All of it, of long ago; a leaf of long ago under a CA of today; parts of another installation; other names.
    let long_ago = first_start(now - TimeDelta::days(1000), &config());
    let ended = first_start(now - TimeDelta::days(100), &config());
    let foreign_ca = Material { ca_crt: other.ca_crt.clone(), ..good.clone() };
    let foreign_leaf = Material { tls_crt: other.tls_crt.clone(), tls_key: other.tls_key, ..good.clone() };
    let foreign_names = first_start(now, &config_for("webhook", "elsewhere"));
    for (what, material) in [
        ("long ago", long_ago),
        ("ended", ended),
        ("foreign CA", foreign_ca),
        ("foreign leaf", foreign_leaf),
        ("foreign names", foreign_names),
    ] {
        let api = with_webhook();
        put_secret(&api, &material);
        assert!(!works(&api), "{what}");
        let running = start(api, true);
        eventually(|| works(&running.api)).await;
        let new = stored(&running.api, "tls.crt");
        assert_ne!(new, material.tls_crt, "{what}");
        eventually(|| {
            let served = running.pair.borrow();
            let served = served.as_ref().and_then(|pair| pair.cert.first().map(facts::fingerprint));
            let stored = Reading::new(&Material {
                tls_crt: new.clone(),
                tls_key: stored(&running.api, "tls.key"),
                ..Material::default()
            });
            served.is_some() && served == stored.stored.leaf.map(|leaf| leaf.cert.fingerprint)
        })
        .await;
    }
}

#[tokio::test]
async fn a_foreign_ca_in_the_webhooks_configuration_is_replaced() {
    let running = start(with_webhook(), true);
    let mut pair = running.pair.clone();
    pair.wait_for(Option::is_some).await.unwrap();
    let api = &running.api;
    eventually(|| works(api)).await;
    let foreign = first_start(pitstop_kit::clock::wall(), &config()).ca_crt;
    let mut webhook = api.get("webhooks").unwrap();
    webhook["webhooks"][0]["clientConfig"]["caBundle"] = json!(STANDARD.encode(foreign));
    let leaf = stored(api, "tls.crt");
    api.put("webhooks", webhook);
    eventually(|| works(api)).await;
    assert_eq!(stored(api, "tls.crt"), leaf, "what is served was right all the time");
}
