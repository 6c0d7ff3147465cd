//! Rules for Pods whose images are updated.
//!
//! - U1: If the node must have the image first, a Pod is changed only once the node has it. A report of a
//!   pull is true.
//! - U2: A request succeeds only when each container runs the wanted content, by its ID, in a new instance,
//!   for the whole time of observation.
//! - U3: An ended request stays as it is; what was found when the change was recorded stays as it was found.
//! - U4: A Pod gets another image for a request at work on that very Pod, as its status says; for no dry run,
//!   and for no suspended request.
//! - U5: After an end without success the Pod has its old images again, if that is asked for, or another
//!   writer changed them, or the end says why not. A request that ends as rolled back has its old containers
//!   back.
//! - U6: No container gets an image of another repository, and no node gets one for it.
//! - U7: No change by another writer is undone: a request changes a Pod once, and back in at most four ways
//!   for each container.
//! - U8: One request is at work on a Pod; none begins beside a restart.
//! - U9: The reason of an end is true: a failed pull leaves the Pod as it was.
//! - U10: A Pod that must be drained is changed only when it was out of service for the grace.
//! - U11: While its node is not ready, no container is blamed for not being ready, and no observation
//!   completes.

mod ends;
mod lost;
mod pods;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::condition;
use pitstop_api::image_update::{Phase, PodImageUpdate, PodImageUpdateStatus, Pull, conditions};
use serde::Deserialize;
use serde_json::Value;

use super::Writer;
use super::pace::Clocks;
use super::rules::{Found, bare, millis};
use crate::node::keys;
use crate::node::runtime::{Deed, DeedKind, ImageNews, Runtime};
use crate::oracle::Wrote;
use crate::server::Server;
use crate::world::plan::{Fault, Schedule};

/// A change that is younger (milliseconds) may not have been seen.
const KNOWN: u64 = 8_000;
/// How long a watch without a connection may wait before it tries again, in milliseconds.
const RECONNECTS: u64 = 40_000;

/// A request.
struct Followed {
    object: PodImageUpdate,
    created: u64,
    /// Since when it is not suspended.
    released: Option<u64>,
    accepted: Option<u64>,
    ended: Option<u64>,
    deleted: Option<u64>,
    /// When its Pod got the new images.
    forth: Option<u64>,
    /// How often its Pod was changed back, and when last.
    backs: u32,
    back: Option<u64>,
    writes: u64,
}

/// A container that ran.
struct Instance {
    id: String,
    image_id: String,
    started: u64,
    ended: Option<u64>,
}

/// What the rules have seen.
pub struct Updates {
    schedule: Schedule,
    clocks: Clocks,
    now: u64,
    off: bool,
    many_leaders: bool,
    followed: BTreeMap<String, Followed>,
    /// Whether a node has an image, and since when: by node and the image's ID.
    images: BTreeMap<(String, String), (bool, u64)>,
    /// By Pod UID and container, the newest last.
    instances: BTreeMap<(String, String), Vec<Instance>>,
    /// When another writer last changed the images of a Pod, by its UID.
    foreign: BTreeMap<String, u64>,
    /// Instances that Pods have shown, by ID.
    shown: BTreeSet<String>,
    /// Since when a Pod is out of service, by its UID.
    out_since: BTreeMap<String, u64>,
    /// How requests ended, and how often.
    pub(super) ends: BTreeMap<String, usize>,
}

fn status(update: &PodImageUpdate) -> PodImageUpdateStatus {
    update.status.clone().unwrap_or_default()
}

impl Followed {
    fn open(&self) -> bool {
        self.ended.is_none() && self.deleted.is_none()
    }

    fn is_for(&self, pod: &str) -> bool {
        status(&self.object).target.is_some_and(|target| target.pod_uid == pod)
    }

    fn deadline(&self, schedule: &Schedule) -> u64 {
        self.object.spec.active_deadline_seconds.map_or(schedule.default_deadline * 1000, millis)
    }

    /// Whether the node must have the images first.
    fn requires(&self) -> bool {
        self.object.spec.pull() == Pull::Required
    }
}

