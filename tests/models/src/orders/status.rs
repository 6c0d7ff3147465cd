//! Promises about writes of requests.

use pitstop_api::recreate::{ContainerRecreateRequestStatus, Phase, conditions};
use pitstop_controller_core::recreate::Request;

use super::world::World;
use super::{Bounds, promise};

impl World {
    /// Checks a write of a request that took effect.
    pub fn check_request(&mut self, old: &Request, new: &Request, bounds: &Bounds) {
        // A new leader confirms its knowledge by a write without changes.
        if old.resource_version == new.resource_version {
            return;
        }
        self.check((&old.status, &old.more) != (&new.status, &new.more), promise::NEEDED);
        let (before, after) = (&old.status, &new.status);
        if before.completion_time.is_some() {
            self.check(is_late_record(before, after), promise::FINAL);
        } else {
            let phases = |s: &ContainerRecreateRequestStatus| -> Vec<Phase> {
                s.container_recreate_states.iter().map(|s| s.phase).collect()
            };
            let forward = phases(before).into_iter().zip(phases(after)).all(|(a, b)| a <= b);
            self.check(forward, promise::FORWARD);
        }
        match (&before.target, &after.target) {
            (None, Some(target)) => {
                let of_pod = |r: &Request| r.uid != old.uid && r.pod_key() == old.pod_key() && r.started();
                let another = self.store.requests.values().any(|r| of_pod(r));
                self.check(!another || bounds.controllers > 1, promise::SERIAL);
                for container in &target.containers {
                    let key = (old.uid.clone(), container.name.clone());
                    self.seen.targets.insert(key, container.container_id.clone());
                }
            }
            (Some(before), after) => {
                let mut before = before.clone();
                if let Some(after) = after {
                    for (b, a) in before.containers.iter_mut().zip(&after.containers) {
                        b.pin = b.pin.take().or_else(|| a.pin.clone());
                    }
                }
                self.check(Some(&before) == after.as_ref(), promise::FINAL);
            }
            (None, None) => {}
        }
        for state in &after.container_recreate_states {
            let order = format!("{}/{}/1", old.uid, state.name);
            let pinned = after
                .target
                .iter()
                .flat_map(|t| &t.containers)
                .any(|t| t.name == state.name && t.pin.is_some());
            let ordered = self.seen.acknowledged.iter().any(|(id, ..)| *id == order);
            self.check(!state.is_killed || ordered || pinned, promise::TRUE);
            if state.phase == Phase::Succeeded {
                let restarted = self.restarted_since(after, &state.name);
                self.check(restarted, promise::TRUE);
            }
        }
    }

    /// Whether the runtime has a newer instance than the request's target; true once the Pod is gone.
    fn restarted_since(&self, status: &ContainerRecreateRequestStatus, name: &str) -> bool {
        let Some(target) = &status.target else { return false };
        let Some(before) = target.containers.iter().find(|c| c.name == name) else { return false };
        let mut of_pod = self.node.instances.iter().filter(|i| i.pod_uid == target.pod_uid).peekable();
        of_pod.peek().is_none()
            || of_pod.any(|i| {
                i.name == name && i.restarts > before.restart_count && !before.container_id.ends_with(&i.id)
            })
    }
}

/// Whether the change only records a stop that completed after the request's end.
fn is_late_record(before: &ContainerRecreateRequestStatus, after: &ContainerRecreateRequestStatus) -> bool {
    let rest = |status: &ContainerRecreateRequestStatus| {
        let mut status = status.clone();
        status.container_recreate_states.clear();
        status.conditions.retain(|c| c.type_ != conditions::PRE_STOP_HOOK_FAILED);
        status
    };
    let states = before.container_recreate_states.iter().zip(&after.container_recreate_states);
    rest(before) == rest(after)
        && before.container_recreate_states.len() == after.container_recreate_states.len()
        && states.filter(|(a, b)| a != b).all(|(a, b)| {
            a.phase == Phase::Pending
                && matches!((b.phase, b.is_killed), (Phase::Recreating, true) | (Phase::Failed, false))
        })
}
