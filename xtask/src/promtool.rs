//! promtool, Prometheus' own checker of alerts, for `tests/manifests`. The program is unpacked under `target`:
//! installing its package would start a Prometheus.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::debian;
use crate::progress::Step;
use crate::sh::{Cmd, is_installed};

/// Debian's package with the program.
const PACKAGE: &str = "prometheus";
/// Path of the program in the package.
const PROGRAM: &str = "usr/bin/promtool";

/// Makes sure that the tests find it: under `target/tools`, or on the machine. The package is fetched once.
pub(crate) fn require(root: &Path) -> Result<()> {
    let folder = root.join("target/tools/bin");
    let program = folder.join("promtool");
    if program.is_file() || is_installed("promtool") {
        return Ok(());
    }
    if let Some(missing) = ["apt-get", "dpkg-deb"].iter().find(|tool| !is_installed(tool)) {
        let needs = "the tests of the alerts need promtool, or Debian's packages";
        bail!("{needs}, and {missing} is not installed");
    }
    let step = Step::begin("fetching promtool");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let scratch = tempfile::tempdir_in(&folder).context("no folder to unpack in")?;
    let (package, files) = (scratch.path().join("package"), scratch.path().join("files"));
    fs::create_dir(&package).with_context(|| format!("cannot make {}", package.display()))?;
    let package = debian::download(PACKAGE, &package)?;
    Cmd::new("dpkg-deb").arg("-x").arg(&package).arg(&files).run_quiet()?;
    fs::rename(files.join(PROGRAM), &program)
        .with_context(|| format!("cannot take {PROGRAM} out of {}", package.display()))?;
    step.done();
    Ok(())
}
