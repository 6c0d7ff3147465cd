//! The watch of one process on one kind, as in `kube::runtime::watcher`: a streaming list, then changes. After a break
//! it resumes from the last version; after 410 it lists again. It delivers what [`pitstop_kit`'s] watch delivers.
//!
//! [`pitstop_kit`'s]: https://docs.rs/kube/latest/kube/runtime/fn.watcher.html

use std::sync::Arc;

use http::Request;
use pitstop_api::logic::watch::{Part, Parts, Watch};
use serde_json::Value;

use crate::server::{self, Server};

/// State of a watch.
#[derive(Debug, Default)]
enum State {
    /// No connection; lists when it gets one.
    #[default]
    Empty,
    /// No connection; resumes from that version when it gets one.
    Resume(String),
    /// Receives the list.
    Listing,
    /// Receives changes; the last version seen.
    Following(String),
}

/// One watch.
#[derive(Debug)]
pub struct Watcher {
    path: &'static str,
    selector: String,
    state: State,
    parts: Parts<Arc<Value>>,
    stream: Option<server::Watch>,
    failures: u32,
    /// A delivery or a connection is planned.
    pub planned: bool,
    /// Nothing is delivered before that time.
    pub held_until: u64,
    /// The next list or connection is served by a server whose cache is that many versions behind.
    pub stale_by: u64,
    /// Number of further changes to deliver twice.
    pub repeats: u32,
    /// Changes are lost until it lists again.
    pub losing: bool,
}

impl Watcher {
    /// A watch of all objects of a path, or of those that a field or label selector matches.
    pub fn new(path: &'static str, selector: impl Into<String>) -> Self {
        Self {
            path,
            selector: selector.into(),
            state: State::Empty,
            parts: Parts::of(usize::MAX),
            stream: None,
            failures: 0,
            planned: false,
            held_until: 0,
            stale_by: 0,
            repeats: 0,
            losing: false,
        }
    }

    /// Delivers a list in parts of `most` objects.
    #[must_use]
    pub fn in_parts_of(mut self, most: usize) -> Self {
        self.parts = Parts::of(most);
        self
    }

    /// Whether it has a connection.
    pub fn connected(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether `deliver` has anything to do.
    pub fn ready(&self, server: &Server) -> bool {
        self.stream.as_ref().is_some_and(|s| server.is_ready(s) || s.is_closed())
    }

    /// The connection breaks.
    pub fn cut(&mut self) {
        self.stream = None;
        self.state = match std::mem::take(&mut self.state) {
            State::Following(version) | State::Resume(version) => State::Resume(version),
            State::Listing | State::Empty => State::Empty,
        };
    }

    /// Milliseconds until the next try to connect; 0 for the first list. kube's back-off is random; here the caller
    /// adds jitter.
    pub fn backoff(&mut self) -> u64 {
        let first = self.failures == 0 && matches!(self.state, State::Empty);
        self.failures = (self.failures + 1).min(6);
        if first { 0 } else { 800 << (self.failures - 1) }
    }

    /// Connects.
    pub fn connect(&mut self, server: &mut Server, wall: chrono::DateTime<chrono::Utc>) {
        let mut uri = format!("{}?watch=true&allowWatchBookmarks=true", self.path);
        if !self.selector.is_empty() {
            let field = self.selector.contains('=');
            uri.push_str(if field { "&fieldSelector=" } else { "&labelSelector=" });
            uri.push_str(&self.selector.replace('=', "%3D").replace('/', "%2F"));
        }
        match std::mem::take(&mut self.state) {
            State::Resume(version) => {
                uri.push_str("&resourceVersion=");
                uri.push_str(&version);
                self.state = State::Following(version);
            }
            _ => {
                uri.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
                self.state = State::Listing;
                self.parts.begin();
            }
        }
        let request = Request::get(uri).body(Vec::new()).unwrap();
        let behind = std::mem::take(&mut self.stale_by);
        let opened = if behind > 0 {
            server.watch_stale(server.version().saturating_sub(behind), wall, &request)
        } else {
            server.watch(wall, &request)
        };
        self.stream = Some(opened.expect("a watch that production asks for is served"));
    }

    /// Takes all waiting events, in order. Drops a broken stream: see [`Watcher::connected`].
    pub fn deliver(&mut self, server: &Server) -> Vec<Watch<Arc<Value>>> {
        let Some(stream) = &mut self.stream else { return Vec::new() };
        let mut events = Vec::new();
        for server::Event { type_, object } in server.events(stream) {
            match type_ {
                "ERROR" => {
                    // kube lists again after 410, whatever came before.
                    self.state = State::Empty;
                    self.stream = None;
                    return events;
                }
                "BOOKMARK" => {
                    let version = version(&object);
                    if matches!(self.state, State::Listing) {
                        if object.pointer("/metadata/annotations/k8s.io~1initial-events-end").is_some() {
                            events.push(Watch::Listed(self.parts.end()));
                            self.state = State::Following(version);
                            self.failures = 0;
                        }
                    } else {
                        self.state = State::Following(version);
                    }
                }
                kind => match &mut self.state {
                    State::Listing => events.extend(self.parts.add(object).map(Watch::Listed)),
                    state => {
                        *state = State::Following(version(&object));
                        self.failures = 0;
                        if self.losing {
                            continue;
                        }
                        let event =
                            if kind == "DELETED" { Watch::Gone(object) } else { Watch::Upsert(object) };
                        if self.repeats > 0 {
                            self.repeats -= 1;
                            events.push(event.clone());
                        }
                        events.push(event);
                    }
                },
            }
        }
        if stream.is_closed() {
            self.cut();
        }
        events
    }
}

fn version(object: &Value) -> String {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Converts the objects of an event.
pub fn convert<T>(event: Watch<Arc<Value>>, read: impl Fn(&Value) -> T) -> Watch<T> {
    match event {
        Watch::Listed(Part { objects, first, last }) => {
            Watch::Listed(Part { objects: objects.iter().map(|object| read(object)).collect(), first, last })
        }
        Watch::Upsert(object) => Watch::Upsert(read(&object)),
        Watch::Gone(object) => Watch::Gone(read(&object)),
    }
}

impl Watcher {
    /// Forgets its state, so that it lists again at once.
    pub fn forget(&mut self) {
        self.stream = None;
        self.state = State::Empty;
        self.failures = 0;
        self.planned = false;
        self.losing = false;
    }
}
