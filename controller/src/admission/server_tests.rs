use super::*;

use chrono::{DateTime, Utc};
use pitstop_kit::shutdown::Trigger;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certs::config_for;
use crate::certs::material::{Material, Reading, issue};

/// Path of the reviews of recreate requests.
const PATH: &str = "/mutate-containerrecreaterequest";

struct Server {
    address: SocketAddr,
    pair: watch::Sender<Option<Arc<CertifiedKey>>>,
    trigger: Trigger,
    ended: tokio::task::JoinHandle<anyhow::Result<()>>,
}

fn now() -> DateTime<Utc> {
    pitstop_kit::clock::wall()
}

/// The next content of the Secret.
fn renewed(before: &Material) -> Material {
    issue(now(), &config_for("webhook", "ns").names, &Reading::new(before)).unwrap()
}

fn first() -> Material {
    renewed(&Material::default())
}

fn pair(material: &Material) -> Option<Arc<CertifiedKey>> {
    Reading::new(material).pair
}

/// A server that denies every review with the name of the object.
async fn start(pair: Option<Arc<CertifiedKey>>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, shutdown) = Shutdown::manual();
    let (pair, receiver) = watch::channel(pair);
    let handler = |review: AdmissionRequest<DynamicObject>| async move {
        if review.name == "slow" {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        AdmissionResponse::from(&review).deny(format!("no {}", review.name))
    };
    let ended = tokio::spawn(serve(listener, receiver, handler, shutdown));
    Server { address, pair, trigger, ended }
}

fn connector(bundle: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(ca.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn connect(address: SocketAddr, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("webhook.ns.svc").unwrap();
    connector.connect(name, TcpStream::connect(address).await?).await
}

fn bundle(material: &Material) -> String {
    String::from_utf8(material.ca_crt.clone()).unwrap()
}

fn review(name: &str) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u1", "name": name, "operation": "CREATE", "userInfo": {},
            "kind": {"group": "apps.kruise.io", "version": "v1alpha1", "kind": "ContainerRecreateRequest"},
            "resource": {"group": "apps.kruise.io", "version": "v1alpha1", "resource": "containerrecreaterequests"},
            "object": {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest", "metadata": {"name": name}},
        },
    })
    .to_string()
}

fn post(body: &str) -> String {
    format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends one request on an open connection and reads the answer: head and body.
async fn ask(stream: &mut TlsStream<TcpStream>, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() >= length.parse().unwrap() {
                return (head.to_owned(), body.to_owned());
            }
        }
        let mut part = [0_u8; 4096];
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "broke off after {text}");
        answer.extend_from_slice(&part[..read]);
    }
}

#[tokio::test]
async fn reviews_are_answered_on_a_connection_that_stays() {
    let material = first();
    let server = start(pair(&material)).await;
    let mut stream = connect(server.address, &connector(&bundle(&material))).await.unwrap();
    for name in ["a", "b"] {
        let (head, body) = ask(&mut stream, &post(&review(name))).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["response"]["uid"], "u1");
        assert_eq!(body["response"]["allowed"], false);
        assert_eq!(body["response"]["status"]["message"], format!("no {name}"));
        assert_eq!(body["apiVersion"], "admission.k8s.io/v1");
    }
}

