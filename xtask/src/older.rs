//! The version before this one, for tests in which controller and daemon are of two versions, as during an upgrade.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::image::{self, Built};
use crate::workspace;

/// Its commit. As long as there is no release, an earlier state of the main branch.
pub(crate) const COMMIT: &str = "72dafecf";

/// The program that is older than the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    Controller,
    Daemon,
}

impl Older {
    /// As images and folders are called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Daemon => "daemon",
        }
    }

    /// The images, with that one in place of the one of this version.
    pub(crate) fn among(self, root: &Path, images: &[Built]) -> Result<Vec<Built>> {
        let sources = root.join("target/older");
        if !sources.join("Cargo.toml").is_file() {
            workspace::sources(root, COMMIT, &sources)?;
        }
        let older = image::build(&sources, false)?;
        let of = |from: &[Built], name: &str| from.iter().find(|image| image.name() == name).cloned();
        images
            .iter()
            .map(|image| {
                let from = if image.name() == self.name() { &older } else { images };
                of(from, image.name()).with_context(|| format!("there is no image {}", image.name()))
            })
            .collect()
    }
}
