//! A workload as a whole object, so that unknown fields of its template are not lost.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodSpec;
use kube::ResourceExt as _;
use kube::core::{ApiResource, DynamicObject};
use pitstop_api::rollout::{PARKED, TargetKind};
use pitstop_api::text::quoted;
use serde_json::{Value, json};

use crate::change::Change;

/// From this partition on, no user expects updated Pods: admission takes it for a park (deploy/components/park).
const PARKED_PARTITION: i64 = 1_000_000;
/// The partition of a parked `StatefulSet`: above all ordinals.
const ABOVE_ALL: i64 = 2_147_483_647;

/// A `Deployment`, a `StatefulSet` or a `DaemonSet`.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its kind.
    pub kind: TargetKind,
    /// The object.
    pub object: DynamicObject,
}

/// The API resource of a kind of workload.
pub fn resource(kind: TargetKind) -> ApiResource {
    match kind {
        TargetKind::Deployment => ApiResource::erase::<Deployment>(&()),
        TargetKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        TargetKind::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
    }
}

/// Whether its own controller replaces Pods when the template changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Park {
    /// The controller replaces Pods.
    None,
    /// pitstop has parked it; this label value says how to release it.
    Parked(String),
    /// Its user has stopped it, by this field.
    ByUser(String),
}

impl Workload {
    /// `deployment/web`.
    pub fn target(&self) -> String {
        format!("{}/{}", self.kind.name().to_ascii_lowercase(), self.object.name_any())
    }

    fn field(&self, path: &str) -> Option<&Value> {
        self.object.data.pointer(path)
    }

    /// It has the label of a parked one.
    pub fn is_parked(&self) -> bool {
        self.object.labels().contains_key(PARKED)
    }

    /// Whether its own controller replaces Pods.
    pub fn park(&self) -> Park {
        if let Some(mark) = self.object.labels().get(PARKED) {
            return Park::Parked(mark.clone());
        }
        let on_delete = || self.field("/spec/updateStrategy/type").is_some_and(|it| it == "OnDelete");
        match self.kind {
            TargetKind::Deployment if self.is_paused() => Park::ByUser("spec.paused is true".to_owned()),
            TargetKind::StatefulSet | TargetKind::DaemonSet if on_delete() => {
                Park::ByUser("spec.updateStrategy.type is OnDelete".to_owned())
            }
            TargetKind::StatefulSet if self.partition() >= PARKED_PARTITION => {
                Park::ByUser(format!("spec.updateStrategy.rollingUpdate.partition is {}", self.partition()))
            }
            _ => Park::None,
        }
    }

    /// `spec.paused` of a `Deployment`.
    pub fn is_paused(&self) -> bool {
        self.field("/spec/paused") == Some(&Value::Bool(true))
    }

    fn partition(&self) -> i64 {
        self.field("/spec/updateStrategy/rollingUpdate/partition").and_then(Value::as_i64).unwrap_or_default()
    }

    /// The template's Pod spec. Fails if it cannot be read.
    pub fn pods(&self) -> Result<PodSpec, String> {
        let spec = self.field("/spec/template/spec").cloned().unwrap_or_default();
        serde_json::from_value(spec)
            .map_err(|error| format!("{}: spec.template.spec cannot be read: {error}", self.target()))
    }

    /// `spec.selector`.
    pub fn selector(&self) -> Value {
        self.field("/spec/selector").cloned().unwrap_or_default()
    }

    /// An annotation of the Pods.
    pub fn pod_annotation(&self, name: &str) -> Option<&str> {
        self.field("/spec/template/metadata/annotations")?.get(name)?.as_str()
    }

    /// Adds the park to a patch of the template, if the workload is not parked, and the `resourceVersion`. If the
    /// workload was released since it was read, its own controller would make new Pods: then the patch is a conflict.
    pub fn park_with(&self, patch: &mut Value) -> Result<(), String> {
        let version = &self.object.metadata.resource_version;
        Change::merge(json!({"metadata": {"resourceVersion": version}})).apply(patch);
        if let Some(park) = self.park_patch()? {
            Change::merge(park).apply(patch);
        }
        Ok(())
    }

    /// The part of a patch that parks it; `None` if it is parked. Fails if its user has stopped it.
    pub fn park_patch(&self) -> Result<Option<Value>, String> {
        let mark = match (self.park(), self.kind) {
            (Park::Parked(_), _) => return Ok(None),
            (Park::ByUser(how), _) => {
                return Err(format!(
                    "{}: {how}, which pitstop has not set: its Pods do not change until you undo that",
                    self.target()
                ));
            }
            (Park::None, TargetKind::Deployment) => "Unpaused".to_owned(),
            (Park::None, TargetKind::StatefulSet) => self.partition().to_string(),
            (Park::None, TargetKind::DaemonSet) => "RollingUpdate".to_owned(),
        };
        let spec = match self.kind {
            TargetKind::Deployment => json!({"paused": true}),
            TargetKind::StatefulSet => json!({"updateStrategy": {"rollingUpdate": {"partition": ABOVE_ALL}}}),
            TargetKind::DaemonSet => json!({"updateStrategy": {"type": "OnDelete"}}),
        };
        Ok(Some(json!({"metadata": {"labels": {PARKED: mark}}, "spec": spec})))
    }

