//! Writes of requests: an ended request stays as it is, states only go forward, and statuses are true.

use std::collections::BTreeMap;

use pitstop_api::condition;
use pitstop_api::recreate::{
    ContainerRecreateRequest, ContainerRecreateRequestStatus, Phase, Target, TargetContainer, conditions,
};

use super::{Known, Oracle, Writer};
use crate::server::Server;

impl Oracle {
    pub(super) fn request_wrote(
        &mut self,
        writer: Writer,
        before: Option<ContainerRecreateRequest>,
        after: Option<ContainerRecreateRequest>,
        server: &Server,
    ) {
        let uid = |r: &ContainerRecreateRequest| r.metadata.uid.clone().unwrap_or_default();
        let Some(new) = after else {
            let Some(old) = before else { return };
            let over = old.status.as_ref().is_some_and(|s| s.completion_time.is_some());
            // After a restore of etcd a stored end may be gone.
            let allowed =
                over || self.restored || writer != Writer::Controller || self.rollouts.made(&uid(&old));
            self.check(allowed, "I5", || format!("{} deleted while open", uid(&old)));
            if let Some(known) = self.requests.get_mut(&uid(&old)) {
                known.deleted = Some(self.now);
            }
            return;
        };
        let id = uid(&new);
        let now = self.now;
        let known = self.known(&new);
        let known = self.requests.entry(id.clone()).or_insert(known);
        if new.metadata.deletion_timestamp.is_some() {
            // Another owner's finalizer may keep it; for pitstop it is gone.
            known.deleted.get_or_insert(now);
        }
        // The API server gives a new request this status: no controller has seen it.
        let unseen =
            || ContainerRecreateRequestStatus { observed_generation: Some(-1), ..Default::default() };
        let before = before.filter(|old| uid(old) == id);
        let old_status = before.map_or_else(unseen, |old| old.status.unwrap_or_default());
        let new_status = new.status.clone().unwrap_or_default();
        if old_status == new_status {
            return;
        }
        self.check(writer == Writer::Controller, "I11", || format!("{writer:?} writes the status of {id}"));
        self.check(new_status.phase == condition::phase(&new_status.conditions), "rule", || {
            format!("the phase of {id} is not what its conditions say: {new_status:?}")
        });
        let forced = new.spec.strategy.as_ref().is_some_and(|s| s.force_recreate);
        self.check_target(&id, &old_status, &new_status, forced);
        self.check_states(&id, &old_status, &new_status);
        self.check_truth(&id, &new, &new_status, server);
        if let Some(known) = self.requests.get_mut(&id) {
            known.target.clone_from(&new_status.target);
        }
        if old_status.completion_time.is_none() && new_status.completion_time.is_some() {
            let complete = new_status.conditions.iter().find(|c| c.type_ == conditions::COMPLETE);
            let reason = complete.map(|c| c.reason.clone()).unwrap_or_default();
            self.check(!reason.is_empty(), "L1", || format!("{id} ended without a reason"));
            *self.ends.entry(reason).or_default() += 1;
            if let Some(known) = self.requests.get_mut(&id) {
                known.ended = Some(now);
            }
        }
    }

    fn known(&self, request: &ContainerRecreateRequest) -> Known {
        let spec = &request.spec;
        let strategy = spec.strategy.clone().unwrap_or_default();
        let seconds = |s: i64| u64::try_from(s).unwrap_or_default() * 1000;
        Known {
            key: format!(
                "{}/{}",
                request.metadata.namespace.clone().unwrap_or_default(),
                request.metadata.name.clone().unwrap_or_default()
            ),
            pod: spec.pod_name.clone(),
            created: self.now,
            deadline: spec.active_deadline_seconds.map_or(self.default_deadline * 1000, seconds),
            ttl: spec.ttl_seconds_after_finished.map(|s| seconds(s.into())),
            unready_grace: strategy.unready_grace_period_seconds.map(seconds),
            forced: strategy.force_recreate,
            ended: None,
            deleted: None,
            target: None,
            drained_since: None,
        }
    }

    /// Checks that a target never changes, except that a forced request follows the running instance until
    /// the daemon acknowledges one of its orders; and that a Pod has one request at work.
    fn check_target(
        &mut self,
        id: &str,
        old: &ContainerRecreateRequestStatus,
        new: &ContainerRecreateRequestStatus,
        forced: bool,
    ) {
        if let Some(before) = &old.target {
            // The restarter may change: to the kubelet if the daemon is silent. A deleted book loses the
            // acknowledgements of its orders, and no others. An old list does not show them either.
            let known = |o: &str| {
                self.acknowledged.keys().any(|(id, _)| id.starts_with(o) && !self.forgotten.contains(id))
            };
            let blind = self.restored || self.stale;
            let newer = |c: &TargetContainer| {
                let mut befores = before.containers.iter();
                let before = befores.find(|b| b.name == c.name).filter(|b| b.restart_count < c.restart_count);
                let order = format!("{id}/{}/", c.name);
                forced && before.is_some() && (blind || !known(&order))
            };
            let bare = |target: &Target| {
                let mut target = target.clone();
                for (c, after) in
                    target.containers.iter_mut().zip(new.target.iter().flat_map(|t| &t.containers))
                {
                    c.pin = None;
                    if newer(after) {
                        (c.container_id, c.restart_count) = (after.container_id.clone(), after.restart_count);
                    }
                }
                target
            };
            let same = new.target.as_ref().map(bare) == Some(bare(before));
            self.check(same, "I1", || {
                format!("the target of {id} changes from {before:?} to {:?}", new.target)
            });
            return;
        }
        let Some(target) = &new.target else { return };
        let other = self.requests.iter().find(|(uid, known)| {
            let working = known.ended.is_none() && known.deleted.is_none();
            *uid != id && working && known.target.as_ref().is_some_and(|t| t.pod_uid == target.pod_uid)
        });
        let other = other.map(|(uid, _)| uid.clone());
        let split = self.many_leaders;
        self.check(other.is_none() || split, "L2", || format!("{id} begins while {other:?} is at work"));
    }

