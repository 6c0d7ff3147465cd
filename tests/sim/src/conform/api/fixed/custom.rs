use serde_json::{Value, json};

use super::{WRONG, book, crr, order};
use crate::conform::api::Script;

fn with(change: Value) -> Value {
    let mut object = crr("a");
    json_patch::merge(&mut object, &change);
    object
}

/// Sets a field. For null, because a merge patch cannot set null.
fn set(pointer: &str, value: Value) -> Value {
    let mut object = with(json!({ "spec": { "strategy": {} } }));
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn orders(list: Value) -> Value {
    json!({ "spec": { "orders": list } })
}

/// JSON patch that adds orders, with the book's UID and generation as precondition.
fn adds(generation: i64, list: Value) -> Value {
    json!([{ "op": "test", "path": "/metadata/uid", "value": "{0:/metadata/uid}" },
           { "op": "test", "path": "/metadata/generation", "value": generation },
           { "op": "add", "path": "/spec/orders", "value": list }])
}

fn answered(id: &str) -> Value {
    json!({ "status": { "answers": [{ "orderID": id, "state": "Done" }] } })
}

pub(super) fn scripts() -> Vec<Script> {
    let long = "x".repeat(300);
    let bad = [
        json!({ "spec": null }),
        json!({ "spec": { "podName": null } }),
        json!({ "spec": { "podName": "" } }),
        json!({ "spec": { "podName": long } }),
        json!({ "spec": { "podName": 5 } }),
        json!({ "spec": { "containers": [] } }),
        json!({ "spec": { "containers": [{ "name": "c" }, { "name": "c" }] } }),
        json!({ "spec": { "containers": [{}] } }),
        json!({ "spec": { "containers": "c" } }),
        json!({ "spec": { "strategy": { "failurePolicy": "Nonsense" } } }),
        json!({ "spec": { "strategy": { "minStartedSeconds": -1 } } }),
        json!({ "spec": { "strategy": { "minStartedSeconds": 3_000_000_000_u64 } } }),
        json!({ "spec": { "activeDeadlineSeconds": 2 } }),
        json!({ "spec": { "activeDeadlineSeconds": 1.5 } }),
    ];
    let mut refused = Vec::new();
    for (index, part) in bad.chunks(7).enumerate() {
        let script = Script::new(format!("requests that are refused {index}"));
        refused.push(part.iter().fold(script, |script, change| script.post("crr", with(change.clone()))));
    }
    refused.extend([
        Script::new("unknown fields vanish")
            .post("crr", with(json!({ "spec": { "nonsense": 1, "strategy": { "nonsense": { "a": "b" } } }, "more": [] })))
            .merge("crr/a", json!({ "spec": { "nonsense": 2 } })),
        Script::new("nulls")
            .post("crr", set("/spec/activeDeadlineSeconds", Value::Null))
            .get("crr/a")
            .delete("crr/a", json!(null))
            .post("crr", set("/spec/strategy/orderedRecreate", Value::Null))
            .delete("crr/a", json!(null))
            .post("crr", set("/spec/strategy", Value::Null))
            .json("crr/a/status", json!([{ "op": "add", "path": "/status", "value": { "phase": null } }]))
            .json("crr/a/status", json!([{ "op": "add", "path": "/status", "value": null }]))
            .edit("crr/a", 5, json!({ "metadata": { "labels": { "a": "b" } } })),
        Script::new("the spec of a request never changes")
            .post("crr", crr("a"))
            .merge("crr/a", json!({ "spec": { "podName": "q" } }))
            .merge("crr/a", json!({ "spec": { "ttlSecondsAfterFinished": 5 } }))
            .json("crr/a", json!([{ "op": "remove", "path": "/spec" }]))
            .json("crr/a", json!([{ "op": "add", "path": "/spec/containers/-", "value": { "name": "d" } }]))
            .merge("crr/a", json!({ "spec": { "nonsense": 5 } }))
            .merge("crr/a", json!({ "metadata": { "annotations": { "a": "b" } } })),
        Script::new("the status of a request")
            .post("crr", crr("a"))
            .merge("crr/a/status", json!({ "status": { "phase": "Nonsense" } }))
            .merge("crr/a/status", json!({ "status": { "phase": "Recreating", "containerRecreateStates": [
                { "name": "c", "phase": "Pending", "isKilled": false }] } }))
            .merge("crr/a/status", json!({ "status": { "completionTime": "yesterday" } }))
            .merge("crr/a/status", json!({ "status": { "completionTime": "2027-01-15T08:00:00Z" } }))
            .merge("crr/a/status", json!({ "status": { "conditions": [
                { "type": "Complete", "status": "True", "reason": "R", "message": "m",
                  "lastTransitionTime": "2027-01-15T08:00:00Z" },
                { "type": "Complete", "status": "True", "reason": "R", "message": "m",
                  "lastTransitionTime": "2027-01-15T08:00:00Z" }] } }))
            .merge("crr/a/status", json!({ "status": { "conditions": [{ "type": "Complete" }] } }))
            .edit("crr/a/status", 0, json!({ "status": { "phase": "Completed" } }))
            .get("crr/a"),
        Script::new("orders never change")
            .post("nw", book("{id}a"))
            .merge("nw/{id}a", orders(json!([order("1")])))
            .merge("nw/{id}a", orders(json!([order("1"), order("2")])))
            .merge("nw/{id}a", orders(json!([order("2"), order("1"), order("3")])))
            .json("nw/{id}a", json!([{ "op": "add", "path": "/spec/orders/0/action/recreate/gracePeriodSeconds",
                                       "value": 5 }]))
            .merge("nw/{id}a", orders(json!([order("3")])))
            .merge("nw/{id}a", orders(json!([order("3"), order("3")])))
            .merge("nw/{id}a", orders(json!([])))
            .merge("nw/{id}a", json!({ "spec": { "orders": null } }))
            .merge("nw/{id}a", json!({ "spec": null }))
            .delete("nw/{id}a", json!(null)),
        Script::new("an answer raises no generation, orders do")
            .post("nw", book("{id}a"))
            .json("nw/{id}a", adds(1, json!([order("1")])))
            .merge("nw/{id}a/status", answered("1"))
            .json("nw/{id}a", adds(2, json!([order("1"), order("2")])))
            .merge("nw/{id}a/status", answered("2"))
            // Another writer has changed the orders since that generation.
            .json("nw/{id}a", adds(2, json!([order("1"), order("3")])))
            .json("nw/{id}a", adds(3, json!([order("1"), order("2")])))
            .json("nw/{id}a", adds(3, json!([order("2"), order("3")])))
            .merge("nw/{id}a", json!({ "spec": { "closed": ["no-order"] } }))
            .json("nw/{id}a", adds(4, json!([order("2"), order("3"), order("4")])))
            .json("nw/{id}a", adds(5, json!([order("2"), order("3"), order("4")])))
            .json("nw/{id}a", json!([{ "op": "test", "path": "/metadata/uid", "value": WRONG },
                                     { "op": "add", "path": "/spec/orders", "value": [] }]))
            .get("nw/{id}a")
            .delete("nw/{id}a", json!(null))
            .json("nw/{id}a", adds(6, json!([]))),
        Script::new("orders that are wrong")
            .post("nw", book("{id}a"))
            .merge("nw/{id}a", orders(json!([{ "id": "1" }])))
            .json("nw/{id}a", {
                let mut one = order("1");
                one["container"]["id"] = "0123".into();
                json!([{ "op": "add", "path": "/spec/orders/-", "value": one }])
            })
            .json("nw/{id}a", {
                let mut one = order("1");
                one["action"] = json!({});
                json!([{ "op": "add", "path": "/spec/orders/-", "value": one }])
            })
            .json("nw/{id}a", {
                let mut one = order("1");
                one["action"] = json!({ "recreate": null });
                json!([{ "op": "add", "path": "/spec/orders/-", "value": one }])
            })
            .merge("nw/{id}a", orders((0..65).map(|n| order(&n.to_string())).collect()))
            .merge("nw/{id}a/status", json!({ "status": { "answers": [{ "orderID": "1", "state": "Nonsense" }] } }))
            .merge("nw/{id}a/status", json!({ "status": { "answers": [{ "orderID": "1", "state": "Done" },
                                                                        { "orderID": "1", "state": "Done" }] } }))
            .merge("nw/{id}a/status", json!({ "status": { "answers": [{ "orderID": "1", "state": "Done" }],
                                                           "boot": { "id": "b" } } }))
            .delete("nw/{id}a", json!(null)),
    ]);
    refused
}
