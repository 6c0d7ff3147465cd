//! Changes of Pods: readiness conditions and image strings.

use chrono::{DateTime, SecondsFormat, Utc};
use kube::Resource;
use kube::core::params::{Patch, PatchParams};
use kube::core::{Request as Builder, request};
use serde_json::{Value, json};

use super::exchange::HttpRequest;
use super::observe::SlimPod;
use crate::action::ImageChange;
use crate::key::ObjectKey;
use crate::pod::Pod;
use crate::readiness::GateChange;

/// The version of a Pod that a change relies on.
#[derive(Clone, Copy)]
pub(super) struct Version<'a> {
    pub(super) uid: &'a str,
    pub(super) resource_version: &'a str,
}

impl Version<'_> {
    fn guard(self, mut patch: Value) -> Patch<Value> {
        if let Some(fields) = patch.as_object_mut() {
            let version = json!({"uid": self.uid, "resourceVersion": self.resource_version});
            fields.insert("metadata".to_owned(), version);
        }
        Patch::Strategic(patch)
    }
}

fn at(key: &ObjectKey) -> Builder {
    Builder::new(SlimPod::url_path(&(), Some(&key.namespace)))
}

/// Sets conditions; `wall` is when those that change do.
pub(super) fn patch_gates(
    key: &ObjectKey,
    version: Version<'_>,
    gates: &[GateChange],
    wall: DateTime<Utc>,
) -> Result<HttpRequest, request::Error> {
    let patch = version.guard(gates_patch(gates, wall));
    at(key).patch_subresource("status", &key.name, &PatchParams::default(), &patch)
}

/// Sets image strings, or finds out what would be stored.
pub(super) fn patch_images(
    key: &ObjectKey,
    version: Version<'_>,
    images: &[ImageChange],
    dry_run: bool,
) -> Result<HttpRequest, request::Error> {
    let params = PatchParams { dry_run, ..PatchParams::default() };
    at(key).patch(&key.name, &params, &version.guard(images_patch(images)))
}

/// What admission made of a dry run that is not what was asked for, as a sentence.
pub(super) fn altered(admitted: &Pod, images: &[ImageChange]) -> Option<String> {
    let stored = |i: &&ImageChange| admitted.container(&i.container).is_some_and(|c| c.image == i.image);
    let other = images.iter().find(|i| !stored(i))?;
    Some(format!(
        "admission changes the image of container {} to another one than {}",
        other.container, other.image
    ))
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
    let of = |init: bool| -> Vec<Value> {
        let chosen = images.iter().filter(|i| i.init == init);
        chosen.map(|i| json!({"name": i.container, "image": i.image})).collect()
    };
    let mut spec = serde_json::Map::new();
    for (field, init) in [("containers", false), ("initContainers", true)] {
        let list = of(init);
        if !list.is_empty() {
            spec.insert(field.to_owned(), Value::Array(list));
        }
    }
    json!({"spec": spec})
}

#[cfg(test)]
mod tests {
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
        let change =
            |container: &str, init| ImageChange { container: container.into(), init, image: "i".into() };
        assert_eq!(
            images_patch(&[change("app", false), change("proxy", true)]),
            json!({"spec": {"containers": [{"name": "app", "image": "i"}],
                "initContainers": [{"name": "proxy", "image": "i"}]}})
        );
        assert_eq!(images_patch(&[change("app", false)]).pointer("/spec/initContainers"), None);
    }
}
