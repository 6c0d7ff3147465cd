//! What the controller's token is good for at Pods with the component `image-puller`: to make Pods in the one form that pulls
//! images and runs nothing, and to delete these.

use anyhow::Result;
use http::Method;
use pitstop_e2e::images::{REPOSITORY, opt_in, update};
use pitstop_e2e::{Cluster, LONG, Ns, pods, until};
use serde_json::{Value, json};

use crate::ask::{Ask, patch, plain, post};
use crate::probe::{Expected, granted, refused, rights};
use crate::report::Report;
use crate::stage::{Stage, on};

const COMPONENT: &str = "image-puller";
const NAME: &str = "pitstop-controller-pullers";

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let (opted, other) =
        (Ns::open(Cluster::connect().await?).await?, Ns::open(Cluster::connect().await?).await?);
    opt_in(&stage.cluster, &opted.name)?;
    opted.start_pod(on(&stage.b().name, pods::pod("web", &[pods::idle("app")]))).await?;
    let ask = create(&opted, &puller(stage));
    report.ask(&stage.controller.who, "create a Pod that pulls, without the component", ask, rights()).await;
    stage.cluster.install_with(&[COMPONENT])?;
    let result = with_component(stage, report, &opted, &other).await;
    stage.cluster.install()?;
    // The policy last: what it narrows is gone by then.
    for kind in
        ["clusterrolebinding", "clusterrole", "validatingadmissionpolicybinding", "validatingadmissionpolicy"]
    {
        stage.cluster.kubectl(&["delete", kind, NAME])?;
    }
    opted.close().await?;
    other.close().await?;
    result
}

async fn with_component(stage: &Stage, report: &mut Report, opted: &Ns, other: &Ns) -> Result<()> {
    let who = &stage.controller.who;
    let good = puller(stage);
    until("the policy and the right", LONG, async || {
        let (plain, good) = (pods::pod("x", &[pods::idle("app")]), create(opted, &good));
        let denied = who.send(create(opted, &plain)).await.code == 422;
        Ok((denied && who.send(good).await.code == 201).then_some(()))
    })
    .await?;
    report.ask(who, "create a Pod that pulls: allowed", create(opted, &good), granted(201)).await;
    for (what, change) in allowed() {
        let pod = changed(&good, change);
        report.ask(who, &format!("the same with {what}: allowed"), create(opted, &pod), granted(201)).await;
    }
    let mounting = mounting(&good);
    let ask = create(opted, &mounting);
    report.ask(who, "create a Pod that mounts the image to pull: allowed", ask, granted(201)).await;
    let always = changed(&mounting, ("/spec/volumes/0/image/pullPolicy", json!("Always")));
    report.ask(who, "the same with pull policy Always: allowed", create(opted, &always), granted(201)).await;
    let not_here = denied("in namespaces with the label pitstop.dev/in-place=enabled");
    report.ask(who, "create it where nobody has opted in", create(other, &good), not_here).await;
    for (which, pod, forms) in [("it", &good, forms()), ("one that mounts", &mounting, mounted())] {
        for (words, forms) in forms {
            for (what, change) in forms {
                let ask = create(opted, &changed(pod, change));
                report.ask(who, &format!("create {which} with {what}"), ask, denied(words)).await;
            }
        }
    }
    deletes(stage, report, opted).await
}

