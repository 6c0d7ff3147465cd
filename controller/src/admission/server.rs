//! The webhook's HTTPS server: who may connect for how long, and how a renewed certificate comes into use.
//!
//! Each handshake takes the pair that is current then, so a renewal needs no restart and fails no call: connections
//! that are open go on, new ones see the new certificate.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use pitstop_kit::{Shutdown, describe};
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use super::http::{self, Bodies};

/// Most connections at a time; further ones wait in the kernel's queue. An API server keeps a few.
const MAX_CONNECTIONS: usize = 128;
/// Longest TLS handshake, and longest wait for the first request after it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest silence between two requests. Above the 90 s after which Go's clients close an idle connection, so that
/// they close it first and no call meets a closed one.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Most bytes of a request's head, and of what is read ahead of a body.
const MAX_HEAD: usize = 16 * 1024;
/// How long new connections are still taken after the shutdown began: until the Service's endpoints have changed
/// everywhere.
const LINGER: Duration = Duration::from_secs(3);
/// How long open requests may take after that.
const DRAIN: Duration = Duration::from_secs(5);

/// The pair that is current, or none yet.
pub type Pair = watch::Receiver<Option<Arc<CertifiedKey>>>;

/// Takes the current pair at each handshake.
#[derive(Debug)]
struct Current(Pair);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().clone()
    }
}

/// The TLS settings: 1.2 and 1.3, HTTP/1.1, no resumption (API servers keep their connections).
fn tls(pair: Pair) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Current(pair)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// What all connections share.
struct Shared<H> {
    handler: H,
    bodies: Bodies,
    shutdown: Shutdown,
}

/// Answers admission reviews until the shutdown starts, then for some seconds more, and returns when all is answered.
///
/// Await it to the end (at most eight seconds after the start of the shutdown), else calls fail that are under way.
/// Without a pair handshakes fail; the readiness condition of the certificates keeps the Service away until then.
/// Fails only when the TLS settings are impossible.
pub async fn serve<H, F>(
    listener: TcpListener,
    pair: Pair,
    handler: H,
    shutdown: Shutdown,
) -> Result<(), rustls::Error>
where
    H: Fn(AdmissionRequest<DynamicObject>) -> F + Send + Sync + 'static,
    F: Future<Output = AdmissionResponse> + Send + 'static,
{
    let acceptor = TlsAcceptor::from(Arc::new(tls(pair)?));
    let shared = Arc::new(Shared { handler, bodies: Bodies::new(), shutdown: shutdown.clone() });
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Told to connections when no more requests are taken.
    let (closing, closed) = watch::channel(false);
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let connection =
                        connection(stream, acceptor.clone(), Arc::clone(&shared), closed.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(error = describe(&error), "cannot accept a webhook connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    let lingering = async {
        shutdown.wait().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        () = accepting => {}
        () = lingering => {}
    }
    drop(listener);
    closing.send_replace(true);
    let draining = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, draining).await.is_err() {
        tracing::warn!(connections = connections.len(), "webhook connections cut off");
    }
    Ok(())
}

/// Serves one connection until it ends, is silent for too long, or no more requests are taken.
async fn connection<H, F>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    shared: Arc<Shared<H>>,
    mut closed: watch::Receiver<bool>,
) where
    H: Fn(AdmissionRequest<DynamicObject>) -> F + Send + Sync + 'static,
    F: Future<Output = AdmissionResponse> + Send + 'static,
{
    // Answers are small and awaited.
    let _ = stream.set_nodelay(true);
    let first_request = Instant::now() + HANDSHAKE_TIMEOUT;
    let handshake = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
    let stream = tokio::select! {
        stream = handshake => stream,
        _ = closed.wait_for(|closed| *closed) => return,
    };
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(error = describe(&error), "webhook handshake"),
        Err(_) => return tracing::debug!("webhook handshake timed out"),
    };
    let asked = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let asked = Arc::clone(&asked);
        move |request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            answer(request, Arc::clone(&shared))
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT).max_buf_size(MAX_HEAD).max_headers(64);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let mut waits_for_first = true;
    let mut told = false;
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error = describe(&error), "webhook connection");
                }
                return;
            }
            () = tokio::time::sleep_until(first_request), if waits_for_first => {
                waits_for_first = false;
                if !asked.load(Ordering::Relaxed) {
                    return tracing::debug!("webhook connection without a request");
                }
            }
            _ = closed.wait_for(|closed| *closed), if !told => {
                told = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Answers one request; once the shutdown has begun, the client is asked to connect anew elsewhere.
async fn answer<H, F>(
    request: Request<Incoming>,
    shared: Arc<Shared<H>>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible>
where
    H: Fn(AdmissionRequest<DynamicObject>) -> F,
    F: Future<Output = AdmissionResponse>,
{
    let mut response = http::answer(request, &shared.bodies, &shared.handler).await;
    if shared.shutdown.is_started() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
