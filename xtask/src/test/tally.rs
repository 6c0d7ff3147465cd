//! Counts tests from the lines that test programs print.

use std::fmt;

/// Counts of tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Names of failed tests, and of failures without a test (did not compile, broke off, could not be started).
    pub(crate) failures: Vec<String>,
}

impl Tally {
    /// Adds another count.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
    }

    /// Counts one failure without a test.
    pub(crate) fn broke(&mut self, what: impl Into<String>) {
        self.failed += 1;
        self.failures.push(what.into());
    }
}

/// `N passed, N failed`, with `, N skipped` when there are some.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// A reader of one test runner's lines.
pub(crate) trait Count {
    /// Takes a line.
    fn line(&mut self, line: &str);

    /// Returns the counts. `success`: whether the runner's exit code is 0.
    fn end(self, success: bool) -> Tally;
}

/// Reads `cargo test`.
#[derive(Debug, Default)]
pub(crate) struct CargoCount {
    tally: Tally,
    /// The program that was started and has not yet given its result.
    running: Option<String>,
    /// Lines below `failures:`.
    listed: Option<Listed>,
}

/// Lines below `failures:`: first the output of each test, then, below a second one, only their names.
#[derive(Debug, Default)]
struct Listed {
    /// Each test, and the first lines of its panic.
    panics: Vec<(String, Vec<String>)>,
    names: Vec<String>,
}

/// Number of lines that are kept of a panic: users may see only the last lines of a long run.
const PANIC_LINES: usize = 12;

impl Listed {
    fn line(&mut self, line: &str) {
        if line == "failures:" {
            self.names.clear();
            self.panics.push(Default::default());
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.panics.push((name.to_owned(), Vec::new()));
        } else if let Some((_, lines)) = self.panics.last_mut()
            && (line.contains(" panicked at ") || (1..PANIC_LINES).contains(&lines.len()))
        {
            lines.push(line.to_owned());
        }
        self.names.extend(line.strip_prefix("    ").map(str::to_owned));
    }

    /// Each name, and below it the lines of its panic.
    fn end(self) -> impl Iterator<Item = String> {
        let Self { panics, names } = self;
        names.into_iter().map(move |name| {
            let panic = panics.iter().find(|(whose, _)| *whose == name);
            let lines = panic.into_iter().flat_map(|(_, lines)| lines).filter(|line| !line.trim().is_empty());
            lines.fold(name.clone(), |text, line| text + "\n    " + line)
        })
    }
}

impl CargoCount {
    fn start(&mut self, next: Option<String>) {
        if let Some(program) = std::mem::replace(&mut self.running, next) {
            self.tally.broke(format!("{program} broke off"));
        }
    }
}

impl Count for CargoCount {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if let Some(result) = text.strip_prefix("test result: ") {
            self.running = None;
            self.tally.failures.extend(self.listed.take().into_iter().flat_map(Listed::end));
            for part in result.split([';', '.']) {
                match part.trim().split_once(' ') {
                    Some((count, "passed")) => self.tally.passed += count.parse().unwrap_or(0),
                    Some((count, "failed")) => self.tally.failed += count.parse().unwrap_or(0),
                    Some((count, "ignored")) => self.tally.skipped += count.parse().unwrap_or(0),
                    _ => {}
                }
            }
        } else if let Some(listed) = &mut self.listed {
            listed.line(line);
        } else if line == "failures:" {
            self.listed = Some(Listed::default());
        } else if let Some(program) = text.strip_prefix("Running ").filter(|_| line.starts_with("     ")) {
            self.start(Some(program.to_owned()));
        } else if let Some(library) = text.strip_prefix("Doc-tests ").filter(|_| line.starts_with("   ")) {
            self.start(Some(format!("documentation of {library}")));
        } else if let Some(error) = text.strip_prefix("error: could not compile ") {
            let name = error.split_whitespace().next().unwrap_or_default().trim_matches('`');
            let what = format!("{name} does not compile");
            if !self.tally.failures.contains(&what) {
                self.tally.broke(what);
            }
        }
    }

    fn end(mut self, success: bool) -> Tally {
        self.start(None);
        if !success && self.tally.failed == 0 {
            self.tally.broke("cargo test");
        }
        self.tally
    }
}

/// Reads `go test -v`. Only whole tests count, not their parts.
#[derive(Debug, Default)]
pub(crate) struct GoCount {
    tally: Tally,
    /// Failures counted when the last package ended.
    before: u64,
}

