//! Reads `deploy/` as kubectl does, and finds its rights and restrictions; and reads the documentation.
//!
//! `kustomize` loads a folder into [`Object`]s. `rbac` lists the rights of a `ServiceAccount`. `network` judges
//! connections. `security` lists a Pod's breaches of the Pod Security level `restricted`. `monitoring` lists the
//! queries to Prometheus. The tests compare these with committed tables.

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

/// Prints why a test is skipped. In continuous integration, where nothing may be missing, this is an error.
pub fn skipped(why: &str) -> Result<()> {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    ensure!(!ci, "{why}");
    println!("skipped: {why}");
    Ok(())
}
