//! Changes of Pods: readiness conditions, image strings and resources.

use chrono::{DateTime, SecondsFormat, Utc};
use kube::Resource as _;
use kube::core::params::{GetParams, Patch, PatchParams};
use kube::core::{Request as Builder, request};
use pitstop_api::quantity::Resource;
use pitstop_api::rollout::{POD_REVISION, TargetKind};
use serde_json::{Value, json};

use super::metadata::REVISION;
use super::observe::SlimPod;
use super::requests::HttpRequest;
use crate::change::{ImageChange, ResourceChange};
use crate::key::ObjectKey;
use crate::pod::Pod;
use crate::readiness::GateChange;

/// The version of a Pod that a change is based on.
#[derive(Clone, Copy)]
pub(super) struct PodVersion<'a> {
    pub(super) uid: &'a str,
    pub(super) resource_version: &'a str,
}

impl PodVersion<'_> {
    fn guard(self, mut patch: Value) -> Patch<Value> {
        if let Some(fields) = patch.as_object_mut() {
            let version = json!({"uid": self.uid, "resourceVersion": self.resource_version});
            fields.insert("metadata".to_owned(), version);
        }
        Patch::Strategic(patch)
    }
}

fn pods(key: &ObjectKey) -> Builder {
    Builder::new(SlimPod::url_path(&(), Some(&key.namespace)))
}

/// Reads a Pod's metadata from the API server, not from a watch.
pub(super) fn read(key: &ObjectKey) -> Result<HttpRequest, request::Error> {
    pods(key).get_metadata(&key.name, &GetParams::default())
}

/// Marks a Pod with its revision, for its controller.
pub(super) fn mark(
    key: &ObjectKey,
    version: PodVersion<'_>,
    revision: &str,
    kind: Option<TargetKind>,
) -> Result<HttpRequest, request::Error> {
    let PodVersion { uid, resource_version } = version;
    let (field, name) = match kind {
        None | Some(TargetKind::Deployment) => ("annotations", POD_REVISION),
        Some(TargetKind::StatefulSet | TargetKind::DaemonSet) => ("labels", REVISION),
    };
    let metadata = json!({"uid": uid, "resourceVersion": resource_version, field: {name: revision}});
    pods(key).patch(&key.name, &PatchParams::default(), &Patch::Merge(json!({"metadata": metadata})))
}

/// Sets conditions; `wall`: the time of those whose status changes.
pub(super) fn patch_gates(
    key: &ObjectKey,
    version: PodVersion<'_>,
    gates: &[GateChange],
    wall: DateTime<Utc>,
) -> Result<HttpRequest, request::Error> {
    let patch = version.guard(gates_patch(gates, wall));
    pods(key).patch_subresource("status", &key.name, &PatchParams::default(), &patch)
}

/// Sets image strings, or makes a dry run.
pub(super) fn patch_images(
    key: &ObjectKey,
    version: PodVersion<'_>,
    images: &[ImageChange],
    dry_run: bool,
) -> Result<HttpRequest, request::Error> {
    let params = PatchParams { dry_run, ..PatchParams::default() };
    pods(key).patch(&key.name, &params, &version.guard(images_patch(images)))
}

/// Finds out whether image strings would be stored in the Pod of that UID, whatever its version.
pub(super) fn try_images(
    key: &ObjectKey,
    uid: &str,
    images: &[ImageChange],
) -> Result<HttpRequest, request::Error> {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let mut patch = images_patch(images);
    if let Some(fields) = patch.as_object_mut() {
        fields.insert("metadata".to_owned(), json!({"uid": uid}));
    }
    pods(key).patch(&key.name, &params, &Patch::Strategic(patch))
}

/// How admission altered the images of a dry run, as a sentence.
pub(super) fn altered(admitted: &Pod, images: &[ImageChange]) -> Option<String> {
    let stored = |i: &&ImageChange| admitted.container(&i.container).is_some_and(|c| c.image == i.image);
    let other = images.iter().find(|i| !stored(i))?;
    Some(format!("admission gives container {} another image than {}", other.container, other.image))
}

/// Sets resources through the subresource `resize` (Kubernetes 1.33 and later), or makes a dry run.
pub(super) fn patch_resources(
    key: &ObjectKey,
    version: PodVersion<'_>,
    containers: &[ResourceChange],
    dry_run: bool,
) -> Result<HttpRequest, request::Error> {
    let params = PatchParams { dry_run, ..PatchParams::default() };
    pods(key).patch_subresource("resize", &key.name, &params, &version.guard(resources_patch(containers)))
}

/// How admission altered the resources of a dry run, as a sentence.
pub(super) fn resized_otherwise(admitted: &Pod, containers: &[ResourceChange]) -> Option<String> {
    let stored = |change: &ResourceChange| admitted.container(&change.container).map(|c| c.resources);
    let other = containers.iter().find(|change| stored(change) != Some(change.whole))?;
    Some(format!("admission changes the requested resources of container {}", other.container))
}

