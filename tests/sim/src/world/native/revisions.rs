//! `StatefulSet` and `DaemonSet`: a label shows the revision of each Pod.
//!
//! They replace one Pod at a time, from the highest index down, and create all missing Pods at once.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::World;
use super::super::objects::NAMESPACE;
use super::{Actor, active, generation, hash, number, owned, ready, text};

/// Label of a Pod's revision.
const REVISION: &str = "controller-revision-hash";

/// A revision of a workload.
struct Revision {
    label: String,
    template: Value,
}

fn template(revision: &Value) -> Value {
    let mut template = revision["data"]["spec"]["template"].clone();
    template.as_object_mut().map(|fields| fields.remove("$patch"));
    template
}

fn label(pod: &Value) -> &str {
    pod["metadata"]["labels"][REVISION].as_str().unwrap_or_default()
}

impl World {
    pub(super) fn revisions_turn(&mut self, set: &Value) {
        let update = self.update_revision(set);
        let stateful = set["kind"] == "StatefulSet";
        let desired = if stateful { number(&set["spec"]["replicas"]) } else { self.schedule.members() };
        let strategy = &set["spec"]["updateStrategy"];
        let partition = number(&strategy["rollingUpdate"]["partition"]);
        let name = set["status"]["currentRevision"].as_str().unwrap_or(&update.label);
        let current = self.server.object("ControllerRevision", NAMESPACE, name);
        let current =
            current.map(|revision| Revision { label: name.to_owned(), template: template(revision) });
        for at in 0..self.schedule.members() {
            match self.native_pod(at) {
                None if at < desired => {
                    let of = current.as_ref().filter(|_| stateful && at < partition).unwrap_or(&update);
                    self.native_makes(at, set, &of.template, Some(&of.label));
                }
                Some(pod) if at >= desired && active(&pod) => self.native_deletes(&pod),
                _ => {}
            }
        }
        if strategy["type"] == "RollingUpdate" {
            self.replace_one(partition..desired, &update);
        }
        self.report_revisions(set, &update, desired);
    }

    /// The revision of the template: created if missing, and made the newest.
    fn update_revision(&mut self, set: &Value) -> Revision {
        let wanted = &set["spec"]["template"];
        let revisions = self.natives.all(Actor::Workload, "ControllerRevision");
        let newest = revisions.iter().map(|revision| number(&revision["revision"])).max().unwrap_or_default();
        if let Some(same) = revisions.iter().find(|revision| template(revision) == *wanted) {
            if number(&same["revision"]) < newest {
                self.native_writes(same, |revision| revision["revision"] = (newest + 1).into());
            }
            let label = if set["kind"] == "StatefulSet" { text(same, "name") } else { label(same) };
            return Revision { label: label.to_owned(), template: wanted.clone() };
        }
        let hash = hash(wanted);
        let name = format!("{}-{hash}", text(set, "name"));
        if self.server.object("ControllerRevision", NAMESPACE, &name).is_none() {
            let mut labels = wanted["metadata"]["labels"].clone();
            labels[REVISION] = hash.clone().into();
            let mut kept = wanted.clone();
            kept["$patch"] = "replace".into();
            self.native_creates(
                "ControllerRevision",
                json!({"metadata": {"name": name, "namespace": NAMESPACE, "labels": labels,
                    "ownerReferences": owned(set)},
                    "data": {"spec": {"template": kept}}, "revision": newest + 1}),
            );
        }
        let label = if set["kind"] == "StatefulSet" { name } else { hash };
        Revision { label, template: wanted.clone() }
    }

    /// Deletes the last Pod of another revision in `indices`, if none is missing or being deleted.
    fn replace_one(&mut self, indices: std::ops::Range<usize>, update: &Revision) {
        let pods: Vec<Option<Arc<Value>>> = indices.map(|at| self.native_seen(Actor::Workload, at)).collect();
        let there: Vec<&Arc<Value>> = pods.iter().flatten().filter(|pod| active(pod)).collect();
        if there.len() == pods.len()
            && let Some(old) = there.into_iter().rev().find(|pod| label(pod) != update.label)
        {
            self.native_deletes(old);
        }
    }

    /// Writes the status of the workload.
    fn report_revisions(&mut self, set: &Value, update: &Revision, desired: usize) {
        let pods = (0..self.schedule.members()).filter_map(|at| self.native_seen(Actor::Workload, at));
        let pods: Vec<_> = pods.filter(|pod| active(pod)).collect();
        let updated = pods.iter().filter(|pod| label(pod) == update.label).count();
        let able = pods.iter().filter(|pod| ready(pod)).count();
        let mut status = json!({"observedGeneration": generation(set)});
        if set["kind"] == "StatefulSet" {
            let before = set["status"]["currentRevision"].as_str().unwrap_or(&update.label);
            let rolling = set["spec"]["updateStrategy"]["type"] == "RollingUpdate";
            let complete = rolling && updated == desired && able == desired;
            status["currentRevision"] = if complete { &*update.label } else { before }.into();
            status["updateRevision"] = update.label.clone().into();
            status["replicas"] = pods.len().into();
            status["readyReplicas"] = able.into();
            status["updatedReplicas"] = updated.into();
        } else {
            status["desiredNumberScheduled"] = desired.into();
            status["currentNumberScheduled"] = pods.len().into();
            status["updatedNumberScheduled"] = updated.into();
        }
        self.native_writes(set, |set| set["status"] = status);
    }
}
