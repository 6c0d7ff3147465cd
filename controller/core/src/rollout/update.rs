//! Updates the Pods of a parked workload to what its template changed.

use pitstop_api::condition::truncate;
use pitstop_api::rollout::{Phase, TargetKind, Update, UpdateEnd};

use super::Rollout;
use super::commit::{self, Left};
use super::plan::{Next, Purpose, go_on, wait, with_workload};
use super::report::Report;
use super::roll::Memory;
use super::status::{MAX_MESSAGE, RollStatus, pods_of_interest, under_way};
use super::sweep::{delete, has_others};
use super::work::{Revisions, Task, Work};
use crate::deed::{Commit, Deed, Release, Strategy};
use crate::key::ObjectKey;
use crate::kind::{Cx, Sight};
use crate::template::Change;
use crate::workload::{Parked, Template, Version, Workload};

/// The update whose Pods go back.
pub(super) fn rollback(rollout: &Rollout) -> Option<&Update> {
    rollout.status.update.as_ref().filter(|update| update.rolling_back && update.ended.is_none())
}

/// Updates a parked workload.
pub(super) fn update(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory, parked: &Parked) -> Next {
    // The Pods are listed once all known Pods are done.
    let back = rollback(sight.request).and_then(|update| update.from.as_ref());
    let name = format!("generation {}{}", parked.generation, if back.is_some() { ", back" } else { "" });
    let useful = |_: &Memory, workload: &Workload| {
        let template = workload.template.as_ref();
        let same = |template: &Template| {
            template.parked.as_ref() == Some(&parked.mark) && template.back.as_ref() == back
        };
        template.is_some_and(|template| template.generation >= parked.generation && same(template))
    };
    let purpose = Purpose { name: &name, pods: false, at_rest: false };
    with_workload(cx, sight, memory, purpose, useful, |memory, workload| {
        let Some(template) = &workload.template else { return Next::only(sight.request, Report::Reading) };
        Updating { cx, sight, kind: parked.kind, workload, template, purpose: &name }.next(memory)
    })
}

/// An update, with the workload as it was read.
struct Updating<'a> {
    cx: Cx<'a>,
    sight: &'a Sight<'a, Rollout>,
    kind: TargetKind,
    workload: &'a Workload,
    template: &'a Template,
    /// Purpose of the list of Pods.
    purpose: &'a str,
}

