//! Requests step by step. The scene is a Pod `web` with containers `app` and `sidecar`.
#![allow(unused_must_use, reason = "most tests let plans take effect and look at what came of it")]

mod accept;
mod admit;
mod defects;
mod drain;
mod end;
mod forced;
mod hooks;
mod late;
mod mechanism;
mod reasons;
mod resolving;
mod restart;
mod strategy;

use chrono::{DateTime, TimeDelta, Utc};
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::labels;
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, Order, request_uid};
use pitstop_api::recreate::{
    ContainerRecreateRequestSpec, ContainerRecreateRequestStatus, ContainerRecreateState, Phase,
    RecreateContainer, StatusContext, conditions,
};

use super::{Memory, Observed, Plan, Request, all_reasons, plan};
use crate::agree::agree;
use crate::blocker::Blocker;
use crate::change::Named;
use crate::config::Config;
use crate::key::ObjectKey;
use crate::kind::{Ahead, Kind as _, Owner};
use crate::measure::Measure;
use crate::nodework::{Acting, NodeWork, OrderView};
use crate::plan::{Read, Urgency};
use crate::pod::{Container, ContainerKind, ContainerState, ContainerStatus, Pod};
use crate::pod_check::{Found, PodCheck};
use crate::recreate;
use crate::time::Mono;

const S: u64 = 1000;

/// The ID of the `n`th instance of a container.
fn id(name: &str, n: u8) -> String {
    let first = if name == "app" { 'a' } else { 'b' };
    format!("containerd://{first}{n:063x}")
}

fn wall(now: Mono) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + i64::try_from(now.0 / S).unwrap(), 0).unwrap()
}

fn running(name: &str, n: u8) -> Container {
    let status = ContainerStatus {
        container_id: id(name, n),
        restart_count: i32::from(n),
        ready: true,
        state: ContainerState::Running,
        ..ContainerStatus::default()
    };
    Container { name: name.into(), status: Some(status), ..Container::default() }
}

fn pod() -> Pod {
    Pod {
        key: ObjectKey::new("shop", "web"),
        uid: "pod-1".into(),
        resource_version: "1".into(),
        node: Some("node1".into()),
        grace_seconds: Some(30),
        containers: vec![running("app", 1), running("sidecar", 0)],
        ..Pod::default()
    }
}

/// A request as a user writes it.
fn raw(containers: &[&str]) -> Request {
    let containers =
        containers.iter().map(|name| RecreateContainer { name: (*name).into(), ..Default::default() });
    Request {
        key: ObjectKey::new("shop", "crr"),
        uid: "crr-1".into(),
        resource_version: "1".into(),
        generation: Some(1),
        spec: ContainerRecreateRequestSpec {
            pod_name: "web".into(),
            containers: containers.collect(),
            ..Default::default()
        },
        ..Request::default()
    }
}

/// One request in its surroundings.
struct Scene {
    now: Mono,
    config: Config,
    request: Request,
    pod: Option<Pod>,
    ahead: Option<Ahead>,
    owner_over: bool,
    orders: Vec<Order>,
    answers: Vec<Answer>,
    /// IDs of orders that the book has closed.
    closed: Vec<String>,
    placing: bool,
    acting: Acting,
    memory: Memory,
    pod_check: PodCheck,
    /// The API server's answer about a Pod that the watch does not show.
    found: Found,
    /// By how many seconds the wall clock is wrong.
    wrong_by: i64,
}

/// An earlier request for the same Pod.
fn first() -> Blocker {
    Blocker::Request(Named { kind: recreate::ID, key: ObjectKey::new("shop", "first") })
}

