//! The next change of the Pod, once the memory in use leaves room for it.

use std::time::Duration;

use pitstop_api::nodework::{AnswerState, Order, ResizeOrder};
use pitstop_api::quantity::Resource;
use pitstop_api::resize::{ContainerStatus, Phase};

use super::sized::policy_missing;
use super::{Plan, Planner};
use crate::change::Sizing;
use crate::hold::usable;
use crate::nodework::{OrderView, newest};
use crate::pod::{ContainerState, Pod};
use crate::resize::judge::SpecState;
use crate::resize::shrink::{containers, lowered, margin, next_step, reclaims};
use crate::resize::status::{self, Wait};
use crate::resize::verify;
use crate::time::{Mono, earliest};

/// How long an answer about memory in use counts before the daemon is asked again.
const FRESH: Duration = Duration::from_secs(5);
/// Wait before the kernel is asked again after it could reclaim no more.
const RECLAIMED: Duration = Duration::from_secs(30);

/// Whether a container's memory in use fits the next limit.
enum Use {
    /// It fits.
    Fits,
    /// It does not fit, or is unknown: a sentence.
    Not(String),
    /// The daemon is asked.
    Asked,
}

/// Why the next change is not made yet.
struct Delay {
    wait: Wait,
    orders: Vec<Order>,
    wake_at: Option<Mono>,
}

