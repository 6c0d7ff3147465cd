//! Writes of Pods: who changes resources, and when a Pod has what a request means.

use std::collections::BTreeMap;

use pitstop_api::quantity::Resources;
use pitstop_api::resize::{ContainerStatus, Restart};
use serde_json::Value;

use super::{Followed, Resizes, read, status};
use crate::oracle::Writer;
use crate::oracle::rules::{Found, bare};

/// The resources of a Pod's containers, by name.
pub(in crate::oracle) fn sizes(pod: &Value) -> BTreeMap<String, Resources> {
    containers(pod)
        .map(|c| (c["name"].as_str().unwrap_or_default().to_owned(), read(&c["resources"])))
        .collect()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"].into_iter().filter_map(|list| pod["spec"][list].as_array()).flatten()
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["containerStatuses", "initContainerStatuses"];
    lists.into_iter().filter_map(|list| pod["status"][list].as_array()).flatten()
}

/// What can be put back: what was not there stays.
pub(super) fn returned(container: &ContainerStatus) -> Resources {
    let (from, to) = (Resources::from(&container.original), Resources::from(&container.desired));
    Resources {
        cpu_request: from.cpu_request.or(to.cpu_request),
        cpu_limit: from.cpu_limit.or(to.cpu_limit),
        memory_request: from.memory_request.or(to.memory_request),
        memory_limit: from.memory_limit.or(to.memory_limit),
    }
}

/// Which way a request would lead from the one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forth,
    Back,
}

impl Followed {
    fn way(&self, old: &BTreeMap<String, Resources>, new: &BTreeMap<String, Resources>) -> Option<Way> {
        let status = status(&self.object);
        let named = |name: &String| status.containers.iter().any(|c| c.name == *name);
        if old.iter().any(|(name, size)| !named(name) && new.get(name) != Some(size)) {
            return None;
        }
        let leads = |from: fn(&ContainerStatus) -> Resources, to: fn(&ContainerStatus) -> Resources| {
            let one =
                |c: &ContainerStatus| old.get(&c.name) == Some(&from(c)) && new.get(&c.name) == Some(&to(c));
            status.containers.iter().all(one)
        };
        if leads(|c| (&c.original).into(), |c| (&c.desired).into()) {
            Some(Way::Forth)
        } else {
            leads(|c| (&c.desired).into(), returned).then_some(Way::Back)
        }
    }
}

impl Resizes {
    pub(super) fn pod_wrote(
        &mut self,
        writer: Writer,
        before: Option<&Value>,
        after: Option<&Value>,
        found: &mut Found,
    ) {
        let Some(new) = after else { return };
        let uid = new["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if let Some(old) = before.filter(|old| old["metadata"]["uid"] == *uid) {
            let (from, to) = (sizes(old), sizes(new));
            if from != to && writer == Writer::Controller {
                self.changed(&uid, new, &from, &to, found);
            } else if from != to {
                self.foreign.insert(uid, self.now);
            }
        }
        self.see(new);
    }

    /// The controller has changed the resources of a Pod.
    fn changed(
        &mut self,
        pod: &str,
        object: &Value,
        from: &BTreeMap<String, Resources>,
        to: &BTreeMap<String, Resources>,
        found: &mut Found,
    ) {
        let real = |f: &Followed| f.is_for(pod) && !f.object.spec.dry_run;
        let asks = |(id, f): (&String, &Followed)| Some((id.clone(), f.way(from, to)?, f.open()));
        let asking: Vec<_> = self.followed.iter().filter(|(_, f)| real(f)).filter_map(asks).collect();
        let whose = asking.iter().find(|(.., open)| *open).or(asking.first()).cloned();
        let Some((id, way, open)) = whose else {
            // Whoever is at work on it does not know of what it has found.
            let fights = self.followed.values().any(|f| real(f) && f.open());
            let text = format!("the resources of Pod {pod} are changed from {from:?} to {to:?}");
            found.push(if fights { ("R4", text) } else { ("R1", text) });
            return;
        };
        let sound = self.sound();
        let (now, blind) = (self.now, self.many_leaders || self.stale());
        let Some(followed) = self.followed.get_mut(&id) else { return };
        followed.writes += 1;
        // Nobody can know of a deletion that the watch has not shown.
        let ended = followed.ended.is_some() || followed.deleted.is_some_and(|at| sound && now > at + 6_000);
        if !open && ended && !blind {
            found.push(("R1", format!("{id} changes Pod {pod} after it has ended or gone")));
        }
        let slot = if way == Way::Forth { &mut followed.forth } else { &mut followed.back };
        // A leader that dies may have been the only one to know of what it has done.
        if slot.is_some_and(|_| sound) {
            found.push(("R4", format!("{id} changes Pod {pod} a second time")));
        }
        slot.get_or_insert(now);
        let restart = followed.object.spec.restart;
        if way == Way::Forth && restart == Some(Restart::Never) && restarts(object, from, to) {
            found.push(("R8", format!("{id} makes a container of Pod {pod} restart, and must not")));
        }
    }

