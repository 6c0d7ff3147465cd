//! When writes may happen, and when to look at something again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::backoff::Backoff;
use crate::config::Config;
use crate::plan::Urgency;
use crate::time::Mono;

/// How long a write that only reports a wait is held back while `open` requests may want one. Restarts come first, and
/// most waits end before they must be reported.
pub(super) fn hold(config: &Config, open: usize) -> Duration {
    let spaced = config.progress_spacing.saturating_mul(u32::try_from(open).unwrap_or(u32::MAX));
    spaced.min(config.progress_at_most).max(config.progress_after)
}

/// When the next write of one object may happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pacing {
    backoff: Backoff,
    /// Since when a write that can wait is wanted, and the longest time that it was held back for.
    wanted: Option<(Mono, Duration)>,
    /// After a conflict: when to write again even if the watch has shown nothing newer.
    retry_at: Option<Mono>,
}

impl Pacing {
    /// Whether to write now; the error says when. The longest `hold` counts, even if `hold` is shorter now: if many
    /// others have got through meanwhile, this wait is also near its end.
    pub(super) fn due(&mut self, now: Mono, urgency: Urgency, hold: Duration) -> Result<(), Mono> {
        if let Some(until) = self.backoff.waits_until(now) {
            return Err(until);
        }
        if urgency == Urgency::Now {
            return Ok(());
        }
        let (since, longest) = self.wanted.get_or_insert((now, hold));
        *longest = hold.max(*longest);
        let at = since.after(*longest);
        if at <= now { Ok(()) } else { Err(at) }
    }

    /// Nothing is left to write.
    pub(super) fn satisfied(&mut self) {
        self.wanted = None;
    }

    /// Whether a write that can wait is wanted.
    pub(super) fn holds_back(&self) -> bool {
        self.wanted.is_some()
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(super) fn failed(&mut self, now: Mono) {
        self.backoff.failed(now);
    }

    /// A write was refused as stale. The watch has until `retry_at` to show why.
    pub(super) fn conflicted(&mut self, retry_at: Mono) {
        self.retry_at = Some(retry_at);
    }

    /// When to write again after a conflict that the watch does not explain.
    pub(super) fn retry_at(&self) -> Option<Mono> {
        self.retry_at
    }

    /// Whether the watch has had its time to explain a conflict; true once.
    pub(super) fn patience_over(&mut self, now: Mono) -> bool {
        self.retry_at.take_if(|at| *at <= now).is_some()
    }
}

/// The next time to look at each key; at most one each.
#[derive(Clone, Debug)]
pub(super) struct Timers<K> {
    by_time: BTreeSet<(Mono, K)>,
    by_key: BTreeMap<K, Mono>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Clone + Ord> Timers<K> {
    /// Looks at `key` at that time only; None: never.
    pub(super) fn set(&mut self, key: K, at: Option<Mono>) {
        if let Some(before) = self.by_key.remove(&key) {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.by_key.insert(key.clone(), at);
            self.by_time.insert((at, key));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The earliest time.
    pub(super) fn first(&self) -> Option<Mono> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// A key whose time has come; its timer is removed.
    pub(super) fn pop_due(&mut self, now: Mono) -> Option<K> {
        self.first().filter(|at| *at <= now)?;
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_has_one_timer() {
        let mut timers = Timers::default();
        timers.set("a", Some(Mono(9)));
        timers.set("b", Some(Mono(5)));
        timers.set("a", Some(Mono(7)));
        timers.set("b", None);
        assert_eq!(timers.first(), Some(Mono(7)));
        assert_eq!(timers.pop_due(Mono(6)), None);
        assert_eq!(timers.pop_due(Mono(7)), Some("a"));
        assert_eq!(timers.first(), None);
    }

    #[test]
    fn a_write_that_can_wait_waits_from_when_it_was_first_wanted() {
        let (mut pacing, hold) = (Pacing::default(), Duration::from_secs(3));
        assert_eq!(pacing.due(Mono(0), Urgency::Later, hold), Err(Mono(3000)));
        assert_eq!(pacing.due(Mono(2000), Urgency::Later, hold), Err(Mono(3000)));
        assert_eq!(pacing.due(Mono(2000), Urgency::Now, hold), Ok(()));
        assert_eq!(pacing.due(Mono(3000), Urgency::Later, hold), Ok(()));
        pacing.satisfied();
        assert_eq!(pacing.due(Mono(3000), Urgency::Later, hold), Err(Mono(6000)));
        pacing.failed(Mono(3000));
        assert_eq!(pacing.due(Mono(3000), Urgency::Now, hold), Err(Mono(3500)));
    }

    #[test]
    fn the_more_may_tell_the_later_each_does() {
        for (open, seconds) in [(0, 3), (1, 3), (6, 3), (7, 3), (60, 30), (1_200, 600), (usize::MAX, 600)] {
            assert_eq!(hold(&Config::default(), open).as_secs(), seconds, "{open}");
        }
    }

    #[test]
    fn the_longest_hold_counts() {
        let (mut pacing, of) = (Pacing::default(), Duration::from_secs);
        assert_eq!(pacing.due(Mono(0), Urgency::Later, of(3)), Err(Mono(3_000)));
        assert_eq!(pacing.due(Mono(3_000), Urgency::Later, of(30)), Err(Mono(30_000)));
        assert_eq!(pacing.due(Mono(29_999), Urgency::Later, of(3)), Err(Mono(30_000)));
        assert!(pacing.holds_back());
        assert_eq!(pacing.due(Mono(30_000), Urgency::Later, of(3)), Ok(()));
        pacing.succeeded();
        assert!(!pacing.holds_back());
        assert_eq!(pacing.due(Mono(30_000), Urgency::Later, of(3)), Err(Mono(33_000)));
    }

    #[test]
    fn a_success_ends_every_wait() {
        let mut pacing = Pacing::default();
        pacing.failed(Mono(0));
        pacing.failed(Mono(500));
        pacing.conflicted(Mono(9_000));
        pacing.succeeded();
        assert_eq!(pacing.due(Mono(600), Urgency::Now, Duration::ZERO), Ok(()));
        assert_eq!(pacing.retry_at(), None);
        pacing.failed(Mono(600));
        assert_eq!(
            pacing.due(Mono(600), Urgency::Now, Duration::ZERO),
            Err(Mono(1_100)),
            "the first failure anew"
        );
    }

    #[test]
    fn patience_after_a_conflict_ends_once() {
        let mut pacing = Pacing::default();
        pacing.conflicted(Mono(5));
        assert!(!pacing.patience_over(Mono(4)));
        assert!(pacing.patience_over(Mono(5)));
        assert!(!pacing.patience_over(Mono(6)));
    }
}
