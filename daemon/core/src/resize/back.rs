//! How held Pods get their original resources back when their book is deleted.

use pitstop_api::id::ContainerId;
use pitstop_api::logic::cgroup::{MAX_SHARES, MIN_SHARES, curved_weight, linear_weight};
use pitstop_api::nodework::{Cgroup, Held};

use super::{Change, Driver, Goal, Seen, Write, in_use, writes};

/// A container that still runs.
#[derive(Clone, Copy, Debug)]
pub struct RunningContainer<'a> {
    /// Its ID.
    pub id: &'a ContainerId,
    /// Its original values.
    pub original: &'a Cgroup,
    /// Its present values.
    pub present: &'a Seen,
}

/// Writes that restore a Pod's original values; empty if nothing differs. The error says whose memory does not fit yet.
pub fn give_back(
    held: &Held,
    pod: Option<&Seen>,
    containers: &[RunningContainer<'_>],
) -> Result<Vec<Write>, String> {
    let change = |original: &Cgroup, present| Change { present, goal: Goal::before(original), written: true };
    let parts: Vec<(&ContainerId, Change<'_>)> =
        containers.iter().map(|part| (part.id, change(part.original, &part.present.cgroup))).collect();
    let fits =
        |whose: &str, original: &Cgroup, seen: &Seen| match in_use(whose, seen, &Goal::before(original), 0) {
            Some(why) => Err(why),
            None => Ok(()),
        };
    for container in containers {
        fits("container", container.original, container.present)?;
    }
    if let Some(seen) = pod {
        fits("Pod", &held.original, seen)?;
    }
    Ok(writes(Driver::of(&held.cgroup), pod.map(|seen| change(&held.original, &seen.cgroup)), &parts))
}

/// The smallest shares that a runtime converts to that `cpu.weight`. `curved`: the runtime converts by the curve.
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
