//! `completion`: a script with which a shell completes commands and flags.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;

/// The shell.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &Args) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kubectl-pitstop", &mut script);
    // A closed pipe is no error.
    let _ = io::stdout().lock().write_all(&script);
    ExitCode::SUCCESS
}
