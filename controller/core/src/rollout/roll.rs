//! This process's memory of a rollout: its Pods, sorted. When a Pod changes, only that Pod is looked at, however many
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::arm::Proof;
use super::child::UPDATES;
use super::gaps::Gaps;
use super::pins::Pins;
use super::plan::soak;
use super::sorted::{Pull, Seen, Sorted, Tally};
use super::stage::{Rank, Requests, Stage, ordinal, stage};
use super::unshown::{MadeRequest, SHOWN_WITHIN, Unshown};
use super::work::{Payload, Revisions, Task, Work};
use super::{Rollout, child};
use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::kind::{Lookup, Relative};
use crate::time::{Mono, seconds};
use crate::workload::{Listed, Workload, WorkloadQuery};

/// How long a Pod is skipped after the API server refused a request for it.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Result of the last read of the workload.
#[derive(Clone, Debug)]
pub enum Read {
    /// The workload.
    Workload(Arc<Workload>),
    /// The workload does not exist.
    Missing,
    /// The API server's error.
    Refused(String),
}

fn succeeded(request: &Relative<'_>) -> bool {
    request.ended.is_some_and(|ended| ended.complete)
}

/// This process's memory of one rollout.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Part of every kind's memory; a rollout never ends.
    pub(super) completed_seen: Option<Mono>,
    /// When the workload was read last, and the result.
    pub(super) read: Option<(Mono, Read)>,
    /// Whether the workload can be released, by the last try.
    pub(super) proof: Proof,
    /// Purpose of the last read.
    pub(super) asked_for: Option<String>,
    /// Purpose of the reads, and when the first of them returned.
    reads: Option<(String, Mono)>,
    /// Purpose of the list under way; then the last list, with its purpose.
    pub(super) listing: Option<String>,
    pub(super) listed: Option<(String, Vec<Listed>)>,
    /// UIDs of the controllers whose Pods the engine reports.
    controllers: Vec<String>,
    /// What the Pods are sorted by: first the ID of the restart or update. Then the workload's partition, whether its
    /// `ReplicaSet` has the new template, and its controllers.
    work_id: Option<String>,
    sorted_by: Option<(u32, bool, Vec<String>)>,
    stale: BTreeSet<ObjectKey>,
    /// Digests for the tags of its images.
    pub(super) pins: Pins,
    /// Its Pods, sorted.
    pub(super) sorted: Sorted,
    /// How long the Pods were out of service.
    pub(super) gaps: Gaps,
    /// Writes that the watch has not shown yet.
    pub(super) unshown: Unshown,
    /// Pods with a deed under way. True: their request is being made or resumed. False: a suspended request is being
    /// made, or the Pod is being marked.
    doing: BTreeMap<ObjectKey, bool>,
    /// When the workload was released or a `ReplicaSet` written, and the result.
    released: Option<(Mono, Result<(), String>)>,
    /// No request of an earlier restart or update is left.
    pub(super) swept: bool,
    /// Until when the rollout waits for older requests that are open.
    pub(super) sweep_until: Option<Mono>,
    /// Pods for which the API server refused a request: when, and its message.
    refused: BTreeMap<ObjectKey, (Mono, String)>,
    /// The rollout waits for a user to act.
    pub(super) stopped: bool,
    /// No Pod was done before the deadline.
    pub(super) late: bool,
    /// How many Pods were looked at: the cost of events.
    #[cfg(test)]
    pub(super) looked: usize,
    /// How many Pods are done, and since when.
    pub(super) progress: Option<(usize, Mono)>,
}

impl Memory {
    /// Notes that the Pod or its request changed.
    pub(super) fn changed(&mut self, pod: &ObjectKey) {
        self.unshown.changed(pod);
        self.stale.insert(pod.clone());
    }

    /// Notes what is under way.
    pub(super) fn set_doing(&mut self, doing: &[Deed]) {
        self.doing.clear();
        self.doing.extend(doing.iter().filter_map(|deed| match deed {
            Deed::Create(child) => Some((child::pod_of(child), child::begins(child))),
            Deed::Resume { pod, .. } => Some((pod.clone(), true)),
            Deed::MarkPod { key, .. } => Some((key.clone(), false)),
            _ => None,
        }));
    }

