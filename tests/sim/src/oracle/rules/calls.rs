//! Actions of daemons on containers: in turn, in order, within the grace.

use pitstop_api::nodework::{AnswerState, request_uid};
use pitstop_api::recreate::Mechanism;

use super::{Found, Rules, bare, millis};
use crate::node::keys;
use crate::node::runtime::{Call, Deed, DeedKind, Runtime};
use crate::world::effect::{Asked, Purpose};
use crate::world::plan::{ComesBack, Fault, PodPlan};

/// Minimum of seconds between signal and kill.
const LEAST_GRACE: i64 = 2;
/// More calls for orders in a second than any of the small worlds can need.
const MOST_A_SECOND: usize = 60;
/// Maximum delay of a stop after its acknowledgement, or after the end of a hook; in milliseconds.
const MOST_LATE: u64 = 60_000;
/// Whole seconds and the way to the API server and back, in seconds.
const ROUNDING: i64 = 2;

impl Rules {
    /// A daemon is about to call its runtime for an order.
    pub fn calls(&mut self, now: u64, by: &str, asked: &Asked, runtime: &Runtime) -> Found {
        self.now = now;
        let mut found = Found::new();
        let called = self.calling.count(now);
        if called > MOST_A_SECOND {
            found.push(("I12", format!("{called} calls of runtimes in a second")));
        }
        if self.off || asked.purpose.only_asks() {
            return found;
        }
        let own = (asked.order_id.clone(), by.to_owned());
        if !self.acknowledged_by.contains(&own) {
            found.push(("I2", format!("{by} acts on {}, which it has not acknowledged", asked.order_id)));
        }
        self.begins(asked, runtime, &mut found);
        self.in_turn(asked, runtime, &mut found);
        self.within_grace(asked, &mut found);
        self.comes_back(asked, &mut found);
        if let Some(placed) = self.orders.get_mut(&asked.order_id) {
            let first = if asked.purpose == Purpose::Hook { &mut placed.hooked } else { &mut placed.stopped };
            first.get_or_insert(now);
        }
        found
    }

    /// When a daemon first asked for the stop of that container. A runtime that hangs begins the stop later.
    pub(in crate::oracle) fn asked_to_stop(&self, id: &str) -> Option<u64> {
        self.orders.values().filter(|p| p.order.container.id == id).filter_map(|p| p.stopped).min()
    }

    /// When a daemon first began with that container, if two daemons do not know each other's stops.
    pub(in crate::oracle) fn begun_by_one_of_two(&self, id: &str) -> Option<u64> {
        let first = |hooked: Option<u64>, stopped| [hooked, stopped].into_iter().flatten().min();
        let of_it = self.orders.values().filter(|p| self.rivals() && p.order.container.id == id);
        of_it.filter_map(|p| first(p.hooked, p.stopped)).min()
    }

    fn rivals(&self) -> bool {
        self.schedule.faults.iter().any(|f| matches!(f.what, Fault::TwoDaemons(..)))
    }

    /// Checks that nothing begins once the request has ended.
    fn begins(&self, asked: &Asked, runtime: &Runtime, found: &mut Found) {
        let Some(placed) = self.orders.get(&asked.order_id) else { return };
        // A stop of an ended container begins nothing. A deleted book loses its acknowledgements.
        let alive = runtime.containers().get(&asked.container_id).is_some_and(|c| c.alive(self.now));
        if !alive || self.loses_books() {
            return;
        }
        let first = placed.hooked.is_none() && placed.stopped.is_none() && !placed.in_book;
        let Some(request) = self.requests.get(request_uid(&asked.order_id)) else { return };
        // An order that was acknowledged before the end may be carried out after it.
        let began = |since: u64| request.ended.is_some_and(|end| since <= end);
        let late = request.ended.is_some_and(|end| self.now > end + MOST_LATE + Self::grace(&placed.order));
        if late {
            found.push(("I4", format!("{} is carried out long after its request has ended", asked.order_id)));
        }
        if placed.answer.is_some_and(|(state, since)| state == AnswerState::Acknowledged && began(since)) {
            return;
        }
        if first && request.ended.is_some() && request.reason() == "DeadlineExceeded" {
            found.push(("I4", format!("{} begins after its request has ended", asked.order_id)));
        }
    }

