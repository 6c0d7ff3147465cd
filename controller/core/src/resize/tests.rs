//! One resize of one Pod; the test decides what the kubelet does.

use chrono::DateTime;
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::logic::cgroup::{self, Overhead, Part};
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, Cgroup, CgroupReading as Cgroups, Order};
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{Phase, PodResizeSpec, PodResizeStatus, conditions};
use serde_json::{Value, json};

use super::*;
use crate::agree::agree;
use crate::blocker::Blocker;
use crate::change::{Named, Sizing};
use crate::config::Config;
use crate::deed::Deed;
use crate::fixtures::{MI, container, id, pod};
use crate::hold::Force;
use crate::key::ObjectKey;
use crate::kind::{Ended, Relative};
use crate::nodework::OrderView;
use crate::plan::{Read, Urgency};
use crate::pod::{Container, ContainerKind, ContainerState, ContainerStatus, Explanation, Pod};
use crate::pod_check::{Found, PodCheck};
use crate::time::Mono;

mod ends;
mod follow;
mod nudge;
mod repair;
mod resolve;
mod restart;
mod room;
mod shrink;
mod verify;

/// Checks that phase, generation and conditions agree, and that the reasons are listed.
#[track_caller]
fn agrees(status: &PodResizeStatus, generation: Option<i64>) {
    assert_eq!(
        (status.phase, status.observed_generation),
        (condition::phase(&status.conditions), generation)
    );
    agree(&status.conditions, status.completion_time.is_some(), |condition| {
        all_reasons().any(|known| known == condition.reason)
    });
}

/// Change of a Pod before the request is accepted.
type Change = fn(&mut Pod);
/// An event in the scene.
type Event = fn(&mut Scene);

fn resize(spec: Value) -> Resize {
    let spec: PodResizeSpec = serde_json::from_value(spec).unwrap();
    Resize { key: ObjectKey::new("shop", "grow"), uid: "prs-1".into(), spec, ..Resize::default() }
}

/// Spec that sets the CPU limit of `app` to 300m, with further fields.
fn grow(more: &Value) -> Value {
    let mut spec = json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"limits": {"cpu": "300m"}}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// Answer of the node's daemon to a question.
#[derive(Clone, Copy, Debug)]
enum Daemon {
    /// The values of the Pod's spec.
    Right,
    /// Twice the CPU quota.
    Differs,
    /// The values of the Pod's spec, without CPU quota.
    NoQuota,
    /// No values, but this state and reason.
    Answers(AnswerState, AnswerReason),
    /// No answer.
    Silent,
}

/// The object under the name of the resize's recreate request.
#[derive(Clone, Default)]
struct Recreate {
    key: ObjectKey,
    uid: String,
    owner_uid: Option<String>,
    deleting: bool,
    ended: Option<(bool, String)>,
}

impl Recreate {
    fn relative(&self) -> Relative<'_> {
        let ended = self.ended.as_ref();
        Relative {
            key: &self.key,
            uid: &self.uid,
            owner_uid: self.owner_uid.as_deref(),
            deleting: self.deleting,
            suspended: false,
            ended: ended.map(|(complete, message)| Ended { complete: *complete, reason: "", message }),
            pulled: Vec::new(),
        }
    }
}

/// The request, its Pod, and the memory of this process.
struct Scene {
    now: Mono,
    resize: Resize,
    pod: Option<Pod>,
    memory: Memory,
    pod_check: PodCheck,
    /// The API server's answer about a Pod that the watch does not show.
    found: Found,
    newer: Option<ObjectKey>,
    ahead: Option<Blocker>,
    sizing: Option<Sizing>,
    restart: Option<Recreate>,
    deed: Option<Deed>,
    orders: Vec<Order>,
    answers: Vec<Answer>,
    daemon: Daemon,
    /// Bytes that each container uses.
    usage: i64,
    /// Bytes of `usage` that the kernel can reclaim.
    droppable: i64,
    guarded: bool,
    config: Config,
    /// Number of repairs that the Pod's cgroup needs, which the kubelet left unchanged.
    low: u32,
    /// The daemon has a record of the Pod.
    recorded: bool,
    writes: usize,
}

impl Scene {
    fn new(spec: Value) -> Self {
        Self {
            now: Mono(0),
            resize: resize(spec),
            pod: Some(pod()),
            memory: Memory::new(Mono(0)),
            pod_check: PodCheck::default(),
            found: Found::Gone,
            newer: None,
            ahead: None,
            sizing: None,
            restart: None,
            deed: None,
            orders: Vec::new(),
            answers: Vec::new(),
            daemon: Daemon::Right,
            usage: 20 * MI,
            droppable: 0,
            guarded: true,
            config: Config::default(),
            low: 0,
            recorded: false,
            writes: 0,
        }
    }

