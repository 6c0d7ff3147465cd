//! One node: production daemons, a runtime and a kubelet.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pitstop_api::nodework::RuntimeInfo;
use pitstop_controller_core::nodework::NodeWork;
use pitstop_controller_core::pod::{Container, ContainerState, ContainerStatus, Pod};
use pitstop_controller_core::{Mono, Watch};
use pitstop_daemon_core::{
    self as daemon, Action, Book, CallFailure, Daemon, EndedHooks, Event, Facts, Identity,
};

use super::part::{Memo, Part};
use super::store::count;

/// A container in the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    pub id: String,
    pub pod: String,
    pub pod_uid: String,
    pub name: String,
    pub image: String,
    pub restarts: i32,
    pub running: bool,
    pub ready: bool,
}

/// A daemon's action in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// It is not carried out yet.
    Sent(Part<Action>),
    /// The daemon has not received the answer.
    Answered(Part<Event>),
}

/// A daemon process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub daemon: Part<Daemon>,
    pub instance: String,
    /// Undelivered changes of the book; `None` until listed.
    pub watch: Option<VecDeque<Part<NodeWork>>>,
    /// Its actions in flight, by order ID; empty for the write of the status.
    pub calls: BTreeMap<String, Call>,
    /// The newest delivered version of the book, and its order IDs.
    pub newest: (u64, BTreeSet<String>),
    /// IDs of orders whose hook it ran.
    pub hooked: BTreeSet<String>,
}

/// The state of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub instances: Vec<Instance>,
    /// Ended hooks that the daemons have recorded.
    pub ended_hooks: EndedHooks,
    /// Whether containers have a preStop hook.
    pub hook: bool,
    made: u32,
}

/// Image digest of every container.
pub const DIGEST: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

impl Process {
    /// The `life`th daemon process, in that slot.
    pub fn new(slot: usize, life: u8, now: Mono, ended: EndedHooks) -> Self {
        let instance = format!("daemon-{slot}-{life}");
        let identity = Identity { instance: instance.clone(), boot_id: "boot".into() };
        let mut daemon = Daemon::new(identity).with_ended_hooks(ended);
        let runtime = RuntimeInfo { name: "containerd".into(), version: "1".into() };
        assert!(daemon.step(now, Event::Runtime(runtime)).is_empty());
        Self {
            daemon: Part::new(daemon),
            instance,
            watch: None,
            calls: BTreeMap::new(),
            newest: (0, BTreeSet::new()),
            hooked: BTreeSet::new(),
        }
    }

    /// The next event of its watch.
    pub fn next(&mut self, stored: Option<&Part<NodeWork>>) -> Option<Part<Event>> {
        let Some(watch) = &mut self.watch else {
            self.watch = Some(VecDeque::new());
            let list = stored.map(|b| book(b)).into_iter().collect();
            return Some(Part::of(Event::Book(Watch::list(list)), ("list", stored)));
        };
        let change = watch.pop_front()?;
        Some(Part::of(Event::Book(Watch::Upsert(book(&change))), ("change", &change)))
    }

    /// Records the book in an event before its delivery.
    fn learns(&mut self, event: &Event) {
        let book = match event {
            Event::Book(Watch::Upsert(book)) | Event::StatusWritten(daemon::Outcome::Written(book)) => book,
            Event::Book(Watch::Listed(list)) if !list.objects.is_empty() => &list.objects[0],
            _ => return,
        };
        let version = count(&book.resource_version);
        if version > self.newest.0 {
            self.newest = (version, book.orders.iter().map(|o| o.id.clone()).collect());
        }
    }

    /// Handles an event; returns the actions.
    pub fn step(&mut self, now: Mono, event: &Part<Event>) -> Vec<Part<Action>> {
        thread_local! {
            static MEMO: RefCell<Memo<Daemon, Action>> = RefCell::default();
        }
        self.learns(event);
        let step = || {
            let mut daemon = (*self.daemon).clone();
            let actions = daemon.step(now, (**event).clone());
            (Part::new(daemon), actions.into_iter().map(Part::new).collect())
        };
        let (daemon, actions) =
            MEMO.with_borrow_mut(|memo| memo.step(&self.daemon, now.0, event.digest(), step));
        self.daemon = daemon;
        for action in &actions {
            let before = self.calls.insert(order_of(action), Call::Sent(action.clone()));
            assert_eq!(before, None, "two calls for one order");
        }
        actions
    }
}

/// ID of an action's order; empty for the write of the status.
fn order_of(action: &Action) -> String {
    match action {
        Action::Inspect { order_id, .. }
        | Action::RunHook { order_id, .. }
        | Action::Stop { order_id, .. }
        | Action::ReadCgroups { order_id, .. }
        | Action::ReadResources { order_id, .. }
        | Action::LookAtImage { order_id, .. }
        | Action::Pull { order_id, .. }
        | Action::Resize { order_id, .. } => order_id.clone(),
        Action::CancelPull { image } => image.clone(),
        Action::WriteBack { held } => held.pod.uid.clone(),
        Action::WriteStatus { .. } => String::new(),
    }
}