    /// Whether a fault deletes a book.
    pub(in crate::oracle) fn loses_books(&self) -> bool {
        self.schedule.faults.iter().any(|f| matches!(f.what, Fault::DeleteBook(_)))
    }

    /// Checks that orders of one Pod go one after another, and those of one write in the order of the
    /// request's containers.
    fn in_turn(&self, asked: &Asked, runtime: &Runtime, found: &mut Found) {
        // Two daemons of one node do not know each other's work.
        let rivals = self.rivals();
        let Some(placed) = self.orders.get(&asked.order_id).filter(|_| !rivals) else { return };
        let alive = |id: &str| runtime.containers().get(id).is_some_and(|c| c.alive(self.now));
        let others = self.orders.iter().filter(|(id, other)| {
            **id != asked.order_id && other.in_book && other.order.pod.uid == placed.order.pod.uid
        });
        for (id, other) in others {
            let begun = other.hooked.is_some() || other.stopped.is_some();
            // Its request was over before a later process acknowledged it: nothing more comes of it.
            let refused = other.answer.is_some_and(|(state, _)| state == AnswerState::Refused);
            if begun && !refused && alive(&other.order.container.id) && other.node == placed.node {
                found.push(("rule", format!("{} begins while {id} is under way", asked.order_id)));
            }
        }
        let uid = request_uid(&asked.order_id);
        let Some(request) = self.requests.get(uid) else { return };
        let names = request.object.spec.containers.iter().map(|c| c.name.as_str());
        for name in names.take_while(|name| *name != placed.order.container.name) {
            let earlier =
                self.orders.iter().find(|(id, o)| request_uid(id) == uid && o.order.container.name == name);
            let Some((id, earlier)) = earlier.filter(|(_, o)| o.in_book && o.write == placed.write) else {
                continue;
            };
            let begun = earlier.hooked.is_some() || earlier.stopped.is_some() || earlier.answer.is_some();
            if !begun && alive(&earlier.order.container.id) {
                found.push(("rule", format!("{} is carried out before {id}", asked.order_id)));
            }
        }
    }

    /// Checks the grace: it counts from the acknowledgement, hook included, and is at least two seconds. A
    /// crash before the signal restarts it, a crash after the signal does not.
    fn within_grace(&self, asked: &Asked, found: &mut Found) {
        let Some(placed) = self.orders.get(&asked.order_id) else { return };
        let grace = placed.order.action.recreate.as_ref().and_then(|r| r.grace_period_seconds);
        let (Some(grace), Some((_, since))) = (grace, placed.grace_from) else { return };
        let gone = i64::try_from(self.clocks.at_least_seen(self.now - since) / 1000).unwrap();
        let left = (grace - gone + ROUNDING).min(grace);
        match &asked.call {
            Call::StopContainer { timeout_s, .. } => {
                if *timeout_s < LEAST_GRACE {
                    found.push(("I9", format!("{} is stopped with {timeout_s} s of grace", asked.order_id)));
                }
                if *timeout_s > left.max(LEAST_GRACE) {
                    let text = format!("{} is stopped with {timeout_s} s, {left} s are left", asked.order_id);
                    found.push(("I9", text));
                }
            }
            Call::ExecSync { timeout_s, .. } if *timeout_s > left.max(0) => {
                let text =
                    format!("the hook of {} may take {timeout_s} s, {left} s are left", asked.order_id);
                found.push(("I9", text));
            }
            _ => {}
        }
    }

