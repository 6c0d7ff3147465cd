//! Keeps what the API server shows during a run: every version of requests and of order books.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::pin::pin;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use pitstop_api::nodework::NodeWork;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::{Ns, requests};
use serde::de::DeserializeOwned;

use crate::facts::{Killed, Uptime};
use crate::trace;

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What the API server showed of the Pod's containers before each request was made: ID by name, by request.
    pub(crate) before: BTreeMap<String, BTreeMap<String, String>>,
    /// The versions of each request that was made.
    pub(crate) requests: BTreeMap<String, Vec<Version<ContainerRecreateRequest>>>,
    /// Those that the API server has no more.
    pub(crate) gone: BTreeSet<String>,
    pub(crate) books: Vec<Version<NodeWork>>,
    pub(crate) kills: Vec<Killed>,
}

/// An object, and when it was seen so.
#[derive(Clone, Debug)]
pub(crate) struct Version<K> {
    pub(crate) at: Uptime,
    pub(crate) object: K,
}

impl<K> Version<K> {
    fn now(object: K) -> Self {
        Self { at: now().unwrap_or_default(), object }
    }
}

impl Seen {
    /// Takes a version of a request that the API server has. A list that was begun before the request was made may have
    /// made it look gone.
    pub(crate) fn shown(&mut self, object: ContainerRecreateRequest) {
        self.gone.remove(&object.name_any());
        self.request(object);
    }

    /// Takes a version of a request.
    pub(crate) fn request(&mut self, object: ContainerRecreateRequest) {
        let name = object.name_any();
        let versions = self.requests.entry(name).or_default();
        let version = object.resource_version();
        if versions.last().is_none_or(|last| last.object.resource_version() != version) {
            versions.push(Version::now(object));
        }
    }

    /// The newest version of every request.
    pub(crate) fn newest(&self) -> impl Iterator<Item = (&String, &ContainerRecreateRequest)> {
        self.requests.iter().filter_map(|(name, versions)| Some((name, &versions.last()?.object)))
    }

    /// Requests that have not ended, as far as was seen.
    pub(crate) fn open(&self) -> impl Iterator<Item = &ContainerRecreateRequest> {
        let open = self.newest().filter(|(name, r)| !requests::is_over(r) && !self.gone.contains(*name));
        open.map(|(_, request)| request)
    }

    /// Those that are not among the names of a whole list are gone.
    pub(crate) fn listed(&mut self, names: &BTreeSet<String>) {
        self.gone.extend(self.requests.keys().filter(|name| !names.contains(*name)).cloned());
    }
}

/// Now.
pub(crate) fn now() -> Result<Uptime> {
    let text = fs::read_to_string("/proc/uptime")?;
    let first = text.split(' ').next().unwrap_or_default();
    trace::uptime(first).context("/proc/uptime is not understood")
}

/// Watches the requests, for ever.
pub(crate) async fn requests(ns: &Ns, seen: &RefCell<Seen>) {
    let mut names = BTreeSet::new();
    watch(ns.requests(), |event| {
        let mut seen = seen.borrow_mut();
        match event {
            Event::Apply(object) => seen.shown(object),
            Event::Delete(object) => {
                seen.gone.insert(object.name_any());
                seen.request(object);
            }
            Event::Init => names.clear(),
            Event::InitApply(object) => {
                names.insert(object.name_any());
                seen.shown(object);
            }
            Event::InitDone => seen.listed(&names),
        }
    })
    .await;
}

/// Watches the order books, for ever.
pub(crate) async fn books(ns: &Ns, seen: &RefCell<Seen>) {
    watch(Api::all(ns.cluster.client.clone()), |event| {
        if let Event::Apply(book) | Event::InitApply(book) = event {
            seen.borrow_mut().books.push(Version::now(book));
        }
    })
    .await;
}

async fn watch<K>(api: Api<K>, mut take: impl FnMut(Event<K>))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher(api, Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        // Errors are what a run is about; it goes on from the last version.
        if let Ok(event) = event {
            take(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use pitstop_api::recreate::ContainerRecreateRequestSpec;

    use super::*;

    #[test]
    fn what_an_old_list_lacks_is_there_when_it_is_shown_again() {
        let mut seen = Seen::default();
        let request = ContainerRecreateRequest::new("r1", ContainerRecreateRequestSpec::default());
        seen.request(request.clone());
        seen.listed(&BTreeSet::new());
        assert!(seen.gone.contains("r1"));
        seen.shown(request);
        assert!(seen.gone.is_empty());
    }
}