impl Updating<'_> {
    /// Applies the first rule that matches.
    fn next(&self, memory: &mut Memory) -> Next {
        let Self { kind, template, .. } = *self;
        let rollout = self.sight.request;
        let to = template.parked.as_deref().and_then(|mark| Strategy::marked(kind, mark));
        let Some(to) = to else {
            // The watch reports a new mark.
            memory.stopped = true;
            let value = template.parked.clone().unwrap_or_default();
            return Next::only(rollout, Report::UnknownPark(value));
        };
        if !template.holds {
            return self.let_go(memory, UpdateEnd::Superseded, "", Strategy::AsIs);
        }
        let revision = template.revision.as_deref().filter(|_| template.seen);
        let Some(revision) = revision else { return self.waits(memory, false) };
        let last = self.last(revision);
        match last {
            Some(update) if update.ended == Some(UpdateEnd::RolledBack) => return self.is_back(memory, to),
            Some(update) if rollback(rollout).is_some() => return self.go_back(memory, update, to),
            _ => {}
        }
        if let Some(why) = commit::why_not_in_place(kind, template) {
            // A workload without Pods already follows its template.
            return match self.workload.desired {
                0 => self.release(memory, to),
                _ => self.let_go(memory, UpdateEnd::NotInPlace, &why, to),
            };
        }
        match last.map(|update| (update.ended, &update.message)) {
            Some((None, _)) => self.go_on(memory, revision, to),
            Some((Some(UpdateEnd::NotInPlace), why)) => self.let_go(memory, UpdateEnd::NotInPlace, why, to),
            Some((Some(_), _)) | None => {
                memory.begin_work();
                let (revision, generation) = (revision.to_owned(), template.generation);
                let update = Update { revision, generation, from: self.previous(), ..Update::default() };
                Next::of_update(rollout, update, Report::Updating)
            }
        }
    }

    /// The status of an update to that revision, if it is the template's. A failed update is not repeated for another
    /// number of Pods.
    fn last(&self, revision: &str) -> Option<&Update> {
        self.sight.request.status.update.as_ref().filter(|update| {
            let current = match update.ended {
                None | Some(UpdateEnd::RolledBack) => true,
                Some(_) => update.generation >= self.template.generation,
            };
            update.revision == revision && current
        })
    }

    /// The revision that all Pods had last.
    fn previous(&self) -> Option<String> {
        let (status, kind) = (&self.sight.request.status, self.kind);
        let began_parked = status.update.is_none() && matches!(status.phase, None | Some(Phase::Pending));
        // Requests of another rollout may have changed Pods, which do not show it.
        if kind == TargetKind::Deployment && began_parked {
            return None;
        }
        // A DaemonSet's controller does not report it.
        let update = status.update.as_ref().filter(|_| kind == TargetKind::DaemonSet);
        let last = update.and_then(|update| match update.ended {
            Some(UpdateEnd::Updated) => Some(update.revision.clone()),
            _ => update.from.clone(),
        });
        last.filter(|last| self.template.changes.contains_key(last))
            .or_else(|| self.template.previous.clone())
    }

    fn go_on(&self, memory: &mut Memory, revision: &str, to: Strategy) -> Next {
        let Self { cx, sight, workload, template, .. } = *self;
        let work = Work::update(sight.request, revision, template, partition(to));
        let next = go_on(cx, sight, memory, &work, workload);
        if let Some(update) = next.as_ref().and_then(|next| self.gives_up(memory, next)) {
            memory.begin_work();
            return Next::of_update(sight.request, update, Report::RollingBack);
        }
        if let Some(why) = memory.why_not_in_place() {
            let why = why.to_owned();
            return self.let_go(memory, UpdateEnd::NotInPlace, &why, to);
        }
        next.unwrap_or_else(|| self.finish(memory, &work, to))
    }

    /// The update, if its Pods must go back because others failed.
    fn gives_up(&self, memory: &Memory, next: &Next) -> Option<Update> {
        let rollout = self.sight.request;
        let enough = memory.sorted.failed.len() >= rollout.spec.failure_threshold() as usize
            || !memory.sorted.waits.is_empty();
        let update =
            rollout.status.update.as_ref().filter(|_| next.report == Report::PodsFailed && enough)?;
        let known = update.from.as_ref().is_some_and(|from| *from != update.revision);
        // If all Pods were updated, their ReplicaSet has the new template already.
        if !rollout.spec.rolls_back() || !known || self.template.sets.swapped() {
            return None;
        }
        let failed = pods_of_interest(rollout, memory, self.sight.lookup).into_iter().next();
        let why = failed.map_or(String::new(), |pod| format!("Pod {} failed: {}", pod.name, pod.message));
        Some(Update { rolling_back: true, message: truncate(&why, MAX_MESSAGE), ..update.clone() })
    }

    /// Gives updated Pods what they had before.
    fn go_back(&self, memory: &mut Memory, update: &Update, to: Strategy) -> Next {
        let Self { cx, sight, workload, template, .. } = *self;
        let (rollout, back) = (sight.request, update.from.as_deref().unwrap_or_default());
        let work = Work { back: true, ..Work::update(rollout, back, template, partition(to)) };
        // If Pods cannot go back, the workload stays parked, as after a failure.
        let cannot = |memory: &mut Memory, why: String| {
            memory.stopped = true;
            memory.sort(cx.now, rollout, &work, workload, sight.lookup);
            Next::only(rollout, Report::CannotRollBack(why))
        };
        if !template.changes.get(back).is_some_and(Change::is_none) {
            return cannot(memory, format!("the previous revision {back} is not kept"));
        }
        let next = go_on(cx, sight, memory, &work, workload);
        if let Some(why) = memory.why_not_in_place() {
            let why = why.to_owned();
            return cannot(memory, why);
        }
        next.unwrap_or_else(|| {
            if !self.all_are(memory, &work) {
                return self.waits(memory, true);
            }
            let ended = Some(UpdateEnd::RolledBack);
            let update = Update { ended, rolling_back: false, ..update.clone() };
            Next::of_update(rollout, update, Report::Ended(UpdateEnd::RolledBack))
        })
    }

    /// All Pods are back. Nothing more is done until the template changes.
    fn is_back(&self, memory: &mut Memory, to: Strategy) -> Next {
        let Self { sight, workload, template, .. } = *self;
        memory.stopped = true;
        // Pods are still reported: sorting forgets those that are gone.
        let revision = template.revision.as_deref().unwrap_or_default();
        let work = Work::update(sight.request, revision, template, partition(to));
        memory.sort(self.cx.now, sight.request, &work, workload, sight.lookup);
        let deed = delete(self.cx, self.sight, memory, |_| true);
        let wake_at = memory.unshown.deleted_until(self.cx.now);
        Next { deed, wake_at, ..Next::only(self.sight.request, Report::Ended(UpdateEnd::RolledBack)) }
    }

    /// Whether every listed Pod is as the work wants it.
    fn all_are(&self, memory: &Memory, work: &Work<'_>) -> bool {
        memory.listed_are(self.sight.request, work, self.purpose, Revisions::becomes_target)
    }

    /// Every Pod that the watch has shown is done. Once the workload's controller has counted these, lists the Pods to
    /// find others. Releases the workload once its controller has counted those, too.
    fn finish(&self, memory: &mut Memory, work: &Work<'_>, to: Strategy) -> Next {
        let left = |pods| commit::left(self.kind, self.template, work.partition, pods);
        if left(memory.tally().current) == Left::Controller {
            return self.waits(memory, false);
        }
        if !self.all_are(memory, work) {
            return self.waits(memory, true);
        }
        match left(of_revision(memory, work)) {
            Left::Controller => self.waits(memory, true),
            Left::Nothing => self.release(memory, to),
            Left::Step(step, active) => {
                let commit = Commit {
                    namespace: self.sight.request.key.namespace.clone(),
                    deployment: self.version(),
                    active: *active,
                    step,
                };
                self.write(memory, Deed::Commit(Box::new(commit)))
            }
        }
    }

    /// The version of the workload that was read.
    fn version(&self) -> Version {
        Version {
            name: self.sight.request.spec.target_ref.as_ref().map_or("", |target| &target.name).to_owned(),
            uid: self.workload.uid.clone(),
            resource_version: self.template.resource_version.clone(),
        }
    }

    /// Waits for the controller. Reads the workload again, and lists its Pods if `pods`.
    fn waits(&self, memory: &mut Memory, pods: bool) -> Next {
        wait(self.cx, self.sight, memory, self.purpose, pods)
    }

    /// Releases the workload before all Pods are updated, once the status says so.
    fn let_go(&self, memory: &mut Memory, end: UpdateEnd, why: &str, to: Strategy) -> Next {
        let rollout = self.sight.request;
        let before = under_way(&rollout.status).map(str::to_owned);
        let revision = self.template.revision.clone().or(before).unwrap_or_default();
        let message = truncate(why, MAX_MESSAGE);
        let began = rollout.status.update.clone().filter(|update| update.revision == revision);
        let began = began.unwrap_or_else(|| Update {
            revision,
            generation: self.template.generation,
            ..Update::default()
        });
        let update = Update { ended: Some(end), rolling_back: false, message, ..began };
        let stored = rollout.status.update.as_ref() == Some(&update);
        let next = Next::of_update(rollout, update, Report::Ended(end));
        if !stored {
            return next;
        }
        let Next { report, deed, wake_at, .. } = self.release(memory, to);
        let report = if matches!(report, Report::ReleaseRefused(_)) { report } else { next.report };
        Next { report, deed, wake_at, ..next }
    }

    fn release(&self, memory: &Memory, to: Strategy) -> Next {
        let Version { name, uid, resource_version } = self.version();
        let key = ObjectKey::new(&self.sight.request.key.namespace, name);
        let release = Release { kind: self.kind, key, uid, resource_version, to };
        self.write(memory, Deed::Release(Box::new(release)))
    }

    /// Does that, unless the API server just refused it, or the watch may still show it.
    fn write(&self, memory: &Memory, deed: Deed) -> Next {
        let rollout = self.sight.request;
        if let Some((result, until)) = memory.release(self.cx.now) {
            let report = result.map_or_else(|why| Report::ReleaseRefused(why.into()), |()| Report::Updating);
            return Next { wake_at: Some(until), ..Next::only(rollout, report) };
        }
        Next { deed: Some(deed), ..Next::only(rollout, Report::Updating) }
    }
}

