//! The workload: its template, its park, and whether its native controllers agree that it is up to date.

use pitstop_api::rollout::{PARKED, Update};
use serde_json::Value;

use super::pods::{active, has_images};
use super::{Parks, uid};
use crate::oracle::Writer;
use crate::oracle::Wrote;
use crate::oracle::rules::Found;
use crate::server::Server;

/// Minimum time that a workload stays parked after its rollout is deleted, by a clock that is one percent
/// fast.
const PATIENCE: u64 = 29_700;
/// Time within which the controller knows of a new rollout.
const LAG: u64 = 20_000;

/// A template, from this generation on.
pub(super) struct Change {
    pub(super) generation: i64,
    pub(super) template: Value,
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_i64().unwrap_or_default()).unwrap_or_default()
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// Whether its strategy is that of a parked workload.
fn holds(workload: &Value) -> bool {
    let strategy = &workload["spec"]["updateStrategy"];
    workload["spec"]["paused"] == true
        || strategy["type"] == "OnDelete"
        || number(&strategy["rollingUpdate"]["partition"]) > 1_000_000
}

/// The value of its label, if it is parked.
pub(super) fn parked(workload: &Value) -> Option<&str> {
    workload["metadata"]["labels"][PARKED].as_str()
}

/// A template without the label that each `ReplicaSet` gives its own.
fn bare(template: &Value) -> Value {
    let mut template = template.clone();
    template["metadata"]["labels"].as_object_mut().map(|labels| labels.remove("pod-template-hash"));
    template
}

/// Number of Pods that it wants.
pub(super) fn desired(workload: &Value) -> usize {
    match workload["kind"].as_str() {
        Some("DaemonSet") => number(&workload["status"]["desiredNumberScheduled"]),
        _ => number(&workload["spec"]["replicas"]),
    }
}

/// Checks that the native controllers take the existing Pods for those of the template; the error says why
/// not. Pods below `partition` are left alone.
pub(super) fn agrees(workload: &Value, partition: usize, server: &Server) -> Result<(), String> {
    let status = &workload["status"];
    let seen = status["observedGeneration"].as_i64().unwrap_or_default();
    let yes = match workload["kind"].as_str() {
        Some("StatefulSet") => partition > 0 || status["currentRevision"] == status["updateRevision"],
        Some("Deployment") => {
            let all = number(&workload["spec"]["replicas"]);
            let own = |set: &&std::sync::Arc<Value>| number(&set["spec"]["replicas"]) > 0;
            let template = bare(&workload["spec"]["template"]);
            let of = |set: &std::sync::Arc<Value>| bare(&set["spec"]["template"]) == template;
            let counts = [number(&status["replicas"]), number(&status["updatedReplicas"])];
            counts == [all, all] && server.objects("ReplicaSet").filter(own).all(of)
        }
        _ => number(&status["updatedNumberScheduled"]) >= number(&status["currentNumberScheduled"]),
    };
    if seen < generation(workload) || !yes {
        return Err(format!("generation {} has {status}", generation(workload)));
    }
    Ok(())
}

/// Checks that every Pod has the images of the template; the error names a Pod that has not.
pub(super) fn all_have(
    workload: &Value,
    template: &Value,
    partition: usize,
    server: &Server,
) -> Result<(), String> {
    let ordinal = |pod: &Value| -> Option<usize> {
        let name = pod["metadata"]["name"].as_str()?;
        name.rsplit('-').next()?.parse().ok().filter(|_| workload["kind"] == "StatefulSet")
    };
    for pod in server.objects("Pod").filter(|pod| active(pod)) {
        if ordinal(pod).is_none_or(|ordinal| ordinal >= partition) {
            has_images(pod, template).map_err(|why| format!("Pod {} has {why}", pod["metadata"]["name"]))?;
        }
    }
    Ok(())
}

impl Parks {
    /// The template that it had in this generation.
    pub(super) fn template_at(&self, generation: i64) -> Option<&Change> {
        self.changes.iter().rfind(|change| change.generation <= generation)
    }

    /// The partition that its user set.
    pub(super) fn partition(&self) -> usize {
        let partition = self.schedule.workload.as_ref().map(|workload| workload.partition);
        usize::try_from(partition.unwrap_or_default()).unwrap_or_default()
    }

