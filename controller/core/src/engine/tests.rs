//! What the engine does with single events. Schedules of many are in `tests/sim`.

mod books;
mod defects;
mod fair;
mod guard;
mod held;
mod holds;
mod kept;
mod lead;
mod left;
mod look;
mod pins;
mod pullers;
mod requests;
mod resizes;
mod rests;
mod room;
mod silence;
mod survey;
mod turns;
mod waits;

use std::collections::VecDeque;

use pitstop_api::nodework::{Answer, AnswerState};
use pitstop_api::recreate::{ContainerRecreateRequestSpec, Phase, RecreateContainer};

use std::time::Duration;

use super::*;
use crate::action::{Basis, Object, Part, Watch, Write};
use crate::change::{PodChange, Sizing};
use crate::kind::Owner;
use crate::kinds::Status;
use crate::measure::{Measure, OrderCounts, Stage};
use crate::nodework::NodeWork;
use crate::outcome::Outcome;
use crate::pod::{Container, ContainerState, ContainerStatus, Pod};
use crate::readiness::GateCondition;
use crate::recreate::{self, Request};
use crate::resize::{self, Resize};

fn pod(name: &str) -> Pod {
    let status = ContainerStatus {
        container_id: format!("containerd://{:064x}", 1),
        ready: true,
        state: ContainerState::Running,
        ..ContainerStatus::default()
    };
    Pod {
        key: ObjectKey::new("shop", name),
        uid: format!("uid-{name}"),
        resource_version: "1".into(),
        node: Some("node1".into()),
        containers: vec![Container { name: "app".into(), status: Some(status), ..Container::default() }],
        ..Pod::default()
    }
}

fn request(name: &str, pod: &str, created: i64) -> Request {
    let containers = vec![RecreateContainer { name: "app".into(), ..RecreateContainer::default() }];
    let spec = ContainerRecreateRequestSpec { pod_name: pod.into(), containers, ..Default::default() };
    Request {
        key: ObjectKey::new("shop", name),
        uid: format!("uid-{name}"),
        resource_version: "1".into(),
        created,
        spec,
        ..Request::default()
    }
}

/// An engine, and a store that carries out every write.
struct Bench {
    engine: Engine,
    now: Mono,
    version: u64,
    requests: BTreeMap<ObjectKey, Request>,
    pods: BTreeMap<ObjectKey, Pod>,
    book: Option<NodeWork>,
}

impl Bench {
    fn new(pods: Vec<Pod>, requests: Vec<Request>) -> Self {
        let stored = requests.iter().map(|r| (r.key.clone(), r.clone())).collect();
        let mut bench = Self::empty();
        bench.requests = stored;
        bench.pods = pods.iter().map(|p| (p.key.clone(), p.clone())).collect();
        assert!(bench.step(Event::Leader(true)).is_empty());
        assert!(bench.step(Event::Pods(Watch::list(pods))).is_empty());
        assert!(bench.step(Event::NodeWorks(Watch::list(Vec::new()))).is_empty());
        let first = bench.step(Event::of::<Request>(Watch::list(requests)));
        bench.all(first);
        bench
    }

    fn empty() -> Self {
        let mut engine = Engine::new(Config::default());
        engine.step(Mono(0), DateTime::UNIX_EPOCH, Event::Guarded(true));
        let (requests, pods) = (BTreeMap::new(), BTreeMap::new());
        Self { engine, now: Mono(0), version: 100, requests, pods, book: None }
    }

    /// A new leader lists the resizes first; none exist unless a test says so.
    fn step(&mut self, event: Event) -> Vec<Action> {
        let now = Now { mono: self.now, wall: DateTime::UNIX_EPOCH };
        let leads = matches!(event, Event::Leader(true));
        let mut actions = self.engine.handle(now, event);
        if leads {
            actions.extend(self.engine.handle(now, Event::of::<Resize>(Watch::list(Vec::new()))));
            for list in crate::fixtures::other_lists() {
                actions.extend(self.engine.handle(now, list));
            }
        }
        actions
    }

    fn wake_at(&self) -> Option<Mono> {
        self.engine.next_wake(self.now)
    }

    /// Creates a request, and stores its acceptance. Returns the answer to that.
    fn accept(&mut self, request: Request) -> Event {
        self.requests.insert(request.key.clone(), request.clone());
        let accept = only(self.step(Event::of::<Request>(Watch::Upsert(request))));
        self.write(&accept)
    }

