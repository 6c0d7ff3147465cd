//! Tunable times and numbers.

use std::time::Duration;

/// Tunable times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Deadline of requests that set none; `None` for no deadline.
    pub default_active_deadline: Option<Duration>,
    /// Most requests of one kind that are open in a namespace at a time; `None` for no limit.
    pub max_open_requests_per_namespace: Option<usize>,
    /// How long an order may stay without the daemon's answer.
    pub daemon_silent_after: Duration,
    /// How long an order may stay unanswered if the kubelet can restart the container instead.
    pub fall_back_after: Duration,
    /// How long a wait lasts before the controller writes it to the status.
    pub progress_after: Duration,
    /// Mean time between such writes for the requests of one node, Pod or namespace. The more requests wait, the later
    /// each one writes its wait.
    pub progress_spacing: Duration,
    /// Longest wait before such a write, however many requests wait.
    pub progress_at_most: Duration,
    /// How long answered orders stay in a book, so that one write drops many.
    pub tidy_after: Duration,
    /// How far the watch of Pods may lag behind what admission read.
    pub watch_lag: Duration,
    /// How long to wait after a conflict for the watch to show the newer version, before the write is tried again.
    pub conflict_patience: Duration,
    /// How long a write may be under way: from its decision until it can no longer take effect, in any process.
    pub write_bound: Duration,
    /// The daemons may give Pods other resources if the kubelet does not.
    pub resize_cri: bool,
    /// How long the end of a resize waits until the original resources are restored.
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
