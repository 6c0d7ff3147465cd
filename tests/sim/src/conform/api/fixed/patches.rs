use serde_json::json;

use super::{bound, crr, map, pod};
use crate::conform::api::Script;

pub(super) fn scripts() -> Vec<Script> {
    let conditions =
        json!([{ "type": "Ready", "status": "False" }, { "type": "Initialized", "status": "True" }]);
    vec![
        Script::new("JSON patches that cannot be done")
            .post("cm", map("a"))
            .json("cm/a", json!([{ "op": "remove", "path": "/data/none" }]))
            .json("cm/a", json!([{ "op": "replace", "path": "/data/none", "value": "x" }]))
            .json("cm/a", json!([{ "op": "add", "path": "/data/none/deeper", "value": "x" }]))
            .json("cm/a", json!([{ "op": "nonsense", "path": "/data/k", "value": "x" }]))
            .json("cm/a", json!([{ "op": "test", "path": "/data/none", "value": "x" }]))
            .json("cm/a", json!({ "op": "add" }))
            .json("cm/a", json!([{ "op": "add", "path": "/data/k", "value": 5 }]))
            .json("cm/a", json!([{ "op": "move", "from": "/data/k", "path": "/data/l" },
                                 { "op": "copy", "from": "/data/l", "path": "/data/m" }]))
            .json("cm/none", json!([])),
        Script::new("merge patches that cannot be done")
            .post("cm", map("a"))
            .merge("cm/a", json!([])).raw("application/merge-patch+json", "[1]")
            .merge("cm/a", json!({})).raw("application/merge-patch+json", "{nonsense")
            .merge("cm/a", json!({ "data": 5 }))
            .merge("cm/a", json!({ "data": { "k": 5 } }))
            .merge("cm/a", json!({ "data": { "k": null, "l": "m" } }))
            .merge("cm/a", json!({ "kind": "Pod" }))
            .merge("cm/a", json!({ "apiVersion": "v7" }))
            .merge("cm/none", json!({ "data": {} }))
            .merge("cm/a", json!({})).raw("text/plain", "{}"),
        Script::new("custom resources have no strategic merge")
            .post("crr", crr("a"))
            .strategic("crr/a", json!({ "metadata": { "labels": { "a": "b" } } }))
            .merge("crr/a", json!({ "kind": "Pod" }))
            .merge("crr/a", json!({ "apiVersion": "apps.kruise.io/v1beta1" }))
            .merge("crr/a", json!({ "apiVersion": "v1" }))
            .merge("crr/a", json!({ "metadata": { "labels": 5 } }))
            .json("crr/a", json!([{ "op": "test", "path": "/status", "value": null },
                                  { "op": "replace", "path": "/metadata/annotations", "value": { "a": "b" } }]))
            .json("crr/a", json!([{ "op": "replace", "path": "/spec/containers/7", "value": {} }])),
        Script::new("conditions of a Pod merge by type, new ones first")
            .post("pod", bound("a"))
            .strategic("pod/a/status", json!({ "status": { "conditions": conditions } }))
            .strategic("pod/a/status", json!({ "status": { "conditions": [{ "type": "KruisePodReady",
                                                                             "status": "False" }] } }))
            .strategic("pod/a/status", json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" },
                                                                           { "type": "New", "status": "True" }] } }))
            .strategic("pod/a/status", json!({ "status": { "conditions": [{ "type": "Ready",
                                                                             "$patch": "delete" }] } }))
            .strategic("pod/a/status", json!({ "status": { "conditions": [{ "type": "New", "message": "m" },
                { "type": "Initialized", "reason": "r" }] } }))
            .merge("pod/a/status", json!({ "status": { "conditions": [{ "type": "Only", "status": "True" }] } })),
        Script::new("container statuses of a Pod are replaced")
            .post("pod", bound("a"))
            .strategic("pod/a/status", json!({ "status": { "containerStatuses": [
                { "name": "c", "ready": true, "restartCount": 1, "image": "i", "imageID": "j",
                  "containerID": "containerd://x", "state": { "running": { "startedAt": "2027-01-01T00:00:00Z" } } }] } }))
            .strategic("pod/a/status", json!({ "status": { "containerStatuses": [
                { "name": "c", "ready": false, "restartCount": 2, "image": "i", "imageID": "j",
                  "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] } }))
            .strategic("pod/a/status", json!({ "status": { "containerStatuses": null } })),
        Script::new("strategic merges of metadata")
            .post("cm", map("a"))
            .strategic("cm/a", json!({ "metadata": { "finalizers": ["a.io/a"] } }))
            .strategic("cm/a", json!({ "metadata": { "finalizers": ["a.io/b"] } }))
            .strategic("cm/a", json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a.io/a"] } }))
            .strategic("cm/a", json!({ "metadata": { "labels": { "a": "b", "c": null } } }))
            .strategic("cm/a", json!({ "metadata": { "labels": { "$patch": "replace", "d": "e" } } }))
            .strategic("cm/a", json!({ "data": { "$patch": "delete" } }))
            .strategic("cm/a", json!({ "data": { "$retainKeys": ["x"], "x": "y" } }))
            .strategic("cm/a", json!({ "data": { "$patch": "nonsense" } }))
            .strategic("cm/a", json!({ "metadata": { "finalizers": null } })),
        Script::new("strategic merges of owners")
            .post("cm", map("a"))
            // Of a kind that is not served: the garbage collector deletes an object whose owner does not
            // exist.
            .strategic("cm/a", json!({ "metadata": { "ownerReferences": [
                { "apiVersion": "example.com/v1", "kind": "Thing", "name": "n", "uid": "{0:/metadata/uid}" }] } }))
            .strategic("cm/a", json!({ "metadata": { "ownerReferences": [
                { "apiVersion": "example.com/v1", "kind": "Thing", "name": "n", "uid": "{0:/metadata/uid}", "controller": true }] } }))
            .strategic("cm/a", json!({ "metadata": { "ownerReferences": [{ "$patch": "delete",
                "uid": "{0:/metadata/uid}" }] } })),
        Script::new("defaults of a Pod").post("pod", {
            let mut many = pod("a");
            many["spec"]["containers"] = json!([
                { "name": "c", "image": "example.com:5000/i", "ports": [{ "containerPort": 80 }],
                  "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } },
                { "name": "d", "image": "example.com/i@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" },
                { "name": "e", "image": "i:latest", "env": [{ "name": "A", "value": "b" }] },
            ]);
            many["spec"]["readinessGates"] = json!([{ "conditionType": "KruisePodReady" }]);
            many["status"] = json!({ "phase": "Running" });
            many
        }),
        Script::new("classes of service")
            .post("pod", {
                let mut one = pod("a");
                let own = json!({ "cpu": "100m", "memory": "64Mi" });
                one["spec"]["containers"][0]["resources"] = json!({ "limits": own, "requests": own });
                one
            })
            .post("pod", {
                let mut one = pod("b");
                one["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "100m" } });
                one
            }),
        Script::new("Pods that are wrong")
            .post("pod", json!({ "metadata": { "name": "a" }, "spec": {} }))
            .post("pod", json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "c" }] } }))
            .post("pod", json!({ "metadata": { "name": "a" }, "spec": { "containers": [
                { "name": "c", "image": "i" }, { "name": "c", "image": "i" }] } }))
            .post("pod", json!({ "metadata": { "name": "a" } }))
            .get("pod/a"),
    ]
}
