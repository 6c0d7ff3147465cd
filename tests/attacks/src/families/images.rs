//! What the controller's token is good for at images, in each installation: the digest that runs, anywhere; with the component
//! `image-update`, other versions of the same image where the namespace has opted in. And who may ask for it.

use anyhow::{Context as _, Result};
use http::Method;
use pitstop_e2e::images::{REPOSITORY, opt_in, update, web};
use pitstop_e2e::system::NAMESPACE;
use pitstop_e2e::{Cluster, LONG, Ns, SHORT, pods, until};
use serde_json::{Value, json};

use crate::ask::{Ask, patch, post, put};
use crate::probe::{Expected, granted, refused, rights};
use crate::report::Report;
use crate::stage::{Stage, on};

const OTHERS: &str = "pitstop may not change the repository of an image";
const UNKNOWN: &str = "pitstop may only set";
const METADATA: &str = "pitstop may not change the metadata of a Pod";
const INIT: &str = "pitstop may not change the image of an init container";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";
const USER: &str = "trudy";

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let (opted, other) =
        (Ns::open(Cluster::connect().await?).await?, Ns::open(Cluster::connect().await?).await?);
    for ns in [&opted, &other] {
        let mut pod = on(&stage.a().name, web());
        let init = json!({"name": "first", "image": format!("{REPOSITORY}:1"), "command": ["true"]});
        let mut side = pods::idle("side");
        side["restartPolicy"] = json!("Always");
        pod["spec"]["initContainers"] = json!([init, side]);
        ns.start_pod(pod).await?;
    }
    opt_in(&stage.cluster, &opted.name)?;
    let names = ["without the component, not opted in", "without the component, opted in"];
    for (ns, name) in [&other, &opted].into_iter().zip(names) {
        Case { stage, ns, name, allowed: false }.probe(report).await?;
    }
    stage.cluster.install_with(&["image-update"])?;
    let result = with_component(stage, report, &opted, &other).await;
    let result = result.and(users(stage, report, &opted).await);
    stage.cluster.install()?;
    opted.close().await?;
    other.close().await?;
    result
}

async fn with_component(stage: &Stage, report: &mut Report, opted: &Ns, other: &Ns) -> Result<()> {
    let allowed = Case { stage, ns: opted, name: "opted in", allowed: true };
    until("the policy to allow another version", LONG, async || {
        let ask = allowed.patch("strategic-merge", &image("containers", "app", &format!("{REPOSITORY}:2")));
        Ok((stage.controller.who.send(ask).await.code == 200).then_some(()))
    })
    .await?;
    allowed.probe(report).await?;
    Case { stage, ns: other, name: "not opted in", allowed: false }.probe(report).await
}

/// A Pod in a namespace, and whether the controller may give it other versions of its images.
struct Case<'a> {
    stage: &'a Stage,
    ns: &'a Ns,
    name: &'a str,
    allowed: bool,
}

