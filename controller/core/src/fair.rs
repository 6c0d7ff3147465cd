//! A queue that namespaces share. They take turns; if it is full, the namespace with the most items loses one.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

/// Waiting items by namespace, each namespace in order of arrival.
#[derive(Clone, Debug)]
pub struct FairQueue<T> {
    lines: BTreeMap<String, VecDeque<T>>,
    /// Number of waiting items.
    len: usize,
    /// Most items that may wait.
    most: usize,
    /// The namespace that had a turn last.
    last: String,
}

impl<T> FairQueue<T> {
    /// An empty queue for `most` items.
    pub fn new(most: usize) -> Self {
        Self { lines: BTreeMap::new(), len: 0, most, last: String::new() }
    }

    /// Adds the item to the end of its namespace's line. If the queue is full, removes and returns the last item of the
    /// longest line.
    pub fn push(&mut self, namespace: &str, item: T) -> Option<T> {
        self.len = self.len.saturating_add(1);
        self.lines.entry(namespace.to_owned()).or_default().push_back(item);
        if self.len <= self.most {
            return None;
        }
        // Among lines of equal length, the one that just grew.
        let length = |(name, line): &(&String, &VecDeque<T>)| (line.len(), name.as_str() == namespace);
        let longest = self.lines.iter().max_by_key(length).map(|(name, _)| name.clone())?;
        self.take(&longest, VecDeque::pop_back)
    }

    /// Removes and returns the first item of the namespace whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let after = (Excluded(self.last.as_str()), Unbounded);
        let next = self.lines.range::<str, _>(after).next().or_else(|| self.lines.first_key_value());
        let next = next.map(|(name, _)| name.clone())?;
        self.last.clone_from(&next);
        self.take(&next, VecDeque::pop_front)
    }

    fn take(&mut self, namespace: &str, take: impl FnOnce(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let line = self.lines.get_mut(namespace)?;
        let taken = take(line);
        if line.is_empty() {
            self.lines.remove(namespace);
        }
        self.len = self.len.saturating_sub(usize::from(taken.is_some()));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(fair: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| fair.pop()).collect()
    }

    #[test]
    fn namespaces_take_turns_and_each_has_its_own_order() {
        let mut fair = FairQueue::new(9);
        for (namespace, item) in
            [("b", "b1"), ("b", "b2"), ("b", "b3"), ("a", "a1"), ("c", "c1"), ("a", "a2")]
        {
            assert_eq!(fair.push(namespace, item), None);
        }
        assert_eq!(fair.pop(), Some("a1"));
        fair.push("a", "a3");
        assert_eq!(all(&mut fair), ["b1", "c1", "a2", "b2", "a3", "b3"]);
        assert_eq!((fair.len, fair.lines.len()), (0, 0), "nothing is kept of who has nothing");
    }

    #[test]
    fn who_has_most_loses_when_it_is_full() {
        let mut fair = FairQueue::new(3);
        for item in ["b1", "b2", "b3"] {
            assert_eq!(fair.push("b", item), None);
        }
        assert_eq!(fair.push("b", "b4"), Some("b4"), "what came last");
        assert_eq!(fair.push("a", "a1"), Some("b3"), "another one's is not lost for it");
        assert_eq!(fair.push("a", "a2"), Some("a2"), "not more than half of it");
        assert_eq!(fair.push("c", "c1"), Some("b2"));
        assert_eq!(fair.push("d", "d1"), Some("d1"), "all have one");
        assert_eq!(all(&mut fair), ["a1", "b1", "c1"]);
    }

    #[test]
    fn a_queue_without_room_loses_everything() {
        let mut fair = FairQueue::new(0);
        assert_eq!(fair.push("a", "a1"), Some("a1"));
        assert_eq!((fair.pop(), fair.lines.len()), (None, 0));
    }
}
