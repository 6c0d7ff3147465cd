//! `cargo xtask attacks`: runs every probe on the cluster that `KUBECONFIG` names; the last line counts.

use std::process::ExitCode;

use anyhow::Result;
use pitstop_attacks::families;
use pitstop_attacks::report::Report;
use pitstop_attacks::stage::Stage;

fn main() -> ExitCode {
    match run() {
        Ok(report) => {
            println!("{}", report.last_line());
            if report.unexpected() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("attacks: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Report> {
    pitstop_e2e::runtime()?.block_on(async {
        let mut stage = Box::pin(Stage::set_up()).await?;
        let mut report = Report::new();
        Box::pin(families::run(&mut stage, &mut report)).await;
        stage.clear().await?;
        Ok(report)
    })
}
