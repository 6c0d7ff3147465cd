//! Faults, and how they end.

use serde_json::Value;

use super::plan::Fault;
use super::processes::{Kind, Pid, Role};
use super::{Happening, World, objects};
use crate::node::keys;
use crate::node::runtime::{Code, Method};
use crate::oracle::Writer;

/// Lasting faults of the API server and the network. Times are true time.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// The API server is down until then.
    pub(super) down_until: u64,
    /// The API server answers slowly until then.
    pub(super) slow_until: u64,
    /// Percentage of requests whose answer is lost.
    pub(super) losing_percent: u64,
    /// End of the lost answers.
    pub(super) losing_until: u64,
    /// pitstop's requests are refused with this code.
    pub(super) refusing: u16,
    /// End of the refusals.
    pub(super) refusing_until: u64,
}

/// A later part of a fault, mostly its end.
#[derive(Clone, Debug)]
pub(super) enum Heal {
    /// A surplus process ends.
    End(Pid),
    /// A node boots.
    Boot(usize),
    /// A kubelet's process begins.
    Kubelet(usize),
    /// The node lifecycle controller notices that a node is lost.
    Lost(usize),
    /// A lost node's kubelet is connected again.
    Found(usize),
    /// A runtime's process begins.
    Runtime(usize),
    /// A controller's watches that lost events list again.
    Watches(usize),
    /// The garbage of a removed node is collected: its book and Pods.
    Collect(usize),
    /// Every object is touched once.
    Touch,
}

/// Milliseconds until the node lifecycle controller notices a lost node; 40 s or more on a real cluster.
pub(crate) const NOTICED: u64 = 2_000;

/// Duration of a fault, in milliseconds.
pub(crate) fn lasts(fault: &Fault) -> u64 {
    match fault {
        Fault::KillController(_, ms)
        | Fault::PauseController(_, ms)
        | Fault::KillDaemon(_, ms)
        | Fault::PauseDaemon(_, ms)
        | Fault::TwoDaemons(_, ms)
        | Fault::Reboot(_, ms, _)
        | Fault::KubeletDown(_, ms)
        | Fault::NodeLost(_, ms)
        | Fault::RuntimeDown(_, ms)
        | Fault::RuntimeHangs(_, ms)
        | Fault::ApiDown(ms)
        | Fault::ApiSlow(ms)
        | Fault::LoseAnswers(_, ms)
        | Fault::Refuse(_, ms)
        | Fault::HoldWatch(_, _, ms)
        | Fault::LoseEvents(_, _, ms)
        | Fault::HoldBook(_, ms)
        | Fault::RegistryAway(ms)
        | Fault::RegistryRefuses(_, ms)
        | Fault::DiskFull(_, ms)
        | Fault::HideCgroups(_, ms) => *ms,
        Fault::SlowCgroups(_, ms, by) | Fault::RegistrySlow(ms, by) => ms + by,
        Fault::Storm(times) => u64::from(*times) * 500,
        _ => 0,
    }
}