/// A strategic merge patch: containers merge by their name, and only the amounts that are named change.
fn resources_patch(containers: &[ResourceChange]) -> Value {
    let amounts = |cpu: Option<i64>, memory: Option<i64>| -> Value {
        let named = [(Resource::Cpu, cpu), (Resource::Memory, memory)];
        named
            .into_iter()
            .filter_map(|(resource, amount)| {
                Some((resource.as_str().to_owned(), resource.show(amount?).into()))
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    by_kind(
        containers,
        |change| change.init,
        |change| {
            let of = &change.resources;
            let requests = amounts(of.cpu_request, of.memory_request);
            let limits = amounts(of.cpu_limit, of.memory_limit);
            json!({"name": change.container, "resources": {"requests": requests, "limits": limits}})
        },
    )
}

/// A strategic merge patch: conditions merge by their type, so all others stay as they are.
fn gates_patch(gates: &[GateChange], now: DateTime<Utc>) -> Value {
    let conditions: Vec<Value> = gates
        .iter()
        .map(|gate| {
            let status = if gate.open { "True" } else { "False" };
            let mut condition = json!({"type": gate.type_, "status": status, "message": gate.message});
            if let Some(fields) = condition.as_object_mut().filter(|_| gate.transition) {
                fields.insert(
                    "lastTransitionTime".to_owned(),
                    json!(now.to_rfc3339_opts(SecondsFormat::Secs, true)),
                );
            }
            condition
        })
        .collect();
    json!({"status": {"conditions": conditions}})
}

/// A strategic merge patch: containers merge by their name.
fn images_patch(images: &[ImageChange]) -> Value {
    by_kind(images, |i| i.init, |i| json!({"name": i.container, "image": i.image}))
}

/// The changes, each in the list of its container in a Pod's spec.
fn by_kind<T>(changes: &[T], init: impl Fn(&T) -> bool, written: impl Fn(&T) -> Value) -> Value {
    let mut spec = serde_json::Map::new();
    for (field, wanted) in [("containers", false), ("initContainers", true)] {
        let list: Vec<Value> = changes.iter().filter(|c| init(c) == wanted).map(&written).collect();
        if !list.is_empty() {
            spec.insert(field.to_owned(), Value::Array(list));
        }
    }
    json!({"spec": spec})
}

#[cfg(test)]
mod tests {
    use pitstop_api::quantity::Resources;

    use super::*;

    #[test]
    fn only_the_named_condition_is_written_and_the_time_moves_with_the_status() {
        let gate = |transition| GateChange {
            type_: "KruisePodReady".into(),
            open: false,
            message: "[]".into(),
            transition,
        };
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        assert_eq!(
            gates_patch(&[gate(true)], now),
            json!({"status": {"conditions": [{"type": "KruisePodReady", "status": "False", "message": "[]",
                "lastTransitionTime": "2027-01-15T08:00:00Z"}]}})
        );
        let kept = gates_patch(&[gate(false)], now);
        assert_eq!(kept.pointer("/status/conditions/0/lastTransitionTime"), None);
    }

    #[test]
    fn images_go_where_their_containers_are() {
        let change = |container: &str, init| ImageChange {
            container: container.into(),
            init,
            image: "i".into(),
            tried: false,
        };
        assert_eq!(
            images_patch(&[change("app", false), change("proxy", true)]),
            json!({"spec": {"containers": [{"name": "app", "image": "i"}],
                "initContainers": [{"name": "proxy", "image": "i"}]}})
        );
        assert_eq!(images_patch(&[change("app", false)]).pointer("/spec/initContainers"), None);
    }

    #[test]
    fn only_the_amounts_that_change_are_written() {
        let resources =
            Resources { cpu_limit: Some(1500), memory_request: Some(64 << 20), ..Resources::default() };
        let change = |container: &str, init| ResourceChange {
            container: container.into(),
            init,
            resources,
            whole: resources,
        };
        let set = json!({"requests": {"memory": "64Mi"}, "limits": {"cpu": "1500m"}});
        assert_eq!(
            resources_patch(&[change("app", false), change("proxy", true)]),
            json!({"spec": {"containers": [{"name": "app", "resources": set}],
                "initContainers": [{"name": "proxy", "resources": set}]}})
        );
    }

    #[test]
    fn what_admission_changes_is_told() {
        let stored = |cpu| {
            let resources = Resources { cpu_limit: Some(cpu), memory_limit: Some(7), ..Resources::default() };
            let container = crate::pod::Container { name: "app".into(), resources, ..Default::default() };
            Pod { containers: vec![container], ..Pod::default() }
        };
        let resources = Resources { cpu_limit: Some(500), ..Resources::default() };
        let whole = Resources { memory_limit: Some(7), ..resources };
        let change = [ResourceChange { container: "app".into(), init: false, resources, whole }];
        assert_eq!(resized_otherwise(&stored(500), &change), None);
        assert!(resized_otherwise(&stored(400), &change).unwrap().contains("container app"));
        assert!(resized_otherwise(&Pod::default(), &change).is_some());
    }
}
