//! Model of the API server: Kubernetes 1.36 at the level of HTTP, as far as pitstop and the world around it
//! use it.
//!
//! A [`Server`] holds the content of etcd and answers requests one at a time. It has no thread, no clock
//! except the wall time of a request, and no randomness (UIDs and generated names count up).
//! `tests/e2e/tests/conformance` sends the scripts of [`crate::conform::api`] to the real server and to this
//! model, and compares every answer.
//!
//! # Facts of the real server that are not obvious
//!
//! - A uid in a PUT is a precondition (409), in a merge patch of an object a change of an immutable field
//!   (422). In a patch of a custom resource's status it has no effect (200).
//! - A write that changes nothing is no write: no new resourceVersion, no event.
//! - DELETE of a Pod is two writes even with a grace of 0: `deletionTimestamp` first, then the removal.
//! - Removing the last finalizer of an object that is being deleted removes the object: the answer shows the
//!   object as requested with its old version, the DELETED event the object as it was stored, finalizer
//!   included.
//! - Setting `deletionTimestamp` raises `metadata.generation` of kinds that have one.
//! - A DELETED event of a watch with a selector carries the previous object, under the new resourceVersion.
//! - An update of a custom resource needs a resourceVersion (422 without), an update of a Pod does not.
//! - PUT creates a missing Lease or Event; for other kinds it is a 404.
//! - DELETE with a body ignores its query: `?dryRun=All` with the body `{}` deletes.
//! - JSON patch: `replace` of a missing field adds it; `test` of a missing field for null succeeds.
//! - Strategic merge: elements that a patch adds to a list come before those that it does not name.
//!   `containerStatuses` is replaced, conditions are merged by type.
//! - Null is no member of an enum, whatever `nullable` says: `"phase": null` is 422.
//! - Lists with `resourceVersion=0` ignore `limit`, and may lack recent writes, even by the same client.
//! - A page has a `continue` if more objects follow, even if none of them is selected.
//! - A version that is not a number: 400 for a list, otherwise 500 without a reason, as for a resourceVersion
//!   in a POST.
//! - A streamed list (`sendInitialEvents`) of a future version opens and then ends with an ERROR event of
//!   504; a plain watch stays open and silent until then.
//! - Times with microseconds (Leases) must have exactly six digits: `08:00:00Z` is 400.
//! - The endpoint `resize` of a Pod takes only the resources of its containers.
//! - The status endpoint of a Pod or Node also takes labels, annotations and finalizers; that of a custom
//!   resource takes only the status.

#![allow(
    clippy::missing_panics_doc,
    clippy::result_large_err,
    reason = "a test program: what cannot be is a failure of the model; answers are HTTP responses"
)]

pub mod admission;
mod core;
mod create;
mod delete;
mod direct;
mod failure;
mod kinds;
mod meta;
mod namespace;
mod patch;
mod read;
mod request;
mod rules;
mod schema;
mod select;
mod store;
mod update;
mod watch;

use std::sync::{Arc, OnceLock};

use chrono::{DateTime, SecondsFormat, Utc};
use http::{Method, Request, Response, StatusCode};
use serde_json::Value;

use self::admission::Admission;
use self::failure::{Answer, Failure};
use self::kinds::Kinds;
use self::request::{Call, parse};
pub use self::store::Snapshot;
use self::store::Store;
pub use self::watch::{Event, Watch};
use crate::world::skew::next_crd;

