//! Turns on a Pod: restarts and resizes wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::nodework::{AnswerState, NodeWork};
use pitstop_api::recreate::{ContainerRecreateRequest, Phase, TargetContainer};
use serde::Deserialize;
use serde_json::Value;

use super::{Known, Oracle};
use crate::server::Server;

/// Open requests of one kind, by the names of their Pods.
#[derive(Default)]
pub(super) struct Turns(BTreeMap<String, Turn>);

#[derive(Default)]
struct Turn {
    /// Requests, and orders to stop that a daemon has acknowledged.
    open: BTreeSet<String>,
    /// When one of them last ended.
    last: u64,
}

impl Turns {
    /// A request was written, or removed.
    pub(super) fn wrote(&mut self, now: u64, before: Option<&Value>, after: Option<&Value>) {
        let Some(request) = after.or(before) else { return };
        let spec = &request["spec"];
        let pod = spec["podName"].as_str().or_else(|| spec["podRef"]["name"].as_str()).unwrap_or_default();
        let uid = request["metadata"]["uid"].as_str().unwrap_or_default();
        let over = !request["status"]["completionTime"].is_null()
            || !request["metadata"]["deletionTimestamp"].is_null()
            || spec["dryRun"] == true;
        self.set_open(now, pod, uid, after.is_some() && !over);
    }

    /// A book was written, or removed. A stop in progress may outlive its request.
    pub(super) fn book_wrote(&mut self, now: u64, before: Option<&Value>, after: Option<&Value>) {
        let (before, after) = (stopping(before), stopping(after));
        for (pod, order) in before.union(&after) {
            self.set_open(now, pod, order, after.contains(&(pod.clone(), order.clone())));
        }
    }

    fn set_open(&mut self, now: u64, pod: &str, id: &str, open: bool) {
        let turn = self.0.entry(pod.to_owned()).or_default();
        if open {
            turn.open.insert(id.to_owned());
        } else if turn.open.remove(id) {
            turn.last = now;
        }
    }

    /// Since when no request is open; None while one is.
    pub(super) fn free_since(&self, pod: &str) -> Option<u64> {
        self.0.get(pod).map_or(Some(0), |turn| turn.open.is_empty().then_some(turn.last))
    }
}

/// Pods and orders of a book whose stop its daemon has acknowledged.
fn stopping(book: Option<&Value>) -> BTreeSet<(String, String)> {
    let Some(book) = book.map(|book| NodeWork::deserialize(book).unwrap()) else { return BTreeSet::new() };
    let answers = book.status.unwrap_or_default().answers;
    let under_way =
        |id: &str| answers.iter().any(|a| a.order_id == id && a.state == AnswerState::Acknowledged);
    let orders = book.spec.orders.into_iter();
    let orders = orders.filter(|order| order.action.recreate.is_some() && under_way(&order.id));
    orders.map(|order| (order.pod.name, order.id)).collect()
}

impl Oracle {
    /// Checks an accepted resize or restart of a Pod: no request of the other kind is at work there.
    pub(super) fn check_turn(
        &mut self,
        kind: &str,
        before: Option<&Value>,
        after: Option<&Value>,
        server: &Server,
    ) {
        let target =
            |o: Option<&Value>| o.and_then(|o| o["status"]["target"]["podUID"].as_str().map(str::to_owned));
        let (None, Some(pod)) = (target(before), target(after)) else { return };
        let Some(new) = after.filter(|new| new["spec"]["dryRun"] != true) else { return };
        if self.many_leaders || self.restored || self.stale || new["status"]["completionTime"].is_string() {
            return;
        }
        let name = &new["metadata"]["name"];
        let beside = match kind {
            "PodResize" => self.restarting(&pod, server),
            "ContainerRecreateRequest" => {
                let owners = new["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                let owners: Vec<&str> = owners.filter_map(|owner| owner["uid"].as_str()).collect();
                self.resizes.changing(self.now, &pod, &owners)
            }
            _ => None,
        };
        self.check(beside.is_none(), "R12", || format!("{kind} {name} begins beside {beside:?}"));
    }

    /// A restart that has a container of that Pod to stop.
    pub(super) fn restarting(&self, pod: &str, server: &Server) -> Option<String> {
        let shown = server.objects("Pod").find(|p| p["metadata"]["uid"] == *pod)?;
        let stops = |uid: &str, t: &TargetContainer| {
            let stored = server.objects("ContainerRecreateRequest").find(|r| r["metadata"]["uid"] == *uid);
            let stored = stored.map(|r| ContainerRecreateRequest::deserialize(&**r).unwrap());
            let states = stored.and_then(|r| r.status).unwrap_or_default().container_recreate_states;
            let over = |p: Phase| matches!(p, Phase::Succeeded | Phase::Failed);
            let ended = states.iter().any(|s| s.name == t.name && over(s.phase));
            let lists = ["containerStatuses", "initContainerStatuses"];
            let mut statuses = lists.iter().filter_map(|l| shown["status"][*l].as_array()).flatten();
            let replaced = statuses.any(|s| {
                let id = s["containerID"].as_str().unwrap_or_default();
                s["name"] == *t.name && !id.is_empty() && id != t.container_id
            });
            !ended && !replaced
        };
        let open = |known: &Known| known.ended.is_none() && known.deleted.is_none();
        let at_work = |(uid, known): &(&String, &Known)| {
            let target = known.target.as_ref().filter(|target| target.pod_uid == pod && open(known));
            target.is_some_and(|target| target.containers.iter().any(|t| stops(uid, t)))
        };
        self.requests.iter().find(at_work).map(|(_, known)| known.key.clone())
    }
}