impl Updates {
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
            images: BTreeMap::new(),
            instances: BTreeMap::new(),
            foreign: BTreeMap::new(),
            shown: BTreeSet::new(),
            out_since: BTreeMap::new(),
            ends: BTreeMap::new(),
        }
    }

    fn faults(&self, kind: impl Fn(&Fault) -> bool) -> bool {
        self.schedule.faults.iter().any(|f| kind(&f.what))
    }

    /// Whether only registries have faults.
    fn calm(&self) -> bool {
        let registries = |f: &Fault| {
            matches!(f, Fault::RegistryAway(_) | Fault::RegistrySlow(..) | Fault::RegistryRefuses(..))
        };
        self.schedule.crash.is_none() && self.schedule.faults.iter().all(|f| registries(&f.what))
    }

    /// Whether decisions may rest on facts older than seen before, or on another leader's.
    fn unsure(&self) -> bool {
        self.many_leaders || self.faults(|f| matches!(f, Fault::StaleLists(..)))
    }

    /// When the controller has seen the facts of that time: a watch that is held or lost reports nothing, and
    /// tries again after a back-off.
    fn seen_by(&self, at: u64) -> u64 {
        let blind = self.schedule.faults.iter().filter_map(|f| match f.what {
            Fault::ApiDown(ms)
            | Fault::HoldWatch(_, _, ms)
            | Fault::LoseEvents(_, _, ms)
            | Fault::LoseAnswers(_, ms) => Some((f.at, f.at + ms + RECONNECTS)),
            _ => None,
        });
        let covers = |(from, until): &(u64, u64)| *from <= self.now && at < *until;
        KNOWN + blind.filter(covers).map(|(_, until)| until).max().unwrap_or(at)
    }

    /// Whether the UID is that of an update.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.followed.contains_key(uid)
    }

    /// Whether a Pod has shown that instance, even if it never ran.
    pub(super) fn was_shown(&self, id: &str) -> bool {
        self.shown.contains(id)
    }

    /// etcd was restored to an earlier state.
    pub(super) fn restored(&mut self, now: u64, server: &Server) {
        self.off = true;
        let stored: Vec<PodImageUpdate> =
            server.objects("PodImageUpdate").map(|o| PodImageUpdate::deserialize(&**o).unwrap()).collect();
        for (uid, followed) in &mut self.followed {
            let Some(update) = stored.iter().find(|u| u.metadata.uid.as_ref() == Some(uid)) else {
                followed.deleted = Some(now);
                continue;
            };
            followed.object = update.clone();
            // Its user releases it again.
            followed.released = followed.released.filter(|_| !update.spec.suspend);
            followed.deleted = update.metadata.deletion_timestamp.is_some().then_some(now);
            if status(update).completion_time.is_none() {
                (followed.ended, followed.created) = (None, now);
            } else {
                followed.ended.get_or_insert(now);
            }
        }
    }

    /// A node got or lost an image.
    pub(super) fn image(&mut self, now: u64, node: &str, news: &ImageNews) {
        self.images.insert((node.to_owned(), news.image.id.clone()), (news.has, now));
    }

    /// Takes an event that really happened on a node.
    pub(super) fn deed(&mut self, deed: &Deed, runtime: &Runtime) {
        match deed.kind {
            DeedKind::Started => {
                let Some(container) = runtime.containers().get(&deed.id) else { return };
                let label = |key: &str| container.info.labels.get(key).cloned().unwrap_or_default();
                let name = (label(keys::POD_UID), label(keys::CONTAINER_NAME));
                let (id, image_id) = (deed.id.clone(), container.info.image_id.clone());
                let instance = Instance { id, image_id, started: deed.at, ended: None };
                self.instances.entry(name).or_default().push(instance);
            }
            DeedKind::Ended(_) => {
                let mut all = self.instances.values_mut().flatten();
                if let Some(instance) = all.find(|instance| instance.id == deed.id) {
                    instance.ended.get_or_insert(deed.at);
                }
            }
            _ => {}
        }
    }

    /// Checks a pull by a daemon: the image is of a repository that a container has.
    pub(super) fn pulls(&self, by: &str, image: &str) -> Found {
        let mut found = Found::new();
        let repository = crate::node::image::split(image).0;
        let mut names = self.schedule.pods.iter().flat_map(|pod| &pod.containers).map(|c| &c.name);
        if !names.any(|name| repository == format!("registry.example/{name}")) && !self.off {
            found.push(("U6", format!("{by} pulls {image}, and no container is of that repository")));
        }
        found
    }

    /// An object was written, or removed.
    pub(super) fn wrote(&mut self, wrote: &Wrote<'_>) -> Found {
        let Wrote { now, many_leaders, kind, .. } = *wrote;
        let mut found = Found::new();
        self.now = now;
        self.many_leaders |= many_leaders;
        match kind {
            "PodImageUpdate" => self.update_wrote(wrote, &mut found),
            "Pod" => self.see_pod(wrote),
            _ => {}
        }
        if self.off { Found::new() } else { found }
    }

    fn update_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, server, .. } = *wrote;
        let parse = |o: &Value| PodImageUpdate::deserialize(o).unwrap();
        let uid = |u: &PodImageUpdate| u.metadata.uid.clone().unwrap_or_default();
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
            released: None,
            accepted: None,
            ended: None,
            deleted: None,
            forth: None,
            backs: 0,
            back: None,
            writes: 0,
        });
        if new.metadata.deletion_timestamp.is_some() {
            followed.deleted.get_or_insert(now);
        }
        if !new.spec.suspend {
            followed.released.get_or_insert(now);
        }
        followed.object = new.clone();
        let after = status(&new);
        // The API server gives a new request this status: no controller has seen it.
        let unseen =
            PodImageUpdateStatus { observed_generation: Some(-1), ..PodImageUpdateStatus::default() };
        if before == after || (before == PodImageUpdateStatus::default() && after == unseen) {
            return;
        }
        followed.writes += 1;
        if before.target.is_none() && after.target.is_some() {
            followed.accepted = Some(now);
        }
        if writer != Writer::Controller {
            found.push(("I11", format!("{writer:?} writes the status of {id}")));
        }
        stays(&id, &before, &after, found);
        self.was_pulled(&id, &before, &after, found);
        self.is_heard(&id, &before, &after, server, found);
        if before.completion_time.is_none() && after.completion_time.is_some() {
            let last = after.conditions.iter().find(|c| c.type_ == conditions::COMPLETE);
            let reason = last.map(|c| c.reason.clone()).unwrap_or_default();
            *self.ends.entry(format!("update: {reason}")).or_default() += 1;
            self.ended(&id, &reason, server, found);
            if let Some(followed) = self.followed.get_mut(&id) {
                followed.ended = Some(now);
            }
        }
    }

    /// Checks that an image that is reported as pulled was on the node.
    fn was_pulled(
        &self,
        id: &str,
        before: &PodImageUpdateStatus,
        after: &PodImageUpdateStatus,
        found: &mut Found,
    ) {
        let node = after.target.as_ref().map(|t| t.node_name.clone()).unwrap_or_default();
        for container in &after.containers {
            let old = before.containers.iter().find(|c| c.name == container.name);
            let new = container.pulled.as_ref().filter(|_| old.is_none_or(|c| c.pulled != container.pulled));
            let Some(pulled) = new else { continue };
            if !self.images.contains_key(&(node.clone(), pulled.image_id.clone())) {
                found.push(("U1", format!("{id} has pulled {pulled:?}, which {node} never had")));
            }
        }
    }

    fn removed(&mut self, id: &str, writer: Writer, found: &mut Found) {
        let (now, clocks) = (self.now, self.clocks);
        let Some(followed) = self.followed.get_mut(id) else { return };
        followed.deleted.get_or_insert(now);
        let mut owners = followed.object.metadata.owner_references.iter().flatten();
        // A rollout deletes its own requests.
        if writer != Writer::Controller || owners.any(|owner| owner.kind == "InPlaceRollout") {
            return;
        }
        let ttl = followed.object.spec.ttl_seconds_after_finished;
        let ttl = ttl.map(|s| clocks.least(millis(s.into())));
        match (followed.ended, ttl) {
            (Some(ended), Some(ttl)) if now >= ended + ttl => {}
            (ended, ttl) => found.push(("L4", format!("{id} is deleted: ended {ended:?}, kept for {ttl:?}"))),
        }
    }

    /// Checks that everything ended in time.
    pub(super) fn converged(&self, calm: u64, led_since: u64, slack: u64) -> Found {
        let mut found = Found::new();
        for (uid, followed) in self.followed.iter().filter(|(_, f)| f.deleted.is_none()) {
            let from = followed.released.unwrap_or(followed.created).max(calm).max(led_since);
            let spec = &followed.object.spec;
            // A failed update is rolled back beyond the deadline.
            let most = followed.deadline(&self.schedule) + millis(spec.ready_timeout()) + 60_000;
            let limit = from + self.clocks.most(most) + slack;
            match followed.ended {
                None => found.push(("L1", format!("{uid} never ends"))),
                Some(ended) if ended > limit => {
                    found.push(("L1", format!("{uid} ends {} ms late", ended - limit)));
                }
                Some(_) => {}
            }
            if spec.ttl_seconds_after_finished.is_some() {
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

/// Checks that an ended request and what was found never change, and that the phase is what the conditions
/// say.
fn stays(id: &str, before: &PodImageUpdateStatus, after: &PodImageUpdateStatus, found: &mut Found) {
    if after.phase != condition::phase::<Phase>(&after.conditions) {
        found.push(("rule", format!("the phase of {id} is not what its conditions say: {after:?}")));
    }
    let end =
        |status: &PodImageUpdateStatus| PodImageUpdateStatus { observed_generation: None, ..status.clone() };
    if before.completion_time.is_some() && end(before) != end(after) {
        found.push(("U3", format!("{id} has ended, and changes from {before:?} to {after:?}")));
    }
    if before.target.is_some() && before.target != after.target {
        found.push(("U3", format!("{id} was accepted, and means another Pod: {before:?} to {after:?}")));
    }
    for (old, new) in before.containers.iter().zip(&after.containers) {
        if !old.written.is_empty() && (&old.written, &old.before) != (&new.written, &new.before) {
            found.push(("U3", format!("{id} writes {old:?} down first, and then {new:?}")));
        }
    }
}

/// Whether a Pod's reference names the instance.
fn is_named(instance: &Instance, reference: &str) -> bool {
    instance.id == bare(reference)
}
