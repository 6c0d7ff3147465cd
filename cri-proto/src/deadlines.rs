//! How long each call may take.

use std::time::Duration;

/// How long each call may take, from the moment it is made until its answer is complete. Connecting counts.
///
/// The defaults are the associated constants. A call that reaches its deadline is cancelled in the runtime, yet may
/// still take effect. Read back before repeating it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For calls that only read: lists, statuses, version.
    pub read: Duration,
    /// For `UpdateContainerResources`.
    pub update: Duration,
    /// `StopContainer` may take the grace period and this margin.
    pub stop_margin: Duration,
    /// `ExecSync` may take the command's timeout and this margin.
    pub exec_margin: Duration,
    /// For `PullImage`.
    pub pull: Duration,
}

impl Deadlines {
    /// Reads take milliseconds, on a busy node with hundreds of containers a second or two.
    pub const READ: Duration = Duration::from_secs(10);
    /// The write to a memory cgroup waits while the kernel reclaims, and a shim may be slow to answer.
    pub const UPDATE: Duration = Duration::from_secs(30);
    /// As the kubelet: killing and reaping after the grace may take long on a node in trouble. If the call is cancelled
    /// before the runtime sends SIGKILL, it never sends it.
    pub const STOP_MARGIN: Duration = Duration::from_mins(2);
    /// The runtime kills the command at its timeout; then it collects output and exit code.
    pub const EXEC_MARGIN: Duration = Duration::from_secs(10);
    /// CRI has no progress of a pull: large images over slow lines need a generous bound.
    pub const PULL: Duration = Duration::from_mins(30);
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            read: Self::READ,
            update: Self::UPDATE,
            stop_margin: Self::STOP_MARGIN,
            exec_margin: Self::EXEC_MARGIN,
            pull: Self::PULL,
        }
    }
}

/// Whole seconds for the wire, rounded up: no caller gets less time than it asked for.
pub(crate) fn whole_seconds(duration: Duration) -> i64 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::ZERO), 0);
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(30)), 30);
        assert_eq!(whole_seconds(Duration::from_millis(30_001)), 31);
        assert_eq!(whole_seconds(Duration::MAX), i64::MAX);
    }
}
