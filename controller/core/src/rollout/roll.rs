//! What this process remembers of a rollout: its Pods, sorted. Each is looked at anew when something of it changes, so that an
//! event costs what it concerns, however many Pods there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::rollout::{Restart, TargetKind};

use super::{Rollout, child};
use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::kind::{Around, Relative};
use crate::pod::Pod;
use crate::time::Mono;
use crate::workload::{Listed, Workload};

/// How long the watch may take to show that a request was made, or deleted.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// How long a Pod is passed over for which the API server has refused a request.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// In which order Pods go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The higher the ordinal, the sooner.
    Ordinal(std::cmp::Reverse<u32>),
    /// It is not available as it is: nothing is lost by it.
    Broken,
    /// It is available: the first of each node goes first, then the second of each.
    Available(u32),
}

/// How far a Pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is none of those that are restarted; whether it is available counts all the same.
    Other,
    /// It is yet to be restarted.
    Waits(Rank),
    /// It is being restarted.
    Started,
    /// It was restarted.
    Current,
    /// It could not be.
    Failed,
}

/// A Pod, as it was looked at last.
#[derive(Clone, Debug)]
struct Seen {
    uid: String,
    stage: Stage,
    available: bool,
    /// Which of its node's Pods it is, once it has a node.
    of_node: Option<u32>,
}

/// How many Pods are how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that are to be restarted.
    pub pods: usize,
    /// Those that were.
    pub current: usize,
    /// Available Pods of the workload that are not being restarted.
    pub available: usize,
    /// Available Pods of the workload.
    pub ready: usize,
    /// Pods of the workload.
    pub all: usize,
}

/// What came of the last reading of the workload.
#[derive(Clone, Debug)]
pub enum Read {
    /// It.
    Workload(Workload),
    /// There is none.
    Missing,
    /// It cannot be read, in these words.
    Refused(String),
}

/// What this process remembers.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// What every kind remembers; a rollout never ends.
    pub(super) completed_seen: Option<Mono>,
    /// What came of the last reading of the workload, and when.
    pub(super) read: Option<(Mono, Read)>,
    /// The `restartedAt` for which its Pods are being listed, and those that were.
    pub(super) listing: Option<String>,
    pub(super) listed: Option<(String, Vec<Listed>)>,
    /// UIDs of the controllers whose Pods it is told of.
    looks_after: Vec<String>,
    /// The mark of the restart that the Pods are sorted by, and the workload's partition and controllers.
    mark: Option<String>,
    sorted_by: Option<(u32, Vec<String>)>,
    stale: BTreeSet<ObjectKey>,
    pods: BTreeMap<ObjectKey, Seen>,
    /// How many Pods each node has had.
    nodes: BTreeMap<String, u32>,
    tally: Tally,
    pub(super) waits: BTreeSet<(Rank, ObjectKey)>,
    /// Those of them that are not available.
    pub(super) broken: BTreeSet<(Rank, ObjectKey)>,
    pub(super) started: BTreeSet<ObjectKey>,
    pub(super) failed: BTreeSet<ObjectKey>,
    /// Requests that were made and that the watch has not shown yet, by their Pods.
    made: BTreeMap<ObjectKey, Mono>,
    /// Nothing is left of the restarts before this one.
    pub(super) swept: bool,
    /// Until when older requests that are open are waited for.
    pub(super) sweep_until: Option<Mono>,
    /// UIDs of requests that were deleted, and when, as long as the watch shows any.
    pub(super) deleted: BTreeMap<String, Mono>,
    /// Pods for which no request can be made: when that was tried last, and the API server's words.
    refused: BTreeMap<ObjectKey, (Mono, String)>,
    /// It waits for somebody to see to it.
    pub(super) stopped: bool,
    /// How many Pods were looked at: what events cost.
    #[cfg(test)]
    pub(super) looked: usize,
    /// How many Pods were done when that was last another number, and since when it is this one.
    pub(super) progress: Option<(usize, Mono)>,
}

impl Memory {
    /// The Pod, or the request for it, changed.
    pub(super) fn changed(&mut self, pod: &ObjectKey) {
        self.stale.insert(pod.clone());
    }

    /// No restart is under way.
    pub(super) fn rest(&mut self) {
        let Self { completed_seen, deleted, .. } = std::mem::take(self);
        *self = Self { completed_seen, deleted, ..Self::default() };
    }

    /// It looks after the Pods of these controllers. Whether it has been told of them before.
    pub(super) fn looks_after(&mut self, controllers: &[String]) -> bool {
        let told = self.looks_after == controllers;
        if !told {
            self.looks_after = controllers.to_vec();
        }
        told
    }

    /// Nobody tells of the Pods any more.
    pub(super) fn forget_pods(&mut self) {
        self.looks_after.clear();
        let Self { pods, nodes, stale, waits, broken, started, failed, refused, .. } = self;
        pods.clear();
        nodes.clear();
        stale.clear();
        waits.clear();
        broken.clear();
        started.clear();
        failed.clear();
        refused.clear();
        (self.tally, self.sorted_by, self.stopped) = (Tally::default(), None, false);
    }

