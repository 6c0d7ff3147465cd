//! `cargo deny` with `deny.toml`: licences, sources, versions that are there twice, crates we will not have.
//!
//! Advisories are not asked for: their database comes from the network.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::progress::Step;
use crate::sh::Cmd;

/// The version that is installed where none is found.
const VERSION: &str = "0.20.2";

pub(super) fn check(root: &Path) -> Result<()> {
    let tool = tool(root)?;
    Cmd::new(tool)
        .args(["--workspace", "--locked", "--all-features", "check", "--hide-inclusion-graph"])
        // What deny.toml excuses and is no longer there to be excused.
        .args(["-D", "unmatched-skip", "-D", "unnecessary-skip", "-D", "unused-wrapper"])
        .args(["bans", "licenses", "sources"])
        .dir(root)
        .read()
        .map(drop)
}

/// Our own copy, made at the first call and kept: another version judges otherwise.
fn tool(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/tools");
    let tool = folder.join("bin/cargo-deny");
    let found = tool.is_file() && Cmd::new(&tool).arg("--version").read().is_ok_and(|text| is_wanted(&text));
    if !found {
        let step =
            Step::begin(format!("installing cargo-deny {VERSION} into target/tools (some minutes, once)"));
        // It works for a second: what optimizing would save there is less than what it takes.
        Cmd::cargo()
            .args(["install", "--debug", "--locked", "--quiet", "cargo-deny", "--version", VERSION])
            .args(["--force", "--root"])
            .arg(&folder)
            .dir(root)
            .run_quiet()?;
        step.done();
    }
    Ok(tool)
}

fn is_wanted(said: &str) -> bool {
    said.split_whitespace().any(|word| word == VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_replaced() {
        assert!(is_wanted(&format!("cargo-deny {VERSION}\n")));
        assert!(!is_wanted("cargo-deny 0.1.0\n"));
    }
}
