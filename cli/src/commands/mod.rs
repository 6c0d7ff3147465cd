//! The commands; a file each.

mod completion;
mod restart;
mod status;
mod wait;

use std::process::ExitCode;

use clap::Subcommand;

use crate::args::Cli;
use crate::failure::Failure;
use crate::session::Session;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print a completion script for a shell.
    Completion(completion::Args),
    /// Show what is asked for, how far it is, and what it waits for.
    Status(status::Args),
    /// Restart containers in place.
    Restart(restart::Args),
    /// Wait until requests have ended: exit code 0 for success, 1 for failure, 2 when the time is over.
    Wait(wait::Args),
}

/// Does what the command line says. The exit code is that of a command that did its work; errors have their own.
pub async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { globals, command } = cli;
    let session = || Session::open(&globals);
    match command {
        Command::Completion(args) => Ok(completion::run(&args)),
        Command::Status(args) => status::run(&session().await?, &args).await,
        Command::Restart(args) => restart::run(&session().await?, &args).await,
        Command::Wait(args) => wait::run(&session().await?, &args).await,
    }
}