/// The API server with its storage.
#[derive(Clone, Debug)]
pub struct Server {
    kinds: Arc<Kinds>,
    store: Store,
    admission: Vec<Arc<dyn Admission>>,
    /// Counts UIDs and generated names. Never decreases, not even when an older etcd is restored.
    serial: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

/// Errors of an object by the schema of its custom kind, without other checks.
pub fn refusals(kind: &str, object: &Value) -> Vec<String> {
    let kinds = Server::new().kinds;
    let schema = kinds.named(kind).schema.clone().unwrap_or_else(|| panic!("{kind} has no schema"));
    let mut errors = Vec::new();
    schema.validate(object, None, &mut errors);
    errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

impl Server {
    /// An empty server. Namespaces must be created before objects in them. It has no server-side apply, which
    /// no client here uses, and keeps no `metadata.managedFields`.
    pub fn new() -> Self {
        // All servers share the kinds, which are slow to make.
        static KINDS: OnceLock<Arc<Kinds>> = OnceLock::new();
        let kinds = KINDS.get_or_init(|| Arc::new(Kinds::all(|_| ()))).clone();
        let store = Store::new(kinds.len());
        Self { kinds, store, admission: Vec::new(), serial: 0 }
    }

    /// A server whose CRDs are of the next version.
    pub fn for_worlds() -> Self {
        static KINDS: OnceLock<Arc<Kinds>> = OnceLock::new();
        let next = |crd: &mut Value| {
            if crd["names"]["kind"] == "NodeWork" {
                next_crd(crd);
            }
        };
        let kinds = KINDS.get_or_init(|| Arc::new(Kinds::all(next))).clone();
        Self { kinds, ..Self::new() }
    }

    /// Adds an admission hook; hooks are called in the order in which they were added.
    pub fn admit(&mut self, hook: Arc<dyn Admission>) {
        self.admission.push(hook);
    }

    /// Answers a request. A watch is opened with [`Server::watch`].
    pub fn handle(&mut self, wall: DateTime<Utc>, request: &Request<Vec<u8>>) -> Response<Value> {
        let kinds = self.kinds.clone();
        respond(parse(&kinds, wall, request).and_then(|call| self.answer(&call)))
    }

    /// Answers a read like a server with a stale cache: from the objects at `version`. Writes are answered
    /// from the present, because etcd is never stale.
    ///
    /// If `version` is no longer in the history, the oldest version counts.
    pub fn handle_stale(
        &mut self,
        version: u64,
        wall: DateTime<Utc>,
        request: &Request<Vec<u8>>,
    ) -> Response<Value> {
        let kinds = self.kinds.clone();
        respond(parse(&kinds, wall, request).and_then(|call| {
            if call.method == Method::GET { self.read_at(&call, version) } else { self.answer(&call) }
        }))
    }

    /// The version of the latest write.
    pub fn version(&self) -> u64 {
        self.store.version
    }

    /// Drops all history except the last `keep` versions: requests for older ones get 410.
    pub fn compact(&mut self, keep: u64) {
        self.store.compact(keep);
    }

    /// The current content of etcd.
    pub fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    /// Restores etcd from a snapshot: objects vanish or reappear, and all watches are closed. Versions go
    /// back, or with a `bump` (`etcdutl snapshot restore --bump-revision --mark-compacted`) on from the
    /// present one. Then requests that name an older one get 410.
    pub fn restore(&mut self, snapshot: &Snapshot, bump: u64) {
        self.store.restore(snapshot, bump);
    }

    fn answer(&mut self, call: &Call<'_>) -> Answer {
        match (&call.method, call.name.is_some()) {
            (&Method::GET, _) => self.read(call),
            (&Method::POST, false) if call.subresource.is_empty() => self.create(call),
            (&Method::PUT, true) => self.put(call),
            (&Method::PATCH, true) => self.patch(call),
            (&Method::DELETE, true) if call.subresource.is_empty() => self.delete(call),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// A new serial number, different from all before.
    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

fn respond(answer: Answer) -> Response<Value> {
    let (code, body) = match answer {
        Ok((code, body)) => (code, body),
        Err(failure) => (failure.code, failure.body()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// A wall time in the form of `metadata.creationTimestamp`.
fn seconds(wall: DateTime<Utc>) -> String {
    wall.to_rfc3339_opts(SecondsFormat::Secs, true)
}
