//! How many writes are under way at a time. What one namespace asks for does not keep another's waiting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most writes under way at a time; each holds a connection.
const MOST: usize = 16;
/// Most of one namespace among them. In line for the others are at most as many of each namespace.
const MOST_OF_NAMESPACE: usize = 8;

/// The places for writes.
#[derive(Clone, Debug)]
pub struct Slots {
    all: Arc<Semaphore>,
    /// By namespaces: those that somebody has or waits for.
    shares: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
}

/// A place; free again when this is dropped.
#[derive(Debug)]
pub struct Slot {
    _one: OwnedSemaphorePermit,
    _share: Option<OwnedSemaphorePermit>,
}

impl Slots {
    /// All are free.
    pub fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(MOST)), shares: Arc::default() }
    }

    /// Waits for a place for a write of that namespace, or of none; absent when there will be none any more.
    pub async fn take(&self, namespace: Option<&str>) -> Option<Slot> {
        let share = match namespace.map(|namespace| self.share(namespace)) {
            Some(share) => Some(share.acquire_owned().await.ok()?),
            None => None,
        };
        let one = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Slot { _one: one, _share: share })
    }

    fn share(&self, namespace: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(namespace).and_then(Weak::upgrade) {
            return share;
        }
        // A permit keeps its semaphore, so what is gone has nobody.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(MOST_OF_NAMESPACE));
        shares.insert(namespace.to_owned(), Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether there is a place at once.
    async fn free(slots: &Slots, namespace: Option<&str>) -> Option<Slot> {
        tokio::time::timeout(Duration::ZERO, slots.take(namespace)).await.ok().flatten()
    }

    #[tokio::test]
    async fn a_namespace_has_half_of_them() {
        let slots = Slots::new();
        let mut taken = Vec::new();
        while let Some(slot) = free(&slots, Some("many")).await {
            taken.push(slot);
        }
        assert_eq!(taken.len(), 8);
        let other = free(&slots, Some("other")).await;
        assert!(other.is_some() && free(&slots, None).await.is_some());
        taken.pop();
        assert!(free(&slots, Some("many")).await.is_some(), "a place is free again");
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_namespace_without_writes() {
        let slots = Slots::new();
        for i in 0..100 {
            drop(free(&slots, Some(&format!("n{i}"))).await);
        }
        assert_eq!(slots.shares.lock().unwrap().len(), 1);
    }
}
