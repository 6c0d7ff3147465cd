//! The life of a request of any kind: deadline, lag of watches, time to live, end.

use std::time::Duration;

use pitstop_api::condition::{self, COMPLETE, Condition, ConditionStatus};

use crate::config::Config;
use crate::kind::{Ended, Kind};
use crate::pod::Pod;
use crate::time::{Mono, seconds};

/// The Pod was made by the request with this UID.
pub(crate) fn made_by<K: Kind>(uid: &str, pod: &Pod) -> bool {
    pod.made.as_ref().is_some_and(|made| made.owner.kind == K::ABOUT.id.name() && made.owner.uid == uid)
}

/// The request is at work on exactly this Pod.
pub(crate) fn started_for<K: Kind>(request: &K, pod: &Pod) -> bool {
    let is_for = request.target().is_some_and(|target| target.pod_uid == pod.uid);
    is_for && !request.meta().deleting && !request.completed()
}

/// How long a request may take: its own `activeDeadlineSeconds`, or the default.
pub(crate) fn limit(own: Option<i64>, config: &Config) -> Option<Duration> {
    own.map(seconds).or(config.default_active_deadline)
}

/// Whether the deadline of a request has passed, and when it passes.
pub(crate) fn deadline(now: Mono, first_seen: Mono, limit: Option<Duration>) -> (bool, Option<Mono>) {
    let at = limit.map(|limit| first_seen.after(limit));
    (at.is_some_and(|at| at <= now), at)
}

/// Until when a missing Pod may only be late, because the watch of Pods may lag behind what admission read; `None` once
/// that time is over.
pub(crate) fn lag_until(now: Mono, first_seen: Mono, config: &Config) -> Option<Mono> {
    Some(first_seen.after(config.watch_lag)).filter(|at| *at > now)
}

/// Whether the time to live of an ended request is over, and when it will be.
pub(crate) fn expiry(now: Mono, completed_seen: Option<Mono>, ttl: Option<Duration>) -> (bool, Option<Mono>) {
    let at = completed_seen.zip(ttl).map(|(since, ttl)| since.after(ttl));
    (at.is_some_and(|at| at <= now), at.filter(|at| *at > now))
}

/// How a completed request ended, by its conditions.
pub(crate) fn ended(completed: bool, conditions: &[Condition]) -> Option<Ended<'_>> {
    let last = condition::find(conditions, COMPLETE).filter(|_| completed);
    completed.then(|| Ended {
        complete: last.is_some_and(|last| last.status == ConditionStatus::True),
        reason: last.map_or("", |last| &last.reason),
        message: last.map_or("", |last| &last.message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_deadline_counts_before_the_default() {
        let config = Config { default_active_deadline: Some(Duration::from_mins(1)), ..Config::default() };
        assert_eq!(limit(Some(5), &config), Some(Duration::from_secs(5)));
        assert_eq!(limit(None, &config), Some(Duration::from_mins(1)));
        let five = limit(Some(5), &config);
        assert_eq!(deadline(Mono(6_999), Mono(2_000), five), (false, Some(Mono(7_000))));
        assert_eq!(deadline(Mono(7_000), Mono(2_000), five), (true, Some(Mono(7_000))));
        assert_eq!(deadline(Mono(7_000), Mono(0), None), (false, None));
    }

    #[test]
    fn the_time_to_live_counts_from_when_the_end_was_seen() {
        let ttl = Some(Duration::from_secs(3));
        assert_eq!(expiry(Mono(0), None, ttl), (false, None));
        assert_eq!(expiry(Mono(1_000), Some(Mono(1_000)), ttl), (false, Some(Mono(4_000))));
        assert_eq!(expiry(Mono(4_000), Some(Mono(1_000)), ttl), (true, None));
        assert_eq!(expiry(Mono(4_000), Some(Mono(1_000)), None), (false, None));
    }
}
