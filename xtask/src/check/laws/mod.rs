//! The laws of the workspace, about dependencies between crates, pure crates, duplicate versions, import cycles,
//! inherited settings and forbidden texts.
//!
//! Each law is a pure function from cargo's output, or from a source, to the breaches.

mod graph;
mod imports;
mod manifests;
mod purity;
mod texts;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::MetadataCommand;

use super::files;
use crate::sh::Cmd;
use crate::workspace::shown;

pub(super) fn check(root: &Path) -> Result<()> {
    let breaches = breaches(root)?;
    if !breaches.is_empty() {
        bail!("{}", breaches.join("\n"));
    }
    Ok(())
}

fn breaches(root: &Path) -> Result<Vec<String>> {
    let metadata = MetadataCommand::new().current_dir(root).other_options(["--locked".to_owned()]).exec()?;
    let mut breaches = graph::arrows(&metadata);
    breaches.extend(graph::singles(&metadata));
    breaches.extend(graph::absences(&metadata));
    for pure in purity::PURE {
        breaches.extend(purity::reaches(pure, &reached(root, pure)?));
    }
    for package in metadata.workspace_packages() {
        let (name, path) = (&package.name, &package.manifest_path);
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        breaches.extend(manifests::lints(name, &text));
        breaches.extend(manifests::versions(name, &text));
    }
    let files = files::all(root)?;
    for folder in imports::CHECKED {
        let circles = imports::circles(&sources(root, folder, &files)?)?;
        breaches.extend(circles.into_iter().map(|circle| format!("{folder}: {circle}")));
    }
    for path in files {
        let file = shown(root, &path).to_string();
        if texts::is_bound(&file) {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
            breaches.extend(texts::breaches(&file, &text));
        }
    }
    Ok(breaches)
}

/// Text of each source below a folder, by its path from the folder.
fn sources(root: &Path, folder: &str, files: &[PathBuf]) -> Result<BTreeMap<String, String>> {
    let mut sources = BTreeMap::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        if let Some(file) = shown(root, path).to_string().strip_prefix(folder) {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {folder}{file}"))?;
            sources.insert(file.to_owned(), text);
        }
    }
    Ok(sources)
}

/// Dependencies of a package that is built alone. `cargo metadata` cannot report them: it enables features for all
/// crates if any crate of the workspace asks for them.
fn reached(root: &Path, package: &str) -> Result<String> {
    let args = [
        "tree",
        "--locked",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--package",
        package,
    ];
    Cmd::cargo().args(args).dir(root).read()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_checked_by_a_folder_that_there_is() {
        let root = crate::workspace::root().unwrap();
        let files = files::all(&root).unwrap();
        for folder in imports::CHECKED {
            assert!(sources(&root, folder, &files).unwrap().contains_key("lib.rs"), "{folder}");
        }
    }

    #[test]
    fn the_tree_keeps_the_laws() {
        assert_eq!(breaches(&crate::workspace::root().unwrap()).unwrap(), [""; 0]);
    }
}
