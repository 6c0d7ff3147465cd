//! The GET request of an `httpGet` hook.
//!
//! As the kubelet's: HTTP/1.1 without proxies, certificates unverified, plain HTTP where a server that should speak TLS
//! does not, redirects followed on the same host only, and any answer is a success. Sources, Kubernetes 1.36:
//! `runHTTPHandler` in `pkg/kubelet/lifecycle/handlers.go`, `pkg/probe/http/request.go`, `RedirectChecker` in
//! `pkg/probe/http/http.go`, and the client made in `pkg/kubelet/kubelet.go`. Nothing that the server says is kept.

use std::net::{IpAddr, SocketAddr};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, TRAILER,
    TRANSFER_ENCODING, USER_AGENT,
};
use hyper::http::uri::PathAndQuery;
use hyper::rt::{Read, Write};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use pitstop_daemon_core::HttpGet;
use pitstop_kit::describe;
use tokio::net::TcpStream;

use super::tls;

/// Answers in a row that say where to ask instead; Go's limit.
const MAX_REDIRECTS: usize = 10;
/// Most of a body that is read, in bytes.
const MAX_BODY: u64 = 64 * 1024;
/// Most of an answer that is buffered, in bytes: its head, or a piece of its body.
const MAX_BUFFER: usize = 16 * 1024;
/// By what servers may know the request. The kubelet's is `kube-lifecycle/<version>`.
const AGENT: &str = concat!("pitstop-lifecycle/", env!("CARGO_PKG_VERSION"));

/// What to do about addresses of the own machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loopback {
    /// The kubelet reaches the node by them. The daemon, on a network of its own, would reach nobody but itself.
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

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Over TLS.
    pub https: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query.
    pub path: PathAndQuery,
}

/// Sends the request of a hook to a host.
pub(super) async fn get(get: &HttpGet, host: &str, loopback: Loopback) -> Result<(), String> {
    let (mut headers, asked_host) = headers(get)?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let target = Target { https: get.https, host, port: get.port, path: path(&get.path)? };
    match follow(target.clone(), &headers, asked_host.as_ref(), loopback).await {
        Err(Failure::NotTls) => {
            // Not in the clear.
            headers.remove(AUTHORIZATION);
            let plain = Target { https: false, ..target };
            follow(plain, &headers, asked_host.as_ref(), loopback).await
        }
        result => result,
    }
    .map_err(|failure| match failure {
        Failure::NotTls => "the server does not speak TLS".to_owned(),
        Failure::Other(text) => text,
    })
}

/// Asks, and asks again where the answer says.
async fn follow(
    mut target: Target,
    headers: &HeaderMap,
    mut asked_host: Option<&HeaderValue>,
    loopback: Loopback,
) -> Result<(), Failure> {
    let first = target.host.clone();
    for _ in 0..=MAX_REDIRECTS {
        let Some(location) = send(&target, headers, asked_host, loopback).await? else { return Ok(()) };
        let (next, relative) = target.at(&location)?;
        if !next.host.eq_ignore_ascii_case(&first) {
            return Ok(());
        }
        asked_host = asked_host.filter(|_| relative);
        target = next;
    }
    Err(format!("stopped after {MAX_REDIRECTS} redirects").into())
}

impl Target {
    /// What a `Location` names, and whether it names no host of its own.
    pub fn at(&self, location: &str) -> Result<(Self, bool), String> {
        let invalid = || "the server redirects to what is no URL".to_owned();
        let location = location.split('#').next().unwrap_or_default();
        if location.contains("://") {
            let uri: Uri = location.parse().map_err(|_| invalid())?;
            let https = match uri.scheme_str() {
                Some("http") => false,
                Some("https") => true,
                _ => return Err(invalid()),
            };
            let host = uri.host().ok_or_else(invalid)?.trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
            return Ok((
                Self { https, host, port, path: path(uri.path_and_query().map_or("", |p| p.as_str()))? },
                false,
            ));
        }
        let path = if location.starts_with('/') {
            path(location)?
        } else if location.starts_with('?') || location.is_empty() {
            path(&format!("{}{location}", self.path.path()))?
        } else {
            let folder = self.path.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            path(&format!("{folder}/{location}"))?
        };
        Ok((Self { path, ..self.clone() }, true))
    }

