//! Turns what a Pod should have, and what its daemon says it gave, into orders for the daemon.
//!
//! A Pod has one order at a time, besides those that make no progress. Each order says what the Pod's cgroup should
//! contain afterwards, by what the other containers have then.

use std::collections::BTreeMap;
use std::time::Duration;

use pitstop_api::id::ContainerId;
use pitstop_api::nodework::{
    AnswerState, Bounds, Held, HeldContainer, Order, OrderContainer, OrderId, OrderPod, ResizeOrder,
    order_attempt,
};
use pitstop_api::quantity::Resources;

use super::force::{Force, Wish, bounds, has, held_pod, record, resources, running};
use crate::nodework::{OrderView, newest};
use crate::pod::{Container, Pod};
use crate::time::{Mono, earliest};

/// Delay before the controller repeats an order that the daemon refused or gave up. A new instance gets its resources
/// as soon as the Pod's status shows it.
const AGAIN: Duration = Duration::from_secs(30);

/// All inputs for the orders of a Pod.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// The Pod. None once it is gone.
    pub pod: Option<&'a Pod>,
    /// What its requests want.
    pub force: &'a Force,
    /// The daemon's record of the Pod.
    pub held: Option<&'a Held>,
    /// Its orders in the node's book.
    pub orders: &'a [OrderView<'a>],
    /// Since when each answer is known, by order ID.
    pub answered: &'a BTreeMap<String, Mono>,
    /// The highest attempt that an order about the Pod can have had, even if the order is gone.
    pub last_attempt: u32,
    /// Orders may be placed.
    pub guarded: bool,
    /// An open request waits for the result.
    pub awaited: bool,
}

/// The orders for the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldPlan {
    /// The Pod's orders that the node's book should contain.
    pub orders: Vec<Order>,
    /// When to look again without an event.
    pub wake_at: Option<Mono>,
}

/// What the Pod's cgroup should contain once every container has what it should.
pub fn pod_wants(pod: &Pod, force: &Force) -> Resources {
    held_pod(pod, |container| force.wants(container))
}

/// The orders that a Pod still needs. Empty if it has what it should.
pub fn settle(now: Mono, holding: &Holding<'_>) -> HoldPlan {
    let settler = Settler { now, holding, hindered: false };
    match holding.pod {
        None => settler.forget(),
        Some(pod) => Settler { hindered: settler.any_hindered(pod), ..settler }.settle(pod),
    }
}

/// Bytes that a container may use below `limit`, with `margin` bytes to spare.
pub(crate) fn usable(limit: i64, margin: i64) -> i64 {
    limit.saturating_sub(margin).max(0)
}

struct Settler<'a> {
    now: Mono,
    holding: &'a Holding<'a>,
    /// An order for a running container makes no progress.
    hindered: bool,
}

/// What one container needs.
struct Need<'a> {
    container: &'a Container,
    id: String,
    resize: ResizeOrder,
    shrinks: bool,
}

