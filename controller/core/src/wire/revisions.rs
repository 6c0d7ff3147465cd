//! What a workload, and the `ControllerRevision`s of a `StatefulSet` or a `DaemonSet`, say of its template.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pitstop_api::logic::answer::Failure;
use pitstop_api::rollout::{PARKED, TargetKind};
use serde::Deserialize;
use serde_json::Value;

use super::metadata::REVISION;
use crate::template::{Change, identity};
use crate::workload::{Sets, Template, WorkloadQuery};

/// Most revisions that a workload may have; it keeps 10 by default.
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
    /// Only of a `Deployment`.
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
    /// Only of a `DaemonSet`.
    current_number_scheduled: i64,
    /// Only of a `DaemonSet`.
    updated_number_scheduled: i64,
}

/// `spec.template`, and what is known before its revisions are read.
pub(super) fn template(query: &WorkloadQuery, object: Templated) -> (Value, Template) {
    let kind = query.kind.unwrap_or_default();
    let Templated { metadata, spec, status } = object;
    let generation = metadata.generation.unwrap_or_default();
    let UpdateStrategy { type_, rolling_update } = spec.update_strategy;
    let desired = spec.replicas.unwrap_or(1);
    let counted = status.replicas == desired && status.updated_replicas == desired;
    let (holds, revision, committed) = match kind {
        TargetKind::StatefulSet => {
            let revision = named(&status.update_revision);
            let committed = status.update_revision == status.current_revision;
            (rolling_update.partition >= PARTITION, revision, committed)
        }
        TargetKind::DaemonSet => {
            // Its controller sees marks of Pods some time later, and deletes Pods whose marks it has not seen yet.
            let counted = status.updated_number_scheduled >= status.current_number_scheduled;
            (type_ == "OnDelete", None, counted)
        }
        TargetKind::Deployment => (spec.paused, Some(identity(&spec.template, &query.restarts)), counted),
    };
    let template = Template {
        generation,
        resource_version: metadata.resource_version.unwrap_or_default(),
        seen: status.observed_generation >= generation,
        parked: metadata.labels.and_then(|mut labels| labels.remove(PARKED)),
        holds,
        revision,
        committed,
        updated: match kind {
            TargetKind::StatefulSet => u32::try_from(status.updated_replicas).unwrap_or_default(),
            TargetKind::Deployment | TargetKind::DaemonSet => 0,
        },
        previous: named(&status.current_revision),
        back: query.back.clone(),
        changes: BTreeMap::new(),
        sets: Sets { kept: spec.revision_history_limit != Some(0), ..Sets::default() },
    };
    (spec.template, template)
}

fn named(revision: &str) -> Option<String> {
    (!revision.is_empty()).then(|| revision.to_owned())
}

/// A `ControllerRevision`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SlimRevision {
    pub(super) metadata: ObjectMeta,
    /// The higher, the newer.
    #[serde(default)]
    revision: i64,
    #[serde(default)]
    data: Value,
}

impl SlimRevision {
    /// The label `controller-revision-hash` of its Pods.
    fn label(&self, kind: TargetKind) -> Option<&str> {
        match kind {
            TargetKind::StatefulSet => self.metadata.name.as_deref(),
            TargetKind::DaemonSet | TargetKind::Deployment => {
                self.metadata.labels.as_ref()?.get(REVISION).map(String::as_str)
            }
        }
    }

    fn template(&self) -> Option<&Value> {
        self.data.pointer("/spec/template")
    }
}