    /// Carries out a write. Returns the answer.
    fn write(&mut self, action: &Action) -> Event {
        self.version += 1;
        let version = self.version.to_string();
        match action {
            Action::Write {
                object: Object { key, uid, .. },
                write: Write::Status { status: Status::Recreate(status), .. },
            } => {
                let stored = self.requests.get_mut(key).unwrap();
                stored.status = (**status).clone();
                stored.resource_version = version;
                let outcome = Outcome::Written(stored.clone());
                Event::written::<Request>(key.clone(), uid.clone(), outcome)
            }
            Action::Write {
                object: Object { key, uid, .. },
                write: Write::Metadata { labels, annotations, .. },
            } => {
                let stored = self.requests.get_mut(key).unwrap();
                for (kept, changes) in
                    [(&mut stored.more.labels, labels), (&mut stored.more.annotations, annotations)]
                {
                    for (key, value) in changes {
                        kept.remove(key);
                        kept.extend(value.clone().map(|v| (key.clone(), v)));
                    }
                }
                stored.resource_version = version;
                let outcome = Outcome::Written(stored.clone());
                Event::written::<Request>(key.clone(), uid.clone(), outcome)
            }
            Action::WriteOrders { node, orders, closed, .. } => {
                let mut book = self.book.take().unwrap_or_default();
                (book.node, book.uid) = (node.clone(), "book".into());
                (book.orders, book.closed, book.resource_version) = (orders.clone(), closed.clone(), version);
                book.generation += 1;
                self.book = Some(book.clone());
                Event::NodeWorkWritten(node.clone(), Outcome::Written(book))
            }
            Action::PatchPod { key, uid, change: PodChange::Gates(changes), .. } => {
                let stored = self.pods.get_mut(key).unwrap();
                for change in changes {
                    let gate = stored.gates.iter_mut().find(|g| g.type_ == change.type_).unwrap();
                    gate.condition =
                        Some(GateCondition { open: change.open, message: change.message.clone() });
                }
                stored.resource_version = version;
                let outcome = Outcome::Written(stored.clone());
                Event::PodWritten { key: key.clone(), uid: uid.clone(), outcome }
            }
            Action::ReadPod { object, pod } => {
                let outcome =
                    self.pods.get(pod).map_or(Outcome::Gone, |pod| Outcome::Written(pod.uid.clone()));
                Event::PodRead { object: object.clone(), outcome }
            }
            Action::Write { .. }
            | Action::PatchPod { .. }
            | Action::Survey { .. }
            | Action::Do { .. }
            | Action::Emit(_)
            | Action::Count(_) => {
                panic!("{action:?}")
            }
        }
    }

    /// Carries out these writes and all that follow.
    fn all(&mut self, actions: Vec<Action>) {
        let mut todo = VecDeque::from(actions);
        let mut left = 500;
        while let Some(action) = todo.pop_front() {
            left -= 1;
            assert!(left > 0, "writes without an end, the last one {action:?}");
            if matches!(action, Action::Emit(_) | Action::Count(_)) {
                continue;
            }
            let answer = self.write(&action);
            todo.extend(self.step(answer));
        }
    }

    /// The daemon acknowledges every order; the watch shows it.
    fn acknowledge(&mut self) -> Vec<Action> {
        self.version += 1;
        let book = self.book.as_mut().unwrap();
        book.resource_version = self.version.to_string();
        let ids = book.orders.iter().map(|o| o.id.clone());
        book.status.answers = ids
            .map(|order_id| Answer {
                order_id,
                state: AnswerState::Acknowledged,
                reason: None,
                message: String::new(),
                acknowledged_uptime_seconds: None,
                acknowledged_by: String::new(),
                observed: None,
                image: None,
            })
            .collect();
        let book = book.clone();
        self.step(Event::NodeWorks(Watch::Upsert(book)))
    }

    fn restarted(&mut self, name: &str) -> Vec<Action> {
        let mut pod = Pod { resource_version: "2".into(), ..pod(name) };
        let status = pod.containers[0].status.as_mut().unwrap();
        status.container_id = format!("containerd://{:064x}", 2);
        status.restart_count = 1;
        self.step(Event::Pods(Watch::Upsert(pod)))
    }

    fn phase(&self, name: &str) -> Option<Phase> {
        self.requests[&ObjectKey::new("shop", name)].status.phase
    }

    fn orders(&self) -> usize {
        self.book.as_ref().map_or(0, |b| b.orders.len())
    }
}

/// The one write among the actions.
#[track_caller]
fn only(actions: Vec<Action>) -> Action {
    let mut writes: Vec<Action> =
        actions.into_iter().filter(|a| !matches!(a, Action::Emit(_) | Action::Count(_))).collect();
    assert_eq!(writes.len(), 1, "{writes:?}");
    writes.remove(0)
}

