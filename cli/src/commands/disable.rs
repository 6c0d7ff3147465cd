//! `disable`: template changes go the native way again, and a parked workload is released, even if no controller runs.

use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;
use kube::api::ListParams;
use pitstop_api::rollout::{PARKED, TargetKind};
use pitstop_cli_core::change::Change;
use pitstop_cli_core::enable::{DisableOptions, disable_actions};
use pitstop_cli_core::rollouts::of_workload;
use pitstop_cli_core::switch::SwitchTarget;
use pitstop_cli_core::workload::{Workload, resource};
use pitstop_cli_core::{opt_in, plain};
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Store, Storing};

/// What.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A namespace such as namespace/shop, or a workload such as deploy/web.
    target: String,
    /// For a workload: delete its `InPlaceRollout`. By default, it is deleted only if it would park the workload again.
    #[arg(long)]
    delete: bool,
    /// For a workload: release it even if its last update failed. Its own controller then makes new Pods of the failed template.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    storing: Storing,
}

/// Time within which admission notices that a rollout is gone: it watches rollouts.
const NOTICED: Duration = Duration::from_secs(15);
/// Time after which a workload that was parked again is released again.
const AGAIN: Duration = Duration::from_millis(500);

/// Switches the target off.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    match SwitchTarget::parse(&args.target).map_err(Failure::invalid)? {
        SwitchTarget::Namespace(name) => {
            if args.delete || args.force {
                return Err(Failure::invalid("--delete and --force are only for workloads"));
            }
            let inside = Session { client: session.client.clone(), namespace: name };
            namespace(&inside, &Store::new(&inside, &args.storing)).await?;
        }
        SwitchTarget::Workload(kind, name) => {
            workload(session, &Store::new(session, &args.storing), args, kind, &name).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn workload(
    session: &Session,
    store: &Store<'_>,
    args: &Args,
    kind: TargetKind,
    name: &str,
) -> Result<(), Failure> {
    let workload = session.workload(kind, name).await?;
    let release = workload.release_change().map_err(Failure::invalid)?;
    let rollouts = of_workload(kind, name, session.rollouts().await?);
    let options = DisableOptions { delete: args.delete, force: args.force };
    for (rollout, action) in disable_actions(&workload, rollouts, options).map_err(Failure::invalid)? {
        store.carry_out(&rollout, action, "disabled").await?;
    }
    match release {
        Some(change) => release_workload(store, args, &workload, &change).await,
        None => Ok(()),
    }
}

/// Releases the workload; again, while admission has not noticed that its rollout is gone.
async fn release_workload(
    store: &Store<'_>,
    args: &Args,
    workload: &Workload,
    change: &Change,
) -> Result<(), Failure> {
    let (kind, name) = (workload.kind, workload.object.name_any());
    let until = Instant::now() + NOTICED;
    let stored = loop {
        let object = store.patch_quietly(&resource(kind), &name, change).await?;
        let stored = Workload { kind, object };
        if !stored.is_parked() || !args.storing.stores() {
            break stored;
        }
        if Instant::now() >= until {
            return Err(Failure::invalid(format!(
                "{} is parked again after each release: an InPlaceRollout with the label pitstop.dev/armed targets it. Delete \
                 that InPlaceRollout (`kubectl get ipr`), then run this command again",
                stored.target()
            )));
        }
        sleep(AGAIN).await;
    };
    store.report(&resource(kind), &stored.object, "released")?;
    eprintln!("the workload's own controller now replaces the Pods that do not have the current template");
    Ok(())
}

/// Removes the label, so that nothing more is parked, and then the right to release workloads, if no workload needs it.
/// `session` is in that namespace.
async fn namespace(session: &Session, store: &Store<'_>) -> Result<(), Failure> {
    let name = &session.namespace;
    let found: Namespace = session.cluster().get(name).await?;
    if found.labels().contains_key(opt_in::LABEL) {
        drop(store.patch::<Namespace>(name, &opt_in::label(false), "disabled").await?);
    }
    none_parked(session).await?;
    let Some(binding) = session.api::<RoleBinding>().get_opt(opt_in::ROLE).await? else { return Ok(()) };
    if binding.role_ref.name == opt_in::ROLE {
        return store.delete(&binding).await;
    }
    eprintln!("rolebinding/{} stays: it binds {}", opt_in::ROLE, plain::line(&binding.role_ref.name, 253));
    Ok(())
}

/// Fails if a workload is parked: without that right, the controller could not release it.
async fn none_parked(session: &Session) -> Result<(), Failure> {
    for kind in [TargetKind::Deployment, TargetKind::StatefulSet, TargetKind::DaemonSet] {
        let api = session.dynamic(&resource(kind));
        let parked = api.list(&ListParams::default().labels(PARKED).limit(1)).await?.items.into_iter().next();
        if let Some(object) = parked {
            let target = Workload { kind, object }.target();
            return Err(Failure::invalid(format!(
                "{target} is parked, and without the RoleBinding the controller could not release it: run `kubectl pitstop disable {target} \
                 --namespace={}` first",
                session.namespace
            )));
        }
    }
    Ok(())
}
