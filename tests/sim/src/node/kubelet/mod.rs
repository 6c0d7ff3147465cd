//! Model of the kubelet of one node: Kubernetes 1.36, as read in `pkg/kubelet` and seen in
//! `reference/kubelet-restart.md` and `reference/real-cluster.md`.
//!
//! - The kubelet notices an ended container at its next look at the runtime, once a second
//!   ([`Options::relist_ms`]). After its own actions it looks at once.
//! - The first restart is immediate. Each further one waits 10 s from the end of the previous instance,
//!   doubled up to 5 min, by image string. 10 min without an end reset the back-off.
//! - Status: `Terminated` first. The pass after the one that ran into the back-off shows `CrashLoopBackOff`;
//!   from 1.33 on, that pass starts the container ([`Requeue`]).
//! - Another image string: whatever the restart policy, the kubelet runs the hook, ends the container with
//!   the Pod's grace and starts it in the same pass. In between it pulls, by its policy, with credentials.
//!   Failed pulls back off by Pod and image string, 10 s at first.
//! - A deleted Pod: hooks and stops side by side, sidecars after the others; then the status; then the
//!   deletion of the object with its UID as precondition.
//! - State in memory (back-off, reasons, probes, an end in progress) is lost when the kubelet restarts.
//! - The times of conditions and containers are the node's wall clock; they decide nothing. (The real kubelet
//!   computes the back-off from that clock, for both the end and now.)
//!
//! Simplified: a probe passes once or never ([`Kubelet::probed`] fails it), and memory always has room for
//! new sizes ([`sizes`]). Left out: ephemeral containers, evictions, the regular pass of each minute.

mod backoff;
mod generate;
mod images;
mod kill;
mod pass;
mod plan;
mod pod;
mod sizes;
mod status;
#[cfg(test)]
mod tests;
mod view;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use self::pod::Pod;
use self::sizes::Sizes;
pub use self::status::{
    Condition, ContainerState, ContainerStatus, OWN_CONDITIONS, PodStatus, Running, StatusWrite, Terminated,
    Waiting,
};

use self::backoff::BackOff;
use self::worker::{Cx, Life, Worker};
use super::cgroups::Keeping;
use super::keys;
use super::runtime::{Call, Client, Runtime};
use crate::rng::Rng;

/// Period of the status manager's round over all Pods, and the wait after a failed pass.
const ROUND_MS: u64 = 10_000;
/// Longest wait for a back-off to end.
const RESYNC_MS: u64 = 60_000;
/// Time between two collections of ended containers.
const COLLECT_MS: u64 = 60_000;

/// When the kubelet looks again at a Pod whose container is in back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// When the back-off ends, or up to half as long later.
    AtExpiry,
    /// After 10 to 15 s, as older kubelets do.
    Round,
}

/// How a kubelet behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time between two looks at the runtime.
    pub relist_ms: u64,
    /// First and longest back-off.
    pub backoff_ms: (u64, u64),
    /// When it looks again after a back-off.
    pub requeue: Requeue,
    /// Delay between making and writing a status: least and most.
    pub lag_ms: (u64, u64),
    /// Millicores that the node has for Pods.
    pub millicores: i64,
    /// Whether the kubelet itself finds that a Pod is larger than the node, as before 1.36. Later, admission
    /// finds it.
    pub judges_capacity: bool,
    /// Whether it resizes, as from 1.33 on. If not, it makes a Pod's group once and never looks at it again.
    pub resizes: bool,
    /// Whether it leaves a Pod's group unchanged for a container that does not run, as from 1.33 to 1.36.3
    /// (kubernetes#138760).
    pub leaves: bool,
    /// How the node's control groups are kept.
    pub keeping: Keeping,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            relist_ms: 1000,
            backoff_ms: (10_000, 300_000),
            requeue: Requeue::AtExpiry,
            lag_ms: (2, 30),
            millicores: 16_000,
            judges_capacity: false,
            resizes: true,
            leaves: false,
            keeping: Keeping::default(),
        }
    }
}

