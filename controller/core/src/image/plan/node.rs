//! Plans while the node is not ready.

use pitstop_api::image_update::{Phase, PodImageUpdateStatus};

use super::{Plan, Planner};
use crate::deed::Deed;
use crate::image::status::{self, Wait};
use crate::plan::Urgency;
use crate::pod::Pod;
use crate::time::{Mono, seconds};

impl Planner<'_> {
    /// The Pod shows that its node is not ready: reports on its containers do not count until it is back.
    pub(super) fn unheard(&self, pod: &Pod) -> Plan {
        let status = self.observed.update.status.clone();
        Plan { orders: self.orders(pod), ..self.waiting(status, &self.node_wait(pod), Urgency::Later) }
    }

    /// Until when containers must be ready that got their images at `since`.
    pub(super) fn time_for_ready(&self, since: Option<Mono>) -> Option<Mono> {
        let from = self.observed.memory.node.counts_from(since?);
        Some(from.after(seconds(self.observed.update.spec.ready_timeout())))
    }

    /// The plan after that time, `over`, until the node is known to be ready. `wait`: what to report before the API
    /// server's first answer.
    pub(super) fn asks_node(
        &self,
        pod: &Pod,
        over: Mono,
        status: PodImageUpdateStatus,
        wait: &Wait,
    ) -> Option<Plan> {
        let node = &self.observed.memory.node;
        if node.was_ready(over) {
            return None;
        }
        let deed = Deed::AskNode(pod.node.clone()?);
        let away = node.is_away().then(|| self.node_wait(pod));
        let plan = self.waiting(status, away.as_ref().unwrap_or(wait), Urgency::Later);
        Some(Plan { deed: Some(deed), ..plan })
    }

    fn node_wait(&self, pod: &Pod) -> Wait {
        let update = self.observed.update;
        let goes_on = [Phase::Observing, Phase::RollingBack];
        let phase = update.status.phase.filter(|phase| goes_on.contains(phase)).unwrap_or(Phase::Updating);
        let text = format!(
            "node {} is not ready: its container data is old; until it is back, only \
             activeDeadlineSeconds runs",
            pod.node.as_deref().unwrap_or_default()
        );
        Wait::new(phase, status::NODE, text)
    }
}
