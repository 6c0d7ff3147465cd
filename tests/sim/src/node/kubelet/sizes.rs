//! Sizes of Pods: admitted, given to containers, or waiting for room. `pkg/kubelet/allocation` and
//! `doPodResizeAction` of `pkg/kubelet/kuberuntime`, Kubernetes 1.34 to 1.36.
//!
//! - Admitted and given sizes are on disk: both outlive the kubelet's process.
//! - The kubelet judges a new size when the Pod changes. A size without room is judged again when another Pod
//!   goes or shrinks, and every half minute.
//! - The next pass writes the new size into the control groups. A container whose `resizePolicy` asks for it
//!   is restarted instead.
//! - The Pod's group is written with the containers': CPU if a container's CPU changes, memory if its memory
//!   does.
//! - A memory limit is not lowered below the memory in use; the kubelet tries again.

use std::collections::BTreeMap;

use pitstop_api::quantity::{Resource, Resources};

use super::pod::PodContainer;
use super::view::Seen;
use super::worker::{Cx, Life, Pass, Step, Worker};
use super::{Kubelet, Options};
use crate::node::cgroups::{Cgroups, of_pod};
use crate::node::runtime::{ContainerInfo, State};

/// Time between two judgements of sizes without room.
const RETRY_MS: u64 = 30_000;

/// Sizes on one node.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    /// Admitted sizes, by Pod UID and container.
    allocated: BTreeMap<(String, String), Resources>,
    pub(super) cgroups: Cgroups,
    /// Millicores that Pods outside the model request.
    pub(super) others: i64,
    /// When sizes without room are judged again.
    pub(super) retry_at: Option<u64>,
    /// The kubelet does not resize.
    pub(super) fixed: bool,
    /// It leaves a Pod's group unchanged for a container that does not run.
    pub(super) leaves: bool,
}

/// What a running container needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Written,
    Restarted,
}

