//! Paths in the checkout.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::sh::Cmd;

/// The version that every crate and image carries.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A member of the workspace that no other workspace has.
const MEMBER: &str = "xtask";

/// The root of the checkout in which `cargo xtask` was called.
///
/// Found from the folder of the call, not from that of the compilation: checkouts may share a `target`, and a
/// checkout may be moved or copied with its own.
pub(crate) fn root() -> Result<PathBuf> {
    root_above(&std::env::current_dir().context("there is no current folder")?)
}

/// The root of the workspace that contains a folder.
fn root_above(folder: &Path) -> Result<PathBuf> {
    let found = folder.ancestors().find(|above| is_root(&above.join("Cargo.toml")));
    found.map(Path::to_path_buf).with_context(|| {
        format!("{} is in no checkout of pitstop: call this in one or below", folder.display())
    })
}

/// Whether a manifest is that of the workspace.
fn is_root(manifest: &Path) -> bool {
    #[derive(Deserialize)]
    struct Manifest {
        workspace: Workspace,
    }
    #[derive(Deserialize)]
    struct Workspace {
        #[serde(default)]
        members: Vec<String>,
    }
    let text = fs::read_to_string(manifest).unwrap_or_default();
    toml::from_str::<Manifest>(&text)
        .is_ok_and(|found| found.workspace.members.iter().any(|member| member == MEMBER))
}

/// The path as a user in the root would type it.
pub(crate) fn shown<'a>(root: &Path, path: &'a Path) -> std::path::Display<'a> {
    path.strip_prefix(root).unwrap_or(path).display()
}

/// Files by their names.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Writes files into a folder, and creates the folder.
pub(crate) fn write(folder: &Path, files: &Files) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, content) in files {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Unpacks the sources of a commit into a folder, and creates the folder.
pub(crate) fn sources(root: &Path, commit: &str, to: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("no folder for the sources")?;
    let archive = scratch.path().join("sources.tar");
    Cmd::new("git")
        .args(["archive", "--format=tar", "--output"])
        .arg(&archive)
        .arg(commit)
        .dir(root)
        .read()?;
    let file = fs::File::open(&archive).context("no archive of the sources")?;
    tar::Archive::new(file)
        .unpack(to)
        .with_context(|| format!("the sources of {commit} cannot be put into {}", to.display()))
}

/// Cargo command that builds one test of the crates and the programs of its package, and reports them in JSON.
///
/// Selects the same packages as `cargo xtask test`, so that dependencies are already built. For another selection, or
/// without what tests need, cargo builds many of them again.
pub(crate) fn programs_of_test(root: &Path, test: &str) -> Cmd {
    Cmd::cargo()
        .args(["test", "--no-run", "--locked", "--quiet", "--workspace", "--exclude", "pitstop-e2e"])
        .args(["--test", test, "--message-format=json-render-diagnostics"])
        .dir(root)
}

/// Whether this runs in continuous integration, where a missing requirement is a failure, not a skip.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_workspace_above() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("checkout");
        let inner = root.join("tests/sim/src");
        fs::create_dir_all(&inner).unwrap();
        let error = root_above(&inner).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{} is in no checkout of pitstop: call this in one or below", inner.display())
        );

        fs::write(root.join("Cargo.toml"), "[workspace]\nmembers = [\"api\", \"xtask\"]\n").unwrap();
        // Neither a crate of the workspace nor a workspace in it is the root.
        fs::write(root.join("tests/Cargo.toml"), "[workspace]\nmembers = [\"fuzz\"]\n").unwrap();
        fs::write(root.join("tests/sim/Cargo.toml"), "[package]\nname = \"xtask\"\n").unwrap();
        for folder in [&inner, &root] {
            assert_eq!(root_above(folder).unwrap(), root);
        }
    }

    #[test]
    fn tests_run_in_the_checkout() {
        assert!(root().unwrap().join("xtask/src/workspace.rs").is_file());
    }
}
