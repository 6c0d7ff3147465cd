//! Writes of books and Pods: drains, turns, and what answers may say.

use pitstop_api::nodework::{AnswerReason, AnswerState, NodeWork, Order, request_uid};
use pitstop_api::recreate::{FailurePolicy, Phase};
use pitstop_controller_core::readiness::{Hold, RECREATE_AGENT, SERVED};
use serde::Deserialize;
use serde_json::Value;

use super::{Found, Placed, Rules, bare, millis};
use crate::oracle::Writer;
use crate::oracle::Wrote;
use crate::oracle::pods::images;
use crate::server::Server;
use crate::world::plan::{Fault, PodPlan, Step};

/// How long a change may take to be known if nothing delays it, in milliseconds.
const KNOWN: u64 = 1_500;
/// How long the order of a deleted request may still be acknowledged, in milliseconds.
const WITHDRAWN: u64 = 10_000;

/// The order without the fields of a newer version. No daemon has to heed those, and another version may
/// place a withdrawn order again.
fn asked(order: &Order) -> Order {
    let mut order = order.clone();
    order.unknown.clear();
    let action = &mut order.action;
    let recreate = action.recreate.iter_mut().map(|recreate| &mut recreate.unknown);
    let resize = action.resize.iter_mut().map(|resize| &mut resize.unknown);
    for unknown in recreate.chain(resize) {
        unknown.clear();
    }
    order
}

impl Rules {
    /// An object was written, or removed.
    pub fn wrote(&mut self, wrote: &Wrote<'_>) -> Found {
        let Wrote { now, kind, before, after, server, .. } = *wrote;
        self.now = now;
        let mut found = Found::new();
        if self.off {
            return found;
        }
        match kind {
            "ContainerRecreateRequest" => self.request_wrote(wrote, &mut found),
            "PodResize" | "PodImageUpdate" => self.resizes.wrote(now, before, after),
            "NodeWork" => self.book_wrote(wrote, &mut found),
            "Pod" => self.pod_wrote(wrote, &mut found),
            _ => {}
        }
        if kind != "NodeWork" {
            self.see_service(server);
        }
        if self.calm() {
            server.objects("Pod").for_each(|pod| self.holds_end(pod, &mut found));
        }
        found
    }

