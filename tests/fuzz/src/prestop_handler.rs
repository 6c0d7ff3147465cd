//! The preStop handler of a container, as the kubelet writes it into an annotation.

use hyper::header::{CONTENT_LENGTH, HOST, TRAILER, TRANSFER_ENCODING};
use k8s_openapi::api::core::v1::LifecycleHandler;
use pitstop_daemon::hook::http::{self, Target};
use pitstop_daemon_core::hook::{Hook, HttpGet, MAX_ANNOTATION, parse};

use crate::texts;

/// What is said of a handler that is none.
const NO_HANDLER: &str = "the handler is not one of Kubernetes'";

/// The handler, the ports, and where a server sends the request on to.
pub fn prestop_handler(input: &[u8]) {
    let Some([handler, ports, location]) = texts(input) else { return };
    match parse(handler, Some(ports)) {
        Hook::Exec { command } => assert!(!command.is_empty(), "a command without a program"),
        Hook::HttpGet(get) => request(&get, location),
        Hook::Sleep { .. } => {}
        // It goes into an answer, and from there to everyone.
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
    if let Ok((headers, host)) = http::headers(get) {
        for name in [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER] {
            assert!(!headers.contains_key(&name), "{name} is not the Pod's to set");
        }
        for value in headers.values().chain(&host) {
            assert!(!value.as_bytes().iter().any(|b| matches!(b, b'\r' | b'\n' | 0)), "{value:?}");
        }
    }
    let Ok(path) = http::path(&get.path) else { return };
    visible(path.as_str());
    let host = get.host.clone().unwrap_or_else(|| "10.0.0.1".to_owned());
    let target = Target { https: get.https, host, port: get.port, path };
    if let Ok((next, relative)) = target.at(location) {
        visible(next.path.as_str());
        let same = (next.https, &next.host, next.port) == (target.https, &target.host, target.port);
        assert!(!relative || same, "{location:?} names no other server");
    }
}

/// What stands in the first line of a request cannot end it.
fn visible(path: &str) {
    assert!(path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()), "{path:?}");
}
