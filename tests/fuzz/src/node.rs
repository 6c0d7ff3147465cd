//! One node: the daemon's production decisions, an honest runtime, and a book with arbitrary content.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::id::ContainerId;
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{Answer, AnswerState, Cgroup, CgroupReading, Order, OrderPod, RuntimeInfo};
use pitstop_daemon_core::cgroup::Version;
use pitstop_daemon_core::resize::{Present, Seen, Setting, Write};
use pitstop_daemon_core::{
    Action, Book, CallFailure, ContainerState, Daemon, EndedHooks, Event, Facts, Identity, Image, Look,
    MIN_GRACE_SECONDS, NamedContainer, Outcome, PullFailure, Watch, hook,
};
use serde_json::json;

use crate::refusals;

/// Repository of the node's images.
pub(crate) const REPOSITORY: &str = "registry.example.com/web";

/// Result of a daemon's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It takes effect.
    Well,
    /// It fails without effect, and may succeed later.
    Fails,
    /// It fails for good. For a write: its precondition does not hold.
    Refused,
}

/// The node. It checks every action that the daemon requests.
pub(crate) struct Node {
    daemon: Daemon,
    process: u32,
    now: u64,
    /// Containers by their full IDs.
    pub(crate) runtime: BTreeMap<String, Facts>,
    /// The stored book.
    pub(crate) book: Book,
    version: u64,
    /// Whether every version of the book so far fits its schema.
    bounded: bool,
    pub(crate) pending: Vec<Action>,
    /// Every order that the book ever had.
    placed: BTreeSet<(String, String)>,
    orders: Vec<Order>,
    /// IDs of orders with a stored acknowledgement by the running process.
    acknowledged: BTreeSet<String>,
    ended_hooks: EndedHooks,
    /// Values of every cgroup.
    cgroup: Cgroup,
}

impl Node {
    /// A node whose daemon has just started, without a book.
    pub(crate) fn new(runtime: BTreeMap<String, Facts>) -> Self {
        let mut node = Self {
            daemon: Daemon::new(Identity::default()),
            process: 0,
            now: 100_000,
            runtime,
            book: Book { uid: "book".to_owned(), ..Book::default() },
            version: 0,
            bounded: true,
            pending: Vec::new(),
            placed: BTreeSet::new(),
            orders: Vec::new(),
            acknowledged: BTreeSet::new(),
            ended_hooks: EndedHooks::new(),
            cgroup: Cgroup::default(),
        };
        node.restart();
        node
    }

    /// Replaces the daemon process.
    pub(crate) fn restart(&mut self) {
        self.process += 1;
        let identity = Identity { instance: format!("process-{}", self.process), boot_id: "boot".to_owned() };
        self.daemon = Daemon::new(identity).with_ended_hooks(self.ended_hooks.clone()).with_resizes(true);
        self.pending.clear();
        self.acknowledged.clear();
        self.send(Event::Runtime(RuntimeInfo { name: "containerd".to_owned(), version: "1".to_owned() }));
    }

