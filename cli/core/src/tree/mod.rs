//! What `status` shows: a workload, its Pods and the requests for them, as a tree of items.
//!
//! It is made of API objects alone; [`crate::draw`] draws it.

#[cfg(test)]
mod drawn_tests;
mod pods;
mod requests;
mod rollout;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::{InPlaceRollout, TargetKind};
use serde::Serialize;

use crate::plain;
use crate::rollouts;
use crate::summary::{Progress, Summary};
use crate::target::Target;

pub(crate) use requests::short_id;

/// Most characters of a text of the API in an item.
const MOST_TEXT: usize = 400;

/// How far an item is, the most urgent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Mark {
    /// It failed.
    Failed,
    /// It is at work.
    Working,
    /// It is not ready, and nothing is done about it.
    NotReady,
    /// Its turn has not come yet.
    Waiting,
    /// It has nothing to report.
    #[default]
    Plain,
    /// It is done.
    Done,
}

/// Whether an item may be left out if the tree does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// It is always shown.
    #[default]
    Main,
    /// A node of a workload, with its Pods.
    Node,
    /// A Pod of a workload.
    Pod,
    /// A detail of the item above it: it is left out last.
    Detail,
}

/// One line of the tree, and the items below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// How far it is.
    pub mark: Mark,
    /// What it is: `pod/web-0`, `node1`, or the name of a container.
    pub name: String,
    /// Since when it is so, on the clock of the API server, of the controller or of the kubelet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    /// Why: a reason of the API.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason in a sentence, or other text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether it may be left out if the tree does not fit.
    #[serde(skip)]
    pub part: Part,
    /// Neither it nor anything below it needs attention: it may be counted with others instead of being shown.
    #[serde(skip)]
    pub quiet: bool,
    /// The items below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
}

impl Item {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The item of a request.
    fn of(name: impl Into<String>, summary: &Summary) -> Self {
        Self {
            mark: mark(summary),
            name: name.into(),
            since: summary.since,
            reason: plain::line(&summary.reason, 128),
            text: plain::line(&summary.message, MOST_TEXT),
            ..Self::default()
        }
    }
}

fn mark(summary: &Summary) -> Mark {
    match summary.progress {
        Progress::Open => Mark::Working,
        Progress::Succeeded => Mark::Done,
        Progress::Failed => Mark::Failed,
    }
}

/// The objects of a tree: from one namespace, or from [all](About::Everywhere).
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// `InPlaceRollout`s.
    pub rollouts: Vec<InPlaceRollout>,
    /// `ContainerRecreateRequest`s.
    pub restarts: Vec<ContainerRecreateRequest>,
    /// `PodResize`s.
    pub resizes: Vec<PodResize>,
    /// `PodImageUpdate`s.
    pub updates: Vec<PodImageUpdate>,
    /// Pods.
    pub pods: Vec<Pod>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

impl Objects {
    fn by_namespace(&self) -> BTreeMap<String, Self> {
        fn sort<K: ResourceExt + Clone>(
            all: &[K],
            into: &mut BTreeMap<String, Objects>,
            of: fn(&mut Objects) -> &mut Vec<K>,
        ) {
            for object in all {
                let own = into.entry(object.namespace().unwrap_or_default()).or_default();
                of(own).push(object.clone());
            }
        }
        let mut all = BTreeMap::new();
        sort(&self.rollouts, &mut all, |own| &mut own.rollouts);
        sort(&self.restarts, &mut all, |own| &mut own.restarts);
        sort(&self.resizes, &mut all, |own| &mut own.resizes);
        sort(&self.updates, &mut all, |own| &mut own.updates);
        sort(&self.pods, &mut all, |own| &mut own.pods);
        all
    }

