//! Rules of the mechanism CRI: the node's daemon resizes in place of the kubelet.

use pitstop_api::nodework::{Answer, AnswerReason, AnswerState};
use pitstop_api::resize::{AfterWait, ContainerStatus, LastResort, Phase};

use super::sized::policy_missing;
use super::{Plan, Planner};
use crate::hold::admission::{Decision, FRESH, LastSurvey, Question, UNSUPPORTED, admit};
use crate::nodework::{OrderView, newest};
use crate::plan::{Read, Urgency};
use crate::pod::{Container, Pod};
use crate::resize::judge::{Progress, desired, spec_progress};
use crate::resize::refusal::{REFUSED, STATIC_MANAGER, SWAP};
use crate::resize::status::{self, End, Wait, waits};
use crate::time::{Mono, earliest, seconds};

/// Whether the limits on the Pod allow the new resources.
pub(super) enum Admission {
    /// Allowed.
    Admitted,
    /// Not known yet, or not now: why the request waits.
    Waits(Wait),
    /// Not allowed: how the request ends.
    Refused(End),
    /// Not allowed, and the Pod is to be evicted: how the request ends.
    Evicts(End),
}

impl Planner<'_> {
    /// Admits the request here, because the API server does not see it.
    pub(super) fn admission(&self, pod: &Pod, containers: &[ContainerStatus]) -> Admission {
        let spec = &self.observed.resize.spec;
        let waits = |text: String| Admission::Waits(Wait::new(Phase::Proposed, status::ADMITTING, text));
        let survey = match self.observed.survey {
            Some(LastSurvey { result: Err(text), .. }) => {
                return waits(format!("cannot read the limits of the Pod's namespace and node: {text}"));
            }
            Some(LastSurvey { ended, result: Ok(survey), .. }) if ended.after(FRESH) >= self.now => survey,
            _ => {
                let text = "reads the limits of the Pod's namespace (LimitRanges, ResourceQuotas) and node";
                return waits(text.to_owned());
            }
        };
        let Some(usage) = &self.observed.usage else {
            return waits("waits for another request that is being accepted".to_owned());
        };
        let wanted: Vec<_> = containers.iter().map(|c| (c.name.as_str(), desired(c))).collect();
        let in_force = |container: &Container| self.observed.force.wants(container);
        let question = Question { pod, in_force: &in_force, wanted: &wanted, survey, usage };
        match admit(&question) {
            Decision::Admitted => Admission::Admitted,
            Decision::Busy(text) => {
                let evicts = spec.on_deferred.as_ref().and_then(|d| d.then) == Some(AfterWait::Evict);
                let over = self.deferred_until().is_some_and(|at| at <= self.now);
                if over && evicts {
                    Admission::Evicts(End::failed(status::EVICTED, text))
                } else if over || spec.dry_run {
                    Admission::Refused(End::failed(status::NODE_BUSY, text))
                } else {
                    Admission::Waits(Wait::new(Phase::Deferred, status::NODE_BUSY, text))
                }
            }
            Decision::Refused { phase, reason, text } => match &spec.on_infeasible {
                Some(asked) if reason == status::NODE_CAPACITY && !spec.dry_run => {
                    if self.infeasible_until().is_none_or(|at| at > self.now) {
                        Admission::Waits(Wait::new(Phase::Proposed, status::NODE_CAPACITY, text))
                    } else if asked.then == Some(LastResort::Evict) {
                        Admission::Evicts(End::new(phase, status::EVICTED, text))
                    } else {
                        Admission::Refused(End::new(phase, reason, text))
                    }
                }
                _ => Admission::Refused(End::new(phase, reason, text)),
            },
        }
    }

    /// Plan while the request waits for admission.
    pub(super) fn waits_for_admission(&self, wait: &Wait, deadline: Option<Mono>) -> Plan {
        let resize = self.observed.resize;
        let status = waits(resize.status.clone(), resize, wait, self.wall);
        // The time of a wait for room counts from its stored status.
        let counts = [status::NODE_BUSY, status::NODE_CAPACITY].contains(&wait.reason);
        let urgency = if counts && !resize.waits_for(wait.reason) { Urgency::Now } else { Urgency::Later };
        let until = earliest(self.deferred_until(), self.infeasible_until());
        let wake_at = earliest(deadline, until.filter(|at| *at > self.now));
        Plan { read: Some(Read::Bounds), wake_at, ..self.with_status(status, urgency) }
    }

    fn deferred_until(&self) -> Option<Mono> {
        let limit = seconds(self.observed.resize.spec.on_deferred.as_ref()?.wait_seconds);
        Some(self.observed.memory.deferred_since?.after(limit))
    }

    fn infeasible_until(&self) -> Option<Mono> {
        let limit = self.observed.resize.spec.on_infeasible.as_ref()?.wait_seconds.unwrap_or_default();
        Some(self.observed.memory.infeasible_since?.after(seconds(limit)))
    }

    /// End of a request whose order the daemon refuses for good.
    pub(super) fn daemon_refuses(&self) -> Option<End> {
        let refused = |answer: &&Answer| {
            matches!(answer.state, AnswerState::Refused | AnswerState::Failed)
                && answer.reason != Some(AnswerReason::NotRunning)
        };
        let answer = self.last_orders().filter_map(|view| view.answer).find(refused)?;
        let text = format!("the node's daemon: {}", answer.message);
        let (phase, reason) = match answer.reason {
            Some(AnswerReason::Swap) => (Phase::Infeasible, SWAP),
            Some(AnswerReason::Pinned) => (Phase::Infeasible, STATIC_MANAGER),
            Some(AnswerReason::NotEnabled) => (Phase::Failed, UNSUPPORTED),
            Some(AnswerReason::ResizeFailed | AnswerReason::CgroupUnreadable) => {
                (Phase::Failed, status::RUNTIME_ERROR)
            }
            _ => (Phase::Failed, REFUSED),
        };
        Some(End::new(phase, reason, text))
    }

    /// Wait while the daemon has not given the Pod all wanted resources.
    pub(super) fn waits_for_daemon(&self) -> Wait {
        let proposed = |text: String| Wait::new(Phase::Proposed, status::DAEMON, text);
        let in_progress = |reason, text: &str| Wait::new(Phase::InProgress, reason, text);
        let open =
            |view: &OrderView<'_>| view.answer.is_none_or(|answer| answer.state == AnswerState::Acknowledged);
        let Some(view) = self.last_orders().find(open) else {
            return if self.observed.guarded {
                proposed("asks the node's daemon".to_owned())
            } else {
                Wait::new(Phase::Proposed, status::POLICY, policy_missing())
            };
        };
        let name = &view.order.container.name;
        match view.answer {
            None => {
                proposed(format!("the node's daemon has not taken up the order about container {name} yet"))
            }
            Some(answer) => match answer.reason {
                Some(AnswerReason::MemoryInUse) => in_progress(status::MEMORY_IN_USE, &answer.message),
                Some(AnswerReason::ResizeRetried) => in_progress(status::RUNTIME_ERROR, &answer.message),
                _ => in_progress(status::DAEMON, &format!("the node's daemon changes container {name}")),
            },
        }
    }

    /// Waits until the daemon has restored the resources of a request that is no longer in force.
    pub(super) fn daemon_restore(&self, pod: &Pod, mut end: End) -> Plan {
        let since = self.observed.memory.restoring_since.unwrap_or(self.now);
        let until = since.after(self.config.restore_patience);
        let text = match spec_progress(&self.observed.resize.status.containers, pod) {
            Progress::Sized => "the previous resources are back".to_owned(),
            _ if until > self.now => return Plan { wake_at: Some(until), ..self.keep_orders() },
            _ => format!(
                "the node's daemon has not restored the previous resources yet: {}",
                self.waits_for_daemon().message
            ),
        };
        end.message = format!("{}; {text}", end.message);
        self.end(&end)
    }

    /// The last order for the daemon about each container of the request.
    fn last_orders(&self) -> impl Iterator<Item = OrderView<'_>> {
        let containers = self.observed.resize.status.containers.iter();
        containers.filter_map(|container| newest(&self.observed.held, &container.name))
    }
}
