//! Gives the Pods of a selector what the spec says, existing Pods and later ones.
//!
//! No controller knows of it, and no template is kept. A Pod that got what the spec says is marked. It is not looked at
//! again until the spec changes, so later changes by others stay.

use std::collections::BTreeMap;

use pitstop_api::quantity::Resources;
use pitstop_api::rollout::{InPlaceRolloutSpec, Update, UpdateEnd, conditions};
use pitstop_api::{condition, labels};

use super::Rollout;
use super::plan::{Next, Purpose, go_on, wait, with_workload};
use super::report::Report;
use super::roll::Memory;
use super::status::RESTARTED;
use super::sweep::delete;
use super::work::{Revisions, Work};
use crate::kind::{Cx, Sight};
use crate::pod::Pod;
use crate::template::{Delta, Image, Size, same_image, same_repository};
use crate::time::earliest;
use crate::workload::Workload;

/// Identifies what the spec wants. A Pod with this mark was given that.
pub(super) fn revision(spec: &InPlaceRolloutSpec) -> String {
    let wish = serde_json::to_string(&(&spec.images, &spec.resources)).unwrap_or_default();
    format!("s-{:016x}", labels::hash(&wish))
}

/// Images and resources of the spec, by container.
pub(super) struct Wish<'a> {
    images: BTreeMap<&'a str, &'a str>,
    sizes: BTreeMap<&'a str, Resources>,
}

impl<'a> Wish<'a> {
    pub(super) fn of(spec: &'a InPlaceRolloutSpec) -> Self {
        let images = spec.images.iter().map(|of| (of.name.as_str(), of.image.as_str()));
        // The spec is validated already.
        let sizes =
            spec.resources.iter().filter_map(|of| Some((of.name.as_str(), of.resources.read().ok()?)));
        Self { images: images.collect(), sizes: sizes.collect() }
    }

    /// What the Pod lacks. Err: why it cannot get it.
    pub(super) fn lacks(&self, pod: &Pod) -> Result<Delta, String> {
        let has = |name: &str| pod.container(name).ok_or_else(|| format!("the Pod has no container {name}"));
        let mut lacks = Delta::default();
        for (name, image) in &self.images {
            let before = has(name)?.image.clone();
            if !same_image(&before, image) {
                same_repository(&before, image)
                    .map_err(|why| format!("the image of container {name} {why}"))?;
                lacks.images.push(Image { container: (*name).into(), image: (*image).into(), before });
            }
        }
        for (name, resources) in &self.sizes {
            let before = has(name)?.resources.effective();
            if resources.over(before) != before {
                lacks.sizes.push(Size { container: (*name).into(), resources: *resources, before });
            }
        }
        Ok(lacks)
    }
}

/// Carries out what the spec says. None if nothing is left to do.
pub(super) fn give(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory) -> Option<Next> {
    let rollout = sight.request;
    if !rollout.spec.wants_something() {
        return None;
    }
    let revision = revision(&rollout.spec);
    let last = rollout.status.update.as_ref().filter(|update| update.revision == revision);
    match last {
        Some(update) if update.ended.is_some() => None,
        Some(_) => Some(go_through(cx, sight, memory, &revision)),
        None => {
            memory.begin_work();
            let generation = rollout.generation.unwrap_or_default();
            let update = Update { revision, generation, ..Update::default() };
            Some(Next::of_update(rollout, update, Report::Updating))
        }
    }
}

/// Gives it to the Pods, one after another.
fn go_through(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, revision: &str) -> Next {
    let rollout = sight.request;
    let purpose = Purpose { name: revision, pods: false, at_rest: false };
    with_workload(
        cx,
        sight,
        memory,
        purpose,
        |_, _| true,
        |memory, workload| {
            let work = Work::selected(rollout, revision);
            if let Some(next) = go_on(cx, sight, memory, &work, workload) {
                return next;
            }
            if !memory.listed_are(rollout, &work, revision, Revisions::is_target) {
                return wait(cx, sight, memory, revision, true);
            }
            let update = rollout.status.update.clone().unwrap_or_default();
            let update = Update { ended: Some(UpdateEnd::Updated), ..update };
            Next::of_update(rollout, update, Report::Ended(UpdateEnd::Updated))
        },
    )
}

/// All Pods have it. Gives it to later Pods too, and deletes what is left.
pub(super) fn watch(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory) -> Next {
    let rollout = sight.request;
    let revision = revision(&rollout.spec);
    let purpose = Purpose { name: &revision, pods: true, at_rest: true };
    let next = with_workload(
        cx,
        sight,
        memory,
        purpose,
        |_, _| true,
        |memory, workload| watch_pods(cx, sight, memory, workload, &revision),
    );
    // A wait for the engine to report the Pods is no news.
    if next.report == Report::Reading { Next { report: last_report(rollout), ..next } } else { next }
}

/// The result that was reported last.
fn last_report(rollout: &Rollout) -> Report {
    let complete = condition::find(&rollout.status.conditions, conditions::COMPLETE);
    let restarted = complete.is_some_and(|complete| complete.reason == RESTARTED);
    if restarted { Report::Restarted } else { Report::Ended(UpdateEnd::Updated) }
}

fn watch_pods(
    cx: Cx<'_>,
    sight: &Sight<'_, Rollout>,
    memory: &mut Memory,
    workload: &Workload,
    revision: &str,
) -> Next {
    let rollout = sight.request;
    memory.give_up(cx.now);
    memory.sort(cx.now, rollout, &Work::selected(rollout, revision), workload, sight.lookup);
    if !memory.sorted.waits.is_empty() || !memory.sorted.failed.is_empty() {
        memory.begin_work();
        let update = rollout.status.update.clone().unwrap_or_default();
        return Next::of_update(rollout, Update { ended: None, ..update }, Report::Updating);
    }
    // The existing Pods are known by now.
    memory.listed = None;
    let next = Next::only(rollout, last_report(rollout));
    // A Pod that was made with what the spec says is still to be marked.
    let unmarked = memory.next_unmarked(cx.now).cloned().and_then(|pod| sight.lookup.pod(&pod));
    let deed = match unmarked {
        Some(pod) => Work::selected(rollout, revision).mark(rollout, &pod),
        None => delete(cx, sight, memory, |_| true),
    };
    let refused = memory.refused_until().filter(|at| *at > cx.now);
    let wake_at = earliest(memory.unshown.deleted_until(cx.now), refused);
    let overdue = memory.unshown.overdue_at().filter(|at| *at > cx.now);
    Next { deed, wake_at: earliest(wake_at, overdue), ..next }
}
