//! Watches: a position in the history, and a selection.

use std::collections::VecDeque;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use http::{Request, Response};
use serde_json::{Value, json};

use super::failure::{Checked, Failure, Invalid};
use super::kinds::Kind;
use super::read::{VersionParam, chosen, unforeseen};
use super::request::{Call, parse, partial};
use super::select::Selector;
use super::store::Change;
use super::{Server, meta, respond};

/// An open watch. Dropping it closes it.
#[derive(Clone, Debug)]
pub struct Watch {
    kind: usize,
    /// `apiVersion` of the sent objects.
    api_version: String,
    selector: Selector,
    metadata_only: bool,
    bookmarks: bool,
    /// Events up to this version are not sent, even if they come later (a client from before a restore).
    after: u64,
    position: u64,
    epoch: u64,
    closed: bool,
    /// The state that the watch begins with.
    pending: VecDeque<Event>,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its `type` on the wire.
    pub type_: &'static str,
    /// Its object: the stored one itself, if the wire has it as it is stored.
    pub object: Arc<Value>,
}

impl Event {
    fn new(type_: &'static str, object: Value) -> Self {
        Self { type_, object: Arc::new(object) }
    }

    /// The event in wire form.
    fn wire(&self) -> Value {
        json!({ "type": self.type_, "object": *self.object })
    }
}

impl Watch {
    /// Whether no more events can come: after an ERROR event, or after a restore of etcd.
    pub fn is_closed(&self) -> bool {
        self.closed && self.pending.is_empty()
    }
}

impl Server {
    /// Opens the watch of a request (GET with `watch=true`).
    pub fn watch(
        &mut self,
        wall: DateTime<Utc>,
        request: &Request<Vec<u8>>,
    ) -> Result<Watch, Response<Value>> {
        let kinds = self.kinds.clone();
        parse(&kinds, wall, request)
            .and_then(|call| self.open(&call, self.store.version))
            .map_err(|failure| respond(Err(failure)))
    }

    /// Opens a watch at a server with a stale cache, at `version`: a watch that does not name a version
    /// begins there, and sees everything from there in order.
    pub fn watch_stale(
        &mut self,
        version: u64,
        wall: DateTime<Utc>,
        request: &Request<Vec<u8>>,
    ) -> Result<Watch, Response<Value>> {
        let kinds = self.kinds.clone();
        let version = version.clamp(self.store.floor, self.store.version);
        parse(&kinds, wall, request)
            .and_then(|call| self.open(&call, version))
            .map_err(|failure| respond(Err(failure)))
    }

    fn open(&self, call: &Call<'_>, present: u64) -> Checked<Watch> {
        let initial = validate(call)?;
        let selector = Selector::of(call)?;
        let asked = VersionParam::parse(call.query("resourceVersion")).map_err(unforeseen)?;
        let mut watch = Watch {
            kind: call.kind.index,
            api_version: call.api_version(),
            selector,
            metadata_only: call.metadata_only(),
            bookmarks: call.flag("allowWatchBookmarks"),
            after: 0,
            position: 0,
            epoch: self.store.epoch,
            closed: false,
            pending: VecDeque::new(),
        };
        let state = match initial {
            Some(wanted) => wanted,
            None => !matches!(asked, VersionParam::At(_)),
        };
        if state {
            let objects = self.store.at(watch.kind, present).unwrap();
            for (_, object) in chosen(&objects, &watch.selector, "") {
                watch.pending.push_back(watch.event(call.kind, "ADDED", object));
            }
            if initial.is_some() && watch.bookmarks {
                let end = json!({ "k8s.io/initial-events-end": "true" });
                watch.pending.push_back(watch.bookmark(call.kind, present, Some(end)));
            }
        }
        watch.after = match asked {
            VersionParam::At(version) if !state => version,
            _ => present,
        };
        if watch.after < self.store.floor {
            let message = format!("too old resource version: {} ({})", watch.after, self.store.floor);
            watch.fail(Failure::expired(message));
        }
        if initial == Some(true)
            && let Err(failure) = self.reached(asked)
        {
            // The real server reports it after three seconds.
            watch.fail(failure);
        }
        watch.position = self.store.table(watch.kind).position(watch.after);
        Ok(watch)
    }

    /// Events since the last call in wire form: objects with `type` and `object`.
    pub fn poll(&self, watch: &mut Watch) -> Vec<Value> {
        self.events(watch).iter().map(Event::wire).collect()
    }

