//! Rules for held Pods once no fault is active any more.

use std::collections::BTreeMap;

use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::nodework::{Held, NodeWork};
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{Mechanism, Phase, PodResize, conditions};
use serde::Deserialize;
use serde_json::Value;

use super::{Holds, brief, same};
use crate::node::cgroups::{Cgroups, of_pod};
use crate::node::keys;
use crate::node::runtime::{Container, Runtime, State};
use crate::oracle::resizes::sizes;
use crate::oracle::rules::Found;
use crate::server::Server;
use crate::world::plan::{Fault, Step};

/// A node's present state.
pub struct Present<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its runtime.
    pub runtime: &'a Runtime,
    /// Its control groups.
    pub cgroups: &'a Cgroups,
}

/// What requests want, by container: the request of the last turn counts. A request that is not in force
/// counts only for containers that the daemon has on record: it may be one container of several.
fn in_force(server: &Server, uid: &str, held: Option<&Held>) -> BTreeMap<String, Resources> {
    let stored = server.objects("PodResize").map(|o| PodResize::deserialize(&**o).unwrap());
    let mut all = Vec::new();
    for resize in stored.filter(|r| r.metadata.deletion_timestamp.is_none() && !r.spec.dry_run) {
        let status = resize.status.unwrap_or_default();
        let Some(target) = status.target.filter(|t| t.pod_uid == uid) else { continue };
        let over = status.completion_time.is_some() && status.phase != Some(Phase::Succeeded);
        if status.mechanism == Some(Mechanism::Cri) && status.restoring.is_none() && !over {
            let found = condition::find(&status.conditions, conditions::IN_FORCE);
            let dormant = found.is_some_and(|condition| condition.status == ConditionStatus::False);
            let recorded = |name: &str| held.is_some_and(|h| h.containers.iter().any(|c| c.name == name));
            let counts = status.containers.into_iter().filter(|c| !dormant || recorded(&c.name));
            all.push((target.turn, counts.collect::<Vec<_>>()));
        }
    }
    all.sort_by_key(|(turn, _)| *turn);
    let containers = all.into_iter().flat_map(|(_, containers)| containers);
    containers.map(|c| (c.name.clone(), Resources::from(&c.desired))).collect()
}