impl Count for GoCount {
    fn line(&mut self, line: &str) {
        if line.starts_with("--- PASS: ") {
            self.tally.passed += 1;
        } else if let Some(test) = line.strip_prefix("--- FAIL: ") {
            self.tally.broke(test.split_whitespace().next().unwrap_or_default());
        } else if line.starts_with("--- SKIP: ") {
            self.tally.skipped += 1;
        } else if let Some(package) = line.strip_prefix("FAIL\t") {
            // A package that failed without a failed test was not built, or panicked.
            if self.tally.failed == self.before {
                self.tally.broke(package.split_whitespace().next().unwrap_or("go test"));
            }
            self.before = self.tally.failed;
        }
    }

    fn end(mut self, success: bool) -> Tally {
        if !success && self.tally.failed == 0 {
            self.tally.broke("go test");
        }
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(mut counter: impl Count, text: &str, success: bool) -> Tally {
        text.lines().for_each(|line| counter.line(line));
        counter.end(success)
    }

    #[test]
    fn the_last_line_has_its_form() {
        let mut tally = Tally { passed: 3, ..Tally::default() };
        assert_eq!(tally.to_string(), "3 passed, 0 failed");
        tally.add(Tally { passed: 1, failed: 2, skipped: 1, failures: vec!["x".to_owned()] });
        assert_eq!(tally.to_string(), "4 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn results_of_all_programs_are_summed() {
        let text = "\
     Running unittests src/lib.rs (target/debug/deps/pitstop_api-1)
running 5 tests
test a ... ok
test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
     Running tests/laws.rs (target/debug/deps/laws-2)
failures:

---- one stdout ----
    said before
thread 'one' panicked at a.rs:1:2:
assertion failed

    left: 1

failures:
    one
    part::two

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.11s
   Doc-tests pitstop_api
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
error: 1 target failed:";
        let names = vec![
            "one\n    thread 'one' panicked at a.rs:1:2:\n    assertion failed\n        left: 1".to_owned(),
            "part::two".to_owned(),
        ];
        let expected = Tally { passed: 5, failed: 2, skipped: 1, failures: names };
        assert_eq!(count(CargoCount::default(), text, false), expected);
    }

    #[test]
    fn a_program_without_a_result_broke_off() {
        let text = [
            "     Running unittests src/lib.rs (target/debug/deps/a-1)",
            "running 1 test",
            "     Running unittests src/lib.rs (target/debug/deps/b-2)",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ];
        let tally = count(CargoCount::default(), &text.join("\n"), false);
        assert_eq!((tally.passed, tally.failed), (2, 1));
        assert_eq!(tally.failures, ["unittests src/lib.rs (target/debug/deps/a-1) broke off"]);
    }

    #[test]
    fn what_does_not_compile_is_one_failure_with_its_name() {
        let text = "error[E0425]: cannot find value\nerror: could not compile `pitstop-kit` (lib test) due to 1 previous error\n\
                    error: could not compile `pitstop-kit` (lib) due to 1 previous error";
        let tally = count(CargoCount::default(), text, false);
        assert_eq!((tally.failed, tally.failures), (1, vec!["pitstop-kit does not compile".to_owned()]));
    }

    #[test]
    fn a_failure_without_a_word_is_one_failure() {
        assert_eq!(count(CargoCount::default(), "", false).failures, ["cargo test"]);
        assert_eq!(count(CargoCount::default(), "", true), Tally::default());
    }

    #[test]
    fn go_tests_count_without_their_parts() {
        let text = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/part (0.00s)\n--- SKIP: TestB (0.00s)\n\
                    --- FAIL: TestC (0.00s)\nFAIL\nFAIL\tpitstop.dev/x\t0.01s\nok  \tpitstop.dev/y\t0.02s";
        let expected = Tally { passed: 1, failed: 1, skipped: 1, failures: vec!["TestC".to_owned()] };
        assert_eq!(count(GoCount::default(), text, false), expected);
    }

    #[test]
    fn a_go_package_that_is_not_built_or_panics_is_one_failure_with_its_name() {
        let text = "--- FAIL: TestC (0.00s)\nFAIL\tpitstop.dev/x\t0.01s\nFAIL\tpitstop.dev/y [build failed]\n\
                    panic: oh\nFAIL\tpitstop.dev/z\t0.01s\nFAIL";
        let tally = count(GoCount::default(), text, false);
        assert_eq!(
            (tally.failed, tally.failures),
            (3, ["TestC", "pitstop.dev/y", "pitstop.dev/z"].map(str::to_owned).to_vec())
        );
    }
}
