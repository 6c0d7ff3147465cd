//! `cancel`: ends open requests.

use std::process::ExitCode;

use kube::core::{NamespaceResourceScope, Resource};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::InPlaceRollout;
use pitstop_cli_core::cancel::{self, Cancel, Cancelled};
use pitstop_cli_core::target::{RequestKind, Target};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Place, Store, Storing};

/// Which.
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
                let acting = session.acting(kind, name).await?.ok_or_else(|| {
                    Failure::invalid(format!("{target} has no InPlaceRollout: there is nothing to cancel"))
                })?;
                by(&store, &acting, cancel::rollout(&acting)).await?;
            }
            Target::Pod(_) => {
                return Err(Failure::invalid(format!(
                    "{target} is no request: `kubectl get pitstop` lists them"
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
            by(store, &request, cancel::restart(&request)).await
        }
        RequestKind::Resize => {
            let request: PodResize = session.api().get(name).await?;
            by(store, &request, cancel::resize(&request)).await
        }
        RequestKind::ImageUpdate => {
            let request: PodImageUpdate = session.api().get(name).await?;
            by(store, &request, cancel::image_update(&request)).await
        }
        RequestKind::Rollout => {
            let request: InPlaceRollout = session.api().get(name).await?;
            by(store, &request, cancel::rollout(&request)).await
        }
    }
}

async fn by<K>(store: &Store<'_>, request: &K, cancelled: Cancelled) -> Result<(), Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize + DeserializeOwned,
{
    let (cancel, then) = cancelled.map_err(Failure::invalid)?;
    match cancel {
        Cancel::Delete => store.delete(request).await?,
        Cancel::Change(change) => {
            let name = request.meta().name.clone().unwrap_or_default();
            drop(store.patch::<K>(Place::Namespace, &name, &change, "cancelled").await?);
        }
    }
    eprintln!("{then}");
    Ok(())
}