    /// How many Pods are how far.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// What it has had done came back.
    pub(super) fn deed_done(&mut self, now: Mono, deed: &Deed, done: Done) {
        match (deed, done) {
            (Deed::AskWorkload(_), Done::Told(workload)) => {
                let mut workload = *workload;
                if let Some(listed) = workload.pods.take() {
                    self.listed = self.listing.take().map(|at| (at, listed));
                }
                self.read = Some((now, Read::Workload(workload)));
            }
            (Deed::AskWorkload(_), Done::Gone) => self.read = Some((now, Read::Missing)),
            (Deed::AskWorkload(_), Done::Refused(text)) => self.read = Some((now, Read::Refused(text))),
            (Deed::Create(child), done) => {
                let pod = child.spec.get("podName").and_then(|name| name.as_str()).unwrap_or_default();
                let pod = ObjectKey::new(&child.key.namespace, pod);
                match done {
                    Done::Refused(text) => drop(self.refused.insert(pod, (now, text))),
                    // A conflict says that it is there.
                    Done::Effected | Done::Conflict => {
                        self.refused.remove(&pod);
                        self.stale.insert(pod.clone());
                        self.made.insert(pod, now);
                    }
                    Done::Told(_) | Done::Gone | Done::Retry(_) => {}
                }
            }
            (Deed::Delete { uid, .. }, Done::Effected | Done::Gone) => {
                self.deleted.insert(uid.clone(), now);
            }
            (_, _) => {}
        }
    }

    /// Looks at the Pods that have changed; at all where they are sorted by something else now.
    pub(super) fn sort(
        &mut self,
        rollout: &Rollout,
        restart: &Restart,
        mark: &str,
        workload: &Workload,
        around: &dyn Around<Rollout>,
    ) {
        let by = (workload.partition, workload.controllers.clone());
        if self.mark.as_deref() != Some(mark) {
            self.made.clear();
            self.refused.clear();
            self.sorted_by = None;
            self.mark = Some(mark.to_owned());
        }
        if self.sorted_by.as_ref() != Some(&by) {
            self.stale.extend(self.pods.keys().cloned());
            self.sorted_by = Some(by);
        }
        let newest = restart.newest_pod.map(|newest| newest.timestamp());
        for key in std::mem::take(&mut self.stale) {
            let of_node = self.forget(&key);
            self.refused.remove(&key);
            #[cfg(test)]
            {
                self.looked = self.looked.saturating_add(1);
            }
            let pod = around.pod(&key);
            let of = |pod: &Pod| {
                pod.controller
                    .as_ref()
                    .is_some_and(|of| workload.controllers.iter().any(|uid| **uid == *of.uid))
            };
            let Some(pod) = pod.filter(|pod| of(pod)) else {
                self.made.remove(&key);
                continue;
            };
            let request = around.relative(child::CHILD, &child::key(mark, &pod));
            if request.is_some() {
                self.made.remove(&key);
            }
            let of_node = of_node.or_else(|| self.next_of_node(&pod));
            let available = pod.ready && !pod.gone();
            let late = newest.is_none_or(|newest| pod.created > newest);
            // What has begun goes on, whatever the kubelet says of the containers meanwhile.
            let begun = request.is_some() || self.made.contains_key(&key);
            let stage = if late || pod.gone() || !(begun || is_meant(rollout, workload, &pod)) {
                Stage::Other
            } else {
                self.stage(rollout, &pod, request.as_ref(), of_node)
            };
            self.note(&key, Seen { uid: pod.uid.clone(), stage, available, of_node });
        }
    }

