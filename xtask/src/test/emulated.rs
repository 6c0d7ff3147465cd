//! Tests in a virtual machine with cgroup v2 that shares the host's files: those of `tests/e2e`, on a whole cluster,
//! and those of the daemon with cgroups that systemd makes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::e2e::{A_FEW, A_FEW_WITHOUT_RESIZE};
use super::tally::{CargoCount, Count as _, Tally};
use crate::image::{Built, executables};
use crate::kubernetes::Platform;
use crate::machine::shared::{self, First, STATE};
use crate::progress::Step;
use crate::sh::Cmd;

/// The test program of `tests/e2e`.
const PROGRAM: &str = "pitstop";
/// The tests in the daemon's library.
const DAEMON: &str = "pitstop_daemon";
/// Those that run beside systemd.
const RESIZES: [&str; 2] = [
    "resize::containerd_tests::a_container_and_its_pod_grow_shrink_and_get_back_what_they_had",
    "resize::containerd_tests::the_pod_of_a_container_that_has_ended_is_found_by_the_runtime_and_then_by_the_record",
];
/// How each script begins.
const ENVIRONMENT: &str = "set -e\n\
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root RUST_BACKTRACE=0 CI=true\n";
/// Factor for longer waits in the machine.
const PATIENCE: u32 = 20;
/// Time limit of a run.
const LIMIT: Duration = Duration::from_mins(90);

/// Driver of the cgroups of Pods and containers in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// The kubelet and the runtime.
    Cgroupfs,
    /// systemd, the first process of the node.
    Systemd,
}

impl Driver {
    /// The kubelet's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}

/// A few tests of `tests/e2e` on a whole cluster.
pub(super) fn on_a_cluster(
    root: &Path,
    platform: Platform,
    driver: Driver,
    images: &[Built],
) -> Result<Tally> {
    // From the whole workspace, as the other parts.
    let program = built(root, &["--workspace", "--test", PROGRAM], PROGRAM)?;
    let step = Step::begin("a cluster with cgroup v2 in an emulated machine (about ten minutes)");
    let tests = if platform.kubernetes.resizes() { &A_FEW[..] } else { &A_FEW_WITHOUT_RESIZE };
    let script = script(root, platform, driver, images, &program, tests)?;
    let tally = run(root, First::Shell, &script, tests.len());
    step.done();
    tally
}

/// The daemon's tests of resizes with a real containerd, in a machine whose first process is systemd.
pub(super) fn with_systemd(root: &Path) -> Result<Tally> {
    // From the whole workspace, as the tests of the crates.
    let program = built(root, &["--workspace", "--exclude", "pitstop-e2e", "--lib"], DAEMON)?;
    let step = Step::begin("the daemon's tests beside systemd in an emulated machine (some minutes)");
    let script = format!(
        "{ENVIRONMENT}export PITSTOP_CLUSTER_PATIENCE={PATIENCE} PITSTOP_TEST_CGROUPS=systemd TMPDIR={STATE}\n\
         cd {}\n{} --test-threads=1 --exact {}\n",
        text(&root.join("daemon"))?,
        text(&program)?,
        RESIZES.join(" "),
    );
    let tally = run(root, First::Systemd, &script, RESIZES.len());
    step.done();
    tally
}

/// Builds a test program.
fn built(root: &Path, chosen: &[&str], name: &str) -> Result<PathBuf> {
    let cargo = Cmd::cargo().args(["test", "--no-run", "--locked", "--quiet"]).args(chosen);
    let messages = cargo.arg("--message-format=json-render-diagnostics").dir(root).read_loud()?;
    executables(&messages)?.remove(name).with_context(|| format!("cargo built no tests {name}"))
}

/// Runs a script in the machine and counts its tests. Another number than `tests` is a failure.
fn run(root: &Path, first: First, script: &str, tests: usize) -> Result<Tally> {
    let mut count = CargoCount::default();
    shared::run(root, first, script, LIMIT, |line| {
        println!("{line}");
        count.line(line);
    })?;
    let mut tally = count.end(true);
    let ran = usize::try_from(tally.passed + tally.failed).unwrap_or(usize::MAX);
    if ran != tests {
        tally.broke(format!("{ran} of {tests} tests ran"));
    }
    Ok(tally)
}

/// The script for the machine.
fn script(
    root: &Path,
    platform: Platform,
    driver: Driver,
    images: &[Built],
    program: &Path,
    tests: &[&str],
) -> Result<String> {
    let cluster = platform.kubernetes.program(root);
    let (runtime, driver) = (platform.runtime.name(), driver.name());
    let (cluster, e2e) = (text(&cluster)?, text(&root.join("tests/e2e"))?);
    let mut script = format!(
        "{ENVIRONMENT}export PITSTOP_CLUSTER_PATIENCE={PATIENCE}\n\
         export KUBECONFIG={STATE}/cluster/kubeconfig PITSTOP_CLUSTER_DIR={STATE}/cluster PITSTOP_CLUSTER_BIN={cluster}\n\
         {cluster} up --dir {STATE}/cluster --nodes 1 --runtime {runtime} --cgroup-driver {driver}\n"
    );
    for image in images {
        // Writing to a String cannot fail.
        let _ = writeln!(
            script,
            "{cluster} push --dir {STATE}/cluster {} {}",
            text(&image.path)?,
            image.reference()
        );
    }
    let _ = writeln!(script, "cd {e2e}\n{} --test-threads=1 --exact {}", text(program)?, tests.join(" "));
    Ok(script)
}

/// A path, quoted for the shell.
fn text(path: &Path) -> Result<String> {
    path.to_str().map(quoted).with_context(|| format!("{} is no text", path.display()))
}

/// A word, quoted for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
