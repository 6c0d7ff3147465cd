//! Writes of Pods: holds and pins.

use pitstop_api::recreate::TargetContainer;
use pitstop_controller_core::readiness::{Hold, RECREATE_AGENT, SERVED, UPDATE_AGENT};
use serde_json::Value;

use super::{Known, Oracle, Writer};
use crate::server::Server;

fn gates(pod: &Value) -> Vec<(&str, bool, Option<Vec<Hold>>)> {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ours = conditions.filter(|c| SERVED.contains(&c["type"].as_str().unwrap_or_default()));
    ours.map(|c| {
        let message = c["message"].as_str().unwrap_or_default();
        let holds = if message.is_empty() { Some(Vec::new()) } else { serde_json::from_str(message).ok() };
        (c["type"].as_str().unwrap_or_default(), c["status"] == "True", holds)
    })
    .collect()
}

/// Each container's name and image.
pub(super) fn images(pod: &Value) -> Vec<(&str, &str)> {
    ["containers", "initContainers"]
        .iter()
        .flat_map(|field| pod["spec"][*field].as_array().into_iter().flatten())
        .map(|c| (c["name"].as_str().unwrap_or_default(), c["image"].as_str().unwrap_or_default()))
        .collect()
}

impl Oracle {
    pub(super) fn pod_wrote(
        &mut self,
        writer: Writer,
        before: Option<&Value>,
        after: Option<&Value>,
        server: &Server,
    ) {
        let (Some(old), Some(new)) = (before, after) else { return };
        if writer != Writer::Controller {
            return;
        }
        for (type_, open, holds) in gates(new) {
            let Some(holds) = holds else { continue };
            self.check(open == holds.is_empty(), "I8", || format!("{type_} is {open} with holds {holds:?}"));
            let earlier = gates(old).into_iter().find(|g| g.0 == type_).and_then(|g| g.2).unwrap_or_default();
            for hold in earlier.iter().filter(|h| !holds.contains(h)) {
                let others = ![RECREATE_AGENT, UPDATE_AGENT].contains(&hold.user_agent.as_str());
                self.check(!others, "I8", || format!("the hold {hold:?} of another writer is dropped"));
                let pod = new["metadata"]["uid"].as_str().unwrap_or_default();
                self.released(pod, hold);
            }
            for hold in holds.iter().filter(|h| !earlier.contains(h)) {
                let pod = new["metadata"]["uid"].as_str().unwrap_or_default();
                self.held.insert((pod.to_owned(), hold.key.clone()), self.now);
            }
        }
        let changed: Vec<(String, String)> = images(new)
            .into_iter()
            .filter(|(name, image)| images(old).iter().any(|(n, i)| n == name && i != image))
            .map(|(name, image)| (name.to_owned(), image.to_owned()))
            .collect();
        let uid = new["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let (explained, found) = self.updates.changes(old, new);
        self.all(found);
        if !(explained.is_empty() || self.many_leaders || self.restored || self.stale) {
            let beside = self.restarting(&uid, server);
            self.check(beside.is_none(), "U8", || format!("images of {uid} change beside {beside:?}"));
        }
        for (name, image) in changed.into_iter().filter(|(name, _)| !explained.contains(name)) {
            self.pins(&uid, &name, &image);
        }
    }

    /// Checks a dropped hold: its containers must be back, or its request ended or gone.
    fn released(&mut self, pod: &str, hold: &Hold) {
        let since = self.held.get(&(pod.to_owned(), hold.key.clone())).copied().unwrap_or_default();
        if self.restored || self.many_leaders || self.stale {
            return;
        }
        let here = |k: &&Known| {
            let at_work = k.ended.is_none() && k.deleted.is_none();
            at_work && k.key == hold.key && k.target.as_ref().is_some_and(|t| t.pod_uid == pod)
        };
        // A hold from before the request belongs to an earlier request of its name.
        let its = |k: &&Known| here(k) && k.created <= since;
        let back = |k: &Known| {
            k.target.as_ref().is_some_and(|t| {
                t.containers.iter().all(|c| {
                    let old = c.container_id.rsplit('/').next().unwrap_or_default();
                    self.ran.iter().any(|(p, n, id, _)| *p == t.pod_uid && *n == c.name && id != old)
                })
            })
        };
        let all_back = self.requests.values().filter(its).all(back);
        self.check(all_back, "I8", || format!("{hold:?} is released while its request is at work"));
        for known in self.requests.values_mut().filter(|k| here(&&**k)) {
            known.drained_since = None;
        }
    }

    /// Checks an image that the controller changes: only to the pin that a request at work names.
    fn pins(&mut self, pod: &str, name: &str, image: &str) {
        let asks = |known: &Known| {
            let target = known.target.as_ref().filter(|t| known.ended.is_none() && t.pod_uid == pod);
            let named =
                |c: &TargetContainer| c.name == name && c.pin.as_ref().is_some_and(|p| p.image == image);
            target.is_some_and(|t| t.containers.iter().any(named))
        };
        let asking: Vec<(String, bool)> = self
            .requests
            .iter()
            .filter(|(_, known)| asks(known))
            .map(|(uid, known)| (uid.clone(), known.deleted.is_some()))
            .collect();
        // The controller cannot know of a deletion before its watch shows it: the pin is then this request's.
        let whose =
            asking.iter().find(|(_, deleted)| !deleted).or(asking.first()).map(|(uid, _)| uid.clone());
        let certain = asking.len() == 1;
        let (split, restored) = (self.many_leaders, self.restored);
        self.check(whose.is_some() || split || restored, "I15", || {
            format!("the image of {name} becomes {image}, and no request asks for it")
        });
        if let Some(uid) = whose {
            if certain {
                self.check_waited(&uid, &format!("the pin of {name}"));
            }
            self.pinned.insert((pod.to_owned(), name.to_owned()), uid);
        }
    }

    /// Records since when Pods are out of service for the requests that asked for it.
    pub(super) fn see_drains(&mut self, server: &Server) {
        let now = self.now;
        for known in self.requests.values_mut() {
            if known.unready_grace.is_none() || known.drained_since.is_some() || known.ended.is_some() {
                continue;
            }
            let Some(target) = &known.target else { continue };
            let namespace = known.key.split('/').next().unwrap_or_default();
            let Some(pod) = server.object("Pod", namespace, &known.pod) else { continue };
            if pod["metadata"]["uid"] != *target.pod_uid {
                continue;
            }
            let gated = pod["spec"]["readinessGates"].as_array().is_some_and(|g| !g.is_empty());
            let conditions = pod["status"]["conditions"].as_array();
            let ready =
                conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
            let hold = Hold { user_agent: RECREATE_AGENT.into(), key: known.key.clone() };
            let held = gates(pod)
                .iter()
                .all(|(_, open, holds)| !open && holds.as_ref().is_some_and(|holds| holds.contains(&hold)));
            if !gated || (held && !ready && !gates(pod).is_empty()) {
                known.drained_since = Some(now);
            }
        }
    }
}
