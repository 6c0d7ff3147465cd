//! A Pod in the kubelet: its state, and its current pass.

use std::collections::{BTreeMap, VecDeque};

use super::backoff::BackOff;
use super::generate::Inputs;
use super::kill::Kill;
use super::pod::{ApiStatus, Pod};
use super::sizes::{Pending, Sizes};
use super::status::{Condition, ContainerStatus, OWN_CONDITIONS, PodStatus, rfc3339};
use super::view::View;
use super::{Options, Write};
use crate::node::runtime::{CallId, Runtime};
use crate::rng::Rng;

/// A Pod.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) pod: Pod,
    /// UID of the API object that shows the status; for a static Pod its mirror's, once the mirror exists.
    pub(super) shown_as: Option<String>,
    /// A static Pod, in API form.
    pub(super) manifest: Option<serde_json::Value>,
    pub(super) life: Life,
    /// Whether its API object is gone.
    pub(super) gone: bool,
    pub(super) view: View,
    pub(super) start_time: Option<String>,
    /// Why the last start of a container failed: reason and message.
    pub(super) reasons: BTreeMap<String, (String, String)>,
    /// Results of the readiness probes, by container ID.
    pub(super) ready: BTreeMap<String, bool>,
    /// Probes that will pass: time and container ID.
    pub(super) probes: Vec<(u64, String)>,
    /// The Pod's generation in the last pass; later probe results are reported with it.
    pub(super) synced: i64,
    /// When the next pass begins.
    pub(super) sync_at: Option<u64>,
    pub(super) pass: Option<Pass>,
    pub(super) collected_at: u64,
    /// The last status that the kubelet made.
    pub(super) status: Option<PodStatus>,
    /// The status that the API server is known to have.
    pub(super) stored: Option<PodStatus>,
    pub(super) writing: Option<PodStatus>,
    pub(super) publish_at: Option<u64>,
    pub(super) delete_at: Option<u64>,
    /// Why the size in the spec waits.
    pub(super) pending: Option<Pending>,
    /// Why the admitted size cannot be written.
    pub(super) size_error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Living,
    /// Its containers are being ended, with this grace in seconds.
    Terminating(i64),
    Terminated,
}

/// A pass of `SyncPod`: step by step.
#[derive(Clone, Debug, Default)]
pub(super) struct Pass {
    pub(super) steps: VecDeque<Step>,
    pub(super) doing: Option<Doing>,
    /// A sandbox that this pass made.
    pub(super) sandbox: Option<String>,
    pub(super) did: bool,
    pub(super) failed: bool,
    /// When the first back-off ends.
    pub(super) until: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ends containers, side by side.
    Kill(Vec<String>),
    StopSandbox(String),
    RunSandbox(u32),
    Start(String),
    /// The same, after its image was pulled.
    Make(String),
    /// Writes the admitted sizes into the control groups of these containers.
    Resize(Vec<String>),
}

#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// A resize of these containers, done at that time.
    Resize {
        names: Vec<String>,
        at: u64,
    },
    Kills(Vec<Kill>),
    StopSandbox(CallId),
    RunSandbox(CallId),
    Pull {
        call: CallId,
        name: String,
        image: String,
    },
    Create {
        call: CallId,
        name: String,
        attempt: u32,
    },
    Start {
        call: CallId,
        name: String,
    },
}

/// Context of a worker.
pub(super) struct Cx<'a> {
    pub(super) now: u64,
    /// Nanoseconds of the node's wall clock.
    pub(super) wall: i64,
    /// Whether the kubelet has seen the runtime's containers since its start.
    pub(super) looked: bool,
    pub(super) runtime: &'a mut Runtime,
    pub(super) rng: &'a mut Rng,
    pub(super) options: &'a Options,
    pub(super) host_ip: &'a str,
    pub(super) backoff: &'a mut BackOff,
    /// Back-off of pulls.
    pub(super) image_backoff: &'a mut BackOff,
    pub(super) sizes: &'a mut Sizes,
    /// Highest restart count of each container, as the folders of their logs show it.
    pub(super) logs: &'a mut BTreeMap<(String, String), u32>,
    pub(super) writes: &'a mut Vec<Write>,
}

