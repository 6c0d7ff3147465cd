//! `manual`: writes the pages about all commands, for the documentation and for packages.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::failure::Failure;
use crate::manual;

/// The directory and the format.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The directory. It is created if it is missing.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// The format of the pages.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "markdown")]
    format: Format,
}

/// The form of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Markdown.
    Markdown,
    /// Pages for `man`.
    Man,
}

/// Writes the pages. Files that are no longer pages stay.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| {
        Failure::local(&format!("cannot write the manual into {}", args.directory.display()), &error)
    };
    let pages = match args.format {
        Format::Markdown => manual::markdown(),
        Format::Man => manual::man().map_err(failed)?,
    };
    fs::create_dir_all(&args.directory).map_err(failed)?;
    for page in pages {
        fs::write(args.directory.join(page.file), page.text).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}
