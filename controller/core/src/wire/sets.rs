//! The `ReplicaSet`s of a `Deployment`: what they say of its template, and the writes by which it adopts its existing
//! Pods as Pods of its new template.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::core::params::{GetParams, PostParams};
use kube::core::{Request as Builder, request};
use pitstop_api::labels;
use pitstop_api::logic::answer::Failure;
use serde::Deserialize;
use serde_json::{Value, json};

use super::exchange::parse;
use super::requests::{HttpRequest, json_patch};
use super::revisions::MAX_REVISIONS;
use crate::deed::{Commit, CommitStep};
use crate::template::{Change, SET_HASH, identity, wanted};
use crate::workload::{Set, Template, Version, WorkloadQuery};

/// Annotation in the template of a `ReplicaSet` that must not get the Pods of another one.
const VOID: &str = "pitstop.dev/void";

/// A `ReplicaSet`, with its template if requested.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SlimReplicaSet {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimReplicaSetSpec,
    #[serde(default)]
    status: SlimReplicaSetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimReplicaSetSpec {
    replicas: i64,
    template: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimReplicaSetStatus {
    replicas: i64,
    observed_generation: i64,
}

impl SlimReplicaSet {
    pub(super) fn has_pods(&self) -> bool {
        self.spec.replicas > 0 || self.status.replicas > 0
    }
}

/// Takes in what the template `now` has changed since that of the `ReplicaSet` with Pods, once `all` are read. Pods can
/// only go back to the template of that one.
pub(super) fn take(
    query: &WorkloadQuery,
    now: &Value,
    template: &mut Template,
    sets: &mut Vec<SlimReplicaSet>,
    all: bool,
) -> Result<(), Failure> {
    let restarts = &query.restarts[..];
    if sets.len() > MAX_REVISIONS {
        return Err(Failure::of_code(422, format!("it has more than {MAX_REVISIONS} ReplicaSets")));
    }
    if !all {
        return Ok(());
    }
    let sets = std::mem::take(sets);
    let mut with_pods = sets.iter().filter(|set| set.has_pods());
    let active = with_pods.next().filter(|_| with_pods.next().is_none()).map(|set| &set.spec.template);
    template.previous = active.map(|active| identity(active, restarts));
    let now = match (active, &query.back) {
        (Some(active), Some(back)) if template.previous.as_ref() == Some(back) => active,
        // That one no longer has this template: nothing is known of the others.
        (_, Some(_)) => return Ok(()),
        (_, None) => now,
    };
    template.sets.wanted = wanted(now);
    // Its Pods may have been updated to templates of the others.
    for other in sets.iter().filter(|set| !set.has_pods()) {
        let change = Change::between(&other.spec.template, now, restarts);
        if matches!(change, Change::InPlace(_)) {
            template.changes.insert(identity(&other.spec.template, restarts), change);
        }
    }
    if let (Some(active), Some(revision)) = (active, &template.previous) {
        let change = Change::between(active, now, restarts);
        // For Pods without a revision, and for Pods with this one.
        template.changes.insert(revision.clone(), change.clone());
        template.changes.insert(String::new(), change);
    }
    let same =
        |set: &SlimReplicaSet, template| Change::between(&set.spec.template, template, restarts).is_none();
    let known = |set: &SlimReplicaSet| Set {
        created: set.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        version: version(&set.metadata),
        hash: hash(&set.spec.template),
        new: same(set, now),
        old: active.is_some_and(|active| same(set, active)),
        seen: set.status.observed_generation >= set.metadata.generation.unwrap_or_default(),
    };
    let of = |active: bool| sets.iter().filter(move |set| set.has_pods() == active).map(known).collect();
    (template.sets.active, template.sets.others) = (of(true), of(false));
    Ok(())
}

/// The label by which a `ReplicaSet` knows its own Pods.
fn hash(template: &Value) -> String {
    let label = template.pointer("/metadata/labels").and_then(|labels| labels.get(SET_HASH));
    label.and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn version(metadata: &ObjectMeta) -> Version {
    let text = |of: &Option<String>| of.clone().unwrap_or_default();
    let ObjectMeta { name, uid, resource_version, .. } = metadata;
    Version { name: text(name), uid: text(uid), resource_version: text(resource_version) }
}

/// The object whose template is written: the `Deployment` for the new one, its `ReplicaSet` with Pods for the old one.
fn source_of(commit: &Commit) -> (Builder, &Version) {
    match commit.step {
        CommitStep::Swap => {
            (Builder::new(apps::Deployment::url_path(&(), Some(&commit.namespace))), &commit.deployment)
        }
        CommitStep::Keep(_) | CommitStep::Make | CommitStep::Void(_) => {
            (sets(&commit.namespace), &commit.active.version)
        }
    }
}

/// Reads this object.
pub(super) fn source(commit: &Commit) -> Result<HttpRequest, request::Error> {
    let (builder, source) = source_of(commit);
    builder.get(&source.name, &GetParams::default())
}

fn sets(namespace: &str) -> Builder {
    Builder::new(apps::ReplicaSet::url_path(&(), Some(namespace)))
}

/// The object whose template is written.
#[derive(Deserialize)]
struct Source {
    metadata: ObjectMeta,
    spec: Value,
}

/// Writes the template of this object.
pub(super) fn write(commit: &Commit, text: &str) -> Result<HttpRequest, Failure> {
    let source: Source = parse(text)?;
    let (_, from) = source_of(commit);
    if version(&source.metadata) != *from {
        return Err(Failure::of_code(409, format!("{} is another version now", from.name)));
    }
    let request = match &commit.step {
        CommitStep::Swap => patch(commit, &commit.active, template(&source, &commit.active)),
        CommitStep::Keep(set) => {
            let mut changes = template(&source, set);
            let annotations = source.metadata.annotations.unwrap_or_default();
            changes.push(json!({"op": "add", "path": "/metadata/annotations", "value": annotations}));
            patch(commit, set, changes)
        }
        CommitStep::Void(set) => {
            let void = json!({VOID: "true"});
            let change = json!({"op": "add", "path": "/spec/template/metadata/annotations", "value": void});
            patch(commit, set, vec![change])
        }
        CommitStep::Make => make(commit, source),
    };
    request.map_err(|error| Failure::of_code(422, error.to_string()))
}

/// Writes the template into `set`, which keeps its own label.
fn template(source: &Source, set: &Set) -> Vec<Value> {
    let template = source.spec.get("template");
    let label = format!("/spec/template/metadata/labels/{SET_HASH}");
    vec![
        json!({"op": "replace", "path": "/spec/template", "value": template}),
        json!({"op": "add", "path": label, "value": set.hash}),
    ]
}

/// Changes `set`, if it is still this version.
fn patch(commit: &Commit, set: &Set, mut changes: Vec<Value>) -> Result<HttpRequest, request::Error> {
    let Version { name, uid, resource_version } = &set.version;
    changes.push(json!({"op": "replace", "path": "/metadata/uid", "value": uid}));
    changes.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}));
    json_patch(&sets(&commit.namespace), name, changes)
}