    fn plan(&mut self) -> Plan {
        let answer = |order: &Order| self.answers.iter().find(|a| a.order_id == order.id);
        let views = self.orders.iter().map(|order| OrderView { order, answer: answer(order), closed: false });
        let (repairs, orders): (Vec<_>, Vec<_>) = views.partition(|view| is_repair(view.order));
        self.memory.see(self.now, &self.resize, self.pod.as_ref(), &orders, &repairs);
        let force = Force::default();
        let restart = self.restart.as_ref().map(Recreate::relative);
        self.memory.see_restart(&self.resize, restart.as_ref());
        let observed = Observed {
            resize: &self.resize,
            pod: self.pod.as_ref(),
            api_pod: self.pod.as_ref(),
            force: &force,
            held: Vec::new(),
            newer: self.newer.as_ref(),
            ahead: self.ahead.clone().map(|blocker| Ahead { blocker, gives_way: false }),
            sizing_now: false,
            sizing: self.sizing.as_ref(),
            restart,
            deed: self.deed.as_ref(),
            orders,
            repairs,
            recorded: self.recorded,
            last_attempt: 0,
            guarded: self.guarded,
            survey: None,
            reinstated: None,
            usage: None,
            pod_check: &self.pod_check,
            memory: &self.memory,
        };
        let plan = plan(self.now, DateTime::UNIX_EPOCH, &self.config, &observed);
        if let Some(write) = &plan.status {
            agrees(&write.status, self.resize.generation);
        }
        plan
    }

    /// Carries out what is urgent: the status first, then the Pod.
    fn act(&mut self) {
        let mut plan = self.plan();
        if plan.read == Some(Read::Pod) {
            self.pod_check.begin();
            self.pod_check.answered(self.now, self.found);
            plan = self.plan();
        }
        if self.orders != plan.orders {
            self.orders.clone_from(&plan.orders);
            self.writes += 1;
            self.answer();
        }
        if let Some(write) = plan.status.filter(|w| w.urgency == Urgency::Now) {
            self.resize.status = write.status;
            self.writes += 1;
        } else if let Some(sizing) = plan.sizing {
            self.patch(&sizing);
        }
    }

    /// The daemon answers every order, as `daemon` sets.
    fn answer(&mut self) {
        let pod = self.pod.clone().unwrap();
        self.answers.retain(|answer| self.orders.iter().any(|order| order.id == answer.order_id));
        for order in &self.orders {
            if self.answers.iter().any(|answer| answer.order_id == order.id) {
                continue;
            }
            if order.action.resize.as_ref().is_some_and(|resize| resize.reclaim_to.is_some()) {
                self.usage -= std::mem::take(&mut self.droppable);
            }
            let (state, reason, factor) = match self.daemon {
                Daemon::Right | Daemon::NoQuota => (AnswerState::Done, None, 1),
                Daemon::Differs => (AnswerState::Done, None, 2),
                Daemon::Answers(state, reason) => (state, Some(reason), 1),
                Daemon::Silent => continue,
            };
            let holds = |of: Resources| Cgroup {
                cpu_quota: of.cpu_limit.and_then(|limit| cgroup::quota(limit * factor, cgroup::PERIOD)),
                cpu_period: Some(cgroup::PERIOD),
                cpu_shares: Some(cgroup::shares(of.cpu_request.unwrap_or_default())),
                memory_limit: of.memory_limit,
                memory_usage: Some(self.usage),
                ..Cgroup::default()
            };
            let kind = cgroup::Kind::Main;
            let parts: Vec<Part> =
                pod.containers.iter().map(|c| Part { kind, resources: c.resources }).collect();
            let own = pod.container(&order.container.name).unwrap().resources;
            if is_repair(order) && state == AnswerState::Done {
                self.low = self.low.saturating_sub(1);
            }
            let mut pod = holds(cgroup::of_pod(&parts, Overhead::default()));
            pod.cpu_quota = pod.cpu_quota.map(|quota| if self.low > 0 { quota - 10_000 } else { quota });
            let mut observed = Cgroups { container: holds(own), pod };
            if matches!(self.daemon, Daemon::NoQuota) {
                (observed.container.cpu_quota, observed.pod.cpu_quota) = (None, None);
                // The kubelet left the memory limit unchanged too.
                let left = if self.low > 0 { 64 * MI } else { 0 };
                observed.pod.memory_limit = observed.pod.memory_limit.map(|limit| limit - left);
            }
            self.answers.push(Answer {
                order_id: order.id.clone(),
                state,
                reason,
                message: String::new(),
                acknowledged_uptime_seconds: None,
                acknowledged_by: String::new(),
                observed: (state == AnswerState::Done).then(|| Box::new(observed)),
                image: None,
            });
        }
    }

