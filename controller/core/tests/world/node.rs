//! The model of one node: the real core of the daemon, a runtime and a kubelet.

use std::collections::BTreeMap;

use pitstop_api::recreate::Target;
use pitstop_controller_core::pod::{Container, ContainerState, ContainerStatus, Pod};
use pitstop_controller_core::readiness::Gate;
use pitstop_controller_core::{Mono, ObjectKey, Watch};
use pitstop_daemon_core as daemon;
use pitstop_daemon_core::{Book, CallFailure, Daemon, EndedHooks, Facts, Identity};

use crate::rng::Rng;
use crate::store::Store;

/// A container in the runtime.
#[derive(Clone, Debug)]
pub struct Instance {
    pub id: String,
    pub pod: ObjectKey,
    pub pod_uid: String,
    pub name: String,
    restarts: i32,
    running: bool,
    ready: bool,
}

pub struct Node {
    pub name: String,
    daemon: Daemon,
    life: u32,
    cursor: Option<usize>,
    /// What the daemon asked for and is not carried out yet.
    calls: Vec<daemon::Action>,
    answers: Vec<daemon::Event>,
    /// What the daemon writes down of hooks; outlives its process.
    ended_hooks: EndedHooks,
    pub instances: Vec<Instance>,
    /// The gates of Pods as the kubelet last saw them, by UID.
    gates: BTreeMap<String, Vec<Gate>>,
    made: u32,
    /// The daemon does nothing.
    pub down: bool,
}

/// Something that may happen on a node.
#[derive(Clone, Debug)]
pub enum Move {
    Watch,
    Call,
    Answer,
    Start(usize),
    Ready(usize),
    /// The kubelet sees what the conditions behind the gates are now.
    See(ObjectKey),
    Publish(ObjectKey),
}

fn uptime(now: Mono) -> Mono {
    Mono(now.0 + 777_000)
}

fn identity(life: u32) -> Identity {
    Identity { instance: format!("daemon-{life}"), boot_id: "boot".into() }
}