    fn check_states(
        &mut self,
        id: &str,
        old: &ContainerRecreateRequestStatus,
        new: &ContainerRecreateRequestStatus,
    ) {
        let pairs: Vec<_> = old
            .container_recreate_states
            .iter()
            .filter_map(|a| Some((a, new.container_recreate_states.iter().find(|b| b.name == a.name)?)))
            .collect();
        self.check(pairs.len() == old.container_recreate_states.len(), "I5", || {
            format!("{id} forgets containers: {old:?} {new:?}")
        });
        if old.completion_time.is_none() {
            let back = pairs.iter().find(|(a, b)| a.phase > b.phase || (a.is_killed && !b.is_killed));
            let restored = self.restored;
            self.check(back.is_none() || restored, "I5", || format!("{id} goes back: {back:?}"));
            return;
        }
        // An ended request changes in one way: a stop that was recorded after the end.
        for (a, b) in pairs.iter().filter(|(a, b)| a != b) {
            let late = a.phase == Phase::Pending
                && matches!((b.phase, b.is_killed), (Phase::Recreating, true) | (Phase::Failed, false));
            self.check(late, "I5", || format!("{id} is over, and {a:?} becomes {b:?}"));
        }
        let rest = |status: &ContainerRecreateRequestStatus| {
            let mut status = status.clone();
            status.container_recreate_states.clear();
            status.conditions.retain(|c| c.type_ != conditions::PRE_STOP_HOOK_FAILED);
            status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
            status
        };
        self.check(rest(old) == rest(new), "I5", || format!("{id} is over, and changes: {old:?} {new:?}"));
    }

    /// Checks that a killed container was ordered and stopped, or pinned; and that a container that came back
    /// runs, or ran.
    fn check_truth(
        &mut self,
        id: &str,
        request: &ContainerRecreateRequest,
        status: &ContainerRecreateRequestStatus,
        server: &Server,
    ) {
        let Some(target) = &status.target else { return };
        let namespace = request.metadata.namespace.clone().unwrap_or_default();
        let alive = server
            .object("Pod", &namespace, &request.spec.pod_name)
            .is_some_and(|pod| pod["metadata"]["uid"] == *target.pod_uid);
        let min_started =
            u64::try_from(request.spec.strategy.clone().unwrap_or_default().min_started_seconds)
                .unwrap_or_default();
        let began: BTreeMap<&str, u64> = self
            .ran
            .iter()
            .filter(|(pod, ..)| *pod == target.pod_uid)
            .map(|(_, _, id, at)| (id.as_str(), *at))
            .collect();
        let mut wrong = Vec::new();
        for state in &status.container_recreate_states {
            let Some(before) = target.containers.iter().find(|c| c.name == state.name) else { continue };
            let old = before.container_id.rsplit('/').next().unwrap_or_default();
            if state.is_killed {
                let ours = self.stopped.contains_key(&(id.to_owned(), state.name.clone()));
                let pinned = before.pin.is_some();
                let acknowledged = self
                    .acknowledged
                    .keys()
                    .any(|(order, _)| order.starts_with(&format!("{id}/{}/", state.name)));
                if !(ours || pinned || acknowledged || self.restored) {
                    wrong.push(("I6", format!("{id} says that {} was killed, and nobody did", state.name)));
                }
            }
            if state.phase == Phase::Succeeded && alive && !self.restored {
                let snapshot = status.container_status_snapshot.iter().find(|s| s.name == state.name);
                let newer = self
                    .ran
                    .iter()
                    .filter(|(pod, name, id, _)| *pod == target.pod_uid && *name == state.name && id != old)
                    .map(|(_, _, id, _)| id.as_str())
                    .filter(|id| began.get(id) > began.get(old) || !began.contains_key(old))
                    .collect::<Vec<_>>();
                if newer.is_empty() {
                    wrong.push(("I6", format!("{id} says that {} came back, and none began", state.name)));
                }
                let shown = snapshot.map(|s| s.container_id.rsplit('/').next().unwrap_or_default());
                if shown == Some(old) {
                    wrong.push(("I6", format!("{id} counts the old {} as new", state.name)));
                }
                let oldest = newer.iter().filter_map(|id| began.get(id)).min();
                let least = self.clocks.least(min_started * 1000);
                if oldest.is_some_and(|at| self.now < at + least) {
                    wrong.push(("I6", format!("{id} says that {} ran for {min_started} s", state.name)));
                }
            }
        }
        for (invariant, what) in wrong {
            self.broken(invariant, what);
        }
    }
}
