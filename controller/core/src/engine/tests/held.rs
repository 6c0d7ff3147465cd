//! Resizes that the node's daemon carries out, from the request to its end and beyond.

use std::time::Duration;

use pitstop_api::nodework::{AnswerReason, Bounds, Cgroup, CgroupReading, Held, HeldContainer};
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{Mechanism, Phase, PodResizeStatus};
use serde_json::{Value, json};

use super::*;
use crate::deed::Done;
use crate::hold::admission::{Amounts, Survey};

mod anew;
mod asked;

const MI: i64 = 1 << 20;

/// A node whose kubelet does not resize, with one Pod, and a daemon.
struct Node {
    engine: Engine,
    now: Mono,
    version: u64,
    pod: Pod,
    resizes: BTreeMap<ObjectKey, Resize>,
    book: NodeWork,
    allocatable: i64,
    /// The daemon's answer to every order, if it does not carry orders out.
    answer: Option<(AnswerState, AnswerReason)>,
    writes: usize,
    /// The daemon does nothing.
    away: bool,
    /// Deeds that were done.
    deeds: Vec<Action>,
}

fn spec() -> Resources {
    Resources {
        cpu_request: Some(100),
        cpu_limit: Some(200),
        memory_request: Some(64 * MI),
        memory_limit: Some(128 * MI),
    }
}

fn bounds(cpu_request: i64, cpu_limit: i64, memory: i64) -> Bounds {
    Bounds { cpu_request, cpu_limit: Some(cpu_limit), memory_limit: Some(memory * MI) }
}

impl Node {
    fn new() -> Self {
        Self::with(true)
    }

    fn with(resize_cri: bool) -> Self {
        let mut pod = pod("web");
        pod.containers.truncate(1);
        pod.containers[0].resources = spec();
        let mut engine = Engine::new(Config { resize_cri, ..Config::default() });
        let mut step = |event| assert_eq!(engine.step(Mono(0), DateTime::UNIX_EPOCH, event), []);
        step(Event::Guarded(true));
        step(Event::Leader(true));
        step(Event::Pods(Watch::list(vec![pod.clone()])));
        step(Event::of::<Request>(Watch::list(Vec::new())));
        let book = NodeWork {
            node: "node1".into(),
            uid: "book".into(),
            resource_version: "1".into(),
            ..NodeWork::default()
        };
        step(Event::NodeWorks(Watch::list(vec![book.clone()])));
        step(Event::of::<Resize>(Watch::list(Vec::new())));
        crate::fixtures::other_lists().into_iter().for_each(&mut step);
        Self {
            engine,
            now: Mono(0),
            version: 10,
            pod,
            resizes: BTreeMap::new(),
            book,
            allocatable: 4000,
            answer: None,
            writes: 0,
            away: false,
            deeds: Vec::new(),
        }
    }

