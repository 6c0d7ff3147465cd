//! One process of the daemon: the production core around a connection to the node's runtime, as `daemon/src` puts it
//! together.

use std::collections::BTreeMap;

use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::logic::watch::Watch;
use pitstop_api::nodework::{NodeWork, RuntimeInfo};
use pitstop_daemon_core::{
    Action, CallFailure, ContainerState, Daemon, EndedHooks, Event, Facts, Hook, Identity, wire,
};
use serde::Deserialize;
use serde_json::Value;

use super::clock::Clock;
use super::controller::{Out, Sent};
use super::watcher::{Watcher, convert};
use crate::node::keys;
use crate::node::runtime::{self, Call, CallId, Code, ContainerInfo, Runtime, State};

/// As in `cri-proto/src/deadlines.rs` and `daemon/src/hook.rs`, in milliseconds.
const READ: u64 = 10_000;
const STOP_MARGIN: u64 = 120_000;
const EXEC_MARGIN: u64 = 1_000;

/// A process.
pub struct DaemonProcess {
    /// By which the runtime knows its calls.
    pub client: runtime::Client,
    /// Its watch of the node's book.
    pub watcher: Watcher,
    node: String,
    core: Daemon,
    calls: BTreeMap<CallId, (Asked, u64)>,
    /// Hooks that sleep: until when, and whose.
    sleeping: Vec<(u64, String)>,
    writes: u64,
    under_way: Option<u64>,
}

/// What a call of the runtime is for.
#[derive(Clone, Debug)]
enum Asked {
    Inspect { order_id: String, container_id: String },
    Hook { order_id: String },
    Stop { order_id: String },
}

/// Something that the process is about to do to a container.
#[derive(Clone, Debug)]
pub struct Deed {
    /// The order.
    pub order_id: String,
    /// The container that it names.
    pub container_id: String,
    /// What.
    pub what: DeedKind,
}

/// What is done to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeedKind {
    /// It is asked about.
    Inspect,
    /// Its hook is run.
    Hook,
    /// It is stopped, with so many seconds of grace.
    Stop(i64),
}

/// The node as the process finds it.
pub struct Machine<'a> {
    /// The machine's clocks; the daemon's monotonic clock counts from the boot.
    pub clock: &'a Clock,
    /// The runtime.
    pub runtime: &'a mut Runtime,
    /// What the state directory holds.
    pub ended_hooks: &'a mut EndedHooks,
}

impl DaemonProcess {
    /// A new process; `instance` is its own alone.
    pub fn new(node: &str, instance: String, client: runtime::Client, machine: &Machine<'_>) -> Self {
        let boot_id = machine.runtime.boot_id().to_owned();
        let core =
            Daemon::new(Identity { instance, boot_id }).with_ended_hooks(machine.ended_hooks.clone());
        Self {
            client,
            watcher: Watcher::new("/apis/pitstop.dev/v1alpha1/nodeworks", format!("metadata.name={node}")),
            node: node.to_owned(),
            core,
            calls: BTreeMap::new(),
            sleeping: Vec::new(),
            writes: 0,
            under_way: None,
        }
    }

    /// When it wants a tick, in true time.
    pub fn wake_at(&self, clock: &Clock) -> Option<u64> {
        let core = self.core.wake_at().map(|at| clock.when(at));
        let calls = self.calls.values().map(|(_, limit)| *limit);
        let sleeping = self.sleeping.iter().map(|(until, _)| *until);
        core.into_iter().chain(calls).chain(sleeping).min()
    }

    /// The runtime answers, for the first time or again.
    pub fn runtime_found(&mut self, now: u64, machine: &mut Machine<'_>) -> (Out, Vec<Deed>) {
        let info = RuntimeInfo { name: machine.runtime.options().name().to_owned(), version: "1".to_owned() };
        self.core(now, Event::Runtime(info), machine)
    }

    /// The watch delivered.
    pub fn delivered(
        &mut self,
        now: u64,
        watch: Watch<Value>,
        machine: &mut Machine<'_>,
    ) -> (Out, Vec<Deed>) {
        let watch = convert(watch, |o| wire::book(NodeWork::deserialize(o).unwrap()));
        self.core(now, Event::Book(watch), machine)
    }

    /// The API server answered.
    pub fn answered(
        &mut self,
        now: u64,
        token: u64,
        answer: &Answer,
        machine: &mut Machine<'_>,
    ) -> (Out, Vec<Deed>) {
        if self.under_way.take_if(|t| *t == token).is_none() {
            return Default::default();
        }
        self.core(now, Event::StatusWritten(wire::written(answer)), machine)
    }

    /// The runtime answered, if the call is this process's.
    pub fn replied(
        &mut self,
        now: u64,
        call: CallId,
        reply: &runtime::Reply,
        machine: &mut Machine<'_>,
    ) -> (Out, Vec<Deed>) {
        let Some((asked, _)) = self.calls.remove(&call) else { return Default::default() };
        self.ended(now, asked, reply, machine)
    }

