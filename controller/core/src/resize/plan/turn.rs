//! A resize that waits for its turn. It finds out meanwhile whether it is possible: an earlier one gives way only then.

use std::time::Duration;

use pitstop_api::quantity::Resources;
use pitstop_api::resize::{Mechanism, Phase};

use super::cri::Admission;
use super::{Plan, Planner};
use crate::blocker;
use crate::change::Sizing;
use crate::plan::{Read, Urgency};
use crate::resize::judge::desired;
use crate::resize::status::{self, Wait, waits};
use crate::time::{Mono, earliest};

/// Wait after a refusal before the API server is asked again.
const RETRY: Duration = Duration::from_secs(30);

impl Planner<'_> {
    /// Plan while another request goes first.
    pub(super) fn in_queue(&self, deadline: Option<Mono>) -> Plan {
        let resize = self.observed.resize;
        let status = waits(resize.status.clone(), resize, &self.queued(), self.wall);
        let plan = Plan { wake_at: deadline, ..self.with_status(status, Urgency::Later) };
        let gives_way = self.observed.ahead.as_ref().is_some_and(|ahead| ahead.gives_way);
        if gives_way { self.with_check(plan) } else { plan }
    }

    /// Adds a check to the plan: is the change possible on the current Pod?
    fn with_check(&self, plan: Plan) -> Plan {
        let memory = self.observed.memory;
        let later =
            |since: Mono| Plan { wake_at: earliest(plan.wake_at, Some(since.after(RETRY))), ..plan.clone() };
        let resolved = self.observed.pod.and_then(|pod| Some((pod, self.resolved(pod).ok()?)));
        let Some((pod, (mechanism, containers))) = resolved else { return later(self.now) };
        if mechanism == Mechanism::Cri {
            let asked = self.observed.survey.map(|survey| survey.ended);
            return match self.admission(pod, &containers) {
                Admission::Admitted => Plan { possible: true, ..plan },
                // A resize that waits for room takes the place of the earlier one.
                Admission::Waits(wait) if wait.reason == status::NODE_BUSY => Plan { possible: true, ..plan },
                _ => match asked.filter(|at| at.after(RETRY) > self.now) {
                    Some(at) => later(at),
                    None => Plan { read: Some(Read::Bounds), ..plan },
                },
            };
        }
        let nothing = containers.iter().all(|c| c.original == c.desired);
        if memory.dry_run_passed || nothing {
            return Plan { possible: true, ..plan };
        }
        if let Some(at) = memory.dry_run_refused.filter(|at| at.after(RETRY) > self.now) {
            return later(at);
        }
        let sizing = Self::sizing_of(&containers, pod, |c| (Resources::from(&c.original), desired(c)));
        Plan { sizing: Some(Sizing { dry_run: true, ..sizing }), ..plan }
    }

    /// Whether the change waits for a restart that began although this request was accepted, or under an earlier
    /// leader. Writes under way and restores do not wait.
    pub(super) fn waits_for_restart(&self) -> bool {
        self.observed.ahead.is_some()
            && !self.write_unknown()
            && self.observed.resize.status.restoring.is_none()
    }

    /// The wait for its turn.
    pub(super) fn queued(&self) -> Wait {
        let reason = self.observed.ahead.as_ref().map_or(status::QUEUED, |ahead| ahead.blocker.reason());
        let stored = blocker::stored_message(&self.observed.resize.status.conditions, reason);
        let text = match (stored, &self.observed.ahead) {
            (Some(message), _) => message.to_owned(),
            (None, Some(ahead)) => ahead.blocker.to_string(),
            (None, None) => "waits for its turn".to_owned(),
        };
        Wait::new(Phase::Proposed, reason, text)
    }
}
