//! Restores the original resources before a request ends without success.

use pitstop_api::resize::{ContainerStatus, Phase};

use super::{Plan, Planner};
use crate::change::Sizing;
use crate::plan::Urgency;
use crate::pod::Pod;
use crate::resize::judge::{Progress, SpecState, desired, is_restored, restore_progress, restored};
use crate::resize::shrink::{containers, spec_state};
use crate::resize::status::{self, End, Wait, added, waits};

impl Planner<'_> {
    /// Restores the original resources before the end, unless the Pod has them.
    pub(super) fn give_up(&self, state: &SpecState, end: End) -> Plan {
        if self.write_unknown() {
            return self.repeat_write();
        }
        if let Some(plan) = self.withdraw() {
            return plan;
        }
        let resize = self.observed.resize;
        if *state == SpecState::Original {
            return self.end_untouched(&end);
        }
        if resize.status.containers.iter().all(|c| c.original == c.desired) {
            return self.end(&end);
        }
        let mut status = resize.status.clone();
        let text = format!("puts the original resources back: {}", end.message);
        status.restoring = Some(end.into());
        let wait = Wait::new(Phase::InProgress, status::RESTORING, text);
        self.with_status(waits(status, resize, &wait, self.wall), Urgency::Now)
    }

    /// Restores the original resources, then ends the request.
    pub(super) fn restore(&self, pod: &Pod, mut end: End) -> Plan {
        let resize = self.observed.resize;
        let all = &resize.status.containers;
        let since = self.observed.memory.restoring_since.unwrap_or(self.now);
        let until = since.after(self.config.restore_patience);
        let overdue = until <= self.now;
        let mut close = |text: String| {
            end.message = format!("{}; {text}", end.message);
            self.end(&end)
        };
        if is_restored(all, pod) {
            let left = added(all);
            let back = if left.is_empty() {
                "the original resources are back".to_owned()
            } else {
                format!(
                    "the original resources are back, except what cannot be removed in place: {}",
                    left.join(", ")
                )
            };
            return match restore_progress(all, pod) {
                Progress::Sized => close(back),
                other if overdue => close(format!(
                    "the Pod's spec has the original resources, but the containers do not have them yet: {}",
                    other.hindrance()
                )),
                // The kubelet repairs the Pod's cgroup only for running containers.
                Progress::Restarting(name) => {
                    self.with_repair(Plan { wake_at: Some(until), ..Plan::default() }, pod, &name)
                }
                _ => Plan { wake_at: Some(until), ..Plan::default() },
            };
        }
        let state = spec_state(resize, pod);
        if !matches!(state, SpecState::Desired | SpecState::Between(_) | SpecState::Nudged(_)) {
            return close("another client changed the resources meanwhile; its change stays".to_owned());
        }
        if overdue {
            let why = self.observed.memory.refused.as_ref().map_or("not in time", |refused| &refused.text);
            return close(format!("the original resources could not be put back: {why}"));
        }
        Plan { sizing: Some(self.restore_sizing(pod, &state)), wake_at: Some(until), ..Plan::default() }
    }

    /// Ends a request whose Pod shows no change. A previous leader may have sent the change, and it may take effect
    /// until that write is given up.
    pub(super) fn end_untouched(&self, end: &End) -> Plan {
        let memory = self.observed.memory;
        let until = memory.first_seen.after(self.config.write_bound);
        if memory.inherited == Some(true) && until > self.now {
            return Plan { wake_at: Some(until), ..Plan::default() };
        }
        self.end(end)
    }

    /// The change back to the original resources.
    pub(super) fn restore_sizing(&self, pod: &Pod, state: &SpecState) -> Sizing {
        let all = containers(self.observed.resize, state);
        let current =
            |c: &ContainerStatus| all.iter().find(|other| other.name == c.name).unwrap_or(c).clone();
        self.sizing(pod, |c| (desired(&current(c)), restored(c)))
    }
}
