//! `restart`: containers of Pods, or the Pods of a workload, in place.

use std::process::ExitCode;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use pitstop_api::recreate::Mechanism;
use pitstop_api::rollout::{InPlaceRollout, Share, TargetKind};
use pitstop_cli_core::containers::{Choice, DEFAULT_CONTAINER, choose};
use pitstop_cli_core::restart::{self, RestartOptions, RolloutRestart, restart_change};
use pitstop_cli_core::strategy::StrategyOptions;
use pitstop_cli_core::target::{RequestKind, Target};
use pitstop_cli_core::{rollouts, selected, share};
use pitstop_kit::clock;

use crate::args::seconds;
use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Store, Storing};
use crate::waiting::{self, WaitTarget, Waiting};

/// What to restart, and how.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Pods or workloads to restart, such as pod/web-0, deploy/web, sts/db or ds/agent.
    #[arg(required_unless_present = "selector", value_name = "TARGET")]
    targets: Vec<String>,
    /// Restart the Pods with these labels, such as app=web. One `InPlaceRollout` restarts them in order, within its budget.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "targets")]
    selector: Option<String>,
    #[command(flatten)]
    containers: Containers,
    #[command(flatten)]
    flags: RestartFlags,
    #[command(flatten)]
    storing: Storing,
    #[command(flatten)]
    waiting: Waiting,
}

/// Which containers.
#[derive(clap::Args, Debug)]
struct Containers {
    /// The containers. Default of a Pod: its only main container, or the one in its annotation
    /// kubectl.kubernetes.io/default-container. Default of a workload: all main containers.
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    container: Vec<String>,
    /// Restart all main containers and sidecars.
    #[arg(long, conflicts_with = "container")]
    all_containers: bool,
}

/// How to restart. A field that is written into a rollout stays there.
#[derive(clap::Args, Debug)]
struct RestartFlags {
    /// Keep the Pod not ready for this time before its first container stops.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    drain: Option<i64>,
    /// For a workload: how many Pods may be unavailable at a time, such as 2 or 25%.
    #[arg(long, value_name = "N", value_parser = share::read)]
    max_unavailable: Option<Share>,
    /// For a Pod: the mechanism, Auto, Runtime or Kubelet.
    #[arg(long, value_name = "HOW", value_parser = mechanism)]
    mechanism: Option<Mechanism>,
    /// For a Pod: the grace period of the preStop hook and the stop together. Default: the Pod's own.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    grace: Option<i64>,
    /// For a Pod: stop a container only after the one before it is up again.
    #[arg(long)]
    ordered: bool,
    /// For a Pod: end the request after this time. Default: that of the controller, one hour.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    deadline: Option<i64>,
    /// For a Pod: delete the request this long after its end. Default: one hour.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    ttl: Option<i64>,
}

/// Seconds for which a command's request is kept: long enough for a look at it.
pub const KEPT_SECONDS: i32 = 3_600;

fn mechanism(text: &str) -> Result<Mechanism, String> {
    [("auto", Mechanism::Auto), ("runtime", Mechanism::Runtime), ("kubelet", Mechanism::Kubelet)]
        .into_iter()
        .find_map(|(name, mechanism)| text.eq_ignore_ascii_case(name).then_some(mechanism))
        .ok_or_else(|| "write Auto, Runtime or Kubelet".to_owned())
}

/// Makes the requests.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let store = Store::new(session, &args.storing);
    let mut awaited = Vec::new();
    if let Some(selector) = &args.selector {
        awaited.push(by_labels(session, &store, args, selector).await?);
    }
    for target in Target::parse_all(&args.targets).map_err(Failure::invalid)? {
        awaited.push(match target {
            Target::Pod(name) => pod(session, &store, args, &name).await?,
            Target::Workload(kind, name) => workload(session, &store, args, kind, &name).await?,
            Target::Request(..) => {
                return Err(Failure::invalid(format!(
                    "{target} is a request: restart a Pod or a workload, such as pod/web-0 or deploy/web"
                )));
            }
        });
    }
    waiting::if_asked(session, &args.waiting, &args.storing, awaited).await
}

