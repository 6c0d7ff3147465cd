use serde_json::{Value, json};

use super::{book, bound, crr, map};
use crate::conform::api::Script;

fn labelled(name: &str, labels: Value) -> Value {
    let mut object = crr(name);
    object["metadata"]["labels"] = labels;
    object
}

fn three(name: &str) -> Script {
    Script::new(name)
        .post("crr", labelled("a", json!({ "x": "1", "y": "2" })))
        .post("crr", labelled("b", json!({ "x": "2" })))
        .post("crr", crr("c"))
}

pub(super) fn scripts() -> Vec<Script> {
    let mut selectors = three("label selectors");
    for selector in
        ["x%3D1", "x!%3D1", "x", "!x", "x+in+(1,2),y", "x+notin+(1)", "x%3D%3D2,!y", "x+in+(", "%3D"]
    {
        selectors = selectors.list("crr", &format!("labelSelector={selector}"));
    }
    let mut fields = three("field selectors");
    for selector in [
        "metadata.name%3Db",
        "metadata.name!%3Db",
        "metadata.namespace%3D{ns}",
        "spec.podName%3Dp",
        "spec.podName!%3Dp",
        "spec.nonsense%3Dp",
        "x",
    ] {
        fields = fields.list("crr", &format!("fieldSelector={selector}"));
    }
    vec![
        selectors,
        fields,
        Script::new("field selectors of Pods")
            .post("pod", bound("a"))
            .list("pod", "fieldSelector=spec.nodeName%3D{ns}")
            .list("pod", "fieldSelector=spec.nodeName%3Dother")
            .list("pod", "fieldSelector=status.phase%3DPending,spec.nodeName!%3D")
            .list("pod", "fieldSelector=spec.nonsense%3Dx")
            .list("all:pod", "fieldSelector=metadata.namespace%3D{ns},metadata.name%3Da")
            .delete("pod/a", json!({ "gracePeriodSeconds": 0 })),
        three("pages")
            .list("crr", "limit=2")
            .list("crr", "limit=2&continue={3:/metadata/continue}")
            .list("crr", "limit=3")
            .list("crr", "limit=1&labelSelector=x")
            .list("crr", "limit=2&labelSelector=x")
            .list("crr", "limit=1&continue=nonsense")
            .list("crr", "limit=1&continue={3:/metadata/continue}&resourceVersion=5")
            .list("crr", "limit=nonsense"),
        three("a page is of the version of the first")
            .list("crr", "limit=1")
            .delete("crr/b", json!(null))
            .post("crr", crr("d"))
            .list("crr", "limit=10&continue={3:/metadata/continue}")
            .list("crr", ""),
        three("versions of lists")
            .list("crr", "")
            .list("crr", "resourceVersion=0")
            .list("crr", "resourceVersion=0&limit=1")
            .list("crr", "resourceVersion={1:/metadata/resourceVersion}&resourceVersionMatch=Exact")
            .list("crr", "resourceVersion={1:/metadata/resourceVersion}&resourceVersionMatch=NotOlderThan")
            .list("crr", "resourceVersion={1:/metadata/resourceVersion}")
            .list("crr", "resourceVersion={1:/metadata/resourceVersion}&limit=1")
            .list("crr", "resourceVersion=nonsense")
            .list("crr", "resourceVersion={2:/metadata/resourceVersion+1000000}"),
        three("wrong ways of matching versions")
            .list("crr", "")
            .list("crr", "resourceVersionMatch=Exact")
            .list("crr", "resourceVersion=0&resourceVersionMatch=Exact")
            .list("crr", "resourceVersion=5&resourceVersionMatch=Nonsense")
            .list("crr", "sendInitialEvents=true")
            .list("crr", "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1"),
        Script::new("reads of one")
            .post("cm", map("a"))
            .list("cm", "fieldSelector=metadata.name%3Da")
            .get("cm/a")
            .query("resourceVersion=0")
            .get("cm/a")
            .query("resourceVersion={0:/metadata/resourceVersion}")
            .get("cm/a")
            .query("resourceVersion={0:/metadata/resourceVersion+1000000}")
            .get("cm/a")
            .query("resourceVersion=nonsense")
            .get("cm/none")
            .get("wrong/a")
            .get("wrong"),
        Script::new("only the metadata")
            .post("cm", map("a"))
            .get("cm/a")
            .metadata()
            .list("cm", "fieldSelector=metadata.name%3Da")
            .metadata()
            .merge("cm/a", json!({ "data": { "k": "x" } }))
            .metadata()
            .list("cm", "fieldSelector=metadata.name%3Da")
            .watch("cm", "fieldSelector=metadata.name%3Da")
            .metadata()
            .events(0),
        Script::new("kinds without a namespace")
            .post("nw", book("{id}a"))
            .list("nw", "fieldSelector=metadata.name%3D{id}a")
            .post("nw", {
                let mut placed = book("{id}b");
                placed["metadata"]["namespace"] = "x".into();
                placed
            })
            .get("nw/{id}b")
            .delete("nw/{id}a", json!(null)),
        Script::new("what cannot be done")
            .post("cm/a", map("a"))
            .post("all:cm", map("a"))
            .delete("cm/a/status", json!(null))
            .get("cm/a/status")
            .put("lease/a/status", json!({}))
            .post("cm", json!({}))
            .raw("application/json", "nonsense")
            .post("cm", json!({}))
            .raw("application/json", "[]")
            .post("crr", json!({ "metadata": { "name": "a" } })),
    ]
}
