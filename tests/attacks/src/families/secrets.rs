//! What is worth most in the cluster, by name, so that a right bound to a name shows too.

use anyhow::Result;
use http::Method;
use pitstop_e2e::system::{CONTROLLER, DAEMON, NAMESPACE, WEBHOOK};
use serde_json::{Value, json};

use crate::ask::{Ask, get, patch, plain, post, put};
use crate::probe::rights;
use crate::report::Report;
use crate::stage::{BOOKS, Node, POD, Stage, bound_to, token_request};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const CERTIFICATES: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let daemon = &stage.a().daemon.who;
    for (what, ask) in [credentials(stage), powers(), things(stage)].into_iter().flatten() {
        report.ask(daemon, what, ask, rights()).await;
    }
    for (node, which) in [(stage.a(), "its own node"), (stage.b(), "the other node")] {
        for (what, ask) in pods_on(stage, node) {
            report.ask(daemon, &format!("{what} on {which}"), ask, rights()).await;
        }
    }
    report.ask(daemon, "list all Pods", get("/api/v1/pods"), rights()).await;
    // Whose node a replica of the controller runs on, has its token too.
    for (what, ask) in of_the_controller(stage) {
        report.ask(&stage.controller.who, what, ask, rights()).await;
    }
    Ok(())
}

type Try = (&'static str, Ask);

fn dry(path: &str) -> String {
    format!("{path}?dryRun=All")
}

fn make(path: &str, object: &Value) -> Ask {
    post(&dry(path), object)
}

fn change(path: &str, change: &Value) -> Ask {
    patch(&dry(path), "merge", change)
}

fn delete(path: &str) -> Ask {
    plain(&Method::DELETE, &dry(path))
}

/// What gives more access: keys, tokens, certificates, leases.
fn credentials(stage: &Stage) -> Vec<Try> {
    let b = stage.b();
    let ours = format!("/api/v1/namespaces/{NAMESPACE}");
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{CONTROLLER}");
    let beat = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", b.name);
    let holder = json!({"spec": {"holderIdentity": "x"}});
    let token = &stage.a().daemon.token;
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let may = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let csr = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "attacks"}, "spec": {"request": "", "signerName": signer, "usages": ["client auth"]}});
    let mint = |account: &str, spec: &Value| token_request(NAMESPACE, account, spec);
    let of_b = bound_to("Pod", b.daemon.name(), b.daemon.uid());
    let empty = json!({});
    vec![
        ("get the Secret of the webhook's key", get(&format!("{ours}/secrets/pitstop-webhook-cert"))),
        ("list the Secrets of pitstop's namespace", get(&format!("{ours}/secrets"))),
        ("list all Secrets", get("/api/v1/secrets")),
        ("watch all Secrets", get("/api/v1/secrets?watch=true&timeoutSeconds=1")),
        ("create a Secret", make(&format!("{ours}/secrets"), &empty)),
        ("get the ConfigMap of the cluster's CA", get(&format!("{ours}/configmaps/kube-root-ca.crt"))),
        ("list all ConfigMaps", get("/api/v1/configmaps")),
        ("mint an unbound token of its account", mint(DAEMON, &empty)),
        ("mint a token of daemon B's Pod", mint(DAEMON, &of_b)),
        ("mint a token of the controller's account", mint(CONTROLLER, &empty)),
        ("get the controller's ServiceAccount", get(&format!("{ours}/serviceaccounts/{CONTROLLER}"))),
        ("get the controllers' lease", get(&lease)),
        ("take over the controllers' lease", change(&lease, &holder)),
        ("renew the other node's heartbeat", change(&beat, &holder)),
        ("ask for a client certificate", make(CERTIFICATES, &csr)),
        ("approve a client certificate", put(&dry(&format!("{CERTIFICATES}/attacks/approval")), &csr)),
        ("write a client certificate", put(&dry(&format!("{CERTIFICATES}/attacks/status")), &csr)),
        ("have a token reviewed", post("/apis/authentication.k8s.io/v1/tokenreviews", &review)),
        ("ask what others may do", post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &may)),
    ]
}

