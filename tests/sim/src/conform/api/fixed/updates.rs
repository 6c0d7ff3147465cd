use serde_json::json;

use super::{WRONG, book, bound, crr, map, order, pod};
use crate::conform::api::Script;

pub(super) fn scripts() -> Vec<Script> {
    let lease = json!({ "metadata": { "name": "a" }, "spec": { "holderIdentity": "x", "leaseDurationSeconds": 15,
                        "renewTime": "2027-01-15T08:00:00.500000Z" } });
    vec![
        Script::new("what was made cannot be made again")
            .post("cm", map("a"))
            .post("cm", map("a"))
            .post("cm", map("A_b"))
            .post("cm", json!({ "metadata": {} }))
            .post("cm", json!({ "metadata": { "generateName": "g-" } }))
            .post("cm", json!({ "metadata": { "name": "b", "namespace": "other" } }))
            .post("cm", json!({ "metadata": { "name": "b", "resourceVersion": "5" } }))
            .post(
                "cm",
                json!({ "metadata": { "name": "b", "uid": WRONG, "generation": 7,
                                              "creationTimestamp": "2020-01-01T00:00:00Z" } }),
            )
            .post("cm", json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "c" } }))
            .post("cm", json!({ "kind": "ConfigMap", "apiVersion": "v2", "metadata": { "name": "c" } })),
        Script::new("PUT of a custom resource needs a version")
            .post("crr", crr("a"))
            .put("crr/a", crr("a"))
            .edit("crr/a", 0, json!({ "metadata": { "labels": { "a": "1" } } }))
            .edit("crr/a", 0, json!({ "metadata": { "labels": { "a": "2" } } }))
            .edit("crr/a", 2, json!({ "metadata": { "uid": WRONG } }))
            .edit("crr/a", 2, json!({ "metadata": { "uid": null, "labels": null } }))
            .put("crr/b", crr("b")),
        Script::new("PUT of a map needs no version")
            .post("cm", map("a"))
            .put("cm/a", json!({ "metadata": { "name": "a" }, "data": { "k": "w" } }))
            .put("cm/a", json!({ "metadata": { "name": "a" }, "data": { "k": "w" } }))
            .edit("cm/a", 0, json!({ "data": { "k": "x" } }))
            .put("cm/a", json!({ "metadata": { "name": "b" } }))
            .put("cm/a", json!({ "metadata": {} }))
            .put("cm/a", json!({ "metadata": { "name": "a", "namespace": "other" } }))
            .put("cm/b", map("b"))
            .put(
                "cm/a",
                json!({ "metadata": { "name": "a", "resourceVersion": "0" }, "data": { "z": "z" } }),
            ),
        Script::new("PUT makes a Lease that is missing")
            .put("lease/a", lease.clone())
            .put("lease/a", lease.clone())
            .edit("lease/a", 0, json!({ "spec": { "holderIdentity": "y" } }))
            .edit("lease/a", 0, json!({ "spec": { "holderIdentity": "z" } }))
            .put("lease/b", json!({ "metadata": { "name": "b", "resourceVersion": "12" }, "spec": {} }))
            .put("lease/c", json!({ "metadata": { "name": "c", "uid": WRONG }, "spec": {} }))
            .put("lease/d", json!({ "metadata": { "name": "d" }, "spec": { "leaseDurationSeconds": 0 } }))
            .put("lease/d", json!({ "metadata": { "name": "d" }, "spec": { "leaseTransitions": -1 } }))
            .put("lease/d", json!({ "metadata": { "name": "d" }, "spec": { "renewTime": "yesterday" } }))
            .put(
                "lease/d",
                json!({ "metadata": { "name": "d" }, "spec": { "renewTime": "2027-01-15T08:00:00.5Z" } }),
            )
            .put(
                "lease/d",
                json!({ "metadata": { "name": "d" }, "spec": { "renewTime": "2027-01-15T08:00:00Z" } }),
            )
            .put("lease/d", json!({ "metadata": { "name": "d" }, "spec": { "leaseDurationSeconds": "x" } })),
        Script::new("a write that changes nothing is none")
            .post("crr", crr("a"))
            .edit("crr/a", 0, json!({}))
            .merge("crr/a", json!({ "spec": { "podName": "p" } }))
            .json("crr/a", json!([{ "op": "replace", "path": "/spec/podName", "value": "p" }]))
            .merge("crr/a/status", json!({ "status": null }))
            .get("crr/a"),
        Script::new("the generation moves with the spec")
            .post("nw", book("{id}a"))
            .merge("nw/{id}a", json!({ "metadata": { "labels": { "a": "b" } } }))
            .merge("nw/{id}a", json!({ "spec": { "orders": [order("1")] } }))
            .merge("nw/{id}a/status", json!({ "status": { "observedGeneration": 2 } }))
            .merge("nw/{id}a", json!({ "metadata": { "generation": 40 } }))
            .delete("nw/{id}a", json!(null)),
        Script::new("metadata that nobody can set")
            .post("cm", map("a"))
            .merge("cm/a", json!({ "metadata": { "creationTimestamp": "2020-01-01T00:00:00Z" } }))
            .merge("cm/a", json!({ "metadata": { "deletionTimestamp": "2020-01-01T00:00:00Z" } }))
            .merge("cm/a", json!({ "metadata": { "deletionGracePeriodSeconds": 3 } }))
            .merge("cm/a", json!({ "metadata": { "name": "b" } }))
            .merge("cm/a", json!({ "metadata": { "namespace": "other" } }))
            .merge("cm/a", json!({ "metadata": { "uid": null, "resourceVersion": null, "nonsense": 1 } }))
            .merge("cm/a", json!({ "metadata": null })),
        Script::new("metadata that is wrong")
            .post("cm", map("a"))
            .merge("cm/a", json!({ "metadata": { "labels": { "a": "b c" } } }))
            .merge("cm/a", json!({ "metadata": { "labels": { "a/b/c": "d" } } }))
            .merge("cm/a", json!({ "metadata": { "labels": { "a": 1 } } }))
            .merge("cm/a", json!({ "metadata": { "finalizers": ["nonsense/"] } }))
            .merge("cm/a", json!({ "metadata": { "annotations": { "a b": "c" } } }))
            .merge("cm/a", json!({ "metadata": { "ownerReferences": [{ "kind": "x" }] } }))
            .merge("cm/a", json!({ "metadata": { "labels": {}, "annotations": { "x": "y z" } } })),
        Script::new("what a Pod's spec may become")
            .post("pod", bound("a"))
            .merge("pod/a", json!({ "spec": { "nodeName": "other" } }))
            .strategic(
                "pod/a",
                json!({ "spec": { "containers": [{ "name": "c", "image": "example.com/i:2" }] } }),
            )
            .strategic(
                "pod/a",
                json!({ "spec": { "containers": [{ "name": "d", "image": "example.com/i:2" }] } }),
            )
            .strategic("pod/a", json!({ "spec": { "containers": [{ "name": "c", "command": ["x"] }] } }))
            .merge("pod/a", json!({ "spec": { "activeDeadlineSeconds": 100 } }))
            .merge("pod/a", json!({ "spec": { "activeDeadlineSeconds": 200 } }))
            .merge("pod/a", json!({ "spec": { "activeDeadlineSeconds": 50 } }))
            .merge("pod/a", json!({ "spec": { "terminationGracePeriodSeconds": 5 } }))
            .merge("pod/a", json!({ "spec": { "restartPolicy": "Never" } })),
        Script::new("the status endpoint of a Pod takes metadata, too")
            .post("pod", pod("a"))
            .merge(
                "pod/a/status",
                json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["a.io/b"],
                "ownerReferences": [{ "apiVersion": "example.com/v1", "kind": "Thing", "name": "n", "uid": "u" }] },
                "spec": { "nodeName": "x" }, "status": { "phase": "Running", "qosClass": "" } }),
            )
            .merge(
                "pod/a",
                json!({ "status": { "phase": "Failed" }, "metadata": { "annotations": { "c": "d" } } }),
            )
            .edit("pod/a/status", 0, json!({ "status": { "phase": "Failed" } }))
            .edit("pod/a/status", 2, json!({ "status": { "phase": "Failed" } }))
            .merge("pod/a/status", json!({ "metadata": { "finalizers": null } })),
        Script::new("dry runs store nothing")
            .post("crr", crr("a"))
            .query("dryRun=All")
            .get("crr/a")
            .post("crr", crr("a"))
            .merge("crr/a", json!({ "metadata": { "labels": { "a": "b" } } }))
            .query("dryRun=All")
            .edit("crr/a", 2, json!({ "metadata": { "finalizers": ["a.io/b"] } }))
            .query("dryRun=All")
            .delete("crr/a", json!({ "dryRun": ["All"] }))
            .delete("crr/a", json!(null))
            .query("dryRun=All")
            .delete("crr/a", json!({ "dryRun": ["Some"] }))
            .post("cm", map("x"))
            .query("dryRun=Some")
            .get("crr/a"),
        Script::new("a namespace that is not there")
            .post("none:cm", map("a"))
            .get("none:cm/a")
            .list("none:cm", "")
            .merge("none:cm/a", json!({ "data": { "k": "x" } }))
            .put("none:lease/a", json!({ "metadata": { "name": "a" }, "spec": {} }))
            .post("none:cm", json!({ "metadata": {} })),
        Script::new("both versions are one object")
            .post("crr", crr("a"))
            .get("crrb/a")
            .merge("crrb/a", json!({ "metadata": { "labels": { "a": "b" } } }))
            .merge("crrb/a/status", json!({ "status": { "phase": "Pending" } }))
            .edit("crrb/a", 3, json!({ "metadata": { "labels": { "a": "c" } } }))
            .edit("crr/a", 4, json!({}))
            .post("crrb", crr("b"))
            .list("crrb", ""),
    ]
}
