//! Reads and changes resources: of containers through their runtime, of Pods through their files, and first through
//! systemd if that manages them.

use std::time::Duration;

use pitstop_api::nodework::{Held, OrderPod};
use pitstop_api::text::quoted;
use pitstop_cri::{ContainerId, Runtime, v1};
use pitstop_daemon_core::cgroup::{self, Paths};
use pitstop_daemon_core::resize::{
    Driver, Present, RunningContainer, Seen, Setting, Write, describe_writes, give_back, shares_of,
};
use pitstop_daemon_core::{CallFailure, ContainerState};
use pitstop_kit::describe;

use crate::cgroup::Cgroups;
use crate::runtime;
use crate::systemd::Systemd;

/// Most time for a write to a file: the kernel reclaims memory meanwhile. As for the runtime
/// (`pitstop_cri::Deadlines::UPDATE`).
const WRITE: Duration = Duration::from_secs(30);

/// The cgroups of a node, to be changed. Clones share the bound on reads.
#[derive(Clone, Debug)]
pub(crate) struct Resizer {
    pub(crate) cgroups: Cgroups,
    pub(crate) systemd: Systemd,
}

impl Resizer {
    /// The resources that an order is to change. `runs`: the container must exist. `held`: recorded path of the Pod's
    /// cgroup.
    pub(crate) async fn look(
        &self,
        runtime: &Runtime,
        container_id: &ContainerId,
        pod_uid: &str,
        runs: bool,
        held: Option<&str>,
    ) -> Result<Box<Present>, CallFailure> {
        let _turn = self.cgroups.turn().await;
        let paths = match runtime::cgroups_path(runtime, container_id).await {
            Ok(path) => cgroup::resolve(&path, container_id, pod_uid).map_err(never)?,
            Err(failure) if runs || failure.retry => return Err(failure),
            // The runtime no longer knows the container.
            Err(_) => match held.filter(|held| cgroup::is_pod_path(held, pod_uid)) {
                Some(held) => Paths { pod: held.to_owned(), container: String::new() },
                None => return Ok(Box::new(self.no_cgroups())),
            },
        };
        self.cgroups.present(&paths, runs).map(Box::new).map_err(never)
    }

    /// The result if no cgroup is found.
    fn no_cgroups(&self) -> Present {
        let version = self.cgroups.version();
        Present {
            cgroup: String::new(),
            of_container: String::new(),
            version,
            container: None,
            pod: None,
            pinned: false,
            swap: false,
        }
    }

    /// Makes writes one after the other, until one fails.
    pub(crate) async fn apply(
        &self,
        runtime: &Runtime,
        pod: &str,
        writes: &[Write],
        curved: bool,
    ) -> Result<(), CallFailure> {
        for write in writes {
            match write {
                Write::Container { id, settings } => {
                    let resources = resources(settings, self.cgroups.counts_swap(pod), curved);
                    runtime::update(runtime, id, resources).await?;
                }
                Write::Pod(setting) => self.write(pod, *setting).await?,
                Write::Reclaim { cgroup, bytes } => {
                    let (group, bytes) = (cgroup.clone(), *bytes);
                    let reclaim = move |cgroups: Cgroups| cgroups.reclaim(&group, bytes);
                    self.waiting(format!("reclaiming memory of {cgroup}"), reclaim).await?;
                }
            }
        }
        Ok(())
    }

    async fn write(&self, pod: &str, setting: Setting) -> Result<(), CallFailure> {
        if Driver::of(pod) == Driver::Systemd {
            let slice = pod.rsplit('/').next().unwrap_or_default();
            self.systemd.set(self.cgroups.version(), slice, setting).await?;
        }
        let group = pod.to_owned();
        self.waiting(format!("a write into the cgroup {pod}"), move |cgroups| cgroups.write(&group, setting))
            .await
    }

