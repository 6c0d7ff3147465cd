//! Plan for one resize, from its stored status and the observed state.
//!
//! Stages, each derived only from the stored status and the Pod: not accepted → accepted (`status.target` and the
//! original resources are durable) → Pod spec changed → kubelet done → watched, if requested → ended. Before most
//! ends without success, the original resources are restored, and `status.restoring` stores that end. They stay with
//! `onDeferred.then: Keep`, after another client's change, and after a failed restart without a rollback.

mod cri;
mod evict;
mod follow;
mod nudge;
mod repair;
mod restart;
mod restore;
mod room;
mod shrink;
mod sized;
mod turn;

use chrono::{DateTime, Utc};
use pitstop_api::condition;
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{
    ContainerStatus, Mechanism, Phase, PodResizeStatus, Restart, conditions, validate,
};

use cri::Admission;

use super::judge::{Progress, SpecState, desired, progress};
use super::mechanism::choose;
use super::observe::{Observed, Refusals};
use super::refusal;
use super::resolve::{INVALID, Rejection, resolve};
use super::shrink::{containers, spec_state};
use super::status::{self, End, Wait, accepted, changes, difference, ended, record_resources, waits};
use crate::change::{ResourceChange, Sizing};
use crate::config::Config;
use crate::kind::Kind as _;
use crate::lifecycle;
use crate::plan::{Read, StatusWrite, Urgency};
use crate::pod::{ContainerKind, Pod};
use crate::pod_check::Missing;
use crate::time::{Mono, earliest};

/// Plan for one resize.
pub type Plan = crate::plan::Plan<PodResizeStatus>;

/// Plans the next actions.
pub fn plan(now: Mono, wall: DateTime<Utc>, config: &Config, observed: &Observed<'_>) -> Plan {
    let planner = Planner { now, wall, config, observed };
    let resize = observed.resize;
    if resize.completed() {
        planner.after_end()
    } else if resize.deleting {
        Plan::default()
    } else if resize.status.target.is_none() {
        planner.accept()
    } else {
        let mut plan = planner.follow();
        if planner.waits_for_restart() {
            plan.sizing = None;
        }
        plan
    }
}

struct Planner<'a> {
    now: Mono,
    wall: DateTime<Utc>,
    config: &'a Config,
    observed: &'a Observed<'a>,
}