impl Case<'_> {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/web", self.ns.name)
    }

    fn patch(&self, kind: &str, body: &Value) -> Ask {
        patch(&format!("{}?dryRun=All", self.path()), kind, body)
    }

    /// What is allowed where images may be changed.
    fn if_allowed(&self) -> Expected {
        if self.allowed { granted(200) } else { denied(UNKNOWN) }
    }

    /// What is denied everywhere, in other words where no image may be changed.
    fn never(&self, words: &str) -> Expected {
        denied(if self.allowed { words } else { UNKNOWN })
    }

    async fn ask(&self, report: &mut Report, what: &str, ask: Ask, expected: Expected) -> Value {
        let what = format!("{what} ({})", self.name);
        report.ask(&self.stage.controller.who, &what, ask, expected).await.json()
    }

    async fn probe(&self, report: &mut Report) -> Result<()> {
        let pod = self.stage.stored(&self.path()).await?;
        let digest = running(&pod, "containerStatuses", "app")?;
        self.versions(report, &digest).await;
        self.forged(report, &digest).await;
        self.other_fields(report, &pod).await;
        self.other_ways(report, &pod).await;
        self.by_apply(report).await;
        self.through_status(report).await;
        self.own_pod(report).await
    }

    /// The same repository.
    async fn versions(&self, report: &mut Report, digest: &str) {
        let unknown = format!("sha256:{}", "0".repeat(64));
        for (what, list, name, version, expected) in [
            ("pin the digest that runs", "containers", "app", format!("@{digest}"), granted(200)),
            ("pin it with its tag", "containers", "app", format!(":1@{digest}"), granted(200)),
            ("pin it in a sidecar", "initContainers", "side", format!("@{digest}"), granted(200)),
            ("another tag", "containers", "app", ":2".to_owned(), self.if_allowed()),
            ("another tag of a sidecar", "initContainers", "side", ":2".to_owned(), self.if_allowed()),
            ("another digest", "containers", "app", format!("@{unknown}"), self.if_allowed()),
            ("tag and another digest", "containers", "app", format!(":2@{unknown}"), self.if_allowed()),
            (
                "another tag of an init container",
                "initContainers",
                "first",
                ":2".to_owned(),
                self.never(INIT),
            ),
        ] {
            let body = image(list, name, &format!("{REPOSITORY}{version}"));
            self.ask(report, what, self.patch("strategic-merge", &body), expected).await;
        }
        let apply = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "app", "image": format!("{REPOSITORY}:2")}]}});
        let ask =
            patch(&format!("{}?dryRun=All&fieldManager=attacks&force=true", self.path()), "apply", &apply);
        self.ask(report, "another tag by server-side apply", ask, self.if_allowed()).await;
    }

    /// Other repositories, also those that look alike.
    async fn forged(&self, report: &mut Report, digest: &str) {
        let (registry, name) = REPOSITORY.split_once('/').unwrap();
        for (what, image) in [
            ("another repository", "pitstop.dev/test/other:2".to_owned()),
            ("another registry", format!("evil.example/{name}:2")),
            ("the registry with a port", format!("{registry}:5000/{name}:2")),
            ("no registry", format!("{name}:2")),
            ("a longer name", format!("{REPOSITORY}-evil:2")),
            ("a repository below it", format!("{REPOSITORY}/evil:2")),
            ("a path behind the tag", format!("{REPOSITORY}:1/evil")),
            ("what is no digest", format!("{REPOSITORY}@evil.example/evil")),
            ("another repository with the digest that runs", format!("evil.example/evil@{digest}")),
            ("uppercase", REPOSITORY.to_uppercase()),
            ("no image", String::new()),
        ] {
            let body = self.patch("strategic-merge", &self::image("containers", "app", &image));
            // What is no image, the API server refuses before it asks the policy.
            let expected = match image.as_str() {
                "" => refused(422, "spec.containers[0].image"),
                _ if image.starts_with(&format!("{REPOSITORY}:1/")) || image.contains("@evil") => {
                    denied(UNKNOWN)
                }
                // A digest that runs is a pin.
                _ if image.ends_with(digest) => denied(OTHERS),
                _ => self.never(OTHERS),
            };
            self.ask(report, what, body, expected).await;
        }
        let both = json!({"spec": {"containers": [{"name": "app", "image": format!("{REPOSITORY}:2")},
            {"name": "other", "image": "pitstop.dev/test/other:2"}]}});
        let ask = self.patch("strategic-merge", &both);
        self.ask(
            report,
            "a version of one container, another repository of the other",
            ask,
            self.never(OTHERS),
        )
        .await;
        let json_patch =
            json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil.example/evil:1"}]);
        let ask = self.patch("json", &json_patch);
        self.ask(report, "another repository by a JSON patch", ask, self.never(OTHERS)).await;
        let apply = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "app", "image": "evil.example/evil:1"}]}});
        let ask =
            patch(&format!("{}?dryRun=All&fieldManager=attacks&force=true", self.path()), "apply", &apply);
        self.ask(report, "another repository by server-side apply", ask, self.never(OTHERS)).await;
    }

    /// Fields that somebody else owns, by server-side apply, beside another tag.
    async fn by_apply(&self, report: &mut Report) {
        let apply = |metadata: Value, list: &str, name: &str| {
            let image = json!([{"name": name, "image": format!("{REPOSITORY}:2")}]);
            let mut object =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {list: image}});
            object["metadata"]["name"] = json!("web");
            patch(&format!("{}?dryRun=All&fieldManager=attacks&force=true", self.path()), "apply", &object)
        };
        let labelled = json!({"labels": {"app": "x"}});
        let ask = apply(labelled, "containers", "app");
        let metadata = self.never(METADATA);
        self.ask(report, "a label of a Pod by server-side apply, beside another tag", ask, metadata).await;
        let ask = apply(json!({}), "initContainers", "first");
        let init = self.never(INIT);
        self.ask(report, "another tag of an init container by server-side apply", ask, init).await;
        let operations = json!([{"op": "remove", "path": "/metadata/labels/app"},
            {"op": "replace", "path": "/spec/containers/0/image", "value": format!("{REPOSITORY}:2")}]);
        let ask = self.patch("json", &operations);
        let metadata = self.never(METADATA);
        self.ask(report, "a label removed by a JSON patch, beside another tag", ask, metadata).await;
    }

    /// What a Pod says of itself decides which digest may be pinned, and who gets its traffic.
    async fn through_status(&self, report: &mut Report) {
        const STATUS: &str = "pitstop may not change anything of a Pod's status but conditions";
        let condition = |type_: &str| json!({"conditions": [{"type": type_, "status": "False"}]});
        let unknown = format!("{REPOSITORY}@sha256:{}", "0".repeat(64));
        let statuses = json!({"containerStatuses": [{"name": "app", "imageID": unknown}]});
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        let unlabel = json!({"metadata": {"labels": {"app": null}}});
        for (what, change, expected) in [
            ("that a container runs another digest", json!({"status": statuses}), denied(STATUS)),
            ("that the Pod has failed", json!({"status": {"phase": "Failed"}}), denied(STATUS)),
            (
                "that the Pod is not ready",
                json!({"status": condition("Ready")}),
                denied("pitstop may only write the conditions"),
            ),
            (
                "the condition of its gate: allowed",
                json!({"status": condition("pitstop.dev/ready")}),
                granted(200),
            ),
            ("a label", label, denied(METADATA)),
            ("a label removed", unlabel, denied(METADATA)),
        ] {
            let ask = patch(&format!("{}/status?dryRun=All", self.path()), "strategic-merge", &change);
            self.ask(report, &format!("write {what} through pods/status"), ask, expected).await;
        }
    }

    /// The controller's own Pod, whose namespace nobody has opted in.
    async fn own_pod(&self, report: &mut Report) -> Result<()> {
        let name = self.stage.controller.name();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
        let pod = self.stage.stored(&path).await?;
        let runs = pod["spec"]["containers"][0]["image"].as_str().context("no image")?;
        let repository = runs.split('@').next().and_then(|it| it.rsplit_once(':')).context("no tag")?.0;
        let change = image("containers", "controller", &format!("{repository}:another"));
        let ask = patch(&format!("{path}?dryRun=All"), "strategic-merge", &change);
        self.ask(report, "another tag of pitstop's own controller", ask, denied(UNKNOWN)).await;
        Ok(())
    }

    /// What is no image, beside one that is allowed where images may be changed.
    async fn other_fields(&self, report: &mut Report, pod: &Value) {
        const SPEC: &str = "pitstop may not change anything of a Pod but images";
        let fixed = || refused(422, "pod updates may not");
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]);
        let mut tolerations = pod["spec"]["tolerations"].clone();
        tolerations.as_array_mut().unwrap().push(json!({"key": "x", "operator": "Exists"}));
        let spec = |spec: Value| json!({"spec": spec});
        for (what, change, expected) in [
            ("a label", json!({"metadata": {"labels": {"x": "y"}}}), denied(METADATA)),
            ("a label removed", json!({"metadata": {"labels": {"app": null}}}), denied(METADATA)),
            (
                "the label of its revision",
                json!({"metadata": {"labels": {"controller-revision-hash": "x"}}}),
                if self.allowed { granted(200) } else { denied(METADATA) },
            ),
            ("an annotation", json!({"metadata": {"annotations": {"x": "y"}}}), denied(METADATA)),
            ("a finalizer", json!({"metadata": {"finalizers": ["x.example/y"]}}), denied(METADATA)),
            ("an owner", json!({"metadata": {"ownerReferences": owner}}), denied(METADATA)),
            ("a deadline", spec(json!({"activeDeadlineSeconds": 5})), denied(SPEC)),
            ("a toleration", spec(json!({"tolerations": tolerations})), denied(SPEC)),
            (
                "a container's command",
                spec(json!({"containers": [{"name": "app", "command": ["x"]}]})),
                fixed(),
            ),
            ("one container more", spec(json!({"containers": [{"name": "x", "image": "x"}]})), fixed()),
            (
                "an ephemeral container",
                spec(json!({"ephemeralContainers": [{"name": "x", "image": "x"}]})),
                fixed(),
            ),
            ("the service account", spec(json!({"serviceAccountName": "x"})), fixed()),
        ] {
            let ask = self.patch("strategic-merge", &change);
            self.ask(report, &format!("{what} of a Pod"), ask, expected.clone()).await;
            if !self.allowed || expected == fixed() {
                continue;
            }
            let mut both = change;
            both["spec"]["containers"] = json!([{"name": "app", "image": format!("{REPOSITORY}:2")}]);
            let ask = self.patch("strategic-merge", &both);
            self.ask(report, &format!("{what} of a Pod, beside another tag"), ask, expected).await;
        }
    }

    /// Other ways to the Pod, and to the label by which the namespace has opted in.
    async fn other_ways(&self, report: &mut Report, pod: &Value) {
        let path = self.path();
        let evil = image("containers", "app", "evil.example/evil:1");
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        for (part, what, change) in [
            ("status", "another repository", &evil),
            ("resize", "another repository", &evil),
            ("resize", "a label", &label),
        ] {
            let ask = patch(&format!("{path}/{part}?dryRun=All"), "strategic-merge", change);
            let what = format!("{what} through pods/{part}, which leaves that alone");
            let stored = self.ask(report, &what, ask, granted(200)).await;
            let parts = |pod: &Value| [pod["spec"]["containers"].clone(), pod["metadata"]["labels"].clone()];
            let seen = if parts(&stored) == parts(pod) { "unchanged" } else { "CHANGED" };
            report.fact(
                "controller",
                &format!("containers and labels after that ({})", self.name),
                "unchanged",
                seen,
            );
        }
        let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "x", "image": "x"}]}});
        let namespace = format!("/api/v1/namespaces/{}", self.ns.name);
        let label = |value: Value| json!({"metadata": {"labels": {"pitstop.dev/in-place": value}}});
        let labels = |path: &str, value: Value| patch(&format!("{path}?dryRun=All"), "merge", &label(value));
        for (what, ask) in [
            (
                "an ephemeral container through its subresource",
                patch(&format!("{path}/ephemeralcontainers?dryRun=All"), "strategic-merge", &ephemeral),
            ),
            ("replace a Pod", put(&format!("{path}?dryRun=All"), pod)),
            ("opt a namespace in", labels(&namespace, json!("enabled"))),
            ("opt a namespace out", labels(&namespace, Value::Null)),
            (
                "opt a namespace in through its status",
                labels(&format!("{namespace}/status"), json!("enabled")),
            ),
            (
                "opt a namespace in through finalize",
                put(&format!("{namespace}/finalize?dryRun=All"), &json!({})),
            ),
        ] {
            self.ask(report, what, ask, rights()).await;
        }
    }
}

