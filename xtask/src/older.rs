//! The version before this one, for tests with different versions of controller and daemon, as during an upgrade.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::image::{self, Built};
use crate::workspace;

/// Its commit. Until the first release, an earlier state of the main branch.
pub(crate) const COMMIT: &str = "72dafecf";

/// The program that is older than the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    Controller,
    Daemon,
}

impl Older {
    /// Name of its image and folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Daemon => "daemon",
        }
    }

    /// The images, with the older image of that program.
    pub(crate) fn among(self, root: &Path, images: &[Built]) -> Result<Vec<Built>> {
        let older = built(&checkout(root)?, images)?;
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

/// Folder of its sources, unpacked on first use.
pub(crate) fn checkout(root: &Path) -> Result<PathBuf> {
    let sources = root.join("target/older").join(COMMIT);
    if !sources.is_dir() {
        let new = sources.with_extension("new");
        if new.exists() {
            fs::remove_dir_all(&new).with_context(|| format!("cannot remove {}", new.display()))?;
        }
        workspace::sources(root, COMMIT, &new)?;
        fs::rename(&new, &sources).with_context(|| format!("cannot write {}", sources.display()))?;
    }
    Ok(sources)
}

/// Builds its images. Fails if one is the same as in this version.
pub(crate) fn built(checkout: &Path, images: &[Built]) -> Result<Vec<Built>> {
    let older = image::build(checkout, false)?;
    if let Some(same) = older.iter().find(|older| images.iter().any(|image| image.digest == older.digest)) {
        bail!("{} of {COMMIT} is the same as that of this version: take an earlier commit", same.name());
    }
    Ok(older)
}