impl World {
    pub(super) fn fault(&mut self, at: usize) {
        let fault = self.schedule.faults[at].what.clone();
        self.story.note(self.now, "fault", || format!("{fault:?}"));
        let after = self.now + lasts(&fault);
        match fault {
            Fault::KillController(at, _) => {
                self.kill_all(Role::Controller(at));
                self.queue.push(after, Happening::Begin(Role::Controller(at)));
            }
            Fault::KillDaemon(at, _) => {
                self.kill_all(Role::Daemon(at));
                self.queue.push(after, Happening::Begin(Role::Daemon(at)));
            }
            Fault::PauseController(at, _) => self.pause(Role::Controller(at), after),
            Fault::PauseDaemon(at, _) => self.pause(Role::Daemon(at), after),
            Fault::TwoDaemons(at, _) => {
                for pid in self.pids(Role::Daemon(at)) {
                    self.queue.push(after, Happening::Heal(Heal::End(pid)));
                }
                // Another Pod, with a state directory of its own.
                self.nodes[at].records.push(pitstop_daemon_core::EndedHooks::new());
                self.begin_another(Role::Daemon(at));
            }
            Fault::Reboot(at, _, wiped) => {
                self.kill_all(Role::Daemon(at));
                let now = self.now;
                let node = &mut self.nodes[at];
                node.kubelet.down(&mut node.runtime);
                node.kubelet_down = true;
                node.pods =
                    super::watcher::Watcher::new("/api/v1/pods", format!("spec.nodeName={}", node.name));
                node.runtime.reboot(now, wiped);
                node.kubelet.cgroups_mut().rebooted();
                node.up_at = Some(after);
                self.after_node(at);
                self.queue.push(after, Happening::Heal(Heal::Boot(at)));
            }
            Fault::RemoveNode(at) => {
                self.kill_all(Role::Daemon(at));
                let node = &mut self.nodes[at];
                node.kubelet.down(&mut node.runtime);
                node.removed = true;
                let name = node.name.clone();
                self.remove("Node", "", &name);
                self.queue.push(self.now + 5000, Happening::Heal(Heal::Collect(at)));
            }
            Fault::KubeletDown(at, _) => {
                self.kubelet_down(at);
                self.queue.push(after, Happening::Heal(Heal::Kubelet(at)));
            }
            Fault::NodeLost(at, _) => {
                self.kubelet_down(at);
                self.nodes[at].lost_until = self.nodes[at].lost_until.max(after);
                self.queue.push(self.now + NOTICED, Happening::Heal(Heal::Lost(at)));
                self.queue.push(after, Happening::Heal(Heal::Found(at)));
            }
            Fault::RuntimeDown(at, _) => {
                self.nodes[at].runtime.down(self.now);
                self.after_node(at);
                self.queue.push(after, Happening::Heal(Heal::Runtime(at)));
            }
            Fault::RuntimeHangs(at, _) => self.nodes[at].runtime.hang(after),
            Fault::RuntimeFails(at, stop, applied) => {
                let method = if stop { Method::StopContainer } else { Method::ContainerStatus };
                let code =
                    self.rng.pick(&[Code::Unknown, Code::Unavailable, Code::DeadlineExceeded]).unwrap();
                self.nodes[at].runtime.fail_next(method, code, applied);
            }
            Fault::RuntimeLies(at, times) => self.nodes[at].runtime.lie_next_stops(times),
            Fault::BreakSandbox(pod) => self.break_sandbox(&pod),
            Fault::ApiDown(_) => {
                self.trouble.down_until = after;
                if self.rng.one_in(2) {
                    self.cut_all();
                }
            }
            Fault::ApiSlow(_) => self.trouble.slow_until = after,
            Fault::LoseAnswers(percent, _) => {
                (self.trouble.losing_percent, self.trouble.losing_until) = (percent, after);
            }
            Fault::Refuse(code, _) => (self.trouble.refusing, self.trouble.refusing_until) = (code, after),
            Fault::BreakWatches(at) => self.watchers_of(Role::Controller(at), |_, w| w.cut()),
            Fault::HoldWatch(at, kind, _) => {
                self.watchers_of(Role::Controller(at), |k, w| {
                    if k == kind {
                        w.held_until = after;
                    }
                });
            }
            Fault::RepeatEvents(at, kind, events) => {
                self.watchers_of(Role::Controller(at), |k, w| {
                    if k == kind {
                        w.repeats = events;
                    }
                });
            }
            Fault::LoseEvents(at, kind, _) => {
                self.watchers_of(Role::Controller(at), |k, w| w.losing |= k == kind);
                self.queue.push(after, Happening::Heal(Heal::Watches(at)));
            }
            Fault::HoldBook(at, _) => self.watchers_of(Role::Daemon(at), |_, w| w.held_until = after),
            Fault::StaleLists(at, behind) => self.watchers_of(Role::Controller(at), |_, w| {
                w.forget();
                w.stale_by = behind;
            }),
            Fault::Compact => self.server.compact(0),
            Fault::Restore(age) => {
                let then = self.now.saturating_sub(age);
                let snapshot =
                    self.snapshots.iter().rev().find(|(at, _)| *at <= then).map(|(_, s)| s.clone());
                if let Some(snapshot) = &snapshot {
                    // Kubernetes' documentation asks for this bump of versions: without it, no client's cache notices
                    // the restore.
                    self.server.restore(snapshot, 1_000_000);
                    self.cut_all();
                    self.oracle.restored(self.now, &self.server);
                    self.plan_collection();
                    self.plan_count();
                    self.release_again();
                }
            }
            Fault::DeleteBook(at) => {
                let name = self.nodes[at].name.clone();
                self.remove("NodeWork", "", &name);
            }
            Fault::Storm(times) => {
                for n in 0..u64::from(times) {
                    self.queue.push(self.now + n * 500, Happening::Heal(Heal::Touch));
                }
            }
            Fault::HideCgroups(at, _) => self.nodes[at].kubelet.cgroups_mut().hide(after),
            Fault::SlowCgroups(at, ms, by) => {
                let until = self.now + ms;
                self.nodes[at].kubelet.cgroups_mut().slow(until, by);
            }
            Fault::FailWrite(at, failing) => {
                self.nodes[at].kubelet.cgroups_mut().fail_next(failing);
            }
            Fault::RegistryAway(_) => self.registries(|r| r.away(after)),
            Fault::RegistrySlow(ms, by) => {
                let until = self.now + ms;
                self.registries(|r| r.slow(until, by));
            }
            Fault::RegistryRefuses(why, _) => self.registries(|r| r.refuse(why, after)),
            Fault::DiskFull(at, _) => self.nodes[at].runtime.fill_disk(after),
            Fault::JumpClock(machine, delta) => self.jump(machine, delta),
        }
    }

