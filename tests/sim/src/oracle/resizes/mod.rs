//! Rules for Pods that are resized.
//!
//! - R1: A Pod's resources change only as a request at work on that very Pod says, and only as far; never for
//!   a dry run.
//! - R2: A request succeeds only after the Pod's spec, its kubelet and, if the request says so, the kernel
//!   had it all.
//! - R3: After an end without success the Pod's spec is as before, or another writer changed it, or the end
//!   says why not.
//! - R4: No change by another writer is undone: each request changes a Pod once, from what it found, and back
//!   once.
//! - R5: The reason of an end is true.
//! - R6: An ended request stays as it is; a resolved one stays resolved.
//! - R7: A report about the kernel is about the running instance.
//! - R8: If no restart is allowed, nothing changes that restarts.
//! - R9: One request is at work on a Pod.
//! - R10: What the kubelet reports as done is not taken back because of the kernel, or of a deadline that
//!   passes later.
//! - R11: A step beyond the wanted size is the smallest, at most three times, only if a Pod's group may have
//!   been left unchanged, and is taken back.
//! - R12: A resize begins only while no restart has a container of the Pod to stop. A restart begins only
//!   while no resize has begun to change the Pod, except one that makes no progress within a minute.

mod ends;
mod pods;

pub(in crate::oracle) use self::pods::sizes;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::condition::{self, Condition};
use pitstop_api::nodework::{AnswerState, NodeWork};
use pitstop_api::quantity::{Resource, Resources};
use pitstop_api::resize::{Mechanism, Phase, PodResize, PodResizeStatus, Restart, conditions};
use serde::Deserialize;
use serde_json::Value;

use super::Writer;
use super::pace::Clocks;
use super::rules::{Found, millis};
use super::turns::Turns;
use crate::node::cgroups::Written;
use crate::oracle::Wrote;
use crate::server::Server;
use crate::world::plan::{Fault, Schedule, Step};

/// Time within which a request with nothing before it begins, if all goes well.
const SOON: u64 = 6_000;

/// A request.
struct Followed {
    object: PodResize,
    created: u64,
    accepted: Option<u64>,
    ended: Option<u64>,
    deleted: Option<u64>,
    /// When its Pod and the kubelet first had the wanted size, after the acceptance.
    sized: Option<u64>,
    /// Since when they have it.
    has_since: Option<u64>,
    /// When it began to restore the original size.
    restoring: Option<u64>,
    /// Since when its Pod is at a step beyond the wanted size, and the number of steps.
    stepped: Option<u64>,
    steps: u32,
    /// When its Pod first waited for room, after the acceptance.
    deferred: Option<u64>,
    /// Whether its Pod was shown as one that can never have the size.
    infeasible: bool,
    /// When its change took effect, and when it was taken back.
    forth: Option<u64>,
    back: Option<u64>,
    /// Instances on which the daemon reported: container and ID.
    reported: BTreeSet<(String, String)>,
    /// Whether no container of its Pod ran at its acceptance.
    blind: bool,
    /// Writes of its status, and of the Pod for it.
    writes: u64,
    /// Changes of the Pod's resources for it.
    changes: u64,
}

/// What the rules have seen.
pub struct Resizes {
    schedule: Schedule,
    clocks: Clocks,
    now: u64,
    off: bool,
    /// More than one process may have led at once.
    many_leaders: bool,
    followed: BTreeMap<String, Followed>,
    /// Sizes written into the control groups of containers, and from when they were in effect.
    groups: BTreeMap<String, Vec<(u64, Resources)>>,
    /// When another writer last changed the resources of a Pod, by its UID.
    foreign: BTreeMap<String, u64>,
    /// How often the resources of a Pod were changed, by UID.
    changes: BTreeMap<String, u64>,
    /// The instance that a Pod shows, and since when: by Pod UID and container.
    shown: BTreeMap<(String, String), (String, u64)>,
    /// Requests that succeeded since the last call.
    successes: Vec<(String, PodResizeStatus)>,
    /// Requests of the other kinds.
    restarts: Turns,
    /// How requests ended, and how often.
    pub(super) ends: BTreeMap<String, usize>,
}

