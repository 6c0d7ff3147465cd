//! The effect of a call when it arrives.

use std::collections::BTreeMap;

use super::types::{
    Answer, Call, CallId, Client, Code, DeedKind, Failure, Filter, Method, Reply, SandboxConfig, State,
};
use super::{Container, Flavor, Mode, Runtime, Wait, Waiting, process};
use crate::node::image::Image;

impl Runtime {
    /// A call arrives at a runtime that is up.
    pub(super) fn take_up(&mut self, now: u64, call: CallId, client: Client, request: Call) {
        if let Mode::Starting(_) = self.mode {
            // containerd 1.6 answers this while its CRI part reads its state.
            let failure = unknown("server is not initialized yet".to_owned());
            return self.reply(now, call, client, Err(failure));
        }
        let method = request.method();
        if let Some(at) = self.planned.iter().position(|p| p.0 == method) {
            let (_, code, applied) = self.planned.remove(at);
            if applied {
                self.serve(now, call, client, request);
                self.drop_reply(call);
            }
            let failure = Failure { code, message: "planned by the simulator".to_owned() };
            return self.reply(now, call, client, Err(failure));
        }
        if method == Method::StopContainer && self.lies > 0 {
            self.lies -= 1;
            return self.reply(now, call, client, Ok(Answer::Done));
        }
        self.serve(now, call, client, request);
    }

    fn serve(&mut self, now: u64, call: CallId, client: Client, request: Call) {
        let reply = match request {
            Call::Version => {
                let (name, version) = self.options.version();
                Ok(Answer::Version(name.to_owned(), version.to_owned()))
            }
            Call::Status => Ok(Answer::Status(true)),
            Call::ListContainers(filter) => Ok(self.list(&filter)),
            Call::ContainerStatus { id } => {
                self.container(&id).map(|c| Answer::Container(Box::new(c.info.clone())))
            }
            Call::ListPodSandbox => Ok(Answer::Sandboxes(self.sandboxes.values().cloned().collect())),
            Call::PodSandboxStatus { id } => resolve(&self.sandboxes, &id, "sandbox")
                .map(|id| Answer::Sandbox(Box::new(self.sandboxes[&id].clone()))),
            Call::StopContainer { id, timeout_s } => match self.stop(now, client, &id, timeout_s) {
                Ok(Some(what)) => return self.wait(call, client, what),
                Ok(None) => Ok(Answer::Done),
                Err(failure) => Err(failure),
            },
            Call::CreateContainer { sandbox, config } => match self.create(now, &sandbox, config) {
                Ok(id) => {
                    let what = Waiting::Create { at: now + self.options.create_ms, id };
                    return self.wait(call, client, what);
                }
                Err(failure) => Err(failure),
            },
            Call::StartContainer { id } => match self.start(now, &id) {
                Ok(id) => return self.wait(call, client, Waiting::Start { id }),
                Err(failure) => Err(failure),
            },
            Call::RemoveContainer { id } => match self.remove(now, &id) {
                Ok(Some(what)) => return self.wait(call, client, what),
                Ok(None) => Ok(Answer::Done),
                Err(failure) => Err(failure),
            },
            Call::ExecSync { id, cmd, timeout_s } => match self.exec(now, client, &id, cmd, timeout_s) {
                Ok(what) => return self.wait(call, client, what),
                Err(failure) => Err(failure),
            },
            Call::RunPodSandbox(config) if self.taken(&config) => {
                let text = format!("failed to reserve sandbox name \"{}\": name is reserved", config.name);
                Err(self.reserved(text))
            }
            Call::RunPodSandbox(config) => {
                let what = Waiting::Sandbox { at: now + self.options.sandbox_ms, config };
                return self.wait(call, client, what);
            }
            Call::PullImage { image } => {
                let at = self.registry.pulled_at(now);
                return self.wait(call, client, Waiting::Pull { at, image });
            }
            Call::StopPodSandbox { id } => match self.stop_sandbox(now, &id, false) {
                Ok(what) => return self.wait(call, client, what),
                Err(failure) if self.forgives(&failure) => Ok(Answer::Done),
                Err(failure) => Err(failure),
            },
            Call::RemovePodSandbox { id } => match self.stop_sandbox(now, &id, true) {
                Ok(what) => return self.wait(call, client, what),
                Err(failure) if failure.code == Code::NotFound => Ok(Answer::Done),
                Err(failure) => Err(failure),
            },
        };
        self.reply(now, call, client, reply);
    }

    fn wait(&mut self, call: CallId, client: Client, what: Waiting) {
        self.waits.push(Wait { call, client, what });
    }

    /// The container with this ID or prefix.
    fn container(&self, id: &str) -> Result<&Container, Failure> {
        resolve(&self.containers, id, "container").map(|id| &self.containers[&id])
    }

