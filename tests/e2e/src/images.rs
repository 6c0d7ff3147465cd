//! Image updates: Pods whose behaviour depends on their image, and functions that read requests.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use pitstop_api::condition::{self, Condition};
use pitstop_api::image_update::PodImageUpdate;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::ns::{NODE, Ns};
use crate::pods;
use crate::registry::PRIVATE;
use crate::wait::{LONG, until};

/// The repository of the images. The cluster's registry has them with the tags `1`, `2`, `2-again` (the same image as
/// `2`), `away`, `big` (4 MiB more than `2`), `crash`, `oom` and `unready`. Another repository is
/// `pitstop.dev/test/other`, with the tag `2`.
pub const REPOSITORY: &str = "pitstop.dev/test/busybox";

/// Script of a container; `VERSION` comes from its image. `SLOW` is the version that takes ten seconds to end on
/// SIGTERM. `ONLY` names the only Pod whose containers crash.
const SCRIPT: &str = "trap '[ \"${VERSION:-1}\" != \"$SLOW\" ] || sleep 10; exit 0' TERM
    [ \"$VERSION\" = crash ] && [ \"${ONLY:-$HOSTNAME}\" = \"$HOSTNAME\" ] && exit 1
    [ \"$VERSION\" = oom ] && while :; do x=x$x$x; done
    mkdir -p /tmp/www
    [ \"$VERSION\" = unready ] || echo ${VERSION:-1} > /tmp/www/index.html
    httpd -f -p $PORT -h /tmp/www & wait";

/// A web server, ready unless its image is `unready`. Its memory limit is for `oom`.
pub fn server(name: &str, port: u16) -> Value {
    let probe = json!({"httpGet": {"path": "/index.html", "port": port}, "periodSeconds": 1});
    let env = json!([{"name": "PORT", "value": port.to_string()}]);
    json!({"name": name, "image": format!("{REPOSITORY}:1"), "command": ["sh", "-c", SCRIPT], "env": env,
        "readinessProbe": probe, "resources": {"limits": {"memory": "64Mi"}}})
}

/// A Pod `web` of two such servers, `app` and `other`.
pub fn web() -> Value {
    pods::pod("web", &[server("app", 8080), server("other", 8081)])
}

/// An update of the Pod `web`: container `app` to that tag, with more fields.
pub fn update(name: &str, tag: &str, more: &Value) -> Value {
    let mut spec = json!({"podRef": {"name": "web"},
        "containers": [{"name": "app", "image": format!("{REPOSITORY}:{tag}")}]});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodImageUpdate", "metadata": {"name": name}, "spec": spec})
}

/// Runs a test with the component `image-update`, on a node that has only images with the tag `1`.
pub async fn with_component(ns: &Ns, test: impl Future<Output = Result<()>>) -> Result<()> {
    ns.cluster.install_with(&["image-update"])?;
    forget(&ns.cluster)?;
    let result = test.await;
    result.and(ns.cluster.install())
}

/// Runs a test with the component `in-place` too, in a namespace that has opted in.
pub async fn with_workloads(ns: &Ns, test: impl Future<Output = Result<()>>) -> Result<()> {
    with_opted_in(ns, &["image-update", "in-place"], test).await
}

/// Runs a test with the component `park` too.
pub async fn with_parking(ns: &Ns, test: impl Future<Output = Result<()>>) -> Result<()> {
    let result = with_opted_in(ns, &["image-update", "in-place", "park"], test).await;
    remove_parking(&ns.cluster)?;
    result
}

/// Removes what the component `park` has added.
pub fn remove_parking(cluster: &Cluster) -> Result<()> {
    remove(
        cluster,
        "mutatingadmissionpolicy",
        &["pitstop-park", "pitstop-strip", "pitstop-armed", "pitstop-unpark"],
        &[],
    )
}

/// Deletes the objects `first`, then policies of a kind, each after its binding.
fn remove(cluster: &Cluster, kind: &str, policies: &[&str], first: &[&str]) -> Result<()> {
    let own = policies.iter().flat_map(|name| [format!("{kind}binding/{name}"), format!("{kind}/{name}")]);
    let all: Vec<String> = first.iter().map(|name| (*name).to_owned()).chain(own).collect();
    let words = ["delete"].into_iter().chain(all.iter().map(String::as_str));
    cluster.kubectl(&words.collect::<Vec<_>>()).map(drop)
}

async fn with_opted_in(ns: &Ns, components: &[&str], test: impl Future<Output = Result<()>>) -> Result<()> {
    let (here, apart) = (format!("namespace={}", ns.name), format!("namespace {}", ns.name));
    let test = Box::pin(test);
    let opted_in = async {
        let names = [("namespace=shop", &*here), ("namespace shop", &*apart)];
        ns.cluster.documented("let-in-place", &names)?;
        test.await
    };
    with_in_place(ns, components, opted_in).await
}

/// Runs a test with these components, `in-place` among them, in a namespace that has not opted in.
pub async fn with_in_place(
    ns: &Ns,
    components: &[&str],
    test: impl Future<Output = Result<()>>,
) -> Result<()> {
    let test = Box::pin(test);
    ns.cluster.install_with(components)?;
    forget(&ns.cluster)?;
    let result = test.await;
    remove_in_place(&ns.cluster)?;
    result.and(ns.cluster.install())
}

/// Removes what the component `in-place` has added.
pub fn remove_in_place(cluster: &Cluster) -> Result<()> {
    let policies = ["pitstop-controller-workloads", "pitstop-controller-rollouts"];
    remove(cluster, "validatingadmissionpolicy", &policies, &["clusterrole/pitstop-in-place"])
}

/// Runs a test with the component `image-puller` too.
pub async fn with_pullers(ns: &Ns, test: impl Future<Output = Result<()>>) -> Result<()> {
    ns.cluster.install_with(&["image-update", "image-puller"])?;
    forget(&ns.cluster)?;
    let result = test.await;
    // The policy last, after the rights that it narrows.
    let narrowed =
        ["clusterrolebinding/pitstop-controller-pullers", "clusterrole/pitstop-controller-pullers"];
    remove(&ns.cluster, "validatingadmissionpolicy", &["pitstop-controller-pullers"], &narrowed)?;
    result.and(ns.cluster.install())
}

/// Opts the namespace in.
pub fn opt_in(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.kubectl(&["label", "namespace", name, "pitstop.dev/in-place=enabled"]).map(drop)
}

/// Removes the repository's images from the node except tag `1`, and all names from the private registry. Like the
/// kubelet's garbage collection, it removes all names of an image and its content. It removes leases, by which a
/// runtime that was killed during a pull would keep content for a day.
pub fn forget(cluster: &Cluster) -> Result<()> {
    let script = format!(
        "ctr -n k8s.io leases ls -q | xargs --no-run-if-empty ctr -n k8s.io leases rm
         ctr -n k8s.io images ls | awk '{{ of[$1] = $3 }}
            index($1, \"/test/busybox\") {{ ours[$3] = 1 }}
            $1 == \"{REPOSITORY}:1\" {{ kept = $3 }}
            END {{ for (name in of) if (ours[of[name]] && (of[name] != kept || name ~ /^{PRIVATE}/)) print name }}' \
         | xargs --no-run-if-empty ctr -n k8s.io images rm --sync"
    );
    cluster.exec(NODE, &["sh", "-c", &script]).map(drop)
}

/// Removes from a node the repository's images that none of its containers uses, except tag `1`.
pub fn forget_unused(cluster: &Cluster, node: &str) -> Result<()> {
    let script = format!(
        "ctr -n k8s.io containers ls > /tmp/containers
         ctr -n k8s.io images ls | awk '
            FILENAME != \"-\" {{ used[$2] = 1; next }}
            {{ of[$1] = $3; if (index($1, \"/test/busybox\")) ours[$3] = 1 }}
            $1 == \"{REPOSITORY}:1\" || used[$1] {{ kept[$3] = 1 }}
            END {{ for (name in of) if (ours[of[name]] && !kept[of[name]]) print name }}' /tmp/containers - \
         | xargs --no-run-if-empty ctr -n k8s.io images rm --sync"
    );
    cluster.exec(node, &["sh", "-e", "-c", &script]).map(drop)
}

/// The updates of the namespace.
pub fn api(ns: &Ns) -> Api<PodImageUpdate> {
    Api::namespaced(ns.cluster.client.clone(), &ns.name)
}

/// Creates an update.
pub async fn create(ns: &Ns, object: Value) -> Result<PodImageUpdate> {
    Ok(api(ns).create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// Waits until the update satisfies `is`.
pub async fn seen(
    ns: &Ns,
    name: &str,
    what: &str,
    is: impl Fn(&PodImageUpdate) -> bool,
) -> Result<PodImageUpdate> {
    let what = format!("PodImageUpdate {name} to be {what}");
    until(&what, LONG, async || Ok(Some(api(ns).get(name).await?).filter(&is))).await
}

/// Waits until the update is over; also returns its reason.
pub async fn over(ns: &Ns, name: &str) -> Result<(PodImageUpdate, String)> {
    let is_over =
        |update: &PodImageUpdate| update.status.as_ref().is_some_and(|s| s.completion_time.is_some());
    let update = seen(ns, name, "over", is_over).await?;
    let reason = reason(&update).context("no condition Complete")?.to_owned();
    Ok((update, reason))
}

/// Reason of the condition `Complete`: why the update waits, or how it ended.
pub fn reason(update: &PodImageUpdate) -> Option<&str> {
    complete(update).map(|complete| complete.reason.as_str())
}

/// The condition `Complete`.
pub fn complete(update: &PodImageUpdate) -> Option<&Condition> {
    condition::find(&update.status.as_ref()?.conditions, condition::COMPLETE)
}

/// Waits until no order is left in the node's book.
pub async fn no_order_is_left(ns: &Ns) -> Result<()> {
    until("no order to be left", LONG, async || {
        let book = ns.cluster.kubectl(&["get", "nodework", NODE, "--output=jsonpath={.spec.orders}"])?;
        Ok(["", "[]"].contains(&book.as_str()).then_some(()))
    })
    .await
}

/// The image string of a container.
pub fn image(pod: &Pod, container: &str) -> Result<String> {
    let all = pod.spec.iter().flat_map(|spec| &spec.containers);
    let found = all.into_iter().find(|c| c.name == container).context("no such container")?;
    found.image.clone().context("a container without an image")
}
