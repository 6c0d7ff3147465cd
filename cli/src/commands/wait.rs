//! `wait`: waits until requests have ended, and prints how.

use std::process::ExitCode;
use std::time::Duration;

use pitstop_cli_core::follow::Goal;
use pitstop_cli_core::target::{RequestKind, Target};

use crate::args::duration;
use crate::failure::Failure;
use crate::session::Session;
use crate::waiting::{self, WaitTarget};

/// The requests.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Requests such as crr/web-0-x2x4p, or workloads such as deploy/web, whose `InPlaceRollout` is waited for.
    #[arg(required = true, value_name = "REQUEST")]
    requests: Vec<String>,
    /// How long to wait, such as `90s` or `10m`; `0` checks once.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    timeout: Duration,
}

/// Waits for the requests.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let targets = Target::parse_all(&args.requests).map_err(Failure::invalid)?;
    let mut awaited = Vec::new();
    for target in targets {
        awaited.push(one(session, target).await?);
    }
    Ok(waiting::all(session, awaited, args.timeout, false).await)
}

async fn one(session: &Session, target: Target) -> Result<WaitTarget, Failure> {
    match target {
        Target::Request(kind, name) => Ok(WaitTarget { kind, name, uid: None, goal: Goal::End }),
        Target::Workload(kind, ref name) => {
            let acting = session.rollout_of(kind, name).await?.ok_or_else(|| {
                Failure::invalid(format!(
                    "{target} has no InPlaceRollout to wait for; `kubectl rollout status {target}` waits for its own controller"
                ))
            })?;
            let uid = acting.metadata.uid;
            Ok(WaitTarget {
                kind: RequestKind::Rollout,
                name: acting.metadata.name.unwrap_or_default(),
                uid,
                goal: Goal::End,
            })
        }
        Target::Pod(_) => Err(Failure::invalid(format!(
            "{target} is not a request: name one, such as crr/NAME; `kubectl wait {target} --for=condition=Ready` waits for a Pod"
        ))),
    }
}
