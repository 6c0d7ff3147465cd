//! `cargo xtask mutants`: changes the code that decides, one place at a time, and checks that a test fails: one of
//! the crate itself, a scenario of the simulator, or one of a few hundred seeds.
//!
//! `cargo mutants` chooses the changes; `.cargo/mutants.toml` has its settings.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::progress::{Step, note};
use crate::sh::Cmd;
use crate::tools::Tool;

const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0", args: &["mutants", "--version"] };

/// The packages that decide, each with the packages whose tests must fail, besides the simulator's.
const PACKAGES: [(&str, &[&str]); 3] = [
    ("pitstop-controller-core", &["pitstop-controller-core"]),
    ("pitstop-daemon-core", &["pitstop-daemon-core"]),
    ("pitstop-api", &["pitstop-api", "pitstop-controller-core", "pitstop-daemon-core"]),
];
/// The package with the scenarios.
const SIMULATOR: &str = "pitstop-sim";
/// Tests to run: the packages' own, and the simulator's test for mutants.
const CHOICE: [&str; 5] = ["--lib", "--test", "mutants", "--features", "pitstop-sim/mutants"];
/// Timeout of a mutant: a factor of the time of all tests without a mutant, and a minimum in seconds. A slower mutant
/// counts as an endless loop.
const PATIENCE: (u64, u64) = (3, 60);
/// Folder of builds and results.
const OUT: &str = "target/mutants";
const BUILD: &str = "build";
/// List of mutants that tests may miss.
const ALLOWED: &str = "tests/sim/mutants.toml";

/// Exit codes of `cargo mutants` with complete counts: all caught, some missed, some timed out.
const COMPLETE: [i32; 3] = [0, 2, 3];

/// What to change.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this package; may be given several times.
    #[arg(long = "package", value_name = "NAME", value_parser = PACKAGES.map(|(name, _)| name))]
    packages: Vec<String>,
    /// Only these sources: a pattern of paths from the root of the checkout; may be given several times.
    #[arg(long = "file", value_name = "GLOB")]
    files: Vec<String>,
    /// Only the part K of N, from 0.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only what differs from a commit.
    #[arg(long, value_name = "BASE")]
    in_diff: Option<String>,
}

/// Mutants by result.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    caught: usize,
    missed: BTreeSet<String>,
    /// Missed mutants that [`ALLOWED`] lists.
    allowed: usize,
    unviable: usize,
    timeout: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { caught, missed, allowed, unviable, timeout } = self;
        let missed = missed.len();
        write!(f, "caught={caught} missed={missed} allowed={allowed} unviable={unviable} timeout={timeout}")
    }
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let allowed = Allowed::load(root)?;
    let tool = MUTANTS.installed(root)?;
    let out = root.join(OUT);
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let diff = args.in_diff.as_ref().map(|base| -> Result<_> {
        let path = out.join("base.diff");
        let text = Cmd::new("git").args(["diff", base.as_str()]).dir(root).read()?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    });
    let diff = diff.transpose()?;
    let mut count = Count::default();
    let chosen = |name: &str| args.packages.is_empty() || args.packages.iter().any(|one| one == name);
    for (package, tested) in PACKAGES.into_iter().filter(|(name, _)| chosen(name)) {
        let step = Step::begin(format!("mutants of {package}"));
        let results = out.join(package).join("mutants.out");
        if results.exists() {
            fs::remove_dir_all(&results).with_context(|| format!("cannot remove {}", results.display()))?;
        }
        let tested = || tested.iter().chain(&[SIMULATOR]);
        let usual = unchanged(root, &out, tested().flat_map(|package| ["--package", package]))?;
        let patience = usual.as_secs().saturating_mul(PATIENCE.0).max(PATIENCE.1).to_string();
        let mut command = Cmd::new(&tool)
            .args(["mutants", "--no-shuffle", "--package", package])
            // The tool's own baseline does not know the tests of other packages.
            .args(["--baseline", "skip", "--timeout", &patience])
            .args(tested().flat_map(|package| ["--test-package", package]))
            .args(CHOICE.map(|arg| format!("--cargo-arg={arg}")))
            .args(args.files.iter().flat_map(|file| ["--file", file]))
            .args(args.shard.iter().flat_map(|shard| ["--shard", shard]));
        if let Some(diff) = &diff {
            command = command.arg("--in-diff").arg(diff);
        }
        // The tool copies the sources each time; dependencies are built once.
        let status = command
            .arg("--output")
            .arg(out.join(package))
            .env("CARGO_TARGET_DIR", out.join(BUILD))
            .dir(root)
            .status()?;
        if status.code().is_none_or(|code| !COMPLETE.contains(&code)) {
            bail!("`cargo mutants` failed: {status}; its logs are in {OUT}/{package}/mutants.out/log");
        }
        count.add(&allowed, |name| fs::read_to_string(results.join(name)).unwrap_or_default());
        step.done();
    }
    for one in &count.missed {
        note(format!("missed: {one}"));
    }
    println!("{count}");
    Ok(if count.missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the tests without a mutant, and returns how long they took. No test may fail, or all mutants would count as
/// caught.
fn unchanged<'a>(root: &Path, out: &Path, packages: impl Iterator<Item = &'a str>) -> Result<Duration> {
    let step = Step::begin("the same tests without a change");
    let packages: Vec<&str> = packages.collect();
    let test = |more: &[&str]| {
        Cmd::cargo()
            .args(["test", "--locked", "--quiet"])
            .args(&packages)
            .args(CHOICE)
            .args(more)
            .env("CARGO_TARGET_DIR", out.join(BUILD))
            .dir(root)
            .run_quiet()
    };
    test(&["--no-run"])?;
    let start = Instant::now();
    test(&[])?;
    step.done();
    Ok(start.elapsed())
}

