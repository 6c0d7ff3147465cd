//! The tests of `tests/e2e`, in parts. Each runs on a cluster of the Kubernetes that it tests.

use std::path::PathBuf;

use anyhow::Result;

use super::tally::{CargoCount, Tally};
use super::{cargo_test, counted};
use crate::cluster::Cluster;
use crate::image::Built;
use crate::kubernetes::Platform;
use crate::lab;
use crate::progress::note;

/// The module of tests that need a cluster without the resize API. All others need one with it.
const WITHOUT_RESIZE: &str = "cri::";
/// The module of tests that need an older version beside this one, and the variable with the path of that version.
const OLDER: &str = "older::";
const OLDER_IS_AT: &str = "PITSTOP_TEST_OLDER";
/// Modules that only parts of their own run.
const APART: [&str; 2] = [WITHOUT_RESIZE, OLDER];
/// Test of a new user's first steps, from the pages that README names.
const NEWCOMER: &str = "walked::somebody_new_restarts_and_resizes_containers";
/// One test for each way in which pitstop changes a container, and one of the daemon's reads. For clusters that
/// cannot run all tests.
pub(super) const A_FEW: [&str; 7] = [
    "images::images_are_pulled_and_changed_and_put_back",
    "mechanism::native_sidecars_restart_by_both_mechanisms",
    "mechanism::the_kubelet_restarts_what_is_pinned",
    "resize::a_pod_grows_and_shrinks_in_its_place",
    "resize::repaired::a_pod_that_stays_too_small_while_it_runs_is_repaired_by_default",
    "restart::one_container_restarts_and_the_other_stays",
    "verify::the_daemon_tells_what_the_kernel_has_before_and_after_a_resize",
];
/// The same for clusters without the resize API: a restart, and a resize by the daemon.
pub(super) const A_FEW_WITHOUT_RESIZE: [&str; 2] = [
    "cri::given::a_pod_grows_and_shrinks_in_its_place",
    "cri::given::a_restarted_container_is_given_it_again",
];
/// The test programs of `tests/e2e`. No other crate has tests of these names.
const TESTS: [&str; 2] = ["pitstop", "cluster_conformance"];

/// Tests that may run side by side mostly wait; the harness separates all others.
const TEST_THREADS: &str = "--test-threads=3";
/// Modules of the first two parts, which take about as long as each other and as all other tests. No nested module
/// has one of these names, except in modules with parts of their own.
const FIRST: [&str; 5] = ["away::", "crash::", "deadline::", "documented::", "updates::"];
const SECOND: [&str; 9] = [
    "certificates::",
    "charted::",
    "cli::",
    "comes_back::",
    "deployed::",
    "killed::",
    "midroll::",
    "released::",
    "walked::",
];

/// A part of the tests.
pub(super) struct Part {
    /// Its name.
    pub(super) name: &'static str,
    platform: Platform,
    /// Arguments that select the tests of this part.
    choice: Vec<&'static str>,
    /// Checkout of an older version that its tests also install. None: only this version.
    older: Option<PathBuf>,
}