    fn apply(&mut self, name: &str, more: &Value) {
        let mut spec = json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"limits": {"cpu": "400m"}}}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.version += 1;
        let resize = Resize {
            key: ObjectKey::new("shop", name),
            uid: format!("uid-{name}"),
            resource_version: self.version.to_string(),
            created: i64::try_from(self.resizes.len()).unwrap(),
            spec: serde_json::from_value(spec).unwrap(),
            ..Resize::default()
        };
        self.resizes.insert(resize.key.clone(), resize.clone());
        self.happens(Event::of::<Resize>(Watch::Upsert(resize)));
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Resize)) {
        self.version += 1;
        let resize = self.resizes.get_mut(&ObjectKey::new("shop", name)).unwrap();
        change(resize);
        resize.resource_version = self.version.to_string();
        let resize = resize.clone();
        self.happens(Event::of::<Resize>(Watch::Upsert(resize)));
    }

    fn delete(&mut self, name: &str) {
        let resize = self.resizes.remove(&ObjectKey::new("shop", name)).unwrap();
        self.happens(Event::of::<Resize>(Watch::Gone(resize)));
    }

    fn status(&self, name: &str) -> &PodResizeStatus {
        &self.resizes[&ObjectKey::new("shop", name)].status
    }

    fn reason(&self, name: &str) -> (Option<Phase>, String) {
        let status = self.status(name);
        let complete = status.conditions.iter().find(|c| c.type_ == "Complete");
        (status.phase, complete.map(|c| c.reason.clone()).unwrap_or_default())
    }

    /// Another instance of the container runs, with the resources of its spec.
    fn restart(&mut self, id: u32) {
        self.version += 1;
        self.pod.resource_version = self.version.to_string();
        let status = self.pod.containers[0].status.as_mut().unwrap();
        status.container_id = format!("containerd://{id:064x}");
        status.restart_count += 1;
        self.happens(Event::Pods(Watch::Upsert(self.pod.clone())));
    }

    fn given(&self) -> Option<Bounds> {
        let status = self.pod.containers[0].status.as_ref().unwrap();
        let held = self.book.status.held.first()?.containers.first()?;
        held.given.filter(|_| status.container_id.ends_with(&held.id))
    }

    /// Time passes.
    fn later(&mut self, seconds: u64) {
        let until = self.now.after(Duration::from_secs(seconds));
        while let Some(at) = self.engine.wake_at().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.happens(Event::Tick);
        }
        self.now = until;
    }

    /// Handles the event, and carries out all that follows.
    fn happens(&mut self, event: Event) {
        let mut todo = VecDeque::from([event]);
        let mut left = 200;
        while let Some(event) = todo.pop_front() {
            left -= 1;
            assert!(left > 0, "no end");
            let actions = self.engine.step(self.now, DateTime::UNIX_EPOCH, event);
            for action in actions {
                todo.extend(self.carry_out(action).into_iter().flatten());
            }
            if todo.is_empty() && !self.away && self.daemon() {
                self.version += 1;
                self.writes += 1;
                self.book.resource_version = self.version.to_string();
                todo.push_back(Event::NodeWorks(Watch::Upsert(self.book.clone())));
            }
        }
    }

    /// Carries out the action. Returns the answer, and what the watch shows.
    fn carry_out(&mut self, action: Action) -> Option<Vec<Event>> {
        self.version += 1;
        let version = self.version.to_string();
        match action {
            Action::Emit(_) | Action::Count(_) => return None,
            Action::Survey { key } => {
                assert_eq!(key.name, "node1");
                let allocatable = Amounts { cpu: Some(self.allocatable), memory: Some(1 << 40) };
                let survey = Survey { allocatable, ..Survey::default() };
                return Some(vec![Event::Surveyed { key, outcome: Outcome::Written(survey) }]);
            }
            // The engine does not ask for a Pod that the watch shows.
            Action::ReadPod { object, .. } => {
                return Some(vec![Event::PodRead { object, outcome: Outcome::Gone }]);
            }
            Action::Do { ref object, ref deed } => {
                let deed = Box::new(deed.clone());
                let done = Event::DeedDone { object: object.clone(), deed, done: Done::Effected };
                self.deeds.push(action);
                return Some(vec![done]);
            }
            _ => self.writes += 1,
        }
        match action {
            Action::Write {
                object: Object { key, uid, .. },
                write: Write::Status { resource_version, status: Status::Resize(status) },
            } => {
                let stored = self.resizes.get_mut(&key)?;
                assert_eq!(stored.resource_version, resource_version);
                stored.status = *status;
                stored.resource_version = version;
                let outcome = Outcome::Written(stored.clone());
                let shown = Event::of::<Resize>(Watch::Upsert(stored.clone()));
                Some(vec![Event::written::<Resize>(key, uid, outcome), shown])
            }
            Action::WriteOrders { node, orders, .. } => {
                for order in &orders {
                    let known = self.book.orders.iter().find(|known| known.id == order.id);
                    assert!(known.is_none_or(|known| known == order), "an order never changes");
                }
                self.book.orders = orders;
                self.book.generation += 1;
                self.book.resource_version = version;
                let shown = Event::NodeWorks(Watch::Upsert(self.book.clone()));
                Some(vec![Event::NodeWorkWritten(node, Outcome::Written(self.book.clone())), shown])
            }
            other => panic!("{other:?}"),
        }
    }

    /// The daemon takes its next step. Returns whether it wrote the book.
    fn daemon(&mut self) -> bool {
        let orders = self.book.orders.clone();
        let before = self.book.status.clone();
        self.book.status.answers.retain(|answer| orders.iter().any(|order| order.id == answer.order_id));
        for order in &orders {
            let resize = order.action.resize.clone().expect("nothing else is asked");
            let answers = &mut self.book.status.answers;
            let known = answers.iter().position(|answer| answer.order_id == order.id);
            let new = |state, reason| Answer {
                order_id: order.id.clone(),
                state,
                reason,
                message: "as the test says".into(),
                acknowledged_uptime_seconds: None,
                acknowledged_by: String::new(),
                observed: None,
                image: None,
            };
            let held = &mut self.book.status.held;
            let Some(known) = known else {
                let answer = match self.answer {
                    Some((state, reason)) => new(state, Some(reason)),
                    None => new(AnswerState::Acknowledged, None),
                };
                if answer.state == AnswerState::Acknowledged && resize.hold {
                    let container = HeldContainer {
                        name: order.container.name.clone(),
                        id: order.container.id.clone(),
                        order: order.id.clone(),
                        ..HeldContainer::default()
                    };
                    *held =
                        vec![Held { pod: order.pod.clone(), containers: vec![container], ..Held::default() }];
                }
                answers.push(answer);
                return true;
            };
            let answer = &mut answers[known];
            if answer.state != AnswerState::Acknowledged || self.answer.is_some() {
                continue;
            }
            let own = resize.container.unwrap_or_default();
            let container = Cgroup {
                cpu_quota: own.cpu_limit.map(|limit| limit * 100),
                cpu_period: Some(100_000),
                cpu_shares: Some(pitstop_api::logic::cgroup::shares(own.cpu_request)),
                memory_limit: own.memory_limit,
                ..Cgroup::default()
            };
            *answer = Answer {
                observed: Some(Box::new(CgroupReading { container, pod: container })),
                ..new(AnswerState::Done, None)
            };
            if resize.hold {
                held[0].given = resize.pod;
                held[0].containers[0].given = resize.container;
            } else {
                held.clear();
            }
            return true;
        }
        // The daemon writes what it forgets with its next answer.
        self.book.status = before;
        false
    }

    fn at_rest(&mut self) {
        self.later(60);
        assert_eq!(self.book.orders, [], "nothing stays in the book");
        let writes = self.writes;
        self.later(600);
        assert_eq!(self.writes, writes, "silence");
    }
}