impl Planner<'_> {
    /// Makes the next change of the Pod.
    pub(super) fn step(&self, pod: &Pod, state: &SpecState, deadline: Option<Mono>) -> Plan {
        if let Some(Delay { wait, orders, wake_at }) = self.delay(pod, state) {
            return Plan { orders, ..self.waiting(pod, &wait, earliest(deadline, wake_at)) };
        }
        let plan = self.waiting(pod, &self.wait(state, pod), deadline);
        Plan { sizing: Some(self.next_sizing(pod, state)), ..plan }
    }

    /// The next change of the Pod.
    pub(super) fn next_sizing(&self, pod: &Pod, state: &SpecState) -> Sizing {
        self.sizing(pod, |c| next_step(self.observed.resize, c, state))
    }

    /// Why the memory limits are not lowered yet, for the message of an end.
    pub(super) fn shrink_waits(&self, pod: &Pod, state: &SpecState) -> Option<String> {
        if !matches!(state, SpecState::Original | SpecState::Between(_)) {
            return None;
        }
        self.delay(pod, state).map(|delay| delay.wait.message)
    }

    fn delay(&self, pod: &Pod, state: &SpecState) -> Option<Delay> {
        let resize = self.observed.resize;
        let margin = margin(&resize.spec)?;
        // A change that was sent stays wanted until its result is known.
        if self.observed.sizing.is_some() {
            return None;
        }
        let running = |c: &ContainerStatus| {
            let status = pod.container(&c.name).and_then(|c| c.status.as_ref());
            status.is_some_and(|s| s.state == ContainerState::Running)
        };
        let asked: Vec<_> = lowered(resize, state).filter(|(c, _)| running(c)).collect();
        // Questions about other containers stay, because order numbers are never reused.
        let others = self.observed.orders.iter().map(|view| view.order);
        let others = others.filter(|order| asked.iter().all(|(c, _)| c.name != order.container.name));
        let mut orders: Vec<Order> = others.cloned().collect();
        let (mut wake_at, mut waits, mut text) = (None, false, None);
        for (container, limit) in asked {
            let (found, order, at) = self.in_use(pod, container, limit, margin);
            orders.extend(order);
            wake_at = earliest(wake_at, at);
            match found {
                Use::Fits => {}
                Use::Asked => waits = true,
                Use::Not(why) => text = text.or(Some(why)),
            }
        }
        if !waits && text.is_none() {
            return None;
        }
        let phase = if *state == SpecState::Original { Phase::Proposed } else { Phase::InProgress };
        let wait = if self.observed.guarded {
            let asks = || "asks the node's daemon how much memory is in use".to_owned();
            Wait::new(phase, status::MEMORY_IN_USE, self.with_step(state, text.unwrap_or_else(asks)))
        } else {
            orders.clear();
            Wait::new(phase, status::POLICY, policy_missing())
        };
        Some(Delay { wait, orders, wake_at })
    }

    /// One container's memory in use, its order, and when to look again.
    fn in_use(
        &self,
        pod: &Pod,
        container: &ContainerStatus,
        limit: i64,
        margin: i64,
    ) -> (Use, Option<Order>, Option<Mono>) {
        let name = &container.name;
        let Some(question) = verify::question(self.observed, container, pod) else {
            return (Use::Not(format!("the Pod's status has no valid ID of container {name}")), None, None);
        };
        let own = |view: &OrderView<'_>| view.order.container == question.container;
        let Some(view) = newest(&self.observed.orders, name).filter(own) else {
            return (Use::Asked, Some(question), None);
        };
        let order = Some(view.order.clone());
        let Some(answer) = view.answer.filter(|answer| answer.state != AnswerState::Acknowledged) else {
            let (found, wake_at) = self.unanswered(name);
            return (found, order, wake_at);
        };
        let reclaim = reclaims(&self.observed.resize.spec).then(|| usable(limit, margin));
        // An older CRD does not store `reclaimTo`.
        let tried = view.order.action.resize.is_some();
        let reclaimed = view.order.action.resize.as_ref().and_then(|resize| resize.reclaim_to);
        let other = !tried || (reclaimed.is_some() && reclaimed != reclaim);
        let cgroups = answer.observed.as_ref().filter(|_| answer.state == AnswerState::Done);
        let usage = cgroups.and_then(|cgroups| cgroups.container.memory_usage);
        let found = match usage {
            None => Use::Not(format!(
                "the node's daemon does not say how much memory container {name} uses: {}",
                answer.message
            )),
            Some(usage) if usage.saturating_add(margin) > limit => {
                let [usage, margin, limit] = [usage, margin, limit].map(|bytes| Resource::Memory.show(bytes));
                let rest = if tried { ", and the kernel could reclaim no more" } else { "" };
                Use::Not(format!(
                    "container {name} uses {usage} of memory: with a margin of {margin}, that exceeds the new limit of {limit}{rest}"
                ))
            }
            Some(_) => Use::Fits,
        };
        // An older daemon would drop its record of the Pod.
        let may = reclaim.is_some() && !self.observed.recorded;
        if matches!(found, Use::Not(_)) && usage.is_some() && may && other {
            let action = ResizeOrder { reclaim_to: reclaim, ..ResizeOrder::default() }.into();
            return (found, Some(Order { action, ..question }), None);
        }
        let vain = tried && !matches!(found, Use::Fits);
        let wait = if vain { RECLAIMED } else { FRESH };
        let until = self.observed.memory.answered_since(&view.order.id).unwrap_or(self.now).after(wait);
        if until > self.now {
            return (found, order, Some(until));
        }
        // The lack of room is still reported while the daemon is asked again.
        (if matches!(found, Use::Fits) { Use::Asked } else { found }, Some(question), None)
    }

    /// Waits for a while for the daemon's answer about the memory of a container.
    fn unanswered(&self, name: &str) -> (Use, Option<Mono>) {
        let since = self.observed.memory.asked_since.unwrap_or(self.now);
        let silent_at = since.after(self.config.daemon_silent_after);
        if silent_at > self.now {
            return (Use::Asked, Some(silent_at));
        }
        (Use::Not(format!("the node's daemon has not said how much memory container {name} uses")), None)
    }

    /// The sentence, and the progress of the limits.
    fn with_step(&self, state: &SpecState, text: String) -> String {
        let SpecState::Between(_) = state else { return text };
        let current = containers(self.observed.resize, state);
        let of = |(c, _): (&ContainerStatus, i64)| {
            let step = current.iter().find(|other| other.name == c.name)?;
            let (now, last) = (step.desired.limits.memory.as_deref()?, c.desired.limits.memory.as_deref()?);
            Some(format!("the limit of {} is {now} on the way to {last}", c.name))
        };
        let steps: Vec<String> = lowered(self.observed.resize, state).filter_map(of).collect();
        if steps.is_empty() { text } else { format!("{text}; {}", steps.join(", ")) }
    }

    /// The wait, with the progress of the limits.
    pub(super) fn stepwise(&self, state: &SpecState, wait: Wait) -> Wait {
        Wait { message: self.with_step(state, wait.message), ..wait }
    }
}