/// The tests with the resize API, in three parts.
pub(super) fn with_resize(platform: Platform) -> [Part; 3] {
    let skipped = |modules: &[&'static str]| -> Vec<_> {
        modules.iter().flat_map(|module| ["--skip", *module]).collect()
    };
    let of = |modules: &[&'static str]| [&skipped(&APART), modules].concat();
    [
        Part::new("the first tests on a real cluster", platform, of(&FIRST)),
        Part::new("the second tests on a real cluster", platform, of(&SECOND)),
        Part::new(
            "the other tests on a real cluster",
            platform,
            of(&skipped(&[&FIRST[..], &SECOND].concat())),
        ),
    ]
}

/// [`A_FEW`], with the resize API.
pub(super) fn a_few(platform: Platform) -> Part {
    Part::new("a few tests on a real cluster", platform, ["--exact"].into_iter().chain(A_FEW).collect())
}

/// The tests without the resize API.
pub(super) fn without_resize(platform: Platform) -> Part {
    Part::new("tests on a real cluster without the resize API", platform, vec![WITHOUT_RESIZE])
}

/// A downgrade to the older version of that checkout, and the upgrade back.
pub(super) fn older(platform: Platform, checkout: PathBuf) -> Part {
    let part = Part::new("a downgrade and an upgrade on a real cluster", platform, vec![OLDER]);
    Part { older: Some(checkout), ..part }
}

/// The commands of the first pages.
pub(super) fn newcomer(platform: Platform) -> Part {
    Part::new("the first pages on a real cluster", platform, vec!["--exact", NEWCOMER])
}

impl Part {
    fn new(name: &'static str, platform: Platform, choice: Vec<&'static str>) -> Self {
        Self { name, platform, choice, older: None }
    }

    /// Runs it on the running cluster.
    pub(super) fn go(&self, cluster: Cluster<'_>) -> Result<Tally> {
        let root = cluster.root;
        // Builds the program along with its own test, as in the tests of the crates. Alone, much of it would be built
        // again.
        let program = ["test", "--no-run", "--locked", "--quiet", "--workspace", "--test", "manual"];
        cargo_test(root).args(program).run()?;
        // From the whole workspace, as the tests of the crates: for one package alone, cargo builds most dependencies
        // again, with the features that this package asks for.
        let tests = TESTS.into_iter().flat_map(|name| ["--test", name]);
        let command = cluster.with_env(cargo_test(root));
        let command = self
            .older
            .iter()
            .fold(command, |command, checkout| command.env(OLDER_IS_AT, checkout))
            .args(["test", "--locked", "--no-fail-fast", "--workspace"])
            .args(tests)
            .args(["--", TEST_THREADS])
            .args(&self.choice);
        Ok(one_at_least(counted(command, CargoCount::default())?))
    }

    /// Runs it on a fresh cluster.
    pub(super) fn run(&self, cluster: Cluster<'_>, images: &[Built]) -> Result<Tally> {
        let good = |tally: &Tally| tally.failed == 0;
        let outcome = lab::with_cluster(cluster, self.platform, 1, images, || self.go(cluster), good)?;
        let mut tally = outcome.value;
        // A cluster that cannot be taken down is a failure, but says less than a suite that could not run.
        if let Err(error) = outcome.down {
            note(format!("{error:#}"));
            tally.broke("taking the cluster down");
        }
        Ok(tally)
    }
}

/// A part without a test is a failure: its module has a new name.
fn one_at_least(mut tally: Tally) -> Tally {
    if tally.passed + tally.failed == 0 {
        tally.broke("no test ran");
    }
    tally
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::kubernetes::Kubernetes;
    use crate::workspace;

    #[test]
    fn every_test_is_in_one_part() {
        let parts = with_resize(Kubernetes::default().into());
        let without = without_resize(Kubernetes::without_resize().into());
        let apart = APART.map(|module| ["--skip", module]).concat();
        let named = [&FIRST[..], &SECOND].concat();
        let skipped = named.iter().flat_map(|module| ["--skip", *module]).collect();
        for (part, choice) in parts.iter().zip([FIRST.to_vec(), SECOND.to_vec(), skipped]) {
            assert_eq!(part.choice, [&apart[..], &choice].concat(), "{}", part.name);
        }
        assert_eq!(without.choice, [WITHOUT_RESIZE]);
        for part in parts.iter().chain([&without]) {
            assert_eq!(part.platform.kubernetes.resizes(), part.choice != [WITHOUT_RESIZE], "{}", part.name);
        }
        // A part selects tests by part of their names, which no other module may have.
        let folder = workspace::root().unwrap().join("tests/e2e/tests/pitstop");
        let modules = modules(&folder);
        for chosen in named.into_iter().chain(APART) {
            let ends = |module: &&String| format!("{module}::").ends_with(chosen);
            let having: Vec<_> =
                modules.iter().filter(|module| !module.starts_with(WITHOUT_RESIZE)).filter(ends).collect();
            assert_eq!(having, [chosen.trim_end_matches(':')]);
        }
    }

    #[test]
    fn the_few_are_there() {
        let folder = workspace::root().unwrap().join("tests/e2e/tests/pitstop");
        for test in A_FEW.into_iter().chain(A_FEW_WITHOUT_RESIZE).chain([NEWCOMER]) {
            let (module, name) = test.rsplit_once("::").unwrap();
            let file = folder.join(module.replace("::", "/")).with_extension("rs");
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains(&format!("#[test]\nfn {name}(")), "{test}");
        }
    }

    /// Modules below a folder, named as in tests' names.
    fn modules(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                found.extend(modules(&path).into_iter().map(|inner| format!("{name}::{inner}")));
            }
            if !["main", "mod"].contains(&name.as_str()) && !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    #[test]
    fn every_test_program_is_run_and_is_of_this_crate() {
        let root = workspace::root().unwrap();
        let folder = root.join("tests/e2e/tests");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), TESTS.len());
        let found = crate::sh::Cmd::cargo()
            .args(["metadata", "--locked", "--no-deps", "--format-version=1"])
            .dir(&root)
            .read()
            .unwrap();
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        for name in TESTS {
            let is_it = |target: &serde_json::Value| target["name"] == name && target["kind"][0] == "test";
            let having = found["packages"].as_array().unwrap().iter();
            let having: Vec<_> = having
                .filter(|package| package["targets"].as_array().unwrap().iter().any(is_it))
                .map(|package| &package["name"])
                .collect();
            assert_eq!(having, ["pitstop-e2e"], "{name}");
        }
    }

    #[test]
    fn a_part_without_a_test_fails() {
        assert_eq!(one_at_least(Tally::default()).failures, ["no test ran"]);
        let tally = one_at_least(Tally { passed: 1, ..Tally::default() });
        assert_eq!((tally.passed, tally.failed), (1, 0));
    }
}
