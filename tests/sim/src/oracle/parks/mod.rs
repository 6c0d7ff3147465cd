//! What no schedule may break where the Pods of a parked workload are updated by a rollout.
//!
//! | rule | |
//! |---|---|
//! | W8 | The native controllers of a workload delete no Pod but by its user's doing: a smaller number of Pods, or a release. |
//! | W9 | A Pod is marked as of a revision only when it has the images of that one's template, and no request for it is open. |
//! | W10 | The controller releases the workload only when every Pod has the template's images and the native controllers agree; or when no rollout has looked after it for half a minute. |
//! | W11 | An update ends as `Updated` when no Pod has other images and it is not parked; as `RolledBack` when all have those of before. |
//! | W12 | A container is restarted once at most for each change of its image, unless a request has failed. |
//! | W13 | When the `ReplicaSet` with Pods gets another template, another one keeps the old one. |
//! | W14 | At rest nothing is parked, every Pod is of the template and nothing is left; or the rollout waits for a true reason. |
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

/// The ledger.
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
    /// To which generation an update to a revision was told to be.
    told: BTreeMap<String, i64>,
    /// Revisions that Pods were told to go back to.
    back: BTreeSet<String>,
    /// How many Pods it is to have.
    desired: usize,
    /// When its user has last asked for fewer Pods.
    scaled: Option<u64>,
    /// It was released by its user, or since it cannot be updated in place.
    let_go: bool,
    /// Since when no rollout looks after it, and until when.
    unkept: (u64, Option<u64>),
    /// It has the label.
    parked: bool,
    /// In which generation it was parked last.
    parked_since: i64,
    /// It was released since no rollout looked after it.
    left: bool,
    /// And its strategy was left as it was: it is its user's to release.
    left_parked: bool,
    /// When the controller has released it, since when it is not parked.
    released: Option<u64>,
    /// When something was last written that a rollout has to see to.
    changed: u64,
    /// How often containers began, by Pod UID and name.
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
            told: BTreeMap::new(),
            back: BTreeSet::new(),
            desired: 0,
            scaled: None,
            let_go: false,
            unkept: (0, None),
            parked: false,
            parked_since: 0,
            left: false,
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
                self.unkept = (self.now, None);
            }
            return;
        };
        self.unkept.1.get_or_insert(self.now);
        let object = InPlaceRollout::deserialize(new).unwrap();
        let told = status(&object).update;
        let followed = Followed { object, deleted: false };
        let old = self.followed.insert(uid(new), followed);
        let Some(update) =
            told.filter(|told| old.and_then(|old| status(&old.object).update) != Some(told.clone()))
        else {
            return;
        };
        self.told.insert(update.revision.clone(), update.generation);
        self.back.extend(update.from.clone().filter(|_| update.rolling_back));
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