fn uid(resize: &PodResize) -> String {
    resize.metadata.uid.clone().unwrap_or_default()
}

fn status(resize: &PodResize) -> PodResizeStatus {
    resize.status.clone().unwrap_or_default()
}

/// Whether the Pod shows a running container.
fn runs(pod: &Value) -> bool {
    let lists = ["containerStatuses", "initContainerStatuses"];
    let mut statuses = lists.iter().filter_map(|list| pod["status"][*list].as_array()).flatten();
    statuses.any(|status| !status["state"]["running"].is_null())
}

/// Reads requests and limits.
fn read(resources: &Value) -> Resources {
    let of = |list: &str, resource: Resource| {
        resources[list][resource.as_str()].as_str().and_then(|text| resource.parse(text))
    };
    Resources {
        cpu_request: of("requests", Resource::Cpu),
        cpu_limit: of("limits", Resource::Cpu),
        memory_request: of("requests", Resource::Memory),
        memory_limit: of("limits", Resource::Memory),
    }
}

impl Followed {
    /// Whether the daemon of its node carries it out, or will.
    fn by_daemon(&self) -> bool {
        status(&self.object).mechanism == Some(Mechanism::Cri)
    }

    /// Whether it may still act.
    fn open(&self) -> bool {
        self.ended.is_none() && self.deleted.is_none()
    }

    /// Whether it is or was at work on that Pod.
    fn is_for(&self, pod: &str) -> bool {
        status(&self.object).target.is_some_and(|target| target.pod_uid == pod)
    }

    fn deadline(&self, schedule: &Schedule) -> u64 {
        self.object.spec.active_deadline_seconds.map_or(schedule.default_deadline * 1000, millis)
    }

    /// Whether it restores the original size for that reason.
    fn restoring_for(&self, reason: &str) -> bool {
        status(&self.object).restoring.is_some_and(|restoring| restoring.reason == reason)
    }

    /// Milliseconds for which it watches the Pod.
    fn observes(&self) -> u64 {
        self.object.spec.rollback_on_failure.as_ref().map_or(0, |watch| millis(watch.observe_seconds))
    }
}

impl Resizes {
    /// Nothing seen yet.
    pub(super) fn new(schedule: &Schedule) -> Self {
        let many = schedule.faults.iter().any(|f| matches!(f.what, Fault::PauseController(..)));
        Self {
            schedule: schedule.clone(),
            clocks: Clocks::of(schedule),
            now: 0,
            off: false,
            many_leaders: many,
            followed: BTreeMap::new(),
            groups: BTreeMap::new(),
            foreign: BTreeMap::new(),
            changes: BTreeMap::new(),
            shown: BTreeMap::new(),
            successes: Vec::new(),
            restarts: Turns::default(),
            ends: BTreeMap::new(),
        }
    }

    /// Whether only control groups have faults.
    fn calm(&self) -> bool {
        let groups = |f: &Fault| matches!(f, Fault::HideCgroups(..) | Fault::SlowCgroups(..));
        self.schedule.crash.is_none() && self.schedule.faults.iter().all(|f| groups(&f.what))
    }

    /// Requests that succeeded since the last call, without dry runs.
    pub(super) fn take_successes(&mut self) -> Vec<(String, PodResizeStatus)> {
        std::mem::take(&mut self.successes)
    }

