//! `Deployment` and `ReplicaSet`.
//!
//! A `Deployment` gives all its Pods at once to its oldest `ReplicaSet` that has its template. While paused, it only
//! scales. Not modelled: its surge, scaling of several `ReplicaSet`s with Pods while paused, and the deletion of old
//! ones.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::World;
use super::super::objects::NAMESPACE;
use super::{Actor, active, generation, hash, number, owned, text};

/// Label by which `ReplicaSet`s of one `Deployment` tell their Pods apart.
const HASH: &str = "pod-template-hash";

/// True if the templates differ at most in the label of their `ReplicaSet`s.
fn same(one: &Value, other: &Value) -> bool {
    let bare = |template: &Value| {
        let mut template = template.clone();
        template["metadata"]["labels"].as_object_mut().map(|labels| labels.remove(HASH));
        template
    };
    bare(one) == bare(other)
}

impl World {
    pub(super) fn deployment_turn(&mut self, deployment: &Value) {
        let mut sets = self.natives.all(Actor::Workload, "ReplicaSet");
        sets.sort_by_key(|set| (text(set, "creationTimestamp").to_owned(), text(set, "name").to_owned()));
        let template = &deployment["spec"]["template"];
        let new = sets.iter().find(|set| same(&set["spec"]["template"], template)).cloned();
        let replicas = number(&deployment["spec"]["replicas"]);
        let with_pods: Vec<_> = sets.iter().filter(|set| number(&set["spec"]["replicas"]) > 0).collect();
        match (deployment["spec"]["paused"] == true, &new) {
            (false, None) => return self.make_replica_set(deployment, &sets),
            (false, Some(new)) => {
                for set in &sets {
                    self.scale_set(set, if Arc::ptr_eq(set, new) { replicas } else { 0 });
                }
            }
            (true, new) => match with_pods[..] {
                [one] => self.scale_set(one, replicas),
                [] => {
                    if let Some(last) = new.clone().or_else(|| sets.last().cloned()) {
                        self.scale_set(&last, replicas);
                    }
                }
                _ => {}
            },
        }
        let count = |set: &Arc<Value>| number(&set["status"]["replicas"]);
        let status = json!({"observedGeneration": generation(deployment),
            "replicas": sets.iter().map(count).sum::<usize>(), "updatedReplicas": new.as_ref().map_or(0, count)});
        self.native_writes(deployment, |deployment| deployment["status"] = status);
    }

    fn scale_set(&mut self, set: &Value, replicas: usize) {
        if number(&set["spec"]["replicas"]) == replicas {
            return;
        }
        self.native_writes(set, |set| {
            set["spec"]["replicas"] = replicas.into();
            set["metadata"]["generation"] = (generation(set) + 1).into();
        });
    }

    /// Creates the `ReplicaSet` of a template, unless it exists and was not seen yet.
    fn make_replica_set(&mut self, deployment: &Value, sets: &[Arc<Value>]) {
        let template = &deployment["spec"]["template"];
        let first = hash(template);
        // The name may belong to a `ReplicaSet` that has another template by now.
        let names = (0..).map(|n| if n == 0 { first.clone() } else { format!("{first}{n}") });
        let free = |hash: &String| {
            let name = format!("{}-{hash}", text(deployment, "name"));
            !sets.iter().any(|set| text(set, "name") == name)
        };
        let Some(hash) = names.into_iter().find(free) else { return };
        let name = format!("{}-{hash}", text(deployment, "name"));
        if self.server.object("ReplicaSet", NAMESPACE, &name).is_some() {
            return;
        }
        let mut spec =
            json!({"replicas": 0, "selector": deployment["spec"]["selector"], "template": template});
        for labels in ["/selector/matchLabels", "/template/metadata/labels"] {
            if let Some(labels) = spec.pointer_mut(labels) {
                labels[HASH] = hash.clone().into();
            }
        }
        self.native_creates(
            "ReplicaSet",
            json!({"metadata": {"name": name, "namespace": NAMESPACE, "generation": 1,
                "labels": spec["template"]["metadata"]["labels"], "ownerReferences": owned(deployment)},
                "spec": spec, "status": {"replicas": 0}}),
        );
    }

    /// Each `ReplicaSet` creates Pods from its template as seen, and deletes surplus Pods.
    pub(super) fn replica_sets_turn(&mut self) {
        for set in self.natives.all(Actor::ReplicaSets, "ReplicaSet") {
            let own = |pod: &&Arc<Value>| {
                active(pod) && pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]
            };
            let pods: Vec<_> = self.server.objects("Pod").filter(own).cloned().collect();
            let replicas = number(&set["spec"]["replicas"]);
            for pod in pods.iter().skip(replicas) {
                self.native_deletes(pod);
            }
            let indices: Vec<usize> = (0..self.schedule.pods.len()).collect();
            let free = indices.into_iter().filter(|at| self.native_pod(*at).is_none());
            let free: Vec<usize> = free.take(replicas.saturating_sub(pods.len())).collect();
            for at in free {
                self.native_makes(at, &set, &set["spec"]["template"], None);
            }
            let status =
                json!({"replicas": pods.len().min(replicas), "observedGeneration": generation(&set)});
            self.native_writes(&set, |set| set["status"] = status);
        }
    }
}