    /// The objects of a workload to which all of the Pods belong. The API server selects rollouts by the name of their
    /// target alone, and cannot select requests by the workload of their Pod.
    #[must_use]
    pub fn of_workload(&self, kind: TargetKind, name: &str) -> Self {
        let pods: BTreeSet<&str> = self.pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let has = |pod: &str| pods.contains(pod);
        Self {
            rollouts: rollouts::of_workload(kind, name, self.rollouts.clone()),
            restarts: self.restarts.iter().filter(|it| has(&it.spec.pod_name)).cloned().collect(),
            resizes: self.resizes.iter().filter(|it| has(&it.spec.pod_ref.name)).cloned().collect(),
            updates: self.updates.iter().filter(|it| has(&it.spec.pod_ref.name)).cloned().collect(),
            pods: self.pods.clone(),
            unread: self.unread.clone(),
        }
    }
}

/// A tree, and the versions of its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// Its items.
    pub items: Vec<Item>,
    /// What could not be read, and why: it is missing in the tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// `metadata.resourceVersion` of each of its objects, by `kind/name`; for all namespaces, by `kind/namespace/name`.
    pub resource_versions: BTreeMap<String, String>,
}

/// What the tree is about.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    /// The open requests and all rollouts of the namespace.
    Namespace,
    /// The same for all namespaces, by namespace.
    Everywhere,
    /// A workload; all given Pods belong to it.
    Workload(TargetKind, &'a str),
    /// One Pod.
    Pod(&'a str),
    /// All given requests, and their Pods.
    Requests,
}

/// The tree of the objects.
pub fn tree(about: About<'_>, objects: &Objects) -> Tree {
    let items = match about {
        About::Namespace => requests::open(objects),
        About::Everywhere => everywhere(objects),
        About::Workload(kind, name) => {
            let own = objects.of_workload(kind, name);
            let target = Target::Workload(kind, name.to_owned()).to_string();
            return assemble(about, vec![pods::workload(&target, &own)], &own);
        }
        About::Pod(name) => objects
            .pods
            .iter()
            .filter(|pod| pod.metadata.name.as_deref() == Some(name))
            .map(|pod| pods::single(pod, objects))
            .collect(),
        About::Requests => requests::all(objects),
    };
    assemble(about, items, objects)
}

/// The namespaces with open requests or rollouts, those with failures first.
fn everywhere(objects: &Objects) -> Vec<Item> {
    let of = |(name, own): (String, Objects)| {
        let items = requests::open(&own);
        let mark = items.iter().map(|item| item.mark).min()?;
        Some(Item { mark, items, ..Item::new(format!("namespace/{}", plain::line(&name, 63))) })
    };
    let mut all: Vec<Item> = objects.by_namespace().into_iter().filter_map(of).collect();
    all.sort_by_key(|item| item.mark);
    all
}

fn assemble(about: About<'_>, items: Vec<Item>, objects: &Objects) -> Tree {
    let unread = objects.unread.iter().map(|why| plain::line(why, MOST_TEXT)).collect();
    Tree { items, unread, resource_versions: versions(matches!(about, About::Everywhere), objects) }
}

fn versions(everywhere: bool, objects: &Objects) -> BTreeMap<String, String> {
    fn of<K: Resource<DynamicType = ()>>(
        everywhere: bool,
        all: &[K],
    ) -> impl Iterator<Item = (String, String)> {
        let kind = K::kind(&()).to_ascii_lowercase();
        all.iter().filter_map(move |object| {
            let meta = object.meta();
            let namespace = meta.namespace.as_ref().filter(|_| everywhere);
            let namespace = namespace.map(|name| format!("{name}/")).unwrap_or_default();
            Some((format!("{kind}/{namespace}{}", meta.name.as_ref()?), meta.resource_version.clone()?))
        })
    }
    let requests = of(everywhere, &objects.restarts).chain(of(everywhere, &objects.resizes));
    let requests = requests.chain(of(everywhere, &objects.updates)).chain(of(everywhere, &objects.rollouts));
    requests.chain(of(everywhere, &objects.pods)).collect()
}