async fn deletes(stage: &Stage, report: &mut Report, ns: &Ns) -> Result<()> {
    const ONLY: &str = "pitstop may only create and delete Pods that pull an image";
    let who = &stage.controller.who;
    let collection = format!("/api/v1/namespaces/{}/pods", ns.name);
    let mut good = puller(stage);
    // Of another node: it is not to run.
    good["spec"]["nodeName"] = json!("there-is-no-such-node");
    // Without its owner it would be collected.
    let updates = format!("/apis/pitstop.dev/v1alpha1/namespaces/{}/podimageupdates", ns.name);
    let owner = stage.done(post(&updates, &update("x", "2", &json!({"suspend": true})))).await?.json();
    good["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"].clone();
    stage.done(post(&collection, &good)).await?;
    let delete = |name: &str| plain(&Method::DELETE, &format!("{collection}/{name}?dryRun=All"));
    let label = json!({"metadata": {"labels": {"pitstop.dev/puller": "true"}}});
    let apply = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"},
        "spec": {"containers": [{"name": "app", "image": format!("{REPOSITORY}:1")}]}});
    let metadata = "pitstop may not change the metadata of a Pod";
    for (what, ask, expected) in [
        ("delete a Pod of somebody else", delete("web"), denied(ONLY)),
        (
            "make it look like one of its own",
            patch(&format!("{collection}/web?dryRun=All"), "merge", &label),
            denied(metadata),
        ),
        ("delete all Pods", plain(&Method::DELETE, &format!("{collection}?dryRun=All")), rights()),
        (
            "create another Pod by server-side apply",
            patch(&format!("{collection}/new?dryRun=All&fieldManager=attacks"), "apply", &apply),
            denied(ONLY),
        ),
        (
            "evict a Pod",
            post(
                &format!("{collection}/web/eviction?dryRun=All"),
                &json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}),
            ),
            rights(),
        ),
        ("bind a Pod", post(&format!("{collection}/web/binding?dryRun=All"), &json!({})), rights()),
        (
            "run a command in a Pod",
            plain(&Method::POST, &format!("{collection}/web/exec?command=id&stdout=true")),
            rights(),
        ),
        ("delete a Pod that pulls: allowed", delete("pull"), granted(200)),
    ] {
        report.ask(who, what, ask, expected).await;
    }
    Ok(())
}

fn denied(words: &str) -> Expected {
    refused(422, words)
}

fn create(ns: &Ns, pod: &Value) -> Ask {
    post(&format!("/api/v1/namespaces/{}/pods?dryRun=All", ns.name), pod)
}

/// The form that is allowed.
fn puller(stage: &Stage) -> Value {
    let owner = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodImageUpdate", "name": "x",
        "uid": "00000000-0000-0000-0000-000000000001"});
    let secure = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "runAsUser": 65534, "readOnlyRootFilesystem": true, "seccompProfile": {"type": "RuntimeDefault"}});
    let resources = json!({"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "64Mi"}});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "pull", "labels": {"pitstop.dev/puller": "true"}, "ownerReferences": [owner]},
        "spec": {"nodeName": stage.b().name, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "activeDeadlineSeconds": 120, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}], "imagePullSecrets": [{"name": "registry"}],
            "containers": [{"name": "pull", "image": format!("{REPOSITORY}:2"), "imagePullPolicy": "IfNotPresent",
                "command": ["/.pitstop-pull-only"], "resources": resources, "securityContext": secure}]}})
}

/// The form that is allowed for a node that can mount images.
fn mounting(good: &Value) -> Value {
    let mut pod = good.clone();
    let image = json!({"reference": format!("{REPOSITORY}:2"), "pullPolicy": "IfNotPresent"});
    pod["spec"]["volumes"] = json!([{"name": "pull", "image": image}]);
    let container = &mut pod["spec"]["containers"][0];
    container["image"] = json!(format!("{REPOSITORY}:1"));
    container["volumeMounts"] = json!([{"name": "pull", "mountPath": "/.pitstop-pull", "readOnly": true}]);
    pod
}

