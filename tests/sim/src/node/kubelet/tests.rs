//! Each documented behaviour of the kubelet, on a whole node.

mod ends;
mod images;
mod sizes;
mod starts;
mod statuses;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::node::runtime::{self, Container, Flavor};
use crate::node::{Node, runtime::DeedKind};

/// 2023-11-14T22:13:20Z.
const EPOCH: i64 = 1_700_000_000_000;

/// A node and the Pods of its API server.
struct Bench {
    node: Node,
    now: u64,
    skew: i64,
    pods: BTreeMap<String, Value>,
    /// Status writes, with their times.
    writes: Vec<(u64, StatusWrite)>,
    /// Whether the API server accepts writes.
    up: bool,
    mirrors: u32,
}

impl Bench {
    fn new() -> Self {
        Self::with(Options::default(), 1)
    }

    fn with(options: Options, seed: u64) -> Self {
        let node = Node::new("node1", runtime::Options::of(Flavor::Containerd16), options, seed);
        Self { node, now: 0, skew: 0, pods: BTreeMap::new(), writes: Vec::new(), up: true, mirrors: 0 }
    }

    /// Creates or changes a Pod.
    fn put(&mut self, pod: Value) {
        self.node.kubelet.pod_changed(self.now, &pod, &mut self.node.runtime);
        self.pods.insert(pod["metadata"]["uid"].as_str().unwrap().to_owned(), pod);
    }

    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut pod = self.pod().clone();
        change(&mut pod);
        pod["metadata"]["generation"] = json!(pod["metadata"]["generation"].as_i64().unwrap() + 1);
        self.put(pod);
    }

    fn pod(&self) -> &Value {
        &self.pods["u"]
    }

    fn status(&self, container: &str) -> ContainerStatus {
        let status = &self.pod()["status"];
        let lists = ["containerStatuses", "initContainerStatuses"].map(|l| status[l].as_array().cloned());
        let all = lists.into_iter().flatten().flatten();
        let mut all = all.map(|v| serde_json::from_value::<ContainerStatus>(v).unwrap());
        all.find(|s| s.name == container).unwrap_or_default()
    }

    fn condition(&self, type_: &str) -> Value {
        let conditions = self.pod()["status"]["conditions"].as_array();
        conditions.into_iter().flatten().find(|c| c["type"] == type_).cloned().unwrap_or_default()
    }

    fn ready(&self) -> bool {
        self.condition("Ready")["status"] == "True"
    }

    fn phase(&self) -> &str {
        self.pod()["status"]["phase"].as_str().unwrap_or_default()
    }

    /// The running container of that name.
    fn running(&self, name: &str) -> Option<&Container> {
        self.node.runtime.containers().values().find(|c| c.info.name == name && c.alive(self.now))
    }

    fn id(&self, name: &str) -> String {
        self.running(name).unwrap().info.id.clone()
    }

    fn kubelet_dies(&mut self) {
        self.node.kubelet.down(&mut self.node.runtime);
    }

    fn kubelet_starts(&mut self) {
        let pods: Vec<_> = self.pods.values().cloned().map(Arc::new).collect();
        self.node.kubelet.start(self.now, &pods);
    }

    /// Lets milliseconds pass.
    fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        self.until_time(end, |_| false);
        self.now = end;
        self.turn();
    }

    /// Lets time pass until `holds`, at most `limit_ms`. Returns how long it took.
    fn until(&mut self, limit_ms: u64, holds: impl Fn(&Self) -> bool) -> u64 {
        let begin = self.now;
        assert!(
            self.until_time(begin + limit_ms, holds),
            "not within {limit_ms} ms; {:#}",
            self.pods.get("u").unwrap_or(&Value::Null)["status"]
        );
        self.now - begin
    }

    fn until_time(&mut self, end: u64, holds: impl Fn(&Self) -> bool) -> bool {
        let mut turns = 0;
        loop {
            self.turn();
            turns += 1;
            assert!(turns < 100_000, "the node spins");
            if holds(self) {
                return true;
            }
            match self.node.wake_at() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => return false,
            }
        }
    }

    fn turn(&mut self) {
        let wall = EPOCH + self.now.cast_signed() + self.skew;
        for write in self.node.advance(self.now, wall).writes {
            self.store(write);
        }
    }

    fn store(&mut self, write: Write) {
        match write {
            Write::Status(write) => {
                let uid = write.uid.clone();
                let pod = self.pods.get_mut(&uid).filter(|_| self.up);
                let stored = pod.is_some();
                if let Some(pod) = pod {
                    let merged = write.merged(&pod["status"]);
                    pod["status"] = merged;
                    let pod = pod.clone();
                    self.node.kubelet.pod_changed(self.now, &pod, &mut self.node.runtime);
                    self.writes.push((self.now, write));
                }
                self.node.kubelet.written(self.now, &uid, stored);
            }
            Write::Delete { uid, .. } => {
                if self.up && self.pods.remove(&uid).is_some() {
                    self.node.kubelet.pod_gone(self.now, &uid);
                }
            }
            Write::CreateMirror(mut pod) => {
                self.mirrors += 1;
                pod["metadata"]["uid"] = json!(format!("mirror-{}", self.mirrors));
                self.put(pod);
            }
        }
    }
}

/// A Pod with these containers (name and behaviour).
fn pod(containers: &[(&str, &str)]) -> Value {
    let list: Vec<Value> =
        containers.iter().map(|(n, _)| json!({"name": n, "image": format!("{n}:1")})).collect();
    let behaviours: serde_json::Map<_, _> =
        containers.iter().map(|(n, b)| (format!("sim.pitstop.dev/{n}"), json!(b))).collect();
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 1, "annotations": behaviours},
        "spec": {"containers": list, "nodeName": "node1", "terminationGracePeriodSeconds": 30, "restartPolicy": "Always"},
    })
}

fn app(behaviour: &str) -> Value {
    pod(&[("app", behaviour)])
}
