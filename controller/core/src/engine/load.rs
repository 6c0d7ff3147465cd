//! How busy the API server is, by the time that it takes to answer, and which namespaces use it.

use std::time::Duration;

use crate::time::Mono;

/// Number of answers in one mean.
const WINDOW: u64 = 32;
/// Each [`FORGETS`], the best mean grows by 1/`GROWS` of itself: an old best may be out of reach.
const GROWS: u64 = 100;
const FORGETS: Duration = Duration::from_mins(1);
/// Largest factor by which new requests are slowed down.
const MOST: u64 = 25;
/// How long a namespace counts as at work after one of its actions started.
const AT_WORK: Duration = Duration::from_secs(10);

/// State of the API server, and the namespaces that used it last.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// Until when the time of calls under way is counted.
    until: Mono,
    /// Time that the calls of this window took, in milliseconds. By Little's law, calls need not be told apart.
    spent: u64,
    /// How many calls ended in this window.
    ended: u64,
    /// Mean time of a call in the window before, in microseconds; 0 while unknown.
    mean: u64,
    /// The lowest mean of all windows, in microseconds, and when it grew last.
    best: u64,
    grew: Mono,
    /// The namespace that started an action last, and the last other one; each with the time.
    last: (String, Mono),
    other: (String, Mono),
}

impl Load {
    /// `under_way` calls were under way until now.
    pub(super) fn pass(&mut self, now: Mono, under_way: usize) {
        let millis = u64::try_from(now.since(self.until).as_millis()).unwrap_or(u64::MAX);
        self.spent = self.spent.saturating_add(millis.saturating_mul(under_way as u64));
        self.until = now;
    }

    /// One of them ended.
    pub(super) fn ended(&mut self, now: Mono) {
        self.ended = self.ended.saturating_add(1);
        if self.ended < WINDOW {
            return;
        }
        // A call that is quicker than the clock cannot be measured.
        self.mean = (self.spent.saturating_mul(1000) / WINDOW).max(1000);
        (self.spent, self.ended) = (0, 0);
        if self.grew.after(FORGETS) <= now {
            (self.best, self.grew) = (self.best.saturating_add(self.best / GROWS), now);
        }
        self.best = if self.best == 0 { self.mean } else { self.best.min(self.mean) };
    }

    /// An action of that namespace started.
    pub(super) fn started(&mut self, now: Mono, namespace: &str) {
        if self.last.0 != namespace {
            self.other = std::mem::replace(&mut self.last, (namespace.to_owned(), now));
        }
        self.last.1 = now;
    }

    /// By what factor a namespace's next new request waits longer for the one before it. The factor is the square of
    /// how many times slower the API server is than at its best. It is 1 while no other namespace is at work.
    pub(super) fn slows(&self, now: Mono, namespace: &str) -> u32 {
        let (other, at) = if self.last.0 == namespace { &self.other } else { &self.last };
        if other.is_empty() || at.after(AT_WORK) <= now || self.best == 0 {
            return 1;
        }
        let square = self.mean.saturating_mul(self.mean) / self.best.saturating_mul(self.best).max(1);
        u32::try_from(square.clamp(1, MOST)).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` calls, one after another, of `millis` milliseconds each.
    fn calls(load: &mut Load, now: &mut u64, count: u64, millis: u64) {
        for _ in 0..count {
            load.pass(Mono(*now), 0);
            *now += millis;
            load.pass(Mono(*now), 1);
            load.ended(Mono(*now));
        }
    }

    #[test]
    fn new_requests_slow_down_with_the_square_of_the_answers_times_where_others_wait() {
        let (mut load, mut now) = (Load::default(), 5000);
        assert_eq!(load.slows(Mono(now), "busy"), 1, "nothing is known");
        calls(&mut load, &mut now, 32, 5);
        load.started(Mono(now), "busy");
        calls(&mut load, &mut now, 32, 15);
        assert_eq!(load.slows(Mono(now), "busy"), 1, "there is nobody else");
        load.started(Mono(now), "other");
        load.started(Mono(now), "busy");
        assert_eq!((load.slows(Mono(now), "busy"), load.slows(Mono(now), "other")), (9, 9));
        assert_eq!(load.slows(Mono(now + 10_000), "busy"), 1, "the other one has not asked for 10 s");
        assert_eq!(load.slows(Mono(now), "third"), 9);
        calls(&mut load, &mut now, 32, 500);
        load.started(Mono(now), "other");
        assert_eq!(load.slows(Mono(now), "busy"), 25, "new requests go on beginning");
        calls(&mut load, &mut now, 32, 5);
        assert_eq!(load.slows(Mono(now), "busy"), 1);
    }

    #[test]
    fn calls_side_by_side_count_by_what_each_takes() {
        let mut load = Load::default();
        let mut now = 0;
        // Four calls at a time, 20 ms each.
        for _ in 0..8 {
            now += 20;
            load.pass(Mono(now), 4);
            (0..4).for_each(|_| load.ended(Mono(now)));
        }
        assert_eq!(load.mean, 20_000);
    }

    #[test]
    fn the_best_of_long_ago_is_forgotten_by_and_by() {
        let (mut load, mut now) = (Load::default(), 0);
        calls(&mut load, &mut now, 32, 10);
        for _ in 0..60 {
            now += 60_000;
            calls(&mut load, &mut now, 32, 40);
        }
        assert!((17_000..19_000).contains(&load.best), "{}", load.best);
    }
}