impl Planner<'_> {
    /// Plan for a request that is not accepted yet.
    fn accept(&self) -> Plan {
        let (expired, deadline) = self.deadline();
        if let Some(end) = self.ends_unaccepted(expired) {
            return self.end(&end);
        }
        // The request ahead may change the Pod before this resolution is stored.
        if self.observed.ahead.is_some() {
            return self.in_queue(deadline);
        }
        if self.observed.sizing_now {
            return Plan { wake_at: deadline, ..Plan::default() };
        }
        let uid = self.observed.resize.spec.pod_ref.uid.as_ref();
        let pod = self.observed.pod.filter(|pod| uid.is_none_or(|uid| *uid == pod.uid));
        let refused = match pod {
            None if self.lag_until().is_none() => return self.without_pod(|| self.no_pod(), deadline),
            None => self.no_pod(),
            Some(pod) if pod.gone() => self.no_pod(),
            Some(pod) if pod.node.is_none() => {
                let text =
                    format!("Pod {} is not scheduled yet: there is nothing to resize in place", pod.key);
                End::failed(INVALID, text)
            }
            Some(pod) => match self.resolved(pod) {
                Ok((mechanism, containers)) => return self.admitted(pod, mechanism, containers, deadline),
                Err((reason, text)) => End::failed(reason, text),
            },
        };
        // This process's watch of Pods may be a little behind what the user saw.
        match self.lag_until() {
            Some(at) => Plan { wake_at: earliest(deadline, Some(at)), ..Plan::default() },
            None => self.end(&refused),
        }
    }

    /// End of a request that is not accepted, for reasons other than its Pod.
    fn ends_unaccepted(&self, expired: bool) -> Option<End> {
        let resize = self.observed.resize;
        if let Err(invalid) = validate(&resize.spec) {
            return Some(End::failed(INVALID, invalid.to_string()));
        }
        if resize.spec.cancel {
            let text = "cancelled before anything was changed";
            return Some(End::new(Phase::Cancelled, status::CANCELLED, text));
        }
        if let Some(newer) = self.observed.newer {
            return Some(superseded(&newer.to_string()));
        }
        if !expired {
            return None;
        }
        let waited = condition::find(&resize.status.conditions, conditions::COMPLETE);
        let waited = waited.map_or("the controller did not find its Pod", |waited| &waited.message);
        let queued = self.observed.ahead.as_ref().map(|ahead| ahead.blocker.to_string());
        Some(overdue(queued.as_deref().unwrap_or(waited)))
    }

    /// Accepts a resolved request once the limits on the Pod allow it. With the mechanism API, the API server checks
    /// those limits.
    fn admitted(
        &self,
        pod: &Pod,
        mechanism: Mechanism,
        containers: Vec<ContainerStatus>,
        deadline: Option<Mono>,
    ) -> Plan {
        let resize = self.observed.resize;
        let (admission, turn) = if mechanism == Mechanism::Cri {
            (self.admission(pod, &containers), self.observed.force.turn.saturating_add(1))
        } else {
            (Admission::Admitted, 0)
        };
        let accepted = || accepted(resize, pod, (mechanism, turn), containers, self.wall);
        match admission {
            Admission::Admitted => Plan { wake_at: deadline, ..self.with_status(accepted(), Urgency::Now) },
            Admission::Waits(wait) => self.waits_for_admission(&wait, deadline),
            Admission::Evicts(end) => self.evict_from(accepted(), &end),
            Admission::Refused(end) if resize.spec.dry_run => self.end(&would_end(&end)),
            Admission::Refused(end) => self.end(&end),
        }
    }

    /// Mechanism and new resources of the containers.
    fn resolved(&self, pod: &Pod) -> Result<(Mechanism, Vec<ContainerStatus>), Rejection> {
        let spec = &self.observed.resize.spec;
        let mut containers = resolve(spec, pod, self.observed.force)?;
        let mechanism = choose(spec, &containers, pod, self.config)?;
        if mechanism == Mechanism::Cri {
            // With the mechanism CRI, only the request itself restarts containers.
            for container in &mut containers {
                container.restarts = false;
            }
        }
        Ok((mechanism, containers))
    }

    /// Plan for an accepted request, by the first rule that applies.
    fn follow(&self) -> Plan {
        let resize = self.observed.resize;
        let Some(pod) = self.observed.pod.filter(|pod| resize.is_for(pod) && !pod.gone()) else {
            return self.follow_no_pod();
        };
        if resize.spec.dry_run {
            return self.dry_run(pod);
        }
        if resize.evicting().is_some() {
            return self.evicting(pod);
        }
        if let Some(restoring) = &resize.status.restoring {
            let end = End::from(restoring);
            return if resize.held() { self.daemon_restore(pod, end) } else { self.restore(pod, end) };
        }
        let state = spec_state(resize, pod);
        self.overridden(&state).unwrap_or_else(|| self.proceed(pod, &state))
    }

    /// Plan if the Pod is missing, deleted or finished.
    fn follow_no_pod(&self) -> Plan {
        if let Some(at) = self.lag_until() {
            return Plan { wake_at: Some(at), ..self.repeat_write() };
        }
        if self.observed.pod.is_some_and(|pod| self.observed.resize.is_for(pod)) {
            self.end(&self.end_without_pod())
        } else {
            self.without_pod(|| self.end_without_pod(), self.deadline().1)
        }
    }

    /// Plan for a dry run.
    fn dry_run(&self, pod: &Pod) -> Plan {
        let resize = self.observed.resize;
        let containers = &resize.status.containers;
        if resize.spec.cancel {
            return self.end(&End::new(Phase::Cancelled, status::CANCELLED, "cancelled"));
        }
        let (expired, deadline) = self.deadline();
        if expired {
            return self.end(&overdue("the API server has not answered the dry run"));
        }
        // The API server would store other resources than resolved, and this would look like a change by admission.
        if let SpecState::Other(container) = spec_state(resize, pod) {
            return self.end(&foreign(&container));
        }
        let nothing = containers.iter().all(|c| c.original == c.desired);
        if self.observed.memory.dry_run_passed || nothing || resize.by_daemon() {
            let always = resize.spec.restart == Some(Restart::Always);
            let restarts: Vec<&str> =
                containers.iter().filter(|c| c.restarts || always).map(|c| c.name.as_str()).collect();
            let restarts = if restarts.is_empty() {
                "no container restarts".to_owned()
            } else {
                format!("restarts {}", restarts.join(", "))
            };
            let text = format!("dry run: {}; {restarts}", changes(containers));
            return self.end(&End::new(Phase::Succeeded, status::WOULD_RESIZE, text));
        }
        if let Some(end) = self.refusal_end() {
            return self.end(&would_end(&end));
        }
        let sizing = self.sizing(pod, |c| (Resources::from(&c.original), desired(c)));
        Plan { sizing: Some(Sizing { dry_run: true, ..sizing }), wake_at: deadline, ..Plan::default() }
    }

    /// Plan after the end: deletes the request in time, and updates `InForce` and `observedGeneration`. kstatus takes a
    /// request with an old `observedGeneration` for one at work.
    fn after_end(&self) -> Plan {
        let resize = self.observed.resize;
        let mut status = resize.status.clone();
        if status.observed_generation.is_some() {
            status.observed_generation = resize.generation;
        }
        status::record_in_force(&mut status, self.observed, self.wall);
        let (expired, expiry) =
            lifecycle::expiry(self.now, self.observed.memory.completed_seen, resize.ttl());
        Plan {
            delete: !resize.deleting && expired,
            wake_at: expiry,
            status: (status != resize.status).then_some(StatusWrite { status, urgency: Urgency::Now }),
            ..Plan::default()
        }
    }

    /// Ends the request, once no write of the Pod can take effect any more.
    fn end(&self, end: &End) -> Plan {
        if self.write_unknown() {
            return self.repeat_write();
        }
        if let Some(plan) = self.withdraw() {
            return plan;
        }
        self.with_status(ended(self.observed, end, self.wall), Urgency::Now)
    }

    /// Repeats a write whose result is unknown, to learn it.
    fn repeat_write(&self) -> Plan {
        let Observed { sizing, deed, .. } = self.observed;
        Plan { sizing: sizing.cloned(), deed: deed.cloned(), ..self.keep_orders() }
    }

    /// Whether the result of a write is unknown.
    fn write_unknown(&self) -> bool {
        self.observed.sizing.is_some() || self.observed.deed.is_some()
    }

    /// How a request ends whose change is refused for good.
    fn refusal_end(&self) -> Option<End> {
        let refused = self.observed.memory.refused.as_ref()?;
        let meaning = refusal::end(refused, self.now)?;
        Some(End::new(meaning.phase, meaning.reason, refused.text.clone()))
    }

    /// What the request waits for.
    fn wait(&self, state: &SpecState, pod: &Pod) -> Wait {
        let resize = self.observed.resize;
        if *state == SpecState::Original {
            let text = match &self.observed.memory.refused {
                Some(Refusals { text, .. }) => {
                    format!("the API server refuses the change, which is tried again: {text}")
                }
                None => "sends the change to the API server".to_owned(),
            };
            return Wait::new(Phase::Proposed, status::PROPOSING, text);
        }
        let wait = match progress(&containers(resize, state), resize.pending_before(), pod) {
            Progress::Restarting(name) => {
                let text = format!("waits for container {name} to be ready with its new resources");
                let repair = self.stuck_repair(pod, &name);
                let text = repair.map_or(text.clone(), |repair| format!("{text}; {}", repair.text));
                Wait::new(Phase::InProgress, status::RESTART, text)
            }
            _ if self.observed.resize.held() => self.waits_for_daemon(),
            Progress::Unseen | Progress::Sized | Progress::Infeasible(_) => {
                Wait::new(Phase::Proposed, status::KUBELET, "the kubelet has not taken the change up yet")
            }
            Progress::Deferred(text) => Wait::new(Phase::Deferred, status::NODE_BUSY, text),
            Progress::Underway(None) | Progress::Unreported => {
                Wait::new(Phase::InProgress, status::KUBELET, "the kubelet changes the containers")
            }
            Progress::Underway(Some(text)) => {
                let in_use =
                    text.contains("cannot decrease memory limits") || text.contains("memory limit less than");
                let reason = if in_use { status::MEMORY_IN_USE } else { status::RUNTIME_ERROR };
                Wait::new(Phase::InProgress, reason, text)
            }
        };
        self.stepwise(state, wait)
    }

    /// The change of the Pod; `of` returns a container's resources before and after.
    fn sizing(&self, pod: &Pod, of: impl Fn(&ContainerStatus) -> (Resources, Resources)) -> Sizing {
        Self::sizing_of(&self.observed.resize.status.containers, pod, of)
    }

    fn sizing_of(
        containers: &[ContainerStatus],
        pod: &Pod,
        of: impl Fn(&ContainerStatus) -> (Resources, Resources),
    ) -> Sizing {
        let changes = containers.iter().filter_map(|container| {
            let (from, whole) = of(container);
            let resources = difference(&from, &whole);
            let kind = pod.container(&container.name)?.kind;
            (resources != Resources::default()).then(|| ResourceChange {
                container: container.name.clone(),
                init: kind != ContainerKind::Main,
                resources,
                whole,
            })
        });
        Sizing { containers: changes.collect(), dry_run: false }
    }

    /// Plan that records the wait.
    fn waiting(&self, pod: &Pod, wait: &Wait, wake_at: Option<Mono>) -> Plan {
        let resize = self.observed.resize;
        let mut status = resize.status.clone();
        record_resources(&mut status, Some(pod));
        let plan = self.with_status(waits(status, resize, wait, self.wall), Urgency::Later);
        Plan { wake_at, ..plan }
    }

    /// The watch does not show the Pod: ends the request once the API server says the same.
    fn without_pod(&self, gone: impl FnOnce() -> End, deadline: Option<Mono>) -> Plan {
        let (read, at) = match self.observed.pod_check.missing(self.now) {
            Missing::Gone => return self.end(&gone()),
            _ if deadline.is_some_and(|at| at <= self.now) => {
                let text = "the API server says that the Pod exists, and its watch has not shown it";
                return self.end(&overdue(text));
            }
            Missing::Ask => (Some(Read::Pod), None),
            Missing::Wait(at) => (None, at),
        };
        Plan { read, wake_at: earliest(deadline, at), ..self.repeat_write() }
    }

    fn no_pod(&self) -> End {
        let spec = &self.observed.resize.spec.pod_ref;
        let uid = spec.uid.as_ref().map_or_else(String::new, |uid| format!(" with UID {uid}"));
        End::failed(status::POD_GONE, format!("there is no running Pod {}{uid} any more", spec.name))
    }

    /// Until when a missing Pod may only be late; `None` afterwards.
    fn lag_until(&self) -> Option<Mono> {
        lifecycle::lag_until(self.now, self.observed.memory.first_seen, self.config)
    }

    /// Whether the deadline has passed, and when it will.
    fn deadline(&self) -> (bool, Option<Mono>) {
        let limit = lifecycle::limit(self.observed.resize.spec.active_deadline_seconds, self.config);
        lifecycle::deadline(self.now, self.observed.memory.first_seen, limit)
    }

    fn with_status(&self, status: PodResizeStatus, urgency: Urgency) -> Plan {
        let changed = status != self.observed.resize.status;
        let mut plan = self.keep_orders();
        if status.completion_time.is_some() || status.restoring.is_some() {
            plan.orders.retain(|order| !self.acts_on(order));
        }
        Plan { status: changed.then_some(StatusWrite { status, urgency }), ..plan }
    }

    /// Keeps the questions until others replace them or the end is stored, because order numbers are never reused.
    fn keep_orders(&self) -> Plan {
        let questions = self.observed.orders.iter().map(|view| view.order.clone());
        let orders = questions.chain(self.current_repair()).collect();
        Plan { orders, ..Plan::default() }
    }
}

fn overdue(waited_for: &str) -> End {
    End::failed(status::DEADLINE, format!("not done within activeDeadlineSeconds: {waited_for}"))
}

/// End of a dry run whose request would end like this.
fn would_end(end: &End) -> End {
    End { message: format!("dry run: {}", end.message), ..*end }
}

fn superseded(newer: &str) -> End {
    End::failed(status::SUPERSEDED, format!("the later PodResize {newer} resizes the same Pod"))
}

fn foreign(container: &str) -> End {
    let text = format!("another client changed the resources of container {container}; its change stays");
    End::failed(status::SUPERSEDED, text)
}

fn foreign_restore() -> End {
    let text = "another client restored the original resources; its change stays";
    End::failed(status::SUPERSEDED, text)
}