/// The `ContainerRecreateRequest` whose status the action writes, if any.
fn status_write(action: &Action) -> Option<&Object> {
    let Action::Write { object, write: Write::Status { status: Status::Recreate(_), .. } } = action else {
        return None;
    };
    Some(object)
}

#[test]
fn nothing_is_decided_before_everything_is_known_or_without_the_lead() {
    let mut bench = Bench::empty();
    bench.step(Event::Leader(true));
    assert!(bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)]))).is_empty());
    assert!(bench.step(Event::NodeWorks(Watch::list(Vec::new()))).is_empty());
    assert!(!bench.engine.synced());
    let first = bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    assert!(status_write(&only(first)).is_some());

    // While the book's orders are unknown, none is placed.
    let accepted = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    let mut bench = Bench::empty();
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    let stored = accepted.requests.values().cloned().collect();
    assert!(bench.step(Event::of::<Request>(Watch::list(stored))).is_empty());
    assert!(bench.step(Event::NodeWorks(Watch::list(vec![accepted.book.unwrap()]))).is_empty());

    let mut bench = Bench::empty();
    bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)])));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    assert!(bench.step(Event::Pods(Watch::list(vec![pod("web")]))).is_empty());
    assert_eq!(bench.wake_at(), None, "who does not lead sleeps");
    // A list from before this process led may be older than what another leader wrote.
    assert!(bench.step(Event::Leader(true)).is_empty());
    bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)])));
    assert!(!bench.engine.synced());
    assert_eq!(bench.step(Event::NodeWorks(Watch::list(Vec::new()))).len(), 1, "the Pods are known");
    assert!(bench.step(Event::Leader(true)).is_empty(), "the lead begins once");
    assert!(bench.engine.synced());
    bench.step(Event::Leader(false));
    assert_eq!(bench.wake_at(), None);
}

#[test]
fn a_request_runs_through() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Recreating), 1));
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    let over = bench.restarted("web");
    bench.all(over);
    assert_eq!(bench.phase("a"), Some(Phase::Completed));
    assert_eq!(bench.orders(), 1, "tidying up waits for company");
    bench.now = bench.wake_at().unwrap();
    assert_eq!(bench.now, Mono(1000));
    let tidy = bench.step(Event::Tick);
    bench.all(tidy);
    assert_eq!((bench.orders(), bench.wake_at()), (0, None));
}

#[test]
fn the_watch_may_show_a_new_book_before_the_answer_does() {
    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    let accepted = bench.accept(request("a", "web", 0));
    // The labels and the orders.
    let writes = bench.step(accepted);
    let create = writes.iter().find(|a| matches!(a, Action::WriteOrders { .. })).unwrap();
    let created = bench.write(create);
    let book = bench.book.clone().unwrap();
    assert!(bench.step(Event::NodeWorks(Watch::Upsert(book))).is_empty());
    bench.acknowledge();
    assert!(bench.step(created).is_empty(), "the answer is older than what is known");
    bench.now = Mono(61_000);
    assert!(
        bench.step(Event::Tick).iter().all(|a| !matches!(a, Action::WriteOrders { .. })),
        "the daemon has answered: nothing is withdrawn"
    );
}

#[test]
fn people_are_told_though_the_watch_was_quicker_than_the_answer() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    let stored = bench.requests[&ObjectKey::new("shop", "a")].clone();
    bench.step(Event::of::<Request>(Watch::Upsert(stored)));
    let end = only(bench.restarted("web"));
    let answer = bench.write(&end);
    let stored = bench.requests[&ObjectKey::new("shop", "a")].clone();
    bench.step(Event::of::<Request>(Watch::Upsert(stored)));
    let notes = bench.step(answer);
    assert!(
        notes.iter().any(|a| matches!(a, Action::Emit(n) if n.reason == "RecreateCompleted")),
        "{notes:?}"
    );
}

#[test]
fn the_lead_begins_with_a_clean_slate() {
    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    let accept = only(bench.step(Event::of::<Request>(Watch::Upsert(request("a", "web", 0)))));
    let Object { key, uid, .. } = status_write(&accept).unwrap().clone();
    bench.step(Event::written::<Request>(key, uid, Outcome::Conflict));
    bench.step(Event::Leader(false));
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    only(bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)]))));
}

