//! The webhook's certificates change, expire or are foreign; the webhook is slow or away. No person repairs it, and no
//! Pod waits for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use nix::sys::signal::Signal;
use pitstop_api::labels;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::system::{self, CONTROLLER, NAMESPACE, WEBHOOK, WEBHOOK_NAME};
use pitstop_e2e::{
    Cluster, Context, Ns, Result, SHORT, bail, ensure, on_cluster, pods, process, requests, until,
};
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use serde_json::json;

/// Name of the webhook's certificate.
const SECRET: &str = "pitstop-webhook-cert";
const DAY: Duration = Duration::from_hours(24);
/// Metric: when the served certificate expires.
const NOT_AFTER: &str = "pitstop_controller_webhook_certificate_not_after_seconds ";
/// Bound of a switch: a certificate is served a minute after its CA was published.
const SWITCH: Duration = Duration::from_secs(90);

/// A certificate and its key, both as PEM.
struct Issued {
    cert: String,
    key: String,
}

/// Parameters of a certificate that is valid from `past` days ago for `future` more days (negative: it has expired).
fn params(name: &str, names: Vec<String>, past: i32, future: i32) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let today = date_time_ymd(1970, 1, 1) + now;
    let at = |days: i32| {
        let shift = DAY * days.unsigned_abs();
        if days < 0 { today - shift } else { today + shift }
    };
    params.not_before = at(-past);
    params.not_after = at(future);
    Ok(params)
}

fn ca(past: i32, future: i32) -> Result<Issued> {
    let mut params = params(&format!("test CA {past} {future}"), Vec::new(), past, future)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let key = KeyPair::generate()?;
    Ok(issued(&params.self_signed(&key)?, &key))
}

fn leaf(ca: &Issued, past: i32, future: i32) -> Result<Issued> {
    let names = ["svc", "svc.cluster.local"].map(|end| format!("pitstop-webhook.{NAMESPACE}.{end}"));
    let params = params("test leaf", names.to_vec(), past, future)?;
    let issuer = Issuer::from_ca_cert_pem(&ca.cert, KeyPair::from_pem(&ca.key)?)?;
    let key = KeyPair::generate()?;
    Ok(issued(&params.signed_by(&key, &issuer)?, &key))
}

/// As PEM, like the controller writes it.
fn issued(cert: &Certificate, key: &KeyPair) -> Issued {
    Issued { cert: cert.pem().replace("\r\n", "\n"), key: key.serialize_pem() }
}

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

async fn stored(cluster: &Cluster) -> Result<BTreeMap<String, ByteString>> {
    secrets(cluster).get(SECRET).await?.data.context("an empty Secret")
}

