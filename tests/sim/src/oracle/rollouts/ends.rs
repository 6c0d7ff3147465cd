//! How restarts begin and end, and what they leave.

use pitstop_api::condition;
use pitstop_api::rollout::{InPlaceRolloutStatus, Phase, Restart, RollResult, conditions};

use super::pods::Member;
use super::{Child, Followed, Rollouts, status};
use crate::oracle::rules::Found;
use crate::server::Server;

/// Time after the last change when nothing more is to come.
const QUIET: u64 = 75_000;
/// Time until a container in the kubelet's longest back-off is started again.
const STARTS_AGAIN: u64 = 330_000;

fn reason(status: &InPlaceRolloutStatus) -> String {
    let last = condition::find(&status.conditions, conditions::COMPLETE);
    last.map(|last| last.reason.clone()).unwrap_or_default()
}

impl Followed {
    fn reason(&self) -> String {
        reason(&status(&self.object))
    }
}

impl Rollouts {
    /// Checks that a restart begins with all existing Pods.
    pub(super) fn begins(&self, id: &str, restart: &Restart, found: &mut Found) {
        let Some(followed) = self.followed.get(id) else { return };
        let wish = followed.begun.map_or(0, |(wish, _)| wish);
        let since = followed.wishes.get(wish).map_or(0, |(_, since)| *since);
        let there = |member: &&Member| member.made < since && member.gone.is_none();
        let newest = self.members.values().filter(there).filter_map(|member| member.created).max();
        if newest > restart.newest_pod && !self.clock_jumps() {
            let last = restart.newest_pod;
            found.push((
                "W3",
                format!("{id} begins with Pods up to {last:?}, and there was one of {newest:?}"),
            ));
        }
    }

    /// Checks a restart that is reported as finished.
    pub(super) fn finished(&mut self, id: &str, after: &InPlaceRolloutStatus, found: &mut Found) {
        *self.ends.entry(format!("rollout: {}", reason(after))).or_default() += 1;
        let Some(followed) = self.followed.get(id) else { return };
        let wish = followed.begun.map_or(0, |(wish, _)| wish);
        let Some((asked, since)) = followed.wishes.get(wish).filter(|_| !self.unsure()) else { return };
        if *asked != after.restarted_at {
            found
                .push(("W4", format!("{id} has finished {:?}, and {asked:?} was begun", after.restarted_at)));
        }
        let last = after.history.first().map(|roll| (&roll.restarted_at, roll.result, roll.current));
        if last != Some((&after.restarted_at, RollResult::Restarted, after.current)) {
            found.push(("W4", format!("{id} has finished, and remembers {last:?}")));
        }
        if (after.current, after.started, after.failed) != (after.pods, 0, 0) {
            found.push(("W4", format!("{id} has finished, and counts {after:?}")));
        }
        let known = self.now.saturating_sub(self.schedule.known());
        let named = followed.object.spec.restart.as_ref().map_or(&[][..], |restart| &restart.containers);
        let due = self.members.iter().filter(|(_, member)| {
            member.gone.is_none() && member.made < *since && !self.below(member) && !self.clock_jumps()
        });
        for (uid, member) in due {
            let old = |name: &&str| {
                // An instance that the controller did not know counts as new.
                let newest = self.began.get(&(uid.clone(), (*name).to_owned()));
                let heard_of =
                    |id: &str| member.shows(name, Some(id)).is_some_and(|at| at < *since && at < known);
                newest.is_some_and(|(id, began)| began < since && heard_of(id))
            };
            if let Some(name) = self.picks(member, named).find(old) {
                found.push((
                    "W4",
                    format!("{id} has finished, and {name} of {} is as old as before", member.name),
                ));
            }
        }
    }

    fn children_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Child> {
        self.children.values().filter(move |child| child.rollout == id && !child.deleted)
    }

