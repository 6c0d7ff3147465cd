//! Time that decides: one process's monotonic clock, passed in as data.

use std::time::Duration;

/// Milliseconds on the monotonic clock of this process; never compared with another machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(pub u64);

impl Mono {
    /// This moment and `wait` more.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A number of seconds from an object as a duration; negative ones count as zero.
pub fn seconds(value: i64) -> Duration {
    Duration::from_secs(u64::try_from(value).unwrap_or_default())
}

/// Notes since when something holds: from now on, unless it already did; `None` if it does not hold.
pub fn note_since(since: &mut Option<Mono>, now: Mono, holds: bool) {
    *since = holds.then(|| since.unwrap_or(now));
}

/// The earlier of two moments, where absent means never.
pub fn earliest(a: Option<Mono>, b: Option<Mono>) -> Option<Mono> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
