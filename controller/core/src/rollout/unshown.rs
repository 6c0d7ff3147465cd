//! Writes of a rollout that the watches have not shown yet.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Rollout, child};
use crate::deed::Deed;
use crate::key::{KindId, ObjectKey};
use crate::kind::{Lookup, Relative};
use crate::time::Mono;

/// How long a watch may take to show a write.
pub(super) const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// A request that was made or resumed.
#[derive(Clone, Debug)]
pub(super) struct MadeRequest {
    kind: KindId,
    key: ObjectKey,
    written_at: Mono,
    /// It is not suspended.
    begins: bool,
}

impl MadeRequest {
    /// A request that was just made or resumed.
    pub(super) fn new(kind: KindId, key: &ObjectKey, written_at: Mono, begins: bool) -> Self {
        Self { kind, key: key.clone(), written_at, begins }
    }

    /// Whether the watch shows the request as written. `over`: the Pod needs no request of this work, or has one.
    fn is_shown(&self, lookup: &dyn Lookup<Rollout>, work_id: &str, over: bool) -> bool {
        match lookup.relative(self.kind, &self.key) {
            Some(shown) => !(self.begins && shown.suspended),
            None => child::is_of(work_id, &self.key) && over,
        }
    }
}

/// All these writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Unshown {
    /// Requests, by their Pods.
    made: BTreeMap<ObjectKey, MadeRequest>,
    /// Pods that were marked, and when.
    marked: BTreeMap<ObjectKey, Mono>,
    /// UIDs of deleted requests, and when. Kept while the watch shows any request.
    deleted: BTreeMap<String, Mono>,
}

impl Unshown {
    /// Notes that a request for the Pod was made or resumed.
    pub(super) fn note_made(&mut self, pod: ObjectKey, made: MadeRequest) {
        self.made.insert(pod, made);
    }

    /// Notes that the Pod was marked.
    pub(super) fn note_marked(&mut self, pod: ObjectKey, at: Mono) {
        self.marked.insert(pod, at);
    }

    /// Notes that the request of that UID was deleted.
    pub(super) fn note_deleted(&mut self, uid: String, at: Mono) {
        self.deleted.insert(uid, at);
    }

    /// Forgets deletions: the watch shows no request any more.
    pub(super) fn forget_deleted(&mut self) {
        self.deleted.clear();
    }

    /// Forgets the mark: the Pod or its request changed.
    pub(super) fn changed(&mut self, pod: &ObjectKey) {
        self.marked.remove(pod);
    }

    /// The Pod is gone.
    pub(super) fn gone(&mut self, pod: &ObjectKey) {
        self.made.remove(pod);
    }

    /// Forgets marks of another revision.
    pub(super) fn forget_marks(&mut self) {
        self.marked.clear();
    }

    /// Forgets the request for the Pod once the watch shows it.
    pub(super) fn look(&mut self, pod: &ObjectKey, lookup: &dyn Lookup<Rollout>, work_id: &str, over: bool) {
        if self.made.get(pod).is_some_and(|made| made.is_shown(lookup, work_id, over)) {
            self.made.remove(pod);
        }
    }

    /// Whether a request of that work for the Pod is not suspended. None if none was made.
    pub(super) fn begins(&self, pod: &ObjectKey, work_id: &str) -> Option<bool> {
        self.made.get(pod).filter(|made| child::is_of(work_id, &made.key)).map(|made| made.begins)
    }

    /// Whether the request was resumed.
    pub(super) fn is_resumed(&self, request: &Relative<'_>) -> bool {
        self.made.values().any(|made| made.begins && made.key == *request.key)
    }

    /// Pods whose request is not shown yet.
    pub(super) fn pods(&self) -> impl Iterator<Item = &ObjectKey> {
        self.made.keys()
    }

    /// Whether this Pod is one of them.
    pub(super) fn has_made(&self, pod: &ObjectKey) -> bool {
        self.made.contains_key(pod)
    }

    /// Whether the Pod was marked just now.
    pub(super) fn has_marked(&self, now: Mono, pod: &ObjectKey) -> bool {
        self.marked.get(pod).is_some_and(|at| at.after(SHOWN_WITHIN) > now)
    }

    /// Whether the request of that UID was deleted. If the watch does not show the deletion in time, a restore of etcd
    /// brought the request back.
    pub(super) fn has_deleted(&self, now: Mono, uid: &str) -> bool {
        self.deleted.get(uid).is_some_and(|at| at.after(SHOWN_WITHIN) > now)
    }

    /// When to look again at requests that were deleted.
    pub(super) fn deleted_until(&self, now: Mono) -> Option<Mono> {
        self.deleted.values().map(|at| at.after(SHOWN_WITHIN)).filter(|at| *at > now).min()
    }

    /// When to look again at requests that were made, and at Pods that were marked.
    pub(super) fn overdue_at(&self) -> Option<Mono> {
        let made = self.made.values().map(|made| made.written_at);
        made.chain(self.marked.values().copied()).min().map(|at| at.after(SHOWN_WITHIN))
    }

    /// Gives up what the watch did not show in time. Returns the Pods of these requests.
    pub(super) fn give_up(&mut self, now: Mono) -> Vec<ObjectKey> {
        self.marked.retain(|_, at| at.after(SHOWN_WITHIN) > now);
        let late = |made: &MadeRequest| made.written_at.after(SHOWN_WITHIN) <= now;
        self.made.extract_if(.., |_, made| late(made)).map(|(pod, _)| pod).collect()
    }

    /// Whether requests of other work were made, or are being made.
    pub(super) fn has_made_others(&self, doing: &[Deed], work_id: &str) -> bool {
        let doing = doing.iter().filter_map(|deed| match deed {
            Deed::Create(child) => Some(&child.key),
            Deed::Resume { key, .. } => Some(key),
            _ => None,
        });
        let mut keys = self.made.values().map(|made| &made.key).chain(doing);
        keys.any(|key| !child::is_of(work_id, key))
    }
}
