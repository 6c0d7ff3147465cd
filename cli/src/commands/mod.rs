//! The commands; a file each.

mod completion;

use std::process::ExitCode;

use clap::Subcommand;

use crate::args::Cli;
use crate::failure::Failure;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print a completion script for a shell.
    Completion(completion::Args),
}

/// Does what the command line says. The exit code is that of a command that did its work; errors have their own.
pub async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { globals: _, command } = cli;
    match command {
        Command::Completion(args) => Ok(completion::run(&args)),
    }
}