/// A write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A write of a Pod's status. [`Kubelet::written`] takes its outcome.
    Status(StatusWrite),
    /// The deletion of a Pod's object, with grace 0 and the UID as precondition. Repeated until
    /// [`Kubelet::pod_gone`].
    Delete {
        /// Namespace of the Pod.
        namespace: String,
        /// Name of the Pod.
        name: String,
        /// UID of the Pod.
        uid: String,
    },
    /// The creation of a mirror Pod. Its object arrives through [`Kubelet::pod_changed`].
    CreateMirror(Value),
}

/// A kubelet.
#[derive(Clone, Debug)]
pub struct Kubelet {
    node: String,
    host_ip: String,
    options: Options,
    up: bool,
    /// By UID; a static Pod by the hash of its file.
    workers: BTreeMap<String, Worker>,
    statics: Vec<Value>,
    backoff: BackOff,
    /// Back-off of pulls, by Pod and image string.
    image_backoff: BackOff,
    sizes: Sizes,
    /// Kept on disk: the last attempt, by Pod UID and container.
    logs: BTreeMap<(String, String), u32>,
    /// The runtime's change counter at the last look.
    seen: Option<u64>,
    /// None before the first look.
    looked_at: Option<u64>,
    /// Offset of its looks within the period, in milliseconds.
    phase: u64,
    mirror_at: Option<u64>,
}

