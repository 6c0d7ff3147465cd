//! Installs pitstop with `kubectl apply -k`, as users do.

use std::path::Path;

use anyhow::{Result, bail};

use super::kubectl::Kubectl;
use crate::cluster::Cluster;
use crate::image::Built;
use crate::progress::Step;

const NAMESPACE: &str = "pitstop-system";
const WORKLOADS: [&str; 2] = ["deployment/pitstop-controller", "daemonset/pitstop-daemon"];
/// `deploy/default` with the images that were built.
const FOLDER: &str = "target/deploy/default";

/// Installs pitstop from the images that were just built, and waits until it runs. Images of an older build have other
/// names, so its Pods are replaced.
pub(super) fn pitstop(root: &Path, kubectl: &Kubectl, images: &[Built]) -> Result<()> {
    let step = Step::begin(format!("installing pitstop: kubectl apply -k {FOLDER}"));
    for image in images {
        Cluster::of(root).push(&image.path, &image.reference())?;
    }
    kubectl.quiet(["apply", "-k", FOLDER])?;
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
