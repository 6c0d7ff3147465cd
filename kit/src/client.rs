//! The Kubernetes client of a program.

use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Uri};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{InClusterError, KubeConfigOptions, KubeconfigError};
use kube::{Client, Config};
use pitstop_api::logic::answer::Answer;
use tower::timeout::TimeoutLayer;
use tower::util::MapRequestLayer;
use tower::{BoxError, ServiceBuilder};

use crate::class::{Class, failure};

/// Longest wait for a connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the head of an answer. A watch answers at once and then streams, so it has this bound too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest silence inside an answer. The server ends a watch after 290 s (a quiet one gets a bookmark every minute), so
/// only a dead connection reaches this bound.
const READ_TIMEOUT: Duration = Duration::from_secs(310);
/// Silence of the peer's machine after which the kernel sends a keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes after which the connection is dead.
const KEEPALIVE_PROBES: u32 = 3;
/// How long sent data may stay unacknowledged by the peer's machine.
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the network to take a request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// `KUBECONFIG` names no usable file.
    #[error("KUBECONFIG is set but cannot be used")]
    Kubeconfig(#[source] KubeconfigError),
    /// `KUBECONFIG` is not set, and the process is not in a Pod with a ServiceAccount token.
    #[error("KUBECONFIG is not set, and this is not a Pod in a cluster")]
    NoCluster(#[source] InClusterError),
    /// The user agent is no valid header value.
    #[error("{0} cannot be a user agent")]
    UserAgent(String),
    /// The configuration was read, but no client can be made of it.
    #[error("cannot make a client")]
    Build(#[source] kube::Error),
}

impl ClientError {
    /// Always [`Class::Fatal`]: the environment of the process does not change while it runs.
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

/// Makes `ring` the process's cryptography provider. Call it first in `main`; later calls do nothing.
pub fn install_crypto() {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        tracing::debug!("a cryptography provider was installed before");
    }
}

/// A client for the cluster that `KUBECONFIG` names; if it is not set, for the cluster that the process runs in.
///
/// `program` and `version` become the user agent `program/version`, which the audit log shows.
///
/// The client has no rate limit: the executors bound the number of requests, and the API server protects itself by
/// priority and fairness. It has no hidden retries either: back-off is data in the `core` crates.
pub async fn connect(program: &str, version: &str) -> Result<Client, ClientError> {
    install_crypto();
    let config = if std::env::var_os("KUBECONFIG").is_some() {
        Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(ClientError::Kubeconfig)?
    } else {
        Config::incluster().map_err(ClientError::NoCluster)?
    };
    of_config(config, Program { name: program, version }, None)
}

/// Name and version of a program, for the user agent.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
}

/// A client for the cluster of a configuration, as [`connect`] makes it. `answer` is the longest wait for the head of
/// an answer; `None` means 30 seconds.
pub fn of_config(
    mut config: Config,
    program: Program<'_>,
    answer: Option<Duration>,
) -> Result<Client, ClientError> {
    install_crypto();
    tune(&mut config, program)?;
    build(config, answer.unwrap_or(ANSWER_TIMEOUT))
}

/// Sets time-outs and the user agent.
fn tune(config: &mut Config, program: Program<'_>) -> Result<(), ClientError> {
    let agent = format!("{}/{}", program.name, program.version);
    let agent_header = HeaderValue::from_str(&agent).map_err(|_| ClientError::UserAgent(agent))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    // Otherwise the idle time of a pooled connection counts against the next answer on it.
    config.reset_reader_on_write = true;
    config.default_retry = false;
    config.headers.push((USER_AGENT, agent_header));
    Ok(())
}

/// A client with a bound on the wait for each answer, consistent lists, and detection of a dead peer. Except for the
/// sockets' options and tracing, it is the client that kube builds.
fn build(config: Config, answer: Duration) -> Result<Client, ClientError> {
    if config.proxy_url.is_some() {
        // kube refuses a proxy if it is built without support of proxies, as in the images.
        return Ok(ClientBuilder::try_from(config).map_err(ClientError::Build)?.build());
    }
    let tls = config.rustls_https_connector_with_connector(connector()).map_err(ClientError::Build)?;
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http = legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(answer))
        .layer(MapRequestLayer::new(list_the_present))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(ClientError::Build)?)
        .layer(config.extra_headers_layer().map_err(ClientError::Build)?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Makes connections that end when the peer is silent, so that a dead peer is known within 35 seconds. The kernel sends
/// probes after [`KEEPALIVE_IDLE`] of silence, and gives up when nothing was acknowledged for [`USER_TIMEOUT`]
/// (tcp(7)).
fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_keepalive(Some(KEEPALIVE_IDLE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
    connector
}

/// Makes a streamed list consistent.
///
/// kube requests it from version 0. Any API server may answer that from a stale cache, which may be older than what the
/// same process saw before. Without a version, the list has everything that was stored at the time of the request
/// (KEP-3157).
fn list_the_present<B>(mut request: Request<B>) -> Request<B> {
    let streamed = |query: &&str| query.split('&').any(|pair| pair == "sendInitialEvents=true");
    if let Some(query) = request.uri().query().filter(streamed) {
        let kept: Vec<&str> = query.split('&').filter(|pair| *pair != "resourceVersion=0").collect();
        let target = format!("{}?{}", request.uri().path(), kept.join("&"));
        let mut parts = request.uri().clone().into_parts();
        // A part of a valid target is valid too. If it were not, the request would stay as it is.
        parts.path_and_query = PathAndQuery::try_from(target).ok().or(parts.path_and_query);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Sends a request that a core made.
pub async fn send(client: &Client, request: hyper::Request<Vec<u8>>) -> Answer {
    match client.request_text(request).await {
        Ok(body) => Answer::Body(body),
        Err(error) => Answer::Failed(failure(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::classify;
    use kube::api::{Api, WatchParams};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn client_of(listener: &TcpListener) -> Client {
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        of_config(Config::new(url), Program { name: "pitstop-test", version: "1.2.3" }, None).unwrap()
    }

    #[tokio::test]
    async fn says_who_it_is_and_does_not_retry_by_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client_of(&listener);
        let server = tokio::spawn(async move {
            let mut heads = Vec::new();
            while let Ok(Ok((mut stream, _))) =
                tokio::time::timeout(Duration::from_millis(300), listener.accept()).await
            {
                let mut head = [0_u8; 4096];
                let read = stream.read(&mut head).await.unwrap();
                heads.push(String::from_utf8_lossy(&head[..read]).into_owned());
                stream
                    .write_all(
                        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                    )
                    .await
                    .unwrap();
            }
            heads
        });
        let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client, "default");
        let error = api.get("x").await.unwrap_err();
        assert_eq!(classify(&error), Class::Retry, "{error}");
        let heads = server.await.unwrap();
        assert_eq!(heads.len(), 1);
        assert!(heads[0].to_lowercase().contains("user-agent: pitstop-test/1.2.3"), "{}", heads[0]);
    }

    /// A machine that vanishes closes no connection. Without these options, the kernel waits for ever on a quiet
    /// connection, and for a quarter of an hour on one with data under way.
    #[tokio::test]
    async fn a_dead_peer_is_known_within_45_seconds() {
        use nix::sys::socket::{getsockopt, sockopt};
        use tower::Service as _;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let stream = connector().call(uri).await.unwrap().into_inner();
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        let idle = getsockopt(&stream, sockopt::TcpKeepIdle).unwrap();
        let every = getsockopt(&stream, sockopt::TcpKeepInterval).unwrap();
        let probes = getsockopt(&stream, sockopt::TcpKeepCount).unwrap();
        let unacknowledged = getsockopt(&stream, sockopt::TcpUserTimeout).unwrap();
        assert_eq!((idle, every, probes, unacknowledged), (15, 5, 3, 30_000));
        // Another probe may be under way when the time is over.
        assert!((idle + every * probes).max(unacknowledged / 1000) + every <= 45);
    }

    #[test]
    fn only_streamed_lists_lose_their_version() {
        for (asked, sent) in [
            (
                "/api/v1/pods?watch=true&sendInitialEvents=true&a=b&resourceVersion=0",
                "/api/v1/pods?watch=true&sendInitialEvents=true&a=b",
            ),
            (
                "http://x/pods?resourceVersion=0&sendInitialEvents=true",
                "http://x/pods?sendInitialEvents=true",
            ),
            (
                "/pods?sendInitialEvents=true&resourceVersion=07",
                "/pods?sendInitialEvents=true&resourceVersion=07",
            ),
            ("/pods?watch=true&resourceVersion=0", "/pods?watch=true&resourceVersion=0"),
            ("/pods", "/pods"),
        ] {
            let request = list_the_present(Request::get(asked).body(()).unwrap());
            assert_eq!(request.uri().to_string(), sent);
        }
    }

    #[tokio::test]
    async fn a_list_that_kube_streams_is_of_the_present() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client_of(&listener);
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0_u8; 4096];
            let read = stream.read(&mut head).await.unwrap();
            String::from_utf8_lossy(&head[..read]).into_owned()
        });
        let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client, "default");
        assert!(api.watch(&WatchParams::default().initial_events(), "0").await.is_err());
        let head = server.await.unwrap();
        let target = head.lines().next().unwrap();
        assert!(
            target.contains("sendInitialEvents=true") && !target.contains("resourceVersion=0"),
            "{target}"
        );
    }

    #[tokio::test]
    async fn an_answer_that_never_comes_is_an_error_to_retry() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client_of(&listener);
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0_u8; 4096];
            let _ = stream.read(&mut head).await.unwrap();
            tokio::time::pause();
            std::future::pending::<()>().await;
        });
        let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client, "default");
        let error = api.get("x").await.unwrap_err();
        assert_eq!(classify(&error), Class::Retry, "{error}");
        server.abort();
    }
}