#[test]
fn one_request_takes_six_writes_in_all_and_tells_what_it_found() {
    let mut node = Node::new();
    node.apply("grow", &json!({}));
    assert_eq!(node.reason("grow"), (Some(Phase::Succeeded), "Resized".into()));
    let status = node.status("grow");
    assert_eq!(status.mechanism, Some(Mechanism::Cri));
    assert_eq!(status.containers[0].actual.as_ref().unwrap().limits.cpu.as_deref(), Some("400m"));
    assert_eq!(status.containers[0].cgroup.unwrap().container.cpu_quota, Some(40_000));
    let verified = status.conditions.iter().find(|c| c.type_ == "Verified").unwrap();
    assert_eq!(verified.reason, "CgroupsMatch");
    assert_eq!(node.given(), Some(bounds(100, 400, 128)));
    node.at_rest();
    assert_eq!(node.writes, 6);
}

#[test]
fn an_instance_that_starts_later_is_given_the_same() {
    let mut node = Node::new();
    node.apply("grow", &json!({}));
    node.restart(7);
    assert_eq!(node.given(), Some(bounds(100, 400, 128)));
    node.at_rest();
    assert_eq!(node.reason("grow").0, Some(Phase::Succeeded));
}

#[test]
fn a_later_request_counts_and_when_it_is_deleted_the_one_before_does_again() {
    let mut node = Node::new();
    node.apply("first", &json!({}));
    node.apply(
        "second",
        &json!({"containers": [{"name": "app", "resources": {"limits": {"memory": "x2"}}}]}),
    );
    assert_eq!(node.reason("second").0, Some(Phase::Succeeded));
    // The second request changes what is in force; the rest of the container stays.
    assert_eq!(node.given(), Some(bounds(100, 400, 256)));
    assert_eq!(node.status("second").target.as_ref().unwrap().turn, 2);
    node.delete("second");
    assert_eq!(node.given(), Some(bounds(100, 400, 128)));
    node.delete("first");
    assert_eq!(node.book.status.held, []);
    node.at_rest();
}