/// What says who may do what, and which kinds there are.
fn powers() -> Vec<Try> {
    let policy = format!("{ADMISSION}/validatingadmissionpolicies/{DAEMON}");
    let binding = format!("{ADMISSION}/validatingadmissionpolicybindings/{DAEMON}");
    let mutating = format!("{ADMISSION}/mutatingwebhookconfigurations");
    let webhook = format!("{mutating}/{WEBHOOK}");
    let role = format!("{RBAC}/clusterroles/{DAEMON}");
    let books = format!("{DEFINITIONS}/nodeworks.pitstop.dev");
    let requests = format!("{DEFINITIONS}/containerrecreaterequests.apps.kruise.io");
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let empty = json!({});
    vec![
        ("make itself cluster-admin", make(&format!("{RBAC}/clusterrolebindings"), &empty)),
        (
            "bind a Role in its namespace",
            make(&format!("{RBAC}/namespaces/{NAMESPACE}/rolebindings"), &empty),
        ),
        ("get its own ClusterRole", get(&role)),
        ("widen its own ClusterRole", change(&role, &json!({"rules": []}))),
        ("list ClusterRoleBindings", get(&format!("{RBAC}/clusterrolebindings"))),
        ("delete the policy that binds it", delete(&policy)),
        ("change the policy that binds it", change(&policy, &json!({"spec": {"failurePolicy": "Ignore"}}))),
        ("delete the policy's binding", delete(&binding)),
        ("make the binding warn only", change(&binding, &json!({"spec": {"validationActions": ["Warn"]}}))),
        ("get the webhook's configuration", get(&webhook)),
        ("replace the webhook's CA", change(&webhook, &json!({"webhooks": []}))),
        ("register a webhook", make(&mutating, &empty)),
        (
            "register a validating webhook",
            make(&format!("{ADMISSION}/validatingwebhookconfigurations"), &empty),
        ),
        ("delete the definition of NodeWork", delete(&books)),
        ("change the definition of NodeWork", change(&books, &empty)),
        ("delete the definition of requests", delete(&requests)),
        ("register an APIService", make(services, &empty)),
        ("delete the APIService of NodeWork", delete(&format!("{services}/v1alpha1.pitstop.dev"))),
    ]
}

/// Nodes, namespaces, volumes, workloads.
fn things(stage: &Stage) -> Vec<Try> {
    let (a, b) = (stage.a(), stage.b());
    let ours = format!("/api/v1/namespaces/{NAMESPACE}");
    let apps = format!("/apis/apps/v1/namespaces/{NAMESPACE}");
    let (own, other) = (format!("/api/v1/nodes/{}", a.name), format!("/api/v1/nodes/{}", b.name));
    let events = format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
    let run = format!("{other}/proxy/run/x/x/x?cmd=id");
    let empty = json!({});
    vec![
        ("write an Event", make(&format!("{ours}/events"), &empty)),
        ("write an Event of the newer kind", make(&events, &empty)),
        ("delete pitstop's namespace", delete(&ours)),
        ("drop the labels of pitstop's namespace", change(&ours, &json!({"metadata": {"labels": {}}}))),
        ("list namespaces", get("/api/v1/namespaces")),
        ("list nodes", get("/api/v1/nodes")),
        ("get the own node", get(&own)),
        ("get the other node", get(&other)),
        ("cordon the other node", change(&other, &json!({"spec": {"unschedulable": true}}))),
        ("label the own node", change(&own, &json!({"metadata": {"labels": {"x": "y"}}}))),
        ("write the other node's status", change(&format!("{other}/status"), &json!({"status": {}}))),
        ("delete the other node", delete(&other)),
        ("the own kubelet's Pods through the API server", get(&format!("{own}/proxy/pods"))),
        ("the other kubelet's Pods through the API server", get(&format!("{other}/proxy/pods"))),
        ("run a command through the other kubelet", plain(&Method::POST, &run)),
        ("list PersistentVolumes", get("/api/v1/persistentvolumes")),
        ("create a PersistentVolume of the host", make("/api/v1/persistentvolumes", &empty)),
        ("take the daemons away", change(&format!("{apps}/daemonsets/{DAEMON}"), &empty)),
        ("change the controller's image", change(&format!("{apps}/deployments/{CONTROLLER}"), &empty)),
        ("delete the other node's NodeWork", delete(&format!("{BOOKS}/{}", b.name))),
    ]
}

