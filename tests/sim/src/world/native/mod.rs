//! The native controllers of a workload that may be parked. They delete and create Pods, and choose the template. Each
//! acts on its cache, which lags behind the stored objects, separately for each kind. Like the expectations of the real
//! controllers, each knows at once whether a Pod exists; only its content is late.

mod replicas;
mod revisions;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use serde_json::{Value, json};

use super::objects::{self, NAMESPACE};
use super::rolling::WorkloadPlan;
use super::{Happening, World};
use crate::oracle::Writer;

/// Kinds that native controllers watch.
const WATCHED: [&str; 6] =
    ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ControllerRevision", "Pod"];

/// A native controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Actor {
    /// The controller of the workload.
    Workload,
    /// The controller of a `Deployment`'s `ReplicaSet`s.
    ReplicaSets,
}

/// Objects that a native controller has seen.
#[derive(Debug, Default)]
struct Cache {
    objects: BTreeMap<(String, String), Arc<Value>>,
    /// True time at which it sees the last write of each kind.
    until: BTreeMap<String, u64>,
}

/// State of all native controllers.
#[derive(Debug, Default)]
pub(super) struct Natives {
    caches: BTreeMap<Actor, Cache>,
    /// Indices in the plan that have had a Pod.
    filled: BTreeSet<usize>,
}

