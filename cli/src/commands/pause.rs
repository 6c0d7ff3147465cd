//! `pause` and `resume`: whether a rollout begins with further Pods.

use std::process::ExitCode;

use kube::ResourceExt as _;
use pitstop_api::rollout::InPlaceRollout;
use pitstop_cli_core::enable::pause;
use pitstop_cli_core::target::{RequestKind, Target};

use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Store, Storing};

/// The targets.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Workloads such as deploy/web, or rollouts such as inplacerollout/web.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
    #[command(flatten)]
    storing: Storing,
}

/// Pauses or resumes the rollouts.
pub async fn run(session: &Session, args: &Args, paused: bool) -> Result<ExitCode, Failure> {
    let store = Store::new(session, &args.storing);
    for target in Target::parse_all(&args.targets).map_err(Failure::invalid)? {
        let rollout = match &target {
            Target::Workload(kind, name) => session.rollout_of(*kind, name).await?.ok_or_else(|| {
                Failure::invalid(format!(
                    "{target} has no InPlaceRollout; for its own controller, use `kubectl rollout pause` or `resume`"
                ))
            })?,
            Target::Request(RequestKind::Rollout, name) => session.api::<InPlaceRollout>().get(name).await?,
            Target::Request(..) | Target::Pod(_) => {
                return Err(Failure::invalid(format!(
                    "{target} cannot be paused or resumed: name a workload or its InPlaceRollout, such as deploy/web"
                )));
            }
        };
        let change = pause(&rollout, paused).map_err(Failure::invalid)?;
        let done = if paused { "paused" } else { "resumed" };
        drop(store.patch::<InPlaceRollout>(&rollout.name_any(), &change, done).await?);
    }
    Ok(ExitCode::SUCCESS)
}
