//! A pass over a Pod: `SyncPod`, `SyncTerminatingPod` and `SyncTerminatedPod` of `pkg/kubelet/kubelet.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use pitstop_api::quantity::Resources;

use super::Requeue;
use super::kill::Kill;
use super::pod::PodContainer;
use super::view::View;
use super::worker::{Cx, Doing, Life, Pass, Step, Worker};
use crate::node::image::{Image, Quality};
use crate::node::runtime::{
    Answer, Call, CallId, Client, ContainerConfig, Reply, SandboxConfig, State, gone,
};
use crate::node::{cgroups, keys};

impl Worker {
    /// Continues as far as possible.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>) {
        self.probe(cx);
        loop {
            let Some(mut pass) = self.pass.take() else {
                if self.sync_at.is_some_and(|at| at <= cx.now) {
                    self.sync(cx);
                    if self.pass.is_some() {
                        continue;
                    }
                }
                return;
            };
            if let Some(Doing::Kills(kills)) = &mut pass.doing {
                let first = kills.iter().any(|k| !k.sidecar() && !k.done());
                for kill in kills.iter_mut() {
                    kill.advance(cx.now, first, cx.runtime);
                }
                if kills.iter().all(Kill::done) {
                    if kills.iter().any(Kill::failed) {
                        // Start nothing if a container could not be ended.
                        pass.failed = true;
                        pass.steps.clear();
                    }
                    pass.doing = None;
                }
            }
            if let Some(Doing::Resize { names, at }) = &pass.doing
                && *at <= cx.now
            {
                let names = names.clone();
                pass.doing = None;
                self.write_sizes(cx, &mut pass, &names);
            }
            if pass.doing.is_none() {
                let Some(step) = pass.steps.pop_front() else {
                    self.finish(cx, &pass);
                    continue;
                };
                self.take(cx, &mut pass, step);
            }
            let waits = pass.doing.is_some();
            self.pass = Some(pass);
            if waits && !self.can_go_on() {
                return;
            }
        }
    }

    /// Whether the pass can continue at once: all its kills are done.
    fn can_go_on(&self) -> bool {
        match self.pass.as_ref().and_then(|p| p.doing.as_ref()) {
            Some(Doing::Kills(kills)) => kills.iter().all(Kill::done),
            _ => false,
        }
    }

    /// Begins a pass.
    fn sync(&mut self, cx: &mut Cx<'_>) {
        self.sync_at = None;
        if !cx.looked || !cx.runtime.answers(cx.now) {
            // "Skipping pod synchronization", until the runtime answers and the kubelet has seen its
            // containers.
            self.sync_at = Some(cx.now + 1000);
            return;
        }
        if self.life == Life::Terminated {
            return;
        }
        self.synced = self.pod.generation;
        let over = self.renew_status(cx);
        if over && self.life == Life::Living {
            self.life = Life::Terminating(self.pod.grace);
        }
        let steps = match self.life {
            Life::Living => self.plan(cx.sizes),
            _ => self.plan_kill(),
        };
        let ends = self.life != Life::Living;
        if ends || !steps.is_empty() {
            self.pass = Some(Pass { steps: steps.into(), ..Pass::default() });
        }
    }

    fn take(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, step: Step) {
        let call = |cx: &mut Cx<'_>, call| cx.runtime.call(cx.now, Client::KUBELET, call);
        match step {
            Step::Kill(ids) => {
                self.size_with(cx, &ids);
                let grace = match self.life {
                    Life::Terminating(grace) => grace,
                    _ => self.pod.grace,
                };
                let mut begin = |id: String| {
                    let name =
                        self.view.containers.iter().find(|c| c.info.id == id).map(|c| c.info.name.clone());
                    let spec = name.and_then(|name| self.pod.container(&name));
                    Kill::begin(cx.now, id, spec, grace, cx.runtime)
                };
                let mut kills: Vec<Kill> = ids.into_iter().map(&mut begin).collect();
                let first = kills.iter().any(|k| !k.sidecar());
                for kill in &mut kills {
                    kill.advance(cx.now, first, cx.runtime);
                }
                pass.did = true;
                pass.doing = Some(Doing::Kills(kills));
            }
            Step::StopSandbox(id) => {
                pass.doing = Some(Doing::StopSandbox(call(cx, Call::StopPodSandbox { id })));
            }
            Step::RunSandbox(attempt) => {
                let labels = Arc::new(self.labels(None));
                let config = SandboxConfig {
                    name: self.pod.name.clone(),
                    namespace: self.pod.namespace.clone(),
                    uid: self.pod.uid.clone(),
                    attempt,
                    labels,
                };
                pass.doing = Some(Doing::RunSandbox(call(cx, Call::RunPodSandbox(config))));
            }
            Step::Start(name) => self.start(cx, pass, name),
            Step::Make(name) => self.make(cx, pass, name),
            Step::Resize(names) => {
                let at = cx.now + 20 + cx.rng.below(300);
                pass.doing = Some(Doing::Resize { names, at });
            }
        }
    }

    /// Makes a container, unless it has to wait.
    fn start(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, name: String) {
        let Some(spec) = self.pod.container(&name) else { return };
        let (initial, max) = cx.options.backoff_ms;
        let ended = self.view.of_name(&name).find(|c| c.info.state == State::Exited);
        if let Some(at) = ended.map(|c| c.ended.unwrap_or(cx.now)) {
            let key = (self.pod.uid.clone(), name.clone(), spec.backoff_key());
            if let Some((until, wait)) = cx.backoff.until(cx.now, &key, at, max) {
                let pod = format!("{}_{}({})", self.pod.name, self.pod.namespace, self.pod.uid);
                let wait = human(wait);
                let message = format!("back-off {wait} restarting failed container={name} pod={pod}");
                self.reasons.insert(name, ("CrashLoopBackOff".to_owned(), message));
                pass.failed = true;
                pass.until = Some(pass.until.map_or(until, |u| u.min(until)));
                return;
            }
            cx.backoff.started(cx.now, key, at, initial, max);
        }
        let spec = spec.clone();
        if self.has_image(cx, pass, &spec) {
            self.make(cx, pass, name);
        }
    }

    /// Makes a container whose image is present.
    fn make(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, name: String) {
        let Some(spec) = self.pod.container(&name) else { return };
        let sandbox = pass.sandbox.clone().or_else(|| self.view.sandbox().map(|s| s.id.clone()));
        let Some(sandbox) = sandbox else {
            pass.failed = true;
            return;
        };
        let log = (self.pod.uid.clone(), name.clone());
        let before = self.view.newest(&name).map(|c| c.info.attempt).max(cx.logs.get(&log).copied());
        let attempt = before.map_or(0, |a| a + 1);
        let size = cx.sizes.allocated(&self.pod.uid, spec);
        self.make_pod(cx);
        if !cx.sizes.cgroups.may_start(cx.now, &self.pod.uid, size.cpu_limit.map(cgroups::quota)) {
            let message = "failed to write cpu.cfs_quota_us: invalid argument".to_owned();
            self.reasons.insert(name, ("RunContainerError".to_owned(), message));
            pass.failed = true;
            return;
        }
        let quality = cx.runtime.image(&spec.image).map_or(Quality::Good, Image::quality);
        let (mut annotations, mut process) =
            (self.annotations(spec, attempt, &size), spec.process(attempt, &size));
        quality.apply(&mut process);
        if quality == Quality::Unready {
            annotations.insert(keys::UNREADY.to_owned(), String::new());
        }
        let config = ContainerConfig {
            name: name.clone(),
            attempt,
            image: spec.image.clone(),
            labels: Arc::new(self.labels(Some(&name))),
            annotations: Arc::new(annotations),
            process,
        };
        let call = cx.runtime.call(cx.now, Client::KUBELET, Call::CreateContainer { sandbox, config });
        pass.doing = Some(Doing::Create { call, name, attempt });
    }

    fn labels(&self, container: Option<&str>) -> BTreeMap<String, String> {
        let pod = &self.pod;
        let mut labels = BTreeMap::from([
            (keys::POD_NAME.to_owned(), pod.name.clone()),
            (keys::POD_NAMESPACE.to_owned(), pod.namespace.clone()),
            (keys::POD_UID.to_owned(), pod.uid.clone()),
        ]);
        if let Some(name) = container {
            labels.insert(keys::CONTAINER_NAME.to_owned(), name.to_owned());
        }
        labels
    }

    fn annotations(&self, spec: &PodContainer, attempt: u32, size: &Resources) -> BTreeMap<String, String> {
        let mut all = BTreeMap::from([
            (keys::HASH.to_owned(), spec.hash()),
            (keys::RESTART_COUNT.to_owned(), attempt.to_string()),
            (keys::TERMINATION_GRACE_PERIOD.to_owned(), self.pod.grace.to_string()),
        ]);
        if *size != Resources::default() {
            all.insert(keys::SIZE.to_owned(), cgroups::text(size));
        }
        if let Some(hook) = &spec.pre_stop {
            all.insert(keys::PRE_STOP_HANDLER.to_owned(), hook.to_string());
        }
        if let Some(ports) = &spec.ports {
            all.insert(keys::PORTS.to_owned(), ports.to_string());
        }
        all
    }

    /// Takes a reply; returns whether its call was this Pod's.
    pub(super) fn reply(&mut self, cx: &mut Cx<'_>, call: CallId, reply: &Reply) -> bool {
        let Some(mut pulling) = self.pass.take() else { return false };
        let pulled = self.pulled(cx, &mut pulling, call, reply);
        let pass = self.pass.insert(pulling);
        if pulled {
            return true;
        }
        let failed = |reply: &Reply| reply.as_ref().err().map(|f| f.message.clone());
        match pass.doing.take() {
            Some(Doing::Kills(mut kills)) => {
                let own = kills.iter_mut().any(|k| k.reply(call, reply));
                pass.doing = Some(Doing::Kills(kills));
                return own;
            }
            Some(Doing::StopSandbox(own)) if own == call => {
                pass.did = true;
                if reply.is_err() && !gone(reply) {
                    pass.failed = true;
                    pass.steps.clear();
                }
            }
            Some(Doing::RunSandbox(own)) if own == call => {
                if let Ok(Answer::Created(id)) = reply {
                    pass.did = true;
                    pass.sandbox = Some(id.clone());
                } else {
                    pass.failed = true;
                    pass.steps.clear();
                }
            }
            Some(Doing::Create { call: own, name, attempt }) if own == call => {
                if let Ok(Answer::Created(id)) = reply {
                    cx.logs.insert((self.pod.uid.clone(), name.clone()), attempt);
                    let start = Call::StartContainer { id: id.clone() };
                    let call = cx.runtime.call(cx.now, Client::KUBELET, start);
                    pass.doing = Some(Doing::Start { call, name });
                } else {
                    let message = failed(reply).unwrap_or_default();
                    self.reasons.insert(name, ("CreateContainerError".to_owned(), message));
                    pass.failed = true;
                }
            }
            Some(Doing::Start { call: own, name }) if own == call => {
                if let Some(message) = failed(reply) {
                    self.reasons.insert(name, ("RunContainerError".to_owned(), message));
                    pass.failed = true;
                } else {
                    pass.did = true;
                    self.reasons.remove(&name);
                }
            }
            other => {
                pass.doing = other;
                return false;
            }
        }
        true
    }

    /// Ends a pass.
    fn finish(&mut self, cx: &mut Cx<'_>, pass: &Pass) {
        let answers = cx.runtime.answers(cx.now);
        if self.life != Life::Living {
            if answers {
                self.look(cx);
            }
            if answers && self.view.alive().next().is_none() {
                self.life = Life::Terminated;
                self.sync_at = None;
                self.renew_status(cx);
                if self.pod.deleting.is_some() && !self.gone && self.stored == self.status {
                    self.delete_at = Some(cx.now);
                }
            } else {
                let wait = cx.jitter(super::ROUND_MS);
                self.sync_at = Some(self.sync_at.map_or(cx.now + wait, |at| at.min(cx.now + wait)));
            }
            return;
        }
        if pass.failed {
            let wait = match pass.until.filter(|_| cx.options.requeue == Requeue::AtExpiry) {
                Some(until) => until.saturating_sub(cx.now).min(super::RESYNC_MS),
                None => super::ROUND_MS,
            };
            let at = cx.now + cx.jitter(wait);
            self.sync_at = Some(self.sync_at.map_or(at, |due| due.min(at)));
        } else if pass.did && answers {
            // The kubelet looks at once after its own actions.
            self.look(cx);
        }
        self.collect(cx);
    }

    /// Reads the Pod from the runtime; a change leads to a pass.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>) {
        let view = View::of(&self.pod.uid, cx.now, cx.runtime);
        if view == self.view {
            return;
        }
        self.view = view;
        self.sync_at = Some(cx.now);
        let running = self.view.containers.iter().filter(|c| c.info.state == State::Running);
        for container in running {
            let id = &container.info.id;
            let spec = self.pod.container(&container.info.name);
            let ms = spec.and_then(|s| s.ready_after(&container.info));
            let Some(ms) = ms.filter(|ms| *ms > 0) else { continue };
            if !self.ready.contains_key(id) {
                self.ready.insert(id.clone(), false);
                self.probes.push((cx.now + ms, id.clone()));
            }
        }
    }

    /// Passes the readiness probes that are due.
    fn probe(&mut self, cx: &mut Cx<'_>) {
        if self.probes.is_empty() {
            return;
        }
        let due: Vec<_> = self.probes.extract_if(.., |p| p.0 <= cx.now).collect();
        let any = !due.is_empty();
        for (_, id) in due {
            self.ready.insert(id, true);
        }
        if any && self.status.is_some() {
            self.renew_status(cx);
        }
    }

    /// Once a minute, removes each container's ended instances except the last.
    fn collect(&mut self, cx: &mut Cx<'_>) {
        if cx.now < self.collected_at + super::COLLECT_MS {
            return;
        }
        self.collected_at = cx.now;
        let names: Vec<String> = self.pod.containers.iter().map(|c| c.name.clone()).collect();
        for name in names {
            let ended = self.view.of_name(&name).filter(|c| c.info.state == State::Exited);
            let old: Vec<String> = ended.skip(1).map(|c| c.info.id.clone()).collect();
            for id in old {
                self.ready.remove(&id);
                cx.runtime.call(cx.now, Client::KUBELET, Call::RemoveContainer { id });
            }
        }
    }
}

/// A duration as Go prints it.
fn human(ms: u64) -> String {
    let seconds = ms / 1000;
    match (seconds / 60, seconds % 60) {
        (0, s) => format!("{s}s"),
        (m, s) => format!("{m}m{s}s"),
    }
}
