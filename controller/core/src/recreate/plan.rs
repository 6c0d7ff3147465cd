//! Plan for one request, from its stored status and the observed state.
//!
//! Stages, each derived only from the stored status: not accepted → accepted (`status.target` is durable) → drained, if
//! requested → orders placed or images pinned → outcome → after the end. Unanswered orders are withdrawn before an
//! outcome is written. The precondition of the withdrawal proves that the daemon has not taken them up.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use pitstop_api::nodework::{AnswerState, Order, OrderContainer};
use pitstop_api::recreate::{
    ContainerRecreateRequestStatus, ContainerRecreateState, FailurePolicy, Mechanism, Phase, Target,
    TargetContainer, validate,
};
use pitstop_api::{Invalid, annotations, labels};

use super::drain::{self, Drain};
use super::hooks;
use super::judge::{Finding, failed, judge, over, recreating, replaced, status_of};
use super::observe::Observed;
use super::resolve::{Moment, resolve};
use super::silence::Silence;
use super::status::{End, Wait, accepted, ended, queued, waits};
use crate::config::Config;
use crate::kind::{Kind as _, Owner};
use crate::lifecycle;
use crate::nodework::OrderView;
use crate::plan::{Read, StatusWrite, Urgency};
use crate::pod::Pod;
use crate::pod_check::Missing;
use crate::time::{Mono, earliest};

/// Plan for one request.
pub type Plan = crate::plan::Plan<ContainerRecreateRequestStatus>;

/// Plans the next actions.
pub fn plan(now: Mono, wall: DateTime<Utc>, config: &Config, observed: &Observed<'_>) -> Plan {
    let planner = Planner { now, wall, config, observed };
    let request = observed.request;
    if request.completed() {
        planner.after_end()
    } else if request.deleting {
        planner.withdrawn(planner.running())
    } else if let Some(target) = &request.status.target {
        planner.recreate(target)
    } else {
        planner.accept()
    }
}

/// The new target, if a container's part of it changes.
fn new_target(target: &Target, findings: &[Finding]) -> Option<Target> {
    findings.iter().find(|f| f.new_target.is_some())?;
    let of = |(old, new): (&TargetContainer, &Finding)| new.new_target.as_ref().unwrap_or(old).clone();
    let containers = target.containers.iter().zip(findings).map(of).collect();
    Some(Target { containers, ..target.clone() })
}

pub(super) struct Planner<'a> {
    pub(super) now: Mono,
    pub(super) wall: DateTime<Utc>,
    pub(super) config: &'a Config,
    pub(super) observed: &'a Observed<'a>,
}

