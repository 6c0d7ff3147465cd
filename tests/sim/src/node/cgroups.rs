//! The control groups of a node: what the kubelet, or a daemon in its place, has written, and from when it is
//! in effect.

mod direct;

use std::collections::{BTreeMap, VecDeque};

use pitstop_api::nodework::{Cgroup, CgroupReading};
use pitstop_api::quantity::Resources;

pub use self::direct::{Keeping, Touched};
use super::keys;
use super::runtime::ContainerInfo;
use crate::world::plan::Failing;

/// CPU period, in microseconds.
const PERIOD: i64 = 100_000;
/// The kernel's minimum of shares.
const LEAST_SHARES: i64 = 2;
/// The kernel's minimum quota, in microseconds.
const LEAST_QUOTA: i64 = 1000;

/// A write into the group of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The container.
    pub id: String,
    /// The new size.
    pub size: Resources,
    /// When it takes effect, in virtual milliseconds.
    pub from: u64,
}

/// The groups of containers by ID, and of Pods by UID.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    containers: BTreeMap<String, Vec<(u64, Resources)>>,
    pods: BTreeMap<String, Vec<(u64, Resources)>>,
    /// Writes before the first time take effect later, by the second value (milliseconds).
    slow: (u64, u64),
    /// The groups are unreadable before this time.
    hidden_until: u64,
    news: Vec<Written>,
    keeping: Keeping,
    /// Groups as daemons have written them, by container ID or Pod UID.
    direct: BTreeMap<String, Cgroup>,
    /// Faults of the next writes of daemons.
    failing: VecDeque<Failing>,
}

impl Cgroups {
    /// Writes before `until` take effect `by` milliseconds later.
    pub fn slow(&mut self, until: u64, by: u64) {
        self.slow = (until, by);
    }

    /// Makes the groups unreadable until that time.
    pub fn hide(&mut self, until: u64) {
        self.hidden_until = until;
    }

    /// Writes a container's group. The first write also reports the size that the container was made with.
    pub fn write(&mut self, now: u64, info: &ContainerInfo, size: Resources) {
        let (from, id) = (self.from(now), &info.id);
        let all = self.containers.entry(id.clone()).or_default();
        if all.is_empty() {
            self.news.push(Written { id: id.clone(), size: made_with(info), from: 0 });
        }
        all.push((from, size));
        self.news.push(Written { id: id.clone(), size, from });
    }

    /// The last size written to a Pod's group, in effect or not.
    pub fn last_pod_size(&self, uid: &str) -> Option<Resources> {
        Some(self.pods.get(uid)?.last()?.1)
    }

    /// The size that the kubelet reports for a container. If it sets no CPU quota, it reports the CPU limit
    /// that the container was made with.
    pub fn reported(&self, info: &ContainerInfo) -> Resources {
        let size = self.last_size(info);
        let cpu_limit = if self.keeping.no_quota { made_with(info).cpu_limit } else { size.cpu_limit };
        Resources { cpu_limit, ..size }
    }

    /// Writes a Pod's group, if that changes its size. Discards the values that a daemon has written.
    pub fn write_pod(&mut self, now: u64, uid: &str, size: Resources) {
        let from = self.from(now);
        self.direct.remove(uid);
        let all = self.pods.entry(uid.to_owned()).or_default();
        if all.last().is_none_or(|(_, last)| *last != size) {
            all.push((from, size));
        }
    }

    fn from(&self, now: u64) -> u64 {
        if now < self.slow.0 { now + self.slow.1 } else { now }
    }

    /// The last size of a container, in effect or not.
    pub fn last_size(&self, info: &ContainerInfo) -> Resources {
        self.containers
            .get(&info.id)
            .and_then(|all| all.last())
            .map_or_else(|| made_with(info), |(_, size)| *size)
    }

    /// The size in effect for a container from the kubelet's writes.
    fn size_at(&self, now: u64, info: &ContainerInfo) -> Resources {
        let all = self.containers.get(&info.id);
        let held = all.and_then(|all| all.iter().rev().find(|(from, _)| *from <= now));
        held.map_or_else(|| made_with(info), |(_, size)| *size)
    }

