//! Path, query and headers of a request.

use chrono::{DateTime, Utc};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, Request};
use serde_json::Value;

use super::failure::{Checked, Failure, Invalid};
use super::kinds::{Kind, Kinds};

/// A parsed request.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub wall: DateTime<Utc>,
    pub method: Method,
    pub headers: &'a HeaderMap,
    pub kind: &'a Kind,
    pub version: &'a str,
    pub namespace: Option<&'a str>,
    pub name: Option<&'a str>,
    /// Empty, or a subresource such as `status`.
    pub subresource: &'a str,
    pub body: &'a [u8],
    query: Vec<(String, String)>,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

impl<'a> Call<'a> {
    /// The last value of a parameter; empty if it is missing.
    pub(super) fn query(&self, name: &str) -> &str {
        self.query.iter().rev().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.query.iter().any(|(key, _)| key == name)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.query(name), "true" | "1")
    }

    /// The key of the object in the store.
    pub(super) fn key(&self) -> String {
        self.key_of(self.name.unwrap_or_default())
    }

    pub(super) fn key_of(&self, name: &str) -> String {
        match self.namespace {
            Some(namespace) if self.kind.namespaced => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        }
    }

    pub(super) fn api_version(&self) -> String {
        self.kind.api_version(self.version)
    }

    /// Whether the client wants only metadata.
    pub(super) fn metadata_only(&self) -> bool {
        self.header(ACCEPT).contains("as=PartialObjectMetadata")
    }

    /// The media type of the body.
    pub(super) fn content_type(&self) -> &'a str {
        self.header(CONTENT_TYPE).split(';').next().unwrap_or_default().trim()
    }

    fn header(&self, name: http::header::HeaderName) -> &'a str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON.
    pub(super) fn json(&self) -> Checked<Value> {
        serde_json::from_slice(self.body)
            .map_err(|error| Failure::bad_request(format!("cannot decode: {error}")))
    }

    /// The body as an object of the kind that the path names.
    pub(super) fn object(&self) -> Checked<Value> {
        if !matches!(self.content_type(), "" | "application/json") {
            return Err(Failure::unsupported_media_type());
        }
        let mut object = self.json()?;
        let Some(map) = object.as_object_mut() else {
            return Err(Failure::bad_request("the body is no object"));
        };
        let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = map.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        let expected = self.api_version();
        if self.kind.is_custom() && (kind.is_empty() || version.is_empty()) {
            return Err(Failure::bad_request("Object 'Kind' or 'apiVersion' is missing"));
        }
        let differs = |given: &str, wanted: &str| !given.is_empty() && given != wanted;
        if differs(&kind, &self.kind.kind) || differs(&version, &expected) {
            let message = format!("{kind} in version {version:?} cannot be handled as a {}", self.kind.kind);
            return Err(Failure::bad_request(message));
        }
        map.insert("kind".to_owned(), self.kind.kind.clone().into());
        map.insert("apiVersion".to_owned(), self.stored_version().into());
        Ok(object)
    }

    /// `apiVersion` of stored objects.
    pub(super) fn stored_version(&self) -> String {
        self.kind.api_version(&self.kind.versions[0])
    }

    /// An object as the answer to this request shows it.
    pub(super) fn shown(&self, object: &Value) -> Value {
        if self.metadata_only() {
            return partial(object, "PartialObjectMetadata");
        }
        let mut shown = object.clone();
        if self.kind.versions.len() > 1 {
            shown["apiVersion"] = self.api_version().into();
        }
        shown
    }
}

/// Only the metadata of an object.
pub(super) fn partial(object: &Value, kind: &str) -> Value {
    let mut shown = serde_json::Map::new();
    shown.insert("kind".to_owned(), kind.into());
    shown.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
    shown.insert("metadata".to_owned(), object["metadata"].clone());
    Value::Object(shown)
}

/// Parses a request.
pub(super) fn parse<'a>(
    kinds: &'a Kinds,
    wall: DateTime<Utc>,
    request: &'a Request<Vec<u8>>,
) -> Checked<Call<'a>> {
    let mut path = request.uri().path().trim_matches('/').split('/');
    let (group, version) = match path.next() {
        Some("api") => ("", path.next()),
        Some("apis") => (path.next().unwrap_or_default(), path.next()),
        _ => return Err(Failure::no_such_path()),
    };
    let version = version.ok_or_else(Failure::no_such_path)?;
    let parts: Vec<&str> = path.collect();
    let (namespace, rest) = match parts.as_slice() {
        // `namespaces/x/status` belongs to the namespace itself.
        ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => (None, &parts[..]),
        ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, ""),
        [plural, name] => (*plural, Some(*name), ""),
        [plural, name, subresource] => (*plural, Some(*name), *subresource),
        _ => return Err(Failure::no_such_path()),
    };
    let kind = kinds.find(group, version, plural).ok_or_else(Failure::no_such_path)?;
    let known = match subresource {
        "" => true,
        "status" => kind.status,
        "finalize" => kind.kind == "Namespace",
        "resize" => kind.kind == "Pod",
        _ => false,
    };
    // The objects of all namespaces can only be read.
    let all = kind.namespaced && namespace.is_none();
    if !known || (!kind.namespaced && namespace.is_some()) || (all && name.is_some()) {
        return Err(Failure::no_such_path());
    }
    if all && request.method() != Method::GET {
        return Err(Failure::method_not_allowed());
    }
    let query = match request.uri().query() {
        Some(query) => form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        None => Vec::new(),
    };
    let mut call = Call {
        wall,
        method: request.method().clone(),
        headers: request.headers(),
        kind,
        version: kind.versions.iter().find(|v| *v == version).map_or("", String::as_str),
        namespace,
        name,
        subresource,
        body: request.body(),
        query,
        dry_run: false,
    };
    call.dry_run = match call.query("dryRun") {
        "" => false,
        "All" => true,
        other => {
            let message = format!("Unsupported value: {other:?}: supported values: \"All\"");
            let error = Invalid::new("FieldValueNotSupported", "dryRun", message);
            return Err(Failure::invalid_as("meta.k8s.io", options_of(&call.method), "", &[error]));
        }
    };
    Ok(call)
}

fn options_of(method: &Method) -> &'static str {
    match *method {
        Method::POST => "CreateOptions",
        Method::PUT => "UpdateOptions",
        Method::PATCH => "PatchOptions",
        _ => "DeleteOptions",
    }
}
