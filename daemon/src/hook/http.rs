//! The GET request of an `httpGet` hook.
//!
//! As the kubelet's: HTTP/1.1 without proxies, certificates unverified, plain HTTP if a server that should speak TLS
//! does not. Redirects are followed on the same host only, and any answer is a success. Sources, Kubernetes 1.36:
//! `runHTTPHandler` in `pkg/kubelet/lifecycle/handlers.go`, `pkg/probe/http/request.go`, `RedirectChecker` in
//! `pkg/probe/http/http.go`, and the client made in `pkg/kubelet/kubelet.go`. Nothing that the server says is kept.
//!
//! Connections, TLS and HTTP are hyper-util's and hyper-rustls', as in the client to the API server. This module
//! decides which addresses may be asked, what is sent, and how much of an answer is read.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, TRAILER,
    TRANSFER_ENCODING, USER_AGENT,
};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt as _;
use pitstop_daemon_core::HttpGet;
use pitstop_kit::describe;
use rustls::InvalidMessage;
use tokio::net::TcpStream;

/// Most redirects in a row; Go's limit.
const MAX_REDIRECTS: usize = 10;
/// Most of a body that is read, in bytes.
const MAX_BODY: usize = 64 * 1024;
/// Most of an answer that is buffered, in bytes: its head, or a piece of its body.
const MAX_BUFFER: usize = 16 * 1024;
/// User agent of the request. The kubelet's is `kube-lifecycle/<version>`.
const AGENT: &str = concat!("pitstop-lifecycle/", env!("CARGO_PKG_VERSION"));

/// Whether the machine's own addresses may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loopback {
    /// The kubelet reaches the node by them. The daemon, on its own network, would reach only itself.
    Refuse,
    /// For tests.
    #[cfg(test)]
    Allow,
}

/// Why a request failed.
enum Failure {
    /// The server's answer to TLS was not TLS.
    NotTls,
    /// For people.
    Other(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// Sends the request of a hook to a host.
pub(super) async fn get(get: &HttpGet, host: &str, loopback: Loopback) -> Result<(), String> {
    let mut headers = headers(get)?;
    let client = client(loopback)?;
    let server = authority(host, get.port)?;
    let scheme = if get.https { Scheme::HTTPS } else { Scheme::HTTP };
    let first = url(scheme, &server, &get.path)?;
    match follow(&client, &first, headers.clone()).await {
        Err(Failure::NotTls) => {
            // Never over plain HTTP.
            headers.remove(AUTHORIZATION);
            let plain = url(Scheme::HTTP, &server, &get.path)?;
            follow(&client, &plain, headers).await
        }
        result => result,
    }
    .map_err(|failure| match failure {
        Failure::NotTls => "the server does not speak TLS".to_owned(),
        Failure::Other(text) => text,
    })
}

/// A client for one hook. Hooks over HTTP are rare, so no memory and no connection is kept.
fn client(
    loopback: Loopback,
) -> Result<Client<impl Connect + Clone + Send + Sync + 'static, Empty<Bytes>>, String> {
    let mut config = kube::Config::new(Uri::default());
    // Hooks go to the Pod's own server, whose certificate rarely names an address; the kubelet does not verify it
    // either (`insecureContainerLifecycleHTTPClient`). No secret of ours travels here: the request is all from the
    // Pod's own handler. The connection to the API server has another configuration, and verifies.
    config.accept_invalid_certs = true;
    config.root_cert = Some(Vec::new());
    let connector = tower::service_fn(move |url| Box::pin(connect(url, loopback)));
    let connector =
        config.rustls_https_connector_with_connector(connector).map_err(|error| describe(&error))?;
    Ok(Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .retry_canceled_requests(false)
        .http1_max_buf_size(MAX_BUFFER)
        .build(connector))
}

/// Connects over TCP to the server of a URL.
async fn connect(url: Uri, loopback: Loopback) -> Result<TokioIo<TcpStream>, String> {
    let server = url.authority().map_or("", Authority::as_str);
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let usual = if url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, url.port_u16().unwrap_or(usual)))
        .await
        .map_err(|error| format!("cannot look up {server}: {}", describe(&error)))?
        .collect();
    let own = |address: &SocketAddr| {
        let ip = address.ip().to_canonical();
        ip.is_loopback() || ip.is_unspecified()
    };
    if loopback == Loopback::Refuse && addresses.iter().any(own) {
        return Err(format!("{server} means the node, whose network the daemon does not share"));
    }
    let stream = TcpStream::connect(addresses.as_slice()).await;
    stream.map(TokioIo::new).map_err(|error| format!("cannot connect to {server}: {}", describe(&error)))
}