    /// The groups of a container and its Pod; None if they cannot be read.
    pub fn read(&self, now: u64, info: &ContainerInfo) -> Option<CgroupReading> {
        if now < self.hidden_until {
            return None;
        }
        let pod = self.of_pod(now, info.labels.get(keys::POD_UID)?);
        let none = || self.files(&Resources::default(), false);
        Some(CgroupReading { container: self.of_container(now, info), pod: pod.unwrap_or_else(none) })
    }

    fn files(&self, size: &Resources, container: bool) -> Cgroup {
        self.keeping.files(size, container)
    }

    /// Writes into containers' groups since the last call.
    pub fn take_news(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.news)
    }
}

/// The size that a container was made with.
fn made_with(info: &ContainerInfo) -> Resources {
    info.annotations.get(keys::SIZE).map(|text| parse(text)).unwrap_or_default()
}

/// A size as annotation text.
pub fn text(size: &Resources) -> String {
    let all = [size.cpu_request, size.cpu_limit, size.memory_request, size.memory_limit];
    all.map(|amount| amount.map_or_else(String::new, |amount| amount.to_string())).join(",")
}

fn parse(text: &str) -> Resources {
    let mut all = text.split(',').map(|amount| amount.parse().ok());
    let mut next = || all.next().flatten();
    Resources { cpu_request: next(), cpu_limit: next(), memory_request: next(), memory_limit: next() }
}

/// Microseconds in each period for these millicores.
pub fn quota(limit: i64) -> i64 {
    (limit * PERIOD / 1000).max(LEAST_QUOTA)
}

fn shares(request: i64) -> i64 {
    (request * 1024 / 1000).max(LEAST_SHARES)
}

/// A CPU request as the kubelet reads it back from the shares: coarser by up to a millicore; unchanged if the
/// shares are the minimum.
pub fn read_back(request: i64) -> i64 {
    let shares = shares(request);
    if shares == LEAST_SHARES { request } else { (shares * 1000 + 1023) / 1024 }
}

/// Size of a Pod: the sum of its containers, which all run at once. It has no limit if a container has none.
pub fn of_pod(containers: &[Resources]) -> Resources {
    let sum = |get: fn(&Resources) -> Option<i64>| containers.iter().filter_map(get).sum::<i64>();
    let limit = |get: fn(&Resources) -> Option<i64>| {
        (!containers.is_empty() && containers.iter().all(|c| get(c).is_some())).then(|| sum(get))
    };
    Resources {
        cpu_request: Some(sum(|c| c.cpu_request)),
        cpu_limit: limit(|c| c.cpu_limit),
        memory_request: Some(sum(|c| c.memory_request)),
        memory_limit: limit(|c| c.memory_limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_holds_when_it_arrives() {
        let mut groups = Cgroups::default();
        let labels = BTreeMap::from([(keys::POD_UID.to_owned(), "u".to_owned())]);
        let size = |cpu| Resources { cpu_request: Some(cpu), cpu_limit: Some(cpu), ..Resources::default() };
        let annotations = BTreeMap::from([(keys::SIZE.to_owned(), text(&size(100)))]);
        let info = ContainerInfo {
            id: "a".into(),
            sandbox: String::new(),
            name: "app".into(),
            attempt: 0,
            image: String::new(),
            image_ref: String::new(),
            image_id: String::new(),
            labels: labels.into(),
            annotations: annotations.into(),
            state: crate::node::runtime::State::Running,
            created_at: 0,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: String::new(),
        };
        let quota = |groups: &Cgroups, now| groups.read(now, &info).unwrap().container.cpu_quota;
        assert_eq!((quota(&groups, 0), groups.last_size(&info)), (Some(10_000), size(100)));
        groups.slow(1000, 500);
        groups.write(10, &info, size(200));
        let news = groups.take_news();
        assert_eq!(
            news.iter().map(|w| (w.from, w.size)).collect::<Vec<_>>(),
            [(0, size(100)), (510, size(200))]
        );
        assert_eq!((quota(&groups, 509), quota(&groups, 510)), (Some(10_000), Some(20_000)));
        assert_eq!(groups.last_size(&info), size(200), "the kubelet has written it");
        groups.hide(2000);
        assert_eq!(groups.read(1999, &info), None);
        assert_eq!(read_back(333), 333);
        assert_eq!(of_pod(&[size(1), Resources::default()]).cpu_limit, None);
    }
}
