//! What a rollout has written and the watches have yet to show.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Rollout, child};
use crate::deed::Deed;
use crate::key::{KindId, ObjectKey};
use crate::kind::{Around, Relative};
use crate::time::Mono;

/// How long a watch may take to show it.
pub(super) const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// A request that was made, or released.
#[derive(Clone, Debug)]
pub(super) struct Made {
    kind: KindId,
    key: ObjectKey,
    at: Mono,
    /// It is not suspended.
    begins: bool,
}

impl Made {
    /// That one was made, or released, just now.
    pub(super) fn new(kind: KindId, key: &ObjectKey, at: Mono, begins: bool) -> Self {
        Self { kind, key: key.clone(), at, begins }
    }

    /// It is shown as what it was made. `over`: the Pod needs none of those of this mark, or has one.
    fn is_shown(&self, around: &dyn Around<Rollout>, mark: &str, over: bool) -> bool {
        match around.relative(self.kind, &self.key) {
            Some(shown) => !(self.begins && shown.suspended),
            None => child::is_of(mark, &self.key) && over,
        }
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Unshown {
    /// Requests, by their Pods.
    made: BTreeMap<ObjectKey, Made>,
    /// Pods that were marked.
    marked: BTreeMap<ObjectKey, Mono>,
    /// UIDs of requests that were deleted, as long as the watch shows any.
    deleted: BTreeMap<String, Mono>,
}

impl Unshown {
    /// A request for the Pod was made, or released.
    pub(super) fn make(&mut self, pod: ObjectKey, made: Made) {
        self.made.insert(pod, made);
    }

    /// The Pod was marked.
    pub(super) fn mark(&mut self, pod: ObjectKey, at: Mono) {
        self.marked.insert(pod, at);
    }

    /// The request of that UID was deleted.
    pub(super) fn delete(&mut self, uid: String, at: Mono) {
        self.deleted.insert(uid, at);
    }

    /// The watch shows no request any more.
    pub(super) fn all_gone(&mut self) {
        self.deleted.clear();
    }

    /// The Pod is another one, or the request for it is.
    pub(super) fn changed(&mut self, pod: &ObjectKey) {
        self.marked.remove(pod);
    }

    /// The Pod is gone.
    pub(super) fn gone(&mut self, pod: &ObjectKey) {
        self.made.remove(pod);
    }

    /// Pods are marked of something else.
    pub(super) fn marks_anew(&mut self) {
        self.marked.clear();
    }

    /// Looks at what the watch shows of the request for the Pod.
    pub(super) fn look(&mut self, pod: &ObjectKey, around: &dyn Around<Rollout>, mark: &str, over: bool) {
        if self.made.get(pod).is_some_and(|made| made.is_shown(around, mark, over)) {
            self.made.remove(pod);
        }
    }

    /// A request of that mark for the Pod, if one was made: whether it is not suspended.
    pub(super) fn begins(&self, pod: &ObjectKey, mark: &str) -> Option<bool> {
        self.made.get(pod).filter(|made| child::is_of(mark, &made.key)).map(|made| made.begins)
    }

    /// The request was released.
    pub(super) fn released(&self, request: &Relative<'_>) -> bool {
        self.made.values().any(|made| made.begins && made.key == *request.key)
    }

    /// Pods for which a request was made.
    pub(super) fn pods(&self) -> impl Iterator<Item = &ObjectKey> {
        self.made.keys()
    }

    /// One was made for this Pod.
    pub(super) fn makes(&self, pod: &ObjectKey) -> bool {
        self.made.contains_key(pod)
    }

    /// The Pod was marked.
    pub(super) fn marks(&self, now: Mono, pod: &ObjectKey) -> bool {
        self.marked.get(pod).is_some_and(|at| at.after(SHOWN_WITHIN) > now)
    }

    /// The request of that UID was deleted. Where the watch does not tell so in time, a restore of etcd has brought it back.
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

    /// Those that the watch does not show in time are taken for gone: their Pods.
    pub(super) fn give_up(&mut self, now: Mono) -> Vec<ObjectKey> {
        self.marked.retain(|_, at| at.after(SHOWN_WITHIN) > now);
        let late = |made: &Made| made.at.after(SHOWN_WITHIN) <= now;
        self.made.extract_if(.., |_, made| late(made)).map(|(pod, _)| pod).collect()
    }

    /// Requests of other marks were made, or are being made.
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
