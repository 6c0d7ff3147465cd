//! `cargo xtask fuzz`: builds the fuzz targets of `tests/fuzz` and runs one per processor at a time.
//!
//! They are instrumented as by `cargo fuzz --sanitizer none`, which the stable compiler supports
//! (`tests/fuzz/instrument`). Code without `unsafe` does not have the faults that sanitizers look for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};

use crate::debian;
use crate::image::executables;
use crate::progress::{Step, note};
use crate::sh::Cmd;
use crate::workspace::{programs_of_test, shown};

/// Seconds for each target.
const SECONDS: u64 = 60;
/// The same in a test run, whose other tests also read the committed corpora.
const SECONDS_IN_TESTS: u64 = 30;
/// Longest input, in bytes; the corpora have shorter ones.
const MAX_LEN: u64 = 16 * 1024;
/// Number of last output lines that are printed for a crash.
const TAIL: usize = 40;

/// Wrapper that cargo runs instead of the compiler for our own crates.
const INSTRUMENT: &str = "tests/fuzz/instrument";

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For how long each target runs.
    #[arg(long, value_name = "N", default_value_t = SECONDS)]
    seconds: u64,
    /// Afterwards, add inputs that cover more to the committed corpora.
    #[arg(long)]
    keep: bool,
    /// Only these targets.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// How many targets ran, and how many of them crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) targets: u64,
    pub(crate) crashes: u64,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "targets={} crashes={}", self.targets, self.crashes)
    }
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    require()?;
    let chosen = chosen(&all(root)?, &args.targets)?;
    let fuzzer = Fuzzer::build(root)?;
    let count = fuzzer.run_all(chosen.clone(), args.seconds)?;
    if args.keep && count.crashes == 0 {
        for target in &chosen {
            fuzzer.keep(target)?;
        }
    }
    println!("{count}");
    Ok(if count.crashes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs every target, for `cargo xtask test`.
pub(crate) fn look_for_crashes(root: &Path) -> Result<Count> {
    Fuzzer::build(root)?.run_all(all(root)?, SECONDS_IN_TESTS)
}

/// Makes sure that libFuzzer, which is C++, can be compiled.
pub(crate) fn require() -> Result<()> {
    debian::ensure(&["g++"], "fuzzing")
}

/// Names of the targets, which are those of their corpora's folders.
fn all(root: &Path) -> Result<BTreeSet<String>> {
    let folder = root.join("tests/fuzz/corpus");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()
        .with_context(|| format!("cannot read {}", folder.display()))
}

fn chosen(all: &BTreeSet<String>, asked: &[String]) -> Result<BTreeSet<String>> {
    if let Some(unknown) = asked.iter().find(|name| !all.contains(*name)) {
        let known = all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        bail!("there is no fuzz target {unknown:?}; there are {known}");
    }
    Ok(if asked.is_empty() { all.clone() } else { asked.iter().cloned().collect() })
}

/// The built targets, and the root of the checkout.
struct Fuzzer<'a> {
    root: &'a Path,
    /// The programs by the targets' names.
    programs: BTreeMap<String, PathBuf>,
}

impl<'a> Fuzzer<'a> {
    fn build(root: &'a Path) -> Result<Self> {
        let step = Step::begin("building the fuzz targets");
        let built = programs_of_test(root, "targets")
            .args(["--features", "pitstop-fuzz/libfuzzer"])
            .env("RUSTC_WORKSPACE_WRAPPER", root.join(INSTRUMENT))
            .read_loud()?;
        step.done();
        Ok(Self { root, programs: executables(&built)? })
    }

    fn program(&self, target: &str) -> Result<&Path> {
        let program = self.programs.get(target).map(PathBuf::as_path);
        program.with_context(|| format!("cargo built no program named {target}"))
    }

    fn folder(&self, kind: &str, target: &str) -> PathBuf {
        self.root.join("target/fuzz").join(kind).join(target)
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.root.join("tests/fuzz/corpus").join(target)
    }

