//! Pods of the workload, and the requests for them.

use std::collections::BTreeSet;

use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::image_update::{PodImageUpdate, conditions};
use pitstop_api::rollout::{POD_REVISION, share_of};
use serde::Deserialize;
use serde_json::Value;

use super::{Parks, uid};
use crate::node::keys;
use crate::node::runtime::{Deed, DeedKind, Runtime};
use crate::oracle::Writer;
use crate::oracle::Wrote;
use crate::oracle::pods::images;
use crate::oracle::rules::Found;
use crate::server::Server;

/// Time until a smaller number of Pods is noticed.
const SCALED: u64 = 20_000;
/// The revision whose template is unknown.
const UNKNOWN: &str = "unknown";

/// A Pod.
pub(super) struct Member {
    pub(super) gone: bool,
    born: u64,
    /// Since when it is ready; None if it is not.
    ready: Option<u64>,
}

/// A request that a rollout has made.
pub(super) struct Child {
    pub(super) rollout: String,
    /// The Pod's UID.
    pub(super) pod: String,
    /// Whether it is not suspended: its Pod's turn has come.
    begun: bool,
    /// Whether its Pod was in service then.
    costs: bool,
    /// Whether it ended with success; None before the end.
    pub(super) ended: Option<bool>,
    pub(super) deleted: bool,
}

impl Child {
    /// Whether its Pod's turn has come, and is not over.
    pub(super) fn open(&self) -> bool {
        self.begun && self.ended.is_none() && !self.deleted
    }
}

/// Whether the Pod is neither deleted nor ended.
pub(super) fn active(pod: &Value) -> bool {
    let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    !over && pod["metadata"]["deletionTimestamp"].is_null()
}

/// An image without the digest that it had when it was pulled.
fn named(image: &str) -> &str {
    let (named, digest) = image.split_once('@').unwrap_or((image, ""));
    // Another form of the same image, by which an update was taken back.
    named.strip_suffix(".back").filter(|_| !digest.is_empty()).unwrap_or(named)
}

/// Checks that a Pod has the images of a template; the error names what it has.
pub(super) fn has_images(pod: &Value, template: &Value) -> Result<(), String> {
    let (has, wanted) = (images(pod), images(template));
    let differs = |(name, image): &&(&str, &str)| {
        has.iter().any(|(other, has)| other == name && named(has) != named(image))
    };
    match wanted.iter().find(differs) {
        Some((name, image)) => Err(format!("{has:?}, and {image} is wanted for {name}")),
        None => Ok(()),
    }
}

/// The revision that the Pod's mark names.
fn mark(pod: &Value) -> Option<&str> {
    let metadata = &pod["metadata"];
    metadata["labels"]["controller-revision-hash"].as_str().or(metadata["annotations"][POD_REVISION].as_str())
}

