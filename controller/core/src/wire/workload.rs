//! Reading a workload: the object, the `ReplicaSet`s of a `Deployment`, and if requested its revisions, disruption
//! budgets and Pods. For Pods with certain labels, only the last two are read.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1 as apps, core::v1 as core, policy::v1 as policy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource as _;
use kube::core::params::{GetParams, ListParams, Patch, PatchParams};
use kube::core::{PartialObjectMeta, Request as Builder, Selector, request};
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::rollout::{PARKED, RELEASE, TargetKind, share_of};
use serde::Deserialize;
use serde_json::{Value, json};

use super::budgets::{Counted, SlimBudget};
use super::denial::{self, Policy};
use super::exchange::parse;
use super::metadata::{pod_mark, pod_revision};
use super::reading::{List, Reading};
use super::requests::HttpRequest;
use super::revisions::{self, SlimRevision};
use super::sets::{self, SlimReplicaSet};
use crate::deed::{Release, Strategy};
use crate::key::ObjectKey;
use crate::owner::controller;
use crate::pod::label_hashes;
use crate::workload::{Listed, Workload, WorkloadQuery};

/// How many objects are read at a time.
const PAGE: u32 = 500;
/// The same for objects with a whole template.
const TEMPLATES_PAGE: u32 = 20;

/// Most disruption budgets for one workload; an eviction fails if there are two.
const MAX_BUDGETS: usize = 100;
/// Most of a namespace, if it is not known before the Pods which budgets select them.
const MAX_BUDGETS_OF_ALL: usize = 1_000;
/// Pods that will never run again do not count.
const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// A reading under way.
#[derive(Clone, Debug)]
pub(super) struct WorkloadReading {
    pub(super) query: WorkloadQuery,
    /// What was found so far.
    pub(super) workload: Workload,
    /// `spec.selector`, once it is known.
    selector: String,
    /// Labels of `spec.template`.
    labels: BTreeMap<String, String>,
    /// Budgets of the namespace, if the Pods have no common template.
    counted: Counted,
    /// `spec.template`, if requested.
    template: Value,
    /// The `ReplicaSet`s with their templates, so far.
    sets: Vec<SlimReplicaSet>,
    /// The `ControllerRevision`s, so far.
    revisions: Vec<SlimRevision>,
    next: Next,
    /// Where the current list continues.
    token: Option<String>,
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Workload,
    ReplicaSets,
    Revisions,
    Budgets,
    Pods,
}

impl WorkloadReading {
    /// Nothing read yet.
    pub(super) fn new(query: WorkloadQuery) -> Self {
        let mut reading = Self {
            query,
            workload: Workload::default(),
            selector: String::new(),
            labels: BTreeMap::new(),
            counted: Counted::default(),
            template: Value::Null,
            sets: Vec::new(),
            revisions: Vec::new(),
            next: Next::Workload,
            token: None,
        };
        if reading.query.kind.is_none() {
            let labels: Vec<_> =
                reading.query.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            reading.selector = labels.join(",");
            reading.workload = Workload {
                labels: label_hashes(&reading.query.labels),
                max_unavailable: 1,
                ..Workload::default()
            };
            reading.next = if reading.query.budgets { Next::Budgets } else { Next::Pods };
        }
        reading
    }

    /// Namespace and name of the workload.
    pub(super) fn key(&self) -> &ObjectKey {
        &self.query.key
    }

    /// What is read after the workload itself.
    fn after_sets(&self) -> Option<Next> {
        let revisions = self.workload.template.is_some() && self.query.kind != Some(TargetKind::Deployment);
        revisions.then_some(Next::Revisions).or_else(|| self.after_revisions())
    }

    fn after_revisions(&self) -> Option<Next> {
        self.query.budgets.then_some(Next::Budgets).or_else(|| self.pods())
    }

    fn pods(&self) -> Option<Next> {
        (self.query.pods || self.query.kind.is_none()).then_some(Next::Pods)
    }

