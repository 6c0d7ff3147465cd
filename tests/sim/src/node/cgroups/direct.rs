//! Control groups that a daemon reads and writes in place of a kubelet that does not resize.

use pitstop_api::id::ContainerId;
use pitstop_api::logic::cgroup::{curved_weight, in_systemd_steps, linear_weight};
use pitstop_api::nodework::{Cgroup, Held, HeldContainer};
use pitstop_api::quantity::Resources;
use pitstop_daemon_core::CallFailure;
use pitstop_daemon_core::cgroup::{Version, is_pod_path};
use pitstop_daemon_core::resize::{Present, RunningContainer, Seen, Setting, Write, give_back, shares_of};

use super::{Cgroups, PERIOD};
use crate::node::keys;
use crate::node::runtime::{Container, ContainerInfo, Runtime};
use crate::world::plan::Failing;

/// How a node keeps its control groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// As cgroup v2 files.
    pub v2: bool,
    /// By systemd, which keeps a quota in whole percents of a CPU.
    pub systemd: bool,
    /// The runtime converts shares to weights by the curve, not linearly.
    pub curved: bool,
    /// The kubelet sets no CPU quota.
    pub no_quota: bool,
}

impl Keeping {
    /// The kernel's files for a size.
    pub fn files(&self, size: &Resources, container: bool) -> Cgroup {
        let limit = size.cpu_limit.filter(|limit| *limit > 0 && !self.no_quota);
        let shares = super::shares(size.cpu_request.or(size.cpu_limit).unwrap_or(0));
        Cgroup {
            cpu_quota: self.quota(limit.map(super::quota)),
            cpu_period: Some(PERIOD),
            cpu_shares: (!self.v2).then_some(shares),
            cpu_weight: self.v2.then(|| self.weight(shares, container)),
            memory_limit: size.memory_limit,
            ..Cgroup::default()
        }
    }

    fn weight(self, shares: i64, container: bool) -> i64 {
        if container && self.curved { curved_weight(shares) } else { linear_weight(shares) }
    }

    fn quota(self, quota: Option<i64>) -> Option<i64> {
        quota.map(|quota| if self.systemd { in_systemd_steps(quota, PERIOD) } else { quota })
    }
}

/// A write by a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// UID of the Pod.
    pub pod: String,
    /// The container; None for the Pod's own group.
    pub container: Option<String>,
    /// Values before the first write of a daemon.
    pub original: Cgroup,
    /// Values before this write.
    pub before: Cgroup,
    /// Values after this write.
    pub after: Cgroup,
    /// Why the write is wrong; None if it is not.
    pub wrong: Option<String>,
}

impl Cgroups {
    /// Sets how the groups are kept.
    pub fn keep(&mut self, keeping: Keeping) {
        self.keeping = keeping;
    }

    /// Adds a fault for the next write of a daemon.
    pub fn fail_next(&mut self, failing: Failing) {
        self.failing.push_back(failing);
    }

    /// The node boots: all groups are gone.
    pub fn rebooted(&mut self) {
        self.containers.clear();
        self.pods.clear();
        self.direct.clear();
    }

    /// Drops the group of a deleted Pod.
    pub fn forget(&mut self, pod: &str) {
        self.pods.remove(pod);
        self.direct.remove(pod);
    }

    /// The values in a container's group.
    pub fn of_container(&self, now: u64, info: &ContainerInfo) -> Cgroup {
        self.latest(&info.id).unwrap_or_else(|| self.files(&self.size_at(now, info), true))
    }

    /// The values in a Pod's group; None if it does not exist.
    pub fn of_pod(&self, now: u64, uid: &str) -> Option<Cgroup> {
        let made = self.pods.get(uid)?.iter().rev().find(|(from, _)| *from <= now)?;
        Some(self.latest(uid).unwrap_or_else(|| self.files(&made.1, false)))
    }

    /// The values that a daemon has written.
    fn latest(&self, key: &str) -> Option<Cgroup> {
        self.direct.get(key).copied()
    }

    /// Whether a daemon has written this group.
    pub fn is_touched(&self, key: &str) -> bool {
        self.direct.contains_key(key)
    }