impl Natives {
    fn all(&self, actor: Actor, kind: &str) -> Vec<Arc<Value>> {
        let objects = self.caches.get(&actor).into_iter().flat_map(|cache| &cache.objects);
        objects.filter(|((of, _), _)| of == kind).map(|(_, object)| object.clone()).collect()
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_i64().unwrap_or_default()).unwrap_or_default()
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// True if the Pod is neither being deleted nor finished.
fn active(pod: &Value) -> bool {
    let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    !over && pod["metadata"]["deletionTimestamp"].is_null()
}

fn ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Hash of a template, for names.
fn hash(template: &Value) -> String {
    let mut hash = DefaultHasher::new();
    template.to_string().hash(&mut hash);
    format!("{:08x}", hash.finish() & 0xffff_ffff)
}

/// Owner references to `by`.
fn owned(by: &Value) -> Value {
    json!([{"apiVersion": by["apiVersion"], "kind": by["kind"], "name": by["metadata"]["name"],
        "uid": by["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
}

impl World {
    /// Creates the workload as its user does; its controllers create the rest.
    pub(super) fn make_native(&mut self, workload: &WorkloadPlan) {
        let pods = self.schedule.members().saturating_sub(workload.spare);
        let mut object = workload.object(pods);
        let spec = objects::pod(&self.schedule.pods[0], "")["spec"].clone();
        for list in ["containers", "initContainers"] {
            let Some(mut containers) = spec.get(list).cloned() else { continue };
            for container in containers.as_array_mut().into_iter().flatten() {
                // The API server stores no empty list.
                let keep = |_: &String, value: &mut Value| value.as_array().is_none_or(|all| !all.is_empty());
                container.as_object_mut().into_iter().for_each(|fields| fields.retain(keep));
            }
            object["spec"]["template"]["spec"][list] = containers;
        }
        object["metadata"]["generation"] = 1.into();
        let wall = self.server_wall();
        let stored = self.server.insert(wall, &workload.kind, object);
        self.object_written(Writer::User, &workload.kind, None, Some(stored));
    }

    /// Plans when each native controller sees a write.
    pub(super) fn notify_natives(
        &mut self,
        kind: &str,
        before: Option<&Arc<Value>>,
        after: Option<&Arc<Value>>,
    ) {
        if !self.schedule.parks() || !WATCHED.contains(&kind) {
            return;
        }
        for actor in [Actor::Workload, Actor::ReplicaSets] {
            let rare = if self.rng.one_in(12) { self.rng.below(4_000) } else { 0 };
            let at = self.now + 20 + self.rng.below(300) + rare;
            let cache = self.natives.caches.entry(actor).or_default();
            let until = cache.until.entry(kind.to_owned()).or_default();
            *until = at.max(*until + 1);
            let name = after.or(before).map_or("", |object| text(object, "name")).to_owned();
            self.queue.push(*until, Happening::Seen(actor, kind.to_owned(), name, after.cloned()));
        }
    }

    pub(super) fn native_sees(
        &mut self,
        actor: Actor,
        kind: String,
        name: String,
        object: Option<Arc<Value>>,
    ) {
        let cache = self.natives.caches.entry(actor).or_default();
        match object {
            Some(object) => drop(cache.objects.insert((kind, name), object)),
            None => drop(cache.objects.remove(&(kind, name))),
        }
        self.native_turn(actor);
    }

    fn native_turn(&mut self, actor: Actor) {
        let Some(workload) = self.schedule.workload.clone() else { return };
        let Some(object) = self.natives.all(actor, &workload.kind).pop() else { return };
        match (actor, &*workload.kind) {
            (Actor::Workload, "Deployment") => self.deployment_turn(&object),
            (Actor::Workload, _) => self.revisions_turn(&object),
            (Actor::ReplicaSets, "Deployment") => self.replica_sets_turn(),
            (Actor::ReplicaSets, _) => {}
        }
    }

    /// Changes an object, if it is still the version that was seen.
    fn native_writes(&mut self, seen: &Value, change: impl FnOnce(&mut Value)) {
        let (kind, name) = (seen["kind"].as_str().unwrap_or_default(), text(seen, "name"));
        let stored = self.server.object(kind, NAMESPACE, name);
        if stored.is_some_and(|stored| text(stored, "resourceVersion") == text(seen, "resourceVersion")) {
            self.change(Writer::Native, kind, NAMESPACE, name, change);
        }
    }

    fn native_creates(&mut self, kind: &str, object: Value) {
        let wall = self.server_wall();
        let stored = self.server.insert(wall, kind, object);
        self.story.note(self.now, "native", || format!("makes {kind} {}", text(&stored, "name")));
        self.object_written(Writer::Native, kind, None, Some(stored));
    }

    fn native_deletes(&mut self, pod: &Value) {
        let name = text(pod, "name");
        self.story.note(self.now, "native", || format!("deletes Pod {name}"));
        let request = objects::delete(&objects::pod_path(name), None, Some(text(pod, "uid")));
        self.handle(Writer::Native, &request);
    }

    /// The stored Pod at that index of the plan, even if it is being deleted.
    fn native_pod(&self, at: usize) -> Option<Arc<Value>> {
        let of = |pod: &&Arc<Value>| self.schedule.pod_at(text(pod, "name")) == Some(at);
        self.server.objects("Pod").find(of).cloned()
    }

    /// The same Pod as that controller has seen it.
    fn native_seen(&self, actor: Actor, at: usize) -> Option<Arc<Value>> {
        let mut pods = self.natives.all(actor, "Pod").into_iter();
        pods.find(|pod| self.schedule.pod_at(text(pod, "name")) == Some(at))
    }

    /// Creates a Pod at that index, if it has none.
    fn native_makes(&mut self, at: usize, owner: &Value, template: &Value, revision: Option<&str>) {
        if self.native_pod(at).is_some() {
            return;
        }
        let name = if self.natives.filled.insert(at) {
            self.schedule.pods[at].name.clone()
        } else {
            self.name_anew(at).unwrap_or_default()
        };
        let mut pod = objects::pod(&self.schedule.pods[at], &name);
        pod["metadata"]["ownerReferences"] = owned(owner);
        pod["metadata"]["labels"] = template["metadata"]["labels"].clone();
        if let Some(revision) = revision {
            pod["metadata"]["labels"]["controller-revision-hash"] = revision.into();
        }
        for list in ["containers", "initContainers"] {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                let of = template["spec"][list].as_array().into_iter().flatten();
                if let Some(of) = of.into_iter().find(|of| of["name"] == container["name"]) {
                    container["image"] = of["image"].clone();
                }
            }
        }
        self.story.note(self.now, "native", || format!("makes Pod {name}"));
        let response = self.handle(Writer::Native, &objects::create_pod(&pod));
        assert!(response.status().is_success(), "{}", response.body());
    }
}
