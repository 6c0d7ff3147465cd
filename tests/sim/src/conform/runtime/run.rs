//! Runs a script and returns its results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::script::{Id, Op, Script, Shape};
use crate::node::keys;
use crate::node::runtime::{
    Answer, Call, Code, ContainerConfig, ContainerInfo, Failure, Filter, Reply, SandboxConfig, State,
};

/// A runtime that can run scripts. Its times are milliseconds.
pub trait Target {
    /// A call in progress.
    type Begun;

    /// Begins a call. A container's process is one of [`Shape`].
    fn begin(&mut self, call: Call) -> Self::Begun;
    /// Waits for the reply to a call.
    fn end(&mut self, begun: Self::Begun) -> Reply;
    /// Cancels a call.
    fn leave(&mut self, begun: Self::Begun);
    /// The current time.
    fn now(&mut self) -> u64;
    /// Lets time pass.
    fn pause(&mut self, ms: u64);
    /// Waits until the process of a started container is as its shape says.
    fn settle(&mut self, id: &str);
    /// Kills the runtime's process.
    fn kill(&mut self);
    /// Starts it again, and waits until it answers.
    fn revive(&mut self);
}

/// Runs a script; returns one line for each step. `uid` is the UID of its Pod; no other Pod uses it.
pub fn run<T: Target>(script: &Script, uid: &str, target: &mut T) -> Vec<String> {
    let mut run = Run {
        target,
        uid: uid.to_owned(),
        ids: BTreeMap::new(),
        shapes: BTreeMap::new(),
        begun: BTreeMap::new(),
        attempts: 1000,
    };
    run.sandbox("pod", 0);
    let lines: Vec<String> = script.ops.iter().map(|op| run.op(op)).collect();
    // Leave nothing behind.
    for name in run.sandboxes() {
        let id = run.ids[&name].clone();
        let _ = run.call(Call::StopPodSandbox { id: id.clone() });
        let _ = run.call(Call::RemovePodSandbox { id });
    }
    lines
}

struct Run<'a, T: Target> {
    target: &'a mut T,
    uid: String,
    /// IDs by name.
    ids: BTreeMap<String, String>,
    shapes: BTreeMap<String, Shape>,
    begun: BTreeMap<String, (T::Begun, u64, i64)>,
    attempts: u32,
}

