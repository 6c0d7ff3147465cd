//! What Pods get back when the book that said what they are held at is deleted.

use std::time::Duration;

use pitstop_api::logic::cgroup::{MAX_SHARES, MIN_SHARES, curved_weight, linear_weight};
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Cgroup, Held};

use super::{Change, Driver, Goal, Seen, Write, in_use, writes};
use crate::action::CallFailure;

/// How often it is tried.
const TRIES: u32 = 6;
/// The wait after the first failure; doubled after each.
const FIRST: Duration = Duration::from_secs(1);

/// A Pod that is to get back what it had.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    /// What it had.
    pub(crate) held: Held,
    /// UID of the book that is gone.
    pub(crate) book: String,
    /// When to try again, if not at once.
    pub(crate) at: Option<Mono>,
    /// It is being written.
    pub(crate) under_way: bool,
    failures: u32,
}

impl Owed {
    pub(crate) fn new(held: Held, book: String) -> Self {
        Self { held, book, at: None, under_way: false, failures: 0 }
    }

    /// A try ended; whether there is to be another. What failed for good may have been a container that ended just then,
    /// and is left out the next time: nobody else gives the others back what they had.
    pub(crate) fn ended(&mut self, now: Mono, result: &Result<(), CallFailure>) -> bool {
        self.under_way = false;
        if result.is_ok() {
            return false;
        }
        self.at = Some(now.after(FIRST.saturating_mul(1 << self.failures.min(TRIES))));
        self.failures = self.failures.saturating_add(1);
        self.failures < TRIES
    }
}

/// A container that still runs.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// 64 hex digits.
    pub id: &'a str,
    /// What it held before.
    pub original: &'a Cgroup,
    /// What it holds.
    pub present: &'a Seen,
}

/// What must be written so that a Pod has what it had; nothing once it has. The error says whose memory does not fit yet.
pub fn give_back(held: &Held, pod: Option<&Seen>, containers: &[Part<'_>]) -> Result<Vec<Write>, String> {
    let change = |original: &Cgroup, present| Change { present, goal: Goal::before(original), written: true };
    let parts: Vec<(&str, Change<'_>)> =
        containers.iter().map(|part| (part.id, change(part.original, &part.present.cgroup))).collect();
    let fits =
        |whose: &str, original: &Cgroup, seen: &Seen| match in_use(whose, seen, &Goal::before(original), 0) {
            Some(why) => Err(why),
            None => Ok(()),
        };
    for part in containers {
        fits("container", part.original, part.present)?;
    }
    if let Some(seen) = pod {
        fits("Pod", &held.original, seen)?;
    }
    Ok(writes(Driver::of(&held.cgroup), pod.map(|seen| change(&held.original, &seen.cgroup)), &parts))
}

/// Shares that a runtime makes that `cpu.weight` of: the least ones. `curved`: it is one of those that take the curve.
pub fn shares_of(weight: i64, curved: bool) -> i64 {
    let of = if curved { curved_weight } else { linear_weight };
    let (mut low, mut high) = (MIN_SHARES, MAX_SHARES);
    while low < high {
        let middle = low + (high - low) / 2;
        if of(middle) < weight {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
