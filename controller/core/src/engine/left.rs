//! Releases a parked workload that no rollout manages, so that its own controller goes on.
//!
//! Its rollout may have been deleted, or leaves changes of the template to that controller.

use std::time::Duration;

use pitstop_api::rollout::TargetKind;

use crate::backoff::Backoff;
use crate::change::Note;
use crate::deed::{Deed, Done, Release, Strategy};
use crate::key::{KindId, ObjectKey};
use crate::pod::Pod;
use crate::time::Mono;
use crate::workload::{Listed, Parked, Template, UNKNOWN, Workload, WorkloadQuery};

/// How long the workload stays parked: a user who replaces its rollout creates another one within that time.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the watch may take to show a write.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// The same for a Pod; then the workload is read again.
const SOON: Duration = Duration::from_secs(1);
/// How soon a refused deed is tried again. The wait doubles each time: an administrator must grant a right first.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest such wait.
const MOST: Duration = Duration::from_hours(1);

/// Event reason: the workload was released.
pub const RELEASED: &str = "WorkloadReleased";
/// Event reason: the workload is left as it is. Its update failed, or a Pod has something that its controller would not
/// notice.
pub const LEFT_PARKED: &str = "WorkloadLeftParked";

/// What a workload needs next.
pub(super) enum Next {
    Do(Deed),
    Emit(Note),
    /// Nothing; when to look again.
    Look(Option<Mono>),
}

/// State of one parked workload without a rollout.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    /// Since when no rollout manages it.
    since: Mono,
    /// The update that it was parked for failed, and its own controller must not repeat it.
    pub(super) failed: bool,
    doing: Option<Deed>,
    /// The workload as it was read.
    workload: Option<Workload>,
    /// No deed begins before.
    pub(super) retry_at: Option<Mono>,
    backoff: Backoff,
    /// Refusals so far.
    refusals: u32,
}

impl Orphan {
    /// A workload without a rollout from `now` on.
    pub(super) fn new(now: Mono) -> Self {
        let backoff = Backoff::default();
        Self { since: now, failed: false, doing: None, workload: None, retry_at: None, backoff, refusals: 0 }
    }

    /// What the workload needs next.
    pub(super) fn next(
        &mut self,
        now: Mono,
        parked: &Parked,
        pods: &impl Fn(&ObjectKey) -> Option<Pod>,
    ) -> Next {
        let Some(to) = Strategy::marked(parked.kind, &parked.mark).filter(|_| self.doing.is_none()) else {
            // The end of the deed or another mark comes as an event.
            return Next::Look(None);
        };
        let patience = Some(self.since.after(PATIENCE)).filter(|until| *until > now);
        let until = patience.max(self.retry_at.filter(|at| *at > now)).max(self.backoff.waits_until(now));
        if until.is_some() {
            return Next::Look(until);
        }
        let same = |template: &Template| template.parked.as_ref() == Some(&parked.mark);
        let is = |read: &Workload| read.template.as_ref().is_some_and(same);
        if self.workload.take_if(|read| !is(read)).is_some() {
            // The watch has not shown this yet.
            self.backoff.failed(now);
            return Next::Look(self.backoff.waits_until(now));
        }
        let read = self.workload.as_ref().and_then(|read| Some((read, read.template.as_ref()?)));
        let Some((workload, template)) = read else {
            return Next::Do(Deed::AskWorkload(Box::new(WorkloadQuery {
                kind: Some(parked.kind),
                key: parked.key.clone(),
                pods: true,
                template: true,
                ..WorkloadQuery::default()
            })));
        };
        match stray(parked, workload, template, pods) {
            // A Deployment's controller does not tell its Pods apart.
            Some(pod) if parked.kind == TargetKind::Deployment => {
                let note = self.note(parked.kind, &parked.key, &workload.uid, Some(&pod.key.name));
                self.workload = None;
                self.retry_at = Some(now.after(self.count_refusal()));
                Next::Emit(note)
            }
            Some(pod) => Next::Do(Deed::MarkPod {
                key: pod.key,
                uid: pod.uid,
                resource_version: pod.resource_version,
                revision: UNKNOWN.to_owned(),
                kind: Some(parked.kind),
            }),
            None => Next::Do(Deed::Release(Box::new(Release {
                kind: parked.kind,
                key: parked.key.clone(),
                uid: workload.uid.clone(),
                resource_version: template.resource_version.clone(),
                to: if self.failed || !template.holds { Strategy::AsIs } else { to },
            }))),
        }
    }

