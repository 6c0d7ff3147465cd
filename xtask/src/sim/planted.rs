//! `cargo xtask sim --planted`: checks that the simulator finds every planted bug. `cargo xtask test` also runs the
//! tests that take minutes in this build, with no bug switched on, because compiling the cores takes minutes, too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};

use super::bugs::{self, Bug};
use super::copy;
use super::watch::{self, SearchResult};
use crate::image::executables;
use crate::progress::{Step, note};
use crate::sh::{Cmd, exit_code};
use crate::workspace::programs_of_test;

/// The copy with the bugs.
const OUT: &str = "target/planted";
/// The seeds in which the copy, with no bug switched on, must decide as the checkout does.
const HARMLESS: &str = "0..200";
/// A test of the simulator. Cargo builds the checkout's simulator along with it.
const OF_THE_CHECKOUT: &str = "world";
/// The tests that take minutes, each with its package. Only the feature `campaign` includes them.
const CAMPAIGN: [(&str, &str); 3] =
    [("pitstop-sim", "campaign"), ("pitstop-models", "lease"), ("pitstop-models", "orders")];
const FEATURES: &str = "pitstop-sim/planted,pitstop-sim/campaign,pitstop-models/campaign";
/// How many bugs run side by side.
const SIDE_BY_SIDE: usize = 2;

/// Number of found bugs, and the missed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) found: u64,
    pub(crate) missed: Vec<String>,
}

/// The command. `names`: only these bugs; all if empty.
pub(super) fn run(root: &Path, names: &[String], at_most: u64) -> Result<ExitCode> {
    let Count { found, missed } = look(root, names, at_most)?;
    println!("found={found} missed={}", missed.len());
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the steps of the schedule that shows a bug, and of the smallest one.
pub(super) fn trace(root: &Path, bug: &str, at_most: u64) -> Result<ExitCode> {
    let all = bugs::load(root)?;
    choose(&all, &[bug.to_owned()])?;
    let simulator = build(root, &all)?;
    let status = Cmd::new(simulator.as_os_str())
        .args(["planted", bug, "--trace", "--at-most", &at_most.to_string()])
        .status()?;
    Ok(exit_code(status))
}

/// Looks for the bugs, and prints each result.
pub(super) fn look(root: &Path, names: &[String], at_most: u64) -> Result<Count> {
    let all = bugs::load(root)?;
    let chosen = choose(&all, names)?;
    let simulator = build(root, &all)?;
    harmless(root, &simulator)?;
    let step = Step::begin(format!("looking for {} planted bugs", chosen.len()));
    let results = each(&chosen, |bug| {
        let result = watch::run(&simulator, &bug.id, at_most)?;
        note(line(bug, &result));
        Ok(result)
    })?;
    step.done();
    let mut count = Count { found: 0, missed: Vec::new() };
    for (bug, result) in chosen.iter().zip(&results) {
        println!("{}", line(bug, result));
        if matches!(result, SearchResult::Found(..)) {
            count.found += 1;
        } else {
            println!("    {} ({}; should break {})", bug.title, bug.origin, bug.violates.join(", "));
            println!("    shows: {}", bug.shows);
            count.missed.push(line(bug, result));
        }
    }
    Ok(count)
}

fn choose<'a>(all: &'a [Bug], names: &[String]) -> Result<Vec<&'a Bug>> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|bug| bug.id != **name)) {
        bail!("no planted bug is called {unknown}");
    }
    Ok(all.iter().filter(|bug| names.is_empty() || names.contains(&bug.id)).collect())
}

/// The tests that take minutes, with no bug switched on.
pub(crate) fn campaign(root: &Path) -> Result<Cmd> {
    Ok(cargo(root, &bugs::load(root)?)?.args(["--no-fail-fast", "--", "--test-threads=1", "--nocapture"]))
}

