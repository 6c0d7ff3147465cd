//! The model of the API server: Kubernetes 1.36 at the level of HTTP, as far as pitstop and the world around it use it.
//!
//! One [`Server`] holds what etcd would hold and answers requests one at a time: no thread, no clock but the wall time
//! that comes with a request, no randomness (UIDs and generated names count up). `tests/e2e/tests/conformance` sends the
//! scripts of [`crate::conform::api`] to the real server and to this one and compares every answer.
//!
//! # What is not obvious and holds on the real server
//!
//! - A uid in a PUT is a precondition (409), in a merge patch of an object a change of an immutable field (422), in a
//!   patch of a custom resource's status nothing at all (200).
//! - A write that changes nothing is no write: no new resourceVersion, no event.
//! - DELETE of a Pod is two writes even with a grace of 0: `deletionTimestamp` first, then the removal.
//! - Taking the last finalizer away from an object that is being deleted removes it: the answer shows the object as
//!   asked for with its old version, the DELETED event the object as it was stored, finalizer included.
//! - Setting `deletionTimestamp` moves `metadata.generation` of kinds that have one.
//! - A DELETED event of a watch with a selector carries the object as it was before, under the new resourceVersion.
//! - An update of a custom resource needs a resourceVersion (422 without), an update of a Pod does not.
//! - PUT creates a Lease or an Event that is missing; of other kinds it is a 404.
//! - DELETE with a body does not look at its query: `?dryRun=All` with the body `{}` deletes.
//! - JSON patch: `replace` of a field that is not there adds it; `test` of one for null holds.
//! - Strategic merge: elements that a patch adds to a list stand before those that it does not name.
//!   `containerStatuses` is replaced, conditions are merged by type.
//! - Null is no member of an enum, whatever `nullable` says: `"phase": null` is 422.
//! - Lists with `resourceVersion=0` ignore `limit`, and may lack what was just written, even by the same client.
//! - A page has a `continue` when more objects follow, even when none of them is selected.
//! - A version that is no number: 400 of a list, else 500 without a reason; so is a resourceVersion in a POST.
//! - A streamed list (`sendInitialEvents`) of a version of the future opens and then ends with an ERROR event of 504;
//!   a plain watch is open and silent until then.
//! - Times with microseconds (Leases) must have exactly six digits: `08:00:00Z` is 400.
//! - The endpoint `resize` of a Pod takes nothing but the resources of its containers.
//! - The status endpoint of a Pod or Node takes labels, annotations and finalizers too; that of a custom resource
//!   nothing but the status.

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
    /// Counts UIDs and generated names. Never goes back, not even when an older etcd is restored.
    serial: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

/// What the schema of a custom kind refuses of an object, which is not looked at any further.
pub fn refusals(kind: &str, object: &Value) -> Vec<String> {
    let kinds = Server::new().kinds;
    let schema = kinds.named(kind).schema.clone().unwrap_or_else(|| panic!("{kind} has no schema"));
    let mut errors = Vec::new();
    schema.validate(object, None, &mut errors);
    errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

impl Server {
    /// An empty server. Namespaces must be created before objects in them. It knows no server-side apply, which nobody here
    /// sends, and keeps no `metadata.managedFields`.
    pub fn new() -> Self {
        // The same for all, and not quickly made.
        static KINDS: OnceLock<Arc<Kinds>> = OnceLock::new();
        let kinds = KINDS.get_or_init(|| Arc::new(Kinds::all(|_| ()))).clone();
        let store = Store::new(kinds.len());
        Self { kinds, store, admission: Vec::new(), serial: 0 }
    }

    /// One whose CRDs are of the next version.
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

    /// Adds an admission hook; hooks are asked in the order in which they were added.
    pub fn admit(&mut self, hook: Arc<dyn Admission>) {
        self.admission.push(hook);
    }

    /// Answers a request. A watch is opened with [`Server::watch`].
    pub fn handle(&mut self, wall: DateTime<Utc>, request: &Request<Vec<u8>>) -> Response<Value> {
        let kinds = self.kinds.clone();
        respond(parse(&kinds, wall, request).and_then(|call| self.answer(&call)))
    }

    /// Answers a read as a server whose cache is behind: from the objects as they were at `version`. Writes are
    /// answered from the present, since etcd is never stale.
    ///
    /// A version that is no longer in the history is taken for the oldest one that is.
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

    /// Forgets all history but the last `keep` versions: what asks for older ones gets 410.
    pub fn compact(&mut self, keep: u64) {
        self.store.compact(keep);
    }

    /// What etcd holds now.
    pub fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    /// Restores etcd from a snapshot: objects vanish or reappear, and all watches are closed. Versions go back, or with
    /// a `bump` (`etcdutl snapshot restore --bump-revision --mark-compacted`) on from the present one: then whoever
    /// names an older one gets 410.
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

    /// A name for something new, different from all before.
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

/// A wall time as `metadata.creationTimestamp` has it.
fn seconds(wall: DateTime<Utc>) -> String {
    wall.to_rfc3339_opts(SecondsFormat::Secs, true)
}
