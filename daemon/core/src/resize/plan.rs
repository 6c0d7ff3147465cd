//! Which values are written to the cgroups of a Pod and its containers, and in which sequence.

use pitstop_api::id::ContainerId;
use pitstop_api::logic::cgroup::{
    PERIOD, curved_weight, in_systemd_steps, in_whole_pages, linear_weight, quota, shares,
};
use pitstop_api::nodework::{Bounds, Cgroup};

use super::{Seen, Setting, Write};

/// The cgroup driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The kubelet and the runtime themselves.
    Cgroupfs,
    /// systemd, which keeps a quota as whole percents of a CPU.
    Systemd,
}

impl Driver {
    /// The driver, by the path of a Pod's cgroup.
    pub fn of(pod: &str) -> Self {
        let slice = |name: &str| name.strip_suffix(".slice").is_some_and(|name| !name.is_empty());
        if pod.rsplit('/').next().is_some_and(slice) { Self::Systemd } else { Self::Cgroupfs }
    }
}

/// The CPU weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// As `cpu.shares`.
    Shares(i64),
    /// As `cpu.weight`.
    Proper(i64),
    /// Unchanged.
    Any,
}

/// Wanted values of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    weight: Weight,
    quota: Option<i64>,
    period: i64,
    memory: Option<i64>,
}

impl Goal {
    /// Values for these resources, by the kubelet's formulas, with the cgroup's own period.
    pub fn of(bounds: &Bounds, present: &Cgroup) -> Self {
        let period = period(present);
        Self {
            weight: Weight::Shares(shares(bounds.cpu_request)),
            quota: bounds.cpu_limit.and_then(|limit| quota(limit, period)),
            period,
            memory: bounds.memory_limit,
        }
    }

    /// The same goal, but with no value below the cgroup's present one.
    #[must_use]
    pub fn or_more(self, present: &Cgroup) -> Self {
        let weight = match (self.weight, present.cpu_weight, present.cpu_shares) {
            (Weight::Shares(shares), Some(found), _) if linear_weight(shares) <= found => Weight::Any,
            (Weight::Shares(shares), None, Some(found)) if shares <= found => Weight::Any,
            (weight, ..) => weight,
        };
        let (quota, period) = if more_time(&self, present) {
            (self.quota, self.period)
        } else {
            (present.cpu_quota, period(present))
        };
        let memory = self.memory.zip(present.memory_limit).map(|(wanted, found)| wanted.max(found));
        Self { weight, quota, period, memory }
    }

    /// The original values.
    pub fn before(original: &Cgroup) -> Self {
        let weight = match (original.cpu_weight, original.cpu_shares) {
            (Some(weight), _) => Weight::Proper(weight),
            (None, Some(shares)) => Weight::Shares(shares),
            (None, None) => Weight::Any,
        };
        Self { weight, quota: original.cpu_quota, period: period(original), memory: original.memory_limit }
    }
}

/// A cgroup and its goal.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Present values.
    pub present: &'a Cgroup,
    /// Wanted values.
    pub goal: Goal,
    /// Whether the present values were written for that goal. Before that, the shares behind a container's `cpu.weight`
    /// are unknown: runtimes differ.
    pub written: bool,
}

