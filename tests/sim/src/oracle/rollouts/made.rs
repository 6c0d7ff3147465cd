//! Requests that rollouts make: for which Pods, in which order, and how many at a time.

use std::collections::BTreeSet;

use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequest, conditions};
use pitstop_api::rollout::InPlaceRollout;
use serde::Deserialize;
use serde_json::Value;

use super::pods::Member;
use super::{Child, Followed, Rollouts};
use crate::oracle::Writer;
use crate::oracle::Wrote;
use crate::oracle::rules::Found;

/// How long a rollout waits for open requests of an earlier wish.
const PATIENCE: u64 = 290_000;

/// UID of the rollout that made the request.
fn owner(request: &ContainerRecreateRequest) -> Option<String> {
    let mut owners = request.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "InPlaceRollout").map(|owner| owner.uid.clone())
}

fn names(rollout: &InPlaceRollout) -> &[String] {
    rollout.spec.restart.as_ref().map_or(&[][..], |restart| &restart.containers)
}

impl Rollouts {
    pub(super) fn child_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, .. } = *wrote;
        let read = |o: &Value| ContainerRecreateRequest::deserialize(o).unwrap();
        let Some(request) = after.or(before).map(read) else { return };
        let Some(rollout) = owner(&request) else { return };
        let id = request.metadata.uid.clone().unwrap_or_default();
        if before.is_none() {
            self.child_made(&id, &rollout, &request, found);
        }
        let Some(child) = self.children.get_mut(&id) else { return };
        let status = request.status.clone().unwrap_or_default();
        if status.completion_time.is_some() && child.ended.is_none() {
            let complete = condition::find(&status.conditions, conditions::COMPLETE);
            child.ended = Some((self.now, complete.is_some_and(|c| c.status == ConditionStatus::True)));
        }
        if after.is_none() || request.metadata.deletion_timestamp.is_some() {
            self.child_goes(&id, writer, found);
        }
    }

    /// A request is deleted.
    fn child_goes(&mut self, id: &str, writer: Writer, found: &mut Found) {
        let Some(child) = self.children.get_mut(id) else { return };
        if std::mem::replace(&mut child.deleted, true) {
            return;
        }
        let child = child.clone();
        let Some(followed) = self.followed.get(&child.rollout) else { return };
        // A request that a user or the garbage collector deletes is made again until the watch shows that the
        // rollout is gone; also by another wish, if the user goes back to this one.
        if writer != Writer::Controller || followed.wishes.len() > child.wish + 1 {
            self.stopped.retain(|(rollout, _, pod, _), _| (rollout, pod) != (&child.rollout, &child.pod));
        }
        if writer != Writer::Controller || child.ended.is_some() || self.unsure() {
            return;
        }
        // Another wish took over some time ago, or no wish exists any more.
        let later = followed.wishes.get(child.wish + 1).map(|(_, since)| *since);
        let waited = later.is_some_and(|since| self.now > since + PATIENCE);
        let withdrawn = followed.wishes.iter().skip(child.wish + 1).any(|(wish, _)| {
            wish.is_none() || *wish == followed.object.status.clone().unwrap_or_default().restarted_at
        });
        // If the Pod is gone, nothing is left to wait for.
        if !waited && !withdrawn && self.is_there(&child.pod) {
            found.push(("W6", format!("{id} is open, and its rollout deletes it")));
        }
    }

    fn child_made(&mut self, id: &str, rollout: &str, request: &ContainerRecreateRequest, found: &mut Found) {
        let pod = request.metadata.labels.as_ref().and_then(|l| l.get(labels::POD_UID)).cloned();
        let pod = pod.unwrap_or_default();
        let Some(followed) = self.followed.get(rollout) else {
            found.push(("W3", format!("{id} is for no rollout that there was")));
            return;
        };
        let Some((wish, _)) = followed.begun else {
            found.push(("W3", format!("{id} is made before its restart is stored")));
            return;
        };
        let Some(member) = self.members.get(&pod) else {
            found.push(("W3", format!("{id} is for {pod}, which is no Pod of the workload")));
            return;
        };
        let child = Child {
            rollout: rollout.to_owned(),
            wish,
            pod,
            created: self.now,
            costs: member.was(true, self.now.saturating_sub(self.schedule.known())),
            ended: None,
            deleted: false,
        };
        self.is_for(id, followed, member, found);
        self.in_budget(id, followed, &child, found);
        self.may_go_on(id, followed, &child, found);
        if self.schedule.leaves_controllers_alone() && !self.unsure() {
            self.leaves_room(id, followed, &child, found);
            self.in_order(id, followed, &child, member, found);
        }
        self.children.insert(id.to_owned(), child);
    }

    /// Checks that the Pod existed when the restart began.
    fn is_for(&self, id: &str, followed: &Followed, member: &Member, found: &mut Found) {
        let begun = followed.begun.map_or(0, |(_, at)| at);
        // Times within one second cannot be told apart.
        if member.made > begun + 1_000 && !self.clock_jumps() {
            let (name, made) = (&member.name, member.made);
            found.push((
                "W3",
                format!("{id} is for {name}, made at {made}, and the restart began at {begun}"),
            ));
        }
        if self.below(member) {
            found.push(("W3", format!("{id} is for {}, which the partition leaves alone", member.name)));
        }
    }

    /// Open requests that the rollout must know; those of an earlier wish only if they were shown before this
    /// one began.
    fn open<'a>(&'a self, followed: &Followed, child: &'a Child) -> impl Iterator<Item = &'a Child> {
        let begun = followed.begun.map_or(0, |(_, at)| at).saturating_sub(self.schedule.known());
        self.children.values().filter(move |other| {
            let its = other.rollout == child.rollout && other.open();
            its && (other.wish == child.wish || other.created < begun) && self.is_there(&other.pod)
        })
    }

    fn is_there(&self, pod: &str) -> bool {
        self.members.get(pod).is_some_and(|member| member.gone.is_none())
    }

    /// Checks that no more Pods in service are restarted than allowed.
    fn in_budget(&self, id: &str, followed: &Followed, child: &Child, found: &mut Found) {
        if !child.costs || self.unsure() {
            return;
        }
        let open: BTreeSet<&str> = self
            .open(followed, child)
            .chain(std::iter::once(child))
            .filter(|other| other.costs)
            .map(|other| &*other.pod)
            .collect();
        let most = self.most(&followed.object);
        if open.len() > most {
            found.push((
                "W1",
                format!("with {id} {} Pods are being restarted, and {most} may be", open.len()),
            ));
        }
    }

    /// Checks that one more Pod may be unavailable, whatever made the others unavailable.
    fn leaves_room(&self, id: &str, followed: &Followed, child: &Child, found: &mut Found) {
        if !child.costs {
            return;
        }
        let since = self.now.saturating_sub(self.schedule.known());
        let restarted: BTreeSet<&str> = self.open(followed, child).map(|other| &*other.pod).collect();
        let serves = |uid: &str, member: &Member| {
            let gone = member.gone.is_some_and(|gone| gone < since);
            !gone && member.ever(true, since) && !restarted.contains(uid)
        };
        let most = self.most(&followed.object);
        let away = self.away(&followed.object, since, serves);
        if away >= most {
            found.push(("W1", format!("{id} is made while {away} Pods do not serve, and {most} may not")));
        }
    }

    /// Checks that the rollout may begin with another Pod.
    fn may_go_on(&self, id: &str, followed: &Followed, child: &Child, found: &mut Found) {
        let since = self.now.saturating_sub(self.schedule.known());
        let long = |at: Option<u64>| at.is_some_and(|at| at < since);
        let mut wrong = |why: &str| found.push(("W6", format!("{id} is made, and its rollout {why}")));
        if long(followed.paused) {
            wrong("is paused");
        }
        if long(followed.deleted) {
            wrong("is deleted");
        }
        let older = |other: &Followed| other.created + 1_000 < followed.created && other.deleted.is_none();
        if long(Some(followed.created)) && self.followed.values().any(older) && !self.clock_jumps() {
            wrong("is not the oldest");
        }
        let of_wish = |other: &&Child| {
            (&other.rollout, other.wish) == (&child.rollout, child.wish) && self.is_there(&other.pod)
        };
        let failed = |other: &&Child| other.has_failed() && long(other.ended.map(|(at, _)| at));
        let failed = self.children.values().filter(of_wish).filter(failed).count();
        let may = usize::try_from(followed.object.spec.failure_threshold()).unwrap_or_default();
        let raised = followed.changed > since;
        if failed >= may && !raised && !self.unsure() {
            wrong("has as many failed Pods as may be");
        }
        let Some(canary) = followed.object.spec.canary() else { return };
        let first = usize::try_from(canary.pods).unwrap_or_default();
        let begun = self.children.values().filter(of_wish).filter(|other| !other.deleted).count();
        let complete = |other: &&Child| {
            (&other.rollout, other.wish) == (&child.rollout, child.wish)
                && other.ended.is_some_and(|(_, complete)| complete)
        };
        let complete = self.children.values().filter(complete).count();
        if begun >= first && complete < first && !self.unsure() {
            found.push(("W5", format!("{id} is made with {complete} of {first} Pods of the canary done")));
        }
    }

    /// Checks that no waiting Pod comes before it.
    fn in_order(&self, id: &str, followed: &Followed, child: &Child, member: &Member, found: &mut Found) {
        let since = self.now.saturating_sub(self.schedule.known());
        let begun = followed.begun.map_or(0, |(_, at)| at);
        let has = |uid: &str| {
            let of = |c: &Child| (&c.rollout, c.wish) == (&child.rollout, child.wish) && c.pod == uid;
            self.children.values().any(of)
        };
        let waits = |(uid, other): &(&String, &Member)| {
            let mut picked = self.picks(other, names(&followed.object));
            let shown = picked.any(|name| other.shows(name, None).is_some_and(|at| at < since));
            let there = other.gone.is_none() && other.made + 2_000 < begun && !self.below(other);
            there && shown && **uid != child.pod && !has(uid)
        };
        let (ready, broken) = (member.was(true, since), member.was(false, since));
        let first = |(_, other): &(&String, &Member)| match (self.ordinal(other), self.ordinal(member)) {
            // Broken Pods go first if only they may.
            (Some(other_is), Some(own)) => other_is > own && (ready || (broken && other.was(false, since))),
            _ => ready && other.was(false, since),
        };
        if let Some((_, other)) = self.members.iter().filter(waits).find(first) {
            found.push(("W5", format!("{id} is for {}, and {} comes before it", member.name, other.name)));
        }
    }
}