impl Planner<'_> {
    /// Plan for a request that is not accepted yet.
    fn accept(&self) -> Plan {
        let request = self.observed.request;
        if let Err(invalid) = validate(&request.spec) {
            return self.end(&[], &End::Invalid(invalid.to_string()));
        }
        // The owner may have ended while the write that made this request was on its way.
        if let Some(owner) = request.owner.as_ref().filter(|_| self.observed.owner_over) {
            return self.end(&[], &End::Invalid(owner_over(owner).to_string()));
        }
        let (expired, deadline) = self.deadline();
        if expired {
            return self.end(&[], &End::DeadlineExceeded);
        }
        if let Some(ahead) = &self.observed.ahead {
            let status = queued(request, ahead, self.wall);
            let wake_at = earliest(deadline, ahead.until);
            let urgency = if ahead.crowded { Urgency::Later } else { Urgency::Now };
            return Plan { wake_at, ..self.with_status(status, urgency) };
        }
        // The write under way may change the images before this target is stored.
        if self.observed.pinned_now {
            return Plan { wake_at: deadline, ..Plan::default() };
        }
        let mechanism = request.spec.strategy.as_ref().and_then(|s| s.mechanism).unwrap_or_default();
        let node_type = request.more.labels.get(labels::NODE_TYPE).map(String::as_str);
        if node_type == Some(labels::VIRTUAL_KUBELET) && mechanism != Mechanism::Kubelet {
            return self.end(&[], &End::VirtualNode);
        }
        let admitted_uid = request.more.labels.get(labels::POD_UID);
        let pod = self.observed.pod.filter(|pod| admitted_uid.is_none_or(|uid| *uid == pod.uid));
        let refused = match pod {
            None => End::PodGone,
            Some(pod) if admitted_uid.is_some() && pod.gone() => return self.end(&[], &End::PodGone),
            Some(pod) => match resolve(&request.spec, pod, Moment::Accepted) {
                Err(refusal) => End::Invalid(refusal.to_string()),
                Ok(target) => {
                    let status = accepted(request, pod, target, self.wall);
                    return Plan { wake_at: deadline, ..self.with_status(status, Urgency::Now) };
                }
            },
        };
        // Admission read the Pod itself; this process's watch of Pods may be a little behind it.
        match self.lag_until() {
            Some(at) => Plan { wake_at: earliest(deadline, Some(at)), ..Plan::default() },
            None if refused == End::PodGone => self.without_pod(&[]),
            None => self.end(&[], &refused),
        }
    }

    /// The watch does not show the Pod: ends the request once the API server says the same.
    fn without_pod(&self, stored: &[ContainerRecreateState]) -> Plan {
        let (expired, deadline) = self.deadline();
        let (read, at) = match self.observed.pod_check.missing(self.now) {
            Missing::Gone => return self.end(stored, &End::PodGone),
            _ if expired => return self.end(stored, &End::DeadlineExceeded),
            Missing::Ask => (Some(Read::Pod), None),
            Missing::Wait(at) => (None, at),
        };
        Plan { read, wake_at: earliest(deadline, at), ..self.unsure() }
    }

    /// Plan that changes nothing.
    fn unsure(&self) -> Plan {
        let orders = self.observed.orders.iter().map(|o| o.order.clone()).collect();
        Plan { orders, images: self.observed.pinning.to_vec(), ..Plan::default() }
    }

    /// Until when a missing Pod may only be late; `None` afterwards.
    fn lag_until(&self) -> Option<Mono> {
        lifecycle::lag_until(self.now, self.observed.memory.first_seen, self.config)
    }

    /// Plan for an accepted request: judges the containers, then the first rule that applies.
    fn recreate(&self, target: &Target) -> Plan {
        let stored = &self.observed.request.status.container_recreate_states;
        let Some(pod) = self.observed.pod.filter(|pod| pod.uid == target.pod_uid) else {
            return match self.lag_until() {
                Some(at) => Plan { wake_at: Some(at), ..self.unsure() },
                None => self.without_pod(stored),
            };
        };
        let patience = self.config.daemon_silent_after;
        let judge = |t| judge(self.now, patience, self.observed, t, pod);
        let findings: Vec<Finding> = target.containers.iter().map(judge).collect();
        let entries: Vec<ContainerRecreateState> = findings.iter().map(|f| f.state.clone()).collect();
        self.ends(pod, &findings, &entries)
            .or_else(|| new_target(target, &findings).map(|target| self.go_on_with(target)))
            .unwrap_or_else(|| self.waits_for_daemon(target, pod, &findings, entries))
    }

    /// The end that follows from the containers, the Pod or the deadline.
    fn ends(&self, pod: &Pod, findings: &[Finding], entries: &[ContainerRecreateState]) -> Option<Plan> {
        let request = self.observed.request;
        // A Pod may finish because of the restart, so a failed container is reported first.
        let any_failed = entries.iter().any(|s| s.phase == Phase::Failed);
        let policy = request.spec.strategy.as_ref().and_then(|strategy| strategy.failure_policy);
        let ignore = policy == Some(FailurePolicy::Ignore);
        let all_over = findings.iter().all(Finding::over);
        if !pod.deleting && any_failed && (all_over || !ignore) {
            return Some(self.end(entries, &End::ContainerFailed));
        }
        if pod.gone() {
            return Some(self.end(&request.status.container_recreate_states, &End::PodGone));
        }
        if all_over {
            return Some(self.end(entries, &End::Complete));
        }
        if self.deadline().0 {
            return Some(self.end(entries, &End::DeadlineExceeded));
        }
        // An end was decided, but its write was lost.
        let lost = self.observed.orders.iter().any(OrderView::request_over);
        lost.then(|| self.end(entries, &self.lost_end()))
    }

    /// Continues, unless the node's daemon has been silent for too long.
    fn waits_for_daemon(
        &self,
        target: &Target,
        pod: &Pod,
        findings: &[Finding],
        entries: Vec<ContainerRecreateState>,
    ) -> Plan {
        match self.silence(target, pod, findings) {
            Silence::None => self.goes_on(target, pod, findings, entries, None),
            Silence::Until(at) => self.goes_on(target, pod, findings, entries, Some(at)),
            Silence::Over => self.end(&entries, &End::DaemonSilent),
            Silence::FallBack(target) => self.go_on_with(target),
        }
    }

    /// Plan for the next step: status, and orders or images.
    fn goes_on(
        &self,
        target: &Target,
        pod: &Pod,
        findings: &[Finding],
        entries: Vec<ContainerRecreateState>,
        silent_at: Option<Mono>,
    ) -> Plan {
        let request = self.observed.request;
        let mut status = request.status.clone();
        // If the acceptance did not record the drain, record it now.
        drain::begin(&mut status, request, pod, self.wall);
        // A recorded end frees a place for another order.
        let frees_slot = self.observed.memory.unplaced && entries != request.status.container_recreate_states;
        let urgency = if status == request.status && !frees_slot { Urgency::Later } else { Urgency::Now };
        let drain = drain::stage(self.now, self.observed, Some(pod));
        drain::proceed(&mut status, request, &drain, self.wall);
        status.container_recreate_states = entries;
        hooks::record(&mut status, self.observed, self.wall);
        let held_up = match &drain {
            Drain::Lasts(wait, _) if findings.iter().any(|f| f.needs_stop || f.needs_pin) => {
                Some(Wait::Drain(wait.clone()))
            }
            _ => None,
        };
        let wait = held_up.or_else(|| findings.iter().find_map(|f| f.wait.clone())).unwrap_or(Wait::Daemon);
        // Number of containers whose turn has come.
        let ordered = request.spec.strategy.as_ref().is_some_and(|strategy| strategy.ordered_recreate);
        let in_turn = if ordered {
            findings.iter().position(|f| !f.over()).map_or(findings.len(), |first| first.saturating_add(1))
        } else {
            findings.len()
        };
        let finding_at = findings.iter().filter_map(|f| f.wake_at).min();
        Plan {
            orders: self.orders(target, pod, findings, in_turn, &drain),
            images: self.images(target, pod, findings, in_turn, &drain),
            labels: self.missing_labels(target),
            annotations: self.drain_annotation(),
            wake_at: [self.deadline().1, silent_at, drain.wake_at(), finding_at].into_iter().flatten().min(),
            ..self.with_status(waits(status, request, &wait, self.wall), urgency)
        }
    }

    /// Plan after the end: lets a stop under way finish and records it, cleans up, deletes the request in time.
    fn after_end(&self) -> Plan {
        let request = self.observed.request;
        let mut status = request.status.clone();
        for entry in status.container_recreate_states.iter_mut().filter(|e| e.phase == Phase::Pending) {
            if let Some(late) = self.late_stop(&entry.name) {
                *entry = late;
            }
        }
        if status != request.status {
            // Only together with that stop: nothing else changes after the end.
            hooks::record(&mut status, self.observed, self.wall);
        }
        let recorded = status == request.status;
        let orders = if recorded { self.running() } else { self.taken_up() };
        let remove = |there: bool, key: &str| there.then(|| (key.to_owned(), None)).into_iter().collect();
        let (expired, expiry) =
            lifecycle::expiry(self.now, self.observed.memory.completed_seen, request.ttl());
        let overdue_at = self.observed.orders.iter().filter(|o| self.finishes(o));
        let overdue_at = overdue_at.filter_map(|o| self.overdue_at(o)).min();
        Plan {
            status: (!recorded).then_some(StatusWrite { status, urgency: Urgency::Now }),
            labels: remove(request.more.labels.contains_key(labels::ACTIVE), labels::ACTIVE),
            annotations: if request.more.in_v1beta1 {
                self.drain_annotation()
            } else {
                let key = annotations::UNREADY_ACQUIRED;
                remove(request.more.annotations.contains_key(key), key)
            },
            delete: !request.deleting && expired,
            wake_at: earliest(expiry, overdue_at).filter(|at| *at > self.now),
            ..self.withdrawn(orders)
        }
    }

    /// Ends the request once nothing more can begin. A stop under way may finish; its order is closed first, so that no
    /// other process begins it again.
    fn end(&self, entries: &[ContainerRecreateState], end: &End) -> Plan {
        let orders = self.observed.orders.iter().filter(|o| o.answer.is_some() && !self.stalled(o));
        let orders: Vec<Order> = orders.map(|o| o.order.clone()).collect();
        let may_begin = |o: &OrderView<'_>| self.stalled(o) || (self.finishes(o) && !o.closed);
        if self.undecided() || self.observed.orders.iter().any(may_begin) {
            let images = self.observed.pinning.to_vec();
            return Plan { images, ..self.withdrawn(orders) };
        }
        let drain = drain::stage(self.now, self.observed, self.observed.live_pod());
        let mut status = ended(self.observed, entries.to_vec(), end, self.wall);
        drain::conclude(&mut status, self.observed.request, &drain, self.wall);
        let Plan { orders, closed, .. } = self.withdrawn(orders);
        Plan { orders, closed, ..self.with_status(status, Urgency::Now) }
    }

    /// Whether something may still begin: an unanswered order, or a write whose result is unknown.
    fn undecided(&self) -> bool {
        self.observed.placing
            || !self.observed.pinning.is_empty()
            || self.observed.orders.iter().any(|o| o.answer.is_none())
    }

    /// Withdraws unanswered orders of containers that change, then records the new target.
    fn go_on_with(&self, target: Target) -> Plan {
        let old = self.observed.request.status.target.iter().flat_map(|old| &old.containers);
        let changed: Vec<&str> =
            old.zip(&target.containers).filter(|(a, b)| a != b).map(|(a, _)| a.name.as_str()).collect();
        let stays =
            |o: &&OrderView<'_>| o.answer.is_some() || !changed.contains(&o.order.container.name.as_str());
        let kept: Vec<Order> = self.observed.orders.iter().filter(stays).map(|o| o.order.clone()).collect();
        let withdrawn = kept.len() == self.observed.orders.len();
        if !withdrawn || self.observed.placing || !self.observed.pinning.is_empty() {
            return Plan { orders: kept, images: self.observed.pinning.to_vec(), ..Plan::default() };
        }
        let status =
            ContainerRecreateRequestStatus { target: Some(target), ..self.observed.request.status.clone() };
        Plan { orders: kept, ..self.with_status(status, Urgency::Now) }
    }

    /// Orders that the daemon has answered.
    fn taken_up(&self) -> Vec<Order> {
        self.observed.orders.iter().filter(|o| o.answer.is_some()).map(|o| o.order.clone()).collect()
    }

    /// Keeps only these orders; closes those under way, so that the daemon begins nothing new.
    fn withdrawn(&self, orders: Vec<Order>) -> Plan {
        let closes = |o: &&OrderView<'_>| o.closed || self.finishes(o);
        let over = self.observed.orders.iter().filter(closes).map(|o| &o.order.id);
        let kept = over.filter(|id| orders.iter().any(|o| o.id == **id));
        Plan { closed: kept.cloned().collect(), orders, ..Plan::default() }
    }

    /// Orders that the daemon is carrying out.
    fn running(&self) -> Vec<Order> {
        self.observed.orders.iter().filter(|o| self.finishes(o)).map(|o| o.order.clone()).collect()
    }

    /// Whether the order is acknowledged and, as far as known, its container still runs.
    fn unfinished(&self, order: &OrderView<'_>) -> bool {
        let live = self.observed.live_pod();
        order.acting() && live.is_some_and(|pod| !self.is_over(&order.order.container, pod))
    }

    /// Whether the daemon carries the order out and will finish it.
    fn finishes(&self, order: &OrderView<'_>) -> bool {
        self.unfinished(order) && !self.stalled(order)
    }

    /// Whether an acknowledged order may never end: its stops have no effect, or the daemon is silent for longer than a
    /// stop can take.
    fn stalled(&self, order: &OrderView<'_>) -> bool {
        let overdue = self.overdue_at(order).is_some_and(|at| at <= self.now);
        self.unfinished(order) && (order.retried() || overdue)
    }

    /// When the daemon has been silent about the order for longer than its stop can take.
    fn overdue_at(&self, order: &OrderView<'_>) -> Option<Mono> {
        self.observed.acting.overdue_at(order.order, self.config.daemon_silent_after)
    }

    /// Whether the Pod's status shows that the container instance has ended.
    fn is_over(&self, container: &OrderContainer, pod: &Pod) -> bool {
        let target = self.observed.request.status.target.iter().flat_map(|t| &t.containers);
        target
            .filter(|t| t.name == container.name)
            .any(|t| status_of(pod, &t.name).is_some_and(|s| replaced(t, s) || over(t, s)))
    }

    /// How a stop that outlived the request ended, once it has.
    fn late_stop(&self, name: &str) -> Option<ContainerRecreateState> {
        let order = self.observed.order(name)?;
        let answer = order.answer?;
        if answer.state == AnswerState::Failed {
            return Some(failed(name, answer));
        }
        let over = answer.state == AnswerState::Done
            || self.observed.live_pod().is_some_and(|pod| self.is_over(&order.order.container, pod));
        (order.kills() && over).then(|| recreating(name, true))
    }

    /// Labels that an absent webhook did not set.
    fn missing_labels(&self, target: &Target) -> BTreeMap<String, Option<String>> {
        [
            (labels::POD_UID, target.pod_uid.clone()),
            (labels::NODE_NAME, labels::node_label(&target.node_name)),
            (labels::ACTIVE, labels::ACTIVE_TRUE.to_owned()),
        ]
        .into_iter()
        .filter(|(key, _)| !self.observed.request.more.labels.contains_key(*key))
        .map(|(key, value)| (key.to_owned(), Some(value)))
        .collect()
    }

    /// Beginning of the drain, for clients of `v1alpha1`. Both versions have one schema. On a request made in
    /// `v1alpha1`, it goes with the label `active`: clients of `v1beta1` expect no such annotation after the end. On a
    /// request made in `v1beta1` it stays, because clients of `v1alpha1` expect it.
    fn drain_annotation(&self) -> BTreeMap<String, Option<String>> {
        let request = self.observed.request;
        let key = annotations::UNREADY_ACQUIRED;
        let began = drain::began(&request.status).map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true));
        let missing = began.filter(|text| request.more.annotations.get(key) != Some(text));
        missing.map(|text| (key.to_owned(), Some(text))).into_iter().collect()
    }

    fn limit(&self) -> Option<Duration> {
        lifecycle::limit(self.observed.request.spec.active_deadline_seconds, self.config)
    }

    /// Whether the deadline has passed, and when it will.
    fn deadline(&self) -> (bool, Option<Mono>) {
        lifecycle::deadline(self.now, self.observed.memory.first_seen, self.limit())
    }

    /// The end that another process decided. The deadline, if the daemon took the order up, or could not be silent for
    /// long enough before it. Otherwise the daemon's silence.
    fn lost_end(&self) -> End {
        let patience = self.config.daemon_silent_after;
        let taken_up = self.observed.orders.iter().any(|o| o.request_over() && o.was_taken_up());
        match self.limit() {
            Some(limit) if taken_up || limit <= patience => End::DeadlineExceeded,
            _ => End::DaemonSilent,
        }
    }

    fn with_status(&self, status: ContainerRecreateRequestStatus, urgency: Urgency) -> Plan {
        let changed = status != self.observed.request.status;
        Plan { status: changed.then_some(StatusWrite { status, urgency }), ..Plan::default() }
    }
}

fn owner_over(owner: &Owner) -> Invalid {
    let text = format!(
        "the {} that the request belongs to is over or gone: nothing is restarted for it",
        owner.kind
    );
    Invalid::new("metadata.ownerReferences", text)
}