impl Scene {
    /// A request that the webhook has admitted.
    fn admitted(containers: &[&str]) -> Self {
        let (mut request, pod) = (raw(containers), pod());
        request.more.labels =
            [(labels::ACTIVE, labels::ACTIVE_TRUE), (labels::POD_UID, "pod-1"), (labels::NODE_NAME, "node1")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into();
        for wanted in &mut request.spec.containers {
            let status = pod.container(&wanted.name).unwrap().status.clone().unwrap();
            wanted.status_context = Some(StatusContext {
                container_id: status.container_id,
                restart_count: status.restart_count,
            });
        }
        Self {
            now: Mono(0),
            config: Config::default(),
            request,
            pod: Some(pod),
            ahead: None,
            owner_over: false,
            orders: Vec::new(),
            answers: Vec::new(),
            closed: Vec::new(),
            placing: false,
            acting: Acting::default(),
            memory: Memory::new(Mono(0)),
            pod_check: PodCheck::default(),
            found: Found::Gone,
            wrong_by: 0,
        }
    }

    /// Accepted, and its orders placed.
    fn ordered(containers: &[&str]) -> Self {
        let mut scene = Self::admitted(containers);
        scene.act();
        scene.act();
        assert_eq!(scene.orders.len(), containers.len());
        scene
    }

    fn plan(&mut self) -> Plan {
        let orders: Vec<OrderView<'_>> = self
            .orders
            .iter()
            .filter(|o| request_uid(&o.id) == self.request.uid)
            .map(|order| OrderView {
                order,
                answer: self.answers.iter().find(|a| a.order_id == order.id),
                closed: self.closed.contains(&order.id),
            })
            .collect();
        let busy = orders.iter().any(OrderView::acting);
        self.memory.update(self.now, self.request.completed(), busy, false, &orders);
        let mut book = NodeWork { orders: self.orders.clone(), ..NodeWork::default() };
        book.status.answers.clone_from(&self.answers);
        self.acting.see(self.now, Some(&book));
        self.memory.see(self.now, &self.request, self.pod.as_ref());
        let observed = Observed {
            request: &self.request,
            pod: self.pod.as_ref(),
            ahead: self.ahead.clone(),
            owner_over: self.owner_over,
            orders,
            placing: self.placing,
            pinned_now: false,
            guarded: true,
            pinning: &[],
            acting: &self.acting,
            pod_check: &self.pod_check,
            memory: &self.memory,
        };
        let clock = wall(self.now) + TimeDelta::seconds(self.wrong_by);
        let plan = plan(self.now, clock, &self.config, &observed);
        if let Some(write) = &plan.status {
            agrees(&write.status, self.request.generation);
        }
        plan
    }

    /// Plans, and applies everything that is due at once.
    fn act(&mut self) -> Plan {
        let mut plan = self.plan();
        if plan.read == Some(Read::Pod) {
            self.pod_check.begin();
            self.pod_check.answered(self.now, self.found);
            plan = self.plan();
        }
        if let Some(write) = plan.status.clone().filter(|w| w.urgency == Urgency::Now) {
            self.request.status = write.status;
        }
        let request = &mut self.request;
        for (kept, changes) in
            [(&mut request.more.labels, &plan.labels), (&mut request.more.annotations, &plan.annotations)]
        {
            for (key, value) in changes {
                match value {
                    Some(value) => kept.insert(key.clone(), value.clone()),
                    None => kept.remove(key),
                };
            }
        }
        if let Some(pod) = &mut self.pod {
            for change in &plan.images {
                let container = pod.containers.iter_mut().find(|c| c.name == change.container).unwrap();
                assert_eq!(change.init, container.kind != ContainerKind::Main);
                container.image.clone_from(&change.image);
            }
        }
        self.orders.clone_from(&plan.orders);
        self.closed.clone_from(&plan.closed);
        self.answers.retain(|a| self.orders.iter().any(|o| o.id == a.order_id));
        plan
    }

    /// Acts until nothing is left to do; returns the last plan.
    fn settle(&mut self) -> Plan {
        for _ in 0..10 {
            let before = (self.request.clone(), self.orders.clone(), self.closed.clone());
            let plan = self.act();
            if (&self.request, &self.orders, &self.closed) == (&before.0, &before.1, &before.2) {
                return plan;
            }
        }
        panic!("does not settle: {:?}", self.request.status);
    }

    fn at(&mut self, millis: u64) -> &mut Self {
        self.now = Mono(millis);
        self
    }

    /// The daemon answers.
    fn answer(&mut self, name: &str, state: AnswerState, reason: Option<AnswerReason>) {
        let order = self.orders.iter().find(|o| o.container.name == name).unwrap();
        self.answers.retain(|a| a.order_id != order.id);
        self.answers.push(Answer {
            order_id: order.id.clone(),
            state,
            reason,
            message: "told so".into(),
            acknowledged_uptime_seconds: None,
            acknowledged_by: String::new(),
            observed: None,
            image: None,
        });
    }

    fn acknowledge(&mut self, name: &str) {
        self.answer(name, AnswerState::Acknowledged, None);
    }

    /// The Pod's status of a container changes.
    fn status(&mut self, name: &str, change: impl FnOnce(&mut ContainerStatus)) {
        let pod = self.pod.as_mut().unwrap();
        let container = pod.containers.iter_mut().find(|c| c.name == name).unwrap();
        change(container.status.as_mut().unwrap());
    }

    fn ends(&mut self, name: &str, exit_code: i32) {
        self.status(name, |s| {
            s.ready = false;
            s.state = ContainerState::Terminated { exit_code };
        });
    }

    /// The kubelet has started the next instance.
    fn restarts(&mut self, name: &str, ready: bool) {
        self.status(name, |s| {
            s.restart_count += 1;
            s.container_id = id(name, u8::try_from(s.restart_count).unwrap());
            s.ready = ready;
            s.state = ContainerState::Running;
        });
    }

    fn states(&self) -> &[ContainerRecreateState] {
        &self.request.status.container_recreate_states
    }
}

fn state(name: &str, phase: Phase, is_killed: bool) -> ContainerRecreateState {
    ContainerRecreateState { name: name.into(), phase, message: String::new(), is_killed }
}

/// Checks that phase, generation and conditions agree, and that the reasons are listed.
#[track_caller]
fn agrees(status: &ContainerRecreateRequestStatus, generation: Option<i64>) {
    assert_eq!(
        (status.phase, status.observed_generation),
        (condition::phase(&status.conditions), generation)
    );
    agree(&status.conditions, status.completion_time.is_some(), |condition| {
        condition.type_ == "Theirs" || all_reasons().any(|known| known == condition.reason)
    });
}

/// Reason of a condition.
fn reason<'a>(status: &'a ContainerRecreateRequestStatus, type_: &str) -> &'a str {
    status.conditions.iter().find(|c| c.type_ == type_).map_or("", |c| &c.reason)
}

/// Reason of the condition `Complete`: what the request waits for.
fn waits_for(plan: &Plan) -> &str {
    reason(&plan.status.as_ref().unwrap().status, conditions::COMPLETE)
}

/// How a request has ended: phase, reason and message.
fn outcome(scene: &Scene) -> (Option<Phase>, &str, &str) {
    let status = &scene.request.status;
    assert_eq!(status.completion_time.is_some(), status.phase == Some(Phase::Completed));
    let why = reason(status, conditions::COMPLETE);
    let failed = if why == "Complete" { "" } else { why };
    assert_eq!(reason(status, conditions::FAILED), failed);
    (status.phase, why, &status.message)
}

#[track_caller]
fn assert_ended(scene: &Scene, why: &str, message: &str) {
    assert_eq!(outcome(scene), (Some(Phase::Completed), why, message));
    let (new, old) = (&scene.request, ContainerRecreateRequestStatus::default());
    let complete = why == "Complete";
    assert!(
        matches!(new.measure(&old), Some(Measure::Ended { kind: recreate::ID, complete: c, reason }) if c == complete && reason == why)
    );
    assert_eq!(new.measure(&new.status), None, "it is counted once");
}
