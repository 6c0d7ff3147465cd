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
use cargo_metadata::Message;

use crate::kubernetes::Kubernetes;
use crate::progress::{note, seconds};
use crate::sh::Cmd;
use crate::{cluster, crds, protos, sim, support};

/// The compiler wrapper of `.ci/run`.
const WRAPPER: &str = ".ci/clippy";

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

/// Lints of Rust. In `.ci/run`, clippy compiles what the tests run, so that one build of all dependencies serves both.
fn clippy(root: &Path) -> Result<()> {
    let targets = ["--locked", "--quiet", "--keep-going", "--workspace", "--all-targets"];
    let compiles = std::env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|it| it == root.join(WRAPPER));
    if !compiles {
        return Cmd::cargo().arg("clippy").args(targets).args(["--", "-D", "warnings"]).dir(root).run();
    }
    let mut found = String::new();
    let build = Cmd::cargo().arg("build").args(targets).arg("--message-format=json").dir(root);
    let status = build.each_line(|line| {
        let text = diagnostics(line.unwrap_or_default());
        // A file that is in two targets is compiled twice.
        if !found.contains(&text) {
            found.push_str(&text);
        }
    })?;
    if !found.is_empty() || !status.success() {
        bail!("{found}`cargo build` with {WRAPPER} ended with {status}");
    }
    Ok(())
}

/// Warnings and errors in a line of cargo's output, as the compiler shows them.
fn diagnostics(line: &[u8]) -> String {
    let messages = Message::parse_stream(line).filter_map(|message| match message.ok()? {
        Message::CompilerMessage(found) => found.message.rendered,
        Message::TextLine(text) => Some(text + "\n"),
        _ => None,
    });
    messages.collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_build_that_lints_reports_what_the_compiler_found_and_nothing_else() {
        let target = json!({"name": "x", "kind": ["lib"], "crate_types": ["lib"], "src_path": "/x.rs"});
        let found = json!({"reason": "compiler-message", "package_id": "x", "target": target, "message":
            {"message": "unused", "level": "warning", "spans": [], "children": [], "rendered": "warning: unused\n"}});
        let lines = [found, json!({"reason": "build-finished", "success": true})];
        let all: String = lines.iter().map(|line| diagnostics(line.to_string().as_bytes())).collect();
        assert_eq!(all, "warning: unused\n");
        assert_eq!(diagnostics(b"error: no such package\n"), "error: no such package\n");
    }
}