    pub(super) fn heal(&mut self, heal: Heal) {
        self.story.note(self.now, "fault", || format!("over: {heal:?}"));
        match heal {
            Heal::End(pid) => self.kill(pid),
            Heal::Boot(at) => {
                let now = self.now;
                let node = &mut self.nodes[at];
                // If reboots overlap, the last one counts.
                if node.up_at.take_if(|up| *up == now).is_none() {
                    return;
                }
                node.clock.reboot(now);
                node.kubelet_down = false;
                node.runtime.up(now, 300);
                self.queue.push(now + 400, Happening::Pods(at));
                self.queue.push(now + 700, Happening::Begin(Role::Daemon(at)));
                self.after_node(at);
            }
            Heal::Watches(at) => self.watchers_of(Role::Controller(at), |_, w| {
                if w.losing {
                    w.forget();
                }
            }),
            Heal::Kubelet(at) => {
                self.nodes[at].kubelet_down = false;
                self.queue.push(self.now, Happening::Pods(at));
            }
            Heal::Lost(at) => self.lose(at),
            Heal::Found(at) if self.now < self.nodes[at].lost_until => {}
            Heal::Found(at) => {
                self.nodes[at].kubelet_down = false;
                self.queue.push(self.now, Happening::Pods(at));
                self.node_is_ready(at, "True");
            }
            Heal::Runtime(at) => {
                self.nodes[at].runtime.up(self.now, 300);
                let later = self.now + 300 + self.rng.below(1500);
                self.queue.push(later, Happening::RuntimeFound(at));
                self.after_node(at);
            }
            Heal::Collect(at) => {
                let name = self.nodes[at].name.clone();
                self.remove("NodeWork", "", &name);
                let pods: Vec<String> = self
                    .server
                    .objects("Pod")
                    .filter(|p| p["spec"]["nodeName"] == *name)
                    .map(|p| p["metadata"]["name"].as_str().unwrap().to_owned())
                    .collect();
                for pod in pods {
                    self.remove("Pod", objects::NAMESPACE, &pod);
                }
            }
            Heal::Touch => self.touch_all(),
        }
    }

    fn kubelet_down(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.kubelet.down(&mut node.runtime);
        node.kubelet_down = true;
        node.pods = super::watcher::Watcher::new("/api/v1/pods", format!("spec.nodeName={}", node.name));
        self.after_node(at);
    }

