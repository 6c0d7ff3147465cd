//! A cluster for the time of one command: started fresh, with images in its registry, and taken down at the end.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cluster::{self, Cluster};
use crate::debian;
use crate::image::{Built, executables};
use crate::kubernetes::Platform;
use crate::progress::{Step, note};
use crate::sh::Cmd;
use crate::workspace::shown;

/// A small test of the workspace, for [`program`].
const BESIDE: &str = "deploy";

/// Result of a run on a cluster.
pub(crate) struct Outcome<T> {
    pub(crate) value: T,
    /// Whether the cluster could be taken down.
    pub(crate) down: Result<()>,
}

/// Fails with the remedy if no cluster can be started.
pub(crate) fn require() -> Result<()> {
    cluster::require_go()?;
    if !debian::is_root() {
        bail!("a cluster needs root: `sudo -E env PATH=\"$PATH\" make test`");
    }
    Ok(())
}

/// Runs with a fresh cluster of that platform and number of nodes, with the images in its registry. Keeps the
/// cluster's logs if the run fails or its value is not `good`.
pub(crate) fn with_cluster<T>(
    cluster: Cluster<'_>,
    platform: impl Into<Platform>,
    nodes: usize,
    images: &[Built],
    run: impl FnOnce() -> Result<T>,
    good: impl FnOnce(&T) -> bool,
) -> Result<Outcome<T>> {
    if cluster.kubeconfig().exists() {
        note("a cluster is there from before; it is taken down, since a fresh one is needed");
    }
    cluster.down(false)?;
    let result = up(cluster, platform.into(), nodes, images).and_then(|()| run());
    let failed = !result.as_ref().is_ok_and(good);
    if failed {
        note(format!("logs of the cluster: {}", shown(cluster.root, &cluster.dir().join("logs"))));
    }
    let down = cluster.down(failed);
    result.map(|value| Outcome { value, down })
}

/// Builds a program of the tests that runs on a cluster.
///
/// Selects the whole workspace and a test, so that dependencies have the same features as in the tests of the crates.
/// For one package alone, cargo builds most of them again.
pub(crate) fn program(root: &Path, name: &str) -> Result<PathBuf> {
    let messages = Cmd::cargo()
        .args(["build", "--locked", "--quiet", "--workspace", "--bin", name, "--test", BESIDE])
        .arg("--message-format=json-render-diagnostics")
        .dir(root)
        .read_loud()?;
    executables(&messages)?.remove(name).with_context(|| format!("cargo built no program named {name}"))
}

fn up(cluster: Cluster<'_>, platform: Platform, nodes: usize, images: &[Built]) -> Result<()> {
    let Platform { kubernetes, runtime } = platform;
    let release = kubernetes.release();
    let step = Step::begin(format!("starting a cluster of Kubernetes {release}, nodes: {nodes}"));
    let nodes = nodes.to_string();
    let args = ["--kubernetes", release, "--runtime", runtime.name(), "--nodes", &nodes];
    let status = cluster.up(&args.map(str::to_owned))?;
    if !status.success() {
        bail!("the cluster did not start: {status}");
    }
    for image in images {
        cluster.push(&image.path, &image.reference())?;
    }
    step.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_beside_is_there() {
        let root = crate::workspace::root().unwrap();
        assert!(root.join("tests/manifests/tests").join(BESIDE).join("main.rs").is_file());
    }
}