    /// Counts a refusal. Returns how long to wait.
    fn count_refusal(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.refusals).unwrap_or(u32::MAX);
        self.refusals = self.refusals.saturating_add(1);
        AGAIN.saturating_mul(factor).min(MOST)
    }

    /// Whether a deed is under way.
    pub(super) fn waits(&self) -> bool {
        self.doing.is_some()
    }

    /// A deed begins.
    pub(super) fn begins(&mut self, deed: Deed) {
        self.doing = Some(deed);
    }

    /// A deed ended. Returns the event to emit.
    pub(super) fn done(&mut self, now: Mono, deed: &Deed, done: Done) -> Option<Note> {
        self.doing.take_if(|doing| doing == deed)?;
        self.workload = None;
        match done {
            Done::Retry(_) | Done::Conflict | Done::Gone => self.backoff.failed(now),
            Done::Effected | Done::Refused(_) => self.backoff.succeeded(),
            // `next` finds out whether the answer is of use.
            Done::Read(_) => {}
        }
        let wait = match done {
            Done::Refused(_) => Some(self.count_refusal()),
            Done::Effected if matches!(deed, Deed::Release(_)) => Some(SHOWN_WITHIN),
            Done::Effected => Some(SOON),
            Done::Read(_) | Done::Gone | Done::Retry(_) | Done::Conflict => None,
        };
        self.retry_at = wait.map(|wait| now.after(wait));
        match (deed, done) {
            (Deed::AskWorkload(_), Done::Read(workload)) => {
                self.workload = Some(*workload);
                None
            }
            (Deed::Release(release), Done::Effected) => {
                let Release { kind, key, uid, .. } = &**release;
                Some(self.note(*kind, key, uid, None))
            }
            _ => None,
        }
    }

    /// The event about the workload. `stray`: a Pod that keeps it parked.
    fn note(&self, kind: TargetKind, key: &ObjectKey, uid: &str, stray: Option<&str>) -> Note {
        let (kind, name) = (kind.name(), &key.name);
        let message = match stray {
            Some(pod) => format!(
                "{kind} {name} has no InPlaceRollout any more, and stays parked: its controller counts Pod {pod} as \
                 updated, but the Pod differs from the template; make an InPlaceRollout, or delete the Pod"
            ),
            None if self.failed => format!(
                "{kind} {name} has no InPlaceRollout any more, and its update failed: pitstop leaves it parked; give \
                 it a good template, and resume it yourself"
            ),
            None => format!(
                "{kind} {name} was parked without an InPlaceRollout, and is released to its own controller"
            ),
        };
        let warning = self.failed || stray.is_some();
        Note {
            kind: KindId::new(kind),
            request: key.clone(),
            request_uid: uid.to_owned(),
            pod: None,
            owned: false,
            warning,
            reason: if warning { LEFT_PARKED } else { RELEASED },
            message,
        }
    }
}

/// A Pod that the workload's own controller would count as one of the template, although it has something else.
fn stray(
    parked: &Parked,
    workload: &Workload,
    template: &Template,
    pods: &impl Fn(&ObjectKey) -> Option<Pod>,
) -> Option<Pod> {
    let named = |listed: &Listed| {
        let pod = pods(&ObjectKey::new(&parked.key.namespace, &listed.name));
        pod.filter(|pod| pod.uid == listed.uid)
    };
    let mut pods = workload.pods.iter().flatten().filter_map(named);
    pods.find(|pod| template.strays(parked.kind, pod))
}
