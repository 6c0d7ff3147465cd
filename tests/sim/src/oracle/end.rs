//! Rules that must hold once no fault is active any more.

use pitstop_api::labels;
use pitstop_api::nodework::{NodeWork, Order};
use pitstop_controller_core::readiness::{RECREATE_AGENT, UPDATE_AGENT};
use serde::Deserialize;

use super::Oracle;
use crate::server::Server;

/// Time allowed after the deadline, or after the last fault: a lease's term, back-offs of a minute, and the
/// daemon's silence.
const SLACK: u64 = 150_000;

/// Most writes for a container that begins again: an order, its acknowledgement and answer, and the next order.
const GIVEN: usize = 5;
/// Most writes for the update of one Pod, conflicts included.
const UPDATED: usize = 20;

impl Oracle {
    /// Number of writes, and of containers that began on nodes with held Pods.
    pub fn so_far(&self) -> (usize, usize) {
        (self.writes, self.holds.began)
    }

    /// Checks that everything ended in time; `calm` is the time of the last fault.
    pub fn converged(&mut self, now: u64, calm: u64, server: &Server) {
        self.now = now;
        if !self.intact() {
            return;
        }
        let led_since = self.led_since;
        let clocks = self.clocks;
        let mut wrong = self.resizes.converged(calm, led_since, SLACK);
        wrong.extend(self.updates.converged(calm, led_since, SLACK));
        wrong.extend(self.rollouts.converged(server));
        wrong.extend(self.parks.converged(server));
        wrong.extend(self.selected.converged(server));
        for (uid, known) in self.requests.iter().filter(|(_, k)| k.deleted.is_none()) {
            let from = known.created.max(calm).max(led_since);
            let limit = from + clocks.most(known.deadline) + SLACK;
            match known.ended {
                None => wrong.push(("L1", format!("{uid} ({}) never ends", known.key))),
                Some(ended) if ended > limit => {
                    wrong.push(("L1", format!("{uid} ends {} ms late", ended - limit)));
                }
                Some(_) => {}
            }
            if known.ttl.is_some() {
                wrong.push(("L4", format!("{uid} is kept beyond its time to live")));
            }
        }
        for object in server.objects("ContainerRecreateRequest") {
            let name = &object["metadata"]["name"];
            // A request that was deleted while it was open counts as gone, however long another owner's
            // finalizer keeps it.
            let gone = !object["metadata"]["deletionTimestamp"].is_null()
                && object["status"]["completionTime"].is_null();
            if !gone && object["metadata"]["labels"].get(labels::ACTIVE).is_some() {
                wrong.push(("L3", format!("{name} is over and has the label active")));
            }
            let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
            if finalizers.filter_map(|f| f.as_str()).any(|f| f.contains("pitstop") || f.contains("kruise")) {
                wrong.push(("L4", format!("{name} has a finalizer")));
            }
        }
        for object in server.objects("NodeWork") {
            let work = NodeWork::deserialize(&**object).unwrap();
            // A restored etcd may bring back the Pod of a removed node: no daemon reports how its stop ended.
            let excused = self.lying || (self.restored && self.lost_node);
            // While an instance runs that is reported as ended, the kernel may refuse its Pod's values.
            let stuck = |order: &Order| {
                let resize = order.action.resize.as_ref();
                self.lied && resize.is_some_and(|resize| resize.container.is_none() && resize.pod.is_some())
            };
            if !work.spec.orders.iter().all(stuck) && !excused {
                wrong.push(("L3", format!("orders are left: {:?}", work.spec.orders)));
            }
        }
        for pod in server.objects("Pod") {
            // A Pod that has ended never returns to service.
            let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
            if over || !pod["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            for condition in pod["status"]["conditions"].as_array().into_iter().flatten() {
                let message = condition["message"].as_str().unwrap_or_default();
                if message.contains(RECREATE_AGENT) || message.contains(UPDATE_AGENT) {
                    wrong.push(("I7", format!("Pod {} is held: {message}", pod["metadata"]["name"])));
                }
            }
            let gated = pod["spec"]["readinessGates"].as_array().is_some_and(|g| !g.is_empty());
            let phase = pod["status"]["phase"] == "Running";
            let bare = |g: &serde_json::Value| {
                let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
                !conditions.into_iter().any(|c| c["type"] == g["conditionType"])
            };
            if gated && phase && pod["spec"]["readinessGates"].as_array().unwrap().iter().any(bare) {
                wrong.push(("L3", format!("a gate of Pod {} has no condition", pod["metadata"]["name"])));
            }
        }
        for (invariant, what) in wrong {
            self.broken(invariant, what);
        }
    }

    /// Checks that a world at rest costs no write.
    pub fn silent(&mut self, now: u64, (writes, began): (usize, usize)) {
        self.now = now;
        // A container that no stop ends is tried ever more rarely, and reported after a while. A container
        // that begins again gets its held resources again.
        let given = (self.holds.began - began) * GIVEN + self.parks.late() * UPDATED;
        let more = if self.lying { 0 } else { (self.writes - writes).saturating_sub(given) };
        self.check(more == 0, "L3", || format!("{more} writes in ten minutes of silence"));
    }
}
