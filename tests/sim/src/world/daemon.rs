//! One daemon process: the production core and a connection to the node's runtime, put together as in `daemon/src`.

mod images;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;

use pitstop_api::id::ContainerId;
use pitstop_api::logic::answer::Answer;
use pitstop_api::logic::watch::Watch;
use pitstop_api::nodework::{NodeWork, RuntimeInfo};
use pitstop_daemon_core::{
    Action, CallFailure, ContainerState, Daemon, EndedHooks, Event, Facts, Hook, Identity, wire,
};
use serde::Deserialize;
use serde_json::Value;

use self::writing::Chain;
use super::clock::Clock;
use super::effect::{Asked, Effect, Out, Purpose, Sent};
use super::imaging::ROOM;
use super::skew;
use super::watcher::{Watcher, convert};
use crate::node::cgroups::Cgroups;
use crate::node::keys;
use crate::node::runtime::{self, Call, CallId, Code, ContainerInfo, Runtime, State};

/// As in `cri-proto/src/deadlines.rs` and `daemon/src/hook.rs`, in milliseconds.
const READ: u64 = 10_000;
const STOP_MARGIN: u64 = 120_000;
const EXEC_MARGIN: u64 = 1_000;

/// A daemon process.
pub struct DaemonProcess {
    /// Identifies its calls to the runtime.
    pub client: runtime::Client,
    /// Its watch of the node's book.
    pub watcher: Watcher,
    /// Index of its Pod's state directory.
    pub record: usize,
    node: String,
    core: Daemon,
    /// Calls under way: purpose, deadline in true time, and number of the effect.
    calls: BTreeMap<CallId, (Asked, u64, Option<usize>)>,
    /// Sleep hooks under way: end in true time, and order ID.
    sleeping: Vec<(u64, String)>,
    /// Writes into control groups that are under way.
    chains: BTreeMap<u64, Chain>,
    /// Arguments of looks at images, by order ID.
    image_looks: BTreeMap<String, images::Wanted>,
    /// Arguments of looks for resizes, by order ID: Pod UID, and recorded path of its group.
    looks: BTreeMap<String, (String, Option<String>)>,
    writes: u64,
    under_way: Option<u64>,
    /// The process is of the next version.
    next: bool,
}

/// The node as a daemon process sees it.
pub struct Machine<'a> {
    /// The machine's clocks; the daemon's monotonic clock counts from the boot.
    pub clock: &'a Clock,
    /// The runtime.
    pub runtime: &'a mut Runtime,
    /// Content of the state directory.
    pub ended_hooks: &'a mut EndedHooks,
    /// The control groups.
    pub cgroups: &'a Cgroups,
}

impl DaemonProcess {
    /// A new process with a unique `instance`.
    pub fn new(
        node: &str,
        instance: String,
        client: runtime::Client,
        record: usize,
        machine: &Machine<'_>,
        (next, resizes): (bool, bool),
    ) -> Self {
        let boot_id = machine.runtime.boot_id().to_owned();
        let core = Daemon::new(Identity { instance, boot_id })
            .with_ended_hooks(machine.ended_hooks.clone())
            .with_resizes(resizes)
            .with_image_room(ROOM);
        Self {
            client,
            watcher: Watcher::new("/apis/pitstop.dev/v1alpha1/nodeworks", format!("metadata.name={node}")),
            record,
            node: node.to_owned(),
            core,
            calls: BTreeMap::new(),
            sleeping: Vec::new(),
            chains: BTreeMap::new(),
            image_looks: BTreeMap::new(),
            looks: BTreeMap::new(),
            writes: 0,
            under_way: None,
            next,
        }
    }

    /// True time at which it wants a tick, in milliseconds.
    pub fn wake_at(&self, clock: &Clock) -> Option<u64> {
        let core = self.core.wake_at().map(|at| clock.when(at));
        let calls = self.calls.values().map(|(_, limit, _)| *limit);
        let sleeping = self.sleeping.iter().map(|(until, _)| *until);
        core.into_iter().chain(calls).chain(sleeping).min()
    }

    /// The runtime answers, for the first time or again.
    pub fn runtime_found(&mut self, now: u64, machine: &mut Machine<'_>) -> Out {
        let info = RuntimeInfo { name: machine.runtime.options().name().to_owned(), version: "1".to_owned() };
        self.core(now, Event::Runtime(info), machine)
    }

    /// The watch delivered.
    pub fn delivered(&mut self, now: u64, watch: Watch<Arc<Value>>, machine: &mut Machine<'_>) -> Out {
        let watch = convert(watch, |o| {
            let mut book = o.clone();
            if self.next {
                skew::daemon_reads(&mut book);
            }
            wire::book(NodeWork::deserialize(book).unwrap())
        });
        self.core(now, Event::Book(watch), machine)
    }

