//! What a user can do who has the role `edit` in one namespace: nothing in another one's, and nothing of pitstop's.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use pitstop_e2e::requests::{plain, recreate, with_spec};
use pitstop_e2e::system::{DAEMON, NAMESPACE};
use pitstop_e2e::{SHORT, pods, resizes, until};
use serde_json::{Value, json};

use crate::ask::{self, Ask};
use crate::probe::{Expected, granted, refused, rights, webhook};
use crate::report::Report;
use crate::stage::{BOOKS, POD, Stage, bound_to, on, token_request};
use crate::who::Who;

const USER: &str = "mallory";
const OWN_POD: &str = "own";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let user = sign_up(stage).await?;
    let own = stage.own.start_pod(on(&stage.a().name, pods::app(OWN_POD))).await?;
    let uid = own.metadata.uid.as_deref().context("a Pod without a UID")?;
    let before = state(stage).await?;
    in_other_namespaces(stage, report, &user).await?;
    senseless(stage, report, &user).await;
    forged(stage, report, &user, uid).await?;
    pitstops_own(stage, report, &user).await?;
    as_a_daemon(stage, report, &user).await?;
    let seen = if state(stage).await? == before { "unchanged" } else { "CHANGED" };
    report.fact(
        "administrator",
        "orders of both nodes and containers of the others' Pods after all that",
        "unchanged",
        seen,
    );
    // Last: a resize of the own Pod has an order.
    by_resizes(stage, report, &user).await
}

/// A ServiceAccount with the role `edit` in its namespace.
async fn sign_up(stage: &Stage) -> Result<Who> {
    let ns = &stage.own.name;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": USER}});
    stage.done(ask::post(&format!("/api/v1/namespaces/{ns}/serviceaccounts"), &account)).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "namespace": ns, "name": USER}]});
    stage.done(ask::post(&format!("{RBAC}/namespaces/{ns}/rolebindings"), &binding)).await?;
    let user = stage.nobody.with_token("user", &stage.token(ns, USER, &json!({})).await?);
    until("the user's rights", SHORT, async || {
        let answer = user.send(ask::get(&requests_in("v1alpha1", ns))).await;
        Ok((answer.code == 200).then_some(()))
    })
    .await?;
    Ok(user)
}

fn requests_in(version: &str, namespace: &str) -> String {
    format!("/apis/apps.kruise.io/{version}/namespaces/{namespace}/containerrecreaterequests")
}

/// What no request of the user may change: how often orders were placed, and which containers the others' Pods run.
/// Without an order no daemon calls its runtime.
async fn state(stage: &Stage) -> Result<Vec<Value>> {
    let mut seen = Vec::new();
    for node in &stage.nodes {
        let book = stage.stored(&format!("{BOOKS}/{}", node.name)).await?;
        seen.push(book["metadata"]["generation"].clone());
        let path = format!("/api/v1/namespaces/{}/pods/{}-{POD}", stage.others.name, node.name);
        let pod = stage.stored(&path).await?;
        let containers = pod["status"]["containerStatuses"].as_array().context("a Pod without containers")?;
        ensure!(!containers.is_empty(), "a Pod without containers");
        seen.extend(containers.iter().flat_map(|c| [c["containerID"].clone(), c["restartCount"].clone()]));
    }
    Ok(seen)
}

/// Requests that mean Pods of others.
async fn in_other_namespaces(stage: &Stage, report: &mut Report, user: &Who) -> Result<()> {
    let (own, others) = (&stage.own.name, &stage.others.name);
    let pod = format!("{}-{POD}", stage.b().name);
    let theirs = stage.stored(&format!("/api/v1/namespaces/{others}/pods/{pod}")).await?;
    let uid = theirs["metadata"]["uid"].as_str().context("a Pod without a UID")?;
    for version in ["v1alpha1", "v1beta1"] {
        let in_version = |name: &str, pod: &str| {
            let mut request = recreate(name, pod, &["app"]);
            request["apiVersion"] = json!(format!("apps.kruise.io/{version}"));
            request
        };
        let requests = requests_in(version, others);
        let mut elsewhere = in_version("x", &pod);
        elsewhere["metadata"]["namespace"] = json!(others);
        let cases: [(&str, Ask, Expected); 9] = [
            ("create a request in another namespace", ask::post(&requests, &in_version("x", &pod)), rights()),
            ("list the requests of another namespace", ask::get(&requests), rights()),
            (
                "delete a request of another namespace",
                ask::plain(&Method::DELETE, &format!("{requests}/{pod}")),
                rights(),
            ),
            (
                "write the status of a request of another namespace",
                ask::patch(&format!("{requests}/{pod}/status"), "merge", &json!({})),
                rights(),
            ),
            (
                "name another namespace in the object",
                ask::post(&requests_in(version, own), &elsewhere),
                refused(400, "does not match the namespace"),
            ),
            (
                "name a Pod of another namespace",
                ask::post(&requests_in(version, own), &in_version("x", &pod)),
                webhook("no found Pod named"),
            ),
            (
                "name it with its namespace",
                ask::post(&requests_in(version, own), &in_version("x", &format!("{others}/{pod}"))),
                webhook("no found Pod named"),
            ),
            (
                "name it by a path",
                ask::post(
                    &requests_in(version, own),
                    &in_version("x", &format!("../../{others}/pods/{pod}")),
                ),
                webhook("no found Pod named"),
            ),
            (
                "name it by its UID",
                ask::post(&requests_in(version, own), &in_version("x", uid)),
                webhook("no found Pod named"),
            ),
        ];
        for (what, ask, expected) in cases {
            report.ask(user, &format!("{what}, {version}"), ask, expected).await;
        }
    }
    Ok(())
}