    fn ended(
        &mut self,
        now: u64,
        asked: Asked,
        reply: &runtime::Reply,
        machine: &mut Machine<'_>,
    ) -> (Out, Vec<Deed>) {
        let event = match asked {
            Asked::Inspect { order_id, container_id } => Event::Inspected(
                order_id,
                match reply {
                    Ok(runtime::Answer::Container(info)) if info.id == container_id => Ok(Some(facts(info))),
                    Ok(_) => Ok(None),
                    Err(failure) if failure.code == Code::NotFound => Ok(None),
                    Err(failure) => Err(call_failure(failure)),
                },
            ),
            Asked::Stop { order_id } => Event::Stopped(
                order_id,
                match reply {
                    Ok(_) => Ok(()),
                    Err(failure) if failure.code == Code::NotFound => Ok(()),
                    Err(failure) => Err(call_failure(failure)),
                },
            ),
            Asked::Hook { order_id } => {
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
    ) -> (Out, Vec<Deed>) {
        // Before anyone is told, as in `daemon/src/execute.rs`.
        machine.ended_hooks.insert(order_id.clone(), result.clone().err());
        self.core(now, Event::HookDone(order_id, result), machine)
    }

    /// Time passed.
    pub fn tick(&mut self, now: u64, machine: &mut Machine<'_>) -> (Out, Vec<Deed>) {
        let (mut out, mut deeds) = (Out::default(), Vec::new());
        let mut add = |(more, done): (Out, Vec<Deed>)| {
            out.sent.extend(more.sent);
            out.told.extend(more.told);
            deeds.extend(done);
        };
        let late: Vec<CallId> =
            self.calls.iter().filter(|(_, (_, limit))| *limit <= now).map(|(id, _)| *id).collect();
        for id in late {
            machine.runtime.cancel(id);
            let (asked, _) = self.calls.remove(&id).unwrap();
            let failure = runtime::Failure { code: Code::DeadlineExceeded, message: "no answer".to_owned() };
            add(self.ended(now, asked, &Err(failure), machine));
        }
        let (over, still) = std::mem::take(&mut self.sleeping).into_iter().partition(|(until, _)| *until <= now);
        self.sleeping = still;
        let over: Vec<(u64, String)> = over;
        for (_, order_id) in over {
            add(self.hook_ended(now, order_id, Ok(()), machine));
        }
        add(self.core(now, Event::Tick, machine));
        (out, deeds)
    }

    fn core(&mut self, now: u64, event: Event, machine: &mut Machine<'_>) -> (Out, Vec<Deed>) {
        let (mut out, mut deeds) = (Out::default(), Vec::new());
        for action in self.core.step(machine.clock.mono(now), event) {
            out.told.push(told(&action));
            match action {
                Action::Inspect { order_id, container_id } => {
                    let what = DeedKind::Inspect;
                    deeds.push(Deed { order_id: order_id.clone(), container_id: container_id.clone(), what });
                    let call = Call::ContainerStatus { id: container_id.clone() };
                    self.call(now, machine, call, Asked::Inspect { order_id, container_id }, READ);
                }
                Action::Stop { order_id, container_id, grace_seconds } => {
                    let what = DeedKind::Stop(grace_seconds);
                    deeds.push(Deed { order_id: order_id.clone(), container_id: container_id.clone(), what });
                    let limit = millis(grace_seconds) + STOP_MARGIN;
                    let call = Call::StopContainer { id: container_id, timeout_s: grace_seconds };
                    self.call(now, machine, call, Asked::Stop { order_id }, limit);
                }
                Action::RunHook { order_id, container_id, hook, limit_seconds } => {
                    let what = DeedKind::Hook;
                    deeds.push(Deed { order_id: order_id.clone(), container_id: container_id.clone(), what });
                    let limit = millis(limit_seconds);
                    match hook {
                        Hook::Exec { command } => {
                            let call =
                                Call::ExecSync { id: container_id, cmd: command, timeout_s: limit_seconds };
                            self.call(now, machine, call, Asked::Hook { order_id }, limit + EXEC_MARGIN);
                        }
                        Hook::Sleep { seconds } => {
                            let until = now + millis(seconds).min(limit);
                            self.sleeping.push((until, order_id));
                        }
                        other => {
                            let why = format!("a hook of kind {} is not modelled", other.kind());
                            let (more, done) = self.hook_ended(now, order_id, Err(why), machine);
                            out.sent.extend(more.sent);
                            out.told.extend(more.told);
                            deeds.extend(done);
                        }
                    }
                }
                Action::WriteStatus { resource_version, status } => {
                    self.writes += 1;
                    self.under_way = Some(self.writes);
                    match wire::write_status(&self.node, resource_version, *status) {
                        Ok(request) => {
                            out.sent.push(Sent { token: self.writes, request, election: false });
                        }
                        Err(error) => {
                            let failed = Answer::Failed(Failure::of_code(400, error.to_string()));
                            let event = Event::StatusWritten(wire::written(&failed));
                            let (more, done) = self.core(now, event, machine);
                            out.sent.extend(more.sent);
                            out.told.extend(more.told);
                            deeds.extend(done);
                        }
                    }
                }
            }
        }
        (out, deeds)
    }

    fn call(&mut self, now: u64, machine: &mut Machine<'_>, call: Call, asked: Asked, limit: u64) {
        let id = machine.runtime.call(now, self.client, call);
        self.calls.insert(id, (asked, now + limit));
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

fn told(action: &Action) -> String {
    format!("{action:?}")
}
