//! The Pods of a rollout, sorted by how far they are.

use std::collections::{BTreeMap, BTreeSet};

use super::stage::{Rank, Stage};
use crate::key::ObjectKey;
use crate::pod::Pod;
use crate::time::Mono;

/// A Pod, as last looked at.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) stage: Stage,
    pub(super) ahead: Pull,
    /// A succeeded request gave it its images.
    pub(super) proves: bool,
    pub(super) available: bool,
    /// Its node; empty if it has none.
    pub(super) node: Box<str>,
    /// Its number among its node's Pods. None without a node.
    pub(super) number_on_node: Option<u32>,
}

impl Seen {
    /// Whether its node has the images, or was asked for them.
    fn is_served(&self) -> bool {
        self.ahead == Pull::Asked || matches!(self.stage, Stage::Started | Stage::Unmarked | Stage::Current)
    }
}

/// Whether the node of a waiting Pod pulls ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pull {
    /// It has nothing to pull.
    Nothing,
    /// It was not asked yet.
    May,
    /// A suspended request exists.
    Asked,
}

/// Numbers of Pods, by how far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pods to restart or update.
    pub pods: usize,
    /// Pods that are done.
    pub current: usize,
    /// Available Pods of the workload that have no open request.
    pub available: usize,
    /// Available Pods of the workload.
    pub ready: usize,
    /// Pods of the workload.
    pub all: usize,
}

/// The Pods of one node, or those without one.
#[derive(Clone, Debug, Default)]
struct NodePods {
    /// How many Pods it has had.
    had: u32,
    /// For how many Pods it [was asked](Seen::is_served) for the images.
    served: usize,
    /// Pods for which it may be asked ahead.
    may_pull: BTreeSet<(Rank, ObjectKey)>,
    /// Pods that [prove](Seen::proves) that it has the images.
    proofs: BTreeSet<ObjectKey>,
}

/// All Pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Sorted {
    pub(super) pods: BTreeMap<ObjectKey, Seen>,
    nodes: BTreeMap<Box<str>, NodePods>,
    pub(super) tally: Tally,
    pub(super) waits: BTreeSet<(Rank, ObjectKey)>,
    /// Waiting Pods that are not available.
    pub(super) broken: BTreeSet<(Rank, ObjectKey)>,
    /// The first Pod of each node that was not asked for the images, if it may be asked ahead.
    pub(super) may_pull: BTreeSet<(Rank, ObjectKey)>,
    /// Pods for which a node was asked ahead.
    pub(super) ahead: BTreeSet<ObjectKey>,
    pub(super) started: BTreeSet<ObjectKey>,
    pub(super) unmarked: BTreeSet<ObjectKey>,
    pub(super) not_in_place: BTreeSet<ObjectKey>,
    pub(super) failed: BTreeSet<ObjectKey>,
    /// Untouched Pods that became unavailable. Once available again: when they count as recovered, since a Pod that
    /// crashes forever is available briefly at each start.
    pub(super) lost: BTreeMap<ObjectKey, Option<Mono>>,
}

impl Sorted {
    /// Numbers the Pod among its node's Pods. None without a node.
    pub(super) fn take_number(&mut self, pod: &Pod) -> Option<u32> {
        let node = self.nodes.entry(pod.node.as_deref().unwrap_or_default().into()).or_default();
        let number = node.had;
        node.had = node.had.saturating_add(1);
        pod.node.is_some().then_some(number)
    }

    /// The node's first Pod whose images a succeeded request gave, and its UID.
    pub(super) fn proof_of(&self, node: &str) -> Option<(&ObjectKey, &str)> {
        let pod = self.nodes.get(node)?.proofs.first()?;
        Some((pod, &self.pods.get(pod)?.uid))
    }

    /// Changes a node's Pods, and with them the node's entry in `may_pull`.
    fn change_node(&mut self, node: &str, change: impl FnOnce(&mut NodePods)) {
        let Some(pods) = self.nodes.get_mut(node) else { return };
        if let Some(first) = pods.may_pull.first() {
            self.may_pull.remove(first);
        }
        change(pods);
        if let Some(first) = pods.may_pull.first().filter(|_| pods.served == 0) {
            self.may_pull.insert(first.clone());
        }
    }

