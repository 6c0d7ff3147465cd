use serde_json::{Value, json};

use super::{bound, crr, order};
use crate::conform::api::Script;

fn map(data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
}

fn labelled(labels: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "labels": labels } })
}

fn book(orders: Value) -> Value {
    json!({ "apiVersion": "pitstop.dev/v1alpha1", "kind": "NodeWork", "metadata": { "name": "{id}a" },
            "spec": { "orders": orders } })
}

fn answers(answers: Value) -> Value {
    json!({ "apiVersion": "pitstop.dev/v1alpha1", "kind": "NodeWork", "metadata": { "name": "{id}a" },
            "status": { "answers": answers } })
}

pub(super) fn scripts() -> Vec<Script> {
    vec![
        Script::new("two appliers")
            .apply("cm/a", "m", map(json!({ "x": "1", "y": "1" })))
            .apply("cm/a", "n", map(json!({ "z": "1" })))
            .apply("cm/a", "n", map(json!({ "x": "2" })))
            .apply("cm/a", "n", map(json!({ "x": "1" })))
            .apply("cm/a", "n", map(json!({ "x": "2" })))
            .query("force=true")
            .apply("cm/a", "m", map(json!({ "y": "1" })))
            .apply("cm/a", "m", map(json!({})))
            .get("cm/a"),
        Script::new("an applier gives up fields")
            .apply("cm/a", "m", map(json!({ "x": "1", "y": "1" })))
            .apply("cm/a", "n", map(json!({ "x": "1" })))
            .apply("cm/a", "m", map(json!({ "y": "2" })))
            .apply("cm/a", "m", labelled(json!({ "a": "b" })))
            .apply("cm/a", "m", labelled(json!({})))
            .apply(
                "cm/a",
                "n",
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } }),
            ),
        Script::new("updates take fields")
            .apply("cm/a", "m", map(json!({ "x": "1", "y": "1" })))
            .merge("cm/a", json!({ "data": { "x": "2" } }))
            .apply("cm/a", "m", map(json!({ "x": "1", "y": "1" })))
            .merge("cm/a", json!({ "data": { "x": null } }))
            .apply("cm/a", "m", map(json!({ "x": "1", "y": "1" })))
            .merge("cm/a", json!({ "data": { "x": "1", "z": "1" } }))
            .query("fieldManager=other")
            .apply("cm/a", "m", map(json!({ "z": "2" })))
            .apply("cm/a", "m", map(json!({ "z": "2" })))
            .query("force=true"),
        Script::new("an apply that changes nothing is no write")
            .apply("cm/a", "m", map(json!({ "x": "1" })))
            .apply("cm/a", "m", map(json!({ "x": "1" })))
            .apply("cm/a", "m", map(json!({ "x": "1" })))
            .query("force=true")
            .watch("cm", "fieldSelector=metadata.name%3Da&resourceVersion={0:/metadata/resourceVersion}")
            .events(0),
        Script::new("apply to what others made")
            .post("cm", json!({ "metadata": { "name": "a", "labels": { "a": "b" } }, "data": { "x": "1" } }))
            .apply("cm/a", "m", map(json!({ "x": "2" })))
            .apply("cm/a", "m", map(json!({ "x": "1", "y": "2" })))
            .apply("cm/a", "m", map(json!({ "x": "1" })))
            .merge("cm/a", json!({ "metadata": { "managedFields": [] } }))
            .merge("cm/a", json!({ "data": { "v": "w" } }))
            .apply("cm/a", "m", map(json!({ "x": "3" })))
            .apply("cm/a", "m", map(json!({ "x": "3" })))
            .query("force=true"),
        Script::new("wrong applies")
            .apply("cm/a", "", map(json!({})))
            .apply("cm/a", "m", json!({ "metadata": { "name": "a" } }))
            .apply("cm/a", "m", json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } }))
            .apply("cm/b", "m", map(json!({})))
            .apply(
                "cm/a",
                "m",
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": { "x": "y" } }),
            )
            .apply(
                "cm/a",
                "m",
                json!({ "apiVersion": "v1", "kind": "ConfigMap",
                                        "metadata": { "name": "a", "managedFields": [] } }),
            )
            .apply("cm/a", "m", map(json!({ "x": 5 })))
            .apply(
                "cm/a",
                "m",
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" },
                                        "nonsense": 5 }),
            )
            .merge("cm/a", json!({}))
            .query("force=true"),
        Script::new("apply with a version")
            .apply("cm/a", "m", map(json!({ "x": "1" })))
            .apply("cm/a", "m", map(json!({ "x": "2" })))
            .apply("cm/a", "m", {
                let mut stale = map(json!({ "x": "3" }));
                stale["metadata"]["resourceVersion"] = "{0:/metadata/resourceVersion}".into();
                stale
            })
            .apply("cm/a", "m", {
                let mut fresh = map(json!({ "x": "3" }));
                fresh["metadata"]["resourceVersion"] = "{1:/metadata/resourceVersion}".into();
                fresh
            }),
        Script::new("orders of two appliers")
            .apply("nw/{id}a", "m", book(json!([order("1"), order("2")])))
            .apply("nw/{id}a", "n", book(json!([order("3"), order("1")])))
            .apply("nw/{id}a", "m", book(json!([order("2")])))
            .apply("nw/{id}a", "m", book(json!([])))
            .apply("nw/{id}a/status", "d", answers(json!([{ "orderID": "3", "state": "Acknowledged" }])))
            .apply("nw/{id}a/status", "e", answers(json!([{ "orderID": "3", "state": "Done" }])))
            .apply(
                "nw/{id}a/status",
                "d",
                answers(json!([{ "orderID": "3", "state": "Done" },
                                                          { "orderID": "1", "state": "Done" }])),
            )
            .apply("nw/{id}a/status", "d", answers(json!([])))
            .delete("nw/{id}a", json!(null)),
        Script::new("apply of a request and its status")
            .apply("crr/a", "m", crr("a"))
            .apply("crr/a", "n", {
                let mut other = crr("a");
                other["spec"]["podName"] = "q".into();
                other
            })
            .apply("crr/a", "n", {
                let mut other = crr("a");
                other["spec"]["nonsense"] = "q".into();
                other
            })
            .apply("crr/a", "m", {
                let mut other = crr("a");
                other["metadata"]["labels"] = json!({ "a": "b" });
                other["status"] = json!({ "phase": "Pending" });
                other
            })
            .merge("crr/a/status", json!({ "status": { "phase": "Pending" } }))
            .apply("crr/a/status", "s", {
                let mut other = crr("a");
                other["metadata"]["labels"] = json!({ "a": "c" });
                other["status"] = json!({ "phase": "Recreating" });
                other
            })
            .apply("crrb/a", "m", {
                let mut other = crr("a");
                other["apiVersion"] = "apps.kruise.io/v1beta1".into();
                other
            })
            .get("crr/a"),
        Script::new("finalizers of two appliers")
            .apply(
                "cm/a",
                "m",
                json!({ "apiVersion": "v1", "kind": "ConfigMap",
                                        "metadata": { "name": "a", "finalizers": ["a.io/x", "a.io/y"] } }),
            )
            .apply(
                "cm/a",
                "n",
                json!({ "apiVersion": "v1", "kind": "ConfigMap",
                                        "metadata": { "name": "a", "finalizers": ["a.io/y", "a.io/z"] } }),
            )
            .apply(
                "cm/a",
                "m",
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } }),
            )
            .delete("cm/a", json!(null))
            .apply(
                "cm/a",
                "n",
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } }),
            )
            .get("cm/a"),
        Script::new("apply of a Pod's condition")
            .post("pod", bound("a"))
            .apply(
                "pod/a/status",
                "m",
                json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
                "status": { "conditions": [{ "type": "KruisePodReady", "status": "False" }] } }),
            )
            .strategic(
                "pod/a/status",
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
            )
            .apply(
                "pod/a/status",
                "m",
                json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
                "status": { "conditions": [{ "type": "KruisePodReady", "status": "True" }] } }),
            )
            .apply(
                "pod/a/status",
                "m",
                json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
                "status": {} }),
            )
            .delete("pod/a", json!({ "gracePeriodSeconds": 0 })),
        Script::new("dry run of an apply")
            .apply("cm/a", "m", map(json!({ "x": "1" })))
            .query("dryRun=All")
            .get("cm/a")
            .apply("cm/a", "m", map(json!({ "x": "1" })))
            .apply("cm/a", "m", map(json!({ "x": "2" })))
            .query("dryRun=All")
            .get("cm/a"),
    ]
}
