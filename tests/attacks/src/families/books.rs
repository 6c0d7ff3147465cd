//! Order books: all but the answers of the own node, and what else could come in with an answer.

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};

use super::identity::same_answers;
use crate::ask;
use crate::probe::{Expected, granted, policy, refused, rights};
use crate::report::Report;
use crate::stage::{BOOKS, Stage};

const DRY: &str = "?dryRun=All";

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    orders(stage, report).await;
    smuggled(stage, report).await?;
    bounds(stage, report).await?;
    preconditions(stage, report).await
}

/// Every verb of the book itself: orders are the controller's.
async fn orders(stage: &Stage, report: &mut Report) {
    let who = &stage.a().daemon.who;
    for (node, whose) in [(stage.a(), "its own"), (stage.b(), "the other node's")] {
        let path = format!("{BOOKS}/{}", node.name);
        let dry = format!("{path}{DRY}");
        let object = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "NodeWork",
            "metadata": {"name": node.name}, "spec": {"orders": []}});
        let operations = json!([{"op": "replace", "path": "/spec/orders", "value": []}]);
        let apply = format!("{dry}&fieldManager=x&force=true");
        let cases = [
            ("get", ask::get(&path)),
            ("replace", ask::put(&dry, &object)),
            ("delete", ask::plain(&Method::DELETE, &dry)),
            ("JSON-patch", ask::patch(&dry, "json", &operations)),
            ("merge-patch", ask::patch(&dry, "merge", &object)),
            ("strategic-merge-patch", ask::patch(&dry, "strategic-merge", &object)),
            ("apply", ask::patch(&apply, "apply", &object)),
            ("get the status of", ask::get(&format!("{path}/status"))),
            ("JSON-patch the status of", ask::patch(&format!("{path}/status{DRY}"), "json", &operations)),
            ("merge-patch the status of", ask::patch(&format!("{path}/status{DRY}"), "merge", &object)),
            (
                "strategic-merge-patch the status of",
                ask::patch(&format!("{path}/status{DRY}"), "strategic-merge", &object),
            ),
            (
                "apply to the status of",
                ask::patch(&format!("{path}/status{DRY}&fieldManager=x&force=true"), "apply", &object),
            ),
        ];
        for (verb, ask) in cases {
            report.ask(who, &format!("{verb} {whose} NodeWork"), ask, rights()).await;
        }
    }
    let new = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "NodeWork",
        "metadata": {"name": "attacks"}, "spec": {"orders": []}});
    report.ask(who, "create a NodeWork", ask::post(&format!("{BOOKS}{DRY}"), &new), rights()).await;
    // By which the controller sees that the policy acts.
    let mut probe = new.clone();
    probe["metadata"]["name"] = json!("self-check.pitstop.dev");
    let self_check = ask::post(&format!("{BOOKS}{DRY}"), &probe);
    report.ask(&stage.admin, "create the NodeWork that nobody may create", self_check, policy("")).await;
    let delete = ask::plain(&Method::DELETE, &format!("{BOOKS}{DRY}"));
    report.ask(who, "delete all NodeWorks", delete, rights()).await;
    // What it reads for its work, and more than it needs: no right to list or watch can be bound to the token's node.
    let own = format!("{BOOKS}?fieldSelector=metadata.name%3D{}", stage.a().name);
    report.ask(who, "list its own NodeWork", ask::get(&own), granted(200)).await;
    let watch = ask::get(&format!("{own}&watch=true&timeoutSeconds=1"));
    report.ask(who, "watch its own NodeWork", watch, granted(200)).await;
    report.ask(who, "list all NodeWorks: known residual", ask::get(BOOKS), granted(200)).await;
}

