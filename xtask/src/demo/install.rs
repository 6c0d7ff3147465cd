//! Puts pitstop into the cluster, as `kubectl apply -k deploy/default` does for anyone.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::kubectl::Kubectl;
use super::objects::PodView;
use crate::cluster;
use crate::image::Built;
use crate::progress::{Step, note};
use crate::sh::Cmd;

const NAMESPACE: &str = "pitstop-system";
const SELECTOR: &str = "app.kubernetes.io/name=pitstop";
const WORKLOADS: [&str; 2] = ["deployment/pitstop-controller", "daemonset/pitstop-daemon"];

/// An image in the cluster's registry.
struct Pushed<'a> {
    reference: &'a str,
    digest: String,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Value>,
}

#[derive(Deserialize)]
struct Status {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    name: String,
}

/// Installs pitstop from the images that were just built, and waits until it runs.
pub(super) fn pitstop(root: &Path, kubectl: &Kubectl, images: &[Built]) -> Result<()> {
    let step = Step::begin("installing pitstop: kubectl apply -k deploy/default");
    let pushed = images.iter().map(|image| push(root, image)).collect::<Result<Vec<_>>>()?;
    forget_older(root, &pushed)?;
    kubectl.quiet(["apply", "-k", "deploy/default"])?;
    if runs_older(kubectl, &pushed)? {
        note("an older build runs here; its Pods are replaced");
        for workload in WORKLOADS {
            kubectl.quiet(["-n", NAMESPACE, "rollout", "restart", workload])?;
        }
    }
    for workload in WORKLOADS {
        let wait = ["-n", NAMESPACE, "rollout", "status", workload, "--timeout=120s"];
        if let Err(error) = kubectl.quiet(wait) {
            let pods = kubectl.read(["-n", NAMESPACE, "get", "pods"]).unwrap_or_default();
            bail!("{workload} does not become ready: {error:#}\n{pods}");
        }
    }
    step.done();
    Ok(())
}

fn push<'a>(root: &Path, image: &'a Built) -> Result<Pushed<'a>> {
    let printed = call(root, "push").arg(&image.path).arg(&image.reference).read()?;
    Ok(Pushed { reference: &image.reference, digest: printed.trim().to_owned() })
}

/// Takes images of the same name with other contents from the nodes, which would not ask for them again.
fn forget_older(root: &Path, pushed: &[Pushed<'_>]) -> Result<()> {
    let text = call(root, "status").arg("--json").read()?;
    let status: Status = serde_json::from_str(&text).context("the cluster's status is not understood")?;
    for node in &status.nodes {
        let ctr = || call(root, "exec").args([&node.name, "--", "ctr", "-n", "k8s.io", "images"]);
        let listed = ctr().arg("list").read()?;
        for image in pushed.iter().filter(|image| is_older(&listed, image)) {
            note(format!("{} on {} is of an older build and is removed", image.reference, node.name));
            ctr().args(["remove", image.reference]).run_quiet()?;
        }
    }
    Ok(())
}

/// Whether a listing (name, type, digest, ...) has the image with another digest.
fn is_older(listed: &str, image: &Pushed<'_>) -> bool {
    let mut lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.any(|words| words.first() == Some(&image.reference) && !words.contains(&image.digest.as_str()))
}

/// Whether a Pod of pitstop's was started from something other than what was pushed.
fn runs_older(kubectl: &Kubectl, pushed: &[Pushed<'_>]) -> Result<bool> {
    let text = kubectl.read(["-n", NAMESPACE, "get", "pods", "-l", SELECTOR, "-o", "json"])?;
    let list: List = serde_json::from_str(&text).context("kubectl's list of Pods is not understood")?;
    let pods = list.items.into_iter().map(PodView::read).collect::<Result<Vec<_>>>()?;
    let images = pods.iter().flat_map(|pod| pod.containers.values()).map(|container| &container.image);
    // A container that was not started yet has none.
    let mut images = images.filter(|image| !image.is_empty());
    Ok(images.any(|id| !pushed.iter().any(|image| id.ends_with(&image.digest))))
}

fn call(root: &Path, command: &str) -> Cmd {
    Cmd::new(cluster::program(root)).arg(command).arg("--dir").arg(cluster::dir(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_name_with_another_digest_is_older() {
        let listed = "REF TYPE DIGEST SIZE\n\
            pitstop.dev/daemon:0.1.0 application/x sha256:aa 1 MiB linux/amd64\n\
            pitstop.dev/daemon@sha256:bb application/x sha256:bb 1 MiB linux/amd64\n";
        let image = |reference, digest: &str| Pushed { reference, digest: digest.to_owned() };
        assert!(!is_older(listed, &image("pitstop.dev/daemon:0.1.0", "sha256:aa")));
        assert!(is_older(listed, &image("pitstop.dev/daemon:0.1.0", "sha256:cc")));
        assert!(!is_older(listed, &image("pitstop.dev/controller:0.1.0", "sha256:cc")));
    }
}
