//! Requests: which instance they mean, that none waits in vain, and that none ends before its time.

use pitstop_api::nodework::request_uid;
use pitstop_api::recreate::{
    ContainerRecreateRequest, ContainerRecreateRequestStatus, Phase, Target, TargetContainer, conditions,
};
use pitstop_api::{labels, nodework::AnswerState};
use serde::Deserialize;
use serde_json::Value;

use super::{Followed, Found, Placed, Rules, bare, millis};
use crate::oracle::Writer;
use crate::oracle::Wrote;
use crate::oracle::pods::images;
use crate::server::Server;
use crate::world::plan::{ComesBack, Fault, PodPlan, Step};

/// How long a daemon may be silent, in milliseconds.
const SILENCE: u64 = 60_000;
/// Time that watches, writes and the kubelet's own pace add to a wait, in milliseconds.
const SLACK: u64 = 8_000;

impl Followed {
    /// Why it ended, or waits.
    pub(super) fn reason(&self) -> String {
        reason(&self.object.status.clone().unwrap_or_default())
    }
}

/// Number of containers that go through the kubelet.
fn pins(target: &Target) -> usize {
    target.containers.iter().filter(|c| c.pin.is_some()).count()
}

/// Its wait so far, and since when; records `why` as its wait from now on.
fn followed_waits(followed: &mut Followed, why: &str, now: u64) -> (String, u64) {
    if followed.waits.0 == why {
        return followed.waits.clone();
    }
    std::mem::replace(&mut followed.waits, (why.to_owned(), now))
}

fn reason(status: &ContainerRecreateRequestStatus) -> String {
    let last = status.conditions.iter().find(|c| c.type_ == conditions::COMPLETE);
    last.map_or_else(String::new, |c| c.reason.clone())
}

