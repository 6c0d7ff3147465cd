//! The bill of materials: each program with every crate in it, in the format [CycloneDX](https://cyclonedx.org).

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::image::{AMD64, ARM64, PACKAGES, Target};
use crate::plugin;
use crate::progress::Step;
use crate::sh::Cmd;
use crate::tools::Tool;
use crate::workspace::{Files, VERSION};

const CYCLONEDX: Tool = Tool { name: "cargo-cyclonedx", version: "0.5.9", args: &["cyclonedx", "--version"] };

/// One file for each program and processor. `sources`: a copy, since the tool writes into it.
pub(super) fn of_materials(root: &Path, sources: &Path) -> Result<Files> {
    let tool = CYCLONEDX.installed(root)?;
    let step = Step::begin("listing what the programs are made of");
    let committed = Cmd::new("git").args(["log", "-1", "--format=%ct"]).dir(root).read()?;
    let mut files = Files::new();
    for target in [&AMD64, &ARM64] {
        Cmd::new(&tool)
            .args([
                "cyclonedx",
                "--quiet",
                "--format",
                "json",
                "--spec-version",
                "1.5",
                "--target",
                target.triple,
            ])
            // Keeps the current time and a random number out of the file.
            .env("SOURCE_DATE_EPOCH", committed.trim())
            .dir(sources)
            .run_quiet()?;
        for package in PACKAGES.into_iter().chain([plugin::NAME]) {
            files.insert(file_name(package, target), read(sources, package)?.into_bytes());
        }
    }
    step.done();
    Ok(files)
}

fn file_name(package: &str, target: &Target) -> String {
    format!("{package}-{VERSION}-linux-{}.cdx.json", target.architecture)
}

/// The file that the tool wrote beside a package's manifest, without the path of the copy.
fn read(sources: &Path, package: &str) -> Result<String> {
    let folder = match package {
        plugin::NAME => "cli",
        other => other.trim_start_matches("pitstop-"),
    };
    let path = sources.join(folder).join(format!("{package}.cdx.json"));
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.replace(&sources.display().to_string(), "/pitstop"))
}
