//! What the controller's token is good for at `ReplicaSet`s with the component `in-place`: to write what a Deployment's Pods have got
//! into their templates.

use anyhow::{Context as _, Result};
use http::Method;
use pitstop_e2e::{LONG, Ns, until};
use serde_json::{Value, json};

use super::workloads::{denied, path};
use crate::ask::{Ask, patch, plain, post};
use crate::probe::{granted, rights};
use crate::report::Report;
use crate::stage::Stage;

const OWNER: &str = "pitstop may only write ReplicaSets of Deployments";
const NEW: &str = "pitstop may only make a ReplicaSet without Pods, and with a selector of its own";
const TEMPLATE: &str =
    "pitstop may only change images, resources and annotations in the template of a ReplicaSet";
const REPOSITORY: &str = "pitstop may not change the repository of an image";

/// Against the one of the Deployment `free`.
pub(super) async fn run(stage: &Stage, report: &mut Report, ns: &Ns) -> Result<()> {
    let set = until("the ReplicaSet of the Deployment", LONG, async || {
        let all: Value = serde_json::from_str(&ns.kubectl(&["get", "replicasets", "-o", "json"])?)?;
        Ok(all["items"].get(0).cloned())
    })
    .await?;
    let name = set["metadata"]["name"].as_str().context("no name")?;
    let who = &stage.controller.who;
    let dry = path(ns, "ReplicaSet", &format!("/{name}?dryRun=All"));
    let change = || patch(&dry, "merge", &json!({"metadata": {"annotations": {"x": "y"}}}));
    let here = "pitstop may only write ReplicaSets in namespaces with the label";
    report.ask(who, "change a ReplicaSet where nobody has opted in", change(), denied(here)).await;
    ns.cluster.kubectl(&["label", "namespace", &ns.name, "pitstop.dev/in-place=enabled"])?;
    until("the policy to see the label", LONG, async || {
        Ok((who.send(change()).await.code == 200).then_some(()))
    })
    .await?;
    for (what, body, expected) in changes(&set) {
        let ask = patch(&dry, "json", &body);
        report.ask(who, &format!("change a ReplicaSet: {what}"), ask, expected).await;
    }
    for (what, object, expected) in creations(&set) {
        let ask = post(&path(ns, "ReplicaSet", "?dryRun=All"), &object);
        report.ask(who, &format!("make a ReplicaSet {what}"), ask, expected).await;
    }
    let scale = json!({"spec": {"replicas": 7}});
    let other_ways: [(&str, Ask); 3] = [
        ("delete", plain(&Method::DELETE, &dry)),
        ("scale", patch(&path(ns, "ReplicaSet", &format!("/{name}/scale?dryRun=All")), "merge", &scale)),
        (
            "write the status of",
            patch(
                &path(ns, "ReplicaSet", &format!("/{name}/status?dryRun=All")),
                "merge",
                &json!({"status": {"replicas": 7}}),
            ),
        ),
    ];
    for (what, ask) in other_ways {
        report.ask(who, &format!("{what} a ReplicaSet"), ask, rights()).await;
    }
    Ok(())
}

type Forms = Vec<(&'static str, Value, crate::probe::Expected)>;

fn changes(set: &Value) -> Forms {
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let image = "/spec/template/spec/containers/0/image";
    let own = set.pointer(image).and_then(Value::as_str).unwrap_or_default();
    let repository = own.rsplit_once(':').map_or(own, |(repository, _)| repository);
    let container = |field: &str| format!("/spec/template/spec/containers/0/{field}");
    vec![
        ("another tag: allowed", add(image, json!(format!("{repository}:other"))), granted(200)),
        ("resources: allowed", add(&container("resources"), json!({"limits": {"cpu": "1"}})), granted(200)),
        (
            "annotations of the template: allowed",
            add("/spec/template/metadata/annotations", json!({"x": "y"})),
            granted(200),
        ),
        ("its annotations: allowed", add("/metadata/annotations", json!({"x": "y"})), granted(200)),
        ("another repository", add(image, json!("evil.example/x:1")), denied(REPOSITORY)),
        (
            "a repository behind a digest",
            add(image, json!(format!("{own}@evil.example/x"))),
            denied(REPOSITORY),
        ),
        ("its replicas", add("/spec/replicas", json!(7)), denied(TEMPLATE)),
        ("its labels", add("/metadata/labels/x", json!("y")), denied(TEMPLATE)),
        ("its owner", add("/metadata/ownerReferences", json!([])), denied(OWNER)),
        ("its finalizers", add("/metadata/finalizers", json!(["x.example/y"])), denied(OWNER)),
        ("its Pods' labels", add("/spec/template/metadata/labels/x", json!("y")), denied(TEMPLATE)),
        ("a command", add(&container("command"), json!(["evil"])), denied(TEMPLATE)),
        ("an environment", add(&container("env"), json!([{"name": "A", "value": "b"}])), denied(TEMPLATE)),
        (
            "a privileged one",
            add(&container("securityContext"), json!({"privileged": true})),
            denied(TEMPLATE),
        ),
        (
            "a further container",
            add("/spec/template/spec/containers/-", json!({"name": "evil", "image": own})),
            denied(TEMPLATE),
        ),
        (
            "a container that is no init container any more",
            json!([{"op": "move", "from": "/spec/template/spec/initContainers/0",
                "path": "/spec/template/spec/containers/-"}]),
            denied(TEMPLATE),
        ),
        (
            "the image of an init container",
            add("/spec/template/spec/initContainers/0/image", json!(format!("{repository}:other"))),
            denied(TEMPLATE),
        ),
        ("the network of its node", add("/spec/template/spec/hostNetwork", json!(true)), denied(TEMPLATE)),
        ("another account", add("/spec/template/spec/serviceAccountName", json!("evil")), denied(TEMPLATE)),
    ]
}

fn creations(set: &Value) -> Forms {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut new = set.clone();
        let hash = json!("pitstop-0123456789");
        new["metadata"] = json!({"name": "free-pitstop-0123456789", "labels": set["metadata"]["labels"],
            "ownerReferences": set["metadata"]["ownerReferences"]});
        new["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(false);
        new["spec"]["replicas"] = json!(0);
        new["spec"]["selector"]["matchLabels"]["pod-template-hash"] = hash.clone();
        new["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = hash;
        new["status"] = Value::Null;
        change(&mut new);
        new
    };
    let hash = &set["spec"]["selector"]["matchLabels"]["pod-template-hash"];
    vec![
        ("without Pods: allowed", with(&|_| {}), granted(201)),
        ("with Pods", with(&|new| new["spec"]["replicas"] = json!(1)), denied(NEW)),
        ("of nobody", with(&|new| new["metadata"]["ownerReferences"] = json!([])), denied(OWNER)),
        (
            "of a Pod",
            with(&|new| {
                new["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "x",
                    "uid": "x", "controller": true}]);
            }),
            denied(OWNER),
        ),
        (
            "that selects the Pods of another",
            with(&|new| {
                new["spec"]["selector"]["matchLabels"]["pod-template-hash"] = hash.clone();
                new["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = hash.clone();
            }),
            denied(NEW),
        ),
        (
            "that selects Pods of all",
            with(&|new| {
                new["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
            }),
            denied(NEW),
        ),
        (
            "with a finalizer",
            with(&|new| new["metadata"]["finalizers"] = json!(["x.example/y"])),
            denied(OWNER),
        ),
    ]
}
