//! The only reader of clocks.
//!
//! Durations run on one machine's clock since boot; wall-clock time is for people and for certificates. Pure code
//! gets both as data.

use chrono::{DateTime, Utc};
use nix::time::{ClockId, clock_gettime};

/// File with the kernel's ID of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Milliseconds on this machine's clock since boot: it never goes back, and runs on while the machine sleeps, so that
/// a process that was suspended knows that its lease is over.
pub struct Monotonic;

impl Monotonic {
    /// Milliseconds since boot.
    pub fn now() -> u64 {
        let (seconds, nanos) = read(ClockId::CLOCK_BOOTTIME);
        seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
    }
}

/// Whole seconds since boot.
pub fn uptime_seconds() -> i64 {
    i64::try_from(read(ClockId::CLOCK_BOOTTIME).0).unwrap_or(i64::MAX)
}

/// The kernel's ID of the current boot; [`uptime_seconds`] of different boots cannot be compared.
pub fn boot_id() -> std::io::Result<String> {
    std::fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned())
}

/// Wall-clock time, cut to whole seconds as `metav1.Time` carries it.
pub fn wall() -> DateTime<Utc> {
    let (seconds, _) = read(ClockId::CLOCK_REALTIME);
    i64::try_from(seconds).ok().and_then(|s| DateTime::from_timestamp(s, 0)).unwrap_or_default()
}

/// Wall-clock time in whole microseconds, as `metav1.MicroTime` carries it.
pub fn wall_micros() -> DateTime<Utc> {
    let (seconds, nanos) = read(ClockId::CLOCK_REALTIME);
    let micros = seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000);
    i64::try_from(micros).ok().and_then(DateTime::from_timestamp_micros).unwrap_or_default()
}

/// Processor time that this process has used, in seconds.
pub(crate) fn process_cpu_seconds() -> f64 {
    let (seconds, nanos) = read(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    std::time::Duration::new(seconds, u32::try_from(nanos).unwrap_or(0)).as_secs_f64()
}

/// Seconds and nanoseconds; zero for a clock that the kernel does not have (Linux has had these since 2.6.39) and for
/// times before its origin.
fn read(clock: ClockId) -> (u64, u64) {
    clock_gettime(clock).map_or((0, 0), |time| {
        (u64::try_from(time.tv_sec()).unwrap_or(0), u64::try_from(time.tv_nsec()).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::Timelike;

    #[test]
    fn monotonic_time_does_not_go_back() {
        let first = Monotonic::now();
        let second = Monotonic::now();
        assert!(first > 0 && second >= first);
        assert!(uptime_seconds() >= i64::try_from(first / 1000).unwrap());
    }

    #[test]
    fn wall_time_is_whole_seconds() {
        let now = wall();
        assert_eq!(now.nanosecond(), 0);
        assert!(now.timestamp() > 1_700_000_000);
        assert_eq!(wall_micros().nanosecond() % 1000, 0);
    }

    #[test]
    fn a_boot_has_an_id() {
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