    /// Whether the UID is that of a resize.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.followed.contains_key(uid)
    }

    /// etcd was restored to an earlier state.
    pub(super) fn restored(&mut self, now: u64, server: &Server) {
        self.off = true;
        let stored: BTreeMap<String, PodResize> = server
            .objects("PodResize")
            .map(|o| PodResize::deserialize(&**o).unwrap())
            .map(|resize| (uid(&resize), resize))
            .collect();
        for (uid, followed) in &mut self.followed {
            let Some(resize) = stored.get(uid) else {
                followed.deleted = Some(now);
                continue;
            };
            followed.object = resize.clone();
            followed.deleted = resize.metadata.deletion_timestamp.is_some().then_some(now);
            if status(resize).completion_time.is_none() {
                (followed.ended, followed.created) = (None, now);
            } else {
                followed.ended.get_or_insert(now);
            }
        }
    }

    /// Takes the kubelet's write into the control group of a container.
    pub(super) fn sized(&mut self, written: &Written) {
        self.groups.entry(written.id.clone()).or_default().push((written.from, written.size));
    }

    /// A daemon reported what the kernel has for an instance.
    pub(super) fn reported(&mut self, request: &str, container: &str, id: &str) {
        if let Some(followed) = self.followed.get_mut(request) {
            followed.reported.insert((container.to_owned(), id.to_owned()));
        }
    }

    /// An object was written, or removed.
    pub(super) fn wrote(&mut self, wrote: &Wrote<'_>) -> Found {
        let Wrote { now, many_leaders, kind, before, after, .. } = *wrote;
        let mut found = Found::new();
        self.now = now;
        self.many_leaders |= many_leaders;
        match kind {
            "PodResize" => self.resize_wrote(wrote, &mut found),
            "Pod" => self.pod_wrote(wrote, &mut found),
            "ContainerRecreateRequest" | "PodImageUpdate" => self.restarts.wrote(now, before, after),
            "NodeWork" => self.restarts.book_wrote(now, before, after),
            _ => {}
        }
        if self.off { Found::new() } else { found }
    }

    fn resize_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, server, .. } = *wrote;
        let parse = |o: &Value| PodResize::deserialize(o).unwrap();
        let Some(new) = after.map(parse) else {
            if let Some(old) = before.map(parse) {
                self.removed(&uid(&old), writer, found);
            }
            return;
        };
        let (id, now) = (uid(&new), self.now);
        let before = self.followed.get(&id).map(|f| status(&f.object)).unwrap_or_default();
        let followed = self.followed.entry(id.clone()).or_insert_with(|| Followed {
            object: new.clone(),
            created: now,
            accepted: None,
            ended: None,
            deleted: None,
            sized: None,
            has_since: None,
            restoring: None,
            stepped: None,
            steps: 0,
            deferred: None,
            infeasible: false,
            forth: None,
            back: None,
            reported: BTreeSet::new(),
            blind: false,
            writes: 0,
            changes: 0,
        });
        if new.metadata.deletion_timestamp.is_some() {
            followed.deleted.get_or_insert(now);
        }
        followed.object = new.clone();
        let after = status(&new);
        if after.restoring.is_some() {
            followed.restoring.get_or_insert(now);
        }
        // If the node's daemon resizes, the request itself says that there is no room.
        if after.phase == Some(Phase::Deferred) && after.target.is_none() {
            followed.deferred.get_or_insert(now);
        }
        // The API server gives a new request this status: no controller has seen it.
        let unseen = PodResizeStatus { observed_generation: Some(-1), ..PodResizeStatus::default() };
        if before == after || (before == PodResizeStatus::default() && after == unseen) {
            return;
        }
        followed.writes += 1;
        if writer != Writer::Controller {
            found.push(("I11", format!("{writer:?} writes the status of {id}")));
        }
        stays(&id, &before, &after, found);
        if before.target.is_none() && after.target.is_some() {
            followed.accepted = Some(now);
            self.accepted(&id, &after, found);
            if let Some(pod) = self.pod_of(&after, server) {
                if let Some(followed) = self.followed.get_mut(&id) {
                    followed.blind = !runs(&pod);
                }
                self.see(&pod);
            }
        }
        if before.completion_time.is_none() && after.completion_time.is_some() {
            let last = after.conditions.iter().find(|c| c.type_ == conditions::COMPLETE);
            let reason = last.map(|c| c.reason.clone()).unwrap_or_default();
            *self.ends.entry(format!("resize: {reason}")).or_default() += 1;
            self.ended(&id, &reason, server, found);
            if after.phase == Some(Phase::Succeeded) && !new.spec.dry_run {
                self.successes.push((id.clone(), after));
            }
            if let Some(followed) = self.followed.get_mut(&id) {
                followed.ended = Some(now);
            }
        }
    }

    /// The Pod that a request was accepted for, if it exists.
    fn pod_of(&self, status: &PodResizeStatus, server: &Server) -> Option<Value> {
        let target = status.target.as_ref()?;
        server.objects("Pod").find(|pod| pod["metadata"]["uid"] == *target.pod_uid).map(|pod| (**pod).clone())
    }

    fn removed(&mut self, id: &str, writer: Writer, found: &mut Found) {
        let (now, clocks) = (self.now, self.clocks);
        let Some(followed) = self.followed.get_mut(id) else { return };
        followed.deleted.get_or_insert(now);
        if writer != Writer::Controller {
            return;
        }
        let ttl = followed.object.spec.ttl_seconds_after_finished;
        let ttl = ttl.map(|s| clocks.least(millis(s.into())));
        match (followed.ended, ttl) {
            (Some(ended), Some(ttl)) if now >= ended + ttl => {}
            (ended, ttl) => found.push(("L4", format!("{id} is deleted: ended {ended:?}, kept for {ttl:?}"))),
        }
    }

    /// Checks an acceptance: no other request is at work, restarts are allowed, and it did not wait in vain.
    fn accepted(&self, id: &str, new: &PodResizeStatus, found: &mut Found) {
        let Some(own) = self.followed.get(id) else { return };
        let spec = &own.object.spec;
        let pod = new.target.as_ref().map(|t| t.pod_uid.clone()).unwrap_or_default();
        if spec.pod_ref.uid.as_ref().is_some_and(|uid| *uid != pod) {
            found.push(("R1", format!("{id} means another Pod than {pod}")));
        }
        if spec.restart == Some(Restart::Never) && new.containers.iter().any(|c| c.restarts) {
            found.push(("R8", format!("{id} restarts a container, and must not")));
        }
        let real = |f: &Followed| !f.object.spec.dry_run;
        let others = || self.followed.iter().filter(|(other, f)| *other != id && real(f));
        let beside = others().find(|(_, f)| f.is_for(&pod) && f.open());
        if let Some((other, _)) = beside.filter(|_| real(own) && !self.many_leaders) {
            found.push(("R9", format!("{id} is accepted while {other} is at work on the same Pod")));
        }
        // If the places of the namespace are limited, each end of another request may free one.
        let bounded = self.schedule.most_open.is_some();
        let before = |f: &Followed| (real(f) && f.object.spec.pod_ref.name == spec.pod_ref.name) || bounded;
        let free = self.followed.iter().filter(|(other, f)| *other != id && before(f));
        let free = free.filter_map(|(_, f)| f.ended.into_iter().chain(f.deleted).min()).max();
        let since = own.created.max(free.unwrap_or(0));
        // The controller waits for what the kubelet must still write about a new Pod.
        let pods = self.schedule.steps.iter().all(|s| !matches!(s.what, Step::DeletePod(_)));
        // The limits for a Pod that its daemon resizes may leave no room for a while.
        let admitted = new.mechanism == Some(Mechanism::Cri);
        // An open restart comes first, or has not released the Pod yet.
        let restarted = self.restarts.free_since(&spec.pod_ref.name);
        let late = restarted.is_some_and(|free| self.now > since.max(free) + SOON);
        if self.calm() && pods && !admitted && late {
            found.push(("L2", format!("{id} begins {} ms after it could", self.now - since)));
        }
    }

    /// A resize, none of `owners`, that began to change that Pod within the last minute, while the Pod does
    /// not show yet that it has the size or cannot have it.
    pub(super) fn changing(&self, now: u64, pod: &str, owners: &[&str]) -> Option<String> {
        let at_work = |followed: &Followed| {
            let halted = followed.has_since.is_some() || followed.deferred.is_some() || followed.infeasible;
            // The minute counts from when the acceptance was sent.
            let recent = followed.accepted.is_some_and(|at| now < at + self.clocks.least(55_000));
            let real = !followed.object.spec.dry_run && !followed.by_daemon();
            // A later change by another writer is not its own.
            let taken_over = self.foreign.get(pod).copied() > followed.accepted;
            real && followed.is_for(pod)
                && followed.open()
                && recent
                && !halted
                && !taken_over
                && followed.restoring.is_none()
        };
        let mut others = self.followed.iter().filter(|(id, _)| !owners.contains(&id.as_str()));
        others
            .find(|(_, followed)| at_work(followed) && self.schedule.leaves_controllers_alone())
            .map(|(id, _)| id.clone())
    }

    /// Checks that everything ended in time.
    pub(super) fn converged(&self, calm: u64, led_since: u64, slack: u64) -> Found {
        let mut found = Found::new();
        for (uid, followed) in self.followed.iter().filter(|(_, f)| f.deleted.is_none()) {
            let from = followed.created.max(calm).max(led_since);
            let most = followed.deadline(&self.schedule) + followed.observes() + 60_000;
            let limit = from + self.clocks.most(most) + slack;
            match followed.ended {
                None => found.push(("L1", format!("{uid} never ends"))),
                Some(ended) if ended > limit => {
                    found.push(("L1", format!("{uid} ends {} ms late", ended - limit)));
                }
                Some(_) => {}
            }
            if followed.object.spec.ttl_seconds_after_finished.is_some() {
                found.push(("L4", format!("{uid} is kept beyond its time to live")));
            }
        }
        found
    }

    /// Whether all requests have ended.
    pub(super) fn over(&self, now: u64, led_since: u64) -> bool {
        self.followed.values().all(|f| {
            let ttl = f.object.spec.ttl_seconds_after_finished.map(|s| millis(s.into()));
            match (f.deleted, f.ended, ttl) {
                (Some(_), ..) => true,
                (None, Some(ended), Some(ttl)) => now > ended.max(led_since) + ttl + 60_000,
                (None, ended, _) => ended.is_some(),
            }
        })
    }
}