    /// The API server answered.
    pub fn answered(&mut self, now: u64, token: u64, answer: &Answer, machine: &mut Machine<'_>) -> Out {
        if self.under_way.take_if(|t| *t == token).is_none() {
            return Out::default();
        }
        let answer = match answer {
            Answer::Body(text) if self.next => {
                let mut book = serde_json::from_str(text).unwrap();
                skew::daemon_reads(&mut book);
                &Answer::Body(book.to_string())
            }
            answer => answer,
        };
        self.core(now, Event::StatusWritten(wire::written(answer)), machine)
    }

    /// The runtime answered a call; ignored if the call is of another process.
    pub fn replied(
        &mut self,
        now: u64,
        call: CallId,
        reply: &runtime::Reply,
        machine: &mut Machine<'_>,
    ) -> Out {
        let Some((asked, ..)) = self.calls.remove(&call) else { return Out::default() };
        self.ended(now, asked, reply, machine)
    }

    fn ended(&mut self, now: u64, asked: Asked, reply: &runtime::Reply, machine: &mut Machine<'_>) -> Out {
        let Asked { order_id, container_id, purpose, .. } = asked;
        let event = match purpose {
            Purpose::Inspect => Event::Inspected(
                order_id,
                match reply {
                    Ok(runtime::Answer::Container(info)) if info.id == container_id => Ok(Some(facts(info))),
                    Ok(_) => Ok(None),
                    Err(failure) if failure.code == Code::NotFound => Ok(None),
                    Err(failure) => Err(call_failure(failure)),
                },
            ),
            Purpose::Read => Event::CgroupsRead(
                order_id,
                match reply {
                    Ok(runtime::Answer::Container(info)) if info.state == State::Running => {
                        let unreadable = || CallFailure { retry: false, message: "no cgroup2".to_owned() };
                        machine.cgroups.read(now, info).map(Box::new).ok_or_else(unreadable)
                    }
                    Ok(_) => Err(CallFailure { retry: false, message: "its cgroup is gone".to_owned() }),
                    Err(failure) => Err(call_failure(failure)),
                },
            ),
            Purpose::Look => {
                let (pod, held) = self.looks.remove(&order_id).unwrap_or_default();
                let seen = match reply {
                    Err(failure) if failure.code != Code::NotFound => Err(call_failure(failure)),
                    _ => {
                        let (id, held) = (&container_id, held.as_deref());
                        machine.cgroups.present(now, machine.runtime, id, &pod, held)
                    }
                };
                Event::ResourcesRead(order_id, seen.map(Box::new))
            }
            Purpose::Image => self.image_seen(now, order_id, &container_id, reply, machine),
            Purpose::Pull => Event::Pulled(order_id, images::pulled(reply)),
            Purpose::Stop => Event::Stopped(
                order_id,
                match reply {
                    Ok(_) => Ok(()),
                    Err(failure) if failure.code == Code::NotFound => Ok(()),
                    Err(failure) => Err(call_failure(failure)),
                },
            ),
            Purpose::Hook => {
                let result = match reply {
                    Ok(runtime::Answer::Exec(0)) => Ok(()),
                    Ok(other) => Err(format!("the preStop command ended with {other:?}")),
                    Err(failure) => Err(failure.message.clone()),
                };
                return self.hook_ended(now, order_id, result, machine);
            }
        };
        self.core(now, event, machine)
    }

    fn hook_ended(
        &mut self,
        now: u64,
        order_id: String,
        result: Result<(), String>,
        machine: &mut Machine<'_>,
    ) -> Out {
        // Recorded before the core reports it, as in `daemon/src/execute.rs`.
        machine.ended_hooks.insert(order_id.clone(), result.clone().err());
        self.core(now, Event::HookDone(order_id, result), machine)
    }

    /// Time passed.
    pub fn tick(&mut self, now: u64, machine: &mut Machine<'_>) -> Out {
        let mut out = Out::default();
        let late: Vec<CallId> =
            self.calls.iter().filter(|(_, (_, limit, _))| *limit <= now).map(|(id, _)| *id).collect();
        for id in late {
            machine.runtime.cancel(id);
            // The outcome of another call may have cancelled it.
            let Some((asked, ..)) = self.calls.remove(&id) else { continue };
            let failure = runtime::Failure { code: Code::DeadlineExceeded, message: "no answer".to_owned() };
            out.add(self.ended(now, asked, &Err(failure), machine));
        }
        let (over, still) =
            std::mem::take(&mut self.sleeping).into_iter().partition(|(until, _)| *until <= now);
        self.sleeping = still;
        let over: Vec<(u64, String)> = over;
        for (_, order_id) in over {
            out.add(self.hook_ended(now, order_id, Ok(()), machine));
        }
        out.add(self.core(now, Event::Tick, machine));
        out
    }