    /// Takes in the object.
    fn take(&mut self, kind: TargetKind, object: SlimWorkload) -> Result<(), Failure> {
        let SlimWorkload { metadata, spec, status } = object;
        let selector: Result<Selector, _> = spec.selector.try_into();
        let selector = selector
            .map_err(|error| Failure::of_code(422, format!("its spec.selector cannot be read: {error}")))?;
        self.selector = selector.to_string();
        self.labels = spec.template.metadata.labels;
        let rolling = spec.strategy.or(spec.update_strategy).and_then(|strategy| strategy.rolling_update);
        let rolling = rolling.unwrap_or_default();
        let desired = match kind {
            TargetKind::Deployment | TargetKind::StatefulSet => spec.replicas.unwrap_or(1),
            TargetKind::DaemonSet => status.desired_number_scheduled,
        };
        let desired = u32::try_from(desired).unwrap_or_default();
        self.workload = Workload {
            controllers: match kind {
                TargetKind::Deployment => Vec::new(),
                TargetKind::StatefulSet | TargetKind::DaemonSet => metadata.uid.iter().cloned().collect(),
            },
            labels: Vec::new(),
            uid: metadata.uid.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            desired,
            max_unavailable: rolling.max_unavailable.as_ref().map_or(1, |most| share_of(most, desired)),
            partition: u32::try_from(rolling.partition).unwrap_or_default(),
            min_ready_seconds: u32::try_from(spec.min_ready_seconds).unwrap_or_default(),
            budgets: None,
            template: None,
            pods: None,
        };
        Ok(())
    }

    /// Takes in what the object says of its template.
    fn take_template(&mut self, text: &str) -> Result<(), Failure> {
        if self.query.template {
            let object = parse(text)?;
            let (spec_template, template) = revisions::template(&self.query, object);
            (self.template, self.workload.template) = (spec_template, Some(template));
        }
        Ok(())
    }

    /// Takes in its own `ReplicaSet`s.
    fn take_sets(&mut self, sets: Vec<SlimReplicaSet>) -> Result<(), Failure> {
        let owned: Vec<_> = sets.into_iter().filter(|set| self.owns(&set.metadata)).collect();
        let uids = owned.iter().filter(|set| set.has_pods()).filter_map(|set| set.metadata.uid.clone());
        self.workload.controllers.extend(uids);
        match &mut self.workload.template {
            Some(template) => {
                self.sets.extend(owned);
                sets::take(&self.query, &self.template, template, &mut self.sets, self.token.is_none())
            }
            None => Ok(()),
        }
    }

    /// Takes in the budgets for its Pods.
    fn take_budgets(&mut self, budgets: Vec<SlimBudget>) -> Result<(), Failure> {
        if self.query.kind.is_none() {
            self.counted.take(budgets);
            if self.counted.len() > MAX_BUDGETS_OF_ALL {
                let text =
                    format!("more than {MAX_BUDGETS_OF_ALL} PodDisruptionBudgets are in the namespace");
                return Err(Failure::of_code(422, text));
            }
            return Ok(());
        }
        let own = budgets.into_iter().filter_map(|budget| budget.of(&self.labels));
        // An empty list is a result, too.
        let known = self.workload.budgets.get_or_insert_default();
        known.extend(own);
        if known.len() > MAX_BUDGETS {
            let text = format!("more than {MAX_BUDGETS} PodDisruptionBudgets are for its Pods");
            return Err(Failure::of_code(422, text));
        }
        Ok(())
    }

    /// Takes in its own Pods.
    fn take_pods(&mut self, pods: impl Iterator<Item = ObjectMeta>) {
        let selected = self.query.kind.is_none();
        // An empty list is a result, too.
        self.workload.pods.get_or_insert_default();
        for pod in pods {
            if selected {
                self.counted.count(pod.labels.as_ref().unwrap_or(&BTreeMap::new()));
            } else if !self.has(&pod) {
                continue;
            }
            self.workload.pods.get_or_insert_default().push(listed(pod, selected));
        }
        if selected && self.token.is_none() {
            self.workload.budgets = self.query.budgets.then(|| self.counted.found());
        }
    }

    /// The workload is the controlling owner.
    fn owns(&self, metadata: &ObjectMeta) -> bool {
        controller_uid(metadata).is_some_and(|uid| uid == self.workload.uid)
    }

    /// One of the workload's controllers is the controlling owner.
    fn has(&self, metadata: &ObjectMeta) -> bool {
        controller_uid(metadata).is_some_and(|uid| self.workload.controllers.iter().any(|own| own == uid))
    }

    fn failed(&self, failure: &Failure) -> Failure {
        let what = match (self.next, self.query.kind) {
            (Next::Workload, Some(TargetKind::Deployment) | None) => "get deployments",
            (Next::Workload, Some(TargetKind::StatefulSet)) => "get statefulsets",
            (Next::Workload, Some(TargetKind::DaemonSet)) => "get daemonsets",
            (Next::ReplicaSets, _) => "list replicasets",
            (Next::Revisions, _) => "list controllerrevisions",
            (Next::Budgets, _) => "list poddisruptionbudgets",
            (Next::Pods, _) => "list pods",
        };
        Failure { message: format!("cannot {what}: {}", failure.message), ..failure.clone() }
    }
}

