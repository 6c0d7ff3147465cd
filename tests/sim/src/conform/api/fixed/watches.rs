use serde_json::{Value, json};

use super::{crr, map};
use crate::conform::api::Script;

fn labelled(name: &str, value: &str) -> Value {
    let mut object = crr(name);
    object["metadata"]["labels"] = json!({ "x": value });
    object
}

pub(super) fn scripts() -> Vec<Script> {
    let streamed = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    vec![
        Script::new("a watch begins with what is there")
            .post("crr", crr("b"))
            .post("crr", crr("a"))
            .list("crr", "")
            .watch("crr", "")
            .watch("crr", "resourceVersion=0")
            .watch("crr", "resourceVersion={0:/metadata/resourceVersion}")
            .merge("crr/a", json!({ "metadata": { "labels": { "x": "1" } } }))
            .delete("crr/b", json!(null))
            .events(0)
            .events(1)
            .events(2),
        Script::new("a watch from an old version sees all since")
            .post("crr", crr("a"))
            .merge("crr/a", json!({ "metadata": { "labels": { "x": "1" } } }))
            .merge("crr/a", json!({ "metadata": { "labels": { "x": "1" } } }))
            .merge("crr/a/status", json!({ "status": { "phase": "Pending" } }))
            .delete("crr/a", json!(null))
            .post("crr", crr("a"))
            .watch("crr", "resourceVersion={0:/metadata/resourceVersion}")
            .watch("crrb", "resourceVersion={0:/metadata/resourceVersion}&fieldSelector=metadata.name%3Da")
            .events(0)
            .events(1),
        Script::new("objects come into a selection and leave it")
            .post("crr", labelled("a", "1"))
            .list("crr", "")
            .watch("crr", "labelSelector=x%3D2&resourceVersion={0:/metadata/resourceVersion}")
            .watch("crr", "labelSelector=x%3D1")
            .merge("crr/a", json!({ "metadata": { "labels": { "x": "2" } } }))
            .merge("crr/a", json!({ "metadata": { "annotations": { "y": "2" } } }))
            .merge("crr/a", json!({ "metadata": { "labels": { "x": "3" } } }))
            .merge("crr/a", json!({ "metadata": { "labels": { "x": "2" } } }))
            .delete("crr/a", json!(null))
            .events(0)
            .events(1),
        Script::new("a streamed list ends with a bookmark")
            .post("crr", crr("b"))
            .post("crr", crr("a"))
            .watch("crr", streamed)
            .watch("crr", &format!("{streamed}&resourceVersion={{0:/metadata/resourceVersion}}"))
            .watch("crr", &format!("{streamed}&resourceVersion=0&labelSelector=none"))
            .events(0)
            .post("crr", crr("c"))
            .events(0)
            .events(1)
            .events(2),
        Script::new("a streamed list without bookmarks, and one without the state")
            .post("cm", map("a"))
            .watch("cm", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Da")
            .watch("cm", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Da")
            .watch("cm", "sendInitialEvents=true&fieldSelector=metadata.name%3Da")
            .watch("cm", "resourceVersionMatch=NotOlderThan&resourceVersion=0&fieldSelector=metadata.name%3Da")
            .watch("cm", "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1&fieldSelector=metadata.name%3Da")
            .merge("cm/a", json!({ "data": { "k": "w" } }))
            .events(0)
            .events(1)
            .delete("cm/a", json!(null))
            .events(0),
        Script::new("a watch of the future is silent until then, a streamed list is refused")
            .post("crr", crr("a"))
            .watch("crr", "resourceVersion={0:/metadata/resourceVersion+1000000}")
            .watch("crr", &format!("{streamed}&resourceVersion={{0:/metadata/resourceVersion+1000000}}"))
            .merge("crr/a", json!({ "metadata": { "labels": { "x": "1" } } }))
            .events(0)
            .events(1),
        Script::new("a watch from before all history is expired")
            .post("crr", crr("a"))
            .watch("crr", "resourceVersion=1")
            .events(0),
        Script::new("wrong watches")
            .watch("crr", "resourceVersion=nonsense")
            .watch("crr", "labelSelector=%3D")
            .watch("crr", "fieldSelector=spec.nonsense%3Dx")
            .watch("wrong", ""),
    ]
}
