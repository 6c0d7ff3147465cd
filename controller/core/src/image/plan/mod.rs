//! What to do about one update, from what is stored and what is observed.
//!
//! Stages, each based only on what is stored and on the Pod: not accepted → accepted (`status.target` and the old
//! images are durable), and the API server would store the change → the node has the images → the request's turn →
//! drained, if requested → `written` is durable, and the API server would store that → the Pod changed → the new
//! containers ready, and known to run the pulled images → watched → the end. An end without success first restores the
//! old images, and `status.restoring` keeps what end that will be.

mod back;
mod changed;
mod node;
mod pull;
mod puller;

use chrono::{DateTime, Utc};
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::image_update::{ContainerStatus, Phase, PodImageUpdateStatus, conditions, validate};

use self::pull::Pulling;
use super::judge::{SpecImages, spec_images};
use super::kind::keeps_unaccepted;
use super::observe::Observed;
use super::resolve::{asked, change, changes, resolve, snapshot, written};
use super::status::{self, End, Wait, accepted, ended, waits};
use crate::blocker::{self, Blocker};
use crate::change::ImageChange;
use crate::config::Config;
use crate::deed::Deed;
use crate::kind::Kind as _;
use crate::lifecycle;
use crate::plan::{Read, StatusWrite, Urgency};
use crate::pod::Pod;
use crate::pod_check::Missing;
use crate::time::{Mono, earliest};

/// What one update needs.
pub type Plan = crate::plan::Plan<PodImageUpdateStatus>;

/// How often in a row the API server may refuse a change before the refusal counts: one that has just started refuses
/// changes until it knows the roles.
const REFUSALS: u32 = 3;

/// Plans one update.
pub fn plan(wall: DateTime<Utc>, config: &Config, observed: &Observed<'_>) -> Plan {
    let planner = Planner { now: observed.now, wall, config, observed };
    let update = observed.update;
    let plan = if update.completed() {
        planner.after_end()
    } else if update.deleting {
        Plan::default()
    } else if update.status.target.is_none() {
        planner.accept()
    } else {
        planner.follow()
    };
    planner.with_puller_deleted(plan)
}

struct Planner<'a> {
    now: Mono,
    wall: DateTime<Utc>,
    config: &'a Config,
    observed: &'a Observed<'a>,
}