/// What an answer is stored with must come from the one who stored the book.
async fn smuggled(stage: &Stage, report: &mut Report) -> Result<()> {
    let node = stage.a();
    let path = format!("{BOOKS}/{}", node.name);
    let order = json!({
        "id": "00000000-0000-0000-0000-000000000000/app/0",
        "pod": {"namespace": "default", "name": "x", "uid": "x"},
        "container": {"name": "app", "id": "0".repeat(64)},
        "action": {"recreate": {}},
    });
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": stage.b().name, "uid": "x"}]);
    let cases: [(&str, &str, Value); 8] = [
        ("another kind", "/kind", json!("ContainerRecreateRequest")),
        ("an order", "/spec/orders", json!([order])),
        ("a label", "/metadata/labels", json!({"attacks": "x"})),
        ("an annotation", "/metadata/annotations", json!({"attacks": "x"})),
        ("a finalizer", "/metadata/finalizers", json!(["attacks.pitstop.dev/x"])),
        ("an owner", "/metadata/ownerReferences", owner),
        ("a generation", "/metadata/generation", json!(4711)),
        ("a time of deletion", "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ];
    for (what, pointer, value) in cases {
        let before = stage.stored(&path).await?;
        let mut object = before.clone();
        put_in(&mut object, pointer, value);
        let write = ask::put(&format!("{path}/status"), &object);
        let what = format!("bring in {what} with an answer");
        report.ask(&node.daemon.who, &what, write, granted(200)).await;
        let after = stage.stored(&path).await?;
        let what = format!("{pointer} of the stored NodeWork after that");
        report.fact("administrator", &what, "unchanged", changes(&before, &after));
    }
    Ok(())
}

/// All but the status, the version, and the notes of who wrote which field.
fn changes(before: &Value, after: &Value) -> &'static str {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(fields) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            fields.remove("resourceVersion");
            fields.remove("managedFields");
        }
        object
    };
    if rest(before) == rest(after) { "unchanged" } else { "CHANGED" }
}

fn put_in(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
}

/// Answers that are too many, too long, or none.
async fn bounds(stage: &Stage, report: &mut Report) -> Result<()> {
    let node = stage.a();
    let path = format!("{BOOKS}/{}/status", node.name);
    let answer = |id: usize| json!({"orderID": format!("{id}/app/0"), "state": "Acknowledged"});
    let with = |key: &str, value: Value| {
        let mut answer = answer(0);
        answer[key] = value;
        json!([answer])
    };
    let cases: [(&str, &str, Value, Expected); 14] = [
        ("65 answers", "/status/answers", (0..65).map(answer).collect(), refused(422, "status.answers")),
        (
            "two answers to one order",
            "/status/answers",
            json!([answer(0), answer(0)]),
            refused(422, "Duplicate value"),
        ),
        (
            "a message of 513 characters",
            "/status/answers",
            with("message", json!("x".repeat(513))),
            refused(422, "status.answers[0].message"),
        ),
        (
            "an order ID of 257 characters",
            "/status/answers",
            with("orderID", json!("x".repeat(257))),
            refused(422, "status.answers[0].orderID"),
        ),
        (
            "an empty order ID",
            "/status/answers",
            with("orderID", json!("")),
            refused(422, "status.answers[0].orderID"),
        ),
        (
            "a state that is none",
            "/status/answers",
            with("state", json!("Stopped")),
            refused(422, "status.answers[0].state"),
        ),
        (
            "a reason that is none",
            "/status/answers",
            with("reason", json!("Because")),
            refused(422, "status.answers[0].reason"),
        ),
        (
            "a negative uptime",
            "/status/answers",
            with("acknowledgedUptimeSeconds", json!(-1)),
            refused(422, "acknowledgedUptimeSeconds"),
        ),
        (
            "a name of 65 characters",
            "/status/answers",
            with("acknowledgedBy", json!("x".repeat(65))),
            refused(422, "acknowledgedBy"),
        ),
        ("answers that are no list", "/status/answers", json!("x"), refused(422, "status.answers")),
        (
            "an answer without a state",
            "/status/answers",
            json!([{"orderID": "x"}]),
            refused(422, "status.answers[0].state"),
        ),
        (
            "a boot of 65 characters",
            "/status/boot",
            json!({"id": "x".repeat(65)}),
            refused(422, "status.boot.id"),
        ),
        (
            "a runtime of 65 characters",
            "/status/runtime",
            json!({"name": "x".repeat(65), "version": "1"}),
            refused(422, "status.runtime.name"),
        ),
        (
            "a negative generation",
            "/status/observedGeneration",
            json!(-1),
            refused(422, "status.observedGeneration"),
        ),
    ];
    for (what, pointer, value, expected) in cases {
        let mut object = stage.stored(&format!("{BOOKS}/{}", node.name)).await?;
        put_in(&mut object, pointer, value);
        let dry = format!("{path}{DRY}");
        report.ask(&node.daemon.who, &format!("answer with {what}"), ask::put(&dry, &object), expected).await;
    }
    unknown(stage, report).await
}

