//! `completion`: what a shell needs to complete commands and flags.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;

/// For which shell.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &Args) -> ExitCode {
    clap_complete::generate(args.shell, &mut Cli::command(), "kubectl-pitstop", &mut io::stdout());
    ExitCode::SUCCESS
}