impl Planner<'_> {
    /// Plans a request that is not accepted yet.
    fn accept(&self) -> Plan {
        let update = self.observed.update;
        let (expired, deadline) = self.deadline();
        if let Err(invalid) = validate(&update.spec) {
            return self.end(&End::failed(status::INVALID, invalid.to_string()));
        }
        if update.spec.cancel {
            return self.end(&End::new(
                Phase::Cancelled,
                status::CANCELLED,
                "cancelled before anything was changed",
            ));
        }
        if expired {
            return self.end(&overdue("it was not accepted"));
        }
        if let Some(ahead) = self.observed.ahead.as_ref().filter(|ahead| keeps_unaccepted(ahead)) {
            let wait = self.queued(Phase::Pending, &ahead.blocker);
            let urgency = if ahead.crowded { Urgency::Later } else { Urgency::Now };
            return Plan { wake_at: deadline, ..self.wait_for(&wait, urgency) };
        }
        // During a write of the Pod's images, the images noted here would soon be outdated.
        if self.observed.written_now {
            return Plan { wake_at: deadline, ..Plan::default() };
        }
        let uid = update.spec.pod_ref.uid.as_ref();
        let pod = self.observed.pod.filter(|pod| uid.is_none_or(|uid| *uid == pod.uid));
        let refused = match pod {
            None if self.lag_until().is_none() => return self.without_pod(deadline),
            None => self.pod_gone(),
            Some(pod) if pod.gone() => self.pod_gone(),
            Some(pod) => match resolve(&update.spec, pod) {
                Ok(containers) => return self.checked(pod, containers, deadline),
                Err(invalid) => End::failed(status::INVALID, invalid.to_string()),
            },
        };
        // This process's watch of Pods may be a little behind what the user saw.
        match self.lag_until() {
            Some(at) => Plan { wake_at: earliest(deadline, Some(at)), ..Plan::default() },
            None => self.end(&refused),
        }
    }

    /// The Pod can have the images: accepts the request, and meanwhile makes a dry run of the change.
    fn checked(&self, pod: &Pod, containers: Vec<ContainerStatus>, deadline: Option<Mono>) -> Plan {
        let update = self.observed.update;
        if update.spec.dry_run {
            if let Some(plan) = self.preflight(pod) {
                return Plan { wake_at: earliest(deadline, plan.wake_at), ..plan };
            }
            let text = format!("dry run: {}", status::changes(update, &containers));
            return self.end(&End::new(Phase::Succeeded, status::WOULD_UPDATE, text));
        }
        let proven = containers.iter().all(|container| self.observed.proven(&container.name).is_some());
        let mut status = accepted(update, pod, containers, self.config, self.wall);
        // Nothing to wait for: the new image strings are stored with the acceptance.
        let at_once = proven && update.spec.unready_grace_period_seconds.is_none();
        let plan = if let Some(Ok(missing)) = at_once.then(|| self.pulled(pod, &mut status)) {
            status::pulled(&mut status, update, missing.as_deref(), self.wall);
            self.begin(pod, status)
        } else {
            let deed = self.tries(pod, asked(&update.spec, pod));
            Plan { deed, ..self.with_status(status, Urgency::Now) }
        };
        Plan { wake_at: earliest(deadline, plan.wake_at), ..plan }
    }

    /// Asks the API server whether it would store the change, until it has answered: that comes before the node pulls.
    fn preflight(&self, pod: &Pod) -> Option<Plan> {
        if self.observed.memory.tried.is_some() {
            return None;
        }
        let deed = self.tries(pod, asked(&self.observed.update.spec, pod))?;
        if let Some(end) = self.refused() {
            return Some(self.end(&end));
        }
        let phase = self.observed.update.status.phase.unwrap_or(Phase::Pending);
        let wait =
            Wait::new(phase, status::CHECKING, "asks the API server whether it would store the change");
        Some(Plan { deed: Some(deed), ..self.wait_for(&wait, Urgency::Later) })
    }

    /// Asks the API server whether it would store these images, unless it has just said so.
    fn tries(&self, pod: &Pod, images: Vec<ImageChange>) -> Option<Deed> {
        let just = |change: &ImageChange| self.observed.memory.has_just_tried(self.now, change);
        let asks = !images.iter().all(just);
        asks.then(|| Deed::TryImages { key: pod.key.clone(), uid: pod.uid.clone(), images })
    }

    /// Plans an accepted request by the first rule that applies.
    fn follow(&self) -> Plan {
        let update = self.observed.update;
        let Some(pod) = self.observed.pod.filter(|pod| update.is_for(pod) && !pod.gone()) else {
            return self.follow_no_pod();
        };
        let in_spec = spec_images(update, pod);
        if let SpecImages::Other(container) = &in_spec {
            let text = format!("another client changed the image of container {container}; its change stays");
            return self.end(&End::failed(status::SUPERSEDED, text));
        }
        if let Some(restoring) = &update.status.restoring {
            return self.restore(pod, &in_spec, restoring);
        }
        if update.changes() {
            return self.changes(pod, &in_spec);
        }
        self.prepare(pod)
    }

    /// Plans before the Pod is changed.
    fn prepare(&self, pod: &Pod) -> Plan {
        let update = self.observed.update;
        if update.spec.cancel {
            return self.end(&End::new(
                Phase::Cancelled,
                status::CANCELLED,
                "cancelled before anything was changed",
            ));
        }
        let (expired, deadline) = self.deadline();
        if expired {
            return self.end(&self.late());
        }
        // A former leader that has placed orders had made the dry run before.
        if self.observed.orders.is_empty()
            && let Some(plan) = self.preflight(pod)
        {
            return Plan { wake_at: earliest(deadline, plan.wake_at), ..plan };
        }
        let mut status = update.status.clone();
        let missing = match self.pulled(pod, &mut status) {
            Ok(missing) => missing,
            Err(Pulling::Ends(end)) => return self.end(&end),
            Err(Pulling::Waits { wait, at, deed }) => {
                let plan = self.waiting(status, &wait, Urgency::Later);
                return Plan {
                    orders: self.orders(pod),
                    deed: deed.map(|deed| *deed),
                    wake_at: earliest(deadline, at),
                    ..plan
                };
            }
        };
        status::pulled(&mut status, update, missing.as_deref(), self.wall);
        let plan = self.begin(pod, status);
        Plan { wake_at: earliest(deadline, plan.wake_at), ..plan }
    }

    /// The node has the images: waits for the request's turn and for the drain, and then stores the new image strings.
    fn begin(&self, pod: &Pod, mut status: PodImageUpdateStatus) -> Plan {
        let update = self.observed.update;
        let orders = self.orders(pod);
        let waiting = |status, wait: &Wait, urgency| Plan {
            orders: orders.clone(),
            ..self.waiting(status, wait, urgency)
        };
        if update.suspended() {
            let wait = Wait::new(Phase::Pulled, status::SUSPENDED, "waits until spec.suspend is false");
            return waiting(status, &wait, Urgency::Now);
        }
        if let Some(by) = self.goes_first().filter(|_| !update.drains()) {
            return waiting(status, &self.queued(Phase::Pulled, &by), Urgency::Now);
        }
        if let Some(grace) = update.spec.unready_grace_period_seconds {
            if !update.drains() {
                status::drain_begins(&mut status, update, pod, grace, self.wall);
            }
            if let Err((wait, at)) = self.drained(pod) {
                let urgency = if update.drains() { Urgency::Later } else { Urgency::Now };
                return Plan { wake_at: at, ..waiting(status, &wait, urgency) };
            }
            status::drained(&mut status, update, grace, self.wall);
        }
        for container in &mut status.containers {
            container.before = pod.container(&container.name).map_or(container.before.clone(), snapshot);
            let wanted = update.spec.containers.iter().find(|wanted| wanted.name == container.name);
            let digest = container.pulled.as_ref().map(|pulled| pulled.digest.as_str());
            let digest = digest.filter(|digest| !digest.is_empty());
            container.written = wanted.map(|wanted| written(&wanted.image, digest)).unwrap_or_default();
        }
        let of = |name: &str| status.containers.iter().find(|container| container.name == *name);
        let written = changes(pod, |name| of(name).map(|container| container.written.as_str()));
        let wait = Wait::new(Phase::Updating, status::WRITING, "sends the change to the API server");
        // While they are stored, a second dry run is made: with the digest, and some time after the first.
        let deed = self.tries(pod, written);
        Plan { deed, ..waiting(status, &wait, Urgency::Now) }
    }

    /// Succeeds if the Pod has been out of service for long enough. The error has the wait, and when to look again.
    fn drained(&self, pod: &Pod) -> Result<(), (Wait, Option<Mono>)> {
        let Some(grace) = self.observed.update.spec.unready_grace_period_seconds else { return Ok(()) };
        let stage = self.observed.memory.drain.stage(self.now, pod, grace);
        stage.map_err(|(wait, at)| (Wait::new(Phase::Draining, wait.reason(), wait.message()), at))
    }

    /// What goes first, once the node has the images: requests that do something to the Pod, and earlier updates of it.
    fn goes_first(&self) -> Option<Blocker> {
        let ahead = self.observed.ahead.as_ref().map(|ahead| ahead.blocker.clone());
        ahead.or_else(|| self.observed.earlier.clone().map(Blocker::Request))
    }

    /// The wait for its turn.
    fn queued(&self, phase: Phase, blocker: &Blocker) -> Wait {
        let status = &self.observed.update.status;
        let stored = blocker::stored_message(&status.conditions, blocker.reason());
        let stored = stored.filter(|_| status.phase == Some(phase));
        Wait::new(phase, blocker.reason(), stored.map_or_else(|| blocker.to_string(), str::to_owned))
    }

    /// The changes that give each container the image that `of` names.
    fn images(&self, pod: &Pod, of: impl Fn(&ContainerStatus) -> &String) -> Vec<ImageChange> {
        let containers = &self.observed.update.status.containers;
        let changes = containers.iter().filter_map(|c| change(pod, &c.name, of(c)));
        let tried = |change: &ImageChange| self.observed.memory.has_just_tried(self.now, change);
        changes.map(|change| ImageChange { tried: tried(&change), ..change }).collect()
    }

    /// The end of a request whose change is refused for good.
    fn refused(&self) -> Option<End> {
        let (times, text) = self.observed.memory.refused.as_ref()?;
        (*times >= REFUSALS).then(|| End::failed(status::REFUSED, text.clone()))
    }

    /// Its Pod is missing, or over.
    fn follow_no_pod(&self) -> Plan {
        if let Some(at) = self.lag_until() {
            return Plan { wake_at: Some(at), ..self.unsure() };
        }
        if self.observed.pod.is_some_and(|pod| self.observed.update.is_for(pod)) {
            self.end(&self.pod_gone())
        } else {
            self.without_pod(self.deadline().1)
        }
    }

    /// The watch does not show the Pod: ends the request once the API server says the same.
    fn without_pod(&self, deadline: Option<Mono>) -> Plan {
        let (read, at) = match self.observed.pod_check.missing(self.now) {
            Missing::Gone => return self.end(&self.pod_gone()),
            _ if deadline.is_some_and(|at| at <= self.now) => {
                return self.end(&overdue(
                    "the API server says that the Pod exists, but the controller's watch does not show it",
                ));
            }
            Missing::Ask => (Some(Read::Pod), None),
            Missing::Wait(at) => (None, at),
        };
        Plan { read, wake_at: earliest(deadline, at), ..self.unsure() }
    }

    fn pod_gone(&self) -> End {
        let spec = &self.observed.update.spec.pod_ref;
        let uid = spec.uid.as_ref().map_or_else(String::new, |uid| format!(" with UID {uid}"));
        End::failed(status::POD_GONE, format!("there is no running Pod {}{uid} any more", spec.name))
    }

    /// Ends the request, once no write of the Pod can still take effect and its puller Pod is gone. Its orders are
    /// withdrawn with it.
    fn end(&self, end: &End) -> Plan {
        if !self.observed.writing.is_empty() || self.observed.deed.is_some() {
            return self.unsure();
        }
        if let Some(plan) = self.delete_puller() {
            return plan;
        }
        let mut status = ended(self.observed, end, self.wall);
        let pull_failed = [status::PULL_FAILED, status::CANNOT_PROVE, status::NO_ROOM, status::DAEMON_SILENT];
        if pull_failed.contains(&end.reason) {
            status::not_pulled(&mut status, self.observed.update, end.reason, &end.message, self.wall);
        }
        self.with_status(status, Urgency::Now)
    }

    /// The result of a write is unknown: repeating it shows the result.
    fn unsure(&self) -> Plan {
        let Observed { writing, deed, orders, .. } = self.observed;
        let orders = orders.iter().map(|view| view.order.clone()).collect();
        Plan { images: writing.to_vec(), deed: deed.cloned(), orders, ..Plan::default() }
    }

    /// An ended request: deletes it in time. Otherwise only `observedGeneration` changes.
    fn after_end(&self) -> Plan {
        let update = self.observed.update;
        let mut status = update.status.clone();
        if status.observed_generation.is_some() {
            status.observed_generation = update.generation;
        }
        let (expired, expiry) =
            lifecycle::expiry(self.now, self.observed.memory.completed_seen, update.ttl());
        Plan {
            delete: !update.deleting && expired,
            wake_at: expiry,
            ..self.with_status(status, Urgency::Now)
        }
    }

    /// The end of a request whose deadline has passed.
    fn late(&self) -> End {
        let waited = condition::find(&self.observed.update.status.conditions, conditions::COMPLETE);
        let waited = waited.filter(|complete| complete.status != ConditionStatus::True);
        overdue(waited.map_or("it was not done", |waited| &waited.message))
    }

    /// Until when a missing Pod may only be late; `None` once that time is over.
    fn lag_until(&self) -> Option<Mono> {
        lifecycle::lag_until(self.now, self.observed.memory.first_seen, self.config)
    }

    /// Whether the deadline has passed, and when it will. It does not run while the request is suspended.
    fn deadline(&self) -> (bool, Option<Mono>) {
        let limit = lifecycle::limit(self.observed.update.spec.active_deadline_seconds, self.config);
        let Some(since) = self.observed.memory.runs_since else { return (false, None) };
        lifecycle::deadline(self.now, since, limit)
    }

    /// Writes what the request waits for.
    fn wait_for(&self, wait: &Wait, urgency: Urgency) -> Plan {
        self.waiting(self.observed.update.status.clone(), wait, urgency)
    }

    fn waiting(&self, status: PodImageUpdateStatus, wait: &Wait, urgency: Urgency) -> Plan {
        self.with_status(waits(status, self.observed.update, wait, self.wall), urgency)
    }

    fn with_status(&self, status: PodImageUpdateStatus, urgency: Urgency) -> Plan {
        let changed = status != self.observed.update.status;
        Plan { status: changed.then_some(StatusWrite { status, urgency }), ..Plan::default() }
    }
}

fn overdue(waited_for: &str) -> End {
    End::failed(status::DEADLINE, format!("not done within activeDeadlineSeconds: {waited_for}"))
}