    /// Forgets what only a restart or an update needs: none is under way.
    pub(super) fn forget_work(&mut self) {
        let Self { completed_seen, proof, doing, unshown, gaps, .. } = std::mem::take(self);
        *self = Self { completed_seen, proof, gaps, unshown, doing, ..Self::default() };
    }

    /// A restart or an update begins.
    pub(super) fn begin_work(&mut self) {
        (self.swept, self.sweep_until) = (false, None);
        (self.progress, self.stopped, self.late) = (None, false, false);
    }

    /// When the first read for the current purpose returned.
    pub(super) fn reads_since(&self) -> Option<Mono> {
        self.reads.as_ref().map(|(_, since)| *since)
    }

    /// Notes the controllers whose Pods the rollout watches. Returns whether they are the same as before.
    pub(super) fn set_controllers(&mut self, controllers: &[String]) -> bool {
        let same = self.controllers == controllers;
        if !same {
            self.controllers = controllers.to_vec();
        }
        same
    }

    /// Forgets the Pods: the engine no longer reports them.
    pub(super) fn forget_pods(&mut self) {
        self.controllers.clear();
        self.stale.clear();
        self.refused.clear();
        self.gaps.forget_pods();
        (self.sorted, self.sorted_by, self.stopped) = (Sorted::default(), None, false);
    }

    /// Counts of Pods. A Pod whose request is being made counts as if it had one.
    pub(super) fn tally(&self) -> Tally {
        let available = self.making().filter(|seen| seen.available).count();
        Tally { available: self.sorted.tally.available.saturating_sub(available), ..self.sorted.tally }
    }

    /// How many Pods have an open request.
    pub(super) fn open(&self) -> usize {
        self.sorted.started.len().saturating_add(self.making().count())
    }

    /// Pods whose request is being made or resumed, and not shown yet.
    fn making(&self) -> impl Iterator<Item = &Seen> {
        self.asking(true)
    }

    /// Waiting Pods whose request is being made. `begins`: it begins with them, or it is suspended.
    fn asking(&self, begins: bool) -> impl Iterator<Item = &Seen> {
        let doing = self.doing.iter().filter(move |(_, own)| **own == begins);
        let seen = doing.filter_map(|(pod, _)| self.sorted.pods.get(pod));
        seen.filter(|seen| matches!(seen.stage, Stage::Waits(_)))
    }

    /// Stores a read of the workload.
    fn store_read(&mut self, now: Mono, query: &WorkloadQuery, mut workload: Workload) {
        if query.kind.is_none() {
            let of = |pod: &Listed| ObjectKey::new(&query.key.namespace, &pod.name);
            let new = workload.pods.iter().flatten().map(of);
            self.stale.extend(new.filter(|pod| !self.sorted.pods.contains_key(pod)));
            // Another rollout that selected them may be gone.
            self.stale.extend(self.sorted.failed.iter().cloned());
        }
        if self.reads.as_ref().map(|(of, _)| of) != self.asked_for.as_ref() {
            self.reads = self.asked_for.clone().map(|of| (of, now));
        }
        // The list belongs to this read.
        self.listed = workload.pods.take().and_then(|pods| Some((self.listing.take()?, pods)));
        self.read = Some((now, Read::Workload(Arc::new(workload))));
    }

