//! How long an ended container waits for its next start: `flowcontrol.Backoff` of client-go as `doBackOff` uses it.

use std::collections::BTreeMap;

/// Pod, container and image string: a new image starts without the old one's back-off.
pub(super) type Key = (String, String, String);

/// In the kubelet's memory; gone when it restarts.
#[derive(Clone, Debug, Default)]
pub(super) struct BackOff(BTreeMap<Key, Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    wait_ms: u64,
    updated: u64,
}

impl BackOff {
    /// Until when a container that ended at `ended` waits, and how long its back-off is.
    pub(super) fn until(&self, now: u64, key: &Key, ended: u64, max_ms: u64) -> Option<(u64, u64)> {
        let entry = self.0.get(key).filter(|e| !e.expired(ended, max_ms))?;
        let until = ended + entry.wait_ms;
        (now < until).then_some((until, entry.wait_ms))
    }

    /// It is started now; the next back-off is twice this one.
    pub(super) fn started(&mut self, now: u64, key: Key, ended: u64, initial_ms: u64, max_ms: u64) {
        let wait_ms = match self.0.get(&key).filter(|e| !e.expired(ended, max_ms)) {
            Some(entry) => (entry.wait_ms * 2).min(max_ms),
            None => initial_ms,
        };
        self.0.insert(key, Entry { wait_ms, updated: now });
    }

    /// The key is held back: it failed a short while ago.
    pub(super) fn waits(&self, now: u64, key: &Key) -> bool {
        self.0.get(key).is_some_and(|entry| now < entry.updated + entry.wait_ms)
    }

    /// It has failed, once more.
    pub(super) fn failed(&mut self, now: u64, key: Key, initial_ms: u64, max_ms: u64) {
        self.started(now, key, now, initial_ms, max_ms);
    }

    /// A Pod is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.retain(|key, _| key.0 != uid);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Entry {
    /// It ran for twice the longest back-off.
    fn expired(&self, ended: u64, max_ms: u64) -> bool {
        ended.saturating_sub(self.updated) > 2 * max_ms
    }
}
