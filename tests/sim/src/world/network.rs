//! Between processes and the API server: latencies, losses, watches.

use std::sync::Arc;

use http::HeaderValue;
use pitstop_api::logic::answer::{Answer, Class, Failure};
use pitstop_controller_core::wire::HttpRequest;
use serde_json::Value;

use super::controller::{Input, answer};
use super::effect::Sent;
use super::processes::{Kind, Pid, Role};
use super::webhook::FROM;
use super::{Happening, World, objects};
use crate::node::kubelet;
use crate::oracle::Writer;

impl World {
    /// Latency of a message, in milliseconds.
    pub(super) fn latency(&mut self) -> u64 {
        let slow = if self.now < self.trouble.slow_until { self.rng.below(5000) } else { 0 };
        let rare = if self.rng.one_in(40) { self.rng.below(300) } else { 0 };
        1 + self.rng.below(4) + rare + slow
    }

    pub(super) fn send(&mut self, from: Pid, sent: Sent, effect: Option<usize>) {
        let mut request = sent.request;
        if !sent.election {
            // A waiting rollout reads its workload again and again, and the disruption budgets for it.
            let path = request.uri().path();
            let reads = ["/apis/apps/v1/", "/apis/policy/v1/"].iter().any(|group| path.starts_with(group));
            self.oracle.sends(self.now, !reads);
        }
        if matches!(self.processes.get(&from), Some(p) if matches!(p.role, Role::Controller(_))) {
            request.headers_mut().insert(FROM, HeaderValue::from_static("controller"));
        }
        let at = self.now + self.latency();
        let request = Box::new(request);
        self.queue.push(at, Happening::Arrive { from, token: sent.token, request, effect });
    }

    pub(super) fn arrive(&mut self, from: Pid, token: u64, request: &HttpRequest, effect: Option<usize>) {
        let lost = self.now < self.trouble.losing_until && self.rng.below(100) < self.trouble.losing_percent;
        // Half of the lost requests lose only their answer.
        let applied = !lost || self.rng.one_in(2);
        let refused = Some(self.trouble.refusing).filter(|_| self.now < self.trouble.refusing_until);
        let writer = match self.processes.get(&from).map(|p| p.role) {
            Some(Role::Daemon(at)) => Writer::Daemon(at),
            Some(Role::Controller(_)) => Writer::Controller,
            // The process has died since.
            None if request.headers().contains_key(FROM) => Writer::Controller,
            None => Writer::Daemon(usize::MAX),
        };
        let mut answered = if self.now < self.trouble.down_until {
            broken("connection refused")
        } else if let Some(code) = refused {
            Answer::Failed(Failure::of_code(code, "refused by a fault"))
        } else if applied {
            let response = self.handle(writer, request);
            answer(&response)
        } else {
            broken("connection reset")
        };
        if lost {
            self.story.note(self.now, "fault", || format!("an answer is lost, applied: {applied}"));
            answered = broken("connection reset");
        }
        let at = self.now + self.latency();
        self.queue.push(at, Happening::Answer { to: from, token, answer: answered, effect });
    }

    pub(super) fn answer(&mut self, to: Pid, token: u64, answer: Answer, effect: Option<usize>) {
        if let Some(until) = self.paused(to) {
            return self.queue.push(until, Happening::Answer { to, token, answer, effect });
        }
        let Some(process) = self.processes.get_mut(&to) else { return };
        if let Answer::Failed(failure) = &answer {
            self.story.note(self.now, &process.name, || format!("no success: {}", failure.message));
        }
        let out = match (&mut process.kind, process.role) {
            (Kind::Controller(controller), _) => controller.step(self.now, Input::Answered(token, answer)),
            (Kind::Daemon(daemon), Role::Daemon(at)) => {
                daemon.answered(self.now, token, &answer, &mut self.nodes[at].machine(daemon.record))
            }
            _ => return,
        };
        self.carry_out_known(to, out, effect);
    }

