//! Deeds, as requests to the API server.

use kube::Resource as _;
use kube::core::params::{Patch, PatchParams, PostParams};
use kube::core::{Request as Builder, request};
use serde_json::{Value, json};

use super::observe::SlimPod;
pub(super) use super::pods::try_images;
use super::pods::{self, PodVersion};
use super::reading::Reading as _;
use super::requests::{HttpRequest, delete, objects};
use super::workload::{self, WorkloadReading};
use super::{node, puller, sets};
use crate::action::Object;
use crate::deed::{Child, Deed};
use crate::key::{KindId, ObjectKey};
use crate::kinds::about;

/// The name of a deed in metrics, and the HTTP request for `owner`.
pub(super) fn request(owner: &Object, deed: &Deed) -> (&'static str, Result<HttpRequest, request::Error>) {
    let name = |kind| about(kind).map(|about| &about.writes);
    match deed {
        Deed::Create(child) => {
            (name(child.kind).map_or("create", |names| names.create), create(owner, child))
        }
        Deed::Delete { kind, key, uid } => {
            (name(*kind).map_or("delete", |names| names.delete), delete(*kind, key, uid))
        }
        Deed::Resume { kind, key, uid, .. } => ("resume_request", resume(*kind, key, uid)),
        Deed::TryImages { key, uid, images } => ("try_pod_images", try_images(key, uid, images)),
        Deed::AskNode(name) => ("ask_node", node::ask(name)),
        Deed::AskWorkload(query) => ("read_workload", WorkloadReading::new((**query).clone()).request()),
        Deed::MarkPod { key, uid, resource_version, revision, kind } => {
            ("mark_pod", pods::mark(key, PodVersion { uid, resource_version }, revision, *kind))
        }
        Deed::Commit(commit) => ("commit_deployment", sets::source(commit)),
        Deed::Release(release) => ("release_workload", workload::release(release)),
        Deed::TryRelease { kind, key } => ("try_release_workload", workload::try_release(*kind, key)),
        Deed::Pull(puller) => ("make_puller_pod", node::ask(&puller.node)),
        Deed::DeletePod { key, uid } => ("delete_puller_pod", puller::delete(key, uid)),
        Deed::Evict { key, uid } => ("evict_pod", evict(key, uid)),
    }
}

fn api_version(kind: KindId) -> &'static str {
    about(kind).map_or("", |about| about.api_version)
}

/// The owner reference for an object that the request makes.
pub(super) fn owned_by(owner: &Object) -> Value {
    json!({
        "apiVersion": api_version(owner.kind),
        "kind": owner.kind.name(),
        "name": owner.key.name,
        "uid": owner.uid,
        "controller": true,
        "blockOwnerDeletion": false,
    })
}

/// Creates an object. The cluster's garbage collector deletes it with its owner, and it does not block that.
fn create(owner: &Object, child: &Child) -> Result<HttpRequest, request::Error> {
    let object = json!({
        "apiVersion": api_version(child.kind),
        "kind": child.kind.name(),
        "metadata": {
            "name": child.key.name,
            "namespace": child.key.namespace,
            "labels": child.labels,
            "ownerReferences": [owned_by(owner)],
        },
        "spec": child.spec,
    });
    let body = serde_json::to_vec(&object).map_err(request::Error::SerializeBody)?;
    objects(child.kind, &child.key).create(&PostParams::default(), body)
}

/// Releases a suspended object: a merge patch, which the API server refuses for another UID.
fn resume(kind: KindId, key: &ObjectKey, uid: &str) -> Result<HttpRequest, request::Error> {
    let change = json!({"metadata": {"uid": uid}, "spec": {"suspend": false}});
    objects(kind, key).patch(&key.name, &PatchParams::default(), &Patch::Merge(change))
}

/// Evicts a Pod, as `kubectl drain` does: disruption budgets apply.
fn evict(key: &ObjectKey, uid: &str) -> Result<HttpRequest, request::Error> {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    });
    let body = serde_json::to_vec(&body).map_err(request::Error::SerializeBody)?;
    let pods = Builder::new(SlimPod::url_path(&(), Some(&key.namespace)));
    pods.create_subresource("eviction", &key.name, &PostParams::default(), body)
}
