//! Scripts written by hand, one fact each. First the facts of `reliability.md` 3.4.

mod custom;
mod deletes;
mod facts;
mod lists;
mod patches;
mod updates;
mod watches;

use serde_json::{Value, json};

use super::Script;

pub(super) fn scripts() -> Vec<Script> {
    let mut all = facts::scripts();
    all.extend(updates::scripts());
    all.extend(patches::scripts());
    all.extend(deletes::scripts());
    all.extend(lists::scripts());
    all.extend(watches::scripts());
    all.extend(custom::scripts());
    all
}

fn map(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { "k": "v" } })
}

fn crr(name: &str) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest",
        "metadata": { "name": name },
        "spec": { "podName": "p", "containers": [{ "name": "c" }] },
    })
}

/// A Pod that no scheduler binds and no kubelet runs.
fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "schedulerName": "nobody", "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "example.com/i:1" }],
        },
    })
}

/// The same Pod, on a node that does not exist.
fn bound(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = "{ns}".into();
    pod
}

fn book(name: &str) -> Value {
    json!({
        "apiVersion": "pitstop.dev/v1alpha1", "kind": "NodeWork", "metadata": { "name": name },
        "spec": { "orders": [] },
    })
}

fn order(id: &str) -> Value {
    json!({
        "id": id, "pod": { "namespace": "n", "name": "p", "uid": "u" },
        "container": { "name": "c", "id": "0123456789abcdef".repeat(4) }, "action": { "recreate": {} },
    })
}

/// A UID that no object has.
const WRONG: &str = "11111111-2222-3333-4444-555555555555";
