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
            let tests = ["test", "--locked", "--no-fail-fast", "-p", "pitstop-e2e", "--", "--test-threads=1"];
            let command = lab::told(root, cargo_test(root)).args(tests).args(self.choice);
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
    fn a_part_without_a_test_fails() {
        assert_eq!(one_at_least(Tally::default()).broken, ["no test ran"]);
        let tally = one_at_least(Tally { passed: 1, ..Tally::default() });
        assert_eq!((tally.passed, tally.failed), (1, 0));
    }
}