/// Takes in what the template has changed since these revisions, once `all` are read. For a `DaemonSet`, the revision
/// with the same template is the current one, and the newest of the others the previous one.
pub(super) fn take(
    query: &WorkloadQuery,
    now: &Value,
    template: &mut Template,
    revisions: &mut Vec<SlimRevision>,
    all: bool,
) -> Result<(), Failure> {
    if revisions.len() > MAX_REVISIONS {
        let text = format!("it has more than {MAX_REVISIONS} ControllerRevisions");
        return Err(Failure::of_code(422, text));
    }
    if !all {
        return Ok(());
    }
    let revisions = std::mem::take(revisions);
    let known =
        || revisions.iter().filter_map(|one| Some((one.revision, one.label(query.kind?)?, one.template()?)));
    let to = |goal: &Value| -> BTreeMap<String, Change> {
        known()
            .map(|(_, label, then)| (label.to_owned(), Change::between(then, goal, &query.restarts)))
            .collect()
    };
    let changes = to(now);
    if query.kind == Some(TargetKind::DaemonSet) {
        let is_now = |label: &str| changes.get(label).is_some_and(Change::is_none);
        let (new, old): (Vec<_>, Vec<_>) = known().partition(|(_, label, _)| is_now(label));
        template.revision = new.last().map(|(_, label, _)| (*label).to_owned());
        let before = old.into_iter().max_by_key(|(revision, ..)| *revision);
        template.previous = before.map(|(_, label, _)| label.to_owned());
    }
    template.changes = match query.back.as_deref() {
        None => changes,
        // Without this revision, nothing is known of the others.
        Some(back) => {
            known().find(|(_, label, _)| *label == back).map(|(.., then)| to(then)).unwrap_or_default()
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::key::ObjectKey;

    fn query(kind: TargetKind) -> WorkloadQuery {
        let key = ObjectKey::new("shop", "web");
        let restarts = Vec::new();
        WorkloadQuery { kind: Some(kind), key, template: true, restarts, ..WorkloadQuery::default() }
    }
    use crate::template::{Delta, Image};

    fn revision(name: &str, image: &str) -> SlimRevision {
        let object = json!({"metadata": {"name": format!("web-{name}"), "labels": {REVISION: name}},
            "revision": i64::from(name.as_bytes()[0]), "data": {"spec": {"template": {"$patch": "replace", "metadata": {"creationTimestamp": null},
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
        let status = json!({"observedGeneration": 3, "currentRevision": "web-a", "updateRevision": "web-b", "updatedReplicas": 1});
        let (now, mut found) = template(&query(TargetKind::StatefulSet), object(&strategy, &status));
        let query = query(TargetKind::StatefulSet);
        let mut read = vec![revision("a", "web:1")];
        take(&query, &now, &mut found, &mut read, false).unwrap();
        assert!(found.changes.is_empty(), "not all are read");
        read.push(revision("b", "web:2"));
        take(&query, &now, &mut found, &mut read, true).unwrap();
        let image = Image { container: "app".into(), image: "web:2".into(), before: "web:1".into() };
        let expected = Template {
            generation: 3,
            resource_version: "7".into(),
            seen: true,
            parked: Some("2".into()),
            holds: true,
            revision: Some("web-b".into()),
            committed: false,
            updated: 1,
            previous: Some("web-a".into()),
            back: None,
            changes: [
                ("web-a".into(), Change::InPlace(Delta { images: vec![image], ..Delta::default() })),
                ("web-b".into(), Change::InPlace(Delta::default())),
            ]
            .into(),
            sets: Sets { kept: true, ..Sets::default() },
        };
        assert_eq!(found, expected);
        let at_work = json!({"rollingUpdate": {"partition": 2}});
        let done = json!({"observedGeneration": 2, "currentRevision": "web-b", "updateRevision": "web-b"});
        let (_, found) = template(&query, object(&at_work, &done));
        assert_eq!((found.seen, found.holds, found.committed), (false, false, true));
    }

    #[test]
    fn of_a_daemon_set_the_revision_has_the_same_template() {
        let counts = |updated: i64| {
            let status = json!({"observedGeneration": 3, "currentNumberScheduled": 2,
                "updatedNumberScheduled": updated, "desiredNumberScheduled": 3});
            template(&query(TargetKind::DaemonSet), object(&json!({"type": "OnDelete"}), &status))
        };
        assert!(!counts(1).1.committed, "it has yet to see that the other one is marked");
        let (now, mut found) = counts(2);
        assert_eq!((found.holds, &found.revision), (true, &None));
        let read = |query: &WorkloadQuery, found: &mut Template, all: &[(&str, &str)]| {
            let mut revisions = all.iter().map(|(name, image)| revision(name, image)).collect();
            take(query, &now, found, &mut revisions, true).map_err(|failure| failure.message)
        };
        let query = query(TargetKind::DaemonSet);
        read(&query, &mut found, &[("a", "web:1")]).unwrap();
        assert_eq!(found.revision, None, "its controller has not made it yet");
        read(&query, &mut found, &[("d", "web:2"), ("b", "web:1"), ("a", "web:0")]).unwrap();
        assert_eq!((found.revision.as_deref(), found.committed, found.changes.len()), (Some("d"), true, 3));
        assert_eq!(found.previous.as_deref(), Some("b"), "the newest of the others");
        let many = vec![("a", "web:1"); 101];
        assert_eq!(read(&query, &mut found, &many).unwrap_err(), "it has more than 100 ControllerRevisions");
    }

    #[test]
    fn revisions_are_compared_with_an_older_one_that_pods_go_back_to() {
        let strategy = json!({"rollingUpdate": {"partition": 2_147_483_647}});
        let status = json!({"observedGeneration": 3, "currentRevision": "web-a", "updateRevision": "web-b"});
        let back = |to: &str| {
            let query = WorkloadQuery { back: Some(to.into()), ..query(TargetKind::StatefulSet) };
            let (now, mut found) = template(&query, object(&strategy, &status));
            let mut read = vec![revision("a", "web:1"), revision("b", "web:2")];
            take(&query, &now, &mut found, &mut read, true).unwrap();
            assert_eq!((found.revision.as_deref(), found.back.as_deref()), (Some("web-b"), Some(to)));
            found.changes
        };
        let image = Image { container: "app".into(), image: "web:1".into(), before: "web:2".into() };
        let changes = [
            ("web-a".into(), Change::InPlace(Delta::default())),
            ("web-b".into(), Change::InPlace(Delta { images: vec![image], ..Delta::default() })),
        ];
        assert_eq!(back("web-a"), changes.into());
        assert!(back("web-0").is_empty(), "that one is not kept");
    }
}
