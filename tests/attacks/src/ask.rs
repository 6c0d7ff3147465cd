//! Requests, as they go over the wire.

use http::{Method, Request};
use serde_json::Value;

/// A request without its sender.
pub type Ask = Request<Vec<u8>>;

const JSON: &str = "application/json";

/// A request without a body.
pub fn plain(method: &Method, path: &str) -> Ask {
    build(method, path, None, Vec::new())
}

/// `GET`.
pub fn get(path: &str) -> Ask {
    plain(&Method::GET, path)
}

/// A request with an object.
pub fn with(method: &Method, path: &str, object: &Value) -> Ask {
    build(method, path, Some(JSON), object.to_string().into_bytes())
}

/// `POST` of an object.
pub fn post(path: &str, object: &Value) -> Ask {
    with(&Method::POST, path, object)
}

/// `PUT` of an object.
pub fn put(path: &str, object: &Value) -> Ask {
    with(&Method::PUT, path, object)
}

/// A request with any body.
pub fn raw(method: &Method, path: &str, content_type: &str, body: Vec<u8>) -> Ask {
    build(method, path, Some(content_type), body)
}

/// `PATCH` of one of the API server's types: `json`, `merge`, `strategic-merge`, `apply`.
pub fn patch(path: &str, kind: &str, body: &Value) -> Ask {
    let content_type = match kind {
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic-merge" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        other => panic!("no such type of patch: {other}"),
    };
    build(&Method::PATCH, path, Some(content_type), body.to_string().into_bytes())
}

/// The request with one more header.
pub fn header(mut ask: Ask, name: &'static str, value: &str) -> Ask {
    ask.headers_mut().insert(name, value.parse().unwrap());
    ask
}

fn build(method: &Method, path: &str, content_type: Option<&str>, body: Vec<u8>) -> Ask {
    let mut builder = Request::builder().method(method).uri(path);
    if let Some(content_type) = content_type {
        builder = builder.header(http::header::CONTENT_TYPE, content_type);
    }
    builder.body(body).unwrap()
}