    /// `MarkPodsNotReady` of `pkg/controller/util/node`, Kubernetes 1.36: only the status of `Ready` changes.
    fn lose(&mut self, at: usize) {
        if self.now >= self.nodes[at].lost_until || self.nodes[at].removed {
            return;
        }
        self.node_is_ready(at, "Unknown");
        let name = self.nodes[at].name.clone();
        let ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
        let of = |p: &Value| {
            let mut conditions = p["status"]["conditions"].as_array().into_iter().flatten();
            p["spec"]["nodeName"] == *name && conditions.any(ready)
        };
        let pods = self.server.objects("Pod").filter(|p| of(p));
        let pods: Vec<String> = pods.map(|p| p["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        for pod in pods {
            self.change(Writer::Other, "Pod", objects::NAMESPACE, &pod, |pod| {
                let conditions = pod["status"]["conditions"].as_array_mut().into_iter().flatten();
                conditions.filter(|c| ready(c)).for_each(|c| c["status"] = "False".into());
            });
        }
    }

    fn node_is_ready(&mut self, at: usize, status: &str) {
        let name = self.nodes[at].name.clone();
        self.change(Writer::Other, "Node", "", &name, |node| {
            node["status"]["conditions"] = serde_json::json!([{"type": "Ready", "status": status}]);
        });
    }

    fn pause(&mut self, role: Role, until: u64) {
        for process in self.processes.values_mut().filter(|p| p.role == role) {
            process.paused_until = until;
        }
    }

    fn watchers_of(&mut self, role: Role, mut change: impl FnMut(usize, &mut super::watcher::Watcher)) {
        for process in self.processes.values_mut().filter(|p| p.role == role) {
            for (kind, watcher) in process.watchers().iter_mut().enumerate() {
                change(kind, watcher);
            }
        }
    }

    fn cut_all(&mut self) {
        for process in self.processes.values_mut() {
            process.watchers().iter_mut().for_each(super::watcher::Watcher::cut);
        }
        self.nodes.iter_mut().for_each(|n| n.pods.cut());
    }

    fn break_sandbox(&mut self, pod: &str) {
        let (now, nodes) = (self.now, self.nodes.len());
        for at in 0..nodes {
            let runtime = &mut self.nodes[at].runtime;
            let of = |s: &&crate::node::runtime::SandboxInfo| s.ready && s.config.name == pod;
            let Some(id) = runtime.sandboxes().values().find(of).map(|s| s.id.clone()) else { continue };
            runtime.break_sandbox(now, &id);
            self.after_node(at);
        }
    }

    /// A container's process ends by itself.
    pub(super) fn crash_container(&mut self, pod: &str, name: &str, code: i32) {
        for at in 0..self.nodes.len() {
            let runtime = &mut self.nodes[at].runtime;
            let now = self.now;
            let of = |c: &&crate::node::runtime::Container| {
                let label = |key| c.info.labels.get(key).map(String::as_str);
                c.alive(now)
                    && label(keys::POD_NAME) == Some(pod)
                    && label(keys::CONTAINER_NAME) == Some(name)
            };
            let Some(id) = runtime.containers().values().find(of).map(|c| c.info.id.clone()) else {
                continue;
            };
            runtime.crash(now, &id, code);
            self.after_node(at);
        }
    }

    fn touch_all(&mut self) {
        let stamp = Value::from(self.now.to_string());
        for kind in
            ["ContainerRecreateRequest", "NodeWork", "Pod", "PodResize", "PodImageUpdate", "InPlaceRollout"]
        {
            let keys: Vec<(String, String)> = self
                .server
                .objects(kind)
                .map(|o| {
                    let field = |name: &str| o["metadata"][name].as_str().unwrap_or_default().to_owned();
                    (field("namespace"), field("name"))
                })
                .collect();
            for (namespace, name) in keys {
                self.change(Writer::Other, kind, &namespace, &name, |object| {
                    object["metadata"]["annotations"]["example.com/touched"] = stamp.clone();
                });
            }
        }
    }

    fn jump(&mut self, machine: i32, delta: i64) {
        let at = usize::try_from(machine).unwrap_or_default();
        match machine {
            -1 => self.schedule.clocks.server.wrong_by += delta,
            100.. => {
                if let Some(node) = self.nodes.get_mut(at - 100) {
                    node.clock.wrong_by += delta;
                }
            }
            _ => {
                for process in self.processes.values_mut().filter(|p| p.role == Role::Controller(at)) {
                    if let Kind::Controller(controller) = &mut process.kind {
                        controller.clock.wrong_by += delta;
                    }
                }
            }
        }
    }
}