    /// Checks that no container is stopped that the kubelet does not start again.
    fn comes_back(&self, asked: &Asked, found: &mut Found) {
        let Some(placed) = self.orders.get(&asked.order_id) else { return };
        let plan = self.schedule.pod(&placed.order.pod.name);
        let comes_back = plan.map(|plan| plan.comes_back(&placed.order.container.name));
        if comes_back == Some(ComesBack::Never) {
            found.push(("rule", format!("{} stops what does not come back", asked.order_id)));
        }
        let request = self.requests.get(request_uid(&asked.order_id));
        let mechanism = request.map(|r| r.object.spec.strategy.clone().unwrap_or_default().mechanism);
        if comes_back == Some(ComesBack::Perhaps) && mechanism.is_some_and(|m| m != Some(Mechanism::Runtime))
        {
            found.push(("rule", format!("{} stops what may not come back, unasked", asked.order_id)));
        }
    }

    /// Takes an event that really happened on a node.
    pub fn deed(&mut self, deed: &Deed, runtime: &Runtime) {
        if matches!(deed.kind, DeedKind::Ended(_)) {
            self.ended.insert(deed.id.clone());
        }
        let Some(container) = runtime.containers().get(&deed.id).filter(|_| deed.kind == DeedKind::Started)
        else {
            return;
        };
        let label = |key| container.info.labels.get(key).cloned().unwrap_or_default();
        self.ran.insert((label(keys::POD_UID), label(keys::CONTAINER_NAME), deed.id.clone()));
    }

    /// Whether another instance than that one ran under the name.
    pub(super) fn came_back(&self, pod: &str, name: &str, id: &str) -> bool {
        self.ran.iter().any(|(p, n, i)| p == pod && n == name && i != bare(id))
    }

    /// Checks at the end the result of every order that was begun.
    pub fn at_the_end<'a>(&mut self, now: u64, runtimes: impl Iterator<Item = &'a Runtime>) -> Found {
        self.now = now;
        let mut found = Found::new();
        if self.off {
            return found;
        }
        let runtimes: Vec<&Runtime> = runtimes.collect();
        let alive = |id: &str| runtimes.iter().any(|r| r.containers().get(id).is_some_and(|c| c.alive(now)));
        if self.sound_daemons() {
            for (id, placed) in self.orders.iter().filter(|(_, o)| o.hooked.is_some() && o.stopped.is_none())
            {
                // A process that was paused asks the book first, and stops nothing that is over.
                let paused = self.schedule.faults.iter().any(|f| matches!(f.what, Fault::PauseDaemon(..)));
                if !paused && alive(&placed.order.container.id) {
                    found.push((
                        "rule",
                        format!("{id}: the hook has run, and the container was never stopped"),
                    ));
                }
            }
        }
        if self.calm() {
            self.late_stops(&alive, &mut found);
        }
        found
    }

    /// Checks that a stop that outlived its request is recorded.
    fn late_stops(&self, alive: &dyn Fn(&str) -> bool, found: &mut Found) {
        for (id, placed) in &self.orders {
            let Some(request) = self.requests.get(request_uid(id)).filter(|r| r.deleted.is_none()) else {
                continue;
            };
            let status = request.object.status.clone().unwrap_or_default();
            let name = &placed.order.container.name;
            let pending = status.container_recreate_states.iter().find(|s| s.name == *name);
            let pending = pending.is_some_and(|s| s.phase == pitstop_api::recreate::Phase::Pending);
            let outlived = placed.stopped.is_some_and(|at| request.ended.is_some_and(|end| at <= end));
            let reason = request.reason();
            // The message comes from the daemon's answer or from the Pod's status, whichever is first. A Pod
            // that is gone or has ended has none.
            let plan = self.schedule.pod(&placed.order.pod.name);
            let stays = plan.is_some_and(PodPlan::stays);
            if !stays || self.pods.get(&placed.order.pod.uid).is_none_or(|(_, gone)| gone.is_some()) {
                continue;
            }
            if pending && outlived && reason == "DeadlineExceeded" && !alive(&placed.order.container.id) {
                found.push(("rule", format!("{id} outlived its request, and how it ended is not reported")));
            }
        }
    }

    /// Milliseconds that a container's grace may take.
    pub(super) fn grace(order: &pitstop_api::nodework::Order) -> u64 {
        let seconds = order.action.recreate.as_ref().and_then(|r| r.grace_period_seconds);
        millis(seconds.unwrap_or(30).max(LEAST_GRACE))
    }
}