/// Why a size waits: reason and message.
pub(super) type Pending = (&'static str, String);

impl Sizes {
    /// No size is admitted yet.
    pub(super) fn new(options: &Options) -> Self {
        let mut sizes = Self { fixed: !options.resizes, leaves: options.leaves, ..Self::default() };
        sizes.cgroups.keep(options.keeping);
        sizes
    }

    /// The admitted size of a container. A kubelet that does not resize keeps no record of it.
    pub(super) fn allocated(&self, uid: &str, container: &PodContainer) -> Resources {
        if self.fixed {
            return container.size;
        }
        self.allocated.get(&(uid.to_owned(), container.name.clone())).copied().unwrap_or(container.size)
    }

    /// Admits a Pod as it is, unless it is admitted already.
    pub(super) fn admit(&mut self, uid: &str, containers: &[PodContainer]) {
        for container in containers {
            self.allocated.entry((uid.to_owned(), container.name.clone())).or_insert(container.size);
        }
    }

    /// Drops a deleted Pod, which makes room.
    pub(super) fn forget(&mut self, now: u64, uid: &str) {
        self.allocated.retain(|(pod, _), _| pod != uid);
        self.cgroups.forget(uid);
        self.look_again(now);
    }

    /// Judges sizes without room again at once.
    pub(super) fn look_again(&mut self, now: u64) {
        if self.retry_at.is_some() {
            self.retry_at = Some(now);
        }
    }

    /// Millicores that all other Pods request.
    fn used_beside(&self, uid: &str) -> i64 {
        let others = self.allocated.iter().filter(|((pod, _), _)| pod != uid);
        self.others + others.filter_map(|(_, size)| size.cpu_request).sum::<i64>()
    }

    /// What a running container needs to get its admitted size.
    pub(super) fn need(&self, uid: &str, spec: &PodContainer, info: &ContainerInfo) -> Need {
        if self.fixed {
            return Need::Nothing;
        }
        let (wanted, old) = (self.allocated(uid, spec), self.cgroups.last_size(info));
        let cpu = (wanted.cpu_request, wanted.cpu_limit) != (old.cpu_request, old.cpu_limit);
        let memory = (wanted.memory_request, wanted.memory_limit) != (old.memory_request, old.memory_limit);
        match (cpu, memory) {
            (false, false) => Need::Nothing,
            _ if (cpu && spec.restart_for.0) || (memory && spec.restart_for.1) => Need::Restarted,
            _ => Need::Written,
        }
    }
}

impl Kubelet {
    /// The node's control groups.
    pub fn cgroups(&self) -> &Cgroups {
        &self.sizes.cgroups
    }

    /// The node's control groups.
    pub fn cgroups_mut(&mut self) -> &mut Cgroups {
        &mut self.sizes.cgroups
    }

    /// Pods outside the model request this many millicores from now on.
    pub fn crowd(&mut self, now: u64, millicores: i64) {
        self.sizes.others = millicores;
        self.sizes.look_again(now);
    }

    /// Judges the size that a Pod's spec requests.
    pub(super) fn judge_size(&mut self, now: u64, uid: &str) {
        let Some(worker) = self.workers.get_mut(uid) else { return };
        worker.judge_size(now, self.options.millicores, self.options.judges_capacity, &mut self.sizes);
        if worker.pending.as_ref().is_some_and(|(reason, _)| *reason == "Deferred") {
            self.sizes.retry_at.get_or_insert(now + RETRY_MS);
        }
    }

    /// Judges sizes without room again.
    pub(super) fn retry_sizes(&mut self, now: u64) {
        if self.sizes.retry_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let waiting: Vec<String> =
            self.workers.values().filter(|w| w.pending.is_some()).map(|w| w.pod.uid.clone()).collect();
        for uid in waiting {
            self.judge_size(now, &uid);
        }
    }
}

impl Worker {
    fn judge_size(&mut self, now: u64, millicores: i64, judges: bool, sizes: &mut Sizes) {
        if sizes.fixed {
            return;
        }
        let uid = self.pod.uid.clone();
        let cpu = |size: Resources| size.cpu_request.unwrap_or(0);
        let wanted: i64 = self.pod.containers.iter().map(|c| cpu(c.size)).sum();
        let before: i64 = self.pod.containers.iter().map(|c| cpu(sizes.allocated(&uid, c))).sum();
        let used = sizes.used_beside(&uid);
        let same = self.pod.containers.iter().all(|c| sizes.allocated(&uid, c) == c.size);
        let pending: Option<Pending> = if same || self.life != Life::Living {
            None
        } else if judges && wanted > millicores {
            let text =
                format!("Node didn't have enough capacity: cpu, requested: {wanted}, capacity: {millicores}");
            Some(("Infeasible", text))
        } else if wanted > before && wanted + used > millicores {
            let text = format!(
                "Node didn't have enough resource: cpu, requested: {wanted}, used: {used}, capacity: {millicores}"
            );
            Some(("Deferred", text))
        } else {
            for container in &self.pod.containers {
                sizes.allocated.insert((uid.clone(), container.name.clone()), container.size);
            }
            self.size_error = None;
            self.sync_at = Some(now);
            if wanted < before {
                sizes.look_again(now);
            }
            None
        };
        if pending != self.pending {
            self.pending = pending;
            self.sync_at = Some(now);
        }
    }

    /// The running instance of a container at the last look.
    fn instance(&self, name: &str) -> Option<&Seen> {
        self.view.newest(name).filter(|seen| seen.info.state == State::Running)
    }

    /// Whether a container runs with another size than admitted.
    pub(super) fn missized(&self, sizes: &Sizes) -> bool {
        self.pod.containers.iter().any(|spec| {
            let seen = self.instance(&spec.name);
            seen.is_some_and(|seen| sizes.need(&self.pod.uid, spec, &seen.info) != Need::Nothing)
        })
    }

    /// Makes the Pod's control group before a container in it, or writes the admitted size into it.
    pub(super) fn make_pod(&self, cx: &mut Cx<'_>) {
        let made = cx.sizes.fixed || cx.sizes.leaves;
        // The group exists once it is made, even if its values are not in effect yet.
        if !made || cx.sizes.cgroups.last_pod_size(&self.pod.uid).is_none() {
            self.size_pod(cx);
        }
    }

    /// Before a container ends for its size, gives its Pod the admitted size.
    pub(super) fn size_with(&self, cx: &mut Cx<'_>, ended: &[String]) {
        let for_size = ended.iter().filter_map(|id| {
            let seen = self.view.containers.iter().find(|seen| seen.info.id == *id)?;
            Some(cx.sizes.need(&self.pod.uid, self.pod.container(&seen.info.name)?, &seen.info))
        });
        if for_size.into_iter().any(|need| need == Need::Restarted) {
            self.size_pod(cx);
        }
    }

    /// Writes the admitted size into the Pod's control group.
    fn size_pod(&self, cx: &mut Cx<'_>) {
        self.size_pod_for(cx, true, true);
    }

    /// The same, but only resources that change for a container.
    fn size_pod_for(&self, cx: &mut Cx<'_>, cpu: bool, memory: bool) {
        let all: Vec<Resources> =
            self.pod.containers.iter().map(|c| cx.sizes.allocated(&self.pod.uid, c)).collect();
        let (new, uid) = (of_pod(&all), &self.pod.uid);
        let old = cx.sizes.cgroups.last_pod_size(uid).unwrap_or(new);
        let (of_cpu, of_memory) = (if cpu { new } else { old }, if memory { new } else { old });
        let size = Resources {
            memory_request: of_memory.memory_request,
            memory_limit: of_memory.memory_limit,
            ..of_cpu
        };
        cx.sizes.cgroups.write_pod(cx.now, uid, size);
    }

    /// Writes the new sizes, up to the first that is impossible.
    pub(super) fn write_sizes(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, names: &[String]) {
        let (mut error, mut cpu, mut memory) = (None, false, false);
        for name in names {
            let Some(spec) = self.pod.container(name) else { continue };
            let Some(seen) = self.instance(name) else { continue };
            if cx.sizes.need(&self.pod.uid, spec, &seen.info) != Need::Written {
                continue;
            }
            let (wanted, old) =
                (cx.sizes.allocated(&self.pod.uid, spec), cx.sizes.cgroups.last_size(&seen.info));
            let used = spec.behaviour.uses << 20;
            let lower = wanted.memory_limit.is_some_and(|new| old.memory_limit.is_none_or(|old| new < old));
            if let Some(limit) = wanted.memory_limit.filter(|limit| lower && *limit < used) {
                error = Some(format!(
                    "cannot decrease memory limits: attempting to set pod memory limit ({limit}) below current usage \
                     ({used})"
                ));
                break;
            }
            cpu |= (wanted.cpu_request, wanted.cpu_limit) != (old.cpu_request, old.cpu_limit);
            memory |= (wanted.memory_request, wanted.memory_limit) != (old.memory_request, old.memory_limit);
            let info = seen.info.clone();
            cx.sizes.cgroups.write(cx.now, &info, wanted);
        }
        pass.failed |= error.is_some();
        if error.is_none() {
            self.size_pod_for(cx, cpu, memory);
        }
        // Waiting sizes may have room now, and the status must show the change.
        cx.sizes.look_again(cx.now);
        self.size_error = error;
        self.renew_status(cx);
    }

    /// The step that writes new sizes, if a container needs it.
    pub(super) fn plan_sizes(&self, sizes: &Sizes) -> Option<Step> {
        let written = |spec: &&PodContainer| {
            let seen = self.instance(&spec.name);
            seen.is_some_and(|seen| sizes.need(&self.pod.uid, spec, &seen.info) == Need::Written)
        };
        let names: Vec<String> = self.pod.containers.iter().filter(written).map(|c| c.name.clone()).collect();
        (!names.is_empty()).then_some(Step::Resize(names))
    }
}

/// Amounts in API form.
pub(super) fn shown(cpu: Option<i64>, memory: Option<i64>) -> BTreeMap<String, String> {
    let amounts = [(Resource::Cpu, cpu), (Resource::Memory, memory)];
    amounts.into_iter().filter_map(|(r, amount)| Some((r.as_str().to_owned(), r.show(amount?)))).collect()
}
