//! The tests of `tests/e2e`, in two parts: each on a cluster of the Kubernetes that it is about.

use std::path::Path;

use anyhow::Result;

use super::tally::{CargoCount, Tally};
use super::{cargo_test, counted, skipped};
use crate::kubernetes::Kubernetes;
use crate::progress::note;
use crate::{debian, image, lab};

/// The module of tests that need a cluster without the resize API. All others need one with it.
const WITHOUT_RESIZE: &str = "cri::";
/// The test programs of `tests/e2e`. No other crate has tests of these names.
const TESTS: [&str; 2] = ["pitstop", "cluster_conformance"];

/// Tests that may run beside each other mostly wait; the harness keeps all others apart.
const TEST_THREADS: &str = "--test-threads=3";

/// One part.
pub(super) struct Part {
    /// What it is called.
    pub(super) name: &'static str,
    kubernetes: &'static Kubernetes,
    /// What narrows the tests down to those of this part.
    choice: &'static [&'static str],
}

/// Both parts, in the order in which they run: a machine has room for one cluster at a time.
pub(super) fn parts() -> [Part; 2] {
    [
        Part {
            name: "tests on a real cluster",
            kubernetes: Kubernetes::default(),
            choice: &["--skip", WITHOUT_RESIZE],
        },
        Part {
            name: "tests on a real cluster without the resize API",
            kubernetes: Kubernetes::without_resize(),
            choice: &[WITHOUT_RESIZE],
        },
    ]
}

impl Part {
    /// Runs it on a fresh cluster.
    pub(super) fn run(&self, root: &Path) -> Result<Tally> {
        if let Some(skipped) = skipped(lab::require())? {
            return Ok(skipped);
        }
        // Commands of the documentation that tests run need it.
        debian::ensure(&["jq"], "the tests on a cluster")?;
        let images = image::build(root, false)?;
        let run = || {
            // Of the whole workspace, as the tests of the crates: for one package alone, cargo builds most of what comes
            // from elsewhere once more, with the features that this one asks for.
            let tests = TESTS.into_iter().flat_map(|name| ["--test", name]);
            let command = lab::told(root, cargo_test(root))
                .args(["test", "--locked", "--no-fail-fast", "--workspace"])
                .args(tests)
                .args(["--", TEST_THREADS])
                .args(self.choice);
            Ok(one_at_least(counted(command, CargoCount::default())?))
        };
        let good = |tally: &Tally| tally.failed == 0;
        let outcome = lab::with_cluster(root, self.kubernetes, 1, &images, run, good)?;
        let mut tally = outcome.value;
        // A cluster that cannot be taken down is worth knowing, but says less than a suite that could not run.
        if let Err(error) = outcome.down {
            note(format!("{error:#}"));
            tally.broke("taking the cluster down");
        }
        Ok(tally)
    }
}

/// A part without a test is a failure: its module is called something else now.
fn one_at_least(mut tally: Tally) -> Tally {
    if tally.passed + tally.failed == 0 {
        tally.broke("no test ran");
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn every_test_is_in_one_part() {
        let [with, without] = parts();
        assert_eq!(with.choice, ["--skip", WITHOUT_RESIZE]);
        assert_eq!(without.choice, [WITHOUT_RESIZE]);
        assert_ne!(with.kubernetes, without.kubernetes);
        // Chosen by a part of the tests' names, which no other module may have.
        let folder = workspace::root().unwrap().join("tests/e2e/tests/pitstop");
        let module = WITHOUT_RESIZE.trim_end_matches(':');
        let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
        let modules = main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
        assert_eq!(modules.filter(|name| name.ends_with(module)).collect::<Vec<_>>(), [module]);
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
