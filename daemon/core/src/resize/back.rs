//! What Pods get back when the book that said what they are held at is deleted.

use pitstop_api::id::ContainerId;
use pitstop_api::logic::cgroup::{MAX_SHARES, MIN_SHARES, curved_weight, linear_weight};
use pitstop_api::nodework::{Cgroup, Held};

use super::{Change, Driver, Goal, Seen, Write, in_use, writes};

/// A container that still runs.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its ID.
    pub id: &'a ContainerId,
    /// What it held before.
    pub original: &'a Cgroup,
    /// What it holds.
    pub present: &'a Seen,
}

/// What must be written so that a Pod has what it had; nothing once it has. The error says whose memory does not fit yet.
pub fn give_back(held: &Held, pod: Option<&Seen>, containers: &[Part<'_>]) -> Result<Vec<Write>, String> {
    let change = |original: &Cgroup, present| Change { present, goal: Goal::before(original), written: true };
    let parts: Vec<(&ContainerId, Change<'_>)> =
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