    fn book_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { before, after, .. } = *wrote;
        let read = |o: &Value| NodeWork::deserialize(o).unwrap();
        let node =
            after.or(before).and_then(|o| o["metadata"]["name"].as_str()).unwrap_or_default().to_owned();
        let book = after.map(read).unwrap_or_default();
        self.writes += 1;
        for placed in self.orders.values_mut().filter(|p| p.node == node) {
            placed.in_book = book.spec.orders.iter().any(|o| o.id == placed.order.id);
        }
        for order in &book.spec.orders {
            let again = |p: &Placed| p.node == node && asked(&p.order) == asked(order);
            if self.orders.get(&order.id).is_some_and(again) {
                continue;
            }
            let (at, write) = (self.now, self.writes);
            let placed = Placed {
                order: order.clone(),
                node: node.clone(),
                at,
                write,
                in_book: true,
                answer: None,
                grace_from: None,
                hooked: None,
                stopped: None,
            };
            self.orders.insert(order.id.clone(), placed);
            self.may_begin(&order.id, found);
        }
        let answers = book.status.unwrap_or_default().answers;
        let now = self.now;
        for answer in answers.iter().filter(|a| a.state == AnswerState::Acknowledged) {
            let new = self.acknowledged_by.insert((answer.order_id.clone(), answer.acknowledged_by.clone()));
            let ended = self.requests.get(request_uid(&answer.order_id)).and_then(|r| r.ended);
            // Nothing more can come of an ended instance, and all containers of a Pod that is gone end.
            let order = self.orders.get(&answer.order_id);
            let over = order.is_some_and(|placed| self.ended.contains(&placed.order.container.id));
            let request = self.requests.get(request_uid(&answer.order_id));
            let over = over || request.is_some_and(|request| request.reason() == "PodGone");
            if new && !over && ended.is_some_and(|end| end < now) && !self.loses_books() {
                let text = format!("{} takes {} up after its end", answer.acknowledged_by, answer.order_id);
                found.push(("I4", text));
            }
        }
        // The daemon finds the runtime again within two seconds.
        let back = self.only(|f| matches!(f, Fault::RuntimeDown(..))).then(|| self.last_fault() + 2_000);
        let of = |pod: &str| self.orders.values().filter(|o| o.order.pod.uid == pod).count();
        let alone: Vec<String> =
            self.orders.iter().filter(|(_, o)| of(&o.order.pod.uid) == 1).map(|(id, _)| id.clone()).collect();
        let (daemons, controllers, calm) = (self.sound_daemons(), self.sound_controllers(), self.calm());
        // A daemon's Pod that is replaced loses the record of signals. Orders in a book that was made again
        // are carried out again.
        let forgets = self.schedule.faults.iter().any(|f| matches!(f.what, Fault::TwoDaemons(..)));
        let forgets = forgets || self.loses_books();
        for (id, placed) in self.orders.iter_mut().filter(|(_, p)| p.node == node) {
            let answer = answers.iter().find(|a| a.order_id == *id);
            if let Some(answer) = answer.filter(|a| a.state == AnswerState::Acknowledged) {
                let named = answer.acknowledged_uptime_seconds;
                // An outage before the signal does not shorten the grace.
                let moves = placed
                    .grace_from
                    .is_none_or(|(before, _)| before != named && (forgets || placed.stopped.is_none()));
                if moves {
                    placed.grace_from = Some((named, now));
                }
            }
            let state = answer.map(|a| a.state);
            if placed.answer.map(|(state, _)| state) == state {
                continue;
            }
            // The grace counts from the first acknowledgement.
            placed.answer = state.map(|state| (state, placed.answer.map_or(now, |(_, since)| since)));
            let (Some(answer), Some(state)) = (answer, state) else { continue };
            if placed.order.action.recreate.is_none() {
                // It stops nothing.
                continue;
            }
            let first = placed.answer.is_some_and(|(_, since)| since == now);
            if first && alone.contains(id) && back.is_some_and(|up| placed.at < up && now > up + 8_000) {
                found.push((
                    "L5",
                    format!("{id} is answered {} ms after its runtime is back", now - back.unwrap()),
                ));
            }
            let never = placed.stopped.is_none();
            if state == AnswerState::Failed {
                found.push(("L5", format!("{id} has failed, and no error was final: {}", answer.message)));
            }
            if state == AnswerState::Done
                && answer.reason != Some(AnswerReason::EndedByItself)
                && never
                && daemons
            {
                found.push(("I6", format!("{id} is done, and nobody stopped its container")));
            }
            let gone = self.requests.get(request_uid(id)).and_then(|r| r.deleted);
            let late = gone.is_some_and(|gone| now > gone + if calm { KNOWN } else { WITHDRAWN });
            if state == AnswerState::Acknowledged && late && controllers {
                found.push(("I4", format!("{id} is taken up {gone:?}, long after its request was deleted")));
            }
        }
    }

    /// Checks a placed order: its Pod has been out of service for long enough, and the previous container has
    /// come back.
    fn may_begin(&self, id: &str, found: &mut Found) {
        let Some(placed) = self.orders.get(id) else { return };
        let Some(request) = self.requests.get(request_uid(id)) else { return };
        let strategy = request.object.spec.strategy.clone().unwrap_or_default();
        if let Some(grace) = strategy.unready_grace_period_seconds.map(millis) {
            let shortly = self.now < request.in_service + KNOWN;
            let enough = request.out_since.is_some_and(|since| self.now >= since + self.clocks.least(grace));
            // After the first order the controller does not check again whether the Pod is out of service.
            let begun = self.orders.keys().any(|other| other != id && request_uid(other) == request_uid(id));
            let occupied = self.schedule.steps.iter().any(|s| matches!(s.what, Step::Occupy(_)));
            let excused = enough || shortly || (begun && occupied);
            if !excused && self.sound_controllers() {
                found.push(("rule", format!("{id} is placed before its drain is over")));
            }
        }
        if strategy.ordered_recreate {
            self.ordered(request_uid(id), &placed.order.container.name, found);
        }
    }

    /// Checks for an ordered request that every container before that one has come back, or failed if
    /// failures are ignored.
    fn ordered(&self, uid: &str, name: &str, found: &mut Found) {
        let Some(request) = self.requests.get(uid) else { return };
        let status = request.object.status.clone().unwrap_or_default();
        let Some(target) = &status.target else { return };
        // An ignored failure is recorded with the next step.
        let plan = self.schedule.pod(&request.object.spec.pod_name);
        let policy = request.object.spec.strategy.clone().unwrap_or_default().failure_policy;
        if policy == Some(FailurePolicy::Ignore) && !plan.is_some_and(PodPlan::stays) {
            return;
        }
        for earlier in target.containers.iter().take_while(|c| c.name != name) {
            let state = status.container_recreate_states.iter().find(|s| s.name == earlier.name);
            let failed = state.is_some_and(|s| s.phase == Phase::Failed);
            if !failed && !self.came_back(&target.pod_uid, &earlier.name, &earlier.container_id) {
                let text = format!("{uid} goes on to {name} before {} has come back", earlier.name);
                found.push(("rule", text));
            }
        }
    }

    fn pod_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, .. } = *wrote;
        if let Some(gone) =
            before.filter(|old| after.is_none_or(|new| new["metadata"]["uid"] != old["metadata"]["uid"]))
        {
            let uid = gone["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            self.pods.entry(uid).or_insert((self.now, None)).1 = Some(self.now);
        }
        let Some(new) = after else { return };
        let uid = new["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.pods.entry(uid.clone()).or_insert((self.now, None));
        for field in ["containerStatuses", "initContainerStatuses"] {
            for status in new["status"][field].as_array().into_iter().flatten() {
                let id = bare(status["containerID"].as_str().unwrap_or_default()).to_owned();
                let key = (uid.clone(), id);
                if status["ready"] == true && status["state"]["running"].is_object() {
                    self.were_ready.insert(key.clone());
                    self.ready.entry(key).or_insert(self.now);
                } else {
                    self.ready.remove(&key);
                }
            }
        }
        let Some(old) = before.filter(|_| writer == Writer::Controller) else { return };
        for (type_, message) in foreign(old) {
            if !foreign(new).contains(&(type_, message)) {
                found.push(("I8", format!("the condition {type_} said {message:?}, and was taken over")));
            }
        }
        for (name, image) in images(new) {
            let Some((_, from)) = images(old).into_iter().find(|(n, i)| *n == name && *i != image) else {
                continue;
            };
            self.pinned(&uid, name, from, image, found);
        }
    }

    /// Checks that no hold lasts half a minute longer than its request.
    fn holds_end(&self, pod: &Value, found: &mut Found) {
        // A Pod that has ended never returns to service.
        let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
        if over || !pod["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let ours = conditions.filter(|c| SERVED.contains(&c["type"].as_str().unwrap_or_default()));
        let holds = ours.flat_map(|c| {
            serde_json::from_str::<Vec<Hold>>(c["message"].as_str().unwrap_or_default()).unwrap_or_default()
        });
        for hold in holds.filter(|h| h.user_agent == RECREATE_AGENT) {
            let name = |r: &super::Followed| r.object.metadata.name.clone().unwrap_or_default();
            let its = || self.requests.values().filter(|r| hold.key.ends_with(&format!("/{}", name(r))));
            let over = its().map(|r| r.ended.into_iter().chain(r.deleted).min());
            // None: a request of that name is at work.
            let Some(over) = over.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max()) else {
                continue;
            };
            if self.now > over + 30_000 {
                found.push((
                    "I7",
                    format!("{} holds a Pod {} ms after it has gone", hold.key, self.now - over),
                ));
            }
        }
    }

    /// Checks a pin: over the image that it was made for, and in turn.
    fn pinned(&self, pod: &str, name: &str, from: &str, image: &str, found: &mut Found) {
        for (uid, request) in self.requests.iter().filter(|(_, r)| r.ended.is_none() && r.deleted.is_none()) {
            let status = request.object.status.clone().unwrap_or_default();
            let Some(target) = status.target.filter(|t| t.pod_uid == pod) else { continue };
            let container = target.containers.iter().find(|c| c.name == name);
            // A container that has come back is not pinned again: an update sets the same string.
            if container.is_some_and(|c| self.came_back(pod, name, &c.container_id)) {
                continue;
            }
            let pin = container.and_then(|c| c.pin.clone());
            let Some(pin) = pin.filter(|pin| pin.image == image) else { continue };
            if pin.from != from {
                found.push(("I15", format!("{uid} pins {image} over {from}, which it does not know")));
            }
            if request.object.spec.strategy.clone().unwrap_or_default().ordered_recreate {
                self.ordered(uid, name, found);
            }
        }
    }

    /// Records since when Pods are out of service for the requests that asked for it.
    fn see_service(&mut self, server: &Server) {
        let now = self.now;
        for request in self.requests.values_mut().filter(|r| r.ended.is_none() && r.deleted.is_none()) {
            let status = request.object.status.clone().unwrap_or_default();
            let Some(target) = status.target else { continue };
            let namespace = request.object.metadata.namespace.clone().unwrap_or_default();
            let Some(pod) = server.object("Pod", &namespace, &request.object.spec.pod_name) else { continue };
            if pod["metadata"]["uid"] != *target.pod_uid {
                continue;
            }
            let name = request.object.metadata.name.clone().unwrap_or_default();
            let hold = Hold { user_agent: RECREATE_AGENT.into(), key: format!("{namespace}/{name}") };
            let conditions = || pod["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions().any(|c| c["type"] == "Ready" && c["status"] == "True");
            let gates = pod["spec"]["readinessGates"].as_array().into_iter().flatten();
            let types: Vec<&str> = gates.filter_map(|g| g["conditionType"].as_str()).collect();
            let held = |gate: &&str| {
                conditions().any(|c| {
                    let holds: Vec<Hold> =
                        serde_json::from_str(c["message"].as_str().unwrap_or_default()).unwrap_or_default();
                    c["type"] == **gate && c["status"] == "False" && holds.contains(&hold)
                })
            };
            let served: Vec<&str> = types.into_iter().filter(|t| SERVED.contains(t)).collect();
            let out = served.is_empty() || (!ready && served.iter().all(held));
            if out {
                request.out_since.get_or_insert(now);
            } else {
                request.out_since = None;
                request.in_service = now;
            }
        }
    }

    /// Checks that a failure ends a request at once, unless failures are ignored.
    pub(super) fn policy(
        strategy: &pitstop_api::recreate::RecreateStrategy,
        states: &[pitstop_api::recreate::ContainerRecreateState],
        ended: Option<&str>,
    ) -> Option<String> {
        let ignore = strategy.failure_policy == Some(FailurePolicy::Ignore);
        let failed = states.iter().any(|s| s.phase == Phase::Failed);
        let over = states.iter().all(|s| matches!(s.phase, Phase::Succeeded | Phase::Failed));
        match ended {
            None if failed && !ignore => Some("goes on after a failure".to_owned()),
            Some("ContainerFailed") if ignore && !over => {
                Some("ends with a failure that is ignored".to_owned())
            }
            _ => None,
        }
    }
}

/// Conditions behind gates whose message is not a list.
fn foreign(pod: &Value) -> Vec<(&str, &str)> {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ours = conditions
        .map(|c| (c["type"].as_str().unwrap_or_default(), c["message"].as_str().unwrap_or_default()));
    ours.filter(|(type_, message)| {
        SERVED.contains(type_) && !message.is_empty() && serde_json::from_str::<Vec<Hold>>(message).is_err()
    })
    .collect()
}
