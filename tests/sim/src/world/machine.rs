//! A node: its clocks, runtime, kubelet and what the daemon leaves on its disk.

use std::sync::Arc;

use pitstop_api::logic::watch::Watch;
use pitstop_daemon_core::EndedHooks;
use serde_json::{Value, json};

use super::clock::Clock;
use super::daemon::Machine;
use super::plan::Schedule;
use super::sizing::Room;
use super::watcher::Watcher;
use crate::node::cgroups::Keeping;
use crate::node::kubelet::{Kubelet, Options as KubeletOptions};
use crate::node::runtime::{Flavor, Options, Runtime};
use crate::rng::Rng;

/// A node.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its clocks.
    pub clock: Clock,
    /// Its runtime.
    pub runtime: Runtime,
    /// Its kubelet.
    pub kubelet: Kubelet,
    /// The kubelet's watch of its Pods.
    pub pods: Watcher,
    /// The state directories of the daemon's Pods, the newest last.
    pub records: Vec<EndedHooks>,
    /// True time of its next planned event, if any.
    pub planned: Option<u64>,
    /// The kubelet is down or cut off.
    pub kubelet_down: bool,
    /// True time at which the booting node is up; None if it does not boot.
    pub up_at: Option<u64>,
    /// The node is gone for good.
    pub removed: bool,
    /// The node is lost until this true time.
    pub lost_until: u64,
    /// CPU that it has for Pods, in millicores.
    millicores: i64,
    /// Settings of its control groups.
    pub keeping: Keeping,
}

impl Node {
    /// A node that has just booted.
    pub fn new(at: usize, clock: Clock, room: &Room, rng: &mut Rng) -> Self {
        let name = format!("node{at}");
        let flavor = [Flavor::Containerd16, Flavor::Containerd2, Flavor::Crio];
        let options = Options::of(rng.pick(&flavor).unwrap());
        let kubelet = KubeletOptions::default();
        let fixed = room.fixed.contains(&at);
        let (v2, systemd) = (fixed && rng.one_in(2), fixed && rng.one_in(2));
        let no_quota = room.no_quota.contains(&at);
        let keeping = Keeping { v2, systemd, curved: v2 && rng.one_in(2), no_quota };
        let kubelet = KubeletOptions {
            millicores: room.millicores.unwrap_or(kubelet.millicores),
            judges_capacity: room.kubelets_judge,
            resizes: !fixed,
            leaves: at.is_multiple_of(2),
            keeping,
            ..kubelet
        };
        let millicores = kubelet.millicores;
        let selector = format!("spec.nodeName={name}");
        Self {
            runtime: Runtime::new(options, rng.next()),
            kubelet: Kubelet::new(&name, kubelet, rng),
            pods: Watcher::new("/api/v1/pods", selector),
            records: vec![EndedHooks::new()],
            planned: None,
            kubelet_down: false,
            up_at: None,
            removed: false,
            lost_until: 0,
            millicores,
            keeping,
            clock,
            name,
        }
    }

    /// Adds the registries of the schedule, if it updates images.
    pub fn with_images(mut self, schedule: &Schedule) -> Self {
        if schedule.updates() || schedule.parks() {
            self.runtime = self.runtime.with_registry(schedule.images.registry());
        }
        self
    }

    /// The node as a daemon process sees it, with the state directory `record`.
    pub fn machine(&mut self, record: usize) -> Machine<'_> {
        let ended_hooks = &mut self.records[record];
        let cgroups = self.kubelet.cgroups();
        Machine { clock: &self.clock, runtime: &mut self.runtime, ended_hooks, cgroups }
    }

    /// The kubelet's watch delivered.
    pub fn pods_changed(&mut self, now: u64, event: Watch<Arc<Value>>) {
        match event {
            Watch::Listed(pods) if self.kubelet.is_up() => {
                self.kubelet.pods_listed(now, &pods.objects, &mut self.runtime);
            }
            Watch::Listed(pods) => self.kubelet.start(now, &pods.objects),
            Watch::Upsert(pod) => self.kubelet.pod_changed(now, &pod, &mut self.runtime),
            Watch::Gone(pod) => {
                let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
                self.kubelet.pod_gone(now, uid);
            }
        }
    }

    /// True time of the next event of the node itself.
    pub fn wake_at(&self) -> Option<u64> {
        self.runtime.wake_at().into_iter().chain(self.kubelet.wake_at(&self.runtime)).min()
    }

    /// The `Node` object.
    pub fn object(&self) -> Value {
        let allocatable = json!({"cpu": format!("{}m", self.millicores), "memory": "1Ti", "pods": "110"});
        json!({"metadata": {"name": self.name}, "spec": {}, "status": {"allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}]}})
    }
}
