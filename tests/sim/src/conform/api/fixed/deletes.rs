use serde_json::json;

use super::{WRONG, bound, crr, map, pod};
use crate::conform::api::Script;

pub(super) fn scripts() -> Vec<Script> {
    let held = |mut object: serde_json::Value| {
        object["metadata"]["finalizers"] = json!(["a.io/b"]);
        object
    };
    vec![
        Script::new("preconditions of DELETE")
            .post("cm", map("a"))
            .merge("cm/a", json!({ "data": { "k": "w" } }))
            .delete("cm/a", json!({ "preconditions": { "resourceVersion": "{0:/metadata/resourceVersion}" } }))
            .delete("cm/a", json!({ "preconditions": { "uid": WRONG } }))
            .delete("cm/a", json!({ "preconditions": { "uid": "{0:/metadata/uid}",
                                                       "resourceVersion": "{1:/metadata/resourceVersion}" } }))
            .delete("cm/a", json!(null))
            .delete("cm/a", json!({ "preconditions": { "uid": WRONG } })),
        Script::new("a finalizer holds a custom resource")
            .watch("crr", "")
            .post("crr", held(crr("a")))
            .delete("crr/a", json!(null))
            .delete("crr/a", json!(null))
            .merge("crr/a", json!({ "metadata": { "finalizers": ["a.io/b", "a.io/c"] } }))
            .merge("crr/a", json!({ "metadata": { "labels": { "a": "b" } } }))
            .merge("crr/a/status", json!({ "status": { "phase": "Pending" } }))
            .merge("crr/a", json!({ "metadata": { "deletionTimestamp": null } }))
            .post("crr", crr("a"))
            .merge("crr/a", json!({ "metadata": { "finalizers": null, "labels": { "a": "c" } } }))
            .get("crr/a")
            .events(0),
        Script::new("a finalizer holds a map")
            .watch("cm", "labelSelector=l")
            .post("cm", {
                let mut one = held(map("a"));
                one["metadata"]["labels"] = json!({ "l": "" });
                one
            })
            .delete("cm/a", json!({ "gracePeriodSeconds": 5 }))
            .edit("cm/a", 2, json!({ "metadata": { "finalizers": [] } }))
            .events(0),
        Script::new("a Pod without a node goes at once")
            .watch("pod", "")
            .post("pod", pod("a"))
            .delete("pod/a", json!({ "gracePeriodSeconds": 60 }))
            .get("pod/a")
            .events(0),
        Script::new("a Pod on a node waits for its kubelet")
            .watch("pod", "")
            .post("pod", bound("a"))
            .delete("pod/a", json!(null))
            .delete("pod/a", json!(null))
            .delete("pod/a", json!({ "gracePeriodSeconds": 100 }))
            .delete("pod/a", json!({ "gracePeriodSeconds": 20 }))
            .merge("pod/a/status", json!({ "status": { "phase": "Running" } }))
            .post("pod", bound("a"))
            .delete("pod/a", json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": WRONG } }))
            .delete("pod/a", json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": "{1:/metadata/uid}" } }))
            .get("pod/a")
            .events(0),
        Script::new("a Pod that is over goes at once")
            .post("pod", bound("a"))
            .merge("pod/a/status", json!({ "status": { "phase": "Succeeded" } }))
            .watch("pod", "resourceVersion={1:/metadata/resourceVersion}")
            .delete("pod/a", json!(null))
            .events(0),
        Script::new("a finalizer holds a Pod after its grace")
            .watch("pod", "")
            .post("pod", held(bound("a")))
            .delete("pod/a", json!({ "gracePeriodSeconds": 30 }))
            .delete("pod/a", json!({ "gracePeriodSeconds": 0 }))
            .delete("pod/a", json!({ "gracePeriodSeconds": 0 }))
            .merge("pod/a", json!({ "metadata": { "finalizers": null } }))
            .get("pod/a")
            .events(0),
        Script::new("a Pod whose finalizers go within its grace stays")
            .post("pod", held(bound("a")))
            .delete("pod/a", json!({ "gracePeriodSeconds": 30 }))
            .merge("pod/a", json!({ "metadata": { "finalizers": null } }))
            .delete("pod/a", json!({ "gracePeriodSeconds": 0 }))
            .get("pod/a"),
        Script::new("grace in the query, and negative grace")
            .post("pod", bound("a"))
            .delete("pod/a", json!(null)).query("gracePeriodSeconds=7")
            .delete("pod/a", json!({ "gracePeriodSeconds": -5 }))
            .delete("pod/a", json!(null)).query("gracePeriodSeconds=0")
            .post("pod", bound("b"))
            .delete("pod/b", json!({ "gracePeriodSeconds": -1 }))
            .delete("pod/b", json!({ "gracePeriodSeconds": 0 })),
        Script::new("dry runs of DELETE")
            .post("pod", bound("a"))
            .delete("pod/a", json!({ "dryRun": ["All"] }))
            .delete("pod/a", json!({ "dryRun": ["All"], "gracePeriodSeconds": 0 }))
            .get("pod/a")
            .post("crr", held(crr("a")))
            .delete("crr/a", json!({ "dryRun": ["All"] }))
            .get("crr/a"),
        Script::new("wrong options of DELETE")
            .post("cm", map("a"))
            .delete("cm/a", json!({ "propagationPolicy": "Nonsense" }))
            .delete("cm/a", json!({ "propagationPolicy": "Background" }))
            .delete("cm/none", json!({ "dryRun": ["All"] }))
            .post("cm", map("b"))
            .delete("cm/b", json!({})).query("dryRun=All")
            .get("cm/b"),
        Script::new("a namespace ends")
            .post("ns", json!({ "metadata": { "name": "{id}x", "finalizers": ["a.io/b"] } }))
            .delete("ns/{id}x", json!({ "preconditions": { "uid": WRONG } }))
            .merge("ns/{id}x", json!({ "metadata": { "labels": { "a": "b" } }, "status": { "phase": "Terminating" } }))
            .post("ns", json!({ "metadata": { "name": "{id}x" } }))
            .merge("ns/{id}x", json!({ "metadata": { "finalizers": null } }))
            .get("ns/{id}none")
            .post("ns", json!({ "metadata": { "name": "Nonsense" } })),
    ]
}
