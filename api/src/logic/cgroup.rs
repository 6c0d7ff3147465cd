//! The values that the cgroups of a container and of its Pod should hold, and whether they do.
//!
//! The formulas are those of the kubelet and of the runtimes below it. Units: CPU in millicores, quotas and periods in
//! microseconds, memory in bytes.

use crate::nodework::Cgroup;
use crate::quantity::{Resource, Resources};

/// Least `cpu.shares` (`MinShares` of the kubelet; the kernel's own `MIN_SHARES`).
pub const MIN_SHARES: i64 = 2;
/// Most `cpu.shares` (`MaxShares` of the kubelet; the kernel's own `MAX_SHARES`).
pub const MAX_SHARES: i64 = 262_144;
/// Shares of one whole CPU (`SharesPerCPU` of the kubelet).
const SHARES_PER_CPU: i64 = 1024;
/// Millicores of one whole CPU.
const MILLICORES_PER_CPU: i64 = 1000;
/// Least quota: the kernel takes none below a millisecond (`MinQuotaPeriod` of the kubelet).
pub const MIN_QUOTA: i64 = 1000;
/// The period if nothing else is set (`QuotaPeriod` of the kubelet, its `cpuCFSQuotaPeriod`).
pub const PERIOD: i64 = 100_000;
/// Most `cpu.weight`, in the kernel's documentation of cgroup v2; the least is 1.
const MAX_WEIGHT: i64 = 10_000;
/// Step of a quota with systemd, in microseconds per second. systemd keeps whole percents of a CPU; runc and crun round
/// up for it.
const SYSTEMD_STEP: i64 = 10_000;
/// Sizes of a page on the machines that Linux runs on. The kernel cuts a limit to whole pages (`page_counter`).
const PAGE_SIZES: [i64; 3] = [4096, 16_384, 65_536];

/// Role of a container in its Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One of `spec.containers`.
    Main,
    /// One of `spec.initContainers` with `restartPolicy: Always`: it runs beside the others.
    Sidecar,
    /// Any other of `spec.initContainers`: it ends before the next one starts.
    Init,
}

/// A container of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its role.
    pub kind: Kind,
    /// Its requests and limits.
    pub resources: Resources,
}

/// `spec.overhead` of a Pod: what its runtime class needs beside the containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
}

/// `cpu.shares` for a CPU request (`MilliCPUToShares` of the kubelet).
pub fn shares(request: i64) -> i64 {
    (request.saturating_mul(SHARES_PER_CPU) / MILLICORES_PER_CPU).clamp(MIN_SHARES, MAX_SHARES)
}

/// The quota in each period for a CPU limit (`MilliCPUToQuota` of the kubelet); `None` for no limit, also for 0.
pub fn quota(limit: i64, period: i64) -> Option<i64> {
    (limit > 0).then(|| (limit.saturating_mul(period) / MILLICORES_PER_CPU).max(MIN_QUOTA))
}

/// `cpu.weight` for `cpu.shares`, in a straight line from (2, 1) to (262144, 10000). The kubelet uses it for Pods, and
/// runtimes for containers before runc 1.3.2 and crun 1.23.
pub fn linear_weight(shares: i64) -> i64 {
    let above = shares.clamp(MIN_SHARES, MAX_SHARES) - MIN_SHARES;
    1 + above * (MAX_WEIGHT - 1) / (MAX_SHARES - MIN_SHARES)
}

/// `cpu.weight` for `cpu.shares`, on the curve that also maps the default 1024 to the default 100. Runtimes use it for
/// containers from runc 1.3.2 and crun 1.23 on (opencontainers/runc#4896).
pub fn curved_weight(shares: i64) -> i64 {
    let bounded = u32::try_from(shares.clamp(MIN_SHARES, MAX_SHARES)).unwrap_or_default();
    let log = f64::from(bounded).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    #[allow(clippy::cast_possible_truncation, reason = "between 1 and 10000")]
    let weight = 10_f64.powf(exponent).ceil() as i64;
    weight.clamp(1, MAX_WEIGHT)
}