/// The necessary writes. After every single write, the Pod has what its containers have: values rise from the Pod down,
/// and fall from the containers up. A container that gets less goes before one that gets more. On v1 the kernel refuses
/// a quota above the Pod's.
pub fn writes(
    driver: Driver,
    pod: Option<Change<'_>>,
    containers: &[(&ContainerId, Change<'_>)],
) -> Vec<Write> {
    let of_pod = pod.map(|pod| missing(driver, &pod, false)).unwrap_or_default();
    let limits = |raised: bool| {
        let one = move |(setting, raises): &(Setting, bool)| *raises == raised && !is_weight(*setting);
        of_pod.iter().filter(move |each| one(each)).map(|(setting, _)| Write::Pod(*setting))
    };
    let weights = |raised: bool| {
        let one = move |(setting, raises): &(Setting, bool)| *raises == raised && is_weight(*setting);
        of_pod.iter().filter(move |each| one(each)).map(|(setting, _)| Write::Pod(*setting))
    };
    let parts = containers.iter().map(|(id, change)| (*id, missing(driver, change, true)));
    let (more, less): (Vec<_>, Vec<_>) = parts
        .filter(|(_, missing)| !missing.is_empty())
        .partition(|(_, missing)| missing.iter().any(|(_, raises)| *raises));
    let of_containers = less.into_iter().chain(more).map(|(id, missing)| Write::Container {
        id: id.clone(),
        settings: missing.into_iter().map(|(setting, _)| setting).collect(),
    });
    limits(true)
        .chain(weights(true))
        .chain(of_containers)
        .chain(weights(false))
        .chain(limits(false))
        .collect()
}

/// Settings that differ from the goal, and whether each raises the value.
fn missing(driver: Driver, change: &Change<'_>, container: bool) -> Vec<(Setting, bool)> {
    let Change { present, goal, written } = change;
    let mut missing = Vec::new();
    if goal.quota != present.cpu_quota || (goal.quota.is_some() && goal.period != period(present)) {
        let setting = Setting::Quota { quota: goal.quota, period: goal.period };
        let kept = (driver == Driver::Systemd && goal.period > 0)
            .then(|| goal.quota.map(|quota| in_systemd_steps(quota, goal.period)))
            .flatten();
        let there = kept.is_some() && kept == present.cpu_quota && goal.period == period(present);
        if !there {
            missing.push((setting, more_time(goal, present)));
        }
    }
    if !holds_memory(goal.memory, present) {
        let raises = match (goal.memory, present.memory_limit) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(found)) => wanted > found,
        };
        missing.push((Setting::Memory(goal.memory), raises));
    }
    match (goal.weight, present.cpu_weight, present.cpu_shares) {
        (Weight::Shares(shares), Some(found), _) => {
            let linear = linear_weight(shares);
            // Logarithms of two libraries may differ in the last bit, and so the rounded curve by one.
            let curved = container && found.abs_diff(curved_weight(shares)) <= 1;
            let there = if container { *written && (found == linear || curved) } else { found == linear };
            if !there {
                missing.push((Setting::Shares(shares), linear > found));
            }
        }
        (Weight::Shares(shares), None, found) if found != Some(shares) => {
            missing.push((Setting::Shares(shares), found.is_none_or(|found| shares > found)));
        }
        (Weight::Proper(weight), found, _) if found != Some(weight) => {
            missing.push((Setting::Weight(weight), found.is_none_or(|found| weight > found)));
        }
        (Weight::Shares(_) | Weight::Proper(_) | Weight::Any, ..) => {}
    }
    missing
}

fn is_weight(setting: Setting) -> bool {
    matches!(setting, Setting::Shares(_) | Setting::Weight(_))
}

/// Whether the goal has more CPU time than the cgroup.
fn more_time(goal: &Goal, present: &Cgroup) -> bool {
    match (goal.quota, present.cpu_quota) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wanted), Some(found)) => {
            i128::from(wanted) * i128::from(period(present)) > i128::from(found) * i128::from(goal.period)
        }
    }
}

fn holds_memory(wanted: Option<i64>, present: &Cgroup) -> bool {
    match (wanted, present.memory_limit) {
        (None, None) => true,
        (Some(wanted), Some(found)) => in_whole_pages(wanted, found),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn period(present: &Cgroup) -> i64 {
    present.cpu_period.filter(|period| *period > 0).unwrap_or(PERIOD)
}

/// Why a lower memory limit cannot be written now, as a sentence. `whose` is the container or the Pod; `margin` is in
/// bytes. Page cache that the kernel can drop does not count as in use.
pub fn in_use(whose: &str, seen: &Seen, goal: &Goal, margin: i64) -> Option<String> {
    let wanted = goal.memory?;
    let lower = seen.cgroup.memory_limit.is_none_or(|found| wanted < found);
    if !lower || holds_memory(goal.memory, &seen.cgroup) {
        return None;
    }
    let usage = seen.cgroup.memory_usage.unwrap_or_default();
    let used = usage.saturating_sub(seen.inactive_file.max(0)).max(0);
    (used.saturating_add(margin.max(0)) > wanted).then(|| {
        format!(
            "{used} bytes of memory are in use by the {whose}, without page cache that the kernel can drop: with a \
             margin of {margin} bytes, this exceeds the new limit of {wanted} bytes; the daemon waits until usage falls"
        )
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