/// Writes these keys of the Secret.
async fn store(cluster: &Cluster, data: &[(&str, &str)]) -> Result<()> {
    let data: BTreeMap<&str, ByteString> =
        data.iter().map(|(key, text)| (*key, ByteString(text.as_bytes().to_vec()))).collect();
    let patch = Patch::Merge(json!({"data": data}));
    secrets(cluster).patch(SECRET, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Sets the CA that the API server trusts.
async fn publish(cluster: &Cluster, bundle: &str) -> Result<()> {
    let all: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let bundle = ByteString(bundle.as_bytes().to_vec());
    // Its other fields stay: webhooks are merged by name.
    let patch = json!({"webhooks": [{"name": WEBHOOK_NAME, "clientConfig": {"caBundle": bundle}}]});
    all.patch(WEBHOOK, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

/// Waits until the API server's configuration trusts the stored CAs.
async fn trusted(cluster: &Cluster) -> Result<()> {
    until("the stored CAs to be published", SHORT, async || {
        let bundle = system::ca_bundle(cluster).await?.context("no CA")?;
        Ok((bundle == stored(cluster).await?["ca.crt"].0).then_some(()))
    })
    .await
}

/// When the certificate of each replica expires, by its metrics.
async fn served(cluster: &Cluster) -> Result<Vec<String>> {
    let mut ends = Vec::new();
    for pod in system::pods_of(cluster, CONTROLLER).await? {
        let name = pod.metadata.name.context("a Pod without a name")?;
        let text = system::metrics(cluster, &name).await?;
        let end =
            text.lines().find_map(|line| line.strip_prefix(NOT_AFTER)).context("no certificate is served")?;
        ends.push(end.trim().to_owned());
    }
    Ok(ends)
}

/// Whether a new request gets its defaults, which only the webhook sets. A dry run: nothing is stored.
async fn defaulted(ns: &Ns) -> Result<bool> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let request = serde_json::from_value(requests::recreate("dry", "web", &["app"]))?;
    let made: ContainerRecreateRequest = ns.requests().create(&dry, &request).await?;
    Ok(requests::label(&made, labels::POD_UID).is_some())
}

/// Waits until many requests in a row get their defaults: then each API server and each replica uses the new state.
async fn answers_well(ns: &Ns) -> Result<()> {
    until("the webhook to give defaults", SHORT, async || {
        for _ in 0..20 {
            if !defaulted(ns).await? {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
}

#[test]
fn what_has_ended_and_what_is_foreign_is_mended_without_a_person() -> Result<()> {
    on_cluster(async |ns| {
        let cluster = &ns.cluster;
        ns.start_pod(pods::app("web")).await?;
        answers_well(ns).await?;

        // CA and certificate have expired.
        let old_ca = ca(700, -300)?;
        let old = leaf(&old_ca, 400, -310)?;
        store(cluster, &[("ca.crt", &old_ca.cert), ("tls.crt", &old.cert), ("tls.key", &old.key)]).await?;
        until("the old certificate to be replaced", SHORT, async || {
            Ok((stored(cluster).await?["tls.crt"].0 != old.cert.as_bytes()).then_some(()))
        })
        .await?;
        answers_well(ns).await?;
        let bundle = String::from_utf8(system::ca_bundle(cluster).await?.context("no CA")?)?;
        let start = old_ca.cert.lines().nth(1).context("an empty certificate")?;
        assert!(!bundle.contains(start), "a CA that has ended is not trusted any more");

        // The CA did not issue the certificate.
        let foreign = ca(1, 300)?;
        store(cluster, &[("ca.crt", &foreign.cert), ("ca.key", &foreign.key)]).await?;
        trusted(cluster).await?;
        answers_well(ns).await?;

        // The API server's configuration trusts another CA.
        publish(cluster, &ca(1, 300)?.cert).await?;
        trusted(cluster).await?;
        answers_well(ns).await
    })
}

/// A certificate that expires in three days. The controller stores another and publishes its CA at once, and serves it
/// a minute later. Meanwhile, four callers create requests.
#[test]
fn no_call_fails_while_ca_and_certificate_change() -> Result<()> {
    on_cluster(async |ns| {
        let cluster = &ns.cluster;
        ns.start_pod(pods::app("web")).await?;
        let aged = ca(300, 60)?;
        let ending = leaf(&aged, 80, 3)?;
        // The served certificate stays trusted, so the controller need not hurry.
        let right = String::from_utf8(stored(cluster).await?["ca.crt"].0.clone())?;
        let before = served(cluster).await?;
        store(
            cluster,
            &[("ca.crt", &(right + &aged.cert)), ("tls.crt", &ending.cert), ("tls.key", &ending.key)],
        )
        .await?;

        let done = AtomicBool::new(false);
        let callers = join_all((0..4).map(|_| async {
            let mut calls = 0_u32;
            while !done.load(Ordering::Relaxed) {
                ensure!(defaulted(ns).await?, "call {calls} was not answered");
                calls += 1;
            }
            anyhow::Ok(calls)
        }));
        let watching = async {
            let change = async {
                until("another certificate", SHORT, async || {
                    Ok((stored(cluster).await?["tls.crt"].0 != ending.cert.as_bytes()).then_some(()))
                })
                .await?;
                ensure!(served(cluster).await? == before, "it is served too early");
                until("each replica to serve it", SWITCH, async || {
                    let now = served(cluster).await?;
                    Ok(now.iter().all(|end| !before.contains(end)).then_some(()))
                })
                .await?;
                // The API server reconnects when its trusted CAs change: for this additional CA, and when the
                // controller removes it.
                let right = String::from_utf8(stored(cluster).await?["ca.crt"].0.clone())?;
                publish(cluster, &(right + &ca(1, 300)?.cert)).await?;
                trusted(cluster).await?;
                answers_well(ns).await
            };
            let result = change.await;
            done.store(true, Ordering::Relaxed);
            result
        };
        let (calls, watched) = join(callers, watching).await;
        watched?;
        let calls = calls.into_iter().collect::<Result<Vec<u32>>>()?;
        println!("calls while CA and certificate changed: {calls:?}, all answered");
        assert!(calls.iter().all(|calls| *calls > 10), "{calls:?}");
        Ok(())
    })
}

#[test]
fn a_webhook_that_hangs_holds_up_no_pod_and_no_request() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let controllers = system::pods_of(&ns.cluster, CONTROLLER).await?;
        let ids = controllers.iter().map(|pod| process::of_container(&pods::id(pod, "controller")?));
        let ids: Vec<i32> = ids.collect::<Result<_>>()?;
        let stopped = Stopped::new(ids)?;

        // The API server does not call it for Pods.
        for name in ["one", "two", "three"] {
            ns.start_pod(pods::pod(name, &[pods::idle("app")])).await?;
        }
        // A request waits for the webhook once, and is created without defaults.
        let created = ns.create(requests::recreate("plain", "web", &["app"])).await?;
        if requests::label(&created, labels::POD_UID).is_some() {
            bail!("a stopped webhook has answered");
        }
        drop(stopped);
        let over = ns.over_within("plain", pitstop_e2e::LONG).await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        pods::assert_restarted_once(&before, &ns.pod("web").await?, "app")
    })
}

/// Processes that are stopped until this is dropped.
struct Stopped(Vec<i32>);

impl Stopped {
    fn new(ids: Vec<i32>) -> Result<Self> {
        let stopped = Self(ids);
        stopped.0.iter().try_for_each(|id| process::signal(*id, Signal::SIGSTOP))?;
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for id in &self.0 {
            // A process that has ended meanwhile needs nothing.
            let _ = process::signal(*id, Signal::SIGCONT);
        }
    }
}