    /// The API server carries out a request, and the oracle checks what it changed.
    pub(super) fn handle(&mut self, writer: Writer, request: &HttpRequest) -> http::Response<Value> {
        let wall = self.server_wall();
        let about = if request.method() == http::Method::GET { None } else { about(request) };
        let find = |world: &Self, (kind, namespace, name): &(&str, String, String)| -> Option<Arc<Value>> {
            world.server.object(kind, namespace, name).cloned()
        };
        let before = about.as_ref().and_then(|about| find(self, about));
        let response = self.server.handle(wall, request);
        if let Some(about) = about {
            let after = find(self, &about);
            self.object_written(writer, about.0, before, after);
        }
        response
    }

    /// An object was written.
    pub(super) fn object_written(
        &mut self,
        writer: Writer,
        kind: &str,
        before: Option<Arc<Value>>,
        after: Option<Arc<Value>>,
    ) {
        if before.as_ref().map(|b| &b["metadata"]["resourceVersion"])
            == after.as_ref().map(|a| &a["metadata"]["resourceVersion"])
        {
            return;
        }
        self.oracle.wrote(self.now, writer, kind, before.as_deref(), after.as_deref(), &self.server);
        self.notify_natives(kind, before.as_ref(), after.as_ref());
        if (kind == "InPlaceRollout" && after.is_none())
            || (["ContainerRecreateRequest", "PodImageUpdate"].contains(&kind) && before.is_none())
        {
            self.plan_collection();
        }
        if kind == "Pod" {
            self.plan_count();
        }
        if kind == "Pod" && after.is_none() {
            let name = before.as_ref().and_then(|b| b["metadata"]["name"].as_str()).unwrap_or_default();
            let made_anew = |at: &usize| self.schedule.pods[*at].controlled && !self.schedule.parks();
            let plan = self.schedule.pod_at(name).filter(made_anew);
            if let Some(at) = plan.filter(|at| !self.nodes[self.schedule.pods[*at].node].removed) {
                self.queue.push(self.now + 800, Happening::Replace(at));
            }
        }
    }

    /// Number of processes that believe that they lead.
    pub(super) fn leaders(&self) -> usize {
        self.processes.values().filter(|p| matches!(&p.kind, Kind::Controller(c) if c.leads())).count()
    }

    /// A direct change by the world's own models.
    pub(super) fn change(
        &mut self,
        writer: Writer,
        kind: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> bool {
        let before = self.server.object(kind, namespace, name).cloned();
        let found = self.server.update(kind, namespace, name, change);
        let after = self.server.object(kind, namespace, name).cloned();
        self.object_written(writer, kind, before, after);
        found
    }

    /// A direct removal.
    pub(super) fn remove(&mut self, kind: &str, namespace: &str, name: &str) {
        let before = self.server.object(kind, namespace, name).cloned();
        self.server.remove(kind, namespace, name);
        self.object_written(Writer::Other, kind, before, None);
    }

    pub(super) fn kubelet_writes(&mut self, at: usize, write: kubelet::Write) {
        let down = self.now < self.trouble.down_until;
        match write {
            kubelet::Write::Status(status) => {
                let same = |object: &Value| object["metadata"]["uid"] == *status.uid;
                let there =
                    self.server.object("Pod", &status.namespace, &status.name).is_some_and(|o| same(o));
                let stored = there && !down;
                if stored {
                    self.change(Writer::Kubelet, "Pod", &status.namespace, &status.name, |pod| {
                        pod["status"] = status.merged(&pod["status"]);
                    });
                }
                let later = self.now + self.latency();
                self.queue.push(later, Happening::Published(at, status.uid, stored));
            }
            kubelet::Write::Delete { name, uid, .. } if !down => {
                let request = objects::delete(&objects::pod_path(&name), Some(0), Some(&uid));
                self.handle(Writer::Kubelet, &request);
            }
            kubelet::Write::CreateMirror(pod) if !down => {
                let wall = self.server_wall();
                self.server.insert(wall, "Pod", pod);
            }
            kubelet::Write::Delete { .. } | kubelet::Write::CreateMirror(_) => {}
        }
    }

    /// Plans deliveries of waiting events, and connections of watches without one.
    pub(super) fn plan_watches(&mut self) {
        let mut planned = Vec::new();
        for (pid, process) in &mut self.processes {
            for (at, watcher) in process.watchers().iter_mut().enumerate() {
                if !watcher.planned && (!watcher.connected() || watcher.ready(&self.server)) {
                    watcher.planned = true;
                    let wait = if watcher.connected() { 0 } else { watcher.backoff() };
                    planned.push((wait, watcher.held_until, Happening::Watch(*pid, at)));
                }
            }
        }
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let watcher = &mut node.pods;
            if !watcher.planned && !node.removed && (!watcher.connected() || watcher.ready(&self.server)) {
                watcher.planned = true;
                let wait = if watcher.connected() { 0 } else { watcher.backoff() / 4 };
                planned.push((wait, watcher.held_until, Happening::Pods(at)));
            }
        }
        for (wait, held_until, happening) in planned {
            let wait = if wait == 0 { self.latency() } else { wait / 2 + self.rng.below(wait) };
            self.queue.push((self.now + wait).max(held_until), happening);
        }
    }