    /// Whether a container may start: on v1, its quota must not exceed its Pod's.
    pub fn may_start(&self, now: u64, uid: &str, quota: Option<i64>) -> bool {
        let Some(pod) = self.of_pod(now, uid) else { return true };
        self.keeping.v2 || within(self.keeping.quota(quota), pod.cpu_quota)
    }

    /// Path of a Pod's group.
    fn path(&self, uid: &str) -> String {
        if self.keeping.systemd {
            format!("kubepods.slice/kubepods-pod{}.slice", uid.replace('-', "_"))
        } else {
            format!("kubepods/pod{uid}")
        }
    }

    /// The groups that an order changes.
    pub fn present(
        &self,
        now: u64,
        runtime: &Runtime,
        id: &str,
        pod: &str,
        held: Option<&str>,
    ) -> Result<Present, CallFailure> {
        let failed = |message: &str| CallFailure { retry: false, message: message.to_owned() };
        if now < self.hidden_until {
            return Err(failed("no cgroup is to be seen"));
        }
        let known = runtime.containers().get(id);
        if known.is_none() && !held.is_some_and(|held| is_pod_path(held, pod)) {
            return Err(failed("nobody knows where the cgroup is"));
        }
        let container = known.filter(|c| c.alive(now)).map(|c| self.seen(now, c));
        let pod_seen = self.of_pod(now, pod).map(|cgroup| {
            let usage = of(runtime, now, pod).map(|c| c.process.uses << 20).sum();
            Seen { cgroup: Cgroup { memory_usage: Some(usage), ..cgroup }, inactive_file: 0 }
        });
        if container.is_some() && pod_seen.is_none() {
            return Err(failed("the cgroup of the Pod is not there"));
        }
        Ok(Present {
            cgroup: self.path(pod),
            of_container: container.map(|_| format!("{}/{id}", self.path(pod))).unwrap_or_default(),
            version: if self.keeping.v2 { Version::V2 } else { Version::V1 },
            container,
            pod: pod_seen,
            pinned: false,
            swap: false,
        })
    }

    fn seen(&self, now: u64, container: &Container) -> Seen {
        let usage = Some(container.process.uses << 20);
        let cgroup = Cgroup { memory_usage: usage, ..self.of_container(now, &container.info) };
        Seen { cgroup, inactive_file: 0 }
    }

    /// The writes that give a held Pod its original values back.
    pub fn owed(&self, now: u64, runtime: &Runtime, held: &Held) -> Result<Vec<Write>, CallFailure> {
        let retry = |message: String| CallFailure { retry: true, message };
        if now < self.hidden_until || !runtime.answers(now) {
            return Err(retry("nothing is to be seen".to_owned()));
        }
        let uid = &held.pod.uid;
        let runs = |id: &str| of(runtime, now, uid).find(|c| c.info.id == *id).map(|c| self.seen(now, c));
        let id = |c: &HeldContainer| ContainerId::parse(&c.id).unwrap();
        let seen: Vec<_> =
            held.containers.iter().filter_map(|c| Some((id(c), &c.original, runs(&c.id)?))).collect();
        let parts: Vec<RunningContainer<'_>> =
            seen.iter().map(|(id, original, present)| RunningContainer { id, original, present }).collect();
        let pod = self.of_pod(now, uid).map(|cgroup| Seen { cgroup, inactive_file: 0 });
        give_back(held, pod.as_ref(), &parts).map_err(retry)
    }

