//! Rules for rollouts that give images to Pods that they select.
//!
//! - W16: Of the Pods that were ready, no more are updated at a time than may be unavailable, and none while
//!   the rollout is paused or deleted.
//! - W17: A Pod is marked only if it has what the rollout wants, or had it until a moment ago.
//! - W18: At rest each existing Pod has it and no request is left; or the rollout waits for a true reason.

use std::collections::BTreeMap;

use pitstop_api::condition;
use pitstop_api::image::Reference;
use pitstop_api::rollout::{InPlaceRollout, Phase, conditions};
use serde::Deserialize;
use serde_json::Value;

use super::rules::Found;
use super::{Writer, Wrote};
use crate::server::Server;
use crate::world::plan::Schedule;

/// Time after the last change when nothing more is to come.
const QUIET: u64 = 75_000;
/// Annotation with the mark of a Pod.
const MARK: &str = "pitstop.dev/revision";

/// A rollout.
struct Followed {
    object: InPlaceRollout,
    /// When it was paused, deleted, or last changed otherwise.
    paused: Option<u64>,
    deleted: Option<u64>,
    changed: u64,
    /// When its wanted images last changed.
    wished: u64,
}

/// A request for a Pod.
struct Child {
    rollout: String,
    pod: String,
    /// Whether its Pod was in service when it began.
    costs: bool,
    begun: bool,
    over: bool,
    failed: bool,
}

/// A Pod.
struct Member {
    object: Value,
    /// Whether it is ready, and since when; 0 if that never changed.
    ready: (bool, u64),
}