impl Settler<'_> {
    /// The Pod and its cgroup are gone: the daemon may drop the record.
    fn forget(&self) -> HoldPlan {
        let Some(held) = self.holding.held else { return HoldPlan::default() };
        let mut plan = HoldPlan::default();
        for container in &held.containers {
            let resize = ResizeOrder::default();
            self.ensure(&held.pod, &container.name, &container.id, resize, &mut plan);
        }
        plan
    }

    fn settle(&self, pod: &Pod) -> HoldPlan {
        let mut needs: Vec<Need<'_>> = pod.containers.iter().filter_map(|c| self.need(pod, c)).collect();
        if needs.is_empty() {
            needs.extend(self.pod_alone(pod));
        }
        self.side_by_side(&mut needs);
        self.after_the_others(&mut needs);
        // Orders under way come first, then those that give back, which makes room for the others.
        needs.sort_by_key(|need| (!self.is_under_way(need), !need.shrinks));
        let target = OrderPod {
            namespace: pod.key.namespace.clone(),
            name: pod.key.name.clone(),
            uid: pod.uid.clone(),
        };
        let mut plan = HoldPlan::default();
        let mut open = false;
        for need in needs {
            let name = &need.container.name;
            let current =
                newest(self.holding.orders, name).filter(|view| same(view.order, &need.id, &need.resize));
            match current {
                // An order without progress stays, and blocks no other.
                Some(view) if hindered(&view) => {
                    self.ensure(&target, name, &need.id, need.resize, &mut plan);
                }
                _ if open => {}
                _ => open = self.ensure(&target, name, &need.id, need.resize, &mut plan),
            }
        }
        if self.holding.awaited {
            plan.orders.extend(self.carried_out());
        }
        plan
    }

    fn any_hindered(&self, pod: &Pod) -> bool {
        pod.containers.iter().any(|container| {
            let newest = newest(self.holding.orders, &container.name).filter(hindered);
            newest.is_some_and(|view| running(container).is_some_and(|id| view.order.container.id == id))
        })
    }

    /// After an order without progress, it is unknown what its container has, and which order ends last. Needs that
    /// shrink then leave the Pod's cgroup alone. Others give it the most that its containers may have. Every record
    /// stays, so the last order gives the Pod exactly what it should have.
    fn side_by_side(&self, needs: &mut Vec<Need<'_>>) {
        if needs.len() < 2 || !self.hindered {
            return;
        }
        let given = |need: &Need<'_>| record(self.holding.held, &need.container.name).and_then(|r| r.given);
        needs
            .retain(|need| need.resize.hold || given(need).is_none() || given(need) != need.resize.container);
        for Need { resize, shrinks, .. } in needs {
            resize.hold |= resize.container.is_some();
            resize.pod = resize.pod.filter(|_| !*shrinks);
        }
    }

    /// Some orders only give back the Pod's part of an ended instance. Without progress, such an order comes after the
    /// other needs. Beside them, it would give the Pod what they had before.
    fn after_the_others(&self, needs: &mut Vec<Need<'_>>) {
        let own = |need: &Need<'_>| need.resize.container.is_some();
        if self.hindered || !needs.iter().any(own) {
            return;
        }
        let stuck = |need: &Need<'_>| {
            newest(self.holding.orders, &need.container.name).is_some_and(|view| hindered(&view))
        };
        needs.retain(|need| own(need) || !stuck(need));
    }

    /// The orders that gave the containers what they have.
    fn carried_out(&self) -> impl Iterator<Item = Order> {
        let records = self.holding.held.into_iter().flat_map(|held| &held.containers);
        let given = records.filter(|record| record.given.is_some());
        given.filter_map(|record| {
            self.holding.orders.iter().find(|v| v.order.id == record.order).map(|v| v.order.clone())
        })
    }

    /// What a container needs. None if it has what it should.
    fn need<'b>(&self, pod: &'b Pod, container: &'b Container) -> Option<Need<'b>> {
        let name = container.name.as_str();
        let record = record(self.holding.held, name);
        // An instance that was given nothing has its spec, or starts with it. A wish for exactly its spec does not
        // count: what the previous instance held is given back.
        let given = running(container).is_some_and(|id| record.is_some_and(|record| record.id == id));
        let other = |wish: &&Wish| given || bounds(&wish.resources) != bounds(&container.resources);
        let wish = self.holding.force.containers.get(name).filter(other);
        match (wish, running(container).as_ref().map(ContainerId::as_str)) {
            (Some(wish), Some(id)) => self.take(pod, container, id, wish, record),
            // The container starts with its spec, and gets the rest then.
            (Some(_), None) => None,
            (None, id) => Some(self.give_back(pod, container, id, record?)),
        }
    }

    fn take<'b>(
        &self,
        pod: &'b Pod,
        container: &'b Container,
        id: &str,
        wish: &Wish,
        record: Option<&HeldContainer>,
    ) -> Option<Need<'b>> {
        let wanted = bounds(&wish.resources);
        let (record, other) = (record.filter(|r| r.id == id), record.filter(|r| r.id != id));
        if record.is_some_and(|record| record.given == Some(wanted)) {
            return None;
        }
        let before = record.map_or(Some(bounds(&container.resources)), |record| record.given);
        let resize = ResizeOrder {
            container: Some(wanted),
            pod: Some(self.pod_with(pod, container, &wish.resources)),
            hold: true,
            unless_pinned: pins(pod, container) && cpu_differs(&wanted, &bounds(&container.resources)),
            memory_margin: wish.margin,
            reclaim_to: wanted.memory_limit.filter(|_| wish.reclaims).map(|limit| usable(limit, wish.margin)),
            ..ResizeOrder::default()
        };
        // The Pod's cgroup may still include what the previous instance was given.
        let counted = other.and_then(|other| other.given.or(other.before));
        let shrinks = before.is_some_and(|before| smaller(&wanted, &before))
            && counted.is_none_or(|counted| covers(&counted, &wanted));
        Some(Need { container, id: id.to_owned(), resize, shrinks })
    }

    fn give_back<'b>(
        &self,
        pod: &'b Pod,
        container: &'b Container,
        id: Option<&str>,
        record: &HeldContainer,
    ) -> Need<'b> {
        let own = id == Some(record.id.as_str());
        let back = bounds(&container.resources);
        let resize = ResizeOrder {
            container: own.then_some(back),
            pod: Some(self.pod_with(pod, container, &container.resources)),
            ..ResizeOrder::default()
        };
        let shrinks = record.given.is_some_and(|given| smaller(&back, &given));
        // A new instance is given nothing: only the record of the previous one goes.
        Need { container, id: record.id.clone(), resize, shrinks }
    }

    /// Corrects the Pod's cgroup when every container has what it should. None if it is correct.
    fn pod_alone<'b>(&self, pod: &'b Pod) -> Option<Need<'b>> {
        let held = self.holding.held?;
        // A container that will start again keeps its part.
        let begins =
            |c: &Container| self.holding.force.containers.contains_key(&c.name) && running(c).is_none();
        if pod.containers.iter().any(begins) {
            return None;
        }
        let wanted = bounds(&held_pod(pod, |container| self.has(container)));
        if held.given == Some(wanted) {
            return None;
        }
        let of = |container: &'b Container| {
            let id = running(container)?;
            let record = record(Some(held), &container.name).filter(|record| record.id == id)?;
            let wish = self.holding.force.containers.get(&container.name)?;
            let resize = ResizeOrder {
                container: record.given,
                pod: Some(wanted),
                hold: true,
                memory_margin: wish.margin,
                ..ResizeOrder::default()
            };
            Some(Need { container, id: id.into(), resize, shrinks: false })
        };
        pod.containers.iter().find_map(of)
    }

    /// What the Pod's cgroup should contain once this container has `wanted`.
    fn pod_with(&self, pod: &Pod, container: &Container, wanted: &Resources) -> Bounds {
        let of = |other: &Container| {
            if other.name == container.name {
                return *wanted;
            }
            // Another container may get what it should have before this one does.
            let has = self.has(other);
            if self.hindered && running(other).is_some() {
                most(&has, &self.holding.force.wants(other))
            } else {
                has
            }
        };
        bounds(&held_pod(pod, of))
    }

    /// What a container has. While that is unknown: the most that it may have, the order under way included.
    fn has(&self, container: &Container) -> Resources {
        has(container, self.holding.held).unwrap_or_else(|| {
            let may = most(&container.resources, &self.holding.force.wants(container));
            let record = record(self.holding.held, &container.name);
            let under_way =
                record.and_then(|record| self.holding.orders.iter().find(|v| v.order.id == record.order));
            let given = under_way.and_then(|view| view.order.action.resize.as_ref()?.container);
            let known = record.and_then(|record| record.before).into_iter().chain(given);
            known.fold(may, |may, has| most(&may, &resources(&has)))
        })
    }

    /// Whether an order for this need waits for the daemon.
    fn is_under_way(&self, need: &Need<'_>) -> bool {
        let newest = newest(self.holding.orders, &need.container.name);
        newest.is_some_and(|view| same(view.order, &need.id, &need.resize) && self.again_at(&view).is_none())
    }

    /// Keeps the current order, or adds another. Returns whether one is open then.
    fn ensure(&self, pod: &OrderPod, name: &str, id: &str, resize: ResizeOrder, plan: &mut HoldPlan) -> bool {
        let newest = newest(self.holding.orders, name);
        let fits = |view: &OrderView<'_>| {
            same(view.order, id, &resize) && (!hindered(view) || suits(view.order, &resize))
        };
        if let Some(view) = newest.filter(fits) {
            match self.again_at(&view) {
                Some(at) if at > self.now => {
                    plan.orders.push(view.order.clone());
                    plan.wake_at = earliest(plan.wake_at, Some(at));
                    return false;
                }
                Some(_) => {}
                None => {
                    plan.orders.push(view.order.clone());
                    return true;
                }
            }
        }
        if !self.holding.guarded {
            return false;
        }
        let last = self.holding.orders.iter().map(OrderView::attempt);
        let given =
            self.holding.held.into_iter().flat_map(|held| &held.containers).map(|c| order_attempt(&c.order));
        let known = last.chain(given).max().unwrap_or_default().max(self.holding.last_attempt);
        let attempt = known.saturating_add(1);
        plan.orders.push(Order {
            id: OrderId { owner: &pod.uid, container: name, attempt }.to_string(),
            pod: pod.clone(),
            container: OrderContainer { name: name.to_owned(), id: id.to_owned() },
            action: resize.into(),
            ..Order::default()
        });
        true
    }

    /// When an answered order is worth another one. None until the daemon has answered.
    fn again_at(&self, view: &OrderView<'_>) -> Option<Mono> {
        let answer = view.answer.filter(|answer| answer.state != AnswerState::Acknowledged)?;
        let since = self.holding.answered.get(&view.order.id).copied().unwrap_or(self.now);
        // What it gave has changed since.
        let wait = if answer.state == AnswerState::Done { Duration::ZERO } else { AGAIN };
        Some(since.after(wait))
    }
}

