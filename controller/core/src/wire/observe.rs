//! From API objects to what the core decides on.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use kube::Resource as _;
use kube::core::DynamicObject;
use pitstop_api::nodework::NodeWork as NodeWorkObject;
use pitstop_api::recreate::{ContainerRecreateRequest, PreStopHandler};
use pitstop_api::resize::PodResize;
use pitstop_api::{annotations, labels};
use serde::Deserialize;

pub use super::slim::{SlimPod, pod};
use crate::key::ObjectKey;
use crate::nodework::NodeWork;
use crate::pod::Pod;
use crate::recreate::Request;
use crate::recreate::admission::{Hooked, Hooks};
use crate::resize::Resize;

/// What only admission looks at, in a Pod that it reads: the watch of all Pods keeps none of it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HookSpec {
    containers: Vec<HookContainer>,
    init_containers: Vec<HookContainer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HookContainer {
    name: String,
    lifecycle: Option<HookLifecycle>,
    ports: Vec<core::ContainerPort>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HookLifecycle {
    pre_stop: Option<PreStopHandler>,
}

/// A Pod that was read as a whole: what the core decides on, and the hooks of its containers.
pub fn live(object: DynamicObject) -> Result<(Pod, Hooks), kube::core::dynamic::ParseDynamicObjectError> {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    // A hook that cannot be read is not shown.
    let HookSpec { containers, init_containers } = serde_json::from_value(spec).unwrap_or_default();
    let hooks = containers.into_iter().chain(init_containers).filter_map(|container| {
        let pre_stop = container.lifecycle?.pre_stop?;
        Some((container.name, Hooked { pre_stop, ports: container.ports }))
    });
    let hooks = hooks.collect();
    Ok((pod(object.try_parse()?), hooks))
}

/// Namespace and name.
pub(super) fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// The request as decisions see it: with those of its labels that matter, however many it has.
pub fn request(object: ContainerRecreateRequest) -> Request {
    let mut request = admitted(object);
    request.labels.retain(|key, _| labels::KNOWN.contains(&key.as_str()));
    request
}

/// The request as admission sees it: with all its labels.
pub fn admitted(object: ContainerRecreateRequest) -> Request {
    let ContainerRecreateRequest { metadata, spec, status } = object;
    Request {
        key: key(&metadata),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        created: metadata.creation_timestamp.map_or(0, |t| t.0.as_second()),
        deleting: metadata.deletion_timestamp.is_some(),
        resize_uid: metadata.owner_references.into_iter().flatten().find(is_resize).map(|owner| owner.uid),
        in_v1beta1: metadata.managed_fields.iter().flatten().any(wrote_spec_in_v1beta1),
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata
            .annotations
            .into_iter()
            .flatten()
            .filter(|(key, _)| annotations::INTERNAL.contains(&key.as_str()))
            .collect(),
        spec,
        status: status.unwrap_or_default(),
    }
}

/// The owner that made the object, and looks after it, is a `PodResize`.
fn is_resize(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    owner.controller == Some(true)
        && owner.kind == PodResize::kind(&())
        && group == Some(PodResize::group(&()).as_ref())
}

fn wrote_spec_in_v1beta1(entry: &ManagedFieldsEntry) -> bool {
    let spec = entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some());
    spec && entry.api_version.as_deref() == Some("apps.kruise.io/v1beta1")
}

/// The resize as the core sees it.
pub fn resize(object: PodResize) -> Resize {
    let PodResize { metadata, spec, status } = object;
    Resize {
        key: key(&metadata),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        created: metadata.creation_timestamp.map_or(0, |t| t.0.as_second()),
        deleting: metadata.deletion_timestamp.is_some(),
        spec,
        status: status.unwrap_or_default(),
    }
}