    /// Whether all rollouts have ended, or wait for a user.
    pub(in crate::oracle) fn over(&self, now: u64, led_since: u64) -> bool {
        if self.schedule.parks() || self.schedule.wishes() {
            return true;
        }
        self.followed.iter().filter(|(_, followed)| followed.deleted.is_none()).all(|(id, followed)| {
            let status = status(&followed.object);
            let seen = status.observed_generation == followed.object.metadata.generation;
            let rests = match status.phase {
                Some(Phase::Idle | Phase::Complete) => self.children_of(id).next().is_none(),
                Some(Phase::Paused | Phase::Stalled) => {
                    self.children_of(id).all(|child| child.ended.is_some())
                }
                _ => false,
            };
            // A Pod that crashes again and again is ready for a moment each time, which lets another Pod
            // begin.
            let late = followed.reason() == "ProgressDeadlineExceeded";
            let quiet = if late { STARTS_AGAIN } else { QUIET };
            seen && rests && now > followed.changed.max(led_since) + quiet
        })
    }

    /// Checks that the state of each rollout is true.
    pub(in crate::oracle) fn converged(&self, server: &Server) -> Found {
        let mut found = Found::new();
        if self.schedule.parks() || self.schedule.wishes() {
            return found;
        }
        for (id, followed) in self.followed.iter().filter(|(_, f)| f.deleted.is_none()) {
            let status = status(&followed.object);
            let why = followed.reason();
            if status.observed_generation != followed.object.metadata.generation {
                found.push(("W7", format!("{id} speaks of {:?}: {status:?}", status.observed_generation)));
            }
            if !self.is_true(id, followed, &why, &status) {
                found.push(("W7", format!("{id} comes to {why}, which is not so: {status:?}")));
            }
            let asked = followed.object.spec.restarted_at.is_some();
            if asked && status.restart.is_some() && !self.counts(id, followed, &status) && why != "Conflict" {
                found.push(("W7", format!("{id} counts what is not so: {status:?}")));
            }
        }
        let there = |uid: &str| self.followed.get(uid).is_some_and(|f| f.deleted.is_none());
        for request in server.objects("ContainerRecreateRequest") {
            let owner = &request["metadata"]["ownerReferences"][0];
            if owner["kind"] == "InPlaceRollout" && !there(owner["uid"].as_str().unwrap_or_default()) {
                found.push(("W7", format!("{} has lost its rollout", request["metadata"]["name"])));
            }
        }
        found
    }

    fn is_true(&self, id: &str, followed: &Followed, why: &str, status: &InPlaceRolloutStatus) -> bool {
        let spec = &followed.object.spec;
        let none_left = || self.children_of(id).next().is_none();
        match why {
            "NothingRequested" => spec.restarted_at.is_none() && none_left(),
            "Restarted" => spec.restarted_at == status.restarted_at && none_left(),
            "Paused" => spec.paused,
            "PodsFailed" | "UntouchedPodsFailToo" => self.children_of(id).any(Child::has_failed),
            "NeedsUnavailability" => self.allowed(&followed.object) == 0,
            "Conflict" => {
                let older = |(uid, other): (&String, &Followed)| {
                    let earlier = other.created < followed.created || self.clock_jumps();
                    other.deleted.is_none() && earlier && uid != id
                };
                self.followed.iter().any(older)
            }
            // Pods that are missing or not ready keep the others from beginning.
            "ProgressDeadlineExceeded" => {
                let serves = |_: &str, member: &Member| member.gone.is_none() && member.was(true, self.now);
                self.away(&followed.object, self.now, serves) >= self.most(&followed.object)
            }
            _ => false,
        }
    }

    /// Whether the counts of the current restart are true.
    fn counts(&self, id: &str, followed: &Followed, status: &InPlaceRolloutStatus) -> bool {
        let wish = followed.begun.map_or(0, |(wish, _)| wish);
        let there = |child: &&Child| {
            child.wish == wish && self.members.get(&child.pod).is_some_and(|member| member.gone.is_none())
        };
        let children: Vec<&Child> = self.children_of(id).filter(there).collect();
        let count = |which: &dyn Fn(&Child) -> bool| {
            i32::try_from(children.iter().filter(|child| which(child)).count()).unwrap_or(i32::MAX)
        };
        let failed = count(&Child::has_failed);
        let current = count(&|child| child.ended.is_some_and(|(_, complete)| complete));
        self.off || (status.started, status.failed, status.current) == (count(&Child::open), failed, current)
    }
}
