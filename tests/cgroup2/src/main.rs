//! `cargo xtask cgroup2`: the first process of a virtual machine whose only cgroups are v2, with all controllers.
//!
//! It makes cgroups as a kubelet and a runtime make them, has a process in them that uses memory, and lets the daemon's
//! own code read and write them. Its lines on the console are `ok NAME`, `FAILED NAME: why`, one `record JSON` with the
//! text of the files in some states, and at the end `done N ok, M failed`. Then the machine is turned off.

mod checks;
mod load;
mod machine;
mod pod;
mod record;
mod runc;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, role, procs] = args.as_slice()
        && role == load::ROLE
    {
        return load::serve(procs);
    }
    if std::process::id() != 1 {
        eprintln!("this is the first process of a virtual machine: `cargo xtask cgroup2` runs it");
        return ExitCode::FAILURE;
    }
    let mut report = Report::default();
    match machine::start() {
        Ok(machine) => {
            // First: the UIDs of its Pods are counted.
            let states = record::states(&machine);
            checks::run(&machine, &mut report);
            report.record(states);
        }
        Err(error) => report.check("the machine starts", Err(error)),
    }
    println!("done {} ok, {} failed", report.passed, report.failed);
    machine::turn_off()
}

/// What was printed so far.
#[derive(Debug, Default)]
struct Report {
    passed: u32,
    failed: u32,
}

impl Report {
    fn check(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}: {}", format!("{error:#}").replace('\n', "; "));
            }
        }
    }

    fn record(&mut self, states: Result<Value>) {
        match states {
            Ok(states) => println!("record {states}"),
            Err(error) => self.check("the states are recorded", Err(error)),
        }
    }
}