/// Short description of a call.
pub fn brief(action: &Action) -> String {
    match action {
        Action::Inspect { order_id, .. } => format!("what of order {order_id}?"),
        Action::RunHook { order_id, .. } => format!("hook of order {order_id}"),
        Action::Stop { order_id, container_id, .. } => {
            format!("stop of container ..{} for order {order_id}", &container_id.as_str()[60..])
        }
        Action::ReadCgroups { order_id, .. } | Action::ReadResources { order_id, .. } => {
            format!("cgroups for order {order_id}")
        }
        Action::Resize { order_id, .. } => format!("resources for order {order_id}"),
        Action::LookAtImage { order_id, .. } | Action::Pull { order_id, .. } => {
            format!("image for order {order_id}")
        }
        Action::CancelPull { image } => format!("no image {image}"),
        Action::WriteBack { held } => format!("what Pod {} had before", held.pod.name),
        Action::WriteStatus { resource_version, status } => {
            let answers: Vec<String> = status
                .answers
                .iter()
                .map(|a| format!("{} {:?} {:?} by {}", a.order_id, a.state, a.reason, a.acknowledged_by))
                .collect();
            format!("answers at {resource_version}: {answers:?}")
        }
    }
}

/// Short description of an answer.
pub fn answer(event: &Event) -> String {
    match event {
        Event::Inspected(id, Ok(facts)) => format!("{id}: {:?}", facts.as_ref().map(|f| f.state)),
        Event::StatusWritten(daemon::Outcome::Written(book)) => {
            format!("stored as {}", book.resource_version)
        }
        other => format!("{other:?}"),
    }
}

impl Node {
    pub fn new(hook: bool) -> Self {
        Self { instances: Vec::new(), ended_hooks: EndedHooks::new(), hook, made: 0 }
    }

    /// Starts a container.
    pub fn start(&mut self, pod: &Pod, name: &str, restarts: i32, ready: bool) {
        self.made += 1;
        self.instances.push(Instance {
            id: format!("{:064x}", self.made),
            pod: pod.key.name.clone(),
            pod_uid: pod.uid.clone(),
            name: name.to_owned(),
            image: pod.container(name).map(|c| c.image.clone()).unwrap_or_default(),
            restarts,
            running: true,
            ready,
        });
    }

    /// The last instance of every container, with its index.
    pub fn newest(&self) -> impl Iterator<Item = (usize, &Instance)> {
        self.instances.iter().enumerate().filter(|(at, i)| {
            self.instances[at + 1..].iter().all(|j| (&j.pod_uid, &j.name) != (&i.pod_uid, &i.name))
        })
    }

    /// The running container with that ID.
    pub fn running(&mut self, id: &str) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|i| i.id == id && i.running)
    }

    /// Container statuses by the kubelet. `digest`: the runtime knows the image's repository digest.
    pub fn status(&self, pod: &Pod, digest: bool) -> Vec<Container> {
        let mut containers = pod.containers.clone();
        for container in &mut containers {
            let of = |(_, i): &(usize, &Instance)| i.pod_uid == pod.uid && i.name == container.name;
            let Some((_, instance)) = self.newest().find(of) else { continue };
            container.status = Some(ContainerStatus {
                container_id: format!("containerd://{}", instance.id),
                image_id: if digest { format!("registry/app@{DIGEST}") } else { String::new() },
                restart_count: instance.restarts,
                ready: instance.ready,
                state: if instance.running {
                    ContainerState::Running
                } else {
                    ContainerState::Terminated { exit_code: 1 }
                },
                ..ContainerStatus::default()
            });
        }
        containers
    }

    /// Whether the kubelet considers the Pod ready.
    pub fn ready(&self, pod: &Pod) -> bool {
        let of = |name: &str| self.newest().find(|(_, i)| i.pod_uid == pod.uid && i.name == name);
        pod.containers.iter().all(|c| of(&c.name).is_some_and(|(_, i)| i.running && i.ready))
            && pod.gates.iter().all(|g| g.condition.as_ref().is_some_and(|c| c.open))
    }

    /// The runtime's facts about a container.
    pub fn inspect(&self, id: &str) -> Option<Facts> {
        let instance = self.instances.iter().find(|i| i.id == id)?;
        Some(Facts {
            namespace: super::NAMESPACE.into(),
            pod: instance.pod.clone(),
            pod_uid: instance.pod_uid.clone(),
            container: instance.name.clone(),
            state: if instance.running {
                daemon::ContainerState::Running
            } else {
                daemon::ContainerState::Exited
            },
            pre_stop: self.hook.then(|| r#"{"exec":{"command":["/bye"]}}"#.to_owned()),
            ports: None,
            grace_seconds: Some(30),
        })
    }
}

/// A failed call that the daemon may repeat.
pub fn failure() -> CallFailure {
    CallFailure { retry: true, message: "no answer".into() }
}

/// The book as the daemon sees it.
pub fn book(work: &NodeWork) -> Book {
    Book {
        uid: work.uid.clone(),
        resource_version: work.resource_version.clone(),
        generation: None,
        orders: work.orders.clone(),
        closed: work.closed.clone(),
        status: work.status.clone(),
    }
}

/// Short description of a watch event.
pub fn event(event: &Event) -> String {
    let brief = |book: &Book| {
        let orders: Vec<&str> = book.orders.iter().map(|o| o.id.as_str()).collect();
        format!("{} {orders:?}", book.resource_version)
    };
    match event {
        Event::Book(Watch::Upsert(book)) => brief(book),
        Event::Book(Watch::Listed(list)) => {
            format!("list: {:?}", list.objects.iter().map(brief).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}
