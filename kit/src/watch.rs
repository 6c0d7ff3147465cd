//! A watch of one kind, as few, small events.
//!
//! Each object is converted to the program's own struct at once, so the large Kubernetes object exists only while it is
//! decoded. A (re)list arrives in [parts](Watch::Listed), so memory need not hold it whole beside the receiver's
//! objects. After the last part, the receiver knows which objects vanished meanwhile. A quiet watch sends no request
//! until the server ends it after about five minutes. It is then reopened where it ended, without a list.

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::{StreamExt, pin_mut};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, InitialListStrategy, watcher};
use kube::{Api, Resource};
use pitstop_api::logic::watch::Parts;
pub use pitstop_api::logic::watch::{Part, Watch};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::describe::describe;
use crate::guard::{Guard, Malformed};
use crate::health::Condition;

/// Objects per page if the server cannot stream a list; a page is held in memory whole.
const PAGE_SIZE: u32 = 100;
/// Objects per part of a list. The receiver's channel bounds how many parts wait.
const PART_SIZE: usize = 16;
/// Most malformed objects that are remembered as logged.
const MAX_MALFORMED: usize = 256;

/// A watch's name, selection and reporting.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in logs and metrics, for example `pods`.
    pub name: &'static str,
    /// Label and field selectors; list strategy and page size are chosen here, not by the caller.
    pub config: watcher::Config,
    /// Holds from the first complete list on.
    pub synced: Condition,
    /// Counters of errors and lists.
    pub metrics: WatchMetrics,
}

/// Counters of all watches, by the watch's name.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    errors: Family<[(&'static str, &'static str); 1], Counter>,
    lists: Family<[(&'static str, &'static str); 1], Counter>,
    malformed: Family<[(&'static str, &'static str); 1], Counter>,
}

impl WatchMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("watch_errors", "Failed attempts to list or watch", metrics.errors.clone());
        registry.register("watch_lists", "Complete lists received", metrics.lists.clone());
        registry.register("watch_malformed", "Objects that could not be decoded", metrics.malformed.clone());
        metrics
    }

    /// Adds the counters of a watch, with zeros.
    pub fn announce(&self, name: &'static str) {
        for family in [&self.errors, &self.lists, &self.malformed] {
            drop(family.get_or_create(&[("watch", name)]));
        }
    }
}

/// Watches until the receiver is dropped; drop the future to end it sooner.
///
/// `convert` makes the program's own struct, or `None` for an object that does not matter. An object that cannot be
/// decoded is logged once and left as it was last seen; a list leaves it out.
///
/// `wrap` makes the receiver's event, commonly an enum variant: `run(api, source, Pod::observe, Event::Pods, tx)`.
pub async fn run<K, T, E>(
    api: Api<Guard<K>>,
    source: Source,
    convert: impl Fn(K) -> Option<T>,
    wrap: impl Fn(Watch<T>) -> E,
    tx: mpsc::Sender<E>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut strategy = InitialListStrategy::StreamingList;
    let mut reporter = Reporter::new(&source);
    source.metrics.announce(source.name);
    loop {
        let mut config = source.config.clone().page_size(PAGE_SIZE);
        config.initial_list_strategy = strategy.clone();
        let stream = watcher(api.clone(), config).default_backoff();
        pin_mut!(stream);
        let mut parts = Parts::of(PART_SIZE);
        let cannot_stream = loop {
            // Also ends with the receiver, so that a quiet watch does not outlive it.
            let next = tokio::select! {
                next = stream.next() => next,
                () = tx.closed() => return,
            };
            let event = match next {
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    if strategy == InitialListStrategy::StreamingList && cannot_stream_lists(&error) {
                        let error = describe(&error);
                        tracing::info!(
                            watch = source.name,
                            error,
                            "the API server does not stream lists; listing by pages"
                        );
                        break true;
                    }
                    reporter.error(&error);
                    continue;
                }
                // The stream has no end of its own.
                None => break false,
            };
            reporter.event(&event);
            let converted = convert_event(event, &convert, &mut reporter);
            let Some(watch) = converted.and_then(|event| gather(&mut parts, event)) else { continue };
            let listed = matches!(&watch, Watch::Listed(part) if part.last);
            if tx.send(wrap(watch)).await.is_err() {
                return;
            }
            if listed {
                reporter.listed();
            }
        };
        if cannot_stream {
            strategy = InitialListStrategy::ListWatch;
        }
    }
}

