//! What is different where the node's daemon carries a request out in place of the kubelet.

use std::time::Duration;

use pitstop_api::nodework::{Answer, AnswerReason, AnswerState};
use pitstop_api::resize::{ContainerStatus, Phase};

use super::sized::policy_missing;
use super::{Plan, Planner};
use crate::nodework::OrderView;
use crate::plan::Urgency;
use crate::pod::{Container, Pod};
use crate::resize::admission::{Question, Surveyed, Verdict, admit};
use crate::resize::judge::{Progress, as_it_should, desired};
use crate::resize::mechanism::UNSUPPORTED;
use crate::resize::refusal::{REFUSED, STATIC_MANAGER, SWAP};
use crate::resize::status::{self, End, Wait, waits};
use crate::time::{Mono, earliest, seconds};

/// How old what was read may be.
const FRESH: Duration = Duration::from_secs(5);

/// Whether what bounds the Pod lets it have what a request means.
pub(super) enum Admission {
    /// It may have it.
    Admitted,
    /// Not known yet, or not now: what the request waits for.
    Waits(Wait),
    /// It may not.
    Refused(End),
}

impl Planner<'_> {
    /// The API server does not see such a request, so it is admitted here.
    pub(super) fn admission(&self, pod: &Pod, containers: &[ContainerStatus]) -> Admission {
        let waits = |text: String| Admission::Waits(Wait::new(Phase::Proposed, status::ADMITTING, text));
        let survey = match &self.observed.memory.survey {
            None => {
                return waits(
                    "reads what bounds the Pod: its namespace's limits and quotas, its node".to_owned(),
                );
            }
            Some(Surveyed { result: Err(text), .. }) => {
                return waits(format!("cannot read what bounds the Pod: {text}"));
            }
            Some(Surveyed { at, result: Ok(survey) }) if at.after(FRESH) >= self.now => survey,
            Some(_) => return waits("reads again what bounds the Pod".to_owned()),
        };
        let Some(crowd) = &self.observed.crowd else {
            return waits("waits for another request that is being accepted".to_owned());
        };
        let wanted: Vec<_> = containers.iter().map(|c| (c.name.as_str(), desired(c))).collect();
        let in_force = |container: &Container| self.observed.force.wants(container);
        let question = Question { pod, in_force: &in_force, wanted: &wanted, survey, crowd };
        match admit(&question) {
            Verdict::Admitted => Admission::Admitted,
            Verdict::Busy(text) => {
                let since = self.observed.memory.deferred_since;
                let limit = self.observed.resize.spec.on_deferred.as_ref().map(|d| seconds(d.wait_seconds));
                let over =
                    limit.is_some_and(|limit| since.is_some_and(|since| since.after(limit) <= self.now));
                if over || self.observed.resize.spec.dry_run {
                    return Admission::Refused(End::failed(status::NODE_BUSY, text));
                }
                Admission::Waits(Wait::new(Phase::Deferred, status::NODE_BUSY, text))
            }
            Verdict::Refused { phase, reason, text } => Admission::Refused(End::new(phase, reason, text)),
        }
    }

    /// Not accepted yet: waits until it is admitted.
    pub(super) fn waits_for_admission(&self, wait: &Wait, deadline: Option<Mono>) -> Plan {
        let resize = self.observed.resize;
        let status = waits(resize.status.clone(), resize, wait, self.wall);
        // From when a wait for room is told, its time counts.
        let told = resize.status.phase == Some(wait.phase) || wait.phase != Phase::Deferred;
        let urgency = if told { Urgency::Later } else { Urgency::Now };
        let limit = resize.spec.on_deferred.as_ref().map(|d| seconds(d.wait_seconds));
        let until = limit.and_then(|limit| Some(self.observed.memory.deferred_since?.after(limit)));
        let wake_at = earliest(deadline, until.filter(|at| *at > self.now));
        Plan { survey: true, wake_at, ..self.with_status(status, urgency) }
    }

    /// How a request ends whose order the daemon refuses for good.
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

    /// What a request waits for while the daemon has not given the Pod all that it should.
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

    /// Waits until the daemon has given back what it gave for the request, which counts no more.
    pub(super) fn given_back(&self, pod: &Pod, mut end: End) -> Plan {
        let since = self.observed.memory.restoring_since.unwrap_or(self.now);
        let until = since.after(self.config.restore_patience);
        let text = match as_it_should(&self.observed.resize.status.containers, pod) {
            Progress::Sized => "the resources of before are back".to_owned(),
            _ if until > self.now => return Plan { wake_at: Some(until), ..self.stands() },
            _ => format!(
                "the resources of before are asked for, and not there yet: {}",
                self.waits_for_daemon().message
            ),
        };
        end.message = format!("{}; {text}", end.message);
        self.end(&end)
    }

    /// The daemon's orders about the request's containers, the last one for each.
    fn last_orders(&self) -> impl Iterator<Item = OrderView<'_>> {
        let attempt = |view: &OrderView<'_>| {
            view.order.id.rsplit('/').next().and_then(|number| number.parse::<u32>().ok())
        };
        self.observed.resize.status.containers.iter().filter_map(move |container| {
            let of = self.observed.held.iter().filter(|view| view.order.container.name == container.name);
            of.max_by_key(|view| attempt(view)).copied()
        })
    }
}