    fn list(&self, filter: &Filter) -> Answer {
        // An unknown ID is compared unchanged, so nothing matches.
        let full =
            |given: &str| resolve(&self.containers, given, "container").unwrap_or_else(|_| given.to_owned());
        let sandbox =
            |given: &str| resolve(&self.sandboxes, given, "sandbox").unwrap_or_else(|_| given.to_owned());
        let (id, pod) = (full(&filter.id), sandbox(&filter.sandbox));
        let fits = |c: &&Container| {
            (filter.id.is_empty() || c.info.id == id)
                && (filter.sandbox.is_empty() || c.info.sandbox == pod)
                && filter.state.is_none_or(|state| state == c.info.state)
                && filter.labels.iter().all(|(k, v)| c.info.labels.get(k) == Some(v))
        };
        Answer::Containers(self.containers.values().filter(fits).map(|c| c.info.clone()).collect())
    }

    /// Whether the runtime accepts a stop of a missing object as a success.
    fn forgives(&self, failure: &Failure) -> bool {
        failure.code == Code::NotFound && self.options.flavor != Flavor::Containerd16
    }

    /// The failure if the name of a new object is taken.
    fn reserved(&self, text: String) -> Failure {
        match self.options.flavor {
            Flavor::Containerd2 => Failure { code: Code::FailedPrecondition, message: text },
            Flavor::Containerd16 | Flavor::Crio => unknown(text),
        }
    }

    /// Whether a sandbox of the same Pod and attempt exists or is being made.
    fn taken(&self, config: &SandboxConfig) -> bool {
        let same = |c: &SandboxConfig| {
            (&c.name, &c.namespace, &c.uid, c.attempt)
                == (&config.name, &config.namespace, &config.uid, config.attempt)
        };
        let waits =
            self.waits.iter().any(|w| matches!(&w.what, Waiting::Sandbox { config, .. } if same(config)));
        waits || self.sandboxes.values().any(|s| same(&s.config))
    }