    /// The host as headers and URLs write it.
    fn authority(&self) -> String {
        let usual = if self.https { 443 } else { 80 };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Connects over TCP.
    async fn connect(&self, loopback: Loopback) -> Result<TcpStream, String> {
        let known = self.host.parse::<IpAddr>().ok();
        let addresses: Vec<SocketAddr> = match known {
            Some(address) => vec![SocketAddr::new(address, self.port)],
            None => tokio::net::lookup_host((self.host.as_str(), self.port))
                .await
                .map_err(|error| format!("cannot look up {}: {}", self.authority(), describe(&error)))?
                .collect(),
        };
        let own = |address: &SocketAddr| {
            let ip = address.ip().to_canonical();
            ip.is_loopback() || ip.is_unspecified()
        };
        if loopback == Loopback::Refuse && addresses.iter().any(own) {
            return Err(format!("{} is the node's own, which the daemon does not share", self.authority()));
        }
        TcpStream::connect(addresses.as_slice())
            .await
            .map_err(|error| format!("cannot connect to {}: {}", self.authority(), describe(&error)))
    }
}

/// Sends one request; the answer's `Location`, where it is a redirect.
async fn send(
    target: &Target,
    headers: &HeaderMap,
    asked_host: Option<&HeaderValue>,
    loopback: Loopback,
) -> Result<Option<String>, Failure> {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from(target.path.clone());
    headers.clone_into(request.headers_mut());
    let host = match asked_host {
        Some(host) => host.clone(),
        None => HeaderValue::from_str(&target.authority()).map_err(|_| "the host is no host".to_owned())?,
    };
    request.headers_mut().insert(HOST, host);
    let stream = target.connect(loopback).await?;
    if !target.https {
        return Ok(exchange(TokioIo::new(stream), request).await?);
    }
    match tls::connect(stream, &target.host).await {
        Ok(stream) => Ok(exchange(TokioIo::new(stream), request).await?),
        Err(tls::Failure::NotTls) => Err(Failure::NotTls),
        Err(tls::Failure::Other(text)) => {
            Err(Failure::Other(format!("TLS with {}: {text}", target.authority())))
        }
    }
}

/// One request and its answer over a connection.
async fn exchange(
    io: impl Read + Write + Unpin,
    request: Request<Empty<Bytes>>,
) -> Result<Option<String>, String> {
    let failed = |error: hyper::Error| format!("the request failed: {}", describe(&error));
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_BUFFER).handshake(io).await.map_err(failed)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        let location = redirect(&response);
        discard(response.into_body()).await;
        Ok(location)
    };
    tokio::pin!(exchange);
    tokio::select! {
        biased;
        result = &mut exchange => result,
        // What the exchange still misses was read already, or it fails.
        _ = connection => exchange.await,
    }
}

/// Where an answer says to ask instead.
fn redirect(response: &Response<Incoming>) -> Option<String> {
    let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| moved)?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// Reads a body to its end, so that the server is not cut short, as far as it is small. How that ends is all the same.
async fn discard(mut body: Incoming) {
    if body.size_hint().lower() > MAX_BODY {
        return;
    }
    let mut read = 0_u64;
    while let Some(Ok(frame)) = body.frame().await {
        read = read.saturating_add(frame.data_ref().map_or(0, |data| data.len() as u64));
        if read > MAX_BODY {
            return;
        }
    }
}

/// The headers of the request, and the `Host` that the hook asks for.
pub fn headers(get: &HttpGet) -> Result<(HeaderMap, Option<HeaderValue>), String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &get.headers {
        let invalid = || "a header is invalid".to_owned();
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
        headers.try_append(name, value).map_err(|_| "there are too many headers".to_owned())?;
    }
    let host = headers.remove(HOST).filter(|host| !host.is_empty());
    // There is no body. Go's client sends none of these from the map either.
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER] {
        headers.remove(name);
    }
    for (name, default) in [(USER_AGENT, AGENT), (ACCEPT, "*/*")] {
        match headers.get(&name) {
            None => drop(headers.insert(name, HeaderValue::from_static(default))),
            // An empty one asks for none.
            Some(value) if value.is_empty() => drop(headers.remove(name)),
            Some(_) => {}
        }
    }
    Ok((headers, host))
}

/// Path and query of a URL: without the fragment, from the root on, what must not be in it escaped.
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
