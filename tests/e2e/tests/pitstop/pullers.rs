//! New images from a registry that needs the Pod's own credentials: the kubelet pulls them through a puller Pod.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use pitstop_api::image_update::Phase;
use pitstop_e2e::audit::{Entry, Mark};
use pitstop_e2e::registry::{Failing, Faults, PRIVATE, credentials, pull_secret, requests};
use pitstop_e2e::{Context, LONG, Ns, Result, ensure, images, on_cluster, pods, until};
use serde_json::{Value, json};

const REPOSITORY: &str = "test/busybox";
const LABEL: &str = "pitstop.dev/puller=true";

/// Runs a test in an opted-in namespace, with a Pod `web` whose `app` has an image of the private registry.
fn with_private_pod(test: impl AsyncFnOnce(&Ns, &Pod) -> Result<()>) -> Result<()> {
    on_cluster(async |ns| {
        images::with_pullers(ns, async {
            images::opt_in(&ns.cluster, &ns.name)?;
            pull_secret(ns, "registry")?;
            let mut pod = images::web();
            pod["spec"]["containers"][0]["image"] = json!(private("1"));
            pod["spec"]["imagePullSecrets"] = json!([{"name": "registry"}]);
            let before = ns.start_pod(pod).await?;
            test(ns, &before).await
        })
        .await
    })
}

fn private(tag: &str) -> String {
    format!("{PRIVATE}/{REPOSITORY}:{tag}")
}

/// An update of container `app` to that tag.
fn update(name: &str, tag: &str, more: &Value) -> Value {
    let mut object = images::update(name, tag, more);
    object["spec"]["containers"] = json!([{"name": "app", "image": private(tag)}]);
    object
}

async fn no_puller_is_left(ns: &Ns) -> Result<()> {
    until("no puller Pod to be left", LONG, async || {
        let left = ns.pods().list(&ListParams::default().labels(LABEL)).await?.items;
        Ok(left.is_empty().then_some(()))
    })
    .await
}

/// Fails if pitstop's programs requested a Secret of the namespace. Returns the number of Pods that they created.
fn made_without_secrets(ns: &Ns, mark: &Mark) -> Result<usize> {
    let entries: Vec<Entry> = mark.entries()?.into_iter().filter(|entry| entry.is_in(&ns.name)).collect();
    for entry in &entries {
        println!("  {entry}");
    }
    let secrets: Vec<&Entry> = entries.iter().filter(|entry| entry.resource() == "secrets").collect();
    ensure!(secrets.is_empty(), "{secrets:?}");
    let made = |entry: &&Entry| {
        entry.verb == "create" && entry.resource() == "pods" && !entry.dry_run() && entry.code() == 201
    };
    Ok(entries.iter().filter(made).count())
}

/// Fails unless the kubelet pulled the image as a volume on a node that can mount images, or for a container on other
/// nodes: then its events name the container.
async fn pulled_as_the_node_can(ns: &Ns, pod: &Pod, image: &str) -> Result<()> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("no node")?;
    let info =
        "--output=jsonpath={.status.nodeInfo.kubeletVersion} {.status.nodeInfo.containerRuntimeVersion}";
    let versions = ns.kubectl(&["get", "node", node, info])?;
    let mounts = !versions.starts_with("v1.34.") && versions.contains(" containerd://2.");
    let shown = r#"--output=jsonpath={range .items[*]}{.involvedObject.name} {.message} {.involvedObject.fieldPath}{"\n"}{end}"#;
    let pulls = until("the kubelet's events of the pull", LONG, async || {
        let events = ns.kubectl(&["get", "events", shown])?;
        let ours = |line: &&str| line.starts_with("pitstop-pull-") && line.contains(&format!("\"{image}\""));
        let pulls: Vec<String> = events.lines().filter(ours).map(str::to_owned).collect();
        Ok((!pulls.is_empty()).then_some(pulls))
    })
    .await?;
    let mounted = pulls.iter().all(|line| !line.ends_with("spec.containers{app}"));
    ensure!(mounted == mounts, "a node with {versions}: {pulls:?}");
    Ok(())
}

