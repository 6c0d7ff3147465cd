//! What is different where the node's daemon carries a request out in place of the kubelet.

use pitstop_api::nodework::{Answer, AnswerReason, AnswerState};
use pitstop_api::resize::Phase;

use super::sized::policy_missing;
use super::{Plan, Planner};
use crate::nodework::OrderView;
use crate::pod::Pod;
use crate::resize::judge::{Progress, as_it_should};
use crate::resize::mechanism::UNSUPPORTED;
use crate::resize::refusal::{REFUSED, STATIC_MANAGER, SWAP};
use crate::resize::status::{self, End, Wait};

impl Planner<'_> {
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