/// What the rules have seen.
pub struct Selected {
    schedule: Schedule,
    now: u64,
    unsure: bool,
    followed: BTreeMap<String, Followed>,
    children: BTreeMap<String, Child>,
    members: BTreeMap<String, Member>,
    /// How updates ended, and how often.
    pub(super) ends: BTreeMap<String, usize>,
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn is_true(of: &Value, what: &str, status: &str) -> bool {
    let mut conditions = of["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == what && c["status"] == status)
}

impl Followed {
    /// Whether the Pod has what it wants.
    fn has(&self, pod: &Value) -> bool {
        self.object.spec.images.iter().all(|wanted| {
            let lists = ["containers", "initContainers"].iter().map(|list| pod["spec"][*list].as_array());
            let mut containers = lists.flatten().flatten();
            let found = containers.find(|container| container["name"] == *wanted.name);
            let image = found.and_then(|container| container["image"].as_str()).unwrap_or_default();
            let (has, wanted) = (Reference::parse(image), Reference::parse(&wanted.image));
            has.is_ok_and(|has| {
                wanted.is_ok_and(|wanted| has.same_repository(&wanted) && has.own_tag() == wanted.own_tag())
            })
        })
    }

    fn most(&self) -> usize {
        let own = self.object.spec.strategy.as_ref().and_then(|strategy| strategy.max_unavailable.as_ref());
        own.map_or(1, |own| own.of(0)) as usize
    }

    fn reason(&self) -> String {
        let status = self.object.status.clone().unwrap_or_default();
        condition::find(&status.conditions, conditions::COMPLETE).map_or(String::new(), |c| c.reason.clone())
    }
}

impl Selected {
    /// Nothing seen yet.
    pub(super) fn new(schedule: &Schedule, unsure: bool) -> Self {
        Self {
            schedule: schedule.clone(),
            now: 0,
            unsure,
            followed: BTreeMap::new(),
            children: BTreeMap::new(),
            members: BTreeMap::new(),
            ends: BTreeMap::new(),
        }
    }

    /// An object was written, or removed.
    pub(super) fn wrote(&mut self, wrote: &Wrote<'_>) -> Found {
        let Wrote { now, many_leaders, kind, before, after, writer, .. } = *wrote;
        let mut found = Found::new();
        if !self.schedule.wishes() {
            return found;
        }
        self.now = now;
        self.unsure |= many_leaders;
        match kind {
            "InPlaceRollout" => self.rollout_wrote(before, after),
            "PodImageUpdate" => self.child_wrote(before, after, &mut found),
            "Pod" => self.pod_wrote(writer, before, after, &mut found),
            _ => {}
        }
        found
    }

    fn rollout_wrote(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let now = self.now;
        let Some(new) = after else {
            if let Some(gone) = before.and_then(|old| self.followed.get_mut(&uid(old))) {
                gone.deleted = Some(now);
            }
            return;
        };
        let object = InPlaceRollout::deserialize(new).unwrap();
        let followed = self.followed.entry(uid(new)).or_insert_with(|| Followed {
            object: object.clone(),
            paused: None,
            deleted: None,
            changed: now,
            wished: now,
        });
        let old = std::mem::replace(&mut followed.object, object);
        let new = &followed.object;
        if old.spec.images != new.spec.images {
            followed.wished = now;
        }
        if old.spec != new.spec || old.status != new.status {
            followed.changed = now;
        }
        followed.paused = new.spec.paused.then(|| followed.paused.unwrap_or(now));
        let ended = |of: &InPlaceRollout| of.status.as_ref()?.update.as_ref()?.ended;
        if let Some(end) = ended(new).filter(|_| ended(&old).is_none()) {
            *self.ends.entry(format!("selected: {}", end.name())).or_default() += 1;
        }
    }

    fn child_wrote(&mut self, before: Option<&Value>, after: Option<&Value>, found: &mut Found) {
        let Some(object) = after.or(before) else { return };
        let owner = &object["metadata"]["ownerReferences"][0];
        if owner["kind"] != "InPlaceRollout" {
            return;
        }
        let (id, pod) =
            (uid(object), object["spec"]["podRef"]["uid"].as_str().unwrap_or_default().to_owned());
        let since = self.now.saturating_sub(self.schedule.known());
        // A Pod that may be known as not ready costs nothing.
        let costs = self.members.get(&pod).is_some_and(|member| member.ready.0 && member.ready.1 <= since);
        let rollout = owner["uid"].as_str().unwrap_or_default().to_owned();
        let new = Child { rollout, pod, costs, begun: false, over: false, failed: false };
        let child = self.children.entry(id.clone()).or_insert(new);
        child.over |= after.is_none() || !object["status"]["completionTime"].is_null();
        child.failed = after.is_some() && is_true(object, "Failed", "True");
        let begins = !child.begun && !child.over && object["spec"]["suspend"] != true;
        if begins {
            (child.begun, child.costs) = (true, costs);
            self.begins(&id, since, found);
        }
    }

    fn begins(&self, id: &str, since: u64, found: &mut Found) {
        let Some(child) = self.children.get(id).filter(|_| !self.unsure) else { return };
        let Some(followed) = self.followed.get(&child.rollout) else { return };
        let long = |at: Option<u64>| at.is_some_and(|at| at < since);
        if long(followed.paused) || long(followed.deleted) {
            found.push(("W16", format!("{id} begins, and its rollout is paused or deleted")));
        }
        let open = |other: &&Child| {
            let there = self.members.contains_key(&other.pod);
            other.rollout == child.rollout && other.begun && !other.over && other.costs && there
        };
        let (open, most) = (self.children.values().filter(open).count(), followed.most());
        if child.costs && open > most {
            found.push(("W16", format!("with {id} {open} Pods are being updated, and {most} may be")));
        }
    }

    fn pod_wrote(
        &mut self,
        writer: Writer,
        before: Option<&Value>,
        after: Option<&Value>,
        found: &mut Found,
    ) {
        let now = self.now;
        let Some(pod) = after.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) else {
            before.or(after).and_then(|pod| self.members.remove(&uid(pod)));
            return;
        };
        if pod["metadata"]["labels"]["app"].is_null() {
            return;
        }
        let ready = is_true(pod, "Ready", "True");
        let member =
            self.members.entry(uid(pod)).or_insert_with(|| Member { object: pod.clone(), ready: (ready, 0) });
        if member.ready.0 != ready {
            member.ready = (ready, now);
        }
        let old = std::mem::replace(&mut member.object, pod.clone());
        let mark = |pod: &Value| pod["metadata"]["annotations"][MARK].as_str().unwrap_or_default().to_owned();
        let marked = writer == Writer::Controller && mark(&old) != mark(pod) && mark(pod).starts_with("s-");
        let since = now.saturating_sub(self.schedule.known());
        let lacks =
            |followed: &Followed| followed.wished < since && !followed.has(pod) && !followed.has(&old);
        if marked && !self.unsure && self.followed.values().all(lacks) {
            found.push(("W17", format!("{} is marked, and lacks what is wanted", pod["metadata"]["name"])));
        }
    }

    fn there(&self) -> impl Iterator<Item = (&String, &Followed)> {
        self.followed.iter().filter(|(_, followed)| followed.deleted.is_none())
    }

    fn children_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Child> {
        self.children.values().filter(move |child| child.rollout == id)
    }

    /// Whether all rollouts have ended, or wait for a user.
    pub(super) fn over(&self, now: u64, led_since: u64) -> bool {
        self.there().all(|(id, followed)| {
            let status = followed.object.status.clone().unwrap_or_default();
            let rests = matches!(status.phase, Some(Phase::Complete | Phase::Paused | Phase::Stalled));
            let seen = status.observed_generation == followed.object.metadata.generation;
            let over = self.children_of(id).all(|child| child.over || !child.begun);
            rests && seen && over && now > followed.changed.max(led_since) + QUIET
        })
    }

    /// Checks that the state of each rollout is true.
    pub(super) fn converged(&self, server: &Server) -> Found {
        let mut found = Found::new();
        for (id, followed) in self.there() {
            let why = followed.reason();
            let children = server
                .objects("PodImageUpdate")
                .filter(|update| update["metadata"]["ownerReferences"][0]["uid"] == **id);
            let fits = match why.as_str() {
                "Updated" | "Restarted" => {
                    let marked = |pod: &Value| !pod["metadata"]["annotations"][MARK].is_null();
                    let all =
                        self.members.values().all(|pod| followed.has(&pod.object) && marked(&pod.object));
                    all && children.count() == 0
                }
                "Paused" => followed.object.spec.paused,
                "PodsFailed" | "UntouchedPodsFailToo" => self.children_of(id).any(|child| child.failed),
                "Conflict" => self.there().count() > 1,
                "ProgressDeadlineExceeded" => self.members.values().any(|member| !member.ready.0),
                _ => false,
            };
            if !fits {
                found.push(("W18", format!("{id} comes to {why}, which is not so")));
            }
        }
        found
    }
}
