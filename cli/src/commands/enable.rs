//! `enable`: template changes of a workload in its running Pods, and the opt-in of a namespace.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt as _};
use pitstop_api::rollout::{InPlaceRollout, OnFailure, Share, TargetKind};
use pitstop_cli_core::follow::Goal;
use pitstop_cli_core::rollouts::{changed, new, of_workload};
use pitstop_cli_core::strategy::StrategyOptions;
use pitstop_cli_core::switch::SwitchTarget;
use pitstop_cli_core::target::RequestKind;
use pitstop_cli_core::{enable, opt_in, share};

use crate::args::seconds;
use crate::failure::Failure;
use crate::output::as_dynamic;
use crate::session::Session;
use crate::store::{Store, Storing};
use crate::waiting::{self, WaitTarget, Waiting};

/// The target, and the strategy of its rollout.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A namespace such as namespace/shop, or a workload such as deploy/web.
    target: String,
    /// For a workload: how many Pods may be unavailable at a time, such as 2 or 25%. Default: that of its own strategy.
    #[arg(long, value_name = "N", value_parser = share::read)]
    max_unavailable: Option<Share>,
    /// For a workload: how many Pods change first, while the others wait.
    #[arg(long, value_name = "PODS", value_parser = clap::value_parser!(i32).range(1..=1000))]
    canary: Option<i32>,
    /// For a workload: how long a Pod must run before it counts. Default: 10s.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    soak: Option<i64>,
    /// For a workload: when Pods fail, change no further Pods (Pause), or also roll the updated Pods back (`RollBack`).
    #[arg(long, value_name = "WHAT", ignore_case = true, value_parser = PossibleValuesParser::new(["Pause", "RollBack"]))]
    on_failure: Option<String>,
    /// For a workload: keep each Pod not ready for this time before its first container stops.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    drain: Option<i64>,
    /// For a namespace: the namespace of pitstop's controller.
    #[arg(long, value_name = "NAMESPACE", default_value = "pitstop-system")]
    controller_namespace: String,
    #[command(flatten)]
    storing: Storing,
    #[command(flatten)]
    waiting: Waiting,
}

/// Switches the target on.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let store = Store::new(session, &args.storing);
    match SwitchTarget::parse(&args.target).map_err(Failure::invalid)? {
        SwitchTarget::Namespace(name) => {
            if !args.strategy().fields().is_empty() || args.waiting.wait {
                return Err(Failure::invalid(
                    "--max-unavailable, --canary, --soak, --on-failure, --drain and --wait are only for workloads",
                ));
            }
            let inside = Session { client: session.client.clone(), namespace: name.clone() };
            namespace(&inside, &Store::new(&inside, &args.storing), args).await?;
            Ok(ExitCode::SUCCESS)
        }
        SwitchTarget::Workload(kind, name) => {
            let rollout = workload(session, &store, args, kind, &name).await?;
            let armed = WaitTarget { goal: Goal::Armed, ..waiting::of(RequestKind::Rollout, &rollout) };
            waiting::if_asked(session, &args.waiting, &args.storing, vec![armed]).await
        }
    }
}

impl Args {
    fn strategy(&self) -> StrategyOptions {
        StrategyOptions {
            max_unavailable: self.max_unavailable.clone(),
            drain: self.drain,
            canary: self.canary,
            soak: self.soak,
            on_failure: self.on_failure.as_deref().map(|action| match action {
                "RollBack" => OnFailure::RollBack,
                _ => OnFailure::Pause,
            }),
        }
    }
}

/// Switches a rollout on, and returns it.
async fn workload(
    session: &Session,
    store: &Store<'_>,
    args: &Args,
    kind: TargetKind,
    name: &str,
) -> Result<DynamicObject, Failure> {
    let workload = session.workload(kind, name).await?;
    let all = session.rollouts().await?;
    let made = new(kind, name, &all);
    let acting = of_workload(kind, name, all).into_iter().next();
    let exists = acting.is_some();
    let existing = acting.unwrap_or(made);
    let rollout = match enable::enable_change(&existing, &args.strategy()).map_err(Failure::invalid)? {
        Some(change) if exists => {
            store.patch::<InPlaceRollout>(&existing.name_any(), &change, "enabled").await?
        }
        Some(change) => store.create(&changed(&existing, &change).map_err(Failure::invalid)?).await?,
        None => {
            let existing = as_dynamic(&existing)?;
            store.report(&ApiResource::erase::<InPlaceRollout>(&()), &existing, "unchanged")?;
            existing
        }
    };
    if let Ok(namespace) = session.cluster::<Namespace>().get(&session.namespace).await
        && !is_opted_in(&namespace)
    {
        eprintln!(
            "namespace/{0} has not opted in: template changes of {1} make new Pods until you run `kubectl pitstop enable namespace/{0}`",
            session.namespace,
            workload.target()
        );
    }
    Ok(rollout)
}

fn is_opted_in(namespace: &Namespace) -> bool {
    namespace.labels().get(opt_in::LABEL).is_some_and(|value| value == opt_in::ENABLED)
}

/// Adds the label, and the right to release workloads. `session` is in that namespace.
async fn namespace(session: &Session, store: &Store<'_>, args: &Args) -> Result<(), Failure> {
    let name = &session.namespace;
    let found: Namespace = session.cluster().get(name).await?;
    if is_opted_in(&found) {
        store.report(&ApiResource::erase::<Namespace>(&()), &as_dynamic(&found)?, "unchanged")?;
    } else {
        drop(store.patch::<Namespace>(name, &opt_in::label(true), "enabled").await?);
    }
    let role = session.cluster::<ClusterRole>().get_metadata_opt(opt_in::ROLE).await;
    if let Ok(None) = role {
        eprintln!(
            "there is no ClusterRole {}: only single Pods of this namespace can get new images, not workloads. Install the \
             components image-update and in-place, then run this command again",
            opt_in::ROLE
        );
        return Ok(());
    }
    let wanted = opt_in::binding(name, &args.controller_namespace);
    let api: Api<RoleBinding> = session.api();
    match api.get_opt(opt_in::ROLE).await? {
        Some(existing) => {
            opt_in::check_binding(&existing, &wanted).map_err(Failure::invalid)?;
            let existing: DynamicObject = as_dynamic(&existing)?;
            store.report(&ApiResource::erase::<RoleBinding>(&()), &existing, "unchanged")
        }
        None => store.create(&wanted).await.map(drop),
    }
}
