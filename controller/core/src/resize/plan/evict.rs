//! Eviction, the last resort: the Pod's workload then makes another one.

use std::time::Duration;

use pitstop_api::resize::{Phase, PodResizeStatus};

use super::{Plan, Planner, overdue, superseded};
use crate::deed::Deed;
use crate::plan::Urgency;
use crate::pod::Pod;
use crate::resize::evict::refusal_to_evict;
use crate::resize::judge::{Progress, SpecState, progress};
use crate::resize::refusal;
use crate::resize::shrink::{containers, spec_state};
use crate::resize::status::{self, End, Wait, waits};
use crate::time::earliest;

/// Wait before an eviction that was put off is tried again.
const RETRY: Duration = Duration::from_secs(5);

impl Planner<'_> {
    /// Records that the Pod will be evicted, and how the request ends then.
    pub(super) fn evict(&self, pod: &Pod, state: &SpecState, end: &End) -> Plan {
        if self.write_unknown() {
            return self.repeat_write();
        }
        if let Some(text) = refusal_to_evict(pod) {
            return self.give_up(state, End::failed(status::EVICTION_FORBIDDEN, text));
        }
        self.evict_from(self.observed.resize.status.clone(), end)
    }

    /// The same, based on this status.
    pub(super) fn evict_from(&self, mut status: PodResizeStatus, end: &End) -> Plan {
        let resize = self.observed.resize;
        let wait = Wait::new(Phase::InProgress, status::EVICTING, format!("evicts the Pod: {}", end.message));
        let message = format!("the Pod is evicted: {}", end.message);
        status.restoring = Some(End { message, ..*end }.into());
        self.with_status(waits(status, resize, &wait, self.wall), Urgency::Now)
    }

    /// Evicts the Pod. Its resources stay as they are, unless the eviction is given up.
    pub(super) fn evicting(&self, pod: &Pod) -> Plan {
        let resize = self.observed.resize;
        let deeds = &self.observed.memory.deeds;
        let state = spec_state(resize, pod);
        let message = deeds.postponed.as_ref().map_or("the Pod is being evicted", |(_, text)| text);
        let (expired, deadline) = self.deadline();
        if let Some(newer) = self.observed.newer {
            return self.give_up(&state, superseded(&newer.to_string()));
        }
        if resize.spec.cancel {
            return self.give_up(&state, End::new(Phase::Cancelled, status::CANCELLED, "cancelled"));
        }
        if expired {
            return self.give_up(&state, overdue(message));
        }
        if let Some(refused) = deeds.refused.as_ref().filter(|refused| refusal::for_good(refused, self.now)) {
            let text = format!(
                "the Pod cannot be evicted; the right to do so is in deploy/components/resize-evict: {}",
                refused.text
            );
            return self.give_up(&state, End::failed(status::EVICTION_FORBIDDEN, text));
        }
        let found = progress(&containers(resize, &state), resize.pending_before(), pod);
        let begun = matches!(
            found,
            Progress::Sized | Progress::Unreported | Progress::Underway(_) | Progress::Restarting(_)
        );
        if state != SpecState::Original && begun {
            return self.keep_pod();
        }
        // The watch may need a while to show the deletion.
        let at = match (&deeds.postponed, &deeds.done) {
            (Some((at, _)), _) => Some(at.after(RETRY)),
            (None, Some((at, Deed::Evict { .. }))) => Some(at.after(self.config.conflict_patience)),
            _ => None,
        };
        let at = at.filter(|at| *at > self.now);
        let deed = at.is_none().then(|| Deed::Evict { key: pod.key.clone(), uid: pod.uid.clone() });
        let budget = message.contains("disruption budget");
        let reason = if budget { status::DISRUPTION_BUDGET } else { status::EVICTING };
        let wait = Wait::new(Phase::InProgress, reason, message);
        Plan { deed, ..self.waiting(pod, &wait, earliest(deadline, at)) }
    }

    /// Plan if the node has room after all: the Pod stays.
    fn keep_pod(&self) -> Plan {
        if self.write_unknown() {
            return self.repeat_write();
        }
        let resize = self.observed.resize;
        let mut status = resize.status.clone();
        status.restoring = None;
        let wait =
            Wait::new(Phase::InProgress, status::KUBELET, "there is room after all: the Pod is not evicted");
        self.with_status(waits(status, resize, &wait, self.wall), Urgency::Now)
    }

    /// End of a request whose Pod is gone.
    pub(super) fn end_without_pod(&self) -> End {
        let evicted = self.observed.resize.evicting();
        let end = evicted.map(|e| End::new(e.phase, status::EVICTED, e.message.clone()));
        end.unwrap_or_else(|| self.no_pod())
    }
}