/// What the cgroup of a Pod should hold, as if the Pod were one container (`ResourceConfigForPod` of the kubelet).
/// `parts` are all its containers: those of `initContainers` in the order of the Pod, those of `containers` in any
/// order.
///
/// A request is the sum over all containers that run side by side, or the need at an init container's turn, if that is
/// more. So is a limit, but it is absent if any container (also an init container) has none.
pub fn of_pod(parts: &[Part], overhead: Overhead) -> Resources {
    let given = |amount: &Option<i64>| amount.is_some_and(|amount| amount > 0);
    let all = |get: Amount| parts.iter().all(|part| given(&get(&part.resources)));
    let any = |get: Amount| parts.iter().any(|part| given(&get(&part.resources)));
    // Quality of service BestEffort: the overhead does not count.
    if ![cpu_request, cpu_limit, memory_request, memory_limit].into_iter().any(any) {
        return Resources::default();
    }
    let request = |get, overhead: i64| total(parts, get).saturating_add(overhead);
    let limit = |get: Amount, overhead: i64| {
        (!parts.is_empty() && all(get)).then(|| total(parts, get).saturating_add(overhead))
    };
    Resources {
        cpu_request: Some(request(cpu_request, overhead.cpu)),
        cpu_limit: limit(cpu_limit, overhead.cpu),
        memory_request: Some(request(memory_request, overhead.memory)),
        memory_limit: limit(memory_limit, overhead.memory),
    }
}

/// Total requests and limits of containers, as the scheduler and quotas count them. A missing amount counts as zero; if
/// no container has it, the total is absent. The order is as for [`of_pod`].
pub fn sum(parts: &[Part]) -> Resources {
    let any = |get: Amount| parts.iter().any(|part| get(&part.resources).is_some());
    let sum = |get: Amount| any(get).then(|| total(parts, get));
    Resources {
        cpu_request: sum(cpu_request),
        cpu_limit: sum(cpu_limit),
        memory_request: sum(memory_request),
        memory_limit: sum(memory_limit),
    }
}

/// One of the four amounts.
type Amount = fn(&Resources) -> Option<i64>;

/// A missing request is the limit's.
fn cpu_request(resources: &Resources) -> Option<i64> {
    resources.cpu_request.or(resources.cpu_limit)
}

fn memory_request(resources: &Resources) -> Option<i64> {
    resources.memory_request.or(resources.memory_limit)
}

fn cpu_limit(resources: &Resources) -> Option<i64> {
    resources.cpu_limit
}

fn memory_limit(resources: &Resources) -> Option<i64> {
    resources.memory_limit
}

/// The maximum need at any time: of all main containers and sidecars, or of an init container with the sidecars before
/// it.
fn total(parts: &[Part], get: Amount) -> i64 {
    let (mut together, mut sidecars, mut init) = (0_i64, 0_i64, 0_i64);
    for part in parts {
        let amount = get(&part.resources).unwrap_or_default().max(0);
        match part.kind {
            Kind::Main => together = together.saturating_add(amount),
            Kind::Sidecar => {
                together = together.saturating_add(amount);
                sidecars = sidecars.saturating_add(amount);
            }
            Kind::Init => init = init.max(sidecars.saturating_add(amount)),
        }
    }
    together.max(init)
}

/// What a cgroup should hold if the kubelet sets no CPU quota: with `cpuCFSQuota: false`, and for containers with
/// exclusive CPUs (`DisableCPUQuotaWithExclusiveCPUs` of the kubelet, on from Kubernetes 1.33). Only the quota changes.
pub fn without_quota(wanted: &Resources) -> Resources {
    Resources { cpu_request: cpu_request(wanted), cpu_limit: None, ..*wanted }
}

/// Whether CPU, and whether memory, of a Pod's cgroup differs from `wanted`.
pub fn pod_mismatch(wanted: &Resources, observed: &Cgroup) -> (bool, bool) {
    let cpu = quota_differs(wanted.cpu_limit, observed)
        .or_else(|| weight_differs(cpu_request(wanted).unwrap_or_default(), observed, false));
    (cpu.is_some(), memory_differs(wanted.memory_limit, observed).is_some())
}

/// How a container's cgroup differs from `wanted`, as a sentence; `None` if it does not.
pub fn container_differs(wanted: &Resources, observed: &Cgroup) -> Option<String> {
    differs(wanted, observed, true)
}

/// How a Pod's cgroup differs from `wanted`, which [`of_pod`] returns; `None` if it does not.
pub fn pod_differs(wanted: &Resources, observed: &Cgroup) -> Option<String> {
    differs(wanted, observed, false)
}