    fn run_all(&self, targets: BTreeSet<String>, seconds: u64) -> Result<Count> {
        let count = Mutex::new(Count::default());
        let queue = Mutex::new(VecDeque::from_iter(targets));
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let worker = || -> Result<()> {
            while let Some(target) = next() {
                let seen = self.run(&target, seconds)?;
                let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
                count.targets += 1;
                count.crashes += u64::from(seen.crash.is_some());
                println!("{target}: {seen}");
                if let Some(crash) = &seen.crash {
                    self.report(&target, crash);
                }
            }
            Ok(())
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            running.into_iter().try_for_each(|one| match one.join() {
                Ok(result) => result,
                Err(_) => bail!("a fuzz target could not be watched"),
            })
        })?;
        Ok(count.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn run(&self, target: &str, seconds: u64) -> Result<Seen> {
        let (work, crashes) = (self.folder("corpus", target), self.folder("crashes", target));
        for folder in [&work, &crashes] {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut command = Cmd::new(self.program(target)?)
            // New inputs go into the first folder.
            .args([work, self.corpus(target)])
            .args([format!("-max_total_time={seconds}"), format!("-max_len={MAX_LEN}")])
            .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"])
            .arg(format!("-artifact_prefix={}/", crashes.display()))
            .dir(self.root);
        let words = self.root.join("tests/fuzz/dictionaries").join(format!("{target}.dict"));
        if words.is_file() {
            command = command.arg(format!("-dict={}", words.display()));
        }
        let mut seen = Seen::default();
        let status = command.each_line(|line| {
            seen.line(String::from_utf8_lossy(line.unwrap_or_default()).trim_end());
        })?;
        if !status.success() {
            seen.crash.get_or_insert_default();
        }
        Ok(seen)
    }

    fn report(&self, target: &str, crash: &Crash) {
        crash.tail.iter().for_each(note);
        let Some(input) = &crash.input else {
            return note(format!("{target} ended without an input to blame"));
        };
        note(format!("its input: {}", shown(self.root, input)));
        note(format!("again:     cp {} tests/fuzz/corpus/{target}/", shown(self.root, input)));
        note(format!("           cargo test -p pitstop-fuzz --test corpora {target}"));
    }

    /// Adds inputs that cover more to the committed corpus.
    fn keep(&self, target: &str) -> Result<()> {
        Cmd::new(self.program(target)?)
            .args(["-set_cover_merge=1".to_owned(), format!("-max_len={MAX_LEN}")])
            .args([self.corpus(target), self.folder("corpus", target)])
            .dir(self.root)
            .run_quiet()
    }
}

/// Contents of a target's output.
#[derive(Debug, Default)]
struct Seen {
    executions: u64,
    coverage: u64,
    tail: VecDeque<String>,
    crash: Option<Crash>,
}

/// A crash, a time-out, or too much memory.
#[derive(Debug, Default)]
struct Crash {
    input: Option<PathBuf>,
    tail: Vec<String>,
}

impl Seen {
    fn line(&mut self, line: &str) {
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
        // `#4096 pulse  cov: 12 ft: 12 ...`
        if let Some(covered) = line.split_once(" cov: ") {
            self.coverage = number(covered.1.split_whitespace().next()).unwrap_or(self.coverage);
            let executed = line.strip_prefix('#').and_then(|rest| rest.split_whitespace().next());
            self.executions = number(executed).unwrap_or(self.executions);
        } else if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = number(Some(count)).unwrap_or(self.executions);
        } else if let Some((_, input)) = line.split_once("Test unit written to ") {
            self.crash = Some(Crash { input: Some(input.into()), tail: self.tail.drain(..).collect() });
        } else {
            self.tail.push_back(line.to_owned());
            if self.tail.len() > TAIL {
                self.tail.pop_front();
            }
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crash = if self.crash.is_some() { "CRASHED" } else { "no crash" };
        write!(f, "{} executions, coverage {}, {crash}", self.executions, self.coverage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_counted() {
        let mut seen = Seen::default();
        for line in [
            "INFO: Seed: 1",
            "#2\tINITED cov: 8 ft: 8 corp: 1/1b exec/s: 0 rss: 27Mb",
            "#16777216\tpulse  cov: 12 ft: 12 corp: 5/21b",
            "Done 23288264 runs in 11 second(s)",
            "stat::number_of_executed_units: 23288264",
        ] {
            seen.line(line);
        }
        assert_eq!(seen.to_string(), "23288264 executions, coverage 12, no crash");
    }

    #[test]
    fn a_crash_names_its_input_and_what_was_said() {
        let mut seen = Seen::default();
        for line in [
            "#7\tNEW    cov: 9 ft: 9",
            "thread '<unnamed>' panicked at a.rs:1:1:",
            "a property broke",
            "artifact_prefix='x/'; Test unit written to x/crash-1",
            "Base64: AA==",
        ] {
            seen.line(line);
        }
        assert_eq!(seen.to_string(), "7 executions, coverage 9, CRASHED");
        let crash = seen.crash.unwrap();
        assert_eq!((crash.input, crash.tail.len()), (Some(PathBuf::from("x/crash-1")), 2));
    }

    #[test]
    fn targets_are_chosen_by_their_names() {
        let all = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(chosen(&all, &[]).unwrap(), all);
        assert_eq!(chosen(&all, &["b".to_owned()]).unwrap(), BTreeSet::from(["b".to_owned()]));
        let error = chosen(&all, &["c".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "there is no fuzz target \"c\"; there are a, b");
    }

    #[test]
    fn the_last_line_has_its_form() {
        assert_eq!(Count { targets: 8, crashes: 1 }.to_string(), "targets=8 crashes=1");
    }
}
