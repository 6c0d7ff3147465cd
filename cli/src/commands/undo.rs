//! `undo`: the template that a workload had before.

use std::process::ExitCode;

use k8s_openapi::api::apps::v1::{ControllerRevision, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::core::{ApiResource, Selector};
use pitstop_api::rollout::TargetKind;
use pitstop_cli_core::target::Target;
use pitstop_cli_core::{undo, workload};

use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Place, Store, Storing};

/// Of which workload.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The workload, such as deploy/web.
    target: String,
    /// The revision to go back to, as `kubectl rollout history` numbers them. Otherwise the newest with another template.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..))]
    to_revision: Option<i64>,
    #[command(flatten)]
    storing: Storing,
}

/// Goes back to it.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let (kind, name) = match Target::parse(&args.target).map_err(Failure::invalid)? {
        Target::Workload(kind, name) => (kind, name),
        target => {
            return Err(Failure::invalid(format!(
                "{target} is no workload: name a Deployment, a StatefulSet or a DaemonSet, such as deploy/web"
            )));
        }
    };
    let workload = session.workload(kind, &name).await?;
    let selector: LabelSelector = serde_json::from_value(workload.selector())
        .map_err(|error| Failure::local("cannot read spec.selector", &error))?;
    let selector =
        Selector::try_from(selector).map_err(|error| Failure::local("cannot read spec.selector", &error))?;
    let resource = match kind {
        TargetKind::Deployment => ApiResource::erase::<ReplicaSet>(&()),
        TargetKind::StatefulSet | TargetKind::DaemonSet => ApiResource::erase::<ControllerRevision>(&()),
    };
    let history = session
        .list_all(&session.dynamic(&resource, Place::Namespace), ListParams::default().labels_from(&selector))
        .await?;
    let (change, number) = undo::undo(&workload, &history, args.to_revision).map_err(Failure::invalid)?;
    let done = format!("rolled back to revision {number}");
    let store = Store::new(session, &args.storing);
    let stored = store.patch_any(&workload::resource(kind), Place::Namespace, &name, &change, &done).await?;
    let stored = workload::Workload { kind, object: stored };
    if stored.is_parked() {
        eprintln!(
            "its running Pods are changed in place; to wait for that: kubectl pitstop wait {}",
            stored.target()
        );
    }
    Ok(ExitCode::SUCCESS)
}