/// A Pod of others.
fn pods_on(stage: &Stage, node: &Node) -> Vec<Try> {
    let collection = format!("/api/v1/namespaces/{}/pods", stage.others.name);
    let pod = format!("{collection}/{}-{POD}", node.name);
    let sub = |name: &str| format!("{pod}/{name}");
    let connect = |sub: &str| plain(&Method::POST, &format!("{pod}/{sub}"));
    let strategic = |path: &str, change: &Value| patch(&dry(path), "strategic-merge", change);
    let of_node = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", node.name);
    let empty = json!({});
    let spec = json!({"spec": {}});
    vec![
        ("list the Pods", get(&of_node)),
        ("get a Pod", get(&pod)),
        ("delete a Pod", delete(&pod)),
        ("create a Pod", make(&collection, &empty)),
        ("change the image of a Pod", strategic(&pod, &spec)),
        ("write the status of a Pod", strategic(&sub("status"), &json!({"status": {}}))),
        ("resize a Pod", strategic(&sub("resize"), &spec)),
        ("run a command in a Pod", connect("exec?command=id&stdout=true")),
        ("run a command in a Pod, as a browser would", get(&sub("exec?command=id&stdout=true"))),
        ("attach to a Pod", connect("attach?stdout=true")),
        ("reach a port of a Pod", connect("portforward?ports=8080")),
        ("read the log of a Pod", get(&sub("log"))),
        ("evict a Pod", make(&sub("eviction"), &empty)),
        ("bind a Pod", make(&sub("binding"), &empty)),
        ("add a debugging container to a Pod", strategic(&sub("ephemeralcontainers"), &spec)),
    ]
}

/// What the controller's own token does not give: it places orders, and neither answers them nor reaches into Pods.
fn of_the_controller(stage: &Stage) -> Vec<Try> {
    let node = stage.b();
    let ours = format!("/api/v1/namespaces/{NAMESPACE}");
    let collection = format!("/api/v1/namespaces/{}/pods", stage.others.name);
    let pod = format!("{collection}/{}-{POD}", node.name);
    let apps = format!("/apis/apps/v1/namespaces/{}", stage.others.name);
    let rollouts = format!("/apis/pitstop.dev/v1alpha1/namespaces/{}/inplacerollouts", stage.others.name);
    let book = format!("{BOOKS}/{}", node.name);
    let another = format!("{ADMISSION}/mutatingwebhookconfigurations/attacks");
    let empty: Value = json!({});
    vec![
        ("write the status of a NodeWork", put(&dry(&format!("{book}/status")), &empty)),
        ("delete a NodeWork", delete(&book)),
        ("list all Secrets", get("/api/v1/secrets")),
        ("get another Secret of its namespace", get(&format!("{ours}/secrets/attacks"))),
        ("list the Secrets of its namespace", get(&format!("{ours}/secrets"))),
        ("mint a token of a daemon", token_request(NAMESPACE, DAEMON, &empty)),
        ("create a Pod", make(&collection, &empty)),
        ("delete a Pod", delete(&pod)),
        ("evict a Pod", make(&format!("{pod}/eviction"), &empty)),
        ("change a workload", change(&format!("{apps}/deployments/attacks"), &empty)),
        ("scale a workload", change(&format!("{apps}/deployments/attacks/scale"), &empty)),
        ("change a ReplicaSet", change(&format!("{apps}/replicasets/attacks"), &empty)),
        ("create an InPlaceRollout", make(&rollouts, &empty)),
        ("change the spec of an InPlaceRollout", change(&format!("{rollouts}/attacks"), &empty)),
        ("run a command in a Pod", plain(&Method::POST, &format!("{pod}/exec?command=id&stdout=true"))),
        ("read the log of a Pod", get(&format!("{pod}/log"))),
        ("make itself cluster-admin", make(&format!("{RBAC}/clusterrolebindings"), &empty)),
        ("delete the daemons' policy", delete(&format!("{ADMISSION}/validatingadmissionpolicies/{DAEMON}"))),
        ("change another webhook's configuration", change(&another, &empty)),
        ("reach a kubelet through the API server", get(&format!("/api/v1/nodes/{}/proxy/pods", node.name))),
    ]
}