#[test]
fn an_outcome_waits_for_a_write_of_orders_under_way() {
    let mut deadline = request("a", "web", 0);
    deadline.spec.active_deadline_seconds = Some(3);
    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    bench.requests.insert(deadline.key.clone(), deadline.clone());
    let accept = only(bench.step(Event::of::<Request>(Watch::Upsert(deadline))));
    let accepted = bench.write(&accept);
    let writes = bench.step(accepted);
    let (orders, labels): (Vec<_>, Vec<_>) = writes
        .into_iter()
        .filter(|a| !matches!(a, Action::Emit(_) | Action::Count(_)))
        .partition(|a| matches!(a, Action::WriteOrders { .. }));
    bench.all(labels);
    bench.now = Mono(3000);
    assert!(bench.step(Event::Tick).is_empty(), "the orders may be placed this very moment");
    // Whether they were is unknown; a write at the same version shows it.
    assert!(bench.step(Event::NodeWorkWritten("node1".into(), Outcome::Retry)).is_empty());
    bench.now = bench.wake_at().unwrap();
    let probe = only(bench.step(Event::Tick));
    assert!(matches!(&probe, Action::WriteOrders { orders, .. } if orders.is_empty()), "{probe:?}");
    assert_eq!(orders.len(), 1);
    bench.all(vec![probe]);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Completed), 0));
}

#[test]
fn a_list_during_a_write_is_not_undone_by_its_answer() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    bench.acknowledge();
    let end = only(bench.restarted("web"));
    let answer = bench.write(&end);
    let mut newer = bench.requests[&ObjectKey::new("shop", "a")].clone();
    newer.resource_version = "999".into();
    bench.requests.insert(newer.key.clone(), newer.clone());
    bench.step(Event::of::<Request>(Watch::list(vec![newer])));
    let next = bench.step(answer);
    bench.all(next);
    assert!(bench.requests.values().all(|r| !r.more.labels.contains_key(pitstop_api::labels::ACTIVE)));
    assert_eq!(bench.engine.open_of(recreate::ID), 0);
}

#[test]
fn a_refused_write_is_tried_again_soon() {
    let mut bench = Bench::empty();
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    let first = bench.step(Event::of::<Request>(Watch::list(vec![request("crr", "web", 1)])));
    let Object { key, uid, .. } = status_write(&only(first.clone())).unwrap().clone();
    // The answer of an API server that has just started and does not know the roles yet.
    let outcome = Outcome::Refused("403".into());
    let refused = Event::written::<Request>(key, uid, outcome);
    assert_eq!(bench.step(refused), []);
    bench.now = bench.now.after(Duration::from_millis(500));
    assert_eq!(bench.wake_at(), Some(bench.now));
    assert_eq!(bench.step(Event::Tick), first);
}

#[test]
fn many_waits_on_a_node_are_told_later_than_a_few() {
    let first_report = |count: u8| {
        let names: Vec<String> = (0..count).map(|i| format!("web-{i}")).collect();
        let pods = names.iter().map(|name| pod(name)).collect();
        let requests = names.iter().map(|name| request(name, name, 0)).collect();
        let mut bench = Bench::new(pods, requests);
        // The watch shows the last of several writes, then the daemon's. The daemon stops the containers; no other
        // event comes.
        let book = bench.book.clone().unwrap();
        assert!(bench.step(Event::NodeWorks(Watch::Upsert(book))).is_empty());
        assert!(bench.acknowledge().is_empty());
        for seconds in 1..60 {
            bench.now = Mono(seconds * 1000);
            let reports = bench.step(Event::Tick);
            if !reports.is_empty() {
                assert_eq!(
                    reports.len(),
                    usize::from(count).min(4),
                    "as many at a time as a namespace may have"
                );
                return seconds;
            }
        }
        panic!("a wait was never reported");
    };
    assert_eq!([1, 6, 20, 60].map(first_report), [3, 3, 10, 30]);
}

#[test]
fn what_a_request_took_is_told_to_be_counted() {
    let mut bench = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
    let counts = |actions: &[Action]| -> Vec<Measure> {
        actions.iter().filter_map(|a| if let Action::Count(m) = a { Some(*m) } else { None }).collect()
    };
    let took = |stage, millis| Measure::Took { stage, duration: Duration::from_millis(millis) };
    let book = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(book)));
    assert_eq!(bench.engine.open_orders(), OrderCounts { placed: 1, ..OrderCounts::default() });
    bench.now = Mono(400);
    bench.acknowledge();
    assert_eq!(bench.engine.open_orders(), OrderCounts { acknowledged: 1, ..OrderCounts::default() });
    bench.now = Mono(700);
    let over = bench.restarted("web");
    assert_eq!(counts(&over), [took(Stage::Stop, 700), took(Stage::Start, 0)]);
    let end = over.iter().find(|a| status_write(a).is_some()).unwrap();
    let stored = bench.write(end);
    let actions = bench.step(stored);
    let ended = Measure::Ended { kind: recreate::ID, complete: true, reason: "Complete" };
    assert_eq!(counts(&actions), [ended]);
}
