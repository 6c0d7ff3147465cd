//! How busy the API server is, by how long it takes to answer, and who else asks it for something.

use std::time::Duration;

use crate::time::Mono;

/// Answers whose mean counts.
const WINDOW: u64 = 32;
/// What the best mean grows by each [`FORGETS`], in parts of itself: what was reached long ago may be out of reach.
const GROWS: u64 = 100;
const FORGETS: Duration = Duration::from_mins(1);
/// Most that new requests are slowed down.
const MOST: u64 = 25;
/// How long a namespace counts as at work after something of it has started.
const AT_WORK: Duration = Duration::from_secs(10);

/// What is known of the API server, and of the namespaces that have asked it for something last.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// Until when the time of the calls that are under way is counted.
    to: Mono,
    /// What the calls of this window have taken, in milliseconds; by Little's law no call has to be told from another.
    spent: u64,
    /// How many have ended in this window.
    ended: u64,
    /// Their mean in the window before, in microseconds; 0 while nothing is known.
    mean: u64,
    /// The lowest of all windows, in microseconds, and when it grew last.
    best: u64,
    grew: Mono,
    /// The namespace of which something has started last, and the last other one; when that was.
    last: (String, Mono),
    other: (String, Mono),
}

impl Load {
    /// So many calls have been under way until now.
    pub(super) fn pass(&mut self, now: Mono, under_way: usize) {
        let millis = u64::try_from(now.since(self.to).as_millis()).unwrap_or(u64::MAX);
        self.spent = self.spent.saturating_add(millis.saturating_mul(under_way as u64));
        self.to = now;
    }

    /// One of them has ended.
    pub(super) fn ended(&mut self, now: Mono) {
        self.ended = self.ended.saturating_add(1);
        if self.ended < WINDOW {
            return;
        }
        // A call that is quicker than the clock is no measure.
        self.mean = (self.spent.saturating_mul(1000) / WINDOW).max(1000);
        (self.spent, self.ended) = (0, 0);
        if self.grew.after(FORGETS) <= now {
            (self.best, self.grew) = (self.best.saturating_add(self.best / GROWS), now);
        }
        self.best = if self.best == 0 { self.mean } else { self.best.min(self.mean) };
    }

    /// Something of that namespace has started.
    pub(super) fn started(&mut self, now: Mono, namespace: &str) {
        if self.last.0 != namespace {
            self.other = std::mem::replace(&mut self.last, (namespace.to_owned(), now));
        }
        self.last.1 = now;
    }

    /// How many times longer a namespace's next new request is to wait for the one before it: the square of how many times longer
    /// the API server takes than at its best, while there are other namespaces for which that matters.
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

    /// So many calls, one after another, that take so long.
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
        // Four at a time, each of which takes 20 ms.
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
