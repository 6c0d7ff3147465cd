//! `cargo xtask check`: all checks of the tree that do not run it on a cluster.
//!
//! Every step runs, even after a failure, so that one run shows all failures.

mod deny;
mod files;
mod hosts;
mod laws;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::kubernetes::Kubernetes;
use crate::progress::{note, seconds};
use crate::sh::Cmd;
use crate::{cluster, crds, protos, sim, support};

type Step = (&'static str, fn(&Path) -> Result<()>);

/// Steps. Quick ones that are likely to fail come first.
const STEPS: [Step; 12] = [
    ("format of Rust", rustfmt),
    ("format of Go", gofmt),
    ("file lengths", files::check_lengths),
    ("registry hosts", hosts::check),
    ("laws of the workspace", laws::check),
    ("places of planted bugs", sim::fits),
    ("definitions current", |root| crds::generate(root, true)),
    ("tested platforms current", |root| support::generate(root, true)),
    ("bindings current", |root| protos::generate(root, true)),
    ("dependencies", deny::check),
    ("lints of Rust", clippy),
    ("lints of Go", vet),
];

/// The command.
pub(crate) fn run(root: &Path) -> ExitCode {
    let start = Instant::now();
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        let begun = Instant::now();
        let result = step(root);
        let word = if result.is_ok() { "ok    " } else { "FAILED" };
        println!("{word} {:>8}  {name}", seconds(begun.elapsed()));
        if let Err(error) = result {
            for line in format!("{error:#}").lines() {
                note(line);
            }
            failed.push(name);
        }
    }
    let took = seconds(start.elapsed());
    if failed.is_empty() {
        println!("check: all {} steps passed in {took}", STEPS.len());
        return ExitCode::SUCCESS;
    }
    println!("check: {} of {} steps failed in {took}: {}", failed.len(), STEPS.len(), failed.join(", "));
    ExitCode::FAILURE
}

fn rustfmt(root: &Path) -> Result<()> {
    Cmd::cargo().args(["fmt", "--all", "--check"]).dir(root).run()
}

fn clippy(root: &Path) -> Result<()> {
    let args = [
        "clippy",
        "--locked",
        "--quiet",
        "--keep-going",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    Cmd::cargo().args(args).dir(root).run()
}

fn gofmt(root: &Path) -> Result<()> {
    cluster::require_go()?;
    let unformatted = Cmd::new("gofmt").args(["-l", "."]).dir(&cluster::module(root)).read()?;
    if !unformatted.is_empty() {
        let files = unformatted.split_whitespace().collect::<Vec<_>>().join(" ");
        bail!("not formatted: {files}; run `gofmt -w .` in tests/cluster");
    }
    Ok(())
}

/// Vets all but the folder of the program itself. Its few files call the components, so vet would read all of
/// Kubernetes.
fn vet(root: &Path) -> Result<()> {
    cluster::require_go()?;
    Kubernetes::default().go(root, "vet").args(["./lab/...", "./pause"]).run_quiet()
}