    /// Begins a stop; returns what to wait for, if anything.
    fn stop(
        &mut self,
        now: u64,
        client: Client,
        id: &str,
        timeout_s: i64,
    ) -> Result<Option<Waiting>, Failure> {
        let id = match resolve(&self.containers, id, "container") {
            Ok(id) => id,
            Err(failure) if self.forgives(&failure) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let container = self.containers.get_mut(&id).unwrap();
        if !matches!(container.info.state, State::Running | State::Unknown) {
            return Ok(None);
        }
        let signal = timeout_s > 0 && !container.signalled;
        container.signalled |= signal;
        container.signals += u32::from(signal);
        if signal
            && container.signals >= container.process.needs
            && let Some((ms, code)) = container.process.term
        {
            container.end_by(now + ms, code);
        }
        self.deed(now, &id, DeedKind::StopAsked(client, timeout_s));
        if signal {
            self.deed(now, &id, DeedKind::Term);
        }
        let kill_at = match u64::try_from(timeout_s) {
            Ok(seconds) if seconds > 0 => Some(now.saturating_add(seconds.saturating_mul(1000))),
            _ => {
                self.kill(now, &id);
                None
            }
        };
        Ok(Some(Waiting::Stop { id, kill_at }))
    }

    /// Sends SIGKILL.
    pub(super) fn kill(&mut self, now: u64, id: &str) {
        let kill_ms = self.options.kill_ms;
        let container = self.containers.get_mut(id).unwrap();
        if container.alive(now) {
            container.end_by(now + kill_ms, process::KILLED);
            self.deed(now, id, DeedKind::Kill);
        }
    }

    fn create(&mut self, now: u64, sandbox: &str, config: super::ContainerConfig) -> Result<String, Failure> {
        let sandbox = resolve(&self.sandboxes, sandbox, "sandbox")?;
        let taken = self
            .containers
            .values()
            .map(|c| &c.info)
            .find(|c| c.sandbox == sandbox && (&c.name, c.attempt) == (&config.name, config.attempt));
        if let Some(other) = taken {
            let name = format!("{}_{}", config.name, config.attempt);
            let text =
                format!("failed to reserve container name \"{name}\": name is reserved for \"{}\"", other.id);
            return Err(self.reserved(text));
        }
        let image = self.image_of(now, &config.image)?;
        let id = self.new_id();
        let container = Container::new(id.clone(), sandbox, &image, self.wall(now), config);
        self.containers.insert(id.clone(), container);
        self.touch(now);
        Ok(id)
    }

    /// The image for a new container; if pulls take no time, it is fetched first.
    fn image_of(&mut self, now: u64, name: &str) -> Result<Image, Failure> {
        if self.image(name).is_none() && self.registry.at_once() {
            // If this fails, the image is missing below.
            let _ = self.fetch(now, Client::KUBELET, name);
        }
        self.image(name).cloned().ok_or_else(|| not_found(format!("image \"{name}\": not found")))
    }

    fn start(&mut self, now: u64, id: &str) -> Result<String, Failure> {
        let container = self.container(id)?;
        if container.info.state != State::Created {
            return Err(unknown(format!(
                "failed to set starting state for container \"{}\": container is in {} state",
                container.info.id,
                name(container.info.state)
            )));
        }
        if container.starting.is_some() {
            return Err(unknown("container is already in starting state".to_owned()));
        }
        let id = container.info.id.clone();
        let sandbox = container.info.sandbox.clone();
        let wall = self.wall(now);
        let ready = self.sandboxes.get(&sandbox).is_some_and(|s| s.ready);
        let container = self.containers.get_mut(&id).unwrap();
        if !ready {
            // Any failed start ends the container.
            container.exited(wall, 128, "StartError");
            self.touch(now);
            return Err(unknown(format!("sandbox container \"{sandbox}\" is not running")));
        }
        container.starting = Some(now + container.process.start_ms);
        Ok(id)
    }

    fn remove(&mut self, now: u64, id: &str) -> Result<Option<Waiting>, Failure> {
        let id = match resolve(&self.containers, id, "container") {
            Ok(id) => id,
            Err(failure) if failure.code == Code::NotFound => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let container = &self.containers[&id];
        if container.starting.is_some() {
            let text = "container is in starting state, can't be removed";
            return Err(unknown(format!("failed to set removing state for container \"{id}\": {text}")));
        }
        if matches!(container.info.state, State::Running | State::Unknown) {
            self.kill(now, &id);
            return Ok(Some(Waiting::Remove { id }));
        }
        self.forget(now, &id);
        Ok(None)
    }

    pub(super) fn forget(&mut self, at: u64, id: &str) {
        self.containers.remove(id);
        self.touch(at);
    }

    fn exec(
        &mut self,
        now: u64,
        client: Client,
        id: &str,
        cmd: Vec<String>,
        timeout_s: i64,
    ) -> Result<Waiting, Failure> {
        let container = self.container(id)?;
        let id = container.info.id.clone();
        if container.info.state != State::Running {
            let state = name(container.info.state);
            return Err(match self.options.flavor {
                Flavor::Crio => not_found(format!("container is not created or running: {state}")),
                _ => unknown(format!("failed to exec in container: container is in {state} state")),
            });
        }
        let Some((ms, code)) = process::run(&container.process, &cmd) else {
            let program = cmd.first().cloned().unwrap_or_default();
            return Err(unknown(format!(
                "failed to exec in container: failed to start exec: exec: \"{program}\": no such file or directory"
            )));
        };
        self.deed(now, &id, DeedKind::Exec(client, cmd));
        let timeout = u64::try_from(timeout_s).ok().filter(|s| *s > 0).map(|s| now.saturating_add(s * 1000));
        Ok(Waiting::Exec { id, ends: now.saturating_add(ms), code, timeout })
    }

    fn stop_sandbox(&mut self, now: u64, id: &str, remove: bool) -> Result<Waiting, Failure> {
        let id = resolve(&self.sandboxes, id, "sandbox")?;
        let running = |c: &&Container| c.info.sandbox == id && c.info.state == State::Running;
        let inside: Vec<String> =
            self.containers.values().filter(running).map(|c| c.info.id.clone()).collect();
        for container in inside {
            self.kill(now, &container);
        }
        Ok(Waiting::StopSandbox { id, remove })
    }
}

/// The full ID for an ID or a prefix.
fn resolve<T>(all: &BTreeMap<String, T>, prefix: &str, kind: &str) -> Result<String, Failure> {
    let message = |why: &str| format!("an error occurred when try to find {kind} \"{prefix}\": {why}");
    if prefix.is_empty() {
        return Err(unknown(message("prefix can't be empty")));
    }
    let mut found = all.range(prefix.to_owned()..).map(|(id, _)| id).take_while(|id| id.starts_with(prefix));
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id.clone()),
        (Some(_), Some(_)) => Err(unknown(message("multiple IDs found with provided prefix"))),
        (None, _) => Err(not_found(message("not found"))),
    }
}

fn name(state: State) -> &'static str {
    match state {
        State::Created => "CONTAINER_CREATED",
        State::Running => "CONTAINER_RUNNING",
        State::Exited => "CONTAINER_EXITED",
        State::Unknown => "CONTAINER_UNKNOWN",
    }
}

fn unknown(message: String) -> Failure {
    Failure { code: Code::Unknown, message }
}

fn not_found(message: String) -> Failure {
    Failure { code: Code::NotFound, message }
}

/// Whether the reply is `NotFound`: a stop then has its wanted result.
pub(in crate::node) fn gone(reply: &Reply) -> bool {
    matches!(reply, Err(failure) if failure.code == Code::NotFound)
}