impl Holds {
    /// At rest every Pod has what it should, and the books say so.
    pub(in crate::oracle) fn at_rest<'a>(
        &mut self,
        now: u64,
        nodes: impl Iterator<Item = Present<'a>>,
        server: &Server,
    ) -> Found {
        self.now = now;
        let mut found = Found::new();
        // A runtime that lies makes orders of the same Pod wait.
        let excused = self.forgotten() || self.faults(|f| matches!(f, Fault::RuntimeLies(_, 6..)));
        if excused {
            return found;
        }
        for node in nodes.filter(|n| self.keepings.contains_key(n.name)) {
            let book = server.object("NodeWork", "", node.name).map(|o| NodeWork::deserialize(&**o).unwrap());
            let mut held = book.and_then(|b| b.status).unwrap_or_default().held;
            let pods: Vec<Value> = server
                .objects("Pod")
                .filter(|pod| pod["spec"]["nodeName"] == node.name && lives(pod))
                .map(|pod| (**pod).clone())
                .collect();
            for pod in &pods {
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
                let at = held.iter().position(|h| h.pod.uid == uid);
                let record = at.map(|at| held.remove(at));
                self.pod_at_rest(&node, pod, record.as_ref(), server, &mut found);
            }
            let gone: Vec<&Held> = held.iter().filter(|h| !ends(server, &h.pod.uid)).collect();
            if !gone.is_empty() {
                found.push(("H3", format!("the book of {} holds Pods that are gone: {gone:?}", node.name)));
            }
        }
        found.extend(self.few_writes(server));
        found
    }

    fn pod_at_rest(
        &self,
        node: &Present<'_>,
        pod: &Value,
        held: Option<&Held>,
        server: &Server,
        found: &mut Found,
    ) {
        let keeping = self.keepings.get(node.name).copied().unwrap_or_default();
        let (name, uid) = (&pod["metadata"]["name"], pod["metadata"]["uid"].as_str().unwrap_or_default());
        let (force, spec) = (in_force(server, uid, held), sizes(pod));
        let of_it = |c: &&Container| {
            c.info.labels.get(keys::POD_UID).is_some_and(|of| of == uid) && c.info.state == State::Running
        };
        let running: Vec<&Container> =
            node.runtime.containers().values().filter(of_it).filter(|c| c.alive(self.now)).collect();
        // Of several instances the Pod shows the last one. While an earlier one runs that the runtime reports
        // as ended, the kernel may refuse the Pod's values.
        let all = running.len();
        let running: Vec<&Container> = running.into_iter().filter(|c| self.shows(uid, &c.info.id)).collect();
        if running.len() < all && self.faults(|f| matches!(f, Fault::RuntimeLies(..))) {
            return;
        }
        let wanted: BTreeMap<&String, Resources> =
            spec.iter().map(|(name, own)| (name, *force.get(name).unwrap_or(own))).collect();
        for container in &running {
            let (id, own) = (&container.info.id, &container.info.name);
            let Some(size) = wanted.get(own) else { continue };
            let should = keeping.files(size, true);
            let is = self.as_taken(node.cgroups.of_container(self.now, &container.info), &should);
            // A spec may change after an instance was made. A request for just the new spec's values needs no
            // order.
            let made = node.cgroups.base(&container.info);
            let record = held.and_then(|h| h.containers.iter().find(|c| c.name == *own));
            let claimed = force.contains_key(own);
            let differs = claimed && !same(&should, &keeping.files(&spec[own], true));
            let recorded = claimed && record.is_some_and(|r| r.id == *id);
            if !same(&should, &is) && (differs || recorded || !same(&made, &is)) {
                let text = format!("{own} of {name} has {}, and should have {}", brief(&is), brief(&should));
                found.push(("H3", text));
            }
            if differs && record.is_none_or(|r| r.id != *id || r.given.is_none()) {
                found.push(("H3", format!("{own} of {name} is held, and the book says {record:?}")));
            }
        }
        let extra = held.into_iter().flat_map(|h| &h.containers).find(|c| !force.contains_key(&c.name));
        if let Some(extra) = extra {
            found.push(("H3", format!("nothing is in force for {extra:?} of {name}")));
        }
        // A container that does not run will start with what its spec says.
        let all = running.len() == spec.len() && node.cgroups.is_touched(uid);
        if let Some(is) = node.cgroups.of_pod(self.now, uid).filter(|_| all) {
            let most = spec.values().filter_map(|size| size.cpu_limit).max();
            let mut size = of_pod(&wanted.into_values().collect::<Vec<_>>());
            size.cpu_limit = size.cpu_limit.map(|limit| limit.max(most.unwrap_or(0)));
            let should = keeping.files(&size, false);
            // A spec may change while no container of the Pod runs, and such a kubelet leaves the Pod's group
            // as it is.
            let made = node.cgroups.pod_base(uid).filter(|_| force.is_empty());
            if !same(&should, &is) && !made.is_some_and(|made| same(&made, &is)) {
                let text = format!("Pod {name} has {}, and should have {}", brief(&is), brief(&should));
                found.push(("H3", text));
            }
        }
    }

    fn shows(&self, uid: &str, id: &str) -> bool {
        self.shown.get(uid).is_some_and(|shown| shown.contains(id))
    }

    /// Checks the cost of one request if nothing goes wrong and the memory that it takes away is not in use.
    fn few_writes(&self, server: &Server) -> Found {
        let [step] = self.schedule.steps.as_slice() else { return Found::new() };
        let Step::Resize(plan) = &step.what else { return Found::new() };
        let calm = self.schedule.faults.is_empty() && self.schedule.crash.is_none();
        let plain = plan.containers.len() == 1 && plan.ttl.is_none() && plan.observe.is_none();
        // Each gate is opened once.
        let most = 6 + self.schedule.pods.iter().map(|p| p.gates.len()).sum::<usize>();
        let succeeded = server.objects("PodResize").all(|r| r["status"]["phase"] == "Succeeded");
        if calm
            && plain
            && succeeded
            && self.writes > most
            && self.began == self.containers()
            && self.ended == 0
        {
            return vec![("H6", format!("one request took {} writes", self.writes))];
        }
        Found::new()
    }

    fn containers(&self) -> usize {
        self.schedule.pods.iter().map(|p| p.containers.len()).sum()
    }
}

/// Whether the daemon sees its book and can write.
pub(super) fn leaves_daemons_alone(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::DeleteBook(_)
            | Fault::KillController(..)
            | Fault::PauseController(..)
            | Fault::BreakWatches(_)
            | Fault::HoldWatch(..)
            | Fault::RepeatEvents(..)
            | Fault::LoseEvents(..)
            | Fault::Storm(_)
            | Fault::JumpClock(..)
    )
}

/// Whether the Pod may still run.
fn lives(pod: &Value) -> bool {
    let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    !over && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether the Pod is being deleted: its groups go with it.
fn ends(server: &Server, uid: &str) -> bool {
    let own = |pod: &&std::sync::Arc<Value>| pod["metadata"]["uid"] == *uid;
    server.objects("Pod").find(own).is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
}