/// The order book as the core sees it.
pub fn nodework(object: NodeWorkObject) -> NodeWork {
    let NodeWorkObject { metadata, spec, status } = object;
    NodeWork {
        node: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        orphan: metadata.owner_references.is_none_or(|owners| owners.is_empty()),
        orders: spec.orders,
        closed: spec.closed,
        status: status.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use pitstop_api::recreate::Phase;

    use super::*;

    #[test]
    fn a_request_keeps_all_that_decisions_rest_on() {
        let text = r#"{"apiVersion":"apps.kruise.io/v1alpha1","kind":"ContainerRecreateRequest",
          "metadata":{"name":"crr","namespace":"shop","uid":"u","resourceVersion":"7","generation":2,
            "creationTimestamp":"1970-01-01T00:01:05Z","deletionTimestamp":"1970-01-01T00:02:00Z",
            "labels":{"a":"b","crr.apps.kruise.io/active":"true"},"annotations":{"example.com/own":"x"}},
          "spec":{"podName":"web","containers":[{"name":"app"}]},"status":{"phase":"Recreating"}}"#;
        let all = admitted(serde_json::from_str(text).unwrap());
        assert_eq!(all.labels.get("a").map(String::as_str), Some("b"));
        let request = request(serde_json::from_str(text).unwrap());
        assert_eq!((request.key.to_string().as_str(), request.uid.as_str()), ("shop/crr", "u"));
        assert_eq!((request.resource_version.as_str(), request.generation), ("7", Some(2)));
        assert_eq!((request.created, request.deleting), (65, true));
        let labels: Vec<&str> = request.labels.keys().map(String::as_str).collect();
        assert_eq!(labels, [labels::ACTIVE], "those of others are none of its business");
        assert!(request.annotations.is_empty(), "nor are their annotations");
        assert_eq!((request.spec.pod_name.as_str(), request.status.phase), ("web", Some(Phase::Recreating)));
    }

    #[test]
    fn the_version_of_a_request_is_that_which_its_spec_was_written_in() {
        let made = |spec: &str, status: &str| {
            let entry = |version: &str, fields: &str| {
                format!(
                    r#"{{"manager":"x","operation":"Update","apiVersion":"apps.kruise.io/{version}","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
                )
            };
            let entries = [
                entry(status, r#"{"f:metadata":{"f:labels":{}}}"#),
                entry(spec, r#"{"f:spec":{".":{},"f:podName":{}}}"#),
            ];
            let text = format!(
                r#"{{"apiVersion":"apps.kruise.io/v1alpha1","kind":"ContainerRecreateRequest",
                    "metadata":{{"name":"a","namespace":"ns","managedFields":[{}]}},
                    "spec":{{"podName":"web","containers":[{{"name":"app"}}]}}}}"#,
                entries.join(",")
            );
            request(serde_json::from_str(&text).unwrap()).in_v1beta1
        };
        assert!(made("v1beta1", "v1alpha1"));
        assert!(!made("v1alpha1", "v1beta1"));
    }

    #[test]
    fn hooks_of_a_pod_that_was_read_are_told_with_the_ports_of_their_containers() {
        let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"ns","uid":"u"},
          "spec":{"initContainers":[{"name":"proxy","lifecycle":{"preStop":{"sleep":{"seconds":3}}}}],
            "containers":[{"name":"app","lifecycle":{"preStop":{"httpGet":{"port":"web"}}},
              "ports":[{"name":"web","containerPort":8080,"protocol":"TCP"}]},
              {"name":"plain","lifecycle":{"postStart":{"sleep":{"seconds":1}}}},{"name":"bare"}]}}"#;
        let (pod, hooks) = live(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(pod.uid, "u");
        assert_eq!(hooks.keys().collect::<Vec<_>>(), ["app", "proxy"]);
        assert!(hooks["app"].pre_stop.http_get.is_some());
        assert_eq!(hooks["app"].ports[0].container_port, 8080);
        assert_eq!(hooks["proxy"].pre_stop.sleep.as_ref().unwrap().seconds, 3);
    }
}