impl Cx<'_> {
    /// A duration, plus up to half of it at random.
    pub(super) fn jitter(&mut self, ms: u64) -> u64 {
        ms + self.rng.below(ms / 2 + 1)
    }
}

impl Worker {
    pub(super) fn new(pod: Pod, now: u64) -> Self {
        Self {
            shown_as: Some(pod.uid.clone()),
            start_time: pod.status.start_time.clone(),
            life: pod.deleting.map_or(Life::Living, Life::Terminating),
            manifest: None,
            gone: false,
            view: View::default(),
            reasons: BTreeMap::new(),
            ready: ready_before(&pod.status),
            probes: Vec::new(),
            synced: pod.generation,
            sync_at: Some(now),
            pass: None,
            collected_at: now,
            status: None,
            stored: None,
            writing: None,
            publish_at: None,
            delete_at: None,
            pending: None,
            size_error: None,
            pod,
        }
    }

    /// The last status of a container: from this kubelet, or before its first status from the API.
    pub(super) fn old(&self, name: &str) -> Option<&ContainerStatus> {
        let api = &self.pod.status;
        let (inits, mains) = match &self.status {
            Some(made) => (&made.init_container_statuses, &made.container_statuses),
            None => (&api.init_container_statuses, &api.container_statuses),
        };
        inits.iter().chain(mains).find(|s| s.name == name)
    }

    pub(super) fn old_condition(&self, type_: &str) -> Option<&Condition> {
        let conditions = self.status.as_ref().map_or(&self.pod.status.conditions, |s| &s.conditions);
        conditions.iter().find(|c| c.type_ == type_)
    }

    /// The Pod changed in the API.
    pub(super) fn changed(&mut self, now: u64, pod: Pod, runtime: &mut Runtime) {
        let old = &self.pod;
        let gates = |pod: &Pod| pod.gates.iter().map(|g| pod.gate_open(g)).collect::<Vec<_>>();
        // A status that the kubelet wrote itself causes no pass; changed conditions of readiness gates do.
        let wakes = old.containers != pod.containers
            || old.deleting != pod.deleting
            || old.generation != pod.generation
            || gates(old) != gates(&pod);
        let shorter = match (self.life, pod.deleting) {
            (Life::Living, Some(grace)) => {
                self.life = Life::Terminating(grace);
                false
            }
            (Life::Terminating(before), Some(grace)) if grace < before => {
                self.life = Life::Terminating(grace);
                true
            }
            _ => false,
        };
        if self.life == Life::Terminated && pod.deleting.is_some() && self.stored == self.status {
            self.delete_at = self.delete_at.or(Some(now));
        }
        self.pod = pod;
        if wakes {
            self.sync_at = Some(now);
        }
        if shorter {
            self.drop_kills(runtime);
        }
        // Another writer changed the status, or the API server went back in time. The next round over all
        // Pods repairs it.
        if self.stored.is_some() && self.differs() && self.publish_at.is_none() {
            self.publish_at = Some(now + super::ROUND_MS);
        }
    }

    /// The API object is gone.
    pub(super) fn vanished(&mut self, now: u64) {
        self.gone = true;
        self.delete_at = None;
        self.publish_at = None;
        if self.life == Life::Living {
            self.life = Life::Terminating(self.pod.grace);
        }
        self.sync_at = Some(now);
    }

    /// A shorter grace counts at once: the kubelet begins the end again.
    fn drop_kills(&mut self, runtime: &mut Runtime) {
        if let Some(Pass { doing: Some(Doing::Kills(kills)), .. }) = &self.pass {
            for call in kills.iter().filter_map(Kill::call) {
                runtime.cancel(call);
            }
            self.pass = None;
        }
    }

    /// Whether the API's status differs from the one stored there last.
    fn differs(&self) -> bool {
        let Some(ours) = &self.stored else { return true };
        let ApiStatus { phase, conditions, container_statuses, init_container_statuses, .. } =
            &self.pod.status;
        let own = conditions.iter().filter(|c| OWN_CONDITIONS.contains(&c.type_.as_str()));
        let same =
            own.clone().count() == ours.conditions.len() && own.clone().all(|c| ours.conditions.contains(c));
        !same
            || phase != &ours.phase
            || container_statuses != &ours.container_statuses
            || init_container_statuses != &ours.init_container_statuses
    }

