//! `cargo xtask helm`: builds Helm from `tests/helm`, for the tests of `deploy/chart`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cluster;
use crate::progress::Step;

/// The program, in the checkout; `tests/manifests` looks for it there.
const PROGRAM: &str = "target/helm/helm";
/// Its package, in the module.
const PACKAGE: &str = "helm.sh/helm/v4/cmd/helm";

/// The Go module, which has nothing but the version.
fn module(root: &Path) -> PathBuf {
    root.join("tests/helm")
}

/// Builds it; a matter of seconds when nothing changed.
pub(crate) fn build(root: &Path) -> Result<()> {
    cluster::require_go()?;
    let step = Step::begin("building Helm (some minutes when nothing is built yet)");
    let go = cluster::go(&module(root)).args(["build", "-v", "-ldflags", "-s -w", "-o"]);
    go.arg(root.join(PROGRAM)).arg(PACKAGE).run_quiet().context("cannot build tests/helm")?;
    step.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace;

    #[test]
    fn the_module_is_of_the_package() {
        let manifest = module(&workspace::root().unwrap()).join("go.mod");
        assert!(fs::read_to_string(manifest).unwrap().contains(&format!("tool {PACKAGE}\n")));
    }
}
