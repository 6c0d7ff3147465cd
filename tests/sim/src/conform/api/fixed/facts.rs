use serde_json::json;

use super::{WRONG, bound, crr, map};
use crate::conform::api::Script;

pub(super) fn scripts() -> Vec<Script> {
    let answered = json!({ "metadata": { "uid": WRONG }, "status": { "phase": "Pending" } });
    vec![
        Script::new("a wrong uid in a merge patch of a custom status is not looked at")
            .post("crr", crr("a"))
            .merge("crr/a/status", answered)
            .get("crr/a"),
        Script::new("a wrong uid in a PUT of a custom status is a conflict")
            .post("crr", crr("a"))
            .edit(
                "crr/a/status",
                0,
                json!({ "metadata": { "uid": WRONG }, "status": { "phase": "Pending" } }),
            )
            .get("crr/a"),
        Script::new("a wrong uid in a merge patch is invalid")
            .post("crr", crr("a"))
            .merge("crr/a", json!({ "metadata": { "uid": WRONG, "labels": { "a": "b" } } }))
            .post("cm", map("a"))
            .merge("cm/a", json!({ "metadata": { "uid": WRONG } }))
            .get("cm/a"),
        Script::new("a test of a JSON patch that fails is invalid")
            .post("crr", crr("a"))
            .json(
                "crr/a",
                json!([{ "op": "test", "path": "/metadata/uid", "value": WRONG },
                                  { "op": "add", "path": "/metadata/labels", "value": { "a": "b" } }]),
            )
            .json(
                "crr/a",
                json!([{ "op": "test", "path": "/metadata/uid", "value": "{0:/metadata/uid}" },
                                  { "op": "add", "path": "/metadata/labels", "value": { "a": "b" } }]),
            ),
        Script::new("a stale version in a merge patch is a conflict")
            .post("crr", crr("a"))
            .merge("crr/a", json!({ "metadata": { "labels": { "a": "1" } } }))
            .merge(
                "crr/a",
                json!({ "metadata": { "resourceVersion": "{0:/metadata/resourceVersion}",
                                                  "labels": { "a": "2" } } }),
            )
            .merge(
                "crr/a",
                json!({ "metadata": { "resourceVersion": "{1:/metadata/resourceVersion}",
                                                  "labels": { "a": "2" } } }),
            ),
        Script::new("DELETE with a wrong uid is a conflict")
            .post("crr", crr("a"))
            .delete("crr/a", json!({ "preconditions": { "uid": WRONG } }))
            .delete("crr/a", json!({ "preconditions": { "uid": "{0:/metadata/uid}" } }))
            .get("crr/a"),
        Script::new("a wrong uid in a patch of a Pod's status is invalid")
            .post("pod", bound("a"))
            .strategic(
                "pod/a/status",
                json!({ "metadata": { "uid": WRONG }, "status": { "phase": "Running" } }),
            )
            .merge("pod/a/status", json!({ "metadata": { "uid": WRONG }, "status": { "phase": "Running" } }))
            .strategic(
                "pod/a/status",
                json!({ "metadata": { "uid": "{0:/metadata/uid}" },
                                               "status": { "phase": "Running" } }),
            ),
        Script::new("a list that waits for the future is too large").post("cm", map("a")).list(
            "cm",
            "resourceVersionMatch=NotOlderThan&resourceVersion={0:/metadata/resourceVersion+1000000}",
        ),
        Script::new("a create drops the status, an update of the status the spec")
            .post("crr", {
                let mut with = crr("a");
                with["status"] = json!({ "phase": "Completed" });
                with
            })
            .merge(
                "crr/a/status",
                json!({ "spec": { "podName": "q" }, "metadata": { "labels": { "a": "b" } },
                                           "status": { "phase": "Pending" } }),
            )
            .merge(
                "crr/a",
                json!({ "metadata": { "labels": { "a": "b" } }, "status": { "phase": "Completed" } }),
            )
            .get("crr/a"),
    ]
}