    /// Notes a Pod that became unavailable before it began. If it stays available until `until`, it has recovered.
    pub(super) fn note_lost(&mut self, until: Mono, key: &ObjectKey, before: Option<Seen>, seen: &Seen) {
        let before = before.filter(|before| before.uid == seen.uid);
        let another = before.is_none();
        let was = before.is_some_and(|before| before.available && matches!(before.stage, Stage::Waits(_)));
        match seen.stage {
            Stage::Waits(_) if was && !seen.available => drop(self.lost.insert(key.clone(), None)),
            Stage::Waits(_) | Stage::Started | Stage::Failed(_) => {
                if let Some(recovers_at) = self.lost.get_mut(key) {
                    let since = recovers_at.filter(|_| !another);
                    *recovers_at = seen.available.then(|| since.unwrap_or(until));
                }
            }
            _ => drop(self.lost.remove(key)),
        }
    }

    /// Forgets lost Pods that have recovered.
    pub(super) fn forget_recovered(&mut self, now: Mono) {
        self.lost.retain(|_, recovers_at| recovers_at.is_none_or(|at| at > now));
    }

    /// When the next of them may have recovered.
    pub(super) fn recovers_at(&self) -> Option<Mono> {
        self.lost.values().flatten().min().copied()
    }

    /// Adds a Pod.
    pub(super) fn note(&mut self, key: &ObjectKey, seen: Seen) {
        let Tally { pods, current, available, ready, all } = &mut self.tally;
        let counts = seen.available && seen.stage != Stage::Started;
        *available = available.saturating_add(usize::from(counts));
        *ready = ready.saturating_add(usize::from(seen.available));
        *all = all.saturating_add(1);
        *pods = pods.saturating_add(usize::from(seen.stage != Stage::Other));
        match &seen.stage {
            Stage::Other => {}
            Stage::Waits(rank) => {
                self.waits.insert((*rank, key.clone()));
                if !seen.available {
                    self.broken.insert((*rank, key.clone()));
                }
                match seen.ahead {
                    Pull::Nothing => {}
                    Pull::May => self.change_node(&seen.node, |node| {
                        node.may_pull.insert((*rank, key.clone()));
                    }),
                    Pull::Asked => drop(self.ahead.insert(key.clone())),
                }
            }
            Stage::Started => drop(self.started.insert(key.clone())),
            Stage::Unmarked => drop(self.unmarked.insert(key.clone())),
            Stage::NotInPlace(_) => drop(self.not_in_place.insert(key.clone())),
            Stage::Current => *current = current.saturating_add(1),
            Stage::Failed(_) => drop(self.failed.insert(key.clone())),
        }
        if seen.is_served() {
            self.change_node(&seen.node, |node| {
                node.served = node.served.saturating_add(1);
                node.proofs.extend(seen.proves.then(|| key.clone()));
            });
        }
        self.pods.insert(key.clone(), seen);
    }

    /// Removes a Pod, and returns it.
    pub(super) fn forget(&mut self, key: &ObjectKey) -> Option<Seen> {
        let seen = self.pods.remove(key)?;
        let Tally { pods, current, available, ready, all } = &mut self.tally;
        let counts = seen.available && seen.stage != Stage::Started;
        *available = available.saturating_sub(usize::from(counts));
        *ready = ready.saturating_sub(usize::from(seen.available));
        *all = all.saturating_sub(1);
        *pods = pods.saturating_sub(usize::from(seen.stage != Stage::Other));
        match &seen.stage {
            Stage::Other => {}
            Stage::Waits(rank) => {
                let position = (*rank, key.clone());
                self.waits.remove(&position);
                self.broken.remove(&position);
                self.change_node(&seen.node, |node| {
                    node.may_pull.remove(&position);
                });
                self.ahead.remove(key);
            }
            Stage::Started => drop(self.started.remove(key)),
            Stage::Unmarked => drop(self.unmarked.remove(key)),
            Stage::NotInPlace(_) => drop(self.not_in_place.remove(key)),
            Stage::Current => *current = current.saturating_sub(1),
            Stage::Failed(_) => drop(self.failed.remove(key)),
        }
        if seen.is_served() {
            self.change_node(&seen.node, |node| {
                node.served = node.served.saturating_sub(1);
                node.proofs.remove(key);
            });
        }
        Some(seen)
    }
}