impl Parks {
    pub(super) fn pod_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, .. } = *wrote;
        let Some(pod) = after.or(before) else { return };
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
        let member =
            self.members.entry(uid(pod)).or_insert(Member { gone: false, born: self.now, ready: None });
        member.ready = ready.then(|| member.ready.unwrap_or(self.now));
        member.gone = after.is_none_or(|pod| !active(pod));
        let born = member.born;
        let (Some(old), Some(new)) = (before, after) else { return };
        let name = &new["metadata"]["name"];
        if active(old) && !active(new) && matches!(writer, Writer::Native | Writer::Controller) {
            let scaled = self.scaled.is_some_and(|at| self.now < at + SCALED);
            // A native controller that had not seen the release yet made it from the old revision.
            let unseen = self.released.is_some_and(|at| at <= born);
            if !self.let_go && !self.abandoned && !scaled && !unseen {
                found
                    .push(("W8", format!("{writer:?} deletes Pod {name}, and its user has not released it")));
            }
        }
        if writer == Writer::Controller && mark(old) != mark(new) {
            self.is_marked(new, wrote.server, found);
        }
    }

    /// Checks that the Pod is what its new mark says.
    fn is_marked(&self, pod: &Value, server: &Server, found: &mut Found) {
        let Some(revision) = mark(pod).filter(|mark| *mark != UNKNOWN) else { return };
        let name = &pod["metadata"]["name"];
        let mut wrong = |why: String| found.push(("W9", format!("Pod {name} is marked {revision}: {why}")));
        let change = self.generations.get(revision).and_then(|generation| self.template_at(*generation));
        let back = || self.rollbacks.contains(revision).then(|| self.template_of(revision, server)).flatten();
        let Some(template) = change.map(|change| change.template.clone()).or_else(back) else {
            return wrong("no reported update is to that".to_owned());
        };
        if let Err(why) = has_images(pod, &template) {
            wrong(format!("it has {why}"));
        }
        if self.open().any(|open| *open == *uid(pod)) && !self.many_leaders {
            wrong("a request for it is open".to_owned());
        }
    }

    pub(super) fn child_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { before, after, .. } = *wrote;
        self.changed = self.now;
        let Some(object) = after.or(before) else { return };
        let request = PodImageUpdate::deserialize(object).unwrap();
        let mut owners = request.metadata.owner_references.iter().flatten();
        let Some(owner) = owners.find(|owner| owner.kind == "InPlaceRollout") else { return };
        let id = uid(object);
        if before.is_none() {
            let pod = request.spec.pod_ref.uid.clone().unwrap_or_default();
            let child = Child {
                rollout: owner.uid.clone(),
                pod,
                begun: false,
                costs: false,
                ended: None,
                deleted: false,
            };
            self.children.insert(id.clone(), child);
        }
        let Some(child) = self.children.get_mut(&id) else { return };
        if !child.begun && !request.spec.suspend {
            let since = self.now.saturating_sub(self.schedule.known());
            let ready = self.members.get(&child.pod).and_then(|member| member.ready);
            child.begun = true;
            child.costs = ready.is_some_and(|at| at <= since);
            self.in_budget(&id, found);
        }
        let Some(child) = self.children.get_mut(&id) else { return };
        let status = request.status.clone().unwrap_or_default();
        if status.completion_time.is_some() && child.ended.is_none() {
            let complete = condition::find(&status.conditions, conditions::COMPLETE);
            child.ended = Some(complete.is_some_and(|c| c.status == ConditionStatus::True));
        }
        child.deleted = after.is_none() || request.metadata.deletion_timestamp.is_some();
    }

    /// Checks that no more Pods in service are updated than may be unavailable.
    fn in_budget(&self, id: &str, found: &mut Found) {
        let Some(child) = self.children.get(id).filter(|child| child.costs && !self.many_leaders) else {
            return;
        };
        let Some(followed) = self.followed.get(&child.rollout) else { return };
        let there = |pod: &str| self.members.get(pod).is_some_and(|member| !member.gone);
        let counts = |other: &&Child| {
            other.rollout == child.rollout && other.open() && other.costs && there(&other.pod)
        };
        let open: BTreeSet<&str> = self.children.values().filter(counts).map(|other| &*other.pod).collect();
        let open = open.len();
        let all = u32::try_from(self.schedule.members()).unwrap_or_default();
        let spec = &followed.object.spec;
        let own = spec.strategy.as_ref().and_then(|strategy| strategy.max_unavailable.as_ref());
        let workload = self.schedule.workload.as_ref();
        let theirs = workload
            .and_then(crate::world::rolling::WorkloadPlan::most)
            .map_or(1, |most| share_of(&most.0, all));
        let least = workload.and_then(|workload| workload.budget);
        let least = least.filter(|_| spec.respects_disruption_budgets()).unwrap_or_default();
        let most =
            own.map_or(theirs, |own| own.of(all)).min(all.saturating_sub(u32::try_from(least).unwrap()));
        // Surplus Pods, which are about to be deleted, serve like others.
        let there = self.members.values().filter(|member| !member.gone).count();
        if open > usize::try_from(most).unwrap() + there.saturating_sub(self.desired) {
            found.push(("W1", format!("with {id} {open} Pods are being updated, and {most} may be")));
        }
    }

    /// Pods with an open request of a rollout, even if the rollout is gone.
    pub(super) fn open(&self) -> impl Iterator<Item = &str> {
        let pod = |pod: &str| self.members.get(pod).is_some_and(|member| !member.gone);
        let open = move |child: &&Child| child.open() && pod(&child.pod);
        self.children.values().filter(open).map(|child| &*child.pod)
    }

    /// Takes an event that really happened on a node.
    pub(in crate::oracle) fn deed(&mut self, deed: &Deed, runtime: &Runtime) {
        let Some(container) = runtime.containers().get(&deed.id).filter(|_| deed.kind == DeedKind::Started)
        else {
            return;
        };
        let label = |key: &str| container.info.labels.get(key).cloned().unwrap_or_default();
        *self.began.entry((label(keys::POD_UID), label(keys::CONTAINER_NAME))).or_default() += 1;
    }
}
