//! Whose turn it is with a Pod. Requests of one kind go in order of creation, and none overtakes one that has begun.
//!
//! A restart in the midst of a resize leaves the Pod's cgroup at other values than those of its spec
//! (kubernetes#138760), so a resize waits for restarts that have begun or were asked for earlier, and a restart for a
//! resize that has begun.

use std::time::Duration;

use super::Index;
use super::asked::{Entry, Turn, UserRequest as _};
use super::planning::may_run;
use super::queue::Standing;
use crate::action::{Named, RequestKind};
use crate::before::Before;
use crate::key::ObjectKey;
use crate::pod::Pod;
use crate::recreate::{self, Ahead, Request};
use crate::resize::{self, Force, Resize};
use crate::time::Mono;

/// How long a restart waits for a resize that does not get on: memory that is in use may keep it for hours, and a restart
/// may be what frees it.
const RESTART_PATIENCE: Duration = Duration::from_mins(1);

/// How many of the last resizes that wait are looked at for one that an earlier one gives way to.
pub(super) const LATER: usize = 16;

impl Index {
    /// What goes before a recreate request that is not accepted yet.
    pub(super) fn before_recreate(&self, now: Mono, own: &Request) -> Option<Ahead> {
        // What belongs to a resize that has begun waits for nobody.
        if let Some(by) = self.requests.too_many(own).filter(|_| own.resize_uid.is_none()) {
            return Some(Ahead { by, until: None });
        }
        let pod = own.pod_key();
        if let Some(first) = self.requests.queues.first(&pod).filter(|first| first.key != own.key) {
            return Some(Ahead { by: Before::Request(recreate(&first.key)), until: None });
        }
        let mut resizes = self.resizes.of(&pod, Standing::Begun).filter(|e| !belongs(own, e.request.get()));
        resizes.find_map(|e| {
            let until = busy_since(e)?.after(RESTART_PATIENCE);
            let by = Before::Request(Named { kind: RequestKind::Resize, key: e.request.get().key.clone() });
            (until > now).then_some(Ahead { by, until: Some(until) })
        })
    }

    /// What goes before a resize: as long as it is not accepted, another one that has begun or was asked for earlier, and
    /// restarts that were asked for earlier; then only a restart that has begun.
    pub(super) fn before_resize(&self, entry: &Entry<Resize>, pod: Option<&Pod>) -> Option<Named> {
        let own = entry.request.get();
        let key = own.pod_key();
        let in_the_way = |e: &&Entry<Request>| {
            let restart = e.request.get();
            let stops = |pod| recreate::stops_yet(restart, &e.memory, pod);
            !belongs(restart, own) && (restart.status.target.is_none() || pod.is_some_and(stops))
        };
        // A stop may outlive its request.
        let stops = |e: &&Entry<Request>| e.orders.iter().any(|order| may_run(order, pod));
        let begun = self.requests.of(&key, Standing::Begun).find(in_the_way);
        if let Some(restart) = begun.or_else(|| self.requests.of(&key, Standing::Lingers).find(stops)) {
            return Some(recreate(&restart.request.get().key));
        }
        if own.status.target.is_some() {
            return None;
        }
        if let Some(first) = self.resizes.queues.first(&key).filter(|first| first.key != own.key) {
            return Some(Named { kind: RequestKind::Resize, key: first.key.clone() });
        }
        // Those wait for this one from when its acceptance is sent.
        let earlier =
            self.requests.queues.of(&key, Standing::Waits).next().filter(|_| entry.turn.begun().is_none());
        earlier.filter(|place| place.created < own.created).map(|place| recreate(&place.key))
    }

    /// It is a restart that has been accepted, as far as is known.
    pub(super) fn is_accepted(&self, ahead: &Named) -> bool {
        let restart = self.requests.objects.get(&ahead.key).filter(|_| ahead.kind == RequestKind::Recreate);
        restart.is_some_and(|e| e.request.get().status.target.is_some())
    }

    /// The last later resize of the same Pod that has begun, or was seen to be possible, and can be carried out there.
    pub(super) fn newer(&self, own: &Resize, pod: &Pod, force: &Force) -> Option<&ObjectKey> {
        let begun = self.resizes.of(&pod.key, Standing::Begun);
        let later = self.resizes.of(&pod.key, Standing::Waits).rev().take(LATER);
        begun
            .chain(later.filter(|e| e.turn == Turn::Possible))
            .map(|e| e.request.get())
            .filter(|other| !other.spec.cancel && rank(other) > rank(own))
            .filter(|other| resize::can_be(&other.spec, pod, force, &self.config))
            .max_by_key(|other| rank(other))
            .map(|other| &other.key)
    }

    /// It is one of the last resizes that wait for their Pod, and an earlier one would give way to it.
    pub(super) fn overtakes(&self, entry: &Entry<Resize>) -> bool {
        let own = entry.request.get();
        let pod = own.pod_key();
        let mut last = self.resizes.queues.of(&pod, Standing::Waits).rev().take(LATER);
        let begun =
            self.resizes.of(&pod, Standing::Begun).chain(self.resizes.of(&pod, Standing::Waits).take(1));
        let gives_way = |other: &Resize| other.status.restoring.is_none() && rank(other) < rank(own);
        last.any(|place| place.key == own.key) && begun.map(|e| e.request.get()).any(gives_way)
    }

    /// The request belongs to a resize that is not at work any more.
    pub(super) fn resize_over(&self, request: &Request) -> bool {
        let Some(uid) = &request.resize_uid else { return false };
        let mut resizes = self.resizes.of(&request.pod_key(), Standing::Begun).map(|e| e.request.get());
        !resizes.any(|resize| resize.uid == *uid && resize.started())
    }
}

/// The order of resizes. Of one second, who has begun is the earlier one.
fn rank(resize: &Resize) -> (i64, bool, &ObjectKey) {
    (resize.created, !resize.started(), &resize.key)
}

/// The resize has made the request to restart its containers.
fn belongs(request: &Request, resize: &Resize) -> bool {
    request.resize_uid.as_ref() == Some(&resize.uid)
}

/// Since when a resize changes its Pod; absent while it changes nothing.
fn busy_since(entry: &Entry<Resize>) -> Option<Mono> {
    let resize = entry.request.get();
    if Resize::accepted(resize.status()) { entry.memory.busy_since } else { entry.turn.begun() }
}

fn recreate(key: &ObjectKey) -> Named {
    Named { kind: RequestKind::Recreate, key: key.clone() }
}