/// Cargo, which builds the copy's simulator along with its tests.
fn cargo(root: &Path, bugs: &[Bug]) -> Result<Cmd> {
    let out = root.join(OUT);
    copy::write(root, &out, bugs)?;
    let tests = CAMPAIGN.into_iter().flat_map(|(package, test)| ["--package", package, "--test", test]);
    let cargo = Cmd::cargo().args(["test", "--profile", "sim", "--features", FEATURES]).args(tests);
    // The checkout and the copy share built dependencies. Not locked: the lock names crates that the copy does not
    // have.
    let own_target = std::env::var_os("CARGO_TARGET_DIR").is_none();
    let target = own_target.then(|| [OsString::from("--target-dir"), root.join("target").into()]);
    Ok(cargo.args(target.into_iter().flatten()).dir(&out))
}

/// Builds the simulator with every bug in it.
fn build(root: &Path, bugs: &[Bug]) -> Result<PathBuf> {
    let step = Step::begin("building the simulator with the planted bugs");
    let cargo = cargo(root, bugs)?.args(["--no-run", "--quiet", "--message-format=json-render-diagnostics"]);
    let program = program(cargo, copy::PROGRAM)?;
    step.done();
    Ok(program)
}

/// The simulator of the checkout, as the tests of the crates build it: that is quicker than another build with optimization.
fn of_the_checkout(root: &Path) -> Result<PathBuf> {
    program(programs_of_test(root, OF_THE_CHECKOUT), "pitstop-sim")
}

fn program(cargo: Cmd, name: &str) -> Result<PathBuf> {
    let mut programs = executables(&cargo.read_loud()?)?;
    programs.remove(name).with_context(|| format!("cargo built no program named {name}"))
}

/// Fails unless the copy, with no bug switched on, decides as the checkout. A bug that is not wholly behind its
/// switch would be found instead of the others, and the campaign would test other programs than those of users.
fn harmless(root: &Path, simulator: &Path) -> Result<()> {
    let step = Step::begin("schedules with no planted bug switched on, and of the checkout");
    let seeds = |program: &Path| Cmd::new(program.as_os_str()).args(["seeds", HARMLESS]).read();
    let (copy, checkout) = (seeds(simulator)?, seeds(&of_the_checkout(root)?)?);
    if copy != checkout {
        bail!(
            "seeds {HARMLESS} go otherwise than in the checkout though no planted bug is switched on: one is not wholly \
             behind its switch. The copy said\n{copy}\nand the checkout\n{checkout}"
        );
    }
    step.done();
    Ok(())
}

/// Runs each, some side by side, and returns the results in order.
fn each<T, R: Send>(all: &[T], run: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>>
where
    T: Sync,
{
    let queue = Mutex::new(all.iter().enumerate());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let Some((i, one)) = queue.lock().ok().and_then(|mut queue| queue.next()) else { return };
                    let result = run(one);
                    if let Ok(mut done) = done.lock() {
                        done.push((i, result));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(i, _)| *i);
    if done.len() < all.len() {
        bail!("a thread broke off");
    }
    done.into_iter().map(|(_, result)| result).collect()
}

fn line(bug: &Bug, result: &SearchResult) -> String {
    let (number, words) = match result {
        SearchResult::Found(number, law) => (number.to_string(), law.clone()),
        SearchResult::NotFound(number) => (number.to_string(), "NOT FOUND".to_owned()),
        SearchResult::Broke(words) => ("-".to_owned(), format!("BROKE: {words}")),
    };
    format!("{:<44} {number:>6}  {words}", bug.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_one_is_run_and_keeps_its_place() {
        let all: Vec<u32> = (0..50).collect();
        assert_eq!(each(&all, |n| Ok(n * 2)).unwrap(), all.iter().map(|n| n * 2).collect::<Vec<_>>());
        let failed = each(&all, |n| if *n == 7 { bail!("seven") } else { Ok(()) });
        assert_eq!(failed.unwrap_err().to_string(), "seven");
    }

    #[test]
    fn bugs_are_chosen_by_name() {
        let bug = |id: &str| Bug { id: id.into(), ..Bug::default() };
        let all = [bug("a"), bug("b")];
        assert_eq!(choose(&all, &[]).unwrap().len(), 2);
        assert_eq!(choose(&all, &["b".into()]).unwrap()[0].id, "b");
        assert!(choose(&all, &["c".into()]).is_err());
    }
}