    /// Notes the result of a deed.
    pub(super) fn deed_done(&mut self, now: Mono, deed: &Deed, done: Done) {
        match (deed, done) {
            (Deed::AskWorkload(query), Done::Read(workload)) => self.store_read(now, query, *workload),
            (Deed::AskWorkload(_), Done::Gone) => self.read = Some((now, Read::Missing)),
            (Deed::AskWorkload(_), Done::Refused(text)) => self.read = Some((now, Read::Refused(text))),
            (Deed::Create(child), done) => {
                let pod = child::pod_of(child);
                match done {
                    Done::Refused(text) => drop(self.refused.insert(pod, (now, text))),
                    // On a conflict, the request exists.
                    Done::Effected | Done::Conflict => {
                        self.refused.remove(&pod);
                        self.stale.insert(pod.clone());
                        let made = MadeRequest::new(child.kind, &child.key, now, child::begins(child));
                        self.unshown.note_made(pod, made);
                    }
                    Done::Read(_) | Done::Gone | Done::Retry(_) => {}
                }
            }
            (Deed::Resume { kind, key, pod, .. }, Done::Effected) => {
                self.refused.remove(pod);
                self.stale.insert(pod.clone());
                self.unshown.note_made(pod.clone(), MadeRequest::new(*kind, key, now, true));
            }
            (Deed::Delete { uid, .. }, Done::Effected | Done::Gone) => {
                self.unshown.note_deleted(uid.clone(), now);
            }
            (Deed::MarkPod { key, .. }, Done::Effected | Done::Conflict) => {
                self.unshown.note_marked(key.clone(), now);
            }
            (Deed::MarkPod { key: pod, .. } | Deed::Resume { pod, .. }, Done::Refused(text)) => {
                self.refused.insert(pod.clone(), (now, text));
            }
            (Deed::TryRelease { .. }, Done::Effected) => self.proof.tried(now, Ok(())),
            (Deed::TryRelease { .. }, Done::Refused(text)) => self.proof.tried(now, Err(text)),
            (Deed::TryRelease { kind, key }, Done::Gone) => {
                self.proof.tried(now, Err(format!("there is no {} {}", kind.name(), key.name)));
            }
            (Deed::Release(_), Done::Effected) => self.released = Some((now, Ok(()))),
            // The workload is read again.
            (Deed::Release(_), Done::Conflict | Done::Gone)
            | (Deed::Commit(_), Done::Effected | Done::Conflict | Done::Gone) => {
                (self.read, self.listed) = (None, None);
            }
            (Deed::Release(_) | Deed::Commit(_), Done::Refused(text)) => {
                self.released = Some((now, Err(text)));
            }
            (_, _) => {}
        }
    }

    /// Looks at the Pods that changed. If the Pods are now sorted by something new, looks at all of them.
    pub(super) fn sort(
        &mut self,
        now: Mono,
        rollout: &Rollout,
        work: &Work<'_>,
        workload: &Workload,
        lookup: &dyn Lookup<Rollout>,
    ) {
        let swapped = matches!(&work.task, Task::Update(revisions) if revisions.swapped());
        let by = (work.partition, swapped, workload.controllers.clone());
        if self.work_id.as_ref() != Some(&work.id) {
            self.unshown.forget_marks();
            self.refused.clear();
            self.released = None;
            self.sorted_by = None;
            // The last sweep did not cover requests made since.
            (self.swept, self.sweep_until) = (false, None);
            let update = rollout.status.update.as_ref().filter(|_| !work.back);
            self.pins = update.map(|update| Pins::of(&update.images)).unwrap_or_default();
            self.work_id = Some(work.id.clone());
        }
        if self.sorted_by.as_ref() != Some(&by) {
            self.stale.extend(self.sorted.pods.keys().cloned());
            self.sorted_by = Some(by);
        }
        for key in std::mem::take(&mut self.stale) {
            self.look(now, &key, rollout, work, workload, lookup);
        }
        self.sorted.forget_recovered(now);
    }

