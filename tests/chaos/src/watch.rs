//! Keeps what the API server shows during a run: every version of requests, of image updates and of order books.

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
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::nodework::NodeWork;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::Ns;
use serde::de::DeserializeOwned;

use crate::facts::{Killed, Uptime};
use crate::kind::Kind;
use crate::trace;

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What the API server showed of the Pod's containers before each object was made: ID by name, by the object's name.
    pub(crate) before: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) requests: Objects<ContainerRecreateRequest>,
    pub(crate) updates: Objects<PodImageUpdate>,
    pub(crate) books: Vec<Version<NodeWork>>,
    pub(crate) kills: Vec<Killed>,
    /// How often a node has lost images.
    pub(crate) losses: usize,
}

/// The objects of a kind that were made.
#[derive(Debug)]
pub(crate) struct Objects<K> {
    /// The versions of each.
    pub(crate) versions: BTreeMap<String, Vec<Version<K>>>,
    /// Those that the API server has no more.
    pub(crate) gone: BTreeSet<String>,
}

/// An object, and when it was seen so.
#[derive(Clone, Debug)]
pub(crate) struct Version<K> {
    pub(crate) time: Uptime,
    pub(crate) object: K,
}

impl<K> Version<K> {
    fn now(object: K) -> Self {
        Self { time: now().unwrap_or_default(), object }
    }
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { versions: BTreeMap::new(), gone: BTreeSet::new() }
    }
}

impl<K: Kind> Objects<K> {
    /// Takes a version of an object that the API server has. A list that was begun before the object was made may have
    /// made it look gone.
    pub(crate) fn shown(&mut self, object: K) {
        self.gone.remove(&object.name_any());
        self.take(object);
    }

    /// Takes a version of an object.
    pub(crate) fn take(&mut self, object: K) {
        let name = object.name_any();
        let versions = self.versions.entry(name).or_default();
        let version = object.resource_version();
        if versions.last().is_none_or(|last| last.object.resource_version() != version) {
            versions.push(Version::now(object));
        }
    }

    /// The newest version of every object.
    pub(crate) fn newest(&self) -> impl Iterator<Item = (&String, &K)> {
        self.versions.iter().filter_map(|(name, versions)| Some((name, &versions.last()?.object)))
    }

    /// Objects that have not ended, as far as was seen.
    pub(crate) fn open(&self) -> impl Iterator<Item = &K> {
        let open = self.newest().filter(|(name, object)| !object.is_over() && !self.gone.contains(*name));
        open.map(|(_, object)| object)
    }

    /// Takes a whole list.
    pub(crate) fn list(&mut self, objects: Vec<K>) {
        let names = objects.iter().map(K::name_any).collect();
        for object in objects {
            self.shown(object);
        }
        self.listed(&names);
    }

    /// Those that are not among the names of a whole list are gone.
    pub(crate) fn listed(&mut self, names: &BTreeSet<String>) {
        self.gone.extend(self.versions.keys().filter(|name| !names.contains(*name)).cloned());
    }
}

/// Now.
pub(crate) fn now() -> Result<Uptime> {
    let text = fs::read_to_string("/proc/uptime")?;
    let first = text.split(' ').next().unwrap_or_default();
    trace::uptime(first).context("/proc/uptime is not understood")
}

/// Watches the objects of a kind, for ever.
pub(crate) async fn objects<K: Kind>(ns: &Ns, seen: &RefCell<Seen>) {
    let mut names = BTreeSet::new();
    watch(K::api(ns), |event| {
        let mut seen = seen.borrow_mut();
        let objects = K::objects(&mut seen);
        match event {
            Event::Apply(object) => objects.shown(object),
            Event::Delete(object) => {
                objects.gone.insert(object.name_any());
                objects.take(object);
            }
            Event::Init => names.clear(),
            Event::InitApply(object) => {
                names.insert(object.name_any());
                objects.shown(object);
            }
            Event::InitDone => objects.listed(&names),
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
        let mut seen = Objects::default();
        let request = ContainerRecreateRequest::new("r1", ContainerRecreateRequestSpec::default());
        seen.take(request.clone());
        seen.listed(&BTreeSet::new());
        assert!(seen.gone.contains("r1"));
        seen.shown(request);
        assert!(seen.gone.is_empty());
    }
}