    /// The change that releases it as its label says; `None` if it is not parked. Fails if the label's value is wrong.
    pub fn release_change(&self) -> Result<Option<Change>, String> {
        let Park::Parked(mark) = self.park() else { return Ok(None) };
        let (spec, expected) = match self.kind {
            TargetKind::Deployment => ((mark == "Unpaused").then(|| json!({"paused": null})), "Unpaused"),
            TargetKind::StatefulSet => {
                let partition = mark.parse::<i32>().ok().filter(|it| *it >= 0 && mark.len() <= 10);
                let spec =
                    partition.map(|it| json!({"updateStrategy": {"rollingUpdate": {"partition": it}}}));
                (spec, "the partition to release it to, such as 0")
            }
            TargetKind::DaemonSet => {
                let spec = json!({"updateStrategy": {"type": "RollingUpdate"}});
                ((mark == "RollingUpdate").then_some(spec), "RollingUpdate")
            }
        };
        let spec = spec.ok_or_else(|| {
            format!("{}: the label {PARKED} is {}; it must be {expected}", self.target(), quoted(&mark))
        })?;
        Ok(Some(Change::merge(json!({"metadata": {"labels": {PARKED: null}}, "spec": spec}))))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn workload(kind: TargetKind, labels: &Value, spec: &Value) -> Workload {
        let object =
            serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": kind.name(), "spec": spec,
            "metadata": {"name": "web", "namespace": "shop", "labels": labels, "resourceVersion": "7"}}))
            .unwrap();
        Workload { kind, object }
    }

    #[test]
    fn what_is_parked_is_released_to_just_what_it_was() {
        for (kind, spec) in [
            (TargetKind::Deployment, json!({"replicas": 3})),
            (
                TargetKind::StatefulSet,
                json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}),
            ),
            (
                TargetKind::DaemonSet,
                json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}}),
            ),
        ] {
            let before = workload(kind, &json!({"app": "web"}), &spec);
            assert_eq!(before.park(), Park::None);
            assert_eq!(before.release_change(), Ok(None));
            let mut object = serde_json::to_value(&before.object).unwrap();
            Change::strategic(before.park_patch().unwrap().unwrap()).apply(&mut object);
            let parked = Workload { kind, object: serde_json::from_value(object.clone()).unwrap() };
            assert!(parked.is_parked());
            assert_eq!(parked.park_patch(), Ok(None), "once is enough");
            parked.release_change().unwrap().unwrap().apply(&mut object);
            assert_eq!(object, serde_json::to_value(&before.object).unwrap(), "{kind:?}");
        }
        let plain = workload(TargetKind::StatefulSet, &json!({}), &json!({}));
        let parked = plain.park_patch().unwrap().unwrap();
        assert_eq!(parked["metadata"]["labels"][PARKED], "0");
        assert_eq!(parked["spec"]["updateStrategy"]["rollingUpdate"]["partition"], 2_147_483_647);
    }

    #[test]
    fn what_its_user_has_stopped_is_left_alone() {
        for (kind, spec, how) in [
            (TargetKind::Deployment, json!({"paused": true}), "spec.paused is true"),
            (TargetKind::DaemonSet, json!({"updateStrategy": {"type": "OnDelete"}}), "is OnDelete"),
            (TargetKind::StatefulSet, json!({"updateStrategy": {"type": "OnDelete"}}), "is OnDelete"),
            (
                TargetKind::StatefulSet,
                json!({"updateStrategy": {"rollingUpdate": {"partition": 1_000_000}}}),
                "partition is 1000000",
            ),
        ] {
            let stopped = workload(kind, &json!({}), &spec);
            assert!(stopped.park_patch().unwrap_err().contains(how), "{kind:?}");
            assert_eq!(stopped.release_change(), Ok(None));
        }
    }

    #[test]
    fn a_label_that_says_nothing_is_named_with_what_would_be_right() {
        for (kind, mark, expected) in [
            (
                TargetKind::Deployment,
                "0",
                "deployment/web: the label pitstop.dev/parked is \"0\"; it must be Unpaused",
            ),
            (TargetKind::StatefulSet, "-1", "it must be the partition to release it to, such as 0"),
            (TargetKind::StatefulSet, "99999999999", "it must be the partition"),
            (TargetKind::DaemonSet, "OnDelete", "it must be RollingUpdate"),
        ] {
            let odd = workload(kind, &json!({"pitstop.dev/parked": mark}), &json!({}));
            assert!(odd.release_change().unwrap_err().contains(expected), "{kind:?}");
        }
    }
}
