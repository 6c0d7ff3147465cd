//! The queues of requests of one kind, by Pod. An event about a Pod plans only the requests that it concerns, however
//! many wait.

use std::collections::{BTreeMap, BTreeSet};

use crate::key::ObjectKey;

/// How far a request is with its Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// It was accepted and has not ended, or its acceptance was sent, with whatever result. No request overtakes it.
    Begun,
    /// It waits for its turn.
    Waits,
    /// A dry run or a suspended request: it neither blocks nor is blocked.
    Asks,
    /// It has ended but still has orders, or it has not ended and is being deleted.
    Lingers,
    /// It has ended, and its claim on the Pod lasts.
    Lasts,
}

impl Progress {
    const ALL: [Self; 5] = [Self::Begun, Self::Waits, Self::Asks, Self::Lingers, Self::Lasts];
}

/// Position of a request in the queue of its Pod, in the order of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) progress: Progress,
    /// `metadata.creationTimestamp`.
    pub(super) created: i64,
    pub(super) key: ObjectKey,
}

/// The requests of one kind by Pod. Ended requests without orders or claims are in no queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(BTreeMap<ObjectKey, BTreeSet<Position>>);

impl Queues {
    pub(super) fn enter(&mut self, pod: &ObjectKey, position: Position) {
        // Most changes concern known Pods: the key need not be cloned.
        match self.0.get_mut(pod) {
            Some(queue) => {
                queue.insert(position);
            }
            None => {
                self.0.insert(pod.clone(), BTreeSet::from([position]));
            }
        }
    }

    pub(super) fn leave(&mut self, pod: &ObjectKey, position: &Position) {
        let Some(queue) = self.0.get_mut(pod) else { return };
        queue.remove(position);
        if queue.is_empty() {
            self.0.remove(pod);
        }
    }

    /// Length of the Pod's queue.
    pub(super) fn len(&self, pod: &ObjectKey) -> usize {
        self.0.get(pod).map_or(0, BTreeSet::len)
    }

    /// Requests of the Pod with that progress, the oldest first.
    pub(super) fn of(
        &self,
        pod: &ObjectKey,
        progress: Progress,
    ) -> impl DoubleEndedIterator<Item = &Position> + use<'_> {
        let least = |progress| Position { progress, created: i64::MIN, key: ObjectKey::default() };
        let after = Progress::ALL.into_iter().find(|next| *next > progress).map(least);
        let positions = self.0.get(pod).map(|queue| {
            let from = std::ops::Bound::Included(least(progress));
            queue.range((from, after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded)))
        });
        positions.into_iter().flatten()
    }

    /// The request whose turn it is, or will be next.
    pub(super) fn first(&self, pod: &ObjectKey) -> Option<&Position> {
        let first = self.0.get(pod)?.first()?;
        [Progress::Begun, Progress::Waits].contains(&first.progress).then_some(first)
    }

    /// Requests whose plans may change with the Pod or with one of these requests. Of the waiting requests and of the
    /// dry runs, only the first.
    pub(super) fn concerned(&self, pod: &ObjectKey) -> impl Iterator<Item = &ObjectKey> + use<'_> {
        let first = |progress| self.of(pod, progress).take(1);
        let all = self.of(pod, Progress::Begun).chain(self.of(pod, Progress::Lingers));
        all.chain(first(Progress::Waits)).chain(first(Progress::Asks)).map(|position| &position.key)
    }

    /// The Pods of a namespace that have a queue.
    pub(super) fn pods_of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let pods = self.0.range(ObjectKey::new(namespace, "")..).map(|(pod, _)| pod);
        pods.take_while(move |pod| pod.namespace == namespace)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(progress: Progress, created: i64, name: &str) -> Position {
        Position { progress, created, key: ObjectKey::new("shop", name) }
    }

    fn names<'a>(positions: impl Iterator<Item = &'a Position>) -> Vec<&'a str> {
        positions.map(|position| position.key.name.as_str()).collect()
    }

    #[test]
    fn those_of_a_standing_come_in_order_of_creation() {
        let pod = ObjectKey::new("shop", "web");
        let mut queues = Queues::default();
        assert_eq!((queues.first(&pod), queues.of(&pod, Progress::Waits).count()), (None, 0));
        for progress in Progress::ALL {
            for (created, name) in [(7, "b"), (7, "a"), (3, "z"), (-1, "old")] {
                let name = format!("{progress:?}-{name}").to_lowercase();
                queues.enter(&pod, position(progress, created, &name));
            }
        }
        for progress in Progress::ALL {
            let expected = ["old", "z", "a", "b"].map(|name| format!("{progress:?}-{name}").to_lowercase());
            assert_eq!(names(queues.of(&pod, progress)), expected);
        }
        assert_eq!(names(queues.first(&pod).into_iter()), ["begun-old"]);
        let concerned: Vec<&str> = queues.concerned(&pod).map(|key| key.name.as_str()).collect();
        assert_eq!((concerned.len(), concerned[8], concerned[9]), (10, "waits-old", "asks-old"));
    }

    #[test]
    fn what_is_in_nobodys_way_is_never_first() {
        let pod = ObjectKey::new("shop", "web");
        let mut queues = Queues::default();
        let asks = position(Progress::Asks, 0, "a");
        queues.enter(&pod, asks.clone());
        queues.enter(&pod, position(Progress::Lasts, 0, "b"));
        assert_eq!(queues.first(&pod), None);
        assert_eq!(queues.pods_of("shop").count(), 1);
        assert_eq!(queues.pods_of("shoq").count(), 0);
        queues.leave(&pod, &asks);
        queues.leave(&pod, &position(Progress::Lasts, 0, "b"));
        assert!(queues.is_empty());
    }
}
