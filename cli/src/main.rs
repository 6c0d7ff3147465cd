//! `kubectl pitstop`: services running Pods in place, shows their progress, and explains why requests wait.
//!
//! It has no rights of its own: it uses the caller's credentials. `pitstop-cli-core` decides and draws;
//! this crate has the flags, the calls to the API server and the terminal.

mod args;
mod commands;
mod complete;
mod failure;
mod manual;
mod output;
mod session;
mod store;
mod waiting;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;
use crate::failure::Failure;

fn main() -> ExitCode {
    if let Some(words) = complete::words(std::env::args_os()) {
        return complete::run(&words);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::local("cannot start", &error).report(),
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Help and version go to standard output and are no failure; a wrong command line is one, with code 1 as in kubectl.
fn print_usage(error: &clap::Error) -> ExitCode {
    // A closed pipe is no error.
    let _ = error.print();
    if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
