//! Planned events by time. Events of the same time keep the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of events.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Reverse<Planned<T>>>,
    serial: u64,
}

#[derive(Debug)]
struct Planned<T> {
    at: u64,
    serial: u64,
    event: T,
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Planned<T> {}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Planned<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), serial: 0 }
    }
}

impl<T> Queue<T> {
    /// Plans an event for a time, in milliseconds.
    pub fn push(&mut self, at: u64, event: T) {
        self.serial += 1;
        self.heap.push(Reverse(Planned { at, serial: self.serial, event }));
    }

    /// Time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(planned)| planned.at)
    }

    /// Removes the next event; returns it with its time.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|Reverse(planned)| (planned.at, planned.event))
    }
}
