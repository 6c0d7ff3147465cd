//! Writes of Pods: who changes resources, and when a Pod has the wanted size.

use std::collections::BTreeMap;

use pitstop_api::quantity::Resources;
use pitstop_api::resize::{ContainerStatus, Restart};
use serde_json::Value;

use super::ends::KNOWN;
use super::{Followed, Resizes, read, status};
use crate::oracle::Writer;
use crate::oracle::Wrote;
use crate::oracle::rules::{Found, bare};
use crate::world::plan::Fault;

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

/// The size that a restore can reach: a limit that did not exist before stays, above the request.
pub(super) fn returned(container: &ContainerStatus) -> Resources {
    let (from, to) = (Resources::from(&container.original), Resources::from(&container.desired));
    let stays = |limit: Option<i64>, from: Option<i64>, to: Option<i64>| match (limit, from) {
        (Some(limit), Some(request)) if from != to && limit <= request => Some(request + 1),
        _ => limit,
    };
    Resources {
        cpu_request: from.cpu_request.or(to.cpu_request),
        cpu_limit: from.cpu_limit.or(stays(to.cpu_limit, from.cpu_request, to.cpu_request)),
        memory_request: from.memory_request.or(to.memory_request),
        memory_limit: from.memory_limit.or(stays(to.memory_limit, from.memory_request, to.memory_request)),
    }
}

/// The way in which a request leads from one size to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forth,
    Back,
    /// The smallest step beyond the wanted size, and back to it.
    Step,
    Home,
}

/// Whether `to` is the smallest step beyond `from`: a millicore, or a byte, more.
fn is_step(from: &Resources, to: &Resources) -> bool {
    let one = |old: (Option<i64>, Option<i64>), new: (Option<i64>, Option<i64>)| {
        let more = (old.0.map(|n| n + 1), if old.0 == old.1 { old.1.map(|n| n + 1) } else { old.1 });
        (new == old, new == more)
    };
    let cpu = one((from.cpu_request, from.cpu_limit), (to.cpu_request, to.cpu_limit));
    let memory = one((from.memory_request, from.memory_limit), (to.memory_request, to.memory_limit));
    (cpu.0 || cpu.1) && (memory.0 || memory.1) && from != to
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
        let desired = |c: &ContainerStatus| Resources::from(&c.desired);
        if leads(|c| (&c.original).into(), desired) {
            return Some(Way::Forth);
        }
        if leads(desired, returned) {
            return Some(Way::Back);
        }
        let beyond = |all: &BTreeMap<String, Resources>| {
            let off = status.containers.iter().filter(|c| all.get(&c.name) != Some(&desired(c)));
            let off: Vec<_> = off.collect();
            matches!(&off[..], [c] if all.get(&c.name).is_some_and(|to| is_step(&desired(c), to)))
        };
        let is = |all: &BTreeMap<String, Resources>, what: fn(&ContainerStatus) -> Resources| {
            status.containers.iter().all(|c| all.get(&c.name) == Some(&what(c)))
        };
        match (beyond(old), beyond(new)) {
            (false, true) if is(old, desired) => Some(Way::Step),
            (true, false) if is(new, desired) => Some(Way::Home),
            (true, false) if is(new, returned) => Some(Way::Back),
            _ => None,
        }
    }
}

impl Resizes {
    pub(super) fn pod_wrote(&mut self, wrote: &Wrote<'_>, found: &mut Found) {
        let Wrote { writer, before, after, .. } = *wrote;
        let Some(new) = after else { return };
        let uid = new["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if let Some(old) = before.filter(|old| old["metadata"]["uid"] == *uid) {
            let (from, to) = (sizes(old), sizes(new));
            if from != to {
                *self.changes.entry(uid.clone()).or_default() += 1;
            }
            if from != to && writer == Writer::Controller {
                self.changed(&uid, new, &from, &to, found);
            } else if from != to {
                self.foreign.insert(uid, self.now);
            }
        }
        self.see(new);
    }