impl Node {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            daemon: Daemon::new(identity(0)),
            life: 0,
            cursor: None,
            calls: Vec::new(),
            answers: Vec::new(),
            ended_hooks: EndedHooks::new(),
            instances: Vec::new(),
            gates: BTreeMap::new(),
            made: 0,
            down: false,
        }
    }

    /// The daemon's process is killed and starts anew; what it asked for may be carried out still.
    pub fn restart_daemon(&mut self, store: &mut Store, rng: &mut Rng) {
        for call in std::mem::take(&mut self.calls) {
            if rng.one_in(2) {
                self.carry_out(call, store, rng, false);
            }
        }
        self.life += 1;
        self.daemon = Daemon::new(identity(self.life)).with_ended_hooks(self.ended_hooks.clone());
        self.answers.clear();
        self.cursor = None;
    }

    pub fn add_pod(&mut self, pod: &Pod) {
        self.gates.insert(pod.uid.clone(), pod.gates.clone());
        for container in &pod.containers {
            self.start(pod.key.clone(), pod.uid.clone(), container.name.clone(), 0, true);
        }
    }

    pub fn drop_pod(&mut self, uid: &str) {
        self.instances.retain(|i| i.pod_uid != uid);
        self.gates.remove(uid);
    }

    fn start(&mut self, pod: ObjectKey, pod_uid: String, name: String, restarts: i32, ready: bool) {
        self.made += 1;
        let id = format!("{}{:060x}", &self.name[self.name.len() - 1..].repeat(4), self.made);
        self.instances.push(Instance { id, pod, pod_uid, name, restarts, running: true, ready });
    }

    fn newest(&self) -> impl Iterator<Item = (usize, &Instance)> {
        self.instances.iter().enumerate().filter(|(at, i)| {
            self.instances.iter().skip(at + 1).all(|j| (&j.pod_uid, &j.name) != (&i.pod_uid, &i.name))
        })
    }

    /// A container ends by itself.
    pub fn crash(&mut self, rng: &mut Rng) {
        let running: Vec<usize> = self.newest().filter(|(_, i)| i.running).map(|(at, _)| at).collect();
        if let Some(at) = rng.pick(&running) {
            self.instances[at].running = false;
            self.instances[at].ready = false;
        }
    }

    /// The Pod's status as this node's kubelet sees it.
    pub fn status(&self, pod: &Pod, waiting: bool) -> Vec<Container> {
        let mut containers = pod.containers.clone();
        for container in &mut containers {
            let of = |(_, i): &(usize, &Instance)| i.pod_uid == pod.uid && i.name == container.name;
            let Some((_, instance)) = self.newest().find(of) else { continue };
            let state = match (instance.running, waiting) {
                (true, _) => ContainerState::Running,
                (false, true) => {
                    ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: "back-off".into() }
                }
                (false, false) => ContainerState::Terminated { exit_code: 1 },
            };
            container.status = Some(ContainerStatus {
                container_id: format!("containerd://{}", instance.id),
                restart_count: instance.restarts,
                ready: instance.ready,
                state,
                ..ContainerStatus::default()
            });
        }
        containers
    }

    /// Whether the kubelet calls the Pod ready, as far as it has seen the gates.
    pub fn ready(&self, pod: &Pod, containers: &[Container]) -> bool {
        let gates = self.gates.get(&pod.uid).map_or(&[][..], Vec::as_slice);
        containers.iter().all(|c| c.status.as_ref().is_some_and(|s| s.ready))
            && gates.iter().all(|g| g.condition.as_ref().is_some_and(|c| c.open))
    }

    pub fn moves(&self, store: &Store) -> Vec<Move> {
        let mut moves = Vec::new();
        if !self.down {
            if self.cursor.is_none_or(|at| at < store.book_log.len()) {
                moves.push(Move::Watch);
            }
            if !self.calls.is_empty() {
                moves.push(Move::Call);
            }
            if !self.answers.is_empty() {
                moves.push(Move::Answer);
            }
        }
        for (at, instance) in self.newest() {
            let Some(pod) = store.pods.get(&instance.pod).filter(|p| p.uid == instance.pod_uid) else {
                continue;
            };
            if !instance.running && !pod.gone() {
                moves.push(Move::Start(at));
            }
            if instance.running && !instance.ready {
                moves.push(Move::Ready(at));
            }
        }
        for pod in store.pods.values().filter(|p| p.node.as_ref() == Some(&self.name)) {
            if self.gates.get(&pod.uid) != Some(&pod.gates) {
                moves.push(Move::See(pod.key.clone()));
            }
            let new = self.status(pod, false);
            let differs = new != pod.containers && self.status(pod, true) != pod.containers;
            if differs || self.ready(pod, &new) != pod.ready {
                moves.push(Move::Publish(pod.key.clone()));
            }
        }
        moves
    }

    pub fn make(&mut self, action: Move, now: Mono, store: &mut Store, rng: &mut Rng, faults: bool) {
        match action {
            Move::Watch => {
                let event = match self.cursor {
                    None => {
                        self.cursor = Some(store.book_log.len());
                        Watch::Restart(store.books.get(&self.name).map(book).into_iter().collect())
                    }
                    Some(at) => {
                        self.cursor = Some(at + 1);
                        match &store.book_log[at] {
                            Watch::Upsert(work) if work.node == self.name => Watch::Upsert(book(work)),
                            Watch::Gone(work) if work.node == self.name => Watch::Gone(book(work)),
                            _ => return,
                        }
                    }
                };
                self.step(now, daemon::Event::Book(event));
            }
            Move::Call => {
                let call = rng.take(&mut self.calls);
                let answer = self.carry_out(call, store, rng, faults);
                self.answers.push(answer);
            }
            Move::Answer => {
                let answer = rng.take(&mut self.answers);
                self.step(now, answer);
            }
            Move::Start(at) => {
                let old = self.instances[at].clone();
                self.start(old.pod, old.pod_uid, old.name, old.restarts + 1, false);
            }
            Move::Ready(at) => self.instances[at].ready = true,
            Move::See(key) => {
                let pod = &store.pods[&key];
                self.gates.insert(pod.uid.clone(), pod.gates.clone());
            }
            Move::Publish(key) => {
                let pod = &store.pods[&key];
                let containers = self.status(pod, rng.one_in(2));
                let ready = self.ready(pod, &containers);
                store.put_pod(Pod { containers, ready, ..pod.clone() });
            }
        }
    }

    fn carry_out(
        &mut self,
        call: daemon::Action,
        store: &mut Store,
        rng: &mut Rng,
        faults: bool,
    ) -> daemon::Event {
        let fails = faults && rng.one_in(8);
        let applied = !fails || rng.one_in(2);
        let failure = || CallFailure { retry: true, message: "try again".into() };
        match call {
            daemon::Action::Inspect { order_id, .. } if fails => {
                daemon::Event::Inspected(order_id, Err(failure()))
            }
            daemon::Action::Inspect { order_id, container_id } => {
                let facts = self.instances.iter().find(|i| i.id == container_id).map(facts);
                daemon::Event::Inspected(order_id, Ok(facts))
            }
            daemon::Action::RunHook { order_id, .. } => {
                let failure = fails.then(|| "exit code 1".to_owned());
                let before = self.ended_hooks.insert(order_id.clone(), failure.clone());
                assert_eq!(before, None, "the hook of order {order_id} ended before, and runs again");
                daemon::Event::HookDone(order_id, failure.map_or(Ok(()), Err))
            }
            daemon::Action::Stop { order_id, container_id, .. } => {
                let target = self.instances.iter_mut().find(|i| i.id == container_id && i.running);
                if applied && let Some(instance) = target {
                    instance.running = false;
                    instance.ready = false;
                    store.stops(&order_id, &container_id);
                }
                daemon::Event::Stopped(order_id, if fails { Err(failure()) } else { Ok(()) })
            }
            daemon::Action::WriteStatus { resource_version, status } => {
                let written =
                    if applied { store.answers_write(&self.name, &resource_version, *status) } else { None };
                daemon::Event::StatusWritten(match written {
                    _ if fails => daemon::Outcome::Retry,
                    Some(work) => daemon::Outcome::Written(book(&work)),
                    None => daemon::Outcome::Conflict,
                })
            }
        }
    }

    pub fn step(&mut self, now: Mono, event: daemon::Event) {
        self.calls.extend(self.daemon.step(uptime(now), event));
    }

    pub fn wake_at(&self) -> Option<Mono> {
        let wake = self.daemon.wake_at().filter(|_| !self.down)?;
        Some(Mono(wake.0.saturating_sub(777_000)))
    }
}