impl Reading for WorkloadReading {
    fn request(&self) -> Result<HttpRequest, request::Error> {
        let namespace = Some(self.query.key.namespace.as_str());
        let all = || ListParams { continue_token: self.token.clone(), ..ListParams::default().limit(PAGE) };
        let list = || all().labels(&self.selector);
        match self.next {
            Next::Workload => Builder::new(path(self.query.kind.unwrap_or_default(), namespace))
                .get(&self.query.key.name, &GetParams::default()),
            Next::ReplicaSets => {
                let params = list().limit(if self.query.template { TEMPLATES_PAGE } else { PAGE });
                Builder::new(apps::ReplicaSet::url_path(&(), namespace)).list(&params)
            }
            Next::Revisions => {
                let params = list().limit(TEMPLATES_PAGE);
                Builder::new(apps::ControllerRevision::url_path(&(), namespace)).list(&params)
            }
            Next::Budgets => Builder::new(policy::PodDisruptionBudget::url_path(&(), namespace)).list(&all()),
            Next::Pods => {
                let params = if self.query.kind.is_none() { list().fields(ALIVE) } else { list() };
                Builder::new(core::Pod::url_path(&(), namespace)).list_metadata(&params)
            }
        }
    }

    fn answered(&mut self, answer: Answer) -> Result<bool, Failure> {
        let text = match answer {
            Answer::Body(text) => text,
            Answer::Failed(failure) => return Err(self.failed(&failure)),
        };
        self.token = None;
        let after = match self.next {
            Next::Workload => {
                let kind = self.query.kind.unwrap_or_default();
                self.take(kind, parse(&text)?)?;
                self.take_template(&text)?;
                let sets = kind == TargetKind::Deployment;
                if sets { Some(Next::ReplicaSets) } else { self.after_sets() }
            }
            Next::ReplicaSets => {
                let list: List<SlimReplicaSet> = parse(&text)?;
                self.token = list.more().map(str::to_owned);
                self.take_sets(list.items)?;
                if self.token.is_some() { Some(Next::ReplicaSets) } else { self.after_sets() }
            }
            Next::Revisions => {
                let list: List<SlimRevision> = parse(&text)?;
                self.token = list.more().map(str::to_owned);
                let own = list.items.into_iter().filter(|revision| self.owns(&revision.metadata));
                let own: Vec<SlimRevision> = own.collect();
                self.revisions.extend(own);
                if let Some(template) = &mut self.workload.template {
                    let all = self.token.is_none();
                    revisions::take(&self.query, &self.template, template, &mut self.revisions, all)?;
                }
                if self.token.is_some() { Some(Next::Revisions) } else { self.after_revisions() }
            }
            Next::Budgets => {
                let list: List<SlimBudget> = parse(&text)?;
                self.token = list.more().map(str::to_owned);
                self.take_budgets(list.items)?;
                if self.token.is_some() { Some(Next::Budgets) } else { self.pods() }
            }
            Next::Pods => {
                let list: List<PartialObjectMeta<core::Pod>> = parse(&text)?;
                self.token = list.more().map(str::to_owned);
                self.take_pods(list.items.into_iter().map(|pod| pod.metadata));
                self.token.is_some().then_some(Next::Pods)
            }
        };
        if let Some(next) = after {
            self.next = next;
        }
        Ok(after.is_some())
    }
}

/// Asks admission to release a parked workload: the policy `pitstop-unpark` restores its strategy and removes the
/// label. Then no manager owns the changed field, and applying it causes no conflict. An unchanged strategy needs no
/// policy.
pub(super) fn release(release: &Release) -> Result<HttpRequest, request::Error> {
    let mark = release.to.mark().map(|mark| format!("{RELEASE}{mark}"));
    patch(release, &release.resource_version, mark.as_deref(), None)
}

/// What is left to do after the [release](release) was answered.
pub(super) enum Released {
    /// Nothing.
    All,
    /// All of it, on this version of the workload: the releasing policy is not in force.
    Nothing(String),
}

