//! Scripts from seeds.
//!
//! A script uses one kind and three names. Later steps use the answers of earlier steps: stale and fresh
//! versions, right and wrong UIDs.

use serde_json::{Value, json};

use super::Script;
use super::script::Step;
use crate::rng::Rng;

/// Kinds that scripts use. Pods are bound to a node that does not exist.
const KINDS: [&str; 5] = ["cm", "lease", "pod", "crr", "nw"];
/// A UID that no object has.
const WRONG: &str = "11111111-2222-3333-4444-555555555555";

/// The script of a seed.
pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let kind = rng.pick(&KINDS).unwrap();
    let mut maker = Maker { rng, kind, made: Vec::new(), script: Script::new(format!("seed {seed}")) };
    let watch = maker.rng.one_in(3);
    if watch {
        maker.step(|script| script.watch(kind, &own(kind)));
    }
    maker.create("a");
    if maker.rng.one_in(2) {
        maker.create("b");
    }
    let steps = 3 + maker.rng.below(10);
    for _ in 0..steps {
        maker.request();
    }
    if watch {
        maker.step(|script| script.events(0));
    } else if let Some((step, _)) = maker.made.first().copied() {
        let query = format!("{}&resourceVersion={{{step}:/metadata/resourceVersion}}", own(kind));
        maker.step(|script| script.watch(kind, query.trim_start_matches('&')).events(0));
    }
    maker.clean_up();
    maker.script
}

/// Query that limits lists to the script's own objects, where the namespace does not.
fn own(kind: &str) -> String {
    match kind {
        "cm" | "nw" => "labelSelector=of%3D{id}o".to_owned(),
        _ => String::new(),
    }
}

struct Maker {
    rng: Rng,
    kind: &'static str,
    /// Steps that answer with an object if they succeed, and the object's name.
    made: Vec<(usize, &'static str)>,
    script: Script,
}

impl Maker {
    fn step(&mut self, add: impl FnOnce(Script) -> Script) {
        self.script = add(std::mem::replace(&mut self.script, Script::new("")));
    }

    fn name(&mut self) -> &'static str {
        self.rng.pick(&["a", "a", "a", "a", "b", "b", "c"]).unwrap()
    }

    /// Full object name: cluster-scoped objects get the scope's prefix.
    fn full(&self, name: &str) -> String {
        if self.kind == "nw" { format!("{{id}}{name}") } else { name.to_owned() }
    }

    fn target(&self, name: &str) -> String {
        format!("{}/{}", self.kind, self.full(name))
    }

    /// Records that the last step answers with an object of this name.
    fn wrote(&mut self, name: &'static str) {
        self.made.push((self.script.steps.len() - 1, name));
    }

    fn known(&mut self, name: &str) -> Option<usize> {
        let steps: Vec<usize> =
            self.made.iter().filter(|(_, of)| *of == name).map(|(step, _)| *step).collect();
        // Mostly the latest step.
        if self.rng.one_in(3) { self.rng.pick(&steps) } else { steps.last().copied() }
    }

