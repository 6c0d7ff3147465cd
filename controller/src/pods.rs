//! Changes of Pods: readiness conditions and image strings.

use chrono::{DateTime, SecondsFormat, Utc};
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client, Error};
use pitstop_controller_core::ObjectKey;
use pitstop_controller_core::action::{ImageChange, PodChange};
use pitstop_controller_core::readiness::GateChange;
use pitstop_kit::clock;
use serde_json::{Value, json};

use crate::observe::{self, SlimPod};

/// Changes Pods.
#[derive(Clone)]
pub struct Pods {
    client: Client,
}

/// The change's name in metrics.
pub fn name(change: &PodChange) -> &'static str {
    match change {
        PodChange::Gates(_) => "patch_pod_conditions",
        PodChange::Images(_) => "patch_pod_images",
    }
}

impl Pods {
    /// Changes Pods through `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Carries out one change, if the Pod is still that version.
    pub async fn patch(
        &self,
        key: &ObjectKey,
        uid: &str,
        resource_version: &str,
        change: &PodChange,
    ) -> kube::Result<SlimPod> {
        let api: Api<SlimPod> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut body = match change {
            PodChange::Gates(gates) => gates_patch(gates, clock::wall()),
            PodChange::Images(images) => images_patch(images),
        };
        if let Some(fields) = body.as_object_mut() {
            let version = json!({"uid": uid, "resourceVersion": resource_version});
            fields.insert("metadata".to_owned(), version);
        }
        let patch = Patch::Strategic(body);
        let params = PatchParams::default();
        match change {
            PodChange::Gates(_) => api.patch_status(&key.name, &params, &patch).await,
            PodChange::Images(images) => {
                // Admission of others may refuse the change or store something else: found out before anything ends.
                let admitted = api.patch(&key.name, &params.clone().dry_run(), &patch).await?;
                if let Some(other) = images.iter().find(|i| !stored(&observe::pod(admitted.clone()), i)) {
                    let text = format!(
                        "admission changes the image of container {} to another one than {}",
                        other.container, other.image
                    );
                    return Err(Error::Api(Status::failure(&text, "Invalid").with_code(422).boxed()));
                }
                api.patch(&key.name, &params, &patch).await
            }
        }
    }
}

fn stored(pod: &pitstop_controller_core::pod::Pod, change: &ImageChange) -> bool {
    pod.container(&change.container).is_some_and(|c| c.image == change.image)
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