/// Where in the Pod something stands, and what; null removes it.
type Change = (&'static str, Value);

fn changed(pod: &Value, (pointer, value): Change) -> Value {
    let mut pod = pod.clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/");
    match pod.pointer_mut(parent).unwrap() {
        Value::Array(list) => list.push(value),
        parent if value.is_null() => drop(parent.as_object_mut().unwrap().remove(&key)),
        parent => parent[key] = value,
    }
    pod
}

fn allowed() -> Vec<(&'static str, Change)> {
    vec![
        ("pull policy Always", ("/spec/containers/0/imagePullPolicy", json!("Always"))),
        ("no Secrets", ("/spec/imagePullSecrets", Value::Null)),
        ("no tolerations", ("/spec/tolerations", Value::Null)),
        ("a label of pitstop's own", ("/metadata/labels/pitstop.dev~1of", json!("x"))),
        ("a limit of CPU", ("/spec/containers/0/resources/limits/cpu", json!("1"))),
    ]
}

/// By the words with which each is denied.
fn forms() -> Vec<(&'static str, Vec<(&'static str, Change)>)> {
    let container =
        json!({"name": "x", "image": format!("{REPOSITORY}:1"), "command": ["/.pitstop-pull-only"]});
    let other_owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x",
        "uid": "00000000-0000-0000-0000-000000000001"}]);
    let exec = json!({"exec": {"command": ["id"]}});
    let env = json!([{"name": "LD_PRELOAD", "value": "/x"}]);
    let from = json!([{"secretRef": {"name": "x", "optional": true}}]);
    vec![
        (
            "pitstop may only create and delete Pods that pull an image",
            vec![
                ("no label", ("/metadata/labels", Value::Null)),
                ("another label", ("/metadata/labels", json!({"pitstop.dev/puller": "false"}))),
                ("no owner", ("/metadata/ownerReferences", Value::Null)),
                ("another owner", ("/metadata/ownerReferences", other_owner)),
            ],
        ),
        (
            "has no finalizers, and no labels and annotations",
            vec![
                ("a label of a workload", ("/metadata/labels/app", json!("web"))),
                ("an annotation", ("/metadata/annotations", json!({"x.example/inject": "true"}))),
                ("a finalizer", ("/metadata/finalizers", json!(["x.example/y"]))),
            ],
        ),
        // The API server gives it a volume.
        (
            "at most 8 volumes, each of an image",
            vec![("the token of its account", ("/spec/automountServiceAccountToken", json!(true)))],
        ),
        (
            "has containers, volumes and nothing else",
            vec![
                ("the host's network", ("/spec/hostNetwork", json!(true))),
                ("the host's processes", ("/spec/hostPID", json!(true))),
                ("the host's IPC", ("/spec/hostIPC", json!(true))),
                ("one namespace of processes", ("/spec/shareProcessNamespace", json!(true))),
                ("an init container", ("/spec/initContainers", json!([container]))),
                ("an affinity", ("/spec/affinity", json!({"nodeAffinity": {}}))),
                ("a node selector", ("/spec/nodeSelector", json!({"x": "y"}))),
                ("aliases of hosts", ("/spec/hostAliases", json!([{"ip": "127.0.0.1", "hostnames": ["x"]}]))),
                ("a host name", ("/spec/hostname", json!("x"))),
                ("a readiness gate", ("/spec/readinessGates", json!([{"conditionType": "x.example/y"}]))),
            ],
        ),
        (
            "names its node, is never restarted",
            vec![
                ("no node", ("/spec/nodeName", Value::Null)),
                ("restarts", ("/spec/restartPolicy", json!("Always"))),
                ("restarts on failure", ("/spec/restartPolicy", json!("OnFailure"))),
                ("a grace period", ("/spec/terminationGracePeriodSeconds", json!(30))),
                ("no deadline", ("/spec/activeDeadlineSeconds", Value::Null)),
                ("a deadline of weeks", ("/spec/activeDeadlineSeconds", json!(1_000_000))),
            ],
        ),
        (
            "has no token of its service account",
            vec![
                ("environment of Services", ("/spec/enableServiceLinks", json!(true))),
                ("another user for all", ("/spec/securityContext", json!({"runAsUser": 0}))),
                ("a group", ("/spec/securityContext", json!({"fsGroup": 0}))),
            ],
        ),
        (
            "without arguments, environment",
            vec![
                ("arguments", ("/spec/containers/0/args", json!(["x"]))),
                ("environment", ("/spec/containers/0/env", env)),
                ("environment from a Secret", ("/spec/containers/0/envFrom", from)),
                ("a hook", ("/spec/containers/0/lifecycle", json!({"postStart": exec}))),
                ("a probe", ("/spec/containers/0/startupProbe", exec)),
                ("a port", ("/spec/containers/0/ports", json!([{"containerPort": 1}]))),
                ("a working directory", ("/spec/containers/0/workingDir", json!("/x"))),
                ("standard input", ("/spec/containers/0/stdin", json!(true))),
            ],
        ),
        (
            "has the command /.pitstop-pull-only",
            vec![
                ("the image's command", ("/spec/containers/0/command", Value::Null)),
                ("another command", ("/spec/containers/0/command", json!(["/bin/sh"]))),
                ("a command more", ("/spec/containers/0/command/-", json!("x"))),
                ("pull policy Never", ("/spec/containers/0/imagePullPolicy", json!("Never"))),
                ("a message file", ("/spec/containers/0/terminationMessagePath", json!("/etc/x"))),
                (
                    "a message of logs",
                    ("/spec/containers/0/terminationMessagePolicy", json!("FallbackToLogsOnError")),
                ),
                (
                    "a second container that starts",
                    ("/spec/containers/-", json!({"name": "x", "image": "x"})),
                ),
            ],
        ),
        (
            "asks for no more than",
            vec![
                ("much CPU", ("/spec/containers/0/resources/requests/cpu", json!("2"))),
                ("much memory", ("/spec/containers/0/resources", json!({"limits": {"memory": "2Gi"}}))),
                ("no resources", ("/spec/containers/0/resources", Value::Null)),
                ("a device", ("/spec/containers/0/resources/limits/x.example~1gpu", json!("1"))),
            ],
        ),
        (
            "exactly the security context",
            vec![
                ("no security context", ("/spec/containers/0/securityContext", Value::Null)),
                ("privileges", ("/spec/containers/0/securityContext/privileged", json!(false))),
                (
                    "a way to gain privileges",
                    ("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
                ),
                (
                    "capabilities",
                    (
                        "/spec/containers/0/securityContext/capabilities",
                        json!({"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
                    ),
                ),
                ("user 0", ("/spec/containers/0/securityContext/runAsUser", json!(0))),
                ("another user", ("/spec/containers/0/securityContext/runAsUser", json!(1000))),
                (
                    "a root to write",
                    ("/spec/containers/0/securityContext/readOnlyRootFilesystem", json!(false)),
                ),
                (
                    "no seccomp profile",
                    ("/spec/containers/0/securityContext/seccompProfile", json!({"type": "Unconfined"})),
                ),
                ("a group of its own", ("/spec/containers/0/securityContext/runAsGroup", json!(0))),
                ("a mount of /proc", ("/spec/containers/0/securityContext/procMount", json!("Default"))),
            ],
        ),
    ]
}

/// By the words with which each is denied: what a Pod may not have that mounts an image.
fn mounted() -> Vec<(&'static str, Vec<(&'static str, Change)>)> {
    let source = |source: Value| {
        let mut volume = json!({"name": "pull"});
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        ("/spec/volumes", json!([volume]))
    };
    let token = json!([{"serviceAccountToken": {"path": "token"}}]);
    let image = json!({"reference": format!("{REPOSITORY}:2"), "pullPolicy": "IfNotPresent"});
    let mount = |field, value| {
        let mut mount = json!({"name": "pull", "mountPath": "/.pitstop-pull", "readOnly": true});
        mount[field] = value;
        ("/spec/containers/0/volumeMounts", json!([mount]))
    };
    let again = json!({"name": "pull", "mountPath": "/again", "readOnly": true});
    vec![
        (
            "at most 8 volumes, each of an image",
            vec![
                ("a volume of the host", source(json!({"hostPath": {"path": "/"}}))),
                ("a Secret as a volume", source(json!({"secret": {"secretName": "x"}}))),
                ("a ConfigMap as a volume", source(json!({"configMap": {"name": "x"}}))),
                ("a token as a volume", source(json!({"projected": {"sources": token}}))),
                ("an empty volume", source(json!({"emptyDir": {}}))),
                ("a claim as a volume", source(json!({"persistentVolumeClaim": {"claimName": "x"}}))),
                ("a driver's volume", source(json!({"csi": {"driver": "x.example"}}))),
                (
                    "a Secret beside the image",
                    ("/spec/volumes/-", json!({"name": "s", "secret": {"secretName": "x"}})),
                ),
                ("a volume of no container", ("/spec/volumes/-", json!({"name": "x", "image": image}))),
                ("pull policy Never for the volume", ("/spec/volumes/0/image/pullPolicy", json!("Never"))),
            ],
        ),
        (
            "mounts the volume of its name",
            vec![
                ("no mount", ("/spec/containers/0/volumeMounts", Value::Null)),
                ("a mount to write", mount("readOnly", json!(false))),
                ("another path", mount("mountPath", json!("/usr/bin"))),
                ("a part of the image", mount("subPath", json!("bin"))),
                ("a part by an expression", mount("subPathExpr", json!("bin"))),
                ("propagation", mount("mountPropagation", json!("HostToContainer"))),
                ("a second mount", ("/spec/containers/0/volumeMounts/-", again)),
            ],
        ),
    ]
}
