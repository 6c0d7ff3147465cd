//! `undo`: rolls a workload back to an earlier template.

use std::process::ExitCode;

use k8s_openapi::api::apps::v1::{ControllerRevision, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::core::{ApiResource, Selector};
use pitstop_api::rollout::TargetKind;
use pitstop_cli_core::follow::Goal;
use pitstop_cli_core::target::{RequestKind, Target};
use pitstop_cli_core::{set_image, undo, workload};

use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Store, Storing};
use crate::waiting::{self, WaitTarget, Waiting};

/// The workload, and the revision.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The workload, such as deploy/web.
    target: String,
    /// The revision to roll back to, from `kubectl rollout history`. Default: the newest with another template.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..))]
    to_revision: Option<i64>,
    #[command(flatten)]
    storing: Storing,
    #[command(flatten)]
    waiting: Waiting,
}

/// Rolls the workload back.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let (kind, name) = match Target::parse(&args.target).map_err(Failure::invalid)? {
        Target::Workload(kind, name) => (kind, name),
        target => {
            return Err(Failure::invalid(format!(
                "{target} is not a workload: name a Deployment, a StatefulSet or a DaemonSet, such as deploy/web"
            )));
        }
    };
    let acting = session.rollout_of(kind, &name).await?;
    let in_place = acting.filter(|rollout| set_image::check_rollout(&args.target, Some(rollout)).is_ok());
    if in_place.is_none() && args.waiting.wait {
        return Err(Failure::invalid(format!(
            "{} has no armed InPlaceRollout, so its own controller would roll it back with new Pods: omit --wait, and use `kubectl rollout status`",
            args.target
        )));
    }
    let workload = session.workload(kind, &name).await?;
    let selector: LabelSelector = serde_json::from_value(workload.selector())
        .map_err(|error| Failure::local("cannot read spec.selector", &error))?;
    let selector =
        Selector::try_from(selector).map_err(|error| Failure::local("cannot read spec.selector", &error))?;
    let resource = match kind {
        TargetKind::Deployment => ApiResource::erase::<ReplicaSet>(&()),
        TargetKind::StatefulSet | TargetKind::DaemonSet => ApiResource::erase::<ControllerRevision>(&()),
    };
    let history =
        session.list_all(&session.dynamic(&resource), ListParams::default().labels_from(&selector)).await?;
    let (mut change, number) = undo::undo(&workload, &history, args.to_revision).map_err(Failure::invalid)?;
    if in_place.is_some() {
        workload.park_with(&mut change.patch).map_err(Failure::invalid)?;
    }
    let done = format!("rolled back to revision {number}");
    let store = Store::new(session, &args.storing);
    let stored = store.patch_any(&workload::resource(kind), &name, &change, &done).await?;
    let awaited = in_place.map(|rollout| WaitTarget {
        kind: RequestKind::Rollout,
        name: rollout.name_any(),
        uid: rollout.uid(),
        goal: stored.metadata.generation.map_or(Goal::End, Goal::Update),
    });
    waiting::if_asked(session, &args.waiting, &args.storing, awaited.into_iter().collect()).await
}
