//! Where things are in the checkout.

use std::path::{Path, PathBuf};

/// The version that every crate and image carries.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The root of the checkout that `cargo xtask` was called in.
///
/// Asked at run time, so that a checkout that was moved or copied with its `target` still means itself.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The path as a user in the root would type it.
pub(crate) fn shown<'a>(root: &Path, path: &'a Path) -> std::path::Display<'a> {
    path.strip_prefix(root).unwrap_or(path).display()
}

/// Whether a continuous-integration machine runs this: what is missing there is a failure, not a skip.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
