//! `cargo deny` with `deny.toml`: licences, sources, duplicate versions, unwanted crates.
//!
//! Does not check advisories: their database comes from the network.

use std::path::Path;

use anyhow::Result;

use crate::sh::Cmd;
use crate::tools::Tool;

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", args: &["--version"] };

pub(super) fn check(root: &Path) -> Result<()> {
    Cmd::new(DENY.installed(root)?)
        .args(["--workspace", "--locked", "--all-features", "check", "--hide-inclusion-graph"])
        // Fail on exceptions in deny.toml that are no longer needed.
        .args(["-D", "unmatched-skip", "-D", "unnecessary-skip", "-D", "unused-wrapper"])
        .args(["bans", "licenses", "sources"])
        .dir(root)
        .read()
        .map(drop)
}
