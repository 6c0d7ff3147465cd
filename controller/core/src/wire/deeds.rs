//! What a resize has done beside the writes of itself, its Pod and its orders, as requests to the API server.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use kube::core::params::PostParams;
use kube::core::{Request as Builder, request};
use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequest, ContainerRecreateRequestSpec, RecreateContainer};
use pitstop_api::resize::PodResize;
use serde_json::json;

use super::exchange::{HttpRequest, delete, of_kind};
use super::observe::SlimPod;
use crate::deed::{Deed, NewRequest};
use crate::key::ObjectKey;

/// The name of a deed in metrics, and what is sent for the resize of that name and UID.
pub(super) fn request(
    resize: &ObjectKey,
    resize_uid: &str,
    deed: &Deed,
) -> (&'static str, Result<HttpRequest, request::Error>) {
    match deed {
        Deed::Restart(new) => ("create_request", restart(resize, resize_uid, new)),
        Deed::Withdraw { key, uid } => ("delete_request", delete::<ContainerRecreateRequest>(key, uid)),
        Deed::Evict { key, uid } => ("evict_pod", evict(key, uid)),
    }
}

/// Makes a recreate request. Its label says which Pod is meant, and admission and the controller heed that.
fn restart(resize: &ObjectKey, resize_uid: &str, new: &NewRequest) -> Result<HttpRequest, request::Error> {
    let container = |name: &String| RecreateContainer { name: name.clone(), ..RecreateContainer::default() };
    let spec = ContainerRecreateRequestSpec {
        pod_name: new.pod_name.clone(),
        containers: new.containers.iter().map(container).collect(),
        active_deadline_seconds: new.deadline_seconds,
        ..ContainerRecreateRequestSpec::default()
    };
    let mut object = ContainerRecreateRequest::new(&new.key.name, spec);
    object.metadata.namespace = Some(new.key.namespace.clone());
    object.metadata.labels = Some(BTreeMap::from([(labels::POD_UID.to_owned(), new.pod_uid.clone())]));
    // Deleted with the resize, by the cluster's garbage collector, and in the way of nothing.
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: PodResize::api_version(&()).into_owned(),
        kind: PodResize::kind(&()).into_owned(),
        name: resize.name.clone(),
        uid: resize_uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }]);
    let body = serde_json::to_vec(&object).map_err(request::Error::SerializeBody)?;
    of_kind::<ContainerRecreateRequest>(&new.key).create(&PostParams::default(), body)
}

/// Evicts a Pod, as `kubectl drain` does: disruption budgets hold.
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