impl Count {
    /// Adds the results of `cargo mutants`, one mutant a line.
    fn add(&mut self, allowed: &Allowed, read: impl Fn(&str) -> String) {
        self.caught += read("caught.txt").lines().count();
        self.unviable += read("unviable.txt").lines().count();
        self.timeout += read("timeout.txt").lines().count();
        for one in read("missed.txt").lines() {
            if allowed.has(one) {
                self.allowed += 1;
            } else {
                self.missed.insert(one.to_owned());
            }
        }
    }
}

/// Mutants that tests may miss, with reasons.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    #[serde(default)]
    allowed: Vec<AllowedMutant>,
}

/// One mutant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedMutant {
    /// The source, from the root of the checkout.
    file: String,
    /// Its description by `cargo mutants`, after the position.
    mutant: String,
    /// Why no test can, or needs to, notice it.
    reason: String,
}

impl Allowed {
    fn load(root: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(root.join(ALLOWED)).with_context(|| format!("cannot read {ALLOWED}"))?;
        let this: Self = toml::from_str(&text).with_context(|| format!("{ALLOWED} cannot be read"))?;
        for AllowedMutant { file, mutant, reason } in &this.allowed {
            if reason.trim().is_empty() {
                bail!("{ALLOWED} allows {mutant:?} in {file} without a reason");
            }
            if !root.join(file).is_file() {
                bail!("{ALLOWED} allows {mutant:?} in {file}, which is not there");
            }
        }
        Ok(this)
    }

    /// Whether it has a mutant, given as `FILE:LINE:COLUMN: MUTANT`.
    fn has(&self, line: &str) -> bool {
        let Some((position, mutant)) = line.split_once(": ") else { return false };
        let file = position.split(':').next().unwrap_or_default();
        self.allowed.iter().any(|one| one.file == file && one.mutant == mutant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_no_miss() {
        let allowed = Allowed {
            allowed: vec![AllowedMutant {
                file: "a.rs".to_owned(),
                mutant: "replace f -> u8 with 1".to_owned(),
                reason: "r".to_owned(),
            }],
        };
        let read = |name: &str| match name {
            "missed.txt" => {
                "a.rs:3:5: replace f -> u8 with 1\na.rs:3:5: replace f -> u8 with 0\n\
                 b.rs:3:5: replace f -> u8 with 1\n"
            }
            "caught.txt" => "a.rs:1:1: x\na.rs:2:1: x\n",
            "timeout.txt" => "a.rs:9:1: x\n",
            _ => "",
        };
        let mut count = Count::default();
        count.add(&allowed, |name| read(name).to_owned());
        assert_eq!(count.to_string(), "caught=2 missed=2 allowed=1 unviable=0 timeout=1");
    }

    #[test]
    fn the_list_is_read() {
        Allowed::load(&crate::workspace::root().unwrap()).unwrap();
    }
}