/// Whether the daemon tries the order without success, and goes on.
fn hindered(view: &OrderView<'_>) -> bool {
    view.answer.is_some_and(|answer| answer.state == AnswerState::Acknowledged && answer.reason.is_some())
}

/// Whether an order without progress gives the Pod's cgroup the right amounts, or amounts that may be corrected later.
fn suits(order: &Order, resize: &ResizeOrder) -> bool {
    let old = order.action.resize.as_ref().and_then(|own| own.pod);
    old == resize.pod || (resize.hold && old.zip(resize.pod).is_some_and(|(old, new)| covers(&old, &new)))
}

/// Whether no amount of `one` is smaller.
fn covers(one: &Bounds, other: &Bounds) -> bool {
    one == other || smaller(other, one)
}

/// Whether the order gives the same instance the same resources.
fn same(order: &Order, id: &str, resize: &ResizeOrder) -> bool {
    order.container.id == id
        && order.action.resize.as_ref().is_some_and(|own| {
            (own.container, own.hold, own.unless_pinned, own.memory_margin)
                == (resize.container, resize.hold, resize.unless_pinned, resize.memory_margin)
        })
}

/// Whether the kubelet's static CPU manager gives the container its own CPUs: whole CPUs, in a Guaranteed Pod.
fn pins(pod: &Pod, container: &Container) -> bool {
    let whole = container.resources.cpu_request.is_some_and(|request| request > 0 && request % 1000 == 0);
    whole && super::admission::guaranteed(pod)
}

fn cpu_differs(one: &Bounds, other: &Bounds) -> bool {
    (one.cpu_request, one.cpu_limit) != (other.cpu_request, other.cpu_limit)
}

/// Whether `new` has less of something, and more of nothing.
fn smaller(new: &Bounds, old: &Bounds) -> bool {
    let limit = |limit: Option<i64>| limit.unwrap_or(i64::MAX);
    new != old
        && new.cpu_request <= old.cpu_request
        && limit(new.cpu_limit) <= limit(old.cpu_limit)
        && limit(new.memory_limit) <= limit(old.memory_limit)
}

/// The larger of each amount. An absent limit is the largest.
fn most(one: &Resources, other: &Resources) -> Resources {
    let limit = |one: Option<i64>, other: Option<i64>| Some(one?.max(other?));
    Resources {
        cpu_request: one.cpu_request.max(other.cpu_request),
        cpu_limit: limit(one.cpu_limit, other.cpu_limit),
        memory_request: one.memory_request.max(other.memory_request),
        memory_limit: limit(one.memory_limit, other.memory_limit),
    }
}
