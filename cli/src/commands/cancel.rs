//! `cancel`: ends open requests.

use std::process::ExitCode;

use kube::core::Resource;
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::InPlaceRollout;
use pitstop_cli_core::cancel::{self, CancelPlan};
use pitstop_cli_core::target::{RequestKind, Target};
use serde::Serialize;

use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Store, Storing};

/// The requests.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Open requests, such as crr/web-0-x2x4p, or workloads such as deploy/web, whose restart is cancelled.
    #[arg(required = true, value_name = "REQUEST")]
    requests: Vec<String>,
    #[command(flatten)]
    storing: Storing,
}

/// Cancels the requests, and prints what happens then.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let store = Store::new(session, &args.storing);
    for target in Target::parse_all(&args.requests).map_err(Failure::invalid)? {
        match target {
            Target::Request(kind, name) => one(session, &store, kind, &name).await?,
            Target::Workload(kind, ref name) => {
                let acting = session.rollout_of(kind, name).await?.ok_or_else(|| {
                    Failure::invalid(format!("{target} has no InPlaceRollout: there is nothing to cancel"))
                })?;
                carry_out(&store, &acting, cancel::rollout(&acting)).await?;
            }
            Target::Pod(_) => {
                return Err(Failure::invalid(format!(
                    "{target} is not a request: `kubectl get pitstop` lists requests"
                )));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn one(session: &Session, store: &Store<'_>, kind: RequestKind, name: &str) -> Result<(), Failure> {
    match kind {
        RequestKind::Restart => {
            let request: ContainerRecreateRequest = session.api().get(name).await?;
            carry_out(store, &request, cancel::restart(&request)).await
        }
        RequestKind::Resize => {
            let request: PodResize = session.api().get(name).await?;
            carry_out(store, &request, cancel::resize(&request)).await
        }
        RequestKind::ImageUpdate => {
            let request: PodImageUpdate = session.api().get(name).await?;
            carry_out(store, &request, cancel::image_update(&request)).await
        }
        RequestKind::Rollout => {
            let request: InPlaceRollout = session.api().get(name).await?;
            carry_out(store, &request, cancel::rollout(&request)).await
        }
    }
}

async fn carry_out<K>(store: &Store<'_>, request: &K, plan: CancelPlan) -> Result<(), Failure>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let (action, effect) = plan.map_err(Failure::invalid)?;
    store.carry_out(request, action, "cancelled").await?;
    eprintln!("{effect}");
    Ok(())
}