#[test]
fn an_image_of_a_private_registry_is_pulled_with_the_pods_own_credentials() -> Result<()> {
    with_private_pod(async |ns, before| {
        let mark = Mark::now(&ns.cluster)?;
        images::create(ns, update("private", "2", &json!({"suspend": true, "observeSeconds": 0}))).await?;
        let suspended = |u: &_| images::reason(u) == Some("Suspended");
        images::seen(ns, "private", "suspended", suspended).await?;
        no_puller_is_left(ns).await?;
        pods::assert_untouched(before, &ns.pod("web").await?, "app")?;
        ensure!(made_without_secrets(ns, &mark)? == 1, "not one puller Pod");
        pulled_as_the_node_can(ns, before, &private("2")).await?;
        let asked = requests(&ns.cluster, REPOSITORY)?;
        ensure!(asked.iter().any(|line| line.ends_with("manifests/2")), "{asked:?}");

        ns.kubectl(&["patch", "piu/private", "--type=merge", r#"--patch={"spec":{"suspend":false}}"#])?;
        let (update, reason) = images::over(ns, "private").await?;
        let status = update.status.context("no status")?;
        ensure!(reason == "Updated" && status.phase == Some(Phase::Succeeded), "{status:?}");
        let after = ns.ready("web").await?;
        pods::assert_restarted_once(before, &after, "app")?;
        pods::assert_untouched(before, &after, "other")?;
        let container = &status.containers[0];
        let pulled = container.pulled.as_ref().context("nothing pulled")?;
        ensure!(images::image(&after, "app")? == format!("{}@{}", private("2"), pulled.digest));
        let running = container.running.as_ref().context("nothing runs")?;
        ensure!(running.image_id == pulled.image_id, "{running:?}");
        let later = requests(&ns.cluster, REPOSITORY)?;
        ensure!(later == asked, "the registry was asked after the pull: {:?}", &later[asked.len()..]);
        ensure!(made_without_secrets(ns, &mark)? == 1, "a second puller Pod");
        no_puller_is_left(ns).await
    })
}

#[test]
fn what_no_puller_pod_can_pull_stops_nothing_and_its_words_are_told() -> Result<()> {
    with_private_pod(async |ns, before| {
        let mark = Mark::now(&ns.cluster)?;
        // No such tag, whatever the credentials.
        images::create(ns, update("wrong-tag", "no-such", &json!({}))).await?;
        let (wrong_tag, reason) = images::over(ns, "wrong-tag").await?;
        ensure!(reason == "PullFailed", "{:?}", wrong_tag.status);
        // The quota allows no further Pod.
        ns.kubectl(&["create", "quota", "full", "--hard=pods=1"])?;
        images::create(ns, update("full", "2", &json!({}))).await?;
        let (full, reason) = images::over(ns, "full").await?;
        ensure!(reason == "CannotProvePull", "{:?}", full.status);
        ensure!(full.status.context("no status")?.message.contains("quota"), "the message has not its words");
        ns.kubectl(&["delete", "quota", "full"])?;
        // A password that the registry does not know.
        let config = json!({"auths": {PRIVATE: {"username": "somebody", "password": "wrong"}}}).to_string();
        let patch = json!({"stringData": {".dockerconfigjson": config}}).to_string();
        ns.kubectl(&["patch", "secret/registry", "--type=merge", &format!("--patch={patch}")])?;
        images::create(ns, update("denied", "2", &json!({"pullTimeoutSeconds": 60}))).await?;
        let (denied, reason) = images::over(ns, "denied").await?;
        ensure!(reason == "PullFailed", "{:?}", denied.status);

        for container in ["app", "other"] {
            pods::assert_untouched(before, &ns.pod("web").await?, container)?;
        }
        ensure!(made_without_secrets(ns, &mark)? == 2, "one for each but where the quota is full");
        no_puller_is_left(ns).await?;
        let password = credentials(&ns.cluster)?.password;
        let output = ns.kubectl(&["get", "piu,events", "--output=yaml"])?;
        ensure!(!output.contains(&password), "the password is in a status or an event");
        Ok(())
    })
}

#[test]
fn a_request_that_is_cancelled_deletes_its_puller_pod() -> Result<()> {
    with_private_pod(async |ns, before| {
        // No other test pulls this image, because the kubelet continues this pull. It also asks the registry again when
        // a Pod without credentials wants an image that was pulled with credentials (KEP-2535).
        let faults = Faults { delay_milliseconds: 9000, ..Faults::default() };
        let _slow = Failing::with(&ns.cluster, &faults)?;
        images::create(ns, update("private", "away", &json!({}))).await?;
        let pulls = |u: &_| images::reason(u) == Some("WaitingForPullerPod");
        images::seen(ns, "private", "pulling by a puller Pod", pulls).await?;
        ns.kubectl(&["patch", "piu/private", "--type=merge", r#"--patch={"spec":{"cancel":true}}"#])?;
        let (update, reason) = images::over(ns, "private").await?;
        ensure!(reason == "Cancelled", "{:?}", update.status);
        let left = ns.pods().list(&ListParams::default().labels(LABEL)).await?.items;
        ensure!(left.is_empty(), "it is deleted before the end is told");
        pods::assert_untouched(before, &ns.pod("web").await?, "app")
    })
}
