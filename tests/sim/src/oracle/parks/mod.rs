//! Rules for rollouts that update the Pods of a parked workload.
//!
//! - W8: The native controllers of a workload delete Pods only if its user wants fewer Pods, or releases it.
//! - W9: A Pod is marked with a revision only if it has the images of that revision's template, and no
//!   request for it is open.
//! - W10: The controller releases the workload only if every Pod has the template's images and the native
//!   controllers agree; or if no rollout has looked after it for half a minute.
//! - W11: An update ends as `Updated` when no Pod has other images and the workload is not parked; as
//!   `RolledBack` when all Pods have the previous images.
//! - W12: A container is restarted once at most for each change of its image, unless a request has failed.
//! - W13: If the `ReplicaSet` with Pods gets another template, another `ReplicaSet` keeps the old template.
//! - W14: At rest nothing is parked, every Pod has the template and no request is left; or the rollout waits
//!   for a true reason.
//!
//! W1 holds for updates, too.

mod ends;
mod pods;
mod workload;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::rollout::{InPlaceRollout, InPlaceRolloutStatus, UpdateEnd};
use serde::Deserialize;
use serde_json::Value;

use self::pods::{Child, Member};
use self::workload::Change;
use super::rules::Found;
use crate::oracle::Wrote;
use crate::world::NAMESPACE;
use crate::world::plan::Schedule;

/// A rollout.
struct Followed {
    object: InPlaceRollout,
    deleted: bool,
}

/// What the rules have seen.
pub struct Parks {
    schedule: Schedule,
    now: u64,
    many_leaders: bool,
    /// By UID.
    followed: BTreeMap<String, Followed>,
    /// Requests of rollouts, by UID.
    children: BTreeMap<String, Child>,
    /// Pods, by UID.
    members: BTreeMap<String, Member>,
    /// Every template that the workload had, the newest last.
    changes: Vec<Change>,
    /// The generation of each reported update, by revision.
    generations: BTreeMap<String, i64>,
    /// Revisions that Pods must go back to.
    rollbacks: BTreeSet<String>,
    /// Number of Pods that the workload wants.
    desired: usize,
    /// When its user last asked for fewer Pods.
    scaled: Option<u64>,
    /// Whether it was released by its user, or because it cannot be updated in place.
    let_go: bool,
    /// Since when no rollout looks after it, and until when.
    unattended: (u64, Option<u64>),
    /// Whether it has the label.
    parked: bool,
    /// Generation in which it was last parked.
    parked_since: i64,
    /// Whether it was released because no rollout looked after it.
    abandoned: bool,
    /// And its strategy was left unchanged: its user must release it.
    left_parked: bool,
    /// When it was released; None while it is parked.
    released: Option<u64>,
    /// When an object that concerns a rollout was last written.
    changed: u64,
    /// Number of starts of containers, by Pod UID and name.
    began: BTreeMap<(String, String), usize>,
    /// How updates ended, and how often.
    pub(super) ends: BTreeMap<String, usize>,
}

fn status(rollout: &InPlaceRollout) -> InPlaceRolloutStatus {
    rollout.status.clone().unwrap_or_default()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

impl Parks {
    /// Nothing seen yet.
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            schedule: schedule.clone(),
            now: 0,
            many_leaders: false,
            followed: BTreeMap::new(),
            children: BTreeMap::new(),
            members: BTreeMap::new(),
            changes: Vec::new(),
            generations: BTreeMap::new(),
            rollbacks: BTreeSet::new(),
            desired: 0,
            scaled: None,
            let_go: false,
            unattended: (0, None),
            parked: false,
            parked_since: 0,
            abandoned: false,
            left_parked: false,
            released: None,
            changed: 0,
            began: BTreeMap::new(),
            ends: BTreeMap::new(),
        }
    }

    /// An object was written, or removed.
    pub(super) fn wrote(&mut self, wrote: &Wrote<'_>) -> Found {
        let Wrote { now, many_leaders, kind, .. } = *wrote;
        let mut found = Found::new();
        if !self.schedule.parks() {
            return found;
        }
        self.now = now;
        self.many_leaders |= many_leaders;
        match kind {
            "InPlaceRollout" => self.rollout_wrote(wrote, &mut found),
            "PodImageUpdate" => self.child_wrote(wrote, &mut found),
            "Pod" => self.pod_wrote(wrote, &mut found),
            "ReplicaSet" => self.set_wrote(wrote, &mut found),
            kind if self.schedule.workload.as_ref().is_some_and(|workload| workload.kind == kind) => {
                self.workload_wrote(wrote, &mut found);
            }
            _ => {}
        }
        found
    }

    fn rollout_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { before, after, server, .. } = *wrote;
        self.changed = self.now;
        let Some(new) = after else {
            if let Some(followed) = before.and_then(|old| self.followed.get_mut(&uid(old))) {
                followed.deleted = true;
            }
            if self.followed.values().all(|followed| followed.deleted) {
                self.unattended = (self.now, None);
            }
            return;
        };
        self.unattended.1.get_or_insert(self.now);
        let object = InPlaceRollout::deserialize(new).unwrap();
        let update = status(&object).update;
        let followed = Followed { object, deleted: false };
        let old = self.followed.insert(uid(new), followed);
        let Some(update) =
            update.filter(|update| old.and_then(|old| status(&old.object).update) != Some(update.clone()))
        else {
            return;
        };
        self.generations.insert(update.revision.clone(), update.generation);
        self.rollbacks.extend(update.from.clone().filter(|_| update.rolling_back));
        if let Some(end) = update.ended {
            *self.ends.entry(format!("update of a workload: {}", end.name())).or_default() += 1;
            self.let_go |= end == UpdateEnd::NotInPlace;
            if end == UpdateEnd::Updated {
                self.is_updated(&uid(new), &update, server, found);
            }
            if end == UpdateEnd::RolledBack {
                self.is_back(&uid(new), &update, server, found);
            }
        }
    }
}
