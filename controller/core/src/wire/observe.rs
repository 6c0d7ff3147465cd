//! From API objects to what the core decides on.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use kube::core::dynamic::ParseDynamicObjectError;
use pitstop_api::nodework::NodeWork as NodeWorkObject;
use pitstop_api::recreate::PreStopHandler;
use pitstop_api::rollout::{PARKED, TargetKind};
use serde::Deserialize;

pub use super::slim::{SlimPod, pod};
use crate::key::ObjectKey;
use crate::nodework::NodeWork;
use crate::review::{ContainerHook, Live};
use crate::workload::Parked;

/// What only admission reads of a Pod: the watch of all Pods keeps none of it.
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

/// A Pod that was read as a whole.
pub fn live(object: DynamicObject) -> Result<Live, ParseDynamicObjectError> {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    // A hook that cannot be read is not shown.
    let HookSpec { containers, init_containers } = serde_json::from_value(spec).unwrap_or_default();
    let hooks = containers.into_iter().chain(init_containers).filter_map(|container| {
        let pre_stop = container.lifecycle?.pre_stop?;
        Some((container.name, ContainerHook { pre_stop, ports: container.ports }))
    });
    let hooks = hooks.collect();
    Ok(Live { pod: pod(object.try_parse()?), hooks })
}

/// A parked workload as the core sees it.
pub fn parked(kind: TargetKind, metadata: ObjectMeta) -> Parked {
    Parked {
        kind,
        key: ObjectKey::of(&metadata),
        generation: metadata.generation.unwrap_or_default(),
        mark: metadata.labels.and_then(|mut labels| labels.remove(PARKED)).unwrap_or_default(),
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
    use super::*;

    #[test]
    fn hooks_of_a_pod_that_was_read_are_told_with_the_ports_of_their_containers() {
        let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"ns","uid":"u"},
          "spec":{"initContainers":[{"name":"proxy","lifecycle":{"preStop":{"sleep":{"seconds":3}}}}],
            "containers":[{"name":"app","lifecycle":{"preStop":{"httpGet":{"port":"web"}}},
              "ports":[{"name":"web","containerPort":8080,"protocol":"TCP"}]},
              {"name":"plain","lifecycle":{"postStart":{"sleep":{"seconds":1}}}},{"name":"bare"}]}}"#;
        let Live { pod, hooks } = live(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(pod.uid, "u");
        assert_eq!(hooks.keys().collect::<Vec<_>>(), ["app", "proxy"]);
        assert!(hooks["app"].pre_stop.http_get.is_some());
        assert_eq!(hooks["app"].ports[0].container_port, 8080);
        assert_eq!(hooks["proxy"].pre_stop.sleep.as_ref().unwrap().seconds, 3);
    }
}