#[test]
fn what_the_daemon_refuses_for_good_ends_the_request_and_is_not_asked_again() {
    for (answer, phase, reason) in [
        ((AnswerState::Refused, AnswerReason::NotEnabled), Phase::Failed, "Unsupported"),
        ((AnswerState::Refused, AnswerReason::Swap), Phase::Infeasible, "Swap"),
        ((AnswerState::Refused, AnswerReason::Pinned), Phase::Infeasible, "StaticManager"),
        ((AnswerState::Refused, AnswerReason::TooManyHeld), Phase::Failed, "Refused"),
    ] {
        let mut node = Node::new();
        node.answer = Some(answer);
        node.apply("grow", &json!({}));
        assert_eq!(node.reason("grow"), (Some(phase), reason.to_owned()), "{answer:?}");
        node.at_rest();
    }
    let mut node = Node::new();
    node.answer = Some((AnswerState::Failed, AnswerReason::ResizeFailed));
    node.apply("grow", &json!({}));
    assert_eq!(node.reason("grow"), (Some(Phase::Failed), "RuntimeError".into()));
}

#[test]
fn what_the_daemon_refused_once_is_asked_anew_for_the_next_request() {
    let mut node = Node::new();
    node.answer = Some((AnswerState::Refused, AnswerReason::NotEnabled));
    node.apply("early", &json!({}));
    assert_eq!(node.reason("early"), (Some(Phase::Failed), "Unsupported".into()));
    node.at_rest();
    // The answer is in the book until the daemon writes another one.
    node.answer = None;
    node.apply("late", &json!({}));
    assert_eq!(node.reason("late"), (Some(Phase::Succeeded), "Resized".into()));
    node.at_rest();
}

#[test]
fn a_request_that_cannot_go_on_waits_tells_why_and_gives_back_when_it_is_cancelled() {
    let mut node = Node::new();
    node.answer = Some((AnswerState::Acknowledged, AnswerReason::MemoryInUse));
    node.apply(
        "shrink",
        &json!({"containers": [{"name": "app", "resources": {"limits": {"memory": "70Mi"}}}]}),
    );
    node.later(10);
    assert_eq!(node.reason("shrink"), (Some(Phase::InProgress), "MemoryInUse".into()));
    node.answer = None;
    node.change("shrink", |resize| resize.spec.cancel = true);
    assert_eq!(node.reason("shrink"), (Some(Phase::Cancelled), "Cancelled".into()));
    assert_eq!(node.book.status.held, []);
    node.at_rest();
}