    /// Events since the last call.
    pub fn events(&self, watch: &mut Watch) -> Vec<Event> {
        let mut events: Vec<Event> = watch.pending.drain(..).collect();
        if watch.epoch != self.store.epoch {
            watch.closed = true;
        }
        if watch.closed {
            return events;
        }
        let kind = self.kinds.at(watch.kind);
        let table = self.store.table(watch.kind);
        if !table.reaches(watch.position) {
            watch.fail(Failure::expired("The resourceVersion for the provided watch is too old."));
            events.extend(watch.pending.drain(..));
            return events;
        }
        while let Some(change) = table.change(watch.position) {
            watch.position += 1;
            if change.version > watch.after {
                events.extend(watch.seen(kind, change));
            }
        }
        events
    }

    /// Whether [`Server::poll`] has events.
    pub fn is_ready(&self, watch: &Watch) -> bool {
        !watch.pending.is_empty()
            || (!watch.closed
                && watch.epoch == self.store.epoch
                && (self.store.table(watch.kind).change(watch.position).is_some()
                    || !self.store.table(watch.kind).reaches(watch.position)))
    }

    /// The bookmark that the server sends about every minute to a watch that asked for bookmarks and has read
    /// everything.
    pub fn bookmark(&self, watch: &Watch) -> Option<Value> {
        let idle =
            watch.bookmarks && !watch.closed && watch.epoch == self.store.epoch && !self.is_ready(watch);
        let version = self.store.version.max(watch.after);
        idle.then(|| watch.bookmark(self.kinds.at(watch.kind), version, None).wire())
    }
}

impl Watch {
    /// The event of a change for this watch. An object that leaves the selection is deleted, as it was, under
    /// the new version.
    fn seen(&self, kind: &Kind, change: &Change) -> Option<Event> {
        let fits = |object: &&Arc<Value>| self.selector.matches(&change.key, object);
        let before = change.old.as_ref().filter(fits);
        let after = change.new.as_ref().filter(fits);
        match (before, after) {
            (None, Some(new)) => Some(self.event(kind, "ADDED", new)),
            (Some(_), Some(new)) => Some(self.event(kind, "MODIFIED", new)),
            (Some(old), None) => {
                let mut gone = Value::clone(old);
                meta::set_version(&mut gone, change.version);
                Some(self.event(kind, "DELETED", &Arc::new(gone)))
            }
            (None, None) => None,
        }
    }

    fn event(&self, kind: &Kind, type_: &'static str, object: &Arc<Value>) -> Event {
        if self.metadata_only {
            return Event::new(type_, partial(object, "PartialObjectMetadata"));
        }
        let mut object = Arc::clone(object);
        if kind.versions.len() > 1 {
            Arc::make_mut(&mut object)["apiVersion"] = self.api_version.clone().into();
        }
        Event { type_, object }
    }

    fn bookmark(&self, kind: &Kind, version: u64, annotations: Option<Value>) -> Event {
        let mut metadata = json!({ "resourceVersion": version.to_string(), "creationTimestamp": null });
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let (kind, api_version) = if self.metadata_only {
            ("PartialObjectMetadata", "meta.k8s.io/v1")
        } else {
            (kind.kind.as_str(), self.api_version.as_str())
        };
        Event::new("BOOKMARK", json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata }))
    }

    /// Ends the stream with an ERROR event.
    fn fail(&mut self, failure: Failure) {
        self.closed = true;
        self.pending.clear();
        self.pending.push_back(Event::new("ERROR", failure.body()));
    }
}

/// Whether the watch asks for the state first; None if it does not say.
fn validate(call: &Call<'_>) -> Checked<Option<bool>> {
    let refuse = |reason, field: &str, message: &str| {
        Err(Failure::invalid_as("meta.k8s.io", "ListOptions", "", &[Invalid::new(reason, field, message)]))
    };
    let matching = call.query("resourceVersionMatch");
    if !call.has("sendInitialEvents") {
        if !matching.is_empty() {
            let message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            return refuse("FieldValueForbidden", "resourceVersionMatch", message);
        }
        return Ok(None);
    }
    if matching != "NotOlderThan" {
        let message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return refuse("FieldValueForbidden", "resourceVersionMatch", message);
    }
    let initial = call.flag("sendInitialEvents");
    Ok(Some(initial))
}
