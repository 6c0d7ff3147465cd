//! A Pod's metadata with what decisions need, without `managedFields`, which are most of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use pitstop_api::rollout::POD_REVISION;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::pod::label_hashes;
use crate::workload::revision_hash;

/// Annotation of a Pod that mirrors a static one.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Label of a Pod that names its revision, of a `StatefulSet` or a `DaemonSet`.
pub(super) const REVISION: &str = "controller-revision-hash";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    owner_references: Option<Vec<OwnerReference>>,
    annotations: SlimAnnotations,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimAnnotations {
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<IgnoredAny>,
    #[serde(rename = "pitstop.dev/revision")]
    revision: Option<String>,
}

/// Reads the metadata.
pub(super) fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = SlimMeta::deserialize(deserializer)?;
    let SlimAnnotations { mirror, revision } = slim.annotations;
    let annotations = [(MIRROR, mirror.map(|_| String::new())), (POD_REVISION, revision)];
    let annotations = annotations.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        owner_references: slim.owner_references,
        annotations: Some(annotations.collect()),
        labels: slim.labels,
        ..ObjectMeta::default()
    })
}

/// [Hash](revision_hash) of the revision of a Pod: its controller's for a `StatefulSet` or a `DaemonSet`; for a
/// `Deployment`, the one that it was updated to.
pub(super) fn pod_revision(pod: &ObjectMeta) -> u64 {
    let label = pod.labels.as_ref().and_then(|labels| labels.get(REVISION));
    label.map_or_else(|| pod_mark(pod), |revision| revision_hash(revision))
}

/// The same, by pitstop's mark alone.
pub(super) fn pod_mark(pod: &ObjectMeta) -> u64 {
    let annotation = pod.annotations.as_ref().and_then(|annotations| annotations.get(POD_REVISION));
    annotation.map_or(0, |revision| revision_hash(revision))
}

/// Hashes of a Pod's labels.
pub(super) fn pod_labels(pod: &ObjectMeta) -> Box<[u64]> {
    pod.labels.as_ref().map(label_hashes).unwrap_or_default().into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decisions_do_not_need_is_not_read() {
        let text = r#"{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7","generation":2,
          "deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"a":"b","controller-revision-hash":"web-5d"},
          "annotations":{"kubernetes.io/config.mirror":"x","other":"y","pitstop.dev/revision":"5d"},
          "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"r","controller":true}],
          "managedFields":["no entry of such a list"]}"#;
        let read = metadata(&mut serde_json::Deserializer::from_str(text)).unwrap();
        assert_eq!(read.managed_fields, None);
        assert_eq!(pod_revision(&read), revision_hash("web-5d"));
        let annotated = ObjectMeta { labels: None, ..read.clone() };
        assert_eq!(pod_revision(&annotated), revision_hash("5d"));
        assert_eq!(pod_revision(&ObjectMeta::default()), 0);
        assert_eq!(pod_mark(&read), revision_hash("5d"));
        assert_eq!(read.labels.as_ref().unwrap().len(), 2);
        assert_eq!(*pod_labels(&read), *label_hashes(read.labels.as_ref().unwrap()));
        assert_eq!(read.annotations.unwrap().keys().collect::<Vec<_>>(), [MIRROR, POD_REVISION]);
        assert_eq!((read.name.as_deref(), read.namespace.as_deref()), (Some("web"), Some("shop")));
        assert_eq!((read.uid.as_deref(), read.resource_version.as_deref()), (Some("u"), Some("7")));
        assert_eq!((read.generation, read.deletion_timestamp.is_some()), (Some(2), true));
        assert_eq!(read.owner_references.unwrap()[0].kind, "ReplicaSet");
    }
}
