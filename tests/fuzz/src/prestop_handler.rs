//! A container's preStop handler, from the kubelet's annotation.

use hyper::header::{CONTENT_LENGTH, HOST, TRAILER, TRANSFER_ENCODING};
use hyper::http::uri::Scheme;
use k8s_openapi::api::core::v1::LifecycleHandler;
use pitstop_daemon::hook::http;
use pitstop_daemon_core::hook::{Hook, HttpGet, MAX_ANNOTATION, parse};

use crate::texts;

/// Reason for an invalid handler.
const NO_HANDLER: &str = "it is not a Kubernetes lifecycle handler";

/// Input: the handler, the ports, and a server's redirect location.
pub fn prestop_handler(input: &[u8]) {
    let Some([handler, ports, location]) = texts(input) else { return };
    match parse(handler, Some(ports)) {
        Hook::Exec { command } => assert!(!command.is_empty(), "a command without a program"),
        Hook::HttpGet(get) => request(&get, location),
        Hook::Sleep { .. } => {}
        // The reason goes into an answer that everyone can read.
        Hook::Unsupported { why } => assert!(!why.is_empty() && why.chars().count() <= 512, "{why:?}"),
    }
    if handler.len() > MAX_ANNOTATION {
        assert!(matches!(parse(handler, None), Hook::Unsupported { .. }), "a handler of any length");
    }
    if let Ok(theirs) = serde_json::from_str::<LifecycleHandler>(handler) {
        let written = serde_json::to_string(&theirs).unwrap();
        let ours = parse(&written, Some(ports));
        assert_ne!(ours, Hook::Unsupported { why: NO_HANDLER.to_owned() }, "{written} is one");
    }
}

fn request(get: &HttpGet, location: &str) {
    assert!(get.port > 0, "no port");
    assert_ne!(get.host.as_deref(), Some(""), "no host is none");
    if let Ok(headers) = http::headers(get) {
        for name in [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER] {
            assert!(!headers.contains_key(&name), "{name} is not the Pod's to set");
        }
        let hosts: Vec<_> = headers.get_all(HOST).iter().collect();
        assert!(hosts.len() <= 1 && hosts.iter().all(|host| !host.is_empty()), "{hosts:?}");
        for value in headers.values() {
            assert!(!value.as_bytes().iter().any(|b| matches!(b, b'\r' | b'\n' | 0)), "{value:?}");
        }
    }
    let Ok(authority) = http::authority(get.host.as_deref().unwrap_or("10.0.0.1"), get.port) else { return };
    let scheme = if get.https { Scheme::HTTPS } else { Scheme::HTTP };
    let Ok(url) = http::url(scheme, &authority, &get.path) else { return };
    visible(url.path_and_query().map_or("", |path| path.as_str()));
    if let Ok((next, relative)) = http::redirected(&url, location) {
        visible(next.path_and_query().map_or("", |path| path.as_str()));
        let same = (next.scheme(), next.authority()) == (url.scheme(), url.authority());
        assert!(!relative || same, "{location:?} names no other server");
    }
}

/// Asserts that a path cannot end the first line of an HTTP request.
fn visible(path: &str) {
    assert!(path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()), "{path:?}");
}
