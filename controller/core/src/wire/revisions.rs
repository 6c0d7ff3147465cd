//! What a workload says of its template, and what the `ControllerRevision`s of a `StatefulSet` or a `DaemonSet` do.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pitstop_api::logic::answer::Failure;
use pitstop_api::rollout::{PARKED, TargetKind};
use serde::Deserialize;
use serde_json::Value;

use super::metadata::REVISION;
use crate::template::{Change, identity, wanted};
use crate::workload::{Sets, Template, WorkloadQuery};

/// Most revisions that a workload may have; it keeps 10 where nothing else is said.
pub(super) const MAX_REVISIONS: usize = 100;
/// From this partition on, a `StatefulSet` is parked: it cannot have so many Pods.
const PARTITION: i64 = 1_000_000;

/// A workload with its template.
#[derive(Deserialize)]
pub(super) struct Templated {
    metadata: ObjectMeta,
    spec: TemplatedSpec,
    #[serde(default)]
    status: TemplatedStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TemplatedSpec {
    template: Value,
    #[serde(default)]
    update_strategy: UpdateStrategy,
    /// These of a `Deployment`.
    #[serde(default)]
    paused: bool,
    replicas: Option<i64>,
    revision_history_limit: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UpdateStrategy {
    #[serde(rename = "type")]
    type_: String,
    rolling_update: Partition,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Partition {
    partition: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplatedStatus {
    observed_generation: i64,
    current_revision: String,
    update_revision: String,
    replicas: i64,
    updated_replicas: i64,
}

/// `spec.template`, and what is known before its revisions are read.
pub(super) fn template(query: &WorkloadQuery, object: Templated) -> (Value, Template) {
    let kind = query.kind;
    let Templated { metadata, spec, status } = object;
    let generation = metadata.generation.unwrap_or_default();
    let UpdateStrategy { type_, rolling_update } = spec.update_strategy;
    let desired = spec.replicas.unwrap_or(1);
    let counted = status.replicas == desired && status.updated_replicas == desired;
    let (holds, revision, committed) = match kind {
        TargetKind::StatefulSet => {
            let revision = Some(status.update_revision).filter(|revision| !revision.is_empty());
            let committed = revision.as_ref() == Some(&status.current_revision);
            (rolling_update.partition >= PARTITION, revision, committed)
        }
        TargetKind::DaemonSet => (type_ == "OnDelete", None, true),
        TargetKind::Deployment => (spec.paused, Some(identity(&spec.template, &query.restarts)), counted),
    };
    let told = Template {
        generation,
        resource_version: metadata.resource_version.unwrap_or_default(),
        seen: status.observed_generation >= generation,
        parked: metadata.labels.and_then(|mut labels| labels.remove(PARKED)),
        holds,
        revision,
        committed,
        changes: BTreeMap::new(),
        sets: Sets {
            kept: spec.revision_history_limit != Some(0),
            wanted: if kind == TargetKind::Deployment { wanted(&spec.template) } else { BTreeMap::new() },
            ..Sets::default()
        },
    };
    (spec.template, told)
}

/// A `ControllerRevision`.
#[derive(Deserialize)]
pub(super) struct SlimRevision {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    data: Value,
}

/// Takes in what the template has changed since those. Of a `DaemonSet`, the revision with the same template is that of its
/// Pods.
pub(super) fn take(
    query: &WorkloadQuery,
    now: &Value,
    template: &mut Template,
    revisions: Vec<SlimRevision>,
) -> Result<(), Failure> {
    for SlimRevision { metadata, data } in revisions {
        let label = match query.kind {
            TargetKind::StatefulSet => metadata.name,
            TargetKind::DaemonSet | TargetKind::Deployment => {
                metadata.labels.and_then(|mut labels| labels.remove(REVISION))
            }
        };
        let (Some(label), Some(then)) = (label, data.pointer("/spec/template")) else { continue };
        let change = Change::between(then, now, &query.restarts);
        if query.kind == TargetKind::DaemonSet && change.is_none() {
            template.revision = Some(label.clone());
        }
        template.changes.insert(label, change);
    }
    if template.changes.len() > MAX_REVISIONS {
        let text = format!("it has more than {MAX_REVISIONS} ControllerRevisions");
        return Err(Failure::of_code(422, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::key::ObjectKey;

    fn query(kind: TargetKind) -> WorkloadQuery {
        let key = ObjectKey::new("shop", "web");
        WorkloadQuery { kind, key, pods: false, budgets: false, template: true, restarts: Vec::new() }
    }
    use crate::template::{Image, Lacks};

    fn revision(name: &str, image: &str) -> SlimRevision {
        let object = json!({"metadata": {"name": format!("web-{name}"), "labels": {REVISION: name}},
            "data": {"spec": {"template": {"$patch": "replace", "metadata": {"creationTimestamp": null},
                "spec": {"containers": [{"name": "app", "image": image}]}}}}});
        serde_json::from_value(object).unwrap()
    }

    fn object(strategy: &Value, status: &Value) -> Templated {
        let object = json!({"metadata": {"generation": 3, "resourceVersion": "7", "labels": {"pitstop.dev/parked": "2"}},
            "spec": {"updateStrategy": strategy,
                "template": {"metadata": {}, "spec": {"containers": [{"name": "app", "image": "web:2"}]}}},
            "status": status});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_stateful_set_names_its_revisions() {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2_147_483_647}});
        let status = json!({"observedGeneration": 3, "currentRevision": "web-a", "updateRevision": "web-b"});
        let (now, mut told) = template(&query(TargetKind::StatefulSet), object(&strategy, &status));
        take(
            &query(TargetKind::StatefulSet),
            &now,
            &mut told,
            vec![revision("a", "web:1"), revision("b", "web:2")],
        )
        .unwrap();
        let image = Image { container: "app".into(), image: "web:2".into(), before: "web:1".into() };
        let expected = Template {
            generation: 3,
            resource_version: "7".into(),
            seen: true,
            parked: Some("2".into()),
            holds: true,
            revision: Some("web-b".into()),
            committed: false,
            changes: [
                ("web-a".into(), Change::InPlace(Lacks { images: vec![image], ..Lacks::default() })),
                ("web-b".into(), Change::InPlace(Lacks::default())),
            ]
            .into(),
            sets: Sets { kept: true, ..Sets::default() },
        };
        assert_eq!(told, expected);
        let at_work = json!({"rollingUpdate": {"partition": 2}});
        let done = json!({"observedGeneration": 2, "currentRevision": "web-b", "updateRevision": "web-b"});
        let (_, told) = template(&query(TargetKind::StatefulSet), object(&at_work, &done));
        assert_eq!((told.seen, told.holds, told.committed), (false, false, true));
    }

    #[test]
    fn of_a_daemon_set_the_revision_has_the_same_template() {
        let status = json!({"observedGeneration": 3});
        let (now, mut told) =
            template(&query(TargetKind::DaemonSet), object(&json!({"type": "OnDelete"}), &status));
        assert_eq!((told.holds, &told.revision), (true, &None));
        take(&query(TargetKind::DaemonSet), &now, &mut told, vec![revision("a", "web:1")]).unwrap();
        assert_eq!(told.revision, None, "its controller has not made it yet");
        take(&query(TargetKind::DaemonSet), &now, &mut told, vec![revision("b", "web:2")]).unwrap();
        assert_eq!((told.revision.as_deref(), told.committed, told.changes.len()), (Some("b"), true, 2));
        let many = (0..101).map(|i| revision(&i.to_string(), "web:1")).collect();
        let failure = take(&query(TargetKind::DaemonSet), &now, &mut told, many).unwrap_err();
        assert_eq!(failure.message, "it has more than 100 ControllerRevisions");
    }
}
