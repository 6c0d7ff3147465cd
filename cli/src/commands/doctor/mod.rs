//! `doctor`: whether the installation is complete, and what to do if it is not.

mod admission;
mod gather;
mod probes;
mod remains;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use pitstop_cli_core::doctor::remains::examine as examine_remains;
use pitstop_cli_core::doctor::{Finding, examine, exit_code, lines};
use pitstop_cli_core::draw::Look;
use serde_json::json;

use super::status::screen;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;

/// The installation, and the output format.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The namespace of pitstop.
    #[arg(long, value_name = "NAMESPACE", default_value = "pitstop-system")]
    controller_namespace: String,
    /// Check instead what an uninstallation would interrupt or leave behind: exit code 1 if something is at work.
    #[arg(long)]
    before_uninstall: bool,
    /// Print the findings as data.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Examines the installation. The exit code is that of the findings.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let system = &args.controller_namespace;
    let findings = if args.before_uninstall {
        examine_remains(&Box::pin(remains::facts(session, system)).await?)
    } else {
        examine(&Box::pin(gather::facts(session, system)).await?)
    };
    if let Some(format) = args.output {
        output::print(&output::rendered(data(&findings), format)?);
    } else {
        let terminal = std::io::stdout().is_terminal();
        let size = terminal.then(screen::size).map(|(width, _)| (width, usize::MAX));
        for line in lines(&findings, Look { size, ..screen::look(terminal) }) {
            output::print(&line);
        }
    }
    Ok(ExitCode::from(exit_code(&findings)))
}

fn data(findings: &[Finding]) -> serde_json::Value {
    json!({"findings": findings, "exitCode": exit_code(findings)})
}
