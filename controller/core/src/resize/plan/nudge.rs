//! Makes the kubelet write a Pod cgroup that is wrong although all containers run.

use std::time::Duration;

use pitstop_api::resize::Phase;

use super::{Plan, Planner};
use crate::change::Sizing;
use crate::pod::Pod;
use crate::resize::judge::{Progress, SpecState, desired};
use crate::resize::nudge::{Nudge, choose, stepped};
use crate::resize::refusal::for_good;
use crate::resize::repair::{REPAIR_AFTER, kubelet_writes};
use crate::resize::shrink::containers;
use crate::resize::status::{self, Wait};
use crate::resize::verify::{Finding, Low};
use crate::time::{Mono, earliest};

/// Maximum number of nudges. The first one comes after [`REPAIR_AFTER`]; each further wait is three times as long.
const TRIES: u32 = 3;
/// How long the kubelet may take for the nudge, before it is reverted anyway.
const STEP_PATIENCE: Duration = Duration::from_secs(15);

/// State of the nudge.
pub(super) struct Nudging {
    pub(super) sizing: Option<Sizing>,
    /// Text for the wait message.
    pub(super) text: Option<String>,
    /// When to look again.
    pub(super) wake_at: Option<Mono>,
}

impl Planner<'_> {
    /// The nudge, once the Pod's cgroup was wrong for long enough; `None` if it is not possible or did not help.
    pub(super) fn nudging(&self, pod: &Pod, low: &Low) -> Option<Nudging> {
        let memory = self.observed.memory;
        if !kubelet_writes(self.observed, pod) || memory.nudges >= TRIES || memory.refused.is_some() {
            return None;
        }
        let nudge = choose(self.observed.resize, pod, low)?;
        let wait = REPAIR_AFTER.saturating_mul(3_u32.saturating_pow(memory.nudges));
        let at = memory.sized_since.unwrap_or(self.now).after(wait);
        if at > self.now {
            return Some(Nudging { sizing: None, text: None, wake_at: Some(at) });
        }
        let text = Some(message(&nudge));
        // `KernelDiffers` is stored first: it identifies a nudge in the Pod's spec as the request's own.
        let may = self.observed.resize.waits_for(status::KERNEL_DIFFERS) && !self.observed.sizing_now;
        let sizing = may.then(|| self.nudge_sizing(pod, &nudge));
        Some(Nudging { sizing, text, wake_at: None })
    }

    fn nudge_sizing(&self, pod: &Pod, nudge: &Nudge) -> Sizing {
        self.sizing(pod, |c| (desired(c), stepped(c, nudge).unwrap_or_else(|| desired(c))))
    }

    /// A nudge that was sent, and whose result is unknown.
    pub(super) fn open_nudge(&self) -> Option<&Sizing> {
        let all = &self.observed.resize.status.containers;
        let wanted = |name: &str| all.iter().find(|c| c.name == name).map(desired);
        let beyond = |sizing: &&Sizing| {
            sizing.containers.iter().any(|change| wanted(&change.container) != Some(change.whole))
        };
        self.observed.sizing.filter(beyond)
    }

    /// Plan while the Pod's spec has the nudge: reverts it once the kubelet has made it, or cannot.
    pub(super) fn nudged(
        &self,
        pod: &Pod,
        state: &SpecState,
        nudge: &Nudge,
        found: &Progress,
        (expired, deadline): (bool, Option<Mono>),
    ) -> Plan {
        if let Some(failure) = self.failure(pod) {
            return self.give_up(state, failure);
        }
        let memory = self.observed.memory;
        let until = memory.nudged_since.unwrap_or(self.now).after(STEP_PATIENCE);
        let open = matches!(found, Progress::Unseen | Progress::Underway(None) | Progress::Restarting(_));
        let refused = memory.refused.as_ref();
        if let Some(refused) = refused.filter(|refused| expired && for_good(refused, self.now)) {
            let text = format!(
                "{}; the API server refuses to revert this, so it stays: {}",
                message(nudge),
                refused.text
            );
            return self.succeeded(&Finding::Differs(text));
        }
        let text = match refused {
            Some(refused) => {
                format!("{}; the API server refuses to revert this so far: {}", message(nudge), refused.text)
            }
            None => message(nudge),
        };
        let wait = Wait::new(Phase::Verifying, status::KERNEL_DIFFERS, text);
        let deadline = deadline.filter(|at| *at > self.now);
        if open && !expired && until > self.now && self.observed.sizing.is_none() {
            return self.waiting(pod, &wait, earliest(deadline, Some(until)));
        }
        let current = containers(self.observed.resize, state);
        let from = |name: &str| current.iter().find(|c| c.name == name).map(desired);
        let sizing = self.sizing(pod, |c| (from(&c.name).unwrap_or_else(|| desired(c)), desired(c)));
        Plan { sizing: Some(sizing), ..self.waiting(pod, &wait, deadline) }
    }
}

fn message(nudge: &Nudge) -> String {
    let step = match (nudge.cpu, nudge.memory) {
        (true, true) => "1m of CPU and one byte of memory",
        (true, false) => "1m of CPU",
        (false, _) => "one byte of memory",
    };
    format!(
        "the controller briefly gives container {} {step} more, so that the kubelet writes the Pod's cgroup, \
         which it has not changed (kubernetes#138760)",
        nudge.container
    )
}