    fn patch(&mut self, sizing: &Sizing) {
        assert!(!sizing.containers.is_empty(), "a patch that changes nothing");
        self.writes += 1;
        if sizing.dry_run {
            self.memory.dry_run_done(self.now, self.resize.spec.dry_run, true, None);
            return;
        }
        let pod = self.pod.as_mut().unwrap();
        pod.generation = pod.generation.map(|g| g + 1);
        for change in &sizing.containers {
            let container = pod.containers.iter_mut().find(|c| c.name == change.container).unwrap();
            let (to, set) = (&mut container.resources, change.resources);
            to.cpu_request = set.cpu_request.or(to.cpu_request);
            to.cpu_limit = set.cpu_limit.or(to.cpu_limit);
            to.memory_request = set.memory_request.or(to.memory_request);
            to.memory_limit = set.memory_limit.or(to.memory_limit);
            // As the API server's defaults do.
            to.cpu_request = to.cpu_request.or(to.cpu_limit);
            to.memory_request = to.memory_request.or(to.memory_limit);
            assert_eq!(*to, change.whole);
        }
    }

    /// Acts until nothing urgent is left.
    fn settle(&mut self) {
        for _ in 0..20 {
            let before = self.writes;
            self.act();
            if self.writes == before {
                return;
            }
        }
        panic!("does not come to rest: {:?}", self.resize.status);
    }

    /// Stores a wait that has lasted.
    fn store_wait(&mut self) {
        if let Some(write) = self.plan().status {
            self.resize.status = write.status;
        }
    }

    /// The kubelet has seen the Pod's spec.
    fn observe_spec(&mut self) {
        let pod = self.pod.as_mut().unwrap();
        pod.observed_generation = pod.generation;
    }

    /// The kubelet has seen the Pod's spec, and applied it.
    fn done(&mut self) {
        self.observe_spec();
        let pod = self.pod.as_mut().unwrap();
        pod.resize = crate::pod::ResizeConditions::default();
        for container in &mut pod.containers {
            let spec = container.resources;
            let status = container.status.as_mut().unwrap();
            status.allocated = Some(Resources { cpu_limit: None, memory_limit: None, ..spec });
            status.actual = Some(spec);
        }
    }

    /// The kubelet has seen the Pod's spec, and waits for room.
    fn pending(&mut self, reason: &str, message: &str) {
        self.observe_spec();
        self.pod.as_mut().unwrap().resize.pending =
            Some(Explanation { reason: reason.into(), message: message.into() });
    }

    /// The API server refuses the patch.
    fn refuse(&mut self, text: &str) {
        self.memory.sizing_written(self.now, Some(text.to_owned()));
    }

    fn later(&mut self, seconds: u64) {
        self.now = Mono(self.now.0 + seconds * 1000);
    }

    fn container(&mut self, name: &str) -> &mut Container {
        self.pod.as_mut().unwrap().containers.iter_mut().find(|c| c.name == name).unwrap()
    }

    fn status(&mut self, name: &str) -> &mut ContainerStatus {
        self.container(name).status.as_mut().unwrap()
    }

    fn cpu_limit(&mut self) -> Option<i64> {
        self.container("app").resources.cpu_limit
    }

    /// Phase and reason, as stored.
    fn stored(&self) -> (Option<Phase>, &str) {
        let complete = condition::find(&self.resize.status.conditions, conditions::COMPLETE);
        (self.resize.status.phase, complete.map_or("", |c| c.reason.as_str()))
    }

    /// Status and reason of the condition `Verified`.
    fn verified(&self) -> (ConditionStatus, &str) {
        let found = condition::find(&self.resize.status.conditions, conditions::VERIFIED).unwrap();
        (found.status, found.reason.as_str())
    }

    /// Phase and reason that would be stored if the wait lasted.
    fn planned(&mut self) -> (Phase, String) {
        let write = self.plan().status.expect("a status to write");
        assert_eq!(write.urgency, Urgency::Later);
        let complete = condition::find(&write.status.conditions, conditions::COMPLETE).unwrap();
        assert_eq!(complete.status, ConditionStatus::False);
        (write.status.phase.unwrap(), complete.reason.clone())
    }

    /// The wait message.
    fn message(&mut self) -> String {
        let status = self.plan().status.expect("a status to write").status;
        condition::find(&status.conditions, conditions::COMPLETE).unwrap().message.clone()
    }
}