    /// Looks at that Pod.
    fn look(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        rollout: &Rollout,
        work: &Work<'_>,
        workload: &Workload,
        lookup: &dyn Lookup<Rollout>,
    ) {
        let before = self.sorted.forget(key);
        self.refused.remove(key);
        #[cfg(test)]
        {
            self.looked = self.looked.saturating_add(1);
        }
        let Some(pod) = lookup.pod(key).filter(|pod| workload.has(pod)) else {
            self.unshown.gone(key);
            self.gaps.gone(key);
            self.sorted.lost.remove(key);
            return;
        };
        let other = rollout.spec.wants_something().then(|| lookup.older_rival(&pod)).flatten();
        let step = match other {
            Some(other) => Err(format!("InPlaceRollout {} is older, and selects the Pod, too", other.name)),
            None => work.step(rollout, &pod, lookup),
        };
        let over = step.as_ref().is_ok_and(|step| step.as_ref().is_none_or(|step| step.request.is_some()));
        self.unshown.look(key, lookup, &work.id, over);
        let number_on_node =
            before.as_ref().and_then(|seen| seen.number_on_node).or_else(|| self.sorted.take_number(&pod));
        let made = self.unshown.begins(key, &work.id);
        let others = matches!(work.task, Task::Update(_)) && child::others_begun(lookup, key);
        let own = child::key(&work.id, &pod);
        let own = |kind| lookup.relative(kind, &own).filter(|request| request.is_of(&rollout.uid));
        let done = child::KINDS.into_iter().filter_map(own).any(|request| succeeded(&request));
        let requests = Requests { step, made: made == Some(true), others, done };
        let mut stage = stage(rollout, work, &pod, &requests, number_on_node);
        let request = own(UPDATES);
        let proves = request.as_ref().is_some_and(succeeded);
        if let Some(request) = request.filter(|_| !work.back) {
            self.pins.learn(&request);
            let has = matches!(stage, Stage::Unmarked | Stage::Current) && !work.is_marked(rollout, &pod);
            if let Some(why) = self.pins.moved(&request).filter(|_| has) {
                stage = Stage::Failed(why);
            }
        }
        let ahead = match &requests.step {
            Ok(Some(step)) if step.request.is_some() || made.is_some() => Pull::Asked,
            Ok(Some(step)) if matches!(step.payload, Payload::Images(_)) => Pull::May,
            _ => Pull::Nothing,
        };
        let available = pod.ready && !pod.gone();
        let node = pod.node.as_deref().unwrap_or_default().into();
        let proves = proves && matches!(stage, Stage::Unmarked | Stage::Current);
        let seen = Seen { uid: pod.uid.clone(), stage, ahead, proves, available, node, number_on_node };
        self.gaps.look(now, key, before.as_ref(), &seen, others);
        let recovers_at = now.after(seconds(soak(rollout, workload, false)));
        self.sorted.note_lost(recovers_at, key, before, &seen);
        self.sorted.note(key, seen);
    }