/// Makes a copy without Pods, and with its own label.
fn make(commit: &Commit, source: Source) -> Result<HttpRequest, request::Error> {
    let Source { metadata, mut spec } = source;
    let Version { name, uid, resource_version } = &commit.active.version;
    let hash = labels::hash(&format!("{uid} {resource_version} {name}")) & 0xff_ffff_ffff;
    // No native hash has this form, so the `ReplicaSet` gets no other Pods.
    let hash = format!("pitstop-{hash:010x}");
    let mut own = metadata.labels.unwrap_or_default();
    own.insert(SET_HASH.to_owned(), hash.clone());
    for labels in ["/selector/matchLabels", "/template/metadata/labels"] {
        if let Some(labels) = spec.pointer_mut(labels).and_then(Value::as_object_mut) {
            labels.insert(SET_HASH.to_owned(), hash.clone().into());
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("replicas".to_owned(), 0.into());
    }
    // `blockOwnerDeletion` would need a right to the owner.
    let mut owners = metadata.owner_references.unwrap_or_default();
    for owner in &mut owners {
        owner.block_owner_deletion = None;
    }
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", commit.deployment.name),
            "namespace": commit.namespace,
            "labels": own,
            "annotations": metadata.annotations,
            "ownerReferences": owners,
        },
        "spec": spec,
    });
    let body = serde_json::to_vec(&object).map_err(request::Error::SerializeBody)?;
    sets(&commit.namespace).create(&PostParams::default(), body)
}

#[cfg(test)]
#[path = "sets_tests.rs"]
mod tests;
