//! `/healthz`, `/readyz` and `/metrics` over plain HTTP, in bounded memory and time.
//!
//! The program's own event loop answers, so `/healthz` answers exactly while that loop runs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::describe::describe;
use crate::metrics::{self, Metrics};
use crate::shutdown::Shutdown;

/// Most connections at a time; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 16;
/// Longest life of a connection: it carries one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of a request's head.
const MAX_HEAD: usize = 8 * 1024;

/// The program's readiness conditions, each with a name for people.
///
/// Clones share the conditions. The program is ready if every condition holds, also if none exists.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, State>>>);

/// Whether a condition holds; if not, the reason, which may be empty.
type State = Result<(), String>;

/// One readiness condition, held by the task that sets it.
#[derive(Clone, Debug)]
pub struct Condition {
    name: &'static str,
    all: Readiness,
}

impl Readiness {
    /// No condition yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition, which does not hold until its holder says so. Add all of them before serving.
    pub fn condition(&self, name: &'static str) -> Condition {
        self.put(name, Err(String::new()));
        Condition { name, all: self.clone() }
    }

    /// The conditions that do not hold: the name, and after a colon the reason if it is known.
    pub fn missing(&self) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = all.iter().filter_map(|(name, state)| Some((name, state.as_ref().err()?)));
        missing
            .map(|(name, why)| if why.is_empty() { (*name).to_owned() } else { format!("{name}: {why}") })
            .collect()
    }

    /// Whether every condition holds.
    pub fn is_ready(&self) -> bool {
        self.missing().is_empty()
    }

    fn put(&self, name: &'static str, state: State) -> Option<State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, state)
    }
}

impl Condition {
    /// Says whether the condition holds.
    pub fn set(&self, holds: bool) {
        self.put(if holds { Ok(()) } else { Err(String::new()) });
    }

    /// Says that the condition does not hold, and why; `/readyz` shows it.
    pub fn unmet(&self, why: &str) {
        self.put(Err(why.to_owned()));
    }

    fn put(&self, state: State) {
        let holds = state.is_ok();
        if self.all.put(self.name, state).is_none_or(|before| before.is_ok() != holds) {
            tracing::debug!(condition = self.name, holds, "readiness");
        }
    }
}

/// Binds the address. If the unspecified IPv6 address fails (a kernel without IPv6), binds the IPv4 one.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        other => other,
    }
}

/// Serves as long as the caller polls it. After the shutdown starts, `/readyz` says so.
///
/// Never returns by itself; drop the future (or the runtime) to end it.
pub async fn serve(
    listener: TcpListener,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
) -> Infallible {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let state = Arc::new(Server { readiness, metrics, shutdown });
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            // The semaphore is never closed.
            return std::future::pending().await;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    connection(stream, state).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely: they come back when connections end.
                tracing::warn!(error = describe(&error), "cannot accept a health connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// State for the answers.
struct Server {
    readiness: Readiness,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
}

/// Answers one request and closes.
async fn connection(stream: TcpStream, state: Arc<Server>) {
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let response = answer(request.method(), request.uri().path(), &state);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(MAX_HEAD)
        .max_headers(64);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = describe(&error), "health connection"),
        Err(_) => tracing::debug!("health connection timed out"),
    }
}

/// The answer to one request.
fn answer(method: &Method, path: &str, state: &Server) -> Response<Full<Bytes>> {
    if !matches!(path, "/healthz" | "/readyz" | "/metrics") {
        return text(
            StatusCode::NOT_FOUND,
            "not found: there are /healthz, /readyz and /metrics\n".to_owned(),
        );
    }
    if method != Method::GET && method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/healthz" => text(StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => ready(state),
        _ => match state.metrics.encode() {
            Ok(body) => {
                let mut response = text(StatusCode::OK, body);
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
                response
            }
            Err(error) => {
                let text_of = format!("cannot encode metrics: {}\n", describe(&error));
                text(StatusCode::INTERNAL_SERVER_ERROR, text_of)
            }
        },
    }
}

/// Ready, or what is missing, one line each.
fn ready(state: &Server) -> Response<Full<Bytes>> {
    if state.shutdown.is_started() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned());
    }
    let missing = state.readiness.missing();
    if missing.is_empty() {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    text(StatusCode::SERVICE_UNAVAILABLE, format!("missing: {}\n", missing.join("\nmissing: ")))
}

/// A plain-text answer.
fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shutdown::Trigger;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn start() -> (SocketAddr, Readiness, Trigger) {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let readiness = Readiness::new();
        let (trigger, shutdown) = Shutdown::manual();
        let metrics = Arc::new(Metrics::new("pitstop_test", "0.0.1"));
        tokio::spawn(serve(listener, readiness.clone(), metrics, shutdown));
        (address, readiness, trigger)
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        ask(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await
    }

    #[tokio::test]
    async fn readiness_lists_what_is_missing() {
        let (address, readiness, trigger) = start().await;
        let pods = readiness.condition("pods synced");
        let cert = readiness.condition("certificate loaded");
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("missing: certificate loaded\nmissing: pods synced\n"), "{answer}");
        cert.set(true);
        assert!(get(address, "/readyz").await.ends_with("\r\n\r\nmissing: pods synced\n"));
        pods.unmet("no answer");
        assert!(get(address, "/readyz").await.ends_with("\r\n\r\nmissing: pods synced: no answer\n"));
        pods.set(true);
        assert!(readiness.is_ready());
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        trigger.start();
        assert!(get(address, "/readyz").await.ends_with("shutting down\n"));
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn metrics_and_refusals() {
        let (address, _readiness, _trigger) = start().await;
        let answer = get(address, "/metrics").await;
        assert!(
            answer.contains("openmetrics-text") && answer.contains("process_resident_memory_bytes"),
            "{answer}"
        );
        assert!(get(address, "/other").await.starts_with("HTTP/1.1 404"));
        let answer = ask(address, "POST /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc").await;
        assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: GET, HEAD"), "{answer}");
        assert!(ask(address, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
        let long = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(MAX_HEAD));
        assert!(!ask(address, &long).await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn silent_clients_cannot_block_it() {
        let (address, _readiness, _trigger) = start().await;
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS + 4 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        tokio::time::pause();
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    }
}