    /// The first of these Pods for which a request may be made now.
    pub(super) fn next<'a>(&self, pods: &'a BTreeSet<(Rank, ObjectKey)>, now: Mono) -> Option<&'a ObjectKey> {
        let (rank, pod) = pods.iter().find(|(_, pod)| self.may_ask(pod, now))?;
        // Pods before it get their requests first. An available Pod is before no other.
        let before = |seen: &Seen| match seen.stage {
            Stage::Waits(Rank::Available(_)) => false,
            Stage::Waits(other) => other < *rank,
            _ => false,
        };
        let suspended = self.unshown.pods().filter_map(|pod| self.sorted.pods.get(pod));
        let mut asked = self.making().chain(self.asking(false)).chain(suspended);
        (!asked.any(before)).then_some(pod)
    }

    /// The first Pod whose node was not asked for the images. None if `most` Pods pull ahead already.
    pub(super) fn next_to_pull(&self, now: Mono, most: usize) -> Option<&ObjectKey> {
        if self.sorted.ahead.len().saturating_add(self.asking(false).count()) >= most {
            return None;
        }
        let node = |pod: &ObjectKey| self.sorted.pods.get(pod).map(|seen| &*seen.node);
        let asked: BTreeSet<_> = self.doing.keys().chain(self.unshown.pods()).map(node).collect();
        let mut next = self.sorted.may_pull.iter().map(|(_, pod)| pod);
        next.find(|pod| self.may_ask(pod, now) && !asked.contains(&node(pod)))
    }

    /// A request for a Pod of that node that has succeeded.
    pub(super) fn succeeded_on(&self, node: &str) -> Option<ObjectKey> {
        let (pod, uid) = self.sorted.proof_of(node)?;
        Some(child::key_for(self.work_id()?, pod, uid))
    }

    /// Whether no request for the Pod is being made, is still to be shown, or was just refused.
    fn may_ask(&self, pod: &ObjectKey, now: Mono) -> bool {
        !self.doing.contains_key(pod) && !self.unshown.has_made(pod) && !self.is_refused(pod, now)
    }

    /// Whether the Pod is skipped, since the API server refused a write for it.
    fn is_refused(&self, pod: &ObjectKey, now: Mono) -> bool {
        self.refused.get(pod).is_some_and(|(at, _)| at.after(REFUSED_FOR) > now)
    }

    /// Why no request can be made for the Pod; without a Pod, for any.
    pub(super) fn refusal(&self, pod: Option<&ObjectKey>) -> Option<String> {
        let of_pod = || pod.map_or_else(|| self.refused.values().next(), |pod| self.refused.get(pod));
        of_pod().map(|(_, text)| text.clone())
    }

    /// Why a request that is now tried again was refused.
    pub(super) fn tried_again(&self) -> Option<String> {
        self.doing.keys().find_map(|pod| self.refused.get(pod)).map(|(_, text)| text.clone())
    }

    /// The first Pod that may be marked now.
    pub(super) fn next_unmarked(&self, now: Mono) -> Option<&ObjectKey> {
        self.sorted.unmarked.iter().find(|pod| self.may_mark(pod, now))
    }

    /// Whether no mark of the Pod is still to be shown, and none was just refused.
    pub(super) fn may_mark(&self, pod: &ObjectKey, now: Mono) -> bool {
        !self.unshown.has_marked(now, pod) && !self.doing.contains_key(pod) && !self.is_refused(pod, now)
    }

    /// Result of the last release, and until when it is not repeated. The watch may still show it, or the API server
    /// refused it with this message.
    pub(super) fn release(&self, now: Mono) -> Option<(Result<(), &str>, Mono)> {
        let (at, result) = self.released.as_ref()?;
        let until = at.after(if result.is_ok() { SHOWN_WITHIN } else { REFUSED_FOR });
        (until > now).then(|| (result.as_ref().copied().map_err(String::as_str), until))
    }

    /// ID of the restart or update that the Pods are sorted by.
    pub(super) fn work_id(&self) -> Option<&str> {
        self.work_id.as_deref()
    }

    /// Why a Pod cannot get what the template has changed.
    pub(super) fn why_not_in_place(&self) -> Option<&str> {
        let seen = self.sorted.pods.get(self.sorted.not_in_place.first()?)?;
        if let Stage::NotInPlace(why) = &seen.stage { Some(why) } else { None }
    }

    /// When to try again for a refused Pod.
    pub(super) fn refused_until(&self) -> Option<Mono> {
        self.refused.values().map(|(at, _)| at.after(REFUSED_FOR)).min()
    }

    /// Gives up what the watch did not show in time.
    pub(super) fn give_up(&mut self, now: Mono) {
        self.stale.extend(self.unshown.give_up(now));
    }

    /// Whether every listed Pod not newer than `newest` is known by its UID, and neither waits nor is in progress.
    pub(super) fn covers(&self, listed: &[Listed], namespace: &str, newest: Option<i64>) -> bool {
        let due = listed.iter().filter(|pod| newest.is_some_and(|newest| pod.created <= newest));
        due.into_iter().all(|pod| {
            let seen = self.sorted.pods.get(&ObjectKey::new(namespace, &pod.name));
            seen.is_some_and(|seen| {
                seen.uid == pod.uid && !matches!(seen.stage, Stage::Waits(_) | Stage::Started)
            })
        })
    }

    /// Whether every Pod listed for that purpose is known by its UID and updated. Ordinals below the partition do not
    /// count. `is` judges a revision.
    pub(super) fn listed_are<'a>(
        &self,
        rollout: &Rollout,
        work: &Work<'a>,
        purpose: &str,
        is: impl Fn(&Revisions<'a>, u64) -> bool,
    ) -> bool {
        let Task::Update(revisions) = &work.task else { return false };
        let Some((_, listed)) = self.listed.as_ref().filter(|(of, _)| of == purpose) else { return false };
        listed.iter().all(|pod| {
            let seen = self.sorted.pods.get(&ObjectKey::new(&rollout.key.namespace, &pod.name));
            let known = seen.is_some_and(|seen| seen.uid == pod.uid && seen.stage == Stage::Current);
            let kept = ordinal(rollout, &pod.name).is_some_and(|ordinal| ordinal < work.partition);
            kept || (known && is(revisions, pod.revision))
        })
    }
}