impl Kubelet {
    /// A kubelet that is down.
    pub fn new(node: &str, options: Options, rng: &mut Rng) -> Self {
        let phase = rng.below(options.relist_ms);
        let sizes = Sizes::new(&options);
        Self {
            node: node.to_owned(),
            host_ip: "10.90.0.11".to_owned(),
            options,
            up: false,
            workers: BTreeMap::new(),
            statics: Vec::new(),
            backoff: BackOff::default(),
            image_backoff: BackOff::default(),
            sizes,
            logs: BTreeMap::new(),
            seen: None,
            looked_at: None,
            phase,
            mirror_at: None,
        }
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Whether its process runs.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Adds a static Pod to the node's disk, in API form without a UID. It takes effect at the next start.
    pub fn add_static(&mut self, manifest: Value) {
        self.statics.push(manifest);
    }

    /// Starts the process, which has read all Pods that are bound to its node.
    pub fn start(&mut self, now: u64, pods: &[Arc<Value>]) {
        self.up = true;
        self.workers.clear();
        self.backoff.clear();
        self.image_backoff.clear();
        self.seen = None;
        self.looked_at = None;
        for manifest in self.statics.clone() {
            let worker = static_worker(&self.node, manifest, now);
            self.workers.insert(worker.pod.uid.clone(), worker);
        }
        self.mirror_at = (!self.statics.is_empty()).then_some(now + ROUND_MS / 10);
        for value in pods {
            self.add(now, Pod::read(value));
        }
    }

    /// Kills the process; its hooks and stops in progress are cut.
    pub fn down(&mut self, runtime: &mut Runtime) {
        self.up = false;
        self.workers.clear();
        runtime.cancel_all(Client::KUBELET);
    }

    /// A Pod bound to this node was added or changed.
    pub fn pod_changed(&mut self, now: u64, value: &Value, runtime: &mut Runtime) {
        if !self.up {
            return;
        }
        let pod = Pod::read(value);
        match self.workers.get_mut(&pod.uid) {
            Some(worker) => {
                let uid = pod.uid.clone();
                worker.changed(now, pod, runtime);
                self.judge_size(now, &uid);
            }
            None => self.add(now, pod),
        }
    }

    /// A Pod's object is gone.
    pub fn pod_gone(&mut self, now: u64, uid: &str) {
        if let Some(worker) = self.workers.get_mut(uid) {
            worker.vanished(now);
        }
        let mirrored =
            self.workers.values_mut().find(|w| w.manifest.is_some() && w.shown_as.as_deref() == Some(uid));
        if let Some(worker) = mirrored {
            worker.shown_as = None;
            worker.stored = None;
            self.mirror_at = Some(now);
        }
    }

    /// Takes the list of all Pods bound to this node, after a new start of the watch.
    pub fn pods_listed(&mut self, now: u64, pods: &[Arc<Value>], runtime: &mut Runtime) {
        for value in pods {
            self.pod_changed(now, value, runtime);
        }
        let uid = |v: &Value| v["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let listed: Vec<String> = pods.iter().map(|pod| uid(pod)).collect();
        let shown = self.workers.values().filter(|w| !w.gone).filter_map(|w| w.shown_as.clone());
        let missing: Vec<String> = shown.filter(|uid| !listed.contains(uid)).collect();
        for uid in missing {
            self.pod_gone(now, &uid);
        }
    }

    /// Result of a status write for the Pod with this UID: stored, or failed (refused, no answer).
    pub fn written(&mut self, now: u64, uid: &str, stored: bool) {
        let worker = self.workers.values_mut().find(|w| w.shown_as.as_deref() == Some(uid));
        if let Some(worker) = worker {
            worker.written(now, stored);
        }
    }

    /// A container's readiness probe passes or fails from now on.
    pub fn probed(&mut self, now: u64, container_id: &str, passes: bool) {
        let has = |w: &&mut Worker| w.view.containers.iter().any(|c| c.info.id == container_id);
        if let Some(worker) = self.workers.values_mut().find(has) {
            worker.probes.retain(|p| p.1 != container_id);
            if passes {
                worker.probes.push((now, container_id.to_owned()));
            } else {
                worker.ready.insert(container_id.to_owned(), false);
                worker.sync_at = Some(now);
            }
        }
    }

    /// Does everything that is due; returns its writes. `wall` is the wall clock in milliseconds.
    pub fn advance(&mut self, now: u64, wall: i64, runtime: &mut Runtime, rng: &mut Rng) -> Vec<Write> {
        runtime.set_wall(now, wall);
        let mut writes = Vec::new();
        if !self.up {
            return writes;
        }
        self.retry_sizes(now);
        let replies = runtime.take_replies();
        let due = self.look_at(runtime).is_some_and(|at| at <= now);
        let looks = due && runtime.answers(now);
        if looks {
            self.adopt(now, runtime);
            self.seen = Some(runtime.changes());
        }
        if self.mirror_at.is_some_and(|at| at <= now) {
            self.mirror_at = None;
            let bare = self.workers.values().filter(|w| w.shown_as.is_none());
            writes.extend(bare.filter_map(|w| w.manifest.clone()).map(Write::CreateMirror));
        }
        let mut cx = Cx {
            now,
            wall: wall.saturating_mul(1_000_000),
            looked: self.seen.is_some(),
            runtime,
            rng,
            options: &self.options,
            host_ip: &self.host_ip,
            backoff: &mut self.backoff,
            image_backoff: &mut self.image_backoff,
            sizes: &mut self.sizes,
            logs: &mut self.logs,
            writes: &mut writes,
        };
        for (call, reply) in replies {
            for worker in self.workers.values_mut() {
                if worker.reply(&mut cx, call, &reply) {
                    break;
                }
            }
        }
        for worker in self.workers.values_mut() {
            if looks {
                worker.look(&mut cx);
            }
            worker.advance(&mut cx);
            worker.publish(&mut cx);
        }
        if due {
            self.looked_at = Some(now);
        }
        self.bury(now, runtime);
        writes
    }

    /// When [`advance`](Self::advance) has something to do next.
    pub fn wake_at(&self, runtime: &Runtime) -> Option<u64> {
        if !self.up {
            return None;
        }
        let workers = self.workers.values().filter_map(Worker::wake_at);
        workers.chain(self.look_at(runtime)).chain(self.mirror_at).chain(self.sizes.retry_at).min()
    }

    /// The next look at the runtime that would show a change.
    fn look_at(&self, runtime: &Runtime) -> Option<u64> {
        if self.seen == Some(runtime.changes()) || !runtime.is_up() {
            return None;
        }
        let Some(looked_at) = self.looked_at else { return Some(0) };
        let period = self.options.relist_ms;
        let after = (looked_at + 1).max(runtime.changed_at());
        Some((after + period - 1 - self.phase) / period * period + self.phase)
    }

    fn add(&mut self, now: u64, pod: Pod) {
        let Some(original) = &pod.mirrors else {
            let worker = Worker::new(pod, now);
            let uid = worker.pod.uid.clone();
            self.sizes.admit(&uid, &worker.pod.containers);
            self.workers.insert(uid.clone(), worker);
            self.judge_size(now, &uid);
            return;
        };
        if let Some(worker) = self.workers.get_mut(original).filter(|w| w.manifest.is_some()) {
            let new = worker.shown_as.as_ref() != Some(&pod.uid);
            worker.shown_as = Some(pod.uid.clone());
            worker.pod.status = pod.status;
            worker.pod.generation = pod.generation;
            if new {
                worker.stored = None;
                worker.writing = None;
                worker.publish_at = Some(now);
            }
        }
    }

    /// Ends the containers of Pods that no longer exist.
    fn adopt(&mut self, now: u64, runtime: &Runtime) {
        for container in runtime.containers().values().filter(|c| c.alive(now)) {
            let info = &container.info;
            let label = |key| info.labels.get(key).cloned().unwrap_or_default();
            let uid = label(keys::POD_UID);
            if uid.is_empty() || self.workers.contains_key(&uid) {
                continue;
            }
            let grace = info.annotations.get(keys::TERMINATION_GRACE_PERIOD).and_then(|s| s.parse().ok());
            let pod = Pod {
                namespace: label(keys::POD_NAMESPACE),
                name: label(keys::POD_NAME),
                uid,
                grace: grace.unwrap_or(30),
                ..Pod::default()
            };
            let mut worker = Worker::new(pod, now);
            worker.vanished(now);
            self.workers.insert(worker.pod.uid.clone(), worker);
        }
    }

    /// Removes the remains of Pods that have ended and are deleted.
    fn bury(&mut self, now: u64, runtime: &mut Runtime) {
        let over = |w: &&Worker| w.gone && w.life == Life::Terminated;
        let over: Vec<String> = self.workers.values().filter(over).map(|w| w.pod.uid.clone()).collect();
        for uid in over {
            let worker = self.workers.remove(&uid).unwrap();
            self.backoff.forget(&uid);
            self.image_backoff.forget(&uid);
            self.sizes.forget(now, &uid);
            self.logs.retain(|key, _| key.0 != uid);
            for sandbox in worker.view.sandboxes {
                runtime.call(now, Client::KUBELET, Call::RemovePodSandbox { id: sandbox.id });
            }
        }
    }
}

/// A static Pod: its UID is the hash of its file, its name ends with the node's, and a mirror Pod shows it.
fn static_worker(node: &str, mut manifest: Value, now: u64) -> Worker {
    let text = format!("{node}{manifest}");
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let uid = format!("{hash:016x}{:016x}", hash.rotate_left(29));
    let name = format!("{}-{node}", manifest["metadata"]["name"].as_str().expect("a name"));
    manifest["metadata"]["name"] = json!(name);
    if manifest["metadata"]["namespace"].is_null() {
        manifest["metadata"]["namespace"] = json!("default");
    }
    manifest["spec"]["nodeName"] = json!(node);
    let mut pod = Pod::read(&manifest);
    pod.uid.clone_from(&uid);
    for key in [keys::CONFIG_MIRROR, keys::CONFIG_HASH] {
        manifest["metadata"]["annotations"][key] = json!(uid);
    }
    let mut worker = Worker::new(pod, now);
    worker.shown_as = None;
    worker.manifest = Some(manifest);
    worker
}