    fn core(&mut self, now: u64, event: Event, machine: &mut Machine<'_>) -> Out {
        let mut out = Out::default();
        for action in self.core.step(machine.clock.mono(now), event) {
            out.decisions.push(format!("{action:?}"));
            match action {
                Action::Inspect { order_id, container_id } => {
                    out.effects.push(status(order_id, container_id, Purpose::Inspect));
                }
                Action::ReadCgroups { order_id, container_id, .. } => {
                    out.effects.push(status(order_id, container_id, Purpose::Read));
                }
                Action::Stop { order_id, container_id, grace_seconds } => {
                    // Recorded before the call, as in `daemon/src/execute.rs`.
                    machine.ended_hooks.entry(order_id.clone()).or_insert(None);
                    let limit = millis(grace_seconds) + STOP_MARGIN;
                    let call = Call::StopContainer { id: container_id.to_string(), timeout_s: grace_seconds };
                    out.effects.push(Effect::Call(Asked {
                        order_id,
                        container_id: container_id.into(),
                        purpose: Purpose::Stop,
                        call,
                        limit,
                    }));
                }
                Action::RunHook { order_id, container_id, hook, limit_seconds } => {
                    let limit = millis(limit_seconds);
                    match hook {
                        Hook::Exec { command } => {
                            let id = container_id.to_string();
                            let call = Call::ExecSync { id, cmd: command, timeout_s: limit_seconds };
                            let (purpose, limit) = (Purpose::Hook, limit + EXEC_MARGIN);
                            out.effects.push(Effect::Call(Asked {
                                order_id,
                                container_id: container_id.into(),
                                purpose,
                                call,
                                limit,
                            }));
                        }
                        Hook::Sleep { seconds } => {
                            let until = now + (seconds * 1000).min(limit);
                            self.sleeping.push((until, order_id));
                        }
                        other => {
                            let why = format!("a hook of kind {} is not modelled", other.kind());
                            out.add(self.hook_ended(now, order_id, Err(why), machine));
                        }
                    }
                }
                Action::ReadResources { order_id, container_id, pod_uid, held, .. } => {
                    self.looks.insert(order_id.clone(), (pod_uid, held));
                    out.effects.push(status(order_id, container_id, Purpose::Look));
                }
                Action::Resize { order_id, pod_uid, writes, .. } => {
                    out.effects.push(self.resize(order_id, pod_uid, writes));
                }
                action @ (Action::LookAtImage { .. } | Action::Pull { .. } | Action::CancelPull { .. }) => {
                    out.effects.extend(self.image_action(action, machine));
                }
                Action::WriteBack { held } => out.add(self.write_back(now, held, machine)),
                Action::WriteStatus { resource_version, status } => {
                    self.writes += 1;
                    self.under_way = Some(self.writes);
                    let mut request = wire::write_status(&self.node, resource_version, *status).unwrap();
                    if self.next {
                        skew::daemon_sends(&mut request);
                    }
                    out.effects.push(Effect::Send(Sent { token: self.writes, request, election: false }));
                }
            }
        }
        out
    }

    /// The world has made the call.
    pub fn called(&mut self, now: u64, id: CallId, asked: Asked, effect: Option<usize>) {
        let limit = now + asked.limit;
        self.calls.insert(id, (asked, limit, effect));
    }

    /// Effect number of a call, if it has one; the outer None if the call is of another process.
    pub fn effect_of(&self, id: CallId) -> Option<Option<usize>> {
        self.calls.get(&id).map(|(_, _, effect)| *effect)
    }
}

fn millis(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or_default() * 1000
}

/// As in `cri-proto/src/error.rs` and `daemon/src/runtime.rs`.
fn call_failure(failure: &runtime::Failure) -> CallFailure {
    let retry = !matches!(
        failure.code,
        Code::InvalidArgument | Code::PermissionDenied | Code::Unimplemented | Code::ResourceExhausted
    );
    CallFailure { retry, message: failure.message.clone() }
}

fn facts(info: &ContainerInfo) -> Facts {
    let label = |key: &str| info.labels.get(key).cloned().unwrap_or_default();
    Facts {
        namespace: label(keys::POD_NAMESPACE),
        pod: label(keys::POD_NAME),
        pod_uid: label(keys::POD_UID),
        container: label(keys::CONTAINER_NAME),
        state: match info.state {
            State::Created => ContainerState::Created,
            State::Running => ContainerState::Running,
            State::Exited => ContainerState::Exited,
            State::Unknown => ContainerState::Unknown,
        },
        pre_stop: info.annotations.get(keys::PRE_STOP_HANDLER).cloned(),
        ports: info.annotations.get(keys::PORTS).cloned(),
        grace_seconds: info.annotations.get(keys::TERMINATION_GRACE_PERIOD).and_then(|s| s.parse().ok()),
    }
}

/// Asks the runtime about a container.
fn status(order_id: String, container_id: ContainerId, purpose: Purpose) -> Effect {
    let call = Call::ContainerStatus { id: container_id.to_string() };
    Effect::Call(Asked { order_id, container_id: container_id.into(), purpose, call, limit: READ })
}