impl<T: Target> Run<'_, T> {
    #[allow(clippy::too_many_lines, reason = "an arm for each step")]
    fn op(&mut self, op: &Op) -> String {
        match op {
            Op::Create(name, shape, attempt) => {
                let sandbox = self.ids["pod"].clone();
                self.create(sandbox, name, *shape, *attempt, "app:1")
            }
            Op::CreateIn(sandbox, name, shape) => {
                let sandbox = self.id(sandbox);
                self.create(sandbox, name, *shape, 0, "app:1")
            }
            Op::CreateOf(image, name) => {
                let sandbox = self.ids["pod"].clone();
                self.create(sandbox, name, Shape::Polite, 0, image)
            }
            Op::Ambiguous(name) => self.ambiguous(name),
            Op::Start(id) => {
                let given = self.id(id);
                let reply = self.call(Call::StartContainer { id: given.clone() });
                let full =
                    self.ids.values().find(|full| full.starts_with(&given) && !given.is_empty()).cloned();
                if let (Ok(_), Some(full)) = (&reply, full)
                    && self.shapes.get(&full).is_some_and(|s| s.lasts())
                {
                    self.target.settle(&full);
                }
                format!("start {}: {}", label(id), brief(&reply))
            }
            Op::Ended(id) => self.ended(id),
            Op::Stop(id, grace) => {
                let given = self.id(id);
                let begin = self.target.now();
                let reply = self.call(Call::StopContainer { id: given, timeout_s: *grace });
                let spent = class(self.target.now() - begin, *grace);
                format!("stop {} {grace}: {}, {spent}", label(id), brief(&reply))
            }
            Op::BeginStop(name, id, grace) => {
                let call = Call::StopContainer { id: self.id(id), timeout_s: *grace };
                self.begin(name, call, *grace);
                format!("stop {} {grace} begins", label(id))
            }
            Op::Exec(id, cmd, timeout_s) => {
                let call = Call::ExecSync { id: self.id(id), cmd: cmd.clone(), timeout_s: *timeout_s };
                let reply = self.call(call);
                format!("exec {} {cmd:?}: {}", label(id), brief(&reply))
            }
            Op::BeginExec(name, id, cmd, timeout_s) => {
                let call = Call::ExecSync { id: self.id(id), cmd: cmd.clone(), timeout_s: *timeout_s };
                self.begin(name, call, *timeout_s);
                format!("exec {} {cmd:?} begins", label(id))
            }
            Op::End(name) => {
                let (begun, since, grace) = self.begun.remove(name).expect("it was begun");
                let reply = self.target.end(begun);
                let spent = class(self.target.now() - since, grace);
                format!("{name} ends: {}, {spent}", brief(&reply))
            }
            Op::Leave(name) => {
                let (begun, ..) = self.begun.remove(name).expect("it was begun");
                self.target.leave(begun);
                format!("{name} is left")
            }
            Op::Pause(ms) => {
                self.target.pause(*ms);
                format!("pause {ms}")
            }
            Op::Status(id) => {
                let reply = self.call(Call::ContainerStatus { id: self.id(id) });
                format!("status {}: {}", label(id), self.shown(&reply))
            }
            Op::List => self.list("list", Filter::default()),
            Op::ListId(id) => {
                let filter = Filter { id: self.id(id), ..Filter::default() };
                self.list(&format!("list {}", label(id)), filter)
            }
            Op::ListState(state) => {
                self.list(&format!("list {state:?}"), Filter { state: Some(*state), ..Filter::default() })
            }
            Op::ListName(name) => {
                let labels = [(keys::CONTAINER_NAME.to_owned(), name.clone())].into();
                self.list(&format!("list named {name}"), Filter { labels, ..Filter::default() })
            }
            Op::ListSandbox(id) => {
                let filter = Filter { sandbox: self.id(id), ..Filter::default() };
                self.list(&format!("list in {}", label(id)), filter)
            }
            Op::Remove(id) => {
                let reply = self.call(Call::RemoveContainer { id: self.id(id) });
                format!("remove {}: {}", label(id), brief(&reply))
            }
            Op::Sandbox(name, attempt) => self.sandbox(name, *attempt),
            Op::SandboxStatus(id) => {
                let reply = self.call(Call::PodSandboxStatus { id: self.id(id) });
                format!("sandbox {}: {}", label(id), self.shown(&reply))
            }
            Op::StopSandbox(id) => {
                let reply = self.call(Call::StopPodSandbox { id: self.id(id) });
                format!("stop sandbox {}: {}", label(id), brief(&reply))
            }
            Op::RemoveSandbox(id) => {
                let reply = self.call(Call::RemovePodSandbox { id: self.id(id) });
                format!("remove sandbox {}: {}", label(id), brief(&reply))
            }
            Op::Version => match self.call(Call::Version) {
                Ok(Answer::Version(name, _)) => format!("version: {name}"),
                other => format!("version: {}", brief(&other)),
            },
            Op::Ready => format!("ready: {}", brief(&self.call(Call::Status))),
            Op::Restart => {
                self.target.kill();
                self.target.revive();
                "the runtime starts again".to_owned()
            }
            Op::Down => {
                self.target.kill();
                let reply = self.call(Call::Version);
                self.target.revive();
                format!("version while it is down: {}", brief(&reply))
            }
        }
    }

    fn call(&mut self, call: Call) -> Reply {
        let begun = self.target.begin(call);
        self.target.end(begun)
    }

    fn begin(&mut self, name: &str, call: Call, seconds: i64) {
        let begun = self.target.begin(call);
        self.begun.insert(name.to_owned(), (begun, self.target.now(), seconds));
    }

    fn id(&self, id: &Id) -> String {
        let full = |name: &String| self.ids.get(name).unwrap_or_else(|| panic!("{name} was made")).clone();
        match id {
            Id::Of(name) => full(name),
            Id::Prefix(name, length) => full(name)[..*length].to_owned(),
            Id::Longer(name) => format!("{}0", full(name)),
            Id::Capitals(name) => full(name).to_uppercase(),
            Id::Text(text) => text.clone(),
        }
    }

    fn create(&mut self, sandbox: String, name: &str, shape: Shape, attempt: u32, image: &str) -> String {
        let labels = BTreeMap::from([
            (keys::POD_UID.to_owned(), self.uid.clone()),
            (keys::CONTAINER_NAME.to_owned(), name.to_owned()),
        ]);
        let config = ContainerConfig {
            name: name.to_owned(),
            attempt,
            image: image.to_owned(),
            labels: Arc::new(labels),
            annotations: Arc::new([(keys::RESTART_COUNT.to_owned(), attempt.to_string())].into()),
            process: shape.process(),
        };
        let reply = self.call(Call::CreateContainer { sandbox, config });
        if let Ok(Answer::Created(id)) = &reply {
            self.ids.insert(name.to_owned(), id.clone());
            self.shapes.insert(id.clone(), shape);
        }
        format!("create {name}: {}", brief(&reply))
    }

    fn ambiguous(&mut self, name: &str) -> String {
        let mut first = BTreeSet::new();
        loop {
            self.attempts += 1;
            let (sandbox, one) = (self.ids["pod"].clone(), format!("one-{}", self.attempts));
            self.create(sandbox, &one, Shape::Polite, 0, "app:1");
            let digit = self.ids[&one][..1].to_owned();
            if !first.insert(digit.clone()) {
                self.ids.insert(name.to_owned(), digit);
                return format!("{name} is the prefix of two");
            }
        }
    }

    fn ended(&mut self, id: &Id) -> String {
        let given = self.id(id);
        for _ in 0..1000 {
            let reply = self.call(Call::ContainerStatus { id: given.clone() });
            match &reply {
                Ok(Answer::Container(info)) if info.state == State::Exited => {
                    return format!("{} ends: {}", label(id), self.shown(&reply));
                }
                Ok(_) => self.target.pause(20),
                Err(_) => return format!("{} ends: {}", label(id), brief(&reply)),
            }
        }
        format!("{} does not end", label(id))
    }

    fn sandbox(&mut self, name: &str, attempt: u32) -> String {
        let config = SandboxConfig {
            name: "web".to_owned(),
            namespace: "test".to_owned(),
            uid: self.uid.clone(),
            attempt,
            labels: Arc::new([(keys::POD_UID.to_owned(), self.uid.clone())].into()),
        };
        let reply = self.call(Call::RunPodSandbox(config));
        if let Ok(Answer::Created(id)) = &reply {
            self.ids.insert(name.to_owned(), id.clone());
        }
        format!("make sandbox {name}: {}", brief(&reply))
    }

    fn sandboxes(&self) -> Vec<String> {
        self.ids.keys().filter(|n| n.starts_with("pod")).cloned().collect()
    }

    /// Lists only the script's own containers.
    fn list(&mut self, what: &str, mut filter: Filter) -> String {
        filter.labels.insert(keys::POD_UID.to_owned(), self.uid.clone());
        let reply = self.call(Call::ListContainers(filter));
        format!("{what}: {}", self.shown(&reply))
    }

    /// A reply as text, with its facts about containers and sandboxes.
    fn shown(&self, reply: &Reply) -> String {
        match reply {
            Ok(Answer::Container(info)) => self.about(info, true),
            Ok(Answer::Containers(all)) => {
                let mut lines: Vec<String> = all.iter().map(|c| self.about(c, false)).collect();
                lines.sort();
                format!("[{}]", lines.join(", "))
            }
            Ok(Answer::Sandbox(info)) => {
                let ready = if info.ready { "ready" } else { "not ready" };
                format!("{ready}, attempt {}", info.config.attempt)
            }
            other => brief(other),
        }
    }

    fn about(&self, info: &ContainerInfo, whole: bool) -> String {
        let known = self.ids.values().any(|id| *id == info.id);
        let sandbox = self.ids.iter().find(|(n, id)| n.starts_with("pod") && **id == info.sandbox);
        let mut text = format!("{}/{} {:?}", info.name, info.attempt, info.state);
        if !known && !info.name.starts_with("one-") {
            text.push_str(" of an unknown ID");
        }
        if whole {
            let _ = write!(text, " exit {} {:?}", info.exit_code, info.reason);
            let times = [info.created_at > 0, info.started_at > 0, info.finished_at > 0];
            let _ = write!(text, " times {times:?} labels {}", info.labels.len());
        } else {
            let _ = write!(text, " in {}", sandbox.map_or("another", |(n, _)| n.as_str()));
        }
        text
    }
}