/// Sends the request, and follows redirects.
async fn follow(
    client: &Client<impl Connect + Clone + Send + Sync + 'static, Empty<Bytes>>,
    first: &Uri,
    mut headers: HeaderMap,
) -> Result<(), Failure> {
    let mut url = first.clone();
    for _ in 0..=MAX_REDIRECTS {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = url.clone();
        headers.clone_into(request.headers_mut());
        let response = client.request(request).await.map_err(|error| failure(&error))?;
        let location = redirect(&response);
        discard(response.into_body()).await;
        let Some(location) = location else { return Ok(()) };
        let (next, relative) = redirected(&url, &location)?;
        if !same_host(&next, first) {
            return Ok(());
        }
        if !relative {
            headers.remove(HOST);
        }
        url = next;
    }
    Err(format!("stopped after {MAX_REDIRECTS} redirects").into())
}

/// Why a request got no answer.
fn failure(error: &legacy::Error) -> Failure {
    let first: &(dyn Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |&error| match error.downcast_ref::<io::Error>() {
        // Its `source` skips the error inside it.
        Some(error) => error.get_ref().map(|inner| inner as _),
        None => error.source(),
    });
    // The server's first byte begins no TLS record, as with `HTTP/1.1 400 Bad Request`.
    let not_tls = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
    if causes.any(|cause| cause.downcast_ref() == Some(&not_tls)) {
        return Failure::NotTls;
    }
    match error.source() {
        Some(cause) if error.is_connect() => Failure::Other(describe(cause)),
        _ => Failure::Other(format!("the request failed: {}", describe(error))),
    }
}

/// The location of a redirect.
fn redirect(response: &Response<Incoming>) -> Option<String> {
    let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| moved)?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// Reads a small body to its end, so that the server is not cut short. Errors do not matter.
async fn discard(body: Incoming) {
    if body.size_hint().lower() <= MAX_BODY as u64 {
        let mut body = Limited::new(body, MAX_BODY);
        while let Some(Ok(_)) = body.frame().await {}
    }
}

/// The URL of a `Location`, and whether that names no host.
pub fn redirected(from: &Uri, location: &str) -> Result<(Uri, bool), String> {
    let invalid = || "the server redirects to an invalid URL".to_owned();
    let location = location.split('#').next().unwrap_or_default();
    // A scheme stands before the first slash; `://` may also be in the query.
    if location.split(['/', '?']).next().is_some_and(|head| head.ends_with(':')) {
        let to: Uri = location.parse().map_err(|_| invalid())?;
        let scheme = to.scheme().filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let (Some(scheme), Some(authority)) = (scheme, to.authority()) else { return Err(invalid()) };
        let path = to.path_and_query().map_or("", PathAndQuery::as_str);
        return Ok((url(scheme.clone(), authority, path)?, false));
    }
    let path = if location.starts_with('/') {
        location.to_owned()
    } else if location.starts_with('?') || location.is_empty() {
        format!("{}{location}", from.path())
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{folder}/{location}")
    };
    let (Some(scheme), Some(authority)) = (from.scheme(), from.authority()) else { return Err(invalid()) };
    Ok((url(scheme.clone(), authority, &path)?, true))
}

fn same_host(one: &Uri, other: &Uri) -> bool {
    matches!((one.host(), other.host()), (Some(one), Some(other)) if one.eq_ignore_ascii_case(other))
}

/// The server at a host, which is a name or an address, with brackets or without.
pub fn authority(host: &str, port: u16) -> Result<Authority, String> {
    let host = host.trim_matches(['[', ']']);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("{host}:{port}").parse().map_err(|_| "the host is invalid".to_owned())
}

/// A URL with a path as [`path`] escapes it.
pub fn url(scheme: Scheme, authority: &Authority, text: &str) -> Result<Uri, String> {
    let url = Uri::builder().scheme(scheme).authority(authority.clone()).path_and_query(path(text)?);
    url.build().map_err(|error| describe(&error))
}

/// The headers of the request; with a `Host` only if the hook asks for one.
pub fn headers(get: &HttpGet) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &get.headers {
        let invalid = || "a header is invalid".to_owned();
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
        headers.try_append(name, value).map_err(|_| "there are too many headers".to_owned())?;
    }
    // The request has no body. Go's client does not send these from the map either.
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER] {
        headers.remove(name);
    }
    for (name, default) in [(USER_AGENT, AGENT), (ACCEPT, "*/*")] {
        match headers.get(&name) {
            None => drop(headers.insert(name, HeaderValue::from_static(default))),
            // An empty value removes the header.
            Some(value) if value.is_empty() => drop(headers.remove(name)),
            Some(_) => {}
        }
    }
    // At most one `Host`, and not empty.
    if let Some(host) = headers.remove(HOST).filter(|host| !host.is_empty()) {
        headers.insert(HOST, host);
    }
    Ok(headers)
}

/// Path and query of a URL: without the fragment, from the root on, forbidden bytes escaped.
pub fn path(text: &str) -> Result<PathAndQuery, String> {
    use std::fmt::Write as _;

    let text = text.split('#').next().unwrap_or_default();
    let mut path = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        path.push('/');
    }
    for byte in text.bytes() {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0..=b' ' | 0x7f.. => {
                let _ = write!(path, "%{byte:02X}");
            }
            _ => path.push(char::from(byte)),
        }
    }
    PathAndQuery::try_from(path).map_err(|_| "the path is invalid".to_owned())
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
