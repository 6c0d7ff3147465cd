//! Duration of waits by fast or slow clocks, and events per second.

use super::rules::leaves_controllers_alone;
use crate::world::lasts;
use crate::world::plan::Schedule;

/// Time until an undisturbed controller has seen a write, in milliseconds.
const KNOWN: u64 = 2_000;
/// Duration of a change of leaders, in milliseconds.
const LEADS: u64 = 25_000;

impl Schedule {
    /// Whether every controller's process continues, and sees what it should see.
    pub(super) fn leaves_controllers_alone(&self) -> bool {
        self.crash.is_none() && self.faults.iter().all(|f| leaves_controllers_alone(&f.what))
    }

    /// Time until a controller has seen a write, whatever goes wrong, in milliseconds.
    pub(super) fn known(&self) -> u64 {
        if self.leaves_controllers_alone() {
            return KNOWN;
        }
        let longest = self.faults.iter().map(|f| lasts(&f.what)).max();
        KNOWN + LEADS + longest.unwrap_or_default()
    }
}

/// How far the clocks that count graces and deadlines are from true time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// Percent of true time at which the fastest clock goes, and the slowest.
    fastest: u64,
    slowest: u64,
}

impl Clocks {
    pub(super) fn of(schedule: &Schedule) -> Self {
        let clocks = schedule.clocks.controllers.iter().chain(&schedule.clocks.nodes).map(|c| c.percent);
        let (fastest, slowest) = clocks.fold((100, 100), |(f, s), p| (f.max(p), s.min(p)));
        Self { fastest, slowest }
    }

    /// Minimum of true time that a wait takes; both in milliseconds.
    pub(super) fn least(self, wait: u64) -> u64 {
        wait * 100 / self.fastest
    }

    /// Maximum of true time that a wait takes.
    pub(super) fn most(self, wait: u64) -> u64 {
        wait * 100 / self.slowest
    }

    /// How far the slowest clock gets in these milliseconds of true time.
    pub(super) fn at_least_seen(self, passed: u64) -> u64 {
        passed * self.slowest / 100
    }
}

/// Counts events in each second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// When the second began.
    since: u64,
    count: usize,
}

impl Rate {
    /// Counts an event; returns the count of this second.
    pub(super) fn count(&mut self, now: u64) -> usize {
        if now >= self.since + 1000 {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count
    }
}