/// What the schema does not know is dropped, and refused where that is asked for; what is too large is not read.
async fn unknown(stage: &Stage, report: &mut Report) -> Result<()> {
    let node = stage.a();
    let path = format!("{BOOKS}/{}/status", node.name);
    let mut object = stage.stored(&format!("{BOOKS}/{}", node.name)).await?;
    object["status"]["attacks"] = json!("x");
    let write = ask::put(&format!("{path}?fieldValidation=Strict&dryRun=All"), &object);
    report
        .ask(&node.daemon.who, "answer with an unknown field, strictly", write, refused(400, "unknown field"))
        .await;
    let answer = report
        .ask(&node.daemon.who, "answer with an unknown field", ask::put(&path, &object), granted(200))
        .await;
    let seen = if answer.json()["status"].get("attacks").is_none() { "dropped" } else { "kept" };
    report.fact("daemon A", "the unknown field in what is stored", "dropped", seen);

    // A little more than the API server reads: were it much, the connection would break before the answer is read.
    let large = json!({"pad": "x".repeat(3 << 20)}).to_string().into_bytes();
    let write = ask::raw(&Method::PUT, &path, "application/json", large);
    report.ask(&node.daemon.who, "answer with more than 3 MiB", write, refused(413, "limit")).await;
    Ok(())
}

/// Writes that speak of something else than what is stored.
async fn preconditions(stage: &Stage, report: &mut Report) -> Result<()> {
    let (node, other) = (stage.a(), stage.b());
    let who = &node.daemon.who;
    let path = format!("{BOOKS}/{}/status", node.name);
    let changed = async |pointer: &str, value: Value| -> Result<ask::Ask> {
        let mut object = stage.stored(&format!("{BOOKS}/{}", node.name)).await?;
        put_in(&mut object, pointer, value);
        Ok(ask::put(&path, &object))
    };
    let cases = [
        (
            "an old resourceVersion",
            changed("/metadata/resourceVersion", json!("1")).await?,
            refused(409, "the object has been modified"),
        ),
        (
            "no resourceVersion",
            changed("/metadata/resourceVersion", json!("")).await?,
            refused(422, "resourceVersion"),
        ),
        (
            "another UID",
            changed("/metadata/uid", json!("00000000-0000-0000-0000-000000000000")).await?,
            refused(409, "UID"),
        ),
        (
            "the other node's name in the object",
            changed("/metadata/name", json!(other.name)).await?,
            refused(400, "does not match the name"),
        ),
        (
            "another version",
            changed("/apiVersion", json!("pitstop.dev/v1")).await?,
            refused(400, "does not match"),
        ),
        ("no JSON", ask::raw(&Method::PUT, &path, "application/json", b"{".to_vec()), refused(400, "")),
        ("an empty body", ask::raw(&Method::PUT, &path, "application/json", Vec::new()), refused(400, "")),
        (
            "a page of HTML",
            ask::raw(&Method::PUT, &path, "text/html", b"x".to_vec()),
            refused(415, "accepted media types"),
        ),
    ];
    for (what, ask, expected) in cases {
        report.ask(who, &format!("answer with {what}"), ask, expected).await;
    }
    let mut ghost = stage.stored(&format!("{BOOKS}/{}", node.name)).await?;
    ghost["metadata"] = json!({"name": "ghost", "resourceVersion": "1"});
    let write = ask::put(&format!("{BOOKS}/ghost/status"), &ghost);
    report.ask(who, "answer for a NodeWork that is not there", write, refused(404, "not found")).await;

    // An object of the other node's under the own name: the name in the path is what counts.
    let mut object = stage.stored(&format!("{BOOKS}/{}", other.name)).await?;
    object["metadata"]["name"] = json!(node.name);
    let write = ask::put(&format!("{BOOKS}/{}/status", other.name), &object);
    let what = "write the other node's status with its own name in the object";
    report.ask(who, what, write, refused(400, "does not match the name")).await;
    let write = ask::header(same_answers(stage, &other.name).await?, "x-http-method-override", "GET");
    let what = "write the other node's status with another method in a header";
    report.ask(who, what, write, policy("may not write")).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_status_and_its_traces_may_change() {
        let before = json!({"metadata": {"resourceVersion": "1", "labels": {}}, "status": {}, "spec": {}});
        let mut after = before.clone();
        after["status"] = json!({"answers": []});
        after["metadata"]["resourceVersion"] = json!("2");
        assert_eq!(changes(&before, &after), "unchanged");
        put_in(&mut after, "/metadata/labels/x", json!("y"));
        assert_eq!(changes(&before, &after), "CHANGED");
    }
}
