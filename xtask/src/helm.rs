//! `cargo xtask helm`: builds Helm from `tests/helm`, for the tests of `deploy/chart`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cluster;
use crate::progress::Step;
use crate::sh::Cmd;

/// The program, in the checkout; `tests/manifests` looks for it there.
const PROGRAM: &str = "target/helm/helm";
/// Its package, in the module.
const PACKAGE: &str = "helm.sh/helm/v4/cmd/helm";

/// Folder of the Go module, which has nothing but versions. Modules that Kubernetes also uses have the same version:
/// Go compiles them once for both.
fn module(root: &Path) -> PathBuf {
    root.join("tests/helm")
}

/// Builds Helm; takes seconds if nothing changed.
pub(crate) fn build(root: &Path) -> Result<()> {
    cluster::require_go()?;
    let step = Step::begin("building Helm (some minutes when nothing is built yet)");
    let go = cluster::go_compiling(&module(root), "build").args(["-v", "-ldflags", "-s -w", "-o"]);
    go.arg(root.join(PROGRAM)).arg(PACKAGE).run_quiet().context("cannot build tests/helm")?;
    step.done();
    Ok(())
}

/// The program that was built. It writes nothing to the user's own folders.
pub(crate) fn command(root: &Path) -> Cmd {
    let program = root.join(PROGRAM);
    let home = program.with_file_name("home");
    ["CACHE", "CONFIG", "DATA"]
        .into_iter()
        .fold(Cmd::new(&program), |command, kind| command.env(&format!("HELM_{kind}_HOME"), home.join(kind)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::workspace;

    #[test]
    fn the_module_is_of_the_package() {
        let manifest = module(&workspace::root().unwrap()).join("go.mod");
        assert!(fs::read_to_string(manifest).unwrap().contains(&format!("tool {PACKAGE}\n")));
    }

    #[test]
    fn what_kubernetes_is_built_with_has_its_version() {
        let root = workspace::root().unwrap();
        let read = |folder: &Path| fs::read_to_string(folder.join("go.mod")).unwrap();
        let (ours, kubernetes) = (read(&module(&root)), read(&cluster::module(&root)));
        // Replaced modules are also required, but the version of `replace` counts.
        let versions = required(&kubernetes).chain(replaced(&kubernetes)).collect::<BTreeMap<_, _>>();
        let ours = required(&ours).chain(replaced(&ours)).collect::<BTreeMap<_, _>>();
        let other =
            ours.iter().filter(|(module, version)| versions.get(*module).is_some_and(|v| v != *version));
        assert_eq!(
            other.collect::<Vec<_>>(),
            [],
            "a line `replace` in tests/helm/go.mod makes them the same"
        );
        assert_eq!(ours.get("k8s.io/client-go"), versions.get("k8s.io/client-go"));
    }

    /// Modules that a file requires, with their versions.
    fn required(manifest: &str) -> impl Iterator<Item = (&str, &str)> {
        manifest.lines().filter(|line| !line.contains("=>")).filter_map(|line| {
            let mut words = line.trim_start_matches("require ").split_whitespace();
            Some((words.next()?, words.next().filter(|version| version.starts_with('v'))?))
        })
    }

    /// Modules that a file replaces, with the versions that it takes.
    fn replaced(manifest: &str) -> impl Iterator<Item = (&str, &str)> {
        manifest.lines().filter_map(|line| {
            let (module, by) = line.split_once(" => ")?;
            Some((module.trim_start_matches("replace ").trim(), by.split_whitespace().nth(1)?))
        })
    }
}