fn facts(instance: &Instance) -> Facts {
    Facts {
        namespace: instance.pod.namespace.clone(),
        pod: instance.pod.name.clone(),
        pod_uid: instance.pod_uid.clone(),
        container: instance.name.clone(),
        state: if instance.running {
            daemon::ContainerState::Running
        } else {
            daemon::ContainerState::Exited
        },
        // One of the two has a hook.
        pre_stop: (instance.name == "app").then(|| r#"{"exec":{"command":["/bye"]}}"#.to_owned()),
        ports: None,
        grace_seconds: Some(30),
    }
}

fn book(work: &pitstop_controller_core::nodework::NodeWork) -> Book {
    Book {
        uid: work.uid.clone(),
        resource_version: work.resource_version.clone(),
        generation: None,
        orders: work.orders.clone(),
        status: work.status.clone(),
    }
}

/// Whether the containers of a request have been restarted, going by the runtime.
pub fn restarted(nodes: &[Node], target: &Target, name: &str) -> bool {
    let Some(before) = target.containers.iter().find(|c| c.name == name) else { return false };
    nodes.iter().flat_map(|n| &n.instances).any(|i| {
        i.pod_uid == target.pod_uid
            && i.name == name
            && i.restarts > before.restart_count
            && !before.container_id.ends_with(&i.id)
    })
}
