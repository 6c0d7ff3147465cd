//! Many nodes as one pure machine, each with the production core of the daemon, and a model of a runtime and a kubelet.
//!
//! A stopped container ends a moment later, or after its grace period if it ignores the signal. The kubelet notices the
//! end, reports it in the Pod's status, starts the next instance and reports that too. `images` models images.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pitstop_api::logic::machine::{Machine, Now};
use pitstop_api::logic::time::{Mono, seconds};
use pitstop_api::logic::watch::Part;
use pitstop_api::nodework::{NodeWorkStatus, RuntimeInfo};
use pitstop_daemon_core::{
    Action as Output, Book, CallFailure, ContainerState, Daemon, Event as Input, Facts, Identity, Outcome,
    Watch,
};
use serde_json::Value;

use super::images::Spec;
use super::pod::{Container, Pod};

/// Time from the stop signal to the end of a container that handles it.
pub(crate) const STOP: Duration = Duration::from_millis(20);
/// Time from the end of a container until the kubelet notices it.
pub(super) const NOTICE: Duration = Duration::from_millis(20);
/// Time from that notice to the next instance.
const START: Duration = Duration::from_millis(20);
/// Delay after a failed write of a Pod's status.
const AGAIN: Duration = Duration::from_secs(1);

/// What happens to the nodes.
pub(crate) enum Event {
    /// A book changed, with the name of its node.
    Books(Watch<(String, Book)>),
    /// The write of a book returned.
    BookWritten(String, Outcome),
    /// The write of a Pod's status returned: index of the Pod, success.
    PodWritten(usize, bool),
    /// The spec of a Pod changed.
    Specs(Watch<Spec>),
    /// Time passed.
    Tick,
}

/// What the nodes do.
pub(crate) enum Action {
    /// Replace the status of a node's book.
    WriteBook { node: String, resource_version: String, status: Box<NodeWorkStatus> },
    /// Patch the status of a Pod.
    WritePod { pod: usize, namespace: String, name: String, patch: Value },
}

/// A scheduled event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Daemon(String),
    Pulled(String, String),
    Ends(usize, usize, u32),
    Noticed(usize, usize),
    Starts(usize, usize),
    Write(usize),
}

/// A node.
struct Node {
    daemon: Daemon,
    wake: Option<Mono>,
}

/// State of writing a Pod's status.
#[derive(Default)]
struct Writing {
    under_way: bool,
    again: bool,
}

/// All nodes.
#[derive(Default)]
pub(crate) struct Player {
    nodes: BTreeMap<String, Node>,
    /// Nodes that the current list has not named yet.
    unlisted: BTreeSet<String>,
    pub(super) pods: Vec<Pod>,
    /// Index of a Pod by namespace and name.
    pub(super) names: BTreeMap<(String, String), usize>,
    /// Indexes of Pod and container by the ID of an instance that the runtime knows.
    pub(super) ids: BTreeMap<String, (usize, usize)>,
    /// Pulled images, by node.
    pub(super) pulled: BTreeSet<(String, String)>,
    /// Stops that wait for the end of a container: node and order.
    stops: BTreeMap<(usize, usize), Vec<(String, String)>>,
    writing: BTreeMap<usize, Writing>,
    pub(super) due: BTreeSet<(Mono, Due)>,
}

