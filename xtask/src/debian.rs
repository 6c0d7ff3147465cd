//! Debian packages that a command needs: installed when we may, else named with the command that does it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Result, bail};

use crate::progress::Step;
use crate::sh::{Cmd, is_installed};

/// Makes sure that packages are installed. On a machine that is no Debian there is nothing to ask; the
/// program that misses a tool names it.
pub(crate) fn ensure(packages: &[&str], purpose: &str) -> Result<()> {
    if !is_installed("dpkg-query") {
        return Ok(());
    }
    // dpkg-query fails when it does not know one of the packages, and still prints the others.
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
    let apt = || {
        Cmd::new("apt-get")
            .args(["-q", "-o", "DPkg::Lock::Timeout=120"])
            .env("DEBIAN_FRONTEND", "noninteractive")
    };
    apt().arg("update").run_quiet()?;
    apt().args(["install", "-y", "--no-install-recommends"]).args(&missing).run_quiet()?;
    step.done();
    Ok(())
}

/// Whether this process is the machine's administrator.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
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
}
