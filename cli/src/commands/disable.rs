//! `disable`: template changes go the native way again, and a parked workload is released, even if no controller runs.

use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;
use kube::api::ListParams;
use pitstop_api::rollout::{InPlaceRollout, PARKED, TargetKind};
use pitstop_cli_core::change::Change;
use pitstop_cli_core::enable::{Manner, Off, off};
use pitstop_cli_core::rollouts::of_workload;
use pitstop_cli_core::switch::Switched;
use pitstop_cli_core::workload::{Workload, resource};
use pitstop_cli_core::{opt_in, plain};
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Place, Store, Storing};

/// What.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A namespace such as namespace/shop, or a workload such as deploy/web.
    target: String,
    /// Of a workload: delete its `InPlaceRollout`. Otherwise it stays, for restarts, unless it would park the workload again.
    #[arg(long)]
    delete: bool,
    /// Of a workload: release it also if its last update has failed. Its own controller then makes new Pods of that template.
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
    match Switched::parse(&args.target).map_err(Failure::invalid)? {
        Switched::Namespace(name) => {
            if args.delete || args.force {
                return Err(Failure::invalid("--delete and --force are for workloads, not for a namespace"));
            }
            let there = Session { client: session.client.clone(), namespace: name };
            namespace(&there, &Store::new(&there, &args.storing)).await?;
        }
        Switched::Workload(kind, name) => {
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
    let release = workload.released().map_err(Failure::invalid)?;
    let rollouts = of_workload(kind, name, session.rollouts().await?);
    let manner = Manner { delete: args.delete, force: args.force };
    for (rollout, step) in off(&workload, rollouts, manner).map_err(Failure::invalid)? {
        match step {
            Off::Delete => store.delete(&rollout).await?,
            Off::Change(change) => {
                drop(
                    store
                        .patch::<InPlaceRollout>(Place::Namespace, &rollout.name_any(), &change, "disabled")
                        .await?,
                );
            }
        }
    }
    match release {
        Some(change) => released(store, args, &workload, &change).await,
        None => Ok(()),
    }
}

/// Releases the workload; again, while admission has not noticed that its rollout is gone.
async fn released(
    store: &Store<'_>,
    args: &Args,
    workload: &Workload,
    change: &Change,
) -> Result<(), Failure> {
    let (kind, name) = (workload.kind, workload.object.name_any());
    let until = Instant::now() + NOTICED;
    let stored = loop {
        let object = store.patch_quietly(&resource(kind), Place::Namespace, &name, change).await?;
        let stored = Workload { kind, object };
        if !stored.is_parked() || !args.storing.stores() {
            break stored;
        }
        if Instant::now() >= until {
            return Err(Failure::invalid(format!(
                "{} is parked again each time that it is released: an InPlaceRollout with the label pitstop.dev/armed names it. Delete \
                 that one (`kubectl get ipr`), and run this again",
                stored.target()
            )));
        }
        sleep(AGAIN).await;
    };
    store.tell(&resource(kind), &stored.object, "released")?;
    eprintln!("its own controller now replaces the Pods that do not have the present template");
    Ok(())
}

/// Removes the label, so that nothing more is parked, and then the right to release workloads, if no workload needs it.
/// `session` is in that namespace.
async fn namespace(session: &Session, store: &Store<'_>) -> Result<(), Failure> {
    let name = &session.namespace;
    let found: Namespace = session.cluster().get(name).await?;
    if found.labels().contains_key(opt_in::LABEL) {
        drop(store.patch::<Namespace>(Place::Cluster, name, &opt_in::label(false), "disabled").await?);
    }
    none_parked(session).await?;
    let Some(binding) = session.api::<RoleBinding>().get_opt(opt_in::ROLE).await? else { return Ok(()) };
    if binding.role_ref.name == opt_in::ROLE {
        return store.delete(&binding).await;
    }
    eprintln!("rolebinding/{} binds {}, and stays", opt_in::ROLE, plain::line(&binding.role_ref.name, 253));
    Ok(())
}

/// Fails if a workload is parked: without that right, the controller could not release it.
async fn none_parked(session: &Session) -> Result<(), Failure> {
    for kind in [TargetKind::Deployment, TargetKind::StatefulSet, TargetKind::DaemonSet] {
        let api = session.dynamic(&resource(kind), Place::Namespace);
        let parked = api.list(&ListParams::default().labels(PARKED).limit(1)).await?.items.into_iter().next();
        if let Some(object) = parked {
            let target = Workload { kind, object }.target();
            return Err(Failure::invalid(format!(
                "{target} is parked, and the controller could not release it any more: run `kubectl pitstop disable {target} \
                 --namespace={}` first",
                session.namespace
            )));
        }
    }
    Ok(())
}
