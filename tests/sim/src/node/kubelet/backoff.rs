//! How long an ended container waits for its next start: `flowcontrol.Backoff` of client-go as `doBackOff` uses it.

use std::collections::BTreeMap;

/// Pod, container and image string: a new image starts without the old one's back-off.
pub(super) type Key = (String, String, String);

/// Kept in the kubelet's memory; lost when it restarts.
#[derive(Clone, Debug, Default)]
pub(super) struct BackOff(BTreeMap<Key, Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    wait_ms: u64,
    updated: u64,
}

impl BackOff {
    /// Until when a container that ended at `ended` waits, and the length of its back-off; None if it need
    /// not wait.
    pub(super) fn until(&self, now: u64, key: &Key, ended: u64, max_ms: u64) -> Option<(u64, u64)> {
        let entry = self.0.get(key).filter(|e| !e.expired(ended, max_ms))?;
        let until = ended + entry.wait_ms;
        (now < until).then_some((until, entry.wait_ms))
    }

    /// Records a start; the next back-off is twice as long.
    pub(super) fn started(&mut self, now: u64, key: Key, ended: u64, initial_ms: u64, max_ms: u64) {
        let wait_ms = match self.0.get(&key).filter(|e| !e.expired(ended, max_ms)) {
            Some(entry) => (entry.wait_ms * 2).min(max_ms),
            None => initial_ms,
        };
        self.0.insert(key, Entry { wait_ms, updated: now });
    }

    /// Whether the key waits because of a recent failure.
    pub(super) fn waits(&self, now: u64, key: &Key) -> bool {
        self.0.get(key).is_some_and(|entry| now < entry.updated + entry.wait_ms)
    }

    /// Records a failure.
    pub(super) fn failed(&mut self, now: u64, key: Key, initial_ms: u64, max_ms: u64) {
        self.started(now, key, now, initial_ms, max_ms);
    }

    /// Drops the entries of a deleted Pod.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.retain(|key, _| key.0 != uid);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Entry {
    /// Whether it ran for more than twice the longest back-off.
    fn expired(&self, ended: u64, max_ms: u64) -> bool {
        ended.saturating_sub(self.updated) > 2 * max_ms
    }
}