/// The result of the release. Without the releasing policy, the policy that narrows the controller's writes denies the
/// label; without both, the label is stored.
pub(super) fn released(release: &Release, answer: Answer) -> Result<Released, Failure> {
    let text = match answer {
        Answer::Body(text) => text,
        Answer::Failed(_) => {
            return denial::denied(answer, &POLICY)
                .map(|()| Released::Nothing(release.resource_version.clone()));
        }
    };
    let stored: PartialObjectMeta<apps::Deployment> = parse(&text)?;
    let parked = stored.metadata.labels.is_some_and(|labels| labels.contains_key(PARKED));
    let version = stored.metadata.resource_version.filter(|_| parked);
    Ok(version.map_or(Released::All, Released::Nothing))
}

/// Releases a workload if no policy does.
pub(super) fn release_without_policy(
    release: &Release,
    resource_version: &str,
) -> Result<HttpRequest, request::Error> {
    let spec = match release.to {
        Strategy::AsIs => None,
        Strategy::Partition(partition) => {
            Some(json!({"updateStrategy": {"rollingUpdate": {"partition": partition}}}))
        }
        Strategy::Rolling => Some(json!({"updateStrategy": {"type": "RollingUpdate"}})),
        Strategy::Unpaused => Some(json!({"paused": null})),
    };
    patch(release, resource_version, None, spec)
}

/// Gives the label and the spec these values, if the workload is still this version.
fn patch(
    release: &Release,
    resource_version: &str,
    label: Option<&str>,
    spec: Option<Value>,
) -> Result<HttpRequest, request::Error> {
    let Release { kind, key, uid, .. } = release;
    let metadata = json!({"uid": uid, "resourceVersion": resource_version, "labels": {PARKED: label}});
    let mut patch = json!({"metadata": metadata});
    if let (Some(spec), Some(fields)) = (spec, patch.as_object_mut()) {
        fields.insert("spec".to_owned(), spec);
    }
    Builder::new(path(*kind, Some(&key.namespace))).patch(
        &key.name,
        &PatchParams::default(),
        &Patch::Merge(patch),
    )
}

/// A dry run that the policy denies for any workload, parked or not.
pub(super) fn try_release(kind: TargetKind, key: &ObjectKey) -> Result<HttpRequest, request::Error> {
    let metadata = json!({"labels": {PARKED: null}, "annotations": {"pitstop.dev/tried": ""}});
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    Builder::new(path(kind, Some(&key.namespace))).patch(
        &key.name,
        &params,
        &Patch::Merge(json!({"metadata": metadata})),
    )
}

/// Its denial shows that only the release is allowed.
pub(super) const POLICY: Policy = Policy {
    name: "pitstop-controller-workloads",
    component: "in-place",
    refusal: "cannot patch resource",
    right: "pitstop has no right to release the workload, which a RoleBinding to the ClusterRole pitstop-in-place gives",
    without: "pitstop releases no workloads",
};

fn path(kind: TargetKind, namespace: Option<&str>) -> String {
    match kind {
        TargetKind::Deployment => apps::Deployment::url_path(&(), namespace),
        TargetKind::StatefulSet => apps::StatefulSet::url_path(&(), namespace),
        TargetKind::DaemonSet => apps::DaemonSet::url_path(&(), namespace),
    }
}

fn controller_uid(metadata: &ObjectMeta) -> Option<&str> {
    controller(metadata).map(|owner| owner.uid.as_str())
}

/// `selected`: its revision is pitstop's mark, not its controller's.
fn listed(pod: ObjectMeta, selected: bool) -> Listed {
    Listed {
        revision: if selected { pod_mark(&pod) } else { pod_revision(&pod) },
        name: pod.name.unwrap_or_default(),
        uid: pod.uid.unwrap_or_default(),
        created: pod.creation_timestamp.map_or(0, |time| time.0.as_second()),
    }
}

/// A workload of any of the three kinds.
#[derive(Deserialize)]
struct SlimWorkload {
    metadata: ObjectMeta,
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    replicas: Option<i64>,
    selector: LabelSelector,
    #[serde(default)]
    template: SlimTemplate,
    #[serde(default)]
    min_ready_seconds: i64,
    /// Of a `Deployment`.
    strategy: Option<SlimStrategy>,
    /// Of the others.
    update_strategy: Option<SlimStrategy>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimTemplate {
    metadata: SlimLabels,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimLabels {
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimStrategy {
    rolling_update: Option<SlimRolling>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimRolling {
    max_unavailable: Option<IntOrString>,
    partition: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimStatus {
    desired_number_scheduled: i64,
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