#[tokio::test]
async fn wrong_requests_are_refused_with_a_reason() {
    let material = first();
    let server = start(pair(&material)).await;
    let connector = connector(&bundle(&material));
    let long = format!("POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
    let oversize = http::MAX_BODY + 1;
    for (request, code, reason) in [
        (post(&review("a")).replace(PATH, "/other"), "404", "there is /mutate-"),
        (format!("GET {PATH} HTTP/1.1\r\nhost: x\r\n\r\n"), "405", "only POST"),
        (post(&review("a")).replace("application/json", "text/yaml"), "415", "only application/json"),
        (post("{"), "400", "no AdmissionReview"),
        (post(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#), "400", "no request"),
        (format!("{long}content-length: {oversize}\r\n\r\n"), "413", "more than 3145728 bytes"),
    ] {
        let mut stream = connect(server.address, &connector).await.unwrap();
        let (head, body) = ask(&mut stream, &request).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {code}")), "{head}");
        assert!(body.contains(reason), "{body}");
        assert_eq!(head.contains("allow: POST"), code == "405", "{head}");
    }
    // A refusal repeats only a short part of the body.
    let wordy = review("a").replace("CREATE", &"x".repeat(100_000));
    let mut stream = connect(server.address, &connector).await.unwrap();
    let (head, body) = ask(&mut stream, &post(&wordy)).await;
    assert!(head.starts_with("HTTP/1.1 400") && body.contains("unknown variant"), "{head}");
    assert!(body.len() <= 1025, "{}", body.len());
    // A body without an announced length.
    let mut stream = connect(server.address, &connector).await.unwrap();
    let chunked =
        format!("{long}transfer-encoding: chunked\r\n\r\n{:x}\r\n{}\r\n", oversize, "x".repeat(oversize));
    let (head, _) = ask(&mut stream, &chunked).await;
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");
}

#[tokio::test]
async fn nothing_is_served_without_a_certificate_and_at_once_with_one() {
    let material = first();
    let server = start(None).await;
    let connector = connector(&bundle(&material));
    assert!(connect(server.address, &connector).await.is_err());
    server.pair.send_replace(pair(&material));
    assert!(connect(server.address, &connector).await.is_ok());
}

#[tokio::test]
async fn no_call_fails_while_certificates_change() {
    let mut material = first();
    let server = start(pair(&material)).await;
    let (trust, trusted) = watch::channel(bundle(&material));
    let (stop, stopped) = watch::channel(false);
    let caller = |keep: bool| {
        let (address, trusted, stopped) = (server.address, trusted.clone(), stopped.clone());
        tokio::spawn(async move {
            let mut calls = 0;
            let mut open = None;
            while !*stopped.borrow() {
                let connector = connector(&trusted.borrow());
                let mut stream = match open.take() {
                    Some(stream) => stream,
                    None => connect(address, &connector).await.unwrap(),
                };
                let (head, _) = ask(&mut stream, &post(&review("a"))).await;
                assert!(head.starts_with("HTTP/1.1 200"), "{head}");
                calls += 1;
                open = keep.then_some(stream);
            }
            calls
        })
    };
    let callers = [caller(false), caller(false), caller(true)];
    // As the keeper does it: publish the new CA beside the old one, then serve its certificate.
    for _ in 0..5 {
        material = renewed(&material);
        trust.send_replace(bundle(&material));
        tokio::time::sleep(Duration::from_millis(60)).await;
        server.pair.send_replace(pair(&material));
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    stop.send_replace(true);
    for caller in callers {
        assert!(caller.await.unwrap() > 5);
    }
}

#[tokio::test]
async fn a_shutdown_lets_calls_end_and_sends_clients_away() {
    let material = first();
    let server = start(pair(&material)).await;
    let connector = connector(&bundle(&material));
    let mut slow = connect(server.address, &connector).await.unwrap();
    let mut idle = connect(server.address, &connector).await.unwrap();
    ask(&mut idle, &post(&review("a"))).await;
    let call = tokio::spawn(async move { ask(&mut slow, &post(&review("slow"))).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.trigger.start();
    let (head, _) = call.await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
    // Still accepted, for clients that do not know yet.
    let mut late = connect(server.address, &connector).await.unwrap();
    let (head, _) = ask(&mut late, &post(&review("late"))).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    tokio::time::timeout(LINGER + DRAIN, server.ended).await.unwrap().unwrap().unwrap();
    assert!(connect(server.address, &connector).await.is_err());
}

#[tokio::test]
async fn silent_clients_are_closed() {
    let material = first();
    let server = start(pair(&material)).await;
    let mut mute = TcpStream::connect(server.address).await.unwrap();
    let mut shy = connect(server.address, &connector(&bundle(&material))).await.unwrap();
    tokio::time::pause();
    let begun = Instant::now();
    let mut rest = Vec::new();
    let _ = mute.read_to_end(&mut rest).await;
    let _ = shy.read_to_end(&mut rest).await;
    assert!(rest.is_empty() && begun.elapsed() <= HANDSHAKE_TIMEOUT + Duration::from_secs(1));
}

#[tokio::test]
async fn silent_clients_in_every_place_hold_a_call_up_and_do_not_keep_it_out() {
    let material = first();
    let server = start(pair(&material)).await;
    let mut mute = Vec::new();
    let begun = Instant::now();
    for _ in 0..MAX_CONNECTIONS {
        mute.push(TcpStream::connect(server.address).await.unwrap());
    }
    // On real time: a paused clock jumps over the handshake.
    let mut stream = connect(server.address, &connector(&bundle(&material))).await.unwrap();
    let (head, _) = ask(&mut stream, &post(&review("a"))).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(begun.elapsed() > HANDSHAKE_TIMEOUT / 2, "there was no free slot");
    drop(mute);
}