#[test]
fn a_pod_that_does_badly_has_its_resources_of_before_again() {
    let mut node = Node::new();
    node.apply(
        "shrink",
        &json!({
            "containers": [{"name": "app", "resources": {"limits": {"memory": "70Mi"}}}],
            "rollbackOnFailure": {"observeSeconds": 30},
        }),
    );
    node.later(5);
    assert_eq!(node.reason("shrink"), (Some(Phase::Verifying), "Observing".into()));
    let before = node.pod.containers[0].status.as_ref().unwrap().container_id.clone();
    node.pod.containers[0].status.as_mut().unwrap().oom_killed = before;
    node.restart(7);
    assert_eq!(node.reason("shrink"), (Some(Phase::RolledBack), "OOMKilled".into()));
    assert_eq!(node.book.status.held, []);
    node.at_rest();
}

#[test]
fn a_request_for_which_the_node_has_no_room_waits_for_it() {
    let mut node = Node::new();
    let mut other = node.pod.clone();
    other.key = ObjectKey::new("shop", "other");
    other.uid = "uid-other".into();
    other.containers[0].resources.cpu_request = Some(3800);
    node.happens(Event::Pods(Watch::Upsert(other.clone())));
    let wanted = json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "400m"}}}]});
    node.apply("grow", &wanted);
    node.later(20);
    assert_eq!(node.reason("grow"), (Some(Phase::Deferred), "NodeBusy".into()));
    assert_eq!(node.book.orders, []);
    let limited = json!({"onDeferred": {"waitSeconds": 10}, "containers": wanted["containers"]});
    node.apply("limited", &limited);
    node.later(30);
    assert_eq!(node.reason("limited"), (Some(Phase::Failed), "NodeBusy".into()));
    node.happens(Event::Pods(Watch::Gone(other)));
    node.apply("again", &wanted);
    node.later(10);
    assert_eq!(node.reason("again"), (Some(Phase::Succeeded), "Resized".into()));
    node.allocatable = 300;
    node.apply(
        "much",
        &json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": "5"}, "limits": {"cpu": "6"}}}]}),
    );
    node.later(10);
    assert_eq!(node.reason("much"), (Some(Phase::Infeasible), "NodeCapacity".into()));
    assert_eq!(node.given(), Some(bounds(250, 400, 128)));
}

#[test]
fn a_dry_run_changes_nothing_and_tells_what_would_be() {
    let mut node = Node::new();
    node.apply("try", &json!({"dryRun": true}));
    assert_eq!(node.reason("try"), (Some(Phase::Succeeded), "WouldResize".into()));
    assert_eq!((node.book.orders.len(), node.book.status.held.len()), (0, 0));
    assert_eq!(node.status("try").mechanism, Some(Mechanism::Cri));
    node.at_rest();
}

#[test]
fn by_which_means_is_told_where_it_cannot_be_the_one_asked_for() {
    for (resize_cri, mechanism, resizes, words) in [
        (false, "Auto", false, "deploy/components/resize-cri"),
        (true, "API", false, "spec.mechanism CRI may work"),
        (true, "CRI", true, "take Auto or API"),
    ] {
        let mut node = Node::with(resize_cri);
        if resizes {
            node.pod.containers[0].status.as_mut().unwrap().actual = Some(spec());
            node.pod.resource_version = "9".into();
            node.happens(Event::Pods(Watch::Upsert(node.pod.clone())));
        }
        node.apply("grow", &json!({"mechanism": mechanism}));
        node.later(5);
        assert_eq!(node.reason("grow"), (Some(Phase::Failed), "Unsupported".into()));
        let message = &node.status("grow").message;
        assert!(message.contains(words), "{message}");
    }
}

/// The kubelet reports rounded values, the daemon's record has exact ones.
#[test]
fn a_millicore_less_is_not_there_before_the_daemon_has_given_it() {
    let mut node = Node::new();
    node.away = true;
    node.apply("less", &json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": "99m"}}}]}));
    node.later(180);
    assert_eq!(node.reason("less"), (Some(Phase::Proposed), "WaitingForDaemon".into()));
    node.away = false;
    node.happens(Event::Tick);
    assert_eq!(node.reason("less").0, Some(Phase::Succeeded));
    assert_eq!(node.given(), Some(bounds(99, 200, 128)));
    node.at_rest();
}
