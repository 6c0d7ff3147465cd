//! Tunable times and numbers.

use std::time::Duration;

/// Tunable times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bound of requests that name no deadline; absent for none.
    pub default_active_deadline: Option<Duration>,
    /// How many requests of one kind are carried out in a namespace at a time; absent for all of them.
    pub max_open_requests_per_namespace: Option<usize>,
    /// How long an order may stay without the daemon's answer.
    pub daemon_silent_after: Duration,
    /// How long an order may stay unanswered where the kubelet can restart the container instead.
    pub fall_back_after: Duration,
    /// How long a wait lasts before it is written down.
    pub progress_after: Duration,
    /// Mean time between such writes for one node, or for those that wait for one Pod or in one namespace: the more want
    /// one, the later each tells of its waits.
    pub progress_spacing: Duration,
    /// The longest that a wait lasts before it is written down, however many want to.
    pub progress_at_most: Duration,
    /// How long answered orders stay in a book, so that many are dropped in one write.
    pub tidy_after: Duration,
    /// How far the watch of Pods may be behind what admission read.
    pub watch_lag: Duration,
    /// How long the watch may take to show what a conflict was about before the write is tried again.
    pub conflict_patience: Duration,
    /// How long a write may be under way, from its decision until nothing can come of it any more, in whatever process.
    pub write_bound: Duration,
    /// The daemons may give Pods other resources where the kubelet does not.
    pub resize_cri: bool,
    /// How long the end of a resize waits for the original resources to be back.
    pub restore_patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_active_deadline: Some(Duration::from_hours(1)),
            max_open_requests_per_namespace: Some(1_000),
            daemon_silent_after: Duration::from_mins(1),
            fall_back_after: Duration::from_secs(10),
            progress_after: Duration::from_secs(3),
            progress_spacing: Duration::from_millis(500),
            progress_at_most: Duration::from_mins(10),
            tidy_after: Duration::from_secs(1),
            watch_lag: Duration::from_secs(2),
            conflict_patience: Duration::from_secs(5),
            write_bound: Duration::from_mins(1),
            resize_cri: false,
            restore_patience: Duration::from_mins(1),
        }
    }
}
