//! The next change of the Pod, once the memory in use leaves room for it.

use std::time::Duration;

use pitstop_api::nodework::{AnswerState, Order, Resize};
use pitstop_api::quantity::Resource;
use pitstop_api::resize::{ContainerStatus, Phase};

use super::sized::policy_missing;
use super::{Plan, Planner};
use crate::change::Sizing;
use crate::hold::room;
use crate::nodework::{OrderView, newest};
use crate::pod::{ContainerState, Pod};
use crate::resize::judge::Place;
use crate::resize::shrink::{containers, lowered, margin, next, reclaims};
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
struct Held {
    wait: Wait,
    orders: Vec<Order>,
    wake_at: Option<Mono>,
}

impl Planner<'_> {
    /// Makes the next change of the Pod.
    pub(super) fn step(&self, pod: &Pod, place: &Place, deadline: Option<Mono>) -> Plan {
        if let Some(Held { wait, orders, wake_at }) = self.held(pod, place) {
            return Plan { orders, ..self.waiting(pod, &wait, earliest(deadline, wake_at)) };
        }
        let plan = self.waiting(pod, &self.wait(place, pod), deadline);
        Plan { sizing: Some(self.onward(pod, place)), ..plan }
    }

    /// The next change of the Pod.
    pub(super) fn onward(&self, pod: &Pod, place: &Place) -> Sizing {
        self.sizing(pod, |c| next(self.observed.resize, c, place))
    }

    /// Why the memory limits are not lowered yet, for the message of an end.
    pub(super) fn shrink_waits(&self, pod: &Pod, place: &Place) -> Option<String> {
        if !matches!(place, Place::Original | Place::Between(_)) {
            return None;
        }
        self.held(pod, place).map(|held| held.wait.message)
    }

    fn held(&self, pod: &Pod, place: &Place) -> Option<Held> {
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
        let asked: Vec<_> = lowered(resize, place).filter(|(c, _)| running(c)).collect();
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
        let phase = if *place == Place::Original { Phase::Proposed } else { Phase::InProgress };
        let wait = if self.observed.guarded {
            let asks = || "asks the node's daemon how much memory is in use".to_owned();
            Wait::new(phase, status::MEMORY_IN_USE, self.with_step(place, text.unwrap_or_else(asks)))
        } else {
            orders.clear();
            Wait::new(phase, status::POLICY, policy_missing())
        };
        Some(Held { wait, orders, wake_at })
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
        let Some(look) = verify::place(self.observed, container, pod) else {
            return (Use::Not(format!("the Pod's status has no valid ID of container {name}")), None, None);
        };
        let own = |view: &OrderView<'_>| view.order.container == look.container;
        let Some(view) = newest(&self.observed.orders, name).filter(own) else {
            return (Use::Asked, Some(look), None);
        };
        let order = Some(view.order.clone());
        let Some(answer) = view.answer.filter(|answer| answer.state != AnswerState::Acknowledged) else {
            let (found, wake_at) = self.unanswered(name);
            return (found, order, wake_at);
        };
        let reclaim = reclaims(&self.observed.resize.spec).then(|| room(limit, margin));
        // An older CRD does not store `reclaimTo`.
        let tried = view.order.action.resize.is_some();
        let reclaimed = view.order.action.resize.as_ref().and_then(|resize| resize.reclaim_to);
        let other = !tried || (reclaimed.is_some() && reclaimed != reclaim);
        let told = answer.observed.as_ref().filter(|_| answer.state == AnswerState::Done);
        let usage = told.and_then(|cgroups| cgroups.container.memory_usage);
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
            let action = Resize { reclaim_to: reclaim, ..Resize::default() }.into();
            return (found, Some(Order { action, ..look }), None);
        }
        let vain = tried && !matches!(found, Use::Fits);
        let wait = if vain { RECLAIMED } else { FRESH };
        let until = self.observed.memory.answered_since(&view.order.id).unwrap_or(self.now).after(wait);
        if until > self.now {
            return (found, order, Some(until));
        }
        // The lack of room is still reported while the daemon is asked again.
        (if matches!(found, Use::Fits) { Use::Asked } else { found }, Some(look), None)
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
    fn with_step(&self, place: &Place, text: String) -> String {
        let Place::Between(_) = place else { return text };
        let stage = containers(self.observed.resize, place);
        let of = |(c, _): (&ContainerStatus, i64)| {
            let there = stage.iter().find(|other| other.name == c.name)?;
            let (now, last) = (there.desired.limits.memory.as_deref()?, c.desired.limits.memory.as_deref()?);
            Some(format!("the limit of {} is {now} on the way to {last}", c.name))
        };
        let steps: Vec<String> = lowered(self.observed.resize, place).filter_map(of).collect();
        if steps.is_empty() { text } else { format!("{text}; {}", steps.join(", ")) }
    }

    /// The wait, with the progress of the limits.
    pub(super) fn stepwise(&self, place: &Place, wait: Wait) -> Wait {
        Wait { message: self.with_step(place, wait.message), ..wait }
    }
}