    /// A write by a daemon; returns its result, and the change.
    pub fn touch(
        &mut self,
        now: u64,
        runtime: &Runtime,
        pod: &str,
        write: &Write,
    ) -> (Result<(), CallFailure>, Option<Touched>) {
        let failure = |retry: bool, message: &str| CallFailure { retry, message: message.to_owned() };
        let planned = self.failing.pop_front();
        let fails = match planned {
            None | Some(Failing::Lies) => Ok(()),
            Some(failing) => Err(failure(failing != Failing::Never, "a fault")),
        };
        if planned.is_some_and(|failing| failing != Failing::After) {
            return (fails, None);
        }
        let (key, settings, base) = match write {
            Write::Pod(setting) => (pod, std::slice::from_ref(setting), self.pod_base(pod)),
            Write::Container { id, settings } => {
                let alive = runtime.containers().get(id.as_str()).filter(|c| c.alive(now));
                (id.as_str(), settings.as_slice(), alive.map(|c| self.base(&c.info)))
            }
            // In the model, the kernel cannot reclaim memory that is in use.
            Write::Reclaim { .. } => return (Ok(()), None),
        };
        let Some(original) = base else { return (Err(failure(true, "there is no such cgroup")), None) };
        let container = matches!(write, Write::Container { .. }).then(|| key.to_owned());
        let before = self.latest(key).unwrap_or(original);
        let after = settings.iter().fold(before, |cgroup, s| self.set(cgroup, *s, container.is_some()));
        let wrong = self.wrong(now, runtime, pod, container.as_deref(), &after);
        let touched = Touched { pod: pod.to_owned(), container, original, before, after, wrong };
        if touched.wrong.is_some() {
            return (Err(failure(true, "invalid argument")), Some(touched));
        }
        self.direct.insert(key.to_owned(), after);
        (fails, Some(touched))
    }

    /// A container's group as the kubelet last wrote it.
    pub fn base(&self, info: &ContainerInfo) -> Cgroup {
        self.files(&self.last_size(info), true)
    }

    /// A Pod's group as the kubelet last wrote it.
    pub fn pod_base(&self, pod: &str) -> Option<Cgroup> {
        Some(self.files(&self.pods.get(pod)?.last()?.1, false))
    }

    fn set(&self, cgroup: Cgroup, setting: Setting, container: bool) -> Cgroup {
        let curved = container && self.keeping.curved;
        let shares = |shares: i64| {
            let (weight, v2) = (self.keeping.weight(shares, container), self.keeping.v2);
            Cgroup { cpu_weight: v2.then_some(weight), cpu_shares: (!v2).then_some(shares), ..cgroup }
        };
        match setting {
            Setting::Shares(of) => shares(of),
            Setting::Weight(weight) => shares(shares_of(weight, curved)),
            Setting::Quota { quota, period } => {
                Cgroup { cpu_quota: self.keeping.quota(quota), cpu_period: Some(period), ..cgroup }
            }
            Setting::Memory(limit) => Cgroup { memory_limit: limit, ..cgroup },
        }
    }

    /// Why the kernel refuses the values, or kills a process; None if it does neither.
    fn wrong(
        &self,
        now: u64,
        runtime: &Runtime,
        pod: &str,
        container: Option<&str>,
        after: &Cgroup,
    ) -> Option<String> {
        let latest = |c: &Container| self.latest(&c.info.id).unwrap_or_else(|| self.base(&c.info));
        let all = || of(runtime, now, pod);
        let own = || all().filter(|c| container.is_none_or(|id| c.info.id == id));
        let uses: i64 = own().map(|c| c.process.uses << 20).sum();
        if after.memory_limit.is_some_and(|limit| limit < uses) {
            return Some(format!("{uses} bytes of memory are in use"));
        }
        if self.keeping.v2 {
            return None;
        }
        let parent = match container {
            Some(_) => self.latest(pod).or_else(|| self.pod_base(pod))?.cpu_quota,
            None => after.cpu_quota,
        };
        let child = |c: &Container| match container {
            Some(_) => after.cpu_quota,
            None => latest(c).cpu_quota,
        };
        let above = own().find(|c| !within(child(c), parent))?;
        Some(format!("container {} may use {:?}, and its Pod {parent:?}", above.info.name, child(above)))
    }
}

/// Whether the parent's quota allows the child's.
fn within(child: Option<i64>, parent: Option<i64>) -> bool {
    parent.is_none_or(|parent| child.is_none_or(|child| child <= parent))
}

/// The running containers of a Pod.
fn of<'a>(runtime: &'a Runtime, now: u64, pod: &'a str) -> impl Iterator<Item = &'a Container> {
    let own =
        move |c: &&Container| c.alive(now) && c.info.labels.get(keys::POD_UID).is_some_and(|uid| uid == pod);
    runtime.containers().values().filter(own)
}
