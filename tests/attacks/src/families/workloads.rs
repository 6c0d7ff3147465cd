//! What the controller's token is good for at workloads with the component `in-place`: to release those that are parked, where
//! it was given the right.

use anyhow::{Result, ensure};
use http::Method;
use pitstop_e2e::images::{remove_in_place, remove_parking};
use pitstop_e2e::workloads::{create, merged, park, rollout, workload};
use pitstop_e2e::{Cluster, LONG, Ns, pods, until};
use serde_json::{Value, json};

use crate::ask::{Ask, patch, plain, post};
use crate::probe::{Expected, granted, refused, rights};
use crate::report::Report;
use crate::stage::Stage;

use super::sets;

const NAME: &str = "pitstop-in-place";
const KINDS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];
const PARKED: &str = "pitstop may only change a workload that has the label pitstop.dev/parked";
const METADATA: &str = "pitstop may only remove the label pitstop.dev/parked from a workload";
const SPEC: &str = "pitstop may only change the update strategy of a workload";
const STRATEGY: &str =
    "pitstop may only put back the update strategy that the label pitstop.dev/parked names";

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let (bound, other) =
        (Ns::open(Cluster::connect().await?).await?, Ns::open(Cluster::connect().await?).await?);
    let here = KINDS.map(|kind| (&bound, kind));
    for (ns, kind) in here.into_iter().chain([(&other, "StatefulSet")]) {
        let mut object = workload(kind, 0);
        let (was, spec) = park(kind);
        // It is to have no Pods.
        object["spec"]["template"]["spec"]["nodeSelector"] = json!({"pitstop.dev/none": "none"});
        object["spec"]["template"]["spec"]["initContainers"] = json!([pods::idle("one"), pods::idle("two")]);
        let free = object["spec"].clone();
        object["metadata"]["labels"] = json!({"app": "web", "pitstop.dev/parked": was});
        object["spec"] = merged(free.clone(), &spec);
        stage.done(post(&path(ns, kind, ""), &object)).await?;
        // The same, and nobody has parked it.
        (object["metadata"], object["spec"]) = (json!({"name": "free"}), free);
        stage.done(post(&path(ns, kind, ""), &object)).await?;
    }
    stage.cluster.install_with(&["image-update", "in-place"])?;
    let account = "--serviceaccount=pitstop-system:pitstop-controller";
    bound.kubectl(&["create", "rolebinding", NAME, &format!("--clusterrole={NAME}"), account])?;
    let result = probes(stage, report, &bound, &other).await;
    stage.cluster.install()?;
    remove_in_place(&stage.cluster)?;
    bound.close().await?;
    other.close().await?;
    result
}

pub(super) fn path(ns: &Ns, kind: &str, rest: &str) -> String {
    format!("/apis/apps/v1/namespaces/{}/{}s{rest}", ns.name, kind.to_lowercase())
}

/// A dry run of a change of the workload of that name.
fn change(ns: &Ns, kind: &str, name: &str, body: &Value) -> Ask {
    patch(&path(ns, kind, &format!("/{name}?dryRun=All")), "merge", body)
}

/// What releases a workload of that kind.
fn release(kind: &str) -> Value {
    let spec = match kind {
        "StatefulSet" => json!({"updateStrategy": {"rollingUpdate": {"partition": 0}}}),
        "DaemonSet" => json!({"updateStrategy": {"type": "RollingUpdate"}}),
        _ => json!({"paused": null}),
    };
    json!({"metadata": {"labels": {"pitstop.dev/parked": null}}, "spec": spec})
}