    /// Makes the status again. If it changed, has it written after a lag. Returns whether the Pod ends; the
    /// status shows that phase once nothing of the Pod runs (`mergePodStatus` of the kubelet's status
    /// manager).
    pub(super) fn renew_status(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.start_time.is_none() {
            self.start_time = Some(rfc3339(cx.wall));
        }
        let inputs = Inputs {
            wall: cx.wall,
            runtime: cx.runtime.options().name(),
            host_ip: cx.host_ip,
            sizes: cx.sizes,
        };
        let mut status = self.generate(&inputs, self.life == Life::Terminated);
        let ends = matches!(status.phase.as_str(), "Succeeded" | "Failed");
        if ends && self.life != Life::Terminated {
            status.phase = self.status.as_ref().map_or_else(|| "Pending".to_owned(), |s| s.phase.clone());
        }
        if self.status.as_ref() != Some(&status) {
            self.status = Some(status);
            self.publish_soon(cx);
        }
        ends
    }

    fn publish_soon(&mut self, cx: &mut Cx<'_>) {
        let (from, to) = cx.options.lag_ms;
        let at = cx.now + from + cx.rng.below(to.saturating_sub(from) + 1);
        self.publish_at = Some(self.publish_at.map_or(at, |due| due.min(at)));
    }

    /// Writes what is due.
    pub(super) fn publish(&mut self, cx: &mut Cx<'_>) {
        if self.publish_at.is_some_and(|at| at <= cx.now) && self.writing.is_none() {
            self.publish_at = None;
            let (Some(status), Some(uid), false) = (&self.status, &self.shown_as, self.gone) else { return };
            if self.stored.as_ref() != Some(status) || self.differs() {
                self.writing = Some(status.clone());
                cx.writes.push(Write::Status(super::StatusWrite {
                    namespace: self.pod.namespace.clone(),
                    name: self.pod.name.clone(),
                    uid: uid.clone(),
                    status: serde_json::to_value(status).unwrap(),
                }));
            }
        }
        if self.delete_at.is_some_and(|at| at <= cx.now) {
            self.delete_at = Some(cx.now + super::ROUND_MS);
            cx.writes.push(Write::Delete {
                namespace: self.pod.namespace.clone(),
                name: self.pod.name.clone(),
                uid: self.pod.uid.clone(),
            });
        }
    }

    /// Takes the result of a status write.
    pub(super) fn written(&mut self, now: u64, stored: bool) {
        let Some(status) = self.writing.take() else { return };
        if !stored {
            self.publish_at = Some(now + super::ROUND_MS);
            return;
        }
        self.stored = Some(status);
        if self.stored != self.status {
            self.publish_at = Some(self.publish_at.unwrap_or(now));
        } else if self.life == Life::Terminated && self.pod.deleting.is_some() && !self.gone {
            self.delete_at = Some(now);
        }
    }

    pub(super) fn wake_at(&self) -> Option<u64> {
        let doing = self.pass.as_ref().map(|pass| match &pass.doing {
            Some(Doing::Kills(kills)) => kills.iter().filter_map(Kill::wake_at).min(),
            Some(Doing::Resize { at, .. }) => Some(*at),
            Some(_) => None,
            None => Some(0),
        });
        let sync = if self.pass.is_some() { None } else { self.sync_at };
        let publish = self.publish_at.filter(|_| self.writing.is_none());
        let probes = self.probes.iter().map(|p| p.0).min();
        [doing.flatten(), sync, publish, probes, self.delete_at].into_iter().flatten().min()
    }
}

/// Probe results from before the kubelet's start: containers keep their readiness over its restart.
fn ready_before(status: &ApiStatus) -> BTreeMap<String, bool> {
    let all = status.container_statuses.iter().chain(&status.init_container_statuses);
    all.filter(|s| s.ready)
        .filter_map(|s| Some((s.container_id.split_once("://")?.1.to_owned(), true)))
        .collect()
}