fn differs(wanted: &Resources, observed: &Cgroup, curved: bool) -> Option<String> {
    quota_differs(wanted.cpu_limit, observed)
        .or_else(|| weight_differs(cpu_request(wanted).unwrap_or_default(), observed, curved))
        .or_else(|| memory_differs(wanted.memory_limit, observed))
}

fn quota_differs(limit: Option<i64>, observed: &Cgroup) -> Option<String> {
    let period = observed.cpu_period.filter(|period| *period > 0).unwrap_or(PERIOD);
    let wanted = limit.and_then(|limit| quota(limit, period));
    let file = if is_v2(observed) { "cpu.max" } else { "cpu.cfs_quota_us" };
    let each = |quota: i64| format!("{quota} µs in each {period} µs");
    match (wanted, observed.cpu_quota) {
        (None, None) => None,
        (Some(wanted), Some(found)) if found == wanted || found == in_systemd_steps(wanted, period) => None,
        (None, Some(found)) => {
            Some(format!("{file} holds {}, and should hold no limit, as there is no CPU limit", each(found)))
        }
        (Some(wanted), found) => {
            let holds = found.map_or_else(|| "no limit".to_owned(), each);
            let limit = Resource::Cpu.show(limit.unwrap_or_default());
            Some(format!(
                "{file} holds {holds}, and should hold {}, for a CPU limit of {limit}",
                each(wanted)
            ))
        }
    }
}

/// A quota as systemd keeps it, in whole percents of a CPU; `period` is above 0.
pub fn in_systemd_steps(quota: i64, period: i64) -> i64 {
    let (quota, period, step) = (i128::from(quota), i128::from(period), i128::from(SYSTEMD_STEP));
    let per_second = quota * 1_000_000 / period;
    let rounded = (per_second + step - 1) / step * step;
    i64::try_from(rounded * period / 1_000_000).unwrap_or(i64::MAX)
}

fn weight_differs(request: i64, observed: &Cgroup, curved: bool) -> Option<String> {
    let shares = shares(request);
    let request = Resource::Cpu.show(request);
    let Some(weight) = observed.cpu_weight else {
        let found = observed.cpu_shares;
        return (found != Some(shares)).then(|| {
            let holds = found.map_or_else(|| "nothing".to_owned(), |found| found.to_string());
            format!("cpu.shares holds {holds}, and should hold {shares}, for a CPU request of {request}")
        });
    };
    let (linear, curve) = (linear_weight(shares), curved_weight(shares));
    // Logarithms of two libraries may differ in the last bit, and so the rounded curve by one.
    if weight == linear || (curved && weight.abs_diff(curve) <= 1) {
        return None;
    }
    let either = if curved && curve != linear { format!("{linear} or {curve}") } else { linear.to_string() };
    Some(format!("cpu.weight holds {weight}, and should hold {either}, for a CPU request of {request}"))
}

fn memory_differs(limit: Option<i64>, observed: &Cgroup) -> Option<String> {
    let wanted = limit.filter(|limit| *limit > 0);
    let file = if is_v2(observed) { "memory.max" } else { "memory.limit_in_bytes" };
    let in_bytes = |bytes: i64| match Resource::Memory.show(bytes) {
        short if short == bytes.to_string() => format!("{bytes} bytes"),
        short => format!("{bytes} bytes ({short})"),
    };
    match (wanted, observed.memory_limit) {
        (None, None) => None,
        (Some(wanted), Some(found)) if in_whole_pages(wanted, found) => None,
        (None, Some(found)) => Some(format!(
            "{file} holds {}, and should hold no limit, as there is no memory limit",
            in_bytes(found)
        )),
        (Some(wanted), found) => {
            let holds = found.map_or_else(|| "no limit".to_owned(), in_bytes);
            Some(format!("{file} holds {holds}, and should hold {}", in_bytes(wanted)))
        }
    }
}

/// Whether `found` is the wanted memory limit, or that cut to whole pages.
pub fn in_whole_pages(wanted: i64, found: i64) -> bool {
    found == wanted || PAGE_SIZES.iter().any(|page| found == wanted - wanted % page)
}

/// Only cgroup v2 has weights.
fn is_v2(observed: &Cgroup) -> bool {
    observed.cpu_weight.is_some()
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
