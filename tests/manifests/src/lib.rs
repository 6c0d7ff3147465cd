//! Reads `deploy/` as kubectl would and says what it grants and how it confines; and reads the documentation.
//!
//! `kustomize` loads a folder into [`Object`]s, `rbac` unfolds what a `ServiceAccount` may do, `network` says which
//! connections get through, `security` names what a Pod does beyond the Pod Security level `restricted`, `monitoring` says
//! what Prometheus is asked for. The tests compare that with committed tables.

pub mod docs;
pub mod helm;
pub mod kustomize;
pub mod monitoring;
pub mod network;
pub mod object;
pub mod rbac;
pub mod security;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

pub use object::{Object, find, text};

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Says that a test is skipped, and why. In continuous integration nothing may be missing: an error.
pub fn skipped(why: &str) -> Result<()> {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    ensure!(!ci, "{why}");
    println!("skipped: {why}");
    Ok(())
}