    /// Checks a change of a Pod's resources by the controller.
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
        // Of two equal requests the last that existed counts: a deletion may not be known yet.
        let ended =
            |id: &String| self.followed.get(id).and_then(|f| f.ended.into_iter().chain(f.deleted).min());
        let last = asking.iter().max_by_key(|(id, ..)| ended(id));
        let whose = asking.iter().find(|(.., open)| *open).or(last).cloned();
        let Some((id, way, open)) = whose else {
            // A request at work changes a size that it did not find.
            let fights = self.followed.values().any(|f| real(f) && f.open());
            let text = format!("the resources of Pod {pod} are changed from {from:?} to {to:?}");
            found.push(if fights { ("R4", text) } else { ("R1", text) });
            return;
        };
        let sound = self.schedule.leaves_controllers_alone();
        let slow = self.schedule.faults.iter().any(|f| matches!(f.what, Fault::SlowCgroups(..)));
        let (now, blind) = (self.now, self.many_leaders || self.stale());
        let Some(followed) = self.followed.get_mut(&id) else { return };
        followed.writes += 1;
        followed.changes += 1;
        // The controller cannot know of a deletion before its watch shows it.
        let ended = followed.ended.is_some() || followed.deleted.is_some_and(|at| sound && now > at + 6_000);
        if !open && ended && !blind {
            found.push(("R1", format!("{id} changes Pod {pod} after it has ended or gone")));
        }
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        if way == Way::Step {
            followed.steps += 1;
            // The kubelet of every second node leaves groups unchanged.
            let leaves = node
                .strip_prefix("node")
                .and_then(|at| at.parse().ok())
                .is_none_or(|at: u64| at.is_multiple_of(2));
            // A change by others, changed again before the kubelet made it, stays in the Pod's group.
            let again = self.changes.get(pod).is_some_and(|changes| *changes > followed.changes);
            if !(leaves || slow || again) || (followed.steps > 3 && sound) {
                found.push(("R11", format!("{id} makes step {} of Pod {pod} on {node}", followed.steps)));
            }
        }
        followed.stepped = (way == Way::Step).then_some(now);
        let overdue = followed.restoring_for("DeadlineExceeded");
        let always = followed.object.spec.restart == Some(Restart::Always);
        let known = followed.has_since.zip(followed.restoring).is_some_and(|(has, at)| at > has + KNOWN);
        if way == Way::Back && overdue && known && !always && sound && !blind {
            found.push(("R10", format!("{id} takes back what the kubelet of Pod {pod} says that it did")));
        }
        let slot = match way {
            Way::Forth => &mut followed.forth,
            Way::Back => &mut followed.back,
            Way::Step | Way::Home => return,
        };
        // A leader that dies may have been the only one to know of its change.
        if slot.is_some_and(|_| sound) {
            found.push(("R4", format!("{id} changes Pod {pod} a second time")));
        }
        slot.get_or_insert(now);
        let restart = followed.object.spec.restart;
        if way == Way::Forth && restart == Some(Restart::Never) && restarts(object, from, to) {
            found.push(("R8", format!("{id} makes a container of Pod {pod} restart, and must not")));
        }
    }

    /// Records how far the Pod is for each request at work on it.
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
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let quotas = !self.schedule.room.no_quota.iter().any(|at| node == format!("node{at}"));
        let pending = condition(pod, "PodResizePending");
        let (waits, never) = (pending == Some("Deferred"), pending == Some("Infeasible"));
        for followed in self.followed.values_mut().filter(|f| f.is_for(&uid)) {
            if waits {
                followed.deferred.get_or_insert(now);
            }
            followed.infeasible |= never;
            let has = has(pod, &status(&followed.object).containers, quotas);
            followed.has_since = has.then(|| followed.has_since.unwrap_or(now));
            followed.sized = followed.sized.or(followed.has_since);
        }
    }
}

/// The reason of a condition; None if it is not True.
fn condition<'a>(pod: &'a Value, type_: &str) -> Option<&'a str> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|c| c["type"] == type_ && c["status"] == "True")?;
    Some(found["reason"].as_str().unwrap_or_default())
}

/// Whether a resource changes whose change restarts its container.
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

/// Whether the Pod's spec has the size, and its kubelet reports it. A kubelet that sets no quotas does not
/// report CPU limits.
fn has(pod: &Value, wanted: &[ContainerStatus], quotas: bool) -> bool {
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
                && (!quotas || runs.cpu_limit == desired.cpu_limit)
                && (runs.memory_request, runs.memory_limit) == (desired.memory_request, desired.memory_limit)
                && (!container.restarts || another)
        })
}