    /// Looks how far the Pod is for each request at work on it.
    pub(super) fn see(&mut self, pod: &Value) {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        for status in statuses(pod) {
            let key = (uid.clone(), status["name"].as_str().unwrap_or_default().to_owned());
            let id = bare(status["containerID"].as_str().unwrap_or_default());
            let shown = self.shown.entry(key).or_insert_with(|| (id.to_owned(), self.now));
            if shown.0 != id {
                *shown = (id.to_owned(), self.now);
            }
        }
        let now = self.now;
        let pending = condition(pod, "PodResizePending");
        let (waits, never) = (pending == Some("Deferred"), pending == Some("Infeasible"));
        for followed in self.followed.values_mut().filter(|f| f.is_for(&uid)) {
            if waits {
                followed.deferred.get_or_insert(now);
            }
            followed.infeasible |= never;
            if followed.sized.is_none() && has(pod, &status(&followed.object).containers) {
                followed.sized = Some(now);
            }
        }
    }
}

/// The reason of a condition, where it is there.
fn condition<'a>(pod: &'a Value, type_: &str) -> Option<&'a str> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|c| c["type"] == type_ && c["status"] == "True")?;
    Some(found["reason"].as_str().unwrap_or_default())
}

/// A resource changes whose change restarts its container.
fn restarts(pod: &Value, from: &BTreeMap<String, Resources>, to: &BTreeMap<String, Resources>) -> bool {
    containers(pod).any(|container| {
        let name = container["name"].as_str().unwrap_or_default();
        let (Some(old), Some(new)) = (from.get(name), to.get(name)) else { return false };
        let policies = container["resizePolicy"].as_array().into_iter().flatten();
        policies.filter(|p| p["restartPolicy"] == "RestartContainer").any(|p| {
            if p["resourceName"] == "cpu" {
                (old.cpu_request, old.cpu_limit) != (new.cpu_request, new.cpu_limit)
            } else {
                (old.memory_request, old.memory_limit) != (new.memory_request, new.memory_limit)
            }
        })
    })
}

/// The Pod's spec says it, and its kubelet says that it is so.
fn has(pod: &Value, wanted: &[ContainerStatus]) -> bool {
    let seen = pod["status"]["observedGeneration"].as_i64() >= pod["metadata"]["generation"].as_i64();
    let done = ["PodResizePending", "PodResizeInProgress"].iter().all(|c| condition(pod, c).is_none());
    let spec = sizes(pod);
    seen && done
        && wanted.iter().all(|container| {
            let desired = Resources::from(&container.desired);
            let status = statuses(pod).find(|s| s["name"] == *container.name);
            let Some(status) = status.filter(|s| s["state"]["running"].is_object()) else { return false };
            let admitted = &status["allocatedResources"];
            let admitted = read(&serde_json::json!({"requests": admitted}));
            let runs = read(&status["resources"]);
            let near = runs.cpu_request.unwrap_or(0).abs_diff(desired.cpu_request.unwrap_or(0)) <= 1;
            let another = status["containerID"] != *container.container_id && status["ready"] == true;
            spec.get(&container.name) == Some(&desired)
                && (admitted.cpu_request, admitted.memory_request)
                    == (desired.cpu_request, desired.memory_request)
                && near
                && (runs.cpu_limit, runs.memory_request, runs.memory_limit)
                    == (desired.cpu_limit, desired.memory_request, desired.memory_limit)
                && (!container.restarts || another)
        })
}
