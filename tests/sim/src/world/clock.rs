//! Clocks of machines. True time is the simulator's own, in milliseconds from its beginning.

use chrono::{DateTime, TimeDelta, Utc};
use pitstop_api::logic::time::Mono;
use serde::{Deserialize, Serialize};

/// The true wall time at the beginning: 2027-01-15T08:00:00Z, in milliseconds.
const BEGINNING: i64 = 1_800_000_000_000;

/// One machine's two clocks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// Monotonic clock at `epoch`, in milliseconds.
    pub boot: u64,
    /// True time of the last reboot, in milliseconds; 0 without one.
    pub epoch: u64,
    /// Speed of the monotonic clock, in percent of true time; 100 is right.
    pub percent: u64,
    /// By how many milliseconds the wall clock is wrong.
    pub wrong_by: i64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { boot: 0, epoch: 0, percent: 100, wrong_by: 0 }
    }
}

impl Clock {
    /// The monotonic clock.
    pub fn mono(&self, now: u64) -> Mono {
        Mono(self.boot + now.saturating_sub(self.epoch) * self.percent / 100)
    }

    /// The first true time at which the monotonic clock has reached `at`.
    pub fn when(&self, at: Mono) -> u64 {
        self.epoch + (at.0.saturating_sub(self.boot) * 100).div_ceil(self.percent)
    }

    /// The machine boots: its monotonic clock begins anew.
    pub fn reboot(&mut self, now: u64) {
        self.boot = 1000;
        self.epoch = now;
    }

    /// The wall clock.
    pub fn wall(&self, now: u64) -> DateTime<Utc> {
        let millis = BEGINNING + now.cast_signed();
        DateTime::from_timestamp_millis(millis).unwrap() + TimeDelta::milliseconds(self.wrong_by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_is_never_early_nor_late() {
        for percent in [50, 99, 100, 101, 200] {
            let clock = Clock { boot: 777, epoch: 0, percent, wrong_by: 0 };
            for at in [777, 778, 1000, 5001, 99_999] {
                let when = clock.when(Mono(at));
                assert!(clock.mono(when) >= Mono(at), "{percent} {at}");
                assert!(when == 0 || clock.mono(when - 1) < Mono(at), "{percent} {at}");
            }
        }
    }
}