    pub(super) fn workload_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, server, .. } = *wrote;
        let Some(new) = after else { return };
        self.changed = self.now;
        self.desired = desired(new);
        let template = &new["spec"]["template"];
        if before.is_none_or(|old| parked(old).is_none()) && parked(new).is_some() {
            self.parked_since = generation(new);
        }
        if self.changes.last().is_none_or(|last| last.template != *template) {
            self.changes.push(Change { generation: generation(new), template: template.clone() });
        }
        let Some(old) = before else { return };
        if desired(new) < desired(old) {
            self.scaled = Some(self.now);
        }
        self.parked = parked(new).is_some();
        if self.parked {
            (self.released, self.left_parked) = (None, false);
        }
        if parked(old).is_none() || parked(new).is_some() {
            return;
        }
        self.released = Some(self.now);
        if writer != Writer::Controller {
            self.let_go = true;
            return;
        }
        if self.is_abandoned(new, found) {
            self.abandoned = true;
            return;
        }
        let given_up = self.followed.values().any(|followed| {
            let update = super::status(&followed.object).update;
            let ended = update.and_then(|update| update.ended);
            ended.is_some_and(|ended| !["Updated", "RolledBack"].contains(&ended.name()))
        });
        if given_up || desired(old) == 0 {
            return;
        }
        let agrees = agrees(old, self.partition(), server);
        let fine = agrees.and_then(|()| all_have(old, &old["spec"]["template"], self.partition(), server));
        if let Err(why) = fine {
            found.push(("W10", format!("the workload is released, and {why}")));
        }
        if let Some(open) = self.open().next() {
            found.push(("W10", format!("the workload is released, and a request for {open} is open")));
        }
    }

    /// Whether it is released because no rollout looks after it, as far as the controller knows.
    fn is_abandoned(&mut self, workload: &Value, found: &mut Found) -> bool {
        let (since, until) = self.unattended;
        let early = self.now < since + PATIENCE;
        // The controller does not know that the rollout is gone, and releases as if it existed.
        if early && until.is_none() && self.now <= since + self.schedule.known() {
            return false;
        }
        // The controller may not know yet of a rollout that was just made.
        if until.is_some_and(|until| early || self.now > until + LAG) {
            return false;
        }
        self.left_parked = holds(workload);
        if early {
            found.push((
                "W10",
                format!("the workload is released {} ms after its rollout went", self.now - since),
            ));
        }
        true
    }

    /// Checks a template that is written into a `ReplicaSet`.
    pub(super) fn set_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, server, .. } = *wrote;
        self.changed = self.now;
        let (Some(old), Some(new), Writer::Controller) = (before, after, writer) else { return };
        let (was, is) = (bare(&old["spec"]["template"]), bare(&new["spec"]["template"]));
        let keeps =
            |set: &std::sync::Arc<Value>| uid(set) != uid(new) && bare(&set["spec"]["template"]) == was;
        if was != is && number(&new["spec"]["replicas"]) > 0 && !server.objects("ReplicaSet").any(keeps) {
            found.push(("W13", format!("nothing keeps the old template of {}", new["metadata"]["name"])));
        }
    }

    /// The template of a revision that Pods go back to.
    pub(super) fn template_of(&self, revision: &str, server: &Server) -> Option<Value> {
        let kind = self.schedule.workload.as_ref()?.kind.to_string();
        if kind == "Deployment" {
            let set = server.objects("ReplicaSet").find(|set| number(&set["spec"]["replicas"]) > 0)?;
            return Some(set["spec"]["template"].clone());
        }
        let is = |one: &&std::sync::Arc<Value>| {
            let metadata = &one["metadata"];
            metadata["name"] == revision || metadata["labels"]["controller-revision-hash"] == revision
        };
        Some(server.objects("ControllerRevision").find(is)?["data"]["spec"]["template"].clone())
    }

    /// Checks that Pods have their previous images. A new Pod of a `DaemonSet` has its template's.
    pub(super) fn is_back(&self, id: &str, update: &Update, server: &Server, found: &mut Found) {
        let Some(plan) = self.schedule.workload.as_ref().filter(|plan| *plan.kind != *"DaemonSet") else {
            return;
        };
        let Some(workload) = server.object(&plan.kind, super::NAMESPACE, &plan.name) else { return };
        // The user may have changed or released it since.
        let later = self.changes.last().is_some_and(|last| last.generation > update.generation);
        if later || parked(workload).is_none() {
            return;
        }
        let from = update.from.as_deref().unwrap_or_default();
        let had = self.template_of(from, server).ok_or_else(|| "nothing keeps that revision".to_owned());
        let has = had.and_then(|template| all_have(workload, &template, self.partition(), server));
        if let Err(why) = has {
            found.push(("W11", format!("{id} has gone back to {from}, and {why}")));
        }
    }

    /// Checks an update that is reported as successful.
    pub(super) fn is_updated(&self, id: &str, update: &Update, server: &Server, found: &mut Found) {
        let Some(plan) = &self.schedule.workload else { return };
        let Some(workload) = server.object(&plan.kind, super::NAMESPACE, &plan.name) else { return };
        // The user may have changed it since, or parked it again for the same template.
        let later = self.changes.last().is_some_and(|last| last.generation > update.generation);
        if later || self.parked_since > update.generation {
            return;
        }
        if parked(workload).is_some() {
            found.push(("W11", format!("{id} has ended as Updated, and the workload is parked")));
        }
        if let Err(why) = all_have(workload, &workload["spec"]["template"], self.partition(), server) {
            found.push(("W11", format!("{id} has ended as Updated, and {why}")));
        }
    }
}
