//! Writes of a rollout that the watches have not shown yet.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Rollout, child};
use crate::deed::Deed;
use crate::key::{KindId, ObjectKey};
use crate::kind::{Around, Relative};
use crate::time::Mono;

/// How long a watch may take to show a write.
pub(super) const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// A request that was made or resumed.
#[derive(Clone, Debug)]
pub(super) struct Made {
    kind: KindId,
    key: ObjectKey,
    at: Mono,
    /// It is not suspended.
    begins: bool,
}

impl Made {
    /// A request that was just made or resumed.
    pub(super) fn new(kind: KindId, key: &ObjectKey, at: Mono, begins: bool) -> Self {
        Self { kind, key: key.clone(), at, begins }
    }

    /// Whether the watch shows the request as written. `over`: the Pod needs no request of this mark, or has one.
    fn is_shown(&self, around: &dyn Around<Rollout>, mark: &str, over: bool) -> bool {
        match around.relative(self.kind, &self.key) {
            Some(shown) => !(self.begins && shown.suspended),
            None => child::is_of(mark, &self.key) && over,
        }
    }
}

/// All these writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Unshown {
    /// Requests, by their Pods.
    made: BTreeMap<ObjectKey, Made>,
    /// Pods that were marked, and when.
    marked: BTreeMap<ObjectKey, Mono>,
    /// UIDs of deleted requests, and when. Kept while the watch shows any request.
    deleted: BTreeMap<String, Mono>,
}

impl Unshown {
    /// Notes that a request for the Pod was made or resumed.
    pub(super) fn make(&mut self, pod: ObjectKey, made: Made) {
        self.made.insert(pod, made);
    }

    /// Notes that the Pod was marked.
    pub(super) fn mark(&mut self, pod: ObjectKey, at: Mono) {
        self.marked.insert(pod, at);
    }

    /// Notes that the request of that UID was deleted.
    pub(super) fn delete(&mut self, uid: String, at: Mono) {
        self.deleted.insert(uid, at);
    }

    /// Forgets deletions: the watch shows no request any more.
    pub(super) fn all_gone(&mut self) {
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
    pub(super) fn marks_anew(&mut self) {
        self.marked.clear();
    }

    /// Forgets the request for the Pod once the watch shows it.
    pub(super) fn look(&mut self, pod: &ObjectKey, around: &dyn Around<Rollout>, mark: &str, over: bool) {
        if self.made.get(pod).is_some_and(|made| made.is_shown(around, mark, over)) {
            self.made.remove(pod);
        }
    }

    /// Whether a request of that mark for the Pod is not suspended. None if none was made.
    pub(super) fn begins(&self, pod: &ObjectKey, mark: &str) -> Option<bool> {
        self.made.get(pod).filter(|made| child::is_of(mark, &made.key)).map(|made| made.begins)
    }

    /// Whether the request was resumed.
    pub(super) fn released(&self, request: &Relative<'_>) -> bool {
        self.made.values().any(|made| made.begins && made.key == *request.key)
    }

    /// Pods whose request is not shown yet.
    pub(super) fn pods(&self) -> impl Iterator<Item = &ObjectKey> {
        self.made.keys()
    }

    /// Whether this Pod is one of them.
    pub(super) fn makes(&self, pod: &ObjectKey) -> bool {
        self.made.contains_key(pod)
    }

    /// Whether the Pod was marked just now.
    pub(super) fn marks(&self, now: Mono, pod: &ObjectKey) -> bool {
        self.marked.get(pod).is_some_and(|at| at.after(SHOWN_WITHIN) > now)
    }

    /// Whether the request of that UID was deleted. If the watch does not show the deletion in time, a restore of etcd
    /// brought the request back.
    pub(super) fn deletes(&self, now: Mono, uid: &str) -> bool {
        self.deleted.get(uid).is_some_and(|at| at.after(SHOWN_WITHIN) > now)
    }

    /// When to look again at requests that were deleted.
    pub(super) fn deleted_until(&self, now: Mono) -> Option<Mono> {
        self.deleted.values().map(|at| at.after(SHOWN_WITHIN)).filter(|at| *at > now).min()
    }

    /// When to look again at requests that were made, and at Pods that were marked.
    pub(super) fn overdue_at(&self) -> Option<Mono> {
        let made = self.made.values().map(|made| made.at);
        made.chain(self.marked.values().copied()).min().map(|at| at.after(SHOWN_WITHIN))
    }

    /// Gives up what the watch did not show in time. Returns the Pods of these requests.
    pub(super) fn give_up(&mut self, now: Mono) -> Vec<ObjectKey> {
        self.marked.retain(|_, at| at.after(SHOWN_WITHIN) > now);
        let late = |made: &Made| made.at.after(SHOWN_WITHIN) <= now;
        self.made.extract_if(.., |_, made| late(made)).map(|(pod, _)| pod).collect()
    }

    /// Whether requests of other marks were made, or are being made.
    pub(super) fn makes_others(&self, doing: &[Deed], mark: &str) -> bool {
        let doing = doing.iter().filter_map(|deed| match deed {
            Deed::Create(child) => Some(&child.key),
            Deed::Resume { key, .. } => Some(key),
            _ => None,
        });
        let mut keys = self.made.values().map(|made| &made.key).chain(doing);
        keys.any(|key| !child::is_of(mark, key))
    }
}