/// Whether the server refuses to send a list as a watch: its `WatchList` feature is off.
fn cannot_stream_lists(error: &watcher::Error) -> bool {
    let watcher::Error::WatchStartFailed(kube::Error::Api(status)) = error else { return false };
    matches!(status.code, 400 | 422)
}

/// The event with its object converted; `None` when the object is malformed or does not matter.
fn convert_event<K: Resource<DynamicType = ()>, T>(
    event: Event<Guard<K>>,
    convert: &impl Fn(K) -> Option<T>,
    reporter: &mut Reporter<'_>,
) -> Option<Event<T>> {
    let mut read = |Guard(object): Guard<K>| match object {
        Ok(object) => {
            reporter.decoded(&object);
            convert(object)
        }
        Err(malformed) => {
            reporter.malformed(&malformed);
            None
        }
    };
    match event {
        Event::Apply(object) => read(object).map(Event::Apply),
        Event::Delete(object) => read(object).map(Event::Delete),
        Event::InitApply(object) => read(object).map(Event::InitApply),
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
    }
}

/// The receiver's event for that event, if any.
fn gather<T>(parts: &mut Parts<T>, event: Event<T>) -> Option<Watch<T>> {
    match event {
        Event::Init => {
            parts.begin();
            None
        }
        Event::InitApply(object) => parts.add(object).map(Watch::Listed),
        Event::InitDone => Some(Watch::Listed(parts.end())),
        Event::Apply(object) => Some(Watch::Upsert(object)),
        Event::Delete(object) => Some(Watch::Gone(object)),
    }
}

/// Counts everything, logs changes only.
struct Reporter<'a> {
    source: &'a Source,
    label: [(&'static str, &'static str); 1],
    failing: bool,
    /// Namespace and name of objects that are known to be malformed.
    malformed: BTreeSet<(String, String)>,
}

impl<'a> Reporter<'a> {
    fn new(source: &'a Source) -> Self {
        Self { source, label: [("watch", source.name)], failing: false, malformed: BTreeSet::new() }
    }

    fn error(&mut self, error: &watcher::Error) {
        self.source.metrics.errors.get_or_create(&self.label).inc();
        if std::mem::replace(&mut self.failing, true) {
            tracing::debug!(watch = self.source.name, error = describe(error), "watch still fails");
        } else {
            tracing::warn!(watch = self.source.name, error = describe(error), "watch fails, trying again");
        }
    }

    fn event<K>(&mut self, event: &Event<K>) {
        // `Init` precedes the list request, so it proves nothing.
        if self.failing && !matches!(event, Event::Init) {
            self.failing = false;
            tracing::info!(watch = self.source.name, "watch works again");
        }
    }

    fn listed(&self) {
        self.source.metrics.lists.get_or_create(&self.label).inc();
        self.source.synced.set(true);
    }

    fn decoded(&mut self, object: &impl Resource<DynamicType = ()>) {
        if !self.malformed.is_empty() {
            self.malformed.remove(&key(object.meta().namespace.as_deref(), object.meta().name.as_deref()));
        }
    }

    fn malformed(&mut self, object: &Malformed) {
        self.source.metrics.malformed.get_or_create(&self.label).inc();
        let key = key(object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
        if self.malformed.contains(&key) || self.malformed.len() >= MAX_MALFORMED {
            return;
        }
        tracing::warn!(
            watch = self.source.name,
            namespace = key.0,
            name = key.1,
            error = object.why,
            "object is malformed and left out"
        );
        self.malformed.insert(key);
    }
}

/// Namespace and name; empty if absent.
fn key(namespace: Option<&str>, name: Option<&str>) -> (String, String) {
    (namespace.unwrap_or_default().to_owned(), name.unwrap_or_default().to_owned())
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
