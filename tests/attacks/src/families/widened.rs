//! A daemon that somebody made cluster-admin: the policy still lets it write nothing but its own answers.

use anyhow::Result;
use http::Method;
use pitstop_e2e::requests::recreate;
use pitstop_e2e::system::{CONTROLLER, DAEMON, NAMESPACE, WEBHOOK};
use pitstop_e2e::{SHORT, pods, until};
use serde_json::{Value, json};

use super::identity::same_answers;
use crate::ask::{Ask, get, patch, plain, post};
use crate::probe::{granted, policy};
use crate::report::Report;
use crate::stage::{BOOKS, POD, Stage, token_request};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const NAME: &str = "attacks-widened";

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": DAEMON}]});
    stage.done(post(BINDINGS, &binding)).await?;
    let result = widened(stage, report).await;
    stage.done(plain(&Method::DELETE, &format!("{BINDINGS}/{NAME}"))).await?;
    result
}

async fn widened(stage: &Stage, report: &mut Report) -> Result<()> {
    let who = &stage.a().daemon.who;
    until("the daemon to be cluster-admin", SHORT, async || {
        Ok((who.send(get("/api/v1/nodes")).await.code == 200).then_some(()))
    })
    .await?;
    let (own, other) =
        (same_answers(stage, &stage.a().name).await?, same_answers(stage, &stage.b().name).await?);
    report.ask(who, "write its own NodeWork's status", own, granted(200)).await;
    report.ask(who, "write the other node's NodeWork's status", other, policy("may not write")).await;
    for (what, ask) in books(stage).into_iter().chain(pods_and_nodes(stage)).chain(powers()) {
        report.ask(who, what, ask, policy("may update the status of NodeWorks, not ")).await;
    }
    for (what, ask, code) in residual(stage) {
        report.ask(who, &format!("{what}: known residual of such a mistake"), ask, granted(code)).await;
    }
    Ok(())
}

type Try = (&'static str, Ask);

fn dry(path: &str) -> String {
    format!("{path}?dryRun=All")
}

fn delete(path: &str) -> Ask {
    plain(&Method::DELETE, &dry(path))
}

fn label(path: &str) -> Ask {
    patch(&dry(path), "merge", &json!({"metadata": {"labels": {"attacks": "x"}}}))
}

/// Creates an object that is complete: what is not would be refused before admission is asked.
fn make(path: &str, api: &str, kind: &str, rest: &Value) -> Ask {
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "attacks"}});
    object.as_object_mut().unwrap().extend(rest.as_object().cloned().unwrap_or_default());
    post(&dry(path), &object)
}

fn books(stage: &Stage) -> Vec<Try> {
    let own = format!("{BOOKS}/{}", stage.a().name);
    let pod = format!("{}-{POD}", stage.b().name);
    let requests =
        format!("/apis/apps.kruise.io/v1alpha1/namespaces/{}/containerrecreaterequests", stage.others.name);
    vec![
        ("change its own NodeWork", label(&own)),
        ("delete its own NodeWork", delete(&own)),
        ("create a NodeWork", make(BOOKS, "pitstop.dev/v1alpha1", "NodeWork", &json!({"spec": {}}))),
        ("delete all NodeWorks", delete(BOOKS)),
        ("create a request", post(&dry(&requests), &recreate("attacks", &pod, &["app"]))),
        ("delete a request", delete(&format!("{requests}/{pod}"))),
    ]
}

fn pods_and_nodes(stage: &Stage) -> Vec<Try> {
    let node = format!("/api/v1/nodes/{}", stage.b().name);
    let collection = format!("/api/v1/namespaces/{}/pods", stage.others.name);
    let name = format!("{}-{POD}", stage.b().name);
    let pod = format!("{collection}/{name}");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    vec![
        ("create a Pod", post(&dry(&collection), &pods::pod("attacks", &[pods::idle("app")]))),
        ("label a Pod", label(&pod)),
        ("resize a Pod", label(&format!("{pod}/resize"))),
        ("give a Pod an ephemeral container", label(&format!("{pod}/ephemeralcontainers"))),
        ("delete a Pod", delete(&pod)),
        ("evict a Pod", post(&dry(&format!("{pod}/eviction")), &eviction)),
        ("run a command in a Pod", get(&format!("{pod}/exec?container=app&command=id&stdout=true"))),
        ("reach a port of a Pod", get(&format!("{pod}/portforward?ports=8080"))),
        ("reach the other kubelet through the API server", get(&format!("{node}/proxy/pods"))),
        ("label the other node", label(&node)),
        ("delete the other node", delete(&node)),
    ]
}

fn powers() -> Vec<Try> {
    let ours = format!("/api/v1/namespaces/{NAMESPACE}");
    let rbac = "rbac.authorization.k8s.io/v1";
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let everything = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let grant = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": DAEMON}]});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let empty = json!({});
    vec![
        ("create a Secret", make(&format!("{ours}/secrets"), "v1", "Secret", &empty)),
        ("create a ConfigMap", make(&format!("{ours}/configmaps"), "v1", "ConfigMap", &empty)),
        ("create a namespace", make("/api/v1/namespaces", "v1", "Namespace", &empty)),
        ("mint an unbound token of its account", token_request(NAMESPACE, DAEMON, &empty)),
        ("mint a token of the controller's account", token_request(NAMESPACE, CONTROLLER, &empty)),
        ("create a ClusterRole", make(roles, rbac, "ClusterRole", &everything)),
        ("create a ClusterRoleBinding", make(BINDINGS, rbac, "ClusterRoleBinding", &grant)),
        ("delete the definition of NodeWork", delete(&format!("{definitions}/nodeworks.pitstop.dev"))),
        ("delete the webhook's configuration", delete(&format!("{webhooks}/{WEBHOOK}"))),
    ]
}

/// Admission is not asked about its own objects, so that nobody can lock everybody out, and about no read. The policy does not
/// look at what clusters write most.
fn residual(stage: &Stage) -> Vec<(&'static str, Ask, u16)> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let namespace = &stage.others.name;
    let pod = format!("/api/v1/namespaces/{namespace}/pods/{}-{POD}", stage.b().name);
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    vec![
        ("change the status of a Pod", label(&format!("{pod}/status")), 200),
        (
            "change the status of the other node",
            label(&format!("/api/v1/nodes/{}/status", stage.b().name)),
            200,
        ),
        ("create a Lease", make(&leases, "coordination.k8s.io/v1", "Lease", &json!({})), 201),
        ("delete the policy itself", delete(&format!("{group}/validatingadmissionpolicies/{DAEMON}")), 200),
        (
            "delete the policy's binding",
            delete(&format!("{group}/validatingadmissionpolicybindings/{DAEMON}")),
            200,
        ),
        ("list all Secrets", get("/api/v1/secrets"), 200),
    ]
}