    fn word(&mut self) -> &'static str {
        self.rng.pick(&["1", "2", "3"]).unwrap()
    }

    fn request(&mut self) {
        match self.rng.below(20) {
            0..=1 => {
                let name = self.name();
                self.create(name);
            }
            2..=4 => self.edit(),
            5..=8 | 12..=13 => self.merge(),
            9..=10 => self.json(),
            11 => self.strategic(),
            14..=15 => self.status(),
            16..=17 => self.delete(),
            18 => self.get(),
            _ => self.list(),
        }
        if self.rng.one_in(12)
            && let Some(Step::Send(draft)) = self.script.steps.last()
            && draft.method != "GET"
        {
            self.step(|script| script.query("dryRun=All"));
        }
    }

    /// Labels, annotations and finalizers at random.
    fn metadata(&mut self) -> Value {
        let mut metadata = json!({ "labels": { "of": "{id}o" } });
        if self.rng.one_in(2) {
            metadata["labels"]["x"] = self.word().into();
        }
        if self.rng.one_in(3) {
            metadata["annotations"] = json!({ "y": self.word() });
        }
        if self.rng.one_in(6) {
            metadata["finalizers"] = json!(["a.io/b"]);
        }
        metadata
    }

    /// A whole object, sometimes an invalid one.
    fn object(&mut self, name: &str) -> Value {
        let mut object = match self.kind {
            "cm" => {
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": self.word(), "l": self.word() } })
            }
            "lease" => json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                               "spec": { "holderIdentity": self.word(), "leaseTransitions": self.rng.below(3) } }),
            "pod" => {
                let image = format!("example.com/i:{}", self.word());
                json!({ "apiVersion": "v1", "kind": "Pod", "spec": {
                    "nodeName": "{ns}", "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": self.rng.below(40),
                    "containers": [{ "name": "c", "image": image }, { "name": "d", "image": "example.com/i:1" }] } })
            }
            "crr" => {
                let containers =
                    self.rng.pick(&[json!([{ "name": "c" }]), json!([{ "name": "d" }, { "name": "c" }])]);
                json!({ "apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest",
                        "spec": { "podName": "p", "containers": containers } })
            }
            _ => {
                json!({ "apiVersion": "pitstop.dev/v1alpha1", "kind": "NodeWork", "spec": { "orders": self.orders() } })
            }
        };
        object["metadata"] = self.metadata();
        object["metadata"]["name"] = self.full(name).into();
        if self.rng.one_in(25) {
            object["metadata"]["labels"]["x"] = "not valid".into();
        }
        object
    }

    fn orders(&mut self) -> Value {
        let mut orders = Vec::new();
        for id in ["1", "2", "3"] {
            if self.rng.one_in(2) {
                let recreate =
                    if self.rng.one_in(8) { json!({ "gracePeriodSeconds": 3 }) } else { json!({}) };
                orders.push(json!({
                    "id": id, "pod": { "namespace": "n", "name": "p", "uid": "u" },
                    "container": { "name": "c", "id": "0123456789abcdef".repeat(4) },
                    "action": { "recreate": recreate },
                }));
            }
        }
        if self.rng.one_in(3) {
            orders.reverse();
        }
        Value::Array(orders)
    }

    /// A random change of the spec or data.
    fn change(&mut self) -> Value {
        match self.kind {
            "cm" => match self.rng.below(3) {
                0 => json!({ "data": { "k": self.word() } }),
                1 => json!({ "data": { "m": self.word(), "l": null } }),
                _ => json!({ "data": { "k": null } }),
            },
            "lease" => match self.rng.below(3) {
                0 => json!({ "spec": { "holderIdentity": self.word() } }),
                1 => json!({ "spec": { "leaseDurationSeconds": self.rng.below(3) } }),
                _ => json!({ "spec": { "renewTime": "2027-01-15T08:00:00.000001Z", "leaseTransitions": 4 } }),
            },
            "pod" => match self.rng.below(3) {
                0 => json!({ "spec": { "activeDeadlineSeconds": 10 * (1 + self.rng.below(3)) } }),
                1 => json!({ "spec": { "hostNetwork": true } }),
                _ => json!({ "spec": { "priority": null, "nodeName": "{ns}" } }),
            },
            "crr" => match self.rng.below(3) {
                0 => json!({ "spec": { "podName": self.rng.pick(&["p", "q"]) } }),
                1 => {
                    json!({ "spec": { "strategy": { "failurePolicy": self.rng.pick(&["Fail", "Ignore"]) } } })
                }
                _ => json!({ "spec": { "nonsense": self.word() } }),
            },
            _ => json!({ "spec": { "orders": self.orders() } }),
        }
    }

    /// A random status.
    fn new_status(&mut self) -> Value {
        match self.kind {
            "pod" => match self.rng.below(3) {
                0 => json!({ "phase": self.rng.pick(&["Pending", "Running", "Succeeded"]) }),
                1 => {
                    json!({ "conditions": [{ "type": "Ready", "status": self.rng.pick(&["True", "False"]) }] })
                }
                _ => json!({ "conditions": [{ "type": "KruisePodReady", "status": "True", "reason": "R" },
                                            { "type": "Ready", "status": "True" }], "phase": "Running" }),
            },
            "crr" => match self.rng.below(3) {
                0 => json!({ "phase": self.rng.pick(&["Pending", "Recreating", "Completed", "Nonsense"]) }),
                1 => {
                    json!({ "phase": "Pending", "containerRecreateStates": [{ "name": "c", "phase": "Pending" }] })
                }
                _ => json!({ "phase": "Completed", "message": self.word(), "nonsense": 5 }),
            },
            _ => json!({ "observedGeneration": self.rng.below(4), "answers": [
                { "orderID": self.word(), "state": self.rng.pick(&["Acknowledged", "Done", "Nonsense"]) }] }),
        }
    }

    /// A version or UID for a patch to name as its precondition, or nothing.
    fn reliance(&mut self, name: &str) -> Value {
        let Some(step) = self.known(name) else { return json!({}) };
        match self.rng.below(6) {
            0..=1 => json!({ "resourceVersion": format!("{{{step}:/metadata/resourceVersion}}") }),
            2 => json!({ "uid": format!("{{{step}:/metadata/uid}}") }),
            3 => json!({ "uid": WRONG }),
            _ => json!({}),
        }
    }

    fn create(&mut self, name: &'static str) {
        let object = self.object(name);
        let kind = self.kind;
        self.step(|script| script.post(kind, object));
        self.wrote(name);
    }

    fn edit(&mut self) {
        let name = self.name();
        let target = self.target(name);
        let mut change =
            if self.rng.one_in(2) { self.change() } else { json!({ "metadata": self.metadata() }) };
        match self.rng.below(8) {
            0 => change["metadata"]["resourceVersion"] = Value::Null,
            1 => change["metadata"]["uid"] = WRONG.into(),
            2 => change["metadata"]["finalizers"] = Value::Null,
            _ => {}
        }
        if let Some(step) = self.known(name) {
            self.step(|script| script.edit(&target, step, change));
        } else {
            let object = self.object(name);
            self.step(|script| script.put(&target, object));
        }
        self.wrote(name);
    }

    fn merge(&mut self) {
        let name = self.name();
        let target = self.target(name);
        let mut patch = self.change();
        patch["metadata"] = self.reliance(name);
        match self.rng.below(5) {
            0 => patch["metadata"]["finalizers"] = Value::Null,
            1 => patch["metadata"]["labels"] = json!({ "x": self.word() }),
            2 => patch["metadata"]["labels"] = json!({ "x": null }),
            3 => patch["metadata"]["finalizers"] = json!(["a.io/c"]),
            _ => {}
        }
        self.step(|script| script.merge(&target, patch));
        self.wrote(name);
    }

    fn json(&mut self) {
        let name = self.name();
        let target = self.target(name);
        let mut patch = Vec::new();
        if let Some(step) = self.known(name).filter(|_| self.rng.one_in(2)) {
            let field = self.rng.pick(&["uid", "resourceVersion"]).unwrap();
            patch.push(json!({ "op": "test", "path": format!("/metadata/{field}"),
                               "value": format!("{{{step}:/metadata/{field}}}") }));
        }
        patch.push(match self.rng.below(6) {
            0 => json!({ "op": "add", "path": "/metadata/labels/x", "value": self.word() }),
            1 => json!({ "op": "remove", "path": "/metadata/labels/x" }),
            2 => json!({ "op": "replace", "path": "/metadata/labels", "value": { "of": "{id}o" } }),
            3 => json!({ "op": "remove", "path": "/metadata/finalizers" }),
            4 => json!({ "op": "add", "path": "/metadata/finalizers", "value": ["a.io/c"] }),
            _ => json!({ "op": "add", "path": "/metadata/annotations", "value": { "y": self.word() } }),
        });
        self.step(|script| script.json(&target, Value::Array(patch)));
        self.wrote(name);
    }

    fn strategic(&mut self) {
        let name = self.name();
        let target = self.target(name);
        let mut patch = json!({ "metadata": self.metadata() });
        if self.kind == "pod" {
            let image = format!("example.com/i:{}", self.word());
            let container = self.rng.pick(&["c", "d"]);
            patch["spec"] = json!({ "containers": [{ "name": container, "image": image }] });
        }
        if self.rng.one_in(4) {
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!(["a.io/b"]);
            patch["metadata"].as_object_mut().unwrap().remove("finalizers");
        }
        self.step(|script| script.strategic(&target, patch));
        self.wrote(name);
    }

    fn status(&mut self) {
        if matches!(self.kind, "cm" | "lease") {
            return self.merge();
        }
        let name = self.name();
        let target = format!("{}/status", self.target(name));
        let status = self.new_status();
        match (self.rng.below(4), self.known(name)) {
            (0, Some(step)) => self.step(|script| script.edit(&target, step, json!({ "status": status }))),
            (1, _) if self.kind == "pod" => {
                self.step(|script| script.strategic(&target, json!({ "status": status })));
            }
            _ => {
                let metadata = self.reliance(name);
                let patch = json!({ "metadata": metadata, "status": status });
                self.step(|script| script.merge(&target, patch));
            }
        }
        self.wrote(name);
    }

    fn delete(&mut self) {
        let name = self.name();
        let target = self.target(name);
        let mut options = json!({});
        if let Some(step) = self.known(name) {
            match self.rng.below(6) {
                0 => options["preconditions"] = json!({ "uid": format!("{{{step}:/metadata/uid}}") }),
                1 => options["preconditions"] = json!({ "uid": WRONG }),
                2 => {
                    let version = format!("{{{step}:/metadata/resourceVersion}}");
                    options["preconditions"] = json!({ "resourceVersion": version });
                }
                _ => {}
            }
        }
        if self.rng.one_in(2) {
            options["gracePeriodSeconds"] = self.rng.pick(&[0, 0, 5, 50]).unwrap().into();
        }
        if self.rng.one_in(10) {
            options["dryRun"] = json!(["All"]);
        }
        self.step(|script| script.delete(&target, options));
    }

    fn get(&mut self) {
        let name = self.name();
        let target = self.target(name);
        self.step(|script| script.get(&target));
        self.wrote(name);
    }

    fn list(&mut self) {
        let kind = self.kind;
        let mut query = own(kind);
        let more = match self.rng.below(5) {
            0 if query.is_empty() => "labelSelector=x%3D1".to_owned(),
            1 => format!("fieldSelector=metadata.name%3D{}", self.full("a")),
            // The cluster creates ConfigMaps of its own in every namespace, at any time.
            2 if kind != "cm" => "limit=1".to_owned(),
            3 => match self.known("a") {
                Some(step) => {
                    let version = format!("resourceVersion={{{step}:/metadata/resourceVersion}}");
                    let how = self.rng.pick(&["Exact", "NotOlderThan"]).unwrap();
                    if how == "NotOlderThan" {
                        self.fresh(&query);
                    }
                    format!("{version}&resourceVersionMatch={how}")
                }
                None => String::new(),
            },
            _ => {
                self.fresh(&query);
                "resourceVersion=0".to_owned()
            }
        };
        if !query.is_empty() && !more.is_empty() {
            query.push('&');
        }
        query.push_str(&more);
        self.step(|script| script.list(kind, &query));
    }

    /// Waits for the cache with a read: until then the cache may be stale.
    fn fresh(&mut self, query: &str) {
        let kind = self.kind;
        self.step(|script| script.list(kind, query));
    }

    /// Deletes cluster-scoped objects, which the deletion of a namespace leaves.
    fn clean_up(&mut self) {
        if self.kind == "nw" {
            for name in ["a", "b", "c"] {
                let target = self.target(name);
                self.step(|script| {
                    script
                        .merge(&target, json!({ "metadata": { "finalizers": null } }))
                        .delete(&target, Value::Null)
                });
            }
        }
    }
}
