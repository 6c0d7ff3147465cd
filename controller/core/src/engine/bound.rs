//! The limit of requests of one kind that are carried out in a namespace at a time. Requests beyond it wait. They are
//! planned when they appear, and again when they are within the limit.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::{Position, Progress};
use crate::key::ObjectKey;

/// The open requests of one kind, by their namespaces.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    /// The limit for each namespace; None: no limit.
    most: Option<usize>,
    namespaces: BTreeMap<String, Shares>,
    /// Namespaces that changed since the last `apply`.
    changed: BTreeSet<String>,
}

/// The requests of a namespace. Of those that have not begun, the oldest are within the limit.
#[derive(Clone, Debug, Default)]
struct Shares {
    /// How many have begun; they stay within the limit.
    begun: usize,
    within: BTreeSet<Rank>,
    beyond: BTreeSet<Rank>,
}

impl Shares {
    /// Moves one request, so that in the end the `room` oldest are within the limit. Returns the moved request; None if
    /// none has to move.
    fn swap(&mut self, room: usize) -> Option<Rank> {
        let unfair = self.within.last().zip(self.beyond.first()).is_some_and(|(last, first)| last > first);
        let (from, to) = if unfair || self.within.len() > room {
            (self.within.pop_last()?, &mut self.beyond)
        } else if self.within.len() < room {
            (self.beyond.pop_first()?, &mut self.within)
        } else {
            return None;
        };
        to.insert(from.clone());
        Some(from)
    }
}

/// `metadata.creationTimestamp`, then the name. A Pod's queue has the same order, so no request is within the limit
/// before one of its kind that it waits for.
type Rank = (i64, String);

fn rank(position: &Position) -> Rank {
    (position.created, position.key.name.clone())
}

impl Bound {
    pub(super) fn new(most: Option<usize>) -> Self {
        Self { most, namespaces: BTreeMap::new(), changed: BTreeSet::new() }
    }

    /// A request has this position now.
    pub(super) fn enter(&mut self, position: &Position) {
        self.change(position, |shares| match position.progress {
            Progress::Begun => shares.begun = shares.begun.saturating_add(1),
            Progress::Waits | Progress::Asks => {
                shares.beyond.insert(rank(position));
            }
            Progress::Lingers | Progress::Lasts => {}
        });
    }

    /// The request no longer has this position.
    pub(super) fn leave(&mut self, position: &Position) {
        self.change(position, |shares| match position.progress {
            Progress::Begun => shares.begun = shares.begun.saturating_sub(1),
            Progress::Waits | Progress::Asks => {
                let rank = rank(position);
                let _ = shares.within.remove(&rank) || shares.beyond.remove(&rank);
            }
            Progress::Lingers | Progress::Lasts => {}
        });
    }

    fn change(&mut self, position: &Position, change: impl FnOnce(&mut Shares)) {
        if self.most.is_some() {
            let namespace = &position.key.namespace;
            change(self.namespaces.entry(namespace.clone()).or_default());
            self.changed.insert(namespace.clone());
        }
    }

    /// Applies the limit again. Returns the requests that are newly within or beyond it.
    pub(super) fn apply(&mut self) -> Vec<ObjectKey> {
        let mut moved = Vec::new();
        let Some(most) = self.most else { return moved };
        for namespace in std::mem::take(&mut self.changed) {
            let Some(shares) = self.namespaces.get_mut(&namespace) else { continue };
            let room = most.saturating_sub(shares.begun);
            while let Some(rank) = shares.swap(room) {
                moved.push(ObjectKey::new(&namespace, &rank.1));
            }
            if shares.begun == 0 && shares.within.is_empty() && shares.beyond.is_empty() {
                self.namespaces.remove(&namespace);
            }
        }
        moved
    }

    /// How many requests of a namespace are beyond the limit.
    pub(super) fn beyond(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).map_or(0, |shares| shares.beyond.len())
    }

    /// The limit, if the request is beyond it; None if it is within.
    pub(super) fn exceeded(&self, created: i64, key: &ObjectKey) -> Option<usize> {
        let shares = self.namespaces.get(&key.namespace)?;
        self.most.filter(|_| shares.beyond.contains(&(created, key.name.clone())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn position(progress: Progress, created: i64) -> Position {
        Position { progress, created, key: ObjectKey::new("shop", format!("r{created}")) }
    }

    #[test]
    fn a_place_that_becomes_free_is_the_oldest_ones() {
        let mut bound = Bound::new(Some(2));
        for created in [4, 3, 2, 1] {
            bound.enter(&position(Progress::Waits, created));
        }
        bound.apply();
        let waits = |bound: &Bound| {
            (1..5)
                .filter(|i| bound.exceeded(*i, &position(Progress::Waits, *i).key) == Some(2))
                .collect::<Vec<_>>()
        };
        assert_eq!(waits(&bound), [3, 4]);
        bound.leave(&position(Progress::Waits, 1));
        bound.enter(&position(Progress::Begun, 1));
        assert_eq!(bound.apply(), [], "who begins keeps the place");
        bound.leave(&position(Progress::Begun, 1));
        bound.enter(&position(Progress::Lingers, 1));
        assert_eq!(bound.apply(), [ObjectKey::new("shop", "r3")]);
        assert_eq!(waits(&bound), [4]);
    }

    #[test]
    fn other_namespaces_are_none_of_its_business() {
        let mut bound = Bound::new(Some(1));
        bound.enter(&position(Progress::Waits, 1));
        let other = Position { key: ObjectKey::new("other", "a"), ..position(Progress::Waits, 9) };
        bound.enter(&other);
        bound.apply();
        assert_eq!(bound.exceeded(9, &other.key), None);
    }

    proptest! {
        /// In any sequence, no request is within the limit while an older one is beyond it. The limit is used fully.
        /// Nothing is kept of a namespace without requests.
        #[test]
        fn the_oldest_have_the_places(steps in prop::collection::vec((0..12_i64, 0..3_u8), 1..60)) {
            let mut bound = Bound::new(Some(3));
            let mut all: BTreeMap<i64, Progress> = BTreeMap::new();
            for (created, step) in steps {
                if let Some(before) = all.remove(&created) {
                    bound.leave(&position(before, created));
                }
                let to = [None, Some(Progress::Waits), Some(Progress::Begun)][usize::from(step)];
                if let Some(progress) = to {
                    all.insert(created, progress);
                    bound.enter(&position(progress, created));
                }
                bound.apply();
                let begun = all.values().filter(|s| **s == Progress::Begun).count();
                let waiting = all.iter().filter(|(_, s)| **s == Progress::Waits).map(|(created, _)| *created);
                for (i, created) in waiting.enumerate() {
                    let beyond = bound.exceeded(created, &position(Progress::Waits, created).key).is_some();
                    prop_assert_eq!(beyond, i >= 3_usize.saturating_sub(begun));
                }
            }
            for (created, progress) in all {
                bound.leave(&position(progress, created));
            }
            bound.apply();
            prop_assert!(bound.namespaces.is_empty());
        }
    }
}
