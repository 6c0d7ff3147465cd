//! The laws of the workspace: which crate may use which, what the pure ones may not reach, what is there
//! once, what every crate inherits, and what no text may hold.
//!
//! Each law is a pure function from what cargo says, or from a source, to the breaches.

mod graph;
mod manifests;
mod purity;
mod texts;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use self::graph::Metadata;
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
    let json = Cmd::cargo().args(["metadata", "--format-version", "1", "--locked"]).dir(root).read()?;
    let metadata = Metadata::parse(&json)?;
    let mut breaches = graph::arrows(&metadata);
    breaches.extend(graph::singles(&metadata));
    breaches.extend(graph::absences(&metadata));
    for pure in purity::PURE {
        breaches.extend(purity::reaches(pure, &reached(root, pure)?));
    }
    for (name, path) in metadata.manifests() {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        breaches.extend(manifests::lints(name, &text));
        breaches.extend(manifests::versions(name, &text));
    }
    for path in files::all(root)? {
        let file = shown(root, &path).to_string();
        if texts::is_bound(&file) {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
            breaches.extend(texts::breaches(&file, &text));
        }
    }
    Ok(breaches)
}

/// What a package reaches when it is built alone. `cargo metadata` cannot say it: there, features that any
/// crate of the workspace asks for are on for all.
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
    fn the_tree_keeps_the_laws() {
        assert_eq!(breaches(&crate::workspace::root().unwrap()).unwrap(), [""; 0]);
    }
}