    /// Changes the stored book without a watch event.
    pub(crate) fn store(&mut self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book);
        self.version += 1;
        self.book.resource_version = self.version.to_string();
        let object = json!({"spec": {"orders": self.book.orders}, "status": self.book.status});
        self.bounded = self.bounded && refusals("NodeWork", &object).is_empty();
        for order in &self.book.orders {
            if self.placed.insert((order.id.clone(), format!("{order:?}"))) {
                self.orders.push(order.clone());
            }
        }
    }

    /// Delivers the book, as a change or as a list.
    pub(crate) fn deliver(&mut self, listed: bool) {
        let book = self.book.clone();
        self.send(Event::Book(if listed { Watch::list(vec![book]) } else { Watch::Upsert(book) }));
    }

    /// Delivers the deletion of the book.
    pub(crate) fn vanish(&mut self) {
        self.send(Event::Book(Watch::Gone(self.book.clone())));
    }

    /// Advances time.
    pub(crate) fn wait(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.send(Event::Tick);
    }

    /// Advances time to the daemon's wake-up; false without one.
    pub(crate) fn wait_for_daemon(&mut self) -> bool {
        let Some(Mono(at)) = self.daemon.wake_at() else { return false };
        self.wait(at.saturating_sub(self.now));
        true
    }

    fn send(&mut self, event: Event) {
        let actions = self.daemon.step(Mono(self.now), event);
        for action in &actions {
            self.check(action);
        }
        self.pending.extend(actions);
        let wake = self.daemon.wake_at();
        assert!(wake.is_none_or(|at| at.0 > self.now), "wakes at {wake:?}, and it is {}", self.now);
    }

    /// Carries out a pending action.
    pub(crate) fn carry_out(&mut self, index: usize, end: End) {
        let failed = CallFailure { retry: end == End::Fails, message: "no".to_owned() };
        let event = match self.pending.remove(index) {
            Action::Inspect { order_id, container_id } => {
                let facts = self.runtime.get(container_id.as_str()).cloned();
                Event::Inspected(order_id, if end == End::Well { Ok(facts) } else { Err(failed) })
            }
            Action::RunHook { order_id, .. } => {
                let failure = (end != End::Well).then(|| "x".repeat(9_000));
                self.ended_hooks.insert(order_id.clone(), failure.clone());
                Event::HookDone(order_id, failure.map_or(Ok(()), Err))
            }
            Action::LookAtImage { order_id, container_id, .. } => Event::ImageSeen(
                order_id,
                if end == End::Well { Ok(self.look(&container_id)) } else { Err(failed) },
            ),
            Action::Pull { image, .. } => {
                let message = "https://me:secret@host/v2 \u{1F600}".repeat(99);
                let failure = PullFailure { missing: end == End::Refused, message };
                Event::Pulled(image, if end == End::Well { Ok(()) } else { Err(failure) })
            }
            Action::CancelPull { image } => Event::Pulled(image, Ok(())),
            Action::Stop { order_id, container_id, .. } => {
                if end == End::Well
                    && let Some(facts) = self.runtime.get_mut(container_id.as_str())
                {
                    facts.state = ContainerState::Exited;
                }
                Event::Stopped(order_id, if end == End::Well { Ok(()) } else { Err(failed) })
            }
            Action::ReadCgroups { order_id, container_id, .. } => {
                let runs = self
                    .runtime
                    .get(container_id.as_str())
                    .is_some_and(|c| c.state == ContainerState::Running);
                let result = match end {
                    End::Well if runs => Ok(Box::new(CgroupReading::default())),
                    // The cgroup is gone with its container.
                    End::Well => Err(CallFailure { retry: false, message: "x".repeat(9_000) }),
                    End::Fails | End::Refused => Err(failed),
                };
                Event::CgroupsRead(order_id, result)
            }
            Action::ReadResources { container_id, runs, order_id, .. } => {
                let running = self
                    .runtime
                    .get(container_id.as_str())
                    .is_some_and(|c| c.state == ContainerState::Running);
                let result = match end {
                    End::Well if running || !runs => {
                        let seen = Seen { cgroup: self.cgroup, inactive_file: 0 };
                        Ok(Box::new(Present {
                            cgroup: "kubepods/pod".to_owned(),
                            of_container: "kubepods/pod/container".to_owned(),
                            version: Version::V1,
                            container: (running && runs).then_some(seen),
                            pod: Some(seen),
                            pinned: false,
                            swap: false,
                        }))
                    }
                    End::Well => Err(CallFailure { retry: false, message: "x".repeat(9_000) }),
                    End::Fails | End::Refused => Err(failed),
                };
                Event::ResourcesRead(order_id, result)
            }
            Action::Resize { order_id, writes, .. } => {
                if end == End::Well {
                    for write in &writes {
                        self.write(write);
                    }
                }
                Event::Resized(order_id, if end == End::Well { Ok(()) } else { Err(failed) })
            }
            Action::WriteBack { held } => {
                Event::WrittenBack(held.pod.uid, if end == End::Well { Ok(()) } else { Err(failed) })
            }
            Action::WriteStatus { resource_version, status } => {
                let current = resource_version == self.book.resource_version;
                match end {
                    End::Fails => Event::StatusWritten(Outcome::Retry),
                    End::Well if current => {
                        let ours = |a: &&Answer| {
                            a.state == AnswerState::Acknowledged
                                && a.acknowledged_by == format!("process-{}", self.process)
                        };
                        self.acknowledged
                            .extend(status.answers.iter().filter(ours).map(|a| a.order_id.clone()));
                        self.store(|book| book.status = *status);
                        Event::StatusWritten(Outcome::Written(self.book.clone()))
                    }
                    End::Well | End::Refused => Event::StatusWritten(Outcome::Conflict),
                }
            }
        };
        self.send(event);
    }

    /// Writes to a cgroup. One cgroup stands for all.
    fn write(&mut self, write: &Write) {
        let settings = match write {
            Write::Pod(setting) => std::slice::from_ref(setting),
            Write::Container { settings, .. } => settings.as_slice(),
            Write::Reclaim { .. } => {
                self.cgroup.memory_usage = self.cgroup.memory_usage.map(|usage| usage / 2);
                return;
            }
        };
        for setting in settings {
            match *setting {
                Setting::Shares(shares) | Setting::Weight(shares) => self.cgroup.cpu_shares = Some(shares),
                Setting::Quota { quota, period } => {
                    (self.cgroup.cpu_quota, self.cgroup.cpu_period) = (quota, Some(period));
                }
                Setting::Memory(limit) => self.cgroup.memory_limit = limit,
            }
        }
    }

    /// Lets every action succeed until the daemon is idle.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2_000 {
            if !self.pending.is_empty() {
                self.carry_out(0, End::Well);
                self.deliver(false);
            } else if !self.wait_for_daemon() {
                return;
            } else if self.now > 700_000 {
                // The daemon inspects a container that never starts while its order exists.
                return;
            }
        }
        panic!("the daemon does not come to rest");
    }

    fn check(&self, action: &Action) {
        match action {
            Action::Inspect { order_id, container_id } => {
                let named = |o: &&Order| o.id == *order_id && o.container.id == *container_id;
                assert!(self.orders.iter().any(|o| named(&o)), "asks about what no order names");
            }
            Action::RunHook { order_id, container_id, hook, limit_seconds } => {
                let facts = self.may_touch(order_id, container_id);
                assert!(*limit_seconds > 0, "a hook without time");
                let own = hook::parse(facts.pre_stop.as_deref().expect("a hook"), facts.ports.as_deref());
                assert_eq!(*hook, own, "the hook is the container's own");
            }
            Action::Stop { order_id, container_id, grace_seconds } => {
                self.may_touch(order_id, container_id);
                assert!(*grace_seconds >= MIN_GRACE_SECONDS, "a stop with {grace_seconds} s of grace");
            }
            Action::ReadCgroups { order_id, container_id, pod_uid } => {
                let facts = self.named(order_id, container_id);
                assert_eq!(*pod_uid, facts.pod_uid, "the Pod is the container's");
            }
            Action::ReadResources { order_id, container_id, runs, .. } => {
                if *runs {
                    self.named(order_id, container_id);
                }
            }
            Action::Resize { order_id, container_id, writes, .. } => {
                assert!(
                    self.acknowledged.contains(order_id),
                    "changes without acknowledgement: {order_id:?}"
                );
                assert!(!writes.is_empty());
                for write in writes {
                    match write {
                        Write::Container { id, settings } => {
                            assert!(id == container_id && !settings.is_empty());
                            self.named(order_id, id);
                        }
                        Write::Reclaim { bytes, .. } => {
                            assert!(*bytes > 0);
                            self.named(order_id, container_id);
                        }
                        Write::Pod(_) => {}
                    }
                }
            }
            Action::LookAtImage { order_id, container_id, .. } => {
                let named = |o: &&Order| o.id == *order_id && o.container.id == *container_id;
                assert!(self.orders.iter().any(|o| named(&o)), "looks at what no order names");
            }
            Action::Pull { order_id, image, .. } => {
                let ordered = |o: &&Order| {
                    let pulls = o.action.pull.as_ref().is_some_and(|pull| pull.image == *image);
                    let container = ContainerId::parse(&o.container.id);
                    o.id == *order_id && pulls && container.is_ok_and(|id| self.is_of(&id, o))
                };
                assert!(
                    self.orders.iter().any(|o| ordered(&o)),
                    "pulls {image} for no container of the node"
                );
                assert!(image.starts_with(REPOSITORY), "pulls {image} of another repository");
            }
            Action::CancelPull { .. } | Action::WriteBack { .. } => {}
            Action::WriteStatus { status, .. } => {
                let ordered = |a: &Answer| self.orders.iter().any(|o| o.id == a.order_id);
                assert!(status.answers.iter().all(ordered), "answers what nobody ordered: {status:?}");
                if self.bounded {
                    let refused = refusals("NodeWork", &json!({"spec": {}, "status": status}));
                    assert!(refused.is_empty(), "the API server would refuse the status: {refused:?}");
                }
            }
        }
    }

    /// Whether the runtime has the container with the labels that the order names.
    fn is_of(&self, id: &ContainerId, order: &Order) -> bool {
        self.runtime.get(id.as_str()).is_some_and(|facts| {
            let OrderPod { namespace, name, uid } = &order.pod;
            (&facts.namespace, &facts.pod, &facts.pod_uid) == (namespace, name, uid)
                && facts.container == order.container.name
        })
    }

    /// The runtime's answer. It has the image in every second minute.
    fn look(&self, id: &ContainerId) -> Box<Look> {
        let named = self.runtime.get(id.as_str()).map(|facts| NamedContainer {
            facts: facts.clone(),
            references: vec![format!("{REPOSITORY}:v1")],
            ..NamedContainer::default()
        });
        let has = (self.now / 60_000).is_multiple_of(2);
        let image = has.then(|| Image { id: "image".to_owned(), ..Image::default() });
        Box::new(Look { named, image, ..Look::default() })
    }

    /// Asserts that the order's acknowledgement is stored, and that the container is [`Node::named`].
    fn may_touch(&self, order_id: &str, container_id: &ContainerId) -> &Facts {
        assert!(self.acknowledged.contains(order_id), "acts on {order_id:?}, which is not acknowledged");
        self.named(order_id, container_id)
    }

    /// Asserts that an order with that ID names the container by its full ID and all its labels.
    fn named(&self, order_id: &str, container_id: &ContainerId) -> &Facts {
        let facts = self.runtime.get(container_id.as_str()).expect("acts on what the runtime does not have");
        let named = self.orders.iter().any(|o| {
            let asked = [&o.pod.namespace, &o.pod.name, &o.pod.uid, &o.container.name];
            let found = [&facts.namespace, &facts.pod, &facts.pod_uid, &facts.container];
            o.id == order_id
                && o.container.id == *container_id
                && asked == found
                && asked.iter().all(|text| !text.is_empty())
        });
        assert!(named, "acts on container {container_id} of {facts:?}, which no order {order_id:?} names");
        facts
    }
}