/// Requests about the own Pod that say what no user may say.
async fn senseless(stage: &Stage, report: &mut Report, user: &Who) {
    let requests = requests_in("v1alpha1", &stage.own.name);
    let with = |key: &str, value: Value| {
        let mut spec = plain(OWN_POD, &["app"]);
        spec["containers"][0][key] = value;
        spec
    };
    let id = format!("containerd://{}", "0".repeat(64));
    let many: Vec<String> = (0..10_000).map(|n| format!("c{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let cases = [
        ("the same container twice", plain(OWN_POD, &["app", "app"]), webhook("multi times")),
        (
            "another container's ID",
            with("statusContext", json!({"containerID": id, "restartCount": 0})),
            webhook("statusContext"),
        ),
        ("a preStop command", with("preStop", json!({"exec": {"command": ["id"]}})), webhook("preStop")),
        ("ports for a hook", with("ports", json!([{"containerPort": 10250}])), webhook("ports")),
        (
            "a container that the Pod has not",
            plain(OWN_POD, &["other"]),
            webhook("container other not found"),
        ),
        ("no container", plain(OWN_POD, &[]), webhook("containers")),
        ("no Pod", plain("", &["app"]), webhook("podName")),
        ("10,000 containers", plain(OWN_POD, &many), webhook("spec.containers")),
        (
            "a container's name of a MiB",
            plain(OWN_POD, &["x".repeat(1 << 20).as_str()]),
            webhook("spec.containers[0].name"),
        ),
    ];
    for (what, spec, expected) in cases {
        let what = format!("create a request with {what}");
        report.ask(user, &what, ask::post(&requests, &with_spec("x", &spec)), expected).await;
    }
}

/// Requests that bring what only the controller writes.
async fn forged(stage: &Stage, report: &mut Report, user: &Who, uid: &str) -> Result<()> {
    let requests = requests_in("v1alpha1", &stage.own.name);
    let mut request = recreate("forged", OWN_POD, &["app"]);
    request["status"] = json!({"phase": "Completed", "message": "forged", "completionTime": "2026-01-01T00:00:00Z",
        "containerRecreateStates": [{"name": "app", "phase": "Succeeded"}]});
    request["metadata"]["labels"] = json!({"crr.apps.kruise.io/pod-uid": "forged", "crr.apps.kruise.io/node-name": stage.b().name,
        "crr.apps.kruise.io/active": "forged"});
    request["metadata"]["annotations"] =
        json!({"crr.apps.kruise.io/unready-acquired": "2026-01-01T00:00:00Z"});
    request["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let ask = ask::post(&format!("{requests}?dryRun=All"), &request);
    let answer = report
        .ask(
            user,
            "create a request with a status, labels and annotations of the controller's",
            ask,
            granted(201),
        )
        .await;
    let stored = answer.json();
    let label = |key: &str| {
        stored["metadata"]["labels"][format!("crr.apps.kruise.io/{key}")]
            .as_str()
            .unwrap_or("none")
            .to_owned()
    };
    let fresh = r#"{"observedGeneration":-1}"#;
    report.fact("user", "the status that would be stored", fresh, &stored["status"].to_string());
    let whose = if label("pod-uid") == uid { "the Pod's" } else { "another" };
    report.fact("user", "the label of the Pod's UID that would be stored", "the Pod's", whose);
    report.fact(
        "user",
        "the label of the Pod's node that would be stored",
        &stage.a().name,
        &label("node-name"),
    );
    report.fact("user", "the label active that would be stored", "true", &label("active"));
    let annotation =
        stored["metadata"]["annotations"]["crr.apps.kruise.io/unready-acquired"].as_str().unwrap_or("none");
    report.fact("user", "the annotation of a drain that would be stored", "none", annotation);

    // Rights are judged before anything is looked up.
    for version in ["v1alpha1", "v1beta1"] {
        let one = format!("{}/attacks", requests_in(version, &stage.own.name));
        let change = json!({"status": {"phase": "Completed"}});
        for (verb, ask) in [
            ("merge-patch", ask::patch(&format!("{one}/status"), "merge", &change)),
            ("JSON-patch", ask::patch(&format!("{one}/status"), "json", &json!([]))),
            ("apply to", ask::patch(&format!("{one}/status?fieldManager=x&force=true"), "apply", &change)),
            ("replace", ask::put(&format!("{one}/status"), &change)),
        ] {
            report.ask(user, &format!("{verb} the status of an own request, {version}"), ask, rights()).await;
        }
    }
    Ok(())
}

/// What belongs to pitstop.
async fn pitstops_own(stage: &Stage, report: &mut Report, user: &Who) -> Result<()> {
    let node = stage.b();
    let book = format!("{BOOKS}/{}", node.name);
    let ours = format!("/api/v1/namespaces/{NAMESPACE}");
    let object = stage.stored(&book).await?;
    let empty = json!({});
    let daemon = format!("{ours}/pods/{}", node.daemon.name());
    let cases: [(&str, Ask); 18] = [
        ("get a NodeWork", ask::get(&book)),
        ("list NodeWorks", ask::get(BOOKS)),
        ("watch NodeWorks", ask::get(&format!("{BOOKS}?watch=true&timeoutSeconds=1"))),
        ("create a NodeWork", ask::post(BOOKS, &empty)),
        ("place an order", ask::put(&book, &object)),
        ("place an order by a patch", ask::patch(&book, "merge", &empty)),
        ("delete a NodeWork", ask::plain(&Method::DELETE, &format!("{book}?dryRun=All"))),
        ("answer an order", ask::put(&format!("{book}/status"), &object)),
        ("list pitstop's Pods", ask::get(&format!("{ours}/pods"))),
        ("list pitstop's Secrets", ask::get(&format!("{ours}/secrets"))),
        ("create a Pod in pitstop's namespace", ask::post(&format!("{ours}/pods?dryRun=All"), &empty)),
        ("run a command in a daemon", ask::plain(&Method::POST, &format!("{daemon}/exec?command=id"))),
        ("delete a daemon", ask::plain(&Method::DELETE, &format!("{daemon}?dryRun=All"))),
        (
            "mint a daemon's token",
            token_request(NAMESPACE, DAEMON, &bound_to("Pod", node.daemon.name(), node.daemon.uid())),
        ),
        (
            "change the daemons' policy",
            ask::patch(
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/pitstop-daemon",
                "merge",
                &empty,
            ),
        ),
        (
            "change the webhook's configuration",
            ask::patch(
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/pitstop",
                "merge",
                &empty,
            ),
        ),
        (
            "act as a daemon",
            ask::header(
                ask::get(BOOKS),
                "impersonate-user",
                &format!("system:serviceaccount:{NAMESPACE}:{DAEMON}"),
            ),
        ),
        (
            "act as the other node's kubelet",
            ask::header(ask::get(BOOKS), "impersonate-user", &format!("system:node:{}", node.name)),
        ),
    ];
    for (what, ask) in cases {
        report.ask(user, what, ask, rights()).await;
    }
    Ok(())
}

/// A ServiceAccount and a Pod of the same names in the user's own namespace.
async fn as_a_daemon(stage: &Stage, report: &mut Report, user: &Who) -> Result<()> {
    let (ns, node) = (&stage.own.name, stage.b());
    let base = format!("/api/v1/namespaces/{ns}");
    let mut pod = on(&node.name, pods::pod(node.daemon.name(), &[pods::idle("daemon")]));
    pod["spec"]["serviceAccountName"] = json!(DAEMON);
    let what = "create a Pod with the daemon's ServiceAccount, which is in another namespace";
    let absent = refused(403, "not found");
    report.ask(user, what, ask::post(&format!("{base}/pods"), &pod), absent).await;

    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DAEMON}});
    let what = "create a ServiceAccount of the daemon's name: allowed";
    report.ask(user, what, ask::post(&format!("{base}/serviceaccounts"), &account), granted(201)).await;
    let what = "create a Pod of the daemon's name with it on node B: allowed";
    let made = report.ask(user, what, ask::post(&format!("{base}/pods"), &pod), granted(201)).await.json();
    let uid = made["metadata"]["uid"].as_str().context("a Pod without a UID")?;
    let mint = token_request(ns, DAEMON, &bound_to("Pod", node.daemon.name(), uid));
    let minted = report.ask(user, "mint its token: allowed", mint, granted(201)).await.json();
    let token = minted.pointer("/status/token").and_then(Value::as_str).context("no token")?;
    let impostor = user.with_token("Pod of the same name elsewhere", token);
    let book = format!("{BOOKS}/{}", node.name);
    let write = ask::put(&format!("{book}/status"), &stage.stored(&book).await?);
    report.ask(&impostor, "write the status of node B's NodeWork", write, rights()).await;
    report.ask(&impostor, "list NodeWorks", ask::get(BOOKS), rights()).await;
    Ok(())
}