    /// The first of those Pods for which a request may be made, as far as is known.
    pub(super) fn next<'a>(&self, of: &'a BTreeSet<(Rank, ObjectKey)>, now: Mono) -> Option<&'a ObjectKey> {
        let refused =
            |pod: &ObjectKey| self.refused.get(pod).is_some_and(|(at, _)| at.after(REFUSED_FOR) > now);
        of.iter().map(|(_, pod)| pod).find(|pod| !refused(pod))
    }

    /// Why no request can be made for the Pod; without one, for any of them.
    pub(super) fn refusal(&self, pod: Option<&ObjectKey>) -> Option<String> {
        let of_pod = || pod.map_or_else(|| self.refused.values().next(), |pod| self.refused.get(pod));
        of_pod().map(|(_, text)| text.clone())
    }

    /// When to try again for a Pod that was refused.
    pub(super) fn refused_until(&self) -> Option<Mono> {
        self.refused.values().map(|(at, _)| at.after(REFUSED_FOR)).min()
    }

    /// When to look at requests again that were made and that the watch does not show.
    pub(super) fn overdue_at(&self) -> Option<Mono> {
        self.made.values().min().map(|made| made.after(SHOWN_WITHIN))
    }

    /// The watch may yet tell of that one that it was deleted. Where it does not in time, a restore of etcd has brought it back.
    pub(super) fn goes(&self, now: Mono, uid: &str) -> bool {
        self.deleted.get(uid).is_some_and(|at| at.after(SHOWN_WITHIN) > now)
    }

    /// When to look again at requests that were deleted.
    pub(super) fn deleted_until(&self, now: Mono) -> Option<Mono> {
        self.deleted.values().map(|at| at.after(SHOWN_WITHIN)).filter(|at| *at > now).min()
    }

    /// Those that the watch does not show in time are taken for gone.
    pub(super) fn give_up(&mut self, now: Mono) {
        let stale = &mut self.stale;
        self.made.retain(|pod, made| {
            let waits = made.after(SHOWN_WITHIN) > now;
            if !waits {
                stale.insert(pod.clone());
            }
            waits
        });
    }

    /// Every listed Pod that is not newer than `newest` is known, as that very Pod, and is not left to be done.
    pub(super) fn covers(&self, listed: &[Listed], namespace: &str, newest: Option<i64>) -> bool {
        let due = listed.iter().filter(|pod| newest.is_some_and(|newest| pod.created <= newest));
        due.into_iter().all(|pod| {
            let seen = self.pods.get(&ObjectKey::new(namespace, &pod.name));
            seen.is_some_and(|seen| {
                seen.uid == pod.uid && !matches!(seen.stage, Stage::Waits(_) | Stage::Started)
            })
        })
    }

    /// Which of its node's Pods it is.
    fn next_of_node(&mut self, pod: &Pod) -> Option<u32> {
        let next = self.nodes.entry(pod.node.clone()?).or_default();
        let of_node = *next;
        *next = next.saturating_add(1);
        Some(of_node)
    }

    fn stage(
        &self,
        rollout: &Rollout,
        pod: &Pod,
        request: Option<&Relative<'_>>,
        of_node: Option<u32>,
    ) -> Stage {
        match request {
            None if self.made.contains_key(&pod.key) => Stage::Started,
            None => Stage::Waits(match ordinal(rollout, pod) {
                Some(ordinal) => Rank::Ordinal(std::cmp::Reverse(ordinal)),
                None if pod.ready => Rank::Available(of_node.unwrap_or_default()),
                None => Rank::Broken,
            }),
            // Somebody else's object has the name.
            Some(request) if !request.is_of(&rollout.uid) => Stage::Failed,
            Some(request) => match request.ended {
                None => Stage::Started,
                Some(ended) if ended.complete => Stage::Current,
                Some(_) => Stage::Failed,
            },
        }
    }

    fn note(&mut self, key: &ObjectKey, seen: Seen) {
        let Tally { pods, current, available, ready, all } = &mut self.tally;
        let counts = seen.available && seen.stage != Stage::Started;
        *available = available.saturating_add(usize::from(counts));
        *ready = ready.saturating_add(usize::from(seen.available));
        *all = all.saturating_add(1);
        *pods = pods.saturating_add(usize::from(seen.stage != Stage::Other));
        match seen.stage {
            Stage::Other => {}
            Stage::Waits(rank) => {
                self.waits.insert((rank, key.clone()));
                if !seen.available {
                    self.broken.insert((rank, key.clone()));
                }
            }
            Stage::Started => drop(self.started.insert(key.clone())),
            Stage::Current => *current = current.saturating_add(1),
            Stage::Failed => drop(self.failed.insert(key.clone())),
        }
        self.pods.insert(key.clone(), seen);
    }

    /// Which of its node's Pods it was.
    fn forget(&mut self, key: &ObjectKey) -> Option<u32> {
        let seen = self.pods.remove(key)?;
        let Tally { pods, current, available, ready, all } = &mut self.tally;
        let counts = seen.available && seen.stage != Stage::Started;
        *available = available.saturating_sub(usize::from(counts));
        *ready = ready.saturating_sub(usize::from(seen.available));
        *all = all.saturating_sub(1);
        *pods = pods.saturating_sub(usize::from(seen.stage != Stage::Other));
        match seen.stage {
            Stage::Other => {}
            Stage::Waits(rank) => {
                let place = (rank, key.clone());
                self.waits.remove(&place);
                self.broken.remove(&place);
            }
            Stage::Started => drop(self.started.remove(key)),
            Stage::Current => *current = current.saturating_sub(1),
            Stage::Failed => drop(self.failed.remove(key)),
        }
        seen.of_node
    }
}

/// A restart means the Pod: it has a container to restart, and the workload's own partition does not leave it alone.
fn is_meant(rollout: &Rollout, workload: &Workload, pod: &Pod) -> bool {
    let kept = ordinal(rollout, pod).is_some_and(|ordinal| ordinal < workload.partition);
    !kept && child::containers(rollout, pod).next().is_some()
}

/// The ordinal of a `StatefulSet`'s Pod, by its name.
fn ordinal(rollout: &Rollout, pod: &Pod) -> Option<u32> {
    let target = &rollout.spec.target_ref;
    let sets = target.kind == TargetKind::StatefulSet;
    let rest = pod.key.name.strip_prefix(&target.name).filter(|_| sets)?;
    rest.strip_prefix('-')?.parse().ok()
}