/// Checks that ended requests and resolved values never change, and that the phase is what the conditions
/// say.
fn stays(id: &str, before: &PodResizeStatus, after: &PodResizeStatus, found: &mut Found) {
    if after.phase != condition::phase(&after.conditions) {
        found.push(("rule", format!("the phase of {id} is not what its conditions say: {after:?}")));
    }
    // An end includes neither the generation that it is about, nor whether a daemon's size is still in force.
    let by_daemon = before.phase == Some(Phase::Succeeded) && before.mechanism == Some(Mechanism::Cri);
    let end = |status: &PodResizeStatus| {
        let counts = |c: &&Condition| !by_daemon || c.type_ != conditions::IN_FORCE;
        let conditions = status.conditions.iter().filter(counts).cloned().collect();
        PodResizeStatus { observed_generation: None, conditions, ..status.clone() }
    };
    if before.completion_time.is_some() && end(before) != end(after) {
        found.push(("R6", format!("{id} has ended, and changes from {before:?} to {after:?}")));
    }
    let resolved = |status: &PodResizeStatus| -> Vec<_> {
        let all = status.containers.iter();
        all.map(|c| {
            (c.name.clone(), c.container_id.clone(), c.restarts, c.original.clone(), c.desired.clone())
        })
        .collect()
    };
    if before.target.is_some() && (before.target != after.target || resolved(before) != resolved(after)) {
        found.push(("R6", format!("{id} was resolved, and is resolved anew: {before:?} to {after:?}")));
    }
}

/// Questions that a daemon has answered, each with its container and instance.
pub(super) fn answered(book: &NodeWork) -> Vec<(String, String, String)> {
    let answers = book.status.iter().flat_map(|status| &status.answers);
    let done: Vec<&str> =
        answers.filter(|a| a.state == AnswerState::Done).map(|a| a.order_id.as_str()).collect();
    let asked = book.spec.orders.iter().filter(|o| o.action.verify.is_some());
    let orders = asked.filter(|o| done.contains(&o.id.as_str()));
    orders.map(|o| (o.id.clone(), o.container.name.clone(), o.container.id.clone())).collect()
}
