//! Rules for rollouts that restart the Pods of a workload.
//!
//! - W1: Of the Pods that were ready, no more are restarted at a time than may be unavailable. No Pod begins
//!   while so many are unavailable for whatever reason.
//! - W2: For one value of `restartedAt`, one instance of a container of a Pod is stopped.
//! - W3: A restart is for the Pods of the workload that existed when it began: for no later one, and for
//!   every earlier one.
//! - W4: When it is reported as finished, every container that it means is new, and the counts and the
//!   history say so.
//! - W5: Pods of a `StatefulSet` go from the highest ordinal down, of others those that are not ready go
//!   first, and the canary before all.
//! - W6: No Pod begins while the rollout is paused, deleted or not the oldest, or as many have failed as may.
//!   Only a later wish gives up an open request.
//! - W7: At rest it has ended or waits for a user, with a true reason and true counts. A finished restart
//!   leaves no request.

mod ends;
mod made;
mod pods;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::rollout::{InPlaceRollout, InPlaceRolloutStatus, share_of};
use serde::Deserialize;
use serde_json::Value;

use self::pods::Member;
use super::Writer;
use super::rules::Found;
use crate::oracle::Wrote;
use crate::server::Server;
use crate::world::plan::{Fault, Schedule};

/// A rollout.
struct Followed {
    object: InPlaceRollout,
    created: u64,
    deleted: Option<u64>,
    /// Every value of `restartedAt`, and since when.
    wishes: Vec<(Option<String>, u64)>,
    /// Number of wishes that were over when a restart was last reported as finished.
    over: usize,
    /// Number of the wish of the current restart, and since when that is stored.
    begun: Option<(usize, u64)>,
    paused: Option<u64>,
    /// When the status or the wish last changed.
    changed: u64,
}

/// A request that a rollout has made.
#[derive(Clone)]
struct Child {
    rollout: String,
    /// Number of the wish.
    wish: usize,
    /// The Pod's UID.
    pod: String,
    created: u64,
    /// Whether its Pod was in service.
    costs: bool,
    /// When it ended, and whether with success; None before.
    ended: Option<(u64, bool)>,
    deleted: bool,
}

impl Child {
    fn open(&self) -> bool {
        self.ended.is_none() && !self.deleted
    }

    fn has_failed(&self) -> bool {
        self.ended.is_some_and(|(_, complete)| !complete) && !self.deleted
    }
}

/// Cause of a stop: rollout, wish, Pod and container.
type Cause = (String, usize, String, String);

/// What the rules have seen.
pub struct Rollouts {
    schedule: Schedule,
    now: u64,
    off: bool,
    many_leaders: bool,
    /// By UID.
    followed: BTreeMap<String, Followed>,
    /// By UID.
    children: BTreeMap<String, Child>,
    /// Pods of the workload, by UID.
    members: BTreeMap<String, Member>,
    /// Instances that were stopped.
    stopped: BTreeMap<Cause, BTreeSet<String>>,
    /// The newest instance and when it began, by Pod UID and container.
    began: BTreeMap<(String, String), (String, u64)>,
    /// How restarts ended, and how often.
    pub(super) ends: BTreeMap<String, usize>,
}

fn status(rollout: &InPlaceRollout) -> InPlaceRolloutStatus {
    rollout.status.clone().unwrap_or_default()
}

impl Followed {
    /// The first wish of that value that is not over: a user who goes back to a value continues the work for
    /// it.
    fn wish(&self, value: &str) -> usize {
        let of = |(wish, _): &(Option<String>, u64)| wish.as_deref() == Some(value);
        let first = self.wishes.iter().skip(self.over).position(of).map(|at| at + self.over);
        first.or_else(|| self.wishes.iter().rposition(of)).unwrap_or_default()
    }
}

impl Rollouts {
    /// Nothing seen yet.
    pub(super) fn new(schedule: &Schedule) -> Self {
        let many = schedule.faults.iter().any(|f| matches!(f.what, Fault::PauseController(..)));
        Self {
            schedule: schedule.clone(),
            now: 0,
            off: schedule.parks() || schedule.wishes(),
            many_leaders: many,
            followed: BTreeMap::new(),
            children: BTreeMap::new(),
            members: BTreeMap::new(),
            stopped: BTreeMap::new(),
            began: BTreeMap::new(),
            ends: BTreeMap::new(),
        }
    }

    /// Whether decisions may rest on facts older than seen before, or on another leader's.
    fn unsure(&self) -> bool {
        let stale = self.schedule.faults.iter().any(|f| matches!(f.what, Fault::StaleLists(..)));
        self.off || self.many_leaders || stale
    }

    /// Whether the API server's clock, which tells Pods apart, jumps.
    fn clock_jumps(&self) -> bool {
        self.schedule.faults.iter().any(|f| matches!(f.what, Fault::JumpClock(-1, _)))
    }

    /// How many Pods of the workload may be unavailable, also by their disruption budget.
    fn most(&self, rollout: &InPlaceRollout) -> usize {
        let least = self.schedule.workload.as_ref().and_then(|workload| workload.budget);
        let least = least.filter(|_| rollout.spec.respects_disruption_budgets());
        let least = least.map_or(0, |least| usize::try_from(least).unwrap_or_default());
        self.allowed(rollout).min(self.schedule.members().saturating_sub(least))
    }