/// What pitstop may do to a Pod and the role `edit` may not: resize it.
async fn by_resizes(stage: &Stage, report: &mut Report, user: &Who) -> Result<()> {
    let ns = &stage.own.name;
    stage.own.start_pod(on(&stage.a().name, resizes::web())).await?;
    let collection = format!("/apis/pitstop.dev/v1alpha1/namespaces/{ns}/podresizes");
    let dry = format!("{collection}?dryRun=All");
    let amounts = |cpu: &str| json!({"limits": {"cpu": cpu}});
    let more = resizes::resize("more", "app", &amounts("300m"));
    let evict = resizes::with(more.clone(), "onDeferred", &json!({"waitSeconds": 60, "then": "Evict"}));
    let restart = resizes::with(more.clone(), "restart", &json!("Always"));
    let other = resizes::with(more.clone(), "podRef", &json!({"name": "there-is-no-such-pod"}));
    // Somebody with the right made it.
    stage.done(ask::post(&collection, &resizes::resize("theirs", "app", &amounts("250m")))).await?;
    resizes::over(&stage.own, "theirs").await?;
    let theirs = format!("{collection}/theirs");
    let stored = stage.stored(&theirs).await?;
    let mut cancelled = stored.clone();
    cancelled["spec"]["cancel"] = json!(true);
    let apply = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize", "spec": {"ttlSecondsAfterFinished": 1}});
    let by_hand = json!({"spec": {"containers": [{"name": "app", "resources": amounts("300m")}]}});
    let pod = format!("/api/v1/namespaces/{ns}/pods/web");
    let policy = || refused(403, "needs the right to patch pods/resize");
    let cases = [
        (
            "resize the own Pod by hand",
            ask::patch(&format!("{pod}/resize"), "strategic-merge", &by_hand),
            rights(),
        ),
        ("resize it by a PodResize", ask::post(&dry, &more), policy()),
        ("resize it by one that also evicts", ask::post(&dry, &evict), policy()),
        ("resize it by one that also restarts", ask::post(&dry, &restart), policy()),
        ("resize a Pod that is not there", ask::post(&dry, &other), policy()),
        (
            "cancel the PodResize of somebody else",
            ask::put(&format!("{theirs}?dryRun=All"), &cancelled),
            policy(),
        ),
        (
            "change its spec by a patch",
            ask::patch(
                &format!("{theirs}?dryRun=All"),
                "merge",
                &json!({"spec": {"ttlSecondsAfterFinished": 1}}),
            ),
            policy(),
        ),
        (
            "change its spec by apply",
            ask::patch(&format!("{theirs}?dryRun=All&fieldManager=x&force=true"), "apply", &apply),
            policy(),
        ),
        ("write its status", ask::put(&format!("{theirs}/status"), &stored), rights()),
        (
            "label it: allowed",
            ask::patch(
                &format!("{theirs}?dryRun=All"),
                "merge",
                &json!({"metadata": {"labels": {"a": "b"}}}),
            ),
            granted(200),
        ),
        (
            "take the right to resize",
            ask::post(&format!("{RBAC}/namespaces/{ns}/rolebindings"), &binding(ns)),
            rights(),
        ),
    ];
    for (what, ask, expected) in cases {
        report.ask(user, what, ask, expected).await;
    }
    stage.done(ask::post(&format!("{RBAC}/namespaces/{ns}/rolebindings"), &binding(ns))).await?;
    until("the right to resize", SHORT, async || {
        Ok((user.send(ask::post(&dry, &more)).await.code == 201).then_some(()))
    })
    .await?;
    for (what, object) in [("resize", &more), ("resize or evict", &evict), ("resize and restart", &restart)] {
        let what = format!("{what} it by a PodResize, with the role pitstop-resizer: allowed");
        report.ask(user, &what, ask::post(&dry, object), granted(201)).await;
    }
    Ok(())
}

fn binding(ns: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "resizes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pitstop-resizer"},
        "subjects": [{"kind": "ServiceAccount", "namespace": ns, "name": USER}]})
}