/// How many listed Pods are of the revision, including those left alone.
fn of_revision(memory: &Memory, work: &Work<'_>) -> usize {
    let Task::Update(revisions) = &work.task else { return 0 };
    let listed = memory.listed.as_ref().map_or(&[][..], |(_, listed)| listed);
    listed.iter().filter(|pod| revisions.is_target(pod.revision)).count()
}

/// The user's partition: Pods with lower ordinals are left alone.
fn partition(to: Strategy) -> u32 {
    if let Strategy::Partition(partition) = to { partition } else { 0 }
}

/// The workload is no longer parked: its Pods show how the update ended. None if none was under way.
pub(super) fn settle(cx: Cx<'_>, sight: &Sight<'_, Rollout>, memory: &mut Memory) -> Option<Next> {
    let rollout = sight.request;
    let began = rollout.status.update.clone()?;
    if began.ended == Some(UpdateEnd::RolledBack) {
        return Some(end_update(rollout, began, UpdateEnd::Superseded));
    }
    let revision = under_way(&rollout.status)?.to_owned();
    let name = format!("what came of {revision}");
    let useful = |memory: &Memory, workload: &Workload| {
        let listed = memory.listed.as_ref().is_some_and(|(of, _)| *of == name);
        listed && workload.template.as_ref().is_some_and(|template| template.parked.is_none())
    };
    let purpose = Purpose { name: &name, pods: true, at_rest: false };
    Some(with_workload(cx, sight, memory, purpose, useful, |memory, workload| {
        let template = workload.template.clone().unwrap_or_default();
        let work = Work::update(rollout, &revision, &template, workload.partition);
        memory.give_up(cx.now);
        memory.sort(cx.now, rollout, &work, workload, sight.lookup);
        // If the ReplicaSet has not got the template, only requests show what its Pods have.
        let all = memory.listed_are(rollout, &work, &name, Revisions::is_target)
            && !has_others(sight, memory, &work.id);
        let end = if all && !template.holds { UpdateEnd::Updated } else { UpdateEnd::Superseded };
        end_update(rollout, began, end)
    }))
}

/// Ends the update with that result.
fn end_update(rollout: &Rollout, began: Update, end: UpdateEnd) -> Next {
    let update = Update { ended: Some(end), rolling_back: false, message: String::new(), ..began };
    let next = Next::only(rollout, Report::Ended(end));
    Next { roll: RollStatus { update: Some(update), ..next.roll }, ..next }
}