async fn probes(stage: &Stage, report: &mut Report, bound: &Ns, other: &Ns) -> Result<()> {
    let who = &stage.controller.who;
    until("the policy and the right", LONG, async || {
        let free = change(bound, "StatefulSet", "free", &json!({"metadata": {"labels": {"x": "y"}}}));
        let denied = who.send(free).await.message().contains(PARKED);
        let good = change(bound, "StatefulSet", "web", &release("StatefulSet"));
        Ok((denied && who.send(good).await.code == 200).then_some(()))
    })
    .await?;
    let ask = change(other, "StatefulSet", "web", &release("StatefulSet"));
    report.ask(who, "release a workload where nobody has bound the right", ask, rights()).await;
    for kind in KINDS {
        let ask = change(bound, kind, "web", &release(kind));
        report.ask(who, &format!("release a parked {kind}: allowed"), ask, granted(200)).await;
        let ask = change(bound, kind, "free", &release(kind));
        report.ask(who, &format!("release a {kind} that is not parked"), ask, denied(PARKED)).await;
        for (what, body, expected) in forms(kind) {
            let ask = change(bound, kind, "web", &body);
            report.ask(who, &format!("release a {kind} {what}"), ask, expected).await;
        }
        other_ways(stage, report, bound, kind).await;
    }
    rollouts(stage, report, bound).await?;
    sets::run(stage, report, bound).await?;
    stage.cluster.install_with(&["image-update", "in-place", "park"])?;
    let result = unparked(stage, report, bound).await;
    remove_parking(&stage.cluster)?;
    result
}

/// What admission does for the controller, and for nobody else.
async fn unparked(stage: &Stage, report: &mut Report, ns: &Ns) -> Result<()> {
    let (who, admin) = (&stage.controller.who, &stage.admin);
    let label = |value: &str| json!({"metadata": {"labels": {"pitstop.dev/parked": value}}});
    let to = |kind| format!("release-{}", park(kind).0);
    let parked = |object: &Value| object["metadata"]["labels"]["pitstop.dev/parked"].clone();
    until("the policy that releases", LONG, async || {
        let answer = who.send(change(ns, "StatefulSet", "web", &label(&to("StatefulSet")))).await;
        Ok((answer.code == 200).then_some(()))
    })
    .await?;
    for kind in KINDS {
        let body = label(&to(kind));
        let answer = who.send(change(ns, kind, "web", &body)).await.json();
        ensure!(parked(&answer).is_null(), "{kind}: {answer}");
        let spec = &answer["spec"];
        let free = match kind {
            "StatefulSet" => spec["updateStrategy"]["rollingUpdate"]["partition"] == 0,
            "DaemonSet" => spec["updateStrategy"]["type"] == "RollingUpdate",
            _ => spec["paused"].is_null(),
        };
        ensure!(free, "{kind}: its strategy is not what it was: {answer}");
        let ask = change(ns, kind, "web", &body);
        report.ask(who, &format!("have admission release a parked {kind}: allowed"), ask, granted(200)).await;
        let template = json!({"spec": {"minReadySeconds": 7}});
        let ask = change(ns, kind, "web", &merged(body.clone(), &template));
        report.ask(who, &format!("have admission release a {kind} and change more"), ask, denied(SPEC)).await;
        let ask = change(ns, kind, "web", &label("release-1"));
        report
            .ask(who, &format!("have admission release a {kind} to something else"), ask, denied(METADATA))
            .await;
        let ask = change(ns, kind, "free", &body);
        report.ask(who, &format!("have admission release a free {kind}"), ask, denied(PARKED)).await;
        let answer = admin.send(change(ns, kind, "web", &body)).await.json();
        ensure!(parked(&answer) == json!(to(kind)), "{kind}: released for somebody else: {answer}");
    }
    Ok(())
}

pub(super) fn denied(words: &str) -> Expected {
    refused(403, words)
}