    pub(super) fn watch(&mut self, pid: Pid, kind: usize) {
        if let Some(until) = self.paused(pid) {
            return self.queue.push(until, Happening::Watch(pid, kind));
        }
        let wall = self.server_wall();
        let down = self.now < self.trouble.down_until;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let watcher = &mut process.watchers()[kind];
        watcher.planned = false;
        if !watcher.connected() {
            if !down {
                watcher.connect(&mut self.server, wall);
            }
            return;
        }
        if down {
            return;
        }
        for event in watcher.deliver(&self.server) {
            let Some(process) = self.processes.get_mut(&pid) else { return };
            let out = match (&mut process.kind, process.role) {
                (Kind::Controller(controller), _) => controller.step(self.now, Input::Delivered(kind, event)),
                (Kind::Daemon(daemon), Role::Daemon(at)) => {
                    daemon.delivered(self.now, event, &mut self.nodes[at].machine(daemon.record))
                }
                _ => return,
            };
            self.carry_out(pid, out);
        }
    }

    pub(super) fn watch_pods(&mut self, at: usize) {
        let wall = self.server_wall();
        let down = self.now < self.trouble.down_until;
        let node = &mut self.nodes[at];
        node.pods.planned = false;
        if node.removed || node.kubelet_down {
            return;
        }
        if !node.pods.connected() {
            if !down {
                node.pods.connect(&mut self.server, wall);
            }
            return;
        }
        if down {
            return;
        }
        for event in node.pods.deliver(&self.server) {
            node.pods_changed(self.now, event);
        }
        self.after_node(at);
    }
}

fn broken(message: &str) -> Answer {
    Answer::Failed(Failure { gone: false, class: Class::Retry, message: message.to_owned() })
}

/// Kind, namespace and name of the object that a request writes.
fn about(request: &HttpRequest) -> Option<(&'static str, String, String)> {
    let parts: Vec<&str> = request.uri().path().split('/').collect();
    let (at, kind) = parts.iter().enumerate().find_map(|(at, part)| {
        let kind = match *part {
            "pods" => "Pod",
            "nodeworks" => "NodeWork",
            "containerrecreaterequests" => "ContainerRecreateRequest",
            "podresizes" => "PodResize",
            "podimageupdates" => "PodImageUpdate",
            "inplacerollouts" => "InPlaceRollout",
            "deployments" => "Deployment",
            "statefulsets" => "StatefulSet",
            "daemonsets" => "DaemonSet",
            "replicasets" => "ReplicaSet",
            _ => return None,
        };
        Some((at, kind))
    })?;
    let namespaced = parts.iter().position(|p| *p == "namespaces").and_then(|at| parts.get(at + 1));
    let namespace = namespaced.map(|n| (*n).to_owned()).unwrap_or_default();
    let name = match parts.get(at + 1) {
        Some(name) => (*name).to_owned(),
        None => {
            let body: Value = serde_json::from_slice(request.body()).ok()?;
            body["metadata"]["name"].as_str()?.to_owned()
        }
    };
    Some((kind, namespace, name))
}