    /// Runs work that may wait for the kernel, without blocking other tasks.
    async fn waiting(
        &self,
        task: String,
        work: impl FnOnce(Cgroups) -> Result<(), CallFailure> + Send + 'static,
    ) -> Result<(), CallFailure> {
        let cgroups = self.cgroups.clone();
        let writing = tokio::task::spawn_blocking(move || work(cgroups));
        match tokio::time::timeout(WRITE, writing).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(CallFailure { retry: true, message: describe(&error) }),
            Err(_) => {
                let message = format!("{task} was not done within {} s", WRITE.as_secs());
                Err(CallFailure { retry: true, message })
            }
        }
    }

    /// Restores the original resources of a Pod and of its running containers.
    pub(crate) async fn write_back(&self, runtime: &Runtime, held: &Held) -> Result<(), CallFailure> {
        let pod = held.cgroup.as_str();
        if !cgroup::is_pod_path(pod, &held.pod.uid) {
            return Err(never(format!(
                "{} cannot be the cgroup of Pod {}",
                quoted(pod),
                quoted(&held.pod.uid)
            )));
        }
        // Only the result shows which weight the runtime makes of shares.
        for curved in [false, true, true] {
            let writes = self.missing(runtime, held).await?;
            if writes.is_empty() {
                return Ok(());
            }
            self.apply(runtime, pod, &writes, curved).await?;
        }
        match self.missing(runtime, held).await?.as_slice() {
            [] => Ok(()),
            missing => {
                let message = format!("the write had no effect: {}", describe_writes(missing));
                Err(CallFailure { retry: true, message })
            }
        }
    }

    /// The writes that still have to restore the Pod.
    async fn missing(&self, runtime: &Runtime, held: &Held) -> Result<Vec<Write>, CallFailure> {
        let _turn = self.cgroups.turn().await;
        let mut alive = Vec::new();
        for container in &held.containers {
            let id = ContainerId::parse(&container.id).map_err(|error| never(describe(&error)))?;
            if let Some(seen) = self.running(runtime, &held.pod, &container.name, &id).await? {
                alive.push((id, &container.original, seen));
            }
        }
        let version = self.cgroups.version();
        let there = self.cgroups.has(version, &held.cgroup);
        let pod = there.then(|| self.cgroups.seen(version, &held.cgroup)).transpose().map_err(never)?;
        let containers: Vec<_> =
            alive.iter().map(|(id, original, present)| RunningContainer { id, original, present }).collect();
        let in_use = |message| CallFailure { retry: true, message };
        give_back(held, pod.as_ref(), &containers).map_err(in_use)
    }

    /// Values of a container's cgroup, if it runs and belongs to the Pod.
    async fn running(
        &self,
        runtime: &Runtime,
        pod: &OrderPod,
        name: &str,
        id: &ContainerId,
    ) -> Result<Option<Seen>, CallFailure> {
        let Some(facts) = runtime::inspect(runtime, id).await? else { return Ok(None) };
        let own = facts.pod_uid == pod.uid
            && facts.pod == pod.name
            && facts.namespace == pod.namespace
            && facts.container == name;
        if !own || facts.state != ContainerState::Running {
            return Ok(None);
        }
        let path = runtime::cgroups_path(runtime, id).await?;
        let paths = cgroup::resolve(&path, id, &pod.uid).map_err(never)?;
        self.cgroups.seen(self.cgroups.version(), &paths.container).map(Some).map_err(never)
    }
}

fn never(message: String) -> CallFailure {
    CallFailure { retry: false, message }
}

/// Settings as the runtime takes them: -1 is no limit, and 0 is no change.
pub fn resources(settings: &[Setting], counts_swap: bool, curved: bool) -> v1::LinuxContainerResources {
    let mut resources = v1::LinuxContainerResources::default();
    for setting in settings {
        match *setting {
            Setting::Shares(shares) => resources.cpu_shares = shares,
            Setting::Weight(weight) => resources.cpu_shares = shares_of(weight, curved),
            Setting::Quota { quota, period } => {
                resources.cpu_quota = quota.unwrap_or(-1);
                resources.cpu_period = period;
            }
            Setting::Memory(limit) => {
                resources.memory_limit_in_bytes = limit.unwrap_or(-1);
                // No swap: memory and swap together get the limit of memory.
                if counts_swap {
                    resources.memory_swap_limit_in_bytes = limit.unwrap_or(-1);
                }
            }
        }
    }
    resources
}

#[cfg(test)]
mod containerd_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_told_no_more_than_what_changes() {
        let quota = |quota| Setting::Quota { quota, period: 50_000 };
        let sent = resources(&[quota(Some(25_000)), Setting::Memory(Some(1 << 20))], true, false);
        let expected = v1::LinuxContainerResources {
            cpu_period: 50_000,
            cpu_quota: 25_000,
            memory_limit_in_bytes: 1 << 20,
            memory_swap_limit_in_bytes: 1 << 20,
            ..Default::default()
        };
        assert_eq!(sent, expected);
        let sent = resources(&[quota(None), Setting::Memory(None), Setting::Shares(7)], false, false);
        let expected = v1::LinuxContainerResources {
            cpu_period: 50_000,
            cpu_quota: -1,
            cpu_shares: 7,
            memory_limit_in_bytes: -1,
            ..Default::default()
        };
        assert_eq!(sent, expected);
        let unlimited = resources(&[Setting::Memory(None)], true, false);
        assert_eq!(unlimited.memory_swap_limit_in_bytes, -1);
        // Each kind of runtime needs other shares for a weight.
        assert_eq!(resources(&[Setting::Weight(39)], true, true).cpu_shares, 295);
        assert_eq!(resources(&[Setting::Weight(39)], true, false).cpu_shares, 999);
    }
}