    /// How many of them may be unavailable by its strategy.
    fn allowed(&self, rollout: &InPlaceRollout) -> usize {
        let all = u32::try_from(self.schedule.members()).unwrap_or_default();
        let own = rollout.spec.strategy.as_ref().and_then(|s| s.max_unavailable.as_ref());
        let workload = || {
            if rollout.spec.selector.is_some() {
                return 1;
            }
            let most = self.schedule.workload.as_ref().and_then(crate::world::rolling::WorkloadPlan::most);
            most.map_or(1, |most| share_of(&most.0, all))
        };
        usize::try_from(own.map_or_else(workload, |own| own.of(all))).unwrap_or_default()
    }

    /// How many of its Pods are missing or do not serve; for selected Pods, only existing ones count.
    fn away(&self, rollout: &InPlaceRollout, since: u64, serves: impl Fn(&str, &Member) -> bool) -> usize {
        let there = |member: &Member| member.made < since && member.gone.is_none();
        let serving = self.members.iter().filter(|(uid, member)| serves(uid, member)).count();
        if rollout.spec.selector.is_none() {
            return self.schedule.members().saturating_sub(serving);
        }
        self.members.iter().filter(|(uid, member)| there(member) && !serves(uid, member)).count()
    }

    /// Whether a rollout made this request.
    pub(super) fn made(&self, uid: &str) -> bool {
        self.children.contains_key(uid)
    }

    /// Checks a stop of an instance for a request: besides one for each wish, `lost` more are allowed.
    pub(super) fn stops(&mut self, request: &str, name: &str, instance: &str, lost: usize) -> Found {
        let Some(child) = self.children.get(request) else { return Found::new() };
        let cause = (child.rollout.clone(), child.wish, child.pod.clone(), name.to_owned());
        let all = self.stopped.entry(cause).or_default();
        all.insert(instance.to_owned());
        if all.len() <= 1 + lost || self.off {
            return Found::new();
        }
        vec![("W2", format!("{request} stops a second instance of {name} for one wish: {all:?}"))]
    }

    /// etcd was restored to an earlier state.
    pub(super) fn restored(&mut self, now: u64, server: &Server) {
        self.off = true;
        for (uid, followed) in &mut self.followed {
            let stored = server.objects("InPlaceRollout").find(|r| r["metadata"]["uid"] == **uid);
            followed.deleted = stored.is_none().then_some(now);
            if let Some(stored) = stored {
                followed.object = InPlaceRollout::deserialize(&**stored).unwrap();
            }
        }
        for (uid, child) in &mut self.children {
            let stored = server.objects("ContainerRecreateRequest").find(|r| r["metadata"]["uid"] == **uid);
            child.deleted = stored.is_none();
            if stored.is_some_and(|stored| stored["status"]["completionTime"].is_null()) {
                child.ended = None;
            }
        }
    }

    /// An object was written, or removed.
    pub(super) fn wrote(&mut self, wrote: &Wrote<'_>) -> Found {
        let Wrote { now, many_leaders, kind, .. } = *wrote;
        let mut found = Found::new();
        self.now = now;
        self.many_leaders |= many_leaders;
        match kind {
            "InPlaceRollout" => self.rollout_wrote(wrote, &mut found),
            "ContainerRecreateRequest" => self.child_wrote(wrote, &mut found),
            "Pod" => self.see_pod(wrote),
            _ => {}
        }
        if self.off { Found::new() } else { found }
    }

    fn rollout_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, .. } = *wrote;
        let now = self.now;
        let uid = |o: &Value| o["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let Some(new) = after else {
            if let Some(followed) = before.and_then(|old| self.followed.get_mut(&uid(old))) {
                followed.deleted.get_or_insert(now);
            }
            return;
        };
        let id = uid(new);
        let new = InPlaceRollout::deserialize(new).unwrap();
        let followed = self.followed.entry(id.clone()).or_insert_with(|| Followed {
            object: new.clone(),
            created: now,
            deleted: None,
            wishes: vec![(new.spec.restarted_at.clone(), now)],
            over: 0,
            begun: None,
            paused: None,
            changed: now,
        });
        let old = std::mem::replace(&mut followed.object, new.clone());
        if followed.wishes.last().is_none_or(|(wish, _)| *wish != new.spec.restarted_at) {
            followed.wishes.push((new.spec.restarted_at.clone(), now));
        }
        followed.paused = new.spec.paused.then(|| followed.paused.unwrap_or(now));
        if old.spec != new.spec || status(&old) != status(&new) {
            followed.changed = now;
        }
        let (before, after) = (status(&old), status(&new));
        if before == after {
            return;
        }
        if writer != Writer::Controller {
            found.push(("I11", format!("{writer:?} writes the status of {id}")));
        }
        if let Some(restart) =
            after.restart.as_ref().filter(|restart| before.restart.as_ref() != Some(restart))
        {
            followed.begun = Some((followed.wish(&restart.restarted_at), now));
            self.begins(&id, restart, found);
        }
        if after.restarted_at != before.restarted_at && after.restarted_at.is_some() {
            self.finished(&id, &after, found);
            if let Some(followed) = self.followed.get_mut(&id) {
                followed.over = followed.begun.map_or(0, |(wish, _)| wish + 1);
            }
        }
    }
}
