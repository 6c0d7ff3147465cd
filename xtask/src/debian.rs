//! Debian packages that a command needs. Root installs them; other users are told the command.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::progress::Step;
use crate::sh::{Cmd, is_installed};

/// Makes sure that packages are installed. Does nothing on a machine without Debian's `dpkg-query`; the program that
/// lacks a tool then names it.
pub(crate) fn ensure(packages: &[&str], purpose: &str) -> Result<()> {
    if !is_installed("dpkg-query") {
        return Ok(());
    }
    // dpkg-query fails if it does not know one of the packages, and still prints the others.
    let mut listed = String::new();
    Cmd::new("dpkg-query").args(["-W", "-f", "${Package} ${db:Status-Status}\\n"]).args(packages).each_line(
        |line| {
            listed.push_str(&String::from_utf8_lossy(line.unwrap_or_default()));
        },
    )?;
    let missing = missing(packages, &listed);
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || !is_installed("apt-get") {
        bail!(
            "{purpose} needs Debian packages that are not installed; install them with\n    \
             sudo apt-get update && sudo apt-get install -y {}",
            missing.join(" ")
        );
    }
    let step = Step::begin(format!("installing Debian packages: {}", missing.join(" ")));
    apt().arg("update").run_quiet()?;
    apt().args(["install", "-y", "--no-install-recommends"]).args(&missing).run_quiet()?;
    step.done();
    Ok(())
}

/// Downloads a package into an empty folder without installing it. Returns the path of its file.
pub(crate) fn download(package: &str, folder: &Path) -> Result<PathBuf> {
    fetch(folder, || Ok(package.to_owned()))
}

/// The same for the dependency of a metapackage whose name begins with `prefix`.
pub(crate) fn download_of(meta: &str, prefix: &str, folder: &Path) -> Result<PathBuf> {
    fetch(folder, || {
        let listed = Cmd::new("apt-cache").args(["depends", meta]).read()?;
        let package = dependency(&listed, prefix)
            .with_context(|| format!("the package {meta} depends on none called {prefix}..."))?;
        Ok(package.to_owned())
    })
}

/// Downloads a package. After a failure, updates the package lists, which may be old, and tries again.
fn fetch(folder: &Path, name: impl Fn() -> Result<String>) -> Result<PathBuf> {
    let concrete = || -> Result<()> {
        let package = name()?;
        apt().args(["download", package.as_str()]).dir(folder).run_quiet()
    };
    if let Err(error) = concrete() {
        if !is_root() {
            return Err(error.context("perhaps `sudo apt-get update` helps"));
        }
        apt().arg("update").run_quiet()?;
        concrete()?;
    }
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let entry = entries.next().with_context(|| format!("apt-get put nothing into {}", folder.display()))?;
    Ok(entry.with_context(|| format!("cannot read {}", folder.display()))?.path())
}

fn apt() -> Cmd {
    Cmd::new("apt-get").args(["-q", "-o", "DPkg::Lock::Timeout=120"]).env("DEBIAN_FRONTEND", "noninteractive")
}

/// First package with the prefix in the output of `apt-cache depends`.
fn dependency<'a>(listed: &'a str, prefix: &str) -> Option<&'a str> {
    let mut names = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.find(|name| name.starts_with(prefix))
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The packages that a listing of `name status` lines does not show as installed.
fn missing<'a>(packages: &[&'a str], listed: &str) -> Vec<&'a str> {
    let installed: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(" installed")).collect();
    packages.iter().copied().filter(|package| !installed.contains(package)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_removed_packages_are_missing() {
        let listed = "runc installed\nsocat config-files\ndpkg-query: no packages found matching kmod\n";
        assert_eq!(missing(&["runc", "socat", "kmod"], listed), ["socat", "kmod"]);
    }

    #[test]
    fn a_package_of_packages_names_the_one_that_is_meant() {
        let listed = "linux-image-cloud-amd64\n  Depends: x\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(dependency(listed, "linux-image-"), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(dependency("linux-image-cloud-amd64\n", "linux-image-"), None);
    }
}