/// An ID as the script gave it.
fn label(id: &Id) -> String {
    match id {
        Id::Of(name) => name.clone(),
        Id::Prefix(name, length) => format!("{length} digits of {name}"),
        Id::Longer(name) => format!("{name} and more"),
        Id::Capitals(name) => format!("{name} in capitals"),
        Id::Text(text) => format!("{text:?}"),
    }
}

/// A reply as text, without values that differ between runs.
fn brief(reply: &Reply) -> String {
    match reply {
        Ok(Answer::Exec(code)) => format!("exit {code}"),
        Ok(Answer::Status(ready)) => format!("{ready}"),
        Ok(_) => "ok".to_owned(),
        Err(Failure { code, message }) => {
            // pitstop's client distinguishes these failures by the text.
            let state = message
                .find("container is in CONTAINER_")
                .map(|at| message[at..].split(' ').take(4).collect::<Vec<_>>().join(" "));
            match (code, state) {
                (Code::Unavailable, _) => "cut or refused".to_owned(),
                (code, Some(state)) => format!("{code:?} ({state})"),
                (code, None) => format!("{code:?}"),
            }
        }
    }
}

/// Whether a stop took its whole grace.
fn class(ms: u64, grace_s: i64) -> &'static str {
    let grace = u64::try_from(grace_s).unwrap_or(0) * 1000;
    if grace > 0 && ms >= grace { "after the grace" } else { "before the grace" }
}