/// Other forms of the release.
fn forms(kind: &str) -> Vec<(&'static str, Value, Expected)> {
    let with = |pointer: &str, value: Value| {
        let mut body = release(kind);
        let mut at = &mut body;
        for key in pointer.split('/').skip(1) {
            at = &mut at[key];
        }
        *at = value;
        body
    };
    // With the template of a DaemonSet, the API server changes an annotation.
    let template = if kind == "DaemonSet" { METADATA } else { SPEC };
    let image = json!({"spec": {"containers": [{"name": "app", "image": "evil.example/x"}]}});
    let mut forms = vec![
        ("and change its template", with("/spec/template", image), denied(template)),
        (
            "and change its Pods' labels",
            with("/spec/template", json!({"metadata": {"labels": {"x": "y"}}})),
            denied(template),
        ),
        ("and set another label", with("/metadata/labels/x", json!("y")), denied(METADATA)),
        ("and remove another label", with("/metadata/labels/app", Value::Null), denied(METADATA)),
        ("and annotate it", with("/metadata/annotations", json!({"x": "y"})), denied(METADATA)),
        ("and give it a finalizer", with("/metadata/finalizers", json!(["x.example/y"])), denied(METADATA)),
        ("with the label left", with("/metadata/labels", json!({})), denied(METADATA)),
        // It keeps the strategy that it has, or gets the default one, which is what the label names.
        ("to the default strategy: allowed", with("/spec/updateStrategy", Value::Null), granted(200)),
    ];
    if kind == "Deployment" {
        let recreate = json!({"type": "Recreate", "rollingUpdate": null});
        forms.extend([
            ("and scale it", with("/spec/replicas", json!(7)), denied(SPEC)),
            ("and replace its Pods at once", with("/spec/strategy", recreate), denied(SPEC)),
            ("paused as it is: allowed", with("/spec/paused", json!(true)), granted(200)),
        ]);
    } else if kind == "StatefulSet" {
        forms.extend([
            ("and scale it", with("/spec/replicas", json!(7)), denied(SPEC)),
            (
                "to another partition",
                with("/spec/updateStrategy/rollingUpdate/partition", json!(1)),
                denied(STRATEGY),
            ),
            (
                "to OnDelete",
                with("/spec/updateStrategy", json!({"type": "OnDelete", "rollingUpdate": null})),
                denied(STRATEGY),
            ),
            (
                "with its partition as it is: allowed",
                json!({"metadata": {"labels": {"pitstop.dev/parked": null}}}),
                granted(200),
            ),
        ]);
    } else {
        let most = json!({"maxUnavailable": "100%"});
        forms.push((
            "and let all its Pods be unavailable",
            with("/spec/updateStrategy/rollingUpdate", most),
            denied(STRATEGY),
        ));
    }
    forms
}

/// The one label of a rollout, and all else.
async fn rollouts(stage: &Stage, report: &mut Report, ns: &Ns) -> Result<()> {
    const ONLY: &str = "pitstop may only set and remove the label pitstop.dev/armed of an InPlaceRollout";
    let who = &stage.controller.who;
    create(ns, &rollout("StatefulSet", &json!({"paused": true})))?;
    let collection = format!("/apis/pitstop.dev/v1alpha1/namespaces/{}/inplacerollouts", ns.name);
    let label = |labels: Value| json!({"metadata": {"labels": labels}});
    for (what, body, expected) in [
        ("arm a rollout: allowed", label(json!({"pitstop.dev/armed": "true"})), granted(200)),
        ("set another label of a rollout", label(json!({"x": "y"})), denied(ONLY)),
        ("annotate a rollout", json!({"metadata": {"annotations": {"x": "y"}}}), denied(ONLY)),
        ("let a rollout go on", json!({"spec": {"paused": false}}), denied(ONLY)),
        ("ask a rollout for a restart", json!({"spec": {"restartedAt": "now"}}), denied(ONLY)),
    ] {
        let ask = patch(&format!("{collection}/web?dryRun=All"), "merge", &body);
        report.ask(who, what, ask, expected).await;
    }
    let ask = post(&format!("{collection}?dryRun=All"), &rollout("DaemonSet", &json!({})));
    report.ask(who, "create a rollout", ask, rights()).await;
    let ask = plain(&Method::DELETE, &format!("{collection}/web?dryRun=All"));
    report.ask(who, "delete a rollout", ask, rights()).await;
    Ok(())
}

/// Other ways to a workload.
async fn other_ways(stage: &Stage, report: &mut Report, ns: &Ns, kind: &str) {
    let who = &stage.controller.who;
    let status = json!({"status": {"observedGeneration": 99}});
    let mut again = workload(kind, 0);
    again["metadata"]["name"] = json!("new");
    for (what, ask) in [
        ("create", post(&path(ns, kind, "?dryRun=All"), &again)),
        ("delete", plain(&Method::DELETE, &path(ns, kind, "/web?dryRun=All"))),
        ("write the status of", patch(&path(ns, kind, "/web/status?dryRun=All"), "merge", &status)),
    ] {
        report.ask(who, &format!("{what} a {kind}"), ask, rights()).await;
    }
    if kind != "DaemonSet" {
        let scale = json!({"spec": {"replicas": 0}});
        let ask = patch(&path(ns, kind, "/web/scale?dryRun=All"), "merge", &scale);
        report.ask(who, &format!("scale a {kind} by its subresource"), ask, rights()).await;
    }
}