fn denied(words: &str) -> Expected {
    refused(422, words)
}

fn image(list: &str, container: &str, image: &str) -> Value {
    json!({"spec": {list: [{"name": container, "image": image}]}})
}

/// The digest that a container runs.
fn running(pod: &Value, list: &str, container: &str) -> Result<String> {
    let statuses = pod["status"][list].as_array().context("no statuses")?;
    let status = statuses.iter().find(|s| s["name"] == container).context("no such container")?;
    let image = status["imageID"].as_str().context("no image")?;
    Ok(image.rsplit_once('@').context("an image without a digest")?.1.to_owned())
}

/// Who may make requests and not patch Pods.
async fn users(stage: &Stage, report: &mut Report, ns: &Ns) -> Result<()> {
    let name = &ns.name;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": USER}});
    stage.done(post(&format!("/api/v1/namespaces/{name}/serviceaccounts"), &account)).await?;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": USER},
        "rules": [{"apiGroups": ["pitstop.dev"], "resources": ["podimageupdates"],
            "verbs": ["get", "create", "update", "patch"]}]});
    let bind = |name: &str, kind: &str, role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": ns.name, "name": USER}]})
    };
    stage.done(post(&format!("{RBAC}/{name}/roles"), &role)).await?;
    stage.done(post(&format!("{RBAC}/{name}/rolebindings"), &bind(USER, "Role", USER))).await?;
    let user = stage.nobody.with_token("user without Pods", &stage.token(name, USER, &json!({})).await?);
    let collection = format!("/apis/pitstop.dev/v1alpha1/namespaces/{name}/podimageupdates");
    let dry = format!("{collection}?dryRun=All");
    // Somebody with the right made it.
    stage.done(post(&collection, &update("theirs", "no-such-tag", &json!({"suspend": true})))).await?;
    let theirs = format!("{collection}/theirs?dryRun=All");
    until("the user's rights", SHORT, async || {
        Ok((user.send(crate::ask::get(&format!("{collection}/theirs"))).await.code == 200).then_some(()))
    })
    .await?;
    let policy = || refused(403, "needs the right to patch pods");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    for (what, ask, expected) in [
        ("update an image by a PodImageUpdate", post(&dry, &update("own", "2", &json!({}))), policy()),
        (
            "the same of a Pod that is not there",
            post(&dry, &update("own", "2", &json!({"podRef": {"name": "there-is-no-such-pod"}}))),
            policy(),
        ),
        (
            "release the PodImageUpdate of somebody else",
            patch(&theirs, "merge", &json!({"spec": {"suspend": false}})),
            policy(),
        ),
        ("cancel it", patch(&theirs, "merge", &json!({"spec": {"cancel": true}})), policy()),
        ("label it: allowed", patch(&theirs, "merge", &label), granted(200)),
        (
            "patch the Pod by hand",
            patch(&format!("/api/v1/namespaces/{name}/pods/web"), "merge", &label),
            rights(),
        ),
        (
            "write the status of a PodImageUpdate",
            patch(&format!("{collection}/theirs/status"), "merge", &json!({"status": {}})),
            rights(),
        ),
        ("delete it", crate::ask::plain(&Method::DELETE, &theirs), rights()),
    ] {
        report.ask(&user, what, ask, expected).await;
    }
    stage.done(post(&format!("{RBAC}/{name}/rolebindings"), &bind("edit", "ClusterRole", "edit"))).await?;
    let own = update("own", "2", &json!({}));
    until("the right to patch Pods", SHORT, async || {
        Ok((user.send(post(&dry, &own)).await.code == 201).then_some(()))
    })
    .await?;
    let what = "update an image by a PodImageUpdate, with the role edit: allowed";
    report.ask(&user, what, post(&dry, &own), granted(201)).await;
    Ok(())
}
