//! The webhook's HTTPS server: limits of connections, and the switch to a renewed certificate.
//!
//! Each handshake takes the current pair, so a renewal needs no restart and fails no call. Open connections continue;
//! new ones get the new certificate. axum-server accepts, shakes hands and drains.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::Extension;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use pitstop_kit::{Shutdown, describe};
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::{AcquireError, Semaphore, watch};
use tokio::time::sleep;

use super::http;

/// Most connections at a time; further ones wait in the kernel's queue. An API server keeps a few.
const MAX_CONNECTIONS: usize = 128;
/// Longest TLS handshake, and longest wait for the head of the first request after it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest silence between two requests. Above the 90 s after which Go's clients close an idle connection, so that
/// they close it first and no call meets a closed one.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Most bytes of a request's head, and of what is read ahead of a body.
const MAX_HEAD: usize = 16 * 1024;
/// How long new connections are accepted after the shutdown began: until the Service's endpoints have changed
/// everywhere.
const LINGER: Duration = Duration::from_secs(3);
/// How long open requests may take after that.
const DRAIN: Duration = Duration::from_secs(5);

/// The current certificate with its key; `None` before the first.
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

/// Answers admission reviews until some seconds after the shutdown starts, and returns when all are answered.
///
/// Await it to the end (at most eight seconds after the start of the shutdown), or calls under way fail. Without a pair
/// handshakes fail; until then, the readiness condition of the certificates keeps the Service away. Fails if the TLS
/// settings are impossible, or no connection can be accepted any more.
pub async fn serve<H, F>(
    listener: TcpListener,
    pair: Pair,
    handler: H,
    shutdown: Shutdown,
) -> anyhow::Result<()>
where
    H: Fn(AdmissionRequest<DynamicObject>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = AdmissionResponse> + Send + 'static,
{
    let tls = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(tls(pair)?)))
        .handshake_timeout(HANDSHAKE_TIMEOUT)
        .acceptor(NoDelayAcceptor);
    let handle = Handle::new();
    let mut server = Server::<SocketAddr>::from_listener(listener)
        .acceptor(tls)
        .http1_only()
        .first_request_timeout(HANDSHAKE_TIMEOUT)
        .accept_error_handler(|from, error| {
            if from.is_some() {
                tracing::debug!(error = describe(error), "webhook handshake");
            } else {
                tracing::warn!(error = describe(error), "cannot accept a webhook connection");
            }
        })
        .handle(handle.clone());
    server.http_builder().http1().header_read_timeout(IDLE_TIMEOUT).max_buf_size(MAX_HEAD).max_headers(64);

    let stopping = shutdown.clone();
    // During the shutdown, clients are asked to connect again, to another replica.
    let router = http::router(handler).layer(map_response(move |mut response: Response| {
        if stopping.is_started() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        std::future::ready(response)
    }));
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // The server waits for the router of a connection before it accepts the next one. The router holds the permit.
    let routers = tower::service_fn(move |_: SocketAddr| {
        let (router, slot) = (router.clone(), Arc::clone(&slots).acquire_owned());
        async move { Ok::<_, AcquireError>(router.layer(Extension(Arc::new(slot.await?)))) }
    });
    let closing = async {
        shutdown.wait().await;
        sleep(LINGER).await;
        handle.graceful_shutdown(None);
        sleep(DRAIN).await;
        tracing::warn!(connections = handle.connection_count(), "webhook connections cut off");
        handle.shutdown();
    };
    tokio::select! {
        ended = server.serve(routers) => ended.context("the webhook's server ended"),
        () = closing => Ok(()),
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