async fn pod(session: &Session, store: &Store<'_>, args: &Args, name: &str) -> Result<WaitTarget, Failure> {
    if args.flags.max_unavailable.is_some() {
        return Err(Failure::invalid(format!(
            "--max-unavailable is only for workloads, and pod/{name} is a single Pod"
        )));
    }
    let ttl = args.flags.ttl.map_or(Ok(KEPT_SECONDS), i32::try_from);
    let options = RestartOptions {
        mechanism: args.flags.mechanism,
        ordered: args.flags.ordered,
        drain: args.flags.drain,
        grace: args.flags.grace,
        deadline: args.flags.deadline,
        ttl: Some(ttl.map_err(|_| Failure::invalid("--ttl must be at most 365 days"))?),
    };
    let pod: Pod = session.api().get(name).await?;
    let request = restart::request(&pod, &args.containers.choice(), &options).map_err(Failure::invalid)?;
    let made = store.create(&request).await?;
    Ok(waiting::of(RequestKind::Restart, &made))
}

async fn workload(
    session: &Session,
    store: &Store<'_>,
    args: &Args,
    kind: TargetKind,
    name: &str,
) -> Result<WaitTarget, Failure> {
    args.flags.check_for_rollouts(&format!("{}/{name}", kind.name().to_ascii_lowercase()))?;
    let workload = session.workload(kind, name).await?;
    let containers = match args.containers.choice() {
        Choice::Named(named) if named.is_empty() => Vec::new(),
        choice => {
            let pods = workload.pods().map_err(Failure::invalid)?;
            let default = workload.pod_annotation(DEFAULT_CONTAINER);
            choose(&workload.target(), &pods, default, &choice).map_err(Failure::invalid)?
        }
    };
    let all = session.rollouts().await?;
    let new = rollouts::new(kind, name, &all);
    let existing = rollouts::of_workload(kind, name, all).into_iter().next();
    restart_by_rollout(store, args, existing, new, containers).await
}

async fn by_labels(
    session: &Session,
    store: &Store<'_>,
    args: &Args,
    selector: &str,
) -> Result<WaitTarget, Failure> {
    args.flags.check_for_rollouts("-l")?;
    let labels = selected::labels(selector).map_err(Failure::invalid)?;
    if args.containers.all_containers {
        return Err(Failure::invalid(
            "--all-containers cannot be used with -l: name the containers with -c, or omit both for all main containers",
        ));
    }
    let existing = selected::existing(&labels, session.rollouts().await?);
    restart_by_rollout(store, args, existing, selected::new(labels), args.containers.container.clone()).await
}

/// Changes the existing rollout, or makes one.
async fn restart_by_rollout(
    store: &Store<'_>,
    args: &Args,
    existing: Option<InPlaceRollout>,
    new: InPlaceRollout,
    containers: Vec<String>,
) -> Result<WaitTarget, Failure> {
    let (max_unavailable, drain) = (args.flags.max_unavailable.clone(), args.flags.drain);
    let strategy = StrategyOptions { max_unavailable, drain, ..StrategyOptions::default() };
    let restart = RolloutRestart { containers, strategy };
    let exists = existing.is_some();
    let rollout = existing.unwrap_or(new);
    let change = restart_change(&rollout, &restart, &args.storing.field_manager, clock::wall_micros())
        .map_err(Failure::invalid)?;
    let stored = if exists {
        store.patch::<InPlaceRollout>(&rollout.name_any(), &change, "restarted").await?
    } else {
        store.create(&rollouts::changed(&rollout, &change).map_err(Failure::invalid)?).await?
    };
    Ok(waiting::of(RequestKind::Rollout, &stored))
}

impl Containers {
    fn choice(&self) -> Choice {
        if self.all_containers { Choice::All } else { Choice::Named(self.container.clone()) }
    }
}

impl RestartFlags {
    /// Fails if an option is set that a rollout has no field for.
    fn check_for_rollouts(&self, target: &str) -> Result<(), Failure> {
        let given = [
            ("--mechanism", self.mechanism.is_some()),
            ("--grace", self.grace.is_some()),
            ("--ordered", self.ordered),
            ("--deadline", self.deadline.is_some()),
            ("--ttl", self.ttl.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::invalid(format!(
                "{flag} is only for single Pods, but an InPlaceRollout restarts {target}: omit {flag}, or name the Pods"
            ))),
        }
    }
}