impl Rules {
    pub(super) fn request_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, server, .. } = *wrote;
        let read = |o: &Value| ContainerRecreateRequest::deserialize(o).unwrap();
        let uid = |r: &ContainerRecreateRequest| r.metadata.uid.clone().unwrap_or_default();
        let Some(new) = after.map(read) else {
            let Some(old) = before.map(read) else { return };
            self.deleted(&uid(&old), writer, found);
            return;
        };
        let (id, now) = (uid(&new), self.now);
        let followed = self.requests.entry(id.clone()).or_insert_with(|| Followed {
            object: new.clone(),
            created: now,
            accepted: None,
            ended: None,
            deleted: None,
            waits: (String::new(), now),
            out_since: None,
            in_service: now,
            falls_back: None,
        });
        if new.metadata.deletion_timestamp.is_some() {
            // Another owner's finalizer may keep it; for pitstop it is gone.
            followed.deleted.get_or_insert(now);
        }
        let old = std::mem::replace(&mut followed.object, new.clone()).status.unwrap_or_default();
        let status = new.status.clone().unwrap_or_default();
        let why = reason(&status);
        let waited = followed_waits(followed, &why, now);
        if let (None, Some(target)) = (&old.target, &status.target) {
            followed.accepted = Some(now);
            self.accepted(&id, &new, target, found);
        }
        if let (Some(before), Some(target)) = (&old.target, &status.target)
            && pins(target) > pins(before)
        {
            self.falls_back(&id, target, found);
        }
        let strategy = new.spec.strategy.clone().unwrap_or_default();
        let ended = status.completion_time.is_some();
        let wrong = Self::policy(&strategy, &status.container_recreate_states, ended.then_some(&*why));
        found.extend(wrong.map(|what| ("rule", format!("{id} {what}"))));
        self.states(&id, &old, &status, found);
        if old.completion_time.is_none() && ended {
            let long = now > waited.1 + 20_000 && self.calm() && why == "DeadlineExceeded";
            // A kubelet reports nothing about a Pod while it stops a container.
            let stops = self.schedule.steps.iter().any(|s| matches!(s.what, Step::SetImage(..)));
            if long && !stops && waited.0 == "WaitingForNotReady" {
                found.push(("rule", format!("{id} waited in vain for its Pod to be taken out of service")));
            }
            let plan = self.schedule.pod(&new.spec.pod_name);
            let never = |p: &PodPlan| p.containers.iter().all(|c| p.comes_back(&c.name) == ComesBack::Never);
            let ends = plan.is_some_and(never);
            if long && waited.0 == "WaitingForRestart" && ends {
                found.push(("rule", format!("{id} waited in vain for what does not come back")));
            }
            self.ended(&id, &why, server, found);
            if let Some(followed) = self.requests.get_mut(&id) {
                followed.ended = Some(now);
            }
        }
    }

    /// Checks that a container that succeeded was ready; no runtime of these worlds returns a final error.
    fn states(
        &self,
        id: &str,
        old: &ContainerRecreateRequestStatus,
        new: &ContainerRecreateRequestStatus,
        found: &mut Found,
    ) {
        let Some(target) = &new.target else { return };
        for state in
            new.container_recreate_states.iter().filter(|s| !old.container_recreate_states.contains(s))
        {
            if state.message.starts_with("kill container error: ")
                && !state.message.contains("cannot be pinned")
            {
                found.push((
                    "L5",
                    format!("{id}: {} has failed, and no error was final: {}", state.name, state.message),
                ));
            }
            let named = target.containers.iter().find(|c| c.name == state.name);
            let Some(named) = named.filter(|_| state.phase == Phase::Succeeded) else { continue };
            let mut ran = self.ran.iter().filter(|(p, n, i)| {
                *p == target.pod_uid && *n == state.name && i != bare(&named.container_id)
            });
            if !ran.any(|(p, _, i)| self.were_ready.contains(&(p.clone(), i.clone()))) {
                found.push(("I6", format!("{id} says that {} came back, and none was ready", state.name)));
            }
        }
    }

    /// Checks that the request means the instance that admission recorded, on the Pod that it saw; and that
    /// it did not wait for a request that is over.
    fn accepted(&self, id: &str, request: &ContainerRecreateRequest, target: &Target, found: &mut Found) {
        let admitted = request.metadata.labels.as_ref().and_then(|l| l.get(labels::POD_UID));
        if admitted.is_some_and(|uid| *uid != target.pod_uid) {
            found.push(("I3", format!("{id} was admitted for {admitted:?}, and is for {}", target.pod_uid)));
        }
        if !request.spec.strategy.clone().unwrap_or_default().force_recreate {
            for container in &request.spec.containers {
                let Some(context) = &container.status_context else { continue };
                let named = target.containers.iter().find(|c| c.name == container.name);
                if named.is_some_and(|c| c.container_id != context.container_id) {
                    found
                        .push(("I1", format!("{id} means another {} than the one admitted", container.name)));
                }
            }
        }
        if self.calm() {
            // If the places of the namespace are limited, each end of another request may free one.
            let bounded = self.schedule.most_open.is_some();
            let before = |r: &Followed| {
                r.accepted.is_some() && r.object.spec.pod_name == request.spec.pod_name || bounded
            };
            let free = self.requests.iter().filter(|(uid, r)| **uid != id && before(r));
            let free = free.filter_map(|(_, r)| r.ended.into_iter().chain(r.deleted).min()).max();
            let since = self.requests.get(id).map_or(0, |r| r.created).max(free.unwrap_or(0));
            // An open resize has begun, or releases the Pod first.
            let resized = self.resizes.free_since(&request.spec.pod_name);
            if resized.is_some_and(|free| self.now > since.max(free) + 5_000) {
                found.push(("L2", format!("{id} begins {} ms after it could", self.now - since)));
            }
        }
    }

    fn deleted(&mut self, id: &str, writer: Writer, found: &mut Found) {
        let now = self.now;
        let clocks = self.clocks;
        let Some(followed) = self.requests.get_mut(id) else { return };
        followed.deleted.get_or_insert(now);
        let ttl = followed.object.spec.ttl_seconds_after_finished.map(|s| clocks.least(millis(s.into())));
        if let (Writer::Controller, Some(ttl), Some(ended)) = (writer, ttl, followed.ended)
            && now < ended + ttl
        {
            found.push(("L4", format!("{id} is deleted {} ms after its end", now - ended)));
        }
    }

    /// Checks that a request does not end before its time, and that its reason is true.
    fn ended(&self, id: &str, why: &str, server: &Server, found: &mut Found) {
        let Some(request) = self.requests.get(id) else { return };
        let spec = &request.object.spec;
        let own = spec.active_deadline_seconds.map(millis);
        let deadline = own.unwrap_or(self.schedule.default_deadline * 1000);
        let age = self.now - request.created;
        match why {
            "DeadlineExceeded" if age < self.clocks.least(deadline) => {
                found.push(("I10", format!("{id} ends after {age} ms with a deadline of {deadline} ms")));
            }
            "DeadlineExceeded" => {
                self.waited(id, found);
                self.never_pinned(request, server, found);
            }
            "DaemonNotResponding" => self.silent(id, found),
            "PodGone" => self.gone(id, server, found),
            "Complete" if self.calm() => self.in_time(id, found),
            _ => {}
        }
        if self.calm() && age > self.clocks.most(deadline) + SLACK {
            found.push((
                "L1",
                format!("{id} ends {age} ms after its creation, with a deadline of {deadline} ms"),
            ));
        }
    }

    /// Checks that nothing had to end a request before its deadline.
    fn waited(&self, id: &str, found: &mut Found) {
        let request = self.requests.get(id);
        let pod = request.and_then(|r| r.object.status.clone()).and_then(|s| s.target).map(|t| t.pod_uid);
        let gone = pod.and_then(|pod| self.pods.get(&pod)).and_then(|(_, gone)| *gone);
        let patience = if self.calm() { 20_000 } else { 100_000 };
        if gone.is_some_and(|gone| self.now > gone.max(self.last_fault()) + patience) {
            found.push(("L1", format!("{id} was waited for, and its Pod is gone since {gone:?}")));
        }
        if !self.sound_controllers() {
            return;
        }
        for (order, placed) in self.orders.iter().filter(|(order, _)| request_uid(order) == id) {
            let silent = placed.in_book
                && placed.answer.is_none()
                && self.now > placed.at + self.clocks.most(SILENCE) + 4 * SLACK;
            let pod = &placed.order.pod.uid;
            let busy = self.orders.iter().any(|(other, o)| other != order && o.order.pod.uid == *pod);
            if silent && !busy {
                found.push(("L7", format!("{order} was waited for though the daemon was silent")));
            }
        }
    }

    /// Checks that the daemon had its minute, with no other work for the Pod.
    fn silent(&self, id: &str, found: &mut Found) {
        let Some(placed) =
            self.orders.iter().filter(|(order, _)| request_uid(order) == id).map(|(_, p)| p.at).min()
        else {
            return;
        };
        // A book that is made again, or that an old list did not show, has its orders again. And a write may
        // be known before it is reported.
        let anew = self.loses_books()
            || self.schedule.faults.iter().any(|f| matches!(f.what, Fault::StaleLists(..)));
        if self.now + 100 < placed + self.clocks.least(SILENCE) && !anew {
            found.push(("I10", format!("{id} gives its daemon up after {} ms", self.now - placed)));
        }
        let short: u64 = self.schedule.faults.iter().map(|f| crate::world::lasts(&f.what)).sum();
        let server =
            self.only(|f| matches!(f, Fault::ApiDown(..) | Fault::LoseAnswers(..) | Fault::Refuse(..)));
        if server && short <= 12_000 && self.now > self.last_fault() + 40_000 {
            found.push(("L5", format!("{id} gives its daemon up long after the API server was back")));
        }
        let pod = self.orders.iter().find(|(order, _)| request_uid(order) == id);
        if let Some(order) = pod.and_then(|(_, placed)| self.busy_with(&placed.order.pod.uid)) {
            found.push(("rule", format!("{id} gives its daemon up while it is busy with {order}")));
        }
    }

    /// Checks that containers which the kubelet restarts instead of a silent daemon are pinned at once, if
    /// nothing else must happen before.
    fn never_pinned(&self, request: &Followed, server: &Server, found: &mut Found) {
        let strategy = request.object.spec.strategy.clone().unwrap_or_default();
        let waits = strategy.ordered_recreate || strategy.unready_grace_period_seconds.is_some();
        let fresh = request.falls_back.is_none_or(|since| self.now < since + SLACK);
        if waits || fresh || !self.sound_controllers() {
            return;
        }
        let Some(target) = request.object.status.as_ref().and_then(|s| s.target.as_ref()) else { return };
        let namespace = request.object.metadata.namespace.clone().unwrap_or_default();
        let Some(pod) = server.object("Pod", &namespace, &request.object.spec.pod_name) else { return };
        for container in &target.containers {
            let Some(pin) = &container.pin else { continue };
            let image = images(pod).into_iter().find(|(name, _)| *name == container.name).map(|(_, i)| i);
            let old = !self.came_back(&target.pod_uid, &container.name, &container.container_id);
            if old && image == Some(&*pin.from) && pod["metadata"]["uid"] == *target.pod_uid {
                found.push(("L1", format!("{} of {} was never pinned", container.name, target.pod_uid)));
            }
        }
    }

    /// Checks that the kubelet replaces only a daemon that had no other work for the Pod.
    fn falls_back(&mut self, id: &str, target: &Target, found: &mut Found) {
        if let Some(followed) = self.requests.get_mut(id) {
            followed.falls_back = Some(self.now);
        }
        // An ended container needs no daemon: the kubelet starts it at once when its image is pinned.
        let ended = |c: &TargetContainer| c.pin.is_none() || self.ended.contains(bare(&c.container_id));
        if target.containers.iter().all(ended) {
            return;
        }
        if let Some(order) = self.busy_with(&target.pod_uid) {
            found.push(("rule", format!("{id} takes its daemon for silent, which is busy with {order}")));
        }
    }

    /// The order for a Pod that a sound daemon is carrying out, within its grace.
    fn busy_with(&self, pod: &str) -> Option<&String> {
        let busy = |placed: &Placed| {
            let acting = placed.answer.is_some_and(|(state, _)| state == AnswerState::Acknowledged);
            let stops = placed.stopped.or(placed.hooked);
            let within =
                stops.is_some_and(|at| self.now < at + self.clocks.least(Self::grace(&placed.order)));
            let container = &placed.order.container;
            // If a runtime lies, the kubelet starts the next instance beside this one.
            let runs =
                !self.ended.contains(&container.id) && !self.came_back(pod, &container.name, &container.id);
            acting && placed.in_book && within && runs && placed.order.pod.uid == pod
        };
        self.orders.iter().find(|(_, placed)| busy(placed) && self.sound_daemons()).map(|(order, _)| order)
    }

    /// Checks that its Pod is gone.
    fn gone(&self, id: &str, server: &Server, found: &mut Found) {
        let Some(request) = self.requests.get(id) else { return };
        let namespace = request.object.metadata.namespace.clone().unwrap_or_default();
        let Some(pod) = server.object("Pod", &namespace, &request.object.spec.pod_name) else { return };
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let admitted = request.object.metadata.labels.as_ref().and_then(|l| l.get(labels::POD_UID));
        let target = request.object.status.clone().unwrap_or_default().target.map(|t| t.pod_uid);
        let same = target.or(admitted.cloned()).is_none_or(|target| target == uid);
        let there = pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running";
        let long = self.pods.get(uid).is_some_and(|(since, _)| self.now > since + 20_000);
        let plain = self.only(|f| {
            matches!(
                f,
                Fault::KillController(..)
                    | Fault::KillDaemon(..)
                    | Fault::ApiSlow(..)
                    | Fault::JumpClock(..)
                    | Fault::HoldWatch(..)
                    | Fault::LoseEvents(..)
            )
        });
        if same && there && long && plain {
            found.push(("I6", format!("{id} says that Pod {uid} is gone, and it runs")));
        }
    }

    /// Checks that it completes as soon as its containers are ready and old enough.
    fn in_time(&self, id: &str, found: &mut Found) {
        let Some(request) = self.requests.get(id) else { return };
        let status = request.object.status.clone().unwrap_or_default();
        let least = request.object.spec.strategy.clone().unwrap_or_default().min_started_seconds;
        let Some(target) = status.target else { return };
        let since = status.container_status_snapshot.iter().map(|s| {
            let key = (target.pod_uid.clone(), bare(&s.container_id).to_owned());
            self.ready.get(&key).copied().unwrap_or(self.now)
        });
        let Some(since) = since.max() else { return };
        let limit = since.max(request.accepted.unwrap_or(0)) + self.clocks.most(millis(least.into())) + 1_500;
        if self.now > limit {
            found.push(("L2", format!("{id} is reported complete {} ms late", self.now - limit)));
        }
    }
}