impl Player {
    /// Nodes with these Pods, all running.
    pub(crate) fn new(pods: Vec<Pod>) -> Self {
        let (mut ids, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (i, pod) in pods.iter().enumerate() {
            names.insert((pod.namespace.clone(), pod.name.clone()), i);
            ids.extend(pod.containers.iter().enumerate().map(|(j, c)| (c.id.clone(), (i, j))));
        }
        Self { pods, names, ids, ..Self::default() }
    }

    fn books(&mut self, now: Now, watch: Watch<(String, Book)>, out: &mut Vec<Action>) {
        match watch {
            Watch::Upsert((node, book)) => self.deliver(now, &node, Input::Book(Watch::Upsert(book)), out),
            Watch::Gone((node, book)) => self.deliver(now, &node, Input::Book(Watch::Gone(book)), out),
            Watch::Listed(Part { objects, first, last }) => {
                if first {
                    self.unlisted = self.nodes.keys().cloned().collect();
                }
                for (node, book) in objects {
                    self.unlisted.remove(&node);
                    self.deliver(now, &node, Input::Book(Watch::list(vec![book])), out);
                }
                for node in last.then(|| std::mem::take(&mut self.unlisted)).into_iter().flatten() {
                    self.deliver(now, &node, Input::Book(Watch::list(Vec::new())), out);
                }
            }
        }
    }

    /// Delivers an input to a node's daemon, and carries out its outputs on the runtime.
    fn deliver(&mut self, now: Now, node: &str, input: Input, out: &mut Vec<Action>) {
        let mut inputs = VecDeque::from([input]);
        if !self.nodes.contains_key(node) {
            self.nodes.insert(node.to_owned(), Node { daemon: daemon(node), wake: None });
            let info = RuntimeInfo { name: "played".to_owned(), version: "1".to_owned() };
            inputs.push_front(Input::Runtime(info));
        }
        while let Some(input) = inputs.pop_front() {
            let Some(played) = self.nodes.get_mut(node) else { return };
            for output in played.daemon.step(now.mono, input) {
                self.carry_out(now, node, output, &mut inputs, out);
            }
        }
        let Some(played) = self.nodes.get_mut(node) else { return };
        let wake = played.daemon.wake_at();
        let before = std::mem::replace(&mut played.wake, wake);
        if wake != before {
            if let Some(before) = before {
                self.due.remove(&(before, Due::Daemon(node.to_owned())));
            }
            self.due.extend(wake.map(|at| (at, Due::Daemon(node.to_owned()))));
        }
    }

    fn carry_out(
        &mut self,
        now: Now,
        node: &str,
        output: Output,
        inputs: &mut VecDeque<Input>,
        out: &mut Vec<Action>,
    ) {
        let never = || CallFailure { retry: false, message: "this is not played".to_owned() };
        match output {
            Output::Inspect { order_id, container_id } => {
                inputs.push_back(Input::Inspected(order_id, Ok(self.facts(node, container_id.as_str()))));
            }
            Output::Stop { order_id, container_id, grace_seconds } => {
                if !self.stop(now, node, &order_id, container_id.as_str(), grace_seconds) {
                    inputs.push_back(Input::Stopped(order_id, Ok(())));
                }
            }
            Output::RunHook { order_id, .. } => inputs.push_back(Input::HookDone(order_id, Ok(()))),
            Output::ReadCgroups { order_id, .. } => {
                inputs.push_back(Input::CgroupsRead(order_id, Err(never())));
            }
            Output::ReadResources { order_id, .. } => {
                inputs.push_back(Input::ResourcesRead(order_id, Err(never())));
            }
            Output::Resize { order_id, .. } => inputs.push_back(Input::Resized(order_id, Err(never()))),
            Output::LookAtImage { order_id, container_id, image, .. } => {
                let look = self.look_at_image(node, &container_id, &image);
                inputs.push_back(Input::ImageSeen(order_id, Ok(Box::new(look))));
            }
            Output::Pull { image, .. } => self.pull(now, node, image),
            // The pull ends by itself.
            Output::CancelPull { .. } => {}
            Output::WriteBack { held } => inputs.push_back(Input::WrittenBack(held.pod.uid, Err(never()))),
            Output::WriteStatus { resource_version, status } => {
                out.push(Action::WriteBook { node: node.to_owned(), resource_version, status });
            }
        }
    }

    fn container(&self, id: &str) -> Option<(&Pod, &Container)> {
        let (pod, container) = self.ids.get(id)?;
        let pod = self.pods.get(*pod)?;
        Some((pod, pod.containers.get(*container)?))
    }

    /// The node's runtime's facts about a container.
    pub(super) fn facts(&self, node: &str, id: &str) -> Option<Facts> {
        let (pod, container) = self.container(id).filter(|(pod, _)| pod.node == node)?;
        let runs = container.id == id && container.ended.is_none();
        Some(Facts {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            pod_uid: pod.uid.clone(),
            container: container.name.clone(),
            state: if runs { ContainerState::Running } else { ContainerState::Exited },
            grace_seconds: Some(pod.grace_seconds),
            ..Facts::default()
        })
    }

    /// Starts to stop a container; false if it does not run.
    fn stop(&mut self, now: Now, node: &str, order_id: &str, id: &str, grace_seconds: i64) -> bool {
        let runs = |c: &&Container| c.id == id && c.ended.is_none();
        let Some(container) = self.container(id).map(|(_, c)| c).filter(runs) else { return false };
        let wait = if container.ignores_term { seconds(grace_seconds) } else { STOP };
        let restarts = container.restarts;
        let Some((pod, container)) = self.ids.get(id).copied() else { return false };
        self.due.insert((now.mono.after(wait), Due::Ends(pod, container, restarts)));
        let waiting = self.stops.entry((pod, container)).or_default();
        waiting.push((node.to_owned(), order_id.to_owned()));
        true
    }

    fn handle_due(&mut self, now: Now, due: Due, out: &mut Vec<Action>) {
        match due {
            Due::Daemon(node) => {
                if let Some(played) = self.nodes.get_mut(&node) {
                    played.wake = None;
                    self.deliver(now, &node, Input::Tick, out);
                }
            }
            Due::Pulled(node, image) => {
                self.has_pulled(&node, &image);
                self.deliver(now, &node, Input::Pulled(image, Ok(())), out);
            }
            Due::Ends(pod, container, restarts) => self.ends(now, (pod, container), restarts, out),
            Due::Noticed(pod, container) => {
                self.due.insert((now.mono.after(START), Due::Starts(pod, container)));
                self.write_pod(now, pod, out);
            }
            Due::Starts(pod, container) => {
                self.starts(now, pod, container);
                self.write_pod(now, pod, out);
            }
            Due::Write(pod) => self.write_pod(now, pod, out),
        }
    }

    fn ends(&mut self, now: Now, at: (usize, usize), restarts: u32, out: &mut Vec<Action>) {
        let (pod, container) = at;
        let found = self.pods.get_mut(pod).and_then(|p| p.containers.get_mut(container));
        let Some(instance) = found.filter(|c| c.restarts == restarts && c.ended.is_none()) else { return };
        instance.ended = Some(now.wall);
        self.due.insert((now.mono.after(NOTICE), Due::Noticed(pod, container)));
        for (node, order_id) in self.stops.remove(&at).unwrap_or_default() {
            self.deliver(now, &node, Input::Stopped(order_id, Ok(())), out);
        }
    }

    fn starts(&mut self, now: Now, at: usize, container: usize) {
        let Some(pod) = self.pods.get_mut(at) else { return };
        let Some(instance) = pod.containers.get_mut(container) else { return };
        // The kubelet keeps one ended instance.
        self.ids.remove(&instance.before);
        instance.restart(&pod.uid, now.wall);
        self.ids.insert(instance.id.clone(), (at, container));
    }

    /// Writes the Pod's current status, one write at a time.
    fn write_pod(&mut self, now: Now, at: usize, out: &mut Vec<Action>) {
        let Some(pod) = self.pods.get(at) else { return };
        let writing = self.writing.entry(at).or_default();
        if std::mem::replace(&mut writing.under_way, true) {
            writing.again = true;
            return;
        }
        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
        out.push(Action::WritePod { pod: at, namespace, name, patch: pod.status(now.wall, "") });
    }

    fn pod_written(&mut self, now: Now, at: usize, ok: bool, out: &mut Vec<Action>) {
        let Some(writing) = self.writing.remove(&at) else { return };
        if !ok {
            self.due.insert((now.mono.after(AGAIN), Due::Write(at)));
        } else if writing.again {
            self.write_pod(now, at, out);
        }
    }
}

/// A daemon process on that node, with its own boot ID although all share one boot.
fn daemon(node: &str) -> Daemon {
    Daemon::new(Identity { instance: "played-1".to_owned(), boot_id: format!("{node:.64}") })
}

impl Machine for Player {
    type Event = Event;
    type Action = Action;

    fn tick() -> Event {
        Event::Tick
    }

    fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        match event {
            Event::Books(watch) => self.books(now, watch, &mut out),
            Event::BookWritten(node, outcome) => {
                self.deliver(now, &node, Input::StatusWritten(outcome), &mut out);
            }
            Event::PodWritten(pod, ok) => self.pod_written(now, pod, ok, &mut out),
            Event::Specs(watch) => self.specs(now, watch),
            Event::Tick => {}
        }
        while self.due.first().is_some_and(|(at, _)| *at <= now.mono) {
            if let Some((_, due)) = self.due.pop_first() {
                self.handle_due(now, due, &mut out);
            }
        }
        out
    }

    fn next_wake(&self, _: Mono) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
